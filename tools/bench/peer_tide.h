// SPDX-License-Identifier: MIT
// Tidepool as a peer; see peer.h.
#include <stdio.h>
#include <stdlib.h>
#include <tidepool.h>

#define PEER_COLLECTS 1
#define PEER_POOLS    1

static inline void peer_init(unsigned markers) {
  char text[16];
  snprintf(text, sizeof text, "%u", markers);
  if (markers) setenv("TIDE_MARKERS", text, 1);
  if (tide_init(NULL) != TIDE_OK) fail("%s", tide_error_message());
}

static inline void *peer_alloc(size_t size) {
  return tide_alloc(size);
}
static inline void *peer_alloc_leaf(size_t size) {
  return tide_alloc_leaf(size);
}
static inline void peer_free(void *object) {}

static inline int peer_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
  return tide_thread_create(thread, NULL, fn, arg);
}

static inline void *peer_join_blocking(void *thread) {
  pthread_join(*(pthread_t *)thread, NULL);
  return NULL;
}
static inline void peer_thread_join(pthread_t thread) {
  tide_blocking(peer_join_blocking, &thread);
}

static inline void peer_automatic(bool on) {
  if (!on)
    tide_gc_disable();
  else if (tide_gc_enable() != TIDE_OK)
    fail("%s", tide_error_message());
}
static inline void peer_collect(void) {
  tide_collect();
}
static inline double peer_collections(void) {
  return (double)tide_gc_cycle();
}

static inline void peer_cycle_end(const tide_cycle *cycle, void *record) {
  (*(peer_pause_record **)record)(cycle->pause_ns, cycle->stop_ns);
}
static inline void peer_watch_pauses(peer_pause_record *record) {
  static peer_pause_record *watcher; // the argument is an object's address, not a function's
  watcher = record;
  if (!tide_hook_add(TIDE_CYCLE_END, peer_cycle_end, &watcher)) fail("%s", tide_error_message());
}

typedef tide_pool peer_pool;

static inline peer_pool *peer_pool_create(void *(*create)(void *arg)) {
  peer_pool *pool = tide_pool_create(&(tide_pool_options){.create = create});
  if (!pool) fail("%s", tide_error_message());
  return pool;
}
static inline void peer_pool_destroy(peer_pool *pool) {
  tide_pool_destroy(pool);
}
static inline void *peer_pool_get(peer_pool *pool) {
  return tide_pool_get(pool);
}
static inline void peer_pool_put(peer_pool *pool, void *item) {
  tide_pool_put(pool, item);
}

static inline void peer_hooks_end(const tide_cycle *cycle, void *record) {
  (*(peer_hooks_record **)record)(cycle->pause_ns, cycle->hooks_ns);
}
static inline void peer_watch_hooks(peer_hooks_record *record) {
  static peer_hooks_record *watcher;
  watcher = record;
  if (!tide_hook_add(TIDE_CYCLE_END, peer_hooks_end, &watcher)) fail("%s", tide_error_message());
}
