// SPDX-License-Identifier: MIT
// The limiter: keeps a memory limit that cannot be held from taking all the time for collecting.
// Pure functions of a small state and a clock that is passed in; limit.c keeps the state.
#ifndef TIDEPOOL_LIMITER_H
#define TIDEPOOL_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

// Of the program's running time without holding anything back, after which the limiter is off
// again.
#define LIMITER_QUIET_NS UINT64_C(1000000000)
// By so much the collector may be ahead of the program and still collect for the limit.
#define LIMITER_AHEAD_NS UINT64_C(100000000)

// A zeroed one has seen no collection. Times are of one monotonic clock, in nanoseconds; one that
// lies before a time seen already counts as that time.
typedef struct limiter {
  uint64_t ahead_ns;   // at seen_ns: by how much the collector has run longer than the program
  uint64_t seen_ns;    // up to here all time is accounted for
  uint64_t held_at_ns; // when a collection was last held back, collections since then left out
  bool active;
} limiter;

// A collection, for whatever cause, has taken the time from began to ended. No other call with a
// time after began comes before this one.
void limiter_collected(limiter *l, uint64_t began_ns, uint64_t ended_ns);

// Whether a collection may start now for the limit's sake. If not, the limiter becomes active.
bool limiter_allows(limiter *l, uint64_t now_ns);

// Whether it is active; ends being so when nothing was held back for long enough.
bool limiter_active(limiter *l, uint64_t now_ns);

#endif
