// SPDX-License-Identifier: MIT
// Misuse and scarcity: sizes that cannot be had, address space that ends, calls where they are
// forbidden. The answer is always an error and a heap that still works; never a crash or a hang.
#include "testing.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/resource.h>

static void *volatile sink;
static void *table[4096];

// The heap works: what is allocated is whole, and what is dropped is freed.
static NOINLINE void assert_heap_is_usable(void) {
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 1000; i++) {
      unsigned char *object = table[i] = tide_alloc(100);
      MUST(object && !object[0] && !object[99]);
      memset(object, i % 251, 100);
    }
    tide_collect();
    for (int i = 0; i < 1000; i++) {
      const unsigned char *object = table[i];
      MUST(object[0] == i % 251 && object[99] == i % 251);
    }
  }
  void *large = tide_alloc(200000);
  MUST(large);
  tide_free(large);
  memset(table, 0, sizeof table);
}

// ---- Sizes that cannot be had ---------------------------------------------------------------

static int asked;
static size_t asked_size;

static void *refuse(size_t size, void *arg) {
  asked++;
  asked_size = size;
  ck_assert_ptr_eq(arg, &asked);
  return NULL;
}

static const size_t impossible[] = {SIZE_MAX,
                                    SIZE_MAX - 1,
                                    SIZE_MAX - 15,
                                    SIZE_MAX - 16,
                                    SIZE_MAX - 4094,
                                    SIZE_MAX - 4095,
                                    SIZE_MAX - 4096,
                                    SIZE_MAX - 65535,
                                    SIZE_MAX - 65536,
                                    SIZE_MAX / 2,
                                    (size_t)PTRDIFF_MAX + 1,
                                    PTRDIFF_MAX,
                                    PTRDIFF_MAX - 65535,
                                    (size_t)1 << 47,
                                    (size_t)1 << 43};

static void *allocate_by(int entry, size_t size) {
  static const size_t alignments[] = {1, 16, 4096, 65536, (size_t)1 << 30};
  switch (entry) {
  case 0:
    return tide_alloc(size);
  case 1:
    return tide_alloc_leaf(size);
  case 2:
    return tide_alloc_uncollectable(size);
  case 3:
    return tide_realloc(NULL, size);
  case 4:
    return tide_realloc(table[0], size); // small
  case 5:
    return tide_realloc(table[1], size); // large
  default:
    return tide_alloc_aligned(alignments[entry - 6], size, TIDE_SCANNED);
  }
}
enum { ENTRIES = 11 };

START_TEST(impossible_sizes_are_refused_by_every_entry) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  table[0] = tide_alloc(100);
  table[1] = tide_alloc(100000);
  memset(table[0], 3, 100);
  memset(table[1], 4, 100000);
  ck_assert_ptr_null(tide_oom_handler_set(refuse, &asked));
  for (size_t i = 0; i < LENGTH(impossible); i++) {
    asked = 0;
    ck_assert_ptr_null(allocate_by(_i, impossible[i]));
    ck_assert_int_eq(asked, 1);
    ck_assert_uint_eq(asked_size, impossible[i]);
    char shown[32];
    snprintf(shown, sizeof shown, "%zu bytes", impossible[i]);
    ck_assert_ptr_nonnull(strstr(tide_error_message(), shown));
  }
  ck_assert_uint_eq(tide_size(table[0]), 112); // realloc left them as they were
  ck_assert_int_eq(((char *)table[0])[99], 3);
  ck_assert_int_eq(((char *)table[1])[99999], 4);
  ck_assert_uint_lt(read_stats().heap_sys, 16 * MIB);
  assert_heap_is_usable();
  tide_collect();
}
END_TEST

START_TEST(impossible_sizes_without_a_handler) {
  init_with(OPTIONS(o.gc_percent = 100));
  table[0] = tide_alloc(100);
  table[1] = tide_alloc(100000);
  for (size_t i = 0; i < LENGTH(impossible); i++)
    ck_assert_ptr_null(allocate_by(_i, impossible[i]));
  assert_heap_is_usable();
}
END_TEST

// ---- The out-of-memory handler --------------------------------------------------------------

static char substitute[64];
static void *give_substitute(size_t size, void *arg) {
  return substitute;
}

START_TEST(handler_value_is_what_the_allocation_returns) {
  ck_assert_ptr_null(tide_oom_handler_set(give_substitute, NULL));
  ck_assert_ptr_eq(tide_alloc(SIZE_MAX), substitute);
  ck_assert_ptr_eq(tide_oom_handler_set(NULL, NULL), give_substitute);
  ck_assert_ptr_null(tide_alloc(SIZE_MAX));
}
END_TEST

static jmp_buf out;
static void *jump_out(size_t size, void *arg) {
  longjmp(out, 1);
}

START_TEST(handler_may_jump_out) {
  init_with(OPTIONS(o.verify = 1));
  tide_oom_handler_set(jump_out, NULL);
  for (volatile int i = 0; i < 100; i++) {
    if (setjmp(out)) continue;
    tide_alloc((size_t)1 << 46);
    ck_abort_msg("it returned");
  }
  assert_heap_is_usable();
}
END_TEST

// No lock is held in the handler: everything works there, also from other threads.
static void *use_everything(void *arg) {
  assert_heap_is_usable();
  read_stats();
  tide_oom_handler_set(tide_oom_handler_set(NULL, NULL), NULL);
  tide_hook_remove(tide_hook_add(TIDE_CYCLE_END, (tide_hook_fn)arg, NULL));
  return NULL;
}
static void do_nothing(const tide_cycle *cycle, void *arg) {}
static void *use_everything_here_and_elsewhere(size_t size, void *arg) {
  pthread_t thread;
  use_everything((void *)do_nothing);
  ck_assert_int_eq(tide_thread_create(&thread, NULL, use_everything, (void *)do_nothing), 0);
  pthread_join(thread, NULL);
  return NULL;
}

START_TEST(handler_holds_no_lock) {
  init_with(OPTIONS(o.verify = 1));
  tide_oom_handler_set(use_everything_here_and_elsewhere, NULL);
  ck_assert_ptr_null(tide_alloc(SIZE_MAX));
  ck_assert_ptr_null(tide_realloc(tide_alloc(16), SIZE_MAX));
}
END_TEST

// ---- Little memory --------------------------------------------------------------------------

static void limit(int resource, size_t bytes) {
  struct rlimit now;
  ck_assert_int_eq(getrlimit(resource, &now), 0);
  now.rlim_cur = bytes;
  ck_assert_int_eq(setrlimit(resource, &now), 0);
}

static size_t current_bytes(const char *name) { // a line of /proc/self/status, in kB there
  char line[256];
  size_t kilobytes = 0;
  FILE *status = fopen("/proc/self/status", "re");
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, name, strlen(name))) kilobytes = strtoul(line + strlen(name) + 1, NULL, 10);
  fclose(status);
  return kilobytes << 10;
}

// Fills the heap with a list of objects until one is refused; returns how many bytes there are.
static NOINLINE size_t fill_up(size_t object_bytes) {
  size_t bytes = 0;
  for (void **node; (node = tide_alloc(object_bytes)); bytes += object_bytes) {
    MUST(!node[0] && !node[object_bytes / 8 - 1]);
    node[0] = table[0];
    node[object_bytes / 8 - 1] = (void *)hide(node);
    table[0] = node;
  }
  return bytes;
}

static void check_list(size_t object_bytes) {
  for (void **node = table[0]; node; node = *node)
    MUST(node[object_bytes / 8 - 1] == (void *)hide(node));
}

static NOINLINE void free_from_list(size_t bytes, size_t object_bytes) {
  for (size_t freed = 0; freed < bytes; freed += object_bytes) {
    void **node = table[0];
    table[0] = *node;
    tide_free(node);
  }
}

typedef struct scarcity {
  int resource;
  size_t megabytes, object_bytes;
} scarcity;

static const scarcity scarcities[] = {
    {RLIMIT_AS, 64, 64},     {RLIMIT_AS, 64, 57344},   {RLIMIT_AS, 512, 1024},
    {RLIMIT_AS, 512, MIB},   {RLIMIT_DATA, 64, 64},    {RLIMIT_DATA, 64, 57344},
    {RLIMIT_DATA, 512, MIB}, {RLIMIT_DATA, 512, 1024},
};

static void run_out(void *arg) {
  const scarcity *s = arg;
  size_t megabytes = s->megabytes;
  if (megabytes > 128 && on_bdw("collecting a full heap takes long")) megabytes = 128;
  limit(s->resource, megabytes * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  tide_oom_handler_set(refuse, &asked);
  for (int round = 0; round < 3; round++) {
    asked = 0;
    size_t bytes = fill_up(s->object_bytes);
    ck_assert_int_eq(asked, 1);
    // Of address space the heap reserves a part of what is left, and leaves some for stacks and
    // malloc; the program has taken some already.
    size_t tenths = on_bdw("a header of each block counts, and a third of 1 KiB is lost") ? 5 : 8;
    size_t least = megabytes * MIB / 10 * (s->resource == RLIMIT_AS ? 3 : tenths);
    ck_assert_msg(bytes >= least, "%zu MiB in round %d", bytes >> 20, round);
    check_list(s->object_bytes);
    // Full: small sizes and large ones are refused again, collections still work.
    for (int i = 0; i < 10; i++) ck_assert_ptr_null(tide_alloc(2 * megabytes * MIB));
    uint64_t before = read_stats().num_gc;
    tide_collect();
    ck_assert_uint_eq(read_stats().num_gc, before + 1);
    check_list(s->object_bytes);
    // Half of it is freed by hand, the rest by the collector.
    free_from_list(bytes / 2, s->object_bytes);
    ck_assert_ptr_nonnull(tide_alloc(s->object_bytes));
    check_list(s->object_bytes);
    table[0] = NULL;
    clear_stack();
    tide_collect();
    assert_heap_is_usable();
  }
}

START_TEST(memory_runs_out_and_comes_back) {
  child c;
  in_child(&c, 60, run_out, (void *)&scarcities[_i]);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// With the garbage collector's help: what is dropped is found again before anything is refused.
static void churn_in_little(void *arg) {
  limit(RLIMIT_AS, 128 * MIB);
  init_with(OPTIONS(o.gc_percent = 1000));
  for (int i = 0; i < 2000; i++) {
    table[i % 16] = tide_alloc(i % 3 ? MIB : 50000);
    MUST(table[i % 16]);
  }
}

START_TEST(garbage_is_collected_before_memory_is_refused) {
  child c;
  in_child(&c, 60, churn_in_little, NULL);
  assert_ended_well(&c);
}
END_TEST

static void *free_reserve_and_retry(size_t size, void *arg) {
  asked++;
  if (!table[100]) return NULL;
  tide_free(table[100]);
  table[100] = NULL;
  return tide_alloc(size);
}

static void run_out_with_reserve(void *arg) {
  limit(RLIMIT_AS, 128 * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  table[100] = tide_alloc(8 * MIB);
  MUST(table[100]);
  tide_oom_handler_set(free_reserve_and_retry, NULL);
  fill_up(4096);
  ck_assert_ptr_null(table[100]);
  ck_assert_int_eq(asked, 2); // the one that found the reserve, and the one that did not
  check_list(4096);
}

START_TEST(handler_may_free_a_reserve_and_retry) {
  child c;
  in_child(&c, 60, run_out_with_reserve, NULL);
  assert_ended_well(&c);
}
END_TEST

static void run_out_and_jump(void *arg) {
  limit(RLIMIT_AS, 128 * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  tide_oom_handler_set(jump_out, NULL);
  for (volatile int i = 0; i < 3; i++) {
    if (!setjmp(out)) {
      fill_up(i == 1 ? 100000 : 512);
      ck_abort_msg("it returned");
    }
    check_list(i == 1 ? 100000 : 512);
    table[0] = NULL;
    clear_stack();
    tide_collect();
  }
  assert_heap_is_usable();
}

START_TEST(handler_may_jump_out_when_memory_is_out) {
  child c;
  in_child(&c, 60, run_out_and_jump, NULL);
  assert_ended_well(&c);
}
END_TEST

// A request that is far too large must not use up, in tables for blocks that it never gets, what
// others could have.
static void ask_for_far_too_much(void *arg) {
  limit(RLIMIT_DATA, current_bytes("VmData:") + 256 * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  for (size_t gigabytes = 1; gigabytes <= 2048; gigabytes *= 2)
    ck_assert_ptr_null(tide_alloc(gigabytes << 30));
  ck_assert_uint_ge(fill_up(130000), 200 * MIB);
}

START_TEST(far_too_large_requests_cost_nothing) {
  child c;
  in_child(&c, 60, ask_for_far_too_much, NULL);
  assert_ended_well(&c);
}
END_TEST

static void *keep_allocating(void *arg) {
  size_t refused = 0;
  for (size_t i = 0; refused < 20 && i < 20000; i++) {
    char *object = tide_alloc_leaf(i % 7 ? 2000 : 70000);
    if (object)
      object[0] = 1;
    else
      refused++;
  }
  return NULL;
}

static void run_out_with_threads(void *arg) {
  limit(RLIMIT_AS, 512 * MIB);
  init_with(OPTIONS(o.gc_percent = 100));
  size_t bytes = fill_up(4096);
  ck_assert_uint_ge(bytes, 100 * MIB);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    MUST(tide_thread_create(&threads[i], &attributes, keep_allocating, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check_list(4096);
}

START_TEST(memory_runs_out_in_many_threads_at_once) {
  child c;
  in_child(&c, 100, run_out_with_threads, NULL);
  assert_ended_well(&c);
}
END_TEST

static void start_without_room(void *arg) {
  limit(RLIMIT_AS, current_bytes("VmSize:") + 2 * MIB);
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_MEMORY);
  ck_assert_uint_gt(strlen(tide_error_message()), 0);
  ck_assert_ptr_null(tide_alloc(16));
  ck_assert_ptr_null(tide_alloc_uncollectable(100000));
  ck_assert_ptr_null(tide_alloc_aligned(64, 16, TIDE_SCANNED));
  ck_assert_ptr_null(tide_realloc(NULL, 16));
  tide_free(&arg);
  ck_assert_ptr_null(tide_base(&arg));
  tide_collect();
  ck_assert_uint_eq(read_stats().num_gc, 0);
  ck_assert_int_ne(tide_thread_register(), TIDE_OK);
  // Later there is room.
  limit(RLIMIT_AS, RLIM_INFINITY);
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  assert_heap_is_usable();
}

START_TEST(start_without_room_fails_cleanly_and_may_be_tried_again) {
  child c;
  in_child(&c, 20, start_without_room, NULL);
  assert_ended_well(&c);
}
END_TEST

static void allocate_without_room(void *arg) {
  limit(RLIMIT_AS, current_bytes("VmSize:") + 2 * MIB);
  ck_assert_ptr_null(tide_alloc(16));
}

START_TEST(first_allocation_without_room_says_why) {
  child c;
  in_child(&c, 20, allocate_without_room, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "no address space for the heap"));
}
END_TEST

static void allocate_without_room_with_handler(void *arg) {
  limit(RLIMIT_AS, current_bytes("VmSize:") + 2 * MIB);
  tide_oom_handler_set(refuse, &asked);
  ck_assert_ptr_null(tide_alloc(16));
  ck_assert_int_eq(asked, 1);
}

START_TEST(handler_is_asked_also_when_the_library_cannot_start) {
  child c;
  in_child(&c, 20, allocate_without_room_with_handler, NULL);
  assert_ended_well(&c);
}
END_TEST

// ---- Forbidden calls ------------------------------------------------------------------------

static void *object; // allocated before
static tide_hook *another_hook;

static void *return_null(void *arg) {
  return NULL;
}

static void forbidden(int call) {
  pthread_t thread;
  switch (call) {
  case 0:
    MUST(!tide_alloc(16));
    break;
  case 1:
    MUST(!tide_alloc(100000));
    break;
  case 2:
    MUST(!tide_alloc_leaf(16));
    break;
  case 3:
    MUST(!tide_alloc_uncollectable(16));
    break;
  case 4:
    MUST(!tide_alloc_aligned(64, 16, TIDE_LEAF));
    break;
  case 5:
    MUST(!tide_realloc(object, 5000));
    break;
  case 6:
    MUST(!tide_realloc(NULL, 16));
    break;
  case 7:
    tide_free(object);
    break;
  case 8:
    tide_collect();
    break;
  case 9:
    tide_collect_and_release();
    break;
  case 10:
    MUST(!tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL));
    break;
  case 11:
    tide_hook_remove(another_hook);
    break;
  case 12:
    MUST(tide_memory_limit_set(7) == INT64_MAX);
    break;
  case 13:
    tide_heap_walk(NULL, NULL);
    break;
  case 14:
    tide_gc_percent_set(7);
    break;
  case 15:
    tide_min_heap_set(7);
    break;
  case 16:
    tide_procs_set(7);
    break;
  case 17:
    MUST(tide_roots_add(&object, &object + 1) != TIDE_OK);
    break;
  case 18:
    MUST(tide_roots_remove(&another_hook, &another_hook + 1) != TIDE_OK);
    break;
  case 19:
    MUST(tide_thread_create(&thread, NULL, return_null, NULL) != 0);
    break;
  }
}
enum { FORBIDDEN = 20 };

static int call_to_make;
static int calls_made;
static void make_forbidden_call(const tide_cycle *cycle, void *arg) {
  if (calls_made++) return;
  forbidden(call_to_make);
}

static void call_in_hook(void *arg) {
  init_with(OPTIONS(o.gc_percent = 60, o.procs = 3));
  call_to_make = *(int *)arg % FORBIDDEN;
  tide_hook_point point = *(int *)arg < FORBIDDEN ? TIDE_STW_START : TIDE_MARK_DONE;
  object = tide_alloc(1000);
  ck_assert_int_eq(tide_roots_add(&another_hook, &another_hook + 1), TIDE_OK);
  another_hook = tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL);
  tide_hook *hook = tide_hook_add(point, make_forbidden_call, NULL);
  tide_collect();
  // Refused means that nothing has changed, and that the heap is open again.
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.num_gc, 1);
  ck_assert_int_eq(stats.gc_percent, 60);
  ck_assert_int_eq(tide_procs(), 3);
  ck_assert_uint_ge(tide_size(object), 1000);
  ck_assert_int_eq(tide_roots_remove(&another_hook, &another_hook + 1), TIDE_OK);
  tide_hook_remove(another_hook);
  tide_hook_remove(hook);
  assert_heap_is_usable();
}

START_TEST(calls_in_stopped_hooks_are_refused_and_reported) {
  child c;
  in_child(&c, 10, call_in_hook, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "not allowed in a hook while the world is stopped"));
}
END_TEST

static void *make_call_blocked(void *arg) {
  forbidden(*(int *)arg);
  return NULL;
}

static void call_in_blocking(void *arg) {
  init_with(OPTIONS(o.gc_percent = 60, o.procs = 3));
  object = tide_alloc(1000);
  another_hook = tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL);
  tide_blocking(make_call_blocked, arg);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  ck_assert_int_eq(read_stats().gc_percent, 60);
  ck_assert_uint_ge(tide_size(object), 1000);
  assert_heap_is_usable();
}

START_TEST(use_of_the_heap_in_blocking_is_refused_and_reported) {
  child c;
  in_child(&c, 10, call_in_blocking, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "not allowed inside tide_blocking"));
}
END_TEST

static bool make_call_walking(const tide_object *found, void *arg) {
  forbidden(*(int *)arg);
  return false;
}

static void call_in_walk(void *arg) {
  init_with(OPTIONS(o.gc_percent = 60));
  object = tide_alloc(1000);
  another_hook = tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL);
  tide_heap_walk(make_call_walking, arg);
  ck_assert_uint_ge(tide_size(object), 1000);
  assert_heap_is_usable();
}

START_TEST(use_of_the_heap_in_a_walk_is_refused_and_reported) {
  child c;
  in_child(&c, 10, call_in_walk, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "not allowed in tide_heap_walk"));
}
END_TEST

static uint64_t cycle_in_hook;
static void ask_cycle(const tide_cycle *cycle, void *arg) {
  cycle_in_hook = tide_gc_cycle();
}

START_TEST(cycle_number_may_be_asked_for_anywhere) {
  tide_hook_add(TIDE_STW_START, ask_cycle, NULL);
  tide_collect();
  ck_assert_uint_eq(cycle_in_hook, 1);
}
END_TEST

// ---- Wrong arguments ------------------------------------------------------------------------

START_TEST(unknown_hook_points_are_refused) {
  static const int points[] = {-1, TIDE_HOOK_POINTS, 1000, INT32_MAX};
  for (size_t i = 0; i < LENGTH(points); i++)
    ck_assert_ptr_null(tide_hook_add((tide_hook_point)points[i], do_nothing, NULL));
  ck_assert_uint_gt(strlen(tide_error_message()), 0);
  ck_assert_ptr_null(tide_hook_add(TIDE_STW_START, NULL, NULL));
  tide_hook_remove(NULL);
  tide_collect();
}
END_TEST

START_TEST(unknown_root_ranges_are_refused) {
  char *memory = calloc(1, 1000);
  ck_assert_int_eq(tide_roots_remove(memory, memory + 8), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_add(memory + 8, memory), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_add(memory, memory + 80), TIDE_OK);
  ck_assert_int_eq(tide_roots_remove(memory, memory + 72), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_remove(memory + 8, memory + 80), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_remove(memory, memory + 80), TIDE_OK);
  ck_assert_int_eq(tide_roots_remove(memory, memory + 80), TIDE_ERR_ARGUMENT);
  ck_assert_uint_gt(strlen(tide_error_message()), 0);
  tide_collect();
}
END_TEST

START_TEST(enable_too_many_is_an_error_and_changes_nothing) {
  for (int i = 0; i < 3; i++) ck_assert_int_eq(tide_gc_enable(), TIDE_ERR_STATE);
  ck_assert_uint_eq(read_stats().disable_depth, 0);
  for (int i = 0; i < 8; i++) sink = tide_alloc_leaf(MIB);
  ck_assert_uint_ge(read_stats().num_gc, 1);
  tide_gc_disable();
  ck_assert_int_eq(tide_gc_enable(), TIDE_OK);
  ck_assert_int_eq(tide_gc_enable(), TIDE_ERR_STATE);
}
END_TEST

START_TEST(processor_counts_out_of_range_only_ask) {
  init_with(OPTIONS(o.procs = 3));
  static const int wrong[] = {0, -1, 1025, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < LENGTH(wrong); i++) ck_assert_int_eq(tide_procs_set(wrong[i]), 3);
  ck_assert_int_eq(tide_procs(), 3);
}
END_TEST

START_TEST(wild_addresses_are_in_no_object) {
  init_with(OPTIONS(o.gc_percent = -1));
  uintptr_t heap_object = (uintptr_t)tide_alloc(64);
  uint64_t state = test_seed();
  for (int i = 0; i < 1000000; i++) {
    uintptr_t address = next_random(&state) >> (next_random(&state) % 64);
    if (i % 2) address = heap_object + (int64_t)(next_random(&state) >> 44) - (1 << 19);
    char *base = tide_base((void *)address);
    if (!base) continue;
    MUST((uintptr_t)base <= address && address < (uintptr_t)base + tide_size(base));
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hostile");
  TCase *sizes = tcase_create("sizes and handlers");
  tcase_set_timeout(sizes, 60);
  tcase_add_loop_test(sizes, impossible_sizes_are_refused_by_every_entry, 0, ENTRIES);
  tcase_add_loop_test(sizes, impossible_sizes_without_a_handler, 0, ENTRIES);
  tcase_add_test(sizes, handler_value_is_what_the_allocation_returns);
  tcase_add_test(sizes, handler_may_jump_out);
  tcase_add_test(sizes, handler_holds_no_lock);
  suite_add_tcase(suite, sizes);

  if (!UNDER_ASAN) { // it reserves terabytes itself
    TCase *scarce = tcase_create("little memory");
    tcase_set_timeout(scarce, 110);
    tcase_add_loop_test(scarce, memory_runs_out_and_comes_back, 0, LENGTH(scarcities));
    tcase_add_test(scarce, garbage_is_collected_before_memory_is_refused);
    tcase_add_test(scarce, handler_may_free_a_reserve_and_retry);
    tcase_add_test(scarce, handler_may_jump_out_when_memory_is_out);
    tcase_add_test(scarce, far_too_large_requests_cost_nothing);
    tcase_add_test(scarce, memory_runs_out_in_many_threads_at_once);
    tcase_add_test(scarce, start_without_room_fails_cleanly_and_may_be_tried_again);
    tcase_add_test(scarce, first_allocation_without_room_says_why);
    tcase_add_test(scarce, handler_is_asked_also_when_the_library_cannot_start);
    suite_add_tcase(suite, scarce);
  }

  TCase *calls = tcase_create("forbidden calls");
  tcase_set_timeout(calls, 40);
  tcase_add_loop_test(calls, calls_in_stopped_hooks_are_refused_and_reported, 0, 2 * FORBIDDEN);
  tcase_add_loop_test(calls, use_of_the_heap_in_blocking_is_refused_and_reported, 0, 17);
  tcase_add_loop_test(calls, use_of_the_heap_in_a_walk_is_refused_and_reported, 0, 17);
  tcase_add_test(calls, cycle_number_may_be_asked_for_anywhere);
  suite_add_tcase(suite, calls);

  TCase *arguments = tcase_create("wrong arguments");
  tcase_set_timeout(arguments, 40);
  tcase_add_test(arguments, unknown_hook_points_are_refused);
  tcase_add_test(arguments, unknown_root_ranges_are_refused);
  tcase_add_test(arguments, enable_too_many_is_an_error_and_changes_nothing);
  tcase_add_test(arguments, processor_counts_out_of_range_only_ask);
  tcase_add_test(arguments, wild_addresses_are_in_no_object);
  suite_add_tcase(suite, arguments);
  return run_suite(suite);
}
