// SPDX-License-Identifier: MIT
// How a program allocates over time: which chunk when. Pure: a pattern is a number of settings and
// a seed, it knows no clock, and the same ones give the same chunks.
//
//   steady    chunks of one size at one distance
//   poisson   a Poisson process of chunks whose sizes are exponentially distributed. If the heap
//             grows by N chunks from one collection to the next, periods vary by about sqrt(2 / N)
//             of their mean, half of that variance from when chunks come and half from how large
//             they are: so small chunks, however random, make even periods, and only large ones
//             do not
//   bursty    all of it in a quarter of the time: on, at four times the mean rate, and off; lengths
//             of both are exponentially distributed, and an on and an off take one mean period
//   phased    a quarter, one and four times a rate, in an order that is drawn; each phase lasts for
//             two to four periods of its own, so that collections are even within it
//   replay    a curve (curve.h), over and over
//
// All but poisson are a rate that is made of stretches, over each of which it is constant or goes
// straight from one value to another; a chunk comes whenever so much is due.
#ifndef TIDEPOOL_TOOL_PATTERN_H
#define TIDEPOOL_TOOL_PATTERN_H

#include "curve.h"

#include <stdint.h>

typedef enum pattern_kind {
  PATTERN_STEADY,
  PATTERN_POISSON,
  PATTERN_BURSTY,
  PATTERN_PHASED,
  PATTERN_REPLAY,
  PATTERNS
} pattern_kind;

#define PATTERN_NAMES "steady,poisson,bursty,phased,replay" // in this order

typedef struct pattern_settings {
  pattern_kind kind;
  double rate;         // bytes a second, in the long run
  double growth_bytes; // what is allocated from one collection to the next
  double chunk_bytes;  // each; of poisson the mean
  const curve *curve;  // of replay: its shape, scaled to the rate; must outlive the pattern
  uint64_t seed;
} pattern_settings;

typedef struct chunk {
  double after_ns; // the chunk before, or the start
  uint64_t bytes;
} chunk;

// A part of the time over which the rate goes straight from one value to the other.
typedef struct stretch {
  double left_ns;
  double rate, rate_at_end; // bytes a second
} stretch;

// A plain value: a copy goes on as the original would.
typedef struct pattern {
  pattern_settings set;
  uint64_t random;
  stretch now;
  size_t next_point;          // of the curve
  bool on;                    // bursty
  unsigned order[3], ordinal; // phased
} pattern;

pattern pattern_begin(const pattern_settings *set);
chunk pattern_next(pattern *p);

// What it allocates in a part of the time after where it stands.
double pattern_bytes_between(pattern p, double from_ns, double to_ns);

// Evenly distributed over [0, 1); random is any state, which is moved on.
double random_share(uint64_t *random);

#endif
