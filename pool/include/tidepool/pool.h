// SPDX-License-Identifier: MIT
// Object pools that the collector empties: an idle item survives one collection and is lost at the
// second.
//
// The rule is nobody's timer. A pool registers a hook at TIDE_STW_START (gc.h); each time the world
// stops there, the pool drops its victim cache and its primary cache becomes the victim. How long
// is in milliseconds is decided by how often the program collects. It costs a few stores for each
// pool, whatever the pool holds.
#ifndef TIDEPOOL_POOL_H
#define TIDEPOOL_POOL_H

#include <stdint.h>
#include <tidepool/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tide_pool tide_pool;

// A zeroed struct means the defaults.
typedef struct tide_pool_options {
  const char *name;           // for reports; copied; NULL: "pool"
  void *(*create)(void *arg); // makes an item when the pool has none; NULL: tide_pool_get returns
                              // NULL on a miss
  void *arg;                  // passed to create; a root as long as the pool lives
} tide_pool_options;

// Counts since the pool was created or last reset. Exact: taken together while no other thread
// uses the pool, gets = hits_private + hits_shared + hits_stolen + hits_victim + misses.
typedef struct tide_pool_stats {
  uint64_t gets;
  uint64_t hits_private; // from the own processor's private slot
  uint64_t hits_shared;  // from the own processor's shared queue
  uint64_t hits_stolen;  // from another processor's shared queue
  uint64_t hits_victim;  // from the victim cache, wherever in it
  uint64_t misses;       // nothing found; create was called if there is one
  uint64_t puts;         // items taken in; NULL is not counted
  uint64_t rotations;    // collections that moved the primary cache to the victim
} tide_pool_stats;

// A new pool, empty. options may be NULL: no name, no create. Returns NULL when there is no memory.
// Items are conservative references: a heap object in the pool stays alive as long as the pool
// holds it. May collect.
TIDE_API tide_pool *tide_pool_create(const tide_pool_options *options);

// Forgets every item and frees the pool. NULL is ignored. No other thread may be using the pool.
TIDE_API void tide_pool_destroy(tide_pool *pool);

// An item out of the pool, chosen by the pool, or what create returns, or NULL. The caller owns it.
// create runs in the caller's thread, outside any lock, and may use the heap and the pool.
// Does not collect by itself.
TIDE_API void *tide_pool_get(tide_pool *pool);

// Hands item over to the pool. The caller must not use it again. NULL is ignored. May collect: the
// first put after a collection, and one that makes the queue grow, allocate on the heap. When there
// is no memory for that, the item is dropped, and the put is not counted.
TIDE_API void tide_pool_put(tide_pool *pool, void *item);

TIDE_API void tide_pool_stats_read(tide_pool *pool, tide_pool_stats *stats);
TIDE_API void tide_pool_stats_reset(tide_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
