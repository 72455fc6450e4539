// SPDX-License-Identifier: MIT
// The rows of `tidepool sawtooth`, the latencies over time, two pictures, and what follows from
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
    [GAP] = {"gap_ms", "T ms", COLUMN_REAL, 1},
    [PERIOD] = {"gc_period_ms", "G ms", COLUMN_REAL, 1},
    [GAP_OVER_PERIOD] = {"gap_over_period", "T/G", COLUMN_REAL, 2},
    [WAVES] = {"waves", NULL, COLUMN_COUNT, 0},
    [REQUESTS] = {"requests", NULL, COLUMN_COUNT, 0},
    [HIT_RATE] = {"hit_rate", "hit rate", COLUMN_REAL, 4},
    [MISSES] = {"misses", NULL, COLUMN_COUNT, 0},
    [MISSES_WAVE] = {"misses_per_wave", "misses a wave", COLUMN_REAL, 2},
    [MISSES_FIRST] = {"misses_first", NULL, COLUMN_COUNT, 0},
    [P50] = {"p50_us", "p50 us", COLUMN_REAL, 0},
    [P99] = {"p99_us", "p99", COLUMN_REAL, 0},
    [P999] = {"p999_us", "p99.9", COLUMN_REAL, 0},
    [MOST] = {"max_us", "max", COLUMN_REAL, 0},
    [FIRST] = {"first_us", "first us", COLUMN_REAL, 0},
    [LATER] = {"later_us", "later us", COLUMN_REAL, 0},
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

// ---- Numbers --------------------------------------------------------------------------------

// What the waves of a case say; sums over them.
typedef struct digest {
  uint64_t requests, misses, misses_first, late;
  uint64_t teeth;
  double p50_us, p99_us, p999_us, most_us;
  double first_us, later_us; // medians over the waves
  double pause_p50_us, pause_most_us;
  uint64_t collections; // once the first wave was over
} digest;

static double us(uint64_t ns) {
  return (double)ns * 1e-3;
}

// The beginning of what counts.
static uint64_t origin_ns(const saw_case *c) {
  return schedule_wave_ns(&c->plan, 1);
}

static void *memory(size_t count, size_t size) {
  void *block = calloc(count + 1, size);
  if (block) return block;
  complain("no memory for the results");
  exit(STATUS_FAILED);
}

static void digest_requests(const saw_case *c, digest *d) {
  uint64_t first = c->plan.per_wave, last = first + c->waves * c->plan.per_wave;
  uint64_t *latencies = memory(last - first, sizeof *latencies);
  for (uint64_t i = first; i < last; i++) {
    const sample *s = &c->samples[i];
    latencies[d->requests++] = s->latency_ns;
    d->misses += s->missed;
    d->late += s->late;
  }
  d->p50_us = us(quantile_ns(latencies, d->requests, 0.5));
  d->p99_us = us(quantile_ns(latencies, d->requests, 0.99));
  d->p999_us = us(quantile_ns(latencies, d->requests, 0.999));
  d->most_us = us(quantile_ns(latencies, d->requests, 1));
  free(latencies);
}

// A tooth is at least half of what it takes to make an encoder.
static void digest_waves(const saw_run *r, const saw_case *c, digest *d) {
  uint64_t *scratch = memory(c->plan.per_wave, sizeof *scratch);
  uint64_t *first = memory(c->waves, sizeof *first), *later = memory(c->waves, sizeof *later);
  for (uint64_t i = 0; i < c->waves; i++) {
    bin bins[SAWTOOTH_WAVE_BINS];
    size_t count = bins_of_wave(&c->plan, c->samples, i + 1, SAWTOOTH_BIN_NS, bins,
                                SAWTOOTH_WAVE_BINS, scratch);
    tooth t = tooth_of(bins, count, (uint64_t)(r->make_ns / 2));
    first[i] = t.first_ns;
    later[i] = t.later_ns;
    d->teeth += t.stands;
    d->misses_first += bins[0].misses;
  }
  d->first_us = us(quantile_ns(first, c->waves, 0.5));
  d->later_us = us(quantile_ns(later, c->waves, 0.5));
  free(scratch);
  free(first);
  free(later);
}

static void digest_pauses(const saw_case *c, digest *d) {
  uint64_t *pauses = memory(c->collection_count, sizeof *pauses);
  size_t known = 0;
  for (size_t i = 0; i < c->collection_count; i++) {
    if (c->collections[i].at_ns < origin_ns(c)) continue;
    d->collections++;
    if (c->collections[i].pause_ns) pauses[known++] = c->collections[i].pause_ns;
  }
  d->pause_p50_us = known ? us(quantile_ns(pauses, known, 0.5)) : NAN;
  d->pause_most_us = known ? us(quantile_ns(pauses, known, 1)) : NAN;
  free(pauses);
}

// Idle encoders as they lay before a wave, and what a higher percent lets the heap grow by.
static uint64_t bytes_kept(const saw_run *r, const saw_case *c) {
  double items = c->idle_looks ? (double)c->idle_items / (double)c->idle_looks : 0;
  double grown =
      isnan(c->growth_bytes) ? 0 : c->growth_bytes * (1 - (double)r->percent / c->percent);
  return (uint64_t)(items * (double)r->encoder_bytes + grown);
}

// From one use of the pool to the next.
static double gap_ms(const saw_case *c) {
  uint64_t between = c->plan.wave_ns / c->plan.per_wave;
  return (double)(c->plan.gap_ns + between) * 1e-6;
}

// ---- Rows -----------------------------------------------------------------------------------

static void add_row(result *to, const saw_case *c) {
  const saw_run *r = to->run;
  digest d = {0};
  digest_requests(c, &d);
  digest_waves(r, c, &d);
  digest_pauses(c, &d);
  double waves = (double)c->waves, requests = (double)d.requests, share = (double)d.teeth / waves;
  cell row[FIELDS] = {
      [EXPERIMENT].text = "sawtooth",
      [ENGINE].text = r->set.common.engine,
      [CASE].text = c->kind->name,
      [RATE].count = (int64_t)r->set.rate,
      [WORKERS].count = (int64_t)r->set.workers,
      [GAP].real = gap_ms(c),
      [PERIOD].real = c->period_ns * 1e-6,
      [GAP_OVER_PERIOD].real = gap_ms(c) * 1e6 / c->period_ns,
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
      [TOOTH].flag = share > 0.5,
      [TOOTH_SHARE].real = share,
      [LATE_SHARE].real = (double)d.late / requests,
      [COLLECTIONS].count = (int64_t)d.collections,
      [PAUSE_P50].real = d.pause_p50_us,
      [PAUSE_MOST].real = d.pause_most_us,
      [BYTES_KEPT].count = (int64_t)bytes_kept(r, c),
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
  uint64_t *scratch = memory(c->plan.per_wave, sizeof *scratch);
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
          [B_T].real = (double)(bins[i].start_ns - origin_ns(c)) * 1e-6,
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
    if (one->at_ns < origin_ns(c)) continue;
    cell row[C_FIELDS] = {
        [C_EXPERIMENT].text = "sawtooth",
        [C_COLLECTION].flag = true,
        [C_CASE].text = c->kind->name,
        [C_T].real = (double)(one->at_ns - origin_ns(c)) * 1e-6,
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

// The first three waves that count, and the gaps behind them. The picture begins a little before.
static void fill_timeline(timeline *t, const saw_case *c) {
  double period_ns = (double)(c->plan.wave_ns + c->plan.gap_ns);
  double lead_ns = period_ns / 20, span_ns = 3 * period_ns;
  double from_ns = (double)origin_ns(c) - lead_ns, width_ns = span_ns / TIMELINE_COLUMNS;
  t->span_ms = span_ns * 1e-6;
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

// Up to the next 1, 2 or 5 with zeros behind it.
static double round_up(double value) {
  double unit = pow(10, floor(log10(fmax(value, 1))));
  double steps[] = {1, 2, 5, 10};
  for (int i = 0; i < 4; i++)
    if (value <= steps[i] * unit) return steps[i] * unit;
  return 10 * unit;
}

// `beyond` and the first cure that there is, to one scale: twice as high as the usual tooth.
static void print_pictures(FILE *file, const text_style *style, const result *r) {
  const char *names[2] = {"beyond", NULL};
  double first_us = 0;
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    bool cure = is_cure(r, row);
    if (cure && !names[1]) names[1] = row[CASE].text;
    if (cure || strcmp(row[CASE].text, names[0]) == 0) first_us = fmax(first_us, row[FIRST].real);
  }
  bool legend = true;
  for (int i = 0; i < 2; i++) {
    if (!names[i] || !row_of(r, names[i])) continue;
    char title[96];
    snprintf(title, sizeof title, "%s: the worst latency over time", names[i]);
    timeline picture = {.title = title, .unit = "us", .top = round_up(2 * first_us)};
    fill_timeline(&picture, case_of(r, names[i]));
    timeline_print(file, style, &picture, legend);
    fputc('\n', file);
    legend = false;
  }
}

// ---- Text -----------------------------------------------------------------------------------

static void print_head(FILE *file, const result *r) {
  const saw_settings *set = &r->run->set;
  paragraph_print(file,
                  "sawtooth: %s engine, %llu requests a second in waves of %llu~ms, %llu workers; "
                  "beside it %s live and %llu MB/s allocated, a collection every %.0f~ms",
                  set->common.engine, (unsigned long long)set->rate,
                  (unsigned long long)set->wave_ms, (unsigned long long)set->workers,
                  size_text(set->live_bytes), (unsigned long long)set->alloc_rate,
                  r->run->period_ns * 1e-6);
  paragraph_print(file,
                  "An encoder with its buffers and dictionary has %s and takes %.0f~us to make; a "
                  "request takes %.2g~us.",
                  size_text(r->run->encoder_bytes), r->run->make_ns * 1e-3,
                  r->run->request_ns * 1e-3);
}

static void print_legend(FILE *file) {
  paragraph_print(
      file, "T is the time between two waves, G the collection period. Latencies count from when a "
            "request was due; the first wave is not counted. first: the worst latency in a wave's "
            "first 5~ms; later: in a usual 5~ms of its rest; medians over the waves. teeth: the "
            "share of waves whose first is at least twice their later, and by half of what it "
            "takes to make an encoder more. kept: idle encoders before a wave, and for percent "
            "what the heap grows by.");
}

static void print_cases(FILE *file, const result *r) {
  for (size_t i = 0; i < r->run->count; i++) {
    const saw_case *c = &r->run->cases[i];
    if (!c->waves || !c->kind->cure) continue;
    char setting[64] = "";
    if (c->survive) snprintf(setting, sizeof setting, "%d", c->survive);
    if (c->min_idle_ns) snprintf(setting, sizeof setting, "%.0f~ms", (double)c->min_idle_ns * 1e-6);
    if (c->percent != r->run->percent) snprintf(setting, sizeof setting, "%d", c->percent);
    const cell *row = row_of(r, c->kind->name);
    paragraph_print(file,
                    "%s (%s%s): %.2f misses a wave, first %.0f~us, a tooth in %.0f~%% of the "
                    "waves; %s kept.",
                    c->kind->name, c->kind->what, setting, row[MISSES_WAVE].real, row[FIRST].real,
                    row[TOOTH_SHARE].real * 100, size_text((uint64_t)row[BYTES_KEPT].count));
  }
}

static void print_beyond(FILE *file, const result *r) {
  const cell *row = row_of(r, "beyond");
  if (!row) return;
  paragraph_print(
      file,
      "At T/G %.2f a wave begins with %.1f misses, %.0f~%% of them in its first 5~ms: "
      "there the worst latency is %.0f~us, later %.0f~us; a tooth in %.0f~%% of the "
      "waves, and a hit rate of %.1f~%% that does not show it.",
      row[GAP_OVER_PERIOD].real, row[MISSES_WAVE].real,
      row[MISSES].count ? 100.0 * (double)row[MISSES_FIRST].count / (double)row[MISSES].count : 0,
      row[FIRST].real, row[LATER].real, row[TOOTH_SHARE].real * 100, row[HIT_RATE].real * 100);
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
    print_legend(file);
    fputc('\n', file);
    print_pictures(file, style, r);
    print_beyond(file, r);
    print_cases(file, r);
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
