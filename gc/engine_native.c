// SPDX-License-Identifier: MIT
// The native heap as an engine: what heap.c, small.c, large.c, mark.c and sweep.c do, put together.
#include "engine.h"
#include "heap.h"

#include <string.h>

static tide_status native_settle(tide_options *options) {
  return TIDE_OK; // it takes all of them
}

static tide_status native_init(void) {
  tide_status status = heap_init();
  return status == TIDE_OK ? mark_init() : status;
}

static void native_fork_locked(void) {
  small_lock_take();
  heap_locks_take();
}

static void native_fork_unlock(bool in_child) {
  if (in_child) small_after_fork();
  if (in_child) markers_after_fork();
  heap_locks_give();
  small_lock_give();
}

static void native_detach(rt_thread *thread, bool left_behind) {
  small_detach(thread, left_behind);
  if (thread == rt_threads() && !thread->next) markers_leave();
}

// ---- Objects --------------------------------------------------------------------------------

// The smallest class that holds the size and whose slots are all aligned; slots lie at multiples of
// the class's size from the block's start. TIDE_SIZE_CLASSES: none.
static unsigned aligned_class(size_t size, size_t alignment) {
  if (size > TIDE_SMALL_MAX) return TIDE_SIZE_CLASSES;
  unsigned size_class = size_class_for(size);
  while (size_class < TIDE_SIZE_CLASSES && size_class_bytes[size_class] % alignment) size_class++;
  return size_class;
}

static void *native_alloc(rt_thread *self, size_t size, size_t alignment, tide_kind kind) {
  unsigned size_class = aligned_class(size, alignment);
  if (size_class < TIDE_SIZE_CLASSES) return small_alloc(self, size_class, kind);
  return large_alloc(self, size, alignment, kind);
}

static size_t native_largest(void) {
  return heap.reserved_blocks * HEAP_BLOCK_BYTES;
}

// Whether an object that its bits say is allocated has survived the last marking. What a block not
// yet swept has left unmarked is garbage already. Pinned.
static bool settle(const heap_ref *ref) {
  heap_block *block = ref->block;
  if (!block_unswept(block)) return true;
  if (block->state == BLOCK_SMALL) {
    size_list *list = &heap.lists[block->kind][block->size_class];
    rt_pinned_lock_take(&list->lock);
    // The address may be of an object that is no more: then the block may be another class's by
    // now.
    if (block->state == BLOCK_SMALL && list == &heap.lists[block->kind][block->size_class])
      sweep_block(list, block);
    rt_pinned_lock_give(&list->lock);
    return heap_ref_allocated(ref);
  }
  rt_pinned_lock_take(&heap.lock);
  bool live = !block_unswept(block) || heap_ref_marked(ref) || block->list == LARGE_UNCOLLECTABLE;
  rt_pinned_lock_give(&heap.lock);
  return live;
}

// The allocated object that holds the address. Pinned.
static bool find_object(const void *address, heap_ref *ref) {
  uintptr_t word = (uintptr_t)address;
  return heap_holds(word) && heap_find(word, ref) && heap_ref_allocated(ref) && settle(ref) &&
         small_handed_out(ref) && word - ref->start < ref->bytes;
}

static bool native_find(rt_thread *self, const void *address, engine_object *object) {
  heap_ref ref;
  rt_pin(self);
  bool found = find_object(address, &ref);
  if (found) *object = (engine_object){(void *)ref.start, ref.bytes, ref.kind};
  rt_unpin(self);
  return found;
}

static bool native_free(rt_thread *self, void *start) {
  heap_ref ref;
  rt_pin(self);
  bool ours = find_object(start, &ref) && ref.start == (uintptr_t)start;
  if (ours && ref.block->state == BLOCK_SMALL)
    small_free(&ref);
  else if (ours)
    large_free(&ref);
  rt_unpin(self);
  return ours;
}

static bool native_resize(rt_thread *self, void *start, size_t size) {
  heap_ref ref;
  rt_pin(self);
  bool ours = find_object(start, &ref) && ref.start == (uintptr_t)start;
  rt_unpin(self); // the caller holds the object: it stays
  if (!ours) return false;
  if (ref.block->state == BLOCK_LARGE) return large_resize(self, &ref, size);
  // In place while the size is of the same class, or not much below.
  return size <= ref.bytes && size > ref.bytes / 2;
}

// ---- Collections ----------------------------------------------------------------------------

typedef struct collection {
  const engine_calls *calls;
  rt_stop stop;
} collection;

static void collect_stopped(void *argument) {
  collection *c = argument;
  c->calls->stopped(&c->stop);
  mark_result live;
  mark_all(&live);
  if (rt_options.verify) verify_heap(&live);
  c->calls->marked(&(engine_live){live.live_bytes, live.live_objects, live.stack_bytes,
                                  live.global_bytes, live.markers, live.others_ns});
  sweep_prepare();
  small_show_runs(true);
  AO_store(&heap.bytes, live.live_bytes);
  c->calls->ended();
}

static void native_collect(rt_thread *self, const engine_calls *calls) {
  sweep_finish(self);
  markers_prepare();
  collection c = {.calls = calls};
  rt_world_stop(self, &c.stop);
  rt_with_registers_on_stack(self, collect_stopped, &c);
  rt_world_start(self);
}

static bool native_marked(const void *start) {
  heap_ref ref;
  return heap_holds((uintptr_t)start) && heap_find((uintptr_t)start, &ref) && heap_ref_marked(&ref);
}

// Objects freed by hand may be of runs that were claimed before the last marking and not counted
// since: the sum can be a little below zero.
static size_t native_bytes(void) {
  AO_t bytes = AO_load(&heap.bytes);
  return bytes > PTRDIFF_MAX ? 0 : bytes;
}

// ---- Walking --------------------------------------------------------------------------------

typedef struct heap_walk {
  bool (*fn)(const tide_object *, void *);
  void *arg;
} heap_walk;

static bool walk_block(heap_walk *w, block_index index) {
  const heap_block *block = &heap.blocks[index];
  const AO_t *bits = block_bits(index);
  for (uint32_t slot = 0; slot < block->slots; slot++) {
    const AO_t *pair = &bits[2 * (slot / 64)];
    if (!(pair[0] >> (slot % 64) & 1)) continue;
    tide_object object = {(char *)block_address(index) + slot * block->object_bytes,
                          block->object_bytes, (tide_kind)block->kind, pair[1] >> (slot % 64) & 1};
    if (!w->fn(&object, w->arg)) return false;
  }
  return true;
}

static void unmark_block(block_index index) {
  AO_t *bits = block_bits(index);
  for (uint32_t slot = 0; slot < heap.blocks[index].slots; slot += 64)
    bits[2 * (slot / 64) + 1] = 0;
}

static void walk_stopped(void *argument) {
  mark_result live;
  mark_all(&live);
  block_index end = heap_frontier();
  for (block_index i = 1; i < end && walk_block(argument, i); i++) continue;
  for (block_index i = 1; i < end; i++) unmark_block(i);
  small_show_runs(false);
}

static void native_walk(rt_thread *self, bool (*fn)(const tide_object *, void *), void *arg) {
  sweep_finish(self);
  heap_walk w = {fn, arg};
  rt_stop stop;
  rt_world_stop(self, &stop);
  rt_with_registers_on_stack(self, walk_stopped, &w);
  rt_world_start(self);
}

// ---- Statistics -----------------------------------------------------------------------------

static uint64_t at_least(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

// Frees are read before allocations, so that no more of the former are seen.
static void small_stats(tide_memstats *s) {
  uint64_t frees[TIDE_SIZE_CLASSES], allocated[TIDE_SIZE_CLASSES] = {0};
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) frees[i] = AO_load(&heap.freed_slots[i]);
  AO_nop_read();
  small_add_allocated(allocated);
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
    uint64_t mallocs = at_least(allocated[i], frees[i]);
    s->by_size[i].size = size_class_bytes[i];
    s->by_size[i].mallocs = mallocs;
    s->by_size[i].frees = frees[i];
    s->mallocs += mallocs;
    s->frees += frees[i];
    s->total_alloc += mallocs * size_class_bytes[i];
    s->heap_alloc += (mallocs - frees[i]) * size_class_bytes[i];
  }
}

static void large_stats(tide_memstats *s) {
  uint64_t frees = AO_load(&heap.large_frees), freed_bytes = AO_load(&heap.large_freed_bytes);
  AO_nop_read();
  uint64_t mallocs = at_least(AO_load(&heap.large_mallocs), frees);
  uint64_t total_bytes = at_least(AO_load(&heap.large_total_bytes), freed_bytes);
  s->mallocs += mallocs;
  s->frees += frees;
  s->total_alloc += total_bytes;
  s->heap_alloc += total_bytes - freed_bytes;
}

// Each number is read once, and the others are made from those: they always add up.
static void native_stats(tide_memstats *s) {
  small_stats(s);
  large_stats(s);
  s->heap_objects = s->mallocs - s->frees;
  uint64_t in_blocks = heap_inuse_bytes(), free_bytes = heap_free_bytes();
  uint64_t stacks = mark_stack_mapped_bytes(), mapped = at_least(os_mapped_bytes(), stacks);
  s->heap_inuse = in_blocks;
  s->heap_sys = at_least((heap.committed_blocks - 1) * HEAP_BLOCK_BYTES, in_blocks + free_bytes);
  s->heap_idle = s->heap_sys - s->heap_inuse;
  s->heap_released = s->heap_idle - free_bytes;
  s->gc_sys = heap_tables_bytes() + stacks;
  s->other_sys = mapped - stacks;
  s->sys = s->heap_sys + s->gc_sys + s->other_sys;
}

static const engine engine_native = {
    .name = "native",
    .settle = native_settle,
    .init = native_init,
    .attach = small_attach,
    .detach = native_detach,
    .allow = small_allow,
    .fork_locked = native_fork_locked,
    .fork_unlock = native_fork_unlock,
    .alloc = native_alloc,
    .largest = native_largest,
    .find = native_find,
    .free = native_free,
    .resize = native_resize,
    .bytes = native_bytes,
    .collect = native_collect,
    .marked = native_marked,
    .finish_sweep = sweep_finish,
    .memory = heap_memory,
    .release = heap_release,
    .walk = native_walk,
    .stats = native_stats,
};
const engine *const gc_engine = &engine_native;
