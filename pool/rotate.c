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
#include "careful.h"
#include "checks.h"
#include "pool_private.h"

#include <stdlib.h>
#include <string.h>

static AO_t rounds;        // collections that pools have seen
static AO_t last_round_ns; // when the last one was
static shards *to_drop;
pool_pace pool_pace_now;

// Under `lock`, and changed with the world stopped.
static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;
static tide_pool *all;
static tide_pool **active; // pools that have a set
static size_t active_count, active_room;

// A pools_for_each that is under way, and the pool that comes next: who removes that moves it on.
typedef struct walk {
  tide_pool *at;
  struct walk *next;
  struct walk *outer; // of the same thread: which may be here twice, in a signal handler's child
} walk;
static walk *walks;
static __thread walk *own_walk __attribute__((tls_model("initial-exec")));

void pools_lock(void) {
  rt_pin(rt_self());
  rt_pinned_lock_take(&lock);
}
void pools_unlock(void) {
  rt_pinned_lock_give(&lock);
  rt_unpin(rt_self());
}

uint64_t pool_round(void) {
  return AO_load(&rounds) + 1;
}
uint64_t pool_round_since_ns(void) {
  return AO_load(&last_round_ns);
}

// ---- Dropping -------------------------------------------------------------------------------

void pool_drop_item(tide_pool *pool, void *item) {
  const pool_body *body = pool->body;
  if (body->check) check_dropped(pool, item);
  if (!body->drop) return;
  rt_quiet_begin(rt_self());
  body->drop(item, body->arg);
  rt_quiet_end(rt_self());
}

static void drop_one(void *item, void *pool) {
  pool_drop_item(pool, item);
}

void pool_drop_set(tide_pool *pool, shards *set) {
  set_empty(set, drop_one, pool);
}

// With the world stopped, or by the last user.
static void discard(tide_pool *pool, shards *set, unsigned cpus) {
  settle(pool, set, cpus);
  if (!pool->tells) return;
  set->pool = pool;
  set->next = to_drop;
  to_drop = set;
}

// Where in the list there is a set of that pool or, if NULL, of any. Pinned, lock held.
static shards **find_to_drop(const tide_pool *pool) {
  shards **link = &to_drop;
  while (*link && pool && (*link)->pool != pool) link = &(*link)->next;
  return link;
}

static bool is_to_be_dropped(const tide_pool *pool) {
  return *find_to_drop(pool);
}

static shards *next_to_drop(const tide_pool *pool) {
  shards **link = find_to_drop(pool), *set = *link;
  if (set) *link = set->next;
  return set;
}

// Whose items this thread is dropping: it may fork meanwhile. A `drop` may bring about another
// pool's, by destroying it or by a collection.
typedef struct drop {
  tide_pool *pool;
  struct drop *outer;
} drop;
static __thread drop *own_drops __attribute__((tls_model("initial-exec")));

static shards *begin_drop(const tide_pool *pool) {
  pools_lock();
  shards *set = next_to_drop(pool);
  if (set) AO_fetch_and_add1(&set->pool->body->dropping);
  pools_unlock();
  return set;
}

static void drop_all(const tide_pool *pool) {
  shards *set;
  while ((set = begin_drop(pool))) {
    drop own = {set->pool, own_drops};
    own_drops = &own;
    pool_drop_set(set->pool, set);
    own_drops = own.outer;
    // Release: pairs with the acquire in try_remove.
    AO_fetch_and_sub1_release(&set->pool->body->dropping);
  }
}

bool rotate_drops_here(const tide_pool *pool) {
  for (const drop *d = own_drops; d; d = d->outer)
    if (d->pool == pool) return true;
  return false;
}

// ---- Rotation -------------------------------------------------------------------------------

typedef struct policy {
  unsigned survive;
  uint64_t min_idle_ns, now_ns;
} policy;

static policy policy_of(const tide_pool *pool, const tide_cycle *cycle) {
  policy p = {pool->body->survive, pool->body->min_idle_ns, cycle->stopped_at_ns};
  bool near = cycle->cause == TIDE_CAUSE_LIMIT;
  if (near && p.survive > 1) p.survive = 1;
  if (cycle->limiter_active) p.survive = 0;
  if (near || cycle->limiter_active) p.min_idle_ns = 0;
  return p;
}

// The primary's time has not come.
static bool keeps_primary(const shards *primary, const policy *p) {
  return p->now_ns - primary->since_ns < p->min_idle_ns / 4;
}

static bool is_over(const shards *victim, const policy *p) {
  return victim->age >= p->survive && p->now_ns - victim->retired_at_ns >= p->min_idle_ns;
}

static void discard_replaced(tide_pool *pool, shards *primary) {
  for (shards *set = primary->replaced; set; set = set->replaced) discard(pool, set, set->cpus);
  primary->replaced = NULL;
  pool->replaced = false;
}

// What rotation comes to for nearly all pools: nothing of a set is looked at but the counts of one
// that goes.
static void rotate_plain(tide_pool *pool, bool keeps_victim) {
  shards *primary = primary_of(pool);
  if (pool->victims) discard(pool, pool->latest, pool->latest_by_cpu ? cpu_slots() : 0);
  pool->latest = NULL;
  pool->victims = 0;
  if (primary == &no_shards) return;
  bool by_cpu = pool->replaced ? primary->cpus : pool->primary_by_cpu;
  if (RT_UNLIKELY(pool->replaced)) discard_replaced(pool, primary);
  pool->primary = (AO_t)&no_shards;
  if (!keeps_victim) {
    discard(pool, primary, primary->cpus);
    return;
  }
  pool->latest = primary;
  pool->latest_by_cpu = by_cpu;
  pool->victims = 1;
}

static void age_victims(tide_pool *pool, const policy *p) {
  shards **victim = pool->body->victim;
  for (unsigned i = 0; i < pool->victims; i++)
    if (victim[i]->age < UINT16_MAX) victim[i]->age++;
  while (pool->victims && is_over(victim[pool->victims - 1], p)) {
    shards *oldest = victim[--pool->victims];
    discard(pool, oldest, oldest->cpus);
    victim[pool->victims] = NULL;
  }
}

static void retire(tide_pool *pool, shards *primary, const policy *p) {
  if (pool->replaced) discard_replaced(pool, primary);
  primary->retired_at_ns = p->now_ns;
  primary->age = 0;
  pool->primary = (AO_t)&no_shards;
  if (!p->survive && !p->min_idle_ns) {
    discard(pool, primary, primary->cpus);
    return;
  }
  shards **victim = pool->body->victim;
  if (pool->victims == pool->body->victims_most) {
    shards *oldest = victim[--pool->victims];
    discard(pool, oldest, oldest->cpus);
  }
  memmove(victim + 1, victim, pool->victims * sizeof *victim);
  victim[0] = primary;
  pool->victims++;
}

static void rotate_by_policy(tide_pool *pool, const tide_cycle *cycle) {
  policy p = policy_of(pool, cycle);
  shards *primary = primary_of(pool);
  age_victims(pool, &p);
  if (primary != &no_shards && !keeps_primary(primary, &p)) retire(pool, primary, &p);
}

// Not inlined: the name is in a cache line that otherwise nobody would ask for.
static RT_COLD const char *name_of(const tide_pool *pool) {
  return pool->body->name;
}

static void rotate(tide_pool *pool, const tide_cycle *cycle) {
  if (RT_LIKELY(pool->plain))
    rotate_plain(pool, pool->keeps && !cycle->limiter_active);
  else
    rotate_by_policy(pool, cycle);
  const char *label = rt_events_wanted() ? name_of(pool) : "";
  rt_event_labelled(TIDE_EVENT_ROTATE, cycle->stopped_at_ns, 0, AO_load(&rounds), 0, label);
}

static void leave(size_t i) {
  active[i]->body->active = 0;
  active[i] = active[--active_count];
  if (i < active_count) active[i]->body->active = i + 1;
}

// Many pools are in no cache. What the next ones need is asked for in advance: the pool, and once
// it has come, the shards of the set that will go, as far as there are few of them. Inlined: gcc
// takes a function that does nothing but prefetch for one without effect, and leaves a call of it
// out.
static inline __attribute__((always_inline)) void fetch(size_t i) {
  enum { STEP = 8, FEW = 8 };
  if (i + 2 * STEP < active_count) __builtin_prefetch(active[i + 2 * STEP], 1);
  if (i + STEP >= active_count) return;
  const shards *set = active[i + STEP]->latest;
  if (!set || !active[i + STEP]->latest_by_cpu) return;
  for (unsigned p = 0; p < cpu_slots() && p < FEW; p++) __builtin_prefetch(shard_of(set, p));
}

// lock held; there is room.
static void join(tide_pool *pool) {
  if (pool->body->active) return;
  active[active_count] = pool;
  pool->body->active = ++active_count;
}

static void on_stopped(const tide_cycle *cycle, void *arg) {
  AO_store(&rounds, AO_load(&rounds) + 1);
  AO_store(&last_round_ns, cycle->stopped_at_ns);
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

// For the advisor. Two threads may be here, for two collections.
static void note_pace(const tide_cycle *c) {
  pool_pace *pace = &pool_pace_now;
  uint64_t before = AO_load(&pace->live_bytes), start = c->heap_start_bytes + c->external_bytes;
  uint64_t live = c->live_bytes + c->external_bytes;
  AO_fetch_and_add1(&pace->collections[c->cause]);
  if (before && start > before) AO_fetch_and_add(&pace->grown_bytes[c->cause], start - before);
  if (before) AO_fetch_and_add1(&pace->grown[c->cause]);
  AO_store(&pace->live_bytes, live);
  AO_store(&pace->scanned_bytes, live + c->stack_bytes + c->global_bytes);
}

static void on_end(const tide_cycle *cycle, void *arg) {
  note_pace(cycle);
  drop_all(NULL);
}

// A thread that forks may not take pinned locks while it can still be stopped. So this comes when
// the runtime has its own: handlers for before the fork run in the reverse order of installing, and
// a constructor of this priority comes before the runtime's.
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; // see rotate_init

static void lock_for_fork(void) {
  rt_pinned_lock_take(&lock);
}
static void unlock_after_fork(void) {
  rt_pinned_lock_give(&lock);
}
// What the other threads were about to do they do not do here: their counts go. Items of a set that
// one of them was dropping are lost to the child. A primary that one of them had put in place, and
// not told of yet, is told of.
static void mend_in_child(tide_pool *pool) {
  const shards *primary = primary_of(pool);
  AO_store(&pool->body->dropping, 0);
  careful_after_fork(pool);
  pool->replaced = primary->replaced;
  pool->primary_by_cpu = primary->cpus;
  if (primary != &no_shards && !pool->closed) join(pool);
}
static void unlock_in_child(void) {
  once = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  for (tide_pool *pool = all; pool; pool = pool->body->next) mend_in_child(pool);
  for (drop *d = own_drops; d; d = d->outer) AO_fetch_and_add1(&d->pool->body->dropping);
  walks = NULL;
  for (walk *w = own_walk; w; w = w->outer) { // a signal handler has forked, between two portions
    w->next = walks;
    walks = w;
  }
  rt_pinned_lock_give(&lock);
}
static int fork_handlers_error;
__attribute__((constructor(101))) static void install_fork_handlers(void) {
  fork_handlers_error = pthread_atfork(lock_for_fork, unlock_after_fork, unlock_in_child);
}

bool rotate_init(void) {
  if (fork_handlers_error) {
    rt_error_set(TIDE_ERR_MEMORY, "no memory for the fork handlers");
    return false;
  }
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
  pools_lock();
  bool ready = make_room(pools + 1);
  if (ready) {
    pools++;
    pool->body->next = all;
    if (all) all->body->prev = pool;
    all = pool;
  }
  pools_unlock();
  return ready;
}

void rotate_join(tide_pool *pool) {
  rt_pinned_lock_take(&lock);
  join(pool);
  rt_pinned_lock_give(&lock);
}

static void unlink_pool(const tide_pool *pool) {
  tide_pool *next = pool->body->next, *prev = pool->body->prev;
  *(prev ? &prev->body->next : &all) = next;
  if (next) next->body->prev = prev;
  for (walk *w = walks; w; w = w->next)
    if (w->at == pool) w->at = next;
  pools--;
}

// Unless there is something of it to be dropped. lock held.
static bool try_remove(const tide_pool *pool) {
  const pool_body *body = pool->body;
  if (body->active) leave(body->active - 1);
  if (AO_load_acquire(&body->dropping) || is_to_be_dropped(pool)) return false;
  unlink_pool(pool);
  return true;
}

// A `drop` that is under way in another thread may be in the middle of a put: then the pool has a
// set again, which collections rotate, and its items are to be dropped here. Until that is over it
// stays on the list of all, so that it has its room among those that have a set, and the child of a
// fork finds it.
void rotate_remove(tide_pool *pool) {
  for (unsigned tries = 0;; tries++) {
    pools_lock();
    bool removed = try_remove(pool);
    pools_unlock();
    if (removed) return;
    drop_all(pool);
    os_pause(tries);
  }
}

static void visit_some(walk *w, void (*fn)(tide_pool *pool, void *arg), void *arg) {
  enum { PORTION = 64 };
  for (int i = 0; i < PORTION && w->at; i++) {
    tide_pool *pool = w->at;
    w->at = pool->body->next;
    fn(pool, arg);
  }
}

void pools_for_each(void (*fn)(tide_pool *pool, void *arg), void *arg) {
  walk w;
  pools_lock();
  w = (walk){all, walks, own_walk};
  walks = own_walk = &w;
  while (visit_some(&w, fn, arg), w.at) { // the world may be stopped now
    pools_unlock();
    pools_lock();
  }
  walk **link = &walks;
  while (*link != &w) link = &(*link)->next;
  *link = w.next;
  own_walk = w.outer;
  pools_unlock();
}
