// SPDX-License-Identifier: MIT
// External bytes: their sum, and how collections follow it.
#include "limits_testing.h"

static uint64_t external(void) {
  return read_stats().external_bytes;
}

// ---- The sum --------------------------------------------------------------------------------

enum { ADDERS = 8, ADDITIONS = 20000 };
static int64_t sums[ADDERS];

// Random steps up and down, never below what the thread itself has added.
static void *add(void *arg) {
  int64_t *sum = arg;
  uint64_t random = (uintptr_t)(sum - sums) + 1;
  for (int i = 0; i < ADDITIONS; i++) {
    int64_t bytes = (int64_t)random_below(&random, 100000);
    if (random_below(&random, 2)) bytes = -bytes;
    if (*sum + bytes < 0) bytes = -*sum;
    *sum += bytes;
    tide_external_add(bytes);
  }
  return NULL;
}
static void *add_blocked(void *arg) {
  return tide_blocking(add, arg);
}

START_TEST(sum_is_exact_over_threads_of_every_kind) {
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_t threads[ADDERS];
  for (int i = 0; i < ADDERS; i++) {
    int failed = i % 3 == 0   ? tide_thread_create(&threads[i], NULL, add, &sums[i])
                 : i % 3 == 1 ? tide_thread_create(&threads[i], NULL, add_blocked, &sums[i])
                              : pthread_create(&threads[i], NULL, add, &sums[i]);
    ck_assert_int_eq(failed, 0);
  }
  for (int i = 0; i < 50; i++) tide_collect();
  uint64_t all = 0;
  for (int i = 0; i < ADDERS; i++) {
    pthread_join(threads[i], NULL);
    all += (uint64_t)sums[i];
  }
  ck_assert_uint_eq(external(), all);
  tide_external_add(-(int64_t)all);
  ck_assert_uint_eq(external(), 0);
}
END_TEST

static void take_too_much(void *arg) {
  init_with(OPTIONS(o.gc_percent = 100));
  tide_external_add(1000);
  tide_external_add(-1001);
  MUST(external() == 0);
  tide_external_add(500);
  MUST(external() == 500);
  for (int i = 0; i < 10; i++) tide_external_add(-10000);
  MUST(external() == 0);
  tide_external_add(7);
  MUST(external() == 7);
}

static void *take_and_give(void *arg) {
  for (int i = 0; i < 100000; i++) {
    tide_external_add(-3000);
    tide_external_add(1000);
  }
  return NULL;
}

static void take_too_much_together(void *arg) {
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, take_and_give, NULL));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  MUST(external() <= 4000); // each has stopped at 0, before its last addition
  tide_external_add(-4000);
  MUST(external() == 0);
}

static void add_extremes(void *arg) {
  const int64_t most = INT64_C(1) << 60;
  init_with(OPTIONS(o.gc_percent = 100));
  tide_external_add(12345);
  tide_external_add(INT64_MIN);
  tide_external_add(INT64_MAX);
  tide_external_add(-most - 1);
  tide_external_add(most + 1);
  tide_external_add(0);
  MUST(external() == 12345);
  tide_external_add(-12345);
  for (int i = 0; i < 100; i++) tide_external_add(most);
  MUST(external() == (uint64_t)4 * (uint64_t)most); // 2^62 in all
  MUST(read_stats().total_bytes > (uint64_t)4 * (uint64_t)most);
  MUST(tide_alloc(100000)); // a heap like any other
  tide_collect();
  for (int i = 0; i < 4; i++) tide_external_add(-most);
  MUST(external() == 0);
}

START_TEST(what_is_not_accepted_is_reported_once) {
  static void (*const faults[])(void *) = {take_too_much, take_too_much_together, add_extremes};
  child c;
  in_child(&c, 60, faults[_i], NULL);
  assert_ended_well(&c);
  ck_assert_msg(count_lines(c.errors) == 1, "%s", c.errors);
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_external_add("));
}
END_TEST

static void add_in_hook(const tide_cycle *cycle, void *arg) {
  tide_external_add(MB(100));
}

static void collect_with_adding_hooks(void *arg) {
  init_with(OPTIONS(o.gc_percent = 100));
  MUST(tide_hook_add(TIDE_STW_START, add_in_hook, NULL));
  MUST(tide_hook_add(TIDE_MARK_DONE, add_in_hook, NULL));
  tide_collect();
  tide_memstats stats = read_stats();
  MUST(stats.num_gc == 1);
  MUST(stats.external_bytes == 200 * MIB);
  MUST(stats.next_gc >= 400 * MIB); // both were there when the marking was over
}

START_TEST(in_a_stopped_hook_it_only_counts) {
  child c;
  in_child(&c, 60, collect_with_adding_hooks, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- Pace and limits ------------------------------------------------------------------------

START_TEST(external_bytes_count_in_goal_limit_and_total) {
  init_with(OPTIONS(o.gc_percent = 100));
  note_cycles();
  uint64_t total = read_stats().total_bytes;
  tide_external_add(MB(100)); // above the first goal: collects
  ck_assert_uint_eq(read_stats().num_gc, 1);
  ck_assert_int_eq(last_cycle.cause, TIDE_CAUSE_GOAL);
  ck_assert_uint_eq(last_cycle.external_bytes, 100 * MIB);
  ck_assert_uint_ge(last_cycle.total_bytes, 100 * MIB);
  ck_assert_uint_ge(read_stats().next_gc, 200 * MIB);
  ck_assert_uint_ge(read_stats().total_bytes, total + 100 * MIB);
  ck_assert_int_eq(tide_memory_limit_set(MB(64)), INT64_MAX);
  ck_assert_uint_ge(read_stats().limit_overshoot_bytes, 36 * MIB);
  tide_external_add(64 << 10); // it looks at the limit so often
  ck_assert_int_eq(last_cycle.cause, TIDE_CAUSE_LIMIT);
  ck_assert_int_eq(tide_memory_limit_set(INT64_MAX), MB(64));
  tide_hard_limit_set(MB(110));
  ck_assert_ptr_null(tide_alloc(20 * MIB));
  tide_external_add(-MB(50));
  ck_assert_ptr_nonnull(tide_alloc(20 * MIB));
}
END_TEST

static void *add_without_heap(void *arg) {
  for (int i = 0; i < 100; i++) tide_external_add(MB(1));
  return NULL;
}

START_TEST(threads_that_do_not_use_the_heap_leave_the_collection_to_others) {
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, add_without_heap, NULL), 0);
  pthread_join(thread, NULL);
  tide_blocking(add_without_heap, NULL);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  ck_assert_uint_eq(external(), 200 * MIB);
  tide_external_add(1);
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

// ---- Memory given back ----------------------------------------------------------------------

// Outside bytes are no heap: what the heap keeps of its free memory for the next cycle does not
// depend on them, neither where it goes up and down nor where it has gone down for good.
START_TEST(free_memory_that_stays_is_for_the_heap_alone) {
  if (on_bdw("libgc decides what stays")) return;
  init_with(OPTIONS(o.gc_percent = -1));
  tide_external_add(MB(80));
  for (int i = 0; i < 8; i++) {
    make_garbage(100 * MIB, 8 * MIB);
    collect();
  }
  ck_assert_uint_lt(read_stats().heap_released, 30 * MIB);
  tide_external_add(MB(4096));
  tide_gc_percent_set(0); // the goal is what is live, outside bytes counted
  for (int i = 0; i < 5; i++) collect();
  ck_assert_uint_lt(read_stats().heap_idle - read_stats().heap_released, 10 * MIB);
}
END_TEST

// ---- Wrappers with finalizers ---------------------------------------------------------------

// Small objects, each of which keeps 1 MB outside alive. A hook at the cycle's end takes
// away what died, as finalizers do.
enum { WRAPPERS = 4000, KEPT = 20 };
static void *volatile kept[KEPT]; // static data: roots
static uintptr_t hidden[WRAPPERS];
static bool finalized[WRAPPERS];
static int made;

static void finalize(const tide_cycle *cycle, void *arg) {
  for (int i = 0; i < made; i++) {
    if (finalized[i] || is_alive(hidden[i])) continue;
    finalized[i] = true;
    tide_external_add(-MB(1));
  }
}

static NOINLINE void make_wrapper(int i, size_t bytes) {
  void *wrapper = tide_alloc(bytes);
  MUST(wrapper);
  kept[i % KEPT] = wrapper;
  hidden[i] = hide(wrapper);
  made = i + 1;
}

START_TEST(external_memory_freed_after_the_marking_stays_within_the_goal) {
  static const size_t bytes[] = {100, 16}; // of the latter many fit between two slow allocations
  init_with(OPTIONS(o.gc_percent = 100));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, finalize, NULL));
  uint64_t most = 0, late = 0;
  for (int i = 0; i < WRAPPERS; i++) {
    make_wrapper(i, bytes[_i]);
    clear_stack();
    tide_external_add(MB(1));
    uint64_t now = external();
    if (now > most) most = now;
    if (i >= WRAPPERS / 2 && now > late) late = now;
  }
  uint64_t collections = read_stats().num_gc;
  // Live are those kept and a few that stacks and registers still show.
  enum { LIVE = KEPT + 5, FLOOR = 4 };
  ck_assert_uint_le(most, (2 * LIVE + FLOOR) * MIB);
  ck_assert_uint_le(late, (2 * LIVE + FLOOR) * MIB);
  ck_assert_uint_le(collections, WRAPPERS / (KEPT - 3) + 10);
  ck_assert_uint_ge(collections, WRAPPERS / (LIVE + FLOOR + 10));
}
END_TEST

START_TEST(external_memory_stays_within_the_limit) {
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = MB(64)));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, finalize, NULL));
  uint64_t most = 0;
  for (int i = 0; i < WRAPPERS / 2; i++) {
    make_wrapper(i, 100);
    clear_stack();
    tide_external_add(MB(1));
    if (external() > most) most = external();
  }
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.num_gc, stats.num_limit_gc);
  if (!limit_was_kept()) return;
  ck_assert_uint_le(most, 64 * MIB);
  ck_assert_uint_le(stats.limit_overshoot_max_bytes, 64 * MIB / 20 + 2 * MIB);
  ck_assert_uint_le(stats.num_gc, WRAPPERS / 2 / 30);
  ck_assert_uint_ge(stats.num_gc, WRAPPERS / 2 / 50);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("external");
  TCase *sum = tcase_create("sum");
  tcase_set_timeout(sum, 60);
  tcase_add_test(sum, sum_is_exact_over_threads_of_every_kind);
  tcase_add_loop_test(sum, what_is_not_accepted_is_reported_once, 0, 3);
  tcase_add_test(sum, in_a_stopped_hook_it_only_counts);
  suite_add_tcase(suite, sum);
  TCase *pace = tcase_create("pace");
  tcase_set_timeout(pace, 60);
  tcase_add_test(pace, external_bytes_count_in_goal_limit_and_total);
  tcase_add_test(pace, free_memory_that_stays_is_for_the_heap_alone);
  tcase_add_test(pace, threads_that_do_not_use_the_heap_leave_the_collection_to_others);
  tcase_add_loop_test(pace, external_memory_freed_after_the_marking_stays_within_the_goal, 0, 2);
  tcase_add_test(pace, external_memory_stays_within_the_limit);
  suite_add_tcase(suite, pace);
  return run_suite(suite);
}
