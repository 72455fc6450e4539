// SPDX-License-Identifier: MIT
// When collections start: the pacer's formula on a table of cases and on random numbers, then the
// same seen from outside, in programs that grow, churn, and turn the knobs.
#include "testing.h"

#include "pacer.h"

#include <pthread.h>

// ---- The formula ----------------------------------------------------------------------------

typedef struct numbers {
  int percent;
  uint64_t min_heap, live, stacks, globals;
} numbers;

static pacer of(numbers n) {
  return (pacer){.percent = n.percent,
                 .min_heap_bytes = n.min_heap,
                 .live_bytes = n.live,
                 .stack_bytes = n.stacks,
                 .global_bytes = n.globals,
                 .limit_bytes = PACER_NO_LIMIT};
}

static const struct {
  const char *what;
  numbers n;
  uint64_t goal;
} cases[] = {
    {"off", {-1, 0, 10 << 20, 0, 0}, PACER_NO_GOAL},
    {"off, with a smallest heap", {-1, 64 << 20, 10 << 20, 0, 0}, PACER_NO_GOAL},
    {"nothing yet", {100, 0, 0, 0, 0}, 4 << 20},
    {"nothing yet, 25 %", {25, 0, 0, 0, 0}, 1 << 20},
    {"nothing yet, 400 %", {400, 0, 0, 0, 0}, 16 << 20},
    {"nothing yet, 0 %", {0, 0, 0, 0, 0}, 0},
    {"0 % allows no growth", {0, 0, 1000, 300, 500}, 1000},
    {"25 %", {25, 0, 100 << 20, 0, 0}, 125 << 20},
    {"100 %", {100, 0, 10 << 20, 0, 0}, 20 << 20},
    {"400 %", {400, 0, 10 << 20, 0, 0}, 50 << 20},
    {"stacks and globals count in the growth only", {100, 0, 10 << 20, 1 << 20, 2 << 20}, 23 << 20},
    {"and are scaled like it", {25, 0, 100 << 20, 4 << 20, 8 << 20}, 128 << 20},
    {"below the floor", {100, 0, 1 << 20, 0, 0}, 4 << 20},
    {"just at the floor", {100, 0, 2 << 20, 0, 0}, 4 << 20},
    {"just above the floor", {100, 0, (2 << 20) + 1, 0, 0}, (4 << 20) + 2},
    {"live alone is above the floor", {1, 0, 5 << 20, 0, 0}, 5295308},
    {"a smallest heap replaces the floor", {100, 64 << 20, 1 << 20, 0, 0}, 64 << 20},
    {"also downwards", {100, 1, 1000, 0, 0}, 2000},
    {"and with 0 %", {0, 64 << 20, 1 << 20, 0, 0}, 64 << 20},
    {"but never above what growth allows", {100, 64 << 20, 50 << 20, 0, 0}, 100 << 20},
    {"fractions are dropped", {50, 1, 3, 0, 0}, 4},
    {"fractions are dropped after adding up", {50, 1, 3, 1, 0}, 5},
    {"largest percent", {INT32_MAX, 0, 1 << 30, 0, 0}, 23058431155141345},
    {"largest percent, nothing yet", {INT32_MAX, 0, 0, 0, 0}, 90071992505466},
    {"the product does not fit in 64 bits, the quotient does",
     {100, 0, (uint64_t)1 << 62, 0, 0},
     (uint64_t)1 << 63},
    {"last sum that fits", {100, 0, ((uint64_t)1 << 63) - 1, 0, 0}, UINT64_MAX - 1},
    {"first that does not", {100, 0, (uint64_t)1 << 63, 0, 0}, UINT64_MAX},
    {"all live", {100, 0, UINT64_MAX, 0, 0}, UINT64_MAX},
    {"all but one byte live, 0 %", {0, 0, UINT64_MAX - 1, 0, 0}, UINT64_MAX - 1},
    {"huge stacks", {100, 0, 1, UINT64_MAX, 1}, UINT64_MAX},
    {"huge globals, with stacks", {1, 0, 0, UINT64_MAX, UINT64_MAX}, UINT64_MAX / 100},
    {"huge live, largest percent", {INT32_MAX, 0, UINT64_MAX, 1, 1}, UINT64_MAX},
    {"huge smallest heap", {100, UINT64_MAX - 1, 1 << 20, 0, 0}, UINT64_MAX - 1},
};

START_TEST(goal_on_a_table_of_cases) {
  pacer p = of(cases[_i].n);
  uint64_t goal = pacer_percent_goal(&p);
  ck_assert_msg(goal == cases[_i].goal, "%s: %llu, not %llu", cases[_i].what,
                (unsigned long long)goal, (unsigned long long)cases[_i].goal);
}
END_TEST

// Random in its magnitude as well, so that every size comes up.
static uint64_t random_size(uint64_t *state) {
  uint64_t bits = next_random(state);
  return bits >> random_below(state, 64);
}

START_TEST(goal_is_above_live_and_floor_and_monotone) {
  uint64_t state = test_seed();
  for (int i = 0; i < 300000; i++) {
    pacer p = of((numbers){(int)(random_size(&state) >> 33),
                           random_below(&state, 2) ? random_size(&state) : 0, random_size(&state),
                           random_size(&state), random_size(&state)});
    uint64_t goal = pacer_percent_goal(&p);
    MUST(goal >= p.live_bytes);
    uint64_t floor =
        p.min_heap_bytes ? p.min_heap_bytes : (4u << 20) * (uint64_t)(unsigned)p.percent / 100;
    MUST(goal >= floor);

    pacer more = p;
    more.percent = p.percent + (int)random_below(&state, (size_t)INT32_MAX - (size_t)p.percent + 1);
    MUST(pacer_percent_goal(&more) >= goal);
    more = p;
    more.live_bytes += random_below(&state, UINT64_MAX - p.live_bytes);
    MUST(pacer_percent_goal(&more) >= goal);
    more = p;
    more.stack_bytes += random_below(&state, UINT64_MAX - p.stack_bytes);
    MUST(pacer_percent_goal(&more) >= goal);
    if (p.min_heap_bytes) {
      more = p;
      more.min_heap_bytes += random_below(&state, UINT64_MAX - p.min_heap_bytes);
      MUST(pacer_percent_goal(&more) >= goal);
    }
  }
}
END_TEST

// ---- The formula with a limit ---------------------------------------------------------------

static const struct {
  const char *what;
  pacer p;                         // percent, smallest heap, live, stacks, globals, external, limit
  pacer_memory m;                  // heap, used, free
  uint64_t request;                //
  uint64_t limit_goal, goal, room; // wanted, as what follows
  bool reached;
} limit_cases[] = {
#define M(n) ((uint64_t)(n) << 20)
    {"no limit",
     {100, 0, M(10), 0, 0, 0, PACER_NO_LIMIT},
     {M(15), M(17), M(1)},
     0,
     PACER_NO_GOAL,
     M(20),
     UINT64_MAX,
     false},
    {"no limit, and a request for all there is",
     {100, 0, M(10), 0, 0, 0, PACER_NO_LIMIT},
     {UINT64_MAX, UINT64_MAX, 0},
     UINT64_MAX,
     PACER_NO_GOAL,
     M(20),
     UINT64_MAX,
     false},
    {"no limit, percent off",
     {-1, 0, M(10), 0, 0, 0, PACER_NO_LIMIT},
     {M(15), M(17), 0},
     0,
     PACER_NO_GOAL,
     PACER_NO_GOAL,
     UINT64_MAX,
     false},
    {"far",
     {100, 0, M(10), 0, 0, 0, M(1024)},
     {M(10), M(12), M(5)},
     0,
     M(1021),
     M(20),
     M(1011),
     false},
    {"far, percent off",
     {-1, 0, M(10), 0, 0, 0, M(1024)},
     {M(10), M(12), M(5)},
     0,
     M(1021),
     M(1021),
     M(1011),
     false},
    {"near: it is the limit that sets the goal",
     {100, 0, M(50), 0, 0, 0, M(64)},
     {M(60), M(62), 0},
     0,
     M(61),
     M(61),
     M(1),
     false},
    {"near, a request just below",
     {100, 0, M(50), 0, 0, 0, M(64)},
     {M(60), M(62), 0},
     M(1) - 1,
     M(61),
     M(61),
     1,
     false},
    {"near, one that reaches it",
     {100, 0, M(50), 0, 0, 0, M(64)},
     {M(60), M(62), 0},
     M(1),
     M(61),
     M(61),
     0,
     true},
    {"just as far as percent",
     {100, 0, M(10), 0, 0, 0, M(23)},
     {M(10), M(12), 0},
     0,
     M(20),
     M(20),
     M(10),
     false},
    {"a byte nearer",
     {100, 0, M(10), 0, 0, 0, M(23) - 1},
     {M(10), M(12), 0},
     0,
     M(20) - 1,
     M(20) - 1,
     M(10) - 1,
     false},
    {"below what is live",
     {100, 0, M(80), 0, 0, 0, M(64)},
     {M(90), M(92), 0},
     0,
     M(80),
     M(80),
     0,
     true},
    {"below what is live, of which much was freed by hand",
     {100, 0, M(80), 0, 0, 0, M(64)},
     {M(30), M(32), 0},
     0,
     M(80),
     M(80),
     M(31),
     false},
    {"live just below the limit",
     {100, 0, M(62), 0, 0, 0, M(64)},
     {M(62), M(63), 0},
     0,
     M(62),
     M(62),
     0,
     true},
    {"percent 0", {0, 0, M(10), 0, 0, 0, M(64)}, {M(10), M(12), 0}, 0, M(61), M(10), M(51), false},
    {"a smallest heap does not count against the limit",
     {100, M(256), M(10), 0, 0, 0, M(64)},
     {M(10), M(12), 0},
     0,
     M(61),
     M(61),
     M(51),
     false},
    {"0", {100, 0, 0, 0, 0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, true},
    {"0, with something live", {100, 0, 1000, 0, 0, 0, 0}, {1000, 2000, 0}, 0, 1000, 1000, 0, true},
    {"1", {100, 0, 0, 0, 0, 0, 1}, {0, 0, 0}, 1, 0, 0, 0, true},
    {"the headroom alone", {100, 0, 0, 0, 0, 0, M(1)}, {0, 0, 0}, 0, 0, 0, 0, true},
    {"a byte more than it", {100, 0, 0, 0, 0, 0, M(1) + 1}, {0, 0, 0}, 0, 1, 1, 1, false},
    {"INT64_MAX",
     {100, 0, M(10), 0, 0, 0, INT64_MAX},
     {M(10), M(12), 0},
     0,
     INT64_MAX - M(3),
     M(20),
     INT64_MAX - M(13),
     false},
    {"INT64_MAX, percent off",
     {-1, 0, M(10), 0, 0, 0, INT64_MAX},
     {M(10), M(12), 0},
     (uint64_t)INT64_MAX,
     INT64_MAX - M(3),
     INT64_MAX - M(3),
     0,
     true},
    {"used seen smaller than the heap",
     {100, 0, M(50), 0, 0, 0, M(64)},
     {M(60), M(50), 0},
     0,
     M(63),
     M(63),
     M(13),
     false},
    {"a request for all there is",
     {100, 0, M(10), 0, 0, 0, M(64)},
     {M(10), M(12), 0},
     UINT64_MAX,
     M(61),
     M(20),
     0,
     true},
    {"one that does not fit into the sum",
     {100, 0, M(10), 0, 0, 0, M(64)},
     {M(10), M(12), 0},
     UINT64_MAX - M(1),
     M(61),
     M(20),
     0,
     true},
    {"external bytes are live",
     {100, 0, M(10), 0, 0, M(30), M(64)},
     {M(45), M(47), 0},
     0,
     M(61),
     M(61),
     M(16),
     false},
    {"external bytes alone above the limit",
     {100, 0, M(1), 0, 0, M(80), M(64)},
     {M(81), M(83), 0},
     0,
     M(81),
     M(81),
     0,
     true},
    {"external bytes in percent's part",
     {100, 0, M(10), 0, 0, M(20), PACER_NO_LIMIT},
     {M(45), M(47), 0},
     0,
     PACER_NO_GOAL,
     M(60),
     UINT64_MAX,
     false},
    {"live and external do not fit into the sum",
     {100, 0, UINT64_MAX, 0, 0, 1, M(64)},
     {M(1), M(2), 0},
     0,
     UINT64_MAX,
     UINT64_MAX,
     M(61),
     false},
    {"all is mapped beside the heap",
     {100, 0, M(10), 0, 0, 0, M(64)},
     {0, UINT64_MAX, 0},
     0,
     M(10),
     M(10),
     0,
     false},
    {"free memory does not count",
     {100, 0, M(10), 0, 0, 0, M(64)},
     {M(10), M(12), M(500)},
     0,
     M(61),
     M(20),
     M(51),
     false},
#undef M
};

START_TEST(limit_on_a_table_of_cases) {
  const pacer *p = &limit_cases[_i].p;
  const pacer_memory *m = &limit_cases[_i].m;
  const char *what = limit_cases[_i].what;
  uint64_t request = limit_cases[_i].request;
  uint64_t by_limit = pacer_limit_goal(p, m), goal = pacer_goal(p, m);
  uint64_t room = pacer_limit_room(p, m, request);
  ck_assert_msg(by_limit == limit_cases[_i].limit_goal, "%s: %#llx by limit", what,
                (unsigned long long)by_limit);
  ck_assert_msg(goal == limit_cases[_i].goal, "%s: %#llx", what, (unsigned long long)goal);
  ck_assert_msg(room == limit_cases[_i].room, "%s: room %#llx", what, (unsigned long long)room);
  ck_assert_msg(pacer_limit_reached(p, m, request) == limit_cases[_i].reached, "%s: reached", what);
}
END_TEST

START_TEST(trigger_is_percents_goal_but_for_0_percent) {
  pacer p = of((numbers){100, 0, 10 << 20, 0, 0});
  ck_assert_uint_eq(pacer_trigger(&p), 20 << 20);
  p.percent = 0;
  ck_assert_uint_eq(pacer_trigger(&p), 0);
  ck_assert_uint_eq(pacer_percent_goal(&p), 10 << 20);
  p.min_heap_bytes = 64 << 20;
  ck_assert_uint_eq(pacer_trigger(&p), 64 << 20);
  p.percent = -1;
  ck_assert_uint_eq(pacer_trigger(&p), PACER_NO_GOAL);
}
END_TEST

static uint64_t sum_at_most(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static uint64_t more_than(uint64_t *state, uint64_t n) {
  return n + (n < UINT64_MAX ? random_below(state, UINT64_MAX - n) : 0);
}

static void must_be_monotone(uint64_t *state, const pacer *p, const pacer_memory *m) {
  uint64_t goal = pacer_goal(p, m), by_limit = pacer_limit_goal(p, m);
  pacer more = *p;
  more.limit_bytes = more_than(state, p->limit_bytes);
  MUST(pacer_limit_goal(&more, m) >= by_limit && pacer_goal(&more, m) >= goal);
  MUST(pacer_limit_room(&more, m, 0) >= pacer_limit_room(p, m, 0));
  more.limit_bytes = PACER_NO_LIMIT;
  MUST(pacer_goal(&more, m) >= goal);
  more = *p;
  more.percent =
      (int)(p->percent + (int64_t)random_below(state, (size_t)(INT32_MAX - (int64_t)p->percent)));
  MUST(p->percent < 0 || pacer_goal(&more, m) >= goal);
  more.percent = -1;
  MUST(pacer_goal(&more, m) >= goal);
  more = *p;
  more.external_bytes = more_than(state, p->external_bytes);
  MUST(pacer_goal(&more, m) >= goal);
  pacer_memory beside = *m;
  beside.used_bytes = more_than(state, m->used_bytes);
  MUST(pacer_limit_goal(p, &beside) <= by_limit && pacer_goal(p, &beside) <= goal);
  MUST(pacer_limit_room(p, &beside, 0) <= pacer_limit_room(p, m, 0));
}

START_TEST(goal_with_a_limit_is_above_live_and_monotone) {
  uint64_t state = test_seed();
  for (int i = 0; i < 200000; i++) {
    pacer p = of((numbers){(int)(random_size(&state) >> 33) - 1,
                           random_below(&state, 2) ? random_size(&state) : 0, random_size(&state),
                           random_size(&state), random_size(&state)});
    p.external_bytes = random_below(&state, 2) ? random_size(&state) : 0;
    p.limit_bytes = random_below(&state, 8) ? random_size(&state) : PACER_NO_LIMIT;
    pacer_memory m = {random_size(&state), random_size(&state), random_size(&state)};
    uint64_t live = sum_at_most(p.live_bytes, p.external_bytes), goal = pacer_goal(&p, &m);
    MUST(goal >= live);
    MUST(goal <= pacer_percent_goal(&p) && goal <= pacer_limit_goal(&p, &m));
    MUST(goal == pacer_percent_goal(&p) || goal == pacer_limit_goal(&p, &m));
    MUST(p.percent < 0 || pacer_percent_goal(&p) >= live);
    must_be_monotone(&state, &p, &m);

    // Below its goal the heap leaves the limit alone; there it is not above it, unless live is.
    uint64_t by_limit = pacer_limit_goal(&p, &m);
    bool limited = p.limit_bytes != PACER_NO_LIMIT;
    MUST(pacer_limit_reached(&p, &m, 0) == (limited && m.heap_bytes >= by_limit));
    MUST(pacer_limit_reached(&p, &m, UINT64_MAX) == limited);
    uint64_t beside = m.used_bytes > m.heap_bytes ? m.used_bytes - m.heap_bytes : 0;
    MUST(!limited || by_limit == live || sum_at_most(by_limit, beside) < p.limit_bytes);
    uint64_t request = random_size(&state), room = pacer_limit_room(&p, &m, request);
    MUST(!limited || !room ||
         sum_at_most(sum_at_most(room, m.used_bytes), request) < p.limit_bytes);
  }
}
END_TEST

// ---- The knobs ------------------------------------------------------------------------------

static volatile uintptr_t sink;

static void make_garbage(size_t bytes, size_t object_bytes) {
  for (size_t done = 0; done < bytes; done += object_bytes)
    sink = (uintptr_t)tide_alloc_leaf(object_bytes);
  sink = 0;
}

START_TEST(percent_moves_the_goal_at_once) {
  init_with(OPTIONS(o.gc_percent = 100));
  ck_assert_uint_eq(read_stats().next_gc, 4 * MIB);
  ck_assert_int_eq(tide_gc_percent_set(200), 100);
  ck_assert_uint_eq(read_stats().next_gc, 8 * MIB);
  ck_assert_int_eq(read_stats().gc_percent, 200);
  ck_assert_int_eq(tide_gc_percent_set(-7), 200);
  ck_assert_uint_eq(read_stats().next_gc, UINT64_MAX);
  ck_assert_int_eq(read_stats().gc_percent, -1);
  ck_assert_int_eq(tide_gc_percent_set(0), -1);
  ck_assert_uint_eq(read_stats().next_gc, 0);
  ck_assert_int_eq(tide_gc_percent_set(100), 0);
  ck_assert_uint_eq(read_stats().next_gc, 4 * MIB);
  ck_assert_uint_eq(read_stats().num_gc, 0);
}
END_TEST

START_TEST(smallest_heap_moves_the_goal_at_once) {
  init_with(OPTIONS(o.gc_percent = 100, o.min_heap_bytes = 32 << 20));
  ck_assert_uint_eq(read_stats().next_gc, 32 * MIB);
  ck_assert_uint_eq(tide_min_heap_set(64 * MIB), 32 * MIB);
  ck_assert_uint_eq(read_stats().next_gc, 64 * MIB);
  ck_assert_uint_eq(tide_min_heap_set(0), 64 * MIB);
  ck_assert_uint_eq(read_stats().next_gc, 4 * MIB);
  ck_assert_uint_eq(tide_min_heap_set(MIB), 0);
  make_garbage(2 * MIB, 1024);
  ck_assert_uint_ge(read_stats().num_gc, 1);
}
END_TEST

START_TEST(lower_percent_collects_at_the_next_slow_path) {
  init_with(OPTIONS(o.gc_percent = 400)); // the goal is 16 MiB
  make_garbage(8 * MIB, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  tide_gc_percent_set(100);
  ck_assert_uint_eq(read_stats().num_gc, 0); // the call itself does not collect
  make_garbage(8192, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(higher_percent_puts_the_collection_off) {
  init_with(OPTIONS(o.gc_percent = 100));
  make_garbage(3 * MIB, 1024);
  tide_gc_percent_set(400);
  make_garbage(12 * MIB, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  make_garbage(2 * MIB, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(smaller_smallest_heap_collects_at_the_next_slow_path) {
  init_with(OPTIONS(o.min_heap_bytes = 64 << 20));
  make_garbage(16 * MIB, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  tide_min_heap_set(0);
  make_garbage(8192, 1024);
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(percent_0_collects_at_each_slow_path) {
  init_with(OPTIONS(o.gc_percent = 0));
  for (uint64_t i = 1; i <= 20; i++) {
    sink = (uintptr_t)tide_alloc_leaf(100000);
    ck_assert_uint_eq(read_stats().num_gc, i);
  }
}
END_TEST

START_TEST(percent_0_collects_also_below_what_was_live) {
  init_with(OPTIONS(o.gc_percent = 0));
  void *volatile kept = tide_alloc_leaf(8 * MIB);
  tide_collect();
  tide_free(kept); // the heap is now far below what the last collection found live
  kept = NULL;
  uint64_t before = read_stats().num_gc;
  for (int i = 0; i < 10; i++) sink = (uintptr_t)tide_alloc_leaf(100000);
  ck_assert_uint_eq(read_stats().num_gc, before + 10);
}
END_TEST

START_TEST(percent_off_never_collects) {
  init_with(OPTIONS(o.gc_percent = -1));
  make_garbage(64 * MIB, 1024);
  make_garbage(64 * MIB, 1 << 20);
  ck_assert_uint_eq(read_stats().num_gc, 0);
  tide_collect();
  ck_assert_uint_eq(read_stats().num_gc, 1);
  ck_assert_uint_eq(read_stats().next_gc, UINT64_MAX);
}
END_TEST

// ---- The collections of a running program ---------------------------------------------------

static tide_cycle last_cycle;
static void note_cycle(const tide_cycle *cycle, void *arg) {
  last_cycle = *cycle;
}

START_TEST(goal_in_force_is_the_formula_of_what_the_collection_found) {
  init_with(OPTIONS(o.gc_percent = 150));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, note_cycle, NULL));
  void *volatile kept = tide_alloc_leaf(10 * MIB);
  tide_collect();
  ck_assert_uint_ge(last_cycle.live_bytes, 10 * MIB);
  ck_assert_uint_gt(last_cycle.stack_bytes, 0);
  ck_assert_uint_gt(last_cycle.global_bytes, 0);
  pacer p =
      of((numbers){150, 0, last_cycle.live_bytes, last_cycle.stack_bytes, last_cycle.global_bytes});
  ck_assert_uint_eq(last_cycle.next_goal_bytes, pacer_percent_goal(&p));
  ck_assert_uint_eq(read_stats().next_gc, pacer_percent_goal(&p));
  sink = (uintptr_t)kept;
}
END_TEST

// Builds a list of `bytes` in 1 KiB nodes, with `garbage` nodes in every ten dropped at once.
static void *volatile list;
static void build(size_t bytes, int garbage) {
  size_t nodes = bytes / 1024;
  for (size_t i = 0; i < nodes; i++) {
    if (i % 10 < (size_t)garbage) sink = (uintptr_t)tide_alloc(1024);
    void **node = tide_alloc(1024);
    MUST(node);
    *node = list;
    list = node;
  }
}

START_TEST(growth_collects_a_logarithmic_number_of_times) {
  static const struct {
    int percent, garbage;
    uint64_t most;
  } runs[] = {{50, 0, 15}, {100, 0, 8}, {100, 2, 10}, {200, 0, 6}}; // log(256/4) / log(1 + p) + 2
  init_with(OPTIONS(o.gc_percent = runs[_i].percent));
  build(256 * MIB, runs[_i].garbage);
  uint64_t collections = read_stats().num_gc;
  ck_assert_uint_le(collections, runs[_i].most);
  ck_assert_uint_ge(collections, runs[_i].most / 3);
}
END_TEST

START_TEST(growth_within_the_smallest_heap_collects_never) {
  init_with(OPTIONS(o.min_heap_bytes = 300 << 20));
  ck_assert_uint_lt(resident_bytes(), (UNDER_ASAN ? 150 : 30) * MIB); // costs nothing until used
  build(256 * MIB, 0);
  ck_assert_uint_eq(read_stats().num_gc, 0);
}
END_TEST

// Allocation counted by the test itself, and what it was at the last collection.
static uint64_t allocated_bytes, allocated_then, live_then, too_early, automatic;
static void check_distance(const tide_cycle *cycle, void *arg) {
  enum { SLACK = 64 * 1024 }; // what runs of free slots hold beyond what was allocated
  if (cycle->cause == TIDE_CAUSE_GOAL) {
    automatic++;
    if (allocated_bytes - allocated_then + SLACK < live_then) too_early++;
  }
  allocated_then = allocated_bytes;
  live_then = cycle->live_bytes;
}

static void *allocate_counted(size_t bytes) {
  allocated_bytes += bytes;
  return tide_alloc(bytes);
}

START_TEST(automatic_collections_keep_their_distance) {
  // A steady live heap below, around and above the one at which the floor gives way, with churn.
  static const size_t live[] = {100 << 10,         (2 << 20) - 70000, 2 << 20, (2 << 20) + 70000,
                                (4 << 20) - 70000, 4 << 20,           5 << 20, 20 << 20};
  init_with(OPTIONS(o.gc_percent = 100));
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_MARK_DONE, check_distance, NULL));
  for (size_t bytes = 0; bytes < live[_i]; bytes += 1024) {
    void **node = allocate_counted(1024);
    *node = list;
    list = node;
  }
  size_t churn = 8 * live[_i] + 64 * MIB;
  for (size_t bytes = 0; bytes < churn; bytes += 512) sink = (uintptr_t)allocate_counted(512);
  ck_assert_uint_ge(automatic, 3);
  ck_assert_uint_eq(too_early, 0);
  size_t growth = live[_i] < 2 * MIB ? 4 * MIB - live[_i] : live[_i];
  ck_assert_uint_le(automatic, (churn + live[_i]) / growth + 3);
}
END_TEST

START_TEST(small_live_heap_with_much_churn_collects_once_per_floor) {
  init_with(OPTIONS(o.gc_percent = 100));
  build(100 << 10, 0);
  make_garbage(256 * MIB, 64);
  ck_assert_uint_le(read_stats().num_gc, 256 / 4 + 2);
  if (!UNDER_ASAN) ck_assert_uint_ge(read_stats().num_gc, 256 / 4 - 6); // its data are roots
}
END_TEST

START_TEST(large_objects_keep_the_same_pace) {
  init_with(OPTIONS(o.gc_percent = 100));
  void *volatile kept = tide_alloc_leaf(8 * MIB);
  tide_collect();
  make_garbage(256 * MIB, 1 << 20);
  ck_assert_uint_le(read_stats().num_gc, 1 + 256 / 8 + 1);
  // Live may be seen as 4 MiB more: the last objects, in registers and on the stack.
  if (!UNDER_ASAN) ck_assert_uint_ge(read_stats().num_gc, 1 + 256 / 12);
  sink = (uintptr_t)kept;
}
END_TEST

START_TEST(free_by_hand_puts_the_collection_off) {
  init_with(OPTIONS(o.gc_percent = 100));
  for (int i = 0; i < 200; i++) tide_free(tide_alloc_leaf(MIB));
  for (int i = 0; i < 200000; i++) tide_free(tide_alloc(256));
  ck_assert_uint_eq(read_stats().num_gc, 0);
}
END_TEST

static pthread_barrier_t all_have_runs, may_end;
static void *touch_every_class(void *arg) {
  for (size_t bytes = 16; bytes <= 2048; bytes += bytes / 8 < 16 ? 16 : bytes / 8) {
    sink = (uintptr_t)tide_alloc(bytes);
    sink = (uintptr_t)tide_alloc_leaf(bytes);
  }
  pthread_barrier_wait(&all_have_runs);
  pthread_barrier_wait(&may_end);
  return NULL;
}

START_TEST(free_slots_that_idle_threads_hold_do_not_hasten_collections) {
  enum { THREADS = 40 };
  init_with(OPTIONS(o.gc_percent = 100));
  pthread_barrier_init(&all_have_runs, NULL, THREADS + 1);
  pthread_barrier_init(&may_end, NULL, THREADS + 1);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(tide_thread_create(&threads[i], NULL, touch_every_class, NULL), 0);
  pthread_barrier_wait(&all_have_runs);
  tide_collect();
  uint64_t before = read_stats().num_gc;
  make_garbage(64 * MIB, 256);
  uint64_t collections = read_stats().num_gc - before;
  pthread_barrier_wait(&may_end);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ck_assert_uint_le(collections, 64 / 4 + 4);
}
END_TEST

// ---- Free memory that is kept ---------------------------------------------------------------

START_TEST(free_memory_is_kept_up_to_a_tenth_more_than_needed) {
  static const struct {
    uint64_t needed, bytes, keep;
  } kept[] = {
      {100 * MIB, 0, 110 * MIB},        {100 * MIB, 60 * MIB, 50 * MIB},
      {100 * MIB, 100 * MIB, 10 * MIB}, {100 * MIB, 105 * MIB, 10 * MIB},
      {100 * MIB, 500 * MIB, 10 * MIB}, {0, 0, 5 * MIB}, // 4 MiB is the least, 1 MiB to spare
      {4 * MIB, 3 * MIB, 2 * MIB},      {5 * MIB, 5 * MIB, MIB},
      {UINT64_MAX, 0, UINT64_MAX},      {INT64_MAX, INT64_MAX, INT64_MAX / 10},
  };
  ck_assert_uint_eq(pacer_keep(kept[_i].needed, kept[_i].bytes), kept[_i].keep);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("pacer");
  TCase *formula = tcase_create("formula");
  tcase_set_timeout(formula, 30);
  tcase_add_loop_test(formula, goal_on_a_table_of_cases, 0, LENGTH(cases));
  tcase_add_test(formula, goal_is_above_live_and_floor_and_monotone);
  tcase_add_loop_test(formula, limit_on_a_table_of_cases, 0, LENGTH(limit_cases));
  tcase_add_test(formula, trigger_is_percents_goal_but_for_0_percent);
  tcase_add_test(formula, goal_with_a_limit_is_above_live_and_monotone);
  tcase_add_loop_test(formula, free_memory_is_kept_up_to_a_tenth_more_than_needed, 0, 10);
  suite_add_tcase(suite, formula);
  TCase *knobs = tcase_create("knobs");
  tcase_set_timeout(knobs, 30);
  tcase_add_test(knobs, percent_moves_the_goal_at_once);
  tcase_add_test(knobs, smallest_heap_moves_the_goal_at_once);
  tcase_add_test(knobs, lower_percent_collects_at_the_next_slow_path);
  tcase_add_test(knobs, higher_percent_puts_the_collection_off);
  tcase_add_test(knobs, smaller_smallest_heap_collects_at_the_next_slow_path);
  tcase_add_test(knobs, percent_0_collects_at_each_slow_path);
  tcase_add_test(knobs, percent_0_collects_also_below_what_was_live);
  tcase_add_test(knobs, percent_off_never_collects);
  suite_add_tcase(suite, knobs);
  TCase *running = tcase_create("running program");
  tcase_set_timeout(running, 30);
  tcase_add_test(running, goal_in_force_is_the_formula_of_what_the_collection_found);
  tcase_add_loop_test(running, growth_collects_a_logarithmic_number_of_times, 0, 4);
  tcase_add_test(running, growth_within_the_smallest_heap_collects_never);
  tcase_add_loop_test(running, automatic_collections_keep_their_distance, 0, 8);
  tcase_add_test(running, small_live_heap_with_much_churn_collects_once_per_floor);
  tcase_add_test(running, large_objects_keep_the_same_pace);
  tcase_add_test(running, free_by_hand_puts_the_collection_off);
  tcase_add_test(running, free_slots_that_idle_threads_hold_do_not_hasten_collections);
  suite_add_tcase(suite, running);
  return run_suite(suite);
}
