// SPDX-License-Identifier: MIT
// `tidepool period`: the hit rate of a pool against the time that it was left alone, while the rest
// of the program sets the pace of collections.
//
// A live heap and a thread that allocates at a steady rate make collections come every G = growth
// allowed / rate. A gap of length T that begins anywhere in a period contains two collections or
// more with probability T/G - 1, clipped to 0..1, and then the pool is empty. So the hit rate is
// predicted to be 1 - clip(T/G - 1, 0, 1), with T and G as measured. The rates come one after the
// other; gaps.h says how the gaps of one rate are spread over the phases of the period.
#include "burst.h"
#include "command.h"
#include "gaps.h"
#include "output.h"
#include "plot.h"
#include "progress.h"
#include "wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
  common_options common;
  uint64_t live_bytes;
  numbers rates;
  numbers ratios;
  uint64_t bursts;
  bool quick;
  bool full;
  uint64_t seed;
  uint64_t workers;
  uint64_t item_bytes;
} settings;

#define RATIOS       "0.5,0.8,1.2,1.5,1.8,2.2"
#define RATIOS_QUICK "0.75,1.25,1.75"
#define RATIOS_FULL  "0.4,0.7,0.9,1.1,1.25,1.4,1.5,1.6,1.75,1.9,2.6"

static const option_row table_of_options[] = {
    {"live", "SIZE", OPTION_BYTES, offsetof(settings, live_bytes), "32MiB", 0x1p20, 0x1p38, NULL,
     "live heap beside the allocation"},
    {"rates", "LIST", OPTION_REALS, offsetof(settings, rates), "50,200,800", 1, 100000, NULL,
     "allocation rates in MB/s"},
    {"ratios", "LIST", OPTION_REALS, offsetof(settings, ratios), NULL, 0.01, 100, NULL,
     "gaps, as multiples of the expected collection period (default " RATIOS
     "; with --quick " RATIOS_QUICK "; with --full " RATIOS_FULL ")"},
    {"bursts", "N", OPTION_COUNT, offsetof(settings, bursts), NULL, 1, GAP_BURSTS_MAX, NULL,
     "gaps measured for each rate and ratio (default 60; with --quick 20 to 100 and with --full 60 "
     "to 300, more where the period is shorter)"},
    {"quick", NULL, OPTION_FLAG, offsetof(settings, quick), NULL, 0, 0, NULL,
     "9 configurations in about a minute"},
    {"full", NULL, OPTION_FLAG, offsetof(settings, full), NULL, 0, 0, NULL,
     "33 configurations in about ten minutes"},
    {"seed", "N", OPTION_COUNT, offsetof(settings, seed), "1", 0, 4294967295, NULL,
     "shifts the phases at which gaps begin"},
    {"workers", "N", OPTION_COUNT, offsetof(settings, workers), "64", 1, 1024, NULL,
     "threads in a burst, each with one item"},
    {"item-bytes", "SIZE", OPTION_BYTES, offsetof(settings, item_bytes), "4096", 16, 0x1p24, NULL,
     "size of an item"},
};

static const options_spec spec = {
    .about =
        "Measures how much a pool still has after a gap of T milliseconds, while the rest of the "
        "program makes collections come every G milliseconds.\v"
        "A thread allocates and drops memory at each of the rates, beside a live heap. Where "
        "--ratios or --bursts stand next to --quick or --full, they win.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

enum {
  EXPERIMENT,
  ENGINE,
  PROCS,
  GC_PERCENT,
  LIVE,
  RATE,
  RATE_MEASURED,
  GAP,
  PERIOD,
  PERIOD_EXPECTED,
  PERIOD_RATIO,
  GAP_OVER_PERIOD,
  PREDICTED,
  MEASURED,
  ERROR,
  COUNTED,
  BURSTS,
  COLLECTIONS,
  PHASE_DEVIATION,
  LANES,
  PARTIAL,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [PROCS] = {"procs", NULL, COLUMN_COUNT, 0},
    [GC_PERCENT] = {"gc_percent", NULL, COLUMN_COUNT, 0},
    [LIVE] = {"live_bytes", NULL, COLUMN_COUNT, 0},
    [RATE] = {"rate_mb_s", "MB/s", COLUMN_REAL, -1},
    [RATE_MEASURED] = {"measured_rate_mb_s", NULL, COLUMN_REAL, 2},
    [GAP] = {"gap_ms", "T ms", COLUMN_REAL, 2},
    [PERIOD] = {"gc_period_ms", "G ms", COLUMN_REAL, 2},
    [PERIOD_EXPECTED] = {"expected_period_ms", "exp. ms", COLUMN_REAL, 2},
    [PERIOD_RATIO] = {"period_over_expected", "ratio", COLUMN_REAL, 3},
    [GAP_OVER_PERIOD] = {"gap_over_period", "T/G", COLUMN_REAL, 3},
    [PREDICTED] = {"predicted", "predicted", COLUMN_REAL, 4},
    [MEASURED] = {"measured", "measured", COLUMN_REAL, 4},
    [ERROR] = {"error", "error", COLUMN_REAL, 4},
    [COUNTED] = {"counted", NULL, COLUMN_REAL, 4},
    [BURSTS] = {"bursts", "bursts", COLUMN_COUNT, 0},
    [COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [PHASE_DEVIATION] = {"phase_deviation", NULL, COLUMN_REAL, 4},
    [LANES] = {"pools", NULL, COLUMN_COUNT, 0},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

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
    "anew.";

typedef struct run {
  settings set;
  burst *team;
  table rows;
  table summary;
  int procs;
  int gc_percent;
  double growth_bytes; // between two collections, as expected
  uint64_t unpaced;    // collections that the allocation did not cause
  double done_ns;      // of the rates before this one
  double total_ns;     // planned, for the progress bar
  unsigned lanes;      // of the current rate
  bool partial;
} run;

static double predict(double gap_over_period) {
  return 1 - fmin(fmax(gap_over_period - 1, 0), 1);
}

// ---- The plan -------------------------------------------------------------------------------

// What a mode chooses where the user does not: the gaps, and bursts for each of them so that a
// rate takes about `budget_s` (0: always the lowest number).
typedef struct mode {
  const char *ratios;
  unsigned lowest, highest;
  double budget_s;
} mode;

static const mode mode_standard = {RATIOS, 60, 60, 0};
static const mode mode_quick = {RATIOS_QUICK, 20, 100, 18};
static const mode mode_full = {RATIOS_FULL, 60, 300, 180};

static const mode *mode_of(const settings *s) {
  return s->quick ? &mode_quick : s->full ? &mode_full : &mode_standard;
}

static double expected_period_ns(const run *r, double rate) {
  return r->growth_bytes / (rate * 1e6) * 1e9;
}

static double sum_of_ratios(const run *r) {
  double sum = 0;
  for (size_t i = 0; i < r->set.ratios.count; i++) sum += r->set.ratios.at[i];
  return sum;
}

// Gaps side by side make bursts side by side, which must stay rare against the period; and their
// pools' items are live heap, which must stay small against the rest.
static unsigned lanes_for(const run *r, double period_ns) {
  const double burst_ns = 2e6; // a generous guess: it is only to keep them apart
  double by_time = period_ns / (20 * burst_ns);
  double items = (double)r->set.workers * (double)r->set.item_bytes;
  double by_memory = (double)r->set.live_bytes / 32 / items;
  return (unsigned)fmax(1, fmin(GAP_LANES_MAX, fmin(by_time, by_memory)));
}

static unsigned bursts_for(const run *r, double period_ns, unsigned lanes) {
  if (r->set.bursts) return (unsigned)r->set.bursts;
  const mode *m = mode_of(&r->set);
  double bursts = m->budget_s * 1e9 * lanes / (sum_of_ratios(r) * period_ns);
  return (unsigned)fmin(fmax(bursts, m->lowest), m->highest);
}

static double planned_ns(const run *r, double rate) {
  double period = expected_period_ns(r, rate);
  unsigned lanes = lanes_for(r, period);
  return sum_of_ratios(r) * period * bursts_for(r, period, lanes) / lanes;
}

// ---- One rate -------------------------------------------------------------------------------

static void show_progress(double done_ns, void *arg) {
  run *r = arg;
  progress_show((r->done_ns + done_ns / r->lanes) / r->total_ns);
}

static void add_row(run *r, const gap_run *g, gap_config *c, double rate, double rate_measured) {
  uint64_t first = c->first_cycle, last = c->last_cycle;
  // Too few of its own: the whole rate's.
  if (last < first + 2) first = 0, last = cycles_count(g->cycles) - 1;
  double expected = expected_period_ns(r, rate);
  double period = cycles_period_ns(g->cycles, first, last);
  double gap = c->gap_sum_ns / c->done;
  double measured = (double)c->hits / ((double)c->done * (double)r->set.workers);
  double predicted = predict(gap / period);
  cell row[FIELDS] = {
      [EXPERIMENT].text = "period",
      [ENGINE].text = r->set.common.engine,
      [PROCS].count = r->procs,
      [GC_PERCENT].count = r->gc_percent,
      [LIVE].count = (int64_t)cycles_live_bytes(g->cycles, first, last),
      [RATE].real = rate,
      [RATE_MEASURED].real = rate_measured,
      [GAP].real = gap * 1e-6,
      [PERIOD].real = period * 1e-6,
      [PERIOD_EXPECTED].real = expected * 1e-6,
      [PERIOD_RATIO].real = period / expected,
      [GAP_OVER_PERIOD].real = gap / period,
      [PREDICTED].real = predicted,
      [MEASURED].real = measured,
      [ERROR].real = fabs(measured - predicted),
      [COUNTED].real = (double)c->survived / c->done,
      [BURSTS].count = c->done,
      [COLLECTIONS].count = (int64_t)(last - first),
      [PHASE_DEVIATION].real = gaps_phase_deviation(c),
      [LANES].count = g->lanes,
      [PARTIAL].flag = c->done < c->bursts,
  };
  table_add(&r->rows, row);
}

// The gaps of one rate, beside a pressure that runs.
static bool measure_gaps(run *r, gap_run *g, double rate) {
  double period = expected_period_ns(r, rate);
  gap_config configs[NUMBERS_MAX] = {{0}};
  g->configs = configs;
  g->config_count = (unsigned)r->set.ratios.count;
  for (unsigned i = 0; i < g->config_count; i++)
    configs[i] = (gap_config){.gap_ns = r->set.ratios.at[i] * period,
                              .bursts = bursts_for(r, period, g->lanes)};

  gaps_end end = gaps_warm_up(g, 10 * period + 5e9);
  uint64_t start_ns = now_ns(), start_bytes = pressure_bytes(g->pressure);
  if (end == GAPS_DONE) end = gaps_measure(g);
  double bytes = (double)(pressure_bytes(g->pressure) - start_bytes);
  double rate_measured = bytes / (double)(now_ns() - start_ns) * 1e3;
  for (unsigned i = 0; i < g->config_count; i++) {
    if (end != GAPS_FAILED && configs[i].done) add_row(r, g, &configs[i], rate, rate_measured);
    gaps_free(&configs[i]);
  }
  if (end == GAPS_INTERRUPTED) r->partial = true;
  return end != GAPS_FAILED;
}

static bool measure_rate(run *r, double rate) {
  r->lanes = lanes_for(r, expected_period_ns(r, rate));
  // The items of the pools are part of the live heap.
  uint64_t items = r->lanes * r->set.workers * r->set.item_bytes;
  uint64_t rest = r->set.live_bytes - (items < r->set.live_bytes / 2 ? items : 0);
  ballast *live = ballast_create(rest);
  gap_run g = {.team = r->team,
               .cycles = live ? cycles_watch() : NULL,
               .lanes = r->lanes,
               .seed = r->set.seed,
               .progress = show_progress,
               .progress_arg = r};
  bool good = g.cycles != NULL;
  if (good) {
    tide_collect(); // so that the first goal knows the live heap
    pressure *p = pressure_start(rate * 1e6);
    g.pressure = p;
    good = p && measure_gaps(r, &g, rate);
    pressure_stop(p);
    r->unpaced += cycles_unpaced(g.cycles) - 1;
  }
  cycles_unwatch(g.cycles);
  ballast_free(live);
  return good;
}

// ---- The text form --------------------------------------------------------------------------

typedef struct extremes {
  double error;      // largest
  double period_low; // measured over expected
  double period_high;
  double gap_high; // T/G
  double rate_low; // as reached, over the one wanted
} extremes;

static extremes look_at(const table *rows) {
  extremes e = {.period_low = rows->row_count ? HUGE_VAL : 1, .period_high = 0, .rate_low = 1};
  for (size_t i = 0; i < rows->row_count; i++) {
    const cell *row = rows->cells + i * FIELDS;
    e.error = fmax(e.error, row[ERROR].real);
    e.period_low = fmin(e.period_low, row[PERIOD_RATIO].real);
    e.period_high = fmax(e.period_high, row[PERIOD_RATIO].real);
    e.rate_low = fmin(e.rate_low, row[RATE_MEASURED].real / row[RATE].real);
    e.gap_high = fmax(e.gap_high, row[GAP_OVER_PERIOD].real);
  }
  if (e.period_high == 0) e.period_high = 1;
  return e;
}

static void print_plot(FILE *file, const text_style *style, const run *r, double gap_high) {
  plot_point *points = calloc(r->rows.row_count, sizeof *points);
  char names[NUMBERS_MAX][32];
  const char *name_list[NUMBERS_MAX];
  size_t rates = 0;
  if (!points) return; // no memory for a picture: the table says it all
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    if (i == 0 || row[RATE].real != row[RATE - FIELDS].real) {
      snprintf(names[rates], sizeof names[0], "%g MB/s", row[RATE].real);
      name_list[rates] = names[rates];
      rates++;
    }
    points[i] = (plot_point){row[GAP_OVER_PERIOD].real, row[MEASURED].real, rates - 1};
  }
  plot_print(file, style,
             &(plot){.x_label = "T/G",
                     .y_label = "hit rate",
                     .x_highest = fmin(fmax(3, ceil(gap_high * 2) / 2), 6),
                     .line = predict,
                     .line_name = "predicted",
                     .points = points,
                     .point_count = r->rows.row_count,
                     .series_names = name_list,
                     .series_count = rates});
  free(points);
}

static void print_conclusion(FILE *file, const run *r, const extremes *e) {
  if (r->partial) {
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
    return;
  }
  if (r->unpaced)
    paragraph_print(file, "Not a clean run: %llu collections came from elsewhere.",
                    (unsigned long long)r->unpaced);
  if (e->rate_low < 0.97)
    paragraph_print(file,
                    "Not a clean run: the machine was so busy that the allocating thread only "
                    "reached %.0f~%% of its rate.",
                    e->rate_low * 100);
  size_t count = r->rows.row_count;
  const char *verdict = e->error > 0.05 ? "that is not the predicted line."
                        : count < 3     ? "as predicted."
                                        : "counted in collection periods, one line predicts the "
                                          "hit rate.";
  paragraph_print(file,
                  "%zu configuration%s, largest error %.3f: %s Periods were %.3f to %.3f of what "
                  "live heap, GC percent and rate say.",
                  count, count == 1 ? "" : "s", e->error, verdict, e->period_low, e->period_high);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const run *r = data;
  extremes e = look_at(&r->rows);
  paragraph_print(
      file,
      "period: %s engine, %d processors, GC percent %d, %s live, %llu workers, items of "
      "%s, seed %llu",
      r->set.common.engine, r->procs, r->gc_percent, size_text(r->set.live_bytes),
      (unsigned long long)r->set.workers, size_text(r->set.item_bytes),
      (unsigned long long)r->set.seed);
  fputc('\n', file);
  table_print(file, style, &r->rows);
  fputc('\n', file);
  paragraph_print(
      file,
      "T: the gap between two uses of a pool. G: from one collection's start to "
      "the next; exp.: growth allowed / rate; ratio: G / exp. predicted: 1~-~clip(T/G~-~1,~0,~1).");
  if (r->rows.row_count) {
    fputc('\n', file);
    print_plot(file, style, r, e.gap_high);
  }
  fputc('\n', file);
  paragraph_print(file, "%s", phases_text);
  fputc('\n', file);
  print_conclusion(file, r, &e);
}

// ---------------------------------------------------------------------------------------------

static void summarize(run *r) {
  extremes e = look_at(&r->rows);
  cell row[SUMMARY_FIELDS] = {
      [SUMMARY_EXPERIMENT].text = "period",
      [SUMMARY].flag = true,
      [SUMMARY_CONFIGS].count = (int64_t)r->rows.row_count,
      [SUMMARY_ERROR].real = e.error,
      [SUMMARY_PERIOD].real = fmax(fabs(e.period_low - 1), fabs(e.period_high - 1)),
      [SUMMARY_UNPACED].count = (int64_t)r->unpaced,
      [SUMMARY_SEED].count = (int64_t)r->set.seed,
      [SUMMARY_PARTIAL].flag = r->partial,
      [SUMMARY_PHASES].text = phases_text,
  };
  table_add(&r->summary, row);
}

static int run_experiment(run *r) {
  r->team = burst_create((unsigned)r->set.workers, r->set.item_bytes);
  if (!r->team) return STATUS_FAILED;
  bool good = true;
  sleep_exactly();
  progress_start("period");
  for (size_t i = 0; i < r->set.rates.count; i++) r->total_ns += planned_ns(r, r->set.rates.at[i]);
  for (size_t i = 0; good && !r->partial && i < r->set.rates.count; i++) {
    good = measure_rate(r, r->set.rates.at[i]);
    r->done_ns += planned_ns(r, r->set.rates.at[i]);
  }
  progress_end();
  burst_destroy(r->team);
  if (!good) return STATUS_FAILED;
  summarize(r);
  report rep = {.experiment = "period",
                .rows = &r->rows,
                .summary = &r->summary,
                .text = print_text,
                .data = r};
  if (!report_write(&rep, &r->set.common)) return STATUS_FAILED;
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

// What the options in force make of a period. Returns false, with a complaint, where the heap's
// growth starts no collections.
static bool read_pace(run *r) {
  tide_options in_force;
  tide_options_read(&in_force);
  r->procs = tide_procs();
  r->gc_percent = (int)in_force.gc_percent;
  if (r->gc_percent <= 0) {
    complain(
        "TIDE_GCPERCENT: %s; accepted here: a percent above 0, since this experiment lives by the "
        "heap's growth",
        r->gc_percent < 0 ? "collections are off" : "0 collects all the time");
    return false;
  }
  double live = (double)r->set.live_bytes;
  double floor_bytes = in_force.min_heap_bytes > 0 ? (double)in_force.min_heap_bytes
                                                   : 4 * 0x1p20 * r->gc_percent / 100;
  r->growth_bytes = fmax(live * (1 + r->gc_percent / 100.0), floor_bytes) - live;
  return true;
}

int period_run(int argc, char **argv) {
  run r = {.rows = {.columns = columns, .column_count = FIELDS},
           .summary = {.columns = summary_columns, .column_count = SUMMARY_FIELDS}};
  options_parse(&spec, &r.set, argc, argv);
  if (r.set.quick && r.set.full) {
    complain("--quick and --full exclude each other");
    return STATUS_USAGE;
  }
  if (r.set.ratios.count == 0) r.set.ratios = numbers_of(mode_of(&r.set)->ratios);
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!read_pace(&r)) return STATUS_USAGE;
  if (!out_prepare(r.set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  status = run_experiment(&r);
  table_free(&r.rows);
  table_free(&r.summary);
  return status;
}
