// SPDX-License-Identifier: MIT
// Growth: how often a heap that only grows is collected, what a steady one costs, and numbers of
// things (pools, ranges, threads, fragments) at which tables of a fixed size would be full.
#define _GNU_SOURCE
#include "growth_testing.h"

#include "pacer.h"

#include <sched.h>
#include <tidepool/pool.h>

// ---- From nothing to a large live heap ------------------------------------------------------

enum { RUN_SLACK = 256 << 10 }; // what threads may hold in runs of free slots, of all classes

// Of every collection: what the one before it found, and what was allocated between them.
static struct {
  uint64_t automatic, others, too_early, before_goal;
  uint64_t allocated_then, live_then, goal_then, scanned_then;
  int percent;
} seen;

static void note_cycle(const tide_cycle *cycle, void *arg) {
  uint64_t allocated = read_stats().total_alloc;
  if (cycle->cause == TIDE_CAUSE_GOAL) {
    seen.automatic++;
    uint64_t growth = seen.live_then * (uint64_t)seen.percent / 100;
    if (allocated - seen.allocated_then + RUN_SLACK < growth) seen.too_early++;
    if (cycle->heap_start_bytes < seen.goal_then) seen.before_goal++;
  } else {
    seen.others++;
  }
  seen.allocated_then = allocated;
  seen.live_then = cycle->live_bytes;
  seen.goal_then = cycle->next_goal_bytes;
  seen.scanned_then = cycle->stack_bytes + cycle->global_bytes;
}

static void watch(int percent, size_t min_heap) {
  init_with(OPTIONS(o.gc_percent = percent));
  ck_assert_uint_eq(tide_min_heap_set(min_heap), 0);
  memset(&seen, 0, sizeof seen);
  seen.percent = percent;
  seen.goal_then = read_stats().next_gc;
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, note_cycle, NULL));
}

// A list of nodes of several sizes until `bytes` are live, with every fifth object dropped at once
// if there is to be garbage.
static void grow_to(size_t bytes, bool garbage) {
  static const size_t sizes[] = {64, 4096, 1024, 200, 8192, 40000};
  size_t live = 0;
  for (size_t i = 0, made = 0; live < bytes; made++) {
    size_t size = sizes[i % LENGTH(sizes)];
    void **node = tide_alloc(size);
    MUST(node);
    if (garbage && made % 5 == 4) continue;
    *node = table[0];
    table[0] = node;
    live += size;
    i++;
  }
}

// By the formula: how many collections it takes to come from nothing to `bytes` live.
static uint64_t expected_collections(int percent, size_t min_heap, size_t bytes, bool garbage) {
  double live = 0, kept = garbage ? 0.8 : 1;
  uint64_t collections = 0;
  for (;; collections++) {
    pacer p = {.percent = percent, .min_heap_bytes = min_heap, .live_bytes = (uint64_t)live};
    double goal = (double)pacer_percent_goal(&p);
    live += (goal - live) * kept;
    if (live > (double)bytes) return collections;
  }
}

static const int percents[] = {50, 100, 200};
static const size_t min_heaps[] = {0, 384 * MIB, 4096 * MIB};
enum { GROWTHS = 3 * 3 * 2 };

START_TEST(growth_collects_as_often_as_the_formula_says_and_never_too_early) {
  int percent = percents[_i / 6];
  size_t min_heap = min_heaps[_i / 2 % 3];
  bool garbage = _i % 2;
  size_t bytes = short_or_full((UNDER_ASAN ? 64 : 256) * MIB, 2 * GIB);
  if (is_full_form() && available_bytes() < 6 * GIB) bytes = 512 * MIB;
  watch(percent, min_heap);
  grow_to(bytes, garbage);
  uint64_t expected = expected_collections(percent, min_heap, bytes, garbage);
  // Roots add to each goal, so there may be fewer; no more than the one at the very end.
  uint64_t fewer = UNDER_ASAN ? expected : expected / 4 + 1;
  ck_assert_uint_le(seen.automatic, expected + 1);
  ck_assert_uint_ge(seen.automatic + fewer, expected);
  ck_assert_uint_eq(seen.others, 0);
  ck_assert_uint_eq(seen.too_early, 0);
  ck_assert_uint_eq(seen.before_goal, 0);
  ck_assert_uint_ge(read_stats().heap_alloc, bytes);
}
END_TEST

START_TEST(smallest_heap_of_four_gib_takes_no_memory_before_it_is_used) {
  init_with(OPTIONS(o.gc_percent = 100));
  tide_memstats before = read_stats();
  size_t resident = resident_bytes();
  tide_min_heap_set(4 * GIB);
  ck_assert_uint_eq(read_stats().next_gc, 4 * GIB);
  table[0] = tide_alloc(100);
  ck_assert_uint_le(resident_bytes(), resident + 4 * MIB);
  ck_assert_uint_le(read_stats().sys, before.sys + 4 * MIB);
  grow_to(32 * MIB, true);
  ck_assert_uint_le(resident_bytes(), resident + (UNDER_ASAN ? 80 : 56) * MIB);
  ck_assert_uint_eq(read_stats().num_gc, 0);
}
END_TEST

// ---- A live heap as large as the trigger ----------------------------------------------------

static NOINLINE void live_of(size_t bytes, size_t node_bytes) {
  for (size_t live = 0; live < bytes; live += node_bytes) {
    void **node = tide_alloc(node_bytes);
    MUST(node);
    *node = table[0];
    table[0] = node;
  }
}

static const ptrdiff_t distances[] = {-65536, -4096, -1, 0, 1, 4096, 65536};
enum { DISTANCES = LENGTH(distances) };

// The smallest heap is set to what is live, give or take a little. At the least growth is
// live x percent / 100, so a live set can never be collected again and again.
START_TEST(live_heap_next_to_the_smallest_heap_is_not_collected_again_and_again) {
  int percent = percents[_i / DISTANCES];
  enum { LIVE = 16 << 20 };
  watch(percent, 0);
  live_of(LIVE, 1024);
  tide_collect();
  tide_min_heap_set((size_t)((ptrdiff_t)seen.live_then + distances[_i % DISTANCES]));
  seen.goal_then = read_stats().next_gc;
  uint64_t before = seen.automatic, churn = 8 * LIVE;
  for (uint64_t done = 0; done < churn; done += 1024) sink = tide_alloc_leaf(1024);
  sink = NULL;
  uint64_t collections = seen.automatic - before;
  ck_assert_uint_le(collections, churn / ((uint64_t)LIVE * (uint64_t)percent / 100) + 2);
  ck_assert_uint_ge(collections, 1);
  ck_assert_uint_eq(seen.too_early, 0);
  ck_assert_uint_eq(seen.before_goal, 0);
}
END_TEST

// The heap stands just below, at, and just above its goal, all of it live, when the next object is
// asked for.
START_TEST(live_heap_at_its_goal_is_collected_once) {
  watch(100, 32 * MIB);
  size_t object = 65536, goal = 32 * MIB;
  ptrdiff_t distance = distances[_i] / 65536 * 65536;
  live_of((size_t)((ptrdiff_t)goal + distance), object);
  ck_assert_uint_eq(seen.automatic, distance > 0); // the last one found the goal reached
  live_of(2 * object, object);
  ck_assert_uint_eq(seen.automatic, 1);
  live_of(goal / 2, object);
  live_of(goal / 2, 512);
  ck_assert_uint_le(seen.automatic, 2);
  ck_assert_uint_eq(seen.before_goal, 0);
}
END_TEST

// ---- Many pools -----------------------------------------------------------------------------

static char things[1000];

// What a thread leaves in the private slot of a CPU is lost to it once it has moved to another.
static void stay_on_this_cpu(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
}

START_TEST(tens_of_thousands_of_pools_keep_their_rule_and_go) {
  size_t count = short_or_full(UNDER_ASAN ? 3000 : 10000, 100000);
  init_with(OPTIONS(o.gc_percent = 100, o.procs = 2));
  stay_on_this_cpu();
  tide_pool **pools = calloc(count, sizeof *pools);
  for (size_t i = 0; i < count; i++) {
    pools[i] = tide_pool_create(&(tide_pool_options){.name = "one of very many"});
    MUST(pools[i]);
  }
  tide_gc_disable(); // from here on, only by hand
  tide_collect();
  for (size_t i = 0; i < count; i++) tide_pool_put(pools[i], &things[i % sizeof things]);
  tide_collect();
  for (size_t i = 0; i < count; i += 2) MUST(tide_pool_get(pools[i]) == &things[i % sizeof things]);
  tide_collect();
  for (size_t i = 0; i < count; i++) MUST(!tide_pool_get(pools[i]));
  // From the middle outwards: neither the first nor the last added.
  for (size_t i = 0; i < count; i++)
    tide_pool_destroy(pools[i % 2 ? count / 2 + i / 2 : count / 2 - 1 - i / 2]);
  clear_stack();
  tide_collect();
  ck_assert_uint_le(read_stats().heap_objects, 20);
  free(pools);
}
END_TEST

// ---- Many root ranges -----------------------------------------------------------------------

// Adds ranges, collects with an object in each hundredth, removes them; the seconds of CPU time
// that the removal took.
static double add_and_remove_ranges(size_t count, int order) {
  void **slots = calloc(2 * count, sizeof *slots);
  for (size_t i = 0; i < count; i++)
    MUST(tide_roots_add(slots + 2 * i, slots + 2 * i + 1) == TIDE_OK);
  for (size_t i = 0; i < count; i += 100) {
    uintptr_t *object = tide_alloc(32);
    *object = ~i;
    slots[2 * i] = object;
  }
  clear_stack();
  tide_collect();
  for (size_t i = 0; i < count; i += 100) MUST(*(uintptr_t *)slots[2 * i] == ~i);
  double began = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
  for (size_t i = 0; i < count; i++) {
    size_t which = order == 0 ? i : order == 1 ? count - 1 - i : i * 7919 % count;
    MUST(tide_roots_remove(slots + 2 * which, slots + 2 * which + 1) == TIDE_OK);
  }
  double took = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - began;
  clear_stack();
  tide_collect();
  ck_assert_uint_le(read_stats().heap_objects, 20);
  free(slots);
  return took;
}

START_TEST(removal_of_root_ranges_does_not_take_longer_the_more_there_are) {
  init_with(OPTIONS(o.gc_percent = -1));
  double ten_thousand = add_and_remove_ranges(10000, _i);
  double hundred_thousand = add_and_remove_ranges(100000, _i);
  // 10 times as long and a little; if each removal looked at all, 100 times as long.
  ck_assert_msg(hundred_thousand <= 30 * ten_thousand + 0.5, "%g s, and %g s for a tenth",
                hundred_thousand, ten_thousand);
}
END_TEST

// ---- Many threads ---------------------------------------------------------------------------

static void *allocate_in_every_class(void *arg) {
  for (size_t bytes = 16; bytes <= 20000; bytes *= 4) {
    char *scanned = tide_alloc(bytes), *leaf = tide_alloc_leaf(bytes);
    MUST(scanned && leaf && !scanned[0] && !scanned[bytes - 1]);
    scanned[bytes - 1] = leaf[bytes - 1] = 1;
  }
  return NULL;
}

START_TEST(ten_thousand_threads_over_time_leave_nothing) {
  enum { BATCH = 50 };
  size_t batches = short_or_full(UNDER_ASAN ? 40 : 200, 2000);
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_t threads[BATCH];
  tide_memstats early = {0};
  size_t maps = 0;
  for (size_t i = 0; i < batches; i++) {
    for (int k = 0; k < BATCH; k++)
      MUST(!tide_thread_create(&threads[k], NULL, allocate_in_every_class, NULL));
    for (int k = 0; k < BATCH; k++) pthread_join(threads[k], NULL);
    if (i == 9) early = read_stats(), maps = count_maps();
  }
  tide_memstats late = read_stats();
  // At most 50 at a time, so there are no more records than that; the heap is at most what so many
  // owners of blocks need: 6 classes, 2 kinds.
  ck_assert_uint_le(late.other_sys, early.other_sys + BATCH * 16384);
  ck_assert_uint_le(late.heap_sys, 2 * BATCH * 6 * 2 * HEAP_BLOCK_BYTES);
  ck_assert_uint_le(count_maps(), maps + 2 * BATCH); // stacks that the C library keeps
  ck_assert_uint_ge(late.num_gc, batches / 20);
  clear_stack();
  tide_collect();
  ck_assert_uint_le(read_stats().heap_objects, 20);
  ck_assert_uint_eq(late.mallocs - early.mallocs, (batches - 10) * early.mallocs / 10);
}
END_TEST

// ---- Kept fragments between dropped objects --------------------------------------------------

// Small objects that stay for a while between larger ones that are dropped at once. A heap of many
// mappings falls into pieces, until the system allows it no more of them.
START_TEST(kept_fragments_between_dropped_objects_split_no_mappings) {
  enum { KEPT = 1 << 20, EACH_TIME = 20000 };
  double seconds = is_full_form() ? 60 : 1.5;
  init_with(OPTIONS(o.gc_percent = 100));
  void **kept = table[0] = tide_alloc(KEPT * sizeof(void *));
  uint64_t state = test_seed(), made = 0;
  size_t maps = 0, most_maps = 0, most_mapped = 0;
  double end = seconds_on(CLOCK_MONOTONIC) + seconds;
  for (unsigned round = 0; round < 16 || seconds_on(CLOCK_MONOTONIC) < end; round++) {
    for (int i = 0; i < EACH_TIME; i++, made++) {
      uintptr_t *small = tide_alloc(8);
      MUST(small && !*small);
      *small = ~(uintptr_t)made;
      // In the order of their making, then at random: what stays is scattered.
      kept[_i ? random_below(&state, KEPT) : made % KEPT] = small;
      size_t bytes = _i && i % 16 == 0 ? 1024 + random_below(&state, 100000) : 1024;
      char *large = tide_alloc(bytes);
      MUST(large);
      large[bytes - 1] = 1;
    }
    if (round % 8 == 7) tide_collect_and_release();
    if (round == 7) maps = count_maps();
    size_t now = count_maps(), mapped = mapped_bytes();
    if (now > most_maps) most_maps = now;
    if (mapped > most_mapped) most_mapped = mapped;
  }
  ck_assert_uint_le(most_maps, maps + 8);
  // Live are the table and 16 bytes for each place of it; twice that, the roots, and what sweeping
  // has not come to yet.
  ck_assert_uint_le(most_mapped, 3 * KEPT * 24 + 16 * MIB);
  uint64_t found = 0;
  for (size_t i = 0; i < KEPT; i++) found += kept[i] && *(uintptr_t *)kept[i] >= ~(uintptr_t)made;
  ck_assert_uint_ge(found, made < KEPT && !_i ? made : 1000);
}
END_TEST

// ---- Sixteen threads ------------------------------------------------------------------------

static const size_t sizes_of_16[] = {32, 256, 752, 2048};
enum { SIZES = LENGTH(sizes_of_16), KEPT_OF_16 = 64 };

typedef struct allocator {
  pthread_t thread;
  uint64_t seed;
  size_t times;
  uint64_t made[SIZES];
  void *kept[SIZES][KEPT_OF_16]; // static data: a root
} allocator;
static allocator allocators[16];

static uint64_t word_of(uint64_t number, size_t k) {
  return (number * 0x9e3779b97f4a7c15u + k) | (uint64_t)1 << 63; // no address
}

static void check_kept(const uint64_t *object, size_t words) {
  if (!object) return;
  for (size_t k = 1; k < words; k++) MUST(object[k] == word_of(object[0], k));
}

static void *allocate_and_check(void *arg) {
  allocator *a = arg;
  for (size_t i = 0; i < a->times; i++) {
    size_t s = i % SIZES, words = sizes_of_16[s] / 8;
    uint64_t *object = s % 2 ? tide_alloc_leaf(sizes_of_16[s]) : tide_alloc(sizes_of_16[s]);
    MUST(object && (s % 2 || (!object[0] && !object[words - 1])));
    a->made[s]++;
    if (i / SIZES % 8) continue;
    object[0] = next_random(&a->seed) >> 1 | (uint64_t)1 << 62;
    for (size_t k = 1; k < words; k++) object[k] = word_of(object[0], k);
    void **place = &a->kept[s][random_below(&a->seed, KEPT_OF_16)];
    check_kept(*place, words);
    *place = object;
  }
  for (size_t s = 0; s < SIZES; s++)
    for (int k = 0; k < KEPT_OF_16; k++) check_kept(a->kept[s][k], sizes_of_16[s] / 8);
  return NULL;
}

START_TEST(sixteen_threads_lose_nothing_and_are_counted_exactly) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = _i));
  tide_memstats before = read_stats();
  uint64_t seed = test_seed();
  for (int i = 0; i < 16; i++) {
    allocators[i].seed = seed + (uint64_t)i;
    allocators[i].times = short_or_full(UNDER_ASAN || _i ? 20000 : 60000, 2000000);
    MUST(!tide_thread_create(&allocators[i].thread, NULL, allocate_and_check, &allocators[i]));
  }
  for (int i = 0; i < 16; i++) pthread_join(allocators[i].thread, NULL);
  tide_memstats after = read_stats();
  ck_assert_uint_ge(after.num_gc, before.num_gc + 5);
  uint64_t all = 0, bytes = 0, kept = 0;
  bool sizes_differ = on_bdw("sizes are libgc's above 512 bytes");
  for (size_t s = 0; s < SIZES; s++) {
    unsigned class = size_class_for(sizes_of_16[s]);
    uint64_t made = 0;
    for (int i = 0; i < 16; i++) made += allocators[i].made[s];
    if (!sizes_differ)
      ck_assert_uint_eq(after.by_size[class].mallocs - before.by_size[class].mallocs, made);
    all += made;
    bytes += made * size_class_bytes[class];
    for (int i = 0; i < 16; i++)
      for (int k = 0; k < KEPT_OF_16; k++) kept += allocators[i].kept[s][k] != NULL;
  }
  ck_assert_uint_eq(after.mallocs - before.mallocs, all);
  if (!sizes_differ) ck_assert_uint_eq(after.total_alloc - before.total_alloc, bytes);
  clear_stack();
  tide_collect();
  tide_memstats end = read_stats();
  ck_assert_uint_ge(end.heap_objects, kept);
  ck_assert_uint_le(end.heap_objects, kept + 20);
  ck_assert_uint_eq(end.mallocs - end.frees, end.heap_objects);
  uint64_t freed = 0;
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) freed += end.by_size[i].frees;
  ck_assert_uint_eq(freed, end.frees);
}
END_TEST

// ---- What rounding costs --------------------------------------------------------------------

// Seen from outside: of any size and its neighbours, no object is an eighth and 15 bytes larger
// than it was asked to be, as long as eighths are the classes' steps; beyond, where a class is what
// fills a block, none that would fit into the block once more.
START_TEST(no_size_is_rounded_up_by_more_than_an_eighth_until_classes_fill_blocks) {
  if (on_bdw("sizes are libgc's")) return;
  init_with(OPTIONS(o.gc_percent = 100));
  for (size_t size = 1; size <= TIDE_SMALL_MAX; size++) {
    size_t got = tide_size(tide_alloc_leaf(size));
    MUST(got >= size);
    size_t waste = got - size;
    if (size <= 256)
      MUST(waste <= 15);
    else if (size <= 8192)
      MUST(waste <= size / 8 + 15);
    else
      MUST(HEAP_BLOCK_BYTES / got == HEAP_BLOCK_BYTES / ((size + 15) / 16 * 16));
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("growth");
  bool full = is_full_form();

  TCase *growth = tcase_create("growth");
  tcase_set_timeout(growth, full ? 200 : 60);
  tcase_add_loop_test(growth, growth_collects_as_often_as_the_formula_says_and_never_too_early, 0,
                      GROWTHS);
  tcase_add_test(growth, smallest_heap_of_four_gib_takes_no_memory_before_it_is_used);
  tcase_add_loop_test(growth, live_heap_next_to_the_smallest_heap_is_not_collected_again_and_again,
                      0, 3 * DISTANCES);
  tcase_add_loop_test(growth, live_heap_at_its_goal_is_collected_once, 0, DISTANCES);
  suite_add_tcase(suite, growth);

  TCase *many = tcase_create("many");
  tcase_set_timeout(many, full ? 200 : 60);
  tcase_add_test(many, tens_of_thousands_of_pools_keep_their_rule_and_go);
  tcase_add_loop_test(many, removal_of_root_ranges_does_not_take_longer_the_more_there_are, 0, 3);
  tcase_add_test(many, ten_thousand_threads_over_time_leave_nothing);
  tcase_add_loop_test(many, kept_fragments_between_dropped_objects_split_no_mappings, 0, 2);
  tcase_add_loop_test(many, sixteen_threads_lose_nothing_and_are_counted_exactly, 0, 2);
  tcase_add_test(many, no_size_is_rounded_up_by_more_than_an_eighth_until_classes_fill_blocks);
  suite_add_tcase(suite, many);
  return run_suite(suite);
}
