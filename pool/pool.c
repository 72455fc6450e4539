// SPDX-License-Identifier: MIT
// Pools: idle items kept per processor, and lost at the collector's second visit.
//
// Each processor has a shard: a private slot, which only it touches, and a chain (ring.h), which it
// pushes and pops at the head while others steal from the tail. Everything that a get or a put does
// happens in one pinned section on a processor, so a shard has one user at a time, and a collection
// finds every pool between two steps, never inside one.
//
// The shards of all processors are one object on the collected heap, a *set*. A pool has two: the
// *primary* takes the puts; the *victim* is what was the primary before the last collection. When
// the world stops, `rotate` makes the primary the victim and forgets the victim before it: in this
// very collection it is found to be garbage, and with it every item that only the pool knew. So an
// item that nobody asks for survives one collection and is lost at the second. That is the whole
// rule; it costs a few stores a pool, however many processors and items there are, and the
// collector knows nothing of it.
//
// The next put makes a new primary. So does one on a processor that the primary has no shard for,
// when there are more processors than before; the items of the old one are lost then. A thread that
// still works on the old one does no harm, for nobody new finds it.
//
// What holds between pinned sections: an item is in one place of one set. Sets change only in
// `install`, which puts in the primary by one compare-and-swap, and in `rotate`, while nobody is
// pinned. Pinned sections neither allocate nor wait: what a put lacks it allocates outside, where a
// collection may rotate the pool, and then begins again.
#include "ring.h"
#include "rt.h"
#include <string.h>
#include <tidepool/gc.h>
#include <tidepool/pool.h>

#define APART 128 // bytes between processors' data: two cache lines, as they are fetched in pairs

struct shard {
  void *private;
  struct chain shared;
} __attribute__((aligned(APART)));

struct shards {
  unsigned count; // of processors
  struct shard shard[];
};

// The set of a pool that has none.
static struct shards no_shards;

// What is counted: rotations, how gets have ended, and puts.
enum event { ROTATION, HIT_PRIVATE, HIT_SHARED, HIT_STOLEN, HIT_VICTIM, MISS, PUT, EVENTS };

struct tally {
  AO_t counts[EVENTS]; // changed only by whoever has the processor
} __attribute__((aligned(APART)));

// The counts of all processors. Where there are more processors than before, they go on in a larger
// object, and the old one stays behind it with what it has.
struct tallies {
  unsigned count; // of processors
  struct tallies *older;
  struct tally tally[];
};

static struct tallies no_tallies;

struct tide_pool {
  AO_t primary;          // struct shards *
  AO_t tallies;          // struct tallies *
  struct shards *victim; // changes only while the world is stopped
  AO_t victim_empty;     // somebody has walked over the whole victim and found nothing
  void *(*create)(void *arg);
  void *arg;
  tide_hook *hook;
  AO_t counts[EVENTS]; // rotations, and what happened on processors without a tally
  AO_t counts_at_reset[EVENTS];
  char name[];
};

// Acquire: pairs with the release in install, so the set is seen as it was made.
static inline struct shards *primary_of(tide_pool *pool) {
  return (struct shards *)AO_load_acquire(&pool->primary);
}

// Acquire: pairs with the release in provide_tallies.
static inline struct tallies *tallies_of(tide_pool *pool) {
  return (struct tallies *)AO_load_acquire(&pool->tallies);
}

// Pinned on processor p.
static inline void count(tide_pool *pool, unsigned p, enum event event) {
  struct tallies *tallies = tallies_of(pool);
  if (RT_UNLIKELY(p >= tallies->count)) {
    AO_fetch_and_add1(&pool->counts[event]); // orders nothing
    return;
  }
  // One writer: no locked operation. Atomic, because statistics are read meanwhile.
  AO_t *counter = &tallies->tally[p].counts[event];
  AO_store(counter, AO_load(counter) + 1);
}

// ---- Get ------------------------------------------------------------------------------------

// An item from the tail of any chain of the set, beginning at processor `first`.
static void *take_from_tails(struct shards *set, unsigned first) {
  for (unsigned i = 0; i < set->count; i++) {
    void *item = chain_pop_tail(&set->shard[(first + i) % set->count].shared);
    if (item) return item;
  }
  return NULL;
}

// What is in the private slots of other processors is out of reach: theirs to take or to lose.
static void *take_from_victim(tide_pool *pool, unsigned p) {
  if (AO_load(&pool->victim_empty)) return NULL; // orders nothing
  struct shards *victim = pool->victim;
  if (p < victim->count && victim->shard[p].private) {
    void *item = victim->shard[p].private;
    victim->shard[p].private = NULL;
    return item;
  }
  void *item = take_from_tails(victim, p);
  // Nothing is ever put into a victim, so there is no need to walk over this one again.
  if (!item) AO_store(&pool->victim_empty, 1);
  return item;
}

// All the places after the private slot, and which it was.
static void *find(tide_pool *pool, unsigned p, enum event *event) {
  struct shards *primary = primary_of(pool);
  void *item;
  *event = HIT_SHARED;
  if (p < primary->count && (item = chain_pop_head(&primary->shard[p].shared))) return item;
  *event = HIT_STOLEN;
  if ((item = take_from_tails(primary, p + 1))) return item;
  *event = HIT_VICTIM;
  if ((item = take_from_victim(pool, p))) return item;
  *event = MISS;
  return NULL;
}

// The rest of a get, pinned on processor p with nothing in its private slot; unpins.
static RT_NOINLINE void *get_slow(tide_pool *pool, rt_thread *self, unsigned p) {
  enum event event;
  void *item = find(pool, p, &event);
  count(pool, p, event);
  rt_proc_unpin(self);
  if (!item && pool->create) item = pool->create(pool->arg);
  return item;
}

void *tide_pool_get(tide_pool *pool) {
  rt_thread *self = rt_enter("tide_pool_get");
  if (RT_UNLIKELY(!self)) return NULL;
  unsigned p = rt_proc_pin(self);
  struct shards *primary = primary_of(pool);
  if (RT_UNLIKELY(p >= primary->count || !primary->shard[p].private))
    return get_slow(pool, self, p);
  void *item = primary->shard[p].private;
  primary->shard[p].private = NULL;
  count(pool, p, HIT_PRIVATE);
  rt_proc_unpin(self);
  return item;
}

// ---- Put ------------------------------------------------------------------------------------

// What a put has found lacking, and what has been allocated for it since. Whatever is not needed in
// the end is left to the collector.
struct supplies {
  size_t ring_slots; // what is lacking: a ring with so many, or, if 0, a set
  struct ring *ring;
  struct shards *set;
};

// Makes sure that processors below `wanted` have a tally. False: no memory.
static bool provide_tallies(tide_pool *pool, unsigned wanted) {
  for (;;) {
    struct tallies *older = tallies_of(pool);
    if (wanted <= older->count) return true;
    unsigned procs = older->count ? older->count : 1;
    while (procs < wanted) procs *= 2; // so there will be few of these objects
    size_t bytes = sizeof(struct tallies) + procs * sizeof(struct tally);
    struct tallies *tallies = tide_alloc_aligned(APART, bytes, TIDE_SCANNED);
    if (!tallies) return false;
    tallies->count = procs;
    tallies->older = older;
    // Release: pairs with the acquire in tallies_of. If somebody else was faster, look again.
    if (AO_compare_and_swap_release(&pool->tallies, (AO_t)older, (AO_t)tallies)) return true;
  }
}

// Allocates what is lacking; not pinned, may collect. False: no memory.
static bool supply(tide_pool *pool, struct supplies *supplies) {
  if (supplies->ring_slots) {
    void *memory = tide_alloc(ring_bytes(supplies->ring_slots));
    if (memory) supplies->ring = ring_init(memory, supplies->ring_slots);
    return memory;
  }
  unsigned procs = (unsigned)tide_procs();
  if (!provide_tallies(pool, procs)) return false;
  size_t bytes = sizeof(struct shards) + procs * sizeof(struct shard);
  supplies->set = tide_alloc_aligned(APART, bytes, TIDE_SCANNED);
  if (supplies->set) supplies->set->count = procs;
  return supplies->set;
}

// The primary if it has a shard for processor p, else the supplied set in its place if that has
// one, else NULL. Pinned.
static struct shards *install(tide_pool *pool, unsigned p, struct supplies *supplies) {
  for (;;) {
    struct shards *primary = primary_of(pool), *set = supplies->set;
    if (p < primary->count) return primary;
    if (!set || p >= set->count) return NULL;
    // Release: pairs with the acquire in primary_of. Otherwise somebody else was faster, and has
    // made a primary that may do.
    if (AO_compare_and_swap_release(&pool->primary, (AO_t)primary, (AO_t)set)) return set;
  }
}

// One attempt, pinned on processor p. False: something is lacking.
static bool try_put(tide_pool *pool, unsigned p, void *item, struct supplies *supplies) {
  struct shards *primary = install(pool, p, supplies);
  supplies->ring_slots = 0;
  if (!primary) return false;
  struct shard *own = &primary->shard[p];
  if (!own->private)
    own->private = item;
  else
    supplies->ring_slots = chain_push(&own->shared, item, &supplies->ring);
  if (supplies->ring_slots) return false;
  count(pool, p, PUT);
  return true;
}

// The rest of a put, pinned on processor p; unpins. Every further attempt may be on another
// processor and find the pool rotated.
static RT_NOINLINE void put_slow(tide_pool *pool, rt_thread *self, unsigned p, void *item) {
  struct supplies supplies = {0};
  while (!try_put(pool, p, item, &supplies)) {
    rt_proc_unpin(self);
    if (!supply(pool, &supplies)) return; // no memory: the item is dropped
    p = rt_proc_pin(self);
  }
  rt_proc_unpin(self);
}

void tide_pool_put(tide_pool *pool, void *item) {
  if (!item) return;
  rt_thread *self = rt_enter("tide_pool_put");
  if (RT_UNLIKELY(!self)) return;
  unsigned p = rt_proc_pin(self);
  struct shards *primary = primary_of(pool);
  if (RT_UNLIKELY(p >= primary->count || primary->shard[p].private)) {
    put_slow(pool, self, p, item);
    return;
  }
  primary->shard[p].private = item;
  count(pool, p, PUT);
  rt_proc_unpin(self);
}

// ---- Pools ----------------------------------------------------------------------------------

// The hook at TIDE_STW_START.
static void rotate(const tide_cycle *cycle, void *arg) {
  tide_pool *pool = arg;
  pool->victim = primary_of(pool);
  pool->victim_empty = 0;
  pool->primary = (AO_t)&no_shards;
  uint64_t rotations = ++pool->counts[ROTATION];
  rt_event_labelled(TIDE_EVENT_ROTATE, cycle->stopped_at_ns, 0, rotations, 0, pool->name);
}

tide_pool *tide_pool_create(const tide_pool_options *options) {
  if (!rt_enter("tide_pool_create")) return NULL;
  static const tide_pool_options defaults;
  if (!options) options = &defaults;
  const char *name = options->name ? options->name : "pool";
  size_t name_bytes = strlen(name) + 1;
  // Uncollectable, hence a root, for the sets, the tallies and arg.
  tide_pool *pool = tide_alloc_uncollectable(sizeof *pool + name_bytes);
  if (!pool) return NULL;
  memcpy(pool->name, name, name_bytes);
  pool->create = options->create;
  pool->arg = options->arg;
  pool->primary = (AO_t)&no_shards;
  pool->victim = &no_shards;
  pool->tallies = (AO_t)&no_tallies;
  pool->hook = tide_hook_add(TIDE_STW_START, rotate, pool);
  if (pool->hook) return pool;
  tide_free(pool);
  return NULL;
}

void tide_pool_destroy(tide_pool *pool) {
  if (!pool || !rt_enter("tide_pool_destroy")) return;
  tide_hook_remove(pool->hook);
  tide_free(pool);
}

// ---- Statistics -----------------------------------------------------------------------------

static uint64_t sum(tide_pool *pool, enum event event) {
  uint64_t total = AO_load(&pool->counts[event]);
  for (struct tallies *tallies = tallies_of(pool); tallies; tallies = tallies->older)
    for (unsigned p = 0; p < tallies->count; p++)
      total += AO_load(&tallies->tally[p].counts[event]);
  return total;
}

static uint64_t since_reset(tide_pool *pool, enum event event) {
  // Acquire: pairs with the release in tide_pool_stats_reset. The sum is not older than this.
  uint64_t before = AO_load_acquire(&pool->counts_at_reset[event]);
  return sum(pool, event) - before;
}

void tide_pool_stats_read(tide_pool *pool, tide_pool_stats *stats) {
  memset(stats, 0, sizeof *stats);
  if (!rt_enter("tide_pool_stats_read")) return;
  stats->hits_private = since_reset(pool, HIT_PRIVATE);
  stats->hits_shared = since_reset(pool, HIT_SHARED);
  stats->hits_stolen = since_reset(pool, HIT_STOLEN);
  stats->hits_victim = since_reset(pool, HIT_VICTIM);
  stats->misses = since_reset(pool, MISS);
  stats->gets = stats->hits_private + stats->hits_shared + stats->hits_stolen + stats->hits_victim +
                stats->misses;
  stats->puts = since_reset(pool, PUT);
  stats->rotations = since_reset(pool, ROTATION);
}

// The counters belong to the processors; a reset only notes where they stand.
void tide_pool_stats_reset(tide_pool *pool) {
  if (!rt_enter("tide_pool_stats_reset")) return;
  for (int event = 0; event < EVENTS; event++) {
    // Release: pairs with the acquire in since_reset.
    AO_store_release(&pool->counts_at_reset[event], sum(pool, (enum event)event));
  }
}
