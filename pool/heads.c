// SPDX-License-Identifier: MIT
// Where pools are in memory: 63 heads in a block, and each body on its own.
//
// A rotation looks at the heads of all pools in use and at little else. With ten thousand pools of
// a kilobyte each it would wait for the translation of one page after the other; so many heads are
// in 160 pages. Blocks and bodies are uncollectable, hence roots, for the sets, the tallies and
// arg. A block without a pool is freed, unless it is the only one with room.
//
// A fork takes the lock of the lists, so the child finds them whole. A pool that another thread was
// making or freeing is on no list yet, or no more: its head and its body stay unused in the child.
#include "pool_private.h"

#include <string.h>

enum { BLOCK_BYTES = 4096, HEADS = BLOCK_BYTES / POOL_HEAD_BYTES - 1 };
static const uint64_t ALL = (UINT64_C(1) << HEADS) - 1;

typedef struct block {
  struct block *next, *prev; // of those with room
  uint64_t room;             // a bit for each head that no pool has
  tide_pool head[HEADS] __attribute__((aligned(POOL_HEAD_BYTES)));
} block;
_Static_assert(sizeof(block) == BLOCK_BYTES, "a block is a page");

static block *with_room; // under the lock of the lists

static void link_block(block *b) {
  b->prev = NULL;
  b->next = with_room;
  if (with_room) with_room->prev = b;
  with_room = b;
}

static void unlink_block(block *b) {
  if (b->prev)
    b->prev->next = b->next;
  else
    with_room = b->next;
  if (b->next) b->next->prev = b->prev;
}

// NULL: no block has room.
static tide_pool *take_head(void) {
  pools_lock();
  block *b = with_room;
  tide_pool *head = NULL;
  if (b) {
    head = &b->head[__builtin_ctzll(b->room)];
    b->room &= b->room - 1;
    if (!b->room) unlink_block(b);
  }
  pools_unlock();
  return head;
}

static bool add_block(void) {
  block *b = tide_alloc_aligned(BLOCK_BYTES, sizeof *b, TIDE_UNCOLLECTABLE);
  if (!b) return false;
  b->room = ALL;
  pools_lock();
  link_block(b);
  pools_unlock();
  return true;
}

tide_pool *pool_allocate(size_t behind_bytes) {
  pool_body *body = tide_alloc_aligned(APART, sizeof *body + behind_bytes, TIDE_UNCOLLECTABLE);
  if (!body) return NULL;
  tide_pool *pool;
  while (!(pool = take_head())) // other threads may have been faster
    if (!add_block()) {
      tide_free(body);
      return NULL;
    }
  pool->body = body;
  return pool;
}

void pool_free(tide_pool *pool) {
  block *b = (block *)((uintptr_t)pool & ~(uintptr_t)(BLOCK_BYTES - 1)), *empty = NULL;
  tide_free(pool->body);
  memset(pool, 0, sizeof *pool);
  pools_lock();
  if (!b->room) link_block(b);
  b->room |= UINT64_C(1) << (pool - b->head);
  if (b->room == ALL && (b->next || b->prev)) {
    unlink_block(b);
    empty = b;
  }
  pools_unlock();
  tide_free(empty);
}
