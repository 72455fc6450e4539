// SPDX-License-Identifier: MIT
// Hooks: when they run, what they are told, and what they may do.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <sched.h>
#include <tidepool/pool.h>

static tide_hook *add(tide_hook_point point, tide_hook_fn fn, void *arg) {
  tide_hook *hook = tide_hook_add(point, fn, arg);
  ck_assert_ptr_nonnull(hook);
  return hook;
}

// ---- Order ----------------------------------------------------------------------------------

static int order[16];
static volatile int calls;

static void note(const tide_cycle *cycle, void *arg) {
  order[calls++ % 16] = (int)(intptr_t)arg;
}

START_TEST(order_of_points_and_of_adding) {
  init_verified();
  add(TIDE_CYCLE_END, note, (void *)5);
  add(TIDE_MARK_DONE, note, (void *)3);
  add(TIDE_STW_START, note, (void *)1);
  tide_hook *second = add(TIDE_STW_START, note, (void *)2);
  add(TIDE_MARK_DONE, note, (void *)4);
  add(TIDE_CYCLE_END, note, (void *)6);
  tide_collect();
  ck_assert_int_eq(calls, 6);
  for (int i = 0; i < 6; i++) ck_assert_int_eq(order[i], i + 1);

  tide_hook_remove(second);
  tide_hook_remove(NULL);
  calls = 0;
  tide_collect();
  const int without[] = {1, 3, 4, 5, 6};
  ck_assert_int_eq(calls, 5);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(order[i], without[i]);
}
END_TEST

START_TEST(bad_arguments) {
  init_verified();
  ck_assert_ptr_null(tide_hook_add(TIDE_HOOK_POINTS, note, NULL));
  ck_assert_ptr_null(tide_hook_add((tide_hook_point)-1, note, NULL));
  ck_assert_ptr_null(tide_hook_add(TIDE_STW_START, NULL, NULL));
  ck_assert_str_ne(tide_error_message(), "");
  tide_collect();
  ck_assert_int_eq(calls, 0);
}
END_TEST

static bool count_object(const tide_object *object, void *arg) {
  volatile int *objects = arg;
  *objects = *objects + 1;
  return true;
}

START_TEST(a_walk_is_no_cycle) {
  init_verified();
  for (int point = 0; point < TIDE_HOOK_POINTS; point++) add((tide_hook_point)point, note, NULL);
  void *kept = tide_alloc(16);
  volatile int objects = 0;
  tide_heap_walk(count_object, (void *)&objects);
  ck_assert_int_ge(objects, 1);
  ck_assert_int_eq(calls, 0);
  ck_assert_uint_eq(tide_gc_cycle(), 0);
  keep_in_memory(kept);
}
END_TEST

// ---- What hooks are told --------------------------------------------------------------------

static tide_cycle seen[TIDE_HOOK_POINTS];
static uint64_t entered_ns[TIDE_HOOK_POINTS];

static void look(const tide_cycle *cycle, void *arg) {
  int point = (int)(intptr_t)arg;
  entered_ns[point] = now_ns();
  seen[point] = *cycle;
  if (point == TIDE_CYCLE_END) return;
  while (now_ns() < entered_ns[point] + 3000000) continue; // 3 ms in each of the stopped hooks
}

static void add_lookers(void) {
  for (int point = 0; point < TIDE_HOOK_POINTS; point++)
    add((tide_hook_point)point, look, (void *)(intptr_t)point);
}

START_TEST(fields_at_each_point) {
  init_verified();
  add_lookers();
  void *kept = tide_alloc(1 << 20);
  tide_roots_add(&kept, &kept + 1);
  uint64_t before = tide_gc_cycle(), began = now_ns();
  tide_collect();
  uint64_t ended = now_ns();
  const tide_cycle *start = &seen[TIDE_STW_START], *done = &seen[TIDE_MARK_DONE],
                   *end = &seen[TIDE_CYCLE_END];

  ck_assert_uint_eq(start->number, before + 1);
  ck_assert_int_eq(start->cause, TIDE_CAUSE_FORCED);
  ck_assert_uint_ge(start->heap_start_bytes, 1 << 20);
  ck_assert_uint_ge(start->goal_bytes, 1 << 20);
  ck_assert_uint_ge(start->start_at_ns, began);
  ck_assert_uint_ge(start->stopped_at_ns, start->start_at_ns + start->stop_ns);
  ck_assert_uint_le(start->stopped_at_ns, entered_ns[TIDE_STW_START]);
  ck_assert_uint_eq(start->threads_stopped, 0);
  ck_assert_uint_eq(start->hooks_ns, 0);
  ck_assert_uint_eq(start->live_bytes | start->live_objects | start->mark_ns | start->end_ns |
                        start->pause_ns | start->next_goal_bytes,
                    0);

  ck_assert_uint_ge(done->live_bytes, 1 << 20);
  ck_assert_uint_ge(done->live_objects, 1);
  ck_assert_uint_gt(done->stack_bytes, 0);
  ck_assert_uint_gt(done->global_bytes, 0);
  ck_assert_uint_ge(done->hooks_ns, 3000000);
  ck_assert_uint_gt(done->mark_ns, 0);
  ck_assert_uint_eq(done->end_ns | done->pause_ns | done->next_goal_bytes, 0);

  ck_assert_uint_ge(end->end_ns, 3000000);
  ck_assert_uint_ge(end->next_goal_bytes, end->live_bytes);
  // The parts are the pause, and the pause is what a stopwatch says.
  uint64_t parts = end->stop_ns + end->hooks_ns + end->mark_ns + end->end_ns;
  ck_assert_uint_eq(parts, end->pause_ns);
  ck_assert_uint_ge(end->pause_ns, 6000000);
  ck_assert_uint_le(end->pause_ns + end->sweep_ns, ended - began);
  ck_assert_uint_le(end->stopped_at_ns - end->stop_ns + end->pause_ns, entered_ns[TIDE_CYCLE_END]);
  uint64_t hook_to_hook = entered_ns[TIDE_MARK_DONE] - entered_ns[TIDE_STW_START];
  ck_assert_uint_ge(hook_to_hook, end->mark_ns);
  ck_assert_uint_le(end->hooks_ns + end->mark_ns,
                    hook_to_hook + (entered_ns[TIDE_STW_START] - end->stopped_at_ns));

  // What was known once does not change.
  ck_assert_int_eq(memcmp(start, end, offsetof(tide_cycle, hooks_ns)), 0);
  ck_assert_int_eq(memcmp(done, end, offsetof(tide_cycle, end_ns)), 0);
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.pause_ns[(stats.num_gc + 255) % 256], end->pause_ns);
  ck_assert_uint_eq(stats.next_gc, end->next_goal_bytes);
  tide_roots_remove(&kept, &kept + 1);
}
END_TEST

START_TEST(numbers_follow_one_another) {
  init_verified();
  add_lookers();
  uint64_t last_start = 0;
  for (uint64_t n = 1; n <= 5; n++) {
    tide_collect();
    for (int point = 0; point < TIDE_HOOK_POINTS; point++) ck_assert_uint_eq(seen[point].number, n);
    ck_assert_uint_gt(seen[TIDE_CYCLE_END].start_at_ns, last_start);
    last_start = seen[TIDE_CYCLE_END].start_at_ns;
  }
  ck_assert_uint_eq(tide_gc_cycle(), 5);
}
END_TEST

static NOINLINE void make_garbage(size_t bytes) {
  for (size_t made = 0; made < bytes; made += 4096) keep_in_memory(tide_alloc(4096));
}

START_TEST(cause_goal) {
  init_verified();
  add_lookers();
  make_garbage(8 << 20);
  ck_assert_int_eq(seen[TIDE_CYCLE_END].cause, TIDE_CAUSE_GOAL);
  ck_assert_uint_ge(seen[TIDE_CYCLE_END].heap_start_bytes, seen[TIDE_CYCLE_END].goal_bytes);
  ck_assert_str_eq(tide_cause_string(TIDE_CAUSE_GOAL), "goal");
}
END_TEST

START_TEST(cause_stress) {
  init_with(OPTIONS(o.verify = 1, o.stress = 50));
  add_lookers();
  make_garbage(4096 * 200);
  ck_assert_int_eq(seen[TIDE_CYCLE_END].cause, TIDE_CAUSE_STRESS);
  ck_assert_uint_ge(seen[TIDE_CYCLE_END].number, 2);
}
END_TEST

START_TEST(no_goal) {
  init_with(OPTIONS(o.verify = 1, o.gc_percent = -1));
  add_lookers();
  make_garbage(8 << 20);
  ck_assert_uint_eq(tide_gc_cycle(), 0);
  tide_collect();
  ck_assert_uint_eq(seen[TIDE_CYCLE_END].goal_bytes, UINT64_MAX);
  ck_assert_uint_eq(seen[TIDE_CYCLE_END].next_goal_bytes, UINT64_MAX);
}
END_TEST

static void *wait_blocked(void *flag) {
  return tide_blocking(wait_for_flag, flag);
}

START_TEST(threads_stopped) {
  init_verified();
  add_lookers();
  volatile int go = 0;
  pthread_t threads[5];
  for (int i = 0; i < 5; i++)
    ck_assert_int_eq(
        tide_thread_create(&threads[i], NULL, i < 2 ? wait_blocked : wait_for_flag, (void *)&go),
        0);
  tide_collect();
  ck_assert_uint_eq(seen[TIDE_CYCLE_END].threads_stopped, 5);
  set_flag(&go);
  for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
  tide_collect();
  ck_assert_uint_eq(seen[TIDE_CYCLE_END].threads_stopped, 0);
}
END_TEST

// ---- What a hook drops ----------------------------------------------------------------------

static void *slots[GROUP];

static void drop_slots(const tide_cycle *cycle, void *arg) {
  for (int i = 0; i < GROUP; i++) slots[i] = NULL;
}

START_TEST(dropped_at_start_dies_at_once) {
  init_verified();
  group g;
  group_fill(&g, slots);
  tide_hook *hook = add(TIDE_STW_START, drop_slots, NULL);
  collect_clean();
  assert_group_gone(&g);
  tide_hook_remove(hook);
}
END_TEST

START_TEST(dropped_after_marking_dies_in_the_next) {
  init_verified();
  group g;
  group_fill(&g, slots);
  tide_hook *hook = add(TIDE_MARK_DONE, drop_slots, NULL);
  collect_clean();
  assert_group_lives(&g);
  collect_clean();
  assert_group_gone(&g);
  tide_hook_remove(hook);
}
END_TEST

// ---- Adding and removing --------------------------------------------------------------------

static void count(const tide_cycle *cycle, void *arg) {
  volatile int *counter = arg;
  *counter = *counter + 1;
}

static void *change_hooks(void *flag) {
  int counter = 0;
  while (!is_set(flag)) {
    tide_hook *hooks[6];
    for (int i = 0; i < 6; i++) hooks[i] = add((tide_hook_point)(i % 3), count, &counter);
    for (int i = 0; i < 6; i++) tide_hook_remove(hooks[(i * 5) % 6]);
  }
  return NULL;
}

START_TEST(changed_while_the_program_collects) {
  init_verified();
  volatile int done = 0, mine = 0;
  add(TIDE_CYCLE_END, count, (void *)&mine);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, change_hooks, (void *)&done), 0);
  int rounds = 0;
  for (uint64_t end = deadline_ns(1); now_ns() < end; rounds++) tide_collect();
  set_flag(&done);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  ck_assert_int_eq(mine, rounds);
}
END_TEST

static tide_hook *other;

static void change_others(const tide_cycle *cycle, void *arg) {
  if (other) {
    tide_hook_remove(other);
    other = NULL;
  } else {
    other = add(TIDE_CYCLE_END, note, arg);
  }
}

START_TEST(changed_by_an_end_hook) {
  init_verified();
  add(TIDE_CYCLE_END, change_others, NULL);
  for (int i = 0; i < 10; i++) tide_collect();
  ck_assert_int_ge(calls, 4); // added in every second cycle, and seen in that cycle or not
  ck_assert_int_le(calls, 10);
}
END_TEST

static volatile int in_slow_hook, left_slow_hook;

static void slow(const tide_cycle *cycle, void *arg) {
  set_flag(&in_slow_hook);
  sleep_ms(200);
  set_flag(&left_slow_hook);
}

static void *collect_once(void *arg) {
  tide_collect();
  return NULL;
}

START_TEST(removal_waits_for_a_running_hook) {
  init_verified();
  tide_hook *hook = add(TIDE_CYCLE_END, slow, NULL);
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, collect_once, NULL), 0);
  wait_until(&in_slow_hook);
  tide_hook_remove(hook);
  ck_assert(is_set(&left_slow_hook));
  pthread_join(thread, NULL);
}
END_TEST

START_TEST(ten_thousand_hooks) {
  init_verified();
  enum { HOOKS = 10000 };
  static tide_hook *hooks[TIDE_HOOK_POINTS][HOOKS];
  volatile int counter = 0;
  uint64_t began = now_ns();
  for (int i = 0; i < HOOKS; i++)
    for (int point = 0; point < TIDE_HOOK_POINTS; point++)
      hooks[point][i] = add((tide_hook_point)point, count, (void *)&counter);
  tide_collect();
  ck_assert_int_eq(counter, TIDE_HOOK_POINTS * HOOKS);
  for (int i = 0; i < HOOKS; i++)
    for (int point = 0; point < TIDE_HOOK_POINTS; point++)
      tide_hook_remove(hooks[point][i * 7919 % HOOKS]);
  ck_assert_uint_lt(now_ns() - began, 5000000000u);
  tide_collect();
  ck_assert_int_eq(counter, TIDE_HOOK_POINTS * HOOKS);
}
END_TEST

// ---- Forbidden calls ------------------------------------------------------------------------

static tide_hook *some_hook;
static tide_pool *some_pool;
static void *some_object;
static bool no_walk(const tide_object *object, void *arg) {
  return false;
}
static void *no_thread(void *arg) {
  return NULL;
}

static void call_alloc(void) {
  if (tide_alloc(16)) abort();
}
static void call_alloc_large(void) {
  if (tide_alloc_leaf(100000)) abort();
}
static void call_alloc_uncollectable(void) {
  if (tide_alloc_uncollectable(16)) abort();
}
static void call_alloc_aligned(void) {
  if (tide_alloc_aligned(64, 64, TIDE_SCANNED)) abort();
}
static void call_realloc(void) {
  if (tide_realloc(some_object, 1000)) abort();
}
static void call_free(void) {
  tide_free(some_object);
}
static void call_collect(void) {
  tide_collect();
}
static void call_release(void) {
  tide_collect_and_release();
}
static void call_walk(void) {
  tide_heap_walk(no_walk, NULL);
}
static void call_hook_add(void) {
  if (tide_hook_add(TIDE_CYCLE_END, note, NULL)) abort();
}
static void call_hook_remove(void) {
  tide_hook_remove(some_hook);
}
static void call_procs_set(void) {
  tide_procs_set(3);
}
static void call_memory_limit(void) {
  tide_memory_limit_set(INT64_MAX);
}
static void call_hard_limit(void) {
  tide_hard_limit_set(INT64_MAX);
}
static void call_percent(void) {
  tide_gc_percent_set(50);
}
static void call_min_heap(void) {
  tide_min_heap_set(1 << 20);
}
static void call_pool_get(void) {
  tide_pool_get(some_pool);
}
static void call_pool_put(void) {
  tide_pool_put(some_pool, &some_pool);
}
static void call_pool_create(void) {
  if (tide_pool_create(NULL)) abort();
}
static void call_unregister(void) {
  if (tide_thread_unregister() == TIDE_OK) abort();
}
static void call_roots_add(void) {
  if (tide_roots_add(&some_pool, &some_pool + 1) == TIDE_OK) abort();
}
static void call_roots_remove(void) {
  if (tide_roots_remove(&some_object, &some_object + 1) == TIDE_OK) abort();
}
static void call_thread_create(void) {
  pthread_t thread;
  if (tide_thread_create(&thread, NULL, no_thread, NULL) == 0) abort();
}

static const struct {
  const char *name;
  void (*call)(void);
  bool silent; // has a status, and need not write to stderr
} forbidden[] = {
    {"alloc", call_alloc, false},
    {"alloc_large", call_alloc_large, false},
    {"alloc_uncollectable", call_alloc_uncollectable, false},
    {"alloc_aligned", call_alloc_aligned, false},
    {"realloc", call_realloc, false},
    {"free", call_free, false},
    {"collect", call_collect, false},
    {"collect_and_release", call_release, false},
    {"heap_walk", call_walk, false},
    {"hook_add", call_hook_add, false},
    {"hook_remove", call_hook_remove, false},
    {"procs_set", call_procs_set, false},
    {"memory_limit_set", call_memory_limit, false},
    {"hard_limit_set", call_hard_limit, false},
    {"gc_percent_set", call_percent, false},
    {"min_heap_set", call_min_heap, false},
    {"pool_get", call_pool_get, false},
    {"pool_put", call_pool_put, false},
    {"pool_create", call_pool_create, false},
    {"thread_unregister", call_unregister, true},
    {"roots_add", call_roots_add, true},
    {"roots_remove", call_roots_remove, true},
    {"thread_create", call_thread_create, true},
};

static volatile int stopped_calls;

static void forbidden_hook(const tide_cycle *cycle, void *arg) {
  forbidden[(intptr_t)arg].call();
  stopped_calls++;
}

typedef struct forbidden_case {
  int number;
  tide_hook_point point;
} forbidden_case;

static void forbidden_child(void *argument) {
  const forbidden_case *c = argument;
  init_verified();
  // Everything is there before, so that each refusal is for the one reason.
  some_object = tide_alloc(16);
  some_pool = tide_pool_create(NULL);
  some_hook = add(TIDE_CYCLE_END, note, NULL);
  tide_roots_add(&some_object, &some_object + 1);
  int procs = tide_procs(), percent = tide_gc_percent_set(100);
  tide_hook *hook = add(c->point, forbidden_hook, (void *)(intptr_t)c->number);
  tide_collect();
  tide_hook_remove(hook);
  if (stopped_calls != 1 || tide_procs() != procs || tide_gc_percent_set(percent) != 100) _exit(2);
  // And afterwards all is as before.
  if (tide_size(some_object) < 16 || calls != 1 || !tide_alloc(16)) _exit(3);
  if (tide_roots_remove(&some_object, &some_object + 1) != TIDE_OK) _exit(4);
  tide_hook_remove(some_hook);
  tide_pool_destroy(some_pool);
  tide_collect();
}

START_TEST(forbidden_calls_are_refused) {
  for (int point = TIDE_STW_START; point <= TIDE_MARK_DONE; point++) {
    forbidden_case which = {_i, (tide_hook_point)point};
    child c;
    in_child(&c, 4, forbidden_child, &which);
    ck_assert_msg(!WIFSIGNALED(c.status) || WTERMSIG(c.status) != SIGALRM, "%s hangs",
                  forbidden[_i].name);
    assert_ended_well(&c);
    ck_assert_msg(forbidden[_i].silent || strstr(c.errors, "not allowed"), "%s: %s",
                  forbidden[_i].name, c.errors);
  }
}
END_TEST

static void allowed_hook(const tide_cycle *cycle, void *arg) {
  if (tide_gc_cycle() != cycle->number) abort();
}

START_TEST(allowed_calls) {
  init_verified();
  for (int point = 0; point < TIDE_HOOK_POINTS; point++)
    add((tide_hook_point)point, allowed_hook, NULL);
  tide_collect();
}
END_TEST

// ---- Hooks at the end -----------------------------------------------------------------------

static void allocate_much(const tide_cycle *cycle, void *arg) {
  calls++;
  for (int i = 0; i < 100; i++) keep_in_memory(tide_alloc(64));
}

START_TEST(allocation_at_the_end_under_stress) {
  init_with(OPTIONS(o.verify = 1, o.stress = 1));
  add(TIDE_CYCLE_END, allocate_much, NULL);
  make_garbage(4096 * 20);
  ck_assert_int_ge(calls, 10);
  ck_assert_uint_eq(tide_gc_cycle(), (unsigned)calls);
}
END_TEST

static void collect_again(const tide_cycle *cycle, void *arg) {
  calls++;
  tide_collect();
}

// A collection that a hook of this point makes does not call the hooks of this point.
START_TEST(collection_at_the_end) {
  init_verified();
  add(TIDE_CYCLE_END, collect_again, NULL);
  tide_collect();
  ck_assert_uint_eq(tide_gc_cycle(), 2);
  ck_assert_int_eq(calls, 1);
  tide_collect();
  ck_assert_uint_eq(tide_gc_cycle(), 4);
  ck_assert_int_eq(calls, 2);
  group g;
  void *kept[GROUP];
  group_fill(&g, kept);
  collect_clean();
  assert_group_lives(&g);
}
END_TEST

static void collect_always(const tide_cycle *cycle, void *arg) {
  calls++;
  tide_collect();
}

static void collect_always_child(void *arg) {
  init_verified();
  add(TIDE_CYCLE_END, collect_always, NULL);
  tide_collect();
  tide_collect();
}

// Asks for a collection after each collection, which must have an end.
START_TEST(collection_at_each_end) {
  child c;
  in_child(&c, 5, collect_always_child, NULL);
  assert_ended_well(&c);
}
END_TEST

START_TEST(end_hooks_in_several_threads) {
  init_verified();
  volatile int mine = 0;
  add(TIDE_CYCLE_END, allocate_much, NULL);
  add(TIDE_STW_START, count, (void *)&mine);
  collector c[3] = {{0}};
  for (int i = 0; i < 3; i++) collector_start(&c[i]);
  sleep_ms(500);
  for (int i = 0; i < 3; i++) collector_stop(&c[i]);
  ck_assert_uint_eq(tide_gc_cycle(), (unsigned)mine);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("hooks");
  TCase *t = tcase_create("calls");
  limit_time(t, 30);
  tcase_add_test(t, order_of_points_and_of_adding);
  tcase_add_test(t, bad_arguments);
  tcase_add_test(t, a_walk_is_no_cycle);
  tcase_add_test(t, fields_at_each_point);
  tcase_add_test(t, numbers_follow_one_another);
  tcase_add_test(t, cause_goal);
  tcase_add_test(t, cause_stress);
  tcase_add_test(t, no_goal);
  tcase_add_test(t, threads_stopped);
  tcase_add_test(t, dropped_at_start_dies_at_once);
  tcase_add_test(t, dropped_after_marking_dies_in_the_next);
  suite_add_tcase(s, t);

  t = tcase_create("changes");
  limit_time(t, 30);
  tcase_add_test(t, changed_while_the_program_collects);
  tcase_add_test(t, changed_by_an_end_hook);
  tcase_add_test(t, removal_waits_for_a_running_hook);
  tcase_add_test(t, ten_thousand_hooks);
  suite_add_tcase(s, t);

  t = tcase_create("forbidden");
  limit_time(t, 30);
  tcase_add_loop_test(t, forbidden_calls_are_refused, 0, LENGTH(forbidden));
  tcase_add_test(t, allowed_calls);
  suite_add_tcase(s, t);

  t = tcase_create("end");
  limit_time(t, 30);
  tcase_add_test(t, allocation_at_the_end_under_stress);
  tcase_add_test(t, collection_at_the_end);
  tcase_add_test(t, collection_at_each_end);
  tcase_add_test(t, end_hooks_in_several_threads);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  return run_suite(suite());
}
