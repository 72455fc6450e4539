// SPDX-License-Identifier: MIT
// A collection, from its cause to the next goal. Start reading here.
//
//   cycle_due        on the slow path of an allocation: has the heap reached its goal, or memory
//   its
//                    limit? (pace.c)
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
#include "external.h"
#include "hooks.h"
#include "idle.h"
#include "limit.h"
#include "pace.h"
#include "recording.h"

#include <string.h>

// One collection at a time, each in its turn: a thread that collects again and again must not keep
// the others from allocating.
static struct {
  unsigned int next; // turn to be had
  unsigned int now;  // turn that is on; waited on
} turns;
static AO_t started;  // collections so far
static AO_t disabled; // depth of tide_gc_disable
static AO_t last_start_ns;

// Under cycle_lock.
static tide_cycle now;
static uint64_t recent_bytes[4]; // the heap's size when each of the last cycles started

// Changed under cycle_lock, between two steps of `changes`, which is odd meanwhile: so it can be
// read without the lock (history_read).
static struct {
  AO_t changes;
  struct history {
    uint64_t cycles, forced, limited, cpu_ns, pause_total_ns, last_end_unix_ns;
    uint64_t pause_ns[TIDE_PAUSE_HISTORY], pause_end_ns[TIDE_PAUSE_HISTORY];
  } data;
} history;

// In a TIDE_CYCLE_END hook: its allocations start no collection, which would run the hook again.
static __thread bool in_end_hooks __attribute__((tls_model("initial-exec")));

// ---- When -----------------------------------------------------------------------------------

bool cycle_disabled(void) {
  return AO_load(&disabled);
}

bool cycle_due(rt_thread *self, size_t request, cycle_reason *reason) {
  if (RT_UNLIKELY(in_end_hooks || cycle_disabled())) return false;
  *reason = (cycle_reason){.request = request, .seen = AO_load(&started)};
  if (RT_UNLIKELY(rt_options.stress)) {
    static __thread uint64_t allocations __attribute__((tls_model("initial-exec")));
    reason->cause = TIDE_CAUSE_STRESS;
    if (++allocations % (uint64_t)rt_options.stress == 0) return true;
  }
  if (rt_recording() && recording_due(request)) {
    reason->cause = TIDE_CAUSE_STRESS;
    return true;
  }
  return pace_due(self, request, &reason->cause);
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
  rt_rseq_allow(self, !why);
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
  now.external_bytes = external_bytes();
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
  now.next_goal_bytes = pace_marked(live);
  if (rt_recording()) recording_cycle(&now);
}

// The pause is over here: this thread may have to wait for a CPU once it has woken the others.
static void on_ended(void) {
  now.end_ns = stage_ns();
  now.pause_ns = stage_began_ns - now.stopped_at_ns + now.stop_ns;
  limit_collected(now.start_at_ns, stage_began_ns);
}

// ---- Memory given back ----------------------------------------------------------------------

// What free memory the heap may need before it is as large as in any of the last cycles, or at its
// goal, stays. So a heap whose size goes up and down keeps its memory, and one that has dropped
// from a peak gives it back with the fifth cycle. Under cycle_lock, everything is swept.
static void give_memory_back(rt_thread *self) {
  if (RT_UNLIKELY(rt_options.poison)) return; // poison given back would read as zeros
  uint64_t needed = pace_heap_goal();
  for (size_t i = 0; i < sizeof recent_bytes / sizeof *recent_bytes; i++)
    if (recent_bytes[i] > needed) needed = recent_bytes[i];
  size_t keep = pace_keep_bytes(needed, 0);
  gc_engine->release(self, keep ? keep : 1, false);
}

// ---- The whole ------------------------------------------------------------------------------

static void remember(void) {
  struct history *h = &history.data;
  uint64_t unix_ns = os_unix_ns();
  size_t at = h->cycles % TIDE_PAUSE_HISTORY;
  AO_fetch_and_add1(&history.changes);
  AO_nop_full(); // odd, before any part of the change is seen; pairs with the reads in history_read
  h->cycles++;
  h->pause_ns[at] = now.pause_ns;
  h->pause_end_ns[at] = h->last_end_unix_ns = unix_ns;
  h->pause_total_ns += now.pause_ns;
  h->cpu_ns += now.pause_ns + now.mark_cpu_ns - now.mark_ns + now.sweep_ns;
  h->forced += now.cause == TIDE_CAUSE_FORCED;
  h->limited += now.cause == TIDE_CAUSE_LIMIT;
  AO_store_release(&history.changes, AO_load(&history.changes) + 1);
}

static void history_copy(tide_memstats *s, uint64_t *cpu_ns) {
  const struct history *h = &history.data;
  s->num_gc = h->cycles;
  s->num_forced_gc = h->forced;
  s->num_limit_gc = h->limited;
  s->last_gc_ns = h->last_end_unix_ns;
  s->pause_total_ns = h->pause_total_ns;
  memcpy(s->pause_ns, h->pause_ns, sizeof s->pause_ns);
  memcpy(s->pause_end_ns, h->pause_end_ns, sizeof s->pause_end_ns);
  *cpu_ns = h->cpu_ns;
}

static void history_read(tide_memstats *s, uint64_t *cpu_ns) {
  for (unsigned tries = 0;; tries++) {
    AO_t changes = AO_load_acquire(&history.changes);
    history_copy(s, cpu_ns);
    AO_nop_read(); // the copy is complete, before the second look
    if (changes % 2 == 0 && AO_load(&history.changes) == changes) return;
    os_pause(tries);
  }
}

static bool cause_is_gone(rt_thread *self, const cycle_reason *reason) {
  switch (reason->cause) {
  case TIDE_CAUSE_GOAL:
    return !pace_goal_reached();
  case TIDE_CAUSE_LIMIT: // sweeping alone may do
    gc_engine->finish_sweep(self);
    return !pace_limit_reached(reason->request) || !limit_allows(self);
  case TIDE_CAUSE_MEMORY:
  case TIDE_CAUSE_TIME:
    return AO_load(&started) > reason->seen;
  default:
    return false;
  }
}

static void begin_cycle(tide_cause cause, uint64_t began_ns) {
  pacer_memory m;
  pace_memory(&m);
  now = (tide_cycle){.number = AO_fetch_and_add1(&started) + 1,
                     .cause = cause,
                     .goal_bytes = pace_goal(),
                     .total_bytes = m.used_bytes + m.free_bytes,
                     .limit_bytes = limit_told(pace_soft_limit()),
                     .limiter_active = limit_active(),
                     .start_at_ns = began_ns};
  AO_store(&last_start_ns, began_ns);
}

uint64_t cycle_last_start_ns(void) {
  return AO_load(&last_start_ns);
}

// All from the cycle's own numbers, in the order in which they ended: who listens sees what the
// statistics say.
static void emit_events(const tide_cycle *c) {
  uint64_t at_ns = c->start_at_ns, number = c->number;
  rt_event(TIDE_EVENT_HEAP, at_ns, 0, c->heap_start_bytes + c->external_bytes, c->goal_bytes);
  rt_event(TIDE_EVENT_MEMORY, at_ns, 0, c->total_bytes, limit_meant(c->limit_bytes));
  rt_event(TIDE_EVENT_EXTERNAL, at_ns, 0, c->external_bytes, 0);
  rt_event(TIDE_EVENT_SWEEP_REST, at_ns, c->sweep_ns, number, 0);
  at_ns = c->stopped_at_ns - c->stop_ns;
  rt_event(TIDE_EVENT_STOP, at_ns, c->stop_ns, number, c->threads_stopped);
  at_ns += c->stop_ns;
  rt_event(TIDE_EVENT_HOOKS, at_ns, c->hooks_ns, number, 0);
  at_ns += c->hooks_ns;
  rt_event(TIDE_EVENT_MARK, at_ns, c->mark_ns, c->live_bytes, c->live_objects);
  at_ns += c->mark_ns;
  rt_event(TIDE_EVENT_FINISH, at_ns, c->end_ns, number, 0);
  at_ns += c->end_ns;
  uint64_t live_bytes = c->live_bytes + external_bytes();
  rt_event(TIDE_EVENT_HEAP, at_ns, 0, live_bytes, c->next_goal_bytes);
  rt_event(TIDE_EVENT_CYCLE, c->start_at_ns, at_ns - c->start_at_ns, number, c->cause);
}

static void collect_locked(rt_thread *self, tide_cause cause) {
  static const engine_calls calls = {on_stopped, on_marked, on_ended};
  uint64_t began_ns = os_now_ns();
  begin_cycle(cause, began_ns);
  limit_note();
  gc_engine->finish_sweep(self);
  recent_bytes[now.number % (sizeof recent_bytes / sizeof *recent_bytes)] = gc_engine->bytes();
  give_memory_back(self);
  now.sweep_ns = os_now_ns() - began_ns;
  hooks_lock();
  gc_engine->collect(self, &calls);
  hooks_unlock();
  remember();
  emit_events(&now);
  if (rt_options.gctrace)
    gctrace_print(&now, os_now_ns() - rt_started_at_ns(), history.data.cpu_ns, AO_load(&disabled));
}

static void run_end_hooks(const tide_cycle *done) {
  if (in_end_hooks) return; // a hook has collected: it is not called again for that
  rt_thread *self = rt_self();
  in_end_hooks = true;
  unsigned made_for = rt_record_for(RT_RECORD_PROGRAM);
  rt_quiet_begin(self);
  hooks_run_end(done);
  rt_quiet_end(self);
  rt_record_for(made_for);
  in_end_hooks = false;
}

static RT_NOINLINE void collect(rt_thread *self, const cycle_reason *reason) {
  int cancellable = rt_cancel_disable();
  cycle_lock();
  bool due = !cause_is_gone(self, reason);
  if (due) collect_locked(self, reason->cause);
  tide_cycle done = now;
  cycle_unlock();
  if (due) run_end_hooks(&done);
  if (due) idle_start();
  if (rt_recording()) rt_record_write(true);
  if (rt_events_wanted()) rt_events_drain();
  rt_cancel_restore(cancellable);
}

void cycle_collect(rt_thread *self, const cycle_reason *reason) {
  rt_clear_stack_below(self); // our own frames come to lie there, and are scanned with their gaps
  collect(self, reason);
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

// Nothing has been allocated for long: the heap need not be as large as it was, or may become.
static RT_NOINLINE void give_all_but_a_little_back(rt_thread *self) {
  gc_engine->finish_sweep(self);
  cycle_lock();
  memset(recent_bytes, 0, sizeof recent_bytes);
  if (!rt_options.poison) gc_engine->release(self, pace_keep_bytes(gc_engine->bytes(), 0), true);
  cycle_unlock();
}

void cycle_by_time(rt_thread *self) {
  const cycle_reason reason = {.cause = TIDE_CAUSE_TIME, .seen = AO_load(&started)};
  cycle_collect(self, &reason);
  give_all_but_a_little_back(self);
}

static const cycle_reason forced = {.cause = TIDE_CAUSE_FORCED};

void tide_collect(void) {
  rt_thread *self = rt_enter("tide_collect");
  if (!self) return;
  cycle_collect(self, &forced);
  after_forced(self);
}

void tide_collect_and_release(void) {
  rt_thread *self = rt_enter("tide_collect_and_release");
  if (!self) return;
  cycle_collect(self, &forced);
  gc_engine->finish_sweep(self);
  gc_engine->release(self, 0, true);
}

uint64_t tide_gc_cycle(void) {
  return AO_load(&started);
}

const char *tide_cause_string(tide_cause cause) {
  switch (cause) {
  case TIDE_CAUSE_GOAL:
    return "goal";
  case TIDE_CAUSE_LIMIT:
    return "limit";
  case TIDE_CAUSE_TIME:
    return "time";
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
  uint64_t cpu_ns;
  history_read(s, &cpu_ns);
  double available_ns = (double)(os_now_ns() - rt_started_at_ns()) * rt_cpus();
  s->gc_cpu_fraction = available_ns > 0 ? (double)cpu_ns / available_ns : 0;
  s->disable_depth = AO_load(&disabled);
}

const char *tide_engine(void) {
  return gc_engine->name;
}

// ---- The runtime's client -------------------------------------------------------------------

static tide_status client_settle(tide_options *options) {
  return gc_engine->settle(options);
}
static tide_status client_init(const tide_options *options) {
  pace_init(options);
  limit_init(options);
  return gc_engine->init();
}

static bool client_attach(rt_thread *thread) {
  return gc_engine->attach(thread);
}
static void client_detach(rt_thread *thread, bool left) {
  gc_engine->detach(thread, left);
  if (thread == rt_threads() && !thread->next) idle_leave();
}
static void client_allow(rt_thread *thread, bool allowed) {
  gc_engine->allow(thread, allowed);
}

static void client_fork_prepare(void) {
  cycle_lock();
  hooks_lock();
}
static void client_fork_locked(void) {
  pace_lock_take();
  limit_lock_take();
  gc_engine->fork_locked();
}
static void client_fork_unlock(bool in_child) {
  gc_engine->fork_unlock(in_child);
  if (in_child) turns.next = turns.now + 1; // who waited for a turn is not there
  if (in_child) hooks_after_fork();
  if (in_child) limit_after_fork();
  if (in_child) idle_after_fork();
  limit_lock_give();
  pace_lock_give();
}
static void client_fork_done(void) {
  hooks_unlock();
  cycle_unlock();
}

const rt_client rt_client_calls = {
    .settle = client_settle,
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
