// SPDX-License-Identifier: MIT
// Listeners may do nearly anything: use the heap, add and remove listeners, make events, fork, and
// sit in a call while others come and go.
#define _GNU_SOURCE
#include "events_testing.h"

// ---- What they do ---------------------------------------------------------------------------

static seen other;

static bool in_call;

static void use_everything(const tide_event *event, void *arg) {
  MUST(!in_call);
  in_call = true;
  calls++;
  keep_in_memory(tide_alloc(1000));
  if (event->a == 1) {
    tide_collect();
    for (uint64_t i = 0; i < 10; i++) emit(100 + i, 0);
  }
  rt_events_drain(); // no recursion
  in_call = false;
}

START_TEST(a_listener_uses_the_heap) {
  init_with(OPTIONS(o.verify = 1));
  listen(use_everything, NULL);
  emit(1, 0);
  emit(2, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 2);
  rt_events_drain(); // what came up meanwhile; a collection's own events too
  ck_assert_int_ge(calls, 12);
  ck_assert_uint_eq(tide_events_lost(), 0);
}
END_TEST

static tide_event_listener *first, *second;

static void add_second(const tide_event *event, void *arg) {
  calls++;
  if (!second) second = tide_event_listener_add(remember, &all);
}

static void remove_both(const tide_event *event, void *arg) {
  calls++;
  tide_event_listener_remove(second);
  tide_event_listener_remove(first);
}

START_TEST(listeners_that_add_and_remove) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(add_second, NULL);
  emit(1, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 0); // the event was over before
  emit(2, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 1);
  tide_event_listener_remove(first);
  calls = 0;
  first = listen(remove_both, NULL);
  listen(remember, &other);
  for (uint64_t i = 0; i < 5; i++) emit(i, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 1);
  ck_assert_uint_eq(all.count, 2); // it was before the other on the list
  ck_assert_uint_eq(other.count, 5);
  tide_event_listener_remove(NULL);
  ck_assert_ptr_null(tide_event_listener_add(NULL, NULL));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "no function"));
}
END_TEST

static volatile int removed;

static void *emit_and_drain(void *arg) {
  for (int i = 0; i < 3; i++) emit(1, 0);
  rt_events_drain();
  rt_events_leave();
  return NULL;
}

static void *return_soon(void *arg) {
  sleep_ms(50);
  MUST(!is_set(&removed));
  set_flag(&may_return);
  return NULL;
}

START_TEST(removal_waits_for_the_call) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(hold, NULL);
  second = listen(remember, &all);
  pthread_t drainer, helper;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  tide_event_listener_remove(listen(remember, &other)); // others come and go meanwhile
  ck_assert_int_eq(pthread_create(&helper, NULL, return_soon, NULL), 0);
  tide_event_listener_remove(first);
  set_flag(&removed);
  pthread_join(helper, NULL);
  pthread_join(drainer, NULL);
  ck_assert_int_eq(calls, 1);
  ck_assert_uint_eq(all.count, 3);
  ck_assert_uint_eq(other.count, 0);
}
END_TEST

// Who finds another thread delivering does not wait, and need not come back.
START_TEST(nothing_stays_behind) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(hold, NULL);
  listen(remember, &all);
  pthread_t drainer;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  emit(7, 0);
  rt_events_drain();
  set_flag(&may_return);
  pthread_join(drainer, NULL);
  ck_assert_uint_eq(all.count, 4);
  ck_assert_uint_eq(all.events[3].a, 7);
}
END_TEST

static void collect_for_ever(const tide_event *event, void *arg) {
  if (event->kind == TIDE_EVENT_CYCLE) tide_collect(); // else each event would make a dozen
}

START_TEST(a_listener_that_makes_events_does_not_hold_its_thread) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(collect_for_ever, NULL);
  tide_collect();
  for (int i = 0; i < 10; i++) rt_events_drain();
}
END_TEST

// As slow as the others are: while it runs, another thread has collected, and asks.
static void wait_for_another(const tide_event *event, void *arg) {
  uint64_t cycle = tide_gc_cycle(), end = os_now_ns() + 2000000;
  while (tide_gc_cycle() == cycle && os_now_ns() < end) sched_yield();
}

enum { COLLECTORS = 3, TURNS = 4 };
static AO_t slowly_collected; // threads that have had their turns

static void *collect_in_company(void *arg) {
  for (int i = 0; i < TURNS; i++) tide_collect();
  AO_fetch_and_add1(&slowly_collected);
  while (AO_load(&slowly_collected) < COLLECTORS) tide_collect();
  return NULL;
}

START_TEST(a_thread_is_not_kept_to_deliver_what_others_do) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(wait_for_another, NULL);
  pthread_t threads[COLLECTORS];
  for (int i = 0; i < COLLECTORS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, collect_in_company, NULL), 0);
  for (int i = 0; i < COLLECTORS; i++) pthread_join(threads[i], NULL);
}
END_TEST

static tide_status in_hook_status;
static void *in_hook_listener;
static void use_events(const tide_cycle *cycle, void *arg) {
  in_hook_listener = tide_event_listener_add(remember, &all);
  in_hook_status = tide_trace_start("/dev/null");
  tide_events_lost();
}

static void stopped_hook_child(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_hook_add(TIDE_STW_START, use_events, NULL);
  in_hook_listener = &all;
  tide_collect();
  if (in_hook_listener || in_hook_status != TIDE_ERR_STATE) _exit(1);
}

START_TEST(refused_in_a_stopped_hook) {
  child c;
  in_child(&c, 20, stopped_hook_child, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 2);
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_event_listener_add: not allowed"));
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_trace_start: not allowed"));
}
END_TEST

// ---- Fork -----------------------------------------------------------------------------------

static pid_t forked = -1;
static void fork_once(const tide_event *event, void *arg) {
  remember(event, &other);
  if (forked == -1) forked = fork();
}

START_TEST(in_a_listener) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(fork_once, NULL);
  for (uint64_t i = 0; i < 1000; i++) emit(i, 0);
  rt_events_drain();
  if (forked == 0) {
    // Here the drain ended with the call that forked.
    if (other.count != 1) _exit(1);
    emit(5000, 0);
    rt_events_drain();
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (child_result(pid, 10)) _exit(2);
    _exit(other.count == 2 && other.events[1].a == 5000 ? 0 : 3);
  }
  ck_assert_int_eq(child_result(forked, 20), 0);
  ck_assert_uint_eq(other.count, 1000);
}
END_TEST

// The child has nobody who is in the listener, so it can be removed, and others called.
START_TEST(while_another_thread_is_in_a_listener) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(hold, NULL);
  pthread_t drainer;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  pthread_t helper;
  ck_assert_int_eq(pthread_create(&helper, NULL, return_soon, NULL), 0);
  pid_t pid = fork(); // waits for the call to end
  if (pid == 0) {
    tide_event_listener_remove(first);
    listen(remember, &all);
    emit(9, 0);
    rt_events_drain();
    _exit(all.count == 1 && all.events[0].a == 9 ? 0 : 1);
  }
  ck_assert_int_eq(child_result(pid, 20), 0);
  pthread_join(drainer, NULL);
  pthread_join(helper, NULL);
  ck_assert_int_eq(calls, 3);
}
END_TEST

// ---------------------------------------------------------------------------------------------

static Suite *suite(void) {
  Suite *s = suite_create("listeners");
  TCase *t = tcase_create("calls");
  limit_time(t, 60);
  tcase_add_test(t, a_listener_uses_the_heap);
  tcase_add_test(t, listeners_that_add_and_remove);
  tcase_add_test(t, removal_waits_for_the_call);
  tcase_add_test(t, nothing_stays_behind);
  tcase_add_test(t, a_listener_that_makes_events_does_not_hold_its_thread);
  if (!UNDER_TSAN) tcase_add_test(t, a_thread_is_not_kept_to_deliver_what_others_do);
  tcase_add_test(t, refused_in_a_stopped_hook);
  suite_add_tcase(s, t);

  t = tcase_create("fork");
  limit_time(t, 60);
  tcase_add_test(t, in_a_listener);
  tcase_add_test(t, while_another_thread_is_in_a_listener);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  no_threads_of_the_library();
  return run_suite(suite());
}
