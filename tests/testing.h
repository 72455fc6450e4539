// SPDX-License-Identifier: MIT
// What the test programs share. Each includes it once.
//
//   hide, reveal    addresses that the collector does not see
//   clear_stack     overwrites what returned calls have left below the caller's frame
//   test_seed       the seed of a random test: from TIDE_TEST_SEED, else new; printed either way
//   in_child        a function in a process of its own, with what it wrote to stderr
//   join            joins a thread, for tide_blocking
//
// Check runs each test in a process of its own (CK_FORK=yes), so each may initialise the library
// with other options.
#ifndef TIDEPOOL_TESTING_H
#define TIDEPOOL_TESTING_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tidepool/gc.h>
#include <unistd.h>

#define NOINLINE      __attribute__((noinline, unused))
#define MAYBE_UNUSED  __attribute__((unused))
#define MIB           ((size_t)1 << 20)
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define UNDER_ASAN 1
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

// Mappings that the sanitizer may have added, of its own, while a test ran.
enum { STRANGE_MAPS = UNDER_ASAN ? 100 : 0 };

#if UNDER_ASAN
// Test processes leave without freeing what they have, and ask for more than there is.
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "detect_leaks=0:allocator_may_return_null=1";
}
#endif

// For loops: a ck_assert writes to Check's pipe also when it holds.
#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) ck_abort_msg("failed: %s", #condition);                                      \
  } while (0)

// ---- Addresses and the stack ----------------------------------------------------------------

static inline uintptr_t hide(const void *address) {
  return ~(uintptr_t)address;
}
static inline void *reveal(uintptr_t hidden) {
  return (void *)~hidden;
}

static NOINLINE void clear_stack(void) {
  volatile char below[16384];
  for (size_t i = 0; i < sizeof below; i++) below[i] = 0;
}

// ---- Random numbers -------------------------------------------------------------------------

static MAYBE_UNUSED uint64_t test_seed(void) {
  const char *given = getenv("TIDE_TEST_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003 + getpid();
  printf("TIDE_TEST_SEED=%llu\n", (unsigned long long)seed);
  fflush(stdout);
  return seed;
}

// splitmix64: any state is a good one.
static MAYBE_UNUSED uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static MAYBE_UNUSED size_t random_below(uint64_t *state, size_t bound) {
  return (size_t)(next_random(state) % bound);
}

// ---- Processes and threads ------------------------------------------------------------------

typedef struct child {
  int status;        // as from waitpid
  char errors[8192]; // the beginning of what it wrote to stderr
} child;

// Runs fn(arg) in a new process, which ends when fn returns, and after `seconds` at the latest (by
// SIGALRM). A failed assertion in it ends it with status 1.
static MAYBE_UNUSED void in_child(child *c, unsigned seconds, void (*fn)(void *), void *arg) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    signal(SIGALRM, SIG_DFL); // Check's handler would end the test itself
    alarm(seconds);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    fn(arg);
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  char rest[4096];
  for (;;) {
    size_t room = sizeof c->errors - 1 - length;
    ssize_t got = room ? read(ends[0], c->errors + length, room) : read(ends[0], rest, sizeof rest);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (room) length += (size_t)got;
  }
  c->errors[length] = 0;
  close(ends[0]);
  while (waitpid(pid, &c->status, 0) < 0 && errno == EINTR) continue;
}

// Fails with what the child wrote unless it ended well.
static MAYBE_UNUSED void assert_ended_well(const child *c) {
  if (WIFSIGNALED(c->status))
    ck_abort_msg("ended by signal %d, after: %.600s", WTERMSIG(c->status), c->errors);
  if (WEXITSTATUS(c->status))
    ck_abort_msg("ended with status %d, after: %.600s", WEXITSTATUS(c->status), c->errors);
}

static MAYBE_UNUSED void assert_contains(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "no '%s' in: %s", part, text);
}

static MAYBE_UNUSED size_t count_lines(const char *text) {
  size_t lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

static MAYBE_UNUSED size_t resident_bytes(void) {
  size_t size = 0, resident = 0;
  FILE *statm = fopen("/proc/self/statm", "re");
  ck_assert_ptr_nonnull(statm);
  ck_assert_int_eq(fscanf(statm, "%zu %zu", &size, &resident), 2);
  fclose(statm);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static MAYBE_UNUSED void *join(void *thread) {
  pthread_join(*(pthread_t *)thread, NULL);
  return NULL;
}

// ---- The library ----------------------------------------------------------------------------

static MAYBE_UNUSED tide_memstats read_stats(void) {
  tide_memstats stats;
  tide_memstats_read(&stats);
  return stats;
}

// Whether the program is linked with the other engine, on which it need not hold: `why`.
static MAYBE_UNUSED bool on_bdw(const char *why) {
  bool other = strcmp(tide_engine(), "bdw") == 0;
  if (other) printf("on Boehm GC %s\n", why);
  return other;
}

static MAYBE_UNUSED void init_with(tide_options options) {
  ck_assert_msg(tide_init(&options) == TIDE_OK, "tide_init: %s", tide_error_message());
}

// TIDE_OPTIONS_DEFAULT with some fields set: OPTIONS(o.stress = 1, o.verify = 1).
#define OPTIONS(...)                                                                               \
  __extension__({                                                                                  \
    tide_options o = TIDE_OPTIONS_DEFAULT;                                                         \
    __VA_ARGS__;                                                                                   \
    o;                                                                                             \
  })

static MAYBE_UNUSED int run_suite(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
