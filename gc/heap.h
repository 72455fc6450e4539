// SPDX-License-Identifier: MIT
// The native heap: its types and what its files share. Read this before heap.c, alloc.c, large.c,
// mark.c and sweep.c.
//
// One range of address space is reserved at start. It holds, one after the other, the blocks' tags,
// the table of blocks, the bits, and the blocks of 64 KiB themselves; a block's tag, entry and bits
// are found by shifting its address. Block 0 is never used: 0 means "none", and no object starts
// where the heap does, so the collector's own notes do not look like references.
//
//   address - base < extent           "is this word a heap address"
//   (address - base) >> 16            its block
//   tag of the block                  its class and kind, in one byte
//   offset in block x reciprocal      its slot
//   bits of the slot                  allocated? marked?
//
// A *small* block is cut into slots of one size class and one kind. A *large* object has one or
// more blocks of its own and counts as one slot. Free blocks form runs.
//
// Life of a small block: a run of one free block is taken (heap_take_blocks); a thread owns it and
// allocates in it, run of slots by run of slots, until it is full; then it is on its class's full
// list. After the next marking every block is on the unswept list, and whoever needs a block of the
// class sweeps it: what is allocated becomes what is marked. A block with room is owned again, one
// without goes to the full list, an empty one back to the free runs.
//
// Locks, all pinned, outermost first: size_list.lock > heap_lock. A block's state, class and kind
// change under heap_lock; its allocated bits by atomic operations, because its owner claims slots
// while another thread may free one; its marked bits only while the world is stopped, or by the
// sweep under the class's lock.
#ifndef TIDEPOOL_HEAP_H
#define TIDEPOOL_HEAP_H

#include "engine.h"
#include "rt.h"
#include "size_class.h"

_Static_assert(sizeof(void *) == 8 && sizeof(AO_t) == 8, "Tidepool needs a 64-bit machine");

#define HEAP_BLOCK_SHIFT 16
#define HEAP_BLOCK_BYTES ((size_t)1 << HEAP_BLOCK_SHIFT)
#define HEAP_PAGE_BYTES  ((size_t)4096) // large objects are rounded up to these
#define HEAP_HUGE_BLOCKS 32             // in a huge page of the system; block 0 begins one
#define HEAP_HUGE_BYTES  (HEAP_HUGE_BLOCKS * HEAP_BLOCK_BYTES)
#define HEAP_SLOTS_MAX   (HEAP_BLOCK_BYTES / 16)
#define HEAP_BIT_WORDS   (2 * HEAP_SLOTS_MAX / 64) // of a block: allocated, marked, in turn

typedef uint32_t block_index; // 0: none

typedef enum block_state {
  BLOCK_UNUSED, // past the frontier
  BLOCK_FREE,
  BLOCK_TAKEN, // taken out of the free runs, not yet in use; only inside a pinned section
  BLOCK_SMALL,
  BLOCK_LARGE,      // the first block of a large object
  BLOCK_LARGE_REST, // the others
} block_state;

// What marking needs to know of a block, in a byte: its kind x 64 + its size class, or one of these
// in place of the class. The bytes of a heap of 1 GiB fill half of the first level cache; entries
// of the table would not fit in the second.
enum { TAG_NONE = 63, TAG_LARGE = 62, TAG_CLASS = 63, TAG_KIND_SHIFT = 6 };
_Static_assert(TIDE_SIZE_CLASSES <= TAG_LARGE && TIDE_KINDS <= 4, "a tag is a byte");

// How a block is cut into slots of a size class.
typedef struct heap_shape {
  uint32_t bytes;
  uint32_t slots;      // that fit
  uint32_t reciprocal; // ceil(2^32 / bytes)
} __attribute__((aligned(16))) heap_shape;
extern __attribute__((visibility("hidden")))
const heap_shape heap_shapes[TAG_CLASS + 1]; // all zeros behind the classes

struct heap_local;

// One cache line.
typedef struct heap_block {
  uint8_t state; // block_state
  uint8_t kind;  // tide_kind
  uint8_t size_class;
  uint8_t dirty;        // free: may hold other than zeros
  uint8_t zeroed;       // small: slots never used so far are zeros
  uint8_t full;         // small, filed: on the full list, not the partial one
  uint8_t list;         // large: which of heap.large it is on
  uint8_t absent;       // small: pages given back to the system and not used since
  size_t object_bytes;  // small: of a slot; large: usable
  uint32_t slots;       // small: that fit; large: 1; else 0
  block_index head;     // large rest: the object's first block
  block_index next;     // in its list
  block_index prev;     //
  uint32_t run;         // free: blocks in the run, at its first and last; large: its blocks
  uint32_t swept;       // the marking after which it was last swept; see block_unswept
  uint8_t bits_touched; // its bits have been written to since they were last given back
  union {
    struct {                    // small
      struct heap_local *owner; // the thread's that allocates in it
      uint32_t filed;           // the marking after which it was put on the full or partial list
      uint32_t lowest_freed;    // owned: slots behind the owner's run that were freed by hand
    };
    AO_t large_bits[2]; // large: allocated, marked
  };
} __attribute__((aligned(64))) heap_block;
_Static_assert(sizeof(heap_block) <= 64, "one cache line");

typedef struct block_chain {
  block_index first, last;
} block_chain;

// Of one size class and kind. A block of theirs is owned by a thread or on one of these lists.
typedef struct size_list {
  rt_pinned_lock lock;
  block_chain unswept; // those not filed since the last marking
  block_chain partial; // swept, with room
  block_chain full;    // swept or just filled, without
} __attribute__((aligned(64))) size_list;

// Large objects: two lists that change roles at each marking, as all are swept by then.
enum { LARGE_EVEN, LARGE_ODD, LARGE_UNCOLLECTABLE, LARGE_LISTS };
enum { HEAP_BINS = 32 }; // free runs by the logarithm of their length

typedef struct heap {
  uintptr_t base; // of block 0
  AO_t extent;    // bytes from base to the frontier: blocks that have ever been used
  uint8_t *tags;  // one for each block, as for the two that follow
  heap_block *blocks;
  AO_t *bits; // HEAP_BIT_WORDS

  size_t reserved_blocks;
  size_t committed_blocks; // from 0; extent <= committed <= reserved
  size_t huge_blocks;      // from 0: huge pages were asked for; 0: for none
  void *reservation;
  size_t reservation_bytes;

  size_list lists[TIDE_KINDS][TIDE_SIZE_CLASSES];
  rt_pinned_lock lock;         // "heap_lock": what follows, and the blocks' states
  block_index bins[HEAP_BINS]; // doubly linked
  block_index large[LARGE_LISTS];
  size_t free_blocks;
  // From here on read without a lock, for statistics and the limits; those up to large_freed_bytes
  // are changed under heap_lock, the others by atomic additions.
  AO_t used_blocks; // that hold something, also ones taken but not yet in use
  AO_t free_dirty_blocks;
  AO_t leaving_blocks; // being given back to the system; neither used nor free
  AO_t large_mallocs, large_frees, large_total_bytes, large_freed_bytes;
  AO_t freed_slots[TIDE_SIZE_CLASSES]; // since the start
  AO_t bits_pages;                     // of the system, that small blocks' bits have touched
  AO_t absent_pages;                   // of all blocks

  uint32_t markings; // so far; changed while the world is stopped
  AO_t bytes;        // allocated: live at the last cycle, plus since, less what was freed by hand;
                     // threads are up to COUNT_BYTES behind
} heap_state;

extern __attribute__((visibility("hidden"))) heap_state heap;

// A thread's part of the heap. Who reads statistics goes through the parts of all threads, which
// are mostly in no cache of its own: what it does not need lies apart, and what changes seldom too.
typedef struct heap_local {
  tide_cache cache; // its runs
  // Slots that have been allocated in the runs before the present one, also those of threads before
  // this; times HEAP_TALLY, and below that a number that changes with the run, and the TALLY bits.
  AO_t tally[TIDE_KINDS][TIDE_SIZE_CLASSES] __attribute__((aligned(64)));
  AO_t had_runs[TIDE_KINDS] __attribute__((aligned(64))); // a bit for each class that ever had one
  AO_t in_use;                                            // 1 while a thread has it; a hint
  struct heap_local *older;                               // of all there have ever been
  AO_t changes __attribute__((aligned(64)));              // odd while a run is being set; else even
  uint8_t counted[TIDE_KINDS][TIDE_SIZE_CLASSES]; // the run was claimed since the last marking
  size_t uncounted_bytes;                         // claimed, and not yet in heap.bytes; modulo 2^64
  struct heap_local *next_free;
} heap_local;
_Static_assert(TIDE_SIZE_CLASSES <= 64, "a bit for each class");
enum {
  HEAP_TALLY = 256,
  TALLY_CHANGING = 1, // the run is being set
  TALLY_BLOCK = 2,    // it has a block, and more may have been allocated in it
  TALLY_NUMBER = 4,   // one step of the number
};

static inline heap_local *heap_local_of(const rt_thread *thread) {
  return thread->client;
}

// ---- Finding --------------------------------------------------------------------------------

static inline uintptr_t block_address(block_index index) {
  return heap.base + ((uintptr_t)index << HEAP_BLOCK_SHIFT);
}
static inline block_index block_index_of(const heap_block *block) {
  return (block_index)(block - heap.blocks);
}
// The block is going to be allocated in, or to be free: it counts as a whole again.
static inline void block_count_present(heap_block *block) {
  if (RT_LIKELY(!block->absent)) return;
  AO_fetch_and_add(&heap.absent_pages, (AO_t)0 - block->absent);
  block->absent = 0;
}
// The bits of a small block. The slot's pair of words, allocated then marked, is bits + 2 * (slot /
// 64).
static inline AO_t *small_bits(block_index index) {
  return heap.bits + (size_t)index * HEAP_BIT_WORDS;
}
// A large object has its one pair in its block's entry: else each would cost a page of bits.
static inline AO_t *block_bits(block_index index) {
  heap_block *block = &heap.blocks[index];
  return block->state == BLOCK_LARGE ? block->large_bits : small_bits(index);
}
// A block that is taken gets its state from who took it, without the heap's lock, while who takes
// or gives a neighbour looks, with it, whether that one is free.
static inline bool block_is(const heap_block *block, block_state state) {
  return AO_char_load(&block->state) == state;
}
static inline void block_set_state(heap_block *block, block_state state) {
  AO_char_store(&block->state, (unsigned char)state);
}
static inline bool block_unswept(const heap_block *block) {
  return block->swept != heap.markings;
}
static inline int large_swept_list(void) {
  return heap.markings & 1 ? LARGE_ODD : LARGE_EVEN;
}
static inline int large_unswept_list(void) {
  return heap.markings & 1 ? LARGE_EVEN : LARGE_ODD;
}
// The first block that has never been used.
static inline block_index heap_frontier(void) {
  return (block_index)(AO_load(&heap.extent) >> HEAP_BLOCK_SHIFT);
}
static inline bool heap_holds(uintptr_t word) {
  return word - heap.base < AO_load(&heap.extent);
}

static inline void block_set_tag(block_index index, tide_kind kind, unsigned of_class) {
  heap.tags[index] = (uint8_t)((unsigned)kind << TAG_KIND_SHIFT | of_class);
}

// What a word refers to, as far as marking needs to know: a slot, not necessarily an object. Its
// allocated bit is bit % 64 of bits[0], its marked bit that of bits[1].
typedef struct heap_slot {
  uintptr_t start;
  AO_t *bits;
  uint32_t bit;
  uint32_t tag; // of its block
} heap_slot;

// In the block of a large object, or in none: then false.
bool heap_find_large(uintptr_t word, heap_slot *found);

// The slot of a word which passes heap_holds; false when it is in none. It may be one past the last
// slot of its block, whose allocated bit is clear.
static inline bool heap_find_slot(uintptr_t word, heap_slot *found) {
  uintptr_t offset = word - heap.base;
  block_index index = (block_index)(offset >> HEAP_BLOCK_SHIFT);
  uint32_t tag = heap.tags[index];
  if (RT_UNLIKELY((tag & TAG_CLASS) >= TAG_LARGE)) return heap_find_large(word, found);
  const heap_shape *shape = &heap_shapes[tag & TAG_CLASS];
  uint32_t within = (uint32_t)offset & (HEAP_BLOCK_BYTES - 1);
  uint32_t slot = (uint32_t)(((uint64_t)within * shape->reciprocal) >> 32);
  found->start = word - within + (uintptr_t)slot * shape->bytes;
  found->bits = small_bits(index) + 2 * (slot / 64);
  found->bit = slot;
  found->tag = tag;
  return true;
}

// The same with all that is known of it.
typedef struct heap_ref {
  heap_block *block;
  AO_t *bits; // the slot's pair of words
  AO_t mask;  // the slot's bit in both
  uintptr_t start;
  size_t bytes;
  tide_kind kind;
} heap_ref;

// False also behind the last slot.
static inline bool heap_find(uintptr_t word, heap_ref *ref) {
  heap_slot slot;
  if (!heap_find_slot(word, &slot)) return false;
  ref->block = &heap.blocks[(slot.start - heap.base) >> HEAP_BLOCK_SHIFT];
  ref->bits = slot.bits;
  ref->mask = (AO_t)1 << (slot.bit % 64);
  ref->start = slot.start;
  ref->bytes = ref->block->object_bytes;
  ref->kind = (tide_kind)ref->block->kind;
  return slot.bit < ref->block->slots;
}

static inline bool heap_ref_allocated(const heap_ref *ref) {
  return ref->bits[0] & ref->mask;
}
static inline bool heap_ref_marked(const heap_ref *ref) {
  return ref->bits[1] & ref->mask;
}

// ---- heap.c: blocks -------------------------------------------------------------------------

tide_status heap_init(void);
// A run of `blocks` blocks, the first at a multiple of `alignment` blocks; 0: no memory. *zeroed
// says whether all of it is known to be zeros. heap_lock is held. With grow false only free runs
// are used, not new ones from past the frontier.
block_index heap_take_blocks(size_t blocks, size_t alignment, bool grow, bool *zeroed);
void heap_give_blocks(block_index first, size_t blocks, bool dirty); // heap_lock held
// The block, just taken, becomes one of slots: its bits will be written to. heap_lock held.
void heap_touch_bits(block_index index);
// A small block is going to be allocated in: its pages that were given back count again. False: the
// hard limit does not allow it. Its class's lock is held, or nobody else has the block.
bool heap_fill_block(heap_block *block);
void heap_count_bits(void); // after a fork
// Gives the bits of free blocks back to the system, where they fill pages. Nobody else has the
// blocks.
void heap_release_bits(block_index at, size_t blocks);
void heap_memory(engine_memory *memory); // no lock, as the next
uint64_t heap_inuse_bytes(void);         // of blocks that hold something
uint64_t heap_free_bytes(void);          // of free blocks that are not given back
size_t heap_tables_bytes(void);          // as far as they have been touched
// Takes the `more` blocks that follow `after`, if they are a free run or the frontier.
bool heap_extend_blocks(block_index after, size_t more, bool *zeroed); // heap_lock held
// For release.c, with heap_lock held. The last block of the free run that holds the free block
// `index`, which is quick when `hint` is it; and takes `blocks` blocks from `at` on out of the run
// whose last block is `last`.
block_index heap_run_last(block_index index, block_index hint);
void heap_take_part(block_index last, block_index at, size_t blocks);
void heap_give_part(block_index at, size_t blocks); // puts it back
// A hint, without a lock.
static inline bool chain_may_have_one(const block_chain *chain) {
  return AO_int_load(&chain->first);
}
heap_block *block_pop(block_chain *chain);
void block_append(block_chain *to, block_chain *from); // empties from
// Puts a swept block without an owner on the partial or the full list, or takes it off.
void block_file(size_list *list, heap_block *block);
void block_unfile(size_list *list, heap_block *block);
void block_file_or_free(size_list *list, heap_block *block); // also back to the free runs
void heap_locks_take(void);                                  // all of them, for fork
void heap_locks_give(void);

// ---- huge.c, release.c: the heap's memory and the system ------------------------------------

enum { HUGE_FROM_BLOCKS = 512 }; // 32 MiB: smaller heaps have small pages
// Asks for huge pages where that has become worth it, or the heap has grown. heap_lock held.
void huge_consider(void);
void huge_end(void); // asks for small ones again. heap_lock held.
// Gives the memory of free blocks back to the system but for keep_bytes of it; with 0 also that of
// free pages inside blocks. Where not exactly, more may stay for the sake of huge pages. Not
// pinned.
void heap_release(rt_thread *self, size_t keep_bytes, bool exactly);

// ---- small.c: slots -------------------------------------------------------------------------

// A slot, zeroed unless its kind is TIDE_LEAF; NULL: no memory. The caller is not pinned.
void *small_alloc(rt_thread *self, unsigned size_class, tide_kind kind);
void small_free(const heap_ref *ref); // pinned
bool small_attach(rt_thread *thread);
void small_detach(rt_thread *thread, bool left_behind);
void small_allow(rt_thread *thread, bool allowed);
void small_lock_take(void); // of the threads' records, for fork; outside the heap's locks
void small_lock_give(void);
void small_after_fork(void);
bool small_handed_out(const heap_ref *ref); // not in the unused rest of its owner's run
// With the world stopped, before and after marking: takes the unused rest of every thread's runs
// out of the allocated bits, so that nothing marks it, and puts it back. With sweep, after a
// collection's marking: the blocks that threads own are swept in between, since a later sweep would
// take the rest of the run for garbage; and the rest no longer counts as allocated since the last
// marking.
void small_hide_runs(void);
void small_show_runs(bool sweep);
// Adds up what threads have allocated since the start, by class. Takes no lock and waits for
// nobody: what other threads do meanwhile may be in it or not.
void small_add_allocated(uint64_t allocated[TIDE_SIZE_CLASSES]);

// ---- large.c --------------------------------------------------------------------------------

void *large_alloc(rt_thread *self, size_t size, size_t alignment, tide_kind kind);
void large_free(const heap_ref *ref);         // pinned
void large_link(heap_block *block, int list); // heap_lock held, as for the next two
void large_unlink(heap_block *block);
void large_release(heap_block *block); // its blocks become free
// Changes an object's size in place; false: it cannot be done.
bool large_resize(rt_thread *self, const heap_ref *ref, size_t size);

// ---- sweep.c --------------------------------------------------------------------------------

enum {
  SWEEP_STEP = 64
}; // blocks that one allocation sweeps at the most before it takes new memory

// Sweeping on the way of an allocation, as an event.
typedef struct sweep_span {
  uint64_t began_ns; // 0: nobody listens
  unsigned blocks;   // that this thread had swept by then
} sweep_span;
sweep_span sweep_begin(void);
void sweep_end(sweep_span span);

void sweep_block(size_list *list, heap_block *block); // list's lock held; or the world stopped
bool block_has_room(const heap_block *block);
bool block_is_empty(const heap_block *block);
// Sweeps up to `steps` large objects (heap_lock held) and returns whether any are left.
bool sweep_large(unsigned steps);
// Sweeps up to `steps` blocks of any class to find empty ones; false: none are left to sweep.
// Pinned.
bool sweep_some(unsigned steps);
void sweep_finish(rt_thread *self); // everything; not pinned
void sweep_prepare(void);           // world stopped, everything marked: all blocks become unswept

// ---- mark.c ---------------------------------------------------------------------------------

typedef struct mark_result {
  uint64_t live_bytes, live_objects, stack_bytes, global_bytes;
  uint64_t markers;   // that took part
  uint64_t others_ns; // that all but the first were busy
} mark_result;

tide_status mark_init(void);
void markers_prepare(void);         // before the world is stopped: more markers for a larger heap
void markers_leave(void);           // the last thread leaves the heap
void markers_after_fork(void);      // in the child
void mark_all(mark_result *result); // world stopped, inside rt_with_registers_on_stack
uint64_t mark_stack_mapped_bytes(void);

// ---- verify.c -------------------------------------------------------------------------------

void verify_heap(const mark_result *result); // world stopped, after mark_all; aborts at a fault

#endif
