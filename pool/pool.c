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
#include "record_pool.h"

// ---- Get ------------------------------------------------------------------------------------

static void count_gap(AO_t *counts, uint64_t gap) {
  AO_fetch_and_add1(&counts[gap < GAPS ? gap : GAPS - 1]);
}

static void note_gap(tide_pool *pool, uint64_t since_round) {
  count_gap(pool->body->gaps, pool_round() - since_round);
}

// Whether an item that a collection took would have answered it: see pool_private.h.
static bool take_lost(tide_pool *pool) {
  pool_body *body = pool->body;
  AO_t lost, round = pool_round(), as_of = AO_load(&body->lost_as_of);
  if (as_of != round && AO_compare_and_swap(&body->lost_as_of, as_of, round))
    AO_store(&body->lost, stats_lost(pool));
  while ((lost = AO_load(&body->lost)))
    if (AO_compare_and_swap(&body->lost, lost, lost - 1)) return true;
  return false;
}

static void note_miss(tide_pool *pool) {
  pool_body *body = pool->body;
  uint64_t last_use = AO_load(&body->last_use);
  if (!last_use) return;
  note_gap(pool, last_use);
  if (!take_lost(pool)) return;
  uint64_t gap = pool_round() - last_use; // 0: the pool has been put to in this period already
  count_gap(body->forgotten, gap ? gap : AO_load(&body->last_gap));
}

// The primary has not answered. How often in this period, and in which, is one word: it begins anew
// without anybody's help.
static void note_need(pool_body *body) {
  if (!AO_load(&body->last_use)) return; // nothing was ever put: threads share nothing
  AO_t before, now, most, round = (AO_t)(uint32_t)pool_round() << 32;
  do {
    before = AO_load(&body->needed);
    now = before >> 32 << 32 == round ? before + 1 : round + 1;
  } while (!AO_compare_and_swap(&body->needed, before, now));
  now = (uint32_t)now;
  while ((most = AO_load(&body->needed_most)) < now)
    if (AO_compare_and_swap(&body->needed_most, most, now)) return;
}

static void *take_from_victim(shards *victim, rt_thread *self, pool_event *event) {
  if (AO_load(&victim->empty)) return NULL; // orders nothing
  void *item = set_take_slot(victim, self);
  *event = item && victim->cpus ? HIT_VICTIM_SLOT : HIT_VICTIM;
  if (!item) item = set_take_tail(victim, set_proc(victim, self)->index);
  if (!item) AO_store(&victim->empty, 1);
  return item;
}

static void *take_from_victims(tide_pool *pool, rt_thread *self, pool_event *event, shards **from) {
  for (unsigned i = 0; i < pool->victims; i++) {
    *from = pool->body->victim[i];
    void *item = take_from_victim(*from, self, event);
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
  if ((item = set_take_tail(primary, set_proc(primary, self)->index + 1))) return item;
  note_need(pool->body);
  if ((item = take_from_victims(pool, self, event, from))) return item;
  *event = MISS;
  note_miss(pool);
  return NULL;
}

static void *make(tide_pool *pool) {
  void *item = pool->body->create ? pool->body->create(pool->body->arg) : NULL;
  if (!item) return NULL;
  AO_fetch_and_add1(&pool->body->created);
  AO_fetch_and_add(&pool->body->created_bytes, tide_size(item));
  if (RT_UNLIKELY(pool->body->check)) check_made(pool, item);
  return item;
}

// Also for a thread that is not registered, or may not use the heap: it has no slot.
static void *get_slow(tide_pool *pool, const void *caller) {
  rt_thread *self = rt_enter("tide_pool_get");
  if (!self) return NULL;
  pool_event event;
  shards *from;
  rt_pin(self);
  void *item = find(pool, self, &event, &from);
  count(pool, self, event);
  rt_unpin(self);
  if (RT_UNLIKELY(pool->careful)) careful_got(pool, from, item, caller);
  if (RT_UNLIKELY(pool->body->recorded)) return record_pool_get(pool, item, make);
  return item ? item : make(pool);
}

void *tide_pool_get_slow(tide_pool *pool) {
  return get_slow(pool, __builtin_return_address(0));
}

void *tide_pool_get(tide_pool *pool) {
  void *item = tide_cpu_take(pool);
  return item ? item : get_slow(pool, __builtin_return_address(0));
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
  return processors == cpu_slots() && !pool->careful && !rt_options.poolseed;
}

static bool supply_set(tide_pool *pool, supplies *s) {
  unsigned processors = (unsigned)tide_procs();
  if (!provide_tallies(pool, processors > cpu_slots() ? processors : cpu_slots())) return false;
  s->set = tide_alloc_aligned(APART, set_bytes(processors), TIDE_SCANNED);
  if (!s->set) return false;
  s->set->count = processors;
  s->set->cpus = by_cpu(pool, processors) ? processors : 0;
  return true;
}

// Allocates what is lacking; not pinned, may collect. False: no memory.
static bool supply(tide_pool *pool, rt_thread *self, supplies *s) {
  unsigned made_for = rt_record_for(RT_RECORD_OWN);
  rt_quiet_begin(self);
  void *memory = s->ring_slots ? tide_alloc(ring_bytes(s->ring_slots)) : NULL;
  bool there = s->ring_slots ? memory != NULL : supply_set(pool, s);
  rt_quiet_end(self);
  rt_record_for(made_for);
  if (memory) s->ring = ring_init(memory, s->ring_slots);
  return there;
}

// The pool is used again after some collections.
static void use_begins(pool_body *body, uint64_t round) {
  uint64_t last = AO_load(&body->last_use);
  if (last == round || !AO_compare_and_swap(&body->last_use, last, round)) return;
  AO_fetch_and_add1(&body->uses);
  uint64_t now_ns = os_now_ns(), last_ns = AO_load(&body->last_use_ns), gap = round - last;
  AO_store(&body->last_use_ns, now_ns);
  if (!last) return;
  AO_store(&body->last_gap, gap);
  AO_fetch_and_add(&body->use_gap_sum, gap);
  AO_fetch_and_add(&body->use_gap_squares, gap * gap);
  AO_fetch_and_add(&body->use_gap_ns, now_ns - last_ns);
  if (gap > AO_load(&body->use_gap_most)) AO_store(&body->use_gap_most, gap);
}

// The primary if it has a shard for the thread, whose processor there is then *proc; else the
// supplied set in its place if that has one; else NULL. Pinned.
static shards *install(tide_pool *pool, rt_thread *self, supplies *s, rt_proc **proc) {
  for (;;) {
    shards *primary = primary_of(pool), *set = s->set;
    *proc = set_proc(primary, self);
    if ((*proc)->index < primary->count) return primary;
    if (!set) return NULL;
    *proc = set_proc(set, self);
    if ((*proc)->index >= set->count) return NULL;
    set->replaced = primary == &no_shards ? NULL : primary;
    set->round = pool_round();
    set->since_ns = pool_round_since_ns();
    // Release: pairs with the acquire in primary_of. Otherwise somebody else was faster, and has
    // made a primary that may do.
    if (!AO_compare_and_swap_release(&pool->primary, (AO_t)primary, (AO_t)set)) continue;
    s->set = NULL;
    if (set->replaced)
      pool->replaced = true;
    else
      pool->primary_by_cpu = set->cpus;
    use_begins(pool->body, set->round);
    rotate_join(pool);
    return set;
  }
}

// The slot of a set by processor, or the chain. Whoever has the processor. Returns the slots that a
// ring for it should have; 0: it is in.
static size_t push(shards *set, const rt_proc *proc, void *item, supplies *s) {
  shard *own = shard_of(set, proc->index);
  if (!set->cpus && !own->slot.item && !careful_prefers_chain()) {
    AO_store((AO_t *)(void *)&own->slot.item, (AO_t)item);
    return 0;
  }
  return chain_push(&own->shared, item, &s->ring);
}

// One attempt, pinned. False: something is lacking.
static bool try_put(tide_pool *pool, rt_thread *self, void *item, supplies *s) {
  rt_proc *proc;
  shards *primary = install(pool, self, s, &proc);
  s->ring_slots = 0;
  if (!primary) return false;
  if (primary->cpus && tide_cpu_put(&pool->primary, item)) return true; // it counts there
  rt_proc_hold(proc);
  s->ring_slots = push(primary, proc, item, s);
  if (!s->ring_slots) {
    count(pool, self, PUT);
    if (RT_UNLIKELY(pool->body->measures)) {
      AO_fetch_and_add1(&primary->items);
      AO_fetch_and_add(&primary->bytes, s->bytes);
    }
  }
  rt_proc_let_go(proc);
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
    if (!supply(pool, self, &s)) return false;
  }
}

static RT_COLD void refuse(tide_pool *pool, void *item, pool_drop cause) {
  AO_fetch_and_add1(&pool->body->drops[cause]);
  pool_drop_item(pool, item);
}

static void put_carefully(tide_pool *pool, rt_thread *self, void *item, const void *caller) {
  uint64_t bytes;
  pool_drop cause;
  if (pool->body->check) check_put(pool, item, caller);
  if (pool->reset) pool->reset(item, pool->body->arg);
  bool wanted = careful_put(pool, item, &bytes, &cause);
  if (pool->body->recorded) record_pool_put(pool, item, cause == DROP_CLOSED ? 0 : bytes);
  if (!wanted) {
    refuse(pool, item, cause);
    return;
  }
  if (pool->body->check) check_cover(pool, item);
  bool in = put_somewhere(pool, self, item, bytes);
  careful_put_ends(pool, item, bytes, in);
  if (!in) refuse(pool, item, DROP_MEMORY);
}

// Careful pools have no sets by CPU: all their puts come here.
static void put_slow(tide_pool *pool, void *item, const void *caller) {
  if (!item) return;
  rt_thread *self = rt_enter("tide_pool_put");
  if (!self) return;
  if (RT_UNLIKELY(pool->careful)) {
    put_carefully(pool, self, item, caller);
    return;
  }
  if (pool->reset) pool->reset(item, pool->body->arg);
  if (!tide_cpu_put(pool, item) && !put_somewhere(pool, self, item, 0))
    refuse(pool, item, DROP_MEMORY);
}

void tide_pool_put_slow(tide_pool *pool, void *item) {
  put_slow(pool, item, __builtin_return_address(0));
}

void tide_pool_put(tide_pool *pool, void *item) {
  put_slow(pool, item, __builtin_return_address(0));
}
