// SPDX-License-Identifier: MIT
// Collections on libgc's heap. One way to use its marking, with the world stopped by us, serves
// three purposes:
//
//   collect   what is marked is what is allocated from now on
//   walk      the marks are shown, then everything that is allocated is marked: nothing is freed
//   release   the same without looking at roots, which costs little; libgc gives free blocks back
//             to the system only on the way of a collection
//
// libgc tells when all is marked (GC_EVENT_MARK_END), while it has freed nothing yet. What follows,
// on our side of it, happens in that call: counting, the hooks of TIDE_MARK_DONE, the next goal.
// Then libgc makes empty blocks free; blocks that are partly in use it sweeps when it allocates in
// them. So nothing is left that finish_sweep could do.
//
// libgc stops nobody: its list of threads is empty (engine_bdw.c). Its markers are threads of its
// own which no stop waits for. They wait on a condition between markings, as long as the process
// runs.
#include "bdw.h"
#include "limit.h"

#include <string.h>

typedef enum purpose { COLLECT, WALK, RELEASE } purpose;

// What the marking that is on is for. Changed and read with the world stopped.
static struct {
  purpose purpose;
  const engine_calls *calls;
  bool (*fn)(const tide_object *, void *); // of a walk
  void *arg;
  uint64_t stack_bytes, global_bytes;
  uint64_t began_ns, began_cpu_ns, began_own_ns;
  bool marked; // MARK_END has come
} now;

static bdw_counts live;    // found by this marking
static AO_t markers_start; // 1: somebody is starting them, or there are some; else 0
static AO_t released_at;   // the last collection after which a limit had memory given back
static AO_t release_took_ns, release_ended_ns;

// ---- Roots ----------------------------------------------------------------------------------

// Addresses past the end of an object count where compilers make them (see mark.c of the native
// heap): such a word may be the start of the next object, or refer to nothing.
RT_SCANS_MEMORY static void push_ends(const uintptr_t *lo, const uintptr_t *hi) {
  enum { ENDS = 256 };
  uintptr_t before[ENDS], first = (uintptr_t)GC_least_plausible_heap_addr;
  uintptr_t range = (uintptr_t)GC_greatest_plausible_heap_addr - first;
  size_t count = 0;
  for (; lo < hi; lo++) {
    if (*lo - first > range || *lo % 16) continue;
    before[count++] = *lo - 1;
    if (count < ENDS) continue;
    GC_push_all_eager(before, before + count);
    count = 0;
  }
  if (count) GC_push_all_eager(before, before + count);
}

// At once, as the memory may be another's after the call.
static void push_root(const void *lo, const void *hi, rt_root_source source, void *arg) {
  size_t bytes = (size_t)((const char *)hi - (const char *)lo);
  GC_push_all_eager((void *)(uintptr_t)lo, (void *)(uintptr_t)hi);
  if (source != RT_ROOT_STACK) {
    now.global_bytes += bytes;
    return;
  }
  now.stack_bytes += bytes;
  push_ends(lo, hi);
}

static void push_roots(void) {
  now.stack_bytes = now.global_bytes = 0;
  if (now.purpose != RELEASE) rt_roots_scan(push_root, NULL);
}

// ---- What is marked -------------------------------------------------------------------------

static void note_live(void *base, size_t bytes, void *arg) {
  bdw_object o = {.start = base};
  // A free slot that a stray word refers to is marked as well; it stays no object.
  if (!bdw_bits_get(base) && !(bytes > BDW_BLOCK_BYTES && bdw_look_at(base, bytes, &o))) return;
  bdw_bits_mark(o.start);
  bdw_count(&live, bytes);
}

static bool base_of(void *start, bdw_object *o) {
  return bdw_look_up(start, o) && o->start == start;
}

void bdw_poison(const bdw_object *o) {
  memset(o->start, 0xdb, bdw_usable(o));
}

static bool poison_dead(void *start, void *arg) {
  bdw_object o;
  if (base_of(start, &o) && !GC_is_marked(o.base)) bdw_poison(&o);
  return true;
}

static bool show(void *start, void *arg) {
  bdw_object o;
  if (!base_of(start, &o)) return true;
  tide_object object = {start, bdw_usable(&o), o.kind, GC_is_marked(o.base)};
  return now.fn(&object, now.arg);
}

static bool keep(void *start, void *arg) {
  bdw_object o;
  if (base_of(start, &o)) GC_set_mark_bit(o.base);
  return true;
}

static uint64_t thread_cpu_ns(void) {
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
             ? (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec
             : 0;
}

// What libgc's markers took: what the process did meanwhile and this thread did not, as far as that
// many can.
static uint64_t others_ns(void) {
  uint64_t most = (uint64_t)GC_get_parallel() * (os_now_ns() - now.began_ns);
  uint64_t own = thread_cpu_ns() - now.began_own_ns, all = os_cpu_ns() - now.began_cpu_ns;
  uint64_t others = all > own ? all - own : 0;
  return others < most ? others : most;
}

static void finish_collection(void) {
  memset(&live, 0, sizeof live);
  GC_enumerate_reachable_objects_inner(note_live, NULL);
  engine_live found = {.live_bytes = live.bytes,
                       .stack_bytes = now.stack_bytes,
                       .global_bytes = now.global_bytes,
                       .markers = 1 + (uint64_t)GC_get_parallel()};
  if (found.markers > 1) found.others_ns = others_ns();
  for (int i = 0; i < BDW_COUNTED_CLASSES; i++) found.live_objects += live.objects[i];
  if (RT_UNLIKELY(rt_options.verify)) bdw_verify();
  if (RT_UNLIKELY(rt_options.poison)) bdw_bits_each(poison_dead, NULL);
  bdw_bits_keep_marked();
  bdw_count_live(&live);
  now.calls->marked(&found);
  AO_store(&bdw_bytes, live.bytes);
}

static void on_event(GC_EventType event) {
  if (event != GC_EVENT_MARK_END) return;
  now.marked = true;
  if (now.purpose == COLLECT) {
    finish_collection();
    return;
  }
  if (now.purpose == WALK) bdw_bits_each(show, NULL);
  bdw_bits_each(keep, NULL);
}

// ---- The marking ----------------------------------------------------------------------------

// What threads have at hand is freed with the rest.
static void mark(void) {
  size_t dropped = bdw_drop_slots();
  if (now.purpose != COLLECT) AO_fetch_and_add(&bdw_bytes, (AO_t)0 - dropped);
  now.marked = false;
  now.began_ns = os_now_ns();
  now.began_own_ns = thread_cpu_ns();
  now.began_cpu_ns = os_cpu_ns();
  GC_enable();
  if (now.purpose == RELEASE)
    GC_gcollect_and_unmap();
  else
    GC_gcollect();
  GC_disable();
  if (!now.marked) rt_fatal("libgc did not collect: has the program disabled it?");
  bdw_memory_note();
}

static void collect_stopped(void *argument) {
  rt_stop *stop = argument;
  now.calls->stopped(stop);
  mark();
  now.calls->ended();
}

static void walk_stopped(void *argument) {
  mark();
}

// A block has to have been free for two collections. Since the release was decided, another thread
// may have begun to start markers: it is outside the heap and goes on.
static void release_stopped(void *argument) {
  if (AO_load(&markers_start) == 1) return;
  for (int i = 0; i < 3; i++) mark();
}

static void stopped(rt_thread *self, purpose why, void (*fn)(void *)) {
  rt_stop stop;
  rt_world_stop(self, &stop);
  now.purpose = why;
  rt_with_registers_on_stack(self, fn, &stop);
  rt_world_start(self);
}

// ---- Markers --------------------------------------------------------------------------------

static void *start_markers(void *argument) {
  GC_start_mark_threads();
  return NULL;
}

// For a heap that is worth it, or verify=1, as on the native one. To make a thread may take locks
// of the C library, which a stopped thread may hold: so this thread is one that no stop waits for.
// libgc must not mark meanwhile: a collection holds the cycle's lock already, a release looks at
// markers_start with the world stopped.
static void consider_markers(void) {
  enum { WORTH_BYTES = 16 << 20 };
  if (rt_options.markers == 1 || (AO_load(&bdw_bytes) < WORTH_BYTES && !rt_options.verify)) return;
  if (!AO_compare_and_swap(&markers_start, 0, 1)) return;
  tide_blocking(start_markers, NULL);
  AO_fetch_and_add(&rt_own_threads, (AO_t)GC_get_parallel());
  AO_store(&markers_start, 2);
}

void bdw_collect_after_fork(void) {
  AO_store(&markers_start, 0);
}

// ---- The engine's calls ---------------------------------------------------------------------

void bdw_collect_init(void) {
  // Its free lists would look like references to all that is free. Where it is linked statically
  // its data is looked at like the rest; libgc itself puts up with that.
  rt_segments_ignore((const void *)(uintptr_t)GC_init);
  GC_set_push_other_roots(push_roots);
  GC_set_on_collection_event(on_event);
}

void bdw_collect(rt_thread *self, const engine_calls *calls) {
  consider_markers();
  now.calls = calls; // the next collection's, too, would be the same
  stopped(self, COLLECT, collect_stopped);
}

void bdw_walk(rt_thread *self, bool (*fn)(const tide_object *, void *), void *arg) {
  now.fn = fn; // under the cycle's lock
  now.arg = arg;
  stopped(self, WALK, walk_stopped);
}

void bdw_finish_sweep(rt_thread *self) {}

// libgc gives back what has been free for some collections by itself. Beyond that it is all or
// nothing here: where a limit wants memory back, once for each collection, since it is then that
// much becomes free. And as the world stands still meanwhile, a soft limit gets at most a quarter
// of the time; beyond that it is exceeded, as with the limiter.
static bool soft_limit_must_wait(uint64_t now_ns) {
  enum { SHARE = 4 };
  return !limit_is_hard() &&
         now_ns - AO_load(&release_ended_ns) < (SHARE - 1) * AO_load(&release_took_ns);
}

void bdw_release(rt_thread *self, size_t keep_bytes, bool exactly) {
  enum { WORTH_BYTES = 4 << 20 };
  engine_memory m;
  bdw_memory(&m);
  uint64_t cycle = tide_gc_cycle();
  if (keep_bytes && (!exactly || m.free_bytes <= keep_bytes)) return;
  bool again = AO_load(&released_at) == cycle && m.free_bytes < keep_bytes + WORTH_BYTES;
  if ((keep_bytes && again) || AO_load(&markers_start) == 1) return;
  uint64_t began_ns = os_now_ns(), before = bdw_unmapped_bytes();
  if (keep_bytes && soft_limit_must_wait(began_ns)) return;
  AO_store(&released_at, cycle);
  stopped(self, RELEASE, release_stopped);
  uint64_t after = bdw_unmapped_bytes();
  AO_store(&release_ended_ns, os_now_ns());
  AO_store(&release_took_ns, os_now_ns() - began_ns);
  if (after > before)
    rt_event(TIDE_EVENT_RELEASE, began_ns, os_now_ns() - began_ns, after - before, 0);
}
