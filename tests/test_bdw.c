// SPDX-License-Identifier: MIT
// Boehm GC as the engine: what holds there and nowhere else. That it does what the native engine
// does is tested by the other programs, which run on it once more.
#define _GNU_SOURCE
#include "rt_testing.h"

#include "engine.h"
#include "rt_private.h"

#include <dlfcn.h>
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

// ---- Markers --------------------------------------------------------------------------------

// While a collection has libgc make its markers, which takes locks of the C library, another thread
// may want memory given back and stop the world: with it somebody who holds such a lock.

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER; // in place of malloc's
static __thread bool takes_library_lock;
static volatile int locked, may_release, may_collect, making_markers, released, over;
static volatile pid_t releasing;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                   void *arg) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (!takes_library_lock) return real(thread, attributes, fn, arg);
  set_flag(&making_markers);
  pthread_mutex_lock(&library_lock);
  int error = real(thread, attributes, fn, arg);
  pthread_mutex_unlock(&library_lock);
  return error;
}

static void *hold_library_lock(void *arg) {
  pthread_mutex_lock(&library_lock);
  set_flag(&locked);
  while (!is_set(&over)) sched_yield();
  pthread_mutex_unlock(&library_lock);
  return NULL;
}

static void *release_memory(void *arg) {
  while (!is_set(&may_release)) sched_yield();
  releasing = gettid();
  gc_engine->release(rt_self(), 0, true);
  set_flag(&released);
  return NULL;
}

static void *collect_with_markers(void *arg) {
  while (!is_set(&may_collect)) sched_yield();
  takes_library_lock = true;
  tide_collect();
  takes_library_lock = false;
  return NULL;
}

static bool sleeps(pid_t thread) {
  char path[64], stat[128] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  size_t length = fread(stat, 1, sizeof stat - 1, file);
  fclose(file);
  const char *state = length ? strrchr(stat, ')') : NULL;
  return state && state[1] == ' ' && state[2] == 'S';
}

START_TEST(memory_is_not_given_back_while_markers_are_made) {
  static void *volatile kept[20]; // static data: roots
  init_with(OPTIONS(o.gc_percent = -1, o.markers = 4, o.gc_interval_ms = 0));
  for (size_t i = 0; i < LENGTH(kept); i++) ck_assert(kept[i] = tide_alloc_leaf(MIB));
  pthread_t holder, releaser, collecting;
  ck_assert_int_eq(tide_thread_create(&holder, NULL, hold_library_lock, NULL), 0);
  ck_assert_int_eq(tide_thread_create(&releaser, NULL, release_memory, NULL), 0);
  ck_assert_int_eq(tide_thread_create(&collecting, NULL, collect_with_markers, NULL), 0);
  wait_until(&locked);
  rt_world_lock_for_fork(); // who wants to stop the world waits
  set_flag(&may_release);
  while (!releasing || !sleeps(releasing)) sleep_us(200);
  set_flag(&may_collect);
  wait_until(&making_markers);
  rt_world_unlock_for_fork();
  wait_until(&released);
  set_flag(&over);
  pthread_join(holder, NULL);
  pthread_join(releaser, NULL);
  pthread_join(collecting, NULL);
  ck_assert_uint_eq(tide_gc_cycle(), 1);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bdw");
  TCase *cases = tcase_create("bdw");
  tcase_set_timeout(cases, 20);
  tcase_add_test(cases, engine_has_a_name);
  tcase_add_test(cases, bound_of_the_mark_stack_is_refused_and_the_rest_works);
  tcase_add_test(cases, first_bad_option_is_the_one_that_is_named);
  tcase_add_test(cases, program_that_uses_libgc_itself_is_refused);
  tcase_add_test(cases, incremental_collections_are_refused);
  tcase_add_test(cases, signals_of_libgc_stay_the_programs);
  tcase_add_test(cases, libgc_collects_when_we_do);
  tcase_add_test(cases, collection_after_a_refusal);
  tcase_add_test(cases, memory_is_not_given_back_while_markers_are_made);
  suite_add_tcase(suite, cases);
  return run_suite(suite);
}
