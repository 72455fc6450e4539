// SPDX-License-Identifier: MIT
// The rows of `tidepool uneven`, and what is printed about them: the table, the plot, for each
// pattern where the line blurs most, a verdict, a summary. See uneven.h.
#include "command.h"
#include "plot.h"
#include "uneven.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  EXPERIMENT,
  ENGINE,
  PROCS,
  GC_PERCENT,
  PATTERN,
  RATE,
  RATE_MEASURED,
  GAP,
  PERIOD,
  PERIOD_EXPECTED,
  PERIOD_CV,
  CORRELATION,
  GAP_OVER_PERIOD,
  SURVIVE,
  STRAIGHT,
  PREDICTED,
  MEASURED,
  ERROR,
  BLUR,
  COUNTED,
  BURSTS,
  COLLECTIONS,
  POOLS,
  LATE,
  PARTIAL,
  KIND, // not printed
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [PROCS] = {"procs", NULL, COLUMN_COUNT, 0},
    [GC_PERCENT] = {"gc_percent", NULL, COLUMN_COUNT, 0},
    [PATTERN] = {"pattern", "pattern", COLUMN_TEXT, 0},
    [RATE] = {"rate_mb_s", "MB/s", COLUMN_REAL, -1},
    [RATE_MEASURED] = {"measured_rate_mb_s", NULL, COLUMN_REAL, 2},
    [GAP] = {"gap_ms", "T ms", COLUMN_REAL, 1},
    [PERIOD] = {"gc_period_ms", "G ms", COLUMN_REAL, 1},
    [PERIOD_EXPECTED] = {"expected_period_ms", NULL, COLUMN_REAL, 2},
    [PERIOD_CV] = {"period_cv", "cv", COLUMN_REAL, 3},
    [CORRELATION] = {"period_correlation", NULL, COLUMN_REAL, 3},
    [GAP_OVER_PERIOD] = {"gap_over_period", "T/G", COLUMN_REAL, 3},
    [SURVIVE] = {"survive", NULL, COLUMN_COUNT, 0},
    [STRAIGHT] = {"straight", "straight", COLUMN_REAL, 3},
    [PREDICTED] = {"predicted", "exact", COLUMN_REAL, 3},
    [MEASURED] = {"measured", "measured", COLUMN_REAL, 3},
    [ERROR] = {"error", "error", COLUMN_REAL, 4},
    [BLUR] = {"blur", "blur", COLUMN_REAL, 3},
    [COUNTED] = {"counted", NULL, COLUMN_REAL, 4},
    [BURSTS] = {"bursts", NULL, COLUMN_COUNT, 0},
    [COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [POOLS] = {"pools", NULL, COLUMN_COUNT, 0},
    [LATE] = {"late_us", NULL, COLUMN_REAL, 1},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
    [KIND] = {NULL, NULL, COLUMN_COUNT, 0},
};

enum {
  S_EXPERIMENT,
  S_SUMMARY,
  S_CONFIGS,
  S_ERROR,
  S_BLUR,
  S_BLUR_OF, // one for each pattern
  S_UNPACED = S_BLUR_OF + PATTERNS,
  S_SEED,
  S_PARTIAL,
  S_FIELDS
};

static const column summary_columns[S_FIELDS] = {
    [S_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [S_SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [S_CONFIGS] = {"configs", NULL, COLUMN_COUNT, 0},
    [S_ERROR] = {"max_abs_error", NULL, COLUMN_REAL, 4},
    [S_BLUR] = {"max_blur", NULL, COLUMN_REAL, 4},
    [S_BLUR_OF + PATTERN_STEADY] = {"max_blur_steady", NULL, COLUMN_REAL, 4},
    [S_BLUR_OF + PATTERN_POISSON] = {"max_blur_poisson", NULL, COLUMN_REAL, 4},
    [S_BLUR_OF + PATTERN_BURSTY] = {"max_blur_bursty", NULL, COLUMN_REAL, 4},
    [S_BLUR_OF + PATTERN_PHASED] = {"max_blur_phased", NULL, COLUMN_REAL, 4},
    [S_BLUR_OF + PATTERN_REPLAY] = {"max_blur_replay", NULL, COLUMN_REAL, 4},
    [S_UNPACED] = {"other_collections", NULL, COLUMN_COUNT, 0},
    [S_SEED] = {"seed", NULL, COLUMN_COUNT, 0},
    [S_PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

static const char starts_text[] =
    "How gaps meet the collections: the window is divided into as many parts as there are gaps of "
    "a length, and one begins in each, at a place that the seed draws. Gaps overlap, each in a "
    "pool of its own. The exact prediction is the share of this window in which a gap of the mean "
    "length could begin and meet too few collections to lose anything, from the moments at which "
    "they started.";

const char *uneven_pattern_name(pattern_kind kind) {
  static const char *const names[PATTERNS] = {
      [PATTERN_STEADY] = "steady", [PATTERN_POISSON] = "poisson", [PATTERN_BURSTY] = "bursty",
      [PATTERN_PHASED] = "phased", [PATTERN_REPLAY] = "replay",
  };
  return names[kind];
}

// ---- Rows -----------------------------------------------------------------------------------

void uneven_begin_rows(uneven *u) {
  u->rows = (table){.columns = columns, .column_count = FIELDS};
  u->summary = (table){.columns = summary_columns, .column_count = S_FIELDS};
}

void uneven_free_rows(uneven *u) {
  table_free(&u->rows);
  table_free(&u->summary);
}

void uneven_add_row(uneven *u, const uneven_series *one, const sample_run *run,
                    const sample_config *c, const moments *starts, double rate_mb_s) {
  if (!c->done) {
    u->empty++;
    return;
  }
  // Where the gaps that are over began: they were all a little late.
  double late = c->late_sum_ns / c->begun, gap = c->gap_sum_ns / c->done;
  double from = (double)run->from_ns + late;
  // The last part may end too late for the log to know what a gap from there would have met.
  double to = fmin(from + run->window_ns * c->done / c->bursts, (double)run->until_ns - gap);
  periods p = blur_periods(starts, from, to);
  if (!p.count || !(to > from)) {
    u->empty++;
    return;
  }
  double straight = blur_straight(gap / p.mean, run->survive);
  double predicted = blur_predict(starts, from, to, gap, run->survive);
  double measured = (double)c->hits / ((double)c->done * run->items);
  cell row[FIELDS] = {
      [EXPERIMENT].text = "uneven",
      [ENGINE].text = u->set.common.engine,
      [PROCS].count = u->procs,
      [GC_PERCENT].count = u->gc_percent,
      [PATTERN].text = uneven_pattern_name(one->kind),
      [RATE].real = one->rate * 1e-6,
      [RATE_MEASURED].real = rate_mb_s,
      [GAP].real = gap * 1e-6,
      [PERIOD].real = p.mean * 1e-6,
      [PERIOD_EXPECTED].real = one->period_ns * 1e-6,
      [PERIOD_CV].real = p.cv,
      [CORRELATION].real = p.correlation,
      [GAP_OVER_PERIOD].real = gap / p.mean,
      [SURVIVE].count = run->survive,
      [STRAIGHT].real = straight,
      [PREDICTED].real = predicted,
      [MEASURED].real = measured,
      [ERROR].real = fabs(measured - predicted),
      [BLUR].real = fabs(predicted - straight),
      [COUNTED].real = (double)c->survived / c->done,
      [BURSTS].count = c->done,
      [COLLECTIONS].count = (int64_t)p.count,
      [POOLS].count = run->pools,
      [LATE].real = late * 1e-3,
      [PARTIAL].flag = c->done < c->bursts,
      [KIND].count = one->kind,
  };
  table_add(&u->rows, row);
}

static const cell *row_at(const uneven *u, size_t i) {
  return u->rows.cells + i * FIELDS;
}

typedef struct extremes {
  double error;
  const cell *most; // blurred; NULL: there are no rows
  const cell *most_of[PATTERNS];
  double cv_of[PATTERNS]; // the largest
  double gap_high;        // T/G
  double late;            // over the period
} extremes;

static const cell *more_blurred(const cell *a, const cell *b) {
  return !a || b[BLUR].real > a[BLUR].real ? b : a;
}

static extremes look_at(const uneven *u) {
  extremes e = {0};
  for (size_t i = 0; i < u->rows.row_count; i++) {
    const cell *row = row_at(u, i);
    size_t kind = (size_t)row[KIND].count;
    e.error = fmax(e.error, row[ERROR].real);
    e.most = more_blurred(e.most, row);
    e.most_of[kind] = more_blurred(e.most_of[kind], row);
    e.cv_of[kind] = fmax(e.cv_of[kind], row[PERIOD_CV].real);
    e.gap_high = fmax(e.gap_high, row[GAP_OVER_PERIOD].real);
    e.late = fmax(e.late, row[LATE].real * 1e-3 / row[PERIOD].real);
  }
  return e;
}

// ---- The text form --------------------------------------------------------------------------

static unsigned plotted_survive; // the plot's line has no argument for it

static double straight_line(double gap_over_period) {
  return blur_straight(gap_over_period, plotted_survive);
}

static void print_plot(FILE *file, const text_style *style, const uneven *u, double gap_high) {
  plot_point *points = calloc(u->rows.row_count, sizeof *points);
  const char *names[PATTERNS];
  size_t marks = 0, mark_of[PATTERNS];
  if (!points) return; // no memory for a picture: the table says it all
  for (size_t kind = 0; kind < PATTERNS; kind++) {
    if (!(u->set.patterns >> kind & 1)) continue;
    mark_of[kind] = marks;
    names[marks++] = uneven_pattern_name((pattern_kind)kind);
  }
  for (size_t i = 0; i < u->rows.row_count; i++) {
    const cell *row = row_at(u, i);
    points[i] =
        (plot_point){row[GAP_OVER_PERIOD].real, row[MEASURED].real, mark_of[row[KIND].count]};
  }
  plotted_survive = (unsigned)u->set.survive;
  double lowest = (double)u->set.survive + 2;
  plot_print(file, style,
             &(plot){.x_label = "T/G",
                     .y_label = "hit rate, measured",
                     .x_highest = fmin(fmax(lowest, ceil(gap_high * 2) / 2), lowest + 3),
                     .line = straight_line,
                     .line_name = "straight",
                     .points = points,
                     .point_count = u->rows.row_count,
                     .series_names = names,
                     .series_count = marks});
  free(points);
}

// How a pattern's periods vary, and what that does.
static void print_pattern(FILE *file, const cell *most, double cv) {
  char alike[80] = "";
  double correlation = most[CORRELATION].real, blur = most[BLUR].real;
  if (cv > 0.05 && fabs(correlation) > 0.15)
    snprintf(alike, sizeof alike, ", %s after long ones (correlation~%.2f)",
             correlation > 0 ? "long ones" : "short ones", correlation);
  if (blur < 0.02)
    paragraph_print(file, "%s: periods vary by %.2f of their mean%s; the line is off by %.3f.",
                    most[PATTERN].text, cv, alike, blur);
  else
    paragraph_print(file,
                    "%s: periods vary by %.2f of their mean%s; the line is off by up to %.2f: at "
                    "T/G~%.2f it says %.2f, measured~%.2f.",
                    most[PATTERN].text, cv, alike, blur, most[GAP_OVER_PERIOD].real,
                    most[STRAIGHT].real, most[MEASURED].real);
}

// Why: the corners of the line are those of even periods.
static void print_reason(FILE *file, const uneven *u, const extremes *e) {
  const cell *most = e->most;
  if (!most || most[BLUR].real < 0.05) return;
  bool above = most[PREDICTED].real > most[STRAIGHT].real;
  unsigned survive = (unsigned)u->set.survive;
  fputc('\n', file);
  paragraph_print(file,
                  "Most blurred: %s. The mean does not show that %s. So the corners of the line, "
                  "at T/G~%u and %u, become a curve. Where periods vary by a small share c of "
                  "their mean, each for itself, it is off there by about %.2f~c and %.2f~c; by "
                  "more where long ones follow long ones.",
                  most[PATTERN].text,
                  above ? "most of the time is in long periods, which leave the pool what it has"
                        : "collections crowd at times, and empty the pool then",
                  survive, survive + 1, 0.4 * sqrt(survive), 0.4 * sqrt(survive + 1));
}

static void print_conclusion(FILE *file, const uneven *u, const extremes *e) {
  if (u->partial)
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
  if (u->empty)
    paragraph_print(file, "Left out: %zu configuration%s, for want of gaps or collections.",
                    u->empty, u->empty == 1 ? "" : "s");
  if (u->rows.row_count == 0) return;
  if (u->unpaced)
    paragraph_print(file, "Not a clean run: %llu collections came from elsewhere.",
                    (unsigned long long)u->unpaced);
  if (u->pace_low < 0.95)
    paragraph_print(file,
                    "Not a clean run: the machine was so busy, or a rate so high, that the "
                    "allocating thread only reached %.0f~%% of a pattern.",
                    u->pace_low * 100);
  if (e->late > 0.05)
    paragraph_print(file,
                    "Not a clean run: gaps began late, by %.0f~%% of a period. Fewer --bursts, or "
                    "a quieter machine, would do.",
                    e->late * 100);
  size_t count = u->rows.row_count;
  paragraph_print(
      file,
      "%zu configuration%s, largest error %.3f: when collections came %s the hit rate%s. "
      "The straight line alone is off by up to %.3f.",
      count, count == 1 ? "" : "s", e->error,
      e->error > 0.03 ? "does not quite predict" : "predicts",
      e->error > 0.03 ? "" : ", whatever the pattern", e->most[BLUR].real);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const uneven *u = data;
  extremes e = look_at(u);
  paragraph_print(file,
                  "uneven: %s engine, %d processors, GC percent %d, %s live, %llu gaps of each "
                  "length in %g s, %llu items of %s, seed %llu",
                  u->set.common.engine, u->procs, u->gc_percent, size_text(u->set.live_bytes),
                  (unsigned long long)u->set.bursts, (double)u->set.window_ms * 1e-3,
                  (unsigned long long)u->set.items, size_text(u->set.item_bytes),
                  (unsigned long long)u->set.seed);
  fputc('\n', file);
  table_print(file, style, &u->rows);
  fputc('\n', file);
  paragraph_print(file,
                  "T: the gap between two uses of a pool. G: mean time from one collection's start "
                  "to the next; cv: its standard deviation / mean. straight: "
                  "1~-~clip(T/G~-~%llu,~0,~1). exact: from the moments of the collections. error: "
                  "|measured~-~exact|. blur: |exact~-~straight|.",
                  (unsigned long long)u->set.survive);
  fputc('\n', file);
  if (u->rows.row_count) {
    print_plot(file, style, u, e.gap_high);
    fputc('\n', file);
    for (size_t kind = 0; kind < PATTERNS; kind++)
      if (e.most_of[kind]) print_pattern(file, e.most_of[kind], e.cv_of[kind]);
    print_reason(file, u, &e);
    fputc('\n', file);
  }
  paragraph_print(file, "%s", starts_text);
  fputc('\n', file);
  print_conclusion(file, u, &e);
}

// ---------------------------------------------------------------------------------------------

static void summarize(uneven *u) {
  extremes e = look_at(u);
  cell row[S_FIELDS] = {
      [S_EXPERIMENT].text = "uneven",
      [S_SUMMARY].flag = true,
      [S_CONFIGS].count = (int64_t)u->rows.row_count,
      [S_ERROR].real = e.error,
      [S_BLUR].real = e.most ? e.most[BLUR].real : NAN,
      [S_UNPACED].count = (int64_t)u->unpaced,
      [S_SEED].count = (int64_t)u->set.seed,
      [S_PARTIAL].flag = u->partial,
  };
  for (size_t kind = 0; kind < PATTERNS; kind++)
    row[S_BLUR_OF + kind].real = e.most_of[kind] ? e.most_of[kind][BLUR].real : NAN;
  table_add(&u->summary, row);
}

bool uneven_report(uneven *u) {
  summarize(u);
  report r = {.experiment = "uneven",
              .rows = &u->rows,
              .summary = &u->summary,
              .text = print_text,
              .data = u};
  return report_write(&r, &u->set.common);
}
