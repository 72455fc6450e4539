// SPDX-License-Identifier: MIT
// The pictures of `tidepool sawtooth`, line by line.
#include "testing.h"

#include "timeline.h"

#include <math.h>

static const text_style ascii = {.utf8 = false};
static const text_style fine = {.utf8 = true};

static char printed[8192];

// Line i of what was printed last, without trailing blanks.
static const char *line(int i) {
  static char found[256];
  const char *at = printed;
  for (; i > 0; i--) {
    at = strchr(at, '\n');
    ck_assert_ptr_nonnull(at);
    at++;
  }
  size_t length = strcspn(at, "\n");
  while (length > 0 && at[length - 1] == ' ') length--;
  ck_assert_uint_lt(length, sizeof found);
  memcpy(found, at, length);
  found[length] = 0;
  return found;
}

static void print_timeline(const timeline *t, const text_style *style, bool legend) {
  FILE *file = fmemopen(printed, sizeof printed, "w");
  timeline_print(file, style, t, legend);
  fclose(file);
}

static timeline drawn(void) {
  timeline t = {.title = "what", .top = 600, .ticks = {{3, 0}, {20, 150}, {22, 170}, {65, 480}}};
  for (int x = 0; x < TIMELINE_COLUMNS; x++) t.columns[x].most = NAN;
  t.columns[3] = (timeline_column){.most = 600, .traffic = true, .marks = 1};
  t.columns[4] = (timeline_column){.most = 300, .traffic = true};
  t.columns[5] = (timeline_column){.most = 1, .traffic = true};
  t.columns[6] = (timeline_column){.most = 601, .traffic = true};
  t.columns[8].marks = 2;
  t.columns[9].marks = 7;
  return t;
}

START_TEST(test_timeline) {
  timeline t = drawn();
  print_timeline(&t, &ascii, true);
  ck_assert_str_eq(line(0), "  what");
  ck_assert_str_eq(line(1), "     600 |   #  ^");
  ck_assert_str_eq(line(2), "         |   #  #");
  ck_assert_str_eq(line(4), "     300 |   ## #");
  ck_assert_str_eq(line(5), "         |   ## #");
  ck_assert_str_eq(line(6), "         |   ##_#");
  ck_assert_str_eq(line(7),
                   "       0 +---====-----------------------------------------------------------");
  ck_assert_str_eq(line(8), "             ^    22");
  ck_assert_str_eq(line(9),
                   "             0                150                                     480 ms");
  ck_assert_ptr_nonnull(strstr(line(10), "^ on top: higher"));
}
END_TEST

START_TEST(test_fine_timeline) {
  timeline t = drawn();
  print_timeline(&t, &fine, false);
  ck_assert_str_eq(line(1), "     600 |   █  ↑");
  ck_assert_str_eq(line(6), "         |   ██▁█");
  ck_assert_str_eq(line(10), ""); // no legend
  t.columns[4].most = 350;
  print_timeline(&t, &fine, false);
  ck_assert_str_eq(line(3), "         |   █▄ █");
}
END_TEST

static void print_strips(const strip *strips, size_t count, const text_style *style) {
  FILE *file = fmemopen(printed, sizeof printed, "w");
  strips_print(file, style, "what", 2.5, strips, count);
  fclose(file);
}

START_TEST(test_strips) {
  strip strips[3] = {{.name = "one"}, {.name = "another"}, {.name = "none"}};
  for (int i = 0; i < 3; i++)
    for (int x = 0; x < STRIP_COLUMNS; x++) strips[i].columns[x] = NAN;
  strips[0].columns[0] = 800;
  strips[0].columns[1] = 400;
  strips[0].columns[49] = 3;
  strips[1].columns[1] = 100;
  print_strips(strips, 3, &ascii);
  ck_assert_str_eq(line(0), "  what");
  ck_assert_str_eq(line(1),
                   "  one      |#-                                               _|    800");
  ck_assert_str_eq(line(2),
                   "  another  | _                                                |    100");
  ck_assert_str_eq(line(3),
                   "  none     |                                                  |      -");
  ck_assert_str_eq(line(4),
                   "            0                                           2.5 ms    most");
  print_strips(strips, 3, &fine);
  ck_assert_str_eq(line(1),
                   "  one      |█▄                                               ▁|    800");
  print_strips(strips + 2, 1, &fine); // nothing at all
  ck_assert_str_eq(line(1),
                   "  none     |                                                  |      -");
}
END_TEST

START_TEST(test_round_up) {
  static const double cases[][2] = {{0, 1},     {1, 1},      {1.01, 2},       {2, 2},
                                    {4.9, 5},   {5.1, 10},   {99, 100},       {101, 200},
                                    {201, 500}, {600, 1000}, {123456, 200000}};
  for (size_t i = 0; i < LENGTH(cases); i++)
    ck_assert(fabs(round_up(cases[i][0]) - cases[i][1]) < 1e-6);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("timeline");
  TCase *pictures = tcase_create("pictures");
  tcase_add_test(pictures, test_timeline);
  tcase_add_test(pictures, test_fine_timeline);
  tcase_add_test(pictures, test_strips);
  tcase_add_test(pictures, test_round_up);
  suite_add_tcase(suite, pictures);
  return run_suite(suite);
}
