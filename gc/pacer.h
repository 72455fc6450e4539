// SPDX-License-Identifier: MIT
// The pacer: when the next collection is due. Pure functions of numbers, without state of their
// own, so that they can be tested on a table of cases. pace.c keeps the numbers.
//
// Bytes everywhere; sums that do not fit end at UINT64_MAX.
#ifndef TIDEPOOL_PACER_H
#define TIDEPOOL_PACER_H

#include <stdbool.h>
#include <stdint.h>

#define PACER_NO_GOAL  UINT64_MAX
#define PACER_NO_LIMIT UINT64_MAX

typedef struct pacer {
  int percent;             // -1: off
  uint64_t min_heap_bytes; // 0: 4 MiB x percent / 100
  uint64_t live_bytes;     // these three as the last collection found them
  uint64_t stack_bytes;
  uint64_t global_bytes;
  uint64_t external_bytes; // outside the heap: the least since the last collection
  uint64_t limit_bytes;    // the soft memory limit; PACER_NO_LIMIT: none
} pacer;

// What counts towards the limit, at this moment.
typedef struct pacer_memory {
  uint64_t heap_bytes; // allocated on the heap, and external
  uint64_t used_bytes; // that, and all else that is mapped but for free memory
  uint64_t free_bytes; // of the heap, and not given back to the system
} pacer_memory;

// The heap size at which percent wants a collection, external bytes counted; PACER_NO_GOAL when it
// is off.
uint64_t pacer_percent_goal(const pacer *p);

// The heap size at which all that counts will have reached the limit; never below live.
// PACER_NO_GOAL without a limit.
uint64_t pacer_limit_goal(const pacer *p, const pacer_memory *m);

// The smaller of the two.
uint64_t pacer_goal(const pacer *p, const pacer_memory *m);

// The heap size from which on percent has a collection due. Its goal, but 0 when percent is 0: then
// a collection is due also where objects freed by hand have left less than was live.
uint64_t pacer_trigger(const pacer *p);

// Whether the limit has a collection due before `request` bytes more are taken.
bool pacer_limit_reached(const pacer *p, const pacer_memory *m, uint64_t request);

// How much of the free memory to keep, with `needed` the largest heap size to be prepared for and
// `bytes` the present one.
uint64_t pacer_keep(uint64_t needed, uint64_t bytes);

// The most of it that the limit leaves room for, with `request` bytes more to be taken.
uint64_t pacer_limit_room(const pacer *p, const pacer_memory *m, uint64_t request);

#endif
