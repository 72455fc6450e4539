// SPDX-License-Identifier: MIT
// The result of `tidepool bench`: a row for each configuration and peer, and a summary.
//
// Which columns there are depends on the workload. They are described once and filled row by row by
// the same function, so that a cell cannot come under another's name.
#include "bench.h"
#include "command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Numbers --------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

spread bench_spread(const bench_samples *samples, int peer, int metric) {
  double sorted[BENCH_RUNS_MAX];
  size_t count = 0;
  for (size_t i = 0; i < samples->runs[peer]; i++)
    if (!isnan(samples->values[peer][metric][i]))
      sorted[count++] = samples->values[peer][metric][i];
  if (count == 0) return (spread){NAN, NAN, NAN};
  qsort(sorted, count, sizeof sorted[0], compare);
  double median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  return (spread){median, sorted[0], sorted[count - 1]};
}

// The metric that is compared with the peer.
static int compared(const bench_workload *w, const bench_samples *samples, int peer) {
  return isnan(bench_spread(samples, peer, 0).median) ? w->otherwise : 0;
}

// tidepool's median over the peer's. Not known for tidepool itself.
static double ratio_of(const bench_samples *samples, int peer, int metric) {
  if (peer == TIDEPOOL) return NAN;
  double other = bench_spread(samples, peer, metric).median;
  return other > 0 ? bench_spread(samples, TIDEPOOL, metric).median / other : NAN;
}

// Between the runs of a peer, in percent of the median; one run has none.
static double width_of(const bench_workload *w, const bench_samples *samples, int peer) {
  spread s = bench_spread(samples, peer, compared(w, samples, peer));
  if (samples->runs[peer] < 2 || !(s.median > 0)) return NAN;
  return (s.most - s.least) / s.median * 100;
}

// Cells point to texts until the report is written; there are not more different ones than fit.
static const char *value_text(const bench_parameter *parameter, double value) {
  static char texts[BENCH_WORDS_MAX][24];
  char text[sizeof texts[0]];
  const char *word = parameter->words;
  for (double i = 0; word && i < value; i++)
    word = strchr(word, ',') ? strchr(word, ',') + 1 : NULL;
  if (word)
    snprintf(text, sizeof text, "%.*s", (int)(strchrnul(word, ',') - word), word);
  else
    snprintf(text, sizeof text, "%.0f", value);
  int place = 0;
  while (place < BENCH_WORDS_MAX - 1 && texts[place][0] && strcmp(texts[place], text) != 0) place++;
  return strcpy(texts[place], text);
}

// ---- Rows -----------------------------------------------------------------------------------

// A row that is being made; with no samples, only the columns are.
typedef struct row_maker {
  bench_report *report;
  const bench_samples *samples;
  int peer;
  size_t used;
  cell cells[BENCH_COLUMNS_MAX];
} row_maker;

// field with its ending; NULL: in tables only.
static void add(row_maker *m, const char *field, const char *ending, const char *heading,
                column_type type, int digits, cell value) {
  bench_report *r = m->report;
  if (m->used == BENCH_COLUMNS_MAX) {
    complain("the result has too many columns");
    exit(STATUS_FAILED);
  }
  if (field) snprintf(r->names[m->used], sizeof r->names[0], "%s%s", field, ending);
  const char *name = field ? r->names[m->used] : NULL;
  r->columns[m->used] = (column){name, heading, type, digits};
  m->cells[m->used++] = value;
}

static void add_real(row_maker *m, const char *field, const char *ending, double value) {
  add(m, field, ending, NULL, COLUMN_REAL, -1, (cell){.real = value});
}

static void add_shown(row_maker *m, const char *heading, int digits, double value) {
  add(m, NULL, NULL, heading, COLUMN_REAL, digits, (cell){.real = value});
}

static void add_text(row_maker *m, const char *field, const char *heading, const char *text) {
  add(m, field, "", heading, COLUMN_TEXT, 0, (cell){.text = text});
}

static spread spread_in(const row_maker *m, int metric) {
  if (!m->samples) return (spread){NAN, NAN, NAN};
  return bench_spread(m->samples, m->peer, metric);
}

static double ratio_in(const row_maker *m, int metric) {
  return m->samples ? ratio_of(m->samples, m->peer, metric) : NAN;
}

static double compared_ratio(const row_maker *m) {
  return m->samples ? ratio_in(m, compared(m->report->workload, m->samples, m->peer)) : NAN;
}

// What the table shows: the metrics' medians, the first with its spread and its ratio.
static void add_shown_metrics(row_maker *m) {
  const bench_metric *metrics = m->report->workload->metrics;
  add_shown(m, metrics[0].heading, metrics[0].digits, spread_in(m, 0).median);
  add_shown(m, "spread %", 1,
            m->samples ? width_of(m->report->workload, m->samples, m->peer) : NAN);
  add_shown(m, "ratio", 2, compared_ratio(m));
  for (int i = 1; metrics[i].field; i++)
    add_shown(m, metrics[i].heading, metrics[i].digits, spread_in(m, i).median);
}

static void add_metrics(row_maker *m) {
  const bench_metric *metrics = m->report->workload->metrics;
  for (int i = 0; metrics[i].field; i++) {
    spread s = spread_in(m, i);
    add_real(m, metrics[i].field, "", s.median);
    add_real(m, metrics[i].field, "_min", s.least);
    add_real(m, metrics[i].field, "_max", s.most);
    if (i > 0) add_real(m, metrics[i].field, "_ratio", ratio_in(m, i));
  }
}

static void add_parameter(row_maker *m, const bench_parameter *p, double value) {
  const char *heading = p->list || p->set ? p->heading : NULL;
  if (p->words)
    add_text(m, p->key, heading, value_text(p, value));
  else
    add(m, p->key, "", heading, COLUMN_COUNT, 0, (cell){.count = (int64_t)value});
}

static void make_row(row_maker *m) {
  const bench_workload *w = m->report->workload;
  size_t runs = m->samples ? m->samples->runs[m->peer] : 0;
  add_text(m, "experiment", NULL, "bench");
  add_text(m, "workload", NULL, w->name);
  add_text(m, "engine", NULL, m->report->set->common.engine);
  for (int i = 0; w->parameters[i].key; i++)
    add_parameter(m, &w->parameters[i], m->samples ? m->samples->parameters[i] : 0);
  add_text(m, "peer", "peer", bench_peers[m->peer].name);
  add_shown_metrics(m);
  add_metrics(m);
  add(m, "runs", "", NULL, COLUMN_COUNT, 0, (cell){.count = (int64_t)runs});
  add_real(m, "ratio", "", compared_ratio(m));
  bool partial = runs < m->report->set->runs && bench_able(w, m->peer);
  add(m, "partial", "", NULL, COLUMN_FLAG, 0, (cell){.flag = partial});
}

void bench_report_start(bench_report *r) {
  row_maker m = {.report = r};
  make_row(&m);
  r->column_count = m.used;
  r->rows = (table){.columns = r->columns, .column_count = r->column_count};
}

static void note_ratio(bench_report *r, int peer, double ratio) {
  if (!(ratio > 0)) return;
  r->ratios[peer].least = r->ratios[peer].count ? fmin(r->ratios[peer].least, ratio) : ratio;
  r->ratios[peer].most = fmax(r->ratios[peer].most, ratio);
  r->ratios[peer].logs += log(ratio);
  r->ratios[peer].count++;
}

void bench_report_add(bench_report *r, const bench_samples *samples) {
  for (int peer = 0; peer < BENCH_PEERS; peer++) {
    if (!r->peers[peer]) continue;
    if (bench_able(r->workload, peer) && samples->runs[peer] == 0)
      continue; // interrupted before its first
    row_maker m = {.report = r, .samples = samples, .peer = peer};
    make_row(&m);
    table_add(&r->rows, m.cells);
    note_ratio(r, peer, compared_ratio(&m));
    r->worst_spread = fmax(r->worst_spread, width_of(r->workload, samples, peer));
  }
  r->configurations++;
}

// ---- The summary ----------------------------------------------------------------------------

static double mean_ratio(const bench_report *r, int peer) {
  return r->ratios[peer].count ? exp(r->ratios[peer].logs / (double)r->ratios[peer].count) : NAN;
}

enum {
  EXPERIMENT,
  SUMMARY,
  WORKLOAD,
  CONFIGS,
  RUNS,
  RATIO_FIRST,
  MAX_SPREAD = RATIO_FIRST + BENCH_PEERS - 1, // tidepool has no ratio
  PARTIAL,
  FIELDS
};

static const column summary_columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [WORKLOAD] = {"workload", NULL, COLUMN_TEXT, 0},
    [CONFIGS] = {"configs", NULL, COLUMN_COUNT, 0},
    [RUNS] = {"runs", NULL, COLUMN_COUNT, 0},
    [RATIO_FIRST + BDW - 1] = {"ratio_bdw", NULL, COLUMN_REAL, 4},
    [RATIO_FIRST + MALLOC - 1] = {"ratio_malloc", NULL, COLUMN_REAL, 4},
    [RATIO_FIRST + MIMALLOC - 1] = {"ratio_mimalloc", NULL, COLUMN_REAL, 4},
    [RATIO_FIRST + GO - 1] = {"ratio_go", NULL, COLUMN_REAL, 4},
    [MAX_SPREAD] = {"max_spread_percent", NULL, COLUMN_REAL, 1},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

static void summarize(bench_report *r) {
  cell row[FIELDS] = {
      [EXPERIMENT].text = "bench",          [SUMMARY].flag = true,
      [WORKLOAD].text = r->workload->name,  [CONFIGS].count = (int64_t)r->configurations,
      [RUNS].count = (int64_t)r->set->runs, [MAX_SPREAD].real = r->worst_spread,
      [PARTIAL].flag = r->partial,
  };
  for (int peer = 1; peer < BENCH_PEERS; peer++)
    row[RATIO_FIRST + peer - 1].real = mean_ratio(r, peer);
  r->summary = (table){.columns = summary_columns, .column_count = FIELDS};
  table_add(&r->summary, row);
}

// ---- The text form --------------------------------------------------------------------------

static void print_title(FILE *file, const bench_report *r) {
  char text[256];
  int used =
      snprintf(text, sizeof text, "bench %s: %llu run%s of each peer, by turns; medians",
               r->workload->name, (unsigned long long)r->set->runs, r->set->runs == 1 ? "" : "s");
  for (const bench_parameter *p = r->workload->parameters; p->key; p++) {
    if (p->list || p->set || used >= (int)sizeof text) continue;
    uint64_t value = *(const uint64_t *)((const char *)r->set + p->offset);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)value);
    used += snprintf(text + used, sizeof text - (size_t)used, "; %s~%s", p->heading,
                     p->bytes ? size_text(value) : number);
  }
  paragraph_print(file, "%s", text);
}

static void print_ratios(FILE *file, const bench_report *r) {
  for (int peer = 1; peer < BENCH_PEERS; peer++) {
    size_t count = r->ratios[peer].count;
    if (count == 1)
      paragraph_print(file, "tidepool / %s: %.2f", bench_peers[peer].name, mean_ratio(r, peer));
    else if (count > 1)
      paragraph_print(file,
                      "tidepool / %s: %.2f (geometric mean of %zu configurations, %.2f to %.2f)",
                      bench_peers[peer].name, mean_ratio(r, peer), count, r->ratios[peer].least,
                      r->ratios[peer].most);
  }
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const bench_report *r = data;
  bool compared = false;
  for (int peer = 1; peer < BENCH_PEERS; peer++) compared |= r->ratios[peer].count > 0;
  print_title(file, r);
  fputc('\n', file);
  table_print(file, style, &r->rows);
  fputc('\n', file);
  paragraph_print(file, "%s", r->workload->note);
  if (r->set->runs > 1)
    paragraph_print(file, "spread: of the runs, (largest~-~smallest)~/~median.");
  if (compared)
    paragraph_print(file, "ratio: tidepool's median over the peer's; 0.50 is half of its %s.\n",
                    r->workload->noun);
  print_ratios(file, r);
  if (r->worst_spread > 20)
    paragraph_print(file,
                    "Not a quiet machine: runs of the same differ by up to %.0f~%%; take more "
                    "--runs.",
                    r->worst_spread);
  if (r->partial)
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
}

bool bench_report_write(bench_report *r) {
  // Results of several workloads may go into one directory.
  char name[32];
  snprintf(name, sizeof name, "bench-%s", r->workload->name);
  summarize(r);
  report rep = {
      .experiment = name, .rows = &r->rows, .summary = &r->summary, .text = print_text, .data = r};
  return report_write(&rep, &r->set->common);
}

void bench_report_free(bench_report *r) {
  table_free(&r->rows);
  table_free(&r->summary);
}
