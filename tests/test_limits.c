// SPDX-License-Identifier: MIT
// The memory limits in a running program: objects that do not fit, the hard limit, churn below and
// above the soft one, limits that change while the program runs.
#include "limits_testing.h"

static tide_options limited(int64_t percent, int64_t bytes) {
  return OPTIONS(o.gc_percent = percent, o.memory_limit = bytes);
}

// ---- One object that does not fit -----------------------------------------------------------

static const size_t huge_bytes = 1900 * MIB;

START_TEST(object_above_the_soft_limit_is_given_after_one_collection) {
  init_with(limited(100, MB(64)));
  note_cycles();
  void *huge = tide_alloc_leaf(huge_bytes); // nobody touches it
  tide_memstats stats = read_stats();
  ck_assert_ptr_nonnull(huge);
  ck_assert_uint_eq(stats.num_gc, 1);
  ck_assert_uint_eq(stats.num_limit_gc, 1);
  ck_assert_int_eq(last_cycle.cause, TIDE_CAUSE_LIMIT);
  ck_assert_int_eq(last_cycle.limit_bytes, MB(64));
  ck_assert_uint_lt(last_cycle.total_bytes, MB(64));
  ck_assert_uint_ge(stats.total_bytes, huge_bytes);
  ck_assert_uint_eq(stats.limit_overshoot_bytes, stats.total_bytes - MB(64));
  ck_assert_uint_ge(stats.limit_overshoot_max_bytes, huge_bytes - MB(64));
  tide_free(huge);
  tide_collect_and_release();
  stats = read_stats();
  ck_assert_uint_eq(stats.limit_overshoot_bytes, 0);
  ck_assert_uint_ge(stats.limit_overshoot_max_bytes, huge_bytes - MB(64));
  ck_assert_uint_eq(stats.limiter_episodes, 0);
}
END_TEST

static int asked;
static size_t asked_bytes;
static void *count_asked(size_t bytes, void *arg) {
  asked++;
  asked_bytes = bytes;
  return arg;
}

START_TEST(object_above_the_hard_limit_is_not_given) {
  init_with(limited(100, INT64_MAX));
  ck_assert_int_eq(tide_hard_limit_set(MB(64)), INT64_MAX);
  tide_oom_handler_set(count_asked, NULL);
  note_cycles();
  ck_assert_ptr_null(tide_alloc_leaf(huge_bytes));
  ck_assert_int_eq(asked, 1);
  ck_assert_uint_eq(asked_bytes, huge_bytes);
  ck_assert_uint_eq(read_stats().num_gc, 1);
  ck_assert_int_eq(last_cycle.cause, TIDE_CAUSE_MEMORY);
  ck_assert(grow_list(&live_list, 8 * MIB)); // all else goes on
  void *volatile large = filled_leaf(10 * MIB);
  ck_assert_ptr_nonnull(large);
  ck_assert_int_eq(asked, 1);
  ck_assert_uint_le(read_stats().total_bytes, MB(64));
  tide_hard_limit_set(INT64_MAX);
  ck_assert_ptr_nonnull(tide_alloc_leaf(huge_bytes));
}
END_TEST

START_TEST(out_of_memory_handler_may_make_room_at_the_hard_limit) {
  init_with(OPTIONS(o.hard_limit = MB(16)));
  ck_assert_int_eq(read_stats().hard_limit, MB(16));
  void *spare = tide_alloc_uncollectable(100);
  tide_oom_handler_set(count_asked, spare);
  ck_assert_ptr_eq(tide_alloc_leaf(20 * MIB), spare);
  ck_assert_int_eq(asked, 1);
}
END_TEST

// ---- The hard limit -------------------------------------------------------------------------

START_TEST(hard_limit_below_what_is_there_leaves_that_alone) {
  static const int64_t limits[] = {0, 1, MB(4)};
  init_with(limited(100, INT64_MAX));
  ck_assert(grow_list(&live_list, 16 * MIB));
  void *volatile large = filled_leaf(MIB);
  ck_assert_int_eq(tide_hard_limit_set(limits[_i]), INT64_MAX);
  ck_assert_int_eq(tide_hard_limit_set(-1), limits[_i]);
  ck_assert_ptr_null(tide_alloc(100000));
  ck_assert_ptr_null(tide_alloc_aligned(4096, 8192, TIDE_LEAF)); // a class that has no block
  ck_assert_ptr_null(tide_realloc(large, 3 * MIB));
  ck_assert(is_filled(large, 7, MIB));
  ck_assert_uint_eq(tide_size(large), MIB);
  ck_assert_ptr_eq(tide_realloc(large, MIB / 2), large); // smaller is no question of the limit
  size_t nodes = 0;
  for (const node *n = live_list; n; n = n->next) nodes++;
  ck_assert_uint_eq(nodes, 16 * MIB / sizeof(node));
  ck_assert_int_eq(tide_hard_limit_set(INT64_MAX), limits[_i]);
  ck_assert_ptr_nonnull(tide_alloc(100000));
  ck_assert_ptr_nonnull(tide_realloc(large, 3 * MIB));
}
END_TEST

enum { FILLERS = 4 };
static node *volatile filled[FILLERS]; // static data: roots
static pthread_barrier_t all_full, may_go_on;
static AO_t fillers_left;

static void *fill_up(void *arg) {
  node *volatile *list = arg;
  while (grow_list(list, 100 << 10)) continue;
  AO_fetch_and_sub1(&fillers_left);
  pthread_barrier_wait(&all_full);
  pthread_barrier_wait(&may_go_on);
  return (void *)(uintptr_t)grow_list(list, MIB);
}

// What a register of some thread still refers to keeps one node then, not the rest of its list.
static void take_apart(node *n) {
  while (n) {
    node *next = n->next;
    n->next = NULL;
    n = next;
  }
}

START_TEST(memory_is_never_above_the_hard_limit) {
  static const size_t limits[] = {16 * MIB, 40 * MIB};
  init_with(OPTIONS(o.gc_percent = 100, o.hard_limit = (int64_t)limits[_i]));
  pthread_barrier_init(&all_full, NULL, FILLERS + 1);
  pthread_barrier_init(&may_go_on, NULL, FILLERS + 1);
  AO_store(&fillers_left, FILLERS);
  pthread_t threads[FILLERS];
  for (int i = 0; i < FILLERS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, fill_up, (void *)&filled[i]), 0);
  size_t peak = 0;
  while (AO_load(&fillers_left)) {
    size_t total = read_stats().total_bytes;
    if (total > peak) peak = total;
  }
  pthread_barrier_wait(&all_full);
  size_t more = on_bdw("the mark stack grows whatever the limit is") ? MIB : 0;
  ck_assert_uint_le(peak, limits[_i] + more);
  ck_assert_uint_ge(read_stats().heap_alloc, limits[_i] / 4 * 3);
  ck_assert_ptr_null(tide_alloc(MIB));
  for (int i = 0; i < FILLERS; i++) {
    take_apart(filled[i]);
    filled[i] = NULL;
  }
  collect();
  pthread_barrier_wait(&may_go_on);
  for (int i = 0; i < FILLERS; i++) {
    void *usable;
    pthread_join(threads[i], &usable);
    ck_assert_ptr_nonnull(usable);
  }
  ck_assert_ptr_nonnull(tide_alloc(MIB));
}
END_TEST

// Of 64 nodes one stays, so that blocks stay and most of their pages can go.
static NOINLINE void thin_out(void) {
  size_t i = 0;
  for (node *n = live_list; n; n = n->next)
    while (n->next && ++i % 64) n->next = n->next->next;
}

START_TEST(pages_given_back_inside_blocks_count_when_they_are_used_again) {
  init_with(OPTIONS(o.gc_percent = 100));
  ck_assert(grow_list(&live_list, 40 * MIB));
  thin_out();
  collect();
  tide_collect_and_release();
  uint64_t total = read_stats().total_bytes, most = total + 8 * MIB;
  ck_assert_uint_lt(total, 10 * MIB);
  tide_hard_limit_set((int64_t)most);
  while (grow_list(&live_list, 100 << 10)) MUST(read_stats().total_bytes <= most);
  ck_assert_uint_le(read_stats().total_bytes, most);
  ck_assert_uint_ge(read_stats().total_bytes, most - MIB);
  live_list = NULL;
  collect();
  ck_assert(grow_list(&live_list, 4 * MIB));
}
END_TEST

START_TEST(realloc_grows_up_to_the_hard_limit) {
  static const tide_kind kinds[] = {TIDE_SCANNED, TIDE_LEAF, TIDE_UNCOLLECTABLE};
  init_with(OPTIONS(o.hard_limit = MB(64)));
  size_t bytes = 64 << 10;
  char *object = tide_alloc_aligned(16, bytes, kinds[_i]);
  memset(object, 7, bytes);
  for (char *grown; (grown = tide_realloc(object, bytes + 100000)); bytes += 100000) {
    object = grown;
    memset(object + bytes, 7, 100000);
  }
  ck_assert_uint_ge(bytes, 20 * MIB); // it may have to be moved, and is there twice then
  ck_assert_uint_le(bytes, 64 * MIB);
  ck_assert_uint_le(read_stats().total_bytes, MB(64));
  ck_assert(is_filled(object, 7, bytes));
  tide_free(object);
  bool scattered = on_bdw("free parts of its heap need not be neighbours");
  ck_assert_ptr_nonnull(tide_alloc((scattered ? 8 : 50) * MIB));
}
END_TEST

// ---- Churn under the soft limit -------------------------------------------------------------

// What memory may come to under a soft limit.
static size_t with_tolerance(size_t limit) {
  return limit + limit / 20 + 2 * MIB;
}

START_TEST(churn_of_large_objects_stays_within_the_limit) {
  static const int percents[] = {100, 1000, -1};
  size_t before = resident_bytes(), most = 0, resident = 0;
  init_with(limited(percents[_i], MB(64)));
  note_cycles();
  for (int i = 0; i < 60; i++) {
    sink = filled_leaf(10 * MIB);
    ck_assert_ptr_nonnull(sink);
    size_t total = read_stats().total_bytes, now = resident_bytes();
    if (total > most) most = total;
    if (now > resident) resident = now;
  }
  if (!limit_was_kept()) return;
  ck_assert_uint_le(most, with_tolerance(64 * MIB));
  if (!UNDER_ASAN) ck_assert_uint_le(resident - before, with_tolerance(64 * MIB));
  if (percents[_i] < 0) ck_assert_uint_eq(cycles_by_cause[TIDE_CAUSE_GOAL], 0);
  if (percents[_i] < 0) ck_assert_uint_ge(cycles_by_cause[TIDE_CAUSE_LIMIT], 60 * 10 / 64);
  ck_assert_uint_le(read_stats().num_gc, 60);
}
END_TEST

START_TEST(live_memory_near_the_limit_leaves_room_for_churn) {
  size_t limit = short_or_full(64, 640) * MIB, live = short_or_full(54, 540) * MIB;
  size_t each = short_or_full(1, 10) * MIB, before = resident_bytes(), resident = 0;
  init_with(limited(100, (int64_t)limit));
  void *volatile kept = filled_leaf(live);
  for (int i = 0; i < 1000; i++) {
    sink = filled_leaf(each);
    ck_assert_ptr_nonnull(sink);
    size_t now = resident_bytes();
    if (now > resident) resident = now;
  }
  ck_assert(is_filled(kept, 7, live));
  if (!limit_was_kept()) return;
  if (!UNDER_ASAN) ck_assert_uint_le(resident - before, with_tolerance(limit));
  ck_assert_uint_le(read_stats().limit_overshoot_max_bytes, limit / 20 + 2 * MIB);
}
END_TEST

START_TEST(limit_alone_collects_when_percent_is_off) {
  init_with(limited(-1, MB(32)));
  note_cycles();
  ck_assert(grow_list(&live_list, 8 * MIB));
  make_garbage(200 * MIB, 1024);
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.num_gc, stats.num_limit_gc);
  ck_assert_uint_eq(stats.num_gc, cycles_by_cause[TIDE_CAUSE_LIMIT]);
  ck_assert_uint_gt(stats.num_gc, 0);
  ck_assert_int_eq(stats.gc_percent, -1);
  if (!limit_was_kept()) return;
  ck_assert_uint_ge(stats.num_gc, 200 / 32);
  if (!UNDER_ASAN) ck_assert_uint_le(stats.num_gc, 200 / 12); // 8 live, and what lies beside
  ck_assert_uint_le(stats.limit_overshoot_max_bytes, 32 * MIB / 20 + 2 * MIB);
}
END_TEST

START_TEST(free_memory_goes_back_before_more_is_taken) {
  init_with(limited(100, MB(64)));
  make_garbage(50 * MIB, 50 * MIB); // 50 MB that fits as one
  collect();
  ck_assert_uint_lt(read_stats().heap_alloc, MIB);
  ck_assert(grow_list(&live_list, 20 * MIB));
  collect();
  live_list = NULL;
  collect();
  collect();
  sink = filled_leaf(55 * MIB); // has no room but where the others were
  ck_assert_ptr_nonnull(sink);
  if (!limit_was_kept()) return;
  ck_assert_uint_le(read_stats().limit_overshoot_max_bytes, 64 * MIB / 20 + 2 * MIB);
}
END_TEST

// ---- While collections are disabled ---------------------------------------------------------

START_TEST(nothing_collects_for_the_limit_while_disabled) {
  init_with(limited(100, MB(16)));
  tide_gc_disable();
  ck_assert_uint_eq(read_stats().disable_depth, 1);
  make_garbage(40 * MIB, 1024);
  ck_assert_ptr_nonnull(tide_alloc_leaf(40 * MIB));
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.num_gc, 0);
  ck_assert_uint_ge(stats.limit_overshoot_bytes, 64 * MIB);
  ck_assert_uint_ge(stats.limit_overshoot_max_bytes, stats.limit_overshoot_bytes);
  tide_collect();
  ck_assert_uint_eq(read_stats().num_gc, 1);
  tide_gc_disable();
  ck_assert_uint_eq(read_stats().disable_depth, 2);
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  ck_assert_int_eq(tide_gc_enable(), TIDE_ERR_STATE);
  ck_assert_uint_eq(read_stats().disable_depth, 0);
  make_garbage(20 * MIB, 1024);
  ck_assert_uint_gt(read_stats().num_gc, 1);
}
END_TEST

static void collect_disabled(void *arg) {
  init_with(OPTIONS(o.gctrace = 1, o.memory_limit = MB(32)));
  tide_collect();
  tide_gc_disable();
  tide_gc_disable();
  tide_collect();
}

START_TEST(trace_line_tells_how_often_collections_are_disabled) {
  child c;
  in_child(&c, 60, collect_disabled, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 2);
  const char *second = strchr(c.errors, '\n');
  ck_assert_ptr_nonnull(strstr(c.errors, "32.0 MB limit"));
  ck_assert_ptr_nonnull(strstr(second, "disabled 2"));
  ck_assert_ptr_eq(strstr(c.errors, "disabled"), strstr(second, "disabled")); // not in the first
}
END_TEST

// ---- Limits that change ---------------------------------------------------------------------

START_TEST(limits_act_at_once_and_tell_the_old_one) {
  init_with(limited(100, INT64_MAX));
  ck_assert(grow_list(&live_list, 20 * MIB));
  tide_collect();
  uint64_t goal = read_stats().next_gc, before = read_stats().num_gc;
  ck_assert_uint_ge(goal, 40 * MIB);
  ck_assert_int_eq(tide_memory_limit_set(MB(32)), INT64_MAX);
  ck_assert_uint_lt(read_stats().next_gc, 32 * MIB);
  ck_assert_uint_gt(read_stats().next_gc, 25 * MIB);
  ck_assert_int_eq(read_stats().memory_limit, MB(32));
  ck_assert_int_eq(tide_memory_limit_set(-1), MB(32));
  ck_assert_int_eq(tide_memory_limit_set(INT64_MIN), MB(32));
  ck_assert_int_eq(tide_memory_limit_set(0), MB(32));
  uint64_t live = read_stats().heap_alloc;
  ck_assert_uint_ge(live, 20 * MIB);
  ck_assert_uint_ge(read_stats().next_gc, live); // never below that
  ck_assert_uint_lt(read_stats().next_gc, live + MIB);
  ck_assert_int_eq(tide_memory_limit_set(INT64_MAX - 1), 0);
  ck_assert_uint_eq(read_stats().next_gc, goal);
  ck_assert_int_eq(tide_memory_limit_set(INT64_MAX), INT64_MAX - 1);
  ck_assert_uint_eq(read_stats().next_gc, goal);
  ck_assert_int_eq(tide_hard_limit_set(INT64_MIN), INT64_MAX);
  ck_assert_int_eq(tide_hard_limit_set(MB(500)), INT64_MAX);
  ck_assert_int_eq(tide_hard_limit_set(-2), MB(500));
  ck_assert_int_eq(read_stats().hard_limit, MB(500));
  ck_assert_uint_eq(read_stats().num_gc, before); // none of them collects
}
END_TEST

static AO_t time_is_over;
static const int64_t turns[] = {MB(20), 0, 1, MB(200), INT64_MAX};

static bool is_a_turn(int64_t limit) {
  for (size_t i = 0; i < LENGTH(turns); i++)
    if (turns[i] == limit) return true;
  return false;
}

static void *turn_the_limit(void *arg) {
  for (size_t i = (uintptr_t)arg; !AO_load(&time_is_over); i++) {
    MUST(is_a_turn(tide_memory_limit_set(turns[i % LENGTH(turns)])));
    MUST(is_a_turn(tide_memory_limit_set(-1)));
    make_garbage(MIB, 1024);
    MUST(tide_alloc(100000));
  }
  return NULL;
}

START_TEST(limit_that_several_threads_turn_starts_no_storm) {
  enum { THREADS = 4 };
  init_with(limited(-1, INT64_MAX));
  ck_assert(grow_list(&live_list, 40 * MIB)); // twice as much as the limit at times
  note_cycles();
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, turn_the_limit, (void *)i), 0);
  sleep_ms(2500);
  AO_store(&time_is_over, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ck_assert_uint_gt(cycles_by_cause[TIDE_CAUSE_LIMIT], 0);
  ck_assert_uint_eq(cycles_by_cause[TIDE_CAUSE_GOAL], 0);
  assert_time_is_shared();
  tide_memory_limit_set(INT64_MAX);
  uint64_t before = read_stats().num_gc;
  make_garbage(16 * MIB, 1024);
  ck_assert_uint_eq(read_stats().num_gc, before);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("limits");
  TCase *hard = tcase_create("hard");
  tcase_set_timeout(hard, 60);
  tcase_add_test(hard, object_above_the_soft_limit_is_given_after_one_collection);
  tcase_add_test(hard, object_above_the_hard_limit_is_not_given);
  tcase_add_test(hard, out_of_memory_handler_may_make_room_at_the_hard_limit);
  tcase_add_loop_test(hard, hard_limit_below_what_is_there_leaves_that_alone, 0, 3);
  tcase_add_loop_test(hard, memory_is_never_above_the_hard_limit, 0, 2);
  tcase_add_test(hard, pages_given_back_inside_blocks_count_when_they_are_used_again);
  tcase_add_loop_test(hard, realloc_grows_up_to_the_hard_limit, 0, 3);
  suite_add_tcase(suite, hard);
  TCase *soft = tcase_create("soft");
  tcase_set_timeout(soft, 300);
  tcase_add_loop_test(soft, churn_of_large_objects_stays_within_the_limit, 0, 3);
  tcase_add_test(soft, live_memory_near_the_limit_leaves_room_for_churn);
  tcase_add_test(soft, limit_alone_collects_when_percent_is_off);
  tcase_add_test(soft, free_memory_goes_back_before_more_is_taken);
  tcase_add_test(soft, nothing_collects_for_the_limit_while_disabled);
  tcase_add_test(soft, trace_line_tells_how_often_collections_are_disabled);
  suite_add_tcase(suite, soft);
  TCase *change = tcase_create("change");
  tcase_set_timeout(change, 60);
  tcase_add_test(change, limits_act_at_once_and_tell_the_old_one);
  tcase_add_test(change, limit_that_several_threads_turn_starts_no_storm);
  suite_add_tcase(suite, change);
  return run_suite(suite);
}
