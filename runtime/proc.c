// SPDX-License-Identifier: MIT
// Processors (P): what per-processor caches are divided over.
//
// A running thread has a processor. It gives it up when it enters tide_blocking and takes one when
// it leaves: the one that was given up last, whose caches are the likeliest to be warm. With no
// idle processor left it shares one, each in turn. So, as with Go's scheduler, which processor a
// thread runs on changes as threads block, and at most tide_procs() of them run with a processor to
// themselves.
//
// A step on a processor's data is taken between rt_proc_hold and rt_proc_let_go, which make the
// thread the only one on the processor, whether it shares it or not.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

static rt_proc *all; // RT_PROCS_MAX of them, outside static data, which is scanned
static AO_t procs;   // how many are in use
static rt_pinned_lock procs_lock = RT_PINNED_LOCK_INIT; // for what follows
static rt_proc *idle;                                   // last given up first
static unsigned next_shared;

void rt_procs_lock(void) {
  rt_pinned_lock_take(&procs_lock);
}
void rt_procs_unlock(void) {
  rt_pinned_lock_give(&procs_lock);
}

int tide_procs(void) {
  if (!rt_ensure_initialised()) return 1;
  return (int)AO_load(&procs);
}

// ---- Giving out -----------------------------------------------------------------------------

static void take(rt_thread *self) { // procs_lock held
  rt_proc *proc = idle;
  if (proc)
    idle = proc->next_idle;
  else
    proc = &all[next_shared++ % AO_load(&procs)];
  proc->threads++;
  self->proc = proc;
}

// Makes processors 0 .. count-1 idle, the lowest to be taken first. procs_lock held.
static void reset(unsigned count) {
  idle = NULL;
  next_shared = 0;
  AO_store(&procs, count);
  for (unsigned i = count; i-- > 0;) {
    all[i].index = i;
    all[i].threads = 0;
    all[i].next_idle = idle;
    idle = &all[i];
  }
}

// A system may have more CPUs than there are processors.
tide_status rt_procs_init(int count) {
  if (!all) all = os_map(RT_PROCS_MAX * sizeof *all);
  if (!all) return rt_error_set(TIDE_ERR_MEMORY, "no memory for the processors");
  reset(count < RT_PROCS_MAX ? (unsigned)count : RT_PROCS_MAX);
  return TIDE_OK;
}

void rt_proc_acquire(rt_thread *self) {
  rt_pin(self);
  rt_procs_lock();
  take(self);
  rt_procs_unlock();
  rt_unpin(self);
}

static void give_up(rt_thread *self) { // procs_lock held
  rt_proc *proc = self->proc;
  self->proc = NULL;
  if (--proc->threads == 0) {
    proc->next_idle = idle;
    idle = proc;
  }
}

void rt_proc_release(rt_thread *self) {
  rt_pin(self);
  rt_procs_lock();
  give_up(self);
  rt_procs_unlock();
  rt_unpin(self);
}

static void take_this(rt_thread *self, rt_proc *proc) { // procs_lock held
  rt_proc **link = &idle;
  while (*link && *link != proc) link = &(*link)->next_idle;
  if (*link) *link = proc->next_idle;
  proc->threads++;
  self->proc = proc;
}

int tide_proc_use(int processor) {
  rt_thread *self = rt_enter("tide_proc_use");
  if (!self) return -1;
  rt_pin(self); // the number of processors stays
  rt_procs_lock();
  int old = (int)self->proc->index;
  if (processor >= 0 && (AO_t)processor < AO_load(&procs)) {
    give_up(self);
    take_this(self, &all[processor]);
  }
  rt_procs_unlock();
  rt_unpin(self);
  return old;
}

rt_proc *rt_proc_at(unsigned index) {
  return &all[index];
}

RT_COLD void rt_proc_wait(rt_proc *proc) {
  // The holder is in a pinned section: running, or runnable and soon to run.
  for (unsigned tries = 0;; tries++) {
    // Acquire: pairs with the release in rt_proc_let_go.
    if (AO_load(&proc->held) == 0 && AO_compare_and_swap_acquire(&proc->held, 0, 1)) return;
    if (tries >= 64) os_pause(tries / 64);
  }
}

// ---- Changing their number ------------------------------------------------------------------

int tide_procs_set(int count) {
  rt_thread *self = rt_enter("tide_procs_set");
  int old = (int)AO_load(&procs);
  if (!self || count < 1 || count > RT_PROCS_MAX || count == old) return old;
  // No thread is in a pinned section while the world is stopped: no processor is held, and
  // procs_lock is free.
  rt_stop stop;
  rt_world_stop(self, &stop);
  rt_procs_lock();
  old = (int)AO_load(&procs);
  reset((unsigned)count);
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next)
    if (thread->proc) take(thread);
  rt_procs_unlock();
  rt_world_start(self);
  return old;
}

void rt_procs_after_fork(rt_thread *only) {
  for (unsigned i = 0; i < RT_PROCS_MAX; i++)
    if (AO_load(&all[i].held)) AO_store(&all[i].held, 0); // of memory that is used only
  reset((unsigned)AO_load(&procs));
  if (only && only->proc) take(only);
}
