// SPDX-License-Identifier: MIT
// Statistics: read without a lock while everything goes on, and compared with a recount and with
// what the system says once all is quiet.
#include "limits_testing.h"

#include "cycle.h"
#include "limit.h"
#include "pace.h"
#include "size_class.h"

// ---- While everything goes on ---------------------------------------------------------------

static AO_t time_is_over, lives;

enum { SLOTS = 64 };

// Allocates, frees by hand and drops objects of all sizes and kinds, in its own table.
static void *live_a_little(void *arg) {
  void *volatile objects[SLOTS] = {0};
  uint64_t random = (uintptr_t)arg * 7919 + AO_fetch_and_add1(&lives);
  for (int i = 0; i < 3000 && !AO_load(&time_is_over); i++) {
    size_t at = random_below(&random, SLOTS);
    size_t bytes = random_below(&random, random_below(&random, 20) ? 500 : 100000);
    if (random_below(&random, 2) && objects[at]) tide_free(objects[at]);
    objects[at] = NULL;
    objects[at] = tide_alloc_kind((tide_kind)random_below(&random, 2), bytes);
    MUST(objects[at]);
    if (i % 500 == 0) {
      void *grown = tide_realloc(objects[at], bytes * 2 + 1);
      MUST(grown);
      objects[at] = grown;
    }
  }
  for (int i = 0; i < SLOTS; i += 2) tide_free(objects[i]);
  return NULL;
}

// Parts of one sum come and go: external bytes, the limit, and memory.
static void *change_what_counts(void *arg) {
  while (!AO_load(&time_is_over)) {
    tide_external_add(MB(8));
    tide_memory_limit_set(MB(16));
    sink = tide_alloc_leaf(MIB);
    tide_memory_limit_set(MB(64));
    tide_external_add(-MB(8));
  }
  return NULL;
}

static void *follow_one_another(void *arg) {
  while (!AO_load(&time_is_over)) {
    pthread_t next;
    MUST(!tide_thread_create(&next, NULL, live_a_little, arg));
    pthread_join(next, NULL);
  }
  return NULL;
}

static void must_add_up(const tide_memstats *s) {
  MUST(s->heap_sys == s->heap_idle + s->heap_inuse);
  MUST(s->sys == s->heap_sys + s->gc_sys + s->other_sys);
  MUST(s->heap_released <= s->heap_idle);
  MUST(s->heap_objects == s->mallocs - s->frees && s->frees <= s->mallocs);
  MUST(s->heap_alloc <= s->total_alloc);
  MUST(s->total_bytes == s->sys - s->heap_released + s->external_bytes);
  uint64_t limit = (uint64_t)s->memory_limit;
  MUST(s->limit_overshoot_bytes == (s->total_bytes > limit ? s->total_bytes - limit : 0));
  MUST(s->limit_overshoot_bytes <= s->limit_overshoot_max_bytes);
  MUST(!s->limiter_active || s->limiter_episodes);
  uint64_t mallocs = 0, frees = 0;
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
    MUST(s->by_size[i].frees <= s->by_size[i].mallocs);
    MUST(s->by_size[i].size == size_class_bytes[i]);
    mallocs += s->by_size[i].mallocs;
    frees += s->by_size[i].frees;
  }
  MUST(mallocs <= s->mallocs && frees <= s->frees);
  // None of them can be more than there is in all: a number that has passed below zero is.
  MUST(s->sys < (uint64_t)1 << 40 && s->other_sys < (uint64_t)1 << 40 &&
       s->total_alloc < (uint64_t)1 << 50);
  uint64_t pause_sum = 0;
  for (size_t i = 0; i < TIDE_PAUSE_HISTORY; i++) pause_sum += s->pause_ns[i];
  MUST(s->num_gc > TIDE_PAUSE_HISTORY ? pause_sum <= s->pause_total_ns
                                      : pause_sum == s->pause_total_ns);
  if (s->num_gc) MUST(s->pause_end_ns[(s->num_gc + 255) % TIDE_PAUSE_HISTORY] == s->last_gc_ns);
  MUST(s->num_forced_gc + s->num_limit_gc <= s->num_gc);
}

static void must_not_go_back(const tide_memstats *before, const tide_memstats *s) {
  MUST(s->total_alloc >= before->total_alloc);
  MUST(s->mallocs >= before->mallocs && s->frees >= before->frees);
  MUST(s->num_gc >= before->num_gc && s->num_forced_gc >= before->num_forced_gc);
  MUST(s->num_limit_gc >= before->num_limit_gc && s->pause_total_ns >= before->pause_total_ns);
  MUST(s->last_gc_ns >= before->last_gc_ns || s->num_gc == before->num_gc);
  MUST(s->limiter_episodes >= before->limiter_episodes);
  MUST(s->limit_overshoot_max_bytes >= before->limit_overshoot_max_bytes);
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
    MUST(s->by_size[i].mallocs >= before->by_size[i].mallocs);
    MUST(s->by_size[i].frees >= before->by_size[i].frees);
  }
}

START_TEST(numbers_agree_while_threads_come_and_go) {
  enum { LINES = 8 };
  static const int stress[] = {0, 200, 5000};
  init_with(OPTIONS(o.gc_percent = 50, o.stress = stress[_i], o.memory_limit = MB(64)));
  pthread_t lines[LINES];
  for (uintptr_t i = 0; i < LINES; i++)
    ck_assert_int_eq(tide_thread_create(&lines[i], NULL, follow_one_another, (void *)i), 0);
  pthread_t changes;
  ck_assert_int_eq(tide_thread_create(&changes, NULL, change_what_counts, NULL), 0);
  tide_memstats before = read_stats();
  size_t looks = 0;
  for (uint64_t end = now_ns() + UINT64_C(1500000000); now_ns() < end; looks++) {
    tide_memstats stats = read_stats();
    must_add_up(&stats);
    must_not_go_back(&before, &stats);
    before = stats;
  }
  AO_store(&time_is_over, 1);
  for (int i = 0; i < LINES; i++) pthread_join(lines[i], NULL);
  pthread_join(changes, NULL);
  ck_assert_uint_gt(looks, 10);
  tide_collect();
  tide_memstats last = read_stats();
  must_add_up(&last);
  must_not_go_back(&before, &last);
}
END_TEST

// ---- When all is quiet ----------------------------------------------------------------------

static uint64_t counted_objects, counted_bytes, counted_by_class[TIDE_SIZE_CLASSES];

static bool count_object(const tide_object *object, void *arg) {
  counted_objects++;
  counted_bytes += object->size;
  if (object->size <= TIDE_SMALL_MAX) counted_by_class[tide_class_by_arithmetic(object->size)]++;
  return true;
}

static void assert_recount(void) {
  counted_objects = counted_bytes = 0;
  memset(counted_by_class, 0, sizeof counted_by_class);
  tide_heap_walk(count_object, NULL); // sweeps first
  tide_memstats stats = read_stats();
  ck_assert_uint_eq(stats.heap_objects, counted_objects);
  ck_assert_uint_eq(stats.heap_alloc, counted_bytes);
  for (int i = 0; i < TIDE_SIZE_CLASSES; i++)
    ck_assert_uint_eq(stats.by_size[i].mallocs - stats.by_size[i].frees, counted_by_class[i]);
  must_add_up(&stats);
}

static pthread_barrier_t idle, may_end;

static void *allocate_and_wait(void *arg) {
  live_a_little(arg);
  pthread_barrier_wait(&idle);
  pthread_barrier_wait(&may_end);
  return NULL;
}

START_TEST(recount_finds_the_same_numbers) {
  enum { THREADS = 6 };
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_barrier_init(&idle, NULL, THREADS + 1);
  pthread_barrier_init(&may_end, NULL, THREADS + 1);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, allocate_and_wait, (void *)i), 0);
  pthread_barrier_wait(&idle);
  assert_recount(); // with garbage
  tide_collect();
  assert_recount(); // idle threads hold runs
  pthread_barrier_wait(&may_end);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_recount();
  tide_collect_and_release();
  assert_recount();
  live_a_little(NULL);
  assert_recount();
}
END_TEST

// ---- What the system says -------------------------------------------------------------------

// Resident bytes of the mappings that lie in the heap's reserved range.
static size_t resident_in_reservation(void) {
  FILE *maps = fopen("/proc/self/smaps", "re");
  ck_assert_ptr_nonnull(maps);
  char line[4096];
  size_t sum = 0, kib;
  bool ours = false;
  uintptr_t lo = (uintptr_t)heap.reservation, hi = lo + heap.reservation_bytes;
  while (fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) ours = from < hi && to > lo;
    if (ours && sscanf(line, "Rss: %zu kB", &kib) == 1) sum += kib << 10;
  }
  fclose(maps);
  return sum;
}

static size_t distance(size_t a, size_t b) {
  return a > b ? a - b : b - a;
}

// Of what the statistics say is mapped, all is resident in a heap whose objects were written to and
// fill their blocks (the rest of a large object's last block is counted and not touched),
// but for the mark stacks' and caches' rest and the table pages that nobody has touched.
static void assert_system_agrees(size_t resident_before) {
  tide_memstats s = read_stats();
  size_t mapped = s.sys - s.heap_released, tolerance = mapped / 50 + MIB;
  ck_assert_uint_eq(s.total_bytes, mapped);
  size_t beside = s.other_sys + mark_stack_mapped_bytes(), in_heap = resident_in_reservation();
  ck_assert_msg(distance(in_heap, mapped - beside) <= tolerance, "%zu KiB in the heap, not %zu",
                in_heap >> 10, (mapped - beside) >> 10);
  size_t resident = resident_bytes() - resident_before;
  if (!UNDER_ASAN)
    ck_assert_msg(distance(resident, mapped) <= tolerance, "%zu KiB, not %zu", resident >> 10,
                  mapped >> 10);
}

static void *volatile kept_leaves[2000]; // static data: roots

START_TEST(system_finds_the_same_memory) {
  if (on_bdw("the heap is not in one place")) return;
  static const int64_t huge_pages[] = {0, 1};
  tide_memstats warm;
  memset(&warm, 1, sizeof warm); // the stack
  size_t before = resident_bytes();
  init_with(OPTIONS(o.gc_percent = 100, o.hugepages = huge_pages[_i]));
  for (size_t i = 0; i < LENGTH(kept_leaves); i++)
    MUST(kept_leaves[i] = filled_leaf(i % 2 ? 20000 : 65536));
  assert_system_agrees(before);
  ck_assert(grow_list(&live_list, 20 * MIB));
  for (node *n = live_list; n; n = n->next) n->rest[0] = 1;
  tide_collect();
  assert_system_agrees(before);
  for (size_t i = 0; i < LENGTH(kept_leaves); i++)
    if (i % 16) kept_leaves[i] = NULL;
  live_list = NULL;
  clear_stack();
  tide_collect_and_release();
  assert_system_agrees(before);
}
END_TEST

// ---- Without waiting ------------------------------------------------------------------------

static AO_t in_hook, hook_over;
static void sleep_in_hook(const tide_cycle *cycle, void *arg) {
  AO_store(&in_hook, 1);
  tide_memstats stats = read_stats(); // here too
  if (stats.num_gc != cycle->number) AO_store(&in_hook, 2);
  sleep_ms(1000);
  AO_store(&hook_over, 1);
}

static void *collect_once(void *arg) {
  tide_collect();
  return NULL;
}

START_TEST(reading_does_not_wait_for_who_collects) {
  init_with(OPTIONS(o.gc_percent = 100));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, sleep_in_hook, NULL));
  pthread_t collector;
  ck_assert_int_eq(tide_thread_create(&collector, NULL, collect_once, NULL), 0);
  while (!AO_load(&in_hook)) sleep_ms(1);
  for (int i = 0; i < 100; i++) MUST(read_stats().num_gc == 1);
  ck_assert(!AO_load(&hook_over)); // a second is more than enough for that
  ck_assert_uint_eq(AO_load(&in_hook), 1);
  pthread_join(collector, NULL);
}
END_TEST

START_TEST(reading_does_not_wait_for_locks) {
  if (on_bdw("the locks are others")) return;
  // Whoever looks at the heap or changes a setting may hold these for long.
  init_with(OPTIONS(o.gc_percent = 100));
  rt_thread *self = rt_self();
  cycle_lock();
  rt_pin(self);
  heap_locks_take();
  pace_lock_take();
  limit_lock_take();
  tide_memstats stats = read_stats();
  limit_lock_give();
  pace_lock_give();
  heap_locks_give();
  rt_unpin(self);
  cycle_unlock();
  must_add_up(&stats);
  ck_assert_uint_gt(stats.sys, 0);
}
END_TEST

// ---- In the middle of a change --------------------------------------------------------------

// As a reader finds the heap who has been interrupted between two looks: blocks as they were in a
// small heap, pages given back as they are in a large one.
START_TEST(pages_given_back_since_the_look_at_blocks_leave_sane_numbers) {
  if (on_bdw("the counts are its own")) return;
  init_with(OPTIONS(o.gc_percent = 100, o.memory_limit = MB(256)));
  MUST(tide_alloc(100));
  tide_memstats before = read_stats();
  AO_t pages = AO_load(&heap.absent_pages);
  AO_store(&heap.absent_pages, (AO_t)100 << 20 >> 12); // 100 MiB
  tide_memstats stats = read_stats();
  bool reached = pace_limit_reached(0);
  AO_store(&heap.absent_pages, pages);
  must_add_up(&stats);
  ck_assert_uint_eq(stats.heap_inuse, 0);
  ck_assert_uint_le(stats.sys, before.sys);
  ck_assert_uint_eq(stats.limit_overshoot_max_bytes, 0);
  ck_assert(!reached);
}
END_TEST

// A thread may be off its CPU for long just when it changes a run: nobody waits for it, and what it
// has allocated counts all the same.
START_TEST(run_that_is_being_set_counts_what_came_of_it) {
  if (on_bdw("there are no runs")) return;
  init_with(OPTIONS(o.gc_percent = -1));
  enum { BYTES = 48, OBJECTS = 5 };
  unsigned size_class = size_class_for(BYTES);
  for (int i = 0; i < OBJECTS; i++) MUST(tide_alloc(BYTES));
  heap_local *local = heap_local_of(rt_self());
  tide_run *run = &local->cache.runs[TIDE_SCANNED][size_class], whole = *run;
  AO_t *tally = &local->tally[TIDE_SCANNED][size_class], even = AO_load(tally);
  tide_memstats before = read_stats();
  uint64_t mallocs = before.by_size[size_class].mallocs;
  ck_assert_uint_eq(mallocs, OBJECTS);
  AO_store(tally, mallocs * HEAP_TALLY + 1); // as in set_run
  run->next = run->limit = NULL;
  tide_memstats stats = read_stats();
  *run = whole;
  AO_store(tally, even);
  ck_assert_uint_eq(stats.by_size[size_class].mallocs, mallocs);
  ck_assert_uint_eq(stats.heap_alloc, before.heap_alloc);
  must_add_up(&stats);
  ck_assert(tide_alloc(BYTES));
  ck_assert_uint_eq(read_stats().by_size[size_class].mallocs, OBJECTS + 1);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("memstats");
  TCase *moving = tcase_create("moving");
  tcase_set_timeout(moving, 60);
  tcase_add_loop_test(moving, numbers_agree_while_threads_come_and_go, 0, 3);
  tcase_add_test(moving, reading_does_not_wait_for_who_collects);
  tcase_add_test(moving, reading_does_not_wait_for_locks);
  tcase_add_test(moving, pages_given_back_since_the_look_at_blocks_leave_sane_numbers);
  tcase_add_test(moving, run_that_is_being_set_counts_what_came_of_it);
  suite_add_tcase(suite, moving);
  TCase *quiet = tcase_create("quiet");
  tcase_set_timeout(quiet, 60);
  tcase_add_test(quiet, recount_finds_the_same_numbers);
  tcase_add_loop_test(quiet, system_finds_the_same_memory, 0, 2);
  suite_add_tcase(suite, quiet);
  return run_suite(suite);
}
