// SPDX-License-Identifier: MIT
// Hooks: what the program has called in the middle of a collection.
//
// A list for each point, in the order of adding, changed under one lock. The collecting thread
// holds the lock while the world is stopped. Hooks at the cycle's end run without it, since they
// may add hooks, allocate and collect: a hook that is running is counted in `running`, and whoever
// removes it waits for that to be 0 before it leaves the list, so the list can be followed through
// it.
#include "hooks.h"
#include "rt.h"

#include <stdlib.h>

struct tide_hook {
  tide_hook_fn fn;
  void *arg;
  tide_hook_point point;
  tide_hook *next, *prev;
  unsigned running;
  bool removed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nothing_runs = PTHREAD_COND_INITIALIZER;
static tide_hook *first[TIDE_HOOK_POINTS], *last[TIDE_HOOK_POINTS];
// The hook at the cycle's end that this thread is in, one at the most: it may fork meanwhile.
static __thread tide_hook *running_here __attribute__((tls_model("initial-exec")));

void hooks_lock(void) {
  rt_mutex_take(&lock);
}
void hooks_unlock(void) {
  pthread_mutex_unlock(&lock);
}

tide_hook *tide_hook_add(tide_hook_point point, tide_hook_fn fn, void *arg) {
  if (!rt_enter("tide_hook_add")) return NULL;
  if ((unsigned)point >= TIDE_HOOK_POINTS || !fn) {
    rt_error_set(TIDE_ERR_ARGUMENT, "tide_hook_add: no such point, or no function");
    return NULL;
  }
  tide_hook *hook = calloc(1, sizeof *hook);
  if (!hook) {
    rt_error_set(TIDE_ERR_MEMORY, "no memory for a hook");
    return NULL;
  }
  hook->fn = fn;
  hook->arg = arg;
  hook->point = point;
  hooks_lock();
  hook->prev = last[point];
  if (hook->prev)
    hook->prev->next = hook;
  else
    first[point] = hook;
  last[point] = hook;
  hooks_unlock();
  return hook;
}

void tide_hook_remove(tide_hook *hook) {
  if (!hook || !rt_enter("tide_hook_remove")) return;
  int cancellable = rt_cancel_disable(); // waiting is a cancellation point
  hooks_lock();
  hook->removed = true;
  while (hook->running) pthread_cond_wait(&nothing_runs, &lock);
  if (hook->prev)
    hook->prev->next = hook->next;
  else
    first[hook->point] = hook->next;
  if (hook->next)
    hook->next->prev = hook->prev;
  else
    last[hook->point] = hook->prev;
  hooks_unlock();
  rt_cancel_restore(cancellable);
  free(hook);
}

void hooks_run_stopped(tide_hook_point point, const tide_cycle *cycle) {
  for (tide_hook *hook = first[point]; hook; hook = hook->next)
    if (!hook->removed) hook->fn(cycle, hook->arg);
}

void hooks_run_end(const tide_cycle *cycle) {
  hooks_lock();
  for (tide_hook *hook = first[TIDE_CYCLE_END]; hook; hook = hook->next) {
    if (hook->removed) continue;
    hook->running++;
    running_here = hook;
    hooks_unlock();
    hook->fn(cycle, hook->arg);
    hooks_lock();
    running_here = NULL;
    if (--hook->running == 0) pthread_cond_broadcast(&nothing_runs);
  }
  hooks_unlock();
}

void hooks_after_fork(void) {
  // Calls by threads that the child does not have will not return. One by this thread will.
  for (tide_hook *hook = first[TIDE_CYCLE_END]; hook; hook = hook->next)
    hook->running = hook == running_here;
  nothing_runs = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}
