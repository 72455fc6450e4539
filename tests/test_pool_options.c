// SPDX-License-Identifier: MIT
// What a pool can be asked for: reset and drop, limits on items and bytes, how long items stay, and
// that pools give way to the memory limit.
#include "pool_testing.h"
#include "rt_testing.h"

#include <atomic_ops.h>

static uint64_t dropped(tide_pool_stats s) {
  return s.dropped_idle + s.dropped_large + s.dropped_full + s.dropped_memory + s.dropped_chaos;
}

// gets = hits + misses, puts = hits + pooled + dropped_idle, created = held + pooled + dropped.
static void assert_adds_up(tide_pool *pool, uint64_t held) {
  tide_pool_stats s = stats_of(pool);
  uint64_t pooled = s.items_primary + s.items_victim;
  ck_assert_uint_eq(s.gets, hits(&s) + s.misses);
  ck_assert_uint_eq(s.puts, hits(&s) + pooled + s.dropped_idle);
  ck_assert_uint_eq(s.created, held + pooled + dropped(s));
}

// ---- Items that are malloc'd ----------------------------------------------------------------

typedef struct buffer {
  size_t bytes;
  int resets;
  bool pooled;
} buffer;

static AO_t made, freed;
static size_t next_bytes = 100;

static void *make(void *arg) {
  buffer *b = calloc(1, sizeof *b);
  b->bytes = next_bytes;
  AO_fetch_and_add1(&made);
  return b;
}
static void reset(void *item, void *arg) {
  ((buffer *)item)->resets++;
}
static void drop(void *item, void *arg) {
  AO_fetch_and_add1(&freed);
  free(item); // twice would be the end of the test
}
static size_t size(const void *item, void *arg) {
  return ((const buffer *)item)->bytes;
}

static tide_pool *pool_of(tide_pool_options o) {
  o.create = make;
  o.drop = drop;
  o.reset = reset;
  tide_pool *pool = tide_pool_create(&o);
  ck_assert_ptr_nonnull(pool);
  return pool;
}

// Gets so many at once, and puts them back.
static void use(tide_pool *pool, int items) {
  void *held[1000];
  for (int i = 0; i < items; i++) MUST(held[i] = tide_pool_get(pool));
  for (int i = 0; i < items; i++) tide_pool_put(pool, held[i]);
}

static void begin(void) {
  tide_gc_disable(); // no collections but those asked for
}

START_TEST(reset_runs_on_every_put) {
  tide_pool *pool = pool_of((tide_pool_options){0});
  buffer *b = tide_pool_get(pool);
  for (int i = 0; i < 5; i++) {
    tide_pool_put(pool, b);
    ck_assert_ptr_eq(tide_pool_get(pool), b);
    ck_assert_int_eq(b->resets, i + 1);
  }
  tide_pool_put(pool, b);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, 1);
}
END_TEST

START_TEST(drop_runs_once_for_each_item_that_is_lost) {
  tide_pool *pool = pool_of((tide_pool_options){0});
  use(pool, 100);
  tide_collect();
  ck_assert_uint_eq(freed, 0);
  assert_adds_up(pool, 0);
  tide_collect();
  ck_assert_uint_eq(freed, 100);
  assert_adds_up(pool, 0);
  use(pool, 10);
  tide_collect();
  use(pool, 3); // from the victim into the primary
  tide_collect();
  ck_assert_uint_eq(freed, 107);
  assert_adds_up(pool, 0);
  use(pool, 7);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, made);
}
END_TEST

START_TEST(destroy_drops_every_part) {
  tide_pool *pool = pool_of((tide_pool_options){.survive = 3});
  for (int i = 0; i < 3; i++) {
    void *held[40];
    for (int k = 0; k < 40; k++) held[k] = make(NULL); // not from the pool: all of them are new
    for (int k = 0; k < 40; k++) tide_pool_put(pool, held[k]);
    tide_collect();
  }
  use(pool, 5);
  ck_assert_uint_eq(freed, 0);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, made);
}
END_TEST

static tide_pool *reentered;
static void drop_and_use(void *item, void *arg) {
  drop(item, arg);
  static bool inside;
  static int times;
  if (inside || ++times > 200) return; // else it would go on for ever, in the last collection
  inside = true;
  use(reentered, 3);
  if (freed % 10 == 0) tide_collect();
  inside = false;
}

START_TEST(drop_may_use_the_pool) {
  reentered = tide_pool_create(&(tide_pool_options){.create = make, .drop = drop_and_use});
  for (int i = 0; i < 50; i++) {
    use(reentered, 20);
    tide_collect();
  }
  collect_times(4);
  ck_assert_uint_gt(freed, 0);
  assert_adds_up(reentered, 0);
  tide_pool_destroy(reentered);
  ck_assert_uint_eq(freed, made);
}
END_TEST

// ---- What drop must not upset ---------------------------------------------------------------

static tide_pool *nested[2];
static pid_t forked = -1;

// Of two sets that a collection has it drop, the first one's destroys the other's pool; there the
// process forks.
static void destroy_the_other_and_fork(void *item, void *arg) {
  int own = (int)(intptr_t)arg;
  tide_pool *other = nested[!own];
  drop(item, NULL);
  if (!nested[own]) { // it is being destroyed
    forked = fork();
    return;
  }
  nested[!own] = NULL;
  tide_pool_destroy(other);
}

START_TEST(drop_may_fork_inside_another_pools_drop) {
  for (int i = 0; i < 2; i++)
    nested[i] = tide_pool_create(
        &(tide_pool_options){.drop = destroy_the_other_and_fork, .arg = (void *)(intptr_t)i});
  for (int i = 0; i < 2; i++) tide_pool_put(nested[i], make(NULL));
  collect_times(2);
  ck_assert_uint_eq(freed, 2);
  tide_pool *outer = nested[0] ? nested[0] : nested[1];
  ck_assert_ptr_nonnull(outer);
  tide_pool_destroy(outer); // in the child too: nobody drops anything of it
  if (!forked) _exit(0);
  ck_assert_int_eq(child_result(forked, 10), 0);
}
END_TEST

static tide_pool *suicidal;
static void destroy_own_pool(void *item, void *arg) {
  tide_pool_destroy(suicidal);
  drop(item, NULL);
}

static void destroy_in_own_drop(void *arg) {
  suicidal = tide_pool_create(&(tide_pool_options){.drop = destroy_own_pool});
  tide_pool_put(suicidal, make(NULL));
  collect_times(2);
  MUST(freed == 1); // and it lives
  for (int i = 0; i < 3; i++) tide_pool_put(suicidal, make(NULL));
  tide_pool_destroy(suicidal);
  MUST(freed == made);
}

// After a collection and in destroy itself.
START_TEST(drop_may_not_destroy_its_own_pool) {
  child c;
  in_child(&c, 10, destroy_in_own_drop, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 4);
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_pool_destroy: not allowed in a drop"));
}
END_TEST

static AO_t refusals, asked;

static void drop_and_allocate(void *item, void *arg) {
  if (!tide_alloc((size_t)1 << 60)) AO_fetch_and_add1(&refusals);
  drop(item, arg);
}
static void *note_asking(size_t size_asked, void *arg) {
  AO_fetch_and_add1(&asked);
  return NULL;
}

// It might longjmp.
START_TEST(drop_does_not_ask_the_memory_handler) {
  tide_oom_handler_set(note_asking, NULL);
  tide_pool *pool = tide_pool_create(
      &(tide_pool_options){.create = make, .drop = drop_and_allocate, .max_items = 1});
  tide_pool_put(pool, make(NULL));
  tide_pool_put(pool, make(NULL));
  ck_assert_uint_eq(refusals, 1);
  collect_times(2);
  ck_assert_uint_eq(refusals, 2);
  tide_pool_put(pool, make(NULL));
  tide_pool_destroy(pool);
  ck_assert_uint_eq(refusals, 3);
  ck_assert_uint_eq(asked, 0);
  ck_assert_ptr_null(tide_alloc((size_t)1 << 60));
  ck_assert_uint_eq(asked, 1);
}
END_TEST

static void drop_where_one_may_be_cancelled(void *item, void *arg) {
  pthread_testcancel();
  drop(item, arg);
}
static void *destroy_when_cancelled(void *pool) {
  pthread_cancel(pthread_self());
  tide_pool_destroy(pool);
  pthread_testcancel();
  return pool;
}

// Each item is dropped, as close is a place where a thread may be cancelled.
START_TEST(a_thread_is_not_cancelled_in_destroy) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.drop = drop_where_one_may_be_cancelled});
  for (int i = 0; i < 20; i++) tide_pool_put(pool, make(NULL));
  pthread_t thread;
  void *result;
  create(&thread, destroy_when_cancelled, pool);
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, PTHREAD_CANCELED);
  ck_assert_uint_eq(freed, made);
}
END_TEST

// ---- More processors ------------------------------------------------------------------------

static void *put_one(void *pool) {
  tide_pool_put(pool, make(NULL));
  return NULL;
}

START_TEST(more_processors_drop_what_was_in_the_primary) {
  tide_procs_set(2);
  tide_pool *pool = pool_of((tide_pool_options){0});
  use(pool, 50);
  tide_procs_set(9);
  pthread_t threads[9]; // some of them on processors that there were none of
  for (int i = 0; i < 9; i++) create(&threads[i], put_one, pool);
  for (int i = 0; i < 9; i++) pthread_join(threads[i], NULL);
  ck_assert_uint_eq(freed, 0);
  collect_times(2);
  tide_pool_stats s = stats_of(pool);
  ck_assert_uint_eq(s.items_primary + s.items_victim, 0);
  ck_assert_uint_eq(freed, made);
  tide_pool_destroy(pool);
}
END_TEST

// ---- Limits ---------------------------------------------------------------------------------

START_TEST(larger_items_are_not_taken_in) {
  tide_pool *pool = pool_of((tide_pool_options){.size = size, .max_item_bytes = 100});
  use(pool, 10);
  ck_assert_uint_eq(stats_of(pool).items_primary, 10);
  ck_assert_uint_eq(stats_of(pool).bytes_primary, 1000);
  next_bytes = 101;
  use(pool, 13); // 10 that are there, and 3
  ck_assert_uint_eq(stats_of(pool).dropped_large, 3);
  ck_assert_uint_eq(freed, 3);
  assert_adds_up(pool, 0);
  collect_times(2);
  ck_assert_uint_eq(stats_of(pool).bytes_primary + stats_of(pool).bytes_victim, 0);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, made);
}
END_TEST

START_TEST(items_have_a_limit) {
  tide_pool *pool = pool_of((tide_pool_options){.max_items = 20});
  use(pool, 50);
  ck_assert_uint_eq(stats_of(pool).items_primary, 20);
  ck_assert_uint_eq(stats_of(pool).dropped_full, 30);
  tide_collect();
  use(pool, 5); // the victim's count as well
  void *more[30];
  for (int i = 0; i < 30; i++) tide_pool_put(pool, more[i] = make(NULL));
  tide_pool_stats s = stats_of(pool);
  ck_assert_uint_eq(s.items_primary + s.items_victim, 20);
  collect_times(2);
  use(pool, 50);
  ck_assert_uint_eq(stats_of(pool).items_primary, 20);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, made);
}
END_TEST

START_TEST(bytes_have_a_limit) {
  tide_pool *pool = pool_of((tide_pool_options){.size = size, .max_bytes = 1050});
  use(pool, 50);
  ck_assert_uint_eq(stats_of(pool).items_primary, 10);
  ck_assert_uint_eq(stats_of(pool).bytes_primary, 1000);
  next_bytes = 50;
  void *small = make(NULL);
  tide_pool_put(pool, small);
  ck_assert_uint_eq(stats_of(pool).bytes_primary, 1050);
  tide_pool_put(pool, make(NULL));
  ck_assert_uint_eq(stats_of(pool).bytes_primary, 1050);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, made);
}
END_TEST

static void *make_object(void *bytes) {
  return tide_alloc_leaf((size_t)(uintptr_t)bytes);
}

START_TEST(objects_of_the_heap_know_their_size) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){
      .create = make_object, .max_item_bytes = 4096, .arg = (void *)(uintptr_t)4096});
  use(pool, 10);
  ck_assert_uint_eq(stats_of(pool).bytes_primary, 40960);
  tide_pool_put(pool, tide_alloc_leaf(5000));
  ck_assert_uint_eq(stats_of(pool).dropped_large, 1);
}
END_TEST

enum { THREADS = 8 };
static tide_pool *shared;
static AO_t too_many;

static void *push_against_the_limit(void *arg) {
  uint64_t state = (uintptr_t)arg;
  void *held[10];
  for (int round = 0; round < 3000; round++) {
    int n = 1 + (int)random_below(&state, 10);
    for (int i = 0; i < n; i++) held[i] = tide_pool_get(shared);
    for (int i = 0; i < n; i++) tide_pool_put(shared, held[i]);
    if (round % 64) continue;
    tide_pool_stats s = stats_of(shared);
    if (s.items_primary + s.items_victim > 16 + THREADS) AO_fetch_and_add1(&too_many);
    if (round % 512 == 0) tide_collect();
  }
  return NULL;
}

START_TEST(limits_hold_with_many_threads) {
  shared = pool_of((tide_pool_options){.size = size, .max_items = 16, .max_bytes = 100000});
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    create(&threads[i], push_against_the_limit, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ck_assert_uint_eq(too_many, 0);
  tide_pool_stats s = stats_of(shared);
  ck_assert_uint_le(s.items_primary + s.items_victim, 16);
  ck_assert_uint_eq(s.bytes_primary + s.bytes_victim, 100 * (s.items_primary + s.items_victim));
  assert_adds_up(shared, 0);
  tide_pool_destroy(shared);
  ck_assert_uint_eq(freed, made);
}
END_TEST

// ---- How long items stay --------------------------------------------------------------------

static const int survivals[] = {TIDE_SURVIVE_NONE, 0, 1, 2, 5, 100, TIDE_SURVIVE_MAX};

START_TEST(items_survive_as_many_collections_as_asked_for) {
  int survive = survivals[_i];
  int outlived = survive == TIDE_SURVIVE_NONE ? 0 : survive ? survive : 1;
  tide_pool *pool = pool_of((tide_pool_options){.survive = survive});
  for (int wait = outlived > 1 ? outlived - 1 : 0; wait <= outlived + 1; wait++) {
    use(pool, 20);
    tide_pool_stats_reset(pool);
    collect_times(wait);
    tide_pool_stats s = stats_of(pool);
    ck_assert_uint_eq(s.items_primary + s.items_victim, wait <= outlived ? 20 : 0);
    use(pool, 20);
    s = stats_of(pool);
    ck_assert_uint_eq(hits(&s), wait <= outlived ? 20 : 0);
    int gap = wait < TIDE_POOL_GAPS ? wait : TIDE_POOL_GAPS - 1;
    if (wait) ck_assert_uint_eq(s.gaps[gap], 20);
    collect_times(outlived + 1);
  }
  ck_assert_uint_eq(freed, made);
  tide_pool_destroy(pool);
}
END_TEST

START_TEST(survive_out_of_range_is_refused) {
  static const int values[] = {-2, TIDE_SURVIVE_MAX + 1, INT32_MAX, INT32_MIN};
  ck_assert_ptr_null(tide_pool_create(&(tide_pool_options){.survive = values[_i]}));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "survive"));
}
END_TEST

START_TEST(idle_time_outlasts_collections) {
  const uint64_t ms = 1000000;
  tide_pool *pool = pool_of((tide_pool_options){.min_idle_ns = 200 * ms});
  use(pool, 30);
  uint64_t put_at = now_ns();
  while (now_ns() - put_at < 190 * ms) tide_collect();
  if (now_ns() - put_at < 200 * ms)
    ck_assert_uint_eq(stats_of(pool).items_victim + stats_of(pool).items_primary, 30);
  ck_assert_uint_gt(tide_gc_cycle(), 5); // far more, unless the machine is very busy
  while (now_ns() - put_at < 300 * ms) tide_collect();
  tide_collect();
  ck_assert_uint_eq(freed, 30);
  assert_adds_up(pool, 0);
  for (int i = 0; i < 20; i++) { // used all the time, it keeps what it has
    use(pool, 30);
    for (uint64_t from = now_ns(); now_ns() - from < 20 * ms;) tide_collect();
  }
  ck_assert_uint_eq(made, 60);
  tide_pool_destroy(pool);
  ck_assert_uint_eq(freed, 60);
}
END_TEST

START_TEST(both_may_be_asked_for) {
  tide_pool *pool = pool_of((tide_pool_options){.survive = 3, .min_idle_ns = 20000000});
  use(pool, 10);
  sleep_ms(40);
  collect_times(3); // long enough, but not often enough
  ck_assert_uint_eq(freed, 0);
  sleep_ms(40);
  collect_times(3);
  ck_assert_uint_eq(freed, 10);
  tide_pool_destroy(pool);
}
END_TEST

// ---- Near the memory limit ------------------------------------------------------------------

static void *volatile sink;

static void note_cause(const tide_cycle *cycle, void *arg) {
  ((uint64_t *)arg)[cycle->cause]++;
}

// A collection for the limit's sake treats every pool as one of the default kind.
START_TEST(pools_let_go_sooner_near_the_limit) {
  tide_gc_percent_set(-1);
  static uint64_t causes[TIDE_CAUSES];
  tide_hook_add(TIDE_CYCLE_END, note_cause, causes);
  tide_pool *lasting = pool_of((tide_pool_options){.survive = 100});
  tide_pool *slow = pool_of((tide_pool_options){.min_idle_ns = UINT64_C(3600000000000)});
  use(lasting, 10);
  use(slow, 10);
  collect_times(5);
  ck_assert_uint_eq(freed, 0);
  tide_memstats stats = read_stats();
  tide_memory_limit_set((int64_t)stats.total_bytes + 4 * (int64_t)MIB);
  tide_gc_enable();
  while (causes[TIDE_CAUSE_LIMIT] < 2) sink = tide_alloc_leaf(4096);
  tide_gc_disable();
  ck_assert_uint_eq(freed, 20);
  tide_memory_limit_set(INT64_MAX);
  tide_pool_destroy(lasting);
  tide_pool_destroy(slow);
}
END_TEST

static AO_t is_active;
static void note_active(const tide_limit_state *state, void *arg) {
  AO_store(&is_active, state->active);
}

START_TEST(an_active_limiter_empties_them) {
  tide_gc_percent_set(-1);
  tide_limit_handler_set(note_active, NULL);
  static void *ballast[64];
  for (int i = 0; i < 64; i++) ballast[i] = tide_alloc(MIB);
  tide_memory_limit_set(16 * (int64_t)MIB);
  tide_pool *pool = pool_of((tide_pool_options){.survive = 100});
  tide_gc_enable();
  while (!AO_load(&is_active)) sink = tide_alloc_leaf(4096);
  tide_gc_disable();
  use(pool, 10);
  AO_t before = freed;
  tide_collect();
  ck_assert_uint_eq(freed, before + 10);
  tide_memory_limit_set(INT64_MAX);
  ck_assert_ptr_nonnull(ballast[63]);
  tide_pool_destroy(pool);
}
END_TEST

int main(void) {
  setenv("TIDE_GCINTERVAL", "0", 1);
  Suite *suite = suite_create("pool options");
  TCase *functions = tcase_create("functions");
  tcase_add_checked_fixture(functions, begin, NULL);
  tcase_add_test(functions, reset_runs_on_every_put);
  tcase_add_test(functions, drop_runs_once_for_each_item_that_is_lost);
  tcase_add_test(functions, destroy_drops_every_part);
  tcase_add_test(functions, drop_may_use_the_pool);
  tcase_add_test(functions, drop_does_not_ask_the_memory_handler);
  tcase_add_test(functions, drop_may_not_destroy_its_own_pool);
  if (!UNDER_TSAN) tcase_add_test(functions, drop_may_fork_inside_another_pools_drop);
  // AddressSanitizer leaves the frames that a cancellation unwinds forbidden, and trips over them.
  if (!UNDER_ASAN) tcase_add_test(functions, a_thread_is_not_cancelled_in_destroy);
  tcase_add_test(functions, more_processors_drop_what_was_in_the_primary);
  suite_add_tcase(suite, functions);
  TCase *limits = tcase_create("limits");
  tcase_add_checked_fixture(limits, begin, NULL);
  limit_time(limits, 60);
  tcase_add_test(limits, larger_items_are_not_taken_in);
  tcase_add_test(limits, items_have_a_limit);
  tcase_add_test(limits, bytes_have_a_limit);
  tcase_add_test(limits, objects_of_the_heap_know_their_size);
  tcase_add_test(limits, limits_hold_with_many_threads);
  suite_add_tcase(suite, limits);
  TCase *staying = tcase_create("staying");
  tcase_add_checked_fixture(staying, begin, NULL);
  limit_time(staying, 60);
  tcase_add_loop_test(staying, items_survive_as_many_collections_as_asked_for, 0,
                      LENGTH(survivals));
  tcase_add_loop_test(staying, survive_out_of_range_is_refused, 0, 4);
  tcase_add_test(staying, idle_time_outlasts_collections);
  tcase_add_test(staying, both_may_be_asked_for);
  suite_add_tcase(suite, staying);
  TCase *memory = tcase_create("memory");
  tcase_add_checked_fixture(memory, begin, NULL);
  limit_time(memory, 60);
  tcase_add_test(memory, pools_let_go_sooner_near_the_limit);
  tcase_add_test(memory, an_active_limiter_empties_them);
  suite_add_tcase(suite, memory);
  return run_suite(suite);
}
