// SPDX-License-Identifier: MIT
// The pace: the pacer's numbers, the settings that the program may change, and whether a collection
// is due.
//
// Settings act at once: whoever changes one computes the trigger anew, under a pinned lock, as does
// the collecting thread with the world stopped. Allocation reads the trigger without a lock, on its
// slow path. What the limit allows depends on all that is mapped at the moment, and is computed
// there, by threads of a program that has a limit.
#include "pace.h"
#include "external.h"
#include "idle.h"
#include "limit.h"

static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;
static pacer pace; // under it
// Copies of parts of it, read without the lock.
static AO_t trigger = (AO_t)PACER_NO_GOAL, percent_goal = (AO_t)PACER_NO_GOAL;
static AO_t limit = (AO_t)PACER_NO_LIMIT;
static AO_t percent_is_off;
static AO_t live_bytes, paced_external; // with external; pace.external_bytes
static AO_t beside_heap; // what was mapped beside the heap when the last collection was due

static void update(void) { // lock held
  AO_store(&trigger, pacer_trigger(&pace));
  AO_store(&percent_goal, pacer_percent_goal(&pace));
  AO_store(&percent_is_off, pace.percent < 0);
  AO_store(&live_bytes, pace.live_bytes + pace.external_bytes);
  AO_store(&limit, pace.limit_bytes);
  AO_store(&paced_external, pace.external_bytes);
}

void pace_init(const tide_options *options) {
  pace.percent = (int)options->gc_percent;
  pace.min_heap_bytes = (uint64_t)options->min_heap_bytes;
  pace.limit_bytes = limit_meant(options->memory_limit);
  update();
}

void pace_lock_take(void) {
  rt_pinned_lock_take(&lock);
}
void pace_lock_give(void) {
  rt_pinned_lock_give(&lock);
}

// ---- Settings -------------------------------------------------------------------------------

static void begin(rt_thread *self) {
  rt_pin(self);
  rt_pinned_lock_take(&lock);
}
static void end(rt_thread *self) {
  update();
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
}

int tide_gc_percent_set(int percent) {
  rt_thread *self = rt_enter("tide_gc_percent_set");
  if (!self) return 0;
  begin(self);
  int old = pace.percent;
  pace.percent = percent < 0 ? -1 : percent;
  end(self);
  if (rt_recording()) rt_record_option("gc_percent", percent < 0 ? -1 : percent);
  idle_percent_changed();
  return old;
}

size_t tide_min_heap_set(size_t bytes) {
  rt_thread *self = rt_enter("tide_min_heap_set");
  if (!self) return 0;
  begin(self);
  size_t old = pace.min_heap_bytes;
  pace.min_heap_bytes = bytes;
  end(self);
  if (rt_recording()) rt_record_option("min_heap_bytes", (int64_t)bytes);
  return old;
}

int64_t tide_memory_limit_set(int64_t bytes) {
  rt_thread *self = rt_enter("tide_memory_limit_set");
  if (!self) return INT64_MAX;
  begin(self);
  int64_t old = limit_told(pace.limit_bytes);
  if (bytes >= 0) pace.limit_bytes = limit_meant(bytes);
  end(self);
  if (bytes >= 0 && rt_recording()) rt_record_option("memory_limit", bytes);
  return old;
}

// ---- Is a collection due? -------------------------------------------------------------------

void pace_memory(pacer_memory *memory) {
  engine_memory m;
  gc_engine->memory(&m);
  uint64_t external = external_bytes();
  memory->heap_bytes = gc_engine->bytes() + external;
  memory->used_bytes = m.used_bytes + external;
  memory->free_bytes = m.free_bytes;
}

// External memory that was taken for live has gone.
static RT_COLD void follow_external(rt_thread *self) {
  begin(self);
  uint64_t least = external_least_bytes();
  if (least < pace.external_bytes) pace.external_bytes = least;
  end(self);
}

bool pace_goal_reached(void) {
  return gc_engine->bytes() + external_bytes() >= AO_load(&trigger);
}

bool pace_limit_reached(size_t request) {
  // Nothing live: the heap has at least that in it already.
  const pacer p = {.limit_bytes = AO_load(&limit)};
  if (RT_LIKELY(p.limit_bytes == PACER_NO_LIMIT)) return false;
  pacer_memory m;
  pace_memory(&m);
  return pacer_limit_reached(&p, &m, request);
}

uint64_t pace_soft_limit(void) {
  return AO_load(&limit);
}

// Not the same as to have no goal: one that no heap reaches is none either.
bool pace_is_off(void) {
  return AO_load(&percent_is_off);
}

bool pace_worth_a_look(uint64_t external, uint64_t added) {
  enum { STEP_SHIFT = 16 }; // all that is mapped is added up only once in so many bytes
  if (gc_engine->bytes() + external >= AO_load(&trigger)) return true;
  if (external_least_bytes() < AO_load(&paced_external)) return true; // the trigger is of before
  return AO_load(&limit) != (AO_t)PACER_NO_LIMIT &&
         external >> STEP_SHIFT != (external - added) >> STEP_SHIFT;
}

bool pace_due(rt_thread *self, size_t request, tide_cause *cause) {
  if (RT_UNLIKELY(external_least_bytes() < AO_load(&paced_external))) follow_external(self);
  *cause = TIDE_CAUSE_GOAL;
  if (pace_goal_reached()) return true;
  *cause = TIDE_CAUSE_LIMIT;
  return pace_limit_reached(request) && limit_allows(self);
}

uint64_t pace_marked(const engine_live *live) {
  external_marked();
  pacer_memory m; // the garbage is still counted, in both
  pace_memory(&m);
  AO_store(&beside_heap, m.used_bytes - m.heap_bytes);
  rt_pinned_lock_take(&lock); // free: no thread was stopped in a pinned section
  pace.live_bytes = live->live_bytes;
  pace.stack_bytes = live->stack_bytes;
  pace.global_bytes = live->global_bytes;
  pace.external_bytes = external_least_bytes();
  update();
  rt_pinned_lock_give(&lock);
  return pace_goal();
}

// ---- The goal, and what stays free -----------------------------------------------------------

// For whoever asks. While the heap is being swept, what is mapped beside it cannot be told: the
// limit's part goes by what that was when the heap was last at its largest.
uint64_t pace_goal(void) {
  const pacer p = {.limit_bytes = AO_load(&limit), .live_bytes = AO_load(&live_bytes)};
  const pacer_memory m = {.used_bytes = AO_load(&beside_heap)};
  uint64_t goal = AO_load(&percent_goal), by_limit = pacer_limit_goal(&p, &m);
  return by_limit < goal ? by_limit : goal;
}

uint64_t pace_heap_goal(void) {
  uint64_t goal = pace_goal(), external = external_bytes();
  return goal == PACER_NO_GOAL || goal < external ? 0 : goal - external;
}

size_t pace_keep_bytes(uint64_t needed, size_t request) {
  const pacer p = {.limit_bytes = AO_load(&limit)};
  pacer_memory m;
  pace_memory(&m);
  uint64_t keep = pacer_keep(needed, gc_engine->bytes());
  uint64_t room = pacer_limit_room(&p, &m, request);
  return room < keep ? room : keep;
}

void pace_stats(tide_memstats *s) {
  s->next_gc = pace_goal();
  s->external_bytes = external_bytes();
  s->gc_percent = *(volatile int *)&pace.percent;
  s->memory_limit = limit_told(pace_soft_limit());
}
