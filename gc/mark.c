// SPDX-License-Identifier: MIT
// Marking: everything that can be reached from the roots, with the world stopped.
//
// The work still to be done is on a stack of words. A word is a candidate, an address inside the
// heap that was found somewhere and is yet to be looked at, or a pair of words, a range of an
// object that is yet to be scanned. Nearly all the time of marking is spent waiting for memory: for
// the candidate's bits and for the object. So candidates do not go from the stack straight to work:
// they pass through a short queue, and their bits and first words are asked for when they enter it.
// By the time they come out, they have arrived.
//
//   stack --(find the slot, prefetch)--> queue --(allocated and unmarked? mark)--> scan --> stack
//
// Large objects are scanned in pieces, the rest of the object on the stack below the piece's
// candidates, so the stack grows with the depth of the graph and not with the length of an array.
// The stack lies outside the heap and doubles. When there is no memory for that, or it would pass
// TIDE_MARKSTACK, candidates are dropped; when the stack is empty again, every marked object is
// scanned once more and what it refers to is marked if it is not. So marking never fails; without
// memory it is slow.
#include "heap.h"

#include <string.h>

enum {
  QUEUE = 16,                     // candidates under way; a power of two
  PIECE_WORDS = 128,              // of a large object, scanned at a time
  FIRST_STACK_BYTES = 64 * 1024,  //
  KEPT_STACK_BYTES = 1024 * 1024, // a larger stack is given back after the marking
};
#define RANGE_TAG ((uintptr_t)1 << 63) // no address of a user's program has it

typedef struct marker {
  uintptr_t *stack;
  size_t top, room; // in words
  size_t mapped_bytes;
  bool dropped; // candidates, for want of room
  heap_ref queue[QUEUE];
  unsigned head, queued;
  mark_result *result;
} marker;

static marker the_marker;

uint64_t mark_stack_mapped_bytes(void) {
  return the_marker.mapped_bytes;
}

tide_status mark_init(void) {
  marker *m = &the_marker;
  if (m->stack) return TIDE_OK;
  m->stack = os_map(FIRST_STACK_BYTES);
  if (!m->stack) return rt_error_set(TIDE_ERR_MEMORY, "no memory for the mark stack");
  m->mapped_bytes = FIRST_STACK_BYTES;
  m->room = FIRST_STACK_BYTES / sizeof(uintptr_t);
  return TIDE_OK;
}

// ---- The stack ------------------------------------------------------------------------------

static RT_COLD bool grow_stack(marker *m) {
  size_t bytes = 2 * m->mapped_bytes;
  if (rt_options.mark_stack_bytes && bytes > (size_t)rt_options.mark_stack_bytes) return false;
  uintptr_t *stack = os_map(bytes);
  if (!stack) return false;
  memcpy(stack, m->stack, m->top * sizeof(uintptr_t));
  os_unreserve(m->stack, m->mapped_bytes);
  m->stack = stack;
  m->mapped_bytes = bytes;
  m->room = bytes / sizeof(uintptr_t);
  return true;
}

static inline void push(marker *m, uintptr_t candidate) {
  if (RT_UNLIKELY(m->top == m->room) && !grow_stack(m)) {
    m->dropped = true;
    return;
  }
  m->stack[m->top++] = candidate;
}

static inline void push_range(marker *m, uintptr_t lo, uintptr_t hi) {
  if (RT_UNLIKELY(m->top + 2 > m->room) && !grow_stack(m)) {
    m->dropped = true;
    return;
  }
  m->stack[m->top++] = hi;
  m->stack[m->top++] = lo | RANGE_TAG;
}

static void shrink_stack(marker *m) {
  if (m->mapped_bytes <= KEPT_STACK_BYTES) return;
  uintptr_t *stack = os_map(FIRST_STACK_BYTES);
  if (!stack) return;
  os_unreserve(m->stack, m->mapped_bytes);
  m->stack = stack;
  m->mapped_bytes = FIRST_STACK_BYTES;
  m->room = FIRST_STACK_BYTES / sizeof(uintptr_t);
}

// ---- Scanning -------------------------------------------------------------------------------

RT_SCANS_MEMORY static inline void scan_words(marker *m, uintptr_t lo, uintptr_t hi) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    if (heap_holds(word)) push(m, word);
  }
}

static inline void scan_range(marker *m, uintptr_t lo, uintptr_t hi) {
  uintptr_t piece = lo + PIECE_WORDS * sizeof(uintptr_t);
  if (hi <= piece) {
    scan_words(m, lo, hi);
    return;
  }
  push_range(m, piece, hi); // below the piece's candidates
  scan_words(m, lo, piece);
}

// A candidate out of the queue.
static inline void visit(marker *m, const heap_ref *ref) {
  if (!heap_ref_allocated(ref) || heap_ref_marked(ref)) return;
  ref->bits[1] |= ref->mask;
  size_t bytes = ref->block->object_bytes;
  m->result->live_bytes += bytes;
  m->result->live_objects++;
  if (ref->block->kind != TIDE_LEAF) scan_range(m, ref->start, ref->start + bytes);
}

// From the stack into the queue; false: the stack is empty.
static inline bool take_one(marker *m) {
  if (!m->top) return false;
  uintptr_t word = m->stack[--m->top];
  if (RT_UNLIKELY(word & RANGE_TAG)) {
    uintptr_t hi = m->stack[--m->top];
    scan_range(m, word & ~RANGE_TAG, hi);
    return true;
  }
  heap_ref *ref = &m->queue[(m->head + m->queued) % QUEUE];
  if (!heap_find(word, ref)) return true;
  __builtin_prefetch(ref->bits, 1);
  if (ref->block->kind != TIDE_LEAF) __builtin_prefetch((const void *)ref->start);
  m->queued++;
  return true;
}

static void drain(marker *m) {
  for (;;) {
    while (m->queued < QUEUE && take_one(m)) continue;
    if (!m->queued) return;
    heap_ref ref = m->queue[m->head];
    m->head = (m->head + 1) % QUEUE;
    m->queued--;
    visit(m, &ref);
  }
}

// ---- Roots ----------------------------------------------------------------------------------

// Roots are drained piece by piece, so that no candidate of theirs is dropped while the stack has
// room for one piece: what a root refers to could not be found again by scanning marked objects.
RT_SCANS_MEMORY static void mark_root(const void *lo, const void *hi, rt_root_source source,
                                      void *arg) {
  marker *m = arg;
  uintptr_t from = (uintptr_t)lo, to = (uintptr_t)hi;
  if (source == RT_ROOT_STACK)
    m->result->stack_bytes += to - from;
  else
    m->result->global_bytes += to - from;
  while (from < to) {
    uintptr_t piece = from + PIECE_WORDS * sizeof(uintptr_t);
    if (piece > to) piece = to;
    for (; from < piece; from += sizeof(uintptr_t)) {
      uintptr_t word = *(const uintptr_t *)from;
      if (heap_holds(word)) push(m, word);
      // A compiler may keep only the address past the end of an object that is still in use, in a
      // register or on the stack: it makes the loop's end of it, or has already stepped past the
      // last element that it is about to read.
      if (source == RT_ROOT_STACK && heap_holds(word - 1)) push(m, word - 1);
    }
    drain(m);
  }
}

// Every allocated slot of a block: marked, and scanned.
static void mark_block(marker *m, heap_block *block) {
  const AO_t *bits = block_bits(block_index_of(block));
  uintptr_t start = block_address(block_index_of(block));
  for (uint32_t slot = 0; slot < block->slots; slot++) {
    if (!(bits[2 * (slot / 64)] >> (slot % 64) & 1)) continue;
    push(m, start + slot * block->object_bytes);
    drain(m);
  }
}

static void mark_uncollectable(marker *m) {
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
    const size_list *list = &heap.lists[TIDE_UNCOLLECTABLE][i];
    for (block_index b = list->full.first; b; b = heap.blocks[b].next)
      mark_block(m, &heap.blocks[b]);
    for (block_index b = list->partial.first; b; b = heap.blocks[b].next)
      mark_block(m, &heap.blocks[b]);
    for (const rt_thread *thread = rt_threads(); thread; thread = thread->next) {
      block_index owned = heap_local_of(thread)->cache.runs[TIDE_UNCOLLECTABLE][i].block;
      if (owned) mark_block(m, &heap.blocks[owned]);
    }
  }
  for (block_index b = heap.large[LARGE_UNCOLLECTABLE]; b; b = heap.blocks[b].next)
    mark_block(m, &heap.blocks[b]);
}

// Large uncollectable objects are never swept, so their marks are still those of the cycle before.
static void unmark_large_uncollectable(void) {
  for (block_index b = heap.large[LARGE_UNCOLLECTABLE]; b; b = heap.blocks[b].next)
    block_bits(b)[1] = 0;
}

// ---- Without room for the stack -------------------------------------------------------------

RT_SCANS_MEMORY static void rescan_object(marker *m, uintptr_t lo, uintptr_t hi) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    heap_ref ref;
    if (!heap_holds(word) || !heap_find(word, &ref)) continue;
    if (!heap_ref_allocated(&ref) || heap_ref_marked(&ref)) continue;
    push(m, word);
    drain(m);
  }
}

static void rescan_heap(marker *m) {
  block_index end = (block_index)(heap.extent >> HEAP_BLOCK_SHIFT);
  for (block_index i = 1; i < end; i++) {
    const heap_block *block = &heap.blocks[i];
    if (!block->slots || block->kind == TIDE_LEAF) continue;
    const AO_t *bits = block_bits(i);
    for (uint32_t slot = 0; slot < block->slots; slot++)
      if (bits[2 * (slot / 64) + 1] >> (slot % 64) & 1) {
        uintptr_t start = block_address(i) + slot * block->object_bytes;
        rescan_object(m, start, start + block->object_bytes);
      }
  }
}

void mark_all(mark_result *result) {
  marker *m = &the_marker;
  *result = (mark_result){0, 0, 0, 0};
  m->result = result;
  m->top = m->queued = m->head = 0;
  m->dropped = false;
  small_hide_runs();
  unmark_large_uncollectable();
  rt_roots_scan(mark_root, m);
  mark_uncollectable(m);
  while (m->dropped) {
    m->dropped = false;
    rescan_heap(m);
  }
  shrink_stack(m);
  memset(m->queue, 0, sizeof m->queue); // static data, and so a root of the next marking
}
