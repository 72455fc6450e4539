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
// When the stack cannot grow, or would pass TIDE_MARKSTACK, candidates are dropped; when all that
// is left has been marked, the roots and every marked object are scanned once more and what they
// refer to is marked if it is not. So marking never fails; without memory it is slow.
//
// Once a heap has shown not to be small, other markers are let in (markers.c).
#include "mark.h"

#include <string.h>

// ---- Scanning -------------------------------------------------------------------------------

// Word by word; also where the stack is full and cannot grow.
RT_NOINLINE RT_SCANS_MEMORY static void push_words(marker *m, uintptr_t lo, uintptr_t hi) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    if (heap_holds(word)) mark_push(m, word);
  }
}

// At most a piece, of an even number of words, as objects have. There is room for all of them: each
// is written, and stays if it may be an address.
RT_SCANS_MEMORY static inline void scan_words(marker *m, uintptr_t lo, uintptr_t hi) {
  const uintptr_t base = heap.base, extent = heap.extent;
  uintptr_t *to = m->top;
  if (RT_UNLIKELY((uintptr_t)m->end - (uintptr_t)to < hi - lo)) {
    push_words(m, lo, hi); // which makes room or drops what finds none
    return;
  }
  for (; lo != hi; lo += 2 * sizeof(uintptr_t)) {
    const uintptr_t *words = (const uintptr_t *)lo;
    uintptr_t first = words[0], second = words[1];
    *to = first;
    to += first - base < extent;
    *to = second;
    to += second - base < extent;
  }
  m->top = to;
}

static inline void scan_range(marker *m, uintptr_t lo, uintptr_t hi) {
  uintptr_t piece = lo + MARK_PIECE_WORDS * sizeof(uintptr_t);
  if (RT_LIKELY(hi <= piece)) {
    scan_words(m, lo, hi);
    return;
  }
  mark_push_range(m, piece, hi); // below the piece's candidates
  scan_words(m, lo, piece);
}

// Sets the slot's marked bit; false: it is no object, or was marked. Another marker may be setting
// one in the same word. No order is needed: the objects have been what they are since before the
// stop.
static inline bool set_mark(const heap_slot *slot, bool shared) {
  AO_t mask = (AO_t)1 << (slot->bit % 64), *marked = &slot->bits[1];
  AO_t old = shared ? AO_load(marked) : *marked;
  if (!(slot->bits[0] & ~old & mask)) return false;
  if (!shared) {
    *marked = old | mask;
    return true;
  }
  while (!AO_compare_and_swap(marked, old, old | mask)) {
    old = AO_load(marked);
    if (old & mask) return false;
  }
  return true;
}

enum { PIECE_AS_OBJECTS = MARK_PIECE_WORDS / 64 }; // about the same time

// A candidate out of the queue. Adds to what has been marked.
static inline void visit(marker *m, const heap_slot *slot, bool shared, mark_tally *tally) {
  if (!set_mark(slot, shared)) return;
  size_t bytes = heap_shapes[slot->tag & TAG_CLASS].bytes;
  unsigned kind = slot->tag >> TAG_KIND_SHIFT;
  if (RT_UNLIKELY(slot->tag == TAG_LARGE)) {
    const heap_block *block = &heap.blocks[(slot->start - heap.base) >> HEAP_BLOCK_SHIFT];
    bytes = block->object_bytes;
    kind = block->kind;
  }
  tally->bytes += bytes;
  tally->objects++;
  if (kind != TIDE_LEAF) scan_range(m, slot->start, slot->start + bytes);
}

// From the stack into a place of the queue; false: the stack is empty. *left as for drain.
static inline bool refill(marker *m, heap_slot *place, bool shared, uint64_t *left) {
  while (m->top != m->bottom) {
    uintptr_t word = *--m->top;
    if (RT_UNLIKELY(word & MARK_RANGE_TAG)) {
      scan_range(m, word & ~MARK_RANGE_TAG, *--m->top);
      if (shared) markers_consider(m);
      if (shared) continue;
      *left = *left > PIECE_AS_OBJECTS ? *left - PIECE_AS_OBJECTS : 0;
      if (!*left) break;
    } else if (RT_LIKELY(heap_find_slot(word, place))) {
      __builtin_prefetch(place->bits, 1);
      if (place->tag >> TAG_KIND_SHIFT != TIDE_LEAF) __builtin_prefetch((void *)place->start);
      return true;
    }
  }
  place->start = 0; // also where a word that is in no object was written
  return false;
}

// Until the stack and the queue are empty, or, where not shared, as many objects as *left have been
// marked, pieces of ranges counted as several; these are taken off it. The
// queue is a ring: who has been in it for a round is visited, and the next candidate takes the
// place.
static inline __attribute__((always_inline)) void drain(marker *m, bool shared, uint64_t *left) {
  mark_tally tally = {0, 0};
  uint64_t most = shared ? 0 : *left;
  heap_slot *place = m->queue, *end = m->queue + MARK_QUEUE;
  for (unsigned empty = 0; empty < MARK_QUEUE;) {
    empty++;
    if (RT_LIKELY(place->start)) {
      visit(m, place, shared, &tally);
      empty = 0;
      if (shared && !--m->patience) markers_consider(m);
    }
    bool filled = refill(m, place, shared, &most);
    if (RT_LIKELY(filled)) empty = 0;
    place = place + 1 == end ? m->queue : place + 1;
    if (!shared && RT_UNLIKELY(tally.objects >= most)) break;
  }
  m->live.live_bytes += tally.bytes;
  m->live.live_objects += tally.objects;
  if (!shared) *left = most > tally.objects ? most - tally.objects : 0;
}

void mark_drain_shared(marker *m) {
  drain(m, true, NULL);
  m->bottom = m->top = m->stack;
}

// ---- The first marker -----------------------------------------------------------------------

enum { ALONE_OBJECTS = 4096 }; // marked before others are let in: a small heap is done by then

static struct {
  marker *first;
  uint64_t stack_bytes, global_bytes;
  bool shared;    // others have been let in
  uint64_t alone; // objects to be marked before they are; UINT64_MAX: there are none
} now;

static RT_NOINLINE void drain_first(marker *m) {
  if (!now.shared) {
    drain(m, false, &now.alone);
    if (now.alone) return;
    markers_open(m);
    now.shared = true;
  }
  mark_drain_shared(m);
}

tide_status mark_init(void) {
  now.first = markers_first();
  return now.first ? TIDE_OK : rt_error_set(TIDE_ERR_MEMORY, "no memory for the mark stack");
}

// ---- Roots ----------------------------------------------------------------------------------

// A compiler may keep only the address past the end of an object that is still in use, in a
// register or on the stack: it makes the loop's end of it, or has already stepped past the last
// element that it is about to read.
RT_SCANS_MEMORY static void push_stack(marker *m, uintptr_t lo, uintptr_t hi) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    if (heap_holds(word)) mark_push(m, word);
    if (heap_holds(word - 1)) mark_push(m, word - 1);
  }
}

// Static data is mostly no references: four words are dismissed at once.
RT_SCANS_MEMORY static void push_static(marker *m, uintptr_t lo, uintptr_t hi) {
  const uintptr_t base = heap.base, extent = heap.extent;
  for (; hi - lo >= 4 * sizeof(uintptr_t); lo += 4 * sizeof(uintptr_t)) {
    const uintptr_t *word = (const uintptr_t *)lo;
    if ((word[0] - base < extent) | (word[1] - base < extent) | (word[2] - base < extent) |
        (word[3] - base < extent))
      push_words(m, lo, lo + 4 * sizeof(uintptr_t));
  }
  push_words(m, lo, hi);
}

// In pieces, each worked off before the next, so that the stack stays small. An added range stays
// where it is and may be shared like a range of an object; any other may be gone when this returns.
static void mark_root(const void *lo, const void *hi, rt_root_source source, void *arg) {
  marker *m = arg;
  uintptr_t from = (uintptr_t)lo, to = (uintptr_t)hi;
  if (source == RT_ROOT_STACK)
    now.stack_bytes += to - from;
  else
    now.global_bytes += to - from;
  if (source == RT_ROOT_ADDED) {
    if ((to - from) / sizeof(uintptr_t) % 2) { // ranges are even
      to -= sizeof(uintptr_t);
      push_words(m, to, to + sizeof(uintptr_t));
    }
    mark_push_range(m, from, to);
    drain_first(m);
    return;
  }
  while (from < to) {
    uintptr_t piece = from + MARK_PIECE_WORDS * sizeof(uintptr_t);
    if (piece > to) piece = to;
    if (source == RT_ROOT_STACK)
      push_stack(m, from, piece);
    else
      push_static(m, from, piece);
    drain_first(m);
    from = piece;
  }
}

// Every allocated slot of a block: marked, and scanned.
static void mark_block(marker *m, block_index index) {
  const heap_block *block = &heap.blocks[index];
  const AO_t *bits = block_bits(index);
  for (uint32_t slot = 0; slot < block->slots; slot++) {
    if (!(bits[2 * (slot / 64)] >> (slot % 64) & 1)) continue;
    mark_push(m, block_address(index) + slot * block->object_bytes);
    drain_first(m);
  }
}

static void mark_uncollectable(marker *m) {
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
    const size_list *list = &heap.lists[TIDE_UNCOLLECTABLE][i];
    for (block_index b = list->full.first; b; b = heap.blocks[b].next) mark_block(m, b);
    for (block_index b = list->partial.first; b; b = heap.blocks[b].next) mark_block(m, b);
    for (const rt_thread *thread = rt_threads(); thread; thread = thread->next) {
      block_index owned = heap_local_of(thread)->cache.runs[TIDE_UNCOLLECTABLE][i].block;
      if (owned) mark_block(m, owned);
    }
  }
  for (block_index b = heap.large[LARGE_UNCOLLECTABLE]; b; b = heap.blocks[b].next)
    mark_block(m, b);
}

// Large uncollectable objects are never swept, so their marks are still those of the cycle before.
static void unmark_large_uncollectable(void) {
  for (block_index b = heap.large[LARGE_UNCOLLECTABLE]; b; b = heap.blocks[b].next)
    heap.blocks[b].large_bits[1] = 0;
}

static void mark_from_roots(marker *m) {
  now.stack_bytes = now.global_bytes = 0;
  rt_roots_scan(mark_root, m);
  mark_uncollectable(m);
  if (now.shared)
    while (markers_find_work(m)) mark_drain_shared(m);
}

// ---- Without room for the stack -------------------------------------------------------------

RT_SCANS_MEMORY static void rescan_object(marker *m, uintptr_t lo, uintptr_t hi) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    heap_ref ref;
    if (!heap_holds(word) || !heap_find(word, &ref)) continue;
    if (!heap_ref_allocated(&ref) || heap_ref_marked(&ref)) continue;
    mark_push(m, word);
    drain_first(m);
  }
}

static void rescan_heap(marker *m) {
  block_index end = heap_frontier();
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

// What was dropped was found in a root or in a marked object, and is found there again. By one
// marker: it always has room for its first words, so each time gets further.
static void mark_what_was_dropped(marker *m) {
  now.shared = false;
  now.alone = UINT64_MAX;
  while (m->dropped) {
    m->dropped = false;
    mark_from_roots(m);
    rescan_heap(m);
  }
}

void mark_all(mark_result *result) {
  marker *m = now.first;
  now.shared = false;
  now.alone = !markers_can_join() ? UINT64_MAX : rt_options.verify ? 0 : ALONE_OBJECTS;
  m->bottom = m->top = m->stack;
  m->live = (mark_result){.markers = 1};
  m->dropped = false;
  small_hide_runs();
  unmark_large_uncollectable();
  mark_from_roots(m);
  if (now.shared) markers_add_up(&m->live, &m->dropped);
  mark_what_was_dropped(m);
  m->live.stack_bytes = now.stack_bytes;
  m->live.global_bytes = now.global_bytes;
  *result = m->live;
  mark_stack_shrink(m);
}
