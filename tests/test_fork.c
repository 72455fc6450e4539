// SPDX-License-Identifier: MIT
// fork from every kind of thread, at every moment; and programs that start other programs.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <sched.h>
#include <spawn.h>

extern char **environ;

enum { CHILD_SECONDS = 20 };

// What each child does to see that it has a heap.
static NOINLINE void use_whole_heap(void) {
  void *slots[GROUP];
  group g;
  for (int round = 0; round < 3; round++) {
    group_fill(&g, slots);
    tide_collect();
    if (group_alive(&g) != GROUP) _exit(10);
    for (int i = 0; i < 1000; i++) keep_in_memory(tide_alloc((size_t)(i % 100) * 32));
    keep_in_memory(tide_alloc(200000));
  }
  forget(slots, GROUP);
}

#define assert_child_well(pid) ck_assert_int_eq(child_result(pid, CHILD_SECONDS), 0)

// ---- Who forks ------------------------------------------------------------------------------

START_TEST(before_initialisation) {
  pid_t pid = fork();
  if (pid == 0) {
    init_verified();
    use_whole_heap();
    _exit(0);
  }
  assert_child_well(pid);
  init_verified(); // and the parent, later
  use_whole_heap();
  pid = fork();
  if (pid == 0) _exit(0);
  assert_child_well(pid);
}
END_TEST

START_TEST(from_main) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  pid_t pid = fork();
  if (pid == 0) {
    use_whole_heap();
    if (group_alive(&g) != GROUP) _exit(1);
    forget(slots, GROUP);
    collect_clean();
    _exit(group_alive(&g) <= GROUP_STRAYS ? 0 : 2);
  }
  assert_child_well(pid);
  collect_clean();
  assert_group_lives(&g); // what the child did is the child's
}
END_TEST

// Returns the child's result.
static void *fork_and_use_whole_heap(void *arg) {
  pid_t pid = fork();
  if (pid == 0) {
    use_whole_heap();
    _exit(0);
  }
  return (void *)(intptr_t)child_result(pid, CHILD_SECONDS);
}

START_TEST(from_a_thread_that_is_not_registered) {
  init_verified();
  pthread_t thread;
  void *result;
  ck_assert_int_eq(pthread_create(&thread, NULL, fork_and_use_whole_heap, NULL), 0);
  pthread_join(thread, &result);
  ck_assert_int_eq((intptr_t)result, 0);
  use_whole_heap();
}
END_TEST

static void *fork_from_worker(void *arg) {
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  pid_t pid = fork();
  if (pid == 0) {
    use_whole_heap();
    if (group_alive(&g) != GROUP) _exit(1);
    forget(slots, GROUP);
    collect_clean();
    _exit(group_alive(&g) <= GROUP_STRAYS ? 0 : 2);
  }
  return (void *)(intptr_t)child_result(pid, CHILD_SECONDS);
}

START_TEST(from_a_registered_thread) {
  init_verified();
  pthread_t thread;
  void *result;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, fork_from_worker, NULL), 0);
  pthread_join(thread, &result);
  ck_assert_int_eq((intptr_t)result, 0);
}
END_TEST

static void *fork_blocked(void *arg) {
  return (void *)(intptr_t)fork();
}

START_TEST(inside_tide_blocking_and_back) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  pid_t pid = (pid_t)(intptr_t)tide_blocking(fork_blocked, NULL);
  if (pid == 0) {
    use_whole_heap();
    _exit(group_alive(&g) == GROUP ? 0 : 1);
  }
  assert_child_well(pid);
  use_whole_heap();
  assert_group_lives(&g);
  forget(slots, GROUP);
}
END_TEST

static void *active_in_child(void *arg) {
  use_whole_heap();
  return NULL;
}

static void *fork_and_stay_blocked(void *arg) {
  pid_t pid = fork();
  if (pid == 0) {
    tide_active(active_in_child, NULL);
    _exit(0);
  }
  return (void *)(intptr_t)child_result(pid, CHILD_SECONDS);
}

START_TEST(tide_active_in_the_child) {
  init_verified();
  ck_assert_int_eq((intptr_t)tide_blocking(fork_and_stay_blocked, NULL), 0);
}
END_TEST

static int hook_child = -1;

static void fork_in_hook(const tide_cycle *cycle, void *arg) {
  if (hook_child != -1) return;
  hook_child = -2;
  hook_child = (int)(intptr_t)fork_and_use_whole_heap(NULL);
}

START_TEST(in_a_cycle_end_hook) {
  init_verified();
  tide_hook *hook = tide_hook_add(TIDE_CYCLE_END, fork_in_hook, NULL);
  tide_collect();
  ck_assert_int_eq(hook_child, 0);
  tide_hook_remove(hook);
}
END_TEST

static tide_hook *hook_of_both;
static volatile int remover, removed;

static void *remove_it(void *arg) {
  __atomic_store_n(&remover, (int)gettid(), __ATOMIC_RELEASE);
  tide_hook_remove(hook_of_both);
  set_flag(&removed);
  return NULL;
}

static bool sleeps(pid_t thread) {
  char path[64], stat[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  if (!fgets(stat, sizeof stat, file)) stat[0] = 0;
  fclose(file);
  const char *name_end = strrchr(stat, ')');
  return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

static void fork_and_have_it_removed(const tide_cycle *cycle, void *arg) {
  if (hook_child != -1) return;
  hook_child = fork();
  if (hook_child) return;
  pthread_t thread;
  if (tide_thread_create(&thread, NULL, remove_it, NULL)) _exit(1);
  while (!is_set(&removed) && !(is_set(&remover) && sleeps(remover))) sleep_us(200);
  if (is_set(&removed)) _exit(2); // while this is running
}

// In the child the call by the thread that forked still counts: its removal waits for the end.
START_TEST(a_hook_that_has_forked_is_running_in_the_child) {
  init_verified();
  hook_of_both = tide_hook_add(TIDE_CYCLE_END, fork_and_have_it_removed, NULL);
  tide_collect();
  if (!hook_child) {
    wait_until(&removed);
    use_whole_heap();
    _exit(0);
  }
  assert_child_well(hook_child);
  tide_hook_remove(hook_of_both);
}
END_TEST

static volatile int in_hook, leave_hook;

static void hold_hook(const tide_cycle *cycle, void *arg) {
  set_flag(&in_hook);
  wait_until(&leave_hook);
}

static void *collect_once(void *arg) {
  tide_collect();
  return NULL;
}

// In the child nobody is inside the hook any more, so its removal has nobody to wait for.
START_TEST(while_another_thread_is_in_a_hook) {
  init_verified();
  tide_hook *hook = tide_hook_add(TIDE_CYCLE_END, hold_hook, NULL);
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, collect_once, NULL), 0);
  wait_until(&in_hook);
  pid_t pid = fork();
  if (pid == 0) {
    tide_hook_remove(hook);
    use_whole_heap();
    _exit(0);
  }
  int result = child_result(pid, 5);
  set_flag(&leave_hook);
  pthread_join(thread, NULL);
  ck_assert_int_eq(result, 0);
}
END_TEST

// ---- What the child does --------------------------------------------------------------------

START_TEST(children_of_children) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  for (int generation = 0; generation < 5; generation++) {
    use_whole_heap();
    pid_t pid = fork();
    if (pid == 0) continue;
    int result = child_result(pid, CHILD_SECONDS);
    if (generation) _exit(result || group_alive(&g) != GROUP);
    ck_assert_int_eq(result, 0);
    return;
  }
  _exit(0); // the youngest
}
END_TEST

static void *use_heap_in_thread(void *arg) {
  use_whole_heap();
  return NULL;
}

static void threads_in_child(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    if (tide_thread_create(&threads[i], NULL, use_heap_in_thread, NULL)) _exit(20);
  for (int i = 0; i < 20; i++) tide_collect();
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  if (tide_procs_set(3) < 1 || tide_procs() != 3) _exit(21);
}

START_TEST(threads_of_the_child) {
  init_verified();
  collector c = {.gap_us = 100};
  collector_start(&c);
  for (int i = 0; i < 20; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      threads_in_child();
      _exit(0);
    }
    assert_child_well(pid);
  }
  collector_stop(&c);
}
END_TEST

// A child that leaves by exit runs the destructors of its one thread.
START_TEST(child_that_exits) {
  if (on_bdw("libgc's markers would keep it")) setenv("TIDE_MARKERS", "1", 1);
  init_verified();
  pid_t pid = fork();
  if (pid == 0) {
    use_whole_heap();
    pthread_exit(NULL); // of the last thread: exit(0)
  }
  assert_child_well(pid);
}
END_TEST

// ---- While other threads are busy -----------------------------------------------------------

static volatile int busy_done;

static void *allocate_all_the_time(void *arg) {
  void *list = NULL;
  for (int i = 0; !is_set(&busy_done); i++) {
    void **fresh = tide_alloc((size_t)(i % 60) * 16 + 16);
    fresh[0] = i % 1000 ? list : NULL;
    list = fresh;
    if (i % 500 == 0) keep_in_memory(tide_alloc(100000));
  }
  return NULL;
}

static void *come_and_go(void *arg) {
  while (!is_set(&busy_done)) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
      MUST(tide_thread_create(&threads[i], NULL, collect_once, NULL) == 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  }
  return NULL;
}

static void *yield_blocked(void *arg) {
  sched_yield();
  return NULL;
}

static void *block_all_the_time(void *arg) {
  while (!is_set(&busy_done)) tide_blocking(yield_blocked, NULL);
  return NULL;
}

static void fork_many(int forks) {
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  for (int i = 0; i < forks; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      use_whole_heap();
      _exit(group_alive(&g) == GROUP ? 0 : 1);
    }
    int result = child_result(pid, CHILD_SECONDS);
    if (result) fprintf(stderr, "fork %d: the child ended with %d\n", i, result);
    MUST(result == 0);
  }
  MUST(group_alive(&g) == GROUP);
  forget(slots, GROUP);
}

static void check_busy(void *(*fn)(void *), int forks) {
  init_verified();
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) ck_assert_int_eq(tide_thread_create(&threads[i], NULL, fn, NULL), 0);
  collector c = {.gap_us = 300};
  collector_start(&c);
  fork_many(UNDER_ASAN ? forks / 3 : forks); // a fork copies much of its tables
  set_flag(&busy_done);
  collector_stop(&c);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  tide_collect();
}

START_TEST(while_threads_allocate) {
  check_busy(allocate_all_the_time, 150);
}
END_TEST
START_TEST(while_threads_come_and_go) {
  check_busy(come_and_go, 100);
}
END_TEST
START_TEST(while_threads_block) {
  check_busy(block_all_the_time, 100);
}
END_TEST

static void *fork_repeatedly(void *arg) {
  fork_many(20);
  return NULL;
}

START_TEST(from_several_threads_at_once) {
  init_verified();
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, fork_repeatedly, NULL), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
END_TEST

// ---- Other programs -------------------------------------------------------------------------

static void spawn_true(void) {
  char *const arguments[] = {"true", NULL};
  pid_t pid;
  ck_assert_int_eq(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ), 0);
  int status;
  while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  ck_assert_int_eq(status, 0);
}

// posix_spawn blocks signals and shares the memory with its child for a moment; the stop waits.
START_TEST(starting_programs_while_another_thread_collects) {
  init_verified();
  collector c = {0};
  collector_start(&c);
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  for (int i = 0; i < 30; i++) {
    spawn_true();
    ck_assert_int_eq(system("true"), 0);
  }
  FILE *pipe = popen("echo tide", "r");
  char line[16] = "";
  ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
  ck_assert_str_eq(line, "tide\n");
  pclose(pipe);
  collector_stop(&c);
  assert_group_lives(&g);
  forget(slots, GROUP);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("fork");
  TCase *t = tcase_create("who");
  limit_time(t, 60);
  tcase_add_test(t, before_initialisation);
  tcase_add_test(t, from_main);
  tcase_add_test(t, from_a_thread_that_is_not_registered);
  tcase_add_test(t, from_a_registered_thread);
  tcase_add_test(t, inside_tide_blocking_and_back);
  tcase_add_test(t, tide_active_in_the_child);
  tcase_add_test(t, in_a_cycle_end_hook);
  tcase_add_test(t, a_hook_that_has_forked_is_running_in_the_child);
  tcase_add_test(t, while_another_thread_is_in_a_hook);
  suite_add_tcase(s, t);
  t = tcase_create("child");
  limit_time(t, 60);
  tcase_add_test(t, children_of_children);
  tcase_add_test(t, threads_of_the_child);
  tcase_add_test(t, child_that_exits);
  suite_add_tcase(s, t);
  t = tcase_create("busy");
  limit_time(t, 90);
  tcase_add_test(t, while_threads_allocate);
  tcase_add_test(t, while_threads_come_and_go);
  tcase_add_test(t, while_threads_block);
  suite_add_tcase(s, t);
  t = tcase_create("several");
  limit_time(t, 90);
  tcase_add_test(t, from_several_threads_at_once);
  suite_add_tcase(s, t);
  t = tcase_create("programs");
  limit_time(t, 60);
  tcase_add_test(t, starting_programs_while_another_thread_collects);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  // Its allocator's locks stay taken in a child if another thread had them: no thread is made
  // there.
  if (UNDER_ASAN) setenv("TIDE_GCINTERVAL", "0", 1);
  return run_suite(suite());
}
