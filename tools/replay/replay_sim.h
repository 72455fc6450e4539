// SPDX-License-Identifier: MIT
// What each pool of a recorded program would remember at another GC percent or memory limit, worked
// out without a heap: a pure function of the trace and the settings.
//
// Objects are bytes that are allocated and die, as recorded. The pacer (gc/pacer.h, the same code)
// says when a collection is due; the pool's rule (pool/rotate.c) says what it takes from the pools;
// so hits come out anew. An item that has to be made costs what it cost when it was recorded.
//
// Not in it: private slots that other processors cannot reach, the memory of the pools' own parts,
// and the limiter. Where there is no room below a limit, collections are at least SIM_LEAST_GROWTH
// apart.
#ifndef TIDEPOOL_TOOL_REPLAY_SIM_H
#define TIDEPOOL_TOOL_REPLAY_SIM_H

#include "trace_file.h"

enum { SIM_LEAST_GROWTH = 64 << 10 };

typedef struct sim_setting {
  int gc_percent;       // -1: off
  int64_t memory_limit; // INT64_MAX: none
  uint64_t min_heap_bytes;
  bool forgets_nothing;  // collections take nothing from pools: the best there can be
  unsigned survive;      // of all pools; 0: as recorded
  const double *idle_ms; // by pool: min_idle_ns; NULL: as recorded
  int (*stop)(void);     // asked now and then; not 0: end, with `stopped`. NULL: to the end
} sim_setting;

typedef struct sim_pool {
  uint64_t gets, hits;
  uint64_t most_items; // in it at a time
  uint64_t uses;       // periods between two collections in which something was put
  double use_gap;      // collections from one of those to the next, mean; NAN: fewer than two
  double long_gap_ms;  // the longest of 99 in 100 of them
  double gap_ms;       // how long the items that were got had been idle, median; NAN: none were
} sim_pool;

typedef struct sim_result {
  bool stopped;
  uint64_t collections;
  double period_ms; // from one to the next, mean, in the recording's time; NAN: fewer than two
  sim_pool *pools;  // as many as the trace has
} sim_result;

// False: no memory. The caller frees result->pools.
bool simulate(const trace *t, const sim_setting *setting, sim_result *result);

// What an object of that size takes in the heap.
uint64_t sim_object_bytes(uint64_t bytes);

#endif
