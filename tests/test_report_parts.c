// SPDX-License-Identifier: MIT
// The parts of the report: results that are read, text and tables in HTML, marks of series, a
// figure drawn by a false gnuplot, and the process that is started for one.
#include "testing.h"

#include "child.h"
#include "command.h"
#include "report_figure.h"
#include "report_marks.h"
#include "report_page.h"

#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>

// ---- What main.c has ------------------------------------------------------------------------

const char *command_title = "test";
static char complaint[600];

void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(complaint, sizeof complaint, format, arguments);
  va_end(arguments);
}

void complain_stdout(int error) {
  complain("standard output: %s", strerror(error));
}

// ---- Helpers --------------------------------------------------------------------------------

static char place[64];

static void make_place(void) {
  snprintf(place, sizeof place, "/tmp/tide-report-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(place));
  complaint[0] = '\0';
}

static void remove_place(void) {
  char line[128];
  snprintf(line, sizeof line, "rm -rf '%s'", place);
  ck_assert_int_eq(system(line), 0);
}

static const char *path_of(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", place, name);
  return path;
}

static void put_file(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static char *get_file(const char *name) {
  FILE *file = fopen(path_of(name), "r");
  ck_assert_msg(file, "no %s", name);
  char *text = NULL;
  size_t room = 0;
  if (getdelim(&text, &room, '\0', file) < 0) ck_abort_msg("%s is empty", name);
  fclose(file);
  return text;
}

static void put_dir(const char *name) {
  ck_assert_int_eq(mkdir(path_of(name), 0777), 0);
}

// What the page has so far.
static const char *body_of(page *p) {
  fflush(p->body);
  return p->body_text;
}

static size_t times(const char *text, const char *what) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) count++;
  return count;
}

static json_t *rows_from(const char *text) {
  json_error_t error;
  json_t *rows = json_loads(text, 0, &error);
  ck_assert_msg(rows, "%s", error.text);
  return rows;
}

// ---- Text -----------------------------------------------------------------------------------

static void assert_html(const char *text, const char *expected) {
  char *found = NULL;
  size_t bytes;
  FILE *file = open_memstream(&found, &bytes);
  html_text(file, text);
  fclose(file);
  ck_assert_str_eq(found, expected);
  free(found);
}

#define REPLACED "\xef\xbf\xbd"

START_TEST(text_is_escaped) {
  assert_html("a < b && c > \"d'\"", "a &lt; b &amp;&amp; c &gt; &quot;d&#39;&quot;");
  assert_html("µ – 字 \xf0\x9f\x8c\x8a", "µ – 字 \xf0\x9f\x8c\x8a");
  assert_html("a\tb\n", "a\tb\n");
}
END_TEST

START_TEST(what_is_no_character_is_replaced) {
  assert_html("a\x01"
              "b\x7f",
              "a" REPLACED "b" REPLACED);
  assert_html("\xff", REPLACED);
  assert_html("\xc3", REPLACED);                           // cut short
  assert_html("\xc0\xaf", REPLACED REPLACED);              // longer than need be
  assert_html("\xed\xa0\x80", REPLACED REPLACED REPLACED); // half a pair
  assert_html("\xc2\x80", REPLACED REPLACED);              // a control character
}
END_TEST

// ---- Tables ---------------------------------------------------------------------------------

static const page_column columns[] = {{"engine", "engine", LOOK_TEXT, 0, NULL},
                                      {"n", "n", LOOK_NUMBER, 0, NULL},
                                      {"limit", "limit", LOOK_BYTES, 0, "none"},
                                      {"share", "share", LOOK_PERCENT, 1, NULL},
                                      {"flag", "flag", LOOK_FLAG, 0, NULL}};

static char *table_of(const char *rows_text) {
  results r = {.directory = place};
  page p;
  ck_assert(page_open(&p, &r));
  json_t *rows = rows_from(rows_text);
  page_table(&p, "a & b", columns, LENGTH(columns), rows);
  json_decref(rows);
  char *copy = strdup(body_of(&p));
  page_free(&p);
  return copy;
}

START_TEST(cells) {
  char *text =
      table_of("[{\"engine\": \"<native>\", \"n\": 1234567, \"limit\": 1048576, \"share\": "
               "0.1234, \"flag\": true}, {\"engine\": \"bdw\", \"n\": -12.4}]");
  ck_assert_ptr_nonnull(strstr(text, "<p class=\"caption\">a &amp; b</p>"));
  ck_assert_ptr_nonnull(
      strstr(text, "<td class=\"l\">&lt;native&gt;</td><td>1\u2009234\u2009567</td><td>1 MiB</td>"
                   "<td>12.3 %</td><td>yes</td>"));
  ck_assert_ptr_nonnull(strstr(text, "<td>−12</td><td>none</td><td>–</td><td>no</td>"));
  free(text);
}
END_TEST

START_TEST(one_engine_needs_no_column) {
  char *text = table_of("[{\"engine\": \"native\", \"n\": 1}, {\"engine\": \"native\", \"n\": 2}]");
  ck_assert_ptr_null(strstr(text, "engine"));
  ck_assert_ptr_null(strstr(text, "native"));
  free(text);
}
END_TEST

START_TEST(many_rows_are_folded) {
  char rows[4096] = "[{\"n\": 0}";
  for (int i = 0; i < 40; i++) strcat(rows, ", {\"n\": 1}");
  strcat(rows, "]");
  char *text = table_of(rows);
  ck_assert_ptr_nonnull(strstr(text, "<details><summary>a &amp; b (41 rows)</summary>"));
  ck_assert_uint_eq(times(text, "</tr>"), 42);
  free(text);
  text = table_of("[]");
  ck_assert_str_eq(text, "");
  free(text);
}
END_TEST

// ---- Results --------------------------------------------------------------------------------

static entry entry_of(const char *name, const char *engine, outcome o, const char *message) {
  return (entry){.name = copy_text(name),
                 .engine = copy_text(engine),
                 .outcome = o,
                 .when = copy_text(""),
                 .version = copy_text(""),
                 .machine = copy_text(""),
                 .command = copy_text(""),
                 .message = copy_text(message),
                 .has_data = o == OUTCOME_DONE};
}

static results results_of(size_t count) {
  return (results){.directory = copy_text(place),
                   .entries = calloc(count, sizeof(entry)),
                   .count = count,
                   .facts = json_object()};
}

START_TEST(rows_are_sorted_by_kind) {
  make_place();
  put_dir("data");
  put_dir("data-bdw");
  put_file("data/saw.json", "{\"n\": 1, \"engine\": \"native\"}\n\n"
                            "{\"n\": 2, \"summary\": true}\n"
                            "{\"n\": 3, \"series\": true}\n"
                            "{\"n\": 4, \"collection\": true}\n"
                            "{\"n\": 5, \"collection\": false}\n");
  put_file("data-bdw/saw.json", "{\"n\": 6}\n");
  results r = results_of(2);
  r.entries[0] = entry_of("saw", "native", OUTCOME_DONE, "");
  r.entries[1] = entry_of("saw", "bdw", OUTCOME_DONE, "");
  ck_assert(results_read(&r));
  const json_t *rows = results_rows(&r, "saw");
  ck_assert_uint_eq(json_array_size(rows), 3);
  ck_assert_uint_eq(json_array_size(results_summaries(&r, "saw")), 1);
  ck_assert_uint_eq(json_array_size(results_series(&r, "saw")), 1);
  ck_assert_uint_eq(json_array_size(results_collections(&r, "saw")), 1);
  ck_assert_uint_eq(json_array_size(results_rows(&r, "none")), 0);
  ck_assert_str_eq(text_in(json_array_get(rows, 1), "engine"), "native");
  ck_assert_str_eq(text_in(json_array_get(rows, 2), "engine"), "bdw");
  ck_assert_double_eq(most_in(rows, "n"), 6);
  ck_assert_double_eq(least_in(rows, "n"), 1);
  ck_assert(isnan(most_in(rows, "m")));
  results_free(&r);
  remove_place();
}
END_TEST

START_TEST(broken_results_fail_alone) {
  make_place();
  put_dir("data");
  put_file("data/good.json", "{\"n\": 1}\n");
  put_file("data/bad.json", "{\"n\": 1}\n[1, 2]\n");
  results r = results_of(3);
  r.entries[0] = entry_of("bad", "native", OUTCOME_DONE, "");
  r.entries[1] = entry_of("good", "native", OUTCOME_DONE, "");
  r.entries[2] = entry_of("gone", "native", OUTCOME_DONE, "");
  ck_assert(!results_read(&r));
  ck_assert_ptr_nonnull(strstr(complaint, "data/bad.json: line 2 is not a JSON object"));
  ck_assert_int_eq(r.entries[0].outcome, OUTCOME_FAILED);
  ck_assert(!r.entries[0].has_data);
  ck_assert_uint_eq(json_array_size(results_rows(&r, "bad")), 0);
  ck_assert_uint_eq(json_array_size(results_rows(&r, "good")), 1);
  ck_assert(!r.entries[2].has_data);
  results_free(&r);
  remove_place();
}
END_TEST

START_TEST(skipped_by_reason) {
  make_place();
  results r = results_of(5);
  r.entries[0] = entry_of("forced", "bdw", OUTCOME_SKIPPED, "no engine");
  r.entries[1] = entry_of("waves", "native", OUTCOME_SKIPPED, "no command");
  r.entries[2] = entry_of("waves", "bdw", OUTCOME_SKIPPED, "no command");
  r.entries[3] = entry_of("period", "bdw", OUTCOME_SKIPPED, "no engine");
  r.entries[4] = entry_of("period", "native", OUTCOME_FAILED, "no engine");
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  for (size_t i = 0; i < r.count; i++) {
    if (!skipped_first(&r, i)) continue;
    fprintf(file, "%s:", r.entries[i].message);
    skipped_names(file, &r, i);
    fputc('.', file);
  }
  fclose(file);
  ck_assert_str_eq(text, "no engine:forced, period.no command:waves.");
  free(text);
  results_free(&r);
  remove_place();
}
END_TEST

// ---- Marks ----------------------------------------------------------------------------------

START_TEST(series_of_two_engines) {
  marks m = {.count = 0};
  ck_assert_uint_eq(mark_of(&m, "50 MB/s", "native"), 0);
  ck_assert_uint_eq(mark_of(&m, "200 MB/s", "native"), 1);
  ck_assert_uint_eq(mark_of(&m, "200 MB/s", "bdw"), 2);
  ck_assert_uint_eq(mark_of(&m, "200 MB/s", "native"), 1);
  ck_assert_uint_eq(mark_of(&m, "800 MB/s", "bdw"), 3);
  ck_assert_uint_eq(marks_colour(&m, 0), 0);
  ck_assert_uint_eq(marks_colour(&m, 1), 1);
  ck_assert_uint_eq(marks_colour(&m, 2), 1);
  ck_assert_uint_eq(marks_colour(&m, 3), 2);
  // 50, 200, 800 alone, and what an open mark is.
  ck_assert_uint_eq(marks_entries(&m), 4);
  for (int i = 0; i < 100; i++) {
    char name[32];
    snprintf(name, sizeof name, "%d", i);
    ck_assert_uint_lt(mark_of(&m, name, "native"), MARKS_MAX);
  }
}
END_TEST

START_TEST(rows_of_200) {
  json_t *rows = rows_from("[{\"rate_mb_s\": 50}, {\"rate_mb_s\": 200}, {\"rate_mb_s\": 800}, "
                           "{\"rate_mb_s\": 200}]");
  json_t *chosen = rows_of_one_rate(rows);
  ck_assert_uint_eq(json_array_size(chosen), 2);
  ck_assert_double_eq(number_in_row(json_array_get(chosen, 0), "rate_mb_s"), 200);
  json_decref(chosen);
  json_array_remove(rows, 3);
  json_array_remove(rows, 1);
  chosen = rows_of_one_rate(rows);
  ck_assert_uint_eq(json_array_size(chosen), 1);
  ck_assert_double_eq(number_in_row(json_array_get(chosen, 0), "rate_mb_s"), 50);
  json_decref(chosen);
  json_decref(rows);
}
END_TEST

// ---- Figures --------------------------------------------------------------------------------

// Writes a picture as gnuplot does, in the first colours of the palette.
static const char false_gnuplot[] =
    "#!/bin/sh\n"
    "test \"$1\" = -d || exit 3\n"
    "for form in '' -narrow; do cat >\"plots/wave$form.svg\" <<'END'\n"
    "<?xml version=\"1.0\"?>\n"
    "<svg width=\"760\" height=\"400\" viewBox=\"0 0 760 400\" "
    "xmlns=\"http://www.w3.org/2000/svg\">\n"
    "<desc>Produced by GNUPLOT</desc>\n"
    "<defs><circle id='gpDot' r='0.5'/></defs>\n"
    "<g id=\"gnuplot_canvas\">\n"
    "<g id=\"gnuplot_plot_1\" ><title>gnuplot_plot_1</title>\n"
    "<use xlink:href='#gpDot' color='rgb(  0, 114, 178)' stroke='rgb(0,114,178)' "
    "fill='rgb(1,2,3)'/>\n</g>\n</g>\n</svg>\n"
    "END\ndone\n";

static void draw_with(const char *gnuplot, page *p, results *r) {
  char path[512];
  make_place();
  put_dir("plots");
  put_dir("bin");
  if (gnuplot) {
    put_file("bin/gnuplot", gnuplot);
    chmod(path_of("bin/gnuplot"), 0755);
  }
  snprintf(path, sizeof path, "%s:%s", path_of("bin"), gnuplot ? "/usr/bin:/bin" : "/nowhere");
  setenv("PATH", path, 1);
  *r = (results){.directory = place};
  ck_assert(page_open(p, r));
  figure f = {.name = "wave", .title = "Waves & tides", .description = "Up, down."};
  figure_start(&f);
  fputs("x,y\n", f.csv);
  figure_number(&f, 0.5, ',');
  figure_number(&f, NAN, '\n');
  fputs("plot data using 'x':'y'", f.script);
  ck_assert(figure_end(p, &f, "From %d on", 7));
  setenv("PATH", "/usr/bin:/bin", 1);
}

START_TEST(a_figure_takes_the_colours_of_the_page) {
  page p;
  results r;
  draw_with(false_gnuplot, &p, &r);
  const char *body = body_of(&p);
  ck_assert(p.complete);
  ck_assert_uint_eq(times(body, "<svg "), 2);
  ck_assert_uint_eq(times(body, "stroke='var(--series0)'"), 2);
  ck_assert_uint_eq(times(body, "fill='rgb(1,2,3)'"), 2);
  ck_assert_uint_eq(times(body, "href='#wave-wide-gpDot'"), 1);
  ck_assert_uint_eq(times(body, "href='#wave-narrow-gpDot'"), 1);
  ck_assert_uint_eq(times(body, "xlink"), 0);
  ck_assert_uint_eq(times(body, ">gnuplot_plot"), 0);
  ck_assert_uint_eq(times(body, "http:"), 0);
  ck_assert_uint_eq(times(body, "Waves &amp; tides</title>"), 2);
  ck_assert_uint_eq(times(body, "From 7 on"), 1);
  char *csv = get_file("plots/wave.csv");
  ck_assert_str_eq(csv, "x,y\n0.5,\n");
  free(csv);
  char *script = get_file("plots/wave.gp");
  ck_assert_ptr_nonnull(strstr(script, "data = 'plots/wave.csv'"));
  ck_assert_ptr_nonnull(strstr(script, "plot data using 'x':'y'\n"));
  free(script);
  page_free(&p);
  remove_place();
}
END_TEST

START_TEST(no_gnuplot_no_pictures) {
  page p;
  results r;
  draw_with(NULL, &p, &r);
  ck_assert_ptr_nonnull(strstr(complaint, "gnuplot is not installed"));
  ck_assert_ptr_nonnull(strstr(complaint, "apt-get install gnuplot-nox"));
  ck_assert_ptr_nonnull(strstr(body_of(&p), "not drawn"));
  ck_assert(!p.pictures);
  ck_assert_int_eq(access(path_of("plots/wave.gp"), R_OK), 0);
  page_free(&p);
  remove_place();
}
END_TEST

START_TEST(a_gnuplot_that_fails) {
  page p;
  results r;
  draw_with("#!/bin/sh\necho no such terminal >&2\nexit 1\n", &p, &r);
  ck_assert_ptr_nonnull(strstr(complaint, "could not draw plots/wave.gp: no such terminal"));
  ck_assert_ptr_nonnull(strstr(body_of(&p), "not drawn"));
  ck_assert(!p.complete);
  page_free(&p);
  remove_place();
}
END_TEST

START_TEST(names_cannot_break_out) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  figure_text(file, "a'b\"c`d,e\\f\n<g> h-1.5");
  fclose(file);
  ck_assert_str_eq(text, "a?b?c?d?e?f??g? h-1.5");
  free(text);
}
END_TEST

// ---- Children -------------------------------------------------------------------------------

static double shares[16];
static size_t share_count;

static void note_share(double share, void *arg) {
  ck_assert_ptr_eq(arg, shares);
  if (share_count < LENGTH(shares)) shares[share_count++] = share;
}

static child_result run_shell(const char *script, double seconds, bool progress) {
  static child_result result;
  child_run(&(child_spec){.program = "sh",
                          .arguments = (char *[]){"sh", "-c", (char *)script, NULL},
                          .directory = "/",
                          .seconds = seconds,
                          .progress = progress ? note_share : NULL,
                          .arg = shares},
            &result);
  return result;
}

START_TEST(a_child_is_heard) {
  child_result r = run_shell("echo out; pwd >&2; exit 7", 0, false);
  ck_assert_int_eq(r.error, 0);
  ck_assert_int_eq(r.status, 7);
  ck_assert_str_eq(r.said, "/\n");
  r = run_shell("kill -SEGV $$", 0, false);
  ck_assert_int_eq(r.status, 128 + SIGSEGV);
  // More than there is room for.
  r = run_shell("head -c 100000 /dev/zero | tr '\\0' x >&2", 0, false);
  ck_assert_int_eq(r.status, 0);
  ck_assert_uint_eq(strlen(r.said), sizeof r.said - 1);
}
END_TEST

START_TEST(a_child_tells_how_far_it_is) {
  child_result r = run_shell(
      "test \"$TIDEPOOL_PROGRESS_FD\" = 3 || exit 1; echo 0.25 >&3; echo 0.75 >&3", 0, true);
  ck_assert_int_eq(r.status, 0);
  ck_assert_uint_gt(share_count, 0);
  ck_assert_double_eq(shares[share_count - 1], 0.75);
  r = run_shell("test -z \"$TIDEPOOL_PROGRESS_FD\"", 0, false);
  ck_assert_int_eq(r.status, 0);
}
END_TEST

START_TEST(a_child_that_takes_too_long) {
  child_result r = run_shell("exec sleep 100", 0.05, false);
  ck_assert(r.late);
  ck_assert_int_eq(r.status, 128 + SIGKILL);
}
END_TEST

START_TEST(a_program_that_is_not_there) {
  child_result r;
  child_run(&(child_spec){.program = "/nowhere/tide", .arguments = (char *[]){"tide", NULL}}, &r);
  ck_assert_int_eq(r.error, ENOENT);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("report");
  TCase *text = tcase_create("text");
  tcase_add_test(text, text_is_escaped);
  tcase_add_test(text, what_is_no_character_is_replaced);
  tcase_add_test(text, cells);
  tcase_add_test(text, one_engine_needs_no_column);
  tcase_add_test(text, many_rows_are_folded);
  suite_add_tcase(suite, text);
  TCase *data = tcase_create("data");
  tcase_add_test(data, rows_are_sorted_by_kind);
  tcase_add_test(data, broken_results_fail_alone);
  tcase_add_test(data, skipped_by_reason);
  tcase_add_test(data, series_of_two_engines);
  tcase_add_test(data, rows_of_200);
  suite_add_tcase(suite, data);
  TCase *figures = tcase_create("figures");
  tcase_set_timeout(figures, 20);
  tcase_add_test(figures, a_figure_takes_the_colours_of_the_page);
  tcase_add_test(figures, no_gnuplot_no_pictures);
  tcase_add_test(figures, a_gnuplot_that_fails);
  tcase_add_test(figures, names_cannot_break_out);
  suite_add_tcase(suite, figures);
  TCase *children = tcase_create("children");
  tcase_set_timeout(children, 20);
  tcase_add_test(children, a_child_is_heard);
  tcase_add_test(children, a_child_tells_how_far_it_is);
  tcase_add_test(children, a_child_that_takes_too_long);
  tcase_add_test(children, a_program_that_is_not_there);
  suite_add_tcase(suite, children);
  return run_suite(suite);
}
