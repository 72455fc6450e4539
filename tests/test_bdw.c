// SPDX-License-Identifier: MIT
// Boehm GC as the engine: what holds there and nowhere else. That it does what the native engine
// does is tested by the other programs, which run on it once more.
#include "testing.h"

#include <gc.h>

START_TEST(engine_has_a_name) {
  ck_assert_str_eq(tide_engine(), "bdw");
}
END_TEST

// ---- What is refused ------------------------------------------------------------------------

START_TEST(bound_of_the_mark_stack_is_refused_and_the_rest_works) {
  tide_options options = OPTIONS(o.mark_stack_bytes = 1 << 20, o.procs = 3);
  ck_assert_int_eq(tide_init(&options), TIDE_ERR_OPTION);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "mark_stack_bytes (TIDE_MARKSTACK)"));
  tide_options used;
  tide_options_read(&used);
  ck_assert_int_eq(used.mark_stack_bytes, 0);
  ck_assert_int_eq(used.procs, 3);
  ck_assert_ptr_nonnull(tide_alloc(100));
}
END_TEST

START_TEST(first_bad_option_is_the_one_that_is_named) {
  setenv("TIDE_GCPERCENT", "much", 1);
  setenv("TIDE_MARKSTACK", "1MiB", 1);
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_OPTION);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "TIDE_GCPERCENT"));
  ck_assert_ptr_nonnull(tide_alloc(100));
}
END_TEST

START_TEST(program_that_uses_libgc_itself_is_refused) {
  GC_INIT();
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_STATE);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "libgc is in use"));
  ck_assert_ptr_null(tide_alloc(100));
  ck_assert_ptr_nonnull(GC_malloc(100)); // which goes on
}
END_TEST

START_TEST(incremental_collections_are_refused) {
  setenv("GC_ENABLE_INCREMENTAL", "1", 1);
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_STATE);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "GC_ENABLE_INCREMENTAL"));
  ck_assert_ptr_null(tide_alloc(100));
}
END_TEST

// ---- libgc's own ways -----------------------------------------------------------------------

static void handler(int number) {}

START_TEST(signals_of_libgc_stay_the_programs) {
  signal(SIGPWR, handler);
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  tide_collect();
  ck_assert(signal(SIGPWR, SIG_DFL) == handler);
  ck_assert(signal(SIGXCPU, SIG_DFL) == SIG_DFL);
}
END_TEST

// Only Tidepool's pace starts collections: libgc would long have made some.
START_TEST(libgc_collects_when_we_do) {
  init_with(OPTIONS(o.gc_percent = -1));
  size_t before = GC_get_gc_no();
  for (int i = 0; i < 2000; i++) ck_assert_ptr_nonnull(tide_alloc_leaf(50000));
  ck_assert_uint_eq(GC_get_gc_no(), before);
  for (int i = 1; i <= 3; i++) {
    tide_collect();
    ck_assert_uint_eq(GC_get_gc_no(), before + (size_t)i);
    ck_assert_uint_eq(tide_gc_cycle(), (uint64_t)i);
  }
}
END_TEST

static void count_calls(const tide_cycle *cycle, void *arg) {
  ++*(int *)arg;
}

// After a request that has failed, libgc writes to its record of the thread that collects. It knows
// no thread of ours.
START_TEST(collection_after_a_refusal) {
  init_with(OPTIONS(o.hard_limit = 16 << 20));
  static int calls;
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_MARK_DONE, count_calls, &calls));
  for (int i = 0; i < 3; i++) {
    ck_assert_ptr_null(tide_alloc(20 * MIB));
    tide_collect();
  }
  ck_assert_int_eq(calls, 6); // the refused ones have collected too
  ck_assert_ptr_nonnull(tide_alloc(MIB));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bdw");
  TCase *cases = tcase_create("bdw");
  tcase_add_test(cases, engine_has_a_name);
  tcase_add_test(cases, bound_of_the_mark_stack_is_refused_and_the_rest_works);
  tcase_add_test(cases, first_bad_option_is_the_one_that_is_named);
  tcase_add_test(cases, program_that_uses_libgc_itself_is_refused);
  tcase_add_test(cases, incremental_collections_are_refused);
  tcase_add_test(cases, signals_of_libgc_stay_the_programs);
  tcase_add_test(cases, libgc_collects_when_we_do);
  tcase_add_test(cases, collection_after_a_refusal);
  suite_add_tcase(suite, cases);
  return run_suite(suite);
}
