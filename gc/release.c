// SPDX-License-Identifier: MIT
// Giving memory back to the system: free blocks that may hold something, beyond those that the heap
// will soon need (gc/cycle.c knows how much that is).
//
// The table is walked from the end of the heap downwards, and piece by piece, each in a pinned
// section of its own: a piece is taken out of its free run, so that nobody allocates in it, given
// to the system without a lock, and put back as clean. So no stop waits for more than one piece,
// and no other thread at all. Memory given back stays part of the mapping.
//
// Two passes. The first gives back whole huge pages (of free blocks: in long runs, few calls). If
// that leaves too much, the second takes any block, and huge pages end first (see huge.c). When
// everything is asked for, free pages inside blocks of small objects follow.
#include "heap.h"

enum {
  PIECE_BLOCKS = 64,  // 4 MiB: less than 1 ms
  LOOK_BLOCKS = 4096, // entries looked at in one pinned section
  WORTH_BLOCKS = 64,  // what may stay with huge pages on, besides a share of what is in use
  PAGES_IN_BLOCK = HEAP_BLOCK_BYTES / HEAP_PAGE_BYTES,
};

typedef struct walk {
  size_t unit;       // blocks: pieces are of whole units
  size_t keep;       // dirty blocks that stay
  block_index below; // what lies from here on upwards has been looked at
  block_index last;  // the last block of a free run; a hint
  bool refused;      // the system did not take a piece
  size_t gone;       // blocks given back
} walk;

// ---- Free blocks ----------------------------------------------------------------------------

// All of the unit is free, and some of it is dirty.
static bool unit_is_wanted(block_index at, size_t unit) {
  bool dirty = false;
  for (const heap_block *b = &heap.blocks[at]; unit; unit--, b++) {
    if (!block_is(b, BLOCK_FREE)) return false;
    dirty |= b->dirty;
  }
  return dirty;
}

// Goes on to the next piece; 0: it is not within sight. heap_lock held.
static block_index next_piece(walk *w, size_t *blocks) {
  size_t most = heap.free_dirty_blocks - w->keep, looked = 0;
  if (most > PIECE_BLOCKS) most = PIECE_BLOCKS;
  while (w->below >= w->unit && !unit_is_wanted(w->below - (block_index)w->unit, w->unit)) {
    w->below -= (block_index)w->unit;
    if ((looked += w->unit) >= LOOK_BLOCKS) return 0;
  }
  if (w->below < w->unit) return 0;
  block_index end = w->below;
  do w->below -= (block_index)w->unit;
  while (w->below >= w->unit && end - w->below < most &&
         unit_is_wanted(w->below - (block_index)w->unit, w->unit));
  *blocks = end - w->below;
  return w->below;
}

// One pinned section; false: the walk is over.
static bool step(rt_thread *self, walk *w) {
  rt_pin(self);
  rt_pinned_lock_take(&heap.lock);
  bool more = !w->refused && w->below >= w->unit && heap.free_dirty_blocks > w->keep;
  size_t blocks = 0;
  block_index at = more ? next_piece(w, &blocks) : 0;
  if (at) {
    w->last = heap_run_last(at, w->last);
    heap_take_part(w->last, at, blocks);
    rt_pinned_lock_give(&heap.lock);
    bool gone = os_release((void *)block_address(at), blocks * HEAP_BLOCK_BYTES);
    if (gone) heap_release_bits(at, blocks); // of no use either
    rt_pinned_lock_take(&heap.lock);
    for (size_t i = 0; gone && i < blocks; i++) heap.blocks[at + i].dirty = 0;
    heap_give_part(at, blocks); // those still dirty stay so
    w->refused = !gone;
    if (gone) w->gone += blocks;
  }
  rt_pinned_lock_give(&heap.lock);
  rt_unpin(self);
  return more;
}

// False: the system refused. Adds what was given back to *gone.
static bool release_units(rt_thread *self, size_t unit, size_t keep, size_t *gone) {
  // The frontier may advance meanwhile; what comes after it is not old memory.
  block_index end = heap_frontier();
  walk w = {.unit = unit, .keep = keep, .below = end - end % (block_index)unit};
  while (step(self, &w)) continue;
  *gone += w.gone;
  return !w.refused;
}

// ---- Pages inside blocks --------------------------------------------------------------------

// A bit for each page of the block that an allocated slot touches.
static uint32_t pages_in_use(const heap_block *block) {
  const AO_t *bits = small_bits(block_index_of(block));
  uint32_t pages = 0;
  for (uint32_t first = 0; first < block->slots; first += 64, bits += 2)
    for (AO_t allocated = bits[0]; allocated; allocated &= allocated - 1) {
      size_t slot = first + (uint32_t)__builtin_ctzl(allocated);
      size_t from = slot * block->object_bytes / HEAP_PAGE_BYTES;
      size_t to = ((slot + 1) * block->object_bytes - 1) / HEAP_PAGE_BYTES;
      pages |= (2u << to) - (1u << from);
    }
  return pages;
}

static void release_pages(heap_block *block) {
  char *start = (char *)block_address(block_index_of(block));
  uint32_t used = pages_in_use(block);
  block_count_present(block);
  for (unsigned from = 0, to; from < PAGES_IN_BLOCK; from = to + 1) {
    for (to = from; to < PAGES_IN_BLOCK && !(used >> to & 1); to++) continue;
    if (to > from && os_release(start + from * HEAP_PAGE_BYTES, (to - from) * HEAP_PAGE_BYTES))
      block->absent = (uint8_t)(block->absent + to - from);
  }
  AO_fetch_and_add(&heap.absent_pages, block->absent);
}

// On its class's partial list, whose lock is held: nobody else allocates or frees in it.
static bool is_partial(const heap_block *block, const size_list *list) {
  return block->state == BLOCK_SMALL && !block->owner && block->filed == heap.markings &&
         !block->full && list == &heap.lists[block->kind][block->size_class];
}

static void release_partial(heap_block *block) {
  if (block->state != BLOCK_SMALL) return; // a hint: a new one has nothing to give
  size_list *list = &heap.lists[block->kind % TIDE_KINDS][block->size_class % TIDE_SIZE_CLASSES];
  rt_pinned_lock_take(&list->lock);
  if (is_partial(block, list)) release_pages(block);
  rt_pinned_lock_give(&list->lock);
}

static void release_inside_blocks(rt_thread *self) {
  if (os_page_bytes() > HEAP_PAGE_BYTES) return; // the system would take more than was meant
  for (block_index i = 1; i < heap_frontier(); i++) {
    if (heap.blocks[i].state != BLOCK_SMALL) continue;
    rt_pin(self);
    release_partial(&heap.blocks[i]);
    rt_unpin(self);
  }
}

// ---- The whole ------------------------------------------------------------------------------

// Once a cycle: most of the heap may be in use again without having grown.
static void look_at_huge_pages(rt_thread *self) {
  rt_pin(self);
  rt_pinned_lock_take(&heap.lock);
  huge_consider();
  rt_pinned_lock_give(&heap.lock);
  rt_unpin(self);
}

// Whether it is worth it to take single blocks, at the price of huge pages.
static bool go_on(rt_thread *self, size_t keep, bool exactly) {
  rt_pin(self);
  rt_pinned_lock_take(&heap.lock);
  size_t in_use = heap_frontier() - heap.free_blocks;
  bool tolerant = heap.huge_blocks && keep && !exactly;
  size_t tolerated = tolerant ? in_use / 8 + WORTH_BLOCKS : 0;
  bool on = heap.free_dirty_blocks > keep + tolerated || !keep;
  if (on) huge_end();
  rt_pinned_lock_give(&heap.lock);
  rt_unpin(self);
  return on;
}

void heap_release(rt_thread *self, size_t keep_bytes, bool exactly) {
  static AO_t refused; // once the system has: nobody asks it again but the program
  size_t keep = keep_bytes >> HEAP_BLOCK_SHIFT;
  if (keep_bytes && !keep) keep = 1;
  if (keep && !exactly) look_at_huge_pages(self);
  if (keep && AO_load(&refused)) return;
  uint64_t began_ns = rt_events_wanted() ? os_now_ns() : 0, absent = AO_load(&heap.absent_pages);
  size_t gone = 0;
  bool taken = release_units(self, HEAP_HUGE_BLOCKS, keep, &gone);
  if (taken && go_on(self, keep, exactly)) taken = release_units(self, 1, keep, &gone);
  AO_store(&refused, !taken);
  if (taken && !keep) release_inside_blocks(self);
  uint64_t pages = !keep ? AO_load(&heap.absent_pages) - absent : 0; // of blocks in use
  uint64_t bytes = gone * HEAP_BLOCK_BYTES + pages * HEAP_PAGE_BYTES;
  if (bytes)
    rt_event(TIDE_EVENT_RELEASE, began_ns, began_ns ? os_now_ns() - began_ns : 0, bytes, 0);
}
