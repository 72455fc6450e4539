// SPDX-License-Identifier: MIT
// The four ways to have an encoder; see supply.h. It is an uncollectable object, as those that
// workers own must be found by the collector.
#include "supply.h"
#include "command.h"

struct supply {
  supply_kind kind;
  unsigned workers;
  encoder_options made;
  tide_pool *pool;
  tide_freelist *list;
  encoder *owned[];
};

static void *make(void *arg) {
  const supply *s = arg;
  return encoder_create(&s->made);
}

static bool prepare(supply *s, const tide_pool_options *differs) {
  if (s->kind == SUPPLY_POOL) {
    tide_pool_options options = differs ? *differs : (tide_pool_options){0};
    options.name = "encoders";
    options.create = make;
    options.arg = s;
    s->pool = tide_pool_create(&options);
    return s->pool != NULL;
  }
  if (s->kind == SUPPLY_FREELIST) {
    const tide_freelist_options options = {.name = "encoders", .create = make, .arg = s};
    s->list = tide_freelist_create(s->workers, &options);
    return s->list != NULL;
  }
  return true;
}

supply *supply_create(supply_kind kind, unsigned workers, const encoder_options *made,
                      const tide_pool_options *pool) {
  supply *s = tide_alloc_uncollectable(sizeof *s + workers * sizeof s->owned[0]);
  if (s) {
    s->kind = kind;
    s->workers = workers;
    s->made = *made;
    if (prepare(s, pool)) return s;
  }
  complain("no memory for a pool of encoders");
  supply_destroy(s);
  return NULL;
}

void supply_destroy(supply *s) {
  if (!s) return;
  tide_pool_destroy(s->pool);
  tide_freelist_destroy(s->list);
  tide_free(s);
}

encoder *supply_get(supply *s, unsigned worker) {
  switch (s->kind) {
  case SUPPLY_FRESH:
    break;
  case SUPPLY_POOL:
    return tide_pool_get(s->pool);
  case SUPPLY_FREELIST:
    return tide_freelist_get(s->list);
  case SUPPLY_OWNED:
    if (!s->owned[worker]) s->owned[worker] = make(s);
    return s->owned[worker];
  }
  return make(s);
}

void supply_put(supply *s, unsigned worker, encoder *e) {
  if (s->kind == SUPPLY_POOL) tide_pool_put(s->pool, e);
  if (s->kind == SUPPLY_FREELIST) tide_freelist_put(s->list, e);
}

uint64_t supply_items(supply *s) {
  uint64_t items = 0;
  if (s->pool) {
    tide_pool_stats stats;
    tide_pool_stats_read(s->pool, &stats);
    items = stats.items_primary + stats.items_victim;
  } else if (s->list) {
    tide_freelist_stats stats;
    tide_freelist_stats_read(s->list, &stats);
    items = stats.items;
  } else if (s->kind == SUPPLY_OWNED) {
    for (unsigned i = 0; i < s->workers; i++) items += s->owned[i] != NULL;
  }
  return items;
}

void supply_counts(supply *s, uint64_t *gets, uint64_t *misses) {
  *gets = *misses = 0;
  if (s->pool) {
    tide_pool_stats stats;
    tide_pool_stats_read(s->pool, &stats);
    *gets = stats.gets;
    *misses = stats.misses;
  } else if (s->list) {
    tide_freelist_stats stats;
    tide_freelist_stats_read(s->list, &stats);
    *gets = stats.gets;
    *misses = stats.misses;
  }
}
