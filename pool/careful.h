// SPDX-License-Identifier: MIT
// What some pools have done on every get and put, and most have not: limits on items and bytes, the
// checks of TIDE_DEBUG=poolcheck=1, the mischief of TIDE_DEBUG=poolchaos=N. Pools that are recorded
// (runtime/record.h) come this way too, so that every get and put is seen.
#ifndef TIDEPOOL_CAREFUL_H
#define TIDEPOOL_CAREFUL_H

#include "checks.h"
#include "pool_private.h"

// Whether a pool made now with these options needs any of it.
bool careful_wanted(const tide_pool *pool);

// Before the item is put. False: it is not to be, for that cause. *bytes are reserved.
bool careful_put(tide_pool *pool, void *item, uint64_t *bytes, pool_drop *cause);
void careful_put_ends(tide_pool *pool, void *item, uint64_t bytes, bool in);
// It came out of a set of the pool; NULL: there was nothing. caller: of the pool's own function.
void careful_got(tide_pool *pool, shards *from, void *item, const void *caller);

// In the child of a fork: what other threads had reserved is free again.
void careful_after_fork(tide_pool *pool);

// Chaos: not into the private slot this time.
bool careful_prefers_chain(void);

#endif
