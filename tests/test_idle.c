// SPDX-License-Identifier: MIT
// Collections by time: an idle program comes to its base, a busy one and one that wants none are
// left alone, and the thread that makes them comes and goes as it should.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <tidepool.h>

static void *sleep_outside(void *ms) {
  sleep_ms((long)(intptr_t)ms);
  return NULL;
}
static void rest_ms(intptr_t ms) {
  tide_blocking(sleep_outside, (void *)ms);
}

static uint64_t causes[TIDE_CAUSES];
static uint32_t last_thread; // that collected
static void *volatile sink;

static void count(const tide_cycle *cycle, void *arg) {
  causes[cycle->cause]++;
  last_thread = (uint32_t)gettid();
  sink = tide_alloc(100); // may be done there, on that thread as well
}

static void start(tide_options options) {
  init_with(options);
  MUST(tide_hook_add(TIDE_CYCLE_END, count, NULL));
}

// The library's thread, or 0; and how often it has slept so far.
static long idle_thread(void) {
  long found = 0;
  DIR *tasks = opendir("/proc/self/task");
  MUST(tasks);
  for (struct dirent *entry; (entry = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *comm = fopen(path, "re");
    if (comm && fgets(name, sizeof name, comm) && !strcmp(name, "tide-idle\n"))
      found = atol(entry->d_name);
    if (comm) fclose(comm);
  }
  closedir(tasks);
  return found;
}

static long sleeps_of(long thread) {
  char path[64], line[128];
  long sleeps = -1;
  snprintf(path, sizeof path, "/proc/self/task/%ld/status", thread);
  FILE *status = fopen(path, "re");
  MUST(status);
  while (fgets(line, sizeof line, status)) sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
  fclose(status);
  return sleeps;
}

static bool thread_is_there(bool there) { // it starts and ends in its own time
  for (int i = 0; i < 2000; i++) {
    if ((idle_thread() != 0) == there) return true;
    rest_ms(1);
  }
  return false;
}

// ---- A program that rests -------------------------------------------------------------------

static void *make_buffer(void *arg) {
  char *buffer = tide_alloc_leaf(MIB);
  if (buffer) memset(buffer, 1, MIB);
  return buffer;
}

static NOINLINE void fill_pool(tide_pool *pool, int items) {
  void *held[100];
  for (int i = 0; i < items; i++) held[i] = tide_pool_get(pool);
  for (int i = 0; i < items; i++) tide_pool_put(pool, held[i]);
  memset(held, 0, sizeof held);
}

static NOINLINE void make_garbage(int mib) {
  for (int i = 0; i < mib; i++) sink = make_buffer(NULL);
  sink = NULL;
}

// Until so many collections by time, in all; false: they do not come.
static bool wait_for(uint64_t collections) {
  for (int i = 0; i < 5000 && causes[TIDE_CAUSE_TIME] < collections; i++) rest_ms(2);
  return causes[TIDE_CAUSE_TIME] >= collections;
}

static bool comes_below(size_t bytes) {
  for (int i = 0; i < 5000 && resident_bytes() >= bytes; i++) rest_ms(2);
  return resident_bytes() < bytes;
}

START_TEST(an_idle_program_comes_to_its_base) {
  start(OPTIONS(o.gc_interval_ms = 100));
  if (_i) tide_external_add(INT64_C(4) << 30); // which are no heap
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.create = make_buffer});
  tide_collect_and_release();
  size_t base = resident_bytes();
  tide_gc_percent_set(-1); // all of it is there at the same time
  rest_ms(50);             // a collection may have begun
  fill_pool(pool, 50);
  make_garbage(150);
  clear_stack();
  if (!UNDER_ASAN) ck_assert_uint_gt(resident_bytes(), base + 150 * MIB);
  uint64_t before = causes[TIDE_CAUSE_TIME];
  tide_gc_percent_set(100);
  ck_assert(wait_for(before + 3));
  if (!UNDER_ASAN) ck_assert(comes_below(base + 12 * MIB)); // memory goes back after the collection
  ck_assert_uint_ne(last_thread, (uint32_t)gettid());

  tide_pool_stats_reset(pool);
  tide_pool_stats stats;
  fill_pool(pool, 1);
  tide_pool_stats_read(pool, &stats);
  ck_assert_uint_eq(stats.misses, 1);
  tide_pool_destroy(pool);
}
END_TEST

START_TEST(whoever_collects_is_left_alone) {
  start(OPTIONS(o.gc_interval_ms = 400));
  for (int i = 0; i < 40; i++) {
    tide_collect();
    rest_ms(20);
  }
  ck_assert_uint_eq(causes[TIDE_CAUSE_TIME], 0);
  ck_assert_uint_eq(causes[TIDE_CAUSE_FORCED], 40);
}
END_TEST

START_TEST(none_before_the_first) {
  start(OPTIONS(o.gc_interval_ms = 20));
  rest_ms(200);
  ck_assert_uint_eq(tide_gc_cycle(), 0);
  ck_assert_int_eq(idle_thread(), 0);
}
END_TEST

START_TEST(interval_0_has_no_thread) {
  start(OPTIONS(o.gc_interval_ms = 0));
  tide_collect();
  rest_ms(100);
  ck_assert_int_eq(idle_thread(), 0);
  ck_assert_uint_eq(tide_gc_cycle(), 1);
}
END_TEST

START_TEST(percent_off_sleeps) {
  start(OPTIONS(o.gc_interval_ms = 50, o.gc_percent = -1));
  tide_collect();
  ck_assert(thread_is_there(true));
  rest_ms(100); // it has found out by then
  long thread = idle_thread(), sleeps = sleeps_of(thread);
  rest_ms(400);
  ck_assert_int_eq(sleeps_of(thread), sleeps);
  ck_assert_uint_eq(tide_gc_cycle(), 1);
  tide_gc_percent_set(100);
  ck_assert(wait_for(1));
}
END_TEST

// A goal that no heap reaches is not the same as none.
START_TEST(out_of_reach_is_not_off) {
  start(OPTIONS(o.gc_interval_ms = 20, o.gc_percent = _i ? INT_MAX : 100));
  if (_i)
    tide_external_add(INT64_C(1) << 60);
  else
    tide_min_heap_set(SIZE_MAX);
  tide_collect();
  ck_assert_uint_eq(read_stats().next_gc, UINT64_MAX);
  ck_assert(wait_for(causes[TIDE_CAUSE_TIME] + 2));
}
END_TEST

START_TEST(disabled_makes_none) {
  start(OPTIONS(o.gc_interval_ms = 20));
  tide_collect();
  tide_gc_disable();
  rest_ms(50); // one may have begun
  uint64_t before = tide_gc_cycle();
  rest_ms(200);
  ck_assert_uint_eq(tide_gc_cycle(), before);
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  ck_assert(wait_for(causes[TIDE_CAUSE_TIME] + 2));
}
END_TEST

// ---- The thread -----------------------------------------------------------------------------

static void in_forked_child(void *arg) {
  MUST(idle_thread() == 0);
  rest_ms(50);
  MUST(tide_gc_cycle() == (uint64_t)(uintptr_t)arg);
  tide_collect();
  MUST(thread_is_there(true));
  MUST(wait_for(causes[TIDE_CAUSE_TIME] + 2));
}

START_TEST(a_child_has_its_own) {
  start(OPTIONS(o.gc_interval_ms = 10));
  tide_collect();
  ck_assert(thread_is_there(true));
  tide_gc_disable();
  rest_ms(50);
  uint64_t cycles = tide_gc_cycle();
  tide_gc_enable();
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    cycles = tide_gc_cycle(); // the parent may have had one more by then
    in_forked_child((void *)(uintptr_t)cycles);
    _exit(0);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
}
END_TEST

static void *collect_and_rest(void *ms) {
  tide_collect();
  rest_ms((intptr_t)ms);
  return NULL;
}

// Everybody leaves while it sleeps, and while it collects.
static void leave_by_exit(void *ms) {
  start(OPTIONS(o.gc_interval_ms = (intptr_t)ms));
  pthread_t thread;
  MUST(tide_thread_create(&thread, NULL, collect_and_rest, (void *)(intptr_t)30) == 0);
  pthread_detach(thread);
  tide_collect();
  pthread_exit(NULL);
}

START_TEST(it_keeps_no_process_alive) {
  static const intptr_t intervals[] = {1, 7, 100000};
  child c;
  in_child(&c, 20, leave_by_exit, (void *)intervals[_i]);
  assert_ended_well(&c);
}
END_TEST

START_TEST(it_goes_with_the_last_thread_and_comes_back) {
  start(OPTIONS(o.gc_interval_ms = 10));
  tide_collect();
  ck_assert(thread_is_there(true));
  ck_assert_int_eq(tide_thread_unregister(), TIDE_OK);
  struct timespec ms = {0, 1000000};
  for (int i = 0; i < 5000 && idle_thread(); i++) nanosleep(&ms, NULL);
  ck_assert_int_eq(idle_thread(), 0);
  tide_collect();
  ck_assert(thread_is_there(true));
}
END_TEST

static void *come_and_go(void *arg) {
  uint64_t *state = arg;
  void *volatile list = NULL;
  for (int i = 0; i < 200; i++) {
    void **node = tide_alloc(16 + random_below(state, 500));
    *node = list;
    list = random_below(state, 10) ? node : NULL;
  }
  return NULL;
}

START_TEST(collections_all_the_time_while_threads_come_and_go) {
  start(OPTIONS(o.gc_interval_ms = 1, o.verify = 1));
  uint64_t seed = test_seed(), states[4];
  tide_collect();
  for (int round = 0; round < 150; round++) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
      states[i] = next_random(&seed);
      ck_assert_int_eq(tide_thread_create(&threads[i], NULL, come_and_go, &states[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    if (round % 10 == 0) tide_collect();
    if (round % 10 == 5) rest_ms(3);
  }
  ck_assert(wait_for(20));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("idle");
  TCase *resting = tcase_create("resting");
  tcase_set_timeout(resting, 60);
  tcase_add_loop_test(resting, an_idle_program_comes_to_its_base, 0, 2);
  tcase_add_test(resting, whoever_collects_is_left_alone);
  tcase_add_test(resting, none_before_the_first);
  tcase_add_test(resting, interval_0_has_no_thread);
  tcase_add_test(resting, percent_off_sleeps);
  tcase_add_loop_test(resting, out_of_reach_is_not_off, 0, 2);
  tcase_add_test(resting, disabled_makes_none);
  suite_add_tcase(suite, resting);
  TCase *thread = tcase_create("thread");
  tcase_set_timeout(thread, 60);
  tcase_add_test(thread, a_child_has_its_own);
  tcase_add_loop_test(thread, it_keeps_no_process_alive, 0, 3);
  tcase_add_test(thread, it_goes_with_the_last_thread_and_comes_back);
  tcase_add_test(thread, collections_all_the_time_while_threads_come_and_go);
  suite_add_tcase(suite, thread);
  return run_suite(suite);
}
