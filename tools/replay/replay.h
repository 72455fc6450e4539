// SPDX-License-Identifier: MIT
// `tidepool replay`: what is worked out of a recording, between the command (replay.c) and the
// report (replay_report.c).
//
// A *point* is a GC percent and a memory limit. The first is the program's own; the others are the
// table of all --percents with all --limits. A *cure* is a number of collections that items
// survive, at the program's own percent and limit.
#ifndef TIDEPOOL_TOOL_REPLAY_H
#define TIDEPOOL_TOOL_REPLAY_H

#include "options.h"
#include "output.h"
#include "replay_run.h"
#include "replay_sim.h"
#include "trace_file.h"

typedef struct replay_settings {
  common_options common;
  const char *file;
  const char *speed;
  const char *measure;
  numbers percents; // HUGE_VAL: off
  numbers limits;   // bytes; HUGE_VAL: none
} replay_settings;

typedef struct replay_point {
  int gc_percent;       // -1: off
  int64_t memory_limit; // INT64_MAX: none
  bool recorded;        // the program's own
  bool simulated, measured;
  sim_result sim;
  run_result run;
} replay_point;

typedef struct replay_cure {
  unsigned survive;
  bool simulated;
  sim_result sim;
} replay_cure;

enum { REPLAY_CURES = 6 };

typedef struct replay {
  replay_settings set;
  const trace *t;
  replay_point *points;
  size_t point_count;
  bool best_simulated;
  sim_result best; // collections take nothing from pools
  replay_cure cures[REPLAY_CURES];
  double *idle_ms; // by pool: what keeps nearly all of them
  bool idle_simulated;
  sim_result idle; // with that
  uint64_t began_ns;
  bool partial;
} replay;

// Prints it and writes the files. Complains and returns false when that fails.
bool replay_report(const replay *r);

#endif
