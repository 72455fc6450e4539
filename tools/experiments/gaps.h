// SPDX-License-Identifier: MIT
// Gaps of given lengths, beside a program that sets the pace of collections.
//
// A gap is measured by two bursts on one pool: the first fills the pool, then the pool is left
// alone for the gap, and the second burst counts what is still there. Between the two, the pool
// lives through floor(u + T/G) collections, where u is the phase at which the gap began: the share
// of the collection period that had passed.
//
// So the phases decide, and they must be spread evenly. A loop that starts a gap when the last one
// is over would lock to the collections; here each configuration has a list of phases, made before
// it runs: as many as it has bursts, spaced evenly over the period and shifted by the seed. Each is
// used once. What is chosen while it runs is only their order: next is the one that comes next. A
// gap that begins too far from any phase that is left, because the machine was busy, is not
// measured but begun anew. Where the gaps really began is reported (phase_deviation).
//
// A gap of more than three periods finds nothing whenever it begins. It aims at a phase all the
// same, but counts wherever it begins (`anywhere`): beside a period that is not much longer than a
// burst, the phase aimed at is often missed.
//
// A gap lasts from the mean moment at which the workers put their items to the mean moment at which
// they take them: a burst takes a while, and each item's own gap is from its put to its get.
//
// While the period is long, several gaps run at the same time (lanes), each in a pool of its own.
#ifndef TIDEPOOL_TOOL_GAPS_H
#define TIDEPOOL_TOOL_GAPS_H

#include "burst.h"
#include "cycles.h"
#include "pressure.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gap_config {
  double gap_ns;   // wanted
  unsigned bursts; // wanted; at most GAP_BURSTS_MAX
  bool anywhere;   // no gap is begun anew

  // Results.
  unsigned begun;    // gaps begun
  unsigned done;     // gaps measured
  uint64_t hits;     // items, over all of them
  double gap_sum_ns; // as measured
  unsigned survived; // gaps with fewer than two collections, as counted
  uint64_t first_cycle;
  uint64_t last_cycle; // the collections around its gaps, indices in the log

  // Private to gaps.c: which phases are used up, and where the gaps really began.
  double phase_shift;
  bool *used;
  double *phases;
} gap_config;

#define GAP_BURSTS_MAX 10000
#define GAP_LANES_MAX  4

typedef struct gap_run {
  burst *team;
  cycle_log *cycles;
  const pressure *pressure;
  gap_config *configs;
  unsigned config_count;
  unsigned lanes;
  uint64_t seed;
  double call_to_get_ns; // from calling the workers to their mean get, kept up to date
  double call_to_put_ns; // the same to their mean put
  unsigned aims_left;    // how often a gap may still be begun anew
  // Called after each gap with the planned time of all gaps over, in ns.
  void (*progress)(double done_ns, void *arg);
  void *progress_arg;
} gap_run;

typedef enum gaps_end { GAPS_DONE, GAPS_INTERRUPTED, GAPS_FAILED } gaps_end;

// Learns how long a burst takes and waits until the collections have found their pace, which takes
// three in the log. Complains and fails when they do not come within limit_ns.
gaps_end gaps_warm_up(gap_run *run, double limit_ns);

// The collection period at the moment: mean over the last few collections.
double gaps_period_ns(const gap_run *run);

// Measures all configurations; they come with only what is wanted filled in. Complains when it
// fails.
gaps_end gaps_measure(gap_run *run);

// How unevenly the gaps of a configuration began: the largest distance between the distribution of
// their phases and the even one, 0 to 1. For n perfectly spaced gaps 1/(2n).
double gaps_phase_deviation(const gap_config *config);

// Frees what gaps_measure keeps in a configuration.
void gaps_free(gap_config *config);

#endif
