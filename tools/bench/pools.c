// SPDX-License-Identifier: MIT
// `pools`: making many pools, using each once and dropping it.
//
// Each thread has some pools at a time; a new one takes the place of the oldest. One item is put
// and taken out, so that the pool has all that a pool in use has. What is left of them afterwards
// is looked at when a few collections have had their turn.
#include "peer.h"

#include <stdlib.h>

enum { POOLS_AT_A_TIME = 64, COLLECTIONS_BEHIND = 6 };

typedef struct member {
  pthread_t thread;
  uint64_t ready_ns; // when it came to the barrier
} member;

static uint64_t count_each;
static pthread_barrier_t begin;

static void *make_pools(void *arg) {
  static uint64_t item; // a pool takes any address
  member *self = arg;
  peer_pool *pools[POOLS_AT_A_TIME] = {NULL};
  self->ready_ns = now_ns();
  pthread_barrier_wait(&begin);
  for (uint64_t i = 0; i < count_each; i++) {
    peer_pool **place = &pools[i % POOLS_AT_A_TIME];
    peer_pool_destroy(*place);
    *place = peer_pool_create(NULL);
    peer_pool_put(*place, &item);
    escape(peer_pool_get(*place));
  }
  for (int i = 0; i < POOLS_AT_A_TIME; i++) peer_pool_destroy(pools[i]);
  return NULL;
}

void pools_run(void) {
  unsigned threads = (unsigned)parameter("threads");
  count_each = parameter("pools") / threads;
  if (count_each == 0) count_each = 1;
  member *team = calloc(threads, sizeof *team);
  uint64_t start_ns = 0;
  double before_bytes = resident_bytes();
  if (!team || pthread_barrier_init(&begin, NULL, threads) != 0) fail("out of memory");
  for (unsigned i = 0; i < threads; i++)
    if (peer_thread_start(&team[i].thread, make_pools, &team[i]) != 0)
      fail("no thread can be started");
  for (unsigned i = 0; i < threads; i++) {
    peer_thread_join(team[i].thread);
    if (team[i].ready_ns > start_ns) start_ns = team[i].ready_ns;
  }
  report("ns_per_pool", seconds_since(start_ns) * 1e9 / ((double)count_each * threads));
  free(team);
  report("collections", peer_collections());
  for (int i = 0; i < COLLECTIONS_BEHIND; i++) peer_collect();
  report("left_mib", fmax(resident_bytes() - before_bytes, 0) / MIB);
  report("cpu_s", cpu_seconds());
  report("peak_mib", peak_resident_bytes() / MIB);
}
