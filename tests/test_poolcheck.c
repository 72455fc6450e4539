// SPDX-License-Identifier: MIT
// TIDE_DEBUG=poolcheck=1: what it stops a program at, and with which words; and that it says
// nothing to a program that is right, whose items come back as they were.
//
// Each fault is made in a process of its own, by functions whose names the report must have. They
// are not static, so that the loader knows them, and nothing in them is the last call.
#include "pool_testing.h"

#include <atomic_ops.h>
#include <fcntl.h>
#include <pthread.h>

#define NAMED      NOINLINE __attribute__((visibility("default")))
#define NOT_LAST() __asm__ volatile("" ::: "memory")

enum { ITEMS = 100 };

static void init_checked(void) {
  init_with(OPTIONS(o.poolcheck = 1));
}

static tide_pool *new_pool(tide_pool_options options) {
  tide_pool *pool = tide_pool_create(&options);
  if (!pool) abort();
  return pool;
}

// ---- Faults ---------------------------------------------------------------------------------

void put_here(tide_pool *pool, void *item);
void put_there(tide_pool *pool, void *item);
void *get_here(tide_pool *pool);
void destroy_here(tide_pool *pool);

NAMED void put_here(tide_pool *pool, void *item) {
  tide_pool_put(pool, item);
  NOT_LAST();
}
NAMED void put_there(tide_pool *pool, void *item) {
  tide_pool_put(pool, item);
  NOT_LAST();
}
NAMED void *get_here(tide_pool *pool) {
  void *item = tide_pool_get(pool);
  NOT_LAST();
  return item;
}
NAMED void destroy_here(tide_pool *pool) {
  tide_pool_destroy(pool);
  NOT_LAST();
}

static tide_pool *plain(const char *name) {
  return new_pool((tide_pool_options){.name = name});
}

static void put_twice(void *arg) {
  tide_pool *pool = plain("cups");
  char *item = tide_alloc(64);
  put_here(pool, item);
  put_there(pool, item);
}

static void put_twice_with_a_collection_between(void *arg) {
  tide_pool *pool = plain("cups");
  void *item = tide_alloc_leaf(64);
  put_here(pool, item);
  tide_collect();
  put_there(pool, item);
}

static void put_a_number_twice(void *arg) {
  tide_pool *pool = plain("cups");
  put_here(pool, (void *)7);
  put_there(pool, (void *)7);
}

static void put_into_two(void *arg) {
  tide_pool *cups = plain("cups"), *mugs = plain("mugs");
  void *item = tide_alloc(64);
  put_here(cups, item);
  put_there(mugs, item);
}

// Would crash on the pattern.
static void follow(void *item, void *arg) {
  **(int **)item = 1;
}

static void put_twice_with_reset(void *arg) {
  tide_pool *pool = new_pool((tide_pool_options){.name = "cups", .reset = follow});
  int **item = tide_alloc(64);
  *item = tide_alloc(16);
  put_here(pool, item);
  put_there(pool, item);
}

static void *put_it_there(void *arg) {
  void **both = arg;
  put_there(both[0], both[1]);
  return NULL;
}

static void put_twice_by_two_threads(void *arg) {
  static void *both[2];
  both[0] = plain("cups");
  both[1] = tide_alloc(64);
  put_here(both[0], both[1]);
  pthread_t thread;
  if (tide_thread_create(&thread, NULL, put_it_there, both)) return;
  pthread_join(thread, NULL);
}

static void write_after_put(void *arg) {
  tide_pool *pool = plain("cups");
  unsigned char *item = tide_alloc(64);
  put_here(pool, item);
  item[24] = 1;
  item[26] = 2;
  item[63] = 3;
  get_here(pool);
}

static void write_after_put_to_a_leaf(void *arg) {
  tide_pool *pool = plain("cups");
  unsigned char *item = tide_alloc_leaf(100000);
  put_here(pool, item);
  tide_collect();
  item[99999] = 0;
  get_here(pool);
}

static size_t eighty(const void *item, void *arg) {
  return 80;
}

static void write_after_put_outside_the_heap(void *arg) {
  tide_pool *pool = new_pool((tide_pool_options){.name = "cups", .size = eighty});
  unsigned char *item = malloc(80);
  put_here(pool, item);
  item[0] = 0;
  get_here(pool);
}

static void write_after_put_and_never_get(void *arg) {
  tide_pool *pool = plain("cups");
  unsigned char *item = tide_alloc(64);
  put_here(pool, item);
  item[8] = 1;
  collect_times(2);
}

static void write_after_put_and_destroy(void *arg) {
  tide_pool *pool = plain("cups");
  unsigned char *item = tide_alloc(64);
  put_here(pool, item);
  item[8] = 1;
  tide_pool_destroy(pool);
}

static void free_after_put(void *arg) {
  tide_pool *pool = plain("cups");
  void *item = tide_alloc(64);
  put_here(pool, item);
  tide_free(item);
  get_here(pool);
}

static void put_the_inside(void *arg) {
  char *item = tide_alloc(64);
  put_here(plain("cups"), item + 16);
}

static void *make_cup(void *arg) {
  return tide_alloc(64);
}

static tide_pool *own_only(void) {
  return new_pool((tide_pool_options){.name = "cups", .create = make_cup, .created_only = true});
}

static void put_what_is_foreign(void *arg) {
  tide_pool *pool = own_only();
  tide_pool_put(pool, tide_pool_get(pool));
  put_here(pool, tide_alloc(64));
}

static void put_what_another_pool_made(void *arg) {
  tide_pool *pool = own_only(), *other = own_only();
  put_here(pool, tide_pool_get(other));
}

static uintptr_t made[1000];

static NOINLINE void make_and_lose(tide_pool *pool) {
  for (size_t i = 0; i < LENGTH(made); i++) made[i] = hide(tide_pool_get(pool));
}

// At an address that the pool has once made an item at, which has died since.
static void put_what_looks_like_an_own_one(void *arg) {
  tide_pool *pool = own_only();
  make_and_lose(pool);
  collect_times(2);
  for (size_t i = 0; i < 2 * LENGTH(made); i++) {
    void *item = tide_alloc(64);
    for (size_t k = 0; k < LENGTH(made); k++)
      if (reveal(made[k]) == item) put_here(pool, item);
  }
}

static void put_into_a_destroyed_one(void *arg) {
  tide_pool *pool = plain("cups");
  destroy_here(pool);
  collect_times(2);
  put_here(pool, tide_alloc(64));
}

static void get_from_a_destroyed_one(void *arg) {
  tide_pool *pool = plain("cups");
  tide_pool_put(pool, tide_alloc(64));
  destroy_here(pool);
  get_here(pool);
}

static void destroy_twice(void *arg) {
  tide_pool *pool = plain("cups");
  destroy_here(pool);
  tide_pool_destroy(pool);
}

static const struct {
  void (*fn)(void *arg);
  const char *says[4]; // in this order
} faults[] = {
    {put_twice, {"idle in it already", "put first by", "put_here+0x", "put_there+0x"}},
    {put_twice_with_a_collection_between, {"idle in it already", "put_here+0x", "put_there+0x"}},
    {put_a_number_twice, {"0x7 is put, but is idle in it already", "put_here+0x", "put_there+0x"}},
    {put_into_two, {"pool \"mugs\"", "idle in pool \"cups\" already", "put_here+", "put_there+"}},
    {put_twice_with_reset, {"idle in it already", "put_here+0x", "put_there+0x"}},
    {put_twice_by_two_threads, {"idle in it already", "put_here+0x", "and now", "put_there+0x"}},
    {write_after_put,
     {"was used after put: 3 of its 64 bytes differ, the first one at offset 24, which is now 0x01",
      "put_here+0x", "the get of", "get_here+0x"}},
    {write_after_put_to_a_leaf,
     {"used after put: 1 of its ", " at offset 99999,", "put_here+0x", "get_here+0x"}},
    {write_after_put_outside_the_heap,
     {"used after put: 1 of its 80 bytes", "at offset 0,", "put_here+0x", "get_here+0x"}},
    {write_after_put_and_never_get,
     {"used after put: 1 of its 64", "at offset 8,", "put_here+0x", "when the item was dropped"}},
    {write_after_put_and_destroy,
     {"used after put: 1 of its 64", "at offset 8,", "put_here+0x", "when the item was dropped"}},
    {free_after_put, {"was freed while it was idle", "put_here+0x", "get_here+0x"}},
    {put_the_inside, {"is put, which is inside an object: base ", ", offset 16", "put_here+0x"}},
    {put_what_is_foreign, {"which its create has not made", "put_here+0x"}},
    {put_what_another_pool_made, {"which its create has not made", "put_here+0x"}},
    {put_what_looks_like_an_own_one, {"which its create has not made", "put_here+0x"}},
    {put_into_a_destroyed_one, {"is put to, but it has", "destroy_here+0x", "put_here+0x"}},
    {get_from_a_destroyed_one, {"is asked for an item, but", "destroy_here+0x", "get_here+0x"}},
    {destroy_twice, {"is destroyed, but it has been destroyed", "destroy_here+0x"}},
};

static void run_fault(void *arg) {
  init_checked();
  (*(void (**)(void *))arg)(NULL);
}

START_TEST(a_fault_stops_the_program_and_is_told_with_its_stacks) {
  child c;
  void (*fn)(void *) = faults[_i].fn;
  in_child(&c, 60, run_fault, &fn);
  const char *rest = c.errors;
  ck_assert_msg(strstr(rest, "tidepool: pool \"") == rest, "wrote: %s", c.errors);
  for (size_t i = 0; i < LENGTH(faults[_i].says) && faults[_i].says[i]; i++) {
    rest = strstr(rest, faults[_i].says[i]);
    ck_assert_msg(rest != NULL, "no \"%s\" where it should be in: %s", faults[_i].says[i],
                  c.errors);
  }
  ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGABRT, "status %d, after: %s",
                c.status, c.errors);
}
END_TEST

// The pool's own functions are not in the way, and there are at most 16 of the program's.
static NOINLINE void put_deep_down(tide_pool *pool, void *item, int depth) {
  if (depth)
    put_deep_down(pool, item, depth - 1);
  else
    put_here(pool, item);
  NOT_LAST();
}

static void put_twice_deep_down(void *arg) {
  init_checked();
  tide_pool *pool = plain("cups");
  void *item = tide_alloc(64);
  put_deep_down(pool, item, 40);
  put_deep_down(pool, item, 40);
}

START_TEST(a_stack_begins_where_the_pool_was_called_and_has_16_frames) {
  child c;
  in_child(&c, 60, put_twice_deep_down, NULL);
  ck_assert_uint_eq(count_lines(c.errors), 1 + 2 * (1 + 16));
  const char *first = strstr(c.errors, "put first by\ntidepool:     put_here+0x");
  ck_assert_msg(first != NULL, "wrote: %s", c.errors);
  ck_assert_ptr_nonnull(strstr(first, "and now by\ntidepool:     put_here+0x"));
}
END_TEST

// ---- Programs that are right ----------------------------------------------------------------

typedef struct thing {
  uintptr_t seal;
  struct thing *other; // that only this one refers to
  char text[40];
} thing;

static void seal(thing *t, thing *other) {
  t->other = other;
  strcpy(t->text, "as it was");
  t->seal = hide(t);
}
static bool is_whole(const thing *t) {
  return t->seal == hide(t) && !strcmp(t->text, "as it was");
}
static bool is_whole_with_other(const thing *t) {
  return is_whole(t) && is_whole(t->other);
}

static NOINLINE thing *new_thing(void) {
  thing *other = tide_alloc(sizeof *other), *t = tide_alloc(sizeof *t);
  seal(other, NULL);
  seal(t, other);
  return t;
}

static void all_pass(tide_pool *pool, void *(*new_item)(void), bool (*whole)(const thing *t)) {
  for (int collections = 0; collections < 2; collections++) {
    for (int i = 0; i < ITEMS; i++) tide_pool_put(pool, new_item());
    collect_times(collections);
    for (int i = 0; i < ITEMS; i++) {
      thing *t = tide_pool_get(pool);
      MUST(t && whole(t));
    }
  }
}

static void *new_whole(void) {
  return new_thing();
}

static void *new_leaf(void) {
  thing *t = tide_alloc_leaf(sizeof *t);
  seal(t, NULL);
  return t;
}

static void *new_large(void) {
  thing *t = tide_alloc_aligned(4096, 100000, TIDE_SCANNED);
  seal(t, new_thing());
  return t;
}

static void *new_uncollectable(void) {
  thing *t = tide_alloc_uncollectable(sizeof *t);
  seal(t, new_thing());
  return t;
}

static void *new_malloced(void) {
  thing *t = malloc(sizeof *t);
  seal(t, NULL);
  return t;
}

// A root, as long as it is not in the pool: so what it refers to must live.
static void *new_static(void) {
  static thing things[2 * ITEMS];
  static int next;
  thing *t = &things[next++];
  seal(t, new_thing());
  return t;
}

static size_t thing_bytes(const void *item, void *arg) {
  const thing *t = item;
  return is_whole(t) ? sizeof *t : 0; // it is never asked of an item that is covered
}

START_TEST(items_come_back_as_they_were) {
  init_checked();
  tide_gc_disable();
  tide_procs_set(1);
  all_pass(plain("scanned"), new_whole, is_whole_with_other);
  all_pass(plain("leaf"), new_leaf, is_whole);
  all_pass(plain("large"), new_large, is_whole_with_other);
  all_pass(plain("uncollectable"), new_uncollectable, is_whole_with_other);
  all_pass(plain("malloc"), new_malloced, is_whole);
  tide_pool_options sized = {.size = thing_bytes, .max_items = ITEMS};
  all_pass(new_pool(sized), new_malloced, is_whole);
  all_pass(new_pool(sized), new_static, is_whole_with_other);
}
END_TEST

START_TEST(an_idle_item_is_overwritten_where_its_size_is_known) {
  init_checked();
  tide_pool *pool = plain("cups"), *sized = new_pool((tide_pool_options){.size = thing_bytes});
  thing *heap = new_thing(), *outside = new_malloced(), *unknown = new_malloced();
  tide_pool_put(pool, heap);
  tide_pool_put(pool, unknown);
  tide_pool_put(sized, outside);
  ck_assert(!is_whole(heap));
  ck_assert(!is_whole(outside));
  ck_assert(is_whole(unknown));
}
END_TEST

static size_t one(const void *item, void *arg) {
  return 1;
}

// The same numbers in several pools mean several things, whether pools are told a size or not.
START_TEST(numbers_are_no_addresses) {
  init_checked();
  tide_gc_disable();
  tide_pool *pools[] = {plain("a"), plain("b"), new_pool((tide_pool_options){.size = one}),
                        new_pool((tide_pool_options){.size = one, .max_items = 1000000})};
  for (size_t p = 0; p < LENGTH(pools); p++)
    for (uintptr_t i = 1; i <= 1000; i++) tide_pool_put(pools[p], (void *)i);
  for (size_t p = 0; p < LENGTH(pools); p++) {
    uintptr_t sum = 0, item;
    while ((item = (uintptr_t)tide_pool_get(pools[p]))) sum += item;
    ck_assert_uint_eq(sum, 1000 * 1001 / 2);
    tide_pool_put(pools[p], (void *)5);
  }
  collect_times(2);
  for (size_t p = 0; p < LENGTH(pools); p++) tide_pool_put(pools[p], (void *)5);
}
END_TEST

static uintptr_t hidden[2 * ITEMS]; // addresses that keep nothing alive

static NOINLINE void put_things(tide_pool *pool) {
  for (int i = 0; i < ITEMS; i++) {
    thing *t = new_thing();
    hidden[2 * i] = hide(t);
    hidden[2 * i + 1] = hide(t->other);
    tide_pool_put(pool, t);
  }
}

static NOINLINE int count_alive(void) {
  int alive = 0;
  for (int i = 0; i < 2 * ITEMS; i++) alive += tide_base(reveal(hidden[i])) != NULL;
  return alive;
}

// One collection later than without checks.
START_TEST(nothing_is_kept_alive_by_what_the_checks_remember) {
  init_checked();
  tide_gc_disable();
  tide_pool *pool = plain("cups");
  put_things(pool);
  collect_times(2);
  ck_assert_int_eq(count_alive(), 2 * ITEMS);
  ck_assert_ptr_null(tide_pool_get(pool));
  collect_times(1);
  ck_assert_int_le(count_alive(), 4);
  put_things(pool);
  tide_pool_destroy(pool);
  collect_times(1);
  ck_assert_int_le(count_alive(), 4);
}
END_TEST

// And what is left may be put again wherever its memory comes up.
START_TEST(addresses_are_used_again_in_silence) {
  init_checked();
  tide_pool *pools[] = {plain("a"), plain("b")};
  for (int i = 0; i < 50000; i++) {
    tide_pool_put(pools[i % 2], tide_alloc(64));
    if (i % 2000 == 0) tide_collect();
  }
  for (int i = 0; i < 300; i++) {
    tide_pool *pool = plain("short");
    put_things(pool);
    tide_pool_destroy(pool);
  }
}
END_TEST

static int dropped, dropped_whole;

static void drop_thing(void *item, void *arg) {
  dropped++;
  dropped_whole += is_whole(item);
  free(item);
}

static void reset_thing(void *item, void *arg) {
  thing *t = item;
  MUST(is_whole(t));
  memset(t->text + 20, 'r', 20);
}

START_TEST(reset_and_drop_see_what_was_in_the_item) {
  init_checked();
  tide_gc_disable();
  tide_procs_set(1);
  tide_pool_options options = {.size = thing_bytes, .reset = reset_thing, .drop = drop_thing};
  options.max_items = 10;
  tide_pool *pool = new_pool(options);
  for (int i = 0; i < ITEMS; i++) tide_pool_put(pool, new_malloced());
  ck_assert_int_eq(dropped, ITEMS - 10); // there was no room
  thing *t = tide_pool_get(pool);
  ck_assert(is_whole(t));
  ck_assert_mem_eq(t->text + 20, "rrrrrrrrrrrrrrrrrrrr", 20);
  collect_times(2);
  ck_assert_int_eq(dropped, ITEMS - 1);
  for (int i = 0; i < 5; i++) tide_pool_put(pool, new_malloced());
  tide_pool_destroy(pool);
  ck_assert_int_eq(dropped, ITEMS - 1 + 5);
  ck_assert_int_eq(dropped_whole, dropped);
}
END_TEST

START_TEST(longer_lives_are_no_mistake) {
  init_checked();
  tide_gc_disable();
  tide_procs_set(1);
  tide_pool *none = new_pool((tide_pool_options){.survive = TIDE_SURVIVE_NONE});
  tide_pool *five = new_pool((tide_pool_options){.survive = 5});
  tide_pool *hour = new_pool((tide_pool_options){.min_idle_ns = UINT64_C(3600000000000)});
  put_things(none);
  put_things(five);
  put_things(hour);
  collect_times(5);
  ck_assert_ptr_null(tide_pool_get(none));
  for (int i = 0; i < ITEMS; i++) {
    MUST(is_whole_with_other(tide_pool_get(five)));
    MUST(is_whole_with_other(tide_pool_get(hour)));
  }
}
END_TEST

// What create makes, and the pool has had before, and what comes back by way of `drop`.
static void *make_thing(void *arg) {
  return arg ? new_malloced() : new_whole();
}

static void *returned[ITEMS];
static int returned_count;

static void keep_dropped(void *item, void *arg) {
  MUST(returned_count < ITEMS);
  returned[returned_count++] = item;
}

START_TEST(a_pool_knows_what_it_made) {
  init_checked();
  tide_procs_set(1);
  static int outside;
  tide_pool_options options = {.create = make_thing,
                               .created_only = true,
                               .drop = keep_dropped,
                               .arg = _i ? &outside : NULL};
  if (_i) options.size = thing_bytes;
  tide_pool *pool = new_pool(options), *other = plain("other");
  void *held[ITEMS];
  for (int rounds = 0; rounds < 20; rounds++) {
    for (int i = 0; i < ITEMS; i++) held[i] = tide_pool_get(pool);
    for (int i = 0; i < ITEMS; i += 2) tide_pool_put(other, held[i]);
    for (int i = 0; i < ITEMS; i += 2) MUST((held[i] = tide_pool_get(other)));
    if (rounds % 3 == 1) collect_times(1);
    for (int i = 0; i < ITEMS; i++) tide_pool_put(pool, held[i]);
    if (rounds % 3 == 2) collect_times(2);
    while (returned_count) tide_pool_put(pool, returned[--returned_count]);
  }
}
END_TEST

START_TEST(what_a_pool_made_outlives_it_in_another_one) {
  init_checked();
  static int outside;
  tide_pool *maker = new_pool((tide_pool_options){.create = make_thing,
                                                  .created_only = true,
                                                  .size = thing_bytes,
                                                  .arg = _i ? &outside : NULL});
  tide_pool *other = new_pool((tide_pool_options){.size = thing_bytes});
  thing *t = tide_pool_get(maker);
  tide_pool_put(other, t);
  tide_pool_destroy(maker);
  ck_assert_ptr_eq(tide_pool_get(other), t);
  ck_assert(is_whole(t));
}
END_TEST

// ---- Many threads ---------------------------------------------------------------------------

enum { THREADS = 8, POOLS = 4 };
static tide_pool *crowded[POOLS];
static AO_t damaged, rounds_done, time_is_over;

static void *use_pools(void *arg) {
  uint64_t random = 1 + AO_fetch_and_add1(&rounds_done);
  thing *held[12];
  while (!AO_load(&time_is_over)) {
    tide_pool *from = crowded[random_below(&random, POOLS)];
    size_t count = 1 + random_below(&random, LENGTH(held));
    for (size_t i = 0; i < count; i++) {
      held[i] = tide_pool_get(from);
      if (!held[i]) held[i] = from == crowded[1] ? new_leaf() : new_thing();
      bool whole = from == crowded[1] ? is_whole(held[i]) : is_whole_with_other(held[i]);
      if (!whole) AO_fetch_and_add1(&damaged);
    }
    for (size_t i = 0; i < count; i++) tide_pool_put(from, held[i]);
    if (random_below(&random, 64) == 0) tide_procs_set(1 + (int)random_below(&random, 6));
    AO_fetch_and_add1(&rounds_done);
  }
  return NULL;
}

static void *collect_all_the_time(void *arg) {
  while (!AO_load(&time_is_over)) {
    tide_collect();
    usleep(500);
  }
  return NULL;
}

static void *make_thing_again(void *arg) {
  return new_thing();
}

// In the child everything is as it was, apart from the other threads.
static void fork_and_use(void) {
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(60);
    AO_t before = damaged, done = rounds_done;
    for (int i = 0; i < 4; i++) {
      AO_store(&time_is_over, 0);
      pthread_t user;
      if (tide_thread_create(&user, NULL, use_pools, NULL)) _exit(1);
      while (AO_load(&rounds_done) < done + 200 * (AO_t)(i + 1)) tide_collect();
      AO_store(&time_is_over, 1);
      tide_blocking(join, &user);
    }
    _exit(damaged != before);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  ck_assert_int_eq(status, 0);
}

START_TEST(a_crowd_that_is_right_hears_nothing) {
  init_with(OPTIONS(o.poolcheck = 1, o.poolchaos = _i ? 77 : 0));
  crowded[0] = plain("scanned");
  crowded[1] = plain("leaf");
  crowded[2] = new_pool((tide_pool_options){
      .name = "made", .create = make_thing_again, .created_only = true, .max_items = 40});
  crowded[3] = new_pool((tide_pool_options){.name = "long", .survive = 4});
  pthread_t threads[THREADS + 1];
  for (int i = 0; i <= THREADS; i++) {
    void *(*fn)(void *) = i < THREADS ? use_pools : collect_all_the_time;
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, fn, NULL), 0);
  }
  const char *asked = getenv("TIDE_TEST_SECONDS");
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double end = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 + (asked ? atof(asked) : 1);
  while ((double)now.tv_sec + (double)now.tv_nsec * 1e-9 < end) {
    usleep(100000);
    if (!UNDER_ASAN && !UNDER_TSAN) fork_and_use(); // their allocators do not stand it
    clock_gettime(CLOCK_MONOTONIC, &now);
  }
  AO_store(&time_is_over, 1);
  for (int i = 0; i <= THREADS; i++) tide_blocking(join, &threads[i]);
  ck_assert_uint_eq(damaged, 0);
  ck_assert_uint_gt(rounds_done, THREADS);
  for (int i = 0; i < POOLS; i++) {
    tide_pool_stats stats;
    tide_pool_stats_read(crowded[i], &stats);
    ck_assert_uint_gt(stats.puts, 0);
    tide_pool_destroy(crowded[i]);
  }
}
END_TEST

static void run_silently(void *arg) {
  init_checked();
  tide_pool *pool = plain("cups");
  for (int i = 0; i < 1000; i++) {
    tide_pool_put(pool, new_thing());
    if (i % 100 == 0) tide_collect();
    MUST(is_whole_with_other(tide_pool_get(pool)));
  }
}

START_TEST(a_program_that_is_right_writes_nothing) {
  child c;
  in_child(&c, 60, run_silently, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("poolcheck");
  TCase *wrong = tcase_create("wrong");
  tcase_set_timeout(wrong, 60);
  tcase_add_loop_test(wrong, a_fault_stops_the_program_and_is_told_with_its_stacks, 0,
                      LENGTH(faults));
  tcase_add_test(wrong, a_stack_begins_where_the_pool_was_called_and_has_16_frames);
  suite_add_tcase(suite, wrong);
  TCase *right = tcase_create("right");
  tcase_set_timeout(right, 60);
  tcase_add_test(right, items_come_back_as_they_were);
  tcase_add_test(right, an_idle_item_is_overwritten_where_its_size_is_known);
  tcase_add_test(right, numbers_are_no_addresses);
  tcase_add_test(right, nothing_is_kept_alive_by_what_the_checks_remember);
  tcase_add_test(right, addresses_are_used_again_in_silence);
  tcase_add_test(right, reset_and_drop_see_what_was_in_the_item);
  tcase_add_test(right, longer_lives_are_no_mistake);
  tcase_add_loop_test(right, a_pool_knows_what_it_made, 0, 2);
  tcase_add_loop_test(right, what_a_pool_made_outlives_it_in_another_one, 0, 2);
  tcase_add_loop_test(right, a_crowd_that_is_right_hears_nothing, 0, 2);
  tcase_add_test(right, a_program_that_is_right_writes_nothing);
  suite_add_tcase(suite, right);
  return run_suite(suite);
}
