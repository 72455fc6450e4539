// SPDX-License-Identifier: MIT
// Get and put. What a pool is made of is in pool_private.h, what a collection does to it in
// rotate.c.
//
// Get looks in the own private slot; at the head of the own chain; at the tails of the other
// processors' chains; in the victims, the latest first: the own private slot there, then all tails.
// What is in the private slots of other processors is out of reach: theirs to take or to lose. A
// victim over which somebody has walked in vain is marked empty, since nothing is ever put into
// one.
//
// Put fills the own private slot, or pushes at the head of the own chain.
#include "careful.h"
#include "pool_private.h"

// ---- Get ------------------------------------------------------------------------------------

static void note_gap(tide_pool *pool, uint64_t since_round) {
  uint64_t gap = pool_round() - since_round;
  AO_fetch_and_add1(&pool->gaps[gap < GAPS ? gap : GAPS - 1]);
}

static void *take_from_victim(tide_pool *pool, rt_thread *self, shards *victim) {
  if (AO_load(&victim->empty)) return NULL; // orders nothing
  void *item = set_take_slot(victim, self);
  if (item && victim->cpus) count(pool, self, HIT_VICTIM_SLOT);
  if (!item) item = set_take_tail(victim, self->proc->index);
  if (!item) AO_store(&victim->empty, 1);
  return item;
}

static void *take_from_victims(tide_pool *pool, rt_thread *self, shards **from) {
  for (unsigned i = 0; i < pool->victims; i++) {
    *from = pool->victim[i];
    void *item = take_from_victim(pool, self, *from);
    if (!item) continue;
    note_gap(pool, (*from)->round);
    return item;
  }
  return NULL;
}

// All the places but the primary's slots by CPU: which it was, and in which set. Pinned.
static void *find(tide_pool *pool, rt_thread *self, pool_event *event, shards **from) {
  shards *primary = *from = primary_of(pool);
  void *item;
  *event = HIT_PRIVATE;
  if (!primary->cpus && (item = set_take_slot(primary, self))) return item;
  *event = HIT_SHARED;
  if ((item = set_take_head(primary, self))) return item;
  *event = HIT_STOLEN;
  if ((item = set_take_tail(primary, self->proc->index + 1))) return item;
  *event = HIT_VICTIM;
  if ((item = take_from_victims(pool, self, from))) return item;
  *event = MISS;
  uint64_t last_use = AO_load(&pool->last_use);
  if (last_use) note_gap(pool, last_use);
  return NULL;
}

static RT_NOINLINE void *get_slow(tide_pool *pool, rt_thread *self, const void *caller) {
  pool_event event;
  shards *from;
  rt_pin(self);
  void *item = find(pool, self, &event, &from);
  count(pool, self, event);
  rt_unpin(self);
  if (RT_UNLIKELY(pool->careful)) careful_got(pool, from, item, caller);
  if (item || !pool->create) return item;
  item = pool->create(pool->arg);
  if (item) AO_fetch_and_add1(&pool->created);
  if (item && RT_UNLIKELY(pool->check)) check_made(pool, item);
  return item;
}

void *tide_pool_get(tide_pool *pool) {
  rt_thread *self = rt_enter("tide_pool_get");
  if (RT_UNLIKELY(!self)) return NULL;
  void *item = cpu_take(&pool->primary);
  return RT_LIKELY(item) ? item : get_slow(pool, self, __builtin_return_address(0));
}

// ---- Put ------------------------------------------------------------------------------------

// What a put has found lacking, and what has been allocated for it since. Whatever is not needed in
// the end is left to the collector.
typedef struct supplies {
  uint64_t bytes;    // of the item, where the pool measures
  size_t ring_slots; // what is lacking: a ring with so many, or, if 0, a set
  struct ring *ring;
  shards *set;
} supplies;

static bool by_cpu(const tide_pool *pool, unsigned processors) {
  return processors == cpu_slots && !pool->careful && !rt_options.poolseed;
}

static bool supply_set(tide_pool *pool, supplies *s) {
  unsigned processors = (unsigned)tide_procs();
  if (!provide_tallies(pool, processors > cpu_slots ? processors : cpu_slots)) return false;
  s->set = tide_alloc_aligned(APART, set_bytes(processors), TIDE_SCANNED);
  if (!s->set) return false;
  s->set->count = processors;
  s->set->cpus = by_cpu(pool, processors) ? processors : 0;
  return true;
}

// Allocates what is lacking; not pinned, may collect. False: no memory.
static bool supply(tide_pool *pool, supplies *s) {
  if (!s->ring_slots) return supply_set(pool, s);
  void *memory = tide_alloc(ring_bytes(s->ring_slots));
  if (memory) s->ring = ring_init(memory, s->ring_slots);
  return memory;
}

// The pool is used again after some collections.
static void use_begins(tide_pool *pool, uint64_t round) {
  uint64_t last = AO_load(&pool->last_use);
  if (last == round || !AO_compare_and_swap(&pool->last_use, last, round)) return;
  AO_fetch_and_add1(&pool->uses);
  if (last) AO_fetch_and_add(&pool->use_gap_sum, round - last);
}

// The primary if it has a shard for processor p, else the supplied set in its place if that has
// one, else NULL. Pinned.
static shards *install(tide_pool *pool, unsigned p, supplies *s) {
  for (;;) {
    shards *primary = primary_of(pool), *set = s->set;
    if (p < primary->count) return primary;
    if (!set || p >= set->count) return NULL;
    set->replaced = primary == &no_shards ? NULL : primary;
    set->round = pool_round();
    // Release: pairs with the acquire in primary_of. Otherwise somebody else was faster, and has
    // made a primary that may do.
    if (!AO_compare_and_swap_release(&pool->primary, (AO_t)primary, (AO_t)set)) continue;
    s->set = NULL;
    use_begins(pool, set->round);
    rotate_join(pool);
    return set;
  }
}

// The slot of a set by processor, or the chain. Whoever has the processor. Returns the slots that a
// ring for it should have; 0: it is in.
static size_t push(shards *set, rt_thread *self, void *item, supplies *s) {
  shard *own = &set->shard[self->proc->index];
  if (!set->cpus && !own->slot.item && !careful_prefers_chain()) {
    AO_store((AO_t *)(void *)&own->slot.item, (AO_t)item);
    return 0;
  }
  return chain_push(&own->shared, item, &s->ring);
}

// One attempt, pinned. False: something is lacking.
static bool try_put(tide_pool *pool, rt_thread *self, void *item, supplies *s) {
  shards *primary = install(pool, self->proc->index, s);
  s->ring_slots = 0;
  if (!primary) return false;
  if (primary->cpus && cpu_put(&pool->primary, item)) return true; // it counts there
  rt_proc_hold(self);
  s->ring_slots = push(primary, self, item, s);
  if (!s->ring_slots) {
    count(pool, self, PUT);
    if (RT_UNLIKELY(pool->measures)) {
      AO_fetch_and_add1(&primary->items);
      AO_fetch_and_add(&primary->bytes, s->bytes);
    }
  }
  rt_proc_let_go(self);
  return !s->ring_slots;
}

// Every further attempt may be on another processor and find the pool rotated. False: no memory.
static bool put_somewhere(tide_pool *pool, rt_thread *self, void *item, uint64_t bytes) {
  supplies s = {.bytes = bytes};
  for (;;) {
    rt_pin(self);
    bool done = try_put(pool, self, item, &s);
    rt_unpin(self);
    if (done) return true;
    if (!supply(pool, &s)) return false;
  }
}

static RT_COLD void refuse(tide_pool *pool, void *item, pool_drop cause) {
  AO_fetch_and_add1(&pool->drops[cause]);
  pool_drop_item(pool, item);
}

static RT_NOINLINE void put_slow(tide_pool *pool, rt_thread *self, void *item) {
  if (!put_somewhere(pool, self, item, 0)) refuse(pool, item, DROP_MEMORY);
}

static RT_NOINLINE void put_carefully(tide_pool *pool, rt_thread *self, void *item,
                                      const void *caller) {
  uint64_t bytes;
  pool_drop cause;
  if (pool->check) check_put(pool, item, caller);
  if (pool->reset) pool->reset(item, pool->arg);
  if (!careful_put(pool, item, &bytes, &cause)) {
    refuse(pool, item, cause);
    return;
  }
  if (pool->check) check_cover(pool, item);
  bool in = put_somewhere(pool, self, item, bytes);
  careful_put_ends(pool, item, bytes, in);
  if (!in) refuse(pool, item, DROP_MEMORY);
}

void tide_pool_put(tide_pool *pool, void *item) {
  if (!item) return;
  rt_thread *self = rt_enter("tide_pool_put");
  if (RT_UNLIKELY(!self)) return;
  if (RT_UNLIKELY(pool->careful)) {
    put_carefully(pool, self, item, __builtin_return_address(0));
    return;
  }
  if (pool->reset) pool->reset(item, pool->arg);
  if (RT_UNLIKELY(!cpu_put(&pool->primary, item))) put_slow(pool, self, item);
}
