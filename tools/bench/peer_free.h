// SPDX-License-Identifier: MIT
// What allocators that free by hand have in common: nothing collects. See peer.h.
#include "peer_no_pools.h"

#define PEER_COLLECTS 0

static inline void peer_init(unsigned markers) {}

static inline int peer_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
  return pthread_create(thread, NULL, fn, arg);
}
static inline void peer_thread_join(pthread_t thread) {
  pthread_join(thread, NULL);
}

static inline void peer_automatic(bool on) {}
static inline void peer_collect(void) {}
static inline double peer_collections(void) {
  return NAN;
}
static inline void peer_watch_pauses(peer_pause_record *record) {}
