// SPDX-License-Identifier: MIT
// `hooks`: what pools add to the pause of a collection.
//
// A number of pools, with a number of items spread over them. Before each collection every item is
// put once more: so each pool has a primary cache that becomes its victim, and a victim that is
// forgotten. The pools take any address for an item; one stands for all of them here, so that
// there are no objects to mark but the pools' own.
#include "peer.h"

#include <stdlib.h>

enum { COLLECTIONS = 20, FIRST = 2, EACH_LEAST = 10 };

static double hooks_us[COLLECTIONS], pauses_us[COLLECTIONS];
static int seen; // collections, the first ones not counted

static void record(uint64_t pause_ns, uint64_t hooks_ns) {
  int place = seen++ - FIRST;
  if (place < 0 || place >= COLLECTIONS) return;
  hooks_us[place] = (double)hooks_ns * 1e-3;
  pauses_us[place] = (double)pause_ns * 1e-3;
}

static void fill(peer_pool *pool, uint64_t items) {
  static uint64_t item;
  for (uint64_t i = 0; i < items; i++) peer_pool_put(pool, &item);
}

void hooks_run(void) {
  size_t count = parameter("pools");
  uint64_t each = parameter("items") / count;
  if (each < EACH_LEAST) each = EACH_LEAST;
  peer_pool **pools = malloc(count * sizeof *pools);
  if (!pools) fail("out of memory");
  for (size_t i = 0; i < count; i++) pools[i] = peer_pool_create(NULL);
  peer_automatic(false);
  peer_watch_hooks(record);
  for (int collection = 0; collection < FIRST + COLLECTIONS; collection++) {
    for (size_t i = 0; i < count; i++) fill(pools[i], each);
    peer_collect();
  }
  if (seen != FIRST + COLLECTIONS) fail("%d collections in place of ours", seen);
  sort_values(hooks_us, COLLECTIONS);
  sort_values(pauses_us, COLLECTIONS);
  report("hooks_us", percentile(hooks_us, COLLECTIONS, 0.5));
  report("hooks_max_us", percentile(hooks_us, COLLECTIONS, 1));
  report("pause_us", percentile(pauses_us, COLLECTIONS, 0.5));
  report("pause_max_us", percentile(pauses_us, COLLECTIONS, 1));
  report("items_each", (double)each);
  report("peak_mib", peak_resident_bytes() / MIB);
}
