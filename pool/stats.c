// SPDX-License-Identifier: MIT
// Counting: what happened to a pool, without a locked operation where it happens often.
//
// What goes into the slot of a set by CPU and comes out counts in the slot itself (cpu_slot.h). All
// else is in tallies, in words that only one CPU changes, in a sequence, or only whoever has the
// processor. Where nobody has either, it is an atomic addition. Statistics are the sum; a reset
// remembers where the counters stood.
//
// What collections have dropped is what went in, is not there, and did not come out.
#include "pool_private.h"

#include <string.h>

static tallies no_tallies;

// Acquire: pairs with the release in provide_tallies.
static tallies *tallies_of(tide_pool *pool) {
  return (tallies *)AO_load_acquire(&pool->tallies);
}

void stats_init(tide_pool *pool) {
  pool->tallies = (AO_t)&no_tallies;
}

void count(tide_pool *pool, rt_thread *self, pool_event event) {
  size_t at = offsetof(tally, by_cpu) + event * sizeof(AO_t);
  if (RT_LIKELY(tide_cpu_count(&pool->tallies, at))) return;
  tallies *t = tallies_of(pool);
  unsigned p = self->proc->index;
  AO_t *counter = p < t->count ? &t->tally[p].by_processor[event] : &pool->body->counts[event];
  AO_fetch_and_add1(counter); // orders nothing
}

bool provide_tallies(tide_pool *pool, unsigned wanted) {
  for (;;) {
    tallies *older = tallies_of(pool);
    if (wanted <= older->count) return true;
    unsigned count = older->count ? older->count : 1;
    while (count < wanted) count *= 2; // so there will be few of these objects
    tallies *t = tide_alloc_aligned(APART, sizeof *t + count * sizeof(tally), TIDE_SCANNED);
    if (!t) return false;
    t->count = t->cpus = count;
    t->older = older;
    // Release: pairs with the acquire in tallies_of. If somebody else was faster, look again.
    if (AO_compare_and_swap_release(&pool->tallies, (AO_t)older, (AO_t)t)) return true;
  }
}

// ---- Adding up ------------------------------------------------------------------------------

static uint64_t sum(tide_pool *pool, pool_event event) {
  uint64_t total = AO_load(&pool->body->counts[event]);
  for (tallies *t = tallies_of(pool); t; t = t->older)
    for (unsigned i = 0; i < t->count; i++)
      total += AO_load(&t->tally[i].by_cpu[event]) + AO_load(&t->tally[i].by_processor[event]);
  return total;
}

static AO_t item_in(const cpu_slot *slot) {
  return AO_load((const AO_t *)(const void *)&slot->item);
}

// As it was at one moment: that of the look at the item, if the counts are the same before and
// after.
static void read_slot(const cpu_slot *slot, uint64_t *takes, uint64_t *puts) {
  AO_t t, p, item;
  do {
    t = AO_load(&slot->takes);
    p = AO_load(&slot->puts);
    AO_nop_read();
    item = item_in(slot);
    AO_nop_read();
  } while (AO_load(&slot->takes) != t || AO_load(&slot->puts) != p);
  *takes += item ? p - 1 : t;
  *puts += item ? p : t;
}

static void slots_of(const shards *set, unsigned cpus, uint64_t *takes, uint64_t *puts) {
  for (unsigned i = 0; i < cpus; i++) read_slot(&shard_of(set, i)->slot, takes, puts);
}

void settle(tide_pool *pool, const shards *set, unsigned cpus) {
  uint64_t takes = 0, puts = 0;
  slots_of(set, cpus, &takes, &puts);
  AO_store(&pool->takes, AO_load(&pool->takes) + takes);
  AO_store(&pool->slot_puts, AO_load(&pool->slot_puts) + puts);
}

// All sets that count and are not settled; pinned.
static void slots(tide_pool *pool, uint64_t *takes, uint64_t *puts) {
  *takes = AO_load(&pool->takes);
  *puts = AO_load(&pool->slot_puts);
  for (const shards *set = primary_of(pool); set; set = set->replaced)
    slots_of(set, set->cpus, takes, puts);
  for (unsigned i = 0; i < pool->victims; i++) {
    const shards *victim = pool->body->victim[i];
    slots_of(victim, victim->cpus, takes, puts);
  }
}

static uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

static uint64_t hits_of(const tide_pool_stats *s) {
  return s->hits_private + s->hits_shared + s->hits_stolen + s->hits_victim;
}

static void read_parts(tide_pool *pool, tide_pool_stats *s) {
  const shards *primary = primary_of(pool);
  s->items_primary = set_items(primary);
  s->bytes_primary = AO_load(&primary->bytes);
  for (unsigned i = 0; i < pool->victims; i++) {
    const shards *victim = pool->body->victim[i];
    s->items_victim += set_items(victim);
    s->bytes_victim += AO_load(&victim->bytes);
  }
}

// Since the pool was made. Pinned, so that no collection comes in between.
static void read_all(tide_pool *pool, tide_pool_stats *s) {
  pool_body *body = pool->body;
  uint64_t takes, slot_puts;
  slots(pool, &takes, &slot_puts);
  s->hits_shared = sum(pool, HIT_SHARED);
  s->hits_stolen = sum(pool, HIT_STOLEN);
  s->misses = sum(pool, MISS);
  s->puts = sum(pool, PUT) + slot_puts;
  uint64_t victim_slots = sum(pool, HIT_VICTIM_SLOT); // in the takes already
  s->hits_victim = sum(pool, HIT_VICTIM) + victim_slots;
  s->hits_private = sum(pool, HIT_PRIVATE) + less(takes, victim_slots);
  s->created = AO_load(&body->created);
  s->created_bytes = AO_load(&body->created_bytes);
  s->rotations = pool_round() - body->born;
  s->dropped_large = AO_load(&body->drops[DROP_LARGE]);
  s->dropped_full = AO_load(&body->drops[DROP_FULL]);
  s->dropped_memory = AO_load(&body->drops[DROP_MEMORY]);
  s->dropped_chaos = AO_load(&body->drops[DROP_CHAOS]);
  for (int i = 0; i < GAPS; i++) s->gaps[i] = AO_load(&body->gaps[i]);
  for (int i = 0; i < GAPS; i++) s->forgotten[i] = AO_load(&body->forgotten[i]);
  s->uses = AO_load(&body->uses);
  s->use_gap_sum = AO_load(&body->use_gap_sum);
  s->use_gap_squares = AO_load(&body->use_gap_squares);
  s->use_gap_ns = AO_load(&body->use_gap_ns);
  s->use_gap_most = AO_load(&body->use_gap_most);
  s->needed_most = AO_load(&body->needed_most);
  read_parts(pool, s);
  s->dropped_idle = less(s->puts, hits_of(s) + s->items_primary + s->items_victim);
}

// The counts of tide_pool_stats, but for gets.
#define COUNTS(X)                                                                                  \
  X(hits_private)                                                                                  \
  X(hits_shared)                                                                                   \
  X(hits_stolen)                                                                                   \
  X(hits_victim)                                                                                   \
  X(misses)                                                                                        \
  X(created)                                                                                       \
  X(puts)                                                                                          \
  X(rotations)                                                                                     \
  X(dropped_idle)                                                                                  \
  X(dropped_large)                                                                                 \
  X(dropped_full)                                                                                  \
  X(dropped_memory)                                                                                \
  X(dropped_chaos)                                                                                 \
  X(uses)                                                                                          \
  X(use_gap_sum)                                                                                   \
  X(use_gap_squares)                                                                               \
  X(use_gap_ns)                                                                                    \
  X(created_bytes)

// A reset may have come in the middle of another thread's get: one hit then moves from one kind to
// another. So the gets are those of the parts.
void stats_copy(tide_pool *pool, tide_pool_stats *stats) {
  const tide_pool_stats *then = &pool->body->at_reset;
  read_all(pool, stats);
#define SINCE_RESET(field) stats->field = less(stats->field, then->field);
  COUNTS(SINCE_RESET)
#undef SINCE_RESET
  for (int i = 0; i < GAPS; i++) {
    stats->gaps[i] = less(stats->gaps[i], then->gaps[i]);
    stats->forgotten[i] = less(stats->forgotten[i], then->forgotten[i]);
  }
  stats->gets = hits_of(stats) + stats->misses;
}

uint64_t stats_lost(tide_pool *pool) {
  tide_pool_stats s = {0};
  read_all(pool, &s);
  uint64_t answered = 0;
  for (int i = 0; i < GAPS; i++) answered += s.forgotten[i];
  return less(s.dropped_idle, answered);
}

void tide_pool_stats_read(tide_pool *pool, tide_pool_stats *stats) {
  memset(stats, 0, sizeof *stats);
  rt_thread *self = rt_enter("tide_pool_stats_read");
  if (!self) return;
  rt_pin(self);
  stats_copy(pool, stats);
  rt_unpin(self);
}

void tide_pool_stats_reset(tide_pool *pool) {
  rt_thread *self = rt_enter("tide_pool_stats_reset");
  if (!self) return;
  tide_pool_stats now = {0};
  rt_pin(self);
  read_all(pool, &now);
  rt_unpin(self);
  pool->body->at_reset = now;
  AO_store(&pool->body->use_gap_most, 0);
  AO_store(&pool->body->needed_most, 0);
}
