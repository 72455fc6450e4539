// SPDX-License-Identifier: MIT
// The heap's memory and the system: what is given back and when, what the statistics say of it, the
// number of mappings, huge pages.
#define _GNU_SOURCE
#include "heap_testing.h"
#include "mark.h"
#include "rt_testing.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

// Under AddressSanitizer resident memory is also shadow memory: only what else a test looks at
// counts then.
#define assert_resident(a, relation, b)                                                            \
  do {                                                                                             \
    if (!UNDER_ASAN) ck_assert_uint_##relation(a, b);                                              \
  } while (0)

// ---- Helpers --------------------------------------------------------------------------------

static NOINLINE void *filled_leaf(size_t bytes) {
  void *object = tide_alloc_leaf(bytes);
  MUST(object);
  return memset(object, 7, bytes);
}

// A list of leaves, each held by a node of its own.
typedef struct held {
  struct held *next;
  void *leaf;
} held;

static held *volatile list; // static data: a root

static NOINLINE void hold(size_t bytes) {
  held *node = tide_alloc(sizeof *node);
  node->leaf = filled_leaf(bytes);
  node->next = list;
  list = node;
}

static NOINLINE void hold_many(size_t count, size_t bytes) {
  for (size_t i = 0; i < count; i++) hold(bytes);
}

static NOINLINE void drop_all_but_every(int nth) {
  int i = 0;
  for (held *node = list; node; node = node->next)
    if (i++ % nth) node->leaf = NULL;
}

static NOINLINE void drop_all(void) {
  list = NULL;
  clear_stack();
}

// Garbage until the number of collections is `cycles`.
static NOINLINE void churn_until(uint64_t cycles) {
  for (size_t i = 0; tide_gc_cycle() < cycles; i++) sink = filled_leaf(i % 8 ? 1000 : 40000);
  sink = NULL;
  clear_stack();
}

static size_t retained_bytes(void) {
  tide_memstats stats = read_stats();
  return stats.heap_sys - stats.heap_released;
}

static size_t count_maps(void) {
  size_t lines = 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  for (int c; (c = getc(maps)) != EOF;) lines += c == '\n';
  fclose(maps);
  return lines;
}

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static size_t huge_bytes(void) { // all of the process
  char line[256];
  size_t kilobytes = 0;
  FILE *smaps = fopen("/proc/self/smaps_rollup", "re");
  if (!smaps) return 0;
  while (fgets(line, sizeof line, smaps))
    if (!strncmp(line, "AnonHugePages:", 14)) kilobytes = strtoul(line + 14, NULL, 10);
  fclose(smaps);
  return kilobytes << 10;
}

static bool huge_pages_are_had_by(const char *mode) {
  char line[256] = "";
  FILE *enabled = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
  if (!enabled) return false;
  if (!fgets(line, sizeof line, enabled)) line[0] = 0;
  fclose(enabled);
  return strstr(line, mode);
}

// Within 5 %, and two huge pages (of blocks, of bits) of which only a part has ever been used.
static void assert_statistics_agree(size_t baseline) {
  if (UNDER_ASAN) return;
  tide_memstats s = read_stats();
  double ours = (double)(s.heap_sys - s.heap_released + s.gc_sys + s.other_sys);
  double kernel = (double)(resident_bytes() - baseline);
  ck_assert_msg(ours > kernel * 0.95 - 4 * MIB && ours < kernel * 1.05 + MIB, "%.1f MiB, %.1f MiB",
                ours / MIB, kernel / MIB);
}

// ---- After a peak ---------------------------------------------------------------------------

enum { CYCLES = 5 }; // the number that the documentation gives

START_TEST(memory_comes_back_by_itself_after_a_peak) {
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  hold_many(10, 25 * MIB + MIB / 2);
  drop_all();
  uint64_t dropped_at = tide_gc_cycle();
  churn_until(dropped_at + 1);
  size_t peak = resident_bytes();
  assert_resident(peak, ge, 250 * MIB);
  churn_until(dropped_at + CYCLES);
  assert_resident(resident_bytes(), lt, peak / 100 * 15);
  ck_assert_uint_gt(read_stats().heap_released, 230 * MIB);
}
END_TEST

START_TEST(memory_comes_back_while_percent_is_off) {
  init_with(OPTIONS(o.gc_percent = -1, o.hugepages = _i));
  hold_many(200, MIB);
  hold_many(50 * 1024, 1024);
  size_t peak = resident_bytes();
  drop_all();
  for (int i = 0; i < CYCLES; i++) tide_collect();
  assert_resident(resident_bytes(), lt, peak / 100 * 15);
  ck_assert_uint_gt(read_stats().heap_released, 240 * MIB);
}
END_TEST

START_TEST(memory_comes_back_at_once_when_asked_for) {
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  size_t before = resident_bytes();
  hold_many(10, 25 * MIB + MIB / 2);
  size_t peak = resident_bytes();
  drop_all();
  tide_collect_and_release();
  assert_resident(resident_bytes(), lt, before + peak / 100 * 3);
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.heap_released, stats.heap_idle);
  char *again = tide_alloc(200 * MIB); // zeros, as new memory is
  ck_assert(is_filled(again, 0, 200 * MIB));
}
END_TEST

// Survivors all over the heap, one block in each 2 MiB.
START_TEST(memory_comes_back_around_scattered_survivors) {
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  hold_many(4096, 65536);
  size_t peak = resident_bytes();
  drop_all_but_every(32);
  clear_stack();
  for (int i = 0; i < CYCLES; i++) tide_collect();
  assert_resident(resident_bytes(), lt, peak / 100 * 15);
  ck_assert_uint_lt(read_stats().gc_sys, 2 * MIB); // bits included: they were 4 MiB
  ck_assert_uint_eq(heap.huge_blocks, 0);          // the system would fill the holes again
}
END_TEST

// Up and down between 40 and 100 MiB: the memory stays, and is not faulted in anew.
START_TEST(saw_tooth_keeps_its_memory) {
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  static held *volatile base;
  hold_many(40 * 16, 65536);
  base = list;
  long faults_before = 0;
  size_t retained_before = 0;
  for (int tooth = 0; tooth < 20; tooth++) {
    if (tooth == 8) {
      faults_before = faults();
      retained_before = retained_bytes();
    }
    hold_many(60 * 16, tooth % 2 ? 65536 : 60000);
    list = base;
    clear_stack();
  }
  ck_assert_uint_gt(read_stats().num_gc, 10);
  ck_assert(!_i || heap.huge_blocks);
  ck_assert_uint_ge(retained_bytes(), retained_before / 10 * 7);
  if (!UNDER_ASAN) // 60 MiB are 15360 pages
    ck_assert_int_lt(faults() - faults_before, 12 * 15360 / 8);
}
END_TEST

// ---- The statistics and the kernel ----------------------------------------------------------

START_TEST(statistics_agree_with_the_kernel) {
  size_t baseline = resident_bytes();
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  hold_many(200, MIB);
  assert_statistics_agree(baseline);
  hold_many(100 * 1024, 1024);
  hold_many(500000, 32);
  assert_statistics_agree(baseline);
  drop_all_but_every(2);
  clear_stack();
  tide_collect();
  assert_statistics_agree(baseline);
  tide_collect_and_release();
  assert_statistics_agree(baseline);
  drop_all();
  for (int i = 0; i < CYCLES; i++) tide_collect();
  assert_statistics_agree(baseline);
  tide_collect_and_release();
  assert_statistics_agree(baseline);
  hold_many(20, 10 * MIB);
  assert_statistics_agree(baseline);
}
END_TEST

// ---- Checkerboards --------------------------------------------------------------------------

static void *kept[2048]; // static data: a root

static NOINLINE void lay_checkerboard(size_t kept_bytes, size_t dropped_bytes) {
  static void *dropped[LENGTH(kept)];
  tide_gc_disable();
  for (size_t i = 0; i < LENGTH(kept); i++) {
    kept[i] = filled_leaf(kept_bytes);
    dropped[i] = filled_leaf(dropped_bytes);
  }
  memset(dropped, 0, sizeof dropped);
  tide_gc_enable();
}

static const struct board {
  size_t kept_bytes, dropped_bytes;
} boards[] = {{4096, 61440}, {65536, 4096}, {65536, 65536}, {4096, 28672}};

// The mapping does not fall to pieces, and memory that is not free is all that stays.
START_TEST(checkerboard_is_one_mapping) {
  const struct board *board = &boards[_i / 2];
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i % 2, o.verify = 1));
  size_t before = resident_bytes(), maps = count_maps();
  lay_checkerboard(board->kept_bytes, board->dropped_bytes);
  clear_stack();
  tide_collect_and_release();
  ck_assert_uint_le(count_maps(), maps + 8 + STRANGE_MAPS);
  assert_resident(resident_bytes(), le, before + LENGTH(kept) * board->kept_bytes + 12 * MIB);
  for (size_t i = 0; i < LENGTH(kept); i++) MUST(is_filled(kept[i], 7, board->kept_bytes));
  lay_checkerboard(board->kept_bytes, board->dropped_bytes);
  tide_collect();
}
END_TEST

// One slot of 4 KiB is kept in each block of 16: there is no free block at all.
START_TEST(pages_inside_blocks_come_back) {
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i, o.verify = 1));
  size_t before = resident_bytes();
  tide_gc_disable();
  for (size_t i = 0; i < 1024 * 16; i++) {
    void *object = filled_leaf(4096);
    if (i % 16 == 5) kept[i / 16] = object;
  }
  tide_gc_enable();
  clear_stack();
  tide_collect_and_release();
  assert_resident(resident_bytes(), le, before + 1024 * 4096 + 4 * MIB);
  assert_statistics_agree(before);
  for (size_t i = 0; i < 1024; i++) MUST(is_filled(kept[i], 7, 4096));
  for (size_t i = 0; i < 1024 * 15; i++) filled_leaf(4096); // in the same blocks again
  assert_statistics_agree(before);
  tide_collect();
}
END_TEST

// ---- The system refuses ---------------------------------------------------------------------

static void refuse_madvise(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {LENGTH(filter), filter};
  ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void live_without_madvise(void *arg) {
  size_t baseline = resident_bytes();
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  refuse_madvise();
  for (int round = 0; round < 2; round++) {
    hold_many(128, MIB);
    hold_many(2000, 4096);
    drop_all();
    for (int i = 0; i < CYCLES; i++) tide_collect();
    tide_collect_and_release();
    assert_statistics_agree(baseline); // memory that stayed counts as such
  }
  tide_memstats stats = read_stats();
  ck_assert_uint_ge(retained_bytes(), 128 * MIB);
  hold_many(100, MIB); // of memory that was there
  ck_assert_uint_eq(read_stats().heap_sys, stats.heap_sys);
  for (held *node = list; node; node = node->next) MUST(is_filled(node->leaf, 7, MIB));
}

START_TEST(refused_madvise_does_no_harm) {
  child c;
  in_child(&c, 60, live_without_madvise, NULL);
  assert_ended_well(&c);
}
END_TEST

// ---- At the same time -----------------------------------------------------------------------

static volatile int enough;

static void *allocate_and_check(void *arg) {
  enum { SLOTS = 64 };
  static void *slots[4][SLOTS]; // static data: a root
  void **mine = slots[(intptr_t)arg];
  uint64_t random = (uint64_t)(intptr_t)arg;
  size_t bytes[SLOTS] = {0};
  while (!is_set(&enough)) {
    size_t i = random_below(&random, SLOTS);
    if (mine[i]) MUST(is_filled(mine[i], (unsigned char)i, bytes[i]));
    bytes[i] = random_below(&random, 8) ? random_below(&random, 9000) : 300000;
    unsigned char *object = tide_alloc(bytes[i]);
    MUST(is_filled(object, 0, bytes[i]));
    mine[i] = memset(object, (int)i, bytes[i]);
  }
  memset(mine, 0, sizeof slots[0]);
  return NULL;
}

START_TEST(memory_goes_back_while_threads_allocate) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1, o.poison = _i, o.stress = _i ? 500 : 0));
  pthread_t threads[3];
  for (intptr_t i = 0; i < 3; i++) create(&threads[i], allocate_and_check, (void *)i);
  for (uint64_t end = deadline_ns(1); now_ns() < end;) {
    hold_many(100, 200000);
    drop_all();
    tide_collect_and_release();
  }
  set_flag(&enough);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}
END_TEST

static void *release_all_the_time(void *arg) {
  while (!is_set(&enough)) {
    for (int i = 0; i < 32; i++) sink = filled_leaf(MIB);
    sink = NULL;
    tide_collect_and_release();
  }
  return NULL;
}

// In the child nobody finishes what another thread had begun.
START_TEST(fork_while_memory_goes_back) {
  init_with(OPTIONS(o.gc_percent = 100, o.verify = 1));
  pthread_t thread;
  create(&thread, release_all_the_time, NULL);
  int forks = 0;
  for (uint64_t end = deadline_ns(1.5); now_ns() < end; forks++) {
    sleep_us(100 + forks % 50 * 200);
    pid_t pid = fork();
    if (!pid) {
      use_heap();
      tide_collect();
      tide_collect_and_release();
      tide_memstats stats = read_stats();
      // No block is lost.
      _exit(stats.heap_inuse > 16 * MIB || stats.heap_released != stats.heap_idle);
    }
    ck_assert_int_eq(child_result(pid, 20), 0);
  }
  ck_assert_int_ge(forks, 3);
  set_flag(&enough);
  pthread_join(thread, NULL);
}
END_TEST

// ---- The smallest heap -------------------------------------------------------------------------

START_TEST(smallest_heap_costs_no_memory_until_it_is_used) {
  size_t before = resident_bytes();
  init_with(OPTIONS(o.gc_percent = 100, o.min_heap_bytes = (int64_t)1 << 30));
  sink = tide_alloc(16);
  assert_resident(resident_bytes(), lt, before + MIB);
  hold_many(100, MIB);
  drop_all();
  hold_many(100, MIB);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  assert_resident(resident_bytes(), lt, before + 205 * MIB);
}
END_TEST

// ---- Huge pages -----------------------------------------------------------------------------

START_TEST(large_heap_has_huge_pages) {
  if (!huge_pages_are_had_by("[madvise]")) return;
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = _i));
  size_t maps = count_maps();
  hold_many(20, MIB);
  ck_assert_uint_eq(huge_bytes(), 0); // not yet
  hold_many(160, MIB);
  if (_i) // but for what was there before; the system may be short of some
    ck_assert_uint_ge(huge_bytes(), 80 * MIB);
  else
    ck_assert_uint_eq(huge_bytes(), 0);
  ck_assert_uint_le(count_maps(), maps + 3 + STRANGE_MAPS);
}
END_TEST

// While a mark stack doubles it is not there twice: near a limit there is room for one.
static void double_a_mark_stack(void *arg) {
  enum { WORDS = 1 << 18 }; // 2 MiB
  init_with(OPTIONS(o.gc_percent = -1));
  marker *m = marker_make(0);
  MUST(m);
  for (uintptr_t i = 1; i <= WORDS; i++) mark_push(m, i);
  MUST(m->top == m->end && m->mapped_bytes == WORDS * sizeof(uintptr_t));
  for (int i = 0; i < 1000; i++) m->bottom++; // as if given away
  uint64_t mapped = os_mapped_bytes(), stacks = mark_stack_mapped_bytes();
  struct rlimit limit = {(rlim_t)1 << 46, RLIM_INFINITY};
  MUST(setrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur -= os_address_space_left() - m->mapped_bytes - MIB;
  MUST(setrlimit(RLIMIT_AS, &limit) == 0);
  mark_push(m, WORDS + 1);
  MUST(!m->dropped && (size_t)(m->top - m->bottom) == WORDS - 999);
  for (uintptr_t i = WORDS + 1; i > 1000; i--) MUST(*--m->top == i);
  MUST(m->top == m->bottom && m->mapped_bytes == 2 * WORDS * sizeof(uintptr_t));
  MUST(os_mapped_bytes() == mapped + m->mapped_bytes / 2);
  MUST(mark_stack_mapped_bytes() == stacks + m->mapped_bytes / 2);
  for (uintptr_t i = 0; i < 2 * WORDS; i++) mark_push(m, i); // there is no room for more
  MUST(m->dropped && m->top == m->end);
  marker_unmake(m);
}

START_TEST(mark_stack_doubles_where_there_is_room_for_one) {
  child c;
  in_child(&c, 20, double_a_mark_stack, NULL);
  assert_ended_well(&c);
}
END_TEST

int main(void) {
  setenv("TIDE_GCINTERVAL", "0", 1); // threads and mappings are counted: none beside them
  Suite *suite = suite_create("memory");

  TCase *back = tcase_create("given back");
  limit_time(back, 60);
  tcase_add_loop_test(back, memory_comes_back_by_itself_after_a_peak, 0, 2);
  tcase_add_loop_test(back, memory_comes_back_while_percent_is_off, 0, 2);
  tcase_add_loop_test(back, memory_comes_back_at_once_when_asked_for, 0, 2);
  tcase_add_loop_test(back, memory_comes_back_around_scattered_survivors, 0, 2);
  tcase_add_loop_test(back, saw_tooth_keeps_its_memory, 0, 2);
  tcase_add_loop_test(back, checkerboard_is_one_mapping, 0, 2 * (int)LENGTH(boards));
  tcase_add_loop_test(back, pages_inside_blocks_come_back, 0, 2);
  tcase_add_loop_test(back, statistics_agree_with_the_kernel, 0, 2);
  suite_add_tcase(suite, back);

  TCase *trouble = tcase_create("trouble");
  limit_time(trouble, 60);
  tcase_add_test(trouble, refused_madvise_does_no_harm);
  tcase_add_loop_test(trouble, memory_goes_back_while_threads_allocate, 0, 2);
  tcase_add_test(trouble, fork_while_memory_goes_back);
  if (!UNDER_ASAN) tcase_add_test(trouble, mark_stack_doubles_where_there_is_room_for_one);
  suite_add_tcase(suite, trouble);

  TCase *asked = tcase_create("smallest heap, huge pages");
  limit_time(asked, 60);
  tcase_add_test(asked, smallest_heap_costs_no_memory_until_it_is_used);
  tcase_add_loop_test(asked, large_heap_has_huge_pages, 0, 2);
  suite_add_tcase(suite, asked);
  return run_suite(suite);
}
