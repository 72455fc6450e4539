// SPDX-License-Identifier: MIT
// Large objects: more than TIDE_SMALL_MAX bytes, in blocks of their own.
//
// An object's size is rounded up to pages; the rest of its last block is not touched, so it takes
// address space but no memory. Its first block's entry describes it, the entries of the others
// point to the first. It is on one of three doubly linked lists: swept, unswept, or uncollectable.
//
// A fresh object may be of memory that has been used. It is zeroed outside every lock, and is taken
// for a pointer-free one until it is: a collection meanwhile does not look into it.
#include "heap.h"

#include <string.h>

static size_t round_up(size_t size, size_t to) {
  return (size + to - 1) / to * to;
}
static size_t blocks_for(size_t bytes) {
  return (bytes + HEAP_BLOCK_BYTES - 1) >> HEAP_BLOCK_SHIFT;
}

// ---- Lists (heap_lock held, or the world stopped) -------------------------------------------

void large_link(heap_block *block, int list) {
  block_index index = block_index_of(block);
  block->list = (uint8_t)list;
  block->prev = 0;
  block->next = heap.large[list];
  if (block->next) heap.blocks[block->next].prev = index;
  heap.large[list] = index;
}

void large_unlink(heap_block *block) {
  if (block->prev)
    heap.blocks[block->prev].next = block->next;
  else
    heap.large[block->list] = block->next;
  if (block->next) heap.blocks[block->next].prev = block->prev;
}

void large_release(heap_block *block) {
  block_index first = block_index_of(block);
  AO_fetch_and_add1(&heap.large_frees);
  AO_fetch_and_add(&heap.large_freed_bytes, block->object_bytes);
  if (RT_UNLIKELY(rt_options.poison))
    memset((void *)block_address(first), 0xdb, block->object_bytes);
  heap_give_blocks(first, block->run, true);
}

bool heap_find_large(uintptr_t word, heap_slot *found) {
  heap_block *block = &heap.blocks[(word - heap.base) >> HEAP_BLOCK_SHIFT];
  if (block->state == BLOCK_LARGE_REST) block = &heap.blocks[block->head];
  if (block->state != BLOCK_LARGE) return false;
  found->start = block_address(block_index_of(block));
  found->bits = block->large_bits;
  found->bit = 0;
  found->tag = TAG_LARGE;
  // The end itself counts (see gc.h); what lies between it and the last block's end does not.
  return word - found->start <= block->object_bytes;
}

// ---- Allocation -----------------------------------------------------------------------------

static void own_rest(block_index first, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) {
    heap_block *rest = &heap.blocks[first + i];
    rest->head = first;
    rest->slots = 0;
    rest->dirty = 1;
    block_set_state(rest, BLOCK_LARGE_REST);
    block_set_tag(first + (block_index)i, 0, TAG_LARGE);
  }
}

static void format_large(block_index first, size_t blocks, size_t bytes, tide_kind kind) {
  heap_block *block = &heap.blocks[first];
  own_rest(first, 1, blocks);
  block->kind = (uint8_t)kind;
  block->slots = 1;
  block->object_bytes = bytes;
  block->run = (uint32_t)blocks;
  block->swept = heap.markings;
  block->dirty = 1;
  block->large_bits[0] = 1;
  block->large_bits[1] = 0;
  block_set_state(block, BLOCK_LARGE);
  block_set_tag(first, 0, TAG_LARGE);
  large_link(block, kind == TIDE_UNCOLLECTABLE ? LARGE_UNCOLLECTABLE : large_swept_list());
  AO_fetch_and_add1(&heap.large_mallocs);
  AO_fetch_and_add(&heap.large_total_bytes, bytes);
}

// Free runs first; then what sweeping yields, a bounded part of it; then new memory; and when there
// is none, what the rest of the sweep yields. heap_lock held, given up in between.
static block_index take(size_t blocks, size_t alignment, bool *zeroed) {
  sweep_span span = sweep_begin();
  block_index first = heap_take_blocks(blocks, alignment, false, zeroed);
  for (unsigned steps = 0; !first && steps < SWEEP_STEP && sweep_large(8); steps += 8)
    first = heap_take_blocks(blocks, alignment, false, zeroed);
  while (!first) {
    rt_pinned_lock_give(&heap.lock);
    bool more = sweep_some(SWEEP_STEP);
    rt_pinned_lock_take(&heap.lock);
    first = heap_take_blocks(blocks, alignment, true, zeroed);
    if (!more) break;
  }
  sweep_end(span);
  return first;
}

void *large_alloc(rt_thread *self, size_t size, size_t alignment, tide_kind kind) {
  size_t bytes = round_up(size ? size : 1, HEAP_PAGE_BYTES);
  size_t blocks = blocks_for(bytes);
  bool zeroed = false;
  rt_pin(self);
  rt_pinned_lock_take(&heap.lock);
  block_index first = take(blocks, blocks_for(alignment), &zeroed);
  bool must_zero = first && kind != TIDE_LEAF && !zeroed;
  if (first) format_large(first, blocks, bytes, must_zero ? TIDE_LEAF : kind);
  rt_pinned_lock_give(&heap.lock);
  char *object = first ? (char *)block_address(first) : NULL;
  if (first) AO_fetch_and_add(&heap.bytes, bytes);
  // From here on only this pointer keeps the object. The compiler must hold it, not what it could
  // be made from again: rt_unpin may be a collection.
  __asm__ volatile("" : "+r"(object));
  rt_unpin(self);
  if (!object) return NULL;
  if (must_zero) {
    memset(object, 0, bytes);
    rt_pin(self);
    rt_pinned_lock_take(&heap.lock);
    heap_block *block = &heap.blocks[first];
    block->kind = (uint8_t)kind;
    if (kind == TIDE_UNCOLLECTABLE) { // from a list of the collectable ones
      large_unlink(block);
      large_link(block, LARGE_UNCOLLECTABLE);
      block->large_bits[1] = 0; // it may have been marked, and these are never swept
    }
    rt_pinned_lock_give(&heap.lock);
    rt_unpin(self);
  }
  return object;
}

void large_free(const heap_ref *ref) {
  rt_pinned_lock_take(&heap.lock);
  AO_fetch_and_add(&heap.bytes, (AO_t)0 - ref->block->object_bytes);
  large_unlink(ref->block);
  large_release(ref->block);
  rt_pinned_lock_give(&heap.lock);
}

// ---- Changing the size in place -------------------------------------------------------------

// Most that is zeroed with the lock held.
enum { ZERO_IN_PLACE_BYTES = 4 << 20 };

static bool grow(heap_block *block, size_t bytes) {
  block_index first = block_index_of(block);
  size_t have = block->run, want = blocks_for(bytes);
  size_t end = have * HEAP_BLOCK_BYTES; // of what may have to be zeroed
  if (want > have) {
    bool zeroed;
    if (!heap_extend_blocks(first + (block_index)have - 1, want - have, &zeroed)) return false;
    if (!zeroed && block->kind != TIDE_LEAF && bytes - end > ZERO_IN_PLACE_BYTES) {
      heap_give_blocks(first + (block_index)have, want - have, true);
      return false;
    }
    own_rest(first, have, want);
    block->run = (uint32_t)want;
    if (!zeroed) end = want * HEAP_BLOCK_BYTES;
  }
  if (end > bytes) end = bytes;
  if (block->kind != TIDE_LEAF)
    memset((char *)block_address(first) + block->object_bytes, 0, end - block->object_bytes);
  AO_fetch_and_add(&heap.large_total_bytes, bytes - block->object_bytes);
  return true;
}

static void shrink(heap_block *block, size_t bytes) {
  block_index first = block_index_of(block);
  size_t have = block->run, want = blocks_for(bytes);
  AO_fetch_and_add(&heap.large_freed_bytes, block->object_bytes - bytes);
  block->run = (uint32_t)want;
  if (want < have) heap_give_blocks(first + (block_index)want, have - want, true);
}

static bool resize_locked(heap_block *block, size_t bytes) {
  if (bytes <= block->object_bytes)
    shrink(block, bytes);
  else if (!grow(block, bytes))
    return false;
  AO_fetch_and_add(&heap.bytes, bytes - block->object_bytes);
  block->object_bytes = bytes;
  return true;
}

bool large_resize(rt_thread *self, const heap_ref *ref, size_t size) {
  if (size <= TIDE_SMALL_MAX || size > heap.reserved_blocks * HEAP_BLOCK_BYTES) return false;
  rt_pin(self);
  rt_pinned_lock_take(&heap.lock);
  bool done = resize_locked(ref->block, round_up(size, HEAP_PAGE_BYTES));
  rt_pinned_lock_give(&heap.lock);
  rt_unpin(self);
  return done;
}
