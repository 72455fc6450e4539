// SPDX-License-Identifier: MIT
// Time, waiting, and being asked to end; see wait.h. Linux: the gates are futexes, so that opening
// one wakes all who wait with a single system call and no lock to queue for afterwards.
#include "wait.h"

#include <atomic_ops.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <tidepool.h>
#include <time.h>
#include <unistd.h>

enum { THREAD_STACK_BYTES = 512 * 1024 };
// An interruption that comes just before the sleep begins is seen after this long.
static const uint64_t nap_ns = 100 * 1000 * 1000;

static const uint64_t patience_ns = 1000 * 1000 * 1000;

static volatile sig_atomic_t asked_to_end;

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sleep_until(uint64_t at_ns) {
  struct timespec at = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

static void *nap_until(void *arg) {
  uint64_t at_ns = *(const uint64_t *)arg;
  for (;;) {
    uint64_t now = now_ns();
    if (now >= at_ns || asked_to_end) return NULL;
    uint64_t next = at_ns - now > nap_ns ? now + nap_ns : at_ns;
    struct timespec at = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
  }
}

bool wait_until(uint64_t at_ns) {
  if (now_ns() < at_ns) tide_blocking(nap_until, &at_ns);
  return !asked_to_end;
}

static void ask_to_end(int number) {
  static volatile uint64_t first_ns;
  if (!asked_to_end) {
    asked_to_end = number;
    first_ns = now_ns();
  } else if (now_ns() - first_ns > patience_ns) {
    signal(number, SIG_DFL);
    raise(number); // delivered when this handler returns
  }
}

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDING_SIGNALS = sizeof ending_signals / sizeof ending_signals[0] };

void interrupts_catch(void) {
  struct sigaction action = {.sa_handler = ask_to_end};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < ENDING_SIGNALS; i++) {
    struct sigaction before;
    sigaction(ending_signals[i], NULL, &before);
    // Whoever started us with the signal ignored (nohup) meant it.
    if (before.sa_handler != SIG_IGN) sigaction(ending_signals[i], &action, NULL);
  }
}

int interrupted(void) {
  return asked_to_end;
}

void sleep_exactly(void) {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

int thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
  sigset_t ending, before;
  sigemptyset(&ending);
  for (int i = 0; i < ENDING_SIGNALS; i++) sigaddset(&ending, ending_signals[i]);
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error) return error;
  pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
  pthread_sigmask(SIG_BLOCK, &ending, &before);
  error = tide_thread_create(thread, &attributes, fn, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

void gate_open(gate *g, unsigned round) {
  // Release: what was written before is seen by those who come through (acquire in gate_await).
  AO_int_store_release(&g->round, round);
  syscall(SYS_futex, &g->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void gate_await(gate *g, unsigned round) {
  for (;;) {
    unsigned seen = AO_int_load_acquire(&g->round); // pairs with gate_open
    if ((int)(seen - round) >= 0) return;
    // Returns at once when the gate has moved on in between; a signal only makes it look again.
    syscall(SYS_futex, &g->round, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  }
}
