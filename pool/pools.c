// SPDX-License-Identifier: MIT
// Making and destroying pools.
#include "careful.h"
#include "pool_private.h"
#include "record_pool.h"

#include <string.h>

static const uint64_t BYTES_MOST = UINT64_C(1) << 60; // sums stay positive as signed numbers

static uint64_t or_any(uint64_t most) {
  return most ? most : UINT64_MAX;
}

// Victims that there may be at the same time: with min_idle_ns one for each quarter of the time,
// and some for collections that come early and late.
static unsigned victims_for(const tide_pool *pool) {
  return pool->survive + (pool->min_idle_ns ? 8 : 0);
}

static void set_up(tide_pool *pool, const tide_pool_options *o) {
  pool->primary = (AO_t)&no_shards;
  stats_init(pool);
  pool->create = o->create;
  pool->reset = o->reset;
  pool->drop = o->drop;
  pool->size = o->size;
  pool->arg = o->arg;
  pool->max_item_bytes = or_any(o->max_item_bytes);
  pool->max_bytes = or_any(o->max_bytes < BYTES_MOST ? o->max_bytes : BYTES_MOST);
  pool->max_items = or_any(o->max_items);
  pool->measures = o->max_item_bytes || o->max_bytes || o->max_items || o->size;
  pool->survive = (uint16_t)(o->survive == TIDE_SURVIVE_NONE ? 0 : o->survive ? o->survive : 1);
  pool->min_idle_ns = o->min_idle_ns;
  pool->plain = pool->survive <= 1 && !pool->min_idle_ns;
  pool->keeps = pool->survive;
  pool->created_only = o->created_only;
  pool->careful = careful_wanted(pool);
  pool->born = pool_round();
}

tide_pool *tide_pool_create(const tide_pool_options *options) {
  static const tide_pool_options defaults;
  if (!rt_enter("tide_pool_create")) return NULL;
  if (!options) options = &defaults;
  if (options->survive < TIDE_SURVIVE_NONE || options->survive > TIDE_SURVIVE_MAX) {
    rt_error_set(TIDE_ERR_ARGUMENT,
                 "tide_pool_create: survive %d is not accepted: TIDE_SURVIVE_NONE or 0 to %d",
                 options->survive, TIDE_SURVIVE_MAX);
    return NULL;
  }
  if (!rotate_init() || !check_init()) return NULL;
  tide_pool made = {0};
  set_up(&made, options);
  const char *name = options->name ? options->name : "pool";
  size_t name_bytes = strlen(name) + 1, victims_bytes = victims_for(&made) * sizeof *made.victim;
  // Uncollectable, hence a root, for the sets, the tallies and arg.
  size_t bytes = sizeof(tide_pool) + victims_bytes + name_bytes;
  unsigned made_for = rt_record_for(RT_RECORD_OWN);
  rt_quiet_begin(rt_self());
  tide_pool *pool = tide_alloc_aligned(APART, bytes, TIDE_UNCOLLECTABLE);
  rt_quiet_end(rt_self());
  rt_record_for(made_for);
  if (!pool) return NULL;
  made.victims_most = (uint16_t)victims_for(&made);
  made.victim = made.victims_most > 1 ? (shards **)(void *)(pool + 1) : &pool->latest;
  made.name = (char *)(pool + 1) + victims_bytes;
  *pool = made;
  memcpy((char *)(pool + 1) + victims_bytes, name, name_bytes);
  bool checked = check_begin(pool);
  pool->tells = tells_drops(pool);
  if (rt_recording()) record_pool(pool);
  if (checked && rotate_add(pool)) return pool;
  rt_error_set(TIDE_ERR_MEMORY, "no memory for the list of pools");
  check_free(pool);
  tide_free(pool);
  return NULL;
}

static void drop_sets(tide_pool *pool, shards *set) {
  for (; set; set = set->replaced) pool_drop_set(pool, set);
}

// From here on nothing is in it: `drop` may use the pool.
static void close_pool(tide_pool *pool) {
  shards *primary = primary_of(pool);
  unsigned victims = pool->victims;
  pool->victims = 0;
  pool->primary = (AO_t)&no_shards;
  if (tells_drops(pool)) drop_sets(pool, primary);
  for (unsigned i = 0; i < victims; i++) {
    if (tells_drops(pool)) drop_sets(pool, pool->victim[i]);
    pool->victim[i] = NULL;
  }
}

// What is left of a pool for those who use it all the same: it keeps nothing alive.
static void hollow_out(tide_pool *pool) {
  stats_init(pool);
  pool->arg = NULL;
}

void tide_pool_destroy(tide_pool *pool) {
  if (!pool || !rt_enter("tide_pool_destroy")) return;
  if (pool->check) check_end(pool, __builtin_return_address(0));
  pool->closed = pool->careful = true; // what `drop` puts into it from here on is dropped
  rotate_remove(pool);                 // no collection touches it any more
  close_pool(pool);
  if (pool->recorded) record_pool_end(pool);
  if (pool->check) {
    hollow_out(pool);
    pool = check_keep(pool);
    if (!pool) return;
    check_free(pool);
  }
  tide_free(pool);
}

// Here, because a program that is linked with the static library gets this file if it has pools.
__attribute__((destructor)) static void finish(void) {
  pool_report_at_exit();
}
