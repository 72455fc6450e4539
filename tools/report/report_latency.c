// SPDX-License-Identifier: MIT
// Sections on what a service notices: the tooth in its latency when a pool has been emptied, and
// what it costs to make everything anew.
#include "command.h"
#include "report.h"
#include "report_marks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double allocs_allowed = 0.01;

// ---- The cases ------------------------------------------------------------------------------

// The cures are those that `tidepool sawtooth` counts as such.
static const struct {
  const char *name, *title;
  bool cure;
} cases[] = {
    {"steady", "pool, no gaps", false},      {"below", "pool, short gaps", false},
    {"beyond", "pool, long gaps", false},    {"freelist", "free list", true},
    {"owned", "owned by each worker", true}, {"survive", "pool, survive", true},
    {"min_idle", "pool, min_idle_ns", true}, {"percent", "pool, GC percent", true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static bool is_case(const json_t *row, const char *name, const char *engine) {
  return strcmp(text_in(row, "case"), name) == 0 && strcmp(text_in(row, "engine"), engine) == 0;
}

static const json_t *row_of(const json_t *rows, const char *name, const char *engine) {
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) if (is_case(row, name, engine)) return row;
  return NULL;
}

static bool is_cure(const json_t *row) {
  for (int i = 0; i < CASES; i++)
    if (strcmp(cases[i].name, text_in(row, "case")) == 0) return cases[i].cure;
  return false;
}

// ---- Latency over time ----------------------------------------------------------------------

enum { PANELS = 3, BIN_MS = 5 };

typedef struct panel {
  const json_t *row;
  const char *title;
} panel;

// A use within the period, one beyond it, and the first cure that there is.
static size_t choose_panels(const json_t *rows, const char *engine, panel *panels) {
  size_t count = 0;
  bool cure = false;
  for (int i = 1; i < CASES && count < PANELS; i++) {
    const json_t *row = row_of(rows, cases[i].name, engine);
    if (!row || (cases[i].cure && cure)) continue;
    cure = cure || cases[i].cure;
    panels[count++] = (panel){row, cases[i].title};
  }
  return count;
}

// Three waves of the longest gap, and no more than a few seconds.
static double end_of(const page *p, const panel *panels, size_t count) {
  double gap_ms = 0, start_ms = 0, wave_ms = 0;
  const json_t *bins = results_series(p->results, "sawtooth");
  for (size_t i = 0; i < count; i++) gap_ms = fmax(gap_ms, number_in_row(panels[i].row, "gap_ms"));
  size_t index;
  json_t *bin;
  json_array_foreach(bins, index, bin) { // the first wave is up to the first hole
    double at_ms = number_in_row(bin, "t_ms");
    if (strcmp(text_in(bin, "case"), text_in(panels[0].row, "case")) != 0) continue;
    if (at_ms > start_ms + 2 * BIN_MS) break;
    start_ms = at_ms;
    wave_ms = at_ms + BIN_MS;
  }
  return fmin(3 * (wave_ms + gap_ms), 4000);
}

// One file has both: where the requests fared worst, and the collections.
static void add_points(figure *f, size_t number, const json_t *points, const panel *of,
                       bool collections, double end_ms) {
  size_t index;
  json_t *point;
  json_array_foreach(points, index, point) {
    double at_ms = number_in_row(point, "t_ms");
    if (!is_case(point, text_in(of->row, "case"), text_in(of->row, "engine")) || !(at_ms <= end_ms))
      continue;
    fprintf(f->csv, "%zu,%d,", number, collections);
    figure_text(f->csv, text_in(of->row, "case"));
    fputc(',', f->csv);
    figure_number(f, at_ms, ',');
    figure_number(f, number_in_row(point, "p50_us"), ',');
    figure_number(f, number_in_row(point, "max_us"), ',');
    figure_number(f, number_in_row(point, "misses"), ',');
    figure_number(f, number_in_row(point, "pause_us"), '\n');
  }
}

// A column of pictures, all to one scale. A tooth reaches two thirds of the height.
static void script_panels(figure *f, const panel *panels, size_t count, double end_ms,
                          double top_ms) {
  fprintf(f->script,
          "set xrange [0:%g]\nset yrange [0:%.3g]\nset style fill solid 1 noborder\n"
          "set lmargin narrow ? 7 : 8\nset rmargin 2\nunset key\n"
          "set ylabel narrow ? 'ms' : 'latency, ms'\nset ytics %g\n"
          "if (narrow) { set xtics 500 }\nset format x ''\nset multiplot\n",
          end_ms, top_ms,
          top_ms > 4     ? floor(top_ms / 3)
          : top_ms > 1.6 ? 1.0
          : top_ms > 0.8 ? 0.5
          : top_ms > 0.3 ? 0.2
                         : 0.05);
  double below = 70 / f->height, height = (1 - below) / (double)count; // of the picture
  for (size_t i = 0; i < count; i++) {
    double top = 1 - height * (double)i, bottom = top - height;
    if (i == 0)
      fprintf(f->script,
              "set label 2 'collections' at graph 1, screen %.4f right textcolor rgb series1\n",
              top - 14 / f->height);
    else
      fputs("unset label 2\n", f->script);
    if (i + 1 == count) fputs("set format x '%g'\nset xlabel 'time, ms'\n", f->script);
    fprintf(f->script,
            "set label 1 '%s, T/G %.2f' at graph 0, screen %.4f textcolor rgb ink\n"
            "set tmargin at screen %.4f\nset bmargin at screen %.4f\n"
            "plot data using (column('panel') == %zu && column('collection') == 1 ? "
            "column('t_ms') : NaN):(0):(0):(%.3g) with vectors nohead linewidth 1 linecolor rgb "
            "series1 title 'a collection', \\\n"
            "  data using (column('panel') == %zu && column('collection') == 0 ? column('t_ms') + "
            "%g : NaN):(column('max_us') * 1e-3):(%d) with boxes linecolor rgb series0 title "
            "'worst latency in %d ms'\n",
            panels[i].title, number_in_row(panels[i].row, "gap_over_period"), top - 14 / f->height,
            top - 30 / f->height, bottom + 4 / f->height, i, top_ms, i, BIN_MS / 2.0, BIN_MS,
            BIN_MS);
  }
  fputs("unset multiplot\n", f->script);
}

static bool draw_tooth(page *p, const json_t *rows, const char *engine) {
  panel panels[PANELS];
  size_t count = choose_panels(rows, engine, panels);
  const json_t *bins = results_series(p->results, "sawtooth");
  if (count == 0 || json_array_size(bins) == 0) return true;
  double end_ms = end_of(p, panels, count), first_us = 0;
  figure f = {.name = "tooth",
              .title = "Latency over time, with the collections",
              .description = "One below the other: a pool that is used within its period, one that "
                             "is used less often, and a cure. Only the second has a tooth at the "
                             "beginning of each wave of requests.",
              .height = 150 * (double)count + 70,
              .narrow_height = 150 * (double)count + 70};
  figure_start(&f);
  fputs("panel,collection,case,t_ms,p50_us,max_us,misses,pause_us\n", f.csv);
  for (size_t i = 0; i < count; i++) {
    first_us = fmax(first_us, number_in_row(panels[i].row, "first_us"));
    add_points(&f, i, bins, &panels[i], false, end_ms);
    add_points(&f, i, results_collections(p->results, "sawtooth"), &panels[i], true, end_ms);
  }
  // The tooth sets the scale, if there is one.
  const json_t *beyond = row_of(rows, "beyond", engine);
  if (beyond) first_us = fmax(first_us, number_in_row(beyond, "first_max_us"));
  script_panels(&f, panels, count, end_ms, fmax(1.5e-3 * first_us, 0.1));
  return figure_end(p, &f,
                    "The worst latency in each %d ms (blue; what is higher is cut off) and the "
                    "collections (orange). Requests come in waves. Where two collections fall into "
                    "the gap between two waves, every worker makes its own encoder when the next "
                    "begins, and the requests that come meanwhile wait.",
                    BIN_MS);
}

// ---- The shape of a wave --------------------------------------------------------------------

enum { SHAPE_BINS = 40, SHAPE_WAVES = 2000 };

// The worst latency in each 5 ms of a wave, for all waves of a case.
typedef struct shape {
  double at[SHAPE_BINS][SHAPE_WAVES];
  size_t waves[SHAPE_BINS];
} shape;

// A wave begins where no request was due for a while before.
static void fill_shape(shape *s, const json_t *bins, const char *name, const char *engine) {
  double wave_ms = NAN, last_ms = NAN;
  size_t index;
  json_t *bin;
  memset(s->waves, 0, sizeof s->waves);
  json_array_foreach(bins, index, bin) {
    double at_ms = number_in_row(bin, "t_ms"), most_us = number_in_row(bin, "max_us");
    if (!is_case(bin, name, engine) || !isfinite(at_ms)) continue;
    if (!(at_ms <= last_ms + 1.5 * BIN_MS)) wave_ms = at_ms;
    last_ms = at_ms;
    double place = round((at_ms - wave_ms) / BIN_MS);
    if (!(place >= 0 && place < SHAPE_BINS) || !isfinite(most_us)) continue;
    size_t i = (size_t)place;
    if (s->waves[i] < SHAPE_WAVES) s->at[i][s->waves[i]++] = most_us;
  }
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *numbers, size_t count) {
  qsort(numbers, count, sizeof *numbers, by_size);
  return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

// A line is drawn from the beginning of each 5 ms to their end.
static void add_shape(figure *f, shape *s, int number) {
  size_t count = 0;
  while (count < SHAPE_BINS && s->waves[count]) count++;
  for (size_t i = 0; i < count; i++) {
    double most_us = median(s->at[i], s->waves[i]);
    for (size_t end = 0; end < 2; end++)
      fprintf(f->csv, "%d,%s,%zu,%zu,%.6g\n", number, cases[number].name, s->waves[i],
              (i + end) * BIN_MS, most_us * 1e-3);
  }
}

static void script_shapes(figure *f, const bool *drawn) {
  fputs("set xlabel 'time since a wave began, ms'\nset yrange [0:*]\n"
        "set ylabel narrow ? 'worst latency, ms' : 'worst latency in 5 ms, ms'\nplot NaN notitle",
        f->script);
  bool cure = false;
  for (int pass = 0; pass < 2; pass++) // the cures behind the others
    for (int i = 1; i < CASES; i++) {
      if (!drawn[i] || cases[i].cure != (pass == 0)) continue;
      bool beyond = strcmp(cases[i].name, "beyond") == 0;
      fprintf(
          f->script,
          ", \\\n  data using (column('series') == %d ? column('t_ms') : NaN):'latency_ms' with "
          "lines linewidth %s linecolor rgb %s title '%s'",
          i, cases[i].cure ? "1.2" : "2.5",
          cases[i].cure ? "rule"
          : beyond      ? "series1"
                        : "series0",
          !cases[i].cure ? cases[i].title
          : cure         ? ""
                         : "each of the cures");
      cure = cure || cases[i].cure;
    }
}

static bool draw_shapes(page *p, const json_t *rows, const char *engine) {
  const json_t *bins = results_series(p->results, "sawtooth");
  bool drawn[CASES] = {false}, any = false;
  figure f = {.name = "shape",
              .title = "How a wave of requests goes, by case",
              .description = "Lines for a pool that is used within its period, one that is used "
                             "less often, and each cure. Only the second begins high.",
              .height = 360};
  shape *s = malloc(sizeof *s);
  if (!s) {
    complain("no memory for the report");
    return false;
  }
  figure_start(&f);
  fputs("series,case,waves,t_ms,latency_ms\n", f.csv);
  for (int i = 1; i < CASES; i++) {
    if (!row_of(rows, cases[i].name, engine)) continue;
    fill_shape(s, bins, cases[i].name, engine);
    add_shape(&f, s, i);
    drawn[i] = s->waves[0] > 0;
    any = any || drawn[i];
  }
  free(s);
  if (!any) {
    figure_drop(&f);
    return true;
  }
  figure_place_key(&f, &(figure_key){3, 2, 1, NULL});
  script_shapes(&f, drawn);
  return figure_end(p, &f,
                    "The worst latency in each %d ms of a wave, the median of all waves: what "
                    "befalls one wave by chance is not in it.",
                    BIN_MS);
}

// ---- All cases ------------------------------------------------------------------------------

static bool draw_cases(page *p, const json_t *rows) {
  figure f = {.name = "cures",
              .title = "The beginning of a wave against the rest of it",
              .description =
                  "A line for each case: the latency of the first requests of a wave, and "
                  "of the rest of it."};
  marks m = {.count = 0};
  size_t index;
  json_t *row;
  double line = 0;
  figure_start(&f);
  fputs("series,line,case,engine,latency_ms\n", f.csv);
  fputs("set ytics scale 0 (", f.script);
  for (int i = 0; i < CASES; i++) {
    bool any = false;
    json_array_foreach(rows, index, row) {
      if (strcmp(text_in(row, "case"), cases[i].name) != 0) continue;
      for (int later = 0; later < 2; later++) {
        const char *name = later ? "the rest of it" : "first requests of a wave";
        fprintf(f.csv, "%zu,%g,%s,", mark_of(&m, name, text_in(row, "engine")), line,
                cases[i].name);
        figure_text(f.csv, text_in(row, "engine"));
        fputc(',', f.csv);
        figure_number(&f, number_in_row(row, later ? "later_us" : "first_us") * 1e-3, '\n');
      }
      any = true;
    }
    if (!any) continue;
    fprintf(f.script, "%s'%s' %g", line ? ", " : "", cases[i].title, line);
    line++;
  }
  f.height = 120 + 27 * line;
  f.narrow_height = 130 + 27 * line;
  fputs(")\n", f.script);
  figure_place_key(&f, &(figure_key){marks_entries(&m), 2, 1, NULL});
  fprintf(f.script,
          "set logscale x\nset yrange [%g:-0.6]\nset grid xtics\n"
          "set xlabel 'latency, ms (medians over the waves)'\n"
          "if (narrow) { set xlabel 'latency, ms' }\nset offsets graph 0.05, graph 0.05\n"
          "plot NaN notitle",
          line - 0.4);
  marks_plot(&f, &m, "latency_ms", "line");
  return figure_end(p, &f,
                    "Latency of the requests that a wave begins with, and of the rest of it. "
                    "With a tooth the two are far apart; a cure brings them together.");
}

static void find_tooth(page *p, const json_t *rows, const char *engine) {
  const json_t *below = row_of(rows, "below", engine), *beyond = row_of(rows, "beyond", engine);
  size_t index, cures = 0, cured = 0;
  json_t *row;
  if (!beyond) return;
  json_array_foreach(rows, index, row) {
    if (strcmp(text_in(row, "engine"), engine) != 0 || !is_cure(row)) continue;
    cures++;
    cured += !flag_in(row, "tooth");
  }
  bool good = flag_in(beyond, "tooth") && cured == cures && !(below && flag_in(below, "tooth"));
  page_finding(
      p, good ? VERDICT_GOOD : VERDICT_SHORT,
      "A pool that is used every %.1f periods: a tooth at the beginning of %.0f %% of the "
      "waves, where a request takes %.2f ms in place of %.2f. %sOf %s %zu leave%s no tooth%s.",
      number_in_row(beyond, "gap_over_period"), number_in_row(beyond, "tooth_share") * 100,
      number_in_row(beyond, "first_us") * 1e-3, number_in_row(beyond, "later_us") * 1e-3,
      below && !flag_in(below, "tooth") ? "Used within a period it has none. " : "",
      counted(cures, "cure"), cured, cured == 1 ? "s" : "",
      strcmp(engine, "native") == 0 ? "" : " (on the second engine)");
}

static void tooth_table(page *p, const json_t *rows) {
  static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                        {"case", "case", LOOK_TEXT, 0, NULL},
                                        {"gap_over_period", "T/G", LOOK_NUMBER, 2, NULL},
                                        {"hit_rate", "hit rate", LOOK_NUMBER, 4, NULL},
                                        {"misses_per_wave", "misses a wave", LOOK_NUMBER, 2, NULL},
                                        {"p50_us", "p50 µs", LOOK_NUMBER, 0, NULL},
                                        {"p99_us", "p99", LOOK_NUMBER, 0, NULL},
                                        {"p999_us", "p99.9", LOOK_NUMBER, 0, NULL},
                                        {"max_us", "max", LOOK_NUMBER, 0, NULL},
                                        {"first_us", "first", LOOK_NUMBER, 0, NULL},
                                        {"later_us", "later", LOOK_NUMBER, 0, NULL},
                                        {"tooth_share", "teeth", LOOK_PERCENT, 0, NULL},
                                        {"bytes_kept", "kept", LOOK_BYTES, 0, NULL}};
  page_table(p, "Each case; latencies in µs", columns, sizeof columns / sizeof columns[0], rows);
}

bool report_sawtooth(page *p) {
  static const char *const engines[] = {"native", "bdw"};
  const json_t *rows = results_rows(p->results, "sawtooth");
  page_say(p,
           "A service encodes requests that come in waves, at a set rate, with encoders from a "
           "pool. A latency counts from when the request was due. A hit rate of %.1f %% does not "
           "show what happens: nearly all misses come at once, where a wave begins.",
           most_in(rows, "hit_rate") >= 0 ? fmax(least_in(rows, "hit_rate"), 0) * 100 : 0);
  for (int i = 0; i < 2; i++) find_tooth(p, rows, engines[i]);
  const char *engine = row_of(rows, "beyond", "native") ? "native" : "bdw";
  bool good = draw_tooth(p, rows, engine);
  page_say(p, "Cures: a free list, an encoder that each worker owns, a pool whose items outlive "
              "more collections (survive) or stay for a time at least (min_idle_ns), and a higher "
              "GC percent, which makes the period longer. What they cost in memory is in the "
              "table: what is kept.");
  good = draw_shapes(p, rows, engine) && good;
  good = draw_cases(p, rows) && good;
  tooth_table(p, rows);
  return good;
}

// ---- marshal --------------------------------------------------------------------------------

bool report_marshal(page *p) {
  static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                        {"mode", "encoder", LOOK_TEXT, 0, NULL},
                                        {"threads", "threads", LOOK_NUMBER, 0, NULL},
                                        {"ns_op", "ns/op", LOOK_NUMBER, 0, NULL},
                                        {"allocs_op", "allocs/op", LOOK_NUMBER, 4, NULL},
                                        {"bytes_op", "B/op", LOOK_NUMBER, 1, NULL},
                                        {"hit_rate", "hit rate", LOOK_NUMBER, 4, NULL},
                                        {"collections", "collections", LOOK_NUMBER, 0, NULL},
                                        {"fresh_over_this", "times faster", LOOK_NUMBER, 2, NULL}};
  const json_t *rows = results_rows(p->results, "marshal");
  size_t index, pools = 0;
  json_t *row;
  double share = 0, least = INFINITY, most = 0;
  json_array_foreach(rows, index, row) {
    if (strcmp(text_in(row, "mode"), "pool") != 0) continue;
    pools++;
    share = fmax(share, number_in_row(row, "allocs_over_fresh"));
    least = fmin(least, number_in_row(row, "fresh_over_this"));
    most = fmax(most, number_in_row(row, "fresh_over_this"));
  }
  page_say(p,
           "Request envelopes are encoded as JSON, each with an encoder and its buffers made for "
           "it (fresh), from a pool, from a free list, or owned by the thread.");
  if (pools && isfinite(least))
    page_finding(p, share < allocs_allowed ? VERDICT_GOOD : VERDICT_SHORT,
                 "With the pool %.2g %% of the allocations are left, and it is %.1f to %.1f times "
                 "faster; less than %.0f %% were expected.",
                 share * 100, least, most, allocs_allowed * 100);
  page_table(p, "Per envelope", columns, sizeof columns / sizeof columns[0], rows);
  return true;
}
