// SPDX-License-Identifier: MIT
// Pools whose outcome is the same every time, and pools whose outcome is a mess.
//
// Order: with TIDE_DEBUG=poolseed=1, threads on processors that they have been told (tide_proc_use)
// and steps in a fixed order, every count is the same to the digit; with poolchaos=N as well, by
// the seed. Chaos: whatever becomes of puts, no item is doubled or lost, and each is counted once.
#include "pool_testing.h"

#include <atomic_ops.h>
#include <pthread.h>
#include <stdbool.h>

enum { THREADS = 8 };

static pthread_t start(void *(*fn)(void *), void *arg) {
  pthread_t thread;
  MUST(!tide_thread_create(&thread, NULL, fn, arg));
  return thread;
}

// ---- tide_proc_use --------------------------------------------------------------------------

enum { ASKS = -1 };

static void *use_while_blocked(void *arg) {
  ck_assert_int_eq(tide_proc_use(0), -1);
  ck_assert_int_eq(tide_proc_use(ASKS), -1);
  return NULL;
}

START_TEST(a_thread_goes_where_it_is_told_and_numbers_out_of_range_only_ask) {
  tide_procs_set(4);
  ck_assert_int_eq(tide_proc_use(ASKS), 0);
  ck_assert_int_eq(tide_proc_use(3), 0);
  ck_assert_int_eq(tide_proc_use(3), 3);
  ck_assert_int_eq(tide_proc_use(1), 3);
  ck_assert_int_eq(tide_proc_use(4), 1);
  ck_assert_int_eq(tide_proc_use(INT32_MAX), 1);
  ck_assert_int_eq(tide_proc_use(INT32_MIN), 1);
  ck_assert_int_eq(tide_proc_use(ASKS), 1);
  tide_blocking(use_while_blocked, NULL);
  ck_assert_int_eq(tide_proc_use(ASKS), 1); // which nobody else wanted
  tide_procs_set(2);
  ck_assert_int_eq(tide_proc_use(3), 0);
}
END_TEST

typedef struct place {
  int asked, got; // asked: ASKS for where it comes to be by itself
  AO_t ready, leave;
} place;

static void *stand(void *arg) {
  place *p = arg;
  tide_proc_use(p->asked);
  p->got = tide_proc_use(ASKS);
  AO_store_release(&p->ready, 1);
  while (!AO_load_acquire(&p->leave)) usleep(200);
  return NULL;
}

static pthread_t stand_at(place *p, int asked) {
  *p = (place){.asked = asked};
  pthread_t thread = start(stand, p);
  while (!AO_load_acquire(&p->ready)) usleep(200);
  return thread;
}

static void leave_place(place *p, pthread_t *thread) {
  AO_store_release(&p->leave, 1);
  pthread_join(*thread, NULL); // not in tide_blocking: the caller stays where it is
}

// Nobody gets one that is in use while there is one that is not.
START_TEST(processors_are_given_out_and_come_back_whoever_has_moved) {
  static place places[5];
  pthread_t threads[5];
  tide_procs_set(5);
  tide_proc_use(2);
  for (int round = 0; round < 50; round++) {
    unsigned taken = 1 << 2;
    threads[0] = stand_at(&places[0], 4);
    threads[1] = stand_at(&places[1], 4); // shared
    taken |= 1 << 4;
    ck_assert_int_eq(places[0].got, 4);
    ck_assert_int_eq(places[1].got, 4);
    leave_place(&places[0], &threads[0]); // the other one still has it
    for (int i = 2; i < 5; i++) {
      threads[i] = stand_at(&places[i], ASKS);
      ck_assert_int_eq(taken & 1u << places[i].got, 0);
      taken |= 1u << places[i].got;
    }
    for (int i = 1; i < 5; i++) leave_place(&places[i], &threads[i]);
  }
  ck_assert_int_eq(tide_proc_use(ASKS), 2);
}
END_TEST

// ---- The same each time ---------------------------------------------------------------------
//
// The threads hand a baton: one step is done after the other, each by the thread and on the
// processor that the script says.

enum { STEPS = 150, PROCESSORS = 4, RUNS = 1000 };

typedef struct step {
  int thread, processor;
  enum { GET, PUT, COLLECT } action;
} step;

static step script[STEPS];
static tide_pool *pool;
static char things[STEPS];
static void *held[STEPS]; // by nobody in particular
static size_t held_count;

static pthread_mutex_t baton_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t handed[THREADS];
static size_t baton; // the steps that are done, of all runs
static size_t run_steps;

static void write_script(bool on_one_processor) {
  uint64_t random = 42;
  for (size_t i = 0; i < STEPS; i++) {
    size_t what = random_below(&random, 100);
    script[i].thread = (int)random_below(&random, THREADS);
    script[i].processor = (int)random_below(&random, PROCESSORS);
    if (on_one_processor) script[i].processor = 0;
    script[i].action = what < 3 ? COLLECT : what < 60 ? PUT : GET;
  }
}

static void begin_run(void) {
  pool = tide_pool_create(NULL);
  MUST(pool);
  held_count = 0;
  for (size_t i = 0; i < STEPS; i++) held[held_count++] = &things[i];
}

static void do_step(const step *s) {
  MUST(tide_proc_use(s->processor) >= 0);
  if (s->action == COLLECT) tide_collect();
  if (s->action == PUT && held_count) tide_pool_put(pool, held[--held_count]);
  void *item = s->action == GET ? tide_pool_get(pool) : NULL;
  if (item) held[held_count++] = item;
}

static void wait_for_baton(size_t now, int thread) {
  pthread_mutex_lock(&baton_lock);
  while (baton != now) pthread_cond_wait(&handed[thread], &baton_lock);
  pthread_mutex_unlock(&baton_lock);
}

static void hand_baton(int thread) {
  pthread_mutex_lock(&baton_lock);
  baton++;
  pthread_cond_signal(&handed[thread]);
  pthread_mutex_unlock(&baton_lock);
}

static tide_pool_stats first_run;
static int unlike; // runs

static void end_run(void) {
  tide_pool_stats stats = stats_of(pool);
  stats.use_gap_ns = 0; // the one that goes by the clock
  if (baton < STEPS) first_run = stats;
  unlike += memcmp(&stats, &first_run, sizeof stats) != 0;
  tide_pool_destroy(pool);
}

static void *follow_script(void *arg) {
  int me = *(int *)arg;
  for (size_t i = 0; i < run_steps; i++) {
    const step *s = &script[i % STEPS], *next = &script[(i + 1) % STEPS];
    if (s->thread != me) continue;
    wait_for_baton(i, me);
    if (i % STEPS == 0) begin_run();
    do_step(s);
    if (i % STEPS == STEPS - 1) end_run();
    hand_baton(next->thread);
  }
  return NULL;
}

typedef struct play {
  int seed; // of chaos; 0: none
  size_t runs;
  bool on_one_processor;
} play;

// Writes the counts of the first run to stderr.
static void run_script(void *arg) {
  const play *p = arg;
  init_with(OPTIONS(o.poolseed = 1, o.poolchaos = p->seed));
  tide_gc_disable();
  tide_procs_set(PROCESSORS);
  write_script(p->on_one_processor);
  run_steps = STEPS * p->runs;
  pthread_t threads[THREADS];
  int names[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_cond_init(&handed[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    names[i] = i;
    threads[i] = start(follow_script, &names[i]);
  }
  for (int i = 0; i < THREADS; i++) tide_blocking(join, &threads[i]);
  if (!p->seed) ck_assert_int_eq(unlike, 0);
  for (size_t i = 0; i < sizeof first_run / sizeof(uint64_t); i++)
    fprintf(stderr, "%llu ", (unsigned long long)((uint64_t *)(void *)&first_run)[i]);
}

static child play_script(play p) {
  static child c;
  in_child(&c, 100, run_script, &p);
  assert_ended_well(&c);
  ck_assert_uint_gt(strlen(c.errors), 60);
  return c;
}

START_TEST(the_same_steps_have_the_same_counts) {
  child once = play_script((play){.runs = RUNS}), again = play_script((play){.runs = 1});
  ck_assert_str_eq(once.errors, again.errors);
  uint64_t gets, where[5];
  ck_assert_int_eq(sscanf(once.errors, "%lu %lu %lu %lu %lu %lu", &gets, &where[0], &where[1],
                          &where[2], &where[3], &where[4]),
                   6);
  for (int i = 0; i < 5; i++) ck_assert_uint_gt(where[i], 0); // all kinds of hits, and misses
  child elsewhere = play_script((play){.runs = 1, .on_one_processor = true});
  ck_assert_str_ne(once.errors, elsewhere.errors);
}
END_TEST

START_TEST(chaos_goes_by_the_seed) {
  child one = play_script((play){.seed = 1, .runs = 1}),
        two = play_script((play){.seed = 2, .runs = 1});
  child one_again = play_script((play){.seed = 1, .runs = 1});
  child none = play_script((play){.runs = 1});
  ck_assert_str_eq(one.errors, one_again.errors);
  ck_assert_str_ne(one.errors, two.errors);
  ck_assert_str_ne(one.errors, none.errors);
  ck_assert_str_ne(two.errors, none.errors);
}
END_TEST

// ---- Chaos ----------------------------------------------------------------------------------
//
// Every item has an owner, 0 while it is in the pool, and DROPPED for good once the pool has let it
// go. A thread that gets one makes itself the owner. Each item that was made must be dropped once.

enum { DROPPED = 1000 };

typedef struct owned {
  AO_t owner;
  uintptr_t seal; // its own address, inverted
} owned;

typedef struct crowd {
  tide_pool *pool;
  int rounds;
  AO_t numbers;          // of threads, for their names
  AO_t foreign, doubled; // faults seen
  AO_t gets, puts, made, dropped;
  AO_t ended; // threads
} crowd;

static void *make_owned(void *arg) {
  crowd *c = arg;
  owned *item = tide_alloc(sizeof *item);
  MUST(item);
  item->seal = hide(item);
  AO_fetch_and_add1(&c->made);
  return item;
}

static void drop_owned(void *item, void *arg) {
  crowd *c = arg;
  owned *o = item;
  if (o->seal != hide(o)) AO_fetch_and_add1(&c->foreign);
  if (!AO_compare_and_swap_full(&o->owner, 0, DROPPED)) AO_fetch_and_add1(&c->doubled);
  AO_fetch_and_add1(&c->dropped);
}

static void *be_crowded(void *arg) {
  crowd *c = arg;
  AO_t name = AO_fetch_and_add1(&c->numbers) + 1;
  uint64_t random = name;
  owned *own[24];
  for (int round = 0; round < c->rounds;) {
    size_t count = 1 + (random_below(&random, 8) ? 0 : random_below(&random, LENGTH(own)));
    for (size_t i = 0; i < count; i++) {
      own[i] = tide_pool_get(c->pool);
      if (own[i]->seal != hide(own[i])) AO_fetch_and_add1(&c->foreign);
      if (!AO_compare_and_swap_full(&own[i]->owner, 0, name)) AO_fetch_and_add1(&c->doubled);
    }
    for (size_t i = 0; i < count; i++) {
      if (!AO_compare_and_swap_full(&own[i]->owner, name, 0)) AO_fetch_and_add1(&c->doubled);
      tide_pool_put(c->pool, own[i]);
    }
    AO_fetch_and_add(&c->gets, count);
    AO_fetch_and_add(&c->puts, count);
    round += (int)count;
  }
  AO_fetch_and_add1(&c->ended);
  return NULL;
}

static void *collect_meanwhile(void *arg) {
  crowd *c = arg;
  while (AO_load(&c->ended) < THREADS) {
    tide_collect();
    usleep(300);
  }
  return NULL;
}

static void run_crowd(crowd *c) {
  pthread_t threads[THREADS + 1];
  for (int i = 0; i <= THREADS; i++)
    threads[i] = start(i < THREADS ? be_crowded : collect_meanwhile, c);
  for (int i = 0; i <= THREADS; i++) tide_blocking(join, &threads[i]);
}

static void check_counts(const crowd *c, const tide_pool_stats *s) {
  uint64_t never_in = s->dropped_large + s->dropped_full + s->dropped_memory + s->dropped_chaos;
  ck_assert_uint_eq(c->foreign, 0);
  ck_assert_uint_eq(c->doubled, 0);
  ck_assert_uint_eq(s->gets, c->gets);
  ck_assert_uint_eq(hits(s) + s->misses, c->gets);
  ck_assert_uint_eq(s->created, c->made);
  ck_assert_uint_eq(s->misses, c->made);
  ck_assert_uint_eq(s->puts + never_in, c->puts);
  ck_assert_uint_eq(s->puts, hits(s) + s->items_primary + s->items_victim + s->dropped_idle);
  ck_assert_uint_eq(s->dropped_memory, 0);
  ck_assert_double_eq_tol((double)s->dropped_chaos / (double)c->puts, 0.25, 0.01);
}

static const tide_pool_options variants[] = {
    {.name = "plain"},
    {.name = "limited", .max_items = 12, .max_bytes = 160},
    {.name = "short", .survive = TIDE_SURVIVE_NONE},
    {.name = "long", .survive = 7},
};

// With checks as well, in every second case; they are slow.
START_TEST(no_item_is_doubled_or_lost_in_chaos) {
  static crowd c; // static: a root
  bool checked = _i % 2;
  init_with(OPTIONS(o.poolchaos = 1 + _i, o.poolcheck = checked));
  tide_procs_set(1 + _i / 2 % 5);
  tide_pool_options options = variants[_i / 2];
  options.create = make_owned;
  options.drop = drop_owned;
  options.arg = &c;
  c.pool = tide_pool_create(&options);
  c.rounds = checked || UNDER_TSAN ? 3000 : 60000;
  run_crowd(&c);
  tide_pool_stats stats = stats_of(c.pool);
  check_counts(&c, &stats);
  if (options.max_items) ck_assert_uint_gt(stats.dropped_full, 0);
  tide_pool_destroy(c.pool);
  ck_assert_uint_eq(c.doubled, 0);
  ck_assert_uint_eq(c.dropped, c.made);
}
END_TEST

START_TEST(chaos_goes_round_the_private_slot) {
  init_with(OPTIONS(o.poolchaos = 9));
  tide_gc_disable();
  tide_pool *p = tide_pool_create(NULL);
  uint64_t found = 0;
  for (int i = 0; i < 20000; i++) {
    tide_pool_put(p, &things[0]);
    found += tide_pool_get(p) != NULL;
  }
  tide_pool_stats stats = stats_of(p);
  ck_assert_uint_eq(found, stats.puts);
  ck_assert_double_eq_tol((double)stats.dropped_chaos, 5000, 500);
  ck_assert_double_eq_tol((double)stats.hits_private, 7500, 500);
  ck_assert_double_eq_tol((double)stats.hits_shared, 7500, 500);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("poolchaos");
  TCase *processors = tcase_create("processors");
  tcase_set_timeout(processors, 60);
  tcase_add_test(processors, a_thread_goes_where_it_is_told_and_numbers_out_of_range_only_ask);
  tcase_add_test(processors, processors_are_given_out_and_come_back_whoever_has_moved);
  suite_add_tcase(suite, processors);
  TCase *order = tcase_create("order");
  tcase_set_timeout(order, 100);
  tcase_add_test(order, the_same_steps_have_the_same_counts);
  tcase_add_test(order, chaos_goes_by_the_seed);
  suite_add_tcase(suite, order);
  TCase *chaos = tcase_create("chaos");
  tcase_set_timeout(chaos, 100);
  tcase_add_loop_test(chaos, no_item_is_doubled_or_lost_in_chaos, 0, 2 * LENGTH(variants));
  tcase_add_test(chaos, chaos_goes_round_the_private_slot);
  suite_add_tcase(suite, chaos);
  return run_suite(suite);
}
