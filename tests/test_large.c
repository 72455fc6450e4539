// SPDX-License-Identifier: MIT
// Large objects where collectors have grown without end: among numbers that look like addresses of
// everything allocated next, under a limit of address space, doubled and doubled again, and with
// more reserved than any table was made for.
#include "growth_testing.h"

#include <sys/mman.h>

// ---- Numbers that look like addresses -------------------------------------------------------

// Fills the words with numbers from lo on, in equal steps, up to hi.
static void fill_with_addresses(uintptr_t *words, size_t bytes, uintptr_t lo, uintptr_t hi) {
  size_t count = bytes / sizeof *words;
  for (size_t i = 0; i < count; i++)
    words[i] = lo + (uintptr_t)((unsigned __int128)(hi - lo) * i / count);
}

// The highest goal so far, and the most that was found live. A goal is 2 x live and the roots.
static uint64_t highest_goal, most_live;
static void note_goal(const tide_cycle *cycle, void *arg) {
  if (cycle->next_goal_bytes > highest_goal) highest_goal = cycle->next_goal_bytes;
  if (cycle->live_bytes > most_live) most_live = cycle->live_bytes;
}

typedef struct trial {
  size_t request;
  tide_kind kind;
  int times_short, times_full;
} trial;

static const trial trials[] = {
    {4 * MIB, TIDE_LEAF, 500, 3000},  {4 * MIB, TIDE_SCANNED, 300, 1000},
    {64 * MIB, TIDE_LEAF, 100, 300},  {64 * MIB, TIDE_SCANNED, 12, 100},
    {1024 * MIB, TIDE_LEAF, 30, 100}, {1024 * MIB, TIDE_SCANNED, 0, 12},
};
enum { TRIALS = LENGTH(trials), REGION_IS_OBJECT = TRIALS };

static uintptr_t *new_region(bool object, size_t bytes) {
  if (object) return table[0] = tide_alloc(bytes);
  uintptr_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(words, MAP_FAILED);
  ck_assert_int_eq(tide_roots_add(words, (char *)words + bytes), TIDE_OK);
  return words;
}

static NOINLINE void keep_one_of_many(const trial *t) {
  int times = (int)short_or_full((size_t)t->times_short, (size_t)t->times_full);
  for (int i = 0; i < times; i++) {
    uint64_t collections = tide_gc_cycle();
    table[1] = tide_alloc_kind(t->kind, t->request);
    MUST(table[1]);
    MUST(tide_gc_cycle() <= collections + 1);
    MUST(mapped_bytes() <= highest_goal + t->request);
  }
}

// What there may be at the end: the one that is kept, one that a word forgotten on the stack
// keeps, and the neighbours of both, since an address on a stack may be the end of an object.
enum { LEFT = 4 };

// Keeps one object of many, while the numbers keep every object that begins below `hi`.
static void allocate_among_numbers(void *arg) {
  int which = *(int *)arg;
  const trial *t = &trials[which % TRIALS];
  size_t region = short_or_full((UNDER_ASAN ? 8 : which % TRIALS ? 16 : 64) * MIB, 64 * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  highest_goal = read_stats().next_gc;
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, note_goal, NULL));
  bool object = which >= REGION_IS_OBJECT;
  uintptr_t *words = new_region(object, region);
  uintptr_t hi = heap.base + heap.extent + 256 * MIB;
  fill_with_addresses(words, region, heap.base, hi);
  keep_one_of_many(t);
  // Below hi, among them the region if it is an object, one that begins there, and what is left.
  ck_assert_uint_le(most_live, hi - heap.base + (1 + LEFT) * t->request);
  memset(words, 0, region);
  clear_stack();
  tide_collect_and_release();
  ck_assert_uint_le(mapped_bytes(), (object ? region : 0) + LEFT * t->request + MIB);
}

START_TEST(numbers_that_look_like_addresses_make_no_large_object_grow_the_heap_without_end) {
  const trial *t = &trials[_i % TRIALS];
  if (!short_or_full((size_t)t->times_short, 1)) return;
  if (t->kind != TIDE_LEAF && available_bytes() < 6 * t->request) return;
  child c;
  in_child(&c, is_full_form() ? 250 : 50, allocate_among_numbers, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// Here the numbers cover all there is: what is allocated stays until they are gone. Every call must
// come to its end all the same.
static void run_out_among_numbers(void *arg) {
  limit_address_space(address_space_bytes() + GIB);
  init_with(OPTIONS(o.gc_percent = 100));
  size_t region = 4 * MIB, all = heap.reserved_blocks * HEAP_BLOCK_BYTES;
  uintptr_t *words = new_region(*(int *)arg, region);
  fill_with_addresses(words, region, heap.base, heap.base + all);
  size_t got = 0, refused = 0;
  double longest = 0;
  int times = (int)short_or_full(150, 600);
  for (int i = 0; i < times; i++) {
    static const size_t sizes[] = {4 * MIB, 64 * MIB, GIB, 4 * MIB};
    size_t bytes = sizes[i % 4];
    double began = seconds_on(CLOCK_MONOTONIC);
    char *object = i % 3 ? tide_alloc_leaf(bytes) : tide_alloc(bytes);
    double took = seconds_on(CLOCK_MONOTONIC) - began;
    if (took > longest) longest = took;
    if (object) table[1] = object, got += bytes;
    refused += !object;
    MUST(mapped_bytes() <= all);
  }
  MUST(longest < 10);
  ck_assert_uint_le(got, all);
  ck_assert_uint_ge(got, all / 2);
  ck_assert_uint_ge(refused, (size_t)times / 4);
  memset(words, 0, region);
  clear_stack();
  for (int i = 0; i < 200; i++) MUST((table[1] = tide_alloc(4 * MIB)));
  for (int i = 0; i < 20; i++) MUST((table[1] = tide_alloc_leaf(64 * MIB)));
}

START_TEST(numbers_that_hold_all_there_is_end_in_null_and_clearing_them_in_room) {
  child c;
  in_child(&c, is_full_form() ? 250 : 50, run_out_among_numbers, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- Doubling -------------------------------------------------------------------------------

// A scanned buffer from 1 KiB up, by tide_realloc, with a word at each end of each step that must
// stay, zeros beyond the old size, and a large object behind it so that it has to move.
static void double_up(void *arg) {
  bool neighbours = *(int *)arg;
  size_t most = short_or_full(64 * MIB, GIB);
  init_with(OPTIONS(o.gc_percent = 100));
  uintptr_t *numbers = table[0] = tide_alloc(4 * MIB);
  fill_with_addresses(numbers, 4 * MIB, heap.base, heap.base + 2 * most);
  size_t others = 4 * MIB;
  uintptr_t *buffer = table[1] = tide_alloc(1024);
  buffer[0] = ~(uintptr_t)0;
  for (size_t bytes = 2048; bytes <= most; bytes *= 2) {
    uintptr_t *bigger = tide_realloc(buffer, bytes);
    MUST(bigger);
    table[1] = buffer = bigger;
    size_t words = bytes / sizeof *buffer;
    for (size_t end = words / 2; end >= 256; end /= 2) MUST(buffer[end - 1] == ~end);
    MUST(buffer[0] == ~(uintptr_t)0 && !buffer[words / 2] && !buffer[words - 1]);
    buffer[words - 1] = ~words;
    if (neighbours && bytes >= 65536) {
      void *neighbour = tide_alloc_leaf(65536);
      MUST(neighbour);
      table[2 + __builtin_ctzl(bytes)] = neighbour;
      others += 65536;
    }
    MUST(mapped_bytes() <= 2 * (bytes + others) + bytes + 4 * MIB);
  }
  ck_assert_uint_ge(tide_size(buffer), most);
}

START_TEST(scanned_buffer_that_doubles_stays_whole_and_within_twice_itself_and_one_request) {
  if (available_bytes() < 4 * short_or_full(64 * MIB, GIB)) return;
  child c;
  in_child(&c, 100, double_up, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- More than any table was made for -------------------------------------------------------

START_TEST(sixty_four_gib_of_untouched_objects_cost_little_memory) {
  enum { OBJECTS = 64 };
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  size_t before = resident_bytes(), maps = count_maps();
  for (int i = 0; i < OBJECTS; i++) {
    table[i] = tide_alloc_leaf(GIB);
    if (!table[i]) return; // a system that does not promise more than it has
  }
  // A table's entry of 64 bytes for each block of 64 KiB, and one page of bits for each object.
  ck_assert_uint_le(resident_bytes(), before + (UNDER_ASAN ? 256 : 96) * MIB);
  ck_assert_uint_le(count_maps(), maps + 4 + STRANGE_MAPS);
  tide_memstats stats = read_stats();
  ck_assert_uint_ge(stats.heap_sys, OBJECTS * GIB);
  ck_assert_uint_le(stats.num_gc, 16);
  tide_collect();
  for (int i = 0; i < OBJECTS; i++) {
    MUST(tide_size(table[i]) == GIB);
    MUST(tide_base((char *)table[i] + GIB - 1) == table[i]);
  }
  memset(table, 0, sizeof table);
  clear_stack();
  tide_collect_and_release();
  ck_assert_uint_le(mapped_bytes(), LEFT * GIB);
  ck_assert_ptr_nonnull(tide_alloc_leaf(60 * GIB));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("large");
  TCase *cases = tcase_create("large objects");
  tcase_set_timeout(cases, is_full_form() ? 280 : 60);
  tcase_add_loop_test(
      cases, numbers_that_look_like_addresses_make_no_large_object_grow_the_heap_without_end, 0,
      2 * TRIALS);
  if (!UNDER_ASAN) // it reserves terabytes itself
    tcase_add_loop_test(cases, numbers_that_hold_all_there_is_end_in_null_and_clearing_them_in_room,
                        0, 2);
  tcase_add_loop_test(
      cases, scanned_buffer_that_doubles_stays_whole_and_within_twice_itself_and_one_request, 0, 2);
  tcase_add_test(cases, sixty_four_gib_of_untouched_objects_cost_little_memory);
  suite_add_tcase(suite, cases);
  return run_suite(suite);
}
