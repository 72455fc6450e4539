// SPDX-License-Identifier: MIT
// Sections on what changes while a program runs: how fast it allocates, and the number of
// processors; and on a recorded program, which does both as it likes.
#include "report.h"
#include "report_marks.h"

#include <math.h>
#include <string.h>

static const double error_allowed = 0.03;

// ---- uneven ---------------------------------------------------------------------------------

// A curve through the exact predictions of each series, and points where it was measured. Rows of a
// series follow one another, gaps ascending.
static void plot_curves(figure *f, const marks *m) {
  for (size_t i = 0; i < m->count; i++)
    fprintf(f->script,
            ", \\\n  data using (column('series') == %zu ? column('gap_over_period') : NaN):"
            "'predicted' with lines linewidth 1.6 linecolor rgb series%zu title ''",
            i, marks_colour(m, i));
  marks_plot(f, m, "gap_over_period", "measured");
}

static bool draw_uneven(page *p, const json_t *rows) {
  figure f = {.name = "uneven",
              .title = "Hit rate against T/G where allocation is uneven",
              .description = "Each pattern of allocation has a curve, predicted from when the "
                             "collections came, and points that were measured. The straight line "
                             "is that of even periods.",
              .height = 440};
  marks m = {.count = 0};
  size_t index;
  json_t *row;
  figure_start(&f);
  fputs("series,pattern,engine,rate_mb_s,gap_ms,gap_over_period,straight,predicted,measured\n",
        f.csv);
  json_array_foreach(rows, index, row) {
    fprintf(f.csv, "%zu,", mark_of(&m, text_in(row, "pattern"), text_in(row, "engine")));
    figure_text(f.csv, text_in(row, "pattern"));
    fputc(',', f.csv);
    figure_text(f.csv, text_in(row, "engine"));
    fputc(',', f.csv);
    figure_number(&f, number_in_row(row, "rate_mb_s"), ',');
    figure_number(&f, number_in_row(row, "gap_ms"), ',');
    figure_number(&f, number_in_row(row, "gap_over_period"), ',');
    figure_number(&f, number_in_row(row, "straight"), ',');
    figure_number(&f, number_in_row(row, "predicted"), ',');
    figure_number(&f, number_in_row(row, "measured"), '\n');
  }
  figure_place_key(&f, &(figure_key){marks_entries(&m) + 1, 1, 2, "1, graph 1 top right"});
  f.narrow_height = 300 + 9 * (double)marks_entries(&m);
  fprintf(f.script,
          "rule_of(x) = x < 1 ? 1 : x > 2 ? 0 : 2 - x\n"
          "set xlabel 'gap between two uses of the pool, in mean collection periods: T/G'\n"
          "if (narrow) { set xlabel 'gap in mean periods, T/G' }\n"
          "set ylabel 'hit rate'\nset xrange [0:%.1f]\nset yrange [-0.03:1.06]\n"
          "set ytics 0.25 format '%%.2f'\nset samples 701\n"
          "plot rule_of(x) with lines linewidth 3 linecolor rgb rule title 'even periods'",
          fmin(fmax(ceil(most_in(rows, "gap_over_period") * 5) / 5, 2.4), 4.2));
  plot_curves(&f, &m);
  return figure_end(p, &f,
                    "Hit rate against the gap in mean collection periods, at %g MB/s. Points were "
                    "measured; the curve of the same colour follows from the moments at which the "
                    "collections came, the grey line from their mean distance alone.",
                    number_in_row(json_array_get(rows, 0), "rate_mb_s"));
}

static void find_blur(page *p, const json_t *rows) {
  double error = most_in(rows, "error"), blur = most_in(rows, "blur");
  size_t count = json_array_size(rows), index;
  const char *pattern = "";
  json_t *row;
  json_array_foreach(rows, index, row) if (number_in_row(row, "blur") == blur) pattern =
      text_in(row, "pattern");
  page_finding(p, error <= error_allowed ? VERDICT_GOOD : VERDICT_SHORT,
               "In %s the hit rate is within %.3f of what follows from when the collections came; "
               "at most %.2f was expected. The straight line alone is off by up to %.2f (%s).",
               counted(count, "configuration"), error, error_allowed, blur, pattern);
}

bool report_uneven(page *p) {
  static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                        {"pattern", "pattern", LOOK_TEXT, 0, NULL},
                                        {"rate_mb_s", "MB/s", LOOK_NUMBER, -1, NULL},
                                        {"gap_ms", "T ms", LOOK_NUMBER, 1, NULL},
                                        {"gc_period_ms", "G ms", LOOK_NUMBER, 1, NULL},
                                        {"period_cv", "cv", LOOK_NUMBER, 2, NULL},
                                        {"gap_over_period", "T/G", LOOK_NUMBER, 2, NULL},
                                        {"straight", "straight", LOOK_NUMBER, 3, NULL},
                                        {"predicted", "exact", LOOK_NUMBER, 3, NULL},
                                        {"measured", "measured", LOOK_NUMBER, 3, NULL},
                                        {"error", "error", LOOK_NUMBER, 3, NULL},
                                        {"blur", "blur", LOOK_NUMBER, 3, NULL}};
  const json_t *rows = results_rows(p->results, "uneven");
  page_say(p, "A program that allocates by fits and starts has long and short periods, and the "
              "mean of them says less. Where most of the time is in long periods, a pool keeps "
              "more than the line says; where collections crowd, it loses more. When each "
              "collection came still predicts the hit rate.");
  find_blur(p, rows);
  json_t *shown = rows_of_one_rate(rows);
  bool good = draw_uneven(p, shown);
  json_decref(shown);
  page_say(p, "cv is the standard deviation of the periods over their mean; blur is how far the "
              "straight line is from the exact prediction, error how far the measurement is.");
  page_table(p, "Each pattern and gap", columns, sizeof columns / sizeof columns[0], rows);
  return good;
}

// ---- procs ----------------------------------------------------------------------------------

bool report_procs(page *p) {
  static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                        {"from", "from", LOOK_NUMBER, 0, NULL},
                                        {"to", "to", LOOK_NUMBER, 0, NULL},
                                        {"during", "during", LOOK_FLAG, 0, NULL},
                                        {"collections", "collections", LOOK_NUMBER, 0, NULL},
                                        {"burst", "burst", LOOK_NUMBER, 0, NULL},
                                        {"put", "put", LOOK_NUMBER, 0, NULL},
                                        {"hits", "hits", LOOK_NUMBER, 2, NULL},
                                        {"lost", "lost", LOOK_NUMBER, 2, NULL},
                                        {"out_of_reach", "out of reach", LOOK_NUMBER, 2, NULL},
                                        {"dropped", "dropped", LOOK_NUMBER, 2, NULL},
                                        {"lost_most", "most lost", LOOK_NUMBER, 0, NULL},
                                        {"documented", "documented", LOOK_NUMBER, 0, NULL},
                                        {"doubled", "doubled", LOOK_NUMBER, 0, NULL}};
  const json_t *rows = results_rows(p->results, "procs");
  size_t index;
  json_t *row;
  double beyond = 0, doubled = 0, most = 0;
  json_array_foreach(rows, index, row) {
    beyond += fmax(number_in_row(row, "beyond"), 0);
    doubled += fmax(number_in_row(row, "doubled"), 0);
    most = fmax(most, number_in_row(row, "lost_most"));
  }
  page_say(p,
           "The number of processors changes while a pool is in use, and every item is accounted "
           "for. A change may cost an item in each private slot, or what is in a set of shards "
           "that is too small; never more, and no item may come out twice.");
  if (beyond == 0 && doubled == 0)
    page_finding(p, VERDICT_GOOD,
                 "%s: nothing lost beyond what is documented, nothing doubled. The most that one "
                 "burst lost is %s of %.0f.",
                 counted(json_array_size(rows), "change"), counted((size_t)most, "item"),
                 most_in(rows, "put"));
  else
    page_finding(p, VERDICT_SHORT, "%s lost beyond what is documented, %s doubled.",
                 counted((size_t)beyond, "item"), counted((size_t)doubled, "item"));
  page_table(p, "Each change, means over the rounds", columns, sizeof columns / sizeof columns[0],
             rows);
  return true;
}

// ---- replay ---------------------------------------------------------------------------------

bool report_replay(page *p) {
  static const page_column columns[] = {
      {"engine", "engine", LOOK_TEXT, 0, NULL},
      {"pool", "pool", LOOK_TEXT, 0, NULL},
      {"pool_number", "number", LOOK_NUMBER, 0, NULL},
      {"gc_percent", "percent", LOOK_NUMBER, 0, "off"},
      {"memory_limit", "limit", LOOK_BYTES, 0, "none"},
      {"gets", "gets", LOOK_NUMBER, 0, NULL},
      {"recorded", "recorded", LOOK_NUMBER, 3, NULL},
      {"measured", "replayed", LOOK_NUMBER, 3, NULL},
      {"simulated", "simulated", LOOK_NUMBER, 3, NULL},
      {"simulated_collections", "collections", LOOK_NUMBER, 0, NULL},
      {"simulated_period_ms", "G ms", LOOK_NUMBER, 2, NULL}};
  const json_t *rows = results_rows(p->results, "replay");
  double error = fmax(most_in(rows, "error"), -least_in(rows, "error"));
  page_say(p, "What a program does with its objects and pools was recorded, and done again on the "
              "real heap and by simulation. The table has the hit rate of each pool as it was "
              "recorded, and what it would be at other GC percents and memory limits.");
  if (isfinite(error))
    page_finding(p, error <= error_allowed ? VERDICT_GOOD : VERDICT_SHORT,
                 "Where the program was replayed, hit rates are within %.3f of what the simulation "
                 "says; at most %.2f was expected.",
                 error, error_allowed);
  page_table(p, "Hit rate of each pool at each setting; collections and periods as simulated",
             columns, sizeof columns / sizeof columns[0], rows);
  return true;
}
