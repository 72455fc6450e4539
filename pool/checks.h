// SPDX-License-Identifier: MIT
// TIDE_DEBUG=poolcheck=1: the program is stopped where it goes wrong with a pool.
//
// All of it is called outside pinned sections, and, from check_put on, only where pool->check is
// set. caller: where the pool's own function returns to; reported call stacks begin there.
//
//   put    check_put, before anything else happens to the item; reset and limits look at it as it
//          is; check_cover, and it is in
//   get    check_got, whether there was an item or not; check_made after `create`
//   drop   check_dropped, before `drop`; of an item, too, that never got in
#ifndef TIDEPOOL_CHECKS_H
#define TIDEPOOL_CHECKS_H

#include "pool_private.h"

bool check_init(void);             // before a pool is made; false: it cannot be had, error set
bool check_begin(tide_pool *pool); // sets pool->check, if it is wanted; false: no memory
void check_free(tide_pool *pool);  // pool->check

void check_put(tide_pool *pool, void *item, const void *caller);
void check_cover(tide_pool *pool, void *item);
void check_got(tide_pool *pool, void *item, const void *caller); // NULL: there was none
void check_made(tide_pool *pool, void *item);
void check_dropped(tide_pool *pool, void *item);

// The pool is destroyed; after it is empty, check_keep keeps it, so that those who use it all the
// same can be told, and returns another one to free in its place, or NULL.
void check_end(tide_pool *pool, const void *caller);
tide_pool *check_keep(tide_pool *pool);

#endif
