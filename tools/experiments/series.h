// SPDX-License-Identifier: MIT
// A study: gaps of several lengths beside a program that sets the pace of collections, for one
// series of gaps after the other. Series differ in the allocation rate, the GC percent or the
// memory limit; `tidepool period` varies the first, `tidepool knobs` the others.
//
// A live heap and a thread that allocates at a steady rate make collections come every G = growth
// allowed / rate. A gap of length T that begins anywhere in a period contains two collections or
// more with probability T/G - 1, clipped to 0..1, and then the pool is empty. So the hit rate is
// predicted to be 1 - clip(T/G - 1, 0, 1), with T and G as measured. gaps.h says how the gaps of
// one series are spread over the phases of the period.
//
// series.c measures, series_report.c has the rows and what is said about them; a command decides
// what is measured.
#ifndef TIDEPOOL_TOOL_SERIES_H
#define TIDEPOOL_TOOL_SERIES_H

#include "burst.h"
#include "gaps.h"
#include "options.h"
#include "output.h"

#include <stdbool.h>
#include <stdint.h>

// The settings of a command begin with these.
typedef struct study_settings {
  common_options common;
  uint64_t live_bytes;
  numbers rates;   // MB/s
  numbers ratios;  // gaps, as multiples of the expected period
  uint64_t bursts; // 0: by the effort
  uint64_t seed;
  uint64_t workers;
  uint64_t item_bytes;
  bool quick;
  bool full;
} study_settings;

// Rows for live_bytes, bursts, seed, workers and item_bytes. The rest has defaults of the command.
enum { STUDY_OPTIONS = 5 };
extern const option_row study_options[STUDY_OPTIONS];

typedef struct series {
  double rate;          // MB/s
  int gc_percent;       // negative: off
  int64_t memory_limit; // bytes; INT64_MAX: none
  double growth_bytes;  // from one collection to the next, for the plan; filled in by study_run
} series;

enum {
  ROW_EXPERIMENT,
  ROW_ENGINE,
  ROW_PROCS,
  ROW_GC_PERCENT,
  ROW_MEMORY_LIMIT,
  ROW_LIVE,
  ROW_RATE,
  ROW_RATE_MEASURED,
  ROW_GAP,
  ROW_PERIOD,
  ROW_PERIOD_EXPECTED,
  ROW_PERIOD_RATIO,
  ROW_GAP_OVER_PERIOD,
  ROW_PREDICTED,
  ROW_MEASURED,
  ROW_ERROR,
  ROW_COUNTED,
  ROW_BURSTS,
  ROW_COLLECTIONS,
  ROW_BY_GOAL,
  ROW_BY_LIMIT,
  ROW_PAUSED,
  ROW_LIMITER_ACTIVE,
  ROW_LIMITER_EPISODES,
  ROW_PHASES,
  ROW_PHASE_DEVIATION,
  ROW_LANES,
  ROW_PARTIAL,
  ROW_GAP_WANTED, // not printed: its length in gaps_ms; NAN: none of them
  ROW_FIELDS
};

// Bursts for each gap so that a series takes about `budget_s` (0: always the lowest number).
typedef struct study_effort {
  unsigned lowest, highest;
  double budget_s;
} study_effort;

typedef struct study study;
struct study {
  const char *name; // of the command
  const study_settings *set;
  study_effort effort;
  numbers gaps_ms; // for each series, beside the ratios
  bool knobs;      // percent and limit are what is varied: rows name them
  series *list;
  size_t count;
  // What the command has to say about the rows, after the plot; NULL: nothing.
  void (*findings)(FILE *file, const study *s);

  // Results, and what is private to the two files.
  table rows;
  table summary;
  column columns[ROW_FIELDS];
  burst *team;
  int procs;
  uint64_t unpaced; // collections that neither the allocation nor the limit caused
  double done_ns;   // planned for the series before this one
  double total_ns;  // planned, for the progress bar
  unsigned lanes;   // of the current series
  bool partial;
};

// Complains and returns STATUS_USAGE when the settings contradict each other.
int study_check(const study_settings *set);

// Measures, prints and frees the rows. Returns the status to exit with.
int study_run(study *s);

// ---- Rows -----------------------------------------------------------------------------------

// What holds for all rows of a series, as measured.
typedef struct series_facts {
  double rate;         // MB/s
  double paused_share; // of the time
  uint64_t limiter_episodes;
  bool limiter_active;
} series_facts;

double study_period_ns(const series *one); // as planned
void study_begin_rows(study *s);
void study_add_row(study *s, const series *one, const gap_run *g, const gap_config *c,
                   const series_facts *facts);
// Prints the report and writes the files. Complains and returns false on the first error.
bool study_report(study *s);
void study_free_rows(study *s);

#endif
