// SPDX-License-Identifier: MIT
// Free lists: order, bounds and counts, held exactly also while eight threads use a list and
// collections and forks cut in anywhere; and that items outlive collections.
//
// Under ThreadSanitizer no thread is stopped, for it holds the signal back, or forked from, and
// items are not of the heap. What threads do to a list, and what they see in items, is the same
// there.
#include "rt_testing.h"

#include <atomic_ops.h>
#include <stdbool.h>
#include <tidepool.h>

enum { THREADS = 8, CHILD_SECONDS = 20 };

// Steps of a test with many, fewer when every allocation collects.
static int steps(int wanted) {
  const char *debug = getenv("TIDE_DEBUG");
  if (debug && strstr(debug, "stress")) return wanted / 1000;
  return UNDER_TSAN ? wanted / 10 : wanted;
}

static tide_freelist_stats stats_of(tide_freelist *list) {
  tide_freelist_stats stats;
  tide_freelist_stats_read(list, &stats);
  return stats;
}

static tide_freelist *new_list(size_t max_items, tide_freelist_options options) {
  tide_freelist *list = tide_freelist_create(max_items, &options);
  ck_assert_msg(list, "%s", tide_error_message());
  return list;
}

// Items that are no heap objects, for tests in which only their identity matters.
enum { THINGS = 200 };
static char things[THINGS];

static void put_things(tide_freelist *list, int from, int to) {
  for (int i = from; i < to; i++) tide_freelist_put(list, &things[i]);
}

// Which thing a get returns; -1: none.
static int get_thing(tide_freelist *list) {
  char *thing = tide_freelist_get(list);
  return thing ? (int)(thing - things) : -1;
}

// What callbacks have seen.
static int dropped[THINGS], resets, creations;
static void *seen_arg;

static void drop_thing(void *item, void *arg) {
  dropped[(char *)item - things]++;
  seen_arg = arg;
}

static void reset_thing(void *item, void *arg) {
  MUST(!dropped[(char *)item - things]); // it comes first
  resets++;
  seen_arg = arg;
}

// Thing N has N bytes.
static size_t size_of_thing(const void *item, void *arg) {
  return (size_t)((const char *)item - things);
}

static void *(*threads_do)(void *);

static void *do_and_leave(void *arg) {
  threads_do(arg);
  if (UNDER_TSAN) tide_thread_unregister(); // it takes its part of the thread away before we come
  return NULL;
}

static void run_threads(void *(*fn)(void *), void *arg) {
  pthread_t threads[THREADS];
  threads_do = fn;
  for (int i = 0; i < THREADS; i++) create(&threads[i], do_and_leave, arg);
  for (int i = 0; i < THREADS; i++) tide_blocking(join, &threads[i]);
}

// ---- One thread -----------------------------------------------------------------------------

START_TEST(last_put_comes_first) {
  tide_freelist *list = tide_freelist_create(THINGS, NULL);
  ck_assert_int_eq(get_thing(list), -1);
  put_things(list, 0, 100);
  for (int i = 99; i >= 50; i--) ck_assert_int_eq(get_thing(list), i);
  put_things(list, 150, 152);
  ck_assert_int_eq(get_thing(list), 151);
  ck_assert_int_eq(get_thing(list), 150);
  for (int i = 49; i >= 0; i--) ck_assert_int_eq(get_thing(list), i);
  ck_assert_int_eq(get_thing(list), -1);
  tide_freelist_destroy(list);
}
END_TEST

START_TEST(order_and_counts_agree_with_a_model) {
  // Bounds on either side of a power of two, where the numbers of nodes get one more bit.
  enum { STEPS = 100000 };
  int bound = _i, model[THINGS], length = 0, free_things[THINGS], others = THINGS;
  for (int i = 0; i < THINGS; i++) free_things[i] = i;
  tide_freelist *list = tide_freelist_create((size_t)bound, NULL);
  uint64_t random = 7, gets = 0, hits = 0, puts = 0, full = 0;
  for (int i = 0; i < STEPS; i++) {
    if (others && random_below(&random, 2)) {
      int thing = free_things[random_below(&random, 2) ? others - 1 : 0];
      tide_freelist_put(list, &things[thing]);
      if (length == bound) {
        full++;
        continue;
      }
      for (int k = 0; k < others; k++)
        if (free_things[k] == thing) free_things[k] = free_things[others - 1];
      others--, puts++;
      model[length++] = thing;
    } else {
      int got = get_thing(list);
      gets++, hits += got >= 0;
      MUST(got == (length ? model[length - 1] : -1));
      if (length) free_things[others++] = model[--length];
    }
  }
  tide_freelist_stats stats = stats_of(list);
  ck_assert_uint_eq(stats.gets, gets);
  ck_assert_uint_eq(stats.hits, hits);
  ck_assert_uint_eq(stats.misses, gets - hits);
  ck_assert_uint_eq(stats.puts, puts);
  ck_assert_uint_eq(stats.dropped_full, full);
  ck_assert_uint_eq(stats.items, (uint64_t)length);
  ck_assert_uint_gt(full, 0);
}
END_TEST

START_TEST(what_does_not_fit_is_dropped_and_counted_by_cause) {
  tide_freelist *list = new_list(5, (tide_freelist_options){.drop = drop_thing,
                                                            .reset = reset_thing,
                                                            .size = size_of_thing,
                                                            .max_item_bytes = 50,
                                                            .max_bytes = 100,
                                                            .arg = &creations});
  static const struct {
    int thing;
    bool fits;
  } puts[] = {{51, false}, {50, true},   {40, true}, {11, false}, {10, true},
              {1, false},  {199, false}, {0, true},  {0, true},   {0, false}};
  for (size_t i = 0; i < LENGTH(puts); i++) {
    int before = dropped[puts[i].thing];
    put_things(list, puts[i].thing, puts[i].thing + 1);
    ck_assert_int_eq(dropped[puts[i].thing] - before, !puts[i].fits);
    ck_assert_ptr_eq(seen_arg, &creations);
    dropped[puts[i].thing] = 0; // reset_thing looks
  }
  ck_assert_int_eq(resets, LENGTH(puts));
  tide_freelist_stats stats = stats_of(list);
  ck_assert_uint_eq(stats.puts, 5);
  ck_assert_uint_eq(stats.dropped_large, 2);
  ck_assert_uint_eq(stats.dropped_full, 3);
  ck_assert_uint_eq(stats.items, 5);
  ck_assert_uint_eq(stats.bytes, 100);
  for (int i = 0; i < 3; i++) get_thing(list);
  ck_assert_uint_eq(stats_of(list).bytes, 90);
  ck_assert_uint_eq(stats_of(list).items, 2);
  tide_freelist_destroy(list);
  ck_assert_int_eq(dropped[50], 1);
  ck_assert_int_eq(dropped[40], 1);
  ck_assert_int_eq(dropped[10], 0); // that has been got
}
END_TEST

static size_t enormous(const void *item, void *arg) {
  return SIZE_MAX;
}

START_TEST(sizes_that_add_up_to_more_than_a_word_are_refused) {
  tide_freelist *list = new_list(3, (tide_freelist_options){.size = enormous});
  put_things(list, 0, 2);
  ck_assert_uint_eq(stats_of(list).items, 1);
  ck_assert_uint_eq(stats_of(list).dropped_full, 1);
  ck_assert_uint_eq(stats_of(list).bytes, SIZE_MAX);
  ck_assert_int_eq(get_thing(list), 0);
  ck_assert_uint_eq(stats_of(list).bytes, 0);
}
END_TEST

START_TEST(bytes_are_those_of_heap_objects_where_no_size_is_given) {
  tide_freelist *list = new_list(10, (tide_freelist_options){.max_bytes = 10000});
  void *object = tide_alloc(1000);
  size_t bytes = tide_size(object);
  tide_freelist_put(list, object);
  put_things(list, 0, 1);
  ck_assert_uint_eq(stats_of(list).bytes, bytes);
  tide_freelist_put(list, tide_alloc(20000));
  ck_assert_uint_eq(stats_of(list).dropped_full, 1);
  tide_freelist *plain = tide_freelist_create(10, NULL);
  tide_freelist_put(plain, object);
  ck_assert_uint_eq(stats_of(plain).bytes, 0);
}
END_TEST

static void *make_thing(void *arg) {
  seen_arg = arg;
  return creations < 3 ? &things[100 + creations++] : NULL;
}

START_TEST(misses_create) {
  tide_freelist *list = new_list(4, (tide_freelist_options){.create = make_thing, .arg = things});
  put_things(list, 0, 1);
  ck_assert_int_eq(get_thing(list), 0);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(get_thing(list), 100 + i);
  ck_assert_ptr_eq(seen_arg, things);
  ck_assert_int_eq(get_thing(list), -1);
  tide_freelist_stats stats = stats_of(list);
  ck_assert_uint_eq(stats.gets, 5);
  ck_assert_uint_eq(stats.hits, 1);
  ck_assert_uint_eq(stats.misses, 4);
  ck_assert_uint_eq(stats.created, 3);
}
END_TEST

START_TEST(counts_begin_anew_and_items_stay) {
  tide_freelist *list = new_list(2, (tide_freelist_options){.size = size_of_thing, .name = "few"});
  put_things(list, 1, 4);
  get_thing(list);
  tide_freelist_stats_reset(list);
  tide_freelist_stats stats = stats_of(list);
  ck_assert_str_eq(stats.name, "few");
  ck_assert_uint_eq(stats.gets + stats.hits + stats.misses + stats.puts + stats.dropped_full, 0);
  ck_assert_uint_eq(stats.items, 1);
  ck_assert_uint_eq(stats.bytes, 1);
  get_thing(list);
  get_thing(list);
  stats = stats_of(list);
  ck_assert_uint_eq(stats.hits, 1);
  ck_assert_uint_eq(stats.misses, 1);
  ck_assert_uint_eq(stats.items, 0);
}
END_TEST

START_TEST(hostile_arguments) {
  ck_assert_ptr_null(tide_freelist_create(0, NULL));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "max_items 0"));
  ck_assert_ptr_null(tide_freelist_create((size_t)UINT32_MAX + 1, NULL));
  ck_assert_ptr_null(tide_freelist_create(SIZE_MAX, NULL));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "max_items 18446744073709551615"));
  tide_freelist_destroy(NULL);
  char name[] = "mine";
  tide_freelist *list = new_list(1, (tide_freelist_options){.name = name});
  name[0] = 'f';
  ck_assert_str_eq(stats_of(list).name, "mine"); // copied
  tide_freelist_put(list, NULL);
  ck_assert_uint_eq(stats_of(list).puts, 0);
  ck_assert_int_eq(get_thing(list), -1);
  ck_assert_str_eq(stats_of(tide_freelist_create(1, NULL)).name, "freelist");
}
END_TEST

// Callbacks that use the list themselves.
static tide_freelist *the_list;

static void put_another(void *item, void *arg) {
  int thing = (int)((char *)item - things);
  if (thing < 5) tide_freelist_put(the_list, &things[thing + 1]);
}

START_TEST(callbacks_may_use_the_list) {
  the_list = new_list(3, (tide_freelist_options){.reset = put_another, .drop = put_another});
  put_things(the_list, 0, 1); // 5 is put first, for each one's reset puts the next
  ck_assert_int_eq(get_thing(the_list), 3);
  ck_assert_int_eq(get_thing(the_list), 4);
  ck_assert_int_eq(get_thing(the_list), 5);
}
END_TEST

static int asked;
static void *note_asking(size_t size, void *arg) {
  asked++;
  return NULL;
}
static void drop_and_allocate(void *item, void *arg) {
  if (!tide_alloc((size_t)1 << 60)) drop_thing(item, arg);
}

// It might longjmp.
START_TEST(drop_does_not_ask_the_memory_handler) {
  tide_oom_handler_set(note_asking, NULL);
  tide_freelist *list = new_list(1, (tide_freelist_options){.drop = drop_and_allocate});
  put_things(list, 0, 2); // the second one does not fit
  ck_assert_int_eq(dropped[1], 1);
  tide_freelist_destroy(list);
  ck_assert_int_eq(dropped[0], 1);
  ck_assert_int_eq(asked, 0);
}
END_TEST

static void drop_where_one_may_be_cancelled(void *item, void *arg) {
  pthread_testcancel();
  drop_thing(item, arg);
}
static void *destroy_when_cancelled(void *list) {
  pthread_cancel(pthread_self());
  tide_freelist_destroy(list);
  pthread_testcancel();
  return list;
}

// Each item is dropped, as close is a place where a thread may be cancelled.
START_TEST(a_thread_is_not_cancelled_in_destroy) {
  enum { ITEMS = 20 };
  tide_freelist *list =
      new_list(ITEMS, (tide_freelist_options){.drop = drop_where_one_may_be_cancelled});
  put_things(list, 0, ITEMS);
  pthread_t thread;
  void *result;
  create(&thread, destroy_when_cancelled, list);
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, PTHREAD_CANCELED);
  for (int i = 0; i < ITEMS; i++) ck_assert_int_eq(dropped[i], 1);
}
END_TEST

// ---- The heap -------------------------------------------------------------------------------

START_TEST(items_outlive_collections_and_not_the_list) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  tide_freelist *list = tide_freelist_create(GROUP, NULL);
  for (int i = 0; i < GROUP; i++) tide_freelist_put(list, slots[i]);
  forget(slots, GROUP);
  for (int i = 0; i < 10; i++) collect_clean();
  assert_group_lives(&g);
  // What has been got is the caller's, and nothing else keeps it.
  for (int i = 0; i < GROUP; i++) MUST(slots[i] = tide_freelist_get(list));
  collect_clean();
  assert_group_lives(&g);
  for (int i = GROUP / 2; i < GROUP; i++) tide_freelist_put(list, slots[i]);
  forget(slots, GROUP);
  collect_clean();
  ck_assert_int_ge(group_alive(&g), GROUP / 2);
  ck_assert_int_le(group_alive(&g), GROUP / 2 + GROUP_STRAYS);
  tide_freelist_destroy(list);
  collect_clean();
  assert_group_gone(&g);
}
END_TEST

START_TEST(the_list_keeps_its_argument) {
  init_verified();
  void *slots[1];
  group g;
  group_fill_some(&g, slots, 1);
  tide_freelist *list = new_list(1, (tide_freelist_options){.create = make_thing, .arg = slots[0]});
  forget(slots, 1);
  for (int i = 0; i < 3; i++) collect_clean();
  tide_freelist_get(list);
  ck_assert_int_eq(member_lives(hide(seen_arg), 0), true);
}
END_TEST

static void drop_to_malloc(void *item, void *count) {
  free(item);
  ++*(int *)count;
}

START_TEST(memory_of_others_is_dropped_once) {
  int drops = 0;
  tide_freelist *list =
      new_list(50, (tide_freelist_options){.drop = drop_to_malloc, .arg = &drops});
  for (int i = 0; i < 60; i++) tide_freelist_put(list, malloc(100));
  ck_assert_int_eq(drops, 10);
  for (int i = 0; i < 3; i++) tide_collect();
  ck_assert_int_eq(drops, 10); // not for a collection
  for (int i = 0; i < 20; i++) free(tide_freelist_get(list));
  tide_freelist_destroy(list);
  ck_assert_int_eq(drops, 40);
}
END_TEST

START_TEST(gets_and_puts_neither_allocate_nor_collect) {
  init_with(OPTIONS(o.stress = 1)); // any allocation would collect
  tide_freelist *list = new_list(100, (tide_freelist_options){.max_bytes = 1000});
  uint64_t cycles = tide_gc_cycle(), mallocs = read_stats().mallocs;
  for (int round = 0; round < 10; round++) {
    put_things(list, 0, THINGS);
    for (int i = 0; i < THINGS; i++) get_thing(list);
  }
  ck_assert_uint_eq(tide_gc_cycle(), cycles);
  ck_assert_uint_eq(read_stats().mallocs, mallocs);
}
END_TEST

// ---- Where lists may not be used ------------------------------------------------------------

static void *run_get(void *list) {
  return tide_freelist_get(list);
}

static void *use_while_blocked(void *arg) {
  tide_freelist *list = arg;
  ck_assert_ptr_null(tide_freelist_get(list));
  tide_freelist_put(list, &things[1]);
  ck_assert_uint_eq(stats_of(list).puts, 0);
  tide_freelist_stats_reset(list);
  tide_freelist_destroy(list);
  ck_assert_ptr_null(tide_freelist_create(1, NULL));
  return tide_active(run_get, list);
}

START_TEST(use_in_tide_blocking_is_refused) {
  tide_freelist *list = tide_freelist_create(9, NULL);
  put_things(list, 0, 1);
  ck_assert_ptr_eq(tide_blocking(use_while_blocked, list), &things[0]);
  ck_assert_ptr_null(tide_freelist_get(list)); // nothing was taken in
  ck_assert_uint_eq(stats_of(list).gets, 2);
}
END_TEST

static void use_while_stopped(const tide_cycle *cycle, void *arg) {
  if (tide_freelist_get(arg)) abort();
  tide_freelist_put(arg, &things[1]);
}

START_TEST(use_in_a_stopped_hook_is_refused) {
  tide_freelist *list = tide_freelist_create(9, NULL);
  put_things(list, 0, 1);
  tide_hook *start = tide_hook_add(TIDE_STW_START, use_while_stopped, list);
  tide_hook *marked = tide_hook_add(TIDE_MARK_DONE, use_while_stopped, list);
  tide_collect();
  tide_hook_remove(start);
  tide_hook_remove(marked);
  ck_assert_int_eq(get_thing(list), 0);
  ck_assert_int_eq(get_thing(list), -1);
  ck_assert_uint_eq(stats_of(list).gets, 2);
}
END_TEST

// ---- Many threads ---------------------------------------------------------------------------

enum { SPRAY = 1000, SPRAY_ITEMS = 100 };
static char sprayed[THREADS * SPRAY];
static AO_t spray_drops, spray_threads;
static AO_t spray_dropped[THREADS * SPRAY];

static void drop_sprayed(void *item, void *arg) {
  AO_fetch_and_add1(&spray_drops);
  AO_fetch_and_add1(&spray_dropped[(char *)item - sprayed]);
}

static size_t size_of_sprayed(const void *item, void *arg) {
  return 10;
}

static void *spray(void *list) {
  size_t first = SPRAY * (size_t)AO_fetch_and_add1(&spray_threads);
  for (size_t i = first; i < first + SPRAY; i++) tide_freelist_put(list, &sprayed[i]);
  return NULL;
}

// The bound is that of items, or that of bytes.
START_TEST(bounds_are_held_exactly) {
  tide_freelist *list =
      new_list(_i ? 10 * SPRAY_ITEMS : SPRAY_ITEMS,
               (tide_freelist_options){.drop = drop_sprayed,
                                       .size = size_of_sprayed,
                                       .max_bytes = _i ? 10 * SPRAY_ITEMS + 9 : 0});
  run_threads(spray, list);
  tide_freelist_stats stats = stats_of(list);
  ck_assert_uint_eq(stats.items, SPRAY_ITEMS);
  ck_assert_uint_eq(stats.bytes, 10 * SPRAY_ITEMS);
  ck_assert_uint_eq(stats.puts, SPRAY_ITEMS);
  ck_assert_uint_eq(stats.dropped_full, sizeof sprayed - SPRAY_ITEMS);
  ck_assert_uint_eq(spray_drops, sizeof sprayed - SPRAY_ITEMS);
  // Each item was dropped or is in the list.
  for (char *item; (item = tide_freelist_get(list));) spray_dropped[item - sprayed]++;
  for (size_t i = 0; i < LENGTH(spray_dropped); i++) MUST(spray_dropped[i] == 1);
}
END_TEST

// Every item has an owner, 0 while it is in the list. A thread that gets one makes itself the
// owner, and would find any other that believes the same. Items are heap objects: one that is
// collected too early loses its seal. `uses` is not atomic, for ThreadSanitizer to look at.
typedef struct owned {
  AO_t owner;
  uintptr_t seal; // its own address, inverted
  uint64_t uses;
} owned;

static struct {
  tide_freelist *list;
  AO_t names;
  AO_t gets, hits, puts, created, drops; // by the threads' own counting
  AO_t foreign, doubled, above;          // faults seen
  AO_t ended;
} crowd; // static: a root

static void *create_owned(void *arg) {
  owned *item = UNDER_TSAN ? calloc(1, sizeof *item) : tide_alloc(sizeof *item);
  if (!item) abort();
  item->seal = hide(item);
  AO_fetch_and_add1(&crowd.created);
  return item;
}

static void drop_owned(void *item, void *arg) {
  AO_fetch_and_add1(&crowd.drops);
  ((owned *)item)->seal = 0; // who finds it later sees that
}

static owned *take_over(AO_t name) {
  owned *item = tide_freelist_get(crowd.list);
  AO_fetch_and_add1(&crowd.gets);
  if (!item) return NULL;
  if (item->seal != hide(item)) AO_fetch_and_add1(&crowd.foreign);
  if (!AO_compare_and_swap(&item->owner, 0, name)) AO_fetch_and_add1(&crowd.doubled);
  if (item->uses++) AO_fetch_and_add1(&crowd.hits);
  return item;
}

static void let_go(owned *item, AO_t name) {
  item->uses++;
  if (!AO_compare_and_swap(&item->owner, name, 0)) AO_fetch_and_add1(&crowd.doubled);
  AO_fetch_and_add1(&crowd.puts);
  tide_freelist_put(crowd.list, item);
}

// Random gets and puts, holding up to 24 items.
static void *use_list(void *arg) {
  AO_t name = AO_fetch_and_add1(&crowd.names) + 1;
  uint64_t random = name;
  owned *held[24];
  size_t count = 0;
  for (int i = steps(1000000) / THREADS; i > 0; i--) {
    if (count < LENGTH(held) && (count == 0 || random_below(&random, 2))) {
      if ((held[count] = take_over(name))) count++;
    } else {
      size_t which = random_below(&random, count);
      let_go(held[which], name);
      held[which] = held[--count];
    }
  }
  while (count > 0) let_go(held[--count], name);
  AO_fetch_and_add1(&crowd.ended);
  return NULL;
}

// Reads the statistics in the middle of everything.
static void *watch(void *arg) {
  tide_freelist_stats before = {0};
  while (AO_load(&crowd.ended) < THREADS) {
    tide_freelist_stats now = stats_of(crowd.list);
    if (now.items > *(size_t *)arg || now.gets < before.gets || now.puts < before.puts ||
        now.hits < before.hits || now.bytes > sizeof(owned) * *(size_t *)arg)
      AO_fetch_and_add1(&crowd.above);
    before = now;
    sched_yield();
  }
  if (UNDER_TSAN) tide_thread_unregister();
  return NULL;
}

static size_t size_of_owned(const void *item, void *arg) {
  return sizeof(owned);
}

static void run_crowd(size_t max_items, tide_freelist_options options) {
  options.drop = drop_owned;
  options.create = create_owned;
  crowd.list = new_list(max_items, options);
  pthread_t watcher;
  collector c = {.gap_us = 300};
  create(&watcher, watch, &max_items);
  if (!UNDER_TSAN) collector_start(&c);
  run_threads(use_list, NULL);
  tide_blocking(join, &watcher);
  if (!UNDER_TSAN) ck_assert_uint_gt(collector_stop(&c), 0);
  ck_assert_uint_eq(crowd.foreign, 0);
  ck_assert_uint_eq(crowd.doubled, 0);
  ck_assert_uint_eq(crowd.above, 0);
  tide_freelist_stats stats = stats_of(crowd.list);
  ck_assert_uint_eq(stats.gets, crowd.gets);
  ck_assert_uint_eq(stats.hits, crowd.hits);
  ck_assert_uint_eq(stats.misses, crowd.created);
  ck_assert_uint_eq(stats.created, crowd.created);
  ck_assert_uint_eq(stats.dropped_full, crowd.drops);
  ck_assert_uint_eq(stats.puts + stats.dropped_full, crowd.puts);
  ck_assert_uint_eq(stats.items, crowd.created - crowd.drops);
  ck_assert_uint_eq(stats.bytes, options.size ? sizeof(owned) * stats.items : 0);
}

static const size_t crowd_bounds[] = {1, 2, 30, 1000};

START_TEST(every_item_has_one_owner) {
  run_crowd(crowd_bounds[_i], (tide_freelist_options){0});
  tide_freelist_destroy(crowd.list);
  ck_assert_uint_eq(crowd.drops, crowd.created);
}
END_TEST

START_TEST(every_item_has_one_owner_where_bytes_are_counted) {
  run_crowd(100, (tide_freelist_options){.size = size_of_owned, .max_bytes = 30 * sizeof(owned)});
  tide_freelist_destroy(crowd.list);
  ck_assert_uint_eq(crowd.drops, crowd.created);
}
END_TEST

// As many items as there is room for, all out of the list: none of them may find it full.
static void *get_and_put(void *list) {
  for (int i = steps(200000); i > 0; i--) {
    void *item = tide_freelist_get(list);
    if (item) tide_freelist_put(list, item);
  }
  return NULL;
}

START_TEST(items_out_of_the_list_always_fit) {
  tide_freelist *list =
      new_list(3, (tide_freelist_options){.size = size_of_sprayed, .max_bytes = 30});
  for (int i = 0; i < 3; i++) tide_freelist_put(list, &sprayed[i]);
  run_threads(get_and_put, list);
  ck_assert_uint_eq(stats_of(list).dropped_full, 0);
  ck_assert_uint_eq(stats_of(list).items, 3);
}
END_TEST

// ---- Fork -----------------------------------------------------------------------------------

enum { FORK_ITEMS = 40 };
static volatile int fork_done;

static void *use_until_done(void *list) {
  uint64_t random = (uintptr_t)&random;
  do {
    void *held[4];
    size_t count = 1 + random_below(&random, LENGTH(held));
    for (size_t i = 0; i < count; i++) held[i] = tide_freelist_get(list);
    for (size_t i = 0; i < count; i++)
      if (held[i]) tide_freelist_put(list, held[i]);
  } while (!is_set(&fork_done));
  return NULL;
}

// In the child: what is counted is there, and there is room for as much as ever.
static int check_list(tide_freelist *list) {
  tide_freelist_stats stats = stats_of(list);
  if (stats.gets != stats.hits + stats.misses || stats.puts - stats.hits != stats.items) return 1;
  if (stats.bytes != 10 * stats.items) return 2;
  uint64_t items = 0;
  while (tide_freelist_get(list)) items++;
  if (items != stats.items) return 3;
  if (stats_of(list).items || stats_of(list).bytes) return 4;
  tide_freelist_stats_reset(list);
  for (size_t i = 0; i < FORK_ITEMS + 1; i++) tide_freelist_put(list, &sprayed[i]);
  if (stats_of(list).puts != FORK_ITEMS || stats_of(list).dropped_full != 1) return 5;
  for (size_t i = FORK_ITEMS; i > 0; i--)
    if (tide_freelist_get(list) != &sprayed[i - 1]) return 6;
  return tide_freelist_get(list) ? 7 : 0;
}

static int check_with_threads(tide_freelist *list) {
  set_flag(&fork_done); // one round each: they meet at the first use
  run_threads(use_until_done, list);
  return check_list(list);
}

START_TEST(a_child_has_the_whole_list) {
  tide_freelist *list = new_list(
      FORK_ITEMS, (tide_freelist_options){.size = size_of_sprayed, .max_bytes = 10 * FORK_ITEMS});
  for (int i = 0; i < FORK_ITEMS; i++) tide_freelist_put(list, &sprayed[i]);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) create(&threads[i], use_until_done, list);
  for (int i = 0; i < 100; i++) {
    sleep_us(500);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
      if (i % 3 == 1) _exit(check_with_threads(list));
      if (i % 3 == 2) { // a child of a child, by the other's first use
        pid_t second = fork();
        if (second) _exit(child_result(second, CHILD_SECONDS));
      }
      _exit(check_list(list));
    }
    ck_assert_int_eq(child_result(pid, CHILD_SECONDS), 0);
  }
  set_flag(&fork_done);
  for (int i = 0; i < THREADS; i++) tide_blocking(join, &threads[i]);
  ck_assert_int_eq(check_list(list), 0); // and the parent, at the end
}
END_TEST

static pid_t forked;
static void fork_in_callback(void *item, void *arg) {
  if (item == &sprayed[0]) forked = fork();
}

START_TEST(a_callback_may_fork) {
  tide_freelist *list = new_list(
      FORK_ITEMS, (tide_freelist_options){.reset = fork_in_callback, .size = size_of_sprayed});
  tide_freelist_put(list, &sprayed[0]);
  if (forked == 0) {
    if (tide_freelist_get(list) != &sprayed[0]) _exit(1);
    _exit(stats_of(list).puts == 1 ? 0 : 2);
  }
  ck_assert_int_eq(child_result(forked, CHILD_SECONDS), 0);
  ck_assert_ptr_eq(tide_freelist_get(list), &sprayed[0]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("freelist");
  TCase *one = tcase_create("one thread");
  tcase_set_timeout(one, 60);
  tcase_add_test(one, last_put_comes_first);
  tcase_add_loop_test(one, order_and_counts_agree_with_a_model, 1, 18);
  tcase_add_test(one, what_does_not_fit_is_dropped_and_counted_by_cause);
  tcase_add_test(one, sizes_that_add_up_to_more_than_a_word_are_refused);
  tcase_add_test(one, bytes_are_those_of_heap_objects_where_no_size_is_given);
  tcase_add_test(one, misses_create);
  tcase_add_test(one, counts_begin_anew_and_items_stay);
  tcase_add_test(one, hostile_arguments);
  tcase_add_test(one, callbacks_may_use_the_list);
  tcase_add_test(one, drop_does_not_ask_the_memory_handler);
  // AddressSanitizer leaves the frames that a cancellation unwinds forbidden, and trips over them.
  if (!UNDER_ASAN && !UNDER_TSAN) tcase_add_test(one, a_thread_is_not_cancelled_in_destroy);
  suite_add_tcase(suite, one);
  TCase *heap = tcase_create("the heap");
  tcase_set_timeout(heap, 60);
  tcase_add_test(heap, items_outlive_collections_and_not_the_list);
  tcase_add_test(heap, the_list_keeps_its_argument);
  tcase_add_test(heap, memory_of_others_is_dropped_once);
  tcase_add_test(heap, gets_and_puts_neither_allocate_nor_collect);
  tcase_add_test(heap, use_in_tide_blocking_is_refused);
  tcase_add_test(heap, use_in_a_stopped_hook_is_refused);
  suite_add_tcase(suite, heap);
  TCase *threads = tcase_create("eight threads");
  tcase_set_timeout(threads, 120);
  tcase_add_loop_test(threads, bounds_are_held_exactly, 0, 2);
  tcase_add_loop_test(threads, every_item_has_one_owner, 0, LENGTH(crowd_bounds));
  tcase_add_test(threads, every_item_has_one_owner_where_bytes_are_counted);
  tcase_add_test(threads, items_out_of_the_list_always_fit);
  if (!UNDER_TSAN) {
    tcase_add_test(threads, a_child_has_the_whole_list);
    tcase_add_test(threads, a_callback_may_fork);
  }
  suite_add_tcase(suite, threads);
  return run_suite(suite);
}
