// SPDX-License-Identifier: MIT
// Threads: how they come and go, at any moment of a collection and of the program's life.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <threads.h>

// ---- Coming and going -----------------------------------------------------------------------

static void *end_by_pthread_exit(void *arg) {
  use_heap();
  pthread_exit(arg);
}

static void *exit_now(void *arg) {
  pthread_exit(arg);
}

static void *end_inside_blocking(void *arg) {
  use_heap();
  return tide_blocking(exit_now, arg);
}

static void *wait_to_be_cancelled(void *arg) {
  while (arg != wait_to_be_cancelled) pause();
  return arg;
}

static void *be_cancelled(void *arg) {
  use_heap();
  return wait_to_be_cancelled(arg);
}

static void *be_cancelled_inside_blocking(void *arg) {
  use_heap();
  return tide_blocking(wait_to_be_cancelled, arg);
}

static void *register_first(void *arg) {
  MUST(tide_thread_register() == TIDE_OK);
  MUST(tide_thread_register() == TIDE_OK);
  use_heap();
  return arg;
}

static void *unregister_and_go(void *arg) {
  use_heap();
  MUST(tide_thread_unregister() == TIDE_OK);
  MUST(tide_thread_unregister() == TIDE_ERR_STATE);
  if ((intptr_t)arg & 1) use_heap(); // and back in
  return arg;
}

typedef struct way {
  void *(*fn)(void *);
  bool plain; // by pthread_create
  bool cancel, detach;
} way;

static const way ways[] = {
    {use_heap_main, false, false, false},
    {use_heap_main, true, false, false}, // registered by its first allocation
    {register_first, true, false, false},
    {use_heap_main, false, false, true},
    {use_heap_main, true, false, true},
    {end_by_pthread_exit, false, false, false},
    {end_by_pthread_exit, true, false, true},
    {end_inside_blocking, false, false, false},
    {be_cancelled, false, true, false},
    {be_cancelled, true, true, false},
    {be_cancelled_inside_blocking, false, true, false},
    {unregister_and_go, false, false, false},
    {unregister_and_go, true, false, false},
};

// AddressSanitizer takes the frames that a cancelled thread has left for ones in use.
static void live_and_die(const way *w, int number) {
  if (UNDER_ASAN && w->cancel) return;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (w->detach) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  void *arg = (void *)(intptr_t)number;
  int error;
  while ((error = w->plain ? pthread_create(&thread, &attributes, w->fn, arg)
                           : tide_thread_create(&thread, &attributes, w->fn, arg)) == EAGAIN)
    sleep_ms(1); // too many detached ones at a time
  MUST(error == 0);
  pthread_attr_destroy(&attributes);
  if (w->detach) return;
  if (w->cancel) pthread_cancel(thread);
  void *result;
  MUST(pthread_join(thread, &result) == 0);
  MUST(result == (w->cancel ? PTHREAD_CANCELED : arg));
}

START_TEST(each_way_while_the_world_stops) {
  init_verified();
  collector c = {.gap_us = 100};
  collector_start(&c);
  uint64_t end = deadline_ns(0.4);
  int lives = 0;
  for (; lives < 20 || (lives < 3000 && now_ns() < end); lives++) live_and_die(&ways[_i], lives);
  collector_stop(&c);
  tide_collect();
}
END_TEST

static void *many_lives(void *arg) {
  uint64_t end = deadline_ns(3);
  for (int i = 0; now_ns() < end; i++) live_and_die(&ways[i % LENGTH(ways)], i);
  return NULL;
}

START_TEST(all_ways_at_once) {
  init_verified();
  collector c = {.gap_us = 100};
  collector_start(&c);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) create(&threads[i], many_lives, NULL);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  collector_stop(&c);
}
END_TEST

// Thousands over time: records are used again.
START_TEST(thousands_of_threads) {
  init_verified();
  tide_memstats before = read_stats();
  for (int i = 0; i < 5000; i++) {
    live_and_die(&ways[i % 3], i);
    if (i % 50 == 0) tide_collect();
  }
  tide_memstats after = read_stats();
  ck_assert_uint_le(after.other_sys, before.other_sys + MIB);
}
END_TEST

START_TEST(objects_of_threads_that_ended) {
  init_verified();
  uint64_t left = 0;
  for (int i = 0; i < 200; i++) live_and_die(&ways[i % LENGTH(ways)], i);
  sleep_ms(50); // the detached ones
  collect_clean();
  left = read_stats().heap_objects;
  ck_assert_uint_le(left, 100);
}
END_TEST

START_TEST(c11_threads) {
  init_verified();
  collector c = {.gap_us = 100};
  collector_start(&c);
  for (int i = 0; i < 100; i++) {
    thrd_t thread;
    ck_assert_int_eq(thrd_create(&thread, (thrd_start_t)(void (*)(void))use_heap_main, NULL),
                     thrd_success);
    thrd_join(thread, NULL);
  }
  collector_stop(&c);
}
END_TEST

// ---- Destructors of thread-specific values --------------------------------------------------

static pthread_key_t early_key, late_key;
static __thread int destructor_calls;

static void allocating_destructor(void *value) {
  use_heap();
}

// As libraries do that want to be the last: sets its value again as often as it is called. In the
// last turn the thread has left the heap, and is refused it.
static void stubborn_destructor(void *value) {
  if (++destructor_calls < PTHREAD_DESTRUCTOR_ITERATIONS) {
    use_heap();
    pthread_setspecific(late_key, value);
  } else {
    MUST(!tide_alloc(16));
  }
}

static void *with_values(void *arg) {
  pthread_setspecific(early_key, &early_key);
  pthread_setspecific(late_key, &late_key);
  use_heap();
  return NULL;
}

static void check_destructors(void (*late)(void *)) {
  pthread_key_create(&early_key, allocating_destructor); // keys before and after the library's own
  init_verified();
  pthread_key_create(&late_key, late);
  collector c = {.gap_us = 100};
  collector_start(&c);
  for (int i = 0; i < 100; i++) {
    pthread_t thread;
    create(&thread, with_values, NULL);
    pthread_join(thread, NULL);
  }
  collector_stop(&c);
}

// Its first call of all comes when the library can no longer learn of its end.
static void late_first_call(void *value) {
  if (++destructor_calls < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific(late_key, value);
  else
    use_heap();
}

static void *with_a_value(void *arg) {
  pthread_setspecific(late_key, &late_key);
  return NULL;
}

START_TEST(first_call_in_the_last_turn_of_destructors) {
  init_verified();
  pthread_key_create(&late_key, late_first_call);
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, with_a_value, NULL), 0);
    pthread_join(thread, NULL);
    if (i % 3 == 0) tide_collect(); // one to three such threads are on the registry
    use_heap();
  }
}
END_TEST

// The same in the first thread: the kernel goes on taking signals for it.
static void *collect_after_first(void *first) {
  pthread_join(*(pthread_t *)first, NULL);
  for (int i = 0; i < 3; i++) {
    use_heap();
    tide_collect();
  }
  exit(0);
}

static void first_thread_calls_last(void *arg) {
  static pthread_t first, second;
  first = pthread_self();
  destructor_calls = 0;
  pthread_key_create(&late_key, late_first_call);
  pthread_setspecific(late_key, &late_key);
  MUST(pthread_create(&second, NULL, collect_after_first, &first) == 0);
  pthread_exit(NULL);
}

START_TEST(first_call_in_the_last_turn_of_the_first_thread) {
  child c;
  in_child(&c, 10, first_thread_calls_last, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

START_TEST(destructors_that_allocate) {
  check_destructors(allocating_destructor);
}
END_TEST
START_TEST(destructors_that_allocate_to_the_end) {
  check_destructors(stubborn_destructor);
}
END_TEST

// ---- Start and end of the program -----------------------------------------------------------

static void *work_for_a_while(void *arg) {
  sleep_ms(50); // main is gone by then
  for (int i = 0; i < 20; i++) {
    use_heap();
    tide_collect();
  }
  if (arg) exit(7);
  return NULL;
}

static void leave_main_child(void *arg) {
  if (on_bdw("libgc's markers keep a process that its first thread has left"))
    setenv("TIDE_MARKERS", "1", 1);
  init_verified();
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) create(&threads[i], work_for_a_while, i == 2 ? arg : NULL);
  pthread_exit(NULL);
}

START_TEST(main_leaves_first) {
  child c;
  in_child(&c, 15, leave_main_child, NULL);
  assert_ended_well(&c);
  in_child(&c, 15, leave_main_child, &c);
  ck_assert_msg(WIFEXITED(c.status) && WEXITSTATUS(c.status) == 7, "status %x: %s", c.status,
                c.errors);
}
END_TEST

static pthread_barrier_t barrier;

static void *first_allocation(void *arg) {
  pthread_barrier_wait(&barrier);
  use_heap();
  tide_collect();
  return NULL;
}

static void all_at_once_child(void *arg) {
  enum { THREADS = 16 };
  pthread_barrier_init(&barrier, NULL, THREADS);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, first_allocation, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  if (tide_gc_cycle() < THREADS) _exit(3);
}

START_TEST(sixteen_threads_initialise) {
  for (int i = 0; i < 20; i++) {
    child c;
    in_child(&c, 15, all_at_once_child, NULL);
    assert_ended_well(&c);
  }
}
END_TEST

static void *initialise(void *arg) {
  init_verified();
  use_heap();
  return NULL;
}

START_TEST(initialised_by_another_thread) {
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, initialise, NULL), 0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(tide_thread_register(), TIDE_OK);
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  pthread_barrier_init(&barrier, NULL, 1);
  create(&thread, first_allocation, NULL);
  pthread_join(thread, NULL);
  collect_clean();
  assert_group_lives(&g);
  forget(slots, GROUP);
  collect_clean();
  assert_group_gone(&g);
}
END_TEST

static void *made_by_constructor[GROUP];
static group constructor_group;

// Only in the test that asks for it: the library is not to be initialised in all of them.
static __attribute__((constructor)) void allocate_before_main(void) {
  if (getenv("TIDE_TEST_CONSTRUCTOR")) group_fill(&constructor_group, made_by_constructor);
}

static void use_heap_at_exit(void) {
  use_heap();
  tide_collect();
  if (group_alive(&constructor_group) != GROUP) _exit(5);
  static const char message[] = "at exit\n";
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(6);
}

static __attribute__((destructor)) void use_heap_after_exit(void) {
  if (getenv("TIDE_TEST_CONSTRUCTOR")) use_heap_at_exit();
}

static int constructor_main(void) {
  atexit(use_heap_at_exit);
  collector c = {.gap_us = 100}; // and does not stop
  collector_start(&c);
  return 0;
}

static void exec_self(void *arg) {
  setenv("TIDE_TEST_CONSTRUCTOR", "1", 1);
  execl("/proc/self/exe", "test_threads", NULL);
  _exit(9);
}

START_TEST(before_main_and_after_exit) {
  child c;
  in_child(&c, 15, exec_self, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "at exit\nat exit\n");
}
END_TEST

// ---- Small stacks ---------------------------------------------------------------------------

static void *collect_on_a_small_stack(void *arg) {
  void *slot[8];
  group g;
  for (int i = 0; i < 50; i++) {
    group_fill_some(&g, slot, 8);
    tide_collect();
    MUST(group_alive_of(&g, 8) == 8);
    keep_in_memory(tide_alloc(100000));
  }
  return NULL;
}

START_TEST(small_stacks) {
  init_verified();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ck_assert_int_eq(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN + 16384), 0);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], &attributes, collect_on_a_small_stack, NULL),
                     0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
END_TEST

// ---- Cancellation ---------------------------------------------------------------------------

static void *collect_when_cancelled(void *arg) {
  pthread_cancel(pthread_self()); // acted on at the next cancellation point
  tide_collect();
  pthread_testcancel();
  return arg;
}

// A thread that is to be cancelled must not go with the library's locks.
static void cancel_child(void *arg) {
  init_with(OPTIONS(o.verify = 1, o.gctrace = 1));
  pthread_t thread;
  create(&thread, collect_when_cancelled, NULL);
  void *result;
  pthread_join(thread, &result);
  if (result != PTHREAD_CANCELED) _exit(2);
  tide_collect();
}

START_TEST(cancelled_in_a_collection) {
  child c;
  in_child(&c, 5, cancel_child, NULL);
  assert_ended_well(&c);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("threads");
  TCase *t = tcase_create("lives");
  limit_time(t, 60);
  tcase_add_loop_test(t, each_way_while_the_world_stops, 0, LENGTH(ways));
  tcase_add_test(t, all_ways_at_once);
  tcase_add_test(t, thousands_of_threads);
  tcase_add_test(t, objects_of_threads_that_ended);
  tcase_add_test(t, c11_threads);
  tcase_add_test(t, destructors_that_allocate);
  tcase_add_test(t, destructors_that_allocate_to_the_end);
  tcase_add_test(t, first_call_in_the_last_turn_of_destructors);
  tcase_add_test(t, small_stacks);
  suite_add_tcase(s, t);

  t = tcase_create("start and end");
  limit_time(t, 30);
  tcase_add_test(t, main_leaves_first);
  tcase_add_test(t, first_call_in_the_last_turn_of_the_first_thread);
  tcase_add_test(t, sixteen_threads_initialise);
  tcase_add_test(t, initialised_by_another_thread);
  tcase_add_test(t, before_main_and_after_exit);
  // AddressSanitizer leaves the frames that a cancellation unwinds forbidden, and trips over them.
  if (!UNDER_ASAN) tcase_add_test(t, cancelled_in_a_collection);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  if (getenv("TIDE_TEST_CONSTRUCTOR")) return constructor_main();
  return run_suite(suite());
}
