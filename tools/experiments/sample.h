// SPDX-License-Identifier: MIT
// Gaps that sample a window of time evenly, whatever the collections do in it.
//
// The share of moments at which a gap may begin and find its items is an integral over the window.
// Each configuration (a length of gap) estimates it with many gaps: the window is divided into as
// many parts as it has gaps, and one begins in each, at a place in it that the seed draws. So no
// rhythm of the collections can lock to the gaps, and the error falls faster than that of gaps
// which begin anywhere: parts that lie wholly on one side add nothing to it.
//
// gaps.h spreads gaps over the phases of one period instead, and needs far fewer; but where periods
// differ there is no such thing as an even phase.
//
// A gap must not wait for others, so each is in a pool of its own as long as it lasts, and it is
// cheap: one thread takes and puts all its items, with no other thread to wait for. When the gap
// began and ended is taken down at the put and at the get, so that a busy machine shifts gaps but
// does not falsify them. Where several processors are in use, the thread may come back on another
// one, and one item of a gap is out of reach (docs/internals/6-pool.md): that is 1/items of a hit.
#ifndef TIDEPOOL_TOOL_SAMPLE_H
#define TIDEPOOL_TOOL_SAMPLE_H

#include "cycles.h"
#include "pattern.h"
#include "pressure.h"

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLE_ITEMS_MAX = 1024, SAMPLE_BURSTS_MAX = 100000, SAMPLE_CONFIGS_MAX = 64 };

typedef struct sample_config {
  double gap_ns;   // wanted
  unsigned bursts; // gaps wanted

  // Results, over the gaps that are over: those of the first `done` parts of the window.
  unsigned done;
  uint64_t hits;      // items
  double gap_sum_ns;  // as measured
  double late_sum_ns; // from when a gap was to begin to when it began
  unsigned survived;  // gaps with too few collections to lose anything, as counted

  // Private to sample.c.
  unsigned begun;
  struct sample_gap *gaps;
} sample_config;

typedef struct sample_run {
  const cycle_log *cycles;
  const pressure *pressure;
  sample_config *configs;
  unsigned config_count;
  uint64_t from_ns; // the window
  double window_ns;
  unsigned items; // of a gap
  uint64_t item_bytes;
  unsigned survive; // of the pools
  uint64_t seed;
  // Results.
  unsigned pools;    // made: as many gaps ran at a time
  uint64_t until_ns; // when the last gap was over, or the run was ended; the log reaches to here
  void (*progress)(void *arg);
  void *progress_arg;
} sample_run;

// When gap i of a configuration is to begin, from the window's begin on. The same each time.
static inline double sample_start_ns(const sample_run *run, unsigned config, unsigned i) {
  uint64_t random = (run->seed * SAMPLE_CONFIGS_MAX + config) * SAMPLE_BURSTS_MAX + i;
  return (i + random_share(&random)) * run->window_ns / run->configs[config].bursts;
}

// Measures all configurations; they come with only what is wanted filled in. Complains and returns
// false on a failure. It also ends when the program is asked to end (interrupted()).
bool sample_measure(sample_run *run);

#endif
