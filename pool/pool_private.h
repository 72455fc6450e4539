// SPDX-License-Identifier: MIT
// A pool's inside, for the files of pool/. Read this before pool.c.
//
//   set.c      sets of shards: taking from them, putting into them, what is in them
//   pool.c     get and put
//   rotate.c   what a collection does to pools: the rule
//   stats.c    counting
//   careful.c  limits, checks and chaos, for pools that have any
//   checks.c   TIDE_DEBUG=poolcheck=1
//   pools.c    making and destroying
//   advice.c   what is wrong with a pool, and what would help: computed from copies of numbers
//   report.c   the reports that say so
//
// Each processor has a shard: a private slot, which only it touches, and a chain (ring.h), which it
// pushes and pops at the head while others steal from the tail. The shards of all processors are
// one object on the collected heap, a *set*. A pool has several: the *primary* takes the puts; the
// *victims* are what was the primary before each of the last collections, the latest first.
//
// A processor is a number that the runtime gives a thread (runtime/proc.c). Where there are as many
// processors as CPUs, a shard is the CPU's that the thread is on instead: its private slot is used
// in a restartable sequence (cpu_slot.h), so a get and a put take neither a lock nor a locked
// operation, and its chain under the lock of the processor of that number, which hardly any two
// threads then ask for at a time. A set is one or the other for its life, `by CPU` or `by
// processor`.
//
// What holds between pinned sections: an item is in one place of one set. Sets come in `install`,
// by one compare-and-swap on the primary, and go in `rotate`, while nobody is pinned or in a
// sequence. Pinned sections neither allocate nor wait: what a put lacks it allocates outside, where
// a collection may rotate the pool, and then begins again.
#ifndef TIDEPOOL_POOL_PRIVATE_H
#define TIDEPOOL_POOL_PRIVATE_H

#define TIDE_POOL_CALLS // no inline gets and puts in here
#include "cpu_slot.h"
#include "ring.h"
#include "rt.h"
#include <tidepool/gc.h>
#include <tidepool/pool.h>

// The slot in a line of its own: it changes without the lock.
typedef struct shard {
  cpu_slot slot; // by CPU: the CPU's. Else its counts are not used: the tally has them
  struct chain shared __attribute__((aligned(64))); // pushed and popped under the processor's lock
} __attribute__((aligned(APART))) shard;

typedef struct shards {
  uint16_t count;          // of processors
  uint16_t age;            // a victim: collections since it was the primary
  unsigned cpus;           // = count, if the set is by CPU; else 0. cpu_slot.h looks at it
  AO_t empty;              // a victim: somebody has walked over all of it and found nothing
  AO_t items, bytes;       // in it, where the pool measures
  struct shards *replaced; // the primary before it, of fewer processors, until the next collection
  uint64_t round;          // the collections there had been when it was made
  union {
    struct { // times: when it was the primary last, and of the last collection before it was made
      uint64_t retired_at_ns, since_ns;
    };
    struct { // on the list of sets whose items are to be dropped: whose it was
      struct shards *next;
      tide_pool *pool;
    };
  };
  shard shard[];
} shards;

_Static_assert(offsetof(shards, cpus) == TIDE_CPU_COUNT_AT &&
                   offsetof(shards, shard) == TIDE_CPU_WORDS_AT && offsetof(shard, slot) == 0 &&
                   sizeof(shard) == APART,
               "the sequences of cpu_slot.h find their words");

static inline shard *shard_of(const shards *set, unsigned p) {
  return (shard *)(uintptr_t)&set->shard[p];
}

extern shards no_shards; // the set of a pool that has none

// What is counted, besides the takes of sets by CPU.
typedef enum pool_event {
  HIT_PRIVATE, // of a set by processor
  HIT_SHARED,
  HIT_STOLEN,
  HIT_VICTIM,
  HIT_VICTIM_SLOT, // the same, out of the slot of a set by CPU, where it counts as a take
  MISS,
  PUT, // but into the slot of a set by CPU
  POOL_EVENTS
} pool_event;

// Events that are seen by whoever holds the processor, or by the CPU. 128 bytes in all.
typedef struct tally {
  AO_t by_cpu[8];
  AO_t by_processor[8];
} __attribute__((aligned(APART))) tally;

// The counts of all processors. Where there are more processors than before, they go on in a larger
// object, and the old one stays behind it with what it has.
typedef struct tallies {
  unsigned count; // of processors
  unsigned cpus;  // the same; cpu_slot.h looks at it
  struct tallies *older;
  tally tally[];
} tallies;

_Static_assert(offsetof(tallies, cpus) == TIDE_CPU_COUNT_AT &&
                   offsetof(tallies, tally) == TIDE_CPU_WORDS_AT && sizeof(tally) == APART,
               "the sequences of cpu_slot.h find their words");

enum { GAPS = TIDE_POOL_GAPS, POOL_HEAD_BYTES = 64 };

// Causes of drops that are counted; those by collections follow from the other counts.
typedef enum pool_drop {
  DROP_LARGE,
  DROP_FULL,
  DROP_MEMORY,
  DROP_CHAOS,
  DROP_CLOSED,
  POOL_DROPS
} pool_drop;

// What a pool is besides its head: settings, and what is counted on slow ways.
typedef struct pool_body {
  bool measures; // items and bytes of each set are counted
  bool created_only;
  uint16_t survive; // collections
  uint16_t victims_most;
  unsigned recorded;        // its number in the recording; 0: none
  shards **victim;          // the latest first: `latest`, or behind the body
  struct pool_check *check; // checks.c's; NULL: poolcheck is off

  void *arg;
  void (*drop)(void *item, void *arg);
  void *(*create)(void *arg);
  size_t (*size)(const void *item, void *arg);
  uint64_t max_item_bytes, max_bytes, max_items; // UINT64_MAX: none
  uint64_t min_idle_ns;

  size_t active;          // 1 + its place among the pools that have a set; 0: none
  AO_t dropping;          // threads that drop items of it
  tide_pool *next, *prev; // of all pools

  AO_t counts[POOL_EVENTS];            // what happened where there was no tally
  AO_t drops[POOL_DROPS], created;     //
  AO_t created_bytes;                  // as tide_size has them
  AO_t reserved_items, reserved_bytes; // about to be put, where the pool measures
  AO_t gaps[GAPS];
  AO_t last_use, uses, use_gap_sum; // rounds, see use_begins; last_use 0: none yet
  // The same for the advisor. `lost` is items that the pool would have besides if it forgot
  // nothing: those that collections have taken, less the misses since, which they would have
  // answered; as of the round of `lost_as_of`.
  AO_t lost, lost_as_of;
  AO_t forgotten[GAPS];                         // misses that took one from `lost`, by gap
  AO_t needed, needed_most;                     // see note_need
  AO_t last_gap, use_gap_most, use_gap_squares; // rounds
  AO_t last_use_ns, use_gap_ns;                 // when the last use began; added up
  uint64_t born;                                // round
  tide_pool_stats at_reset;
  const char *name; // behind the body
} pool_body;

// The head: one cache line, which is all that most gets, puts and rotations look at. Heads lie side
// by side (heads.c), so that a rotation of many pools goes through few pages.
struct tide_pool {
  AO_t primary; // shards *
  AO_t tallies; // struct tallies *
  void (*reset)(void *item, void *arg);
  pool_body *body;
  shards *latest;        // the latest victim, of a plain pool
  AO_t takes, slot_puts; // of sets by CPU that are no more
  bool careful;          // gets and puts take the long way
  bool closed;           // being destroyed
  bool plain : 1;        // survive is 1 or 0, and no time is asked for
  bool keeps : 1;        // survive is not 0
  bool tells : 1;        // somebody is to be told of what is dropped
  bool replaced;         // the primary has taken the place of another one
  bool primary_by_cpu;   // if it has not: it is by CPU
  bool latest_by_cpu;    // the latest victim is
  uint16_t victims;      // in use; changes while the world is stopped, as does what is behind
};
_Static_assert(sizeof(struct tide_pool) == POOL_HEAD_BYTES, "a head is a cache line");

// Whether somebody is to be told of each item that it lets go.
static inline bool tells_drops(const tide_pool *pool) {
  return pool->body->drop || pool->body->check;
}

// Collections that pools have seen, and one: so that 0 is none of them.
uint64_t pool_round(void);
uint64_t pool_round_since_ns(void); // when the last one was; 0: there was none

_Static_assert(offsetof(struct tide_pool, primary) == offsetof(tide_pool_head, primary) &&
                   offsetof(struct tide_pool, reset) == offsetof(tide_pool_head, reset),
               "inline gets and puts find what they need");

static inline shards *primary_of(const tide_pool *pool) {
  // Acquire: pairs with the release in install, so the set is seen as it was made.
  return (shards *)AO_load_acquire(&pool->primary);
}

// ---- heads.c --------------------------------------------------------------------------------

// A head that is zero, and a body with so many bytes behind it; a root. NULL: no memory.
tide_pool *pool_allocate(size_t behind_bytes);
void pool_free(tide_pool *pool);

// ---- set.c ----------------------------------------------------------------------------------

size_t set_bytes(unsigned processors);
// The processor at whose chain in the set the calling thread works, which is pinned: by CPU that of
// the CPU it is on, else its own. In a set of fewer processors there may be no such chain. To be
// asked once a step, as the thread may go from one CPU to another.
rt_proc *set_proc(const shards *set, const rt_thread *self);
// Of the calling thread, which is pinned, as for the next two. NULL: nothing there.
void *set_take_slot(shards *set, rt_thread *self);
void *set_take_head(shards *set, rt_thread *self);
void *set_take_tail(shards *set, unsigned first); // of any chain, beginning at processor `first`
uint64_t set_items(const shards *set);            // about, while it is in use
// As chain_sample.
size_t set_sample(const shards *set, const void **items, size_t most);
// Calls fn for each item; nobody else has the set.
void set_empty(shards *set, void (*fn)(void *item, void *arg), void *arg);

// ---- stats.c --------------------------------------------------------------------------------

void count(tide_pool *pool, rt_thread *self, pool_event event); // pinned
void stats_init(tide_pool *pool);
bool provide_tallies(tide_pool *pool, unsigned wanted);         // false: no memory
void settle(tide_pool *pool, const shards *set, unsigned cpus); // its takes, before it goes
uint64_t stats_lost(tide_pool *pool);                           // pinned
void stats_copy(tide_pool *pool, tide_pool_stats *stats);       // tide_pool_stats_read, pinned

// ---- report.c -------------------------------------------------------------------------------

void pool_report_at_exit(void); // if the option says so; other threads may still use pools

// ---- rotate.c -------------------------------------------------------------------------------

bool rotate_init(void);              // false: no memory for the hooks
void rotate_join(tide_pool *pool);   // the pool has got a set; pinned
bool rotate_add(tide_pool *pool);    // to the list of all; false: no memory
void rotate_remove(tide_pool *pool); // nothing of it is dropped any more when this returns
// Whether this thread is in a call of its `drop` after a collection.
bool rotate_drops_here(const tide_pool *pool);
// fn runs pinned: it takes no lock that is not a pinned one, and does not allocate. The world may
// be stopped between pools; one that is made or destroyed meanwhile may be left out.
void pools_for_each(void (*fn)(tide_pool *pool, void *arg), void *arg);
// The lock of the lists of pools and heads, pinned: see rt_pinned_lock. Held over a fork.
void pools_lock(void);
void pools_unlock(void);
void pool_drop_item(tide_pool *pool, void *item);
void pool_drop_set(tide_pool *pool, shards *set);

// What has set the pace of collections since there are pools, by cause, and what the last one left.
// Bytes are of the heap, with external ones.
typedef struct pool_pace {
  AO_t collections[TIDE_CAUSES];
  AO_t grown[TIDE_CAUSES], grown_bytes[TIDE_CAUSES]; // from the one before until it: of how many
  AO_t live_bytes, scanned_bytes;                    // scanned: with stacks and globals
} pool_pace;
extern pool_pace pool_pace_now;

#endif
