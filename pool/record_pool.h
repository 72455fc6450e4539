// SPDX-License-Identifier: MIT
// What pools report to the recorder (runtime/record.h). A recorded pool is a careful one, so that
// every get and put comes by here.
#ifndef TIDEPOOL_RECORD_POOL_H
#define TIDEPOOL_RECORD_POOL_H

#include "pool_private.h"

void record_pool(tide_pool *pool); // has been made; sets pool->recorded
void record_pool_end(const tide_pool *pool);

// For a recorded pool. found: what the pool had, NULL: make one, if it can be; returns the item.
void *record_pool_get(tide_pool *pool, void *found, void *(*make)(tide_pool *pool));
// Before the item can be got.
void record_pool_put(const tide_pool *pool, const void *item, uint64_t bytes);

#endif
