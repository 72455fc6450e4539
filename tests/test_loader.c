// SPDX-License-Identifier: MIT
// Libraries that come and go while the program collects: their data and thread-local variables are
// roots as long as they are loaded.
#define _GNU_SOURCE
#include "modules/holder.h"
#include "rt_testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sys/stat.h>

// ---- Copies of a library --------------------------------------------------------------------

static char directory[40];

static void copy_file(const char *from, const char *to) {
  int in = open(from, O_RDONLY | O_CLOEXEC);
  int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
  ck_assert_msg(in >= 0 && out >= 0, "%s cannot be copied to %s", from, to);
  char buffer[16384];
  for (ssize_t got; (got = read(in, buffer, sizeof buffer)) > 0;)
    ck_assert_int_eq(write(out, buffer, (size_t)got), got);
  close(in);
  close(out);
}

static void make_directory(void) {
  strcpy(directory, "/tmp/tidepool-loader-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void) {
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -r %s", directory);
  ck_assert_int_eq(system(command), 0);
}

static const char *copy_path(int number) {
  static __thread char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/holder-%d.so", directory, number);
  return path;
}

static void make_copies(int count) {
  for (int i = 0; i < count; i++) copy_file(BUILD_DIR "/modules/holder.so", copy_path(i));
}

static void *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library, "%s", dlerror());
  return library;
}

static void **slots_in(void *library, holder_place place) {
  holder_slots_fn slots = (holder_slots_fn)dlsym(library, "holder_slots");
  return slots(place);
}

static void check_constructor(void *library) {
  holder_made_fn made = (holder_made_fn)dlsym(library, "holder_made_by_constructor");
  ck_assert_uint_eq(made(), HOLDER_MAGIC);
}

// ---- One library ----------------------------------------------------------------------------

static NOINLINE void fill_library(void *library, holder_place place, group *g) {
  group_fill_some(g, slots_in(library, place), HOLDER_SLOTS);
}

static void check_place(holder_place place) {
  init_verified();
  void *library = load(BUILD_DIR "/modules/holder.so");
  group g;
  fill_library(library, place, &g);
  collect_clean();
  collect_clean();
  assert_group_lives(&g);
  check_constructor(library);
  dlclose(library);
  collect_clean();
  assert_group_gone(&g);

  library = load(BUILD_DIR "/modules/holder.so"); // and again
  fill_library(library, place, &g);
  collect_clean();
  assert_group_lives(&g);
  forget(slots_in(library, place), HOLDER_SLOTS);
  collect_clean();
  assert_group_gone(&g);
  dlclose(library);
}

START_TEST(data_of_a_library) {
  check_place(HOLDER_DATA);
}
END_TEST
START_TEST(bss_of_a_library) {
  check_place(HOLDER_BSS);
}
END_TEST
START_TEST(thread_locals_of_a_library) {
  check_place(HOLDER_TLS);
}
END_TEST

#if defined __GLIBC__ && defined __x86_64__
// The module that a thread-local block belongs to, and then the entry for it in the calling
// thread's vector of blocks.
static int find_module(struct dl_phdr_info *object, size_t size, void *wanted) {
  if (object->dlpi_tls_data != *(void **)wanted) return 0;
  *(size_t *)wanted = object->dlpi_tls_modid;
  return 1;
}

static void **entry_of(void *block) {
  void *wanted = block;
  ck_assert_int_eq(dl_iterate_phdr(find_module, &wanted), 1);
  void ***vector;
  __asm__("movq %%fs:8, %0" : "=r"(vector));
  return (void **)vector + 2 * (size_t)wanted;
}

// __tls_get_addr writes an entry in two halves. A thread that is stopped in between has a block
// that looks like one of those below the thread pointer, and is far from there.
START_TEST(half_written_entry_of_a_thread_local_block) {
  init_verified();
  void *library = load(BUILD_DIR "/modules/holder.so");
  group g;
  fill_library(library, HOLDER_TLS, &g);
  char *slots = (char *)slots_in(library, HOLDER_TLS);
  void **entry = NULL;
  // The slots may not be at the block's start.
  for (int back = 0; !entry && back < 4096; back += 8) {
    void *wanted = slots - back;
    if (dl_iterate_phdr(find_module, &wanted) == 1) entry = entry_of(slots - back);
  }
  ck_assert_ptr_nonnull(entry);
  void *to_free = entry[1];
  ck_assert_ptr_nonnull(to_free);
  entry[1] = NULL;
  uint64_t began = now_ns();
  collect_clean();
  ck_assert_uint_lt(now_ns() - began, 5000000000u);
  entry[1] = to_free;
  assert_group_lives(&g);
  dlclose(library);
}
END_TEST
#endif

START_TEST(loaded_before_initialisation) {
  void *library = load(BUILD_DIR "/modules/holder.so"); // its constructor initialises
  group g;
  fill_library(library, HOLDER_BSS, &g);
  collect_clean();
  assert_group_lives(&g);
  check_constructor(library);
}
END_TEST

// ---- Thread-local variables of other threads ------------------------------------------------

typedef struct tls_worker {
  void *loaded;
  group g;
  volatile int ready, go;
} tls_worker;

static void *tls_worker_main(void *argument) {
  tls_worker *w = argument;
  fill_library(w->loaded, HOLDER_TLS, &w->g);
  clear_stack();
  set_flag(&w->ready);
  wait_until(&w->go);
  return NULL;
}

START_TEST(thread_locals_of_a_library_in_a_worker) {
  init_verified();
  tls_worker w = {.loaded = load(BUILD_DIR "/modules/holder.so")};
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, tls_worker_main, &w), 0);
  wait_until(&w.ready);
  collect_clean();
  assert_group_lives(&w.g);
  set_flag(&w.go);
  pthread_join(thread, NULL);
  collect_clean();
  assert_group_gone(&w.g);
}
END_TEST

START_TEST(thread_locals_go_with_the_library) {
  init_verified();
  tls_worker w = {.loaded = load(BUILD_DIR "/modules/holder.so")};
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, tls_worker_main, &w), 0);
  wait_until(&w.ready);
  dlclose(w.loaded); // the worker's block may be there still; its module is not
  collect_clean();
  assert_group_gone(&w.g);
  set_flag(&w.go);
  pthread_join(thread, NULL);
}
END_TEST

typedef void **(*static_slots_fn)(void);
enum { STATIC_SLOTS = 32 };

typedef struct static_worker {
  static_slots_fn slots;
  group g;
  volatile int ready, go;
} static_worker;

static void *static_worker_main(void *argument) {
  static_worker *w = argument;
  group_fill_some(&w->g, w->slots(), STATIC_SLOTS);
  clear_stack();
  set_flag(&w->ready);
  wait_until(&w->go);
  return NULL;
}

START_TEST(thread_locals_in_the_static_block) {
  init_verified();
  static_worker w = {0}, early = {0};
  void *library = load(BUILD_DIR "/modules/static_tls.so");
  w.slots = early.slots = (static_slots_fn)dlsym(library, "static_tls_slots");
  group g;
  group_fill_some(&g, w.slots(), STATIC_SLOTS);
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, static_worker_main, &w), 0);
  wait_until(&w.ready);
  collect_clean();
  ck_assert_int_eq(group_alive_of(&g, STATIC_SLOTS), STATIC_SLOTS);
  ck_assert_int_eq(group_alive_of(&w.g, STATIC_SLOTS), STATIC_SLOTS);
  set_flag(&w.go);
  pthread_join(thread, NULL);
  forget(w.slots(), STATIC_SLOTS);
  collect_clean();
  ck_assert_int_le(group_alive_of(&g, STATIC_SLOTS), GROUP_STRAYS);
  ck_assert_int_le(group_alive_of(&w.g, STATIC_SLOTS), GROUP_STRAYS);
}
END_TEST

// ---- Loading and unloading while another thread collects ------------------------------------

enum { CHURNED = 4 };

static NOINLINE void one_round(int number) {
  void *library = load(copy_path(number));
  group g[3];
  for (int place = 0; place < 3; place++) fill_library(library, (holder_place)place, &g[place]);
  clear_stack();
  sched_yield();
  for (int place = 0; place < 3; place++) assert_group_lives(&g[place]);
  check_constructor(library);
  dlclose(library);
}

START_TEST(libraries_come_and_go) {
  init_verified();
  make_directory();
  make_copies(CHURNED);
  collector c = {.gap_us = 200};
  collector_start(&c);
  int rounds = 0;
  for (uint64_t end = deadline_ns(4); now_ns() < end || rounds < 5 || tide_gc_cycle() < 20;
       rounds++)
    one_round(rounds % CHURNED);
  collector_stop(&c);
  remove_directory();
}
END_TEST

typedef struct churner {
  pthread_t thread;
  int first;
  uint64_t end;
  int rounds;
} churner;

static void *churner_main(void *argument) {
  churner *c = argument;
  for (; now_ns() < c->end || tide_gc_cycle() < 20; c->rounds++)
    one_round(c->first + c->rounds % CHURNED);
  return NULL;
}

START_TEST(libraries_come_and_go_in_three_threads) {
  init_verified();
  make_directory();
  make_copies(3 * CHURNED);
  collector c = {.gap_us = 200};
  collector_start(&c);
  churner churners[3];
  for (int i = 0; i < 3; i++) {
    churners[i] = (churner){.first = i * CHURNED, .end = deadline_ns(4)};
    ck_assert_int_eq(tide_thread_create(&churners[i].thread, NULL, churner_main, &churners[i]), 0);
  }
  for (int i = 0; i < 3; i++) pthread_join(churners[i].thread, NULL);
  collector_stop(&c);
  remove_directory();
}
END_TEST

// ---- So many libraries that the vector of thread-local blocks grows ---------------------------

enum { LIBRARIES = 100, GROWERS = 3 };

static void *libraries[LIBRARIES];

typedef struct grower {
  pthread_t thread;
  group g[LIBRARIES];
} grower;

// Touches one library after the other: the thread's vector grows under the collections.
static void *grower_main(void *argument) {
  grower *w = argument;
  for (int i = 0; i < LIBRARIES; i++) {
    group_fill_some(&w->g[i], slots_in(libraries[i], HOLDER_TLS), 8);
  }
  for (int i = 0; i < LIBRARIES; i++) ck_assert_int_eq(group_alive_of(&w->g[i], 8), 8);
  return NULL;
}

START_TEST(many_libraries_with_thread_locals) {
  init_verified();
  make_directory();
  make_copies(LIBRARIES);
  static grower growers[GROWERS];
  collector c = {.gap_us = 200};
  collector_start(&c);
  static group mine[LIBRARIES];
  for (int i = 0; i < LIBRARIES; i++) { // this thread's vector grows by and by
    libraries[i] = load(copy_path(i));
    group_fill_some(&mine[i], slots_in(libraries[i], HOLDER_TLS), 8);
  }
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < GROWERS; i++)
      ck_assert_int_eq(tide_thread_create(&growers[i].thread, NULL, grower_main, &growers[i]), 0);
    for (int i = 0; i < GROWERS; i++) pthread_join(growers[i].thread, NULL);
  }
  collector_stop(&c);
  for (int i = 0; i < LIBRARIES; i++) ck_assert_int_eq(group_alive_of(&mine[i], 8), 8);
  clear_stack();
  for (int i = 0; i < LIBRARIES; i += 2) dlclose(libraries[i]);
  collect_clean();
  int alive = 0;
  for (int i = 0; i < LIBRARIES; i += 2) alive += group_alive_of(&mine[i], 8);
  ck_assert_int_le(alive, GROUP_STRAYS);
  for (int i = 1; i < LIBRARIES; i += 2) ck_assert_int_eq(group_alive_of(&mine[i], 8), 8);
  remove_directory();
}
END_TEST

// Once the first thread has left by pthread_exit, the process's id names a thread that is gone.
static void *hold_by_library(void *first) {
  pthread_join(*(pthread_t *)first, NULL);
  void *library = load(BUILD_DIR "/modules/holder.so");
  group held[3];
  for (int place = 0; place < 3; place++) fill_library(library, (holder_place)place, &held[place]);
  for (int i = 0; i < 3; i++) collect_clean();
  for (int place = 0; place < 3; place++) assert_group_lives(&held[place]);
  exit(0);
}

static void leave_to_holder(void *arg) {
  static pthread_t first, second;
  first = pthread_self();
  init_verified();
  create(&second, hold_by_library, &first);
  pthread_exit(NULL);
}

START_TEST(libraries_are_scanned_after_the_first_thread_has_left) {
  child c;
  in_child(&c, 20, leave_to_holder, NULL);
  assert_ended_well(&c);
}
END_TEST

// A thread in a blocking region, and one that the library has not met, are not stopped: they unload
// libraries while the marker looks at their data.
typedef struct unloader {
  volatile int done;
  uint64_t rounds;
} unloader;

static void *load_and_unload(void *argument) {
  unloader *u = argument;
  for (; !is_set(&u->done); __atomic_fetch_add(&u->rounds, 1, __ATOMIC_RELAXED)) {
    void *library = load(BUILD_DIR "/modules/ballast.so");
    sched_yield();
    dlclose(library);
  }
  return NULL;
}

static void *unload_in_region(void *argument) {
  return tide_blocking(load_and_unload, argument);
}

START_TEST(libraries_go_in_the_middle_of_a_pause) {
  init_verified();
  unloader u = {0};
  pthread_t thread;
  if (_i)
    create(&thread, unload_in_region, &u);
  else
    ck_assert_int_eq(pthread_create(&thread, NULL, load_and_unload, &u), 0);
  for (uint64_t end = deadline_ns(2);
       now_ns() < end || __atomic_load_n(&u.rounds, __ATOMIC_RELAXED) < 10;)
    tide_collect();
  set_flag(&u.done);
  pthread_join(thread, NULL);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("loader");
  TCase *t = tcase_create("one library");
  limit_time(t, 60);
  tcase_add_test(t, data_of_a_library);
  tcase_add_test(t, bss_of_a_library);
  tcase_add_test(t, thread_locals_of_a_library);
#if defined __GLIBC__ && defined __x86_64__
  tcase_add_test(t, half_written_entry_of_a_thread_local_block);
#endif
  tcase_add_test(t, loaded_before_initialisation);
  tcase_add_test(t, thread_locals_of_a_library_in_a_worker);
  tcase_add_test(t, thread_locals_go_with_the_library);
  tcase_add_test(t, thread_locals_in_the_static_block);
  suite_add_tcase(s, t);
  t = tcase_create("many");
  limit_time(t, 90);
  tcase_add_test(t, libraries_come_and_go);
  tcase_add_test(t, libraries_come_and_go_in_three_threads);
  tcase_add_loop_test(t, libraries_go_in_the_middle_of_a_pause, 0, 2);
  tcase_add_test(t, libraries_are_scanned_after_the_first_thread_has_left);
  suite_add_tcase(s, t);
  t = tcase_create("growing");
  limit_time(t, 90);
  tcase_add_test(t, many_libraries_with_thread_locals);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  return run_suite(suite());
}
