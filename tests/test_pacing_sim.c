// SPDX-License-Identifier: MIT
// Pacer and limiter through whole programs that do not run: a clock and a heap that are numbers.
//
// The program allocates at a rate, a collection costs time in proportion to what is live, and what
// is live follows the scenario. Settings may change on the way. The simulated heap asks for a
// collection where the real one does (pace.c, cycle.c), so what is seen here is the rules' doing,
// without noise.
#include "testing.h"

#include "limiter.h"
#include "pacer.h"

#define KB(n) ((uint64_t)(n) << 10)
#define MB(n) ((uint64_t)(n) << 20)
#define GB(n) ((uint64_t)(n) << 30)
#define MS(n) ((uint64_t)(n)*1000000)
#define S(n)  ((uint64_t)(n)*1000000000)

// ---- The simulated program ------------------------------------------------------------------

enum { COLLECTIONS_MAX = 60000 };
typedef struct span {
  uint64_t from, to;
} span;

typedef struct sim {
  // How it behaves.
  uint64_t rate_bytes;                   // allocated in a second
  uint64_t mark_bytes;                   // of live that one second of collecting deals with
  uint64_t step_bytes;                   // of one allocation that takes the slow path
  uint64_t beside_bytes;                 // mapped beside the heap
  uint64_t (*live)(const struct sim *);  // what is live now; not above what is allocated
  uint64_t external_each, external_kept; // added with each step; of it stays alive
  pacer p;
  // How it is.
  limiter l;
  uint64_t now_ns, allocated, heap;                 // all that was ever allocated; what is there
  uint64_t external, external_least, external_dead; // as in external.c; what finalizers will free
  // What is seen.
  uint64_t collections, for_limit, held, episodes, heap_peak, total_peak, above_goal;
  span spans[COLLECTIONS_MAX];
} sim;

static sim program; // large

static pacer_memory memory_of(const sim *s) {
  uint64_t counted = s->heap + s->external;
  return (pacer_memory){counted, counted + s->beside_bytes, 0};
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static void collect(sim *s) {
  uint64_t live = least(s->live(s), s->heap), began = s->now_ns;
  s->now_ns += 20000 + (uint64_t)((double)live / (double)s->mark_bytes * 1e9);
  s->heap = live;
  s->external_least = s->external;
  s->p.live_bytes = live;
  s->p.external_bytes = s->external;
  limiter_collected(&s->l, began, s->now_ns);
  MUST(s->collections < COLLECTIONS_MAX);
  s->spans[s->collections++] = (span){began, s->now_ns};
  if (s->external > s->external_kept) s->external_dead = s->external - s->external_kept;
}

// Finalizers run some steps later, and free a part of what died at a time.
static void run_finalizers(sim *s) {
  uint64_t freed = s->external_dead / 2 + s->external_dead % 2;
  s->external_dead -= freed;
  s->external -= freed;
  s->external_least = least(s->external_least, s->external);
}

static bool limit_has_one_due(sim *s) {
  pacer p = {.limit_bytes = s->p.limit_bytes};
  pacer_memory m = memory_of(s);
  if (!pacer_limit_reached(&p, &m, s->step_bytes)) return false;
  bool was_active = s->l.active, allowed = limiter_allows(&s->l, s->now_ns);
  s->held += !allowed;
  s->episodes += s->l.active && !was_active;
  return allowed;
}

static void step(sim *s) {
  s->p.external_bytes = least(s->p.external_bytes, s->external_least);
  limiter_active(&s->l, s->now_ns);
  bool by_goal = s->heap + s->external >= pacer_trigger(&s->p);
  bool by_limit = !by_goal && limit_has_one_due(s);
  s->for_limit += by_limit;
  if (by_goal || by_limit) collect(s);
  s->allocated += s->step_bytes;
  s->heap += s->step_bytes;
  s->external += s->external_each;
  s->now_ns += (uint64_t)((double)s->step_bytes / (double)s->rate_bytes * 1e9);
  if (s->external_dead) run_finalizers(s);
  pacer_memory m = memory_of(s);
  if (s->heap > s->heap_peak) s->heap_peak = s->heap;
  if (m.used_bytes > s->total_peak) s->total_peak = m.used_bytes;
  uint64_t goal = pacer_percent_goal(&s->p);
  if (m.heap_bytes > goal && m.heap_bytes - goal > s->above_goal)
    s->above_goal = m.heap_bytes - goal;
}

static void run(sim *s, uint64_t bytes) {
  for (uint64_t end = s->allocated + bytes; s->allocated < end;) step(s);
}

// A program that allocates 1 GB/s in steps of 64 KB, marks 1 GB/s, and has 1 MB beside the heap.
static sim *begin(uint64_t (*live)(const sim *), int percent, uint64_t limit) {
  memset(&program, 0, sizeof program);
  program.rate_bytes = program.mark_bytes = GB(1);
  program.step_bytes = KB(64);
  program.beside_bytes = MB(1);
  program.live = live;
  program.p = (pacer){.percent = percent, .limit_bytes = limit};
  program.now_ns = S(1);
  return &program;
}

// The most that was collected in any window of a second.
static uint64_t most_in_a_second(const sim *s) {
  uint64_t most = 0, sum = 0;
  for (uint64_t last = 0, first = 0; last < s->collections; last++) {
    uint64_t from = s->spans[last].to > S(1) ? s->spans[last].to - S(1) : 0;
    sum += s->spans[last].to - s->spans[last].from;
    for (; s->spans[first].to <= from; first++) sum -= s->spans[first].to - s->spans[first].from;
    uint64_t cut = s->spans[first].from < from ? from - s->spans[first].from : 0;
    if (sum - cut > most) most = sum - cut;
  }
  return most;
}

static uint64_t longest(const sim *s) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < s->collections; i++)
    if (s->spans[i].to - s->spans[i].from > most) most = s->spans[i].to - s->spans[i].from;
  return most;
}

static void assert_time_is_shared(const sim *s) {
  ck_assert_uint_le(most_in_a_second(s), MS(550) + longest(s) / 2);
}

// ---- Without a limit ------------------------------------------------------------------------

static uint64_t live_100k(const sim *s) {
  return KB(100);
}
static uint64_t live_30m(const sim *s) {
  return MB(30);
}
static uint64_t live_all(const sim *s) {
  return s->allocated;
}

START_TEST(churn_over_a_tiny_heap_collects_once_per_floor) {
  sim *s = begin(live_100k, 100, PACER_NO_LIMIT);
  run(s, GB(1));
  ck_assert_uint_le(s->collections, GB(1) / (MB(4) - KB(100)) + 2);
  ck_assert_uint_ge(s->collections, GB(1) / MB(4));
  ck_assert_uint_le(s->heap_peak, MB(4) + s->step_bytes);
}
END_TEST

START_TEST(steady_heap_collects_once_per_live) {
  sim *s = begin(live_30m, 100, PACER_NO_LIMIT);
  run(s, GB(3));
  ck_assert_uint_le(s->collections, GB(3) / MB(30) + 4); // and some on the way up
  ck_assert_uint_ge(s->collections, GB(3) / MB(31));
  ck_assert_uint_le(s->heap_peak, MB(60) + s->step_bytes);
  ck_assert_uint_le(s->above_goal, s->step_bytes);
}
END_TEST

START_TEST(growth_collects_a_logarithmic_number_of_times) {
  static const struct {
    int percent;
    uint64_t most;
  } runs[] = {{50, 24}, {100, 14}, {200, 10}, {400, 7}}; // log(16 GB / floor) / log(1 + p) + 2
  sim *s = begin(live_all, runs[_i].percent, PACER_NO_LIMIT);
  s->step_bytes = MB(1);
  run(s, GB(16));
  ck_assert_uint_le(s->collections, runs[_i].most);
  ck_assert_uint_ge(s->collections, runs[_i].most / 2);
}
END_TEST

static uint64_t live_drops(const sim *s) {
  return s->allocated < GB(2) ? MB(400) : MB(2);
}

START_TEST(sudden_drop_is_found_by_one_collection) {
  sim *s = begin(live_drops, 100, PACER_NO_LIMIT);
  run(s, GB(2));
  uint64_t before = s->collections;
  run(s, MB(900)); // one under the old goal, then one per 4 MiB at the most
  ck_assert_uint_ge(s->collections, before + 2);
  ck_assert_uint_le(s->collections, before + 2 + MB(900) / MB(2));
  ck_assert_uint_le(s->heap_peak, MB(800) + s->step_bytes);
  ck_assert_uint_lt(s->heap, MB(4) + s->step_bytes);
}
END_TEST

// Up and down by half, each 200 MB.
static uint64_t live_saw(const sim *s) {
  return MB(20) + s->allocated % MB(200) / 10;
}

START_TEST(saw_stays_within_twice_its_top) {
  sim *s = begin(live_saw, 100, PACER_NO_LIMIT);
  run(s, GB(10));
  ck_assert_uint_le(s->heap_peak, MB(80) + s->step_bytes);
  ck_assert_uint_le(s->collections, GB(10) / MB(20) + 6);
  ck_assert_uint_ge(s->collections, GB(10) / MB(40));
}
END_TEST

static uint64_t live_4t(const sim *s) {
  return GB(4096);
}

START_TEST(huge_heap_is_paced_as_a_small_one) {
  sim *s = begin(live_4t, 100, GB(16384));
  s->step_bytes = GB(1);
  s->rate_bytes = s->mark_bytes = GB(100);
  s->now_ns = UINT64_C(1) << 62; // and a clock that has run for a hundred years
  run(s, GB(65536));
  ck_assert_uint_le(s->collections, 65536 / 4096 + 22); // 20 on the way up
  ck_assert_uint_le(s->heap_peak, GB(8192) + s->step_bytes);
  ck_assert_uint_eq(s->for_limit, 0);
}
END_TEST

START_TEST(percent_at_its_ends) {
  sim *s = begin(live_100k, -1, PACER_NO_LIMIT);
  run(s, GB(1));
  ck_assert_uint_eq(s->collections, 0);
  s = begin(live_100k, 0, PACER_NO_LIMIT);
  run(s, MB(100));
  ck_assert_uint_eq(s->collections, MB(100) / s->step_bytes); // one for each step
  s = begin(live_all, INT32_MAX, PACER_NO_LIMIT);
  s->step_bytes = MB(100);
  run(s, GB(80000));
  ck_assert_uint_eq(s->collections, 0);
  s = begin(live_all, 1, PACER_NO_LIMIT);
  run(s, GB(1));
  ck_assert_uint_le(s->collections, 1100); // log(1 GB / 40 KB) / log(1.01)
  ck_assert_uint_ge(s->collections, 300);
}
END_TEST

// ---- With one -------------------------------------------------------------------------------

START_TEST(limit_takes_the_place_of_percent) {
  sim *s = begin(live_30m, -1, MB(64));
  run(s, GB(3));
  ck_assert_uint_eq(s->collections, s->for_limit);
  ck_assert_uint_eq(s->held, 0);
  ck_assert_uint_le(s->total_peak, MB(64));
  ck_assert_uint_le(s->collections, GB(3) / MB(31) + 1); // 64 - 30 - 1 beside, 1 MB of headroom
}
END_TEST

START_TEST(limit_and_percent_together_keep_to_both) {
  sim *s = begin(live_30m, 100, MB(50));
  s->mark_bytes = GB(4); // 7 ms for each 18 MB
  run(s, GB(3));
  ck_assert_uint_le(s->total_peak, MB(50));
  ck_assert_uint_le(s->above_goal, s->step_bytes);
  ck_assert_uint_gt(s->for_limit, s->collections / 2);
  ck_assert_uint_eq(s->held, 0);
}
END_TEST

// Ten times up and down, to just below the limit.
static uint64_t live_saw_60(const sim *s) {
  return s->allocated % MB(600) / 10;
}

START_TEST(saw_below_the_limit_stays_below_it) {
  sim *s = begin(live_saw_60, 100, MB(80));
  s->mark_bytes = GB(10);
  run(s, GB(6));
  ck_assert_uint_le(s->total_peak, MB(80));
  ck_assert_uint_eq(s->held, 0);
  ck_assert_uint_eq(s->episodes, 0);
}
END_TEST

// Grows by a hundredth of what is allocated, passes 256 MB, and is dropped in the end.
static uint64_t live_leak(const sim *s) {
  return s->allocated < GB(20) ? MB(200) + s->allocated / 100 : MB(10);
}

START_TEST(leak_into_the_limit_is_one_episode) {
  static const int percents[] = {-1, 100, 1000, 25};
  sim *s = begin(live_leak, percents[_i], MB(256));
  s->mark_bytes = GB(30); // up to 14 ms for a collection
  run(s, GB(20));
  assert_time_is_shared(s);
  ck_assert_uint_eq(s->episodes, 1);
  ck_assert_uint_gt(s->held, 0);
  ck_assert(limiter_active(&s->l, s->now_ns));
  // Live has come to 400 MB; beside it is what is allocated while collecting is held back.
  ck_assert_uint_ge(s->total_peak, MB(400));
  ck_assert_uint_le(s->total_peak, MB(400) + MB(1) + s->rate_bytes / 10 + MB(30));
  uint64_t peak = s->total_peak;
  run(s, GB(3));
  ck_assert(!limiter_active(&s->l, s->now_ns));
  ck_assert_uint_eq(s->episodes, 1);
  ck_assert_uint_le(s->total_peak, peak + MB(64));
}
END_TEST

START_TEST(live_far_above_the_limit_shares_the_time) {
  // A limit of which nothing can be held, for collections from 30 us to 3 s.
  static const uint64_t marks[] = {GB(1000), GB(30), GB(3), GB(1), MB(100), MB(10)};
  static const uint64_t limits[] = {0, 1, MB(20)};
  for (size_t i = 0; i < LENGTH(limits); i++) {
    sim *s = begin(live_30m, -1, limits[i]);
    s->mark_bytes = marks[_i];
    run(s, GB(3));
    assert_time_is_shared(s);
    ck_assert_uint_gt(s->for_limit, 0);
    ck_assert_uint_le(s->episodes, 1);
  }
}
END_TEST

START_TEST(episode_for_each_time_that_the_limit_cannot_be_held) {
  sim *s = begin(live_30m, -1, MB(20));
  for (uint64_t i = 1; i <= 5; i++) {
    s->p.limit_bytes = MB(20); // below what is live
    run(s, GB(1));
    ck_assert_uint_eq(s->episodes, i);
    s->p.limit_bytes = MB(200);
    run(s, GB(2));
    ck_assert(!limiter_active(&s->l, s->now_ns));
  }
  assert_time_is_shared(s);
}
END_TEST

START_TEST(settings_that_change_while_it_runs_act_at_once) {
  sim *s = begin(live_30m, 100, PACER_NO_LIMIT);
  run(s, GB(1));
  s->p.percent = 400; // the heap may become 150 MB
  s->heap_peak = 0;
  run(s, GB(1));
  ck_assert_uint_ge(s->heap_peak, MB(150));
  ck_assert_uint_le(s->heap_peak, MB(150) + s->step_bytes);
  s->p.limit_bytes = MB(100); // a collection with the next step, if it is above that
  run(s, s->step_bytes);
  s->total_peak = 0;
  run(s, GB(1));
  ck_assert_uint_le(s->total_peak, MB(100));
  s->p.percent = -1;
  s->p.limit_bytes = PACER_NO_LIMIT;
  uint64_t before = s->collections;
  run(s, GB(1));
  ck_assert_uint_eq(s->collections, before);
  s->p.percent = 0;
  run(s, s->step_bytes);
  ck_assert_uint_eq(s->collections, before + 1);
  ck_assert_uint_eq(s->episodes, 0);
}
END_TEST

START_TEST(random_settings_break_no_rule) {
  uint64_t random = test_seed();
  for (int round = 0; round < 30; round++) {
    sim *s = begin(live_saw, 100, PACER_NO_LIMIT);
    s->mark_bytes = GB(32) << random_below(&random, 4);
    for (int i = 0; i < 20; i++) {
      s->p.percent = 20 + (int)(random_below(&random, 500));
      s->p.limit_bytes = random_below(&random, 3) ? random_below(&random, MB(100)) : PACER_NO_LIMIT;
      run(s, MB(100));
    }
    // Percent's own collections, of 20 % at the least, are never held back.
    uint64_t own = S(1) * 5 * GB(1) / s->mark_bytes;
    ck_assert_uint_le(most_in_a_second(s), MS(550) + longest(s) / 2 + own);
  }
}
END_TEST

// ---- External bytes -------------------------------------------------------------------------

START_TEST(external_memory_paces_a_heap_that_is_next_to_nothing) {
  // Each step is 100 bytes of heap and 1 MB outside, of which 20 MB stay; finalizers free the rest
  // in the steps that follow a collection.
  sim *s = begin(live_100k, 100, PACER_NO_LIMIT);
  s->step_bytes = 100;
  s->external_each = MB(1);
  s->external_kept = MB(20);
  run(s, 100 * 5000);
  // Twice live is 40 MB: one per 20 MB at the most.
  ck_assert_uint_le(s->collections, 5000 / 20 + 3);
  ck_assert_uint_ge(s->collections, 5000 / 35);
  // What is dead goes within some steps; they come on top.
  ck_assert_uint_le(s->total_peak, MB(40) + MB(20) + MB(1) + KB(200));
}
END_TEST

START_TEST(external_memory_alone_runs_into_the_limit) {
  sim *s = begin(live_100k, -1, MB(64));
  s->step_bytes = 100;
  s->external_each = KB(100);
  s->external_kept = MB(20);
  s->rate_bytes = 1000000; // 1 GB/s outside
  run(s, 100 * 50000);
  ck_assert_uint_eq(s->held, 0);
  ck_assert_uint_le(s->total_peak, MB(64) + s->external_each);
  ck_assert_uint_ge(s->collections, 50000 / 10 / 60);
  ck_assert_uint_le(s->collections, 50000 / 10 / 35);
}
END_TEST

START_TEST(external_memory_that_cannot_be_freed_does_not_stop_the_program) {
  sim *s = begin(live_100k, -1, MB(64));
  s->step_bytes = KB(4);
  s->external_each = KB(10);
  s->external_kept = UINT64_MAX;
  run(s, MB(100));
  assert_time_is_shared(s);
  ck_assert_uint_le(s->episodes, 1);
  ck_assert_uint_ge(s->total_peak, MB(250));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("pacing_sim");
  TCase *percent = tcase_create("percent");
  tcase_set_timeout(percent, 30);
  tcase_add_test(percent, churn_over_a_tiny_heap_collects_once_per_floor);
  tcase_add_test(percent, steady_heap_collects_once_per_live);
  tcase_add_loop_test(percent, growth_collects_a_logarithmic_number_of_times, 0, 4);
  tcase_add_test(percent, sudden_drop_is_found_by_one_collection);
  tcase_add_test(percent, saw_stays_within_twice_its_top);
  tcase_add_test(percent, huge_heap_is_paced_as_a_small_one);
  tcase_add_test(percent, percent_at_its_ends);
  suite_add_tcase(suite, percent);
  TCase *limit = tcase_create("limit");
  tcase_set_timeout(limit, 30);
  tcase_add_test(limit, limit_takes_the_place_of_percent);
  tcase_add_test(limit, limit_and_percent_together_keep_to_both);
  tcase_add_test(limit, saw_below_the_limit_stays_below_it);
  tcase_add_loop_test(limit, leak_into_the_limit_is_one_episode, 0, 4);
  tcase_add_loop_test(limit, live_far_above_the_limit_shares_the_time, 0, 6);
  tcase_add_test(limit, episode_for_each_time_that_the_limit_cannot_be_held);
  tcase_add_test(limit, settings_that_change_while_it_runs_act_at_once);
  tcase_add_test(limit, random_settings_break_no_rule);
  suite_add_tcase(suite, limit);
  TCase *external = tcase_create("external");
  tcase_set_timeout(external, 30);
  tcase_add_test(external, external_memory_paces_a_heap_that_is_next_to_nothing);
  tcase_add_test(external, external_memory_alone_runs_into_the_limit);
  tcase_add_test(external, external_memory_that_cannot_be_freed_does_not_stop_the_program);
  suite_add_tcase(suite, external);
  return run_suite(suite);
}
