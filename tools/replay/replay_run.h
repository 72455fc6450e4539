// SPDX-License-Identifier: MIT
// A recorded program done again on the real heap and real pools, in a process of its own, so that
// each run begins with an empty heap.
//
// One thread does what all threads did, in the order in which it was recorded. Objects have their
// sizes and kinds and are referred to until they died; pools have the options that they had, and
// answer each get as they see fit: an item that has to be made costs what it cost when it was
// recorded.
#ifndef TIDEPOOL_TOOL_REPLAY_RUN_H
#define TIDEPOOL_TOOL_REPLAY_RUN_H

#include "trace_file.h"

typedef struct run_setting {
  int gc_percent;       // -1: off
  int64_t memory_limit; // INT64_MAX: none
  uint64_t min_heap_bytes;
  double speed; // 2: twice as fast as it was recorded; 0: as fast as possible
} run_setting;

typedef struct run_pool {
  uint64_t gets, hits;
} run_pool;

typedef struct run_result {
  uint64_t collections;
  double period_ms; // from one to the next, mean, in the recording's time; NAN: fewer than two
  double seconds;   // that it took
  run_pool *pools;  // as many as the trace has
} run_result;

// Complains and returns false when it failed; also, without a complaint, when the user asked the
// program to end. done: how much of all runs together is over before this one, and share of this
// one, for the progress bar. The caller frees result->pools. The library has been started.
bool run_replay(const trace *t, const run_setting *setting, double done, double share,
                run_result *result);

#endif
