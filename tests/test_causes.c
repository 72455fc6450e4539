// SPDX-License-Identifier: MIT
// What is said about collections: that each names its true cause, and that the trace line, the
// trace file, the statistics, a hook and a stopwatch outside say the same of the same collections.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <math.h>
#include <sys/mman.h>

static uint64_t causes[TIDE_CAUSES];
static void *volatile sink;

static void count(const tide_cycle *cycle, void *arg) {
  causes[cycle->cause]++;
}

static void start(tide_options options) {
  init_with(options);
  MUST(tide_hook_add(TIDE_CYCLE_END, count, NULL));
}

// ---- Causes ---------------------------------------------------------------------------------

enum { TIMES = 1000 };

static uint64_t collections(void) {
  uint64_t sum = 0;
  for (int i = 0; i < TIDE_CAUSES; i++) sum += causes[i];
  return sum;
}

static void assert_all(tide_cause cause) {
  ck_assert_uint_ge(collections(), TIMES);
  for (int i = 0; i < TIDE_CAUSES; i++)
    ck_assert_msg(causes[i] == (i == (int)cause ? collections() : 0), "%llu times %s, not %s",
                  (unsigned long long)causes[i], tide_cause_string((tide_cause)i),
                  tide_cause_string(cause));
}

static void allocate_until(uint64_t wanted) {
  while (collections() < wanted) sink = tide_alloc_leaf(4096);
}

START_TEST(growth) {
  start(OPTIONS(o.min_heap_bytes = 1 << 18, o.gc_interval_ms = 0));
  allocate_until(TIMES);
  assert_all(TIDE_CAUSE_GOAL);
}
END_TEST

START_TEST(limit) {
  start(OPTIONS(o.gc_percent = -1, o.gc_interval_ms = 0));
  tide_memory_limit_set((int64_t)read_stats().total_bytes + 3 * (int64_t)MIB);
  allocate_until(TIMES);
  assert_all(TIDE_CAUSE_LIMIT);
}
END_TEST

static void *sleep_a_little(void *arg) {
  sleep_ms(5);
  return NULL;
}

START_TEST(long_rest) {
  start(OPTIONS(o.gc_interval_ms = 1));
  tide_collect();
  causes[TIDE_CAUSE_FORCED] = 0;
  while (causes[TIDE_CAUSE_TIME] < TIMES) tide_blocking(sleep_a_little, NULL);
  assert_all(TIDE_CAUSE_TIME);
}
END_TEST

START_TEST(by_hand) {
  start(OPTIONS(o.gc_interval_ms = 0));
  for (int i = 0; i < TIMES / 2; i++) {
    tide_collect();
    tide_collect_and_release();
  }
  assert_all(TIDE_CAUSE_FORCED);
}
END_TEST

START_TEST(no_memory) {
  start(OPTIONS(o.gc_interval_ms = 0, o.hard_limit = 16 << 20));
  for (int i = 0; i < TIMES; i++) ck_assert_ptr_null(tide_alloc_leaf(64 * MIB));
  assert_all(TIDE_CAUSE_MEMORY);
}
END_TEST

START_TEST(stress) {
  start(OPTIONS(o.gc_interval_ms = 0, o.stress = 2));
  for (int i = 0; i < 2 * TIMES; i++) sink = tide_alloc(16);
  assert_all(TIDE_CAUSE_STRESS);
}
END_TEST

// ---- One story ------------------------------------------------------------------------------

enum { CYCLES = 12 };

typedef struct totals {
  uint64_t cycles, causes[TIDE_CAUSES];
  double pause_ms, hooks_ms; // sums
  double cycle_ms[CYCLES];   // each; by the lines, the trace and the watch
} totals;

typedef struct story {
  totals line, trace, hook, stats, watch;
} story;

static totals by_hook;

static void add_up(const tide_cycle *cycle, void *arg) {
  by_hook.cycles++;
  by_hook.causes[cycle->cause]++;
  by_hook.pause_ms += (double)cycle->pause_ns / 1e6;
  by_hook.hooks_ms += (double)cycle->hooks_ns / 1e6;
}

static void dawdle(const tide_cycle *cycle, void *arg) {
  uint64_t from_ns = now_ns();
  while (now_ns() - from_ns < 2000000) continue;
}

static char directory[] = "/tmp/tidepool-test-XXXXXX";
static char trace_path[64];

// Each collection is on the way of an allocation, which is what the stopwatch times.
static NOINLINE void run_by_the_watch(totals *watch) {
  while (by_hook.cycles < CYCLES) {
    uint64_t before = by_hook.cycles, from_ns = now_ns();
    sink = tide_alloc_leaf(MIB);
    if (by_hook.cycles > before) watch->cycle_ms[before] = (double)(now_ns() - from_ns) / 1e6;
  }
}

// A list through half a million objects, so that a collection takes a while.
static NOINLINE void *make_graph(void) {
  void **first = NULL;
  for (int i = 0; i < 500000; i++) {
    void **node = tide_alloc(48);
    node[0] = first;
    first = node;
  }
  return first;
}

static void tell(void *arg) {
  story *s = arg;
  start(OPTIONS(o.gctrace = 1, o.gc_interval_ms = 0, o.gc_percent = -1));
  MUST(tide_trace_start(trace_path) == TIDE_OK);
  MUST(tide_hook_add(TIDE_STW_START, dawdle, NULL));
  MUST(tide_hook_add(TIDE_CYCLE_END, add_up, NULL));
  static void *graph;
  graph = make_graph();
  tide_gc_percent_set(60);
  run_by_the_watch(&s->watch);
  tide_memstats stats = read_stats();
  MUST(tide_trace_stop() == TIDE_OK);
  s->stats = (totals){.cycles = stats.num_gc, .pause_ms = (double)stats.pause_total_ns / 1e6};
  s->hook = by_hook;
  MUST(graph);
}

static void add_line(totals *t, const char *line) {
  double stop, hooks, mark, end, sweep;
  char cause[16];
  const char *times = strstr(line, "%: "), *last = strrchr(line, '(');
  MUST(times && last);
  MUST(sscanf(times, "%%: %lf+%lf+%lf+%lf ms, sweep %lf ms", &stop, &hooks, &mark, &end, &sweep) ==
       5);
  MUST(sscanf(last, "(%15[a-z])", cause) == 1);
  MUST(t->cycles < CYCLES);
  t->cycle_ms[t->cycles++] = sweep + stop + hooks + mark + end;
  t->hooks_ms += hooks;
  t->pause_ms += stop + hooks + mark + end;
  for (int i = 0; i < TIDE_CAUSES; i++)
    t->causes[i] += !strcmp(cause, tide_cause_string((tide_cause)i));
}

static double value_of(const char *event, const char *key) {
  const char *at = strstr(event, key);
  MUST(at);
  return strtod(at + strlen(key), NULL);
}

static void add_event(totals *t, const char *event) {
  static const char *const pause[] = {"stop", "hooks", "mark", "finish"};
  char name[32];
  if (!strstr(event, "\"ph\":\"X\"") || sscanf(event, "{\"name\":\"%31[a-z_]", name) != 1) return;
  double ms = value_of(event, "\"dur\":") / 1000;
  for (size_t i = 0; i < LENGTH(pause); i++)
    if (!strcmp(name, pause[i])) t->pause_ms += ms;
  if (!strcmp(name, "hooks")) t->hooks_ms += ms;
  if (strcmp(name, "cycle")) return;
  MUST(t->cycles < CYCLES);
  t->cycle_ms[t->cycles++] = ms;
  char cause[16];
  MUST(sscanf(strstr(event, "\"cause\":"), "\"cause\":\"%15[a-z]", cause) == 1);
  for (int i = 0; i < TIDE_CAUSES; i++)
    t->causes[i] += !strcmp(cause, tide_cause_string((tide_cause)i));
}

static void read_trace(totals *t) {
  FILE *file = fopen(trace_path, "r");
  ck_assert_ptr_nonnull(file);
  char line[1024];
  while (fgets(line, sizeof line, file)) {
    const char *event = strchr(line, '{');
    if (event) add_event(t, event);
  }
  fclose(file);
}

static void assert_near(const char *what, double a, double b, double more) {
  ck_assert_msg(fabs(a - b) <= 0.01 * b + more, "%s: %.3f and %.3f ms", what, a, b);
}

START_TEST(all_tell_the_same) {
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(trace_path, sizeof trace_path, "%s/trace.json", directory);
  story *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(s, MAP_FAILED);
  child c;
  in_child(&c, 60, tell, s);
  assert_ended_well(&c);
  for (char *line = strtok(c.errors, "\n"); line; line = strtok(NULL, "\n"))
    add_line(&s->line, line);
  read_trace(&s->trace);
  unlink(trace_path);
  rmdir(directory);

  const totals *all[] = {&s->line, &s->trace, &s->stats, &s->hook};
  for (size_t i = 0; i < LENGTH(all); i++) {
    ck_assert_uint_eq(all[i]->cycles, s->hook.cycles);
    assert_near("pauses", all[i]->pause_ms, s->hook.pause_ms, 0.01);
    if (all[i] == &s->stats) continue; // has no more
    assert_near("hooks", all[i]->hooks_ms, s->hook.hooks_ms, 0.01);
    for (int cause = 0; cause < TIDE_CAUSES; cause++)
      ck_assert_uint_eq(all[i]->causes[cause], s->hook.causes[cause]);
  }
  ck_assert_double_ge(s->hook.hooks_ms, 2.0 * (double)s->hook.cycles);
  // What is not in the line is the restart, for which a thread may have to wait, and the hooks at
  // the end.
  double least_over = INFINITY;
  for (int i = 0; i < CYCLES; i++) {
    double line = s->line.cycle_ms[i], trace = s->trace.cycle_ms[i], watch = s->watch.cycle_ms[i];
    ck_assert_msg(line <= trace + 0.01 && trace <= watch, "%d: line %.3f, trace %.3f, watch %.3f",
                  i, line, trace, watch);
    least_over = fmin(least_over, (watch - trace) / trace);
  }
  // The watch has the line and the file to wait for, and sometimes other programs.
  ck_assert_double_le(least_over, 0.01);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("causes");
  TCase *t = tcase_create("causes");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, growth);
  tcase_add_test(t, limit);
  tcase_add_test(t, long_rest);
  tcase_add_test(t, by_hand);
  tcase_add_test(t, no_memory);
  tcase_add_test(t, stress);
  suite_add_tcase(suite, t);
  TCase *one = tcase_create("one story");
  tcase_set_timeout(one, 90);
  tcase_add_test(one, all_tell_the_same);
  suite_add_tcase(suite, one);
  return run_suite(suite);
}
