// SPDX-License-Identifier: MIT
// The advisor: what it finds out about pools that are used in known ways, and whether its promises
// hold. For that the advice is followed, the same program runs again, and its hit rate is measured.
#include "advisor_testing.h"

#include "advice.h"

#include <math.h>
#include <stdbool.h>

enum { USES = 40 };

// ---- Values in reports ----------------------------------------------------------------------

static const char *value_of(const char *line, const char *field) {
  char wanted[64];
  snprintf(wanted, sizeof wanted, "\"%s\":", field);
  const char *at = strstr(line, wanted);
  ck_assert_msg(at != NULL, "no field %s in %s", field, line);
  return at + strlen(wanted);
}

// null is 0: no field has both.
static double number(const char *line, const char *field) {
  const char *value = value_of(line, field);
  return strncmp(value, "null", 4) ? strtod(value, NULL) : 0;
}

#define ASSERT_NUMBER(line, field, wanted)                                                         \
  ck_assert_msg(fabs(number(line, field) - (double)(wanted)) < 1e-4, "%s is %g, not %g, in %s",    \
                field, number(line, field), (double)(wanted), line)

static void assert_word(const char *line, const char *field, const char *wanted) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", wanted);
  ck_assert_msg(!strncmp(value_of(line, field), quoted, strlen(quoted)), "%s is not %s in %s",
                field, wanted, line);
}

// ---- Programs -------------------------------------------------------------------------------

// Uses with so many collections in between, by turns.
typedef struct pattern {
  const char *what;
  int gaps[8], length; // the gaps repeat
  double hits;         // of the gets that have something to find, with survive 1
  bool even;
  int survive; // what makes it good; 0: it is
  int uses;    // after the first
} pattern;

static const pattern patterns[] = {
    {"every collection", {1}, 1, 1, true, 0, USES},
    {"every 2nd", {2}, 1, 0, true, 2, USES},
    {"every 3rd", {3}, 1, 0, true, 3, USES},
    {"every 5th", {5}, 1, 0, true, 5, USES},
    {"every 1.5", {1, 2}, 2, 0.5, true, 2, USES},
    {"every 2.5", {2, 3}, 2, 0, true, 3, USES},
    {"mixed", {1, 2, 3, 5}, 4, 0.25, false, 5, USES},
    {"long pauses", {1, 1, 1, 1, 1, 1, 1, 40}, 8, 7.0 / 8, false, 40, USES},
    {"too long for survive", {TIDE_SURVIVE_MAX + 1}, 1, 0, true, 0, 4},
};

// 1 + a multiple of every length: all gaps come equally often.
static void run_pattern(tide_pool *pool, const pattern *p) {
  for (int i = 0; i <= p->uses; i++) {
    use(pool, ITEMS);
    if (i < p->uses) collect_times(p->gaps[i % p->length]);
  }
}

static double mean_gap(const pattern *p) {
  double sum = 0;
  for (int i = 0; i < p->length; i++) sum += p->gaps[i];
  return sum / p->length;
}

// Without the cold misses.
static double measured(tide_pool *pool, int cold) {
  tide_pool_stats s;
  tide_pool_stats_read(pool, &s);
  return 1 - (double)(s.misses - (uint64_t)cold) / (double)(s.gets - (uint64_t)cold);
}

// ---- Numbers --------------------------------------------------------------------------------

START_TEST(the_numbers_are_those_of_the_pattern) {
  const pattern *p = &patterns[_i];
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  run_pattern(pool, p);
  const char *line = json_of("x");
  int again = p->uses * ITEMS;
  ASSERT_NUMBER(line, "gets", again + ITEMS);
  ASSERT_NUMBER(line, "puts", again + ITEMS);
  ASSERT_NUMBER(line, "cold", ITEMS);
  ASSERT_NUMBER(line, "demand", 0);
  ASSERT_NUMBER(line, "forgotten", again * (1 - p->hits));
  ASSERT_NUMBER(line, "hit_rate", again * p->hits / (again + ITEMS));
  ASSERT_NUMBER(line, "gap", mean_gap(p));
  assert_word(line, "predicted_by", p->even ? "even" : "gaps");
  // The prediction comes from the gaps alone, and is what was measured.
  ASSERT_NUMBER(line, "predicted", number(line, "hit_rate"));
  ASSERT_NUMBER(line, "survive", p->survive);
  ASSERT_NUMBER(line, "free_list", p->hits == 1 ? 0 : ITEMS);
  ASSERT_NUMBER(line, "gc_percent", 0); // collections are tide_collect's
  ASSERT_NUMBER(line, "items", ITEMS);
  ck_assert_double_ge(number(line, "bytes"), ITEMS * ITEM_BYTES);
  assert_word(line, "trouble", p->hits == 1 ? "fine" : "forgotten");
  char sentence[64];
  snprintf(sentence, sizeof sentence, "Used every %.1f collections", mean_gap(p));
  if (p->hits == 1)
    assert_contains(line, "Nothing to do.");
  else
    assert_contains(line, sentence);
}
END_TEST

START_TEST(misses_are_told_apart) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  use(pool, 4); // 4 cold
  use(pool, 6); // 2 for want of items
  collect_times(2);
  use(pool, 3); // 3 of 6 that were forgotten
  use(pool, 7); // 3 more of them, and 1 that never was there
  tide_pool_stats s;
  tide_pool_stats_read(pool, &s);
  ck_assert_uint_eq(s.forgotten[2], 6);
  ck_assert_uint_eq(s.needed_most, 7);
  ck_assert_uint_eq(s.created_bytes, s.created * ITEM_BYTES);
  collect_times(3);
  use(pool, 1);
  const char *line = json_of("x");
  ASSERT_NUMBER(line, "cold", 4);
  ASSERT_NUMBER(line, "demand", 3);
  ASSERT_NUMBER(line, "forgotten", 7);
  tide_pool_stats_reset(pool);
  line = json_of("x");
  ASSERT_NUMBER(line, "cold", 0);
  ASSERT_NUMBER(line, "demand", 0);
  ASSERT_NUMBER(line, "forgotten", 0);
  assert_word(line, "trouble", "too_few_data");
}
END_TEST

START_TEST(after_a_reset_the_gaps_are_those_since) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  run_pattern(pool, &patterns[0]);
  collect_times(3);
  tide_pool_stats_reset(pool);
  for (int i = 0; i < 10; i++) {
    use(pool, ITEMS);
    collect_times(3);
  }
  const char *line = json_of("x");
  ASSERT_NUMBER(line, "gap", 3);
  ASSERT_NUMBER(line, "cold", 0);
  ASSERT_NUMBER(line, "forgotten", 10 * ITEMS);
  ASSERT_NUMBER(line, "survive", 3);
}
END_TEST

START_TEST(the_worst_comes_first) {
  static const int uses[] = {1, 3, 2};
  tide_pool *pools[3];
  for (int i = 0; i < 3; i++) pools[i] = pool_with((tide_pool_options){.name = &"abc"[i]});
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < 3; i++) use(pools[i], uses[i]);
    collect_times(3);
  }
  const char *text = report_of(tide_pool_report);
  const char *bc = strstr(text, "pool bc:"), *c = strstr(text, "pool c:");
  const char *abc = strstr(text, "pool abc:");
  ck_assert(bc && c && abc && bc < c && c < abc);
  assert_contains(text, "tidepool: 3 pools of process");
  assert_contains(text, "90 collections (90 forced)");
}
END_TEST

// ---- Promises -------------------------------------------------------------------------------

// The rates are exact here; without that a few percent would be allowed.
START_TEST(the_advised_survive_keeps_the_promise) {
  const pattern *p = &patterns[_i];
  if (!p->survive) return;
  run_pattern(pool_with((tide_pool_options){.name = "before"}), p);
  const char *line = json_of("before");
  int survive = (int)number(line, "survive");
  ck_assert_double_ge(number(line, "promised"), 0.98);
  tide_pool *after = pool_with((tide_pool_options){.name = "after", .survive = survive});
  run_pattern(after, p);
  ck_assert_double_ge(measured(after, ITEMS), number(line, "promised"));
  assert_word(json_of("after"), "trouble", "fine");
  // No smaller one does.
  tide_pool *less = pool_with((tide_pool_options){.survive = survive - 1});
  run_pattern(less, p);
  ck_assert_double_lt(measured(less, ITEMS), number(line, "promised"));
}
END_TEST

// A free list, as simple as can be.
START_TEST(a_free_list_of_the_advised_size_keeps_the_promise) {
  const pattern *p = &patterns[_i];
  if (p->hits == 1) return;
  run_pattern(pool_with((tide_pool_options){.name = "before"}), p);
  const char *line = json_of("before");
  static void *list[ITEMS_MOST];
  int room = (int)number(line, "free_list"), count = 0, hits = 0;
  for (int i = 0; i <= p->uses; i++) {
    for (int item = 0; item < ITEMS; item++) {
      hits += count > 0;
      held[item] = count ? list[--count] : make_item(NULL);
    }
    for (int item = 0; item < ITEMS; item++)
      if (count < room) list[count++] = held[item];
    tide_collect();
  }
  ck_assert_double_ge((double)hits / (p->uses * ITEMS), number(line, "promised"));
}
END_TEST

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// A use every third collection, of which there is one every 10 ms. Returns how many of the uses had
// more than idle_ns in front of them: a machine may have much else to do.
static int run_in_time(tide_pool *pool, uint64_t idle_ns) {
  int late = 0;
  uint64_t put_at_ns = 0;
  for (int i = 0; i <= USES; i++) {
    late += i && now_ns() - put_at_ns > idle_ns;
    put_at_ns = now_ns();
    use(pool, ITEMS);
    for (int k = 0; k < 3; k++) {
      usleep(10000);
      tide_collect();
    }
  }
  return late;
}

START_TEST(the_advised_min_idle_ns_keeps_the_promise) {
  run_in_time(pool_with((tide_pool_options){.name = "before"}), UINT64_MAX);
  const char *line = json_of("before");
  double t_ns = number(line, "gap_ns"), idle_ns = number(line, "min_idle_ns");
  ck_assert_double_ge(t_ns, 30e6);
  ck_assert_double_ge(idle_ns, 1.25 * t_ns - 1);
  ck_assert_double_le(idle_ns, 1.25 * t_ns + 1e6);
  tide_pool *after = pool_with((tide_pool_options){.min_idle_ns = (uint64_t)idle_ns});
  int late = run_in_time(after, (uint64_t)idle_ns);
  ck_assert_double_ge(measured(after, ITEMS), number(line, "promised") - (double)late / USES);
  ck_assert_int_le(late, USES / 2);
}
END_TEST

// A program whose collections come from what it allocates. A use comes for so many times the bytes
// that the heap may grow by.
typedef struct allocating {
  const char *what;
  size_t live_bytes;
  double growths_per_use;
  int64_t limit_bytes; // 0: none
} allocating;

static const allocating programs[] = {
    {"8 MiB live", 8 * MIB, 2.3, 0},
    {"nothing live: the smallest heap counts", 0, 2.5, 0},
    {"32 MiB live, a third is missed", 32 * MIB, 1.37, 0},
    {"at the limit", 8 * MIB, 2.4, 40 * MIB},
};

static void *volatile live; // a root, also to the compiler, which sees nobody read it

static size_t growth_bytes(void) {
  tide_collect();
  tide_memstats stats = read_stats();
  return stats.next_gc - stats.heap_alloc;
}

static void run_allocating(tide_pool *pool, size_t bytes_per_use) {
  enum { CHUNK_BYTES = 64 << 10 };
  size_t allocated = 0, next_use = 0;
  for (int uses = 0; uses <= USES;) {
    if (allocated >= next_use) {
      use(pool, ITEMS);
      uses++;
      next_use += bytes_per_use;
    }
    MUST(tide_alloc_leaf(CHUNK_BYTES));
    allocated += CHUNK_BYTES;
  }
}

// Returns its bytes per use.
static size_t run_before(const allocating *program) {
  one_processor();
  if (program->limit_bytes) {
    tide_gc_percent_set(-1);
    tide_memory_limit_set(program->limit_bytes);
  }
  if (program->live_bytes) live = tide_alloc_leaf(program->live_bytes);
  tide_pool *pool = pool_with((tide_pool_options){.name = "before"});
  size_t bytes_per_use = (size_t)(program->growths_per_use * (double)growth_bytes());
  run_allocating(pool, bytes_per_use);
  return bytes_per_use;
}

START_TEST(the_advised_pace_keeps_the_promise) {
  const allocating *program = &programs[_i];
  // Clang links it into the program, and then its tables are scanned as well: at the limit the
  // program would do nothing but collect.
  if (UNDER_ASAN && program->limit_bytes) return;
  size_t bytes_per_use = run_before(program);
  const char *line = json_of("before");
  assert_word(line, "trouble", "forgotten");
  assert_word(line, "predicted_by", "even");
  ck_assert_msg(fabs(number(line, "gap") - program->growths_per_use) < 0.3, "%s", line);
  ck_assert_double_le(fabs(number(line, "predicted") - number(line, "hit_rate")), 0.05);
  if (program->limit_bytes) {
    ASSERT_NUMBER(line, "gc_percent", 0);
    ASSERT_NUMBER(line, "survive", 0); // of no use at the limit
    ck_assert_double_gt(number(line, "memory_limit"), (double)program->limit_bytes);
    assert_contains(line, "The memory limit sets the pace");
    tide_memory_limit_set((int64_t)number(line, "memory_limit"));
  } else {
    ASSERT_NUMBER(line, "memory_limit", 0);
    ck_assert_double_gt(number(line, "gc_percent"), 100 * (number(line, "gap")));
    ck_assert_double_lt(number(line, "gc_percent"), 125 * (number(line, "gap")));
    tide_gc_percent_set((int)number(line, "gc_percent"));
  }
  tide_collect(); // the pace is as new
  tide_pool *after = pool_with((tide_pool_options){.name = "after"});
  run_allocating(after, bytes_per_use);
  ck_assert_double_ge(measured(after, ITEMS), number(line, "promised") - 0.05);
  assert_word(json_of("after"), "trouble", "fine");
}
END_TEST

START_TEST(no_percent_is_advised_that_the_limit_does_not_allow) {
  if (UNDER_ASAN) return; // as above: how near the limit is depends on its tables
  one_processor();
  live = tide_alloc_leaf(8 * MIB);
  tide_memory_limit_set(24 * MIB); // GC percent 100 is just below it
  tide_pool *pool = pool_with((tide_pool_options){.name = "before"});
  run_allocating(pool, 3 * growth_bytes());
  const char *line = json_of("before");
  ASSERT_NUMBER(line, "gc_percent", 0);
  assert_contains(line, "GC percent cannot do it under this memory limit.");
  ck_assert_double_gt(number(line, "survive"), 0);
}
END_TEST

// ---- Cures, computed ------------------------------------------------------------------------

// 100 uses, all of whose 10 gets miss, each so many collections after the last; a heap with 100 MiB
// live, in which all collections have one cause, and 100 MiB of growth or 50 MiB of room.
static advice cures(double gap, int percent, tide_cause cause, uint64_t limit_bytes) {
  uint64_t longer = (uint64_t)(100 * (gap - floor(gap)) + 0.5), g = (uint64_t)gap;
  pool_facts pool = {.survive = 1, .creates = true};
  tide_pool_stats *s = &pool.stats;
  s->gets = s->misses = s->puts = s->created = 1000;
  s->rotations = 100;
  pool.use_gaps = 100;
  s->use_gap_sum = 100 * g + longer;
  s->use_gap_squares = (100 - longer) * g * g + longer * (g + 1) * (g + 1);
  s->use_gap_ns = s->use_gap_sum * 1000000;
  s->use_gap_most = g + 1;
  s->needed_most = 10;
  s->gaps[g] = s->forgotten[g] = 10 * (100 - longer);
  s->gaps[g + 1] = s->forgotten[g + 1] = 10 * longer;
  heap_facts heap = {.live_bytes = 100 * MIB,
                     .scanned_bytes = 100 * MIB,
                     .beside_bytes = MIB,
                     .percent = percent,
                     .limit_bytes = limit_bytes,
                     .collections = 100};
  heap.by_cause[cause] = 100;
  heap.growth_bytes[TIDE_CAUSE_GOAL] = 100.0 * (double)MIB;
  heap.growth_bytes[TIDE_CAUSE_LIMIT] = 50.0 * (double)MIB;
  return pool_advise(&pool, &heap);
}

static const struct {
  const char *what;
  double gap;
  int percent;
  tide_cause cause;
  uint64_t limit_bytes;
  uint64_t gc_percent, memory_limit, limit_percent, min_idle_ns;
  unsigned survive;
} computed[] = {
    {"by percent", 2.3, 100, TIDE_CAUSE_GOAL, UINT64_MAX, 240, 0, 0, 3000000, 3},
    {"in steps of 50", 6.2, 100, TIDE_CAUSE_GOAL, UINT64_MAX, 650, 0, 0, 8000000, 7},
    {"under a limit that is wide enough", 2.3, 100, TIDE_CAUSE_GOAL, 400 * MIB, 240, 0, 0, 3000000,
     3},
    {"under one that is not", 2.3, 100, TIDE_CAUSE_GOAL, 300 * MIB, 0, 0, 0, 3000000, 3},
    {"by the limit", 2.4, -1, TIDE_CAUSE_LIMIT, 256 * MIB, 0, 331 * MIB, 0, 0, 0},
    {"by the limit, but then by percent", 2.4, 100, TIDE_CAUSE_LIMIT, 256 * MIB, 0, 331 * MIB, 130,
     0, 0},
    {"by the program", 2.3, 100, TIDE_CAUSE_FORCED, UINT64_MAX, 0, 0, 0, 3000000, 3},
    {"the rule finds no fault", 1.0, 100, TIDE_CAUSE_GOAL, UINT64_MAX, 0, 0, 0, 0, 0},
    {"by stress", 2.3, 100, TIDE_CAUSE_STRESS, UINT64_MAX, 0, 0, 0, 3000000, 3},
};

START_TEST(cures_are_the_smallest_that_do) {
  advice a =
      cures(computed[_i].gap, computed[_i].percent, computed[_i].cause, computed[_i].limit_bytes);
  ck_assert_int_eq(a.trouble, FORGOTTEN);
  ck_assert(a.even);
  ck_assert_uint_eq(a.gc_percent, computed[_i].gc_percent);
  ck_assert_uint_eq(a.memory_limit / MIB, computed[_i].memory_limit / MIB);
  ck_assert_uint_eq(a.limit_percent, computed[_i].limit_percent);
  ck_assert_uint_eq(a.survive, computed[_i].survive);
  ck_assert_uint_eq(a.min_idle_ns, computed[_i].min_idle_ns);
  ck_assert_uint_eq(a.free_list, 10);
  ck_assert_double_eq(a.promised, 0.99);
}
END_TEST

// ---- Other troubles -------------------------------------------------------------------------

START_TEST(too_few_data_is_said_to_be_too_few) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  use(pool, 5);
  collect_times(3);
  use(pool, 5);
  const char *line = json_of("x");
  assert_word(line, "trouble", "too_few_data");
  assert_contains(line, "10 gets, 3 collections");
  for (int i = 0; i < 2; i++) use(pool, 5);
  assert_word(json_of("x"), "trouble", "forgotten");
}
END_TEST

START_TEST(a_pool_that_nobody_asks_is_found) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  for (int i = 0; i < 30; i++) tide_pool_put(pool, make_item(NULL));
  collect_times(3);
  const char *line = json_of("x");
  assert_word(line, "trouble", "never_asked");
  assert_contains(line, "30 items were put and none was asked for");
}
END_TEST

START_TEST(items_that_do_not_come_back_are_found) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  for (int i = 0; i < 100; i++) {
    void *item = tide_pool_get(pool);
    if (i % 2) tide_pool_put(pool, item);
    if (i % 10 == 0) tide_collect();
  }
  const char *line = json_of("x");
  assert_word(line, "trouble", "not_put_back");
  assert_contains(line, "50 of 100 items never came back");
  // None at all.
  pool = pool_with((tide_pool_options){.name = "y"});
  for (int i = 0; i < 100; i++) tide_pool_get(pool);
  collect_times(3);
  assert_contains(json_of("y"), "100 of 100 items never came back");
}
END_TEST

START_TEST(bounds_that_are_too_tight_are_found) {
  tide_pool *full = pool_with((tide_pool_options){.name = "full", .max_items = 2});
  tide_pool *large = pool_with((tide_pool_options){.name = "large", .max_item_bytes = 100});
  tide_pool_put(large, tide_alloc(16)); // the only one that fits
  for (int i = 0; i < 20; i++) {
    use(full, 8);
    use(large, 4);
    tide_collect();
  }
  const char *line = json_of("full");
  assert_word(line, "trouble", "refused");
  ASSERT_NUMBER(line, "max_items", 8);
  assert_contains(line, "Set max_items = 8.");
  line = json_of("large");
  assert_word(line, "trouble", "refused");
  assert_contains(line, "larger than max_item_bytes = 100");
  // Followed:
  tide_pool *wide = pool_with((tide_pool_options){.name = "wide", .max_items = 8});
  for (int i = 0; i < 20; i++) {
    use(wide, 8);
    tide_collect();
  }
  assert_word(json_of("wide"), "trouble", "fine");
}
END_TEST

START_TEST(growing_demand_is_no_fault_of_collections) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  for (int items = 1; items <= 20; items++) {
    use(pool, items);
    tide_collect();
  }
  const char *line = json_of("x");
  assert_word(line, "trouble", "demand");
  ASSERT_NUMBER(line, "demand", 19);
  ASSERT_NUMBER(line, "forgotten", 0);
  assert_contains(line, "up to 20;");
}
END_TEST

static void *make_tiny(void *arg) {
  return tide_alloc(16);
}

START_TEST(tiny_items_are_found) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x", .create = make_tiny});
  for (int i = 0; i < 30; i++) {
    use(pool, 4);
    tide_collect();
  }
  const char *line = json_of("x");
  assert_word(line, "burden", "tiny");
  assert_word(line, "trouble", "fine");
  assert_contains(line, "Items of 16 bytes gain nothing");
}
END_TEST

static void *make_large(void *arg) {
  return tide_alloc_leaf(MIB);
}

START_TEST(a_pool_that_holds_much_of_the_limit_is_found) {
  tide_memory_limit_set(64 * MIB);
  tide_pool *pool = pool_with((tide_pool_options){.name = "x", .create = make_large});
  for (int i = 0; i < 4; i++) {
    use(pool, 32);
    tide_collect();
  }
  const char *line = json_of("x");
  assert_word(line, "burden", "greedy");
  ck_assert_double_le(fabs(number(line, "limit_share") - 0.5), 0.01);
  ck_assert_double_gt(number(line, "heap_share"), 0.9);
  ASSERT_NUMBER(line, "max_bytes", 7 * MIB); // a tenth, in whole MiB
  assert_contains(line, "It holds 50 % of the memory limit");
}
END_TEST

// Each of the items grows to 1 MiB once; afterwards all are used in every period, so the pool keeps
// them.
static void run_burst(tide_pool *pool) {
  enum { BURST = 64 };
  for (int i = 0; i < BURST; i++) held[i] = tide_realloc(tide_pool_get(pool), MIB);
  for (int i = 0; i < BURST; i++) {
    tide_pool_put(pool, held[i]);
    held[i] = NULL;
  }
  for (int i = 0; i < 3; i++) {
    clear_stack();
    tide_collect();
    use(pool, BURST);
  }
}

START_TEST(oversized_items_are_found_and_the_advice_is_rid_of_them) {
  tide_pool *pool = pool_with((tide_pool_options){.name = "x"});
  run_burst(pool);
  const char *line = json_of("x");
  assert_word(line, "burden", "oversized");
  assert_contains(line, "grown to 1 MiB on average, from 4 KiB");
  assert_contains(line, "max_item_bytes = 8192");
  ASSERT_NUMBER(line, "max_item_bytes", 8192);
  ck_assert_double_ge(number(line, "bytes"), 64.0 * MIB);
  ck_assert_uint_gt(read_stats().heap_inuse, 64 * MIB);
  uint64_t max_item_bytes = (uint64_t)number(line, "max_item_bytes");
  tide_pool_destroy(pool);
  pool = pool_with((tide_pool_options){.name = "y", .max_item_bytes = max_item_bytes});
  run_burst(pool);
  ck_assert_uint_lt(read_stats().heap_inuse, 10 * 1000 * 1000);
  assert_word(json_of("y"), "burden", "light");
}
END_TEST

// ---- The suite ------------------------------------------------------------------------------

int main(void) {
  Suite *suite = suite_create("advisor");
  TCase *exact = tcase_create("exact");
  tcase_add_checked_fixture(exact, only_collections_asked_for, NULL);
  tcase_set_timeout(exact, 60);
  tcase_add_loop_test(exact, the_numbers_are_those_of_the_pattern, 0, LENGTH(patterns));
  tcase_add_test(exact, misses_are_told_apart);
  tcase_add_test(exact, after_a_reset_the_gaps_are_those_since);
  tcase_add_test(exact, the_worst_comes_first);
  tcase_add_loop_test(exact, the_advised_survive_keeps_the_promise, 0, LENGTH(patterns));
  tcase_add_loop_test(exact, a_free_list_of_the_advised_size_keeps_the_promise, 0,
                      LENGTH(patterns));
  tcase_add_test(exact, the_advised_min_idle_ns_keeps_the_promise);
  tcase_add_test(exact, too_few_data_is_said_to_be_too_few);
  tcase_add_test(exact, a_pool_that_nobody_asks_is_found);
  tcase_add_test(exact, items_that_do_not_come_back_are_found);
  tcase_add_test(exact, bounds_that_are_too_tight_are_found);
  tcase_add_test(exact, growing_demand_is_no_fault_of_collections);
  tcase_add_test(exact, tiny_items_are_found);
  tcase_add_test(exact, a_pool_that_holds_much_of_the_limit_is_found);
  tcase_add_test(exact, oversized_items_are_found_and_the_advice_is_rid_of_them);
  suite_add_tcase(suite, exact);
  TCase *by_itself = tcase_create("computed");
  tcase_add_loop_test(by_itself, cures_are_the_smallest_that_do, 0, LENGTH(computed));
  suite_add_tcase(suite, by_itself);
  TCase *paced = tcase_create("paced");
  tcase_set_timeout(paced, 60);
  tcase_add_loop_test(paced, the_advised_pace_keeps_the_promise, 0, LENGTH(programs));
  tcase_add_test(paced, no_percent_is_advised_that_the_limit_does_not_allow);
  suite_add_tcase(suite, paced);
  return run_suite(suite);
}
