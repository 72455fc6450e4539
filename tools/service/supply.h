// SPDX-License-Identifier: MIT
// Where a worker has its encoder from: made for each request, out of a pool, out of a free list, or
// its own. One pair of calls for all of them, so that `tidepool marshal` and `tidepool sawtooth`
// measure the same loop each time.
#ifndef TIDEPOOL_TOOL_SUPPLY_H
#define TIDEPOOL_TOOL_SUPPLY_H

#include "encoder.h"

#include <tidepool.h>

typedef enum supply_kind { SUPPLY_FRESH, SUPPLY_POOL, SUPPLY_FREELIST, SUPPLY_OWNED } supply_kind;

typedef struct supply supply;

// For so many workers. pool names what differs from a pool's defaults (survive, min_idle_ns); NULL:
// nothing. Complains and returns NULL when there is no memory.
supply *supply_create(supply_kind kind, unsigned workers, const encoder_options *made,
                      const tide_pool_options *pool);
// No worker uses it any more. NULL is ignored.
void supply_destroy(supply *s);

// NULL when there is no memory. worker counts from 0.
encoder *supply_get(supply *s, unsigned worker);
void supply_put(supply *s, unsigned worker, encoder *e);

// Encoders that lie idle in it now. Exact while no worker has one.
uint64_t supply_items(supply *s);
// Gets that found no encoder and made one, and all gets, as the pool or the free list counts them;
// both 0 for the other kinds.
void supply_counts(supply *s, uint64_t *gets, uint64_t *misses);

#endif
