// SPDX-License-Identifier: MIT
// Huge pages: a large heap asks the system to back its blocks with pages of 2 MiB.
//
// Marking jumps all over the heap, and with pages of 4 KiB most of its steps miss the TLB; memory
// that is new is also had faster in large pieces. A small heap does not ask, so that a small
// program does not pay for 2 MiB where it uses 64 KiB.
//
// Asking splits the mapping where it begins and ends. So it is only ever done for all usable blocks
// at once, or for those behind the ones that have been asked for, which then become one mapping
// with them. It is a wish: where the system has no huge pages, nothing else changes.
//
// Giving back a piece of a huge page splits the page, and the system would join the rest again
// later and with that fill the hole. See release.c, which gives back whole huge pages only, or
// takes the wish back.
#include "heap.h"

enum { AGAIN_MARKINGS = 16 }; // after they had to go

static uint32_t ended_at; // heap.markings when they had to; 0: never

// Most of the heap is in use, and it is large enough.
static bool worth_it(void) {
  size_t blocks = heap_frontier();
  return blocks >= HUGE_FROM_BLOCKS && heap.free_blocks < blocks / 4 &&
         (!ended_at || heap.markings - ended_at > AGAIN_MARKINGS);
}

// Of the bits of so many blocks, as they are committed (heap.c): a huge page has those of 128 MiB.
static size_t bits_bytes(size_t blocks) {
  size_t bytes = blocks * HEAP_BIT_WORDS * sizeof(AO_t);
  return (bytes + HEAP_HUGE_BYTES - 1) / HEAP_HUGE_BYTES * HEAP_HUGE_BYTES;
}

void huge_consider(void) {
  if (!rt_options.hugepages || (!heap.huge_blocks && !worth_it())) return;
  size_t from = heap.huge_blocks;
  size_t to = heap.committed_blocks / HEAP_HUGE_BLOCKS * HEAP_HUGE_BLOCKS;
  if (to <= from) return;
  if (!os_huge((void *)block_address((block_index)from), (to - from) * HEAP_BLOCK_BYTES, true))
    return;
  os_huge(heap.bits, bits_bytes(to), true);
  heap.huge_blocks = to;
}

void huge_end(void) {
  if (!heap.huge_blocks) return;
  os_huge((void *)heap.base, heap.huge_blocks * HEAP_BLOCK_BYTES, false);
  os_huge(heap.bits, bits_bytes(heap.huge_blocks), false);
  heap.huge_blocks = 0;
  ended_at = heap.markings;
}
