// SPDX-License-Identifier: MIT
// The ways into the library: tide_init once, twice, from many threads, and not at all; what is in
// force afterwards, limits that are `auto` among it; and who is told of a bad value.
#include "options_testing.h"

#include "rt.h"
#include "rt_private.h"

#include <pthread.h>

// ---- Initialisation -------------------------------------------------------------------------

START_TEST(options_are_the_same_before_and_after_init) {
  setenv("TIDE_GCPERCENT", "70", 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_int_eq(before.gc_percent, 70);
  init_with(OPTIONS(o.procs = 3));
  tide_options_read(&after);
  ck_assert_int_eq(after.procs, 3);
  after.procs = before.procs;
  ck_assert_mem_eq(&before, &after, sizeof before);
}
END_TEST

START_TEST(options_act) {
  init_with(OPTIONS(o.procs = 7, o.gc_percent = 300, o.min_heap_bytes = 50 << 20, o.stress = 2));
  ck_assert_int_eq(tide_procs(), 7);
  tide_memstats stats = read_stats();
  ck_assert_int_eq(stats.gc_percent, 300);
  ck_assert_uint_eq(stats.next_gc, 50 * MIB);
  for (int i = 0; i < 10; i++) ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_uint_eq(read_stats().num_gc, 5);
}
END_TEST

START_TEST(init_may_be_repeated) {
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(tide_init(&all_unset), TIDE_OK);
  tide_options in_force;
  tide_options_read(&in_force);
  ck_assert_int_eq(tide_init(&in_force), TIDE_OK);
}
END_TEST

START_TEST(init_with_another_value_is_refused_and_changes_nothing) {
  init_with(OPTIONS(o.gc_percent = 50, o.procs = 3));
  const option *o = &known[_i];
  tide_options asked = all_unset, before, after;
  tide_options_read(&before);
  int64_t in_force = *field_of(&before, o);
  *field_of(&asked, o) = in_force < INT64_MAX ? in_force + 1 : in_force - 1;
  ck_assert_int_eq(tide_init(&asked), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), o->field);
  tide_options_read(&after);
  ck_assert_mem_eq(&before, &after, sizeof before);
  ck_assert_ptr_nonnull(tide_alloc(16));
}
END_TEST

START_TEST(init_may_be_repeated_with_any_negative_percent) {
  init_with(OPTIONS(o.gc_percent = -5));
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = -1)), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = -5)), TIDE_OK);
}
END_TEST

START_TEST(init_after_the_first_allocation_is_a_repeated_one) {
  ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = 100)), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = 99)), TIDE_ERR_STATE);
}
END_TEST

START_TEST(init_with_a_bad_option_runs_with_the_default) {
  setenv("TIDE_GCPERCENT", "often", 1);
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_OPTION);
  assert_contains(tide_error_message(), "often");
  ck_assert_int_eq(read_stats().gc_percent, 100);
  ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_int_eq(tide_init(NULL), TIDE_OK); // it has been said
}
END_TEST

static void init_badly(void *arg) {
  setenv("TIDE_GCPERCENT", "often", 1);
  tide_init(NULL);
  tide_collect();
}

START_TEST(init_says_nothing_on_stderr) {
  child c;
  in_child(&c, 20, init_badly, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- Texts in force -------------------------------------------------------------------------

// A relative name would be a file in the directory of the build.
#define TRACE "/dev/null"

START_TEST(text_in_force_is_not_the_programs_and_is_compared_by_what_it_says) {
  char text[] = TRACE;
  init_with(OPTIONS(o.trace = text));
  text[0] = 'x';
  tide_options in_force;
  tide_options_read(&in_force);
  ck_assert_str_eq(in_force.trace, TRACE);
  ck_assert_int_eq(tide_init(&in_force), TIDE_OK);
  text[0] = '/';
  ck_assert_int_eq(init_again(OPTIONS(o.trace = text)), TIDE_OK);
  ck_assert_int_eq(tide_init(&all_unset), TIDE_OK);
  static const char *const others[] = {"/dev/nul", "/dev/null ", "", "x"};
  for (size_t i = 0; i < LENGTH(others); i++) {
    ck_assert_int_eq(init_again(OPTIONS(o.trace = others[i])), TIDE_ERR_STATE);
    assert_contains(tide_error_message(), "option trace");
  }
}
END_TEST

START_TEST(text_cannot_be_asked_for_when_there_is_none_in_force) {
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.trace = TRACE)), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), "option trace");
}
END_TEST

START_TEST(options_read_before_init_may_be_passed_to_it) {
  setenv("TIDE_DEBUG", "trace=" TRACE, 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_str_eq(before.trace, TRACE);
  setenv("TIDE_DEBUG", "trace=/dev/full", 1);
  ck_assert_int_eq(tide_init(&before), TIDE_OK);
  tide_options_read(&after);
  ck_assert_str_eq(after.trace, TRACE);
  ck_assert_str_eq(before.trace, TRACE);
  ck_assert_int_eq(tide_init(&before), TIDE_OK);
}
END_TEST

// ---- Limits that are `auto` -----------------------------------------------------------------

START_TEST(auto_is_nine_tenths_of_what_is_allowed) {
  static const struct {
    uint64_t allowed;
    int64_t limit;
  } cases[] = {
      {UINT64_MAX, INT64_MAX},
      {0, 0},
      {1, 0},
      {9, 8},
      {10, 9},
      {19, 17},
      {20, 18},
      {1 << 30, 966367641},
      {(uint64_t)1 << 62, 4150517416584649113},
      {UINT64_MAX / 2, 8301034833169298226},
      {UINT64_MAX - 1, INT64_MAX},
  };
  for (size_t i = 0; i < LENGTH(cases); i++)
    ck_assert_int_eq(rt_limit_for(cases[i].allowed), cases[i].limit);
}
END_TEST

START_TEST(auto_becomes_a_number_and_may_be_asked_for_again) {
  if (_i) setenv("TIDE_MEMLIMIT", "auto", 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_int_eq(before.memory_limit, _i ? TIDE_LIMIT_AUTO : INT64_MAX);
  if (_i)
    ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  else
    init_with(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO));
  tide_options_read(&after);
  ck_assert_int_eq(after.memory_limit, rt_limit_for(os_cgroup_memory_bytes("")));
  ck_assert_int_eq(init_again(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO)), TIDE_OK);
  ck_assert_int_eq(tide_init(&after), TIDE_OK);
  after.memory_limit--;
  ck_assert_int_eq(tide_init(&after), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), "memory_limit");
}
END_TEST

START_TEST(auto_is_not_the_number_that_was_asked_for) {
  init_with(OPTIONS(o.memory_limit = rt_limit_for(os_cgroup_memory_bytes(""))));
  ck_assert_int_eq(init_again(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO)), TIDE_ERR_STATE);
}
END_TEST

// ---- Not at all -----------------------------------------------------------------------------

static void *touch(void *arg) {
  return tide_alloc(16);
}
static void do_nothing(const tide_cycle *cycle, void *arg) {}

static void first_use(void *arg) {
  switch (*(int *)arg) {
  case 0:
    ck_assert_ptr_nonnull(tide_alloc(16));
    break;
  case 1:
    tide_collect();
    break;
  case 2:
    ck_assert_int_eq(tide_thread_register(), TIDE_OK);
    break;
  case 3:
    ck_assert_int_eq(tide_roots_add(&all_unset, &all_unset), TIDE_OK);
    break;
  case 4:
    ck_assert_int_eq(read_stats().num_gc, 0);
    break;
  case 5:
    ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL));
    break;
  case 6: {
    pthread_t thread;
    ck_assert_int_eq(tide_thread_create(&thread, NULL, touch, NULL), 0);
    pthread_join(thread, NULL);
    break;
  }
  }
  ck_assert_ptr_nonnull(tide_alloc(100));
  ck_assert_int_eq(read_stats().gc_percent, 100);
}

START_TEST(use_without_init_reports_a_bad_value_once_and_goes_on) {
  setenv("TIDE_GCPERCENT", "\033often", 1);
  child c;
  in_child(&c, 20, first_use, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  assert_contains(c.errors, "tidepool: TIDE_GCPERCENT='?often'");
  assert_contains(c.errors, "using 100\n");
}
END_TEST

START_TEST(use_without_init_says_nothing_when_all_is_well) {
  child c;
  in_child(&c, 20, first_use, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- Many at once ---------------------------------------------------------------------------

enum { THREADS = 16 };
static pthread_barrier_t at_once;
static tide_status statuses[THREADS];

static void *init_at_once(void *arg) {
  tide_status *status = arg;
  pthread_barrier_wait(&at_once);
  *status = tide_init(NULL);
  ck_assert_ptr_nonnull(rt_self());
  ck_assert_ptr_nonnull(tide_alloc(16));
  return NULL;
}

static void *allocate_at_once(void *arg) {
  pthread_barrier_wait(&at_once);
  ck_assert_ptr_nonnull(tide_alloc(16));
  return NULL;
}

static void run_at_once(void *(*fn)(void *)) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&at_once, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, &statuses[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

START_TEST(init_from_many_threads_at_once) {
  run_at_once(init_at_once);
  for (int i = 0; i < THREADS; i++) ck_assert_int_eq(statuses[i], TIDE_OK);
  tide_collect();
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(bad_value_is_told_to_just_one_of_many) {
  setenv("TIDE_PROCS", "many", 1);
  run_at_once(init_at_once);
  int told = 0;
  for (int i = 0; i < THREADS; i++) told += statuses[i] == TIDE_ERR_OPTION;
  ck_assert_int_eq(told, 1);
}
END_TEST

static void allocate_from_many(void *arg) {
  setenv("TIDE_PROCS", "many", 1);
  run_at_once(allocate_at_once);
}

START_TEST(bad_value_is_reported_once_for_many_first_allocations) {
  child c;
  in_child(&c, 20, allocate_from_many, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
}
END_TEST

// ---------------------------------------------------------------------------------------------

int main(void) {
  clear_environment();
  Suite *suite = suite_create("init");
  TCase *init = tcase_create("initialisation");
  tcase_set_timeout(init, 40);
  tcase_add_test(init, options_are_the_same_before_and_after_init);
  tcase_add_test(init, options_act);
  tcase_add_test(init, init_may_be_repeated);
  tcase_add_loop_test(init, init_with_another_value_is_refused_and_changes_nothing, 0,
                      LENGTH(known));
  tcase_add_test(init, init_may_be_repeated_with_any_negative_percent);
  tcase_add_test(init, auto_is_nine_tenths_of_what_is_allowed);
  tcase_add_loop_test(init, auto_becomes_a_number_and_may_be_asked_for_again, 0, 2);
  tcase_add_test(init, auto_is_not_the_number_that_was_asked_for);
  tcase_add_test(init, text_in_force_is_not_the_programs_and_is_compared_by_what_it_says);
  tcase_add_test(init, text_cannot_be_asked_for_when_there_is_none_in_force);
  tcase_add_test(init, options_read_before_init_may_be_passed_to_it);
  tcase_add_test(init, init_after_the_first_allocation_is_a_repeated_one);
  tcase_add_test(init, init_with_a_bad_option_runs_with_the_default);
  tcase_add_test(init, init_says_nothing_on_stderr);
  tcase_add_loop_test(init, use_without_init_reports_a_bad_value_once_and_goes_on, 0, 7);
  tcase_add_loop_test(init, use_without_init_says_nothing_when_all_is_well, 0, 7);
  tcase_add_test(init, init_from_many_threads_at_once);
  tcase_add_test(init, bad_value_is_told_to_just_one_of_many);
  tcase_add_test(init, bad_value_is_reported_once_for_many_first_allocations);
  suite_add_tcase(suite, init);
  return run_suite(suite);
}
