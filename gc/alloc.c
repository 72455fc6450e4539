// SPDX-License-Identifier: MIT
// The public allocation functions, but for the inline ones in gc.h, whose slow path is here:
//
//   registered and allowed?  ->  collection due?  ->  the engine  ->  collect and try again
//                                                                 ->  the out-of-memory handler
//
// The handler is called without any lock and outside pinned sections: it may longjmp.
#include "cycle.h"
#include "engine.h"
#include "hooks.h"
#include "limit.h"
#include "recording.h"

#include <string.h>

// Both under the hooks' lock, which is whole in the child of a fork.
static tide_oom_handler oom_handler;
static void *oom_arg;

tide_oom_handler tide_oom_handler_set(tide_oom_handler handler, void *arg) {
  hooks_lock();
  tide_oom_handler old = oom_handler;
  oom_handler = handler;
  oom_arg = arg;
  hooks_unlock();
  return old;
}

static RT_COLD void *ask_oom_handler(size_t size) {
  hooks_lock();
  tide_oom_handler handler = oom_handler;
  void *arg = oom_arg;
  hooks_unlock();
  if (rt_self() && rt_self()->quiet) handler = NULL;
  rt_event(TIDE_EVENT_OUT_OF_MEMORY, os_now_ns(), 0, size, 0);
  rt_error_set(TIDE_ERR_MEMORY, "no memory for an object of %zu bytes", size);
  if (!handler) return NULL;
  unsigned made_for = rt_record_for(RT_RECORD_PROGRAM); // from here on, if it jumps
  void *memory = handler(size, arg);
  rt_record_for(made_for);
  return memory;
}

static void *allocate(const char *what, size_t size, size_t alignment, tide_kind kind) {
  rt_thread *self = rt_enter(what);
  if (!self) return rt_self() ? NULL : ask_oom_handler(size); // refused; or no memory to register
  if ((unsigned)kind >= TIDE_KINDS) {
    rt_error_set(TIDE_ERR_ARGUMENT, "%s: unknown kind %d", what, (int)kind);
    return NULL;
  }
  if (size > gc_engine->largest()) return ask_oom_handler(size);
  bool limited = RT_UNLIKELY(limit_matters());
  if (limited) limit_before(self, size);
  cycle_reason reason;
  if (cycle_due(self, size, &reason)) cycle_collect(self, &reason);
  uint64_t seen = tide_gc_cycle();
  void *object = gc_engine->alloc(self, size, alignment, kind);
  if (RT_LIKELY(object)) {
    // Often enough to come from every depth of a recursion between two collections.
    if (++self->slow_allocations % 16 == 0) rt_clear_stack_below(self);
    if (limited) limit_note();
    if (rt_recording()) recording_alloc(object, size, kind);
    if (RT_UNLIKELY(rt_events_wanted() && rt_events_due())) rt_events_drain();
    return object;
  }
  if (!cycle_disabled()) {
    reason = (cycle_reason){TIDE_CAUSE_MEMORY, size, seen};
    cycle_collect(self, &reason);
    gc_engine->finish_sweep(self);
    if (limited) limit_before(self, size); // free memory makes place for other free memory
    object = gc_engine->alloc(self, size, alignment, kind);
    if (object && rt_recording()) recording_alloc(object, size, kind);
  }
  return object ? object : ask_oom_handler(size);
}

void *tide_alloc_slow(size_t size, tide_kind kind) {
  return allocate("tide_alloc", size, 16, kind);
}

void *tide_alloc_uncollectable(size_t size) {
  return tide_alloc_kind(TIDE_UNCOLLECTABLE, size);
}

void *tide_alloc_aligned(size_t alignment, size_t size, tide_kind kind) {
  if (!alignment || (alignment & (alignment - 1)) || alignment > (size_t)1 << 30) {
    rt_error_set(TIDE_ERR_ARGUMENT,
                 "tide_alloc_aligned: alignment %zu is not a power of two up to 1 GiB", alignment);
    return NULL;
  }
  return allocate("tide_alloc_aligned", size, alignment < 16 ? 16 : alignment, kind);
}

// ---- Objects --------------------------------------------------------------------------------

static bool find(const char *what, const void *address, engine_object *object) {
  rt_thread *self = rt_enter(what);
  return self && gc_engine->find(self, address, object);
}

size_t tide_size(const void *object) {
  engine_object o;
  return find("tide_size", object, &o) && o.start == object ? o.size : 0;
}

void *tide_base(const void *address) {
  engine_object o;
  return find("tide_base", address, &o) ? o.start : NULL;
}

tide_kind tide_object_kind(const void *object) {
  engine_object o;
  return find("tide_object_kind", object, &o) && o.start == object ? o.kind : TIDE_KINDS;
}

void tide_free(void *object) {
  if (!object) return;
  rt_thread *self = rt_enter("tide_free");
  if (self && rt_recording()) recording_free(object);
  if (self && !gc_engine->free(self, object))
    rt_report("tide_free: %p is not the start of a live object", object);
}

void *tide_realloc(void *object, size_t size) {
  if (!object) return tide_alloc(size);
  if (!size) {
    tide_free(object);
    return NULL;
  }
  rt_thread *self = rt_enter("tide_realloc");
  if (!self) return NULL;
  engine_object old;
  if (!gc_engine->find(self, object, &old) || old.start != object) {
    rt_error_set(TIDE_ERR_ARGUMENT, "tide_realloc: %p is not the start of a live object", object);
    rt_report("%s", tide_error_message());
    return NULL;
  }
  cycle_reason reason;
  if (size > old.size && RT_UNLIKELY(limit_matters())) limit_before(self, size - old.size);
  if (size > old.size && cycle_due(self, size - old.size, &reason)) cycle_collect(self, &reason);
  if (gc_engine->resize(self, object, size)) {
    if (rt_recording()) recording_resize(object, object, size);
    return object;
  }
  unsigned made_for = rt_record_for(RT_RECORD_OWN); // it stays the same object
  void *moved = tide_alloc_kind(old.kind, size);
  rt_record_for(made_for);
  if (!moved) return NULL;
  memcpy(moved, object, size < old.size ? size : old.size);
  if (rt_recording()) recording_resize(object, moved, size);
  gc_engine->free(self, object);
  return moved;
}
