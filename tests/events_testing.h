// SPDX-License-Identifier: MIT
// What the tests of events, of listeners and of the trace file share beyond rt_testing.h: a
// listener that remembers, one that holds its thread, and events to give them.
//
// Threads that only emit need not be registered. So most of these tests run under ThreadSanitizer
// too, which holds back the signals that stop the world, and has ended its part of a thread before
// the library unregisters it.
#ifndef TIDEPOOL_EVENTS_TESTING_H
#define TIDEPOOL_EVENTS_TESTING_H

#include "rt_testing.h"

#include "rt.h"

#include <pthread.h>

#if UNDER_TSAN
// A child does not join the threads that it does not have.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
  return "report_thread_leaks=0";
}
#endif

enum { RING = 8192, RING_BYTES = RING * sizeof(tide_event) };

// ---- A listener that remembers --------------------------------------------------------------

typedef struct seen {
  size_t count;
  tide_event events[2 * RING];
} seen;

static void remember(const tide_event *event, void *arg) {
  seen *s = arg;
  MUST(s->count < LENGTH(s->events));
  s->events[s->count++] = *event;
}

static MAYBE_UNUSED seen all;

static tide_event_listener *listen(void (*fn)(const tide_event *, void *), void *arg) {
  tide_event_listener *listener = tide_event_listener_add(fn, arg);
  ck_assert_ptr_nonnull(listener);
  return listener;
}

static MAYBE_UNUSED void start(void) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(remember, &all);
}

// An instant with these numbers, now.
static void emit(uint64_t a, uint64_t b) {
  rt_event(TIDE_EVENT_ROTATE, os_now_ns(), 0, a, b);
}

// ---- A listener that holds its thread -------------------------------------------------------

static MAYBE_UNUSED int calls; // to listeners that count them

static volatile int entered, may_return; // of hold

static MAYBE_UNUSED void hold(const tide_event *event, void *arg) {
  calls++;
  set_flag(&entered);
  wait_until(&may_return);
}

// ---------------------------------------------------------------------------------------------

// Mappings are counted, and processes forked: no thread but the test's.
static void no_threads_of_the_library(void) {
  setenv("TIDE_GCINTERVAL", "0", 1);
}

#endif
