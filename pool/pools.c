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
static unsigned victims_for(unsigned survive, uint64_t min_idle_ns) {
  return survive + (min_idle_ns ? 8 : 0);
}

static uint16_t collections_of(const tide_pool_options *o) {
  return (uint16_t)(o->survive == TIDE_SURVIVE_NONE ? 0 : o->survive ? o->survive : 1);
}

static void set_up(tide_pool *pool, const tide_pool_options *o) {
  pool_body *body = pool->body;
  pool->primary = (AO_t)&no_shards;
  stats_init(pool);
  pool->reset = o->reset;
  body->create = o->create;
  body->drop = o->drop;
  body->size = o->size;
  body->arg = o->arg;
  body->max_item_bytes = or_any(o->max_item_bytes);
  body->max_bytes = or_any(o->max_bytes < BYTES_MOST ? o->max_bytes : BYTES_MOST);
  body->max_items = or_any(o->max_items);
  body->measures = o->max_item_bytes || o->max_bytes || o->max_items || o->size;
  body->survive = collections_of(o);
  body->min_idle_ns = o->min_idle_ns;
  body->created_only = o->created_only;
  body->born = pool_round();
  pool->plain = body->survive <= 1 && !body->min_idle_ns;
  pool->keeps = body->survive;
  pool->careful = careful_wanted(pool);
}

// NULL: no memory.
static tide_pool *make(const tide_pool_options *o) {
  const char *name = o->name ? o->name : "pool";
  unsigned victims = victims_for(collections_of(o), o->min_idle_ns);
  size_t name_bytes = strlen(name) + 1, victims_bytes = victims * sizeof(shards *);
  unsigned made_for = rt_record_for(RT_RECORD_OWN);
  rt_quiet_begin(rt_self());
  tide_pool *pool = pool_allocate(victims_bytes + name_bytes);
  rt_quiet_end(rt_self());
  rt_record_for(made_for);
  if (!pool) return NULL;
  set_up(pool, o);
  pool_body *body = pool->body;
  body->victims_most = (uint16_t)victims;
  body->victim = victims > 1 ? (shards **)(void *)(body + 1) : &pool->latest;
  body->name = memcpy((char *)(body + 1) + victims_bytes, name, name_bytes);
  return pool;
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
  tide_pool *pool = make(options);
  if (!pool) return NULL;
  bool checked = check_begin(pool);
  pool->tells = tells_drops(pool);
  if (rt_recording()) record_pool(pool);
  if (checked && rotate_add(pool)) return pool;
  rt_error_set(TIDE_ERR_MEMORY, "no memory for the list of pools");
  check_free(pool);
  pool_free(pool);
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
    if (tells_drops(pool)) drop_sets(pool, pool->body->victim[i]);
    pool->body->victim[i] = NULL;
  }
}

// What is left of a pool for those who use it all the same: it keeps nothing alive.
static void hollow_out(tide_pool *pool) {
  stats_init(pool);
  pool->body->arg = NULL;
}

static RT_COLD void refuse_in_own_drop(void) {
  static const char why[] = "tide_pool_destroy: not allowed in a drop of the pool's own";
  rt_error_set(TIDE_ERR_STATE, "%s", why);
  rt_report("%s", why);
}

void tide_pool_destroy(tide_pool *pool) {
  if (!pool || !rt_enter("tide_pool_destroy")) return;
  if (pool->body->check) check_end(pool, __builtin_return_address(0));
  if (RT_UNLIKELY(pool->closed || rotate_drops_here(pool))) {
    refuse_in_own_drop(); // it would wait for itself
    return;
  }
  int cancellable = rt_cancel_disable(); // `drop` may be where one is cancelled: close, for one
  pool->closed = pool->careful = true;   // what `drop` puts into it from here on is dropped
  rotate_remove(pool);                   // no collection touches it any more
  close_pool(pool);
  rt_cancel_restore(cancellable);
  if (pool->body->recorded) record_pool_end(pool);
  if (pool->body->check) {
    hollow_out(pool);
    pool = check_keep(pool);
    if (!pool) return;
    check_free(pool);
  }
  pool_free(pool);
}

// Here, because a program that is linked with the static library gets this file if it has pools.
__attribute__((destructor)) static void finish(void) {
  pool_report_at_exit();
}
