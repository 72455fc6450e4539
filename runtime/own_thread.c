// SPDX-License-Identifier: MIT
// Threads of the library's own: the markers, and the one that collects when nobody else does.
//
// They are not registered, so no stop waits for them or signals them, and leave all memory but the
// collector's alone; whoever wants to use the heap registers for that time. All signals are blocked
// in them. They sleep on futexes and end when the last thread has left the heap: else a program
// whose first thread has left by pthread_exit would never end.
#define _GNU_SOURCE
#include "rt.h"

#include <signal.h>

AO_t rt_own_threads;

void rt_own_thread_block_signals(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
}

// Signals are blocked meanwhile, so that none ends up there; but for the one that stops this
// thread, which may wait for a lock of the C library in here.
bool rt_own_thread_start(void *(*fn)(void *), void *arg, const char *name, size_t stack_bytes) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  // Not the policy of whoever collects first, which may be to run when nobody else does.
  pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, tide_stop_signal());
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, fn, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error) return false;
  AO_fetch_and_add1(&rt_own_threads); // it leaves only after the last thread, not before this one
  pthread_setname_np(thread, name);
  return true;
}
