// SPDX-License-Identifier: MIT
// A soft limit that cannot be held: the limiter in a running program, and what the program is told
// by its handler.
#include "limits_testing.h"

// ---- Churn ----------------------------------------------------------------------------------

enum { CHURNERS = 4 };
static AO_t time_is_over;
static pthread_t churners[CHURNERS];

static void *churn(void *arg) {
  while (!AO_load(&time_is_over)) make_garbage(256 << 10, 1024);
  return NULL;
}
static void start_churning(void) {
  for (int i = 0; i < CHURNERS; i++)
    ck_assert_int_eq(tide_thread_create(&churners[i], NULL, churn, NULL), 0);
}
static void end_churning(void) {
  AO_store(&time_is_over, 1);
  for (int i = 0; i < CHURNERS; i++) pthread_join(churners[i], NULL);
}

// Waits, and allocates meanwhile, for as long as a test may take.
static bool wait_for(const AO_t *word, AO_t at_least) {
  for (uint64_t end = now_ns() + UINT64_C(30000000000); now_ns() < end;) {
    if (AO_load(word) >= at_least) return true;
    make_garbage(64 << 10, 1024);
  }
  return false;
}

// ---- What handlers do -----------------------------------------------------------------------

static AO_t begun, ended; // calls with active true and false
static AO_t inside, at_a_time;
static tide_limit_state at_begin, at_end;
static AO_t failures;

// Everything that a program may do in it.
static void note_state(const tide_limit_state *state, void *arg) {
  if (AO_fetch_and_add1(&inside)) AO_store(&at_a_time, 2);
  *(state->active ? &at_begin : &at_end) = *state;
  uint64_t before = tide_gc_cycle();
  tide_collect();
  if (tide_gc_cycle() == before || !tide_alloc(1000) || !tide_alloc(100000) || arg != &begun)
    AO_fetch_and_add1(&failures);
  AO_fetch_and_sub1(&inside);
  AO_fetch_and_add1(state->active ? &begun : &ended);
}

static void count_only(const tide_limit_state *state, void *arg) {
  *(state->active ? &at_begin : &at_end) = *state;
  AO_fetch_and_add1(state->active ? &begun : &ended);
}

// ---- The leak -------------------------------------------------------------------------------

START_TEST(leak_into_the_limit_shares_the_time_and_is_told_once) {
  size_t limit = short_or_full(26, 256), from = short_or_full(20, 200), to = short_or_full(40, 400);
  size_t per_second = short_or_full(20, 4);
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = MB(limit)));
  ck_assert_ptr_null(tide_limit_handler_set(note_state, &begun));
  ck_assert(grow_list(&live_list, from * MIB));
  note_cycles();
  start_churning();
  for (size_t now = from; now < to; now++) {
    ck_assert(grow_list(&live_list, MIB));
    sleep_ms((unsigned)(1000 / per_second));
  }
  sleep_ms(1000);
  tide_memstats stats = read_stats();
  ck_assert(wait_for(&begun, 1));
  ck_assert_uint_eq(AO_load(&ended), 0);
  ck_assert(stats.limiter_active);
  ck_assert_uint_eq(stats.limiter_episodes, 1);
  ck_assert_uint_ge(stats.limit_overshoot_max_bytes, (to - limit) * MIB);
  ck_assert_uint_eq(stats.num_gc - stats.num_forced_gc, stats.num_limit_gc);

  live_list = NULL; // the leak has been found
  bool told = wait_for(&ended, 1);
  end_churning();
  ck_assert(told);
  ck_assert_uint_eq(AO_load(&begun), 1);
  ck_assert_uint_eq(AO_load(&ended), 1);
  ck_assert_uint_eq(AO_load(&failures), 0);
  ck_assert_uint_ne(AO_load(&at_a_time), 2);
  stats = read_stats();
  ck_assert(!stats.limiter_active);
  ck_assert_uint_eq(stats.limiter_episodes, 1);
  ck_assert_uint_lt(stats.total_bytes, limit * MIB + limit * MIB / 20 + 2 * MIB);

  ck_assert(at_begin.active && !at_end.active);
  ck_assert_uint_eq(at_begin.episodes, 1);
  ck_assert_uint_eq(at_end.episodes, 1);
  ck_assert_int_eq(at_begin.limit_bytes, MB(limit));
  ck_assert_uint_gt(at_begin.total_bytes, (limit - 2) * MIB);
  assert_time_is_shared();
}
END_TEST

// ---- Episodes at will -----------------------------------------------------------------------

// With a limit of one byte each slow allocation wants to collect, and soon may not.
static bool provoke(int64_t limit) {
  tide_memory_limit_set(limit);
  return wait_for(&begun, AO_load(&begun) + 1);
}

START_TEST(handler_is_told_of_each_episode) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_limit_handler_set(note_state, &begun);
  ck_assert(grow_list(&live_list, 4 * MIB));
  for (AO_t i = 1; i <= 2; i++) {
    ck_assert(provoke(1));
    ck_assert_uint_eq(at_begin.episodes, i);
    tide_memory_limit_set(INT64_MAX);
    ck_assert(wait_for(&ended, i));
    ck_assert_uint_eq(at_end.episodes, i);
    ck_assert_int_eq(at_end.limit_bytes, INT64_MAX); // none by now
    ck_assert(!read_stats().limiter_active);
  }
  ck_assert_uint_eq(read_stats().limiter_episodes, 2);
  ck_assert_uint_eq(AO_load(&begun), 2);
  ck_assert_uint_eq(AO_load(&failures), 0);
}
END_TEST

START_TEST(episode_ends_also_if_the_limit_goes_before_it_is_told) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_limit_handler_set(count_only, NULL);
  ck_assert(grow_list(&live_list, 4 * MIB));
  tide_memory_limit_set(1);
  for (uint64_t end = now_ns() + UINT64_C(30000000000); !read_stats().limiter_active;) {
    ck_assert_uint_lt(now_ns(), end);
    sink = tide_alloc(100000); // the one that is held back does not tell of it: the next one does
  }
  ck_assert_uint_eq(AO_load(&begun), 0);
  tide_memory_limit_set(INT64_MAX);
  ck_assert(wait_for(&ended, 1));
  ck_assert_uint_eq(AO_load(&begun), 1);
  ck_assert(!read_stats().limiter_active);
}
END_TEST

START_TEST(nobody_has_to_be_told) {
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = 1));
  ck_assert(grow_list(&live_list, 4 * MIB));
  uint64_t end = now_ns() + UINT64_C(30000000000);
  while (!read_stats().limiter_episodes && now_ns() < end) make_garbage(64 << 10, 1024);
  ck_assert_uint_eq(read_stats().limiter_episodes, 1);
  tide_memory_limit_set(MB(64));
  while (read_stats().limiter_active && now_ns() < end) make_garbage(64 << 10, 1024);
  ck_assert(!read_stats().limiter_active);
  ck_assert_uint_eq(read_stats().limiter_episodes, 1);
}
END_TEST

static void raise_limit(const tide_limit_state *state, void *arg) {
  // So much that four threads at full speed leave a collection the smaller part of the time.
  if (state->active) tide_memory_limit_set((int64_t)state->total_bytes + MB(400));
  count_only(state, arg);
}

START_TEST(handler_may_raise_the_limit) {
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = MB(12)));
  tide_limit_handler_set(raise_limit, NULL);
  ck_assert(grow_list(&live_list, 16 * MIB));
  start_churning();
  bool told = wait_for(&begun, 1) && wait_for(&ended, 1);
  end_churning();
  ck_assert(told);
  ck_assert_int_ge(read_stats().memory_limit, MB(400));
  ck_assert_uint_eq(read_stats().limiter_episodes, 1);
}
END_TEST

static node *volatile cache; // static data: a root

static void drop_cache(const tide_limit_state *state, void *arg) {
  if (state->active) cache = NULL;
  count_only(state, arg);
}

START_TEST(handler_may_drop_what_the_program_can_do_without) {
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = MB(48)));
  tide_limit_handler_set(drop_cache, NULL);
  ck_assert(grow_list(&live_list, 4 * MIB));
  for (int i = 0; i < 10000 && !AO_load(&begun); i++) {
    ck_assert(grow_list(&cache, MIB / 4)); // by this thread alone, which calls the handler as well
    make_garbage(4 * MIB, 1024);
  }
  ck_assert(wait_for(&begun, 1) && wait_for(&ended, 1));
  ck_assert_uint_lt(read_stats().total_bytes, MB(48) + MB(48) / 20 + 2 * MIB);
  ck_assert_uint_eq(read_stats().limiter_episodes, 1);
}
END_TEST

// ---- Replacing it ---------------------------------------------------------------------------

static AO_t slow_calls, slow_inside;

static void be_slow(const tide_limit_state *state, void *arg) {
  AO_fetch_and_add1(&slow_calls);
  AO_fetch_and_add1(&slow_inside);
  sleep_ms(500);
  AO_fetch_and_sub1(&slow_inside);
}

START_TEST(handler_that_was_replaced_is_not_called_any_more) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_limit_handler_set(be_slow, NULL);
  ck_assert(grow_list(&live_list, 4 * MIB));
  tide_memory_limit_set(1);
  start_churning();
  for (uint64_t end = now_ns() + UINT64_C(30000000000); !AO_load(&slow_inside);) {
    ck_assert_uint_lt(now_ns(), end);
    sleep_ms(5); // this thread does not allocate: it must not become the one that calls
  }
  ck_assert_ptr_eq(tide_limit_handler_set(count_only, NULL), be_slow);
  ck_assert_uint_eq(AO_load(&slow_inside), 0); // it has waited
  AO_t calls = AO_load(&slow_calls);
  tide_memory_limit_set(INT64_MAX);
  bool told = wait_for(&ended, 1);
  end_churning();
  ck_assert(told);
  ck_assert_uint_eq(AO_load(&slow_calls), calls);
  ck_assert_ptr_eq(tide_limit_handler_set(NULL, NULL), count_only);
  ck_assert_ptr_null(tide_limit_handler_set(NULL, NULL));
}
END_TEST

static void replace_itself(const tide_limit_state *state, void *arg) {
  AO_fetch_and_add1(&slow_calls);
  if (tide_limit_handler_set(count_only, NULL) != replace_itself) AO_fetch_and_add1(&failures);
}

START_TEST(handler_may_replace_itself) {
  init_with(OPTIONS(o.gc_percent = -1, o.memory_limit = 1));
  tide_limit_handler_set(replace_itself, NULL);
  ck_assert(grow_list(&live_list, 4 * MIB));
  ck_assert(wait_for(&slow_calls, 1));
  tide_memory_limit_set(INT64_MAX);
  ck_assert(wait_for(&ended, 1));
  ck_assert_uint_eq(AO_load(&slow_calls), 1);
  ck_assert_uint_eq(AO_load(&failures), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("leak");
  TCase *leak = tcase_create("leak");
  tcase_set_timeout(leak, 300);
  tcase_add_test(leak, leak_into_the_limit_shares_the_time_and_is_told_once);
  suite_add_tcase(suite, leak);
  TCase *handler = tcase_create("handler");
  tcase_set_timeout(handler, 60);
  tcase_add_test(handler, handler_is_told_of_each_episode);
  tcase_add_test(handler, episode_ends_also_if_the_limit_goes_before_it_is_told);
  tcase_add_test(handler, nobody_has_to_be_told);
  tcase_add_test(handler, handler_may_raise_the_limit);
  tcase_add_test(handler, handler_may_drop_what_the_program_can_do_without);
  tcase_add_test(handler, handler_that_was_replaced_is_not_called_any_more);
  tcase_add_test(handler, handler_may_replace_itself);
  suite_add_tcase(suite, handler);
  return run_suite(suite);
}
