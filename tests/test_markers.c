// SPDX-License-Identifier: MIT
// Several markers: every shape of graph is marked whole and counted once, whatever their number;
// they come and go as they should.
//
// With verify=1 the others are let in from the first object on, also in a small heap, and every
// mark is checked. Under ThreadSanitizer these tests see the sharing of the work, since the one
// thread of the heap stops nobody.
#include "heap_testing.h"

#include <dirent.h>
#include <sys/resource.h>

static const int numbers[] = {1, 2, 3, 8};
enum { ROUNDS = UNDER_TSAN ? 4 : 20 };

static tide_cycle last;
static void remember(const tide_cycle *cycle, void *arg) {
  last = *cycle;
}

static void start(int markers, size_t mark_stack_bytes) {
  init_with(OPTIONS(o.markers = markers, o.verify = 1, o.poison = 1, o.gc_percent = -1,
                    o.mark_stack_bytes = (int64_t)mark_stack_bytes));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, remember, NULL));
}

// Collects; the live objects must be those, give or take some that strays hold.
static void expect_live(uint64_t objects) {
  collect();
  ck_assert_uint_ge(last.live_objects, objects);
  ck_assert_uint_le(last.live_objects, objects + 20);
}

// ThreadSanitizer has threads of its own.
static bool threads_are(size_t expected) {
  size_t count = 0;
  DIR *tasks = opendir("/proc/self/task");
  ck_assert_ptr_nonnull(tasks);
  for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count == expected || UNDER_TSAN;
}

// ---- Shapes ---------------------------------------------------------------------------------

typedef struct node {
  struct node *left, *right;
  uintptr_t number;
  uintptr_t unused;
} node;

// A complete binary tree; the nodes lie in shuffled order.
static NOINLINE void build_tree_at(void **root, size_t count) {
  node **all = malloc(count * sizeof(node *)); // no root: nothing collects meanwhile
  uint64_t random = 1;
  for (size_t i = 0; i < count; i++) all[i] = tide_alloc(sizeof(node));
  for (size_t i = count; i-- > 1;) {
    size_t k = random_below(&random, i + 1);
    node *other = all[k];
    all[k] = all[i];
    all[i] = other;
  }
  for (size_t i = 0; i < count; i++) {
    all[i]->left = 2 * i + 1 < count ? all[2 * i + 1] : NULL;
    all[i]->right = 2 * i + 2 < count ? all[2 * i + 2] : NULL;
    all[i]->number = hide((void *)i);
  }
  *root = all[0];
  free(all);
}
static void build_tree(size_t count) {
  build_tree_at(&table[0], count);
}

static size_t check_tree(const node *n, size_t i) {
  if (!n) return 0;
  MUST((size_t)reveal(n->number) == i);
  return 1 + check_tree(n->left, 2 * i + 1) + check_tree(n->right, 2 * i + 2);
}

enum { SMALL_TREE = UNDER_TSAN ? 20000 : 100000 };

START_TEST(a_tree_is_marked_once) {
  start(numbers[_i], 0);
  build_tree(SMALL_TREE);
  for (int k = 0; k < ROUNDS; k++) {
    expect_live(SMALL_TREE);
    ck_assert_uint_eq(check_tree(table[0], 0), SMALL_TREE);
  }
}
END_TEST

START_TEST(a_list_is_marked_once) {
  start(numbers[_i], 0);
  enum { LENGTH_OF_LIST = UNDER_TSAN ? 30000 : 300000 };
  node *first = NULL;
  for (size_t i = 0; i < LENGTH_OF_LIST; i++) {
    node *n = tide_alloc(sizeof *n);
    n->left = first;
    first = n;
  }
  table[0] = first;
  for (int k = 0; k < ROUNDS / 4; k++) expect_live(LENGTH_OF_LIST);
}
END_TEST

// The list's nodes have small things beside them: much to give away, little in it.
START_TEST(a_list_with_small_things_is_marked_once) {
  start(numbers[_i], 0);
  enum { LENGTH_OF_LIST = UNDER_TSAN ? 20000 : 100000 };
  node *first = NULL;
  for (size_t i = 0; i < LENGTH_OF_LIST; i++) {
    node *n = tide_alloc(sizeof *n);
    n->left = first;
    n->right = tide_alloc_leaf(16);
    first = n;
  }
  table[0] = first;
  for (int k = 0; k < ROUNDS / 4; k++) expect_live(2 * LENGTH_OF_LIST);
}
END_TEST

static NOINLINE void fill_array(void **array, size_t length) {
  for (size_t i = 0; i < length; i++) *(uintptr_t *)(array[i] = tide_alloc(16)) = ~i;
}

static void check_array(void **array, size_t length) {
  for (size_t i = 0; i < length; i++) MUST(*(uintptr_t *)array[i] == ~i);
}

enum { WIDTH = UNDER_TSAN ? 50000 : 500000 };

START_TEST(a_wide_array_is_marked_once) {
  start(numbers[_i], 0);
  table[0] = tide_alloc(WIDTH * sizeof(void *));
  fill_array(table[0], WIDTH);
  for (int k = 0; k < ROUNDS / 4; k++) expect_live(WIDTH + 1);
  check_array(table[0], WIDTH);
}
END_TEST

START_TEST(a_wide_root_is_marked_once) {
  start(numbers[_i], 0);
  void **range = malloc(WIDTH * sizeof(void *));
  ck_assert_int_eq(tide_roots_add(range, range + WIDTH), TIDE_OK);
  fill_array(range, WIDTH);
  for (int k = 0; k < ROUNDS / 4; k++) expect_live(WIDTH);
  check_array(range, WIDTH);
  tide_roots_remove(range, range + WIDTH);
  free(range);
  expect_live(0);
}
END_TEST

// Everything refers to everything: markers meet at the same objects.
START_TEST(a_knot_is_marked_once) {
  start(numbers[_i], 0);
  enum { OBJECTS = UNDER_TSAN ? 4000 : 20000, FIELDS = 16 };
  uint64_t random = 7;
  void ***all = malloc(OBJECTS * sizeof(void **));
  for (size_t i = 0; i < OBJECTS; i++) all[i] = tide_alloc(FIELDS * sizeof(void *));
  for (size_t i = 0; i < OBJECTS; i++)
    for (size_t k = 0; k < FIELDS; k++)
      all[i][k] = k ? all[random_below(&random, OBJECTS)] : all[(i + 1) % OBJECTS];
  table[0] = all[0];
  free(all);
  for (int k = 0; k < ROUNDS; k++) expect_live(OBJECTS);
}
END_TEST

// Words that point into the unused end of a large object's last block: they are in no object, and
// come last in their piece of a root.
START_TEST(words_behind_large_objects) {
  start(numbers[_i], 0);
  char *large = tide_alloc(36 << 10);
  table[0] = large;
  build_tree_at(&table[1], 1000);
  for (size_t i = 2; i < LENGTH(table); i++) table[i] = large + (40 << 10) + 8 * (i % 1000);
  for (int k = 0; k < ROUNDS; k++) expect_live(1001);
  ck_assert_uint_eq(check_tree(table[1], 0), 1000);
  memset(table, 0, sizeof table);
}
END_TEST

START_TEST(uncollectable_objects_and_what_they_refer_to) {
  start(numbers[_i], 0);
  enum { OBJECTS = UNDER_TSAN ? 4000 : 20000 };
  for (int i = 0; i < OBJECTS; i++) *(void **)tide_alloc_uncollectable(64) = tide_alloc(32);
  for (int k = 0; k < ROUNDS / 4; k++) expect_live(2 * OBJECTS);
}
END_TEST

// ---- Without room for the stacks --------------------------------------------------------------

START_TEST(marking_is_complete_without_room_for_the_stacks) {
  if (on_bdw("mark stacks have no bound")) return;
  start(numbers[_i], 64 << 10);
  table[0] = tide_alloc(WIDTH / 4 * sizeof(void *));
  void **nodes = table[0];
  for (size_t i = 0; i < WIDTH / 4; i++) { // each refers to a few, so that all would be stacked
    void **n = nodes[i] = tide_alloc(48);
    for (int k = 0; k < 6; k++) n[k] = tide_alloc(16);
  }
  for (int k = 0; k < 2; k++) expect_live(1 + WIDTH / 4 * 7);
}
END_TEST

START_TEST(a_bound_is_for_all_stacks_together) {
  if (on_bdw("mark stacks have no bound")) return;
  start(8, 256 << 10);
  uint64_t tables = read_stats().gc_sys;
  build_tree(1000);
  uint64_t grown = read_stats().gc_sys - tables;
  expect_live(1000);
  ck_assert_uint_le(read_stats().gc_sys, tables + grown + (256 << 10));
  ck_assert_uint_le(last.markers, 4);
}
END_TEST

// ---- Coming and going -------------------------------------------------------------------------

START_TEST(others_take_part) {
  start(3, 0);
  build_tree(SMALL_TREE);
  uint64_t most = 0;
  for (int k = 0; k < 50 && most < 3; k++) {
    expect_live(SMALL_TREE);
    if (last.markers > most) most = last.markers;
    ck_assert_uint_ge(last.mark_cpu_ns, last.mark_ns);
    ck_assert_uint_le(last.markers, 3);
  }
  ck_assert_uint_eq(most, 3);
  ck_assert(threads_are(3));
}
END_TEST

START_TEST(a_small_heap_has_one_marker) {
  init_with(OPTIONS(o.markers = 8, o.gc_percent = -1));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, remember, NULL));
  build_tree(1000);
  for (int k = 0; k < 5; k++) collect();
  ck_assert_uint_eq(last.markers, 1);
  ck_assert_uint_eq(last.mark_cpu_ns, last.mark_ns);
  ck_assert(threads_are(1));
}
END_TEST

START_TEST(a_large_heap_has_several) {
  init_with(OPTIONS(o.markers = 3, o.gc_percent = -1));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, remember, NULL));
  build_tree(MIB);
  uint64_t most = 0;
  for (int k = 0; k < 50 && most < 3; k++) {
    collect();
    if (last.markers > most) most = last.markers;
  }
  ck_assert_uint_eq(most, 3);
}
END_TEST

static void without_room_for_threads(void *arg) {
  start(8, 0);
  build_tree(1000);
  size_t pages = 0;
  FILE *statm = fopen("/proc/self/statm", "re");
  MUST(statm && fscanf(statm, "%zu", &pages) == 1);
  fclose(statm);
  // Address space for the collector's own buffers, not for the stack of a thread.
  rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (256 << 10);
  struct rlimit limit = {bytes, bytes};
  MUST(setrlimit(RLIMIT_AS, &limit) == 0);
  tide_collect();
  MUST(last.markers == 1);
  MUST(check_tree(table[0], 0) == 1000);
}

START_TEST(marking_goes_on_without_threads) {
  child c;
  in_child(&c, 20, without_room_for_threads, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

START_TEST(a_child_has_markers_of_its_own) {
  start(3, 0);
  build_tree(SMALL_TREE);
  expect_live(SMALL_TREE);
  for (int i = 0; i < ROUNDS; i++) {
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
      alarm(20);
      tide_collect();
      MUST(check_tree(table[0], 0) == SMALL_TREE);
      _exit(threads_are(3) ? 0 : 1);
    }
    tide_collect(); // while the child runs
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
  }
}
END_TEST

static void *collect_and_end(void *arg) {
  MUST(pthread_join(*(pthread_t *)arg, NULL) == 0);
  tide_collect();
  return NULL;
}

static pthread_t first_thread;
static void first_thread_leaves(void *arg) {
  start(3, 0);
  build_tree(1000);
  tide_collect();
  MUST(threads_are(3));
  first_thread = pthread_self();
  pthread_t thread;
  MUST(tide_thread_create(&thread, NULL, collect_and_end, &first_thread) == 0);
  pthread_exit(NULL); // the process ends with the other thread: markers do not keep it
}

START_TEST(markers_keep_no_process_alive) {
  if (on_bdw("libgc's markers do")) return;
  child c;
  in_child(&c, 20, first_thread_leaves, NULL);
  assert_ended_well(&c);
}
END_TEST

// The last thread leaves, and one comes back.
START_TEST(markers_come_back) {
  start(3, 0);
  for (int k = 0; k < 2 * ROUNDS; k++) {
    build_tree(1000);
    collect();
    ck_assert_uint_ge(last.live_objects, 1000);
    tide_thread_unregister();
    ck_assert_int_eq(tide_thread_register(), TIDE_OK);
  }
  ck_assert_uint_eq(check_tree(table[0], 0), 1000);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("markers");
  TCase *t = tcase_create("shapes");
  tcase_set_timeout(t, 60);
  int count = LENGTH(numbers);
  tcase_add_loop_test(t, a_tree_is_marked_once, 0, count);
  tcase_add_loop_test(t, a_list_is_marked_once, 0, count);
  tcase_add_loop_test(t, a_list_with_small_things_is_marked_once, 0, count);
  tcase_add_loop_test(t, a_wide_array_is_marked_once, 0, count);
  tcase_add_loop_test(t, a_wide_root_is_marked_once, 0, count);
  tcase_add_loop_test(t, a_knot_is_marked_once, 0, count);
  tcase_add_loop_test(t, words_behind_large_objects, 0, count);
  tcase_add_loop_test(t, uncollectable_objects_and_what_they_refer_to, 0, count);
  tcase_add_loop_test(t, marking_is_complete_without_room_for_the_stacks, 0, count);
  tcase_add_test(t, a_bound_is_for_all_stacks_together);
  suite_add_tcase(s, t);

  t = tcase_create("coming and going");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, others_take_part);
  tcase_add_test(t, a_small_heap_has_one_marker);
  if (!UNDER_TSAN) tcase_add_test(t, a_large_heap_has_several);
  if (!UNDER_ASAN && !UNDER_TSAN) tcase_add_test(t, marking_goes_on_without_threads);
  tcase_add_test(t, a_child_has_markers_of_its_own);
  if (!UNDER_TSAN) tcase_add_test(t, markers_keep_no_process_alive);
  tcase_add_test(t, markers_come_back);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  setenv("TIDE_GCINTERVAL", "0", 1); // threads and mappings are counted: none beside them
  return run_suite(suite());
}
