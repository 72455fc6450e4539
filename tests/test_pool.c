// SPDX-License-Identifier: MIT
// Pools: what sync.Pool's own tests ask for, exact statistics, changing processors, and that the
// collector does not know pools.
//
// A test that counts on which processor it is sets their number itself. A thread has a processor of
// its own while there are enough, and keeps it until it blocks.
#include "pool_testing.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>

#define ITEMS 100

// Items that are no heap objects, for tests in which only their identity matters.
static char things[2 * ITEMS];

static void put_things(tide_pool *pool, int from, int to) {
  for (int i = from; i < to; i++) tide_pool_put(pool, &things[i]);
}

// Which thing a get returns; -1: none.
static int get_thing(tide_pool *pool) {
  char *thing = tide_pool_get(pool);
  return thing ? (int)(thing - things) : -1;
}

static void *run_get(void *pool) {
  void *item = tide_pool_get(pool);
  leave_early();
  return item;
}

static void *in_other_thread(void *(*fn)(void *), void *arg) {
  pthread_t thread;
  void *result;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, fn, arg), 0);
  ck_assert_int_eq(pthread_join(thread, &result), 0);
  return result;
}

// ---- Order ----------------------------------------------------------------------------------

START_TEST(empty_pool_gives_nothing) {
  tide_pool *pool = tide_pool_create(NULL);
  ck_assert_ptr_nonnull(pool);
  ck_assert_ptr_null(tide_pool_get(pool));
  tide_pool_put(pool, NULL); // ignored
  ck_assert_ptr_null(tide_pool_get(pool));
  tide_pool_put(pool, &things[7]);
  ck_assert_int_eq(get_thing(pool), 7);
  ck_assert_ptr_null(tide_pool_get(pool));
  tide_pool_destroy(pool);
  tide_pool_destroy(NULL);
}
END_TEST

START_TEST(items_come_back_private_first_then_the_newest) {
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 4);
  ck_assert_int_eq(get_thing(pool), 0); // the private slot was empty for this one
  ck_assert_int_eq(get_thing(pool), 3);
  ck_assert_int_eq(get_thing(pool), 2);
  put_things(pool, 8, 10); // private, shared
  ck_assert_int_eq(get_thing(pool), 8);
  ck_assert_int_eq(get_thing(pool), 9);
  ck_assert_int_eq(get_thing(pool), 1);
  ck_assert_int_eq(get_thing(pool), -1);
}
END_TEST

START_TEST(victim_gives_its_private_item_then_the_oldest) {
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, ITEMS);
  tide_collect();
  put_things(pool, ITEMS, ITEMS + 2); // the primary goes before the victim
  ck_assert_int_eq(get_thing(pool), ITEMS);
  ck_assert_int_eq(get_thing(pool), ITEMS + 1);
  for (int i = 0; i < ITEMS; i++) ck_assert_int_eq(get_thing(pool), i);
  ck_assert_int_eq(get_thing(pool), -1);
}
END_TEST

START_TEST(many_items_all_come_back) {
  enum { MANY = 100000 };
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  for (uintptr_t i = 1; i <= MANY; i++) tide_pool_put(pool, (void *)i);
  ck_assert_uint_eq(stats_of(pool).puts, MANY);
  ck_assert_uint_eq((uintptr_t)tide_pool_get(pool), 1);
  for (uintptr_t i = MANY; i > 1; i--) ck_assert_uint_eq((uintptr_t)tide_pool_get(pool), i);
  ck_assert_ptr_null(tide_pool_get(pool));
}
END_TEST

START_TEST(others_take_the_oldest_and_leave_the_private_item) {
  tide_procs_set(2);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 4);
  for (int i = 1; i < 4; i++) ck_assert_ptr_eq(in_other_thread(run_get, pool), &things[i]);
  ck_assert_ptr_null(in_other_thread(run_get, pool));
  ck_assert_int_eq(get_thing(pool), 0);
}
END_TEST

START_TEST(private_victims_of_others_are_lost_once_the_victim_is_found_empty) {
  tide_procs_set(2);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 3);
  tide_collect();
  ck_assert_ptr_eq(in_other_thread(run_get, pool), &things[1]);
  ck_assert_ptr_eq(in_other_thread(run_get, pool), &things[2]);
  ck_assert_ptr_null(in_other_thread(run_get, pool)); // the whole victim, as far as it can see
  ck_assert_int_eq(get_thing(pool), -1);
  // Until the next rotation only.
  put_things(pool, 0, 1);
  tide_collect();
  ck_assert_int_eq(get_thing(pool), 0);
}
END_TEST

static void *run_put(void *pool) {
  put_things(pool, ITEMS, ITEMS + 1);
  leave_early();
  return NULL;
}

START_TEST(more_processors_lose_the_primary_once) {
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 2);
  tide_collect();
  put_things(pool, 2, 4); // into a primary for one processor
  tide_procs_set(2);
  in_other_thread(run_put, pool);       // makes a new one
  ck_assert_int_eq(get_thing(pool), 0); // from the victim; 2 and 3 are lost
  ck_assert_int_eq(get_thing(pool), 1);
  ck_assert_int_eq(get_thing(pool), -1);
  tide_collect();
  put_things(pool, 4, 6);
  in_other_thread(run_put, pool); // finds a place
  ck_assert_int_eq(get_thing(pool), 4);
  ck_assert_int_eq(get_thing(pool), 5);
}
END_TEST

START_TEST(fewer_processors_leave_the_others_shared_items_in_reach) {
  tide_procs_set(2);
  tide_pool *pool = tide_pool_create(NULL);
  in_other_thread(run_put, pool);
  in_other_thread(run_put, pool); // the first one's private slot is taken: into the chain
  tide_procs_set(1);
  ck_assert_int_eq(get_thing(pool), ITEMS);
  ck_assert_int_eq(get_thing(pool), -1); // the private item is out of reach,
  tide_collect();
  tide_procs_set(2);
  ck_assert_int_eq(get_thing(pool), -1); // until its processor comes back:
  tide_collect();
  ck_assert_ptr_null(in_other_thread(run_get, pool)); // too late
}
END_TEST

// ---- The two-collection rule ----------------------------------------------------------------

START_TEST(items_survive_one_collection_and_are_lost_at_the_second) {
  tide_pool *pool = tide_pool_create(NULL);
  for (int collections = 1; collections <= 2; collections++) {
    while (tide_pool_get(pool)) continue;
    put_things(pool, 0, ITEMS);
    for (int i = 0; i < collections; i++) tide_collect();
    ck_assert_int_eq(tide_pool_get(pool) != NULL, collections == 1);
  }
}
END_TEST

START_TEST(use_keeps_an_item_over_any_number_of_collections) {
  tide_pool *pool = tide_pool_create(NULL);
  tide_pool_put(pool, &things[0]);
  for (int i = 0; i < 20; i++) {
    tide_collect();
    ck_assert_int_eq(get_thing(pool), 0);
    tide_pool_put(pool, &things[0]);
  }
}
END_TEST

START_TEST(many_pools_rotate_together) {
  enum { POOLS = 300 };
  tide_procs_set(1);
  tide_pool *pools[POOLS];
  for (int i = 0; i < POOLS; i++) {
    pools[i] = tide_pool_create(&(tide_pool_options){.name = "one of many"});
    tide_pool_put(pools[i], &things[i % ITEMS]);
  }
  tide_gc_disable();
  for (int i = 0; i < POOLS; i += 3) tide_pool_destroy(pools[i]);
  for (int i = 1; i < POOLS; i += 3) {
    tide_pool_get(pools[i]);
    tide_pool_put(pools[i], &things[0]);
  }
  tide_collect();
  for (int i = 1; i < POOLS; i += 3) ck_assert_int_eq(get_thing(pools[i]), 0);
  tide_collect();
  for (int i = 2; i < POOLS; i += 3) ck_assert_int_eq(get_thing(pools[i]), -1);
}
END_TEST

static uintptr_t hidden[ITEMS]; // addresses that keep nothing alive

static NOINLINE void put_objects(tide_pool *pool) {
  for (int i = 0; i < ITEMS; i++) {
    void *object = tide_alloc(64);
    hidden[i] = hide(object);
    tide_pool_put(pool, object);
  }
}

static NOINLINE int count_alive(void) {
  int alive = 0;
  for (int i = 0; i < ITEMS; i++) alive += tide_base(reveal(hidden[i])) != NULL;
  return alive;
}

static NOINLINE void drain(tide_pool *pool) {
  while (tide_pool_get(pool)) continue;
}

// With stress=1 every one of the puts may meet a collection; then there is less to lose, or
// nothing.
START_TEST(items_that_nobody_holds_are_freed_within_five_collections) {
  tide_pool *pool = tide_pool_create(NULL);
  put_objects(pool);
  if (_i) drain(pool);
  collect_times(5);
  ck_assert_int_le(count_alive(), 1);
}
END_TEST

START_TEST(items_are_alive_just_as_long_as_the_pool_can_give_them_out) {
  tide_gc_disable(); // but for those asked for
  tide_pool *pool = tide_pool_create(NULL);
  put_objects(pool);
  ck_assert_int_eq(count_alive(), ITEMS);
  collect_times(1);
  ck_assert_int_eq(count_alive(), ITEMS);
  collect_times(1); // what the hook drops dies in this very collection
  ck_assert_int_le(count_alive(), 1);
  ck_assert_ptr_null(tide_pool_get(pool));
}
END_TEST

START_TEST(destroy_frees_everything) {
  tide_gc_disable();
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "doomed"});
  put_objects(pool);
  collect_times(1); // now there is a victim as well
  tide_pool_put(pool, tide_alloc(64));
  tide_pool_destroy(pool);
  pool = NULL;
  collect_times(1); // and no hook is called with what is no pool any more
  ck_assert_int_le(count_alive(), 1);
}
END_TEST

static uint64_t live_objects(void) {
  collect_times(2);
  tide_memstats stats;
  tide_memstats_read(&stats);
  return stats.heap_objects;
}

// Pools that are neighbours in memory, destroyed in another order than made: what they were in goes
// as well. One page for heads may stay, and what a stray word keeps.
START_TEST(destroyed_pools_leave_no_memory) {
  enum { POOLS = 2000, STEP = 7, STAYS = 8 };
  static tide_pool *pools[POOLS];
  uint64_t before = live_objects();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < POOLS; i++) pools[i] = tide_pool_create(NULL);
    for (int i = 0; i < POOLS; i++) tide_pool_put(pools[i], tide_alloc_leaf(16));
    ck_assert_uint_ge(live_objects(), before + POOLS);
    for (int i = 0; i < POOLS; i++) {
      tide_pool_destroy(pools[i * STEP % POOLS]);
      pools[i * STEP % POOLS] = NULL;
    }
    ck_assert_uint_le(live_objects(), before + STAYS);
  }
}
END_TEST

// ---- The rule falls out of the public hooks -------------------------------------------------

// A pool in ten lines, of nothing but tide_hook_add. Static data, so both arrays are roots.
static void *mini_primary[ITEMS], *mini_victim[ITEMS];

static void mini_rotate(const tide_cycle *cycle, void *arg) {
  memcpy(mini_victim, mini_primary, sizeof mini_victim);
  memset(mini_primary, 0, sizeof mini_primary);
}

static NOINLINE void fill_mini_pool(void) {
  for (int i = 0; i < ITEMS; i++) {
    mini_primary[i] = tide_alloc(64);
    hidden[i] = hide(mini_primary[i]);
  }
}

START_TEST(anybody_can_have_the_two_collection_rule) {
  tide_gc_disable();
  tide_hook *hook = tide_hook_add(TIDE_STW_START, mini_rotate, NULL);
  ck_assert_ptr_nonnull(hook);
  fill_mini_pool();
  collect_times(1);
  ck_assert_int_eq(count_alive(), ITEMS);
  ck_assert_ptr_nonnull(mini_victim[0]);
  collect_times(1);
  ck_assert_ptr_null(mini_victim[0]);
  ck_assert_int_le(count_alive(), 1);
  tide_hook_remove(hook);
}
END_TEST

// Lines with the word in them, whatever its case, apart from our own name.
static int lines_about_pools(const char *path) {
  FILE *file = fopen(path, "re");
  ck_assert_ptr_nonnull(file);
  char line[4096];
  int found = 0;
  for (int number = 1; fgets(line, sizeof line, file); number++) {
    for (char *c = line; *c; c++) *c = (char)tolower((unsigned char)*c);
    for (char *word = line; (word = strstr(word, "pool")); word++) {
      if (word - line >= 4 && !strncmp(word - 4, "tide", 4)) continue;
      printf("%s:%d: %s", path, number, line);
      found++;
      break;
    }
  }
  fclose(file);
  return found;
}

static int search_directory(const char *path, int *files) {
  DIR *directory = opendir(path);
  ck_assert_ptr_nonnull(directory);
  int found = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *name = entry->d_name;
    const char *end = strrchr(name, '.');
    char inside[4096];
    snprintf(inside, sizeof inside, "%s/%s", path, name);
    // The public headers, in directories called tidepool, may tell users about pools.
    if (entry->d_type == DT_DIR && name[0] != '.' && !strstr(name, "tidepool"))
      found += search_directory(inside, files);
    if (!end || (strcmp(end, ".c") && strcmp(end, ".h"))) continue;
    found += lines_about_pools(inside);
    ++*files;
  }
  closedir(directory);
  return found;
}

START_TEST(the_rooms_below_do_not_know_pools) {
#ifdef SOURCE_ROOT
  int files = 0;
  ck_assert_int_eq(search_directory(SOURCE_ROOT "/gc", &files), 0);
  ck_assert_int_eq(search_directory(SOURCE_ROOT "/runtime", &files), 0);
  ck_assert_int_gt(files, 10);
#endif
}
END_TEST

// ---- Create ---------------------------------------------------------------------------------

static void *create_counting(void *arg) {
  int *created = arg;
  ++*created;
  return tide_alloc(32);
}

START_TEST(a_miss_creates_and_what_it_made_can_be_put_back) {
  // arg is a heap object that only the pool refers to.
  tide_pool_options options = {.create = create_counting, .arg = tide_alloc(sizeof(int))};
  tide_pool *pool = tide_pool_create(&options);
  int *created = options.arg;
  void *first = tide_pool_get(pool), *second = tide_pool_get(pool);
  ck_assert_ptr_nonnull(first);
  ck_assert_ptr_nonnull(second);
  ck_assert_ptr_ne(first, second);
  ck_assert_int_eq(*created, 2);
  tide_pool_put(pool, first);
  ck_assert_ptr_eq(tide_pool_get(pool), first);
  ck_assert_int_eq(*created, 2);
  tide_pool_stats stats = stats_of(pool);
  ck_assert_uint_eq(stats.misses, 2);
  ck_assert_uint_eq(stats.gets, 3);
}
END_TEST

static NOINLINE tide_pool *pool_with_hidden_argument(void) {
  tide_pool_options options = {.create = create_counting, .arg = tide_alloc(sizeof(int))};
  hidden[0] = hide(options.arg);
  return tide_pool_create(&options);
}

START_TEST(the_pool_keeps_its_argument) {
  tide_pool *pool = pool_with_hidden_argument();
  collect_times(3);
  ck_assert_ptr_nonnull(tide_base(reveal(hidden[0])));
  ck_assert_ptr_nonnull(tide_pool_get(pool));
  tide_pool_destroy(pool);
  collect_times(1);
  ck_assert_ptr_null(tide_base(reveal(hidden[0])));
}
END_TEST

static tide_pool *nested;

static void *create_from_the_pool(void *arg) {
  tide_collect();
  put_things(nested, 0, 20);
  return tide_pool_get(nested);
}

START_TEST(create_may_collect_and_use_the_pool) {
  tide_procs_set(1);
  nested = tide_pool_create(&(tide_pool_options){.create = create_from_the_pool});
  ck_assert_int_eq(get_thing(nested), 0);
  ck_assert_int_eq(get_thing(nested), 19);
}
END_TEST

static void *create_nothing(void *arg) {
  return NULL;
}

START_TEST(create_may_fail) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.create = create_nothing});
  ck_assert_ptr_null(tide_pool_get(pool));
  ck_assert_uint_eq(stats_of(pool).misses, 1);
}
END_TEST

static jmp_buf before_get;

static void *leave(void *arg) {
  longjmp(before_get, 1);
}

// As a memory handler does, or an exception.
START_TEST(create_may_be_left) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.create = leave});
  for (volatile int i = 0; i < 3; i++)
    if (!setjmp(before_get)) ck_assert_ptr_null(tide_pool_get(pool));
  tide_pool_put(pool, &things[0]);
  tide_collect();
  ck_assert_int_eq(get_thing(pool), 0);
  tide_pool_stats stats = stats_of(pool);
  ck_assert_uint_eq(stats.gets, 4);
  ck_assert_uint_eq(stats.misses, 3);
  ck_assert_uint_eq(stats.created, 0);
  tide_pool_destroy(pool);
}
END_TEST

// ---- Statistics -----------------------------------------------------------------------------

static void check_stats(tide_pool *pool, tide_pool_stats expected) {
  tide_pool_stats stats = stats_of(pool);
  ck_assert_uint_eq(stats.gets, expected.gets);
  ck_assert_uint_eq(stats.hits_private, expected.hits_private);
  ck_assert_uint_eq(stats.hits_shared, expected.hits_shared);
  ck_assert_uint_eq(stats.hits_stolen, expected.hits_stolen);
  ck_assert_uint_eq(stats.hits_victim, expected.hits_victim);
  ck_assert_uint_eq(stats.misses, expected.misses);
  ck_assert_uint_eq(stats.puts, expected.puts);
  ck_assert_uint_eq(hits(&stats) + stats.misses, stats.gets);
}

START_TEST(statistics_tell_where_items_came_from) {
  tide_gc_disable();
  tide_procs_set(2);
  tide_pool *pool = tide_pool_create(NULL);
  check_stats(pool, (tide_pool_stats){0});
  tide_pool_get(pool);
  check_stats(pool, (tide_pool_stats){.gets = 1, .misses = 1});
  put_things(pool, 0, 10);
  in_other_thread(run_get, pool);
  for (int i = 0; i < 5; i++) tide_pool_get(pool);
  tide_pool_stats expected = {
      .gets = 7, .hits_private = 1, .hits_shared = 4, .hits_stolen = 1, .misses = 1, .puts = 10};
  check_stats(pool, expected);

  tide_collect(); // 4 shared ones are left
  in_other_thread(run_get, pool);
  for (int i = 0; i < 4; i++) tide_pool_get(pool);
  expected.gets += 5;
  expected.hits_victim += 4;
  expected.misses += 1;
  check_stats(pool, expected);
  ck_assert_uint_eq(stats_of(pool).rotations, 1);

  for (int i = 0; i < 4; i++) tide_collect(); // the counts outlive the sets they are in
  check_stats(pool, expected);
  ck_assert_uint_eq(stats_of(pool).rotations, 5);
  tide_pool_stats_reset(pool);
  check_stats(pool, (tide_pool_stats){0});
  ck_assert_uint_eq(stats_of(pool).rotations, 0);
  put_things(pool, 0, 1);
  tide_pool_get(pool);
  check_stats(pool, (tide_pool_stats){.gets = 1, .hits_private = 1, .puts = 1});
}
END_TEST

START_TEST(statistics_outlive_every_change_of_processors) {
  tide_pool *pool = tide_pool_create(NULL);
  uint64_t gets = 0, puts = 0, found = 0;
  static const int numbers[] = {1, 2, 4, 12, 64, 3, 1, 1024, 5, 70, 1};
  for (size_t i = 0; i < 3 * LENGTH(numbers); i++) {
    tide_procs_set(numbers[i % LENGTH(numbers)]);
    if (i % 4 == 3) tide_collect();
    for (int k = 0; k < 40; k++, puts++) tide_pool_put(pool, &things[k]);
    for (int k = 0; k < 30; k++, gets++) found += tide_pool_get(pool) != NULL;
    tide_pool_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.gets, gets);
    ck_assert_uint_eq(stats.puts, puts);
    ck_assert_uint_eq(hits(&stats), found);
  }
}
END_TEST

// ---- Where pools may not be used ------------------------------------------------------------

static void *use_while_blocked(void *arg) {
  tide_pool *pool = arg;
  ck_assert_ptr_null(tide_pool_get(pool));
  tide_pool_put(pool, &things[1]);
  ck_assert_uint_eq(stats_of(pool).gets, 0);
  tide_pool_stats_reset(pool);
  tide_pool_destroy(pool);
  ck_assert_ptr_null(tide_pool_create(NULL));
  return tide_active(run_get, pool);
}

START_TEST(use_in_tide_blocking_is_refused) {
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 1);
  ck_assert_ptr_eq(tide_blocking(use_while_blocked, pool), &things[0]);
  ck_assert_ptr_null(tide_pool_get(pool)); // nothing was taken in
  ck_assert_uint_eq(stats_of(pool).gets, 2);
}
END_TEST

static void use_while_stopped(const tide_cycle *cycle, void *arg) {
  if (tide_pool_get(arg)) abort();
  tide_pool_put(arg, &things[1]);
}

START_TEST(use_in_a_stopped_hook_is_refused) {
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  put_things(pool, 0, 1);
  tide_hook *start = tide_hook_add(TIDE_STW_START, use_while_stopped, pool);
  tide_hook *marked = tide_hook_add(TIDE_MARK_DONE, use_while_stopped, pool);
  tide_collect();
  tide_hook_remove(start);
  tide_hook_remove(marked);
  ck_assert_int_eq(get_thing(pool), 0);
  ck_assert_int_eq(get_thing(pool), -1);
}
END_TEST

static void use_at_cycle_end(const tide_cycle *cycle, void *arg) {
  for (int i = 0; i < 20; i++) tide_pool_put(arg, &things[i]);
  tide_pool_get(arg);
}

START_TEST(use_at_the_end_of_a_cycle_is_allowed_even_inside_a_put) {
  // The pool's own allocations collect, and the hook then uses the pool that is just being put to.
  tide_procs_set(1);
  tide_pool *pool = tide_pool_create(NULL);
  tide_hook *hook = tide_hook_add(TIDE_CYCLE_END, use_at_cycle_end, pool);
  tide_collect();
  put_things(pool, 0, ITEMS);
  tide_collect();
  tide_hook_remove(hook);
  tide_pool_stats stats = stats_of(pool);
  uint64_t cycles = stats.rotations;
  ck_assert_uint_eq(stats.puts, ITEMS + 20 * cycles);
  ck_assert_uint_eq(stats.gets, cycles);
}
END_TEST

// ---------------------------------------------------------------------------------------------

int main(void) {
  Suite *suite = suite_create("pool");
  TCase *order = tcase_create("order");
  tcase_add_checked_fixture(order, go_by_processors, NULL);
  tcase_add_checked_fixture(order, tide_gc_disable, NULL); // no collections but those asked for
  tcase_set_timeout(order, 60);
  tcase_add_test(order, empty_pool_gives_nothing);
  tcase_add_test(order, items_come_back_private_first_then_the_newest);
  tcase_add_test(order, victim_gives_its_private_item_then_the_oldest);
  tcase_add_test(order, many_items_all_come_back);
  tcase_add_test(order, others_take_the_oldest_and_leave_the_private_item);
  tcase_add_test(order, private_victims_of_others_are_lost_once_the_victim_is_found_empty);
  tcase_add_test(order, more_processors_lose_the_primary_once);
  tcase_add_test(order, fewer_processors_leave_the_others_shared_items_in_reach);
  suite_add_tcase(suite, order);
  TCase *rule = tcase_create("two collections");
  tcase_add_checked_fixture(rule, go_by_processors, NULL);
  tcase_set_timeout(rule, 60);
  tcase_add_test(rule, items_survive_one_collection_and_are_lost_at_the_second);
  tcase_add_test(rule, use_keeps_an_item_over_any_number_of_collections);
  tcase_add_loop_test(rule, items_that_nobody_holds_are_freed_within_five_collections, 0, 2);
  tcase_add_test(rule, items_are_alive_just_as_long_as_the_pool_can_give_them_out);
  tcase_add_test(rule, destroy_frees_everything);
  tcase_add_test(rule, destroyed_pools_leave_no_memory);
  tcase_add_test(rule, anybody_can_have_the_two_collection_rule);
  tcase_add_test(rule, the_rooms_below_do_not_know_pools);
  tcase_add_test(rule, many_pools_rotate_together);
  suite_add_tcase(suite, rule);
  TCase *create = tcase_create("create");
  tcase_add_checked_fixture(create, tide_gc_disable, NULL);
  tcase_set_timeout(create, 60);
  tcase_add_test(create, a_miss_creates_and_what_it_made_can_be_put_back);
  tcase_add_test(create, the_pool_keeps_its_argument);
  tcase_add_test(create, create_may_collect_and_use_the_pool);
  tcase_add_test(create, create_may_fail);
  tcase_add_test(create, create_may_be_left);
  suite_add_tcase(suite, create);
  TCase *statistics = tcase_create("statistics");
  tcase_add_checked_fixture(statistics, go_by_processors, NULL);
  tcase_set_timeout(statistics, 60);
  tcase_add_test(statistics, statistics_tell_where_items_came_from);
  tcase_add_test(statistics, statistics_outlive_every_change_of_processors);
  suite_add_tcase(suite, statistics);
  TCase *refused = tcase_create("refused");
  tcase_set_timeout(refused, 60);
  tcase_add_test(refused, use_in_tide_blocking_is_refused);
  tcase_add_test(refused, use_in_a_stopped_hook_is_refused);
  tcase_add_test(refused, use_at_the_end_of_a_cycle_is_allowed_even_inside_a_put);
  suite_add_tcase(suite, refused);
  return run_suite(suite);
}
