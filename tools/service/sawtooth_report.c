// SPDX-License-Identifier: MIT
// The rows of `tidepool sawtooth`, the latencies over time, pictures, and what follows from
// them; see sawtooth.h.
#include "sawtooth.h"
#include "command.h"
#include "timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  EXPERIMENT,
  ENGINE,
  CASE,
  RATE,
  WORKERS,
  GAP,
  PERIOD,
  GAP_OVER_PERIOD,
  WAVES,
  REQUESTS,
  HIT_RATE,
  MISSES,
  MISSES_WAVE,
  MISSES_FIRST,
  P50,
  P99,
  P999,
  MOST,
  FIRST,
  LATER,
  FIRST_MOST,
  TOOTH,
  TOOTH_SHARE,
  LATE_SHARE,
  COLLECTIONS,
  PAUSE_P50,
  PAUSE_MOST,
  BYTES_KEPT,
  GC_PERCENT,
  SURVIVE,
  MIN_IDLE,
  PARTIAL,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [CASE] = {"case", "case", COLUMN_TEXT, 0},
    [RATE] = {"rate", NULL, COLUMN_COUNT, 0},
    [WORKERS] = {"workers", NULL, COLUMN_COUNT, 0},
    [GAP] = {"gap_ms", NULL, COLUMN_REAL, 1},
    [PERIOD] = {"gc_period_ms", NULL, COLUMN_REAL, 1},
    [GAP_OVER_PERIOD] = {"gap_over_period", "T/G", COLUMN_REAL, 2},
    [WAVES] = {"waves", NULL, COLUMN_COUNT, 0},
    [REQUESTS] = {"requests", NULL, COLUMN_COUNT, 0},
    [HIT_RATE] = {"hit_rate", NULL, COLUMN_REAL, 4},
    [MISSES] = {"misses", NULL, COLUMN_COUNT, 0},
    [MISSES_WAVE] = {"misses_per_wave", "misses", COLUMN_REAL, 2},
    [MISSES_FIRST] = {"misses_first", NULL, COLUMN_COUNT, 0},
    [P50] = {"p50_us", "p50 us", COLUMN_REAL, 0},
    [P99] = {"p99_us", "p99", COLUMN_REAL, 0},
    [P999] = {"p999_us", "p99.9", COLUMN_REAL, 0},
    [MOST] = {"max_us", "max", COLUMN_REAL, 0},
    [FIRST] = {"first_us", "first", COLUMN_REAL, 0},
    [LATER] = {"later_us", NULL, COLUMN_REAL, 0},
    [FIRST_MOST] = {"first_max_us", NULL, COLUMN_REAL, 0},
    [TOOTH] = {"tooth", NULL, COLUMN_FLAG, 0},
    [TOOTH_SHARE] = {"tooth_share", "teeth", COLUMN_REAL, 2},
    [LATE_SHARE] = {"late_share", NULL, COLUMN_REAL, 5},
    [COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [PAUSE_P50] = {"pause_p50_us", NULL, COLUMN_REAL, 0},
    [PAUSE_MOST] = {"pause_max_us", NULL, COLUMN_REAL, 0},
    [BYTES_KEPT] = {"bytes_kept", "kept", COLUMN_BYTES, 0},
    [GC_PERCENT] = {"gc_percent", NULL, COLUMN_COUNT, 0},
    [SURVIVE] = {"survive", NULL, COLUMN_COUNT, 0},
    [MIN_IDLE] = {"min_idle_ms", NULL, COLUMN_REAL, 1},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

enum {
  S_EXPERIMENT,
  S_SUMMARY,
  S_SEED,
  S_MAKE,
  S_REQUEST,
  S_ENCODER,
  S_PERIOD,
  S_TOOTH_BELOW,
  S_TOOTH_BEYOND,
  S_CURES,
  S_CURED,
  S_FIELDS
};

static const column summary_columns[S_FIELDS] = {
    [S_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [S_SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [S_SEED] = {"seed", NULL, COLUMN_COUNT, 0},
    [S_MAKE] = {"make_us", NULL, COLUMN_REAL, 1},
    [S_REQUEST] = {"request_us", NULL, COLUMN_REAL, 2},
    [S_ENCODER] = {"encoder_bytes", NULL, COLUMN_COUNT, 0},
    [S_PERIOD] = {"gc_period_ms", NULL, COLUMN_REAL, 2},
    [S_TOOTH_BELOW] = {"tooth_share_below", NULL, COLUMN_REAL, 2},
    [S_TOOTH_BEYOND] = {"tooth_share_beyond", NULL, COLUMN_REAL, 2},
    [S_CURES] = {"cures", NULL, COLUMN_COUNT, 0},
    [S_CURED] = {"cures_without_tooth", NULL, COLUMN_COUNT, 0},
};

enum { B_EXPERIMENT, B_SERIES, B_CASE, B_T, B_REQUESTS, B_P50, B_MOST, B_MISSES, B_FIELDS };

// In JSON with `experiment` and `series` in front; the CSV file does without.
static const column bin_columns[B_FIELDS] = {
    [B_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [B_SERIES] = {"series", NULL, COLUMN_FLAG, 0},
    [B_CASE] = {"case", NULL, COLUMN_TEXT, 0},
    [B_T] = {"t_ms", NULL, COLUMN_REAL, 2},
    [B_REQUESTS] = {"requests", NULL, COLUMN_COUNT, 0},
    [B_P50] = {"p50_us", NULL, COLUMN_REAL, 1},
    [B_MOST] = {"max_us", NULL, COLUMN_REAL, 1},
    [B_MISSES] = {"misses", NULL, COLUMN_COUNT, 0},
};

enum { C_EXPERIMENT, C_COLLECTION, C_CASE, C_T, C_PAUSE, C_FIELDS };

static const column collection_columns[C_FIELDS] = {
    [C_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [C_COLLECTION] = {"collection", NULL, COLUMN_FLAG, 0},
    [C_CASE] = {"case", NULL, COLUMN_TEXT, 0},
    [C_T] = {"t_ms", NULL, COLUMN_REAL, 2},
    [C_PAUSE] = {"pause_us", NULL, COLUMN_REAL, 1},
};

// Everything that is printed.
typedef struct result {
  const saw_run *run;
  table rows, summary, bins, collections;
} result;

static double us(uint64_t ns) {
  return (double)ns * 1e-3;
}

// ---- Rows -----------------------------------------------------------------------------------

static void add_row(result *to, const saw_case *c) {
  const saw_run *r = to->run;
  saw_digest d = saw_digest_of(r, c);
  double waves = (double)c->waves, requests = (double)d.requests, share = (double)d.teeth / waves;
  cell row[FIELDS] = {
      [EXPERIMENT].text = "sawtooth",
      [ENGINE].text = r->set.common.engine,
      [CASE].text = c->kind->name,
      [RATE].count = (int64_t)r->set.rate,
      [WORKERS].count = (int64_t)r->set.workers,
      [GAP].real = d.gap_ms,
      [PERIOD].real = c->period_ns * 1e-6,
      [GAP_OVER_PERIOD].real = d.gap_ms * 1e6 / c->period_ns,
      [WAVES].count = (int64_t)c->waves,
      [REQUESTS].count = (int64_t)d.requests,
      [HIT_RATE].real = 1 - (double)d.misses / requests,
      [MISSES].count = (int64_t)d.misses,
      [MISSES_WAVE].real = (double)d.misses / waves,
      [MISSES_FIRST].count = (int64_t)d.misses_first,
      [P50].real = d.p50_us,
      [P99].real = d.p99_us,
      [P999].real = d.p999_us,
      [MOST].real = d.most_us,
      [FIRST].real = d.first_us,
      [LATER].real = d.later_us,
      [FIRST_MOST].real = d.first_most_us,
      [TOOTH].flag = share > 0.5,
      [TOOTH_SHARE].real = share,
      [LATE_SHARE].real = (double)d.late / requests,
      [COLLECTIONS].count = (int64_t)d.collections,
      [PAUSE_P50].real = d.pause_p50_us,
      [PAUSE_MOST].real = d.pause_most_us,
      [BYTES_KEPT].count = (int64_t)d.bytes_kept,
      [GC_PERCENT].count = c->percent,
      [SURVIVE].count = c->kind->from != SUPPLY_POOL ? COUNT_OFF
                        : c->survive                 ? c->survive
                                                     : 1,
      [MIN_IDLE].real = c->kind->from == SUPPLY_POOL ? (double)c->min_idle_ns * 1e-6 : NAN,
      [PARTIAL].flag = c->partial,
  };
  table_add(&to->rows, row);
}

static void add_bins(result *to, const saw_case *c) {
  uint64_t *scratch = saw_memory(c->plan.per_wave, sizeof *scratch);
  for (uint64_t wave = 1; wave <= c->waves; wave++) {
    bin bins[SAWTOOTH_WAVE_BINS];
    size_t count = bins_of_wave(&c->plan, c->samples, wave, SAWTOOTH_BIN_NS, bins,
                                SAWTOOTH_WAVE_BINS, scratch);
    for (size_t i = 0; i < count && i < SAWTOOTH_WAVE_BINS; i++) {
      if (!bins[i].count) continue;
      cell row[B_FIELDS] = {
          [B_EXPERIMENT].text = "sawtooth",
          [B_SERIES].flag = true,
          [B_CASE].text = c->kind->name,
          [B_T].real = (double)(bins[i].start_ns - saw_origin_ns(c)) * 1e-6,
          [B_REQUESTS].count = (int64_t)bins[i].count,
          [B_P50].real = us(bins[i].median_ns),
          [B_MOST].real = us(bins[i].most_ns),
          [B_MISSES].count = (int64_t)bins[i].misses,
      };
      table_add(&to->bins, row);
    }
  }
  free(scratch);
}

static void add_collections(result *to, const saw_case *c) {
  for (size_t i = 0; i < c->collection_count; i++) {
    const saw_collection *one = &c->collections[i];
    if (one->at_ns < saw_origin_ns(c)) continue;
    cell row[C_FIELDS] = {
        [C_EXPERIMENT].text = "sawtooth",
        [C_COLLECTION].flag = true,
        [C_CASE].text = c->kind->name,
        [C_T].real = (double)(one->at_ns - saw_origin_ns(c)) * 1e-6,
        [C_PAUSE].real = one->pause_ns ? us(one->pause_ns) : NAN,
    };
    table_add(&to->collections, row);
  }
}

static const cell *row_of(const result *r, const char *name) {
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    if (strcmp(row[CASE].text, name) == 0) return row;
  }
  return NULL;
}

static const saw_case *case_of(const result *r, const char *name) {
  for (size_t i = 0; i < r->run->count; i++)
    if (strcmp(r->run->cases[i].kind->name, name) == 0) return &r->run->cases[i];
  return NULL;
}

static bool is_cure(const result *r, const cell *row) {
  return case_of(r, row[CASE].text)->kind->cure;
}

static void add_summary(result *to) {
  const saw_run *r = to->run;
  const cell *below = row_of(to, "below"), *beyond = row_of(to, "beyond");
  int64_t cures = 0, cured = 0;
  for (size_t i = 0; i < to->rows.row_count; i++) {
    const cell *row = to->rows.cells + i * FIELDS;
    if (!is_cure(to, row)) continue;
    cures++;
    cured += !row[TOOTH].flag;
  }
  cell row[S_FIELDS] = {
      [S_EXPERIMENT].text = "sawtooth",
      [S_SUMMARY].flag = true,
      [S_SEED].count = (int64_t)r->set.seed,
      [S_MAKE].real = r->make_ns * 1e-3,
      [S_REQUEST].real = r->request_ns * 1e-3,
      [S_ENCODER].count = (int64_t)r->encoder_bytes,
      [S_PERIOD].real = r->period_ns > 0 ? r->period_ns * 1e-6 : NAN,
      [S_TOOTH_BELOW].real = below ? below[TOOTH_SHARE].real : NAN,
      [S_TOOTH_BEYOND].real = beyond ? beyond[TOOTH_SHARE].real : NAN,
      [S_CURES].count = cures,
      [S_CURED].count = cured,
  };
  table_add(&to->summary, row);
}

// ---- The pictures ---------------------------------------------------------------------------

enum { WAVES_SHOWN = TIMELINE_TICKS - 1 };

// Where the waves begin, and the end, counted as in the files.
static void fill_ticks(timeline *t, double lead_ns, double period_ns, double width_ns) {
  for (int i = 0; i < WAVES_SHOWN; i++)
    t->ticks[i] =
        (timeline_tick){(int)((lead_ns + i * period_ns) / width_ns), i * period_ns * 1e-6};
  double end_ns = WAVES_SHOWN * period_ns - lead_ns;
  t->ticks[WAVES_SHOWN] = (timeline_tick){TIMELINE_COLUMNS - 1, end_ns * 1e-6};
}

// The first waves that count, and the gaps behind them. The picture begins a little before.
static void fill_timeline(timeline *t, const saw_case *c) {
  double period_ns = (double)(c->plan.wave_ns + c->plan.gap_ns), lead_ns = period_ns / 20;
  double from_ns = (double)saw_origin_ns(c) - lead_ns;
  double width_ns = WAVES_SHOWN * period_ns / TIMELINE_COLUMNS;
  fill_ticks(t, lead_ns, period_ns, width_ns);
  for (int x = 0; x < TIMELINE_COLUMNS; x++) t->columns[x] = (timeline_column){.most = NAN};
  for (uint64_t i = 0; i < schedule_requests(&c->plan); i++) {
    const sample *s = &c->samples[i];
    double x = floor(((double)schedule_due_ns(&c->plan, i) - from_ns) / width_ns);
    if (x < 0 || x >= TIMELINE_COLUMNS || !s->done) continue;
    timeline_column *at = &t->columns[(int)x];
    at->traffic = true;
    at->most = fmax(at->most, us(s->latency_ns)); // ignores a NAN
  }
  for (size_t i = 0; i < c->collection_count; i++) {
    double x = floor(((double)c->collections[i].at_ns - from_ns) / width_ns);
    if (x >= 0 && x < TIMELINE_COLUMNS) t->columns[(int)x].marks++;
  }
}

// `beyond` and the first cure that there is, to one scale: twice as high as the usual tooth.
static void print_timelines(FILE *file, const text_style *style, const result *r) {
  const char *names[2] = {"beyond", NULL};
  double worst_us = 0;
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    bool cure = is_cure(r, row);
    if (cure && !names[1]) names[1] = row[CASE].text;
    if (cure || strcmp(row[CASE].text, names[0]) == 0)
      worst_us = fmax(worst_us, row[FIRST_MOST].real);
  }
  bool legend = true;
  for (int i = 0; i < 2; i++) {
    if (!names[i] || !row_of(r, names[i])) continue;
    const saw_case *c = case_of(r, names[i]);
    char title[128];
    snprintf(title, sizeof title, "%s (%s): the worst latency, us", names[i], c->kind->about);
    timeline picture = {.title = title, .top = round_up(1.5 * worst_us)};
    fill_timeline(&picture, c);
    timeline_print(file, style, &picture, legend);
    fputc('\n', file);
    legend = false;
  }
}

static void fill_strip(strip *to, const saw_case *c, uint64_t column_ns) {
  uint64_t worst[STRIP_COLUMNS], *scratch = saw_memory(c->waves, sizeof *scratch);
  usual_wave(&c->plan, c->samples, 1, c->waves + 1, column_ns, worst, STRIP_COLUMNS, scratch);
  to->name = c->kind->name;
  for (int x = 0; x < STRIP_COLUMNS; x++) to->columns[x] = worst[x] ? us(worst[x]) : NAN;
  free(scratch);
}

// The beginning of a wave, for each case: as long as some encoders take to be made, and with a
// request in each column.
static void print_strips(FILE *file, const text_style *style, const result *r) {
  strip strips[SAWTOOTH_CASES];
  size_t count = 0;
  double spacing_us = 1e6 / (double)r->run->set.rate;
  double span_us = round_up(fmax(r->run->make_ns * 4e-3, spacing_us * STRIP_COLUMNS));
  for (size_t i = 0; i < r->run->count; i++)
    if (r->run->cases[i].waves)
      fill_strip(&strips[count++], &r->run->cases[i], (uint64_t)(span_us * 1e3 / STRIP_COLUMNS));
  strips_print(file, style, "How a wave begins: the worst latency, us, the median of the waves",
               span_us * 1e-3, strips, count);
  fputc('\n', file);
}

// ---- Text -----------------------------------------------------------------------------------

static void print_head(FILE *file, const result *r) {
  const saw_run *run = r->run;
  const saw_settings *set = &run->set;
  char period[64] = "";
  if (run->period_ns > 0)
    snprintf(period, sizeof period, ", a collection every %.0f~ms", run->period_ns * 1e-6);
  paragraph_print(file,
                  "sawtooth: %s engine, %llu requests a second in waves of %llu~ms, %llu workers, "
                  "seed %llu; beside it %s live and %llu~MB/s allocated%s",
                  set->common.engine, (unsigned long long)set->rate,
                  (unsigned long long)set->wave_ms, (unsigned long long)set->workers,
                  (unsigned long long)set->seed, size_text(set->live_bytes),
                  (unsigned long long)set->alloc_rate, period);
  paragraph_print(file,
                  "An encoder with its buffers and dictionary has %s and takes %.0f~us to make; a "
                  "request takes %.2g~us.",
                  size_text(run->encoder_bytes), run->make_ns * 1e-3, run->request_ns * 1e-3);
}

static void print_legend(FILE *file, const result *r) {
  paragraph_print(
      file,
      "T is the time between two waves, G the collection period. misses: encoders made, a wave. "
      "Latencies are in microseconds and count from when a request was due; the first wave is not "
      "counted. first: the median latency of what is due in a wave's first %.0f~us, half of what "
      "it takes to make an encoder; the median of the waves. teeth: the share of the waves where "
      "that is twice as much as in the rest of the wave, and %.0f~us more. kept: idle encoders "
      "before a wave, and for percent what the heap grows by.",
      r->run->make_ns * 0.5e-3, r->run->make_ns * 0.25e-3);
}

static void print_setting(FILE *file, const saw_run *r, const saw_case *c) {
  if (c->survive) fprintf(file, ", survive = %d", c->survive);
  if (c->min_idle_ns) fprintf(file, ", min_idle_ns = %.0f ms", (double)c->min_idle_ns * 1e-6);
  if (c->percent != r->percent)
    fprintf(file, ", GC percent %d instead of %d", c->percent, r->percent);
}

static void print_cases(FILE *file, const result *r) {
  for (size_t i = 0; i < r->run->count; i++) {
    const saw_case *c = &r->run->cases[i];
    if (!c->waves) continue;
    fprintf(file, "  %-8s  %s%s", c->kind->name, c->kind->cure ? "cure: " : "", c->kind->about);
    print_setting(file, r->run, c);
    if (c->plan.gap_ns && !c->kind->cure)
      fprintf(file, " of %.0f ms", row_of(r, c->kind->name)[GAP].real);
    fputc('\n', file);
  }
}

static void print_finding(FILE *file, const result *r) {
  const cell *row = row_of(r, "beyond");
  const cell *found = r->summary.cells;
  if (row) {
    double early =
        row[MISSES].count ? 100.0 * (double)row[MISSES_FIRST].count / (double)row[MISSES].count : 0;
    paragraph_print(file,
                    "beyond: at T/G %.2f there is a tooth in %.0f~%% of the waves. The first "
                    "requests take %.0f~us, the worst of them %.0f~us, the rest of the wave "
                    "%.0f~us. There are %.1f~misses a wave, %.0f~%% of them in its first 5~ms; a "
                    "hit rate of %.2f~%% does not show it.",
                    row[GAP_OVER_PERIOD].real, row[TOOTH_SHARE].real * 100, row[FIRST].real,
                    row[FIRST_MOST].real, row[LATER].real, row[MISSES_WAVE].real, early,
                    row[HIT_RATE].real * 100);
  }
  if (found[S_CURES].count)
    paragraph_print(file, "Cures that leave no tooth: %lld of %lld.",
                    (long long)found[S_CURED].count, (long long)found[S_CURES].count);
}

static void print_pauses(FILE *file, const result *r) {
  double usual = 0, most = 0;
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    usual = fmax(usual, row[PAUSE_P50].real);
    most = fmax(most, row[PAUSE_MOST].real);
    // In these nobody waits for an encoder to be made.
    if (row[MISSES].count == 0 && row[LATE_SHARE].real > 0.01)
      paragraph_print(file,
                      "%s: %.1f~%% of the requests began more than a millisecond late without any "
                      "miss; the machine is too busy to hold the schedule.",
                      row[CASE].text, row[LATE_SHARE].real * 100);
  }
  paragraph_print(file, "Pauses of the collector: usually %.0f~us, at most %.0f~us.", usual, most);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const result *r = data;
  print_head(file, r);
  fputc('\n', file);
  if (r->rows.row_count) {
    table_print(file, style, &r->rows);
    fputc('\n', file);
    print_cases(file, r);
    fputc('\n', file);
    print_legend(file, r);
    fputc('\n', file);
    print_timelines(file, style, r);
    print_strips(file, style, r);
    print_finding(file, r);
    print_pauses(file, r);
  }
  if (r->run->partial)
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
}

// ---------------------------------------------------------------------------------------------

// Without the fields that say which kind of object it is in JSON.
static bool write_csv(const result *r, const char *name, const table *t) {
  column shown[B_FIELDS];
  memcpy(shown, t->columns, t->column_count * sizeof *shown);
  shown[0].field = shown[1].field = NULL;
  table part = *t;
  part.columns = shown;
  return out_write_csv(r->run->set.common.out, name, &part);
}

static bool write_result(const result *r) {
  const common_options *common = &r->run->set.common;
  report rep = {.experiment = "sawtooth",
                .rows = &r->rows,
                .summary = &r->summary,
                .more = {r->run->set.series ? &r->bins : NULL, &r->collections}, // NULL ends it
                .text = print_text,
                .data = r};
  if (common->out && !(write_csv(r, "sawtooth-series", &r->bins) &&
                       write_csv(r, "sawtooth-collections", &r->collections)))
    return false;
  return report_write(&rep, common);
}

bool sawtooth_report(const saw_run *run) {
  result r = {.run = run,
              .rows = {.columns = columns, .column_count = FIELDS},
              .summary = {.columns = summary_columns, .column_count = S_FIELDS},
              .bins = {.columns = bin_columns, .column_count = B_FIELDS},
              .collections = {.columns = collection_columns, .column_count = C_FIELDS}};
  for (size_t i = 0; i < run->count; i++) {
    if (!run->cases[i].waves) continue;
    add_row(&r, &run->cases[i]);
    add_bins(&r, &run->cases[i]);
    add_collections(&r, &run->cases[i]);
  }
  add_summary(&r);
  bool good = write_result(&r);
  table_free(&r.rows);
  table_free(&r.summary);
  table_free(&r.bins);
  table_free(&r.collections);
  return good;
}
