// SPDX-License-Identifier: MIT
// `pool`: what an item costs that comes out of a pool and goes back, against one that is made.
//
// Two loops, one after the other: the first makes each item and drops it, the second has it from
// one pool that all threads share. Each writes the item's first word, and nothing else. A loop is
// run with more and more rounds, until it takes long enough to be measured; the time is from the
// moment when all threads may begin to the moment when the last one is done. Peers without pools
// run the first loop only.
//
// An item's size is known at run time only, but for size 0: that is a struct.
#include "peer.h"

#include <atomic_ops.h>
#include <stdlib.h>

typedef enum pattern { PAIR, BURST, EMPTY, COSTLY } pattern; // as the command numbers them

enum { BURST_ITEMS = 100, COLLECT_EVERY = 1000, COSTLY_NS = 1000, ROUNDS_LEAST = 1000 };

typedef struct small_item {
  struct small_item *next;
  uint64_t data[3];
} small_item;

typedef struct member {
  pthread_t thread;
  unsigned index;
  uint64_t ready_ns; // when it came to the barrier
} member;

typedef void loop(const member *self, uint64_t rounds, void **held);

static size_t item_bytes; // 0: small_item
static pattern kind;
static peer_pool *pool;
static volatile AO_t created; // by the pool
static unsigned threads;
static loop *loop_to_run;
static uint64_t rounds_each;
static pthread_barrier_t begin;

static void spin(void) {
  for (uint64_t end_ns = now_ns() + COSTLY_NS; now_ns() < end_ns;) continue;
}

// Each thread in its turn.
static inline void collect_now_and_then(const member *self, uint64_t round) {
  uint64_t every = (uint64_t)COLLECT_EVERY * threads;
  if (round % every == (uint64_t)COLLECT_EVERY * self->index) peer_collect();
}

// ---- Without a pool -------------------------------------------------------------------------

static inline void *make_item(size_t size) {
  uint64_t *item = allocate(size);
  *item = 1;
  escape(item);
  return item;
}

static inline void make_burst(size_t size, void **held) {
  for (int i = 0; i < BURST_ITEMS; i++) held[i] = make_item(size);
  escape(held);
  for (int i = 0; i < BURST_ITEMS; i++) peer_free(held[i]);
}

// Inlined for each size, so that one that is a constant is known where the item is made.
static inline __attribute__((always_inline)) void make_all(size_t size, const member *self,
                                                           uint64_t rounds, void **held) {
  if (kind == PAIR)
    for (uint64_t i = 0; i < rounds; i++) peer_free(make_item(size));
  if (kind == BURST)
    for (uint64_t i = 0; i < rounds; i += BURST_ITEMS) make_burst(size, held);
  for (uint64_t i = 0; kind == COSTLY && i < rounds; i++) {
    spin();
    peer_free(make_item(size));
    collect_now_and_then(self, i);
  }
}

static void make_loop(const member *self, uint64_t rounds, void **held) {
  if (item_bytes)
    make_all(item_bytes, self, rounds, held);
  else
    make_all(sizeof(small_item), self, rounds, held);
}

// ---- With a pool ----------------------------------------------------------------------------

static void *make_any(void) {
  return make_item(item_bytes ? item_bytes : sizeof(small_item));
}

static void *create_item(void *arg) {
  AO_fetch_and_add1(&created);
  if (kind == COSTLY) spin();
  return make_any();
}

static inline void *take_item(void) {
  uint64_t *item = peer_pool_get(pool);
  if (__builtin_expect(!item, 0)) fail("out of memory");
  *item = 1;
  return item;
}

static inline void use_burst(void **held) {
  for (int i = 0; i < BURST_ITEMS; i++) peer_pool_put(pool, held[i]);
  for (int i = 0; i < BURST_ITEMS; i++) held[i] = take_item();
}

static void use_loop(const member *self, uint64_t rounds, void **held) {
  if (kind == PAIR)
    for (uint64_t i = 0; i < rounds; i++) peer_pool_put(pool, take_item());
  for (int i = 0; kind == BURST && i < BURST_ITEMS; i++) held[i] = make_any();
  for (uint64_t i = 0; kind == BURST && i < rounds; i += BURST_ITEMS) use_burst(held);
  for (uint64_t i = 0; kind == EMPTY && i < rounds; i++)
    if (peer_pool_get(pool)) fail("an empty pool had an item");
  for (uint64_t i = 0; kind == COSTLY && i < rounds; i++) {
    peer_pool_put(pool, take_item());
    collect_now_and_then(self, i);
  }
}

// ---------------------------------------------------------------------------------------------

static void *run_member(void *arg) {
  member *self = arg;
  void *held[BURST_ITEMS];
  self->ready_ns = now_ns();
  pthread_barrier_wait(&begin);
  loop_to_run(self, rounds_each, held);
  return NULL;
}

static double run_team(member *team) {
  uint64_t start_ns = 0;
  for (unsigned i = 0; i < threads; i++) {
    team[i].index = i;
    if (peer_thread_start(&team[i].thread, run_member, &team[i]) != 0)
      fail("no thread can be started");
  }
  for (unsigned i = 0; i < threads; i++) {
    peer_thread_join(team[i].thread);
    if (team[i].ready_ns > start_ns) start_ns = team[i].ready_ns;
  }
  return seconds_since(start_ns);
}

// Wall time over the rounds of all threads.
static double ns_a_round(member *team, loop *l) {
  double least = (double)parameter("least_ms") * 1e-3;
  loop_to_run = l;
  for (rounds_each = ROUNDS_LEAST;;) {
    AO_store(&created, 0);
    double seconds = run_team(team);
    if (seconds >= least) return seconds * 1e9 / ((double)rounds_each * threads);
    double factor = 1.2 * least / seconds;
    rounds_each = (uint64_t)((double)rounds_each * (factor < 10 ? factor : 10)) + BURST_ITEMS;
    rounds_each -= rounds_each % BURST_ITEMS;
  }
}

static void report_pool(member *team, double make) {
  pool = peer_pool_create(kind == EMPTY ? NULL : create_item);
  double use = ns_a_round(team, use_loop);
  double got = (double)rounds_each * threads;
  report("ns_pool", use);
  report("make_over_pool", make / use);
  report("hit_rate", kind == EMPTY ? NAN : 1 - (double)AO_load(&created) / got);
  peer_pool_destroy(pool);
}

static void report_no_pool(void) {
  report("ns_pool", NAN);
  report("make_over_pool", NAN);
  report("hit_rate", NAN);
}

void pool_run(void) {
  threads = (unsigned)parameter("threads");
  item_bytes = parameter("size");
  kind = (pattern)parameter("pattern");
  member *team = calloc(threads, sizeof *team);
  if (!team || pthread_barrier_init(&begin, NULL, threads) != 0) fail("out of memory");
  double make = kind == EMPTY ? NAN : ns_a_round(team, make_loop);
  report("ns_make", make);
  if (PEER_POOLS)
    report_pool(team, make);
  else
    report_no_pool();
  free(team);
  report("cpu_s", cpu_seconds());
  report("collections", peer_collections());
}
