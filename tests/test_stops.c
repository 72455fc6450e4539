// SPDX-License-Identifier: MIT
// Being stopped: anywhere, with signals of the program's own, in system calls, around blocking
// regions, while processors change.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <threads.h>

// ---- Stopped anywhere -----------------------------------------------------------------------

static volatile int busy_done;

static void *busy_malloc(void *arg) {
  while (!is_set(&busy_done)) {
    void *blocks[50];
    for (int i = 0; i < 50; i++) blocks[i] = malloc((size_t)(i * i * 13 + 1));
    for (int i = 0; i < 50; i++) free(blocks[i]);
  }
  return NULL;
}

static void *busy_printf(void *arg) {
  FILE *out = fopen("/dev/null", "w");
  for (int i = 0; !is_set(&busy_done); i++) {
    fprintf(out, "%d %f %s\n", i, i * 0.1, "words");
    char text[64];
    snprintf(text, sizeof text, "%.17g", i * 1.5);
    MUST(strtod(text, NULL) == i * 1.5);
  }
  fclose(out);
  return NULL;
}

static void *busy_dlsym(void *arg) {
  while (!is_set(&busy_done)) MUST(dlsym(RTLD_DEFAULT, "malloc"));
  return NULL;
}

static void *busy_allocating(void *arg) {
  void **ring[64] = {0};
  for (unsigned i = 0; !is_set(&busy_done); i++) {
    void **fresh = tide_alloc(16 + i % 500);
    fresh[0] = (void *)(uintptr_t)(i * 2 + 1);
    void **old = ring[i % 64];
    if (old) MUST((uintptr_t)old[0] == (i - 64) * 2 + 1);
    ring[i % 64] = fresh;
  }
  return NULL;
}

// In short steps in which the thread is not stopped but stops by itself at their end.
static void *busy_pinned(void *arg) {
  char *object = tide_alloc(64);
  while (!is_set(&busy_done)) MUST(tide_base(object + 8) == object);
  return NULL;
}

static void *do_nothing(void *arg) {
  return arg;
}

static void *busy_blocking(void *arg) {
  while (!is_set(&busy_done)) tide_blocking(do_nothing, NULL);
  return NULL;
}

static void *busy_large(void *arg) {
  while (!is_set(&busy_done)) {
    char *large = tide_alloc(200000);
    large[0] = large[199999] = 1;
    keep_in_memory(large);
  }
  return NULL;
}

static void check_stops(void *(*const fns[])(void *), int count, double seconds, long gap_us,
                        int verify) {
  init_with(OPTIONS(o.verify = verify));
  pthread_t threads[8];
  for (int i = 0; i < count; i++) create(&threads[i], fns[i], NULL);
  collector c = {.gap_us = gap_us};
  collector_start(&c);
  uint64_t few = tide_gc_cycle() + 4; // many more, unless under a sanitizer on a busy machine
  for (uint64_t end = deadline_ns(seconds); now_ns() < end || tide_gc_cycle() < few;) sleep_ms(10);
  collector_stop(&c);
  set_flag(&busy_done);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

START_TEST(stopped_in_the_c_library) {
  void *(*const fns[])(void *) = {busy_malloc, busy_printf, busy_dlsym, busy_malloc};
  check_stops(fns, 4, 1.5, 0, 1);
}
END_TEST

START_TEST(stopped_in_allocation) {
  void *(*const fns[])(void *) = {busy_allocating, busy_allocating, busy_large};
  check_stops(fns, 3, 1.5, 0, 1);
}
END_TEST

// One stop follows the other so fast that a thread may not have woken up in between.
START_TEST(stopped_in_pinned_sections) {
  void *(*const fns[])(void *) = {busy_pinned, busy_pinned, busy_pinned};
  check_stops(fns, 3, 3, 0, 0);
}
END_TEST

START_TEST(stopped_on_the_way_into_blocking) {
  void *(*const fns[])(void *) = {busy_blocking, busy_blocking, busy_pinned};
  check_stops(fns, 3, 1.5, 0, 0);
}
END_TEST

START_TEST(several_threads_collect) {
  void *(*const fns[])(void *) = {busy_allocating, busy_pinned};
  collector c[3] = {{0}};
  init_verified();
  for (int i = 0; i < 3; i++) collector_start(&c[i]);
  check_stops(fns, 2, 1, 0, 1);
  for (int i = 0; i < 3; i++) collector_stop(&c[i]);
}
END_TEST

// ---- Signals --------------------------------------------------------------------------------

static volatile int own_signals;

static void on_own_urgent(int number) {
  own_signals++;
}
static void on_own_urgent_info(int number, siginfo_t *info, void *context) {
  own_signals += info->si_signo == SIGURG;
}

static void send_urgent_from_child(void) {
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    kill(parent, SIGURG);
    _exit(0);
  }
  ck_assert_int_eq(child_result(pid, 10), 0);
}

static void check_urgent(struct sigaction action) {
  sigemptyset(&action.sa_mask);
  sigaction(SIGURG, &action, NULL);
  init_verified();
  ck_assert_int_eq(tide_stop_signal(), SIGURG);
  pthread_t thread;
  volatile int go = 0;
  create(&thread, wait_for_flag, (void *)&go);
  for (int i = 0; i < 20; i++) tide_collect();
  ck_assert_int_eq(own_signals, 0); // none of ours
  for (int i = 1; i <= 10; i++) {
    send_urgent_from_child();
    tide_collect();
    for (int wait = 0; own_signals < i && wait < 1000; wait++) sleep_ms(1);
    ck_assert_int_eq(own_signals, i);
  }
  set_flag(&go);
  pthread_join(thread, NULL);
}

START_TEST(own_handler_of_the_stop_signal) {
  check_urgent((struct sigaction){.sa_handler = on_own_urgent, .sa_flags = SA_RESTART});
}
END_TEST
START_TEST(own_handler_with_information) {
  check_urgent(
      (struct sigaction){.sa_sigaction = on_own_urgent_info, .sa_flags = SA_RESTART | SA_SIGINFO});
}
END_TEST

START_TEST(own_handler_of_raised_signals) {
  struct sigaction action = {.sa_handler = on_own_urgent, .sa_flags = SA_RESTART};
  sigaction(SIGURG, &action, NULL);
  init_verified();
  kill(getpid(), SIGURG);
  ck_assert_int_eq(own_signals, 1);
  raise(SIGURG); // as the program may send to its own threads
  ck_assert_int_eq(own_signals, 2);
}
END_TEST

static void *wait_deafly(void *flag) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  tide_thread_register();
  ((volatile int *)flag)[1] = 1;
  return wait_for_flag(flag);
}

START_TEST(signals_blocked_before_registration) {
  init_verified();
  pthread_t threads[2];
  volatile int go[2] = {0, 0};
  pthread_create(&threads[0], NULL, wait_deafly, (void *)go);
  wait_until(&go[1]);
  sigset_t all, old; // and inherited
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  create(&threads[1], wait_for_flag, (void *)go);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  for (int i = 0; i < 20; i++) tide_collect();
  set_flag(&go[0]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}
END_TEST

// errno belongs to the interrupted code.
static void *watch_errno(void *flag) {
  errno = 4711;
  while (!is_set(flag))
    if (errno != 4711) return NULL;
  return flag;
}

START_TEST(errno_is_kept) {
  init_verified();
  pthread_t thread;
  volatile int done = 0;
  create(&thread, watch_errno, (void *)&done);
  for (int i = 0; i < 200; i++) tide_collect();
  set_flag(&done);
  void *result;
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, (void *)&done);
}
END_TEST

// How deep the handler reaches: the thread spins on the upper part of a stack of its own, the rest
// of which is painted. What the kernel pushes, registers and all, is counted too.
enum { STACK_BYTES = 256 * 1024, PAINT = 0xa5, HANDLER_MAX = 4096 };

typedef struct spinner {
  volatile int ready, done;
  char *sp;
} spinner;

static void *spin(void *argument) {
  spinner *s = argument;
  s->sp = __builtin_frame_address(0);
  s->ready = 1;
  while (!s->done) continue;
  return NULL;
}

static size_t signal_frame_bytes(void) {
  long vector_state = sysconf(_SC_MINSIGSTKSZ); // what the kernel needs, with all registers
  return vector_state > 0 ? (size_t)vector_state : 4096;
}

START_TEST(stack_use_of_the_handler) {
  init_verified();
  unsigned char *stack =
      mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, STACK_BYTES);
  spinner s = {0, 0, NULL};
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, &attributes, spin, &s), 0);
  while (!s.ready) continue;
  // Paint what it has used on its way, below its frame and red zone.
  unsigned char *upper = (unsigned char *)s.sp - 512;
  memset(stack, PAINT, (size_t)(upper - stack));
  for (int i = 0; i < 50; i++) tide_collect();
  size_t untouched = 0;
  while (stack[untouched] == PAINT) untouched++;
  s.done = 1;
  pthread_join(thread, NULL);
  size_t used = (size_t)(upper - stack) - untouched;
  printf("the stop handler and its signal frame take %zu bytes of stack\n", used);
  ck_assert_uint_gt(used, 0);
  if (!UNDER_ASAN) ck_assert_uint_lt(used, HANDLER_MAX + signal_frame_bytes());
  munmap(stack, STACK_BYTES);
}
END_TEST

// ---- System calls ---------------------------------------------------------------------------

typedef struct sleeper {
  pthread_t thread;
  const char *name;
  int (*call)(struct sleeper *); // 0, or the error number that showed
  void (*end)(struct sleeper *); // makes it return; NULL: it does by itself
  bool blocking;
  double seconds; // that it should take
  double took;
  int result;
  int descriptors[2];
  sem_t semaphore;
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  bool condition_met;
  volatile int tid;
} sleeper;

static void *sleep_main(void *argument) {
  sleeper *s = argument;
  uint64_t began = now_ns();
  s->result = s->call(s);
  s->took = (double)(now_ns() - began) / 1e9;
  return NULL;
}

static void *sleep_outside(void *argument) {
  sleeper *s = argument;
  s->tid = (int)syscall(SYS_gettid);
  if (s->blocking) return tide_blocking(sleep_main, s);
  return sleep_main(s);
}

static int call_read(sleeper *s) {
  char byte;
  return read(s->descriptors[0], &byte, 1) == 1 ? 0 : errno;
}
static void end_write(sleeper *s) {
  ck_assert_int_eq(write(s->descriptors[1], "x", 1), 1);
}
static int call_accept(sleeper *s) {
  int connection = accept(s->descriptors[0], NULL, NULL);
  int error = errno;
  if (connection >= 0) close(connection);
  return connection >= 0 ? 0 : error;
}
static void end_accept(sleeper *s) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  getsockname(s->descriptors[0], (struct sockaddr *)&address, &length);
  int client = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(connect(client, (struct sockaddr *)&address, length), 0);
  close(client);
}
static int call_sem_wait(sleeper *s) {
  return sem_wait(&s->semaphore) ? errno : 0;
}
static void end_sem_wait(sleeper *s) {
  sem_post(&s->semaphore);
}
static int call_mutex(sleeper *s) {
  int error = pthread_mutex_lock(&s->mutex);
  if (!error) pthread_mutex_unlock(&s->mutex);
  return error;
}
static void end_mutex(sleeper *s) {
  pthread_mutex_unlock(&s->mutex);
}
static int call_condition(sleeper *s) {
  pthread_mutex_lock(&s->mutex);
  int error = 0;
  while (!s->condition_met && !error) error = pthread_cond_wait(&s->condition, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
  return error;
}
static void end_condition(sleeper *s) {
  pthread_mutex_lock(&s->mutex);
  s->condition_met = true;
  pthread_cond_signal(&s->condition);
  pthread_mutex_unlock(&s->mutex);
}
static int call_waitpid(sleeper *s) {
  return waitpid(s->descriptors[0], NULL, 0) < 0 ? errno : 0;
}
static void end_waitpid(sleeper *s) {
  kill(s->descriptors[0], SIGKILL);
}

static struct timespec time_of(double seconds) {
  return (struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
}
static int call_nanosleep(sleeper *s) {
  struct timespec time = time_of(s->seconds);
  return nanosleep(&time, NULL) ? errno : 0;
}
static int call_poll(sleeper *s) {
  struct pollfd fd = {s->descriptors[0], POLLIN, 0};
  return poll(&fd, 1, (int)(s->seconds * 1000)) < 0 ? errno : 0;
}
static int call_sem_timedwait(sleeper *s) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  double end = (double)until.tv_sec + (double)until.tv_nsec / 1e9 + s->seconds;
  until = time_of(end);
  return sem_timedwait(&s->semaphore, &until) && errno != ETIMEDOUT ? errno : 0;
}
static int call_recv(sleeper *s) {
  struct timeval timeout = {(time_t)s->seconds,
                            (suseconds_t)((s->seconds - (int)s->seconds) * 1e6)};
  setsockopt(s->descriptors[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  char byte;
  return recv(s->descriptors[0], &byte, 1, 0) < 0 && errno != EAGAIN ? errno : 0;
}

static void prepare(sleeper *s) {
  sem_init(&s->semaphore, 0, 0);
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->condition, NULL);
  if (s->end == end_accept) {
    s->descriptors[0] = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr address = {.sa_family = AF_UNIX}; // the kernel chooses a name
    ck_assert_int_eq(bind(s->descriptors[0], &address, sizeof address.sa_family), 0);
    ck_assert_int_eq(listen(s->descriptors[0], 1), 0);
  } else if (s->end == end_waitpid) {
    s->descriptors[0] = fork();
    if (s->descriptors[0] == 0)
      for (;;) pause();
  } else {
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, s->descriptors), 0);
  }
  if (s->end == end_mutex) pthread_mutex_lock(&s->mutex);
}

// Calls that SA_RESTART covers.
START_TEST(restarted_calls) {
  init_verified();
  sleeper sleepers[] = {
      {.name = "read", .call = call_read, .end = end_write},
      {.name = "accept", .call = call_accept, .end = end_accept},
      {.name = "sem_wait", .call = call_sem_wait, .end = end_sem_wait},
      {.name = "mutex", .call = call_mutex, .end = end_mutex},
      {.name = "condition", .call = call_condition, .end = end_condition},
      {.name = "waitpid", .call = call_waitpid, .end = end_waitpid},
  };
  for (size_t i = 0; i < LENGTH(sleepers); i++) {
    prepare(&sleepers[i]);
    create(&sleepers[i].thread, sleep_outside, &sleepers[i]);
  }
  collector c = {0};
  collector_start(&c);
  for (uint64_t end = deadline_ns(0.5); now_ns() < end || tide_gc_cycle() < 4;) sleep_ms(10);
  for (size_t i = 0; i < LENGTH(sleepers); i++) sleepers[i].end(&sleepers[i]);
  for (size_t i = 0; i < LENGTH(sleepers); i++) {
    pthread_join(sleepers[i].thread, NULL);
    ck_assert_msg(sleepers[i].result == 0, "%s: %s", sleepers[i].name,
                  strerror(sleepers[i].result));
  }
  collector_stop(&c);
}
END_TEST

// Calls with an end in time, inside tide_blocking.
START_TEST(timed_calls_inside_blocking) {
  init_verified();
  sleeper sleepers[] = {
      {.name = "nanosleep", .call = call_nanosleep, .blocking = true, .seconds = 2},
      {.name = "poll", .call = call_poll, .blocking = true, .seconds = 2},
      {.name = "sem_timedwait", .call = call_sem_timedwait, .blocking = true, .seconds = 2},
      {.name = "recv", .call = call_recv, .blocking = true, .seconds = 2},
  };
  for (size_t i = 0; i < LENGTH(sleepers); i++) {
    prepare(&sleepers[i]);
    create(&sleepers[i].thread, sleep_outside, &sleepers[i]);
  }
  collector c = {0};
  collector_start(&c);
  for (size_t i = 0; i < LENGTH(sleepers); i++) {
    sleeper *s = &sleepers[i];
    pthread_join(s->thread, NULL);
    ck_assert_msg(s->result == 0, "%s: %s", s->name, strerror(s->result));
    // The kernel rounds recv's timeout to its own ticks; a busy machine adds to it.
    ck_assert_msg(s->took > s->seconds * 0.99 && s->took < s->seconds * 1.5,
                  "%s took %.3f s instead of %.3f", s->name, s->took, s->seconds);
  }
  collector_stop(&c);
  ck_assert_uint_gt(tide_gc_cycle(), 0);
}
END_TEST

// Short ones, one after the other: a stop that was on its way when the region was entered must not
// end the call.
static void *short_sleeps(void *argument) {
  sleeper *s = argument;
  while (!is_set(&busy_done)) {
    tide_blocking(sleep_main, s);
    if (s->result) return s;
  }
  return NULL;
}

START_TEST(short_calls_inside_blocking) {
  init_with(OPTIONS(o.verify = 0));
  sleeper sleepers[2] = {{.call = call_nanosleep, .seconds = 20e-6},
                         {.call = call_nanosleep, .seconds = 50e-6}};
  for (int i = 0; i < 2; i++) create(&sleepers[i].thread, short_sleeps, &sleepers[i]);
  collector c = {.gap_us = 20};
  collector_start(&c);
  for (uint64_t end = deadline_ns(2); now_ns() < end;) sleep_ms(10);
  set_flag(&busy_done);
  for (int i = 0; i < 2; i++) {
    void *interrupted;
    pthread_join(sleepers[i].thread, &interrupted);
    ck_assert_msg(!interrupted, "nanosleep inside tide_blocking: %s", strerror(sleepers[i].result));
  }
  collector_stop(&c);
}
END_TEST

// ---- Blocking regions -----------------------------------------------------------------------

static long wakeups_of(int tid) {
  char path[64], line[128];
  snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
  FILE *status = fopen(path, "r");
  long switches = -1;
  while (status && fgets(line, sizeof line, status))
    if (sscanf(line, "voluntary_ctxt_switches: %ld", &switches) == 1) break;
  if (status) fclose(status);
  return switches;
}

START_TEST(blocked_threads_are_left_alone) {
  init_verified();
  sleeper s = {.call = call_read, .end = end_write, .blocking = true};
  prepare(&s);
  create(&s.thread, sleep_outside, &s);
  sleep_ms(100);
  long before = wakeups_of(s.tid);
  ck_assert_int_ge(before, 0);
  for (int i = 0; i < 100; i++) tide_collect();
  ck_assert_int_eq(wakeups_of(s.tid), before);
  s.end(&s);
  pthread_join(s.thread, NULL);
  ck_assert_int_eq(s.result, 0);
}
END_TEST

typedef struct nesting {
  int depth;
  group g;
  void *slots[GROUP];
} nesting;

static void *nest_active(void *argument);
static void *nest_blocking(void *argument) {
  nesting *n = argument;
  MUST(!tide_alloc(100000)); // not here
  return n->depth ? tide_active(nest_active, n) : n;
}
static void *nest_active(void *argument) {
  nesting *n = argument;
  n->depth--;
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  MUST(tide_active(use_heap_main, n) == n); // already active
  MUST(tide_thread_unregister() == TIDE_ERR_STATE);
  void *result = tide_blocking(nest_blocking, n);
  tide_collect();
  MUST(group_alive(&g) == GROUP);
  return result;
}

static void nest_child(void *arg) {
  init_verified();
  collector c = {.gap_us = 100};
  collector_start(&c);
  nesting n = {.depth = 3};
  void *slots[GROUP];
  group g;
  for (int i = 0; i < 20; i++) {
    n.depth = 3;
    group_fill(&g, slots);
    MUST(tide_blocking(nest_blocking, &n) == &n);
    MUST(group_alive(&g) == GROUP);
  }
  MUST(tide_active(use_heap_main, &n) == &n); // outside: just a call
  use_heap();
  collector_stop(&c);
}

START_TEST(regions_nest) {
  child c;
  in_child(&c, 15, nest_child, NULL);
  assert_ended_well(&c);
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_active"));
}
END_TEST

static void *unregister_blocked(void *arg) {
  return (void *)(intptr_t)tide_thread_unregister();
}

static void *no_region(void *arg) {
  MUST(tide_blocking(wait_for_flag, arg) == arg); // of a thread that is not registered
  MUST(tide_active(wait_for_flag, arg) == arg);
  MUST(tide_thread_unregister() == TIDE_ERR_STATE);
  return NULL;
}

static void *collect_elsewhere(void *arg) {
  use_heap();
  tide_collect();
  return NULL;
}

START_TEST(unregistering) {
  init_verified();
  ck_assert_int_eq((intptr_t)tide_blocking(unregister_blocked, NULL), TIDE_ERR_STATE);
  pthread_t thread;
  volatile int set = 1;
  pthread_create(&thread, NULL, no_region, (void *)&set);
  pthread_join(thread, NULL);

  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  collect_clean();
  assert_group_lives(&g);
  ck_assert_int_eq(tide_thread_unregister(), TIDE_OK);
  ck_assert_int_eq(tide_thread_unregister(), TIDE_ERR_STATE);
  ck_assert_str_ne(tide_error_message(), "");
  create(&thread, collect_elsewhere, NULL); // without this stack
  pthread_join(thread, NULL);
  assert_group_gone(&g); // this thread is registered again by the first look at the heap
  ck_assert_int_eq(tide_thread_unregister(), TIDE_OK);
}
END_TEST

static volatile int paused, blocked_now;
static uint64_t pause_over_at_ns, came_back_at_ns;

static void long_pause(const tide_cycle *cycle, void *arg) {
  set_flag(&paused);
  uint64_t end = now_ns() + 300000000;
  while (now_ns() < end) continue;
  pause_over_at_ns = now_ns();
}

static void *until_pause(void *arg) {
  set_flag(&blocked_now);
  while (!is_set(&paused)) continue;
  return NULL;
}

static void *return_into_pause(void *arg) {
  tide_blocking(until_pause, NULL);
  came_back_at_ns = now_ns();
  use_heap();
  return NULL;
}

START_TEST(return_in_the_middle_of_a_pause) {
  init_verified();
  tide_hook *hook = tide_hook_add(TIDE_MARK_DONE, long_pause, NULL);
  pthread_t thread;
  create(&thread, return_into_pause, NULL);
  wait_until(&blocked_now);
  tide_collect();
  pthread_join(thread, NULL);
  ck_assert_uint_ge(came_back_at_ns, pause_over_at_ns);
  ck_assert_uint_le(came_back_at_ns, pause_over_at_ns + 1000000000);
  tide_hook_remove(hook);
}
END_TEST

// ---- Processors -----------------------------------------------------------------------------

START_TEST(processors) {
  init_with(OPTIONS(o.procs = 5));
  ck_assert_int_eq(tide_procs(), 5);
  ck_assert_int_eq(tide_procs_set(3), 5);
  ck_assert_int_eq(tide_procs_set(0), 3); // only asks
  ck_assert_int_eq(tide_procs_set(-1), 3);
  ck_assert_int_eq(tide_procs_set(1025), 3);
  ck_assert_int_eq(tide_procs_set(INT_MAX), 3);
  ck_assert_int_eq(tide_procs_set(INT_MIN), 3);
  ck_assert_int_eq(tide_procs_set(1024), 3);
  ck_assert_int_eq(tide_procs_set(1), 1024);
  ck_assert_int_eq(tide_procs_set(1), 1);
  ck_assert_int_eq(tide_procs(), 1);
}
END_TEST

START_TEST(processors_follow_the_affinity) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  init_verified();
  ck_assert_int_eq(tide_procs(), 1);
}
END_TEST

START_TEST(processors_change_while_threads_run) {
  init_verified();
  pthread_t threads[5];
  void *(*const fns[])(void *) = {busy_allocating, busy_pinned, busy_blocking, busy_malloc,
                                  busy_large};
  for (int i = 0; i < 5; i++) create(&threads[i], fns[i], NULL);
  collector c = {.gap_us = 300};
  collector_start(&c);
  int old = tide_procs();
  unsigned n = 1;
  for (uint64_t end = deadline_ns(1); now_ns() < end; n++) {
    int wanted = (int)(n * 7919 % 40 + 1);
    ck_assert_int_eq(tide_procs_set(wanted), old);
    old = wanted;
    use_heap();
  }
  set_flag(&busy_done);
  collector_stop(&c);
  for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("stops");
  TCase *t = tcase_create("stops");
  limit_time(t, 30);
  tcase_add_test(t, stopped_in_the_c_library);
  tcase_add_test(t, stopped_in_pinned_sections);
  tcase_add_test(t, stopped_on_the_way_into_blocking);
  tcase_add_test(t, several_threads_collect);
  suite_add_tcase(s, t);

  t = tcase_create("allocation");
  limit_time(t, 30);
  tcase_add_test(t, stopped_in_allocation);
  suite_add_tcase(s, t);

  t = tcase_create("signals");
  limit_time(t, 30);
  tcase_add_test(t, own_handler_of_the_stop_signal);
  tcase_add_test(t, own_handler_with_information);
  tcase_add_test(t, own_handler_of_raised_signals);
  tcase_add_test(t, signals_blocked_before_registration);
  tcase_add_test(t, errno_is_kept);
  tcase_add_test(t, stack_use_of_the_handler);
  suite_add_tcase(s, t);

  t = tcase_create("calls");
  limit_time(t, 30);
  tcase_add_test(t, restarted_calls);
  tcase_add_test(t, timed_calls_inside_blocking);
  tcase_add_test(t, short_calls_inside_blocking);
  suite_add_tcase(s, t);

  t = tcase_create("regions");
  limit_time(t, 30);
  tcase_add_test(t, blocked_threads_are_left_alone);
  tcase_add_test(t, regions_nest);
  tcase_add_test(t, unregistering);
  tcase_add_test(t, return_in_the_middle_of_a_pause);
  suite_add_tcase(s, t);

  t = tcase_create("processors");
  limit_time(t, 30);
  tcase_add_test(t, processors);
  tcase_add_test(t, processors_follow_the_affinity);
  tcase_add_test(t, processors_change_while_threads_run);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  return run_suite(suite());
}
