// SPDX-License-Identifier: MIT
// What the tests of roots, threads, libraries, fork and hooks share beyond testing.h.
//
// To see whether an object is still there without keeping it there, a test remembers its address in
// a form that no scan takes for an address. A stray word may keep an object alive, and on a stack
// also the object before it, so tests look at groups of objects and let a few of them stay.
#ifndef TIDEPOOL_RT_TESTING_H
#define TIDEPOOL_RT_TESTING_H

#include "testing.h"

#include <sched.h>
#include <signal.h>

// ---- Time -----------------------------------------------------------------------------------

static MAYBE_UNUSED uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// To a moment, not for a time: each stop of the world may end it early.
static MAYBE_UNUSED void sleep_us(long us) {
  uint64_t end = now_ns() + (uint64_t)us * 1000;
  struct timespec moment = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR) continue;
}
static MAYBE_UNUSED void sleep_ms(long ms) {
  sleep_us(1000 * ms);
}

static MAYBE_UNUSED bool is_set(volatile int *flag) {
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
static MAYBE_UNUSED void set_flag(volatile int *flag) {
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}
static MAYBE_UNUSED void wait_until(volatile int *flag) {
  while (!is_set(flag)) sleep_us(200);
}

// When a test that looks for races ends. TIDE_TEST_SECONDS makes such tests longer or shorter.
static MAYBE_UNUSED uint64_t deadline_ns(double usual_seconds) {
  const char *asked = getenv("TIDE_TEST_SECONDS");
  return now_ns() + (uint64_t)((asked ? atof(asked) : usual_seconds) * 1e9);
}

static MAYBE_UNUSED void limit_time(TCase *t, double seconds) {
  const char *asked = getenv("TIDE_TEST_SECONDS");
  tcase_set_timeout(t, seconds + (asked ? 10 * atof(asked) : 0));
}

// ---- Stack, collections ---------------------------------------------------------------------

static MAYBE_UNUSED void init_verified(void) {
  init_with(OPTIONS(o.verify = 1));
}

static NOINLINE void collect_clean(void) {
  clear_stack();
  tide_collect();
}

// ---- Groups of objects ----------------------------------------------------------------------

enum { GROUP = 100, GROUP_WORDS = 10, GROUP_STRAYS = 3 };

typedef struct group {
  uintptr_t hidden[GROUP];
} group;

static MAYBE_UNUSED uint64_t pattern(int object, int word) {
  return 0xfeed000000000000u | (uint64_t)object << 8 | (uint64_t)word;
}

static NOINLINE uint64_t *new_member(int number) {
  uint64_t *object = tide_alloc(GROUP_WORDS * sizeof *object);
  MUST(object);
  for (int k = 0; k < GROUP_WORDS; k++) object[k] = pattern(number, k);
  return object;
}

static NOINLINE uintptr_t hidden_member(int number) {
  return hide(new_member(number));
}

// The compiler must leave in memory what was stored at the address.
static inline void keep_in_memory(void *address) {
  __asm__ volatile("" : : "r"(address) : "memory");
}

// A new object into each of `count` slots.
static NOINLINE void group_fill_some(group *g, void **slots, int count) {
  for (int i = 0; i < count; i++) {
    slots[i] = new_member(i);
    g->hidden[i] = hide(slots[i]);
  }
  keep_in_memory(slots);
}
static MAYBE_UNUSED void group_fill(group *g, void **slots) {
  group_fill_some(g, slots, GROUP);
}

static NOINLINE bool member_lives(uintptr_t hidden, int number) {
  uint64_t *start = reveal(hidden);
  if (tide_base(start) != start) return false;
  for (int k = 0; k < GROUP_WORDS; k++)
    if (start[k] != pattern(number, k)) return false;
  return true;
}

// How many of the first `count` objects are there, with what was written into them.
static NOINLINE int group_alive_of(const group *g, int count) {
  int alive = 0;
  for (int i = 0; i < count; i++) alive += member_lives(g->hidden[i], i);
  return alive;
}
static MAYBE_UNUSED int group_alive(const group *g) {
  return group_alive_of(g, GROUP);
}

static NOINLINE void forget(void **slots, int count) {
  memset(slots, 0, (size_t)count * sizeof *slots);
  keep_in_memory(slots);
}

#define assert_group_lives(g) ck_assert_int_eq(group_alive(g), GROUP)
#define assert_group_gone(g)  ck_assert_int_le(group_alive(g), GROUP_STRAYS)

// ---- A thread that collects all the time ----------------------------------------------------

typedef struct collector {
  pthread_t thread;
  long gap_us; // that the others have for themselves between two collections
  volatile int done;
  volatile uint64_t rounds;
} collector;

static MAYBE_UNUSED void *collector_main(void *argument) {
  collector *c = argument;
  while (!is_set(&c->done)) {
    tide_collect();
    c->rounds = c->rounds + 1;
    if (c->gap_us) sleep_us(c->gap_us);
  }
  return NULL;
}
static MAYBE_UNUSED void collector_start(collector *c) {
  c->done = 0;
  c->rounds = 0;
  MUST(tide_thread_create(&c->thread, NULL, collector_main, c) == 0);
}
static MAYBE_UNUSED uint64_t collector_stop(collector *c) {
  set_flag(&c->done);
  pthread_join(c->thread, NULL);
  return c->rounds;
}

// ---- Child processes ------------------------------------------------------------------------

// Waits for the child and says how it ended: its exit status, or -signal, or TOO_LATE.
enum { TOO_LATE = -1000 };
static MAYBE_UNUSED int child_result(pid_t pid, double seconds) {
  uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
  for (int status; now_ns() < end; sleep_us(500))
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return TOO_LATE;
}

// ---- Threads --------------------------------------------------------------------------------

static MAYBE_UNUSED void create(pthread_t *thread, void *(*fn)(void *), void *arg) {
  MUST(tide_thread_create(thread, NULL, fn, arg) == 0);
}

// Keeps a few objects over a few collections of others.
static NOINLINE void use_heap(void) {
  void *slots[8];
  group g;
  group_fill_some(&g, slots, 8);
  for (int i = 0; i < 50; i++) keep_in_memory(tide_alloc((size_t)i * 8));
  sched_yield();
  MUST(group_alive_of(&g, 8) == 8);
}

static MAYBE_UNUSED void *use_heap_main(void *arg) {
  use_heap();
  return arg;
}

static MAYBE_UNUSED void *wait_for_flag(void *flag) {
  wait_until(flag);
  return flag;
}

#endif
