// SPDX-License-Identifier: MIT
// A recording of a program (TIDE_DEBUG=record=FILE), read and checked: docs/trace-format.md has the
// format. What comes after reading may rely on it: numbers of objects, pools and gets exist,
// objects die once, time goes forward.
//
// A pool's items are a chapter of their own. Whether a get found its item is decided anew in a
// replay, so what `create` allocated is no event but a *cost*: what an item is made of. A get that
// was a miss has its own; one that was a hit has that of its pool's last miss, in case it becomes
// one.
#ifndef TIDEPOOL_TOOL_TRACE_FILE_H
#define TIDEPOOL_TOOL_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_kind {
  TRACE_ALLOC,      // object, bytes, letter: s, l or u; not those of `create`
  TRACE_FREE,       // object: by hand
  TRACE_DEATHS,     // objects from object to other: not reachable any more; see trace_deaths.h
  TRACE_RESIZE,     // object, bytes
  TRACE_GROWTH,     // object: an item, bytes: of all it is made of by now
  TRACE_EXTERNAL,   // bytes, negative if they went
  TRACE_COLLECTION, // object: its place in trace.collections
  TRACE_POOL,       // pool
  TRACE_POOL_END,   // pool
  TRACE_GET,        // pool, other: its number, object: the item, cost
  TRACE_PUT,        // pool, other: the get that gave it, object: the item, bytes as measured
} trace_kind;

typedef struct trace_event {
  uint64_t time_us;   // since the start
  uint64_t allocated; // bytes, before it
  uint64_t object;    // 0: none
  uint64_t other;
  int64_t bytes;
  uint32_t pool; // the first is 1
  uint32_t cost; // in trace.costs
  trace_kind kind;
  char letter;
} trace_event;

typedef struct trace_part { // one object
  uint64_t bytes;
  char letter; // s, l or u
} trace_part;

typedef struct trace_cost {
  size_t first, count; // in trace.parts; 0 parts: it is no object of the heap
} trace_cost;

typedef struct trace_pool {
  char *name;
  unsigned survive;
  uint64_t min_idle_ns, max_items, max_bytes, max_item_bytes; // 0: any number, for the last three
  uint64_t gets, hits;
} trace_pool;

typedef struct trace_collection {
  uint64_t time_us;
  bool forced;
  uint64_t live_bytes, stack_bytes, global_bytes, beside_bytes;
} trace_collection;

typedef struct trace {
  trace_event *events;
  trace_cost *costs; // the first is that of nothing
  trace_part *parts;
  trace_pool *pools; // pool n at n - 1
  trace_collection *collections;
  size_t event_count, cost_count, part_count, pool_count, collection_count;
  uint64_t objects, gets, threads; // how many there are; they are numbered from 1
  uint64_t duration_us;
  bool cut_short; // it has no end: the program was killed, or the disk was full
  // In force at the recording's end.
  int gc_percent; // -1: off
  int64_t memory_limit;
  uint64_t min_heap_bytes;
} trace;

// NULL, with a complaint that names the line and what is accepted there, when it cannot be read;
// *status is then what the program is to exit with.
trace *trace_read(const char *path, int *status);
void trace_free(trace *t);

#endif
