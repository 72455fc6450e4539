// SPDX-License-Identifier: MIT
// The allocation API that the workloads are written against, bound to one peer at compile time.
//
// PEER_HEADER names the header that binds it: everything there is a static inline function around
// the peer's own call, so that a loop runs as if it had been written for that peer. Each header
// defines
//
//   PEER_COLLECTS                     1 where memory is reclaimed by collections, 0 by peer_free
//   peer_init(markers)                first call; marker threads, 0: as many as the peer thinks fit
//   peer_alloc(size)                  zeroed memory that may hold references, NULL if there is none
//   peer_alloc_leaf(size)             the same without references; contents undefined
//   peer_free(object)                 does nothing in a collector
//   peer_thread_start(thread, fn, arg), peer_thread_join(thread)
//   peer_automatic(on)                whether collections start by themselves
//   peer_collect()                    a full collection
//   peer_collections()                how many there have been
//   peer_watch_pauses(record)         has record called for each pause
//   PEER_POOLS                        1 where there are pools, of type peer_pool
//   peer_pool_create(create)          create makes an item when the pool has none; NULL: nothing
//   peer_pool_destroy(pool), peer_pool_get(pool), peer_pool_put(pool, item)
//   peer_watch_hooks(record)          has record called for each collection
//
// Roots are static variables, stacks, and what they refer to; not malloc'd memory.
#ifndef TIDEPOOL_BENCH_PEER_H
#define TIDEPOOL_BENCH_PEER_H

#include "worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One pause: how long no thread ran, and the part of it that went into stopping them. Called by one
// thread at a time.
typedef void peer_pause_record(uint64_t pause_ns, uint64_t stop_ns);

// The same of the part of the pause that went into cleaning pools up.
typedef void peer_hooks_record(uint64_t pause_ns, uint64_t hooks_ns);

#include PEER_HEADER

// Memory as peer_alloc gives it; ends the worker when there is none.
static inline void *allocate(size_t size) {
  void *object = peer_alloc(size);
  if (__builtin_expect(!object, 0)) fail("out of memory");
  return object;
}

static inline void *allocate_leaf(size_t size) {
  void *object = peer_alloc_leaf(size);
  if (__builtin_expect(!object, 0)) fail("out of memory");
  return object;
}

// The compiler must take the object for used, and its allocation for needed.
static inline void escape(const void *object) {
  __asm__ volatile("" : : "r"(object) : "memory");
}

#endif
