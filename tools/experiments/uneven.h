// SPDX-License-Identifier: MIT
// `tidepool uneven`, between its two files: uneven.c measures, uneven_report.c has the rows and
// what is said about them.
#ifndef TIDEPOOL_TOOL_UNEVEN_H
#define TIDEPOOL_TOOL_UNEVEN_H

#include "blur.h"
#include "options.h"
#include "output.h"
#include "pattern.h"
#include "sample.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct uneven_settings {
  common_options common;
  uint64_t patterns; // bit i: pattern_kind i
  numbers rates;     // MB/s
  numbers ratios;    // gaps, as multiples of the expected period
  uint64_t window_ms, bursts;
  uint64_t live_bytes;
  uint64_t chunk_bytes; // mean, of poisson; 0: by the growth
  const char *curve;    // file name; NULL: the built-in one
  uint64_t survive;
  uint64_t items, item_bytes;
  uint64_t seed;
  bool quick, full;
} uneven_settings;

// One pattern at one rate.
typedef struct uneven_series {
  pattern_kind kind;
  double rate; // bytes a second
  // From one collection to the next, mean over the window, as the pattern will be there.
  double period_ns;
} uneven_series;

typedef struct uneven {
  uneven_settings set;
  int procs, gc_percent;
  double growth_bytes; // by the settings
  curve curve;         // of replay
  uneven_series list[PATTERNS * NUMBERS_MAX];
  size_t count;
  double total_ns, done_ns; // planned, for the progress bar
  uint64_t began_ns;        // the current series

  table rows, summary;
  double pace_low;  // allocated, over what the pattern wanted; of the series that fell back most
  size_t empty;     // configurations without a gap that is over, or without two collections
  uint64_t unpaced; // collections that neither the allocation nor the limit caused
  bool partial;
} uneven;

// The names in PATTERN_NAMES.
const char *uneven_pattern_name(pattern_kind kind);

void uneven_begin_rows(uneven *u);
// A configuration that has been measured, if only in part, and the collections of its series.
void uneven_add_row(uneven *u, const uneven_series *one, const sample_run *run,
                    const sample_config *c, const moments *starts, double rate_mb_s);
// Prints the report and writes the files. Complains and returns false on the first error.
bool uneven_report(uneven *u);
void uneven_free_rows(uneven *u);

#endif
