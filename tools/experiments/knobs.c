// SPDX-License-Identifier: MIT
// `tidepool knobs`: what GC percent and the memory limit do to pools.
//
// Both settings change how far the heap may grow, so they change the period of collections, and
// with it how long a pool keeps its items. Here a series of gaps is measured for each setting and
// rate; series.h says what a series is and what is expected. The findings take up one gap after the
// other, as the user of a pool would: a burst every so often, what is left of the pool by default,
// and under each setting?
#include "command.h"
#include "series.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
  study_settings study;
  numbers percents; // HUGE_VAL: off
  numbers limits;   // bytes; HUGE_VAL: none
  numbers gaps_ms;
} settings;

enum { PERCENT_DEFAULT = 100 };

#define PERCENTS       "25,50,100,200,400,800"
#define PERCENTS_QUICK "50,100,400"
// MiB above the live heap.
#define LIMITS       "4,8,12,24,32,40,48,96"
#define LIMITS_QUICK "4,12,48"
#define GAPS         "100,400"
#define RATIOS       "1.5"
#define RATIOS_FULL  "1.25,1.5,1.75"

static const option_row table_of_options[] = {
    {"percents", "LIST", OPTION_COUNTS, offsetof(settings, percents), NULL, 1, 1000000, "off",
     "GC percents, each without a memory limit; 'off' has each of --limits go without a percent "
     "(default " PERCENTS "; with --quick " PERCENTS_QUICK ")"},
    {"limits", "LIST", OPTION_SIZES, offsetof(settings, limits), NULL, 0x1p20, 0x1p40, "off",
     "memory limits, each with GC percent 100 (default " LIMITS
     " MiB more than --live; with --quick " LIMITS_QUICK " MiB more)"},
    {"rates", "LIST", OPTION_REALS, offsetof(study_settings, rates), NULL, 1, 100000, NULL,
     "allocation rates in MB/s (default 200; with --full 50,200,800)"},
    {"gaps", "LIST", OPTION_REALS, offsetof(settings, gaps_ms), NULL, 0.1, 100000, NULL,
     "gaps in milliseconds (default " GAPS ")"},
    {"ratios", "LIST", OPTION_REALS, offsetof(study_settings, ratios), NULL, 0.01, 100, NULL,
     "more gaps, as multiples of the expected collection period (default " RATIOS
     "; with --full " RATIOS_FULL ")"},
    {"quick", NULL, OPTION_FLAG, offsetof(study_settings, quick), NULL, 0, 0, NULL,
     "16 configurations or so in about a minute"},
    {"full", NULL, OPTION_FLAG, offsetof(study_settings, full), NULL, 0, 0, NULL,
     "190 configurations or so in about 25 minutes"},
};

static const options_spec spec = {
    .about =
        "Measures how GC percent and the memory limit move the hit rate of a pool that is used in "
        "bursts, while the rest of the program allocates.\v"
        "Where only one of --percents and --limits is given, the other setting is left at its "
        "default; where only one of --gaps and --ratios is given, there are no others. The lists "
        "and --bursts win over --quick and --full.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
    .shared = study_options,
    .shared_count = STUDY_OPTIONS,
};

// What a mode chooses where the user does not.
typedef struct mode {
  const char *percents, *limits, *rates, *ratios;
  study_effort effort;
} mode;

static const mode mode_standard = {PERCENTS, LIMITS, "200", RATIOS, {20, 100, 12}};
static const mode mode_quick = {PERCENTS_QUICK, LIMITS_QUICK, "200", RATIOS, {20, 60, 8}};
static const mode mode_full = {PERCENTS, LIMITS, "50,200,800", RATIOS_FULL, {24, 200, 24}};

static const mode *mode_of(const settings *set) {
  return set->study.quick ? &mode_quick : set->study.full ? &mode_full : &mode_standard;
}

static void choose(settings *set, const mode *m) {
  if (!set->percents.count && !set->limits.count) {
    set->percents = numbers_of(m->percents);
    set->limits = numbers_of(m->limits);
    for (size_t i = 0; i < set->limits.count; i++)
      set->limits.at[i] = (double)set->study.live_bytes + set->limits.at[i] * 0x1p20;
  }
  if (!set->gaps_ms.count && !set->study.ratios.count) {
    set->gaps_ms = numbers_of(GAPS);
    set->study.ratios = numbers_of(m->ratios);
  }
  if (!set->study.rates.count) set->study.rates = numbers_of(m->rates);
}

// ---- The series -----------------------------------------------------------------------------

static bool has_off(const numbers *list) {
  for (size_t i = 0; i < list->count; i++)
    if (list->at[i] == HUGE_VAL) return true;
  return false;
}

// A setting that stands in both lists, as the default may, is measured once.
static size_t add_series(series *list, size_t count, series one) {
  for (size_t i = 0; i < count; i++)
    if (list[i].rate == one.rate && list[i].gc_percent == one.gc_percent &&
        list[i].memory_limit == one.memory_limit)
      return count;
  list[count] = one;
  return count + 1;
}

static size_t list_series(const settings *set, series *list) {
  int beside_limits = has_off(&set->percents) ? -1 : PERCENT_DEFAULT;
  size_t count = 0;
  for (size_t r = 0; r < set->study.rates.count; r++) {
    series one = {.rate = set->study.rates.at[r], .memory_limit = INT64_MAX};
    for (size_t i = 0; i < set->percents.count; i++) {
      if (set->percents.at[i] == HUGE_VAL) continue;
      one.gc_percent = (int)set->percents.at[i];
      count = add_series(list, count, one);
    }
    for (size_t i = 0; i < set->limits.count; i++) {
      bool off = set->limits.at[i] == HUGE_VAL;
      one.memory_limit = off ? INT64_MAX : (int64_t)set->limits.at[i];
      one.gc_percent = off ? PERCENT_DEFAULT : beside_limits;
      count = add_series(list, count, one);
    }
  }
  return count;
}

// Percent off needs limits, or nothing would start a collection.
static bool check_off(const settings *set) {
  bool sizes = false;
  for (size_t i = 0; i < set->limits.count; i++)
    if (set->limits.at[i] != HUGE_VAL) sizes = true;
  if (sizes || !has_off(&set->percents)) return true;
  complain("--percents: 'off' is accepted only beside --limits with a size, as nothing else would "
           "start a collection");
  return false;
}

// ---- The findings ---------------------------------------------------------------------------

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...) {
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, size - used, format, arguments);
  va_end(arguments);
}

// With the unit on the same line.
static void append_size(char *text, size_t size, uint64_t bytes) {
  const char *in_words = size_text(bytes), *space = strchr(in_words, ' ');
  append(text, size, "%.*s~%s: ", (int)(space - in_words), in_words, space + 1);
}

typedef enum knob { KNOB_NONE, KNOB_PERCENT, KNOB_LIMIT } knob;

static knob knob_of(const cell *row) {
  if (row[ROW_MEMORY_LIMIT].count != COUNT_OFF) return KNOB_LIMIT;
  return row[ROW_GC_PERCENT].count == PERCENT_DEFAULT ? KNOB_NONE : KNOB_PERCENT;
}

// What turning one knob does: "; GC percent 50: 81 %, 400: 99 %".
static void append_knob(char *text, size_t size, const study *s, double rate, double gap_ms,
                        knob turned) {
  static const char *const names[] = {"by~default", "GC~percent", "limit"};
  bool first = true;
  for (size_t i = 0; i < s->rows.row_count; i++) {
    const cell *row = s->rows.cells + i * ROW_FIELDS;
    if (row[ROW_RATE].real != rate || row[ROW_GAP_WANTED].real != gap_ms || knob_of(row) != turned)
      continue;
    append(text, size, "%s", !first ? ", " : *text ? "; " : "");
    if (first) append(text, size, "%s ", names[turned]);
    if (turned == KNOB_PERCENT) append(text, size, "%d: ", (int)row[ROW_GC_PERCENT].count);
    if (turned == KNOB_LIMIT) append_size(text, size, (uint64_t)row[ROW_MEMORY_LIMIT].count);
    append(text, size, "%.3g~%%", row[ROW_MEASURED].real * 100);
    first = false;
  }
}

static void print_findings(FILE *file, const study *s) {
  for (size_t r = 0; r < s->set->rates.count; r++) {
    for (size_t g = 0; g < s->gaps_ms.count; g++) {
      double rate = s->set->rates.at[r], gap_ms = s->gaps_ms.at[g];
      char text[900] = "";
      for (knob turned = KNOB_NONE; turned <= KNOB_LIMIT; turned++)
        append_knob(text, sizeof text, s, rate, gap_ms, turned);
      if (*text)
        paragraph_print(file, "%g MB/s, a burst every %g ms, hit rate: %s.", rate, gap_ms, text);
    }
  }
}

// ---------------------------------------------------------------------------------------------

int knobs_run(int argc, char **argv) {
  settings set = {.percents = {0}};
  options_parse(&spec, &set, argc, argv);
  if (study_check(&set.study) != STATUS_DONE || !check_off(&set)) return STATUS_USAGE;
  const mode *m = mode_of(&set);
  choose(&set, m);
  int status = library_start();
  if (status != STATUS_DONE) return status;
  // Each rate with each percent and limit. Not static: the heap's goal counts static data.
  series *list = calloc(NUMBERS_MAX * 2 * NUMBERS_MAX, sizeof *list);
  if (!list) {
    complain("no memory for the settings");
    return STATUS_FAILED;
  }
  status = study_run(&(study){.name = "knobs",
                              .set = &set.study,
                              .effort = m->effort,
                              .gaps_ms = set.gaps_ms,
                              .knobs = true,
                              .list = list,
                              .count = list_series(&set, list),
                              .findings = print_findings});
  free(list);
  return status;
}
