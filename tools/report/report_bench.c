// SPDX-License-Identifier: MIT
// The section on the benchmarks: time against each peer, pauses, and the table of each workload.
//
// Bars show the peer's time over Tidepool's on a logarithmic axis, so that twice and half are
// equally far from equal. Which configurations are drawn is in one table; all of them are in the
// tables below the pictures, whose columns come from the workloads' own descriptions.
#include "bench.h"
#include "report.h"
#include "report_marks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const json_t *rows_of(const page *p, const char *workload) {
  char name[64];
  snprintf(name, sizeof name, "bench-%s", workload);
  return results_rows(p->results, name);
}

static int peer_of(const json_t *row) {
  int peer = BENCH_PEERS - 1;
  while (peer >= 0 && strcmp(bench_peers[peer].name, text_in(row, "peer")) != 0) peer--;
  return peer; // -1: none that this version knows
}

static const char *const peer_titles[BENCH_PEERS] = {"Tidepool", "libgc", "malloc + free",
                                                     "mimalloc", "Go"};
// The same colour for a peer in every figure.
static const int peer_colours[BENCH_PEERS] = {0, 1, 5, 3, 2};

// ---- Time against peers ---------------------------------------------------------------------

// A configuration that is drawn. Parameters that are NULL may be anything.
typedef struct shown {
  const char *workload, *label;
  const char *first, *first_value, *second, *second_value;
} shown;

static const shown bars[] = {
    {"trees", "binary trees", NULL, NULL, NULL, NULL},
    {"gcbench", "GCBench", NULL, NULL, NULL, NULL},
    {"bigheap", "a full collection", "markers", "1", NULL, NULL},
    {"alloc", "allocate 32 B", "size", "32", NULL, NULL},
    {"alloc", "allocate 256 B", "size", "256", NULL, NULL},
    {"alloc", "allocate 4 KiB", "size", "4096", NULL, NULL},
    {"alloc", "allocate 64 KiB", "size", "65536", NULL, NULL},
    {"scale", "256 B by 2 threads", "size", "256", "threads", "2"},
    {"pool", "pool by 1 thread", "size", "4096", "threads", "1"},
    {"pool", "pool by 2 threads", "size", "4096", "threads", "2"},
};
enum { BARS = sizeof bars / sizeof bars[0] };

static bool has_value(const json_t *row, const char *field, const char *value) {
  if (!field) return true;
  const json_t *found = json_object_get(row, field);
  if (json_is_string(found)) return strcmp(json_string_value(found), value) == 0;
  char text[32];
  snprintf(text, sizeof text, "%.0f", number_in_row(row, field));
  return strcmp(text, value) == 0;
}

// The ratio compares what the peer is compared by; of pools only with others that have pools.
static bool is_shown(const shown *s, const json_t *row) {
  double ratio = number_in_row(row, "ratio");
  if (!(ratio > 0) || peer_of(row) < 1) return false;
  if (strcmp(s->workload, "pool") == 0 &&
      (!isfinite(number_in_row(row, "ns_pool")) || !has_value(row, "pattern", "pair")))
    return false;
  return has_value(row, s->first, s->first_value) && has_value(row, s->second, s->second_value);
}

typedef struct bar_chart {
  figure f;
  double line, least, most; // of the bars
  bool peers[BENCH_PEERS];
  char *tics;
  size_t tics_bytes;
  FILE *tics_file;
} bar_chart;

static void add_bars(bar_chart *b, const shown *s, const json_t *rows) {
  double first = b->line;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) {
    if (!is_shown(s, row)) continue;
    int peer = peer_of(row);
    double times = 1 / number_in_row(row, "ratio");
    fprintf(b->f.csv, "%d,%s,%s,%g,%.6g,%.*f×\n", peer, s->label, bench_peers[peer].name, b->line,
            times, times < 9.95 ? 1 : 0, times);
    b->peers[peer] = true;
    b->least = fmin(b->least, times);
    b->most = fmax(b->most, times);
    b->line++;
  }
  if (b->line == first) return;
  fprintf(b->tics_file, "%s'%s' %g", first > 0 ? ", " : "", s->label, (first + b->line - 1) / 2);
  b->line += 0.9;
}

static void script_bars(bar_chart *b) {
  size_t peers = 0;
  fclose(b->tics_file);
  for (int peer = 1; peer < BENCH_PEERS; peer++) peers += b->peers[peer];
  figure_place_key(&b->f, &(figure_key){peers, 2, 2, NULL});
  fprintf(b->f.script,
          "set logscale x 2\nset xrange [%g:%g]\nset yrange [%g:-1]\nset xtics format '%%g×'\n"
          "set ytics (%s) scale 0\nunset grid\nset grid xtics linetype 1 linecolor "
          "rgb grid linewidth 0.8\nif (narrow) { set xtics 4 }\n"
          "set style fill solid 1 noborder\n"
          "set xlabel narrow ? 'time, Tidepool at 1×' : 'time of the peer, with Tidepool at 1×'\n"
          "set arrow 1 from 1, graph 0 to 1, graph 1 nohead linewidth 1.5 linecolor rgb ink front\n"
          "plot ",
          fmin(b->least / 1.7, 0.7), b->most * 2.2, b->line - 0.2, b->tics);
  const char *separator = "";
  for (int peer = 1; peer < BENCH_PEERS; peer++) {
    if (!b->peers[peer]) continue;
    fprintf(b->f.script,
            "%sdata using (column('series') == %d ? 1 : NaN):'line':(column('times') < 1 ? "
            "column('times') : 1):(column('times') < 1 ? 1 : column('times')):(column('line') - "
            "0.4):(column('line') + 0.4) with boxxyerror linecolor rgb series%d title '%s'",
            separator, peer, peer_colours[peer], peer_titles[peer]);
    separator = ", \\\n  ";
  }
  fputs(", \\\n  data using (column('times') < 1 ? 1 : column('times')):'line':'label' with labels "
        "left offset char 0.5, 0 textcolor rgb ink font ',11' title ''",
        b->f.script);
}

static bool draw_bars(page *p) {
  bar_chart b = {.f = {.name = "throughput",
                       .title = "Time that peers take for the same work, against Tidepool",
                       .description =
                           "Bars to the right: the peer takes longer than Tidepool. Bars "
                           "to the left: it is faster."},
                 .least = 1,
                 .most = 1};
  figure_start(&b.f);
  b.tics_file = open_memstream(&b.tics, &b.tics_bytes);
  fputs("series,work,peer,line,times,label\n", b.f.csv);
  for (int i = 0; i < BARS && b.tics_file; i++)
    add_bars(&b, &bars[i], rows_of(p, bars[i].workload));
  if (!b.tics_file || b.line == 0) {
    if (b.tics_file) fclose(b.tics_file);
    figure_drop(&b.f);
    free(b.tics);
    return true;
  }
  b.f.height = 110 + 19 * b.line;
  b.f.narrow_height = 140 + 19 * b.line;
  script_bars(&b);
  free(b.tics);
  return figure_end(p, &b.f,
                    "How long each peer takes for the same work, with Tidepool at 1×; the axis is "
                    "logarithmic. Right of the line the peer is slower, left of it faster. malloc "
                    "and mimalloc free by hand what the others find by collecting.");
}

// ---- Pauses ---------------------------------------------------------------------------------

static const char *time_text(double us) {
  static char texts[4][32];
  static unsigned next;
  char *text = texts[next++ % 4];
  if (us >= 1e6)
    snprintf(text, sizeof texts[0], "%.3g s", us * 1e-6);
  else if (us >= 1e3)
    snprintf(text, sizeof texts[0], "%.3g ms", us * 1e-3);
  else
    snprintf(text, sizeof texts[0], "%.3g µs", us);
  return text;
}

static bool draw_pauses(page *p, const json_t *rows) {
  double least = least_in(rows, "pause_us"), most = most_in(rows, "pause_max_us"), line = 0;
  if (!(least > 0)) return true;
  figure f = {.name = "pauses",
              .title = "Pauses of collectors",
              .description =
                  "For each collector a bar to the median pause, with marks for the 99th "
                  "percentile and the longest, on a logarithmic axis."};
  size_t index;
  json_t *row;
  figure_start(&f);
  fputs("series,peer,line,median_us,p99_us,max_us,label\n", f.csv);
  fputs("set ytics scale 0 (", f.script);
  json_array_foreach(rows, index, row) {
    int peer = peer_of(row);
    double median = number_in_row(row, "pause_us"), ratio = number_in_row(row, "ratio");
    if (peer < 0 || !(median > 0)) continue;
    fprintf(f.script, "%s'%s' %g", line ? ", " : "", peer_titles[peer], line);
    fprintf(f.csv, "%d,%s,%g,", peer, bench_peers[peer].name, line);
    figure_number(&f, median, ',');
    figure_number(&f, number_in_row(row, "pause_p99_us"), ',');
    figure_number(&f, number_in_row(row, "pause_max_us"), ',');
    fprintf(f.csv, "%s", time_text(median));
    if (ratio > 0) fprintf(f.csv, " (%.2g×)", 1 / ratio);
    fputc('\n', f.csv);
    line++;
  }
  f.height = 140 + 46 * line;
  f.narrow_height = 160 + 46 * line;
  fputs(")\n", f.script);
  figure_place_key(&f, &(figure_key){3, 2, 2, NULL});
  fprintf(
      f.script,
      "set logscale x\nset xrange [%g:%g]\nset yrange [%g:-0.6]\nunset grid\n"
      "set grid xtics linetype 1 linecolor rgb grid linewidth 0.8\n"
      "set style fill solid 1 noborder\n"
      "set xtics ('100 ns' 1e-7, '1 µs' 1e-6, '10 µs' 1e-5, '100 µs' 1e-4, '1 ms' 1e-3, '10 ms' "
      "1e-2, '100 ms' 0.1, '1 s' 1, '10 s' 10)\n"
      "set xlabel 'pause, all threads stopped'\n"
      "plot data using (%g):'line':(%g):(column('median_us') * 1e-6):(column('line') - 0.22):"
      "(column('line') + 0.22) with boxxyerror linecolor rgb series0 title 'median', \\\n"
      "  data using (column('p99_us') * 1e-6):'line' with points pointtype 13 pointsize 1 "
      "linecolor rgb series1 title '99th percentile', \\\n"
      "  data using (column('max_us') * 1e-6):'line' with points pointtype 2 pointsize 1 "
      "linewidth 2 linecolor rgb ink title 'longest', \\\n"
      "  data using (%g):(column('line') - 0.38):'label' with labels left offset char 0.6, 0 "
      "textcolor rgb ink title ''",
      least * 1e-6 / 5, most * 1e-6 * 3, line - 0.4, least * 1e-6 / 5, least * 1e-6 / 5,
      least * 1e-6 / 5);
  return figure_end(
      p, &f,
      "How long a collection keeps all threads from running, on a logarithmic axis; "
      "in brackets the median pause of the peer with Tidepool's at 1×. Go marks while "
      "the program runs, the others stop it for that.");
}

static void find_pauses(page *p, const json_t *rows) {
  double own = NAN, other[BENCH_PEERS];
  size_t index;
  json_t *row;
  for (int i = 0; i < BENCH_PEERS; i++) other[i] = NAN;
  json_array_foreach(rows, index, row) {
    int peer = peer_of(row);
    if (peer == TIDEPOOL) own = number_in_row(row, "pause_us");
    if (peer > TIDEPOOL) other[peer] = number_in_row(row, "pause_us");
  }
  if (!(own > 0)) return;
  if (other[BDW] > 0)
    page_finding(p, own < other[BDW] ? VERDICT_GOOD : VERDICT_SHORT,
                 "The median pause is %s, %.2f of libgc's (%s); it was expected to be shorter.",
                 time_text(own), own / other[BDW], time_text(other[BDW]));
  if (other[GO] > 0)
    page_say(p,
             "Go's median pause is %s: it marks while the program runs, and a pause does not "
             "grow with the live heap. Tidepool's does.",
             time_text(other[GO]));
}

// ---- Findings -------------------------------------------------------------------------------

// Against the peers that collect; those that free by hand are for orientation.
static void find_ratios(page *p) {
  size_t count = 0, less = 0;
  double worst = 0, logs = 0;
  char where[160] = "";
  for (int i = 0; i < BARS; i++) {
    const json_t *rows = rows_of(p, bars[i].workload);
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row) {
      int peer = peer_of(row);
      if (!is_shown(&bars[i], row) || (peer != BDW && peer != GO)) continue;
      double ratio = number_in_row(row, "ratio");
      count++;
      less += ratio < 1;
      logs += log(ratio);
      if (ratio <= worst) continue;
      worst = ratio;
      snprintf(where, sizeof where, "%s against %s", bars[i].label, peer_titles[peer]);
    }
  }
  if (count == 0) return;
  page_finding(p, less == count ? VERDICT_GOOD : VERDICT_SHORT,
               "Tidepool takes less time than libgc and Go in %zu of %s, on the geometric mean "
               "%.2f of theirs. The largest ratio is %.2f (%s).",
               less, counted(count, "comparison"), exp(logs / (double)count), worst, where);
}

// ---- Tables ---------------------------------------------------------------------------------

static void write_table(page *p, const bench_workload *w, const json_t *rows) {
  page_column columns[BENCH_PARAMETERS_MAX + BENCH_METRICS_MAX + 3];
  size_t count = 0;
  for (const bench_parameter *q = w->parameters; q->key; q++)
    if (q->list || q->set)
      columns[count++] = (page_column){q->key, q->heading, LOOK_NUMBER, 0, NULL};
  columns[count++] = (page_column){"peer", "peer", LOOK_TEXT, 0, NULL};
  for (int i = 0; w->metrics[i].field; i++) {
    columns[count++] = (page_column){w->metrics[i].field, w->metrics[i].heading, LOOK_NUMBER,
                                     w->metrics[i].digits, NULL};
    if (i == 0) columns[count++] = (page_column){"ratio", "ratio", LOOK_NUMBER, 2, NULL};
  }
  char caption[160];
  snprintf(caption, sizeof caption, "%s: %s", w->name, w->summary);
  page_table(p, caption, columns, count, rows);
}

bool report_bench(page *p) {
  page_say(p, "The same work done by Tidepool and by other allocators and collectors, each in a "
              "process of its own, by turns; medians of the runs. Expected: less time than the "
              "other collectors, libgc (Boehm, Demers, Weiser) and Go, and shorter pauses than "
              "libgc.");
  find_ratios(p);
  bool good = draw_bars(p);
  const json_t *pauses = rows_of(p, "pause");
  if (json_array_size(pauses)) {
    page_heading(p, "Pauses");
    find_pauses(p, pauses);
    good = draw_pauses(p, pauses) && good;
  }
  page_heading(p, "All numbers");
  page_say(p, "The ratio is Tidepool's median over the peer's: 0.50 is half of its time.");
  for (const bench_workload *w = bench_workloads; w->name; w++)
    write_table(p, w, rows_of(p, w->name));
  return good;
}
