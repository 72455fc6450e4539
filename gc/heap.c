// SPDX-License-Identifier: MIT
// Blocks: the reserved range, the frontier, and the runs of free blocks.
//
// The range is reserved without memory and made usable from its start as the frontier advances, so
// the heap is one mapping however much it holds. Free blocks form runs; the first and the last
// block of a run know its length, so neighbours are joined when a run is given back. Runs are kept
// in bins by the logarithm of their length.
//
// Invariant: no two free runs touch. The frontier is the end of the last block ever used.
#include "heap.h"
#include "limit.h"

#include <string.h>

heap_state heap = {.lock = RT_PINNED_LOCK_INIT};

// Reciprocals are rounded up; exact for every offset in a block: offset x (reciprocal x bytes -
// 2^32) < 2^32, as both factors are at most 2^16 and below 2^16.
const heap_shape heap_shapes[TAG_CLASS + 1] = {
#define ROW(class, bytes, below)                                                                   \
  [class] = {bytes, HEAP_BLOCK_BYTES / (bytes),                                                    \
             (uint32_t)((((uint64_t)1 << 32) + (bytes)-1) / (bytes))},
    SIZE_CLASS_TABLE(ROW)
#undef ROW
};

// ---- The reserved range ---------------------------------------------------------------------

enum { RESERVE_BLOCKS_MAX = 1 << 26, RESERVE_BLOCKS_MIN = 1 << 6 }; // 4 TiB to 4 MiB

static size_t whole_pages(size_t bytes) {
  size_t page = os_page_bytes();
  return (bytes + page - 1) / page * page;
}
static size_t table_bytes(size_t blocks) {
  return whole_pages(blocks * sizeof(heap_block));
}
static size_t tags_bytes(size_t blocks) {
  return whole_pages(blocks);
}
static size_t bits_bytes(size_t blocks) {
  return blocks * HEAP_BIT_WORDS * sizeof(AO_t);
}
static size_t layout_bytes(size_t blocks) {
  // Some more, to align the bits and the first block.
  return tags_bytes(blocks) + table_bytes(blocks) + bits_bytes(blocks) + blocks * HEAP_BLOCK_BYTES +
         2 * HEAP_HUGE_BYTES;
}

static uintptr_t align_huge(uintptr_t address) {
  return (address + HEAP_HUGE_BYTES - 1) & ~(uintptr_t)(HEAP_HUGE_BYTES - 1);
}

static void lay_out(char *start, size_t blocks) {
  heap.reservation = start;
  heap.reservation_bytes = layout_bytes(blocks);
  heap.reserved_blocks = blocks;
  heap.tags = (uint8_t *)start;
  heap.blocks = (heap_block *)(void *)(start + tags_bytes(blocks));
  heap.bits = (AO_t *)align_huge((uintptr_t)heap.blocks + table_bytes(blocks));
  heap.base = align_huge((uintptr_t)heap.bits + bits_bytes(blocks));
}

// Under RLIMIT_AS at most 3/4 of what is left, so that stacks and malloc find some too.
static bool reserve(void) {
  size_t bytes_each = 1 + sizeof(heap_block) + bits_bytes(1) + HEAP_BLOCK_BYTES;
  size_t blocks = os_address_space_left() / 4 * 3 / bytes_each;
  if (blocks > RESERVE_BLOCKS_MAX) blocks = RESERVE_BLOCKS_MAX;
  for (; blocks >= RESERVE_BLOCKS_MIN; blocks = blocks / 4 * 3) {
    char *start = os_reserve(layout_bytes(blocks));
    if (!start) continue;
    lay_out(start, blocks);
    return true;
  }
  return false;
}

// Makes bytes [from, to) of a part of the range usable; what shares a page with them becomes so
// too.
static bool commit_part(void *part, size_t from, size_t to) {
  size_t page = os_page_bytes();
  from = from / page * page;
  to = (to + page - 1) / page * page;
  return os_commit((char *)part + from, to - from);
}

// The blocks first: they are most of it, and a request that is far too large fails there.
static bool commit_blocks(size_t from, size_t to) {
  if (!commit_part((void *)heap.base, from * HEAP_BLOCK_BYTES, to * HEAP_BLOCK_BYTES)) return false;
  size_t bits_to = bits_bytes(to);
  if (to >= HUGE_FROM_BLOCKS) bits_to = align_huge(bits_to); // no half huge page at the end
  if (commit_part(heap.bits, bits_bytes(from), bits_to) &&
      commit_part(heap.blocks, from * sizeof(heap_block), to * sizeof(heap_block)) &&
      commit_part(heap.tags, from, to))
    return true;
  os_uncommit((void *)block_address((block_index)from), (to - from) * HEAP_BLOCK_BYTES);
  return false;
}

// Makes blocks usable up to `count` of them from the start. Steps grow with the heap, so that the
// number of calls stays small and little is made usable in vain, and end where a huge page does;
// when a step is refused, just what is needed is tried.
static bool commit(size_t count) {
  size_t from = heap.committed_blocks;
  if (count <= from) return true;
  if (count > heap.reserved_blocks) return false;
  size_t step = from / 8 < 16 ? 16 : from / 8 > 1024 ? 1024 : from / 8;
  size_t to = count > from + step ? count : from + step;
  to = (to + HEAP_HUGE_BLOCKS - 1) / HEAP_HUGE_BLOCKS * HEAP_HUGE_BLOCKS;
  if (to > heap.reserved_blocks) to = heap.reserved_blocks;
  if (!commit_blocks(from, to)) {
    to = count;
    if (!commit_blocks(from, to)) return false;
  }
  heap.committed_blocks = to;
  huge_consider();
  return true;
}

tide_status heap_init(void) {
  if (heap.committed_blocks) return TIDE_OK; // a start that failed further on
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++)
      heap.lists[kind][i].lock = (rt_pinned_lock)RT_PINNED_LOCK_INIT;
  if (!reserve() || !commit(1))
    return rt_error_set(TIDE_ERR_MEMORY, "no address space for the heap (tried down to %d MiB)",
                        RESERVE_BLOCKS_MIN / 16);
  heap.extent = HEAP_BLOCK_BYTES; // block 0 is never used
  block_set_tag(0, 0, TAG_NONE);
  return TIDE_OK;
}

// ---- Free runs ------------------------------------------------------------------------------

static unsigned bin_of(size_t run) {
  return 63u - (unsigned)__builtin_clzl(run);
}

static void unlink_run(heap_block *first) {
  heap_block *blocks = heap.blocks;
  if (first->prev)
    blocks[first->prev].next = first->next;
  else
    heap.bins[bin_of(first->run)] = first->next;
  if (first->next) blocks[first->next].prev = first->prev;
  heap.free_blocks -= first->run;
}

// The blocks' dirty flags stay as they are.
static void link_run(block_index index, size_t run) {
  heap_block *first = &heap.blocks[index];
  block_index *bin = &heap.bins[bin_of(run)];
  first->run = heap.blocks[index + run - 1].run = (uint32_t)run;
  first->next = *bin;
  first->prev = 0;
  if (*bin) heap.blocks[*bin].prev = index;
  *bin = index;
  heap.free_blocks += run;
}

static void clear_block(heap_block *block, block_state state) {
  block_set_tag(block_index_of(block), 0, TAG_NONE);
  uint8_t dirty = block->dirty, bits_touched = block->bits_touched;
  memset(block, 0, sizeof *block);
  block->state = (uint8_t)state;
  block->dirty = dirty;
  block->bits_touched = bits_touched;
}

// Counters that others read without the lock.
static void add_to(AO_t *counter, size_t more) {
  AO_store(counter, AO_load(counter) + more);
}
static void take_from(AO_t *counter, size_t less) {
  AO_store(counter, AO_load(counter) - less);
}

static void give(block_index first, size_t blocks, bool dirty) {
  size_t dirty_blocks = 0;
  for (size_t i = 0; i < blocks; i++) {
    heap_block *block = &heap.blocks[first + i];
    if (dirty) block->dirty = 1;
    dirty_blocks += block->dirty;
    block_count_present(block);
    clear_block(block, BLOCK_FREE);
  }
  add_to(&heap.free_dirty_blocks, dirty_blocks);
  block_index end = first + (block_index)blocks;
  if (end < heap_frontier() && block_is(&heap.blocks[end], BLOCK_FREE)) {
    size_t run = heap.blocks[end].run;
    unlink_run(&heap.blocks[end]);
    blocks += run;
  }
  if (block_is(&heap.blocks[first - 1], BLOCK_FREE)) { // block 0 is unused: there always is one
    size_t run = heap.blocks[first - 1].run;
    first -= (block_index)run;
    unlink_run(&heap.blocks[first]);
    blocks += run;
  }
  link_run(first, blocks);
}

void heap_give_blocks(block_index first, size_t blocks, bool dirty) {
  give(first, blocks, dirty);
  take_from(&heap.used_blocks, blocks);
}

// Takes `blocks` blocks of a free run from `at` on, and gives the rest of the run back.
static void carve(block_index run_first, block_index at, size_t blocks, bool *zeroed) {
  size_t run = heap.blocks[run_first].run;
  unlink_run(&heap.blocks[run_first]);
  if (at > run_first) link_run(run_first, at - run_first);
  size_t rest = run_first + run - (at + blocks);
  if (rest) link_run(at + (block_index)blocks, rest);
  size_t dirty_blocks = 0;
  for (size_t i = 0; i < blocks; i++) {
    heap_block *block = &heap.blocks[at + i];
    dirty_blocks += block->dirty;
    block->state = BLOCK_TAKEN; // at once: a neighbour that is given back must not be joined to it
  }
  take_from(&heap.free_dirty_blocks, dirty_blocks);
  *zeroed = !dirty_blocks;
}

// The first index from `index` on whose address is a multiple of `alignment` blocks.
static block_index align_index(block_index index, size_t alignment) {
  uintptr_t base = heap.base >> HEAP_BLOCK_SHIFT;
  return (block_index)((base + index + alignment - 1) / alignment * alignment - base);
}

static block_index take_free_run(size_t blocks, size_t alignment, bool *zeroed) {
  // From the bin where the first run may fit: its own bin is searched, in any higher one the first
  // run fits but for the alignment.
  for (unsigned bin = bin_of(blocks); bin < HEAP_BINS; bin++)
    for (block_index i = heap.bins[bin]; i; i = heap.blocks[i].next) {
      block_index at = align_index(i, alignment);
      if (at + blocks > i + heap.blocks[i].run) continue;
      carve(i, at, blocks, zeroed);
      add_to(&heap.used_blocks, blocks);
      return at;
    }
  return 0;
}

// Makes `more` blocks at the frontier free ones; heap_give_blocks joins them to a run before them.
static void advance(size_t more) {
  block_index old = heap_frontier();
  AO_store(&heap.extent, heap.extent + (more << HEAP_BLOCK_SHIFT)); // read without the lock
  give(old, more, false);
}

// All that is mapped and not given back; a free block that is taken may be one that was. Of each of
// the tables the blocks may touch a page more than what their entries fill.
static bool hard_limit_allows(size_t blocks) {
  engine_memory m;
  heap_memory(&m);
  size_t entries = blocks * (sizeof(heap_block) + 1) + 3 * os_page_bytes();
  return limit_hard_allows(m.used_bytes + m.free_bytes, blocks * HEAP_BLOCK_BYTES + entries);
}

bool heap_fill_block(heap_block *block) {
  if (RT_LIKELY(!block->absent)) return true;
  rt_pinned_lock_take(&heap.lock);
  engine_memory m;
  heap_memory(&m);
  size_t more = block->absent * HEAP_PAGE_BYTES;
  bool allowed = limit_hard_allows(m.used_bytes + m.free_bytes, more);
  if (allowed) block_count_present(block);
  rt_pinned_lock_give(&heap.lock);
  return allowed;
}

block_index heap_take_blocks(size_t blocks, size_t alignment, bool grow, bool *zeroed) {
  if (blocks > heap.reserved_blocks || !hard_limit_allows(blocks)) return 0;
  block_index at = take_free_run(blocks, alignment, zeroed);
  if (at || !grow) return at;
  // A free run that ends at the frontier is the beginning of what we take.
  block_index from = heap_frontier();
  if (block_is(&heap.blocks[from - 1], BLOCK_FREE)) from -= heap.blocks[from - 1].run;
  at = align_index(from, alignment);
  if (!commit(at + blocks)) return 0;
  advance(at + blocks - heap_frontier());
  carve(from, at, blocks, zeroed);
  add_to(&heap.used_blocks, blocks);
  return at;
}

bool heap_extend_blocks(block_index after, size_t more, bool *zeroed) {
  block_index at = after + 1;
  if (!hard_limit_allows(more)) return false;
  if (at == heap_frontier()) {
    if (!commit(at + more)) return false;
    advance(more);
  }
  if (!block_is(&heap.blocks[at], BLOCK_FREE) || heap.blocks[at].run < more) return false;
  carve(at, at, more, zeroed);
  add_to(&heap.used_blocks, more);
  return true;
}

block_index heap_run_last(block_index index, block_index hint) {
  block_index end = heap_frontier();
  const heap_block *block = &heap.blocks[hint];
  // A run's last block knows how long it is, and no free run follows.
  bool is_last = hint >= index && hint < end && block_is(block, BLOCK_FREE) &&
                 (hint + 1 == end || !block_is(&block[1], BLOCK_FREE));
  if (is_last && hint - index < block->run) return hint;
  while (index + 1 < end && block_is(&heap.blocks[index + 1], BLOCK_FREE)) index++;
  return index;
}

void heap_take_part(block_index last, block_index at, size_t blocks) {
  bool zeroed;
  add_to(&heap.leaving_blocks, blocks);
  carve(last + 1 - heap.blocks[last].run, at, blocks, &zeroed);
}

void heap_give_part(block_index at, size_t blocks) {
  give(at, blocks, false);
  take_from(&heap.leaving_blocks, blocks);
}

// ---- What is mapped -------------------------------------------------------------------------

// Pages of bits are counted, not blocks: a page has those of several, one touches it.
static size_t bits_page_blocks(void) {
  return os_page_bytes() / bits_bytes(1);
}

static bool bits_page_touched(block_index index) {
  size_t each = bits_page_blocks();
  const heap_block *first = &heap.blocks[index / each * each];
  for (size_t i = 0; i < each; i++)
    if (first[i].bits_touched) return true;
  return false;
}

void heap_touch_bits(block_index index) {
  heap_block *block = &heap.blocks[index];
  if (block->bits_touched) return;
  if (!bits_page_touched(index)) AO_fetch_and_add1(&heap.bits_pages);
  block->bits_touched = 1;
}

void heap_release_bits(block_index at, size_t blocks) {
  size_t each = bits_page_blocks();
  block_index from = (block_index)((at + each - 1) / each * each);
  block_index to = (block_index)((at + blocks) / each * each);
  if (from >= to) return;
  if (!os_release(small_bits(from), bits_bytes(to - from))) return;
  for (block_index page = from; page < to; page += (block_index)each) {
    if (!bits_page_touched(page)) continue;
    AO_fetch_and_sub1(&heap.bits_pages);
    for (size_t i = 0; i < each; i++) heap.blocks[page + i].bits_touched = 0;
  }
}

// In the child of a fork: another thread may have been in the middle of giving some back.
void heap_count_bits(void) {
  size_t each = bits_page_blocks(), pages = 0, end = heap_frontier();
  for (block_index page = 0; page < end; page += (block_index)each)
    pages += bits_page_touched(page);
  AO_store(&heap.bits_pages, pages);
}

// Of huge pages, all may be in memory.
size_t heap_tables_bytes(void) {
  size_t blocks = heap_frontier();
  size_t bits = AO_load(&heap.bits_pages) * os_page_bytes(), huge = bits_bytes(heap.huge_blocks);
  return tags_bytes(blocks) + table_bytes(blocks) + (bits > huge ? bits : huge);
}

// Whoever looks without the lock may be interrupted between the two numbers for as long as it takes
// the heap to become another: that must not come to less than nothing.
uint64_t heap_inuse_bytes(void) {
  uint64_t blocks = AO_load(&heap.used_blocks) * HEAP_BLOCK_BYTES;
  uint64_t absent = AO_load(&heap.absent_pages) * HEAP_PAGE_BYTES;
  return blocks > absent ? blocks - absent : 0;
}

uint64_t heap_free_bytes(void) {
  return (AO_load(&heap.free_dirty_blocks) + AO_load(&heap.leaving_blocks)) * HEAP_BLOCK_BYTES;
}

void heap_memory(engine_memory *memory) {
  memory->used_bytes = heap_inuse_bytes() + heap_tables_bytes() + os_mapped_bytes();
  memory->free_bytes = heap_free_bytes();
}

// ---- Chains of small blocks (their class's lock held, or the world stopped) ------------------

// Whether there is a first one is asked without the lock as well: chain_may_have_one.
static void set_first(block_chain *chain, block_index first) {
  AO_int_store(&chain->first, first);
}

static void chain_push(block_chain *chain, heap_block *block) {
  block_index index = block_index_of(block);
  block->prev = 0;
  block->next = chain->first;
  if (chain->first)
    heap.blocks[chain->first].prev = index;
  else
    chain->last = index;
  set_first(chain, index);
}

static void chain_unlink(block_chain *chain, heap_block *block) {
  if (block->prev)
    heap.blocks[block->prev].next = block->next;
  else
    set_first(chain, block->next);
  if (block->next)
    heap.blocks[block->next].prev = block->prev;
  else
    chain->last = block->prev;
}

heap_block *block_pop(block_chain *chain) {
  if (!chain->first) return NULL;
  heap_block *block = &heap.blocks[chain->first];
  chain_unlink(chain, block);
  return block;
}

void block_append(block_chain *to, block_chain *from) {
  if (!from->first) return;
  heap.blocks[from->first].prev = to->last;
  if (to->last)
    heap.blocks[to->last].next = from->first;
  else
    set_first(to, from->first);
  to->last = from->last;
  from->last = 0;
  set_first(from, 0);
}

void block_file(size_list *list, heap_block *block) {
  block->filed = heap.markings;
  block->full = !block_has_room(block);
  chain_push(block->full ? &list->full : &list->partial, block);
}

void block_unfile(size_list *list, heap_block *block) {
  chain_unlink(block->full ? &list->full : &list->partial, block);
}

// ---- Fork -----------------------------------------------------------------------------------

void heap_locks_take(void) {
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++) rt_pinned_lock_take(&heap.lists[kind][i].lock);
  rt_pinned_lock_take(&heap.lock);
}

void heap_locks_give(void) {
  rt_pinned_lock_give(&heap.lock);
  for (int kind = TIDE_KINDS; kind-- > 0;)
    for (int i = TIDE_SIZE_CLASSES; i-- > 0;) rt_pinned_lock_give(&heap.lists[kind][i].lock);
}
