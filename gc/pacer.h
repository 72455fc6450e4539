// SPDX-License-Identifier: MIT
// The pacer: when the next collection is due. Pure functions of numbers, without state of their
// own, so that they can be tested on a table of cases.
#ifndef TIDEPOOL_PACER_H
#define TIDEPOOL_PACER_H

#include <stdbool.h>
#include <stdint.h>

#define PACER_NO_GOAL UINT64_MAX

typedef struct pacer {
  int percent;             // -1: off
  uint64_t min_heap_bytes; // 0: 4 MiB x percent / 100
  uint64_t live_bytes;     // these three as the last collection found them
  uint64_t stack_bytes;
  uint64_t global_bytes;
} pacer;

// The heap size in bytes at which a collection starts; PACER_NO_GOAL when percent is off.
uint64_t pacer_goal(const pacer *p);

// The heap size from which on a collection is due. The goal, but 0 when percent is 0: then a
// collection is due also where objects freed by hand have left less than was live.
uint64_t pacer_trigger(const pacer *p);

// How much of the free memory to keep, with `needed` bytes the largest heap size to be prepared for
// and `bytes` the present one.
uint64_t pacer_keep(uint64_t needed, uint64_t bytes);

#endif
