// SPDX-License-Identifier: MIT
// Pools in many threads: no item is ever given to two, and none is lost that was put at the same
// moment as another, while collections and changes of processors cut in; and the counts are exact.
#include "pool_testing.h"

#include <atomic_ops.h>
#include <pthread.h>
#include <sched.h>

// Rounds of a stress test, fewer when every allocation collects.
static int rounds(int wanted) {
  const char *debug = getenv("TIDE_DEBUG");
  return debug && strstr(debug, "stress") ? wanted / 2000 : UNDER_TSAN ? wanted / 100 : wanted;
}

// ---- Threads that share a pool --------------------------------------------------------------

// Every item has an owner, 0 while it is in the pool. A thread that gets one makes itself the
// owner, and would find any other that believes the same. Items are heap objects: one that is
// collected too early loses its seal.
enum { THREADS = 10 };

struct owned {
  AO_t owner;
  uintptr_t seal; // of ours: its own address, inverted
  uint64_t uses;
};

struct crowd {
  tide_pool *pool;
  int rounds;
  AO_t numbers;                     // of threads, for their names
  AO_t foreign, doubled, backwards; // faults seen
  AO_t gets, found, puts;
  AO_t ended; // threads
};

static void *create_owned(void *arg) {
  struct owned *item = tide_alloc(sizeof *item);
  if (!item) abort();
  item->seal = hide(item);
  return item;
}

static void let_go(struct crowd *crowd, struct owned *item, AO_t name) {
  item->uses++;
  if (!AO_compare_and_swap_full(&item->owner, name, 0)) AO_fetch_and_add1(&crowd->doubled);
  AO_fetch_and_add1(&crowd->puts);
  tide_pool_put(crowd->pool, item);
}

static struct owned *take_over(struct crowd *crowd, AO_t name) {
  struct owned *item = tide_pool_get(crowd->pool);
  AO_fetch_and_add1(&crowd->gets);
  if (!item) return NULL;
  if (item->seal != hide(item)) {
    AO_fetch_and_add1(&crowd->foreign);
    return NULL;
  }
  if (!AO_compare_and_swap_full(&item->owner, 0, name)) AO_fetch_and_add1(&crowd->doubled);
  if (item->uses++) AO_fetch_and_add1(&crowd->found);
  return item;
}

// Holds between 1 and 24 items at a time, so that the shared chains grow and shrink.
static void *use_pool(void *arg) {
  struct crowd *crowd = arg;
  AO_t name = AO_fetch_and_add1(&crowd->numbers) + 1;
  uint64_t random = name;
  struct owned *held[24];
  for (int round = 0; round < crowd->rounds;) {
    size_t count = 1 + (random_below(&random, 8) ? 0 : random_below(&random, LENGTH(held)));
    for (size_t i = 0; i < count; i++) held[i] = take_over(crowd, name);
    for (size_t i = 0; i < count; i++)
      if (held[i]) let_go(crowd, held[i], name);
    round += (int)count;
    let_signals_in();
  }
  AO_fetch_and_add1(&crowd->ended);
  leave_early();
  return NULL;
}

static void *collect_while_they_run(void *arg) {
  struct crowd *crowd = arg;
  while (AO_load(&crowd->ended) < THREADS) {
    tide_collect();
    usleep(200);
  }
  leave_early();
  return NULL;
}

static void *change_processors_while_they_run(void *arg) {
  static const int numbers[] = {1, 2, 4, 12, 64, 3, 1, 130, 8};
  struct crowd *crowd = arg;
  for (size_t i = 0; AO_load(&crowd->ended) < THREADS; i++) {
    tide_procs_set(numbers[i % LENGTH(numbers)]);
    if (i % 5 == 0) tide_collect();
    usleep(100);
  }
  leave_early();
  return NULL;
}

// Reads the statistics in the middle of everything: none may go backwards.
static void *watch_while_they_run(void *arg) {
  struct crowd *crowd = arg;
  tide_pool_stats before = {0};
  while (AO_load(&crowd->ended) < THREADS) {
    tide_pool_stats now = stats_of(crowd->pool);
    if (now.gets < before.gets || now.puts < before.puts || now.misses < before.misses ||
        now.hits_victim < before.hits_victim || now.rotations < before.rotations)
      AO_fetch_and_add1(&crowd->backwards);
    before = now;
    let_signals_in();
  }
  leave_early();
  return NULL;
}

static void run_crowd(struct crowd *crowd, int count, void *(*beside)(void *)) {
  crowd->rounds = rounds(count);
  crowd->pool = tide_pool_create(&(tide_pool_options){.create = create_owned});
  pthread_t threads[THREADS + 2];
  for (int i = 0; i < THREADS + 2; i++) {
    void *(*fn)(void *) = i < THREADS ? use_pool : i == THREADS ? beside : watch_while_they_run;
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, fn, crowd), 0);
  }
  for (int i = 0; i < THREADS + 2; i++) tide_blocking(join, &threads[i]);
  ck_assert_uint_ge(crowd->gets, (AO_t)THREADS * (AO_t)crowd->rounds);
  ck_assert_uint_eq(crowd->foreign, 0);
  ck_assert_uint_eq(crowd->doubled, 0);
  ck_assert_uint_eq(crowd->backwards, 0);
  tide_pool_stats stats = stats_of(crowd->pool);
  ck_assert_uint_eq(stats.gets, crowd->gets);
  ck_assert_uint_eq(stats.puts, crowd->puts);
  ck_assert_uint_eq(hits(&stats), crowd->found);
  ck_assert_uint_eq(stats.misses, crowd->gets - crowd->found);
}

START_TEST(ten_threads_never_share_an_item) {
  static struct crowd crowd; // static: a root
  tide_procs_set(_i);
  run_crowd(&crowd, 1000000, collect_while_they_run);
}
END_TEST

START_TEST(changing_processors_doubles_nothing) {
  static struct crowd crowd;
  run_crowd(&crowd, 400000, change_processors_while_they_run);
}
END_TEST

// ---- The first puts -------------------------------------------------------------------------

// Two threads make the first put into a pool at the same moment, one pool after the other: each
// may believe that it makes what the pool needs for it. Nothing of what either has done may be
// lost.
struct race {
  tide_pool *pools[5000];
  size_t length;
  AO_t arrivals;
  AO_t lost;
};

static void wait_for_arrivals(struct race *race, AO_t wanted) {
  AO_fetch_and_add1_full(&race->arrivals);
  for (int spins = 0; AO_load(&race->arrivals) < wanted; spins++) {
    if (spins > 10000) sched_yield();
    let_signals_in();
  }
}

static void *put_at_once(void *arg) {
  struct race *race = arg;
  char mine;
  for (size_t i = 0; i < race->length; i++) {
    wait_for_arrivals(race, 4 * i + 2);
    tide_pool_put(race->pools[i], &mine);
    wait_for_arrivals(race, 4 * i + 4);
    if (tide_pool_get(race->pools[i]) != &mine) AO_fetch_and_add1(&race->lost);
  }
  leave_early();
  return NULL;
}

START_TEST(racing_first_puts_lose_nothing) {
  static struct race race;
  tide_gc_disable();
  tide_procs_set(2);
  race.length = (size_t)rounds(LENGTH(race.pools));
  for (size_t i = 0; i < race.length; i++) race.pools[i] = tide_pool_create(NULL);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, put_at_once, &race), 0);
  for (int i = 0; i < 2; i++) tide_blocking(join, &threads[i]);
  ck_assert_uint_eq(race.lost, 0);
  for (size_t i = 0; i < race.length; i++) {
    ck_assert_uint_eq(stats_of(race.pools[i]).puts, 2);
    ck_assert_uint_eq(stats_of(race.pools[i]).hits_private, 2);
  }
}
END_TEST

// ---------------------------------------------------------------------------------------------

// Threads that meet go by CPU in one case, by processor in the other.
static TCase *threads_case(const char *name, void (*set_up)(void)) {
  TCase *threads = tcase_create(name);
  if (set_up) tcase_add_checked_fixture(threads, set_up, NULL);
  tcase_set_timeout(threads, 240);
  tcase_add_loop_test(threads, ten_threads_never_share_an_item, 1, 5);
  tcase_add_test(threads, changing_processors_doubles_nothing);
  // By CPU, each of the two may be on the other's by the time it gets.
  if (set_up) tcase_add_test(threads, racing_first_puts_lose_nothing);
  return threads;
}

int main(void) {
  Suite *suite = suite_create("pool_threads");
  if (TIDE_CPU_SLOTS) suite_add_tcase(suite, threads_case("threads by CPU", NULL));
  suite_add_tcase(suite, threads_case("threads by processor", go_by_processors));
  return run_suite(suite);
}
