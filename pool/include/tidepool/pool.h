// SPDX-License-Identifier: MIT
// Object pools that the collector empties: an idle item survives one collection and is lost at the
// second.
//
// The rule is nobody's timer. A hook at TIDE_STW_START (gc.h), like anybody's, has each pool drop
// its victim cache when the world stops there, and its primary cache becomes the victim. How long
// that is in milliseconds is decided by how often the program collects. It costs a few stores for
// each pool that is in use, whatever the pool holds.
#ifndef TIDEPOOL_POOL_H
#define TIDEPOOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tidepool/cpu_slot.h>
#include <tidepool/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tide_pool tide_pool;

// Inline where that can be done; functions of the library all the same, for who looks them up.
#if TIDE_CPU_SLOTS && !defined TIDE_POOL_CALLS
#define TIDE_POOL_INLINE static inline
#else
#define TIDE_POOL_INLINE TIDE_API
#endif

#define TIDE_SURVIVE_NONE (-1)
#define TIDE_SURVIVE_MAX  255

// A zeroed struct means the defaults, so designated initializers name only what differs.
//
// An item is any pointer but NULL: an object of the heap, malloc'd memory, or what stands for a
// descriptor. The functions are called in the thread that gets or puts, `drop` also in one that has
// collected; outside any lock, and may use the heap and the pool. `create` may be left by longjmp
// or an exception; the others must return. arg is passed to all of them.
typedef struct tide_pool_options {
  const char *name;           // for reports; copied; NULL: "pool"
  void *(*create)(void *arg); // makes an item when the pool has none; NULL, or if it returns
                              // NULL: so does tide_pool_get
  void (*reset)(void *item, void *arg); // on every put, before anything else
  // Once for each item that the pool lets go, whatever the cause; for items that a collection has
  // it let go, after the world runs again. NULL: they are forgotten, and if they are objects of the
  // heap that nobody else refers to, freed by that very collection.
  void (*drop)(void *item, void *arg);
  // Bytes of an item, the same as long as the pool has it; NULL: tide_size, which is 0 for what is
  // no object of the heap. Asked for if one of the next two is set.
  // With TIDE_DEBUG=poolcheck=1 the pool overwrites so many bytes from the item's address on, of
  // what is no object of the heap, and puts them back before get.
  size_t (*size)(const void *item, void *arg);
  uint64_t max_item_bytes; // a larger item is not taken in, but dropped; 0: any size
  uint64_t max_bytes;      // in all; what would be more is dropped; 0: any number
  uint64_t max_items;      // in all; 0: any number. These three cost a get and a put some 20 ns
  // Collections that an idle item outlives: 0 means 1 (lost at the second), N up to
  // TIDE_SURVIVE_MAX, or TIDE_SURVIVE_NONE (lost at the first).
  int survive;
  // Keep items for at least this long as well, in nanoseconds, however many collections there are.
  // They may stay for a quarter longer. Under a memory limit the limit comes first: see below.
  uint64_t min_idle_ns;
  // Only what `create` has made is ever put, and is still where it was made. Without this, to put
  // what one has from elsewhere is no mistake; with it TIDE_DEBUG=poolcheck=1 stops the program
  // there. Has no effect but that.
  bool created_only;
  void *arg; // a root as long as the pool lives
} tide_pool_options;

// A pool and the memory limit. A collection that starts because memory has reached the soft limit
// treats every pool as if survive were 1 at the most and min_idle_ns 0; while the limiter holds
// collections back, each collection empties all pools. So what a pool keeps cannot be what keeps a
// program at its limit.

#define TIDE_POOL_GAPS 16

// Counts since the pool was created or last reset. Exact: taken together while no other thread
// uses the pool, gets = hits_private + hits_shared + hits_stolen + hits_victim + misses, and
// puts = hits + items + dropped_idle; after a reset, puts and the items that were there by then.
typedef struct tide_pool_stats {
  uint64_t gets;
  uint64_t hits_private; // from the own processor's private slot
  uint64_t hits_shared;  // from the own processor's shared queue
  uint64_t hits_stolen;  // from another processor's shared queue
  uint64_t hits_victim;  // from a victim cache, wherever in it
  uint64_t misses;       // nothing found; create was called if there is one
  uint64_t created;      // items that create made
  uint64_t puts;         // items taken in; NULL is not counted
  uint64_t rotations;    // collections

  // Items that the pool has let go, by cause; the last four never got in.
  uint64_t dropped_idle;   // by collections, or because the number of processors grew
  uint64_t dropped_large;  // above max_item_bytes
  uint64_t dropped_full;   // above max_bytes or max_items
  uint64_t dropped_memory; // no memory for the queue
  uint64_t dropped_chaos;  // TIDE_DEBUG=poolchaos

  // Not since the reset but now: what is in the primary and in the victim caches. Bytes only where
  // max_item_bytes, max_bytes or max_items is set, or size.
  uint64_t items_primary, items_victim;
  uint64_t bytes_primary, bytes_victim;

  // Gets that did not find their item in the primary cache, by how many collections there had been
  // since the pool was last used: [1] one, ..., the last: that many or more. [0]: used in this same
  // period, but there were not enough items. Misses before the first put are not among them.
  uint64_t gaps[TIDE_POOL_GAPS];
  // Periods between two collections in which something was put, and how many collections there
  // were from one such period to the next, added up: use_gap_sum / (uses - 1) is the mean.
  uint64_t uses, use_gap_sum;
  // Of the same numbers of collections: the squares added up, and the largest; and the nanoseconds
  // from each such period's first put to the next one's, added up.
  uint64_t use_gap_squares, use_gap_most, use_gap_ns;
  // Misses that there would not have been if collections took nothing from the pool, by how many
  // collections there were between its last two uses, as in gaps.
  uint64_t forgotten[TIDE_POOL_GAPS];
  uint64_t needed_most;   // gets between two collections that the primary did not answer, at most
  uint64_t created_bytes; // of what create made, as tide_size has them
} tide_pool_stats;

// A new pool, empty. options may be NULL: the defaults. Returns NULL when there is no memory, or
// TIDE_ERR_ARGUMENT if survive is out of range. Items are conservative references: a heap object in
// the pool stays alive as long as the pool holds it. May collect.
TIDE_API tide_pool *tide_pool_create(const tide_pool_options *options);

// Drops every item and frees the pool. NULL is ignored. No other thread may be using the pool; not
// from one of its own functions: from its `drop` after a collection it is refused and reported. The
// thread is not cancelled in it.
TIDE_API void tide_pool_destroy(tide_pool *pool);

// An item out of the pool, chosen by the pool, or what create returns, or NULL. The caller owns it.
// Does not collect by itself.
TIDE_POOL_INLINE void *tide_pool_get(tide_pool *pool);

// Hands item over to the pool. The caller must not use it again. NULL is ignored. May collect: the
// first put after a collection, and one that makes the queue grow, allocate on the heap. When there
// is no memory for that, the item is dropped.
TIDE_POOL_INLINE void tide_pool_put(tide_pool *pool, void *item);

TIDE_API void tide_pool_stats_read(tide_pool *pool, tide_pool_stats *stats);
TIDE_API void tide_pool_stats_reset(tide_pool *pool);

// ---- Reports --------------------------------------------------------------------------------

// What is wrong with the pools of the process, and what would help, in words and numbers; those
// that collections cost most come first. The second writes a JSON object a line for each pool
// instead. Both look at a moment of each pool, and write when they hold nothing.
TIDE_API void tide_pool_report(FILE *out);
TIDE_API void tide_pool_report_json(FILE *out);

// ---- Free lists -----------------------------------------------------------------------------
//
// A pool forgets, by collections. A free list does not: what is put in stays until it is got, or
// until the list is destroyed. So it has a bound, which cannot be left out. It is for what must
// outlive collections: connections, large buffers, what is slow to make and needed now and then.
//
// All threads share one list, and the last put comes first, for it is the warmest. Callbacks run
// outside any lock and may use the heap and the list. Nothing is allocated once the list is made.

typedef struct tide_freelist tide_freelist;

// A zeroed struct means the defaults. Items, and whatever has the name of a pool's option, mean
// what they mean there.
typedef struct tide_freelist_options {
  const char *name;           // in the statistics; copied; NULL: "freelist"
  void *(*create)(void *arg); // makes an item when the list has none; NULL, or if it returns
                              // NULL: so does tide_freelist_get
  void (*reset)(void *item, void *arg); // on every put, before anything else
  // Once for each item that the list does not take in, and for each that is in it when it is
  // destroyed. NULL: they are left to the collector.
  void (*drop)(void *item, void *arg);
  // Bytes of an item, asked for on each put if this or one of the next two is set. NULL: tide_size,
  // which is 0 for what is no object of the heap.
  size_t (*size)(const void *item, void *arg);
  uint64_t max_item_bytes; // a larger item is not taken in, but dropped; 0: any size
  uint64_t max_bytes;      // in all; what would be more is dropped; 0: any number
  void *arg;               // a root as long as the list lives
} tide_freelist_options;

// Counts since the list was made or last reset, and what is in it now. Exact, taken while no other
// thread uses the list: gets = hits + misses.
typedef struct tide_freelist_stats {
  const char *name; // the list's own copy
  uint64_t gets;
  uint64_t hits;
  uint64_t misses;        // nothing there; create was called if there is one
  uint64_t created;       // items that create made
  uint64_t puts;          // items taken in; the next two are not
  uint64_t dropped_full;  // above max_items or max_bytes
  uint64_t dropped_large; // above max_item_bytes
  uint64_t items;         // now
  uint64_t bytes;         // now; where max_item_bytes, max_bytes or size is set, else 0
} tide_freelist_stats;

// A new list, empty, with room for max_items, of 32 bytes each, for all its life. options may be
// NULL: the defaults. Returns NULL when there is no memory, or TIDE_ERR_ARGUMENT if max_items is 0
// or above UINT32_MAX. A heap object in the list stays alive as long as it is in it. May collect.
TIDE_API tide_freelist *tide_freelist_create(size_t max_items,
                                             const tide_freelist_options *options);

// Drops every item and frees the list. NULL is ignored. No other thread may be using the list; not
// from one of its own functions. The thread is not cancelled in it.
TIDE_API void tide_freelist_destroy(tide_freelist *list);

// The item that was put last, or what create returns, or NULL. The caller owns it. Does not collect
// by itself.
TIDE_API void *tide_freelist_get(tide_freelist *list);

// Hands item over to the list, which drops it if it does not fit. The caller must not use it again.
// NULL is ignored. Does not collect by itself.
TIDE_API void tide_freelist_put(tide_freelist *list, void *item);

// They look at each of max_items places.
TIDE_API void tide_freelist_stats_read(tide_freelist *list, tide_freelist_stats *stats);
TIDE_API void tide_freelist_stats_reset(tide_freelist *list);

// ---- Inline get and put ---------------------------------------------------------------------
//
// The names below are for the inline functions only.

// What a pool begins with.
typedef struct tide_pool_head {
  void *primary; // where the slots are; see cpu_slot.h
  void *tallies;
  void (*reset)(void *item, void *arg);
} tide_pool_head;

TIDE_API void *tide_pool_get_slow(tide_pool *pool);
TIDE_API void tide_pool_put_slow(tide_pool *pool, void *item);

#if TIDE_CPU_SLOTS && !defined TIDE_POOL_CALLS
static inline void *tide_pool_get(tide_pool *pool) {
  void *item = tide_cpu_take(pool);
  return __builtin_expect(item != NULL, 1) ? item : tide_pool_get_slow(pool);
}

static inline void tide_pool_put(tide_pool *pool, void *item) {
  const tide_pool_head *head = (const tide_pool_head *)(const void *)pool;
  if (__builtin_expect(!item || head->reset || !tide_cpu_put(pool, item), 0))
    tide_pool_put_slow(pool, item);
}
#endif

#ifdef __cplusplus
}
#endif
#endif
