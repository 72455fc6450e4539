// SPDX-License-Identifier: MIT
// The team of workers behind a burst; see burst.h.
//
// Three gates lead a worker through a round: `start`, opened by the caller of burst_run; `full`,
// opened by the last worker to hold an item, after the wait of 100 us; `rested`, opened by the last
// worker to come back. Each worker is woken just twice a burst, which keeps a burst short: on two
// processors it takes little more than the 64 thread switches.
//
// A worker says that it is back only from inside tide_blocking, so when burst_run returns no worker
// runs on the heap.
#include "burst.h"
#include "command.h"
#include "wait.h"

#include <atomic_ops.h>
#include <stdlib.h>
#include <string.h>

enum { HOLD_NS = 100 * 1000 };

typedef enum fault { FAULT_NONE, FAULT_DOUBLED, FAULT_DAMAGED, FAULT_MEMORY } fault;

typedef struct worker {
  burst *team;
  AO_t number; // from 1; what it writes into its items
  unsigned round;
  pthread_t thread;
  uint64_t get_ns;
  uint64_t put_ns;
} __attribute__((aligned(64))) worker; // no two workers write to one cache line

struct burst {
  unsigned workers;
  size_t words; // in an item
  unsigned round;
  tide_pool *pool; // of the round that runs; NULL tells the workers to end
  gate start;
  gate full;
  gate rested;
  volatile unsigned holding;
  volatile unsigned resting;
  volatile unsigned misses;
  volatile unsigned fault; // the first one found
  worker team[];
};

static void report_fault(burst *b, fault found) {
  (void)AO_int_compare_and_swap(&b->fault, FAULT_NONE, found);
}

static void *make_item(void *arg) {
  burst *b = arg;
  (void)AO_int_fetch_and_add1(&b->misses); // read after the `rested` gate, which orders it
  AO_t *item = tide_alloc_leaf(b->words * sizeof *item);
  if (item) item[0] = 0;
  return item;
}

// The first word of an item is its holder's number, 0 while it is in the pool.
static void mark_item(worker *w, AO_t *item) {
  burst *b = w->team;
  // Acquire: pairs with the release in unmark_item of whoever had the item before.
  if (!AO_compare_and_swap_acquire(&item[0], 0, w->number)) report_fault(b, FAULT_DOUBLED);
  for (size_t i = 1; i < b->words; i++) item[i] = w->number;
}

static void unmark_item(worker *w, AO_t *item) {
  burst *b = w->team;
  for (size_t i = 1; i < b->words; i++)
    if (item[i] != w->number) report_fault(b, FAULT_DAMAGED);
  if (!AO_compare_and_swap_release(&item[0], w->number, 0)) report_fault(b, FAULT_DAMAGED);
}

static void *rest(void *arg) {
  worker *w = arg;
  burst *b = w->team;
  // Full: the last one to arrive passes on to burst_run what all of them wrote.
  if (AO_int_fetch_and_add1_full(&b->resting) + 1 == b->workers) gate_open(&b->rested, w->round);
  gate_await(&b->start, ++w->round);
  return NULL;
}

static void *hold(void *arg) {
  worker *w = arg;
  burst *b = w->team;
  if (AO_int_fetch_and_add1_full(&b->holding) + 1 < b->workers) {
    gate_await(&b->full, w->round);
    return NULL;
  }
  sleep_until(now_ns() + HOLD_NS);
  gate_open(&b->full, w->round);
  return NULL;
}

static void *work(void *arg) {
  worker *w = arg;
  burst *b = w->team;
  sleep_exactly();
  for (;;) {
    tide_blocking(rest, w);
    if (!b->pool) return NULL;
    w->get_ns = now_ns();
    AO_t *item = tide_pool_get(b->pool);
    if (item)
      mark_item(w, item);
    else
      report_fault(b, FAULT_MEMORY);
    tide_blocking(hold, w);
    w->put_ns = now_ns();
    if (item) unmark_item(w, item);
    tide_pool_put(b->pool, item);
  }
}

static void *await_rested(void *arg) {
  burst *b = arg;
  gate_await(&b->rested, b->round);
  return NULL;
}

// Calls the workers to a round on the pool and waits until all of them rest again.
static void run_round(burst *b, tide_pool *pool) {
  b->pool = pool;
  b->holding = b->resting = b->misses = 0;
  gate_open(&b->start, ++b->round);
  if (pool) tide_blocking(await_rested, b);
}

static void *join_all(void *arg) {
  burst *b = arg;
  for (unsigned i = 0; i < b->workers; i++) pthread_join(b->team[i].thread, NULL);
  return NULL;
}

burst *burst_create(unsigned workers, size_t item_bytes) {
  size_t bytes = sizeof(burst) + workers * sizeof(worker);
  burst *b = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
  if (!b) {
    complain("no memory for %u workers", workers);
    return NULL;
  }
  memset(b, 0, bytes);
  b->words = item_bytes / sizeof(AO_t);
  // Set before the first worker reads it; lowered only if not all of them start.
  b->workers = workers;
  b->round = 1; // in which the workers arrive; a new gate is open for round 0
  for (unsigned i = 0; i < workers; i++) {
    worker *w = &b->team[i];
    *w = (worker){.team = b, .number = i + 1, .round = b->round};
    int error = thread_start(&w->thread, work, w);
    if (!error) continue;
    complain("cannot start worker %u of %u: %s", i + 1, workers, strerror(error));
    b->workers = i;
    burst_destroy(b);
    return NULL;
  }
  tide_blocking(await_rested, b);
  return b;
}

void burst_destroy(burst *b) {
  if (!b) return;
  run_round(b, NULL);
  tide_blocking(join_all, b);
  free(b);
}

unsigned burst_workers(const burst *b) {
  return b->workers;
}

tide_pool *burst_pool(burst *b, const char *name) {
  tide_pool *pool =
      tide_pool_create(&(tide_pool_options){.name = name, .create = make_item, .arg = b});
  if (!pool) complain("no memory for a pool");
  return pool;
}

static bool check_fault(const burst *b) {
  switch ((fault)b->fault) {
  case FAULT_NONE:
    return true;
  case FAULT_DOUBLED:
    complain("the pool gave one item to two workers");
    break;
  case FAULT_DAMAGED:
    complain("an item changed while a worker held it");
    break;
  case FAULT_MEMORY:
    complain("out of memory: an item could not be made");
    break;
  }
  return false;
}

bool burst_run(burst *b, tide_pool *pool, burst_result *result) {
  *result = (burst_result){.start_ns = now_ns()};
  run_round(b, pool);
  result->end_ns = now_ns();
  // Means as offsets from the start: sums of absolute times would overflow.
  uint64_t get_sum = 0, put_sum = 0;
  for (unsigned i = 0; i < b->workers; i++) {
    get_sum += b->team[i].get_ns - result->start_ns;
    put_sum += b->team[i].put_ns - result->start_ns;
  }
  result->get_ns = result->start_ns + get_sum / b->workers;
  result->put_ns = result->start_ns + put_sum / b->workers;
  result->hits = b->workers - b->misses;
  return check_fault(b);
}

bool burst_check_stats(const burst *b, tide_pool *pool, uint64_t bursts, uint64_t hits) {
  tide_pool_stats s;
  tide_pool_stats_read(pool, &s);
  uint64_t uses = bursts * b->workers;
  uint64_t found = s.hits_private + s.hits_shared + s.hits_stolen + s.hits_victim;
  if (s.gets == uses && s.puts == uses && found == hits && s.misses == uses - hits) return true;
  complain("the pool counted %llu gets, %llu hits, %llu misses and %llu puts; the workers counted "
           "%llu gets and %llu hits",
           (unsigned long long)s.gets, (unsigned long long)found, (unsigned long long)s.misses,
           (unsigned long long)s.puts, (unsigned long long)uses, (unsigned long long)hits);
  return false;
}
