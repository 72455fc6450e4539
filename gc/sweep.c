// SPDX-License-Identifier: MIT
// Sweeping: what is allocated becomes what was marked.
//
// After marking, every small block that no thread owns is on its class's unswept list and every
// large object on the large unswept list. They are swept by whoever needs room (small.c, large.c),
// a bounded number at a time, and the rest before the next marking. Sweeping a block touches its
// bits, not its objects.
#include "heap.h"

#include <string.h>

static void poison_slots(const heap_block *block, uint32_t first, AO_t freed) {
  char *start = (char *)block_address(block_index_of(block));
  for (; freed; freed &= freed - 1) {
    size_t slot = first + (uint32_t)__builtin_ctzl(freed);
    memset(start + slot * block->object_bytes, 0xdb, block->object_bytes);
  }
}

__thread unsigned sweep_blocks __attribute__((tls_model("initial-exec")));

sweep_span sweep_begin(void) {
  return (sweep_span){rt_events_wanted() ? os_now_ns() : 0, sweep_blocks};
}

void sweep_end(sweep_span span) {
  unsigned blocks = sweep_blocks - span.blocks;
  if (!blocks) return;
  rt_event(TIDE_EVENT_SWEEP, span.began_ns, span.began_ns ? os_now_ns() - span.began_ns : 0, blocks,
           0);
}

void sweep_block(size_list *list, heap_block *block) {
  if (!block_unswept(block)) return; // a look at one of its objects has swept it
  AO_t *bits = small_bits(block_index_of(block));
  block->swept = heap.markings;
  AO_t freed_slots = 0;
  for (uint32_t slot = 0; slot < block->slots; slot += 64, bits += 2) {
    AO_t freed = bits[0] & ~bits[1];
    if (freed) {
      freed_slots += (AO_t)__builtin_popcountl(freed);
      if (RT_UNLIKELY(rt_options.poison)) poison_slots(block, slot, freed);
    }
    bits[0] = bits[1];
    bits[1] = 0;
  }
  AO_fetch_and_add(&heap.freed_slots[block->size_class], freed_slots);
  sweep_blocks++;
}

bool block_is_empty(const heap_block *block) {
  const AO_t *bits = small_bits(block_index_of(block));
  for (uint32_t slot = 0; slot < block->slots; slot += 64, bits += 2)
    if (bits[0]) return false;
  return true;
}

void block_file_or_free(size_list *list, heap_block *block) {
  if (!block_is_empty(block)) {
    block_file(list, block);
    return;
  }
  rt_pinned_lock_take(&heap.lock);
  heap_give_blocks(block_index_of(block), 1, true);
  rt_pinned_lock_give(&heap.lock);
}

// Sweeps one block of the list, if it has an unswept one, and puts it where it belongs.
static bool sweep_one(size_list *list) {
  rt_pinned_lock_take(&list->lock);
  heap_block *block = block_pop(&list->unswept);
  if (block) {
    sweep_block(list, block);
    block_file_or_free(list, block);
  }
  rt_pinned_lock_give(&list->lock);
  return block;
}

bool sweep_large(unsigned steps) {
  const block_index *unswept = &heap.large[large_unswept_list()];
  for (; steps && *unswept; steps--) {
    heap_block *block = &heap.blocks[*unswept];
    sweep_blocks += block->run;
    AO_t *bits = block->large_bits;
    large_unlink(block);
    if (bits[1] & 1) {
      bits[1] = 0;
      block->swept = heap.markings;
      large_link(block, large_swept_list());
    } else {
      large_release(block);
    }
  }
  return *unswept;
}

// Where sweep_some looks next; a hint, any thread may change it.
static AO_t turn;

bool sweep_some(unsigned steps) {
  rt_pinned_lock_take(&heap.lock);
  bool more = sweep_large(steps / 4);
  rt_pinned_lock_give(&heap.lock);
  enum { LISTS = TIDE_KINDS * TIDE_SIZE_CLASSES };
  for (unsigned looked = 0; looked < LISTS && steps;) {
    size_list *list = &heap.lists[0][0] + AO_load(&turn) % LISTS;
    if (chain_may_have_one(&list->unswept) && sweep_one(list)) {
      steps--;
      looked = 0;
    } else {
      AO_store(&turn, AO_load(&turn) + 1);
      looked++;
    }
  }
  return more || !steps;
}

void sweep_finish(rt_thread *self) {
  // In steps, each a pinned section: another thread may want to stop the world.
  for (bool more = true; more;) {
    rt_pin(self);
    more = sweep_some(SWEEP_STEP);
    rt_unpin(self);
  }
}

void sweep_prepare(void) {
  heap.markings++; // every block is unswept from now on, and the large lists change roles
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
      size_list *list = &heap.lists[kind][i];
      block_append(&list->unswept, &list->partial);
      block_append(&list->unswept, &list->full);
    }
}
