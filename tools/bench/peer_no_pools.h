// SPDX-License-Identifier: MIT
// What peers without pools have in their place: nothing that a workload may call. See peer.h.
#define PEER_POOLS 0

typedef struct peer_pool peer_pool;

static inline peer_pool *peer_pool_create(void *(*create)(void *arg)) {
  fail("this peer has no pools");
}
static inline void peer_pool_destroy(peer_pool *pool) {}
static inline void *peer_pool_get(peer_pool *pool) {
  return NULL;
}
static inline void peer_pool_put(peer_pool *pool, void *item) {}
static inline void peer_watch_hooks(peer_hooks_record *record) {}
