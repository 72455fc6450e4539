// SPDX-License-Identifier: MIT
// Making and destroying pools.
#include "careful.h"
#include "pool_private.h"

#include <string.h>

static uint64_t or_any(uint64_t most) {
  return most ? most : UINT64_MAX;
}

// Victims that there may be at the same time: with min_idle_ns one for each quarter of the time,
// and some for collections that come early and late.
static unsigned victims_for(const tide_pool *pool) {
  return pool->survive + (pool->min_idle_ns ? 8 : 0) + 1;
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
  pool->max_bytes = or_any(o->max_bytes);
  pool->max_items = or_any(o->max_items);
  pool->measures = o->max_item_bytes || o->max_bytes || o->max_items || o->size;
  pool->survive = o->survive == TIDE_SURVIVE_NONE ? 0 : o->survive ? (unsigned)o->survive : 1;
  pool->min_idle_ns = o->min_idle_ns;
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
  cpu_slots_init();
  tide_pool made = {0};
  set_up(&made, options);
  const char *name = options->name ? options->name : "pool";
  size_t name_bytes = strlen(name) + 1, victims_bytes = victims_for(&made) * sizeof *made.victim;
  // Uncollectable, hence a root, for the sets, the tallies and arg.
  tide_pool *pool = tide_alloc_uncollectable(sizeof *pool + victims_bytes + name_bytes);
  if (!pool) return NULL;
  made.victim = (shards **)(void *)(pool + 1);
  made.victims_most = victims_for(&made);
  made.name = (char *)(pool + 1) + victims_bytes;
  *pool = made;
  memcpy((char *)(pool + 1) + victims_bytes, name, name_bytes);
  if (check_begin(pool) && rotate_add(pool)) return pool;
  rt_error_set(TIDE_ERR_MEMORY, "no memory for the list of pools");
  check_free(pool);
  tide_free(pool);
  return NULL;
}

static void drop_set(tide_pool *pool, shards *set) {
  for (; set; set = set->replaced) pool_drop_set(pool, set);
}

static void drop_everything(tide_pool *pool) {
  drop_set(pool, primary_of(pool));
  for (unsigned i = 0; i < pool->victims; i++) drop_set(pool, pool->victim[i]);
}

// What is left of a pool for those who use it all the same: it is empty, and keeps nothing alive.
static void hollow_out(tide_pool *pool) {
  pool->primary = (AO_t)&no_shards;
  for (unsigned i = 0; i < pool->victims; i++) pool->victim[i] = NULL;
  pool->victims = 0;
  stats_init(pool);
  pool->arg = NULL;
}

void tide_pool_destroy(tide_pool *pool) {
  if (!pool || !rt_enter("tide_pool_destroy")) return;
  if (pool->check) check_end(pool, __builtin_return_address(0));
  rotate_remove(pool); // no collection touches it any more
  if (tells_drops(pool)) drop_everything(pool);
  if (pool->check) {
    hollow_out(pool);
    pool = check_keep(pool);
    if (!pool) return;
    check_free(pool);
  }
  tide_free(pool);
}
