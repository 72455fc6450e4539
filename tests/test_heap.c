// SPDX-License-Identifier: MIT
// The heap as a whole: large objects and their neighbours, memory given back, walk and statistics,
// disabling, marking without room for its stack.
#include "heap_testing.h"

// ---- Large objects --------------------------------------------------------------------------

START_TEST(large_objects_of_every_size_live_and_go) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  for (size_t bytes = TIDE_SMALL_MAX + 1; bytes <= 64 * MIB; bytes += bytes / 3 + 1) {
    char *object = table[0] = tide_alloc(bytes);
    ck_assert(is_filled(object, 0, tide_size(object)));
    memset(object, 0x5a, tide_size(object));
    ck_assert_ptr_eq(tide_base(object + bytes - 1), object);
    tide_collect();
    ck_assert(is_filled(object, 0x5a, tide_size(object)));
    tide_free(object);
    ck_assert_ptr_null(tide_base(object + bytes - 1));
  }
  tide_collect();
  ck_assert_uint_eq(read_stats().heap_inuse, 0);
}
END_TEST

START_TEST(freed_neighbours_become_one) {
  if (on_bdw("parts of the heap need not be neighbours")) return;
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  enum { PARTS = 16 };
  static const int orders[3][PARTS] = {
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
      {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
      {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15},
  };
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < PARTS; i++) memset(table[i] = tide_alloc_leaf(MIB), i, MIB);
    size_t before = read_stats().heap_sys;
    for (int i = 0; i < PARTS; i++) tide_free(table[orders[k][i]]);
    char *whole = tide_alloc(PARTS * MIB); // fits only into the union
    ck_assert_uint_eq(read_stats().heap_sys, before);
    ck_assert(is_filled(whole, 0, PARTS * MIB));
    tide_free(whole);
    tide_collect();
  }
}
END_TEST

START_TEST(dead_neighbours_become_one) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 24; i++) sink = tide_alloc_leaf(MIB);
    for (int i = 0; i < 24 * 16 * 64; i++) sink = tide_alloc_leaf(1024);
    sink = NULL;
    collect();
    sink = tide_alloc_leaf(40 * MIB);
    sink = NULL;
    collect();
  }
  ck_assert_uint_le(read_stats().heap_sys, 150 * MIB);
}
END_TEST

START_TEST(small_and_large_objects_use_each_others_memory) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 32; i++) memset(table[i] = tide_alloc(MIB), 0xff, MIB);
    memset(table, 0, sizeof table);
    collect();
    for (int i = 0; i < 32 * 1024; i++) {
      char *object = tide_alloc(1008);
      MUST(is_filled(object, 0, 1008));
      memset(object, 0xff, 1008);
    }
    collect();
  }
  ck_assert_uint_le(read_stats().heap_sys, 90 * MIB);
}
END_TEST

START_TEST(buffer_that_doubles_costs_little_more_than_itself) {
  init_with(OPTIONS(o.gc_percent = 100));
  table[0] = tide_alloc_leaf(1024);
  for (size_t bytes = 2048; bytes <= 256 * MIB; bytes *= 2) {
    table[0] = tide_realloc(table[0], bytes);
    memset((char *)table[0] + bytes / 2, 1, bytes < 8192 ? bytes / 2 : 4096);
    ck_assert_uint_le(read_stats().heap_sys, 3 * bytes + 4 * MIB);
  }
}
END_TEST

START_TEST(large_objects_among_false_references_end_in_bounded_memory) {
  init_with(OPTIONS(o.gc_percent = 100));
  uintptr_t *numbers = table[0] = tide_alloc(16 * MIB);
  size_t words = 16 * MIB / sizeof(uintptr_t);
  uintptr_t above = (uintptr_t)numbers + 16 * MIB;
  for (size_t i = 0; i < words; i++) numbers[i] = above + i * 512; // 1 GiB in steps of 512 bytes
  for (int i = 0; i < 100; i++) {
    table[1] = tide_alloc_leaf(4 * MIB);
    ck_assert_ptr_nonnull(table[1]);
  }
  tide_memstats stats = read_stats();
  ck_assert_uint_le(stats.heap_sys, 2 * (16 + 400) * MIB + 4 * MIB);
  ck_assert_uint_le(stats.num_gc, 100);
}
END_TEST

// A thread may be stopped at any point of an allocation: the new object, which nothing but that
// thread's registers refers to, has to be there afterwards.
static volatile bool enough;
static void *collect_all_the_time(void *arg) {
  while (!enough) tide_collect();
  return NULL;
}

static void *allocate_large_ones(void *arg) {
  for (int i = 0; i < 20000; i++) {
    char *new = i % 8 ? tide_alloc(40000) : tide_alloc_aligned(65536, 100, TIDE_SCANNED);
    MUST(tide_size(new) >= 100 && !new[0] && !new[99]);
    memset(new, 0xff, 100);
  }
  return NULL;
}

START_TEST(large_objects_survive_a_stop_during_their_allocation) {
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_t collector, allocators[3];
  ck_assert_int_eq(tide_thread_create(&collector, NULL, collect_all_the_time, NULL), 0);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(tide_thread_create(&allocators[i], NULL, allocate_large_ones, NULL), 0);
  for (int i = 0; i < 3; i++) pthread_join(allocators[i], NULL);
  enough = true;
  pthread_join(collector, NULL);
}
END_TEST

// Another thread looks at objects that stay, while their block's owner takes and frees the slots
// between them.
static void *look_all_the_time(void *arg) {
  for (size_t looks = 0; !enough; looks++)
    for (size_t i = 0; i < 300; i++) MUST(tide_size(table[i]) == 64);
  return NULL;
}

START_TEST(objects_are_found_while_others_come_and_go_around_them) {
  init_with(OPTIONS(o.gc_percent = -1));
  static void *others[700];
  for (int i = 0; i < 1000; i++) {
    void *object = tide_alloc(64);
    if (i % 10 < 3)
      table[i / 10 * 3 + i % 10] = object;
    else
      others[i / 10 * 7 + i % 10 - 3] = object;
  }
  pthread_t looker;
  ck_assert_int_eq(tide_thread_create(&looker, NULL, look_all_the_time, NULL), 0);
  for (int round = 0; round < 10000; round++) {
    for (int i = 0; i < 700; i++) tide_free(others[i]);
    for (int i = 0; i < 700; i++) others[i] = tide_alloc(64);
  }
  enough = true;
  pthread_join(looker, NULL);
}
END_TEST

// ---- Memory given back ----------------------------------------------------------------------

START_TEST(collect_and_release_returns_memory) {
  init_with(OPTIONS(o.gc_percent = -1));
  size_t before = resident_bytes();
  for (int i = 0; i < 100; i++) memset(sink = tide_alloc_leaf(MIB), 1, MIB);
  for (int i = 0; i < 100 * 1024; i++) memset(sink = tide_alloc_leaf(1024), 1, 1024);
  sink = NULL;
  ck_assert_uint_ge(resident_bytes(), before + 200 * MIB);
  clear_stack();
  tide_collect_and_release();
  tide_memstats stats = read_stats();
  size_t tables = on_bdw("headers of blocks stay") ? stats.gc_sys : 0;
  ck_assert_uint_le(resident_bytes(), before + 8 * MIB + tables);
  ck_assert_uint_eq(stats.heap_released, stats.heap_idle);
  char *again = tide_alloc(150 * MIB);
  ck_assert(is_filled(again, 0, 150 * MIB));
}
END_TEST

// ---- Walk and statistics --------------------------------------------------------------------

typedef struct census {
  uint64_t objects, bytes, marked, of_kind[TIDE_KINDS];
  char *last_end;
  bool disorder;
} census;

static bool count_object(const tide_object *object, void *arg) {
  census *c = arg;
  c->objects++;
  c->bytes += object->size;
  c->marked += object->marked;
  c->of_kind[object->kind]++;
  if ((char *)object->start < c->last_end) c->disorder = true;
  c->last_end = (char *)object->start + object->size;
  return true;
}

static void allocate_all_sorts(void) {
  for (size_t i = 0; i < 3000; i++) {
    size_t bytes = i % 50 ? i % 2000 : i * 100;
    table[i % 1000] = i % 5 == 0   ? tide_alloc_leaf(bytes)
                      : i % 7 == 0 ? tide_alloc_uncollectable(bytes)
                                   : tide_alloc(bytes);
    if (i % 11 == 0) tide_free(table[i % 1000]), table[i % 1000] = NULL;
  }
}

START_TEST(walk_and_statistics_agree_after_a_collection) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  for (int round = 0; round < 3; round++) {
    allocate_all_sorts();
    tide_collect();
    census c = {0};
    tide_heap_walk(count_object, &c);
    tide_memstats stats = read_stats();
    ck_assert_uint_eq(stats.heap_objects, c.objects);
    ck_assert_uint_eq(stats.heap_alloc, c.bytes);
    ck_assert(!c.disorder);
    ck_assert_uint_ge(c.marked, c.objects - 5);
    ck_assert_uint_gt(c.of_kind[TIDE_UNCOLLECTABLE], 100);
    ck_assert_uint_gt(c.of_kind[TIDE_LEAF], 100);
  }
}
END_TEST

START_TEST(statistics_add_up) {
  init_with(OPTIONS(o.gc_percent = 100));
  tide_memstats before = read_stats();
  for (int round = 0; round < 5; round++) {
    allocate_all_sorts();
    tide_memstats s = read_stats();
    ck_assert_uint_eq(s.heap_objects, s.mallocs - s.frees);
    ck_assert_uint_eq(s.heap_sys, s.heap_idle + s.heap_inuse);
    ck_assert_uint_le(s.heap_released, s.heap_idle);
    ck_assert_uint_le(s.heap_alloc, s.heap_inuse);
    ck_assert_uint_eq(s.sys, s.heap_sys + s.gc_sys + s.other_sys);
    ck_assert_uint_eq(s.mallocs, before.mallocs + 3000);
    ck_assert_uint_ge(s.total_alloc, before.total_alloc);
    uint64_t small = 0, small_freed = 0, bytes = 0;
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
      ck_assert_uint_eq(s.by_size[i].size, size_class_bytes[i]);
      ck_assert_uint_ge(s.by_size[i].mallocs, s.by_size[i].frees);
      small += s.by_size[i].mallocs;
      small_freed += s.by_size[i].frees;
      bytes += (s.by_size[i].mallocs - s.by_size[i].frees) * s.by_size[i].size;
    }
    ck_assert_uint_le(small, s.mallocs);
    ck_assert_uint_le(small_freed, s.frees);
    ck_assert_uint_le(bytes, s.heap_alloc);
    uint64_t paused = 0;
    for (size_t i = 0; i < TIDE_PAUSE_HISTORY; i++) paused += s.pause_ns[i];
    if (s.num_gc <= TIDE_PAUSE_HISTORY) ck_assert_uint_eq(paused, s.pause_total_ns);
    before = s;
  }
}
END_TEST

START_TEST(statistics_count_single_steps) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_memstats a = read_stats();
  void *small = tide_alloc(100), *large = tide_alloc(100000);
  tide_memstats b = read_stats();
  ck_assert_uint_eq(b.mallocs, a.mallocs + 2);
  ck_assert_uint_eq(b.total_alloc, a.total_alloc + tide_size(small) + tide_size(large));
  ck_assert_uint_eq(b.heap_alloc, a.heap_alloc + tide_size(small) + tide_size(large));
  ck_assert_uint_eq(b.by_size[size_class_for(100)].mallocs, 1);
  tide_free(small);
  tide_free(large);
  tide_memstats c = read_stats();
  ck_assert_uint_eq(c.frees, b.frees + 2);
  ck_assert_uint_eq(c.heap_alloc, a.heap_alloc);
  ck_assert_uint_eq(c.total_alloc, b.total_alloc);
  tide_collect();
  tide_memstats d = read_stats();
  ck_assert_uint_eq(d.num_gc, 1);
  ck_assert_uint_eq(d.num_forced_gc, 1);
  ck_assert_uint_gt(d.last_gc_ns, (uint64_t)1700000000 * 1000000000);
  ck_assert_uint_gt(d.pause_ns[0], 0);
  ck_assert_uint_eq(d.pause_end_ns[0], d.last_gc_ns);
  ck_assert_uint_eq(d.pause_total_ns, d.pause_ns[0]);
}
END_TEST

static bool stop_at_third(const tide_object *object, void *arg) {
  return ++*(int *)arg < 3;
}

START_TEST(walk_ends_early_and_changes_nothing) {
  init_with(OPTIONS(o.gc_percent = -1));
  for (int i = 0; i < 100; i++) sink = tide_alloc(64);
  sink = NULL;
  clear_stack();
  int seen = 0;
  tide_heap_walk(stop_at_third, &seen);
  ck_assert_int_eq(seen, 3);
  census c = {0};
  tide_heap_walk(count_object, &c);
  ck_assert_uint_eq(c.objects, 100); // garbage included
  ck_assert_uint_le(c.marked, 3);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  ck_assert_uint_eq(read_stats().heap_objects, 100);
  collect();
  ck_assert_uint_le(read_stats().heap_objects, 3);
}
END_TEST

// ---- Disable and enable ---------------------------------------------------------------------

static void *enable_elsewhere(void *arg) {
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  return NULL;
}

START_TEST(disable_nests_over_all_threads) {
  init_with(OPTIONS(o.gc_percent = 100));
  tide_gc_disable();
  tide_gc_disable();
  ck_assert_uint_eq(read_stats().disable_depth, 2);
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  for (int i = 0; i < 20; i++) sink = tide_alloc_leaf(MIB);
  ck_assert_uint_eq(read_stats().num_gc, 0); // still disabled once
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, enable_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  ck_assert_uint_eq(read_stats().disable_depth, 0);
  sink = tide_alloc_leaf(MIB);
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(collections_by_hand_run_while_disabled) {
  init_with(OPTIONS(o.gc_percent = 100));
  tide_gc_disable();
  make_objects(64, 0, false);
  collect();
  ck_assert_uint_eq(read_stats().num_gc, 1);
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
}
END_TEST

START_TEST(stress_waits_while_disabled) {
  init_with(OPTIONS(o.stress = 1));
  tide_gc_disable();
  for (int i = 0; i < 10; i++) sink = tide_alloc(16);
  ck_assert_uint_eq(read_stats().num_gc, 0);
}
END_TEST

// ---- Marking ------------------------------------------------------------------------------

// A spine in which each node refers to `width` leaves of its own and, last, to the next node.
static NOINLINE void build_comb(size_t length, size_t width, bool next_last) {
  void **next = NULL;
  for (size_t i = 0; i < length; i++) {
    void **node = tide_alloc((width + 1) * sizeof(void *));
    for (size_t k = 0; k < width; k++) {
      uintptr_t *tooth = tide_alloc(16);
      *tooth = hide((void *)(i * width + k));
      node[next_last ? k : k + 1] = tooth;
    }
    node[next_last ? width : 0] = next;
    next = node;
  }
  table[0] = next;
}

static void check_comb(size_t length, size_t width, bool next_last) {
  void **node = table[0];
  for (size_t i = length; i-- > 0; node = node[next_last ? width : 0])
    for (size_t k = 0; k < width; k++) {
      uintptr_t *tooth = node[next_last ? k : k + 1];
      MUST((uintptr_t)reveal(*tooth) == i * width + k);
    }
  ck_assert_ptr_null(node);
}

START_TEST(marking_is_complete_without_room_for_its_stack) {
  if (on_bdw("the mark stack has no bound")) return;
  init_with(OPTIONS(o.mark_stack_bytes = 64 << 10, o.verify = 1, o.poison = 1, o.gc_percent = -1));
  build_comb(3000, 120, _i);
  for (int i = 0; i < 2; i++) {
    tide_collect();
    ck_assert_uint_ge(read_stats().heap_objects, 3000 * 121);
    ck_assert_uint_le(read_stats().heap_objects, 3000 * 121 + 10);
    for (int k = 0; k < 10000; k++) sink = tide_alloc(16);
    check_comb(3000, 120, _i);
  }
}
END_TEST

START_TEST(wide_and_deep_without_room_for_the_stack) {
  if (on_bdw("the mark stack has no bound")) return;
  init_with(OPTIONS(o.mark_stack_bytes = 64 << 10, o.verify = 1, o.poison = 1, o.gc_percent = -1));
  enum { WIDTH = 300000, DEPTH = 300000 };
  void **wide = table[0] = tide_alloc(WIDTH * sizeof(void *));
  for (uintptr_t i = 0; i < WIDTH; i++) *(uintptr_t *)(wide[i] = tide_alloc(16)) = ~i;
  for (uintptr_t i = 0; i < DEPTH; i++) {
    void **node = tide_alloc(16);
    node[0] = table[1];
    node[1] = (void *)~i;
    table[1] = node;
  }
  tide_collect();
  for (int k = 0; k < 10000; k++) sink = tide_alloc(16);
  for (uintptr_t i = 0; i < WIDTH; i++) MUST(*(uintptr_t *)wide[i] == ~i);
  uintptr_t depth = DEPTH;
  for (void **node = table[1]; node; node = node[0]) MUST((uintptr_t)node[1] == ~--depth);
  ck_assert_uint_eq(depth, 0);
}
END_TEST

START_TEST(mark_stack_keeps_to_its_bound) {
  if (on_bdw("the mark stack has no bound")) return;
  init_with(OPTIONS(o.mark_stack_bytes = 1 << 20, o.gc_percent = -1));
  uint64_t before = read_stats().gc_sys;
  build_comb(3000, 120, true);
  uint64_t tables = read_stats().gc_sys; // they grow with the heap
  tide_collect();
  ck_assert_uint_le(read_stats().gc_sys, tables + MIB);
  ck_assert_uint_le(before, tables);
}
END_TEST

START_TEST(large_mark_stack_is_given_back) {
  init_with(OPTIONS(o.gc_percent = -1));
  build_comb(10000, 120, true); // needs about 9 MiB
  uint64_t before = read_stats().gc_sys;
  tide_collect();
  ck_assert_uint_le(read_stats().gc_sys, before + 2 * MIB);
}
END_TEST

START_TEST(five_million_nodes_in_a_list) {
  init_with(OPTIONS(o.gc_percent = -1));
  enum { NODES = 5000000 };
  for (uintptr_t i = 0; i < NODES; i++) {
    void **node = tide_alloc(16);
    node[0] = table[0];
    node[1] = (void *)~i;
    table[0] = node;
  }
  tide_collect();
  ck_assert_uint_ge(read_stats().heap_objects, NODES);
  ck_assert_uint_lt(read_stats().heap_objects, NODES + 10);
  uintptr_t left = NODES;
  for (void **node = table[0]; node; node = node[0]) MUST((uintptr_t)node[1] == ~--left);
  ck_assert_uint_eq(left, 0);
}
END_TEST

START_TEST(five_million_elements_in_an_array) {
  init_with(OPTIONS(o.gc_percent = -1));
  enum { ELEMENTS = 5000000 };
  void **array = table[0] = tide_alloc(ELEMENTS * sizeof(void *));
  for (uintptr_t i = 0; i < ELEMENTS; i++) *(uintptr_t *)(array[i] = tide_alloc(16)) = ~i;
  tide_collect();
  ck_assert_uint_ge(read_stats().heap_objects, ELEMENTS + 1);
  ck_assert_uint_lt(read_stats().heap_objects, ELEMENTS + 10);
  for (uintptr_t i = 0; i < ELEMENTS; i++) MUST(*(uintptr_t *)array[i] == ~i);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("heap");

  TCase *large = tcase_create("large objects");
  tcase_set_timeout(large, 60);
  tcase_add_test(large, large_objects_of_every_size_live_and_go);
  tcase_add_test(large, freed_neighbours_become_one);
  tcase_add_test(large, dead_neighbours_become_one);
  tcase_add_test(large, small_and_large_objects_use_each_others_memory);
  tcase_add_test(large, buffer_that_doubles_costs_little_more_than_itself);
  tcase_add_test(large, large_objects_among_false_references_end_in_bounded_memory);
  tcase_add_test(large, large_objects_survive_a_stop_during_their_allocation);
  tcase_add_test(large, objects_are_found_while_others_come_and_go_around_them);
  tcase_add_test(large, collect_and_release_returns_memory);
  suite_add_tcase(suite, large);

  TCase *looking = tcase_create("walk, statistics, disabling");
  tcase_set_timeout(looking, 60);
  tcase_add_test(looking, walk_and_statistics_agree_after_a_collection);
  tcase_add_test(looking, statistics_add_up);
  tcase_add_test(looking, statistics_count_single_steps);
  tcase_add_test(looking, walk_ends_early_and_changes_nothing);
  tcase_add_test(looking, disable_nests_over_all_threads);
  tcase_add_test(looking, collections_by_hand_run_while_disabled);
  tcase_add_test(looking, stress_waits_while_disabled);
  suite_add_tcase(suite, looking);

  TCase *marking = tcase_create("marking");
  tcase_set_timeout(marking, 100);
  tcase_add_loop_test(marking, marking_is_complete_without_room_for_its_stack, 0, 2);
  tcase_add_test(marking, wide_and_deep_without_room_for_the_stack);
  tcase_add_test(marking, mark_stack_keeps_to_its_bound);
  tcase_add_test(marking, large_mark_stack_is_given_back);
  tcase_add_test(marking, five_million_nodes_in_a_list);
  tcase_add_test(marking, five_million_elements_in_an_array);
  suite_add_tcase(suite, marking);
  return run_suite(suite);
}
