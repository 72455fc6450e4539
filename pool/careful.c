// SPDX-License-Identifier: MIT
// Limits on items and bytes, and chaos. Pools that have neither, nor checks (checks.c), nor are
// recorded, never come here.
//
// Limits hold exactly: a put reserves first what it is going to add, and gives the reservation back
// when the item is in and counted, or is not taken. What is in is counted by set, so it goes with
// the set, in a rotation, without a look at an item. A get takes an item's bytes off its set after
// the fact, when the set may be gone already: then nobody asks any more.
#include "careful.h"

static uint64_t size_of(const tide_pool *pool, const void *item) {
  const pool_body *body = pool->body;
  if (!body->measures) return 0;
  return body->size ? body->size(item, body->arg) : tide_size(item);
}

// ---- Chaos ----------------------------------------------------------------------------------

// By one word for all threads: with one thread, the same seed does the same.
static bool chance(unsigned percent) {
  static AO_t state;
  if (RT_LIKELY(!rt_options.poolchaos)) return false;
  uint64_t z = AO_fetch_and_add(&state, (AO_t)0x9e3779b97f4a7c15u) + (uint64_t)rt_options.poolchaos;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; // splitmix64
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % 100 < percent;
}

bool careful_prefers_chain(void) {
  return chance(50);
}

// ---- Limits ---------------------------------------------------------------------------------

// In the primary and the victims. Pinned sections are the caller's.
static void add_up(const tide_pool *pool, uint64_t *items, uint64_t *bytes) {
  const shards *primary = primary_of(pool);
  *items = AO_load(&primary->items);
  *bytes = AO_load(&primary->bytes);
  for (unsigned i = 0; i < pool->victims; i++) {
    const shards *victim = pool->body->victim[i];
    *items += AO_load(&victim->items);
    *bytes += AO_load(&victim->bytes);
  }
}

static void unreserve(tide_pool *pool, uint64_t bytes) {
  AO_fetch_and_sub1(&pool->body->reserved_items);
  AO_fetch_and_add(&pool->body->reserved_bytes, (AO_t)0 - bytes);
}

// A negative sum is one of a set whose item has been taken and, in this instant, is put again.
static bool above(uint64_t sum, uint64_t most) {
  return (int64_t)sum > 0 && sum > most;
}

// Puts of this thread that have something reserved. A hook may fork in the middle of one.
static __thread unsigned reservations __attribute__((tls_model("initial-exec")));

void careful_after_fork(tide_pool *pool) {
  if (reservations) return; // which of them are whose is not known: better too little room
  AO_store(&pool->body->reserved_items, 0);
  AO_store(&pool->body->reserved_bytes, 0);
}

static bool reserve(tide_pool *pool, uint64_t bytes) {
  pool_body *body = pool->body;
  uint64_t items_in, bytes_in;
  uint64_t items_reserved = AO_fetch_and_add1_full(&body->reserved_items) + 1;
  uint64_t bytes_reserved = AO_fetch_and_add_full(&body->reserved_bytes, bytes) + bytes;
  rt_pin(rt_self());
  add_up(pool, &items_in, &bytes_in);
  rt_unpin(rt_self());
  bool fits = !above(items_in + items_reserved, body->max_items) &&
              !above(bytes_in + bytes_reserved, body->max_bytes);
  if (fits)
    reservations++;
  else
    unreserve(pool, bytes);
  return fits;
}

// ---- Puts and gets --------------------------------------------------------------------------

bool careful_wanted(const tide_pool *pool) {
  return pool->body->measures || rt_options.poolchaos || rt_options.poolcheck || rt_recording();
}

bool careful_put(tide_pool *pool, void *item, uint64_t *bytes, pool_drop *cause) {
  *cause = DROP_CLOSED;
  if (pool->closed) return false;
  *bytes = size_of(pool, item);
  *cause = DROP_CHAOS;
  if (chance(25)) return false;
  *cause = DROP_LARGE;
  if (*bytes > pool->body->max_item_bytes) return false;
  *cause = DROP_FULL;
  if (*bytes > pool->body->max_bytes || *bytes > INT64_MAX / 4) return false;
  return !pool->body->measures || reserve(pool, *bytes);
}

void careful_put_ends(tide_pool *pool, void *item, uint64_t bytes, bool in) {
  if (!pool->body->measures) return;
  unreserve(pool, bytes);
  reservations--;
}

void careful_got(tide_pool *pool, shards *from, void *item, const void *caller) {
  if (pool->body->check) check_got(pool, item, caller);
  if (!item || !pool->body->measures) return;
  AO_fetch_and_sub1(&from->items);
  AO_fetch_and_add(&from->bytes, (AO_t)0 - size_of(pool, item));
}
