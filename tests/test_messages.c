// SPDX-License-Identifier: MIT
// What the library says: the names of statuses and causes, the message of a thread's last error,
// and the line for each collection with gctrace.
#include "options_testing.h"

#include <pthread.h>
#include <regex.h>

// ---- Messages -------------------------------------------------------------------------------

START_TEST(status_strings_are_there_and_differ) {
  for (int i = -1; i <= TIDE_ERR_SYSTEM + 1; i++) {
    const char *name = tide_status_string((tide_status)i);
    ck_assert_ptr_nonnull(name);
    ck_assert_uint_gt(strlen(name), 0);
    for (int k = 0; k < i; k++) ck_assert_str_ne(name, tide_status_string((tide_status)k));
  }
  ck_assert_int_eq(TIDE_OK, 0);
  ck_assert_str_eq(tide_status_string((tide_status)-1), tide_status_string((tide_status)1000));
}
END_TEST

START_TEST(cause_strings_are_there_and_differ) {
  for (int i = 0; i <= TIDE_CAUSES; i++) {
    const char *name = tide_cause_string((tide_cause)i);
    ck_assert_uint_gt(strlen(name), 0);
    for (int k = 0; k < i; k++) ck_assert_str_ne(name, tide_cause_string((tide_cause)k));
  }
  ck_assert_ptr_nonnull(tide_cause_string((tide_cause)-1));
}
END_TEST

static void *fail_elsewhere(void *arg) {
  ck_assert_str_eq(tide_error_message(), "");
  ck_assert_int_eq(tide_gc_enable(), TIDE_ERR_STATE);
  return NULL;
}

START_TEST(error_messages_belong_to_threads) {
  ck_assert_str_eq(tide_error_message(), "");
  init_with(all_unset);
  ck_assert_str_eq(tide_error_message(), "");
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, fail_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  ck_assert_str_eq(tide_error_message(), "");
  ck_assert_int_eq(tide_roots_remove(&thread, &thread), TIDE_ERR_ARGUMENT);
  ck_assert_uint_gt(strlen(tide_error_message()), 0);
}
END_TEST

// ---- gctrace --------------------------------------------------------------------------------

static void *volatile sink;
static void make_garbage(size_t bytes) {
  for (size_t done = 0; done < bytes; done += 1024) sink = tide_alloc_leaf(1024);
}

static void collect_for_three_reasons(void *arg) {
  init_with(OPTIONS(o.gctrace = 1));
  tide_collect();
  while (read_stats().num_gc < 2) make_garbage(4096);
  tide_gc_percent_set(-1);
  tide_collect_and_release();
  ck_assert_uint_eq(read_stats().num_gc, 3);
}

#define NUMBER "[0-9]+\\.[0-9]"
static const char line_form[] =
    "^tidepool: gc ([0-9]+) @" NUMBER "{6}s " NUMBER "%: " NUMBER "{3}\\+" NUMBER "{3}\\+" NUMBER
    "{3}\\+" NUMBER "{3} ms, sweep " NUMBER "{3} ms, " NUMBER "->" NUMBER " MB, (" NUMBER
    " MB|no) goal, " NUMBER "{2} MB stacks, " NUMBER "{2} MB globals, " NUMBER
    "{2} MB external, " NUMBER " MB total, (" NUMBER " MB|no) limit, [0-9]+ markers, [0-9]+ P(, "
    "limiter)?(, disabled [0-9]+)? \\((goal|limit|time|forced|memory|stress)\\)$";

// Each line has the form, the numbers count from 1, and the causes are these.
static void assert_trace(char *text, const char *const *causes, size_t expected) {
  regex_t form;
  ck_assert_int_eq(regcomp(&form, line_form, REG_EXTENDED), 0);
  size_t lines = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
    regmatch_t groups[7];
    ck_assert_msg(regexec(&form, line, 7, groups, 0) == 0, "not of the form: %s", line);
    ck_assert_uint_lt(lines, expected);
    ck_assert_uint_eq(strtoul(line + groups[1].rm_so, NULL, 10), lines + 1);
    line[groups[6].rm_eo] = 0;
    ck_assert_str_eq(line + groups[6].rm_so, causes[lines]);
  }
  ck_assert_uint_eq(lines, expected);
  regfree(&form);
}

START_TEST(gctrace_prints_one_line_for_each_collection) {
  child c;
  in_child(&c, 20, collect_for_three_reasons, NULL);
  assert_ended_well(&c);
  ck_assert_ptr_nonnull(strstr(c.errors, "no goal, ")); // the last one ran with percent off
  assert_trace(c.errors, (const char *const[]){"forced", "goal", "forced"}, 3);
}
END_TEST

static void collect_under_stress(void *arg) {
  init_with(OPTIONS(o.gctrace = 1, o.stress = 3));
  for (int i = 0; i < 9; i++) sink = tide_alloc(32);
}

START_TEST(gctrace_names_stress) {
  child c;
  in_child(&c, 20, collect_under_stress, NULL);
  assert_ended_well(&c);
  assert_trace(c.errors, (const char *const[]){"stress", "stress", "stress"}, 3);
}
END_TEST

static void collect_without_trace(void *arg) {
  init_with(OPTIONS(o.verify = 1));
  make_garbage(16 * MIB);
  tide_collect();
}

START_TEST(nothing_is_printed_without_gctrace) {
  child c;
  in_child(&c, 20, collect_without_trace, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---------------------------------------------------------------------------------------------

int main(void) {
  clear_environment();
  Suite *suite = suite_create("messages");
  TCase *messages = tcase_create("messages");
  tcase_set_timeout(messages, 40);
  tcase_add_test(messages, status_strings_are_there_and_differ);
  tcase_add_test(messages, cause_strings_are_there_and_differ);
  tcase_add_test(messages, error_messages_belong_to_threads);
  tcase_add_test(messages, gctrace_prints_one_line_for_each_collection);
  tcase_add_test(messages, gctrace_names_stress);
  tcase_add_test(messages, nothing_is_printed_without_gctrace);
  suite_add_tcase(suite, messages);
  return run_suite(suite);
}
