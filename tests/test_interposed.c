// SPDX-License-Identifier: MIT
// Moments that come by chance, made to come: the test stands between the library and the C library.
//
//   pthread_mutex_lock, pthread_mutex_unlock   a function of the test's before each, by thread
//   mmap                                       small mappings end where nothing can be written
//   sched_getaffinity                          as many CPUs as the test says
//
// So a thread can be cut off by a fork before and after each of its locks, and a signal handler can
// fork just between two portions of a walk over all pools.
#define _GNU_SOURCE
#include "pool_testing.h"
#include "rt_testing.h"

#include "pool_private.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <tidepool.h>

enum { CHILD_SECONDS = 20 };

// ---- Standing between -----------------------------------------------------------------------

typedef void (*lock_fn)(pthread_mutex_t *mutex);
static __thread lock_fn before_lock, before_unlock;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  static int (*real)(pthread_mutex_t *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  if (before_lock) before_lock(mutex);
  return real(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  static int (*real)(pthread_mutex_t *);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  if (before_unlock) before_unlock(mutex);
  return real(mutex);
}

// Memory that is written beyond its end has nothing there.
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  enum { GUARD_BYTES = 1 << 16, SMALL_BYTES = 1 << 20 };
  bool small = !address && fd == -1 && protection == (PROT_READ | PROT_WRITE) &&
               bytes <= SMALL_BYTES && bytes % 4096 == 0;
  size_t all = bytes + (small ? GUARD_BYTES : 0);
  char *got = (char *)syscall(SYS_mmap, address, all, protection, flags, fd, offset);
  if (small && (void *)got != MAP_FAILED) mprotect(got + bytes, GUARD_BYTES, PROT_NONE);
  return got;
}

static int cpus_said; // 0: as it is

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
  if (!cpus_said) {
    long got = syscall(SYS_sched_getaffinity, pid, bytes, set);
    if (got < 0) return -1;
    memset((char *)set + got, 0, bytes - (size_t)got);
    return 0;
  }
  errno = EINVAL;
  if ((size_t)cpus_said > 8 * bytes) return -1;
  memset(set, 0, bytes);
  for (int i = 0; i < cpus_said; i++) CPU_SET_S((size_t)i, bytes, set);
  return 0;
}

// ---- Pools ----------------------------------------------------------------------------------

static char things[4];

static tide_pool *pool_named(const char *name) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = name});
  MUST(pool);
  return pool;
}

static pthread_mutex_t *last_locked;
static void note_lock(pthread_mutex_t *mutex) {
  last_locked = mutex;
}
static void do_nothing(tide_pool *pool, void *arg) {}

// The lock of the list of pools: a walk takes no other.
static pthread_mutex_t *lock_of_pools(void) {
  before_lock = note_lock;
  pools_for_each(do_nothing, NULL);
  before_lock = NULL;
  return last_locked;
}

static char *report(void) {
  static char *text;
  static size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) _exit(30);
  tide_pool_report_json(out);
  fclose(out);
  return text;
}

static unsigned in_report(const char *text, const char *name) {
  char wanted[64];
  unsigned times = 0;
  snprintf(wanted, sizeof wanted, "{\"name\":\"%s\"", name);
  for (const char *at = text; (at = strstr(at, wanted)); at++) times++;
  return times;
}

// ---- Cut off at each lock -------------------------------------------------------------------

// Locks that a fork takes: whoever holds one is waited for.
enum { LOCKS_MOST = 1024 };
static pthread_mutex_t *of_fork[LOCKS_MOST];
static size_t of_fork_count;

static void note_lock_of_fork(pthread_mutex_t *mutex) {
  MUST(of_fork_count < LOCKS_MOST);
  of_fork[of_fork_count++] = mutex;
}

static void learn_locks_of_fork(void) {
  before_lock = note_lock_of_fork;
  pid_t pid = fork();
  before_lock = NULL;
  if (!pid) _exit(0);
  ck_assert_int_eq(child_result(pid, CHILD_SECONDS), 0);
  ck_assert_uint_gt(of_fork_count, 3);
}

static bool is_of_fork(const pthread_mutex_t *mutex) {
  for (size_t i = 0; i < of_fork_count; i++)
    if (of_fork[i] == mutex) return true;
  return false;
}

static AO_t stops, let_go; // of the worker
static volatile int worker_done;
static __thread unsigned in_locks_of_fork;
static tide_pool *shared; // the worker's, while it may be used

static void stop(void) {
  if (in_locks_of_fork) return;
  AO_t mine = AO_fetch_and_add1_full(&stops) + 1;
  while (AO_load_acquire(&let_go) < mine) sched_yield();
}
static void stop_before_lock(pthread_mutex_t *mutex) {
  stop();
  in_locks_of_fork += is_of_fork(mutex);
}
static void stop_before_unlock(pthread_mutex_t *mutex) {
  stop();
  in_locks_of_fork -= is_of_fork(mutex);
}

static void begin_steps(void) {
  before_lock = stop_before_lock;
  before_unlock = stop_before_unlock;
}
static void end_steps(void) {
  before_lock = before_unlock = NULL;
  set_flag(&worker_done);
}

static void ignore_cycle(const tide_cycle *cycle, void *arg) {}
static void *do_yield(void *arg) {
  sched_yield();
  return arg;
}
static void ignore_event(const tide_event *event, void *arg) {}

static void *use_heap_in_steps(void *arg) {
  begin_steps();
  void *volatile small[8];
  for (int i = 0; i < 8; i++) small[i] = tide_alloc_kind(i % TIDE_KINDS, (size_t)1 << (2 * i));
  void *volatile large = tide_alloc(300000);
  large = tide_realloc(large, 400000);
  large = tide_realloc(large, 100000);
  tide_free(large);
  for (int i = 0; i < 8; i++) tide_free(small[i]);
  tide_external_add(1000);
  tide_external_add(-1000);
  tide_roots_add((char *)small, (char *)(small + 8));
  tide_roots_remove((char *)small, (char *)(small + 8));
  tide_hook_remove(tide_hook_add(TIDE_CYCLE_END, ignore_cycle, NULL));
  tide_event_listener_remove(tide_event_listener_add(ignore_event, NULL));
  tide_gc_percent_set(200);
  tide_memory_limit_set((int64_t)1 << 40);
  tide_freelist *list = tide_freelist_create(4, NULL);
  tide_freelist_put(list, things);
  tide_freelist_get(list);
  tide_freelist_destroy(list);
  tide_blocking(do_yield, NULL);
  tide_thread_unregister();
  tide_thread_register();
  end_steps();
  return NULL;
}

static void *use_pools_in_steps(void *arg) {
  begin_steps();
  tide_pool *pool = pool_named("worker");
  AO_store_release((AO_t *)&shared, (AO_t)pool);
  for (int i = 0; i < 3; i++) tide_pool_put(pool, &things[i]);
  for (int i = 0; i < 3; i++) tide_pool_get(pool);
  stats_of(pool);
  AO_store_release((AO_t *)&shared, 0);
  tide_pool_destroy(pool);
  end_steps();
  return NULL;
}

// What is put into the pool comes back, outlives one collection, and is lost at the second.
static int check_pool(tide_pool *pool) {
  tide_pool_put(pool, &things[3]);
  tide_collect();
  tide_pool_stats s = stats_of(pool);
  if (!s.items_victim || s.items_primary) return 1;
  tide_collect();
  s = stats_of(pool);
  if (s.items_victim || s.items_primary) return 2;
  uint64_t hits = s.hits_private + s.hits_shared + s.hits_stolen + s.hits_victim;
  if (s.gets != hits + s.misses || s.puts != hits + s.dropped_idle) return 3;
  if (!s.dropped_idle) return 4;
  return 0;
}

static int check_heap(void) {
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  for (int i = 0; i < 2000; i++) keep_in_memory(tide_alloc((size_t)(i % 100) * 32));
  keep_in_memory(tide_alloc(300000));
  tide_collect();
  if (group_alive(&g) != GROUP) return 1;
  pthread_t thread;
  bool may = !UNDER_ASAN; // its allocator's locks stay taken if another thread had them
  if (may && tide_thread_create(&thread, NULL, use_heap_main, NULL)) return 2;
  if (may) pthread_join(thread, NULL);
  tide_hook_remove(tide_hook_add(TIDE_CYCLE_END, ignore_cycle, NULL));
  tide_event_listener_remove(tide_event_listener_add(ignore_event, NULL));
  tide_procs_set(3);
  forget(slots, GROUP);
  return 0;
}

static int check_child(void) {
  if (check_heap()) return 40;
  tide_pool *pool = pool_named("child");
  int wrong = check_pool(pool);
  tide_pool_destroy(pool);
  if (wrong) return 10 + wrong;
  if (shared && (wrong = check_pool(shared))) return 20 + wrong;
  if (!in_report(report(), "stays")) return 31;
  return 0;
}

static void fork_at_each_lock(void *(*work)(void *), const char *debug) {
  setenv("TIDE_DEBUG", debug, 1);
  pool_named("stays");
  tide_pool_destroy(pool_named("goes")); // what is done only once is done
  learn_locks_of_fork();
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, work, NULL), 0);
  for (AO_t stop = 1;; stop++) {
    while (AO_load_acquire(&stops) < stop && !is_set(&worker_done)) sched_yield();
    if (AO_load_acquire(&stops) < stop) break;
    pid_t pid = fork();
    if (!pid) _exit(check_child());
    int result = child_result(pid, CHILD_SECONDS);
    ck_assert_msg(result == 0, "stop %u: the child ended with %d", (unsigned)stop, result);
    AO_store_release(&let_go, stop);
  }
  ck_assert_uint_gt(stops, 5);
  pthread_join(thread, NULL);
}

START_TEST(a_child_does_not_miss_what_another_thread_was_about_to_do) {
  fork_at_each_lock(use_pools_in_steps, "verify=1");
}
END_TEST
START_TEST(nor_with_checks) {
  fork_at_each_lock(use_pools_in_steps, "poolcheck=1");
}
END_TEST
START_TEST(nor_in_the_heap) {
  fork_at_each_lock(use_heap_in_steps, "verify=1");
}
END_TEST

// ---- Between two portions -------------------------------------------------------------------
//
// While the thread is in a portion, pinned, it is asked to stop; so it stops where the portion
// ends. Meanwhile a signal is sent to it. It is delivered when the thread goes on: there.

enum { POOLS = 200, PORTIONS = 4 }; // of 64 pools; the last one ends the walk

static pthread_mutex_t *the_lock;
static pid_t reporter;
static volatile int in_portion, has_forked;
static int portions_to_go;
static pid_t forked;
static tide_pool *numbered[POOLS];

static void signal_the_reporter(const tide_cycle *cycle, void *arg) {
  syscall(SYS_tgkill, getpid(), reporter, SIGUSR1);
}

// A thread that ends takes locks of AddressSanitizer's, which would stay taken in the child.
static void *collect_when_it_is_in_a_portion(void *arg) {
  wait_until(&in_portion);
  tide_collect();
  wait_until(&has_forked);
  return NULL;
}

static void be_asked_to_stop(pthread_mutex_t *mutex) {
  if (mutex != the_lock || portions_to_go-- > 0) return;
  before_unlock = NULL;
  set_flag(&in_portion);
  while (!rt_self()->stop_deferred) sched_yield();
}

static bool goes(int i) {
  return i % 10 != 0;
}

static void *destroy_those_that_go(void *arg) {
  for (int i = 0; i < POOLS; i++)
    if (goes(i)) tide_pool_destroy(numbered[i]);
  return NULL;
}

// In the child, another thread of its own destroys pools before the walk goes on.
static void fork_in_handler(int signal_number) {
  if (rt_self()->pinned) _exit(40); // it is not the moment that it should be
  forked = fork();
  set_flag(&has_forked);
  if (forked) return;
  pthread_t thread;
  if (pthread_create(&thread, NULL, destroy_those_that_go, NULL)) _exit(41);
  pthread_join(thread, NULL);
}

static char *name_of(int i) {
  static char name[32];
  snprintf(name, sizeof name, "%s %d", goes(i) ? "goes" : "stays", i);
  return name;
}

// How often each pool must be in it: those that go, in the parent only.
static int check_report(const char *text, bool all, bool exactly) {
  for (int i = 0; i < POOLS; i++) {
    unsigned times = in_report(text, name_of(i));
    if (!goes(i) && times != 1) return 1;
    if (goes(i) && (times > 1 || (exactly && times != all))) return 2;
  }
  return 0;
}

static void report_and_fork_between_portions(void *portion) {
  setenv("TIDE_DEBUG", "poison=1", 1);
  for (int i = 0; i < POOLS; i++) numbered[i] = pool_named(name_of(i));
  signal(SIGUSR1, fork_in_handler);
  the_lock = lock_of_pools();
  reporter = (pid_t)syscall(SYS_gettid);
  portions_to_go = *(int *)portion;
  tide_hook *hook = tide_hook_add(TIDE_STW_START, signal_the_reporter, NULL);
  pthread_t thread;
  if (tide_thread_create(&thread, NULL, collect_when_it_is_in_a_portion, NULL)) _exit(42);
  before_unlock = be_asked_to_stop;
  int wrong = check_report(report(), forked != 0, false);
  if (wrong) _exit(wrong);
  tide_hook_remove(hook);
  tide_collect();
  wrong = check_report(report(), forked != 0, true);
  if (!forked) _exit(wrong);
  int of_child = child_result(forked, CHILD_SECONDS);
  pthread_join(thread, NULL);
  _exit(wrong ? 50 + wrong : of_child ? 60 + of_child : 0);
}

// In both walks of a report, the one that counts and the one that copies.
START_TEST(a_handler_may_fork_between_two_portions_of_a_report) {
  int portion = _i / (PORTIONS - 1) * PORTIONS + _i % (PORTIONS - 1);
  child c;
  in_child(&c, 2 * CHILD_SECONDS, report_and_fork_between_portions, &portion);
  assert_ended_well(&c);
}
END_TEST

// ---- While it is written --------------------------------------------------------------------

static ssize_t fork_in_write(void *forked_pid, const char *text, size_t bytes) {
  pid_t *pid_of_child = forked_pid;
  if (*pid_of_child == -1) *pid_of_child = fork();
  return (ssize_t)bytes;
}

// A stream may be anything. The child writes the rest of the report, and then another one.
START_TEST(a_stream_may_fork) {
  for (int i = 0; i < POOLS; i++) numbered[i] = pool_named(name_of(i));
  pid_t pid = -1;
  FILE *out = fopencookie(&pid, "w", (cookie_io_functions_t){.write = fork_in_write});
  tide_pool_report(out);
  fclose(out);
  int wrong = check_report(report(), true, true);
  tide_collect();
  if (!pid) {
    destroy_those_that_go(NULL);
    _exit(wrong ? wrong : check_report(report(), false, true));
  }
  ck_assert_int_eq(wrong, 0);
  ck_assert_int_eq(child_result(pid, CHILD_SECONDS), 0);
}
END_TEST

// ---- Destroyed while another thread drops ---------------------------------------------------
//
// A `drop` may be in the middle of a put when another thread begins to destroy the pool.

static volatile int in_reset, leave_reset, destroying, destroyed, dropped_1;
static tide_pool *dropped_from;

static void wait_in_reset(void *item, void *arg) {
  if (item != &things[1]) return;
  set_flag(&in_reset);
  wait_until(&leave_reset);
}

static void note_destroying(pthread_mutex_t *mutex) {
  if (mutex == the_lock) set_flag(&destroying);
}

static void *destroy_it(void *arg) {
  before_unlock = note_destroying;
  tide_pool_destroy(dropped_from);
  before_unlock = NULL;
  int all_dropped = is_set(&dropped_1);
  set_flag(&destroyed);
  return (void *)(intptr_t)all_dropped;
}

static void *collect_twice(void *arg) {
  tide_collect();
  tide_collect();
  return NULL;
}

static void begin_to_destroy(pthread_t *dropping, pthread_t *destroyer,
                             void (*drop)(void *, void *)) {
  tide_init(NULL);
  the_lock = lock_of_pools();
  dropped_from = tide_pool_create(&(tide_pool_options){.reset = wait_in_reset, .drop = drop});
  tide_pool_put(dropped_from, &things[0]);
  create(dropping, collect_twice, NULL);
  wait_until(&in_reset);
  create(destroyer, destroy_it, NULL);
  wait_until(&destroying);
}

static void put_another(void *item, void *arg) {
  if (item == &things[0]) tide_pool_put(dropped_from, &things[1]);
  if (item == &things[1]) set_flag(&dropped_1);
}

// The put brings it back among the pools that have a set. There must be room for it, however many
// others there are: in a page there is room for 512.
START_TEST(a_pool_that_is_being_destroyed_keeps_its_place) {
  enum { ROOM = 512 };
  static tide_pool *others[ROOM];
  pthread_t dropping, destroyer;
  for (int i = 0; i < ROOM - 1; i++) others[i] = pool_named("other");
  begin_to_destroy(&dropping, &destroyer, put_another);
  others[ROOM - 1] = pool_named("other");
  for (int i = 0; i < ROOM; i++) tide_pool_put(others[i], &things[2]);
  MUST(!is_set(&destroyed));
  set_flag(&leave_reset);
  pthread_join(dropping, NULL);
  pthread_join(destroyer, NULL);
  ck_assert(is_set(&dropped_1));
  collect_twice(NULL);
  for (int i = 0; i < ROOM; i++) MUST(stats_of(others[i]).dropped_idle == 1);
}
END_TEST

static void wait_until_it_is_destroyed(pthread_mutex_t *mutex) {
  if (mutex == the_lock) wait_until(&destroyed);
}

// Two collections have the set that the put has made dropped. The thread then looks for something
// to drop, but only when the pool is no more.
static void put_another_and_collect(void *item, void *arg) {
  put_another(item, arg);
  if (item != &things[0]) return;
  collect_twice(NULL);
  before_lock = wait_until_it_is_destroyed;
}

START_TEST(nothing_of_a_destroyed_pool_is_left_to_be_dropped) {
  pthread_t dropping, destroyer;
  void *all_dropped;
  begin_to_destroy(&dropping, &destroyer, put_another_and_collect);
  set_flag(&leave_reset);
  pthread_join(destroyer, &all_dropped);
  pthread_join(dropping, NULL);
  ck_assert_ptr_nonnull(all_dropped);
}
END_TEST

// ---- A reset in the middle of a get ---------------------------------------------------------

// The steps of a get that finds its item in a victim's slot, as another thread would take them.
START_TEST(counts_are_exact_after_a_reset_in_the_middle_of_a_get) {
  tide_init(NULL);
  tide_pool *pool = pool_named("reset");
  tide_pool_put(pool, &things[0]);
  if (!primary_of(pool)->cpus) return; // counted in one step
  tide_collect();
  rt_pin(rt_self());
  void *item = set_take_slot(pool->body->victim[0], rt_self());
  rt_unpin(rt_self());
  if (!item) return; // the thread is on another CPU by now
  tide_pool_stats_reset(pool);
  rt_pin(rt_self());
  count(pool, rt_self(), HIT_VICTIM_SLOT);
  rt_unpin(rt_self());
  tide_pool_stats s = stats_of(pool);
  ck_assert_uint_eq(s.hits_victim, 1);
  ck_assert_uint_eq(s.gets, s.hits_private + s.hits_shared + s.hits_stolen + s.hits_victim);
}
END_TEST

// ---- Very many CPUs -------------------------------------------------------------------------

START_TEST(there_may_be_more_cpus_than_processors) {
  cpus_said = 3000;
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  cpus_said = 0;
  ck_assert_int_eq(tide_procs(), 1024);
  tide_pool *pool = pool_named("wide");
  for (int i = 0; i < 3; i++) tide_pool_put(pool, &things[i]);
  ck_assert_ptr_nonnull(tide_pool_get(pool));
  ck_assert_int_eq(check_pool(pool), 0);
  tide_pool_destroy(pool);
}
END_TEST

int main(void) {
  if (UNDER_TSAN) return 77; // it stands there itself
  // Its allocator's locks stay taken in a child if another thread had them: no thread is made
  // there.
  if (UNDER_ASAN) setenv("TIDE_GCINTERVAL", "0", 1);
  Suite *suite = suite_create("interposed");
  TCase *t = tcase_create("all");
  limit_time(t, 60);
  tcase_add_test(t, a_child_does_not_miss_what_another_thread_was_about_to_do);
  tcase_add_test(t, nor_with_checks);
  tcase_add_test(t, nor_in_the_heap);
  tcase_add_loop_test(t, a_handler_may_fork_between_two_portions_of_a_report, 0,
                      2 * (PORTIONS - 1));
  tcase_add_test(t, a_stream_may_fork);
  tcase_add_test(t, a_pool_that_is_being_destroyed_keeps_its_place);
  tcase_add_test(t, nothing_of_a_destroyed_pool_is_left_to_be_dropped);
  tcase_add_test(t, counts_are_exact_after_a_reset_in_the_middle_of_a_get);
  tcase_add_test(t, there_may_be_more_cpus_than_processors);
  suite_add_tcase(suite, t);
  return run_suite(suite);
}
