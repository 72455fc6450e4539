// SPDX-License-Identifier: MIT
// The Boehm-Demers-Weiser collector (libgc) as a peer; see peer.h. Multi-threaded programs define
// GC_THREADS; allocation from thread-local lists and parallel marking are what the library was
// built with.
#define GC_THREADS
#define GC_NO_THREAD_REDIRECTS // its pthread functions are called by name
#include <gc.h>
#include "peer_no_pools.h"

#define PEER_COLLECTS 1

static inline void peer_init(unsigned markers) {
  if (markers) GC_set_markers_count(markers);
  GC_INIT();
}

static inline void *peer_alloc(size_t size) {
  return GC_MALLOC(size);
}
static inline void *peer_alloc_leaf(size_t size) {
  return GC_MALLOC_ATOMIC(size);
}
static inline void peer_free(void *object) {}

static inline int peer_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
  return GC_pthread_create(thread, NULL, fn, arg);
}
static inline void peer_thread_join(pthread_t thread) {
  GC_pthread_join(thread, NULL);
}

static inline void peer_automatic(bool on) {
  if (on)
    GC_enable();
  else
    GC_disable();
}
static inline void peer_collect(void) {
  GC_gcollect();
}
static inline double peer_collections(void) {
  return (double)GC_get_gc_no();
}

static peer_pause_record *peer_watcher __attribute__((unused));

// Called by the collecting thread, which holds libgc's lock.
static inline void peer_event(GC_EventType event) {
  static uint64_t asked_ns, stopped_ns;
  if (event == GC_EVENT_PRE_STOP_WORLD)
    asked_ns = now_ns();
  else if (event == GC_EVENT_POST_STOP_WORLD)
    stopped_ns = now_ns();
  else if (event == GC_EVENT_POST_START_WORLD)
    peer_watcher(now_ns() - asked_ns, stopped_ns - asked_ns);
}
static inline void peer_watch_pauses(peer_pause_record *record) {
  peer_watcher = record;
  GC_set_on_collection_event(peer_event);
}
