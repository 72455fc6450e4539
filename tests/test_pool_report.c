// SPDX-License-Identifier: MIT
// Reports on pools: any names and numbers of pools; the report at the exit, however the program
// ends; and reports beside threads that make and destroy pools, and beside forks.
#include "advisor_testing.h"

#include <atomic_ops.h>
#include <pthread.h>

// ---- Names ----------------------------------------------------------------------------------

static const struct {
  const char *name, *json;
} names[] = {
    {"\"quoted\"\\", "\\\"quoted\\\"\\\\"},
    {"line\nend\t\x01\x7f", "line\\u000aend\\u0009\\u0001\\u007f"},
    {"gr\xc3\xb6\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x90\x9f",
     "gr\xc3\xb6\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x90\x9f"},
    {"not UTF-8: \xff \xc3 \xc0\x80 \xed\xa0\x80",
     "not UTF-8: \\ufffd \\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd"},
    {"beyond: \xf4\x90\x80\x80 \xe0\x80\x80 \xf0\x80\x80\x80 \xf0\x90\x80\x80",
     "beyond: \\ufffd\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\\ufffd "
     "\xf0\x90\x80\x80"},
    {"cut \xe2\x82", "cut \\ufffd\\ufffd"},
    {"", ""},
};

START_TEST(any_name_makes_json) {
  pool_with((tide_pool_options){.name = names[_i].name});
  json_of(names[_i].json);
  const char *text = report_of(tide_pool_report);
  ck_assert_uint_eq(count_lines(text), 3);
}
END_TEST

START_TEST(long_names_are_cut_between_characters) {
  char name[1000] = "", line[128] = "";
  for (size_t i = 0; i < 300; i++) strcat(name, "\xe2\x82\xac");
  memcpy(line, name, 126); // 127 bytes would end within one
  pool_with((tide_pool_options){.name = name});
  json_of(line);
}
END_TEST

START_TEST(more_pools_than_anybody_has_counted) {
  for (int i = 0; i < 1000; i++) pool_with((tide_pool_options){.name = "one of many"});
  char *text = report_of(tide_pool_report_json);
  ck_assert_uint_eq(count_lines(text), 1000);
  tide_pool_report(NULL); // ignored
  tide_pool_report_json(NULL);
}
END_TEST

// ---- At the exit ----------------------------------------------------------------------------

static void ask_for_report(void) {
  setenv("TIDE_DEBUG", "poolreport=1", 1);
  use(pool_with((tide_pool_options){.name = "at exit"}), 3);
}

static void exit_at_once(void *arg) {
  ask_for_report();
  exit(3);
}

static void *exit_here(void *arg) {
  exit(3);
}

static void exit_in_tide_blocking(void *arg) {
  ask_for_report();
  tide_blocking(exit_here, NULL);
}

// Makes, uses and destroys pools, and collects.
static void *be_busy(void *arg) {
  for (int i = 0;; i++) {
    tide_pool *pool = pool_with((tide_pool_options){.name = "busy"});
    tide_pool_put(pool, tide_pool_get(pool));
    if (i % 50 == 0) tide_collect();
    tide_pool_destroy(pool);
  }
  return NULL;
}

// The thread that exits has never used the library, others are in the middle of it.
static void exit_in_another_thread(void *arg) {
  ask_for_report();
  pthread_t busy, other;
  tide_thread_create(&busy, NULL, be_busy, NULL);
  usleep(20000);
  pthread_create(&other, NULL, exit_here, NULL);
  be_busy(NULL);
}

static void exit_in_a_hook(const tide_cycle *cycle, void *arg) {
  exit(3);
}

static void exit_at_the_end_of_a_cycle(void *arg) {
  ask_for_report();
  tide_hook_add(TIDE_CYCLE_END, exit_in_a_hook, NULL);
  tide_collect();
}

static void run_quiet_program(void *arg) {
  setenv("TIDE_DEBUG", "poolreport=1", 1);
  execl(BUILD_DIR "/modules/quiet", "quiet", (char *)NULL);
}

START_TEST(a_program_that_does_not_know_of_reports_makes_one) {
  child c;
  in_child(&c, 20, run_quiet_program, NULL);
  ck_assert_int_eq(WEXITSTATUS(c.status), 3);
  assert_contains(c.errors, "pool quiet: 1 gets");
}
END_TEST

static void (*const exits[])(void *) = {exit_at_once, exit_in_tide_blocking, exit_in_another_thread,
                                        exit_at_the_end_of_a_cycle};

START_TEST(the_report_comes_at_the_exit) {
  child c;
  in_child(&c, 20, exits[_i], NULL);
  ck_assert_msg(WIFEXITED(c.status) && WEXITSTATUS(c.status) == 3, "status %x, %s", c.status,
                c.errors);
  assert_contains(c.errors, " of process ");
  assert_contains(c.errors, "pool at exit: 3 gets, hit rate 0.0 %; misses: 3 cold");
  assert_contains(c.errors, "Too few data: 3 gets");
}
END_TEST

static void exit_without_asking(void *arg) {
  use(pool_with((tide_pool_options){.name = "at exit"}), 3);
  exit(3);
}

START_TEST(without_the_option_nothing_is_said) {
  child c;
  in_child(&c, 20, exit_without_asking, NULL);
  ck_assert_int_eq(WEXITSTATUS(c.status), 3);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

static void exit_after_fork(void *arg) {
  ask_for_report();
  pid_t pid = fork();
  int status = 0;
  if (pid > 0) waitpid(pid, &status, 0);
  exit(pid ? WEXITSTATUS(status) : 3);
}

START_TEST(parent_and_child_report_both) {
  child c;
  in_child(&c, 20, exit_after_fork, NULL);
  ck_assert_int_eq(WEXITSTATUS(c.status), 3);
  const char *first = strstr(c.errors, "pool of process");
  ck_assert_ptr_nonnull(first);
  assert_contains(first + 1, "pool of process");
}
END_TEST

static void exit_with_stderr_closed(void *arg) {
  ask_for_report();
  close(STDERR_FILENO);
  exit(3);
}

static void exit_with_nobody_reading(void *arg) {
  ask_for_report();
  int ends[2];
  if (pipe(ends)) _exit(1);
  dup2(ends[1], STDERR_FILENO);
  close(ends[0]);
  signal(SIGPIPE, SIG_DFL);
  exit(3);
}

START_TEST(how_the_program_ends_does_not_hang_on_stderr) {
  child c;
  in_child(&c, 20, exit_with_stderr_closed, NULL);
  ck_assert_int_eq(c.status, 3 << 8);
  in_child(&c, 20, exit_with_nobody_reading, NULL);
  ck_assert_int_eq(c.status, 3 << 8);
}
END_TEST

static AO_t stop_asking;

static void *report_all_the_time(void *arg) {
  FILE *out = fopen("/dev/null", "we");
  while (!AO_load(&stop_asking)) tide_pool_report(out);
  fclose(out);
  return NULL;
}

// A child that finds the list of pools locked by a thread that it does not have would hang.
static void fork_beside_reports(void *arg) {
  for (int i = 0; i < 300; i++) pool_with((tide_pool_options){.name = "one of many"});
  pthread_t thread;
  tide_thread_create(&thread, NULL, report_all_the_time, NULL);
  for (int i = 0; i < 100; i++) {
    pid_t pid = fork();
    if (!pid) {
      tide_pool *pool = pool_with((tide_pool_options){.name = "child"});
      use(pool, 3);
      tide_pool_destroy(pool);
      tide_collect();
      _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    MUST(status == 0);
  }
  AO_store(&stop_asking, 1);
  pthread_join(thread, NULL);
}

// Makes and destroys pools between those that stay.
static void *make_and_destroy(void *arg) {
  enum { MOST = 400 };
  tide_pool *pools[MOST] = {NULL};
  uint64_t random = (uintptr_t)pools;
  while (!AO_load(&stop_asking)) {
    tide_pool **pool = &pools[random_below(&random, MOST)];
    if (*pool) tide_pool_destroy(*pool);
    *pool = *pool ? NULL : tide_pool_create(&(tide_pool_options){.name = "goes"});
    if (random_below(&random, 1000) == 0) tide_collect();
  }
  return NULL;
}

// How many are missing of the pools that stay; the others may be there or not.
static size_t missing_in_report(size_t pools, unsigned char *seen) {
  char *text = report_of(tide_pool_report_json);
  size_t missing = pools;
  memset(seen, 0, pools);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    unsigned pool;
    if (sscanf(line, "{\"name\":\"stays %u\"", &pool) != 1) continue;
    ck_assert_uint_lt(pool, pools);
    ck_assert_msg(!seen[pool]++, "pool %u is there twice", pool);
    missing--;
  }
  return missing;
}

START_TEST(pools_that_stay_are_in_each_report_once) {
  enum { STAY = 500 };
  unsigned char seen[STAY];
  pthread_t threads[2];
  tide_pool_options options = {.name = (char[16]){""}};
  for (unsigned i = 0; i < STAY; i++) {
    snprintf((char *)options.name, 16, "stays %u", i);
    pool_with(options);
    tide_pool_destroy(pool_with((tide_pool_options){.name = "goes"}));
  }
  for (int i = 0; i < 2; i++) tide_thread_create(&threads[i], NULL, make_and_destroy, NULL);
  for (int i = 0; i < (UNDER_ASAN ? 10 : 100); i++)
    ck_assert_uint_eq(missing_in_report(STAY, seen), 0);
  AO_store(&stop_asking, 1);
  for (int i = 0; i < 2; i++) tide_blocking(join, &threads[i]);
}
END_TEST

START_TEST(a_child_does_not_inherit_the_lock_of_a_report) {
  child c;
  in_child(&c, 30, fork_beside_reports, NULL);
  assert_ended_well(&c);
}
END_TEST

// ---- The suite ------------------------------------------------------------------------------

int main(void) {
  Suite *suite = suite_create("pool_report");
  TCase *names_case = tcase_create("names");
  tcase_add_checked_fixture(names_case, only_collections_asked_for, NULL);
  tcase_set_timeout(names_case, 60);
  tcase_add_loop_test(names_case, any_name_makes_json, 0, LENGTH(names));
  tcase_add_test(names_case, long_names_are_cut_between_characters);
  tcase_add_test(names_case, more_pools_than_anybody_has_counted);
  suite_add_tcase(suite, names_case);
  TCase *at_exit = tcase_create("at exit");
  tcase_set_timeout(at_exit, 60);
  tcase_add_loop_test(at_exit, the_report_comes_at_the_exit, 0, LENGTH(exits));
  tcase_add_test(at_exit, a_program_that_does_not_know_of_reports_makes_one);
  tcase_add_test(at_exit, without_the_option_nothing_is_said);
  tcase_add_test(at_exit, parent_and_child_report_both);
  tcase_add_test(at_exit, how_the_program_ends_does_not_hang_on_stderr);
  tcase_add_test(at_exit, pools_that_stay_are_in_each_report_once);
  tcase_add_test(at_exit, a_child_does_not_inherit_the_lock_of_a_report);
  suite_add_tcase(suite, at_exit);
  return run_suite(suite);
}
