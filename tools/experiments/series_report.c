// SPDX-License-Identifier: MIT
// The rows of a study, and what is printed about them: the table, the plot, a verdict, a summary.
// One description of the columns serves both commands; study_begin_rows says what differs.
#include "command.h"
#include "plot.h"
#include "series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const column all_columns[ROW_FIELDS] = {
    [ROW_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ROW_ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [ROW_PROCS] = {"procs", NULL, COLUMN_COUNT, 0},
    [ROW_GC_PERCENT] = {"gc_percent", "percent", COLUMN_COUNT, 0},
    [ROW_MEMORY_LIMIT] = {"memory_limit", "limit", COLUMN_BYTES, 0},
    [ROW_LIVE] = {"live_bytes", NULL, COLUMN_COUNT, 0},
    [ROW_RATE] = {"rate_mb_s", "MB/s", COLUMN_REAL, -1},
    [ROW_RATE_MEASURED] = {"measured_rate_mb_s", NULL, COLUMN_REAL, 2},
    [ROW_GAP] = {"gap_ms", "T ms", COLUMN_REAL, 2},
    [ROW_PERIOD] = {"gc_period_ms", "G ms", COLUMN_REAL, 2},
    [ROW_PERIOD_EXPECTED] = {"expected_period_ms", "exp. ms", COLUMN_REAL, 2},
    [ROW_PERIOD_RATIO] = {"period_over_expected", "ratio", COLUMN_REAL, 3},
    [ROW_GAP_OVER_PERIOD] = {"gap_over_period", "T/G", COLUMN_REAL, 3},
    [ROW_PREDICTED] = {"predicted", "predicted", COLUMN_REAL, 4},
    [ROW_MEASURED] = {"measured", "measured", COLUMN_REAL, 4},
    [ROW_ERROR] = {"error", "error", COLUMN_REAL, 4},
    [ROW_COUNTED] = {"counted", NULL, COLUMN_REAL, 4},
    [ROW_BURSTS] = {"bursts", "bursts", COLUMN_COUNT, 0},
    [ROW_COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [ROW_BY_GOAL] = {"collections_by_goal", NULL, COLUMN_COUNT, 0},
    [ROW_BY_LIMIT] = {"collections_by_limit", NULL, COLUMN_COUNT, 0},
    [ROW_PAUSED] = {"paused_share", "paused", COLUMN_REAL, 4},
    [ROW_LIMITER_ACTIVE] = {"limiter_active", NULL, COLUMN_FLAG, 0},
    [ROW_LIMITER_EPISODES] = {"limiter_episodes", NULL, COLUMN_COUNT, 0},
    [ROW_PHASES] = {"phases", NULL, COLUMN_TEXT, 0},
    [ROW_PHASE_DEVIATION] = {"phase_deviation", NULL, COLUMN_REAL, 4},
    [ROW_LANES] = {"pools", NULL, COLUMN_COUNT, 0},
    [ROW_PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
    [ROW_GAP_WANTED] = {NULL, NULL, COLUMN_REAL, -1},
};

// What only a study of the knobs has.
static const int knob_columns[] = {ROW_MEMORY_LIMIT, ROW_BY_GOAL,        ROW_BY_LIMIT,
                                   ROW_PAUSED,       ROW_LIMITER_ACTIVE, ROW_LIMITER_EPISODES,
                                   ROW_PHASES};

enum {
  SUMMARY_EXPERIMENT,
  SUMMARY,
  SUMMARY_CONFIGS,
  SUMMARY_ERROR,
  SUMMARY_PERIOD,
  SUMMARY_UNPACED,
  SUMMARY_SEED,
  SUMMARY_PARTIAL,
  SUMMARY_PHASES,
  SUMMARY_FIELDS
};

static const column summary_columns[SUMMARY_FIELDS] = {
    [SUMMARY_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [SUMMARY_CONFIGS] = {"configs", NULL, COLUMN_COUNT, 0},
    [SUMMARY_ERROR] = {"max_abs_error", NULL, COLUMN_REAL, 4},
    [SUMMARY_PERIOD] = {"max_period_deviation", NULL, COLUMN_REAL, 4},
    [SUMMARY_UNPACED] = {"other_collections", NULL, COLUMN_COUNT, 0},
    [SUMMARY_SEED] = {"seed", NULL, COLUMN_COUNT, 0},
    [SUMMARY_PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
    [SUMMARY_PHASES] = {"phases", NULL, COLUMN_TEXT, 0},
};

static const char phases_text[] =
    "The gaps of a configuration begin at phases of the collection period that are fixed before it "
    "runs: as many as it has bursts, evenly spaced, shifted by the seed; each is used once, in the "
    "order in which they can be reached. A gap that begins off them is not measured but begun "
    "anew, unless it is longer than three periods: then no phase makes a difference.";

static const char no_room_text[] =
    "Where no period is expected, the live heap and what is mapped beside it leave no room below "
    "the limit: a collection is due whenever memory is asked for, and memory passes the limit "
    "where collecting would take more than half of the time.";

static double predict(double gap_over_period) {
  return 1 - fmin(fmax(gap_over_period - 1, 0), 1);
}

// ---- Rows -----------------------------------------------------------------------------------

static void hide(column *c) {
  c->field = c->heading = NULL;
}

// Percent and limit lead the rows of a study of the knobs; else the percent is the same in all of
// them, and the table leaves it to its title.
void study_begin_rows(study *s) {
  memcpy(s->columns, all_columns, sizeof all_columns);
  if (s->knobs) {
    s->columns[ROW_PERIOD_RATIO].heading = NULL;
    s->columns[ROW_BURSTS].heading = NULL;
  } else {
    s->columns[ROW_GC_PERCENT].heading = NULL;
    for (size_t i = 0; i < sizeof knob_columns / sizeof knob_columns[0]; i++)
      hide(&s->columns[knob_columns[i]]);
  }
  s->rows = (table){.columns = s->columns, .column_count = ROW_FIELDS};
  s->summary = (table){.columns = summary_columns, .column_count = SUMMARY_FIELDS};
}

void study_free_rows(study *s) {
  table_free(&s->rows);
  table_free(&s->summary);
}

// Without a limit it follows from the settings; with one, from the goals that the library had.
// Where these leave no room, or the limiter holds collections back, there is none to expect: NAN.
static double expected_period_ns(const series *one, const gap_run *g, uint64_t first, uint64_t last,
                                 const series_facts *facts) {
  if (one->memory_limit == INT64_MAX) return study_period_ns(one);
  double growth = cycles_growth_bytes(g->cycles, first, last);
  if (facts->limiter_active || growth < PRESSURE_CHUNK_BYTES) return NAN;
  return growth / (one->rate * 1e6) * 1e9;
}

void study_add_row(study *s, const series *one, const gap_run *g, const gap_config *c,
                   const series_facts *facts) {
  uint64_t first = c->first_cycle, last = c->last_cycle;
  // Too few of its own: the whole series'.
  if (last < first + 2) first = 0, last = cycles_count(g->cycles) - 1;
  double expected = expected_period_ns(one, g, first, last, facts);
  double period = cycles_period_ns(g->cycles, first, last);
  double gap = c->gap_sum_ns / c->done;
  double measured = (double)c->hits / ((double)c->done * (double)s->set->workers);
  double predicted = predict(gap / period);
  size_t index = (size_t)(c - g->configs);
  double wanted = index < s->gaps_ms.count ? s->gaps_ms.at[index] : NAN;
  cell row[ROW_FIELDS] = {
      [ROW_EXPERIMENT].text = s->name,
      [ROW_ENGINE].text = s->set->common.engine,
      [ROW_PROCS].count = s->procs,
      [ROW_GC_PERCENT].count = one->gc_percent < 0 ? COUNT_OFF : one->gc_percent,
      [ROW_MEMORY_LIMIT].count = one->memory_limit == INT64_MAX ? COUNT_OFF : one->memory_limit,
      [ROW_LIVE].count = (int64_t)cycles_live_bytes(g->cycles, first, last),
      [ROW_RATE].real = one->rate,
      [ROW_RATE_MEASURED].real = facts->rate,
      [ROW_GAP].real = gap * 1e-6,
      [ROW_PERIOD].real = period * 1e-6,
      [ROW_PERIOD_EXPECTED].real = expected * 1e-6,
      [ROW_PERIOD_RATIO].real = period / expected,
      [ROW_GAP_OVER_PERIOD].real = gap / period,
      [ROW_PREDICTED].real = predicted,
      [ROW_MEASURED].real = measured,
      [ROW_ERROR].real = fabs(measured - predicted),
      [ROW_COUNTED].real = (double)c->survived / c->done,
      [ROW_BURSTS].count = c->done,
      [ROW_COLLECTIONS].count = (int64_t)(last - first),
      [ROW_BY_GOAL].count = (int64_t)cycles_caused(g->cycles, TIDE_CAUSE_GOAL, first, last),
      [ROW_BY_LIMIT].count = (int64_t)cycles_caused(g->cycles, TIDE_CAUSE_LIMIT, first, last),
      [ROW_PAUSED].real = facts->paused_share,
      [ROW_LIMITER_ACTIVE].flag = facts->limiter_active,
      [ROW_LIMITER_EPISODES].count = (int64_t)facts->limiter_episodes,
      [ROW_PHASES].text = c->anywhere ? "any" : "fixed",
      [ROW_PHASE_DEVIATION].real = gaps_phase_deviation(c),
      [ROW_LANES].count = g->lanes,
      [ROW_PARTIAL].flag = c->done < c->bursts,
      [ROW_GAP_WANTED].real = wanted,
  };
  table_add(&s->rows, row);
}

// ---- The text form --------------------------------------------------------------------------

typedef struct extremes {
  double error;      // largest
  double period_low; // measured over expected
  double period_high;
  double gap_high; // T/G
  double rate_low; // as reached, over the one wanted, where there was room
  bool no_room;    // somewhere
} extremes;

static extremes look_at(const table *rows) {
  extremes e = {.period_low = HUGE_VAL, .rate_low = 1};
  for (size_t i = 0; i < rows->row_count; i++) {
    const cell *row = rows->cells + i * ROW_FIELDS;
    e.error = fmax(e.error, row[ROW_ERROR].real);
    e.period_low = fmin(e.period_low, row[ROW_PERIOD_RATIO].real);
    e.period_high = fmax(e.period_high, row[ROW_PERIOD_RATIO].real);
    if (isnan(row[ROW_PERIOD_EXPECTED].real))
      e.no_room = true;
    else
      e.rate_low = fmin(e.rate_low, row[ROW_RATE_MEASURED].real / row[ROW_RATE].real);
    e.gap_high = fmax(e.gap_high, row[ROW_GAP_OVER_PERIOD].real);
  }
  if (e.period_high == 0) e.period_low = e.period_high = 1; // nothing was expected
  return e;
}

// What the legend calls the rows that share a mark.
static void name_mark(char *name, size_t size, const study *s, const cell *row) {
  if (!s->knobs)
    snprintf(name, size, "%g MB/s", row[ROW_RATE].real);
  else
    snprintf(name, size, "%s",
             row[ROW_MEMORY_LIMIT].count == COUNT_OFF ? "by GC percent" : "by memory limit");
}

static void print_plot(FILE *file, const text_style *style, const study *s, double gap_high) {
  plot_point *points = calloc(s->rows.row_count, sizeof *points);
  char names[NUMBERS_MAX][32];
  const char *name_list[NUMBERS_MAX];
  size_t marks = 0;
  if (!points) return; // no memory for a picture: the table says it all
  for (size_t i = 0; i < s->rows.row_count; i++) {
    const cell *row = s->rows.cells + i * ROW_FIELDS;
    char name[32];
    size_t mark = 0;
    name_mark(name, sizeof name, s, row);
    while (mark < marks && strcmp(names[mark], name) != 0) mark++;
    if (mark == marks) {
      memcpy(names[marks], name, sizeof name);
      name_list[marks] = names[marks];
      marks++;
    }
    points[i] = (plot_point){row[ROW_GAP_OVER_PERIOD].real, row[ROW_MEASURED].real, mark};
  }
  plot_print(file, style,
             &(plot){.x_label = "T/G",
                     .y_label = "hit rate",
                     .x_highest = fmin(fmax(3, ceil(gap_high * 2) / 2), 6),
                     .line = predict,
                     .line_name = "predicted",
                     .points = points,
                     .point_count = s->rows.row_count,
                     .series_names = name_list,
                     .series_count = marks});
  free(points);
}

static void print_conclusion(FILE *file, const study *s, const extremes *e) {
  if (s->partial) {
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
    return;
  }
  if (s->unpaced)
    paragraph_print(file, "Not a clean run: %llu collections came from elsewhere.",
                    (unsigned long long)s->unpaced);
  if (e->rate_low < 0.97)
    paragraph_print(file,
                    "Not a clean run: the machine was so busy that the allocating thread only "
                    "reached %.0f~%% of its rate.",
                    e->rate_low * 100);
  size_t count = s->rows.row_count;
  const char *verdict = e->error > 0.05 ? "that is not the predicted line."
                        : count < 3     ? "as predicted."
                                        : "counted in collection periods, one line predicts the "
                                          "hit rate.";
  paragraph_print(file,
                  "%zu configuration%s, largest error %.3f: %s Periods were %.3f to %.3f of what "
                  "%s and rate say.",
                  count, count == 1 ? "" : "s", e->error, verdict, e->period_low, e->period_high,
                  s->knobs ? "live heap, GC percent, memory limit" : "live heap, GC percent");
}

static void print_title(FILE *file, const study *s) {
  char percent[32] = "";
  if (!s->knobs) snprintf(percent, sizeof percent, "GC percent %d, ", s->list[0].gc_percent);
  paragraph_print(file,
                  "%s: %s engine, %d processors, %s%s live, %llu workers, items of %s, seed %llu",
                  s->name, s->set->common.engine, s->procs, percent, size_text(s->set->live_bytes),
                  (unsigned long long)s->set->workers, size_text(s->set->item_bytes),
                  (unsigned long long)s->set->seed);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const study *s = data;
  extremes e = look_at(&s->rows);
  print_title(file, s);
  fputc('\n', file);
  table_print(file, style, &s->rows);
  fputc('\n', file);
  paragraph_print(file,
                  "T: the gap between two uses of a pool. G: from one collection's start to the "
                  "next; exp.: growth allowed / rate%s. predicted: 1~-~clip(T/G~-~1,~0,~1).",
                  s->knobs ? "; paused: share of the time in which collections stopped the program"
                           : "; ratio: G / exp");
  if (s->rows.row_count) {
    fputc('\n', file);
    print_plot(file, style, s, e.gap_high);
  }
  fputc('\n', file);
  if (s->findings && s->rows.row_count) {
    s->findings(file, s);
    fputc('\n', file);
  }
  paragraph_print(file, "%s", phases_text);
  fputc('\n', file);
  if (e.no_room) {
    paragraph_print(file, "%s", no_room_text);
    fputc('\n', file);
  }
  print_conclusion(file, s, &e);
}

// ---------------------------------------------------------------------------------------------

static void summarize(study *s) {
  extremes e = look_at(&s->rows);
  cell row[SUMMARY_FIELDS] = {
      [SUMMARY_EXPERIMENT].text = s->name,
      [SUMMARY].flag = true,
      [SUMMARY_CONFIGS].count = (int64_t)s->rows.row_count,
      [SUMMARY_ERROR].real = e.error,
      [SUMMARY_PERIOD].real = fmax(fabs(e.period_low - 1), fabs(e.period_high - 1)),
      [SUMMARY_UNPACED].count = (int64_t)s->unpaced,
      [SUMMARY_SEED].count = (int64_t)s->set->seed,
      [SUMMARY_PARTIAL].flag = s->partial,
      [SUMMARY_PHASES].text = phases_text,
  };
  table_add(&s->summary, row);
}

bool study_report(study *s) {
  summarize(s);
  report r = {.experiment = s->name,
              .rows = &s->rows,
              .summary = &s->summary,
              .text = print_text,
              .data = s};
  return report_write(&r, &s->set->common);
}
