// SPDX-License-Identifier: MIT
// A collection, from its cause to the next goal. Start reading here.
//
//   cycle_due        on the slow path of an allocation: has the heap reached its goal?
//   cycle_collect    one thread at a time:
//     sweeping       what is left from the cycle before, while the world still runs; free memory
//                    that will not be needed soon goes back to the system (release.c)
//     stop           every other thread (runtime/world.c)
//     hooks          TIDE_STW_START: what they drop dies in this very cycle
//     roots, mark    everything that can be reached (mark.c)
//     hooks          TIDE_MARK_DONE
//     pace           the next goal, from what is live (pacer.c)
//     restart
//     hooks          TIDE_CYCLE_END, with the world running
//   and the sweep, bit by bit, where memory is needed next (sweep.c).
//
// The engine does the middle part; it calls back at the two stopped points. Between them this file
// keeps to the rules of a stopped world: no lock but pinned ones, no malloc, no stdio.
#include "cycle.h"
#include "engine.h"
#include "event_text.h"
#include "hooks.h"
#include "pacer.h"

#include <string.h>

const engine *gc_engine = &engine_native;

// One collection at a time, each in its turn: a thread that collects again and again must not keep
// the others from allocating.
static struct {
  unsigned int next; // turn to be had
  unsigned int now;  // turn that is on; waited on
} turns;
static AO_t started;  // collections so far
static AO_t disabled; // depth of tide_gc_disable

// The pacer's numbers, and the goal that follows from them. Pinned, as they change while the world
// is stopped; allocation reads the trigger without the lock.
static rt_pinned_lock pace_lock = RT_PINNED_LOCK_INIT;
static pacer pace;
static AO_t goal, trigger;

// Under cycle_lock.
static tide_cycle now;
static uint64_t recent_bytes[4]; // the heap's size when each of the last cycles started
static struct {
  uint64_t forced, cpu_ns, pause_total_ns, last_end_unix_ns;
  uint64_t pause_ns[TIDE_PAUSE_HISTORY], pause_end_ns[TIDE_PAUSE_HISTORY];
} history;

// In a TIDE_CYCLE_END hook: its allocations start no collection, which would run the hook again.
static __thread bool in_end_hooks __attribute__((tls_model("initial-exec")));

// ---- Pace -----------------------------------------------------------------------------------

static void pace_update(void) { // pace_lock held
  AO_store(&goal, pacer_goal(&pace));
  AO_store(&trigger, pacer_trigger(&pace));
}

bool cycle_disabled(void) {
  return AO_load(&disabled);
}

static bool goal_reached(void) {
  return gc_engine->bytes() >= AO_load(&trigger);
}

bool cycle_due(rt_thread *self, tide_cause *cause) {
  if (RT_UNLIKELY(in_end_hooks || cycle_disabled())) return false;
  if (RT_UNLIKELY(rt_options.stress)) {
    static __thread uint64_t allocations __attribute__((tls_model("initial-exec")));
    *cause = TIDE_CAUSE_STRESS;
    if (++allocations % (uint64_t)rt_options.stress == 0) return true;
  }
  *cause = TIDE_CAUSE_GOAL;
  return goal_reached();
}

int tide_gc_percent_set(int percent) {
  rt_thread *self = rt_enter("tide_gc_percent_set");
  if (!self) return 0;
  rt_pin(self);
  rt_pinned_lock_take(&pace_lock);
  int old = pace.percent;
  pace.percent = percent < 0 ? -1 : percent;
  pace_update();
  rt_pinned_lock_give(&pace_lock);
  rt_unpin(self);
  return old;
}

size_t tide_min_heap_set(size_t bytes) {
  rt_thread *self = rt_enter("tide_min_heap_set");
  if (!self) return 0;
  rt_pin(self);
  rt_pinned_lock_take(&pace_lock);
  size_t old = pace.min_heap_bytes;
  pace.min_heap_bytes = bytes;
  pace_update();
  rt_pinned_lock_give(&pace_lock);
  rt_unpin(self);
  return old;
}

void tide_gc_disable(void) {
  AO_fetch_and_add1(&disabled);
}

tide_status tide_gc_enable(void) {
  for (;;) {
    AO_t depth = AO_load(&disabled);
    if (!depth) return rt_error_set(TIDE_ERR_STATE, "tide_gc_enable: collections are not disabled");
    if (AO_compare_and_swap(&disabled, depth, depth - 1)) return TIDE_OK;
  }
}

// ---- The stopped part -----------------------------------------------------------------------

static uint64_t stage_began_ns;

// Time since the stage before ended.
static uint64_t stage_ns(void) {
  uint64_t at = os_now_ns(), took = at - stage_began_ns;
  stage_began_ns = at;
  return took;
}

// While the program's functions run in a stopped world, its use of the heap is refused.
static void refuse(rt_thread *self, const char *why) {
  self->refusal = why;
  gc_engine->allow(self, !why);
}

static void run_stopped_hooks(tide_hook_point point) {
  rt_thread *self = rt_self();
  refuse(self, "in a hook while the world is stopped");
  hooks_run_stopped(point, &now);
  refuse(self, NULL);
}

static void on_stopped(const rt_stop *stop) {
  now.stop_ns = stop->stopped_at_ns - stop->asked_at_ns;
  now.stopped_at_ns = stage_began_ns = stop->stopped_at_ns;
  now.threads_stopped = stop->threads;
  now.heap_start_bytes = gc_engine->bytes();
  run_stopped_hooks(TIDE_STW_START);
  now.hooks_ns = stage_ns();
}

static void on_marked(const engine_live *live) {
  now.live_bytes = live->live_bytes;
  now.live_objects = live->live_objects;
  now.stack_bytes = live->stack_bytes;
  now.global_bytes = live->global_bytes;
  now.mark_ns = stage_ns();
  now.markers = live->markers;
  now.mark_cpu_ns = now.mark_ns + live->others_ns;
  run_stopped_hooks(TIDE_MARK_DONE);
  rt_pinned_lock_take(&pace_lock); // free: no thread was stopped in a pinned section
  pace.live_bytes = live->live_bytes;
  pace.stack_bytes = live->stack_bytes;
  pace.global_bytes = live->global_bytes;
  pace_update();
  now.next_goal_bytes = AO_load(&goal);
  rt_pinned_lock_give(&pace_lock);
}

// ---- Memory given back ----------------------------------------------------------------------

// What free memory the heap may need before it is as large as in any of the last cycles, or at its
// goal, stays. So a heap whose size goes up and down keeps its memory, and one that has dropped
// from a peak gives it back with the fifth cycle. Under cycle_lock, everything is swept.
static void give_memory_back(rt_thread *self) {
  if (RT_UNLIKELY(rt_options.poison)) return; // poison given back would read as zeros
  uint64_t needed = AO_load(&goal);
  if (needed == PACER_NO_GOAL) needed = 0;
  for (size_t i = 0; i < sizeof recent_bytes / sizeof *recent_bytes; i++)
    if (recent_bytes[i] > needed) needed = recent_bytes[i];
  gc_engine->release(self, pacer_keep(needed, gc_engine->bytes()));
}

// ---- The whole ------------------------------------------------------------------------------

static void remember(void) {
  uint64_t number = now.number, unix_ns = os_unix_ns();
  size_t at = (number + TIDE_PAUSE_HISTORY - 1) % TIDE_PAUSE_HISTORY;
  history.pause_ns[at] = now.pause_ns;
  history.pause_end_ns[at] = history.last_end_unix_ns = unix_ns;
  history.pause_total_ns += now.pause_ns;
  history.cpu_ns += now.pause_ns + now.mark_cpu_ns - now.mark_ns + now.sweep_ns;
  history.forced += now.cause == TIDE_CAUSE_FORCED;
}

static bool cause_is_gone(tide_cause cause, uint64_t seen) {
  if (cause == TIDE_CAUSE_GOAL) return !goal_reached();
  return cause == TIDE_CAUSE_MEMORY && AO_load(&started) > seen;
}

static void collect_locked(rt_thread *self, tide_cause cause) {
  static const engine_calls calls = {on_stopped, on_marked};
  uint64_t began = os_now_ns();
  now = (tide_cycle){.number = AO_fetch_and_add1(&started) + 1,
                     .cause = cause,
                     .goal_bytes = AO_load(&goal),
                     .start_at_ns = began};
  gc_engine->finish_sweep(self);
  recent_bytes[now.number % (sizeof recent_bytes / sizeof *recent_bytes)] = gc_engine->bytes();
  give_memory_back(self);
  now.sweep_ns = os_now_ns() - began;
  hooks_lock();
  gc_engine->collect(self, &calls);
  hooks_unlock();
  now.end_ns = stage_ns();
  now.pause_ns = stage_began_ns - now.stopped_at_ns + now.stop_ns;
  remember();
  if (rt_options.gctrace) gctrace_print(&now, os_now_ns() - rt_started_at_ns(), history.cpu_ns);
}

static void run_end_hooks(const tide_cycle *done) {
  if (in_end_hooks) return; // a hook has collected: it is not called again for that
  in_end_hooks = true;
  hooks_run_end(done);
  in_end_hooks = false;
}

static RT_NOINLINE void collect(rt_thread *self, tide_cause cause, uint64_t seen) {
  int cancellable = rt_cancel_disable();
  cycle_lock();
  bool due = !cause_is_gone(cause, seen);
  if (due) collect_locked(self, cause);
  tide_cycle done = now;
  cycle_unlock();
  if (due) run_end_hooks(&done);
  rt_cancel_restore(cancellable);
}

void cycle_collect(rt_thread *self, tide_cause cause, uint64_t seen) {
  rt_clear_stack_below(self); // our own frames come to lie there, and are scanned with their gaps
  collect(self, cause, seen);
  AO_compiler_barrier(); // no tail call: the frame stays
}

void cycle_lock(void) {
  unsigned int turn = AO_int_fetch_and_add1(&turns.next), on;
  // Acquire: pairs with the release in cycle_unlock.
  while ((on = AO_int_load_acquire(&turns.now)) != turn) os_futex_wait(&turns.now, on);
}
void cycle_unlock(void) {
  AO_int_fetch_and_add1_release(&turns.now);
  os_futex_wake_all(&turns.now);
}

// Apart, for its locals: they would be a gap in a frame that is scanned (see rt_clear_stack_below).
static RT_NOINLINE void after_forced(rt_thread *self) {
  gc_engine->finish_sweep(self);
  int cancellable = rt_cancel_disable();
  cycle_lock();
  give_memory_back(self);
  cycle_unlock();
  rt_cancel_restore(cancellable);
}

void tide_collect(void) {
  rt_thread *self = rt_enter("tide_collect");
  if (!self) return;
  cycle_collect(self, TIDE_CAUSE_FORCED, 0);
  after_forced(self);
}

void tide_collect_and_release(void) {
  rt_thread *self = rt_enter("tide_collect_and_release");
  if (!self) return;
  cycle_collect(self, TIDE_CAUSE_FORCED, 0);
  gc_engine->finish_sweep(self);
  gc_engine->release(self, 0);
}

uint64_t tide_gc_cycle(void) {
  return AO_load(&started);
}

const char *tide_cause_string(tide_cause cause) {
  switch (cause) {
  case TIDE_CAUSE_GOAL:
    return "goal";
  case TIDE_CAUSE_FORCED:
    return "forced";
  case TIDE_CAUSE_MEMORY:
    return "memory";
  case TIDE_CAUSE_STRESS:
    return "stress";
  case TIDE_CAUSES:
    break;
  }
  return "unknown";
}

void tide_heap_walk(bool (*fn)(const tide_object *object, void *arg), void *arg) {
  rt_thread *self = rt_enter("tide_heap_walk");
  if (!self) return;
  cycle_lock();
  refuse(self, "in tide_heap_walk");
  gc_engine->walk(self, fn, arg);
  refuse(self, NULL);
  cycle_unlock();
}

void cycle_stats(tide_memstats *s) {
  s->next_gc = AO_load(&goal);
  s->last_gc_ns = history.last_end_unix_ns;
  s->pause_total_ns = history.pause_total_ns;
  memcpy(s->pause_ns, history.pause_ns, sizeof s->pause_ns);
  memcpy(s->pause_end_ns, history.pause_end_ns, sizeof s->pause_end_ns);
  s->num_gc = AO_load(&started);
  s->num_forced_gc = history.forced;
  double available_ns = (double)(os_now_ns() - rt_started_at_ns()) * os_cpus_allowed();
  s->gc_cpu_fraction = available_ns > 0 ? (double)history.cpu_ns / available_ns : 0;
  s->gc_percent = pace.percent;
  s->disable_depth = AO_load(&disabled);
}

// ---- The runtime's client -------------------------------------------------------------------

static tide_status client_init(const tide_options *options) {
  pace.percent = (int)options->gc_percent;
  pace.min_heap_bytes = (uint64_t)options->min_heap_bytes;
  pace_update();
  return gc_engine->init();
}

static bool client_attach(rt_thread *thread) {
  return gc_engine->attach(thread);
}
static void client_detach(rt_thread *thread, bool left) {
  gc_engine->detach(thread, left);
}
static void client_allow(rt_thread *thread, bool allowed) {
  gc_engine->allow(thread, allowed);
}

static void client_fork_prepare(void) {
  cycle_lock();
  hooks_lock();
}
static void client_fork_locked(void) {
  rt_pinned_lock_take(&pace_lock);
  gc_engine->fork_locked();
}
static void client_fork_unlock(bool in_child) {
  gc_engine->fork_unlock(in_child);
  if (in_child) turns.next = turns.now + 1; // who waited for a turn is not there
  if (in_child) hooks_after_fork();
  rt_pinned_lock_give(&pace_lock);
}
static void client_fork_done(void) {
  hooks_unlock();
  cycle_unlock();
}

const rt_client rt_client_calls = {
    .init = client_init,
    .thread_attach = client_attach,
    .thread_detach = client_detach,
    .thread_allow = client_allow,
    .fork_prepare = client_fork_prepare,
    .fork_locked = client_fork_locked,
    .fork_unlock = client_fork_unlock,
    .fork_done = client_fork_done,
    .event_text = event_text,
};
