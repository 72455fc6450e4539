// SPDX-License-Identifier: MIT
// TIDE_DEBUG=verify=1: the whole heap checked after each marking, with the world still stopped.
//
//   blocks     every entry is what its state demands; every block is where it belongs: free runs
//   add
//              up, small blocks are owned or on one list of their class, large ones on one list
//   bits       none beyond the block's slots; nothing is marked that is not allocated
//   marks      what a root or a marked object refers to is marked; live counts add up
//
// The first fault stops the program with a line that names it.
#include "heap.h"

typedef struct verifier {
  uint64_t live_bytes, live_objects;
  size_t free_blocks, free_dirty_blocks, small_blocks, large_blocks, absent_pages, bits_pages;
} verifier;

#define MUST(condition, index, what)                                                               \
  do {                                                                                             \
    if (RT_UNLIKELY(!(condition)))                                                                 \
      rt_fatal("verify: block %u (state %d): %s", (unsigned)(index), heap.blocks[index].state,     \
               what);                                                                              \
  } while (0)

// ---- Marks ----------------------------------------------------------------------------------

RT_SCANS_MEMORY static void check_words(uintptr_t lo, uintptr_t hi, const char *where) {
  for (; lo < hi; lo += sizeof(uintptr_t)) {
    uintptr_t word = *(const uintptr_t *)lo;
    heap_ref ref;
    if (!heap_holds(word) || !heap_find(word, &ref) || !heap_ref_allocated(&ref)) continue;
    if (!heap_ref_marked(&ref))
      rt_fatal("verify: the object at %p, which %s at %p refers to, is not marked",
               (void *)ref.start, where, (void *)lo);
  }
}

static void check_root(const void *lo, const void *hi, rt_root_source source, void *arg) {
  check_words((uintptr_t)lo, (uintptr_t)hi, "a root");
}

static void check_slots(verifier *v, block_index index) {
  const heap_block *block = &heap.blocks[index];
  const AO_t *bits = block_bits(index);
  for (uint32_t slot = 0; slot < block->slots; slot++) {
    bool allocated = bits[2 * (slot / 64)] >> (slot % 64) & 1;
    bool marked = bits[2 * (slot / 64) + 1] >> (slot % 64) & 1;
    MUST(allocated || !marked, index, "a free slot is marked");
    MUST(marked || !allocated || block->kind != TIDE_UNCOLLECTABLE, index,
         "an uncollectable object is not marked");
    if (!marked) continue;
    v->live_objects++;
    v->live_bytes += block->object_bytes;
    uintptr_t start = block_address(index) + slot * block->object_bytes;
    if (block->kind != TIDE_LEAF) check_words(start, start + block->object_bytes, "an object");
  }
  for (uint32_t slot = block->slots; slot < (block->slots + 63u) / 64 * 64; slot++)
    MUST(!((bits[2 * (slot / 64)] | bits[2 * (slot / 64) + 1]) >> (slot % 64) & 1), index,
         "a bit beyond the last slot is set");
}

// ---- Blocks ---------------------------------------------------------------------------------

static void check_small(verifier *v, block_index index) {
  const heap_block *block = &heap.blocks[index];
  v->small_blocks++;
  v->absent_pages += block->absent;
  MUST(block->kind < TIDE_KINDS && block->size_class < TIDE_SIZE_CLASSES, index,
       "class or kind out of range");
  MUST(block->object_bytes == size_class_bytes[block->size_class] &&
           block->slots == HEAP_BLOCK_BYTES / block->object_bytes,
       index, "its slots are not its class's");
  MUST(heap.tags[index] == (block->kind << TAG_KIND_SHIFT | block->size_class), index,
       "its tag is another's");
  MUST(!block_unswept(block), index, "it was not swept before the marking");
  check_slots(v, index);
}

static void check_large(verifier *v, block_index index) {
  const heap_block *block = &heap.blocks[index];
  v->large_blocks++;
  MUST(block->slots == 1 && heap.tags[index] == TAG_LARGE, index, "not one slot");
  MUST(block->object_bytes <= (size_t)block->run * HEAP_BLOCK_BYTES &&
           block->object_bytes + HEAP_BLOCK_BYTES > (size_t)block->run * HEAP_BLOCK_BYTES,
       index, "its size is not its blocks'");
  for (uint32_t i = 1; i < block->run; i++)
    MUST(heap.blocks[index + i].state == BLOCK_LARGE_REST && heap.blocks[index + i].head == index &&
             heap.tags[index + i] == TAG_LARGE,
         index + i, "it does not belong to the object before it");
  check_slots(v, index);
}

static uint32_t check_free(verifier *v, block_index index, block_index end) {
  uint32_t run = heap.blocks[index].run;
  MUST(run && index + run <= end && heap.blocks[index + run - 1].run == run, index,
       "a free run's ends do not agree");
  MUST(heap.blocks[index - 1].state != BLOCK_FREE, index, "two free runs touch");
  for (uint32_t i = 0; i < run; i++) {
    MUST(heap.blocks[index + i].state == BLOCK_FREE && !heap.blocks[index + i].slots &&
             heap.tags[index + i] == TAG_NONE,
         index + i, "not free in a free run");
    v->free_dirty_blocks += heap.blocks[index + i].dirty;
  }
  v->free_blocks += run;
  return run;
}

static size_t chain_length(const block_chain *chain, int kind, int size_class) {
  size_t length = 0;
  for (block_index b = chain->first; b; b = heap.blocks[b].next, length++) {
    MUST(heap.blocks[b].state == BLOCK_SMALL && !heap.blocks[b].owner &&
             heap.blocks[b].kind == kind && heap.blocks[b].size_class == size_class,
         b, "on a list of another class");
    block_index next = heap.blocks[b].next;
    MUST(next ? heap.blocks[next].prev == b : chain->last == b, b,
         "its list is not linked both ways");
  }
  return length;
}

static void check_lists(const verifier *v) {
  size_t small = 0, large = 0, free = 0;
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
      const size_list *list = &heap.lists[kind][i];
      if (list->unswept.first) rt_fatal("verify: class %d, kind %d is not swept", i, kind);
      small += chain_length(&list->partial, kind, i) + chain_length(&list->full, kind, i);
      for (rt_thread *thread = rt_threads(); thread; thread = thread->next) {
        block_index owned = heap_local_of(thread)->cache.runs[kind][i].block;
        if (!owned) continue;
        MUST(heap.blocks[owned].owner == heap_local_of(thread), owned,
             "a thread allocates in a block that it does not own");
        small++;
      }
    }
  for (int list = 0; list < LARGE_LISTS; list++)
    for (block_index b = heap.large[list]; b; b = heap.blocks[b].next) {
      MUST(heap.blocks[b].state == BLOCK_LARGE && heap.blocks[b].list == list, b,
           "on a list of large objects that is not its own");
      large++;
    }
  for (int bin = 0; bin < HEAP_BINS; bin++)
    for (block_index b = heap.bins[bin]; b; b = heap.blocks[b].next) {
      MUST(heap.blocks[b].state == BLOCK_FREE, b, "not free, but on a list of free runs");
      free += heap.blocks[b].run;
    }
  if (small != v->small_blocks || large != v->large_blocks || free != v->free_blocks ||
      free != heap.free_blocks || v->free_dirty_blocks != AO_load(&heap.free_dirty_blocks))
    rt_fatal("verify: blocks on lists and in the table: small %zu, %zu; large %zu, %zu; free %zu, "
             "%zu, counted %zu; dirty %zu, counted %zu",
             small, v->small_blocks, large, v->large_blocks, free, v->free_blocks, heap.free_blocks,
             v->free_dirty_blocks, (size_t)AO_load(&heap.free_dirty_blocks));
}

static void count_bits(verifier *v, block_index end) {
  size_t each = os_page_bytes() / (HEAP_BIT_WORDS * sizeof(AO_t));
  for (block_index page = 0; page < end; page += (block_index)each) {
    bool touched = false;
    for (size_t i = 0; i < each; i++) touched |= heap.blocks[page + i].bits_touched;
    v->bits_pages += touched;
  }
}

static void check_counts(const verifier *v) {
  size_t used = heap_frontier() - 1 - v->free_blocks;
  if (used != AO_load(&heap.used_blocks) || v->bits_pages != AO_load(&heap.bits_pages))
    rt_fatal("verify: %zu blocks are in use, counted %zu; %zu pages of bits are, counted %zu", used,
             (size_t)AO_load(&heap.used_blocks), v->bits_pages, (size_t)AO_load(&heap.bits_pages));
  if (v->absent_pages != AO_load(&heap.absent_pages))
    rt_fatal("verify: %zu pages of blocks were given back, counted %zu", v->absent_pages,
             (size_t)AO_load(&heap.absent_pages));
}

void verify_heap(const mark_result *result) {
  verifier v = {0};
  block_index end = heap_frontier();
  for (block_index i = 1; i < end;) {
    const heap_block *block = &heap.blocks[i];
    switch ((block_state)block->state) {
    case BLOCK_SMALL:
      check_small(&v, i);
      i++;
      break;
    case BLOCK_LARGE:
      check_large(&v, i);
      i += block->run;
      break;
    case BLOCK_FREE:
      i += check_free(&v, i, end);
      break;
    default:
      MUST(false, i, "not a state that a block may be in here");
    }
  }
  if (v.live_bytes != result->live_bytes || v.live_objects != result->live_objects)
    rt_fatal("verify: marked %llu objects of %llu bytes, counted %llu of %llu",
             (unsigned long long)result->live_objects, (unsigned long long)result->live_bytes,
             (unsigned long long)v.live_objects, (unsigned long long)v.live_bytes);
  check_lists(&v);
  count_bits(&v, end);
  check_counts(&v);
  rt_roots_scan(check_root, NULL);
}
