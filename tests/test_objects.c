// SPDX-License-Identifier: MIT
// Objects: sizes, contents, what keeps them alive and what does not, freeing and resizing by hand,
// alignment.
#include "heap_testing.h"

// ---- Size classes ---------------------------------------------------------------------------

START_TEST(every_small_size_has_the_smallest_class_that_fits) {
  for (size_t size = 0; size <= TIDE_SMALL_MAX; size++) {
    unsigned class = size_class_for(size);
    MUST(class < TIDE_SIZE_CLASSES);
    MUST(class == tide_class_by_arithmetic(size));
    MUST(size_class_bytes[class] >= size);
    MUST(!class || size_class_bytes[class - 1] < size);
  }
}
END_TEST

START_TEST(classes_waste_little) {
  for (unsigned i = 0; i < TIDE_SIZE_CLASSES; i++) {
    size_t bytes = size_class_bytes[i], below = i ? size_class_bytes[i - 1] : 0;
    ck_assert_uint_eq(bytes % 16, 0);
    ck_assert_uint_gt(bytes, below);
    // Of the smallest object in the class: 15 bytes, or 1/8 of the slot, or what fills a block.
    size_t waste = bytes - (below + 1);
    bool fills_block = HEAP_BLOCK_BYTES / bytes != HEAP_BLOCK_BYTES / (bytes + 16);
    ck_assert_uint_le(waste, bytes <= 256 ? 15 : bytes <= 8192 ? bytes / 8 : bytes / 3 + 16);
    if (bytes > 8192) ck_assert(fills_block);
  }
  ck_assert_uint_eq(size_class_bytes[TIDE_SIZE_CLASSES - 1], TIDE_SMALL_MAX);
}
END_TEST

START_TEST(every_size_is_aligned_and_large_enough) {
  init_with(OPTIONS(o.gc_percent = 400));
  for (size_t size = 0; size <= TIDE_SMALL_MAX + 70000; size += size < 4096 ? 1 : 61) {
    char *object = tide_alloc(size);
    MUST(object);
    MUST((uintptr_t)object % 16 == 0);
    MUST(tide_size(object) >= size);
    MUST(size <= TIDE_SMALL_MAX || tide_size(object) < size + 4096);
    MUST(is_filled(object, 0, size));
    memset(object, 0xff, tide_size(object));
    MUST(tide_base(object + (size ? size - 1 : 0)) == object);
  }
}
END_TEST

START_TEST(every_offset_of_every_class_finds_its_slot) {
  if (on_bdw("blocks are libgc's")) return;
  init_with(OPTIONS(o.gc_percent = -1));
  for (unsigned class = 0; class < TIDE_SIZE_CLASSES; class ++) {
    size_t bytes = size_class_bytes[class], slots = HEAP_BLOCK_BYTES / bytes;
    uintptr_t block = (uintptr_t)tide_alloc_leaf(bytes) & ~(HEAP_BLOCK_BYTES - 1);
    for (size_t offset = 0; offset < HEAP_BLOCK_BYTES; offset++) {
      heap_ref ref;
      bool found = heap_find(block + offset, &ref);
      MUST(found == (offset / bytes < slots));
      if (found && ref.start != block + offset / bytes * bytes)
        ck_abort_msg("class %zu: offset %zu is found in %zu", bytes, offset, ref.start - block);
    }
  }
}
END_TEST

START_TEST(size_zero_gives_distinct_objects) {
  void *a = tide_alloc(0), *b = tide_alloc_leaf(0), *c = tide_alloc(0);
  ck_assert_ptr_nonnull(a);
  ck_assert_ptr_nonnull(b);
  ck_assert_ptr_nonnull(c);
  ck_assert_ptr_ne(a, c);
  ck_assert_uint_eq(tide_size(a), 16);
}
END_TEST

// ---- Contents -------------------------------------------------------------------------------

static void dirty_the_heap(void) {
  for (size_t bytes = 16; bytes <= 400000; bytes += bytes / 5)
    for (size_t done = 0; done < 3 * HEAP_BLOCK_BYTES; done += bytes) {
      char *object = tide_alloc_leaf(bytes);
      memset(object, 0xee, tide_size(object));
    }
}

START_TEST(scanned_objects_are_zero_also_in_used_memory) {
  init_with(OPTIONS(o.gc_percent = 100, o.poison = _i));
  for (int round = 0; round < 5; round++) {
    dirty_the_heap();
    if (round % 2)
      tide_collect();
    else
      tide_collect_and_release();
    for (size_t bytes = 1; bytes <= 400000; bytes += bytes / 7 + 1)
      for (int i = 0; i < 20; i++) {
        char *object = i % 2 ? tide_alloc(bytes) : tide_alloc_uncollectable(bytes);
        MUST(is_filled(object, 0, tide_size(object)));
        memset(object, 0xdd, tide_size(object));
        if (i % 2 == 0) tide_free(object);
      }
  }
}
END_TEST

START_TEST(leaves_are_not_looked_into) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  enum { OBJECTS = 200 };
  static uintptr_t hidden[OBJECTS];
  void **leaf = table[0] = tide_alloc_leaf(OBJECTS * sizeof(void *));
  for (int i = 0; i < OBJECTS; i++) hidden[i] = hide(leaf[i] = tide_alloc(48));
  collect();
  ck_assert_uint_le(count_alive(hidden, OBJECTS), 4);
  ck_assert_ptr_eq(tide_base(leaf), leaf);
}
END_TEST

START_TEST(uncollectable_objects_live_and_are_roots) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  static const size_t sizes[] = {16, 1000, 30000, 100000};
  static uintptr_t hidden[LENGTH(sizes)], referred[LENGTH(sizes)];
  for (size_t i = 0; i < LENGTH(sizes); i++) {
    void **object = tide_alloc_uncollectable(sizes[i]);
    ck_assert(is_filled(object, 0, sizes[i]));
    object[1] = tide_alloc(sizes[i]);
    hidden[i] = hide(object);
    referred[i] = hide(object[1]);
    object = NULL;
  }
  for (int i = 0; i < 3; i++) collect();
  ck_assert_uint_eq(count_alive(hidden, LENGTH(sizes)), LENGTH(sizes));
  ck_assert_uint_eq(count_alive(referred, LENGTH(sizes)), LENGTH(sizes));
  for (size_t i = 0; i < LENGTH(sizes); i++) tide_free(reveal(hidden[i]));
  ck_assert_uint_eq(count_alive(hidden, LENGTH(sizes)), 0);
  for (int i = 0; i < 2; i++) collect();
  ck_assert_uint_le(count_alive(referred, LENGTH(sizes)), 1);
}
END_TEST

// ---- What keeps an object alive, and what does not ------------------------------------------

static const size_t object_sizes[] = {16, 48, 160, 4096, 32768, 40000, 65536, 200000};

START_TEST(references_keep_objects_alive) {
  size_t bytes = object_sizes[_i];
  ptrdiff_t offsets[] = {0, 1, (ptrdiff_t)bytes / 2, (ptrdiff_t)bytes - 1}; // also odd ones
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  for (size_t k = 0; k < LENGTH(offsets); k++) {
    make_objects(bytes, offsets[k], true);
    collect();
    sink = tide_alloc(bytes);
    for (int i = 0; i < MANY; i++) {
      char *object = reveal(hidden_objects[i]);
      ck_assert_ptr_eq(tide_base(table[i]), object);
      ck_assert(is_filled(object, (unsigned char)(i + 1), bytes));
    }
  }
}
END_TEST

START_TEST(objects_without_references_die) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  make_objects(object_sizes[_i], 0, false);
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
}
END_TEST

START_TEST(objects_that_lost_their_references_die) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  make_objects(object_sizes[_i], 0, true);
  collect();
  ck_assert_uint_eq(count_alive(hidden_objects, MANY), MANY);
  memset(table, 0, sizeof table);
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
}
END_TEST

START_TEST(address_past_the_end_in_static_data_keeps_nothing) {
  init_with(OPTIONS(o.gc_percent = -1));
  make_objects(64, 64, true);
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
}
END_TEST

// The only trace of an object of `bytes`: the address past its end, on this function's stack.
static NOINLINE uintptr_t collect_with_end_on_stack(size_t bytes) {
  char *volatile end;
  uintptr_t hidden;
  {
    char *object = tide_alloc(bytes);
    hidden = hide(object);
    end = object + tide_size(object);
  }
  collect();
  sink = end;
  sink = NULL;
  return hidden;
}

START_TEST(address_past_the_end_on_the_stack_keeps_the_object) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  ck_assert(is_alive(collect_with_end_on_stack(object_sizes[_i])));
}
END_TEST

START_TEST(objects_referred_to_by_objects_live) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  void ***chain = NULL;
  for (uintptr_t i = 1; i <= 1000; i++) {
    void **node = tide_alloc(16 + i * 97 % 5000);
    node[0] = chain;
    node[1] = (void *)hide((void *)i);
    chain = (void *)node;
  }
  table[0] = chain;
  collect();
  uintptr_t expected = 1000;
  for (void **node = table[0]; node; node = *node, expected--)
    ck_assert_uint_eq((uintptr_t)reveal((uintptr_t)node[1]), expected);
  ck_assert_uint_eq(expected, 0);
}
END_TEST

START_TEST(cycles_of_objects_die) {
  init_with(OPTIONS(o.gc_percent = -1));
  for (int i = 0; i < MANY; i++) {
    void **a = tide_alloc(48), **b = tide_alloc(48);
    *a = b;
    *b = a;
    hidden_objects[i] = hide(a);
  }
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
}
END_TEST

static NOINLINE void build_list(size_t nodes) {
  void **list = NULL;
  for (size_t i = 0; i < nodes; i++) {
    void **node = tide_alloc(32);
    *node = list;
    list = node;
  }
  sink = list;
  sink = NULL;
}

START_TEST(list_dropped_by_a_returned_call_dies) {
  init_with(OPTIONS(o.gc_percent = -1));
  int freed = 0;
  for (int run = 0; run < 20; run++) {
    build_list(200000);
    collect();
    freed += read_stats().heap_objects < 20000;
  }
  ck_assert_int_ge(freed, 19);
}
END_TEST

START_TEST(random_numbers_keep_almost_nothing) {
  init_with(OPTIONS(o.gc_percent = -1));
  uint64_t state = test_seed();
  size_t words = 4 * MIB / sizeof(uint64_t);
  uint64_t *numbers = table[0] = _i ? tide_alloc(4 * MIB) : tide_alloc_leaf(4 * MIB);
  for (size_t i = 0; i < words; i++) numbers[i] = next_random(&state);
  for (size_t done = 0; done < 100 * MIB; done += 1024) sink = tide_alloc(1024);
  sink = NULL;
  collect();
  ck_assert_uint_lt(read_stats().heap_alloc, 4 * MIB + 100 * MIB / 1000);
}
END_TEST

// ---- Free -----------------------------------------------------------------------------------

START_TEST(freed_objects_are_gone_at_once) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  for (size_t i = 0; i < LENGTH(object_sizes); i++) {
    char *object = tide_alloc(object_sizes[i]);
    uint64_t before = read_stats().heap_objects;
    tide_free(object);
    ck_assert_uint_eq(read_stats().heap_objects, before - 1);
    ck_assert_uint_eq(tide_size(object), 0);
    ck_assert_ptr_null(tide_base(object));
    ck_assert_ptr_null(tide_base(object + 8));
  }
  tide_free(NULL);
  tide_collect();
}
END_TEST

static void free_wrongly(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  static long in_static_data;
  size_t bytes = object_sizes[*(int *)arg];
  char *object = table[0] = tide_alloc(bytes), *freed = tide_alloc(bytes);
  char *mallocd = malloc(100);
  tide_free(freed);
  uint64_t before = read_stats().heap_objects;
  tide_free(freed);
  tide_free(object + 8);
  tide_free(object + 1);
  tide_free(object + bytes - 1);
  tide_free(&in_static_data);
  tide_free(&object);
  tide_free(mallocd);
  tide_free((void *)8);
  tide_free((void *)UINTPTR_MAX);
  ck_assert_uint_eq(read_stats().heap_objects, before);
  ck_assert_uint_ge(tide_size(object), bytes);
  tide_collect();
}

START_TEST(wrong_addresses_are_refused_and_reported) {
  child c;
  in_child(&c, 20, free_wrongly, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 9);
  ck_assert_ptr_nonnull(strstr(c.errors, "tidepool: tide_free: "));
}
END_TEST

// What the allocator has set aside for the thread's next allocations is no object.
START_TEST(free_slot_next_to_an_object_is_not_found) {
  init_with(OPTIONS(o.gc_percent = -1));
  char *object = tide_alloc(64);
  ck_assert_ptr_null(tide_base(object + 64));
  ck_assert_uint_eq(tide_size(object + 64), 0);
}
END_TEST

static void free_what_was_never_allocated(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1));
  char *object = tide_alloc(64);
  tide_free(object + 64);
}

START_TEST(free_slot_next_to_an_object_cannot_be_freed) {
  child c;
  in_child(&c, 20, free_what_was_never_allocated, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
}
END_TEST

// Objects are freed a second time when their slots are set aside for the next allocations but not
// handed out yet. If that were carried out, the collector would not know the objects that then get
// the slots, and would give their memory to others.
static void free_twice(void *arg) {
  enum { FREED = 200, KEPT = 2000 };
  static uintptr_t freed[FREED];
  init_with(OPTIONS(o.gc_percent = -1));
  for (int i = 0; i < FREED; i++) freed[i] = hide(tide_alloc(64));
  for (int i = 0; i < FREED; i++) tide_free(reveal(freed[i]));
  for (int i = 0; i < KEPT; i++) sink = tide_alloc(64); // the thread goes on to another block
  collect();
  for (int i = 0; i < KEPT; i++) {
    memset(table[i] = tide_alloc(64), i % 251 + 1, 64);
    for (int k = 0; k < FREED; k++)
      if (freed[k] == hide(table[i])) freed[k] = hide(NULL); // handed out again: no double free
    if (i % 50 == 0)
      for (int k = 0; k < FREED; k++) tide_free(reveal(freed[k]));
  }
  collect();
  for (int i = 0; i < 2 * KEPT; i++) sink = tide_alloc(64);
  for (int i = 0; i < KEPT; i++) MUST(is_filled(table[i], (unsigned char)(i % 251 + 1), 64));
}

START_TEST(double_free_harms_no_later_object) {
  child c;
  in_child(&c, 20, free_twice, NULL);
  assert_ended_well(&c);
}
END_TEST

START_TEST(freed_memory_is_used_again) {
  init_with(OPTIONS(o.gc_percent = 100));
  size_t bytes = object_sizes[_i];
  for (size_t done = 0; done < 256 * MIB; done += bytes) {
    void *object = tide_alloc_leaf(bytes);
    MUST(object);
    tide_free(object);
  }
  ck_assert_uint_le(read_stats().heap_sys, 16 * MIB);
}
END_TEST

START_TEST(freed_memory_is_used_again_in_batches) {
  init_with(OPTIONS(o.gc_percent = 100));
  for (int round = 0; round < 200; round++) {
    for (size_t i = 0; i < LENGTH(table); i++) table[i] = tide_alloc(256);
    for (size_t i = 0; i < LENGTH(table); i++) tide_free(table[i]);
  }
  ck_assert_uint_le(read_stats().heap_sys, 16 * MIB);
}
END_TEST

static void poisoned_objects(void *arg) {
  init_with(OPTIONS(o.poison = 1, o.gc_percent = -1));
  for (size_t i = 0; i < LENGTH(object_sizes); i++) {
    size_t bytes = object_sizes[i];
    unsigned char *object = tide_alloc(bytes);
    memset(object, 1, bytes);
    tide_free(object);
    ck_assert(is_filled(object, 0xdb, bytes));
    make_objects(bytes, 0, false);
    collect();
    size_t poisoned = 0;
    for (int k = 0; k < MANY; k++) poisoned += is_filled(reveal(hidden_objects[k]), 0xdb, bytes);
    ck_assert_uint_ge(poisoned, MANY - 3);
  }
}

START_TEST(poison_overwrites_what_is_freed) {
  if (on_bdw("libgc writes to what is free")) return;
  child c;
  in_child(&c, 20, poisoned_objects, NULL);
  assert_ended_well(&c);
}
END_TEST

// ---- Realloc --------------------------------------------------------------------------------

static void fill(void *object, size_t bytes, unsigned seed) {
  unsigned char *at = object;
  for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(i * 31 + seed + 1);
}
static void assert_filled(const void *object, size_t bytes, unsigned seed) {
  const unsigned char *at = object;
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != (unsigned char)(i * 31 + seed + 1)) ck_abort_msg("byte %zu of %zu", i, bytes);
}

START_TEST(realloc_keeps_contents_and_zeroes_the_rest) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  static const size_t sizes[] = {1,     16,    17,    100,   1000,  4096,   8193,    32768,
                                 32769, 40960, 65536, 65537, 98304, 131072, 1000000, 5000000};
  dirty_the_heap();
  collect();
  for (size_t i = 0; i < LENGTH(sizes); i++)
    for (size_t k = 0; k < LENGTH(sizes); k++)
      for (int kind = 0; kind < TIDE_KINDS; kind++) {
        size_t from = sizes[i], to = sizes[k];
        char *object = tide_alloc_kind((tide_kind)kind, from);
        size_t usable = tide_size(object);
        fill(object, usable, (unsigned)(i + k));
        object = tide_realloc(object, to);
        ck_assert_ptr_nonnull(object);
        ck_assert_uint_ge(tide_size(object), to);
        assert_filled(object, usable < to ? usable : to, (unsigned)(i + k));
        if (to > usable && kind != TIDE_LEAF) {
          size_t rest = tide_size(object) - usable;
          ck_assert_msg(is_filled(object + usable, 0, rest), "%zu to %zu, kind %d", from, to, kind);
        }
        tide_free(object);
      }
}
END_TEST

START_TEST(realloc_step_by_step) {
  init_with(OPTIONS(o.gc_percent = 100));
  // Growing by halves and shrinking, with the same rest of a block dirtied again and again.
  uint64_t state = test_seed();
  char *object = NULL;
  size_t had = 0;
  for (int step = 0; step < 3000; step++) {
    size_t want = 1 + random_below(&state, step % 3 ? 300000 : 50000);
    object = tide_realloc(object, want);
    size_t usable = tide_size(object);
    assert_filled(object, had < want ? had : want, 9);
    if (usable > had) ck_assert(is_filled(object + had, 0, usable - had));
    fill(object, usable, 9);
    had = usable;
  }
  ck_assert_uint_lt(read_stats().heap_sys, 64 * MIB);
}
END_TEST

START_TEST(realloc_of_nothing_and_to_nothing) {
  init_with(OPTIONS(o.gc_percent = -1));
  void **object = tide_realloc(NULL, 100);
  ck_assert(is_filled(object, 0, 100));
  uint64_t before = read_stats().heap_objects;
  ck_assert_ptr_null(tide_realloc(object, 0));
  ck_assert_uint_eq(read_stats().heap_objects, before - 1);
  ck_assert_uint_eq(tide_size(object), 0);
}
END_TEST

START_TEST(realloc_stays_in_place_where_it_can) {
  if (on_bdw("objects neither grow nor are cut")) return;
  init_with(OPTIONS(o.gc_percent = -1));
  char *object = tide_alloc(100);
  ck_assert_ptr_eq(tide_realloc(object, tide_size(object)), object);
  ck_assert_ptr_eq(tide_realloc(object, 90), object);
  object = tide_alloc(MIB);
  ck_assert_ptr_eq(tide_realloc(object, MIB / 2), object);
  ck_assert_ptr_eq(tide_realloc(object, MIB), object); // what follows it has just become free
  object = tide_alloc_leaf(MIB);                       // at the end of the heap
  for (size_t bytes = 2 * MIB; bytes <= 64 * MIB; bytes *= 2)
    ck_assert_ptr_eq(tide_realloc(object, bytes), object);
}
END_TEST

START_TEST(realloc_gives_memory_back) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  void *small = tide_realloc(table[0] = tide_alloc(20000), 16);
  ck_assert_uint_le(tide_size(small), 16);
  table[0] = tide_realloc(tide_alloc(8 * MIB), MIB);
  ck_assert_uint_eq(tide_size(table[0]), MIB);
  ck_assert_uint_lt(read_stats().heap_inuse, 2 * MIB);
  table[1] = tide_realloc(tide_alloc(8 * MIB), 100);
  ck_assert_uint_lt(tide_size(table[1]), 200);
  ck_assert_uint_lt(read_stats().heap_inuse, 2 * MIB);
  tide_collect();
}
END_TEST

static bool note_kind(const tide_object *object, void *arg) {
  tide_object *wanted = arg;
  if (object->start == wanted->start) *wanted = *object;
  return true;
}

START_TEST(realloc_keeps_the_kind) {
  init_with(OPTIONS(o.gc_percent = -1));
  static const size_t sizes[] = {16, 3000, 100000, 3000000};
  for (int kind = 0; kind < TIDE_KINDS; kind++) {
    void *object = tide_alloc_kind((tide_kind)kind, 64);
    for (size_t i = 0; i < 2 * LENGTH(sizes); i++) {
      size_t bytes = sizes[i < LENGTH(sizes) ? i : 2 * LENGTH(sizes) - 1 - i];
      tide_object found = {.start = object = tide_realloc(object, bytes), .kind = TIDE_KINDS};
      tide_heap_walk(note_kind, &found);
      ck_assert_int_eq(found.kind, kind);
    }
  }
}
END_TEST

static void realloc_wrongly(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  char *object = table[0] = tide_alloc(*(size_t *)arg), *mallocd = malloc(100);
  memset(mallocd, 7, 100);
  char *freed = tide_alloc(*(size_t *)arg);
  tide_free(freed);
  ck_assert_ptr_null(tide_realloc(mallocd, 200));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "tide_realloc"));
  ck_assert_ptr_null(tide_realloc(object + 8, 200));
  ck_assert_ptr_null(tide_realloc(freed, 200));
  ck_assert_ptr_null(tide_realloc(&object, 200));
  ck_assert(is_filled(mallocd, 7, 100));
  ck_assert_uint_ge(tide_size(object), *(size_t *)arg);
  tide_collect();
}

START_TEST(realloc_refuses_and_reports_wrong_addresses) {
  size_t bytes = object_sizes[_i];
  child c;
  in_child(&c, 20, realloc_wrongly, &bytes);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 4);
}
END_TEST

// ---- Aligned objects ------------------------------------------------------------------------

static NOINLINE void check_aligned(size_t alignment, size_t bytes, tide_kind kind) {
  char *object = table[0] = tide_alloc_aligned(alignment, bytes, kind);
  ck_assert_ptr_nonnull(object);
  ck_assert_uint_eq((uintptr_t)object % alignment, 0);
  ck_assert_uint_eq((uintptr_t)object % 16, 0);
  ck_assert_uint_ge(tide_size(object), bytes);
  ck_assert_ptr_eq(tide_base(object), object);
  ck_assert_ptr_eq(tide_base(object + bytes - 1), object);
  if (kind != TIDE_LEAF) ck_assert(is_filled(object, 0, bytes));
  fill(object, bytes, 3);
}

START_TEST(aligned_objects_work_with_every_call) {
  init_with(OPTIONS(o.gc_percent = 200));
  tide_kind kind = (tide_kind)_i;
  static const size_t sizes[] = {1, 16, 24, 100, 1000, 4096, 20000, 32768, 40000, 65536, MIB};
  int turn = 0;
  for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2)
    for (size_t i = 0; i < LENGTH(sizes); i++) {
      check_aligned(alignment, sizes[i], kind);
      if (turn++ % 4 == 0) collect();
      assert_filled(table[0], sizes[i], 3);
      if (turn % 2) {
        table[0] = tide_realloc(table[0], sizes[i] + 70000);
        assert_filled(table[0], sizes[i], 3);
      }
      tide_free(table[0]);
      ck_assert_uint_eq(tide_size(table[0]), 0);
    }
}
END_TEST

START_TEST(aligned_objects_live_and_die_as_others) {
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1));
  static const size_t alignments[] = {64, 4096, 65536, MIB};
  for (int i = 0; i < MANY; i++) {
    table[i] = tide_alloc_aligned(alignments[_i], 100, TIDE_SCANNED);
    hidden_objects[i] = hide(table[i]);
  }
  collect();
  ck_assert_uint_eq(count_alive(hidden_objects, MANY), MANY);
  memset(table, 0, sizeof table);
  collect();
  ck_assert_uint_le(count_alive(hidden_objects, MANY), 2);
}
END_TEST

START_TEST(huge_alignment_is_possible) {
  init_with(OPTIONS(o.gc_percent = -1));
  void *object = tide_alloc_aligned((size_t)1 << 30, 100, TIDE_SCANNED);
  ck_assert_ptr_nonnull(object);
  ck_assert_uint_eq((uintptr_t)object % ((size_t)1 << 30), 0);
  tide_free(object);
  if (on_bdw("what was skipped is part of the object")) return;
  object = tide_alloc_aligned((size_t)1 << 30, 100, TIDE_SCANNED);
  // What was skipped is used.
  for (int i = 0; i < 100; i++) sink = tide_alloc_leaf(MIB);
  ck_assert_uint_lt(read_stats().heap_inuse, 110 * MIB);
  tide_free(object);
}
END_TEST

START_TEST(bad_alignments_are_refused) {
  static const size_t wrong[] = {
      0, 3, 24, 48, 4095, ((size_t)1 << 30) + 1, (size_t)1 << 31, (size_t)1 << 63, SIZE_MAX};
  init_with(OPTIONS(o.gc_percent = -1));
  uint64_t before = read_stats().mallocs;
  for (size_t i = 0; i < LENGTH(wrong); i++) {
    ck_assert_ptr_null(tide_alloc_aligned(wrong[i], 100, TIDE_SCANNED));
    char shown[32];
    snprintf(shown, sizeof shown, "alignment %zu ", wrong[i]);
    ck_assert_ptr_nonnull(strstr(tide_error_message(), shown));
  }
  ck_assert_ptr_null(tide_alloc_aligned(16, 100, TIDE_KINDS));
  ck_assert_ptr_null(tide_alloc_aligned(16, 100, (tide_kind)-1));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "kind"));
  ck_assert_uint_eq(read_stats().mallocs, before);
}
END_TEST

int main(void) {
  enum { SIZES = LENGTH(object_sizes) };
  Suite *suite = suite_create("objects");

  TCase *sizes = tcase_create("sizes and contents");
  tcase_set_timeout(sizes, 60);
  tcase_add_test(sizes, every_small_size_has_the_smallest_class_that_fits);
  tcase_add_test(sizes, classes_waste_little);
  tcase_add_test(sizes, every_size_is_aligned_and_large_enough);
  tcase_add_test(sizes, every_offset_of_every_class_finds_its_slot);
  tcase_add_test(sizes, size_zero_gives_distinct_objects);
  tcase_add_loop_test(sizes, scanned_objects_are_zero_also_in_used_memory, 0, 2);
  tcase_add_test(sizes, leaves_are_not_looked_into);
  tcase_add_test(sizes, uncollectable_objects_live_and_are_roots);
  suite_add_tcase(suite, sizes);

  TCase *life = tcase_create("life and death");
  tcase_set_timeout(life, 60);
  tcase_add_loop_test(life, references_keep_objects_alive, 0, SIZES);
  tcase_add_loop_test(life, objects_without_references_die, 0, SIZES);
  tcase_add_loop_test(life, objects_that_lost_their_references_die, 0, SIZES);
  tcase_add_test(life, address_past_the_end_in_static_data_keeps_nothing);
  tcase_add_loop_test(life, address_past_the_end_on_the_stack_keeps_the_object, 0, SIZES);
  tcase_add_test(life, objects_referred_to_by_objects_live);
  tcase_add_test(life, cycles_of_objects_die);
  if (!UNDER_ASAN) tcase_add_test(life, list_dropped_by_a_returned_call_dies); // its frames differ
  tcase_add_loop_test(life, random_numbers_keep_almost_nothing, 0, 2);
  suite_add_tcase(suite, life);

  TCase *by_hand = tcase_create("free and realloc");
  tcase_set_timeout(by_hand, 60);
  tcase_add_test(by_hand, freed_objects_are_gone_at_once);
  tcase_add_loop_test(by_hand, wrong_addresses_are_refused_and_reported, 0, SIZES);
  tcase_add_test(by_hand, free_slot_next_to_an_object_is_not_found);
  tcase_add_test(by_hand, free_slot_next_to_an_object_cannot_be_freed);
  tcase_add_test(by_hand, double_free_harms_no_later_object);
  tcase_add_loop_test(by_hand, freed_memory_is_used_again, 0, SIZES);
  tcase_add_test(by_hand, freed_memory_is_used_again_in_batches);
  tcase_add_test(by_hand, poison_overwrites_what_is_freed);
  tcase_add_test(by_hand, realloc_keeps_contents_and_zeroes_the_rest);
  tcase_add_test(by_hand, realloc_step_by_step);
  tcase_add_test(by_hand, realloc_of_nothing_and_to_nothing);
  tcase_add_test(by_hand, realloc_stays_in_place_where_it_can);
  tcase_add_test(by_hand, realloc_gives_memory_back);
  tcase_add_test(by_hand, realloc_keeps_the_kind);
  tcase_add_loop_test(by_hand, realloc_refuses_and_reports_wrong_addresses, 0, SIZES);
  suite_add_tcase(suite, by_hand);

  TCase *aligned = tcase_create("aligned objects");
  tcase_set_timeout(aligned, 60);
  tcase_add_loop_test(aligned, aligned_objects_work_with_every_call, 0, TIDE_KINDS);
  tcase_add_loop_test(aligned, aligned_objects_live_and_die_as_others, 0, 4);
  tcase_add_test(aligned, huge_alignment_is_possible);
  tcase_add_test(aligned, bad_alignments_are_refused);
  suite_add_tcase(suite, aligned);
  return run_suite(suite);
}
