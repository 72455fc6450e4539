// SPDX-License-Identifier: MIT
// Events: each is delivered once and in order, or counted as lost; listeners may do nearly
// anything; the trace file is whole JSON whenever somebody looks.
//
// Threads that only emit need not be registered. So most tests run under ThreadSanitizer too, which
// holds back the signals that stop the world, and has ended its part of a thread before the library
// unregisters it.
#define _GNU_SOURCE
#include "rt_testing.h"

#include "json_testing.h"
#include "rt.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tidepool/pool.h>

#if UNDER_TSAN
// A child does not join the threads that it does not have.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
  return "report_thread_leaks=0";
}
#endif

enum { RING = 8192, RING_BYTES = RING * sizeof(tide_event) };

// ---- A listener that remembers --------------------------------------------------------------

typedef struct seen {
  size_t count;
  tide_event events[2 * RING];
} seen;

static void remember(const tide_event *event, void *arg) {
  seen *s = arg;
  MUST(s->count < LENGTH(s->events));
  s->events[s->count++] = *event;
}

static seen all, other;

static tide_event_listener *listen(void (*fn)(const tide_event *, void *), void *arg) {
  tide_event_listener *listener = tide_event_listener_add(fn, arg);
  ck_assert_ptr_nonnull(listener);
  return listener;
}

static void start(void) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(remember, &all);
}

// An instant with these numbers, now.
static void emit(uint64_t a, uint64_t b) {
  rt_event(TIDE_EVENT_ROTATE, os_now_ns(), 0, a, b);
}

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

// ---- Listeners ------------------------------------------------------------------------------

static bool in_call;
static int calls;

static void use_everything(const tide_event *event, void *arg) {
  MUST(!in_call);
  in_call = true;
  calls++;
  keep_in_memory(tide_alloc(1000));
  if (event->a == 1) {
    tide_collect();
    for (uint64_t i = 0; i < 10; i++) emit(100 + i, 0);
  }
  rt_events_drain(); // no recursion
  in_call = false;
}

START_TEST(a_listener_uses_the_heap) {
  init_with(OPTIONS(o.verify = 1));
  listen(use_everything, NULL);
  emit(1, 0);
  emit(2, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 2);
  rt_events_drain(); // what came up meanwhile; a collection's own events too
  ck_assert_int_ge(calls, 12);
  ck_assert_uint_eq(tide_events_lost(), 0);
}
END_TEST

static tide_event_listener *first, *second;

static void add_second(const tide_event *event, void *arg) {
  calls++;
  if (!second) second = tide_event_listener_add(remember, &all);
}

static void remove_both(const tide_event *event, void *arg) {
  calls++;
  tide_event_listener_remove(second);
  tide_event_listener_remove(first);
}

START_TEST(listeners_that_add_and_remove) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(add_second, NULL);
  emit(1, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 0); // the event was over before
  emit(2, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 1);
  tide_event_listener_remove(first);
  calls = 0;
  first = listen(remove_both, NULL);
  listen(remember, &other);
  for (uint64_t i = 0; i < 5; i++) emit(i, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 1);
  ck_assert_uint_eq(all.count, 2); // it was before the other on the list
  ck_assert_uint_eq(other.count, 5);
  tide_event_listener_remove(NULL);
  ck_assert_ptr_null(tide_event_listener_add(NULL, NULL));
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "no function"));
}
END_TEST

static volatile int entered, may_return, removed;

static void hold(const tide_event *event, void *arg) {
  calls++;
  set_flag(&entered);
  wait_until(&may_return);
}

static void *emit_and_drain(void *arg) {
  for (int i = 0; i < 3; i++) emit(1, 0);
  rt_events_drain();
  rt_events_leave();
  return NULL;
}

static void *return_soon(void *arg) {
  sleep_ms(50);
  MUST(!is_set(&removed));
  set_flag(&may_return);
  return NULL;
}

START_TEST(removal_waits_for_the_call) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(hold, NULL);
  second = listen(remember, &all);
  pthread_t drainer, helper;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  tide_event_listener_remove(listen(remember, &other)); // others come and go meanwhile
  ck_assert_int_eq(pthread_create(&helper, NULL, return_soon, NULL), 0);
  tide_event_listener_remove(first);
  set_flag(&removed);
  pthread_join(helper, NULL);
  pthread_join(drainer, NULL);
  ck_assert_int_eq(calls, 1);
  ck_assert_uint_eq(all.count, 3);
  ck_assert_uint_eq(other.count, 0);
}
END_TEST

// Who finds another thread delivering does not wait, and need not come back.
START_TEST(nothing_stays_behind) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(hold, NULL);
  listen(remember, &all);
  pthread_t drainer;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  emit(7, 0);
  rt_events_drain();
  set_flag(&may_return);
  pthread_join(drainer, NULL);
  ck_assert_uint_eq(all.count, 4);
  ck_assert_uint_eq(all.events[3].a, 7);
}
END_TEST

static void collect_for_ever(const tide_event *event, void *arg) {
  if (event->kind == TIDE_EVENT_CYCLE) tide_collect(); // else each event would make a dozen
}

START_TEST(a_listener_that_makes_events_does_not_hold_its_thread) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(collect_for_ever, NULL);
  tide_collect();
  for (int i = 0; i < 10; i++) rt_events_drain();
}
END_TEST

static tide_status in_hook_status;
// As slow as the others are: while it runs, another thread has collected, and asks.
static void wait_for_another(const tide_event *event, void *arg) {
  uint64_t cycle = tide_gc_cycle(), end = os_now_ns() + 2000000;
  while (tide_gc_cycle() == cycle && os_now_ns() < end) sched_yield();
}

enum { COLLECTORS = 3, TURNS = 4 };
static AO_t slowly_collected; // threads that have had their turns

static void *collect_in_company(void *arg) {
  for (int i = 0; i < TURNS; i++) tide_collect();
  AO_fetch_and_add1(&slowly_collected);
  while (AO_load(&slowly_collected) < COLLECTORS) tide_collect();
  return NULL;
}

START_TEST(a_thread_is_not_kept_to_deliver_what_others_do) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(wait_for_another, NULL);
  pthread_t threads[COLLECTORS];
  for (int i = 0; i < COLLECTORS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, collect_in_company, NULL), 0);
  for (int i = 0; i < COLLECTORS; i++) pthread_join(threads[i], NULL);
}
END_TEST

static void *in_hook_listener;
static void use_events(const tide_cycle *cycle, void *arg) {
  in_hook_listener = tide_event_listener_add(remember, &all);
  in_hook_status = tide_trace_start("/dev/null");
  tide_events_lost();
}

static void stopped_hook_child(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_hook_add(TIDE_STW_START, use_events, NULL);
  in_hook_listener = &all;
  tide_collect();
  if (in_hook_listener || in_hook_status != TIDE_ERR_STATE) _exit(1);
}

START_TEST(refused_in_a_stopped_hook) {
  child c;
  in_child(&c, 20, stopped_hook_child, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 2);
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_event_listener_add: not allowed"));
  ck_assert_ptr_nonnull(strstr(c.errors, "tide_trace_start: not allowed"));
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

static pid_t forked = -1;
static void fork_once(const tide_event *event, void *arg) {
  remember(event, &other);
  if (forked == -1) forked = fork();
}

START_TEST(in_a_listener) {
  init_with(OPTIONS(o.gc_percent = -1));
  listen(fork_once, NULL);
  for (uint64_t i = 0; i < 1000; i++) emit(i, 0);
  rt_events_drain();
  if (forked == 0) {
    // Here the drain ended with the call that forked.
    if (other.count != 1) _exit(1);
    emit(5000, 0);
    rt_events_drain();
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (child_result(pid, 10)) _exit(2);
    _exit(other.count == 2 && other.events[1].a == 5000 ? 0 : 3);
  }
  ck_assert_int_eq(child_result(forked, 20), 0);
  ck_assert_uint_eq(other.count, 1000);
}
END_TEST

// The child has nobody who is in the listener, so it can be removed, and others called.
START_TEST(while_another_thread_is_in_a_listener) {
  init_with(OPTIONS(o.gc_percent = -1));
  first = listen(hold, NULL);
  pthread_t drainer;
  ck_assert_int_eq(pthread_create(&drainer, NULL, emit_and_drain, NULL), 0);
  wait_until(&entered);
  pthread_t helper;
  ck_assert_int_eq(pthread_create(&helper, NULL, return_soon, NULL), 0);
  pid_t pid = fork(); // waits for the call to end
  if (pid == 0) {
    tide_event_listener_remove(first);
    listen(remember, &all);
    emit(9, 0);
    rt_events_drain();
    _exit(all.count == 1 && all.events[0].a == 9 ? 0 : 1);
  }
  ck_assert_int_eq(child_result(pid, 20), 0);
  pthread_join(drainer, NULL);
  pthread_join(helper, NULL);
  ck_assert_int_eq(calls, 3);
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

// ---- The trace file -------------------------------------------------------------------------

static char directory[] = "/tmp/tide-events-XXXXXX", path[64];
static char text[8 << 20];
static size_t text_bytes;

static void make_directory(void) {
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/trace.json", directory);
}

static void remove_directory(void) {
  unlink(path);
  rmdir(directory);
}

static void read_file(const char *name) {
  FILE *file = fopen(name, "re");
  ck_assert_ptr_nonnull(file);
  text_bytes = fread(text, 1, sizeof text - 1, file);
  text[text_bytes] = 0;
  fclose(file);
}

static size_t count_text(const char *part) {
  size_t count = 0, length = strlen(part);
  // Not strstr, which measures the rest of the text each time under AddressSanitizer.
  for (const char *at = text; (at = strchr(at, '"')); at++) count += !strncmp(at, part, length);
  return count;
}

// The file is whole, and this is how many events of the library it has.
static size_t events_in(const char *name) {
  read_file(name);
  if (!is_json(text, text_bytes)) ck_abort_msg("no JSON: %.2000s", text);
  return count_text("\"cat\":\"tidepool\"");
}

static void begin_trace(void) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_status status = tide_trace_start(path);
  ck_assert_msg(status == TIDE_OK, "%s", tide_error_message());
}

#define ck_assert_has(part)                                                                        \
  do {                                                                                             \
    if (!strstr(text, part)) ck_abort_msg("%s is not in: %.4000s", part, text);                    \
  } while (0)

START_TEST(the_checker_is_strict) {
  static const char *const good[] = {"[]", "{}", " [1, -0.5e+3, \"\\u00e9\\n\\\"\"] ",
                                     "{\"a\":{\"b\":[true,false,null]}}",
                                     "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""};
  static const char *const bad[] = {"",
                                    "[",
                                    "[1,]",
                                    "[1 2]",
                                    "{\"a\"}",
                                    "{a:1}",
                                    "01",
                                    "[1.]",
                                    "\"\\x\"",
                                    "\"\n\"",
                                    "[1]x",
                                    "\"\x80\"",
                                    "\"\xc0\x80\"",
                                    "\"\xed\xa0\x80\"",
                                    "\"\xf5\x80\x80\x80\"",
                                    "\"\xe2\x82\"",
                                    "\"open",
                                    "nul",
                                    "\"\\u12g4\"",
                                    "-",
                                    "[1],"};
  for (size_t i = 0; i < LENGTH(good); i++)
    ck_assert_msg(is_json(good[i], strlen(good[i])), "%s", good[i]);
  for (size_t i = 0; i < LENGTH(bad); i++)
    ck_assert_msg(!is_json(bad[i], strlen(bad[i])), "%s", bad[i]);
}
END_TEST

START_TEST(the_three_forms) {
  begin_trace();
  ck_assert_uint_eq(events_in(path), 0);
  uint64_t at = os_now_ns(), ts = at - rt_started_at_ns();
  rt_event(TIDE_EVENT_CYCLE, at, 1234567, 3, TIDE_CAUSE_FORCED);
  rt_event(TIDE_EVENT_STOP, at, 7, 3, 2);
  rt_event(TIDE_EVENT_HEAP, at, 0, 4096, TIDE_EVENT_NONE);
  rt_event(TIDE_EVENT_MEMORY, at, 0, TIDE_EVENT_NONE - 1, 5);
  rt_event_labelled(TIDE_EVENT_ROTATE, at, 0, 1, 0, "lines");
  rt_event(TIDE_EVENT_THREAD_END, at, 0, 0, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 6);
  char part[256], common[64];
  snprintf(common, sizeof common, "\"ts\":%llu.%03u", (unsigned long long)(ts / 1000),
           (unsigned)(ts % 1000));
  snprintf(part, sizeof part,
           "{\"name\":\"cycle\",\"cat\":\"tidepool\",\"ph\":\"X\",%s,\"dur\":1234.567,"
           "\"pid\":%d,\"tid\":%d,\"args\":{\"number\":3,\"cause\":\"forced\"}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("\"dur\":0.007,");
  ck_assert_has("{\"number\":3,\"threads\":2}}");
  snprintf(part, sizeof part,
           "{\"name\":\"heap\",\"cat\":\"tidepool\",\"ph\":\"C\",%s,\"pid\":%d,\"tid\":%d,"
           "\"args\":{\"heap_bytes\":4096}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("{\"total_bytes\":18446744073709551614,\"limit_bytes\":5}}");
  snprintf(part, sizeof part,
           "{\"name\":\"rotate\",\"cat\":\"tidepool\",\"ph\":\"i\",%s,\"s\":\"t\",\"pid\":%d,"
           "\"tid\":%d,\"args\":{\"rotations\":1,\"label\":\"lines\"}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("\"args\":{}}");
  snprintf(part, sizeof part, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,", getpid());
  ck_assert_has(part);
  ck_assert_uint_eq(count_text("\"thread_name\""), 1);
}
END_TEST

START_TEST(what_was_before_is_not_in_it) {
  start();
  emit(1, 0);
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK);
  emit(2, 0);
  rt_events_drain();
  ck_assert_uint_eq(events_in(path), 1);
  ck_assert_uint_eq(all.count, 2);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  emit(3, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 3);
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK); // anew
  emit(4, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 1);
  ck_assert_has("{\"rotations\":4}");
  ck_assert_uint_eq(all.count, 4); // stopping delivers to the listeners too
}
END_TEST

// Labels of any bytes; more than the buffer holds; looked at after each delivery.
START_TEST(whole_at_every_moment) {
  begin_trace();
  uint64_t random = test_seed();
  size_t emitted = 0;
  for (int round = 0; round < 60; round++) {
    size_t count = random_below(&random, round % 20 ? 60 : 2000);
    for (size_t i = 0; i < count; i++) {
      char label[32];
      for (size_t k = 0; k < sizeof label; k++) label[k] = (char)next_random(&random);
      label[random_below(&random, sizeof label)] = 0;
      tide_event_kind kind = (tide_event_kind)random_below(&random, TIDE_EVENTS);
      rt_event_labelled(kind, os_now_ns(), 0, next_random(&random), next_random(&random), label);
    }
    emitted += count;
    rt_events_drain();
    ck_assert_uint_eq(events_in(path), emitted);
  }
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), emitted);
}
END_TEST

static void *emit_with_a_name(void *name) {
  prctl(PR_SET_NAME, name);
  emit(1, 0);
  rt_events_drain();
  rt_events_leave();
  return NULL;
}

START_TEST(names_are_escaped) {
  begin_trace();
  static char names[][16] = {"q\"b\\s/\t\x01", "\xff\xc3", "caf\xc3\xa9 \xe2\x82\xac", "x\xe2\x82"};
  for (size_t i = 0; i < LENGTH(names); i++) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, emit_with_a_name, names[i]), 0);
    pthread_join(thread, NULL);
  }
  rt_event_labelled(TIDE_EVENT_ROTATE, os_now_ns(), 0, 1, 0, "12345678901234567890 \xe2\x82\xac");
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  events_in(path);
  ck_assert_has("{\"name\":\"q\\\"b\\\\s/\\u0009\\u0001\"}");
  ck_assert_has("{\"name\":\"\\ufffd\\ufffd\"}");
  ck_assert_has("{\"name\":\"caf\xc3\xa9 \xe2\x82\xac\"}");
  ck_assert_has("{\"name\":\"x\\ufffd\\ufffd\"}");
  ck_assert_has("\"label\":\"12345678901234567890 \\ufffd\\ufffd\"");
}
END_TEST

// ---- The end of the program -----------------------------------------------------------------

static void emit_a_few(void) {
  if (tide_trace_start(path) != TIDE_OK) _exit(9);
  emit(1, 0);
  emit(2, 0);
}

static void leave_by_exit(void *arg) {
  emit_a_few();
  exit(0);
}
// The thread unregisters: an event more.
static void leave_by_main_thread(void *arg) {
  emit_a_few();
  pthread_exit(NULL);
}
static void leave_by_underscore_exit(void *arg) {
  emit_a_few();
  rt_events_drain();
  emit(3, 0); // is not in the file
  _exit(0);
}
static void leave_by_signal(void *arg) {
  emit_a_few();
  rt_events_drain();
  emit(3, 0);
  raise(SIGKILL);
}
static void exit_at_once(const tide_event *event, void *arg) {
  emit(3, 0);
  exit(0);
}
static void leave_from_a_listener(void *arg) {
  if (tide_trace_start(path) != TIDE_OK) _exit(9);
  listen(exit_at_once, NULL);
  emit(1, 0);
  emit(2, 0);
  rt_events_drain();
}
static void *drain(void *arg) {
  rt_events_drain();
  return NULL;
}
// Somebody else sits in a listener for ever.
static void leave_while_events_are_held(void *arg) {
  emit_a_few();
  listen(hold, NULL);
  emit(3, 0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, drain, NULL)) _exit(8);
  wait_until(&entered);
  emit(4, 0); // is not in the file
  exit(0);
}

static const struct leaving {
  void (*leave)(void *);
  int signal;
  size_t events;
} leavings[] = {
    {leave_by_exit, 0, 2},
    {leave_by_underscore_exit, 0, 2},
    {leave_by_signal, SIGKILL, 2},
    {leave_from_a_listener, 0, 3},
    {leave_while_events_are_held, 0, 3},
    {leave_by_main_thread, 0, 3}, // the last: not under ThreadSanitizer
};

START_TEST(whole_after_the_end) {
  child c;
  in_child(&c, 20, leavings[_i].leave, NULL);
  if (leavings[_i].signal)
    ck_assert(WIFSIGNALED(c.status) && WTERMSIG(c.status) == leavings[_i].signal);
  else
    assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
  ck_assert_uint_eq(events_in(path), leavings[_i].events);
}
END_TEST

static void stop_tracing(const tide_event *event, void *arg) {
  calls++;
  if (calls == 1) ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
}

START_TEST(stopped_by_a_listener) {
  begin_trace();
  listen(stop_tracing, NULL);
  for (uint64_t i = 0; i < 10; i++) emit(i, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 10);
  ck_assert_uint_eq(events_in(path), 10);
  ck_assert_int_eq(tide_trace_stop(), TIDE_ERR_STATE);
}
END_TEST

// ---- Files that cannot be written -----------------------------------------------------------

START_TEST(wrong_calls) {
  init_with(OPTIONS(o.gc_percent = -1));
  ck_assert_int_eq(tide_trace_stop(), TIDE_ERR_STATE);
  ck_assert_int_eq(tide_trace_start(NULL), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_trace_start(""), TIDE_ERR_ARGUMENT);
  static char longest[5000];
  memset(longest, 'x', sizeof longest - 1);
  ck_assert_int_eq(tide_trace_start(longest), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_trace_start("/no/such/directory/trace"), TIDE_ERR_SYSTEM);
  ck_assert_str_eq(tide_error_message(),
                   "trace file '/no/such/directory/trace': No such file or directory");
  ck_assert_int_eq(tide_trace_start("/dev/full"), TIDE_ERR_SYSTEM);
  ck_assert_str_eq(tide_error_message(),
                   "trace file '/dev/full': No space left on device; tracing stops");
  ck_assert(!rt_events_wanted());
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK);
  ck_assert_int_eq(tide_trace_start(path), TIDE_ERR_STATE);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), path));
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
}
END_TEST

START_TEST(the_process_in_the_path) {
  init_with(OPTIONS(o.gc_percent = -1));
  char pattern[128], expected[128];
  snprintf(pattern, sizeof pattern, "%s/%%p-%%d%%p%%", directory);
  snprintf(expected, sizeof expected, "%s/%d-%%d%d%%", directory, getpid(), getpid());
  ck_assert_int_eq(tide_trace_start(pattern), TIDE_OK);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(expected), 0);
  unlink(expected);
}
END_TEST

static void trace_to_a_full_device(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1));
  if (tide_trace_start("/dev/full") != TIDE_ERR_SYSTEM) _exit(2);
  fprintf(stderr, "%s\n", tide_error_message());
  emit(1, 0);
  rt_events_drain();
  tide_collect();
  if (rt_events_wanted()) _exit(1);
}

START_TEST(a_full_device) {
  child c;
  in_child(&c, 20, trace_to_a_full_device, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "trace file '/dev/full': No space left on device; tracing stops\n");
}
END_TEST

// The limit on a file's size stands for a disk that is full.
static void fill_the_disk(void *arg) {
  begin_trace();
  listen(remember, &all);
  struct rlimit limit = {3000, 3000};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int i = 0; i < 100; i++) {
    emit((uint64_t)i, 0);
    rt_events_drain();
  }
  if (all.count != 100) _exit(1);
  if (tide_trace_stop() != TIDE_ERR_STATE) _exit(2);
}

START_TEST(the_disk_becomes_full) {
  child c;
  in_child(&c, 20, fill_the_disk, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, path));
  ck_assert_ptr_nonnull(strstr(c.errors, "File too large"));
  size_t events = events_in(path);
  ck_assert_uint_ge(events, 10);
  char last[64];
  snprintf(last, sizeof last, "{\"rotations\":%zu}", events - 1);
  ck_assert_has(last);
}
END_TEST

// As daemons do: the number becomes another file's, which must stay as it is.
static void close_all_files(void *arg) {
  begin_trace();
  emit(1, 0);
  rt_events_drain();
  for (int fd = STDERR_FILENO + 1; fd < 100; fd++) close(fd);
  char name[80];
  snprintf(name, sizeof name, "%s/other", directory);
  for (int fd = 0; fd < 90;) {
    fd = open(name, O_WRONLY | O_CREAT, 0600);
    MUST(fd >= 0);
  }
  emit(2, 0);
  rt_events_drain();
  emit(3, 0);
  rt_events_drain();
}

START_TEST(a_file_that_the_program_closed) {
  child c;
  in_child(&c, 20, close_all_files, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_uint_eq(events_in(path), 1);
  char name[80];
  struct stat status;
  snprintf(name, sizeof name, "%s/other", directory);
  ck_assert_int_eq(stat(name, &status), 0);
  ck_assert_int_eq(status.st_size, 0);
  unlink(name);
}
END_TEST

START_TEST(a_child_does_not_trace) {
  begin_trace();
  emit(1, 0);
  rt_events_drain();
  emit(2, 0);
  pid_t pid = fork();
  if (pid == 0) {
    if (rt_events_wanted()) _exit(1);
    emit(3, 0);
    rt_events_drain();
    if (tide_trace_stop() != TIDE_ERR_STATE) _exit(2);
    char own[80];
    snprintf(own, sizeof own, "%s/child-%%p", directory);
    if (tide_trace_start(own) != TIDE_OK) _exit(3);
    emit(4, 0);
    exit(0);
  }
  ck_assert_int_eq(child_result(pid, 20), 0);
  ck_assert_uint_eq(events_in(path), 1);
  char own[80];
  snprintf(own, sizeof own, "%s/child-%d", directory, (int)pid);
  ck_assert_uint_eq(events_in(own), 1);
  ck_assert_has("{\"rotations\":4}");
  unlink(own);
  emit(5, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 3);
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

  t = tcase_create("listeners");
  limit_time(t, 60);
  tcase_add_test(t, a_listener_uses_the_heap);
  tcase_add_test(t, listeners_that_add_and_remove);
  tcase_add_test(t, removal_waits_for_the_call);
  tcase_add_test(t, nothing_stays_behind);
  tcase_add_test(t, a_listener_that_makes_events_does_not_hold_its_thread);
  if (!UNDER_TSAN) tcase_add_test(t, a_thread_is_not_kept_to_deliver_what_others_do);
  tcase_add_test(t, refused_in_a_stopped_hook);
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
  tcase_add_test(t, in_a_listener);
  tcase_add_test(t, while_another_thread_is_in_a_listener);
  tcase_add_test(t, many_forks_while_threads_emit_and_drain);
  suite_add_tcase(s, t);

  t = tcase_create("trace");
  limit_time(t, 60);
  tcase_add_checked_fixture(t, make_directory, remove_directory);
  tcase_add_test(t, the_checker_is_strict);
  tcase_add_test(t, the_three_forms);
  tcase_add_test(t, what_was_before_is_not_in_it);
  tcase_add_test(t, whole_at_every_moment);
  tcase_add_test(t, names_are_escaped);
  tcase_add_loop_test(t, whole_after_the_end, 0, LENGTH(leavings) - UNDER_TSAN);
  tcase_add_test(t, stopped_by_a_listener);
  tcase_add_test(t, wrong_calls);
  tcase_add_test(t, the_process_in_the_path);
  tcase_add_test(t, a_full_device);
  tcase_add_test(t, the_disk_becomes_full);
  tcase_add_test(t, a_file_that_the_program_closed);
  tcase_add_test(t, a_child_does_not_trace);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  setenv("TIDE_GCINTERVAL", "0", 1); // mappings are counted: no thread but the test's
  return run_suite(suite());
}
