// SPDX-License-Identifier: MIT
// The heap from one thread: sizes, finding, what is zeroed, what stays alive and what does not,
// freeing and resizing by hand, large and aligned objects, statistics, marking without room.
#include "testing.h"

#include "heap.h"

#include <pthread.h>

static void *volatile sink;
static void *table[4096]; // static data: a root

// Whether an object starts at the hidden address. Frees nothing, keeps nothing alive.
static NOINLINE bool is_alive(uintptr_t hidden) {
  return tide_size(reveal(hidden)) != 0;
}

static NOINLINE size_t count_alive(const uintptr_t *hidden, size_t count) {
  size_t alive = 0;
  for (size_t i = 0; i < count; i++) alive += is_alive(hidden[i]);
  return alive;
}

static void collect(void) {
  clear_stack();
  tide_collect();
}

static bool is_filled(const void *memory, unsigned char byte, size_t bytes) {
  const unsigned char *at = memory;
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != byte) return false;
  return true;
}

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

enum { MANY = 100 };
static uintptr_t hidden_objects[MANY];

// Objects of `bytes`, known only by their hidden addresses, and by table[i] = address + offset.
static NOINLINE void make_objects(size_t bytes, ptrdiff_t offset, bool refer) {
  for (int i = 0; i < MANY; i++) {
    char *object = tide_alloc(bytes);
    memset(object, i + 1, bytes);
    hidden_objects[i] = hide(object);
    table[i] = refer ? object + offset : NULL;
    tide_alloc(bytes); // no neighbours among them
  }
}

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
    memset((char *)table[0] + bytes / 2, 1, 4096);
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
  ck_assert_uint_le(resident_bytes(), before + 8 * MIB);
  tide_memstats stats = read_stats();
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
  enum { SIZES = LENGTH(object_sizes) };
  Suite *suite = suite_create("heap");

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

  TCase *large = tcase_create("aligned and large");
  tcase_set_timeout(large, 60);
  tcase_add_loop_test(large, aligned_objects_work_with_every_call, 0, TIDE_KINDS);
  tcase_add_loop_test(large, aligned_objects_live_and_die_as_others, 0, 4);
  tcase_add_test(large, huge_alignment_is_possible);
  tcase_add_test(large, bad_alignments_are_refused);
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
