// SPDX-License-Identifier: MIT
// Sections on the rule: an idle item survives one collection and is lost at the second. In the
// order of the page: all configurations on the one line, collections made by hand, the periods, and
// the knobs that move them.
#include "output.h"
#include "report.h"
#include "report_marks.h"

#include <math.h>
#include <string.h>

static const double error_allowed = 0.03, period_allowed = 0.05;

// ---- The rule -------------------------------------------------------------------------------

static void name_series(char *name, const json_t *row) {
  double percent = number_in_row(row, "gc_percent");
  bool limit = isfinite(number_in_row(row, "memory_limit"));
  if (strcmp(text_in(row, "experiment"), "knobs") != 0)
    snprintf(name, MARK_BYTES, "%g MB/s", number_in_row(row, "rate_mb_s"));
  else
    snprintf(name, MARK_BYTES, "%s",
             limit            ? "memory limits"
             : percent == 100 ? "default settings"
                              : "GC percents");
}

// Adds the rows of an experiment to a figure with T/G and the hit rate, or with the periods.
static void add_points(figure *f, marks *m, const json_t *rows, const char *x, const char *y) {
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) {
    char name[MARK_BYTES];
    name_series(name, row);
    fprintf(f->csv, "%zu,", mark_of(m, name, text_in(row, "engine")));
    figure_text(f->csv, text_in(row, "experiment"));
    fputc(',', f->csv);
    figure_text(f->csv, text_in(row, "engine"));
    fputc(',', f->csv);
    figure_number(f, number_in_row(row, "rate_mb_s"), ',');
    figure_number(f, number_in_row(row, "gap_ms"), ',');
    figure_number(f, number_in_row(row, x), ',');
    figure_number(f, number_in_row(row, y), '\n');
  }
}

static size_t beyond(const json_t *rows, double highest) {
  size_t count = 0, index;
  json_t *row;
  json_array_foreach(rows, index, row) count += number_in_row(row, "gap_over_period") > highest;
  return count;
}

static bool draw_line(page *p, const json_t *period, const json_t *knobs) {
  const double highest = 3.5;
  size_t count = json_array_size(period) + json_array_size(knobs);
  figure f = {.name = "rule",
              .title = "Hit rate against T/G, with the predicted line",
              .description = "Each point is one configuration. The predicted line stays at 1 until "
                             "T/G is 1, falls to 0 where T/G is 2, and stays there.",
              .height = 430};
  marks m = {.count = 0};
  figure_start(&f);
  fputs("series,experiment,engine,rate_mb_s,gap_ms,gap_over_period,measured\n", f.csv);
  add_points(&f, &m, period, "gap_over_period", "measured");
  add_points(&f, &m, knobs, "gap_over_period", "measured");
  figure_place_key(&f, &(figure_key){marks_entries(&m) + 1, 1, 2, "1, graph 1 top right"});
  f.narrow_height = 280 + 9 * (double)marks_entries(&m);
  fprintf(f.script,
          "rule_of(x) = x < 1 ? 1 : x > 2 ? 0 : 2 - x\n"
          "set xlabel 'gap between two uses of the pool, in collection periods: T/G'\n"
          "if (narrow) { set xlabel 'gap in collection periods, T/G' }\n"
          "set ylabel 'hit rate'\nset xrange [0:%g]\nset yrange [-0.03:1.06]\n"
          "set ytics 0.25 format '%%.2f'\nset samples 701\n"
          "plot rule_of(x) with lines linewidth 3 linecolor rgb rule title 'predicted'",
          highest);
  marks_plot(&f, &m, "gap_over_period", "measured");
  char hidden[96] = "";
  size_t more = beyond(period, highest) + beyond(knobs, highest);
  if (more)
    snprintf(hidden, sizeof hidden, " Further right lie %s.", counted(more, "configuration"));
  return figure_end(p, &f,
                    "Hit rate against the gap in collection periods: %s, one line. No point was "
                    "fitted: T and G are measured, and the line follows from them.%s",
                    counted(count, "configuration"), hidden);
}

// Where the largest distance from the line is.
static const json_t *worst_of(const json_t *rows, const char *field) {
  const json_t *worst = NULL;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) if (!worst || number_in_row(row, field) >
                                                         number_in_row(worst, field)) worst = row;
  return worst;
}

static size_t within(const json_t *rows, const char *field, double allowed) {
  size_t count = 0, index;
  json_t *row;
  json_array_foreach(rows, index, row) count += number_in_row(row, field) <= allowed;
  return count;
}

static void find_errors(page *p, const json_t *rows, const char *what) {
  const json_t *worst = worst_of(rows, "error");
  size_t count = json_array_size(rows), near = within(rows, "error", error_allowed);
  double most = number_in_row(worst, "error");
  if (near == count)
    page_finding(p, VERDICT_GOOD,
                 "All of %s lie within %.2f of the predicted hit rate; the largest "
                 "distance is %.3f.",
                 counted(count, what), error_allowed, most);
  else
    page_finding(p, VERDICT_SHORT,
                 "%zu of %s lie within %.2f of the predicted hit rate. The largest distance is "
                 "%.3f, at %g MB/s and T/G %.2f: %.3f in place of %.3f. On a machine that does "
                 "other work the periods waver, and few bursts leave much to chance.",
                 near, counted(count, what), error_allowed, most, number_in_row(worst, "rate_mb_s"),
                 number_in_row(worst, "gap_over_period"), number_in_row(worst, "measured"),
                 number_in_row(worst, "predicted"));
}

bool report_rule(page *p) {
  const json_t *period = results_rows(p->results, "period");
  const json_t *knobs = results_rows(p->results, "knobs");
  page_section(p, "rule", "The rule");
  page_say(p, "An idle item in a pool survives one collection and is lost at the second. A program "
              "that allocates steadily has a collection every G milliseconds, and G is the growth "
              "of the heap that is allowed, divided by the rate of allocation. So a pool that "
              "is left alone for T milliseconds, beginning anywhere between two collections, "
              "has its items afterwards with this probability:");
  fputs("<p class=\"formula\"><span>hit rate</span> = 1 − <span>clip</span>(T/G − 1, 0, 1)</p>\n",
        p->body);
  bool good = true;
  if (json_array_size(period) + json_array_size(knobs)) {
    good = draw_line(p, period, knobs);
    if (json_array_size(period)) find_errors(p, period, "configuration");
  }
  page_section_end(p);
  return good;
}

// ---- forced ---------------------------------------------------------------------------------

// A processor's part of a pool has one private slot that the others cannot reach.
static bool forced_as_expected(const json_t *row) {
  double missed = number_in_row(row, "workers") - number_in_row(row, "hits_per_burst");
  if (number_in_row(row, "forced") >= 2) return number_in_row(row, "hits_per_burst") == 0;
  return missed <= number_in_row(row, "procs");
}

static json_t *find_with(json_t *rows, const char *first, json_t *first_value, const char *second,
                         json_t *second_value) {
  size_t index;
  json_t *row;
  json_array_foreach(rows, index,
                     row) if (json_equal(json_object_get(row, first), first_value) &&
                              json_equal(json_object_get(row, second), second_value)) return row;
  return NULL;
}

// A row for each number of processors and engine, a field for each number of collections.
static json_t *forced_by_procs(const json_t *rows) {
  json_t *lines = json_array();
  json_t *first = json_object();
  size_t index;
  json_t *row;
  json_object_set_new(first, "procs", json_string("predicted"));
  json_array_append_new(lines, first);
  json_array_foreach(rows, index, row) {
    json_t *procs = json_object_get(row, "procs"), *engine = json_object_get(row, "engine");
    json_t *line = find_with(lines, "procs", procs, "engine", engine);
    if (!line) {
      line = json_object();
      json_object_set(line, "procs", procs);
      json_object_set(line, "engine", engine);
      json_array_append_new(lines, line);
    }
    char field[32];
    double forced = number_in_row(row, "forced");
    snprintf(field, sizeof field, "%.0f", forced);
    json_object_set(line, field, json_object_get(row, "hits_per_burst"));
    json_object_set_new(first, field,
                        json_real(forced < 2 ? fmax(number_in_row(row, "workers"), 0) : 0));
  }
  return lines;
}

static void forced_table(page *p, const json_t *rows) {
  static const char *const fields[] = {"0", "1", "2", "3", "4", "5"};
  static const char *const headings[] = {"k = 0", "k = 1", "k = 2", "k = 3", "k = 4", "k = 5"};
  page_column columns[8] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                            {"procs", "processors", LOOK_NUMBER, 0, NULL}};
  size_t count = 2;
  double most = most_in(rows, "forced");
  for (size_t i = 0; i < 6 && (double)i <= most; i++)
    columns[count++] = (page_column){fields[i], headings[i], LOOK_NUMBER, 2, NULL};
  json_t *lines = forced_by_procs(rows);
  page_table(p, "Items that came back, in a burst of the workers, after k collections", columns,
             count, lines);
  json_decref(lines);
}

bool report_forced(page *p) {
  const json_t *rows = results_rows(p->results, "forced");
  size_t index, good = 0;
  json_t *row;
  double kept = INFINITY, left = 0;
  json_array_foreach(rows, index, row) {
    good += forced_as_expected(row);
    if (number_in_row(row, "forced") < 2)
      kept = fmin(kept, number_in_row(row, "hit_rate"));
    else
      left = fmax(left, number_in_row(row, "hit_rate"));
  }
  page_say(p,
           "Threads take an item each and put it back; then exactly k collections are made; then "
           "the threads take one again. For k = 0 and 1 every item should come back, but for one "
           "in the private slot of each processor, which the others cannot reach. For k = 2 and "
           "more, none should.");
  if (good == json_array_size(rows))
    page_finding(p, VERDICT_GOOD,
                 "After none or one collection at least %.1f %% of the items came back%s.",
                 kept * 100, most_in(rows, "forced") < 2 ? "" : ", after two or more none");
  else
    page_finding(p, VERDICT_SHORT,
                 "In %zu of %s the count is another: as few as %.1f %% came back after none or one "
                 "collection, and up to %.1f %% after more.",
                 json_array_size(rows) - good, counted(json_array_size(rows), "row"), kept * 100,
                 left * 100);
  forced_table(p, rows);
  return true;
}

// ---- period ---------------------------------------------------------------------------------

static bool draw_periods(page *p, const json_t *period, const json_t *knobs) {
  double least =
      fmin(least_in(period, "expected_period_ms"), least_in(knobs, "expected_period_ms"));
  double most = fmax(most_in(period, "expected_period_ms"), most_in(knobs, "expected_period_ms"));
  least = fmin(least, fmin(least_in(period, "gc_period_ms"), least_in(knobs, "gc_period_ms")));
  most = fmax(most, fmax(most_in(period, "gc_period_ms"), most_in(knobs, "gc_period_ms")));
  if (!(least > 0)) return true; // nothing was expected anywhere
  figure f = {.name = "periods",
              .title = "Collection periods, measured against expected",
              .description = "Both axes are logarithmic. Points on the diagonal are periods as "
                             "expected."};
  marks m = {.count = 0};
  figure_start(&f);
  fputs("series,experiment,engine,rate_mb_s,gap_ms,expected_period_ms,gc_period_ms\n", f.csv);
  add_points(&f, &m, period, "expected_period_ms", "gc_period_ms");
  add_points(&f, &m, knobs, "expected_period_ms", "gc_period_ms");
  figure_place_key(&f, &(figure_key){marks_entries(&m) + 1, 1, 2, "0.02, graph 1 top left"});
  f.narrow_height = 310 + 9 * (double)marks_entries(&m);
  fprintf(f.script,
          "set logscale xy\nset xrange [%g:%g]\nset yrange [%g:%g]\nset "
          "grid xtics\n"
          "set xlabel 'expected period: growth allowed / rate, ms'\n"
          "set ylabel 'measured period, ms'\n"
          "plot x with lines linewidth 2 linecolor rgb rule title 'as expected'",
          least * 0.7, most * 1.4, least * 0.7, most * 1.4);
  marks_plot(&f, &m, "expected_period_ms", "gc_period_ms");
  return figure_end(p, &f,
                    "Time from one collection's start to the next, in ms. Expected is the growth "
                    "of the heap that percent and limit allow, divided by the rate.");
}

// How far the periods are from the expected ones, as a share.
static double period_deviation(const json_t *rows) {
  double most = NAN;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) most =
      fmax(most, fabs(number_in_row(row, "period_over_expected") - 1));
  return most;
}

bool report_period(page *p) {
  static const page_column columns[] = {
      {"engine", "engine", LOOK_TEXT, 0, NULL},
      {"rate_mb_s", "MB/s", LOOK_NUMBER, -1, NULL},
      {"gap_ms", "T ms", LOOK_NUMBER, 1, NULL},
      {"gc_period_ms", "G ms", LOOK_NUMBER, 1, NULL},
      {"period_over_expected", "G/expected", LOOK_NUMBER, 3, NULL},
      {"gap_over_period", "T/G", LOOK_NUMBER, 3, NULL},
      {"predicted", "predicted", LOOK_NUMBER, 3, NULL},
      {"measured", "measured", LOOK_NUMBER, 3, NULL},
      {"error", "error", LOOK_NUMBER, 3, NULL},
      {"bursts", "bursts", LOOK_NUMBER, 0, NULL}};
  const json_t *rows = results_rows(p->results, "period");
  page_say(p, "A live heap stays as it is while a thread allocates and drops memory at a steady "
              "rate, so collections come evenly. Beside it, a pool is used in bursts with a gap of "
              "T between them. The gaps of a configuration begin at phases of the period that are "
              "evenly spread, so that bursts and collections cannot fall into step.");
  double off = period_deviation(rows);
  if (isfinite(off))
    page_finding(p, off <= period_allowed ? VERDICT_GOOD : VERDICT_SHORT,
                 "The periods are within %.1f %% of what live heap, GC percent and rate say; at "
                 "most %.0f %% were expected.",
                 off * 100, period_allowed * 100);
  bool good = draw_periods(p, rows, results_rows(p->results, "knobs"));
  page_table(p, "Each configuration", columns, sizeof columns / sizeof columns[0], rows);
  return good;
}

// ---- knobs ----------------------------------------------------------------------------------

static void name_setting(char *name, size_t size, const json_t *row) {
  double percent = number_in_row(row, "gc_percent"), limit = number_in_row(row, "memory_limit");
  if (isfinite(limit) && limit >= 0)
    snprintf(name, size, "limit %s%s", size_text((uint64_t)limit),
             isfinite(percent) ? "" : " without percent");
  else
    snprintf(name, size, "GC percent %g", percent);
}

static bool near_gap(const json_t *row, double gap_ms) {
  return fabs(number_in_row(row, "gap_ms") / gap_ms - 1) < 0.05;
}

// What was asked for: gaps are a little longer when the machine is busy. Two digits are enough.
static double nominal_gap(double gap_ms) {
  double unit = gap_ms > 0 ? pow(10, floor(log10(gap_ms)) - 1) : 1;
  return round(gap_ms / unit) * unit;
}

static size_t setting_of(marks *settings, const json_t *row) {
  char name[MARK_BYTES];
  name_setting(name, sizeof name, row);
  return mark_of(settings, name, "native"); // one line for both engines
}

// Gaps that every setting has: those that the user of a pool would look at.
static size_t common_gaps(const json_t *rows, marks *settings, double *gaps, size_t most) {
  size_t count = 0, index, other_index;
  json_t *row, *other;
  json_array_foreach(rows, index, row) setting_of(settings, row);
  json_array_foreach(rows, index, row) {
    double gap_ms = number_in_row(row, "gap_ms");
    bool has[MARKS_MAX] = {false}, known = false;
    size_t with = 0;
    for (size_t i = 0; i < count; i++) known = known || near_gap(row, gaps[i]);
    json_array_foreach(rows, other_index, other) if (near_gap(other, gap_ms))
        has[setting_of(settings, other)] = true;
    for (size_t i = 0; i < settings->count; i++) with += has[i];
    if (!known && with == settings->count && count < most) gaps[count++] = gap_ms;
  }
  return count;
}

static void add_knob(figure *f, marks *m, marks *settings, const json_t *row, double gap_ms) {
  char series[MARK_BYTES];
  size_t setting = setting_of(settings, row);
  snprintf(series, sizeof series, "every %.3g ms", nominal_gap(gap_ms));
  fprintf(f->csv, "%zu,%zu,%s,", mark_of(m, series, text_in(row, "engine")), setting,
          settings->names[setting]);
  figure_text(f->csv, text_in(row, "engine"));
  fputc(',', f->csv);
  figure_number(f, number_in_row(row, "gap_ms"), ',');
  figure_number(f, number_in_row(row, "gc_period_ms"), ',');
  figure_number(f, number_in_row(row, "measured"), ',');
  figure_number(f, number_in_row(row, "predicted"), '\n');
}

static void script_knobs(figure *f, const marks *m, const marks *settings) {
  double lines = (double)settings->count;
  f->height = 120 + 25 * lines;
  f->narrow_height = 130 + 25 * lines;
  figure_place_key(f, &(figure_key){marks_entries(m) + 1, 2, 1, NULL});
  f->height += 10 * (double)marks_entries(m);
  f->narrow_height += 16 * (double)marks_entries(m);
  fprintf(f->script,
          "set xrange [-0.03:1.03]\nset yrange [%g:-0.6]\nset xtics 0.25 format '%%.2f'\n"
          "if (narrow) { set xtics 0.5 format '%%.1f' }\nset grid xtics\n"
          "set xlabel 'hit rate'\nset ytics (",
          lines - 0.4);
  for (size_t i = 0; i < settings->count; i++) {
    fputs(i ? ", '" : "'", f->script);
    figure_text(f->script, settings->names[i]);
    fprintf(f->script, "' %zu", i);
  }
  fputs(")\nplot data using 'predicted':'line' with points pointtype 2 pointsize 0.9 linewidth 2 "
        "linecolor rgb rule title 'predicted'",
        f->script);
  marks_plot(f, m, "measured", "line");
}

static bool draw_knobs(page *p, const json_t *all_rows) {
  json_t *rows = rows_of_one_rate(all_rows);
  double gaps[FIGURE_COLOURS];
  marks m = {.count = 0}, settings = {.count = 0};
  size_t gap_count = common_gaps(rows, &settings, gaps, FIGURE_COLOURS), index;
  json_t *row;
  figure f = {.name = "knobs",
              .title = "What GC percent and memory limit make of a pool's hit rate",
              .description = "A line for each setting, a mark for each gap between bursts."};
  bool good = true;
  if (gap_count) {
    figure_start(&f);
    fputs("series,line,setting,engine,gap_ms,gc_period_ms,measured,predicted\n", f.csv);
    json_array_foreach(rows, index, row) for (size_t i = 0; i < gap_count;
                                              i++) if (near_gap(row, gaps[i]))
        add_knob(&f, &m, &settings, row, gaps[i]);
    script_knobs(&f, &m, &settings);
    good = figure_end(p, &f,
                      "The same pool at %g MB/s under other settings, with a burst every so many "
                      "ms. A shorter period (a lower "
                      "percent or limit) forgets sooner; a longer one remembers.",
                      number_in_row(json_array_get(rows, 0), "rate_mb_s"));
  }
  json_decref(rows);
  return good;
}

bool report_knobs(page *p) {
  static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                        {"gc_percent", "percent", LOOK_NUMBER, 0, "off"},
                                        {"memory_limit", "limit", LOOK_BYTES, 0, "none"},
                                        {"rate_mb_s", "MB/s", LOOK_NUMBER, -1, NULL},
                                        {"gap_ms", "T ms", LOOK_NUMBER, 1, NULL},
                                        {"gc_period_ms", "G ms", LOOK_NUMBER, 1, NULL},
                                        {"gap_over_period", "T/G", LOOK_NUMBER, 2, NULL},
                                        {"predicted", "predicted", LOOK_NUMBER, 3, NULL},
                                        {"measured", "measured", LOOK_NUMBER, 3, NULL},
                                        {"error", "error", LOOK_NUMBER, 3, NULL},
                                        {"paused_share", "paused", LOOK_PERCENT, 1, NULL}};
  const json_t *rows = results_rows(p->results, "knobs");
  page_say(p, "GC percent and the memory limit say how far the heap may grow, and so they set the "
              "period: they move a pool along the line, but not off it.");
  find_errors(p, rows, "configuration");
  bool good = draw_knobs(p, rows);
  page_table(p, "Each setting and gap", columns, sizeof columns / sizeof columns[0], rows);
  return good;
}
