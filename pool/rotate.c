// SPDX-License-Identifier: MIT
// What a collection does to pools. This is the rule.
//
// When the world stops, `rotate` makes each pool's primary its latest victim, and forgets the
// victim that has been one for long enough: by default the one before. In this very collection it
// is found to be garbage, and with it every item that only the pool knew. So an item that nobody
// asks for survives one collection and is lost at the second. It costs a few stores a pool,
// however many items there are; only pools that have a set are visited; and the collector knows
// nothing of it. The next put makes a new primary.
//
// Where somebody is to be told of what is dropped (`drop`, or checks.c), what is forgotten goes on
// a list instead, and the hook at the cycle's end, with the world running, tells of each item of
// it. Such items live until then.
//
// min_idle_ns. A primary stays where it is until it has been one for a quarter of that time, so
// that there are never more than a handful of victims; a victim stays for as long as its time says.
//
// Near the memory limit pools let go sooner; pool.h has the rule.
#include "checks.h"
#include "pool_private.h"

#include <stdlib.h>
#include <string.h>

static AO_t rounds; // collections that pools have seen
static shards *to_drop;

// Under `lock`, and changed with the world stopped.
static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;
static tide_pool *all;
static tide_pool **active; // pools that have a set
static size_t active_count, active_room;

uint64_t pool_round(void) {
  return AO_load(&rounds) + 1;
}

// ---- Dropping -------------------------------------------------------------------------------

void pool_drop_item(tide_pool *pool, void *item) {
  if (pool->check) check_dropped(pool, item);
  if (pool->drop) pool->drop(item, pool->arg);
}

static void drop_one(void *item, void *pool) {
  pool_drop_item(pool, item);
}

void pool_drop_set(tide_pool *pool, shards *set) {
  set_empty(set, drop_one, pool);
}

// With the world stopped, or by the last user.
static void discard(tide_pool *pool, shards *set) {
  settle(pool, set);
  if (!tells_drops(pool)) return;
  set->pool = pool;
  set->next = to_drop;
  to_drop = set;
}

// A set from the list, of that pool or, if NULL, of any. Pinned, lock held.
static shards *next_to_drop(const tide_pool *pool) {
  shards **link = &to_drop;
  while (*link && pool && (*link)->pool != pool) link = &(*link)->next;
  shards *set = *link;
  if (set) *link = set->next;
  return set;
}

static shards *begin_drop(rt_thread *self, const tide_pool *pool) {
  rt_pin(self);
  rt_pinned_lock_take(&lock);
  shards *set = next_to_drop(pool);
  if (set) AO_fetch_and_add1(&set->pool->dropping);
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
  return set;
}

static void drop_all(rt_thread *self, const tide_pool *pool) {
  shards *set;
  while ((set = begin_drop(self, pool))) {
    pool_drop_set(set->pool, set);
    AO_fetch_and_sub1_release(&set->pool->dropping); // pairs with the acquire in rotate_remove
  }
}

// ---- Rotation -------------------------------------------------------------------------------

typedef struct policy {
  unsigned survive;
  uint64_t min_idle_ns, now_ns;
} policy;

static policy policy_of(const tide_pool *pool, const tide_cycle *cycle) {
  policy p = {pool->survive, pool->min_idle_ns, cycle->stopped_at_ns};
  bool near = cycle->cause == TIDE_CAUSE_LIMIT;
  if (near && p.survive > 1) p.survive = 1;
  if (cycle->limiter_active) p.survive = 0;
  if (near || cycle->limiter_active) p.min_idle_ns = 0;
  return p;
}

// The primary's time has not come.
static bool keeps_primary(tide_pool *pool, const policy *p) {
  if (!p->min_idle_ns) return false;
  if (!pool->kept_since_ns) pool->kept_since_ns = p->now_ns;
  return p->now_ns - pool->kept_since_ns < p->min_idle_ns / 4;
}

static bool is_over(const shards *victim, const policy *p) {
  return victim->age >= p->survive && p->now_ns - victim->retired_at_ns >= p->min_idle_ns;
}

static void age_victims(tide_pool *pool, const policy *p) {
  for (unsigned i = 0; i < pool->victims; i++) pool->victim[i]->age++;
  while (pool->victims && is_over(pool->victim[pool->victims - 1], p)) {
    discard(pool, pool->victim[--pool->victims]);
    pool->victim[pool->victims] = NULL;
  }
}

static void retire(tide_pool *pool, shards *primary, const policy *p) {
  for (shards *set = primary->replaced; set; set = set->replaced) discard(pool, set);
  primary->replaced = NULL;
  primary->retired_at_ns = p->now_ns;
  primary->age = 0;
  pool->primary = (AO_t)&no_shards;
  pool->kept_since_ns = 0;
  if (!p->survive && !p->min_idle_ns) {
    discard(pool, primary);
    return;
  }
  if (pool->victims == pool->victims_most) discard(pool, pool->victim[--pool->victims]);
  memmove(pool->victim + 1, pool->victim, pool->victims * sizeof *pool->victim);
  pool->victim[0] = primary;
  pool->victims++;
}

static void rotate(tide_pool *pool, const tide_cycle *cycle) {
  policy p = policy_of(pool, cycle);
  shards *primary = primary_of(pool);
  age_victims(pool, &p);
  if (primary != &no_shards && !keeps_primary(pool, &p)) retire(pool, primary, &p);
  rt_event_labelled(TIDE_EVENT_ROTATE, cycle->stopped_at_ns, 0, AO_load(&rounds), 0, pool->name);
}

static void leave(size_t i) {
  active[i]->active = 0;
  active[i] = active[--active_count];
  if (i < active_count) active[i]->active = i + 1;
}

// Many pools are in no cache: what the next ones need is asked for in advance.
static void fetch(size_t i) {
  enum { AHEAD = 8 };
  if (i + 2 * AHEAD < active_count) __builtin_prefetch(active[i + 2 * AHEAD]);
  if (i + AHEAD >= active_count) return;
  const tide_pool *pool = active[i + AHEAD];
  __builtin_prefetch((void *)pool->primary);
  __builtin_prefetch(&pool->victim[0]);
  if (pool->victims) __builtin_prefetch(pool->victim[pool->victims - 1]);
}

static void on_stopped(const tide_cycle *cycle, void *arg) {
  AO_store(&rounds, AO_load(&rounds) + 1);
  for (size_t i = 0; i < active_count;) {
    fetch(i);
    tide_pool *pool = active[i];
    rotate(pool, cycle);
    if (pool->victims || primary_of(pool) != &no_shards)
      i++;
    else
      leave(i);
  }
}

static void on_end(const tide_cycle *cycle, void *arg) {
  drop_all(rt_self(), NULL);
}

bool rotate_init(void) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  static tide_hook *start, *end;
  int cancellable = rt_cancel_disable();
  pthread_mutex_lock(&once);
  if (!start) start = tide_hook_add(TIDE_STW_START, on_stopped, NULL);
  if (start && !end) end = tide_hook_add(TIDE_CYCLE_END, on_end, NULL);
  bool ready = start && end;
  pthread_mutex_unlock(&once);
  rt_cancel_restore(cancellable);
  return ready;
}

// ---- The lists ------------------------------------------------------------------------------

// Room for all pools there are is made when they are: joining needs no memory. lock held.
static bool make_room(size_t pools) {
  if (pools <= active_room) return true;
  size_t room = active_room ? 2 * active_room : 4096 / sizeof *active;
  tide_pool **larger = os_map(room * sizeof *active);
  if (!larger) return false;
  if (active) {
    memcpy(larger, active, active_count * sizeof *active);
    os_unmap(active, active_room * sizeof *active);
  }
  active = larger;
  active_room = room;
  return true;
}

static size_t pools; // under the lock

bool rotate_add(tide_pool *pool) {
  rt_thread *self = rt_self();
  rt_pin(self);
  rt_pinned_lock_take(&lock);
  bool ready = make_room(pools + 1);
  if (ready) {
    pools++;
    pool->next = all;
    if (all) all->prev = pool;
    all = pool;
  }
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
  return ready;
}

void rotate_join(tide_pool *pool) {
  rt_pinned_lock_take(&lock);
  if (!pool->active) {
    active[active_count] = pool;
    pool->active = ++active_count;
  }
  rt_pinned_lock_give(&lock);
}

void rotate_remove(tide_pool *pool) {
  rt_thread *self = rt_self();
  rt_pin(self);
  rt_pinned_lock_take(&lock);
  if (pool->active) leave(pool->active - 1);
  if (pool->prev)
    pool->prev->next = pool->next;
  else
    all = pool->next;
  if (pool->next) pool->next->prev = pool->prev;
  pools--;
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
  drop_all(self, pool);
  for (unsigned tries = 0; AO_load_acquire(&pool->dropping); tries++) os_pause(tries);
}

void pools_for_each(void (*fn)(tide_pool *pool, void *arg), void *arg) {
  rt_thread *self = rt_self();
  rt_pin(self);
  rt_pinned_lock_take(&lock);
  for (tide_pool *pool = all; pool; pool = pool->next) fn(pool, arg);
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
}
