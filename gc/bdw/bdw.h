// SPDX-License-Identifier: MIT
// The engine on Boehm GC (libgc): what its files share. It stands where the native heap does,
// behind engine.h, in a library of its own (libtidepool-bdw); all else is the same code.
//
// libgc is used as a heap for one thread at a time. It knows no thread and no root, never collects
// by itself, and is only called under one pinned lock, so no stopped thread is ever inside it. A
// collection is ours: the runtime stops the world, and the collecting thread has libgc mark from
// what rt_roots_scan hands over.
//
//   engine_bdw.c   start, threads, fork, the table of the engine
//   bdw_objects.c  objects: alloc, free, find
//   bdw_collect.c  collections, walks, memory given back: three uses of one marking
//   bdw_bits.c     which addresses are allocated objects, which libgc does not keep
//   bdw_stats.c    numbers
//   bdw_verify.c   TIDE_DEBUG=verify=1
//
// The lock's holder may take the pinned locks that come after "threads' parts of the heap" in
// docs/internals; there are none in this engine.
#ifndef TIDEPOOL_BDW_H
#define TIDEPOOL_BDW_H

#include "engine.h"
#include "size_class.h"

#define GC_THREADS
#define GC_NO_THREAD_REDIRECTS
#include <gc.h>
#include <gc/gc_mark.h>

enum {
  BDW_BLOCK_BYTES = 4096,   // libgc's; what is larger than half of one begins a block
  BDW_SMALL_MAX = 2048,     // objects up to it share blocks
  BDW_SMALL_CLASSES = 40,   // of our classes, those up to it
  BDW_SLOTS_MAX = 32,       // that a thread has at hand, of one kind and class
  BDW_TABLE_STEP = 1 << 17, // more than the tables grow by for an object
  BDW_MIN_GROWTH = 1 << 18, // of libgc's heap: 64 blocks
  BDW_COUNTED_CLASSES = TIDE_SIZE_CLASSES + 1, // the last: what is larger
};

// ---- bdw_objects.c --------------------------------------------------------------------------

// A thread's part of the heap: free objects that are its own until the next collection. It refers
// to them from memory that is not scanned, and they are not marked, so whatever is left of them
// then is libgc's again.
typedef struct bdw_local {
  unsigned char left[TIDE_UNCOLLECTABLE][BDW_SMALL_CLASSES];
  void *slots[TIDE_UNCOLLECTABLE][BDW_SMALL_CLASSES][BDW_SLOTS_MAX];
  AO_t taken[BDW_COUNTED_CLASSES], taken_bytes; // since the start, also by threads before this one
  struct bdw_local *next_free;
  struct bdw_local *older; // of all there have ever been
} bdw_local;

// An allocated object as libgc has it. Where the alignment asked for is larger than a block, the
// object begins inside of libgc's.
typedef struct bdw_object {
  void *base, *start;
  size_t base_bytes; // from base on
  tide_kind kind;
} bdw_object;
static inline size_t bdw_usable(const bdw_object *o) {
  return o->base_bytes - (size_t)((char *)o->start - (char *)o->base);
}

extern rt_pinned_lock bdw_lock;
extern bdw_local *bdw_locals; // all; only grows

tide_status bdw_objects_init(void); // makes the kinds of libgc's objects
bool bdw_attach(rt_thread *thread);
void bdw_detach(rt_thread *thread, bool left_behind);
void *bdw_alloc(rt_thread *self, size_t size, size_t alignment, tide_kind kind);
size_t bdw_largest(void);
bool bdw_has_room(size_t bytes); // for the heap, and some for tables and the C library besides
bool bdw_find(rt_thread *self, const void *address, engine_object *object);
bool bdw_free(rt_thread *self, void *start);
bool bdw_resize(rt_thread *self, void *start, size_t size);
// Lock held, or the world stopped. The allocated object that holds the address; and the one that
// begins at, or inside of, libgc's object.
bool bdw_look_up(const void *address, bdw_object *object);
bool bdw_look_at(void *base, size_t base_bytes, bdw_object *object);
void bdw_poison(const bdw_object *object);
// World stopped: nobody has free objects at hand any more. Returns their bytes.
size_t bdw_drop_slots(void);

// ---- bdw_bits.c -----------------------------------------------------------------------------

bool bdw_bits_make_room(const void *start); // lock held; false: no memory
bool bdw_bits_get(const void *start);
void bdw_bits_set(const void *start, bool value);
// The first object that begins at a block's start in [lo, hi); NULL: none.
void *bdw_bits_first(void *lo, void *hi);
// With the world stopped: notes an object as marked; makes what is noted all that is allocated.
void bdw_bits_mark(const void *start);
void bdw_bits_keep_marked(void);
// Every allocated object in address order, until fn returns false.
void bdw_bits_each(bool (*fn)(void *start, void *arg), void *arg);
size_t bdw_bits_bytes(void); // of memory that they take

// ---- bdw_collect.c --------------------------------------------------------------------------

void bdw_collect_init(void);
void bdw_collect(rt_thread *self, const engine_calls *calls);
void bdw_walk(rt_thread *self, bool (*fn)(const tide_object *, void *), void *arg);
void bdw_release(rt_thread *self, size_t keep_bytes, bool exactly);
void bdw_finish_sweep(rt_thread *self);
void bdw_collect_after_fork(void); // in the child

// ---- bdw_stats.c ----------------------------------------------------------------------------

extern AO_t bdw_bytes; // allocated: live at the last collection, plus what threads took since

// What libgc says of its memory. Copied, lock held, after each call that may have changed it.
void bdw_memory_note(void);
void bdw_memory(engine_memory *memory);
uint64_t bdw_heap_bytes(void);   // of libgc's heap, what was given back included
uint64_t bdw_mapped_bytes(void); // all that counts towards the limits
uint64_t bdw_unmapped_bytes(void);
void bdw_memory_init(void); // nothing is allocated yet: what is in use is libgc's own and ours

typedef struct bdw_counts {
  uint64_t objects[BDW_COUNTED_CLASSES], bytes;
} bdw_counts;
void bdw_count(bdw_counts *counts, size_t bytes); // an object more
void bdw_count_taken(bdw_local *local, size_t bytes);
void bdw_count_freed(size_t bytes);            // by hand; lock held
void bdw_count_live(const bdw_counts *counts); // world stopped: all else is freed
void bdw_stats(tide_memstats *stats);

// ---- bdw_verify.c ---------------------------------------------------------------------------

void bdw_verify(void); // world stopped, all marked; aborts at a fault

#endif
