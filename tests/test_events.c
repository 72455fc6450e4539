// SPDX-License-Identifier: MIT
// Events: each is delivered once and in order, or counted as lost; rings are used again; what the
// library emits by itself; and which events are whose after a fork.
#define _GNU_SOURCE
#include "events_testing.h"

#include <limits.h>
#include <sys/resource.h>
#include <tidepool/pool.h>

static size_t mapped_bytes(void) {
  size_t pages = 0;
  FILE *statm = fopen("/proc/self/statm", "re");
  ck_assert_ptr_nonnull(statm);
  ck_assert_int_eq(fscanf(statm, "%zu", &pages), 1);
  fclose(statm);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// ---- The table ------------------------------------------------------------------------------

START_TEST(the_table) {
  ck_assert_uint_eq(sizeof(tide_event), 64);
  ck_assert_str_eq(tide_event_name(TIDE_EVENT_CYCLE), "cycle");
  ck_assert_str_eq(tide_event_name(TIDE_EVENT_THREAD_END), "thread_end");
  ck_assert_str_eq(tide_event_name(TIDE_EVENTS), "unknown");
  ck_assert_str_eq(tide_event_name((tide_event_kind)-1), "unknown");
  ck_assert_ptr_null(tide_event_describe(TIDE_EVENTS));
  const tide_event_info *info = tide_event_describe(TIDE_EVENT_HEAP);
  ck_assert_int_eq(info->form, TIDE_EVENT_COUNTER);
  ck_assert_str_eq(info->a, "heap_bytes");
  ck_assert_str_eq(info->b, "goal_bytes");
  ck_assert_str_eq(tide_event_describe(TIDE_EVENT_SWEEP_REST)->b, "");
}
END_TEST

// ---- Order ----------------------------------------------------------------------------------

START_TEST(as_they_were_recorded) {
  start();
  uint64_t now = os_now_ns();
  rt_event(TIDE_EVENT_STOP, now, 1000, 3, 4);
  rt_event(TIDE_EVENT_HEAP, now + 500, 0, 5, TIDE_EVENT_NONE);
  rt_event(TIDE_EVENT_CYCLE, now - 10, 2000, 6, 1); // ends last and begins first
  ck_assert_uint_eq(all.count, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 3);
  const tide_event *stop = &all.events[0];
  ck_assert_int_eq(stop->kind, TIDE_EVENT_STOP);
  ck_assert_uint_eq(stop->thread, (uint32_t)gettid());
  ck_assert_uint_eq(stop->at_ns, now);
  ck_assert_uint_eq(stop->duration_ns, 1000);
  ck_assert_uint_eq(stop->a, 3);
  ck_assert_uint_eq(stop->b, 4);
  ck_assert_str_eq(stop->label, "");
  ck_assert_int_eq(all.events[1].kind, TIDE_EVENT_HEAP);
  ck_assert_int_eq(all.events[2].kind, TIDE_EVENT_CYCLE);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 3);
}
END_TEST

typedef struct emitter {
  pthread_t thread;
  uint64_t at_ns, step_ns;
  int number, events;
  volatile int emitted, leave;
} emitter;

static void *emit_in_steps(void *arg) {
  emitter *e = arg;
  for (int i = 0; i < e->events; i++)
    rt_event(TIDE_EVENT_ROTATE, e->at_ns + (uint64_t)i * e->step_ns, 0, (uint64_t)e->number,
             (uint64_t)i);
  set_flag(&e->emitted);
  wait_until(&e->leave);
  rt_events_leave();
  return NULL;
}

// Threads with events at times that interleave, runs of equal times among them.
START_TEST(threads_are_merged) {
  start();
  enum { THREADS = 5, EVENTS = 1000 };
  emitter emitters[THREADS];
  uint64_t now = os_now_ns();
  for (int i = 0; i < THREADS; i++) {
    emitters[i] =
        (emitter){.at_ns = now + (uint64_t)i % 3, .step_ns = 7, .number = i, .events = EVENTS};
    ck_assert_int_eq(pthread_create(&emitters[i].thread, NULL, emit_in_steps, &emitters[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) wait_until(&emitters[i].emitted);
  rt_events_drain();
  for (int i = 0; i < THREADS; i++) {
    set_flag(&emitters[i].leave);
    pthread_join(emitters[i].thread, NULL);
  }
  ck_assert_uint_eq(all.count, THREADS * EVENTS);
  uint64_t next[THREADS] = {0}, before = 0;
  for (size_t i = 0; i < all.count; i++) {
    const tide_event *event = &all.events[i];
    MUST(event->at_ns >= before);
    before = event->at_ns;
    MUST(event->b == next[event->a]++);
  }
}
END_TEST

START_TEST(labels_are_cut) {
  start();
  uint64_t now = os_now_ns();
  static const char *const labels[] = {"", "short", "12345678901234567890123",
                                       "123456789012345678901234", "a much longer name than fits"};
  for (size_t i = 0; i < LENGTH(labels); i++)
    rt_event_labelled(TIDE_EVENT_ROTATE, now, 0, i, 0, labels[i]);
  rt_events_drain();
  for (size_t i = 0; i < LENGTH(labels); i++) {
    char expected[24];
    snprintf(expected, sizeof expected, "%s", labels[i]);
    ck_assert_str_eq(all.events[i].label, expected);
  }
}
END_TEST

// ---- Rings ----------------------------------------------------------------------------------

START_TEST(nothing_while_nobody_listens) {
  init_with(OPTIONS(o.gc_percent = -1));
  size_t before = mapped_bytes();
  for (int i = 0; i < 2 * RING; i++) emit(1, 0);
  ck_assert(!rt_events_wanted());
  rt_events_drain();
  if (!UNDER_ASAN && !UNDER_TSAN) ck_assert_uint_eq(mapped_bytes(), before);
  ck_assert_uint_eq(tide_events_lost(), 0);
  tide_event_listener *listener = listen(remember, &all);
  ck_assert(rt_events_wanted());
  emit(2, 0);
  ck_assert_uint_ge(mapped_bytes(), before + RING_BYTES);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 1);
  tide_event_listener_remove(listener);
  ck_assert(!rt_events_wanted());
  emit(3, 0);
  listen(remember, &all);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 1);
}
END_TEST

START_TEST(a_full_ring_loses_the_newest) {
  start();
  for (int round = 0; round < 3; round++) {
    all.count = 0;
    for (uint64_t i = 0; i < RING + 100; i++) {
      MUST(rt_events_due() == (i > RING / 2));
      emit(i, 0);
    }
    ck_assert_uint_eq(tide_events_lost(), 100u * (unsigned)(round + 1));
    rt_events_drain();
    ck_assert(!rt_events_due());
    ck_assert_uint_eq(all.count, RING);
    for (size_t i = 0; i < all.count; i++) MUST(all.events[i].a == i);
    emit(0, 0); // so that the next round begins elsewhere in the ring
    rt_events_drain();
  }
}
END_TEST

START_TEST(no_memory_for_a_ring) {
  start();
  struct rlimit limit = {mapped_bytes(), RLIM_INFINITY};
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
  emit(1, 0);
  ck_assert_uint_eq(tide_events_lost(), 1);
  limit.rlim_cur = RLIM_INFINITY;
  setrlimit(RLIMIT_AS, &limit);
  emit(2, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 1);
  ck_assert_uint_eq(all.events[0].a, 2);
}
END_TEST

// What a thread has left in its ring is delivered, also when another has taken the ring over.
START_TEST(rings_are_used_again) {
  start();
  enum { THREADS = 200, EVENTS = 10 };
  emit(THREADS, 0); // main's own ring
  size_t before = 0;
  for (int i = 0; i < THREADS; i++) {
    emitter e = {.at_ns = os_now_ns(), .number = i, .events = EVENTS, .leave = 1};
    ck_assert_int_eq(pthread_create(&e.thread, NULL, emit_in_steps, &e), 0);
    pthread_join(e.thread, NULL);
    if (i == 1) before = mapped_bytes();
  }
  if (!UNDER_ASAN && !UNDER_TSAN) ck_assert_uint_le(mapped_bytes(), before + RING_BYTES / 2);
  rt_events_drain();
  ck_assert_uint_eq(all.count, THREADS * EVENTS + 1);
  ck_assert_uint_eq(tide_events_lost(), 0);
  for (size_t i = 2; i < all.count; i++)
    if (all.events[i].a == all.events[i - 1].a) MUST(all.events[i].b == all.events[i - 1].b + 1);
}
END_TEST

enum { COMING_THREADS = 400, COMING_EVENTS = 50, COMING_AT_ONCE = 8 };

static struct {
  volatile int done;
  uint64_t next[COMING_THREADS];
  uint32_t thread[COMING_THREADS];
  uint64_t total;
} coming;

// Exactly once, and in order, by the number of the thread.
static void expect_next(const tide_event *event, void *arg) {
  if (event->kind != TIDE_EVENT_ROTATE) return;
  MUST(event->a < COMING_THREADS);
  MUST(event->b == coming.next[event->a]++);
  if (event->b == 0) coming.thread[event->a] = event->thread;
  MUST(event->thread == coming.thread[event->a]);
  coming.total++;
}

static void *drain_all_the_time(void *arg) {
  while (!is_set(&coming.done)) {
    rt_events_drain();
    sched_yield();
  }
  return NULL;
}

static void *emit_and_leave(void *arg) {
  for (uint64_t i = 0; i < COMING_EVENTS; i++) {
    emit((uintptr_t)arg, i);
    if (i == COMING_EVENTS / 2) rt_events_leave(); // and comes back
    if (i % 16 == 15) rt_events_drain();
  }
  rt_events_leave();
  return NULL;
}

START_TEST(threads_come_and_go) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(expect_next, NULL);
  pthread_t drainer, threads[COMING_AT_ONCE];
  ck_assert_int_eq(pthread_create(&drainer, NULL, drain_all_the_time, NULL), 0);
  for (uintptr_t i = 0; i < COMING_THREADS + COMING_AT_ONCE; i++) {
    if (i >= COMING_AT_ONCE) pthread_join(threads[i % COMING_AT_ONCE], NULL);
    if (i >= COMING_THREADS) continue;
    MUST(!pthread_create(&threads[i % COMING_AT_ONCE], NULL, emit_and_leave, (void *)i));
  }
  set_flag(&coming.done);
  pthread_join(drainer, NULL);
  rt_events_drain();
  ck_assert_uint_eq(tide_events_lost(), 0);
  ck_assert_uint_eq(coming.total, COMING_THREADS * COMING_EVENTS);
}
END_TEST

static struct { uint64_t count, next; } wrapping;

static void expect_increasing(const tide_event *event, void *arg) {
  MUST(event->a >= wrapping.next && event->b == ~event->a);
  wrapping.next = event->a + 1;
  wrapping.count++;
}

// A ring that is filled and emptied at the same time, many times over: an event is whole, or lost.
START_TEST(a_ring_goes_round) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(expect_increasing, NULL);
  enum { EVENTS = 20 * RING };
  pthread_t drainer;
  ck_assert_int_eq(pthread_create(&drainer, NULL, drain_all_the_time, NULL), 0);
  for (uint64_t i = 0; i < EVENTS; i++) {
    emit(i, ~i);
    if (i % 1000 == 0) sched_yield();
  }
  set_flag(&coming.done);
  pthread_join(drainer, NULL);
  rt_events_drain();
  ck_assert_uint_eq(wrapping.count + tide_events_lost(), EVENTS);
  ck_assert_uint_ge(wrapping.count, RING);
}
END_TEST

// ---- What the library emits -----------------------------------------------------------------

static size_t count_kind(const seen *s, tide_event_kind kind) {
  size_t count = 0;
  for (size_t i = 0; i < s->count; i++) count += s->events[i].kind == kind;
  return count;
}

static void *report_tid(void *arg) {
  *(uint32_t *)arg = (uint32_t)gettid();
  return NULL;
}

START_TEST(threads_say_when_they_start_and_end) {
  start();
  uint32_t tid;
  pthread_t thread;
  create(&thread, report_tid, &tid);
  pthread_join(thread, NULL);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 2);
  ck_assert_int_eq(all.events[0].kind, TIDE_EVENT_THREAD_START);
  ck_assert_int_eq(all.events[1].kind, TIDE_EVENT_THREAD_END);
  ck_assert_uint_eq(all.events[0].thread, tid);
  ck_assert_uint_eq(all.events[1].thread, tid);
  ck_assert_uint_le(all.events[0].at_ns, all.events[1].at_ns);
}
END_TEST

// A program that makes nothing but threads: they deliver by themselves, and nothing is lost.
START_TEST(thousands_of_threads) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(remember, &all);
  enum { THREADS = 6000 };
  for (int i = 0; i < THREADS; i++) {
    uint32_t tid;
    pthread_t thread;
    create(&thread, report_tid, &tid);
    pthread_join(thread, NULL);
  }
  rt_events_drain();
  ck_assert_uint_eq(tide_events_lost(), 0);
  ck_assert_uint_eq(count_kind(&all, TIDE_EVENT_THREAD_START), THREADS);
  ck_assert_uint_eq(count_kind(&all, TIDE_EVENT_THREAD_END), THREADS);
}
END_TEST

// Registers in the last turn of destructors, and so ends without unregistering.
static pthread_key_t late_key;
static uint32_t late_tid;
static void register_late(void *value) {
  uintptr_t round = (uintptr_t)value;
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(late_key, (void *)(round + 1));
    return;
  }
  late_tid = (uint32_t)gettid();
  MUST(tide_thread_register() == TIDE_OK);
}

static void *set_late_key(void *arg) {
  pthread_setspecific(late_key, (void *)1);
  return NULL;
}

START_TEST(a_thread_that_ends_registered) {
  start();
  tide_collect(); // this thread has a ring of its own from here on
  ck_assert_int_eq(pthread_key_create(&late_key, register_late), 0);
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, set_late_key, NULL), 0);
  pthread_join(thread, NULL);
  tide_collect(); // takes it off the registry
  rt_events_drain();
  ck_assert_uint_eq(count_kind(&all, TIDE_EVENT_THREAD_END), 1);
  for (size_t i = 0; i < all.count; i++)
    if (all.events[i].kind == TIDE_EVENT_THREAD_END)
      ck_assert_uint_eq(all.events[i].thread, late_tid);
  size_t before = mapped_bytes();
  emitter e = {.at_ns = os_now_ns(), .events = 1, .leave = 1};
  ck_assert_int_eq(pthread_create(&e.thread, NULL, emit_in_steps, &e), 0);
  pthread_join(e.thread, NULL);
  if (!UNDER_ASAN) ck_assert_uint_le(mapped_bytes(), before + RING_BYTES / 2); // in its ring
}
END_TEST

START_TEST(caches_say_when_they_rotate) {
  start();
  tide_pool *items = tide_pool_create(&(tide_pool_options){.name = "items"});
  tide_collect(); // it has nothing, and is left alone
  tide_pool_put(items, start);
  for (int i = 0; i < 3; i++) tide_collect(); // a rotation, another that empties it, and none
  rt_events_drain();
  uint64_t rotations = 0, last = 0;
  for (size_t i = 0; i < all.count; i++) {
    const tide_event *event = &all.events[i];
    if (event->kind != TIDE_EVENT_ROTATE) continue;
    rotations++;
    if (last) ck_assert_uint_eq(event->a, last + 1);
    last = event->a;
    ck_assert_str_eq(event->label, "items");
    ck_assert_uint_le(event->at_ns, os_now_ns());
  }
  ck_assert_uint_eq(rotations, 2);
  tide_pool_destroy(items);
}
END_TEST

static NOINLINE void *build_lists(void) {
  void **lists = tide_alloc(1000 * sizeof(void *));
  for (int i = 0; i < 1000; i++)
    for (int k = 0; k < 50; k++) {
      void **node = tide_alloc(64);
      node[0] = lists[i];
      lists[i] = node;
    }
  return lists;
}

static void *volatile kept;

START_TEST(markers_say_what_they_did) {
  if (on_bdw("markers are libgc's own and say nothing")) return;
  init_with(OPTIONS(o.gc_percent = -1, o.verify = 1, o.markers = 4));
  kept = build_lists();
  listen(remember, &all);
  uint64_t end = now_ns() + 20 * (uint64_t)1000000000;
  // A marker says it when it has noticed that the marking is over.
  while (!count_kind(&all, TIDE_EVENT_MARKER) && now_ns() < end) {
    tide_collect();
    sleep_ms(2);
    rt_events_drain();
  }
  ck_assert_uint_ge(count_kind(&all, TIDE_EVENT_MARKER), 1);
  for (size_t i = 0; i < all.count; i++) {
    if (all.events[i].kind != TIDE_EVENT_MARKER) continue;
    ck_assert_uint_ne(all.events[i].thread, (uint32_t)gettid());
    ck_assert_uint_ge(all.events[i].a, 1);
    ck_assert_uint_le(all.events[i].a, tide_gc_cycle());
    ck_assert_uint_lt(all.events[i].duration_ns, (uint64_t)10 * 1000000000);
  }
}
END_TEST

// ---- Fork -----------------------------------------------------------------------------------

START_TEST(what_waits_is_the_parents) {
  start();
  emitter e = {.at_ns = os_now_ns(), .number = 5, .events = 3};
  ck_assert_int_eq(pthread_create(&e.thread, NULL, emit_in_steps, &e), 0);
  wait_until(&e.emitted);
  emit(1, 0);
  pid_t pid = fork();
  if (pid == 0) {
    rt_events_drain();
    if (all.count) _exit(1);
    emit(2, 0);
    rt_events_drain();
    if (all.count != 1 || all.events[0].thread != (uint32_t)gettid()) _exit(2);
    if (UNDER_TSAN) _exit(0); // it takes a new thread for one that the parent has
    size_t before = mapped_bytes();
    emitter own = {.at_ns = os_now_ns(), .events = 3, .leave = 1};
    if (pthread_create(&own.thread, NULL, emit_in_steps, &own)) _exit(3);
    pthread_join(own.thread, NULL);
    rt_events_drain();
    if (all.count != 4 || tide_events_lost()) _exit(4);
    // In the ring of the thread that is not there.
    if (!UNDER_ASAN && mapped_bytes() > before + 9 * MIB) _exit(5);
    _exit(0);
  }
  ck_assert_int_eq(child_result(pid, 20), 0);
  set_flag(&e.leave);
  pthread_join(e.thread, NULL);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 4);
}
END_TEST

START_TEST(many_forks_while_threads_emit_and_drain) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(expect_next, NULL);
  pthread_t drainer, threads[COMING_AT_ONCE];
  ck_assert_int_eq(pthread_create(&drainer, NULL, drain_all_the_time, NULL), 0);
  for (uintptr_t i = 0; i < COMING_THREADS / 4; i++) {
    uintptr_t at = i % COMING_AT_ONCE;
    if (i >= COMING_AT_ONCE) pthread_join(threads[at], NULL);
    MUST(!pthread_create(&threads[at], NULL, emit_and_leave, (void *)i));
    if (i % 4) continue;
    pid_t pid = fork();
    if (pid == 0) {
      emit_and_leave((void *)(COMING_THREADS - 1));
      rt_events_drain();
      _exit(coming.next[COMING_THREADS - 1] == COMING_EVENTS ? 0 : 1);
    }
    MUST(child_result(pid, 20) == 0);
  }
  for (uintptr_t i = 0; i < COMING_AT_ONCE; i++) pthread_join(threads[i], NULL);
  set_flag(&coming.done);
  pthread_join(drainer, NULL);
  rt_events_drain();
  ck_assert_uint_eq(coming.total, COMING_THREADS / 4 * COMING_EVENTS);
}
END_TEST

// ---------------------------------------------------------------------------------------------

static Suite *suite(void) {
  Suite *s = suite_create("events");
  TCase *t = tcase_create("rings");
  limit_time(t, 60);
  tcase_add_test(t, the_table);
  tcase_add_test(t, as_they_were_recorded);
  tcase_add_test(t, threads_are_merged);
  tcase_add_test(t, labels_are_cut);
  tcase_add_test(t, nothing_while_nobody_listens);
  tcase_add_test(t, a_full_ring_loses_the_newest);
  if (!UNDER_ASAN && !UNDER_TSAN) tcase_add_test(t, no_memory_for_a_ring);
  tcase_add_test(t, rings_are_used_again);
  tcase_add_test(t, threads_come_and_go);
  tcase_add_test(t, a_ring_goes_round);
  suite_add_tcase(s, t);

  t = tcase_create("emitted");
  limit_time(t, 60);
  if (!UNDER_TSAN) {
    tcase_add_test(t, threads_say_when_they_start_and_end);
    tcase_add_test(t, thousands_of_threads);
    tcase_add_test(t, a_thread_that_ends_registered);
  }
  tcase_add_test(t, caches_say_when_they_rotate);
  tcase_add_test(t, markers_say_what_they_did);
  suite_add_tcase(s, t);

  t = tcase_create("fork");
  limit_time(t, 60);
  tcase_add_test(t, what_waits_is_the_parents);
  tcase_add_test(t, many_forks_while_threads_emit_and_drain);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  no_threads_of_the_library();
  return run_suite(suite());
}
