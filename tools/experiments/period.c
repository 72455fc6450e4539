// SPDX-License-Identifier: MIT
// `tidepool period`: the hit rate of a pool against the time that it was left alone, while the rest
// of the program sets the pace of collections: a series of gaps for each allocation rate, under the
// GC percent and the limits that are in force. series.h says what a series is and what is expected.
#include "command.h"
#include "pace.h"
#include "series.h"

#include <tidepool.h>

#define RATIOS       "0.5,0.8,1.2,1.5,1.8,2.2"
#define RATIOS_QUICK "0.75,1.25,1.75"
#define RATIOS_FULL  "0.4,0.7,0.9,1.1,1.25,1.4,1.5,1.6,1.75,1.9,2.6"

static const option_row table_of_options[] = {
    {"rates", "LIST", OPTION_REALS, offsetof(study_settings, rates), "50,200,800", 1, 100000, NULL,
     "allocation rates in MB/s"},
    {"ratios", "LIST", OPTION_REALS, offsetof(study_settings, ratios), NULL, 0.01, 100, NULL,
     "gaps, as multiples of the expected collection period (default " RATIOS
     "; with --quick " RATIOS_QUICK "; with --full " RATIOS_FULL ")"},
    {"quick", NULL, OPTION_FLAG, offsetof(study_settings, quick), NULL, 0, 0, NULL,
     "9 configurations in about a minute"},
    {"full", NULL, OPTION_FLAG, offsetof(study_settings, full), NULL, 0, 0, NULL,
     "33 configurations in about ten minutes"},
};

static const options_spec spec = {
    .about =
        "Measures how much a pool still has after a gap of T milliseconds, while the rest of the "
        "program makes collections come every G milliseconds.\v"
        "A thread allocates and drops memory at each of the rates, beside a live heap. Where "
        "--ratios or --bursts stand next to --quick or --full, they win.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
    .shared = study_options,
    .shared_count = STUDY_OPTIONS,
};

// What a mode chooses where the user does not.
typedef struct mode {
  const char *ratios;
  study_effort effort;
} mode;

static const mode mode_standard = {RATIOS, {60, 60, 0}};
static const mode mode_quick = {RATIOS_QUICK, {20, 100, 18}};
static const mode mode_full = {RATIOS_FULL, {60, 300, 180}};

int period_run(int argc, char **argv) {
  study_settings set = {0};
  options_parse(&spec, &set, argc, argv);
  if (study_check(&set) != STATUS_DONE) return STATUS_USAGE;
  const mode *m = set.quick ? &mode_quick : set.full ? &mode_full : &mode_standard;
  if (set.ratios.count == 0) set.ratios = numbers_of(m->ratios);
  int status = library_start();
  if (status != STATUS_DONE) return status;
  series in_force = {.memory_limit = tide_memory_limit_set(-1)}, list[NUMBERS_MAX];
  if (!pace_percent(&in_force.gc_percent)) return STATUS_USAGE;
  for (size_t i = 0; i < set.rates.count; i++) {
    list[i] = in_force;
    list[i].rate = set.rates.at[i];
  }
  return study_run(&(study){
      .name = "period", .set = &set, .effort = m->effort, .list = list, .count = set.rates.count});
}
