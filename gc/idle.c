// SPDX-License-Identifier: MIT
// Collections by time: a program that has stopped allocating is not left with its garbage,
// with what its hooks would drop, and with free memory.
//
// A thread of the library's own sleeps until there has been no collection for gc_interval_ms, makes
// one, and gives back what free memory the heap does not need as it is. It registers for that time
// only. It is started by the first collection, as Go has none by time before the first either; not
// at all where the interval is 0. With GC percent off there are none, and it sleeps until percent
// is set.
//
// The program's hooks, handlers and listeners may run on it: on a stack of 1 MiB, with all
// signals blocked but the one that stops threads.
//
// It ends when the last thread leaves the heap. The child of a fork has none until its first
// collection.
#include "idle.h"
#include "cycle.h"
#include "pace.h"

enum { STACK_BYTES = 1 << 20 };

static struct {
  unsigned int bell; // changes when there may be something new; waited on
  AO_t started;      // there is a thread
  AO_t generation;   // of threads: those of an earlier one leave
} idle;

static void ring(void) {
  AO_int_fetch_and_add1(&idle.bell);
  os_futex_wake_all(&idle.bell);
}

static uint64_t interval_ns(void) {
  return (uint64_t)rt_options.gc_interval_ms * 1000000;
}

static void collect(void) {
  AO_fetch_and_sub1(&rt_own_threads);
  rt_thread *self = rt_enter("a collection by time");
  if (self) cycle_by_time(self);
  if (self) tide_thread_unregister();
  AO_fetch_and_add1(&rt_own_threads);
  rt_own_thread_block_signals(); // the one that stops threads was let in
}

static void *idle_main(void *argument) {
  rt_own_thread_block_signals();
  uint64_t looked_at_ns = 0; // and it was not the time to collect
  for (;;) {
    unsigned int heard = AO_int_load_acquire(&idle.bell); // before what it may be about
    if (AO_load(&idle.generation) != (AO_t)argument) break;
    uint64_t now_ns = os_now_ns(), since_ns = cycle_last_start_ns();
    if (looked_at_ns > since_ns) since_ns = looked_at_ns;
    uint64_t due_ns = since_ns + interval_ns();
    if (pace_is_off()) {
      os_futex_wait(&idle.bell, heard);
    } else if (now_ns < due_ns) {
      os_futex_wait_ns(&idle.bell, heard, due_ns - now_ns);
    } else {
      looked_at_ns = now_ns;
      if (!cycle_disabled()) collect();
    }
  }
  AO_fetch_and_sub1(&rt_own_threads);
  return NULL;
}

void idle_start(void) {
  if (RT_LIKELY(AO_load(&idle.started)) || !rt_options.gc_interval_ms) return;
  if (!AO_compare_and_swap(&idle.started, 0, 1)) return;
  if (!rt_own_thread_start(idle_main, (void *)AO_load(&idle.generation), "tide-idle", STACK_BYTES))
    AO_store(&idle.started, 0); // tried again after the next collection
}

void idle_leave(void) {
  AO_fetch_and_add1(&idle.generation);
  AO_store(&idle.started, 0);
  ring();
}

void idle_percent_changed(void) {
  if (AO_load(&idle.started)) ring();
}

void idle_after_fork(void) {
  AO_fetch_and_add1(&idle.generation);
  AO_store(&idle.started, 0);
}
