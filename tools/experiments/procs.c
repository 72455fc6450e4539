// SPDX-License-Identifier: MIT
// `tidepool procs`: what a pool loses when the number of processors changes while it is in use.
//
// Bursts on one pool, and the number of processors goes through a list, over and over: before a
// burst, or while it runs. What went in, what came out and what is in the pool are compared before
// and after each burst, so it is known of each item that did not come out whether it is out of
// reach or lost, and when it was lost. The rules (docs/internals/6-pool.md) allow three ways:
//
// - An item in a private slot is out of reach for other processors: at most one for each that the
//   set of shards was made for, whether it is still there or not.
// - A put on a processor that the primary has no shard for replaces the primary, and what is in it
//   is lost. That needs a primary made for fewer processors than there are.
// - A collection drops what the victim still has.
//
// Anything else is lost beyond the documented. An item that comes out though it was not in is
// doubled; one that two workers hold at a time fails the run at once (burst.h).
#include "burst.h"
#include "command.h"
#include "output.h"
#include "progress.h"
#include "wait.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 50, ROUNDS_QUICK = 3 };

typedef struct settings {
  common_options common;
  numbers procs;
  numbers collections;
  uint64_t bursts;
  uint64_t rounds; // 0: by `quick`
  uint64_t workers;
  uint64_t item_bytes;
  bool during;
  bool quick;
} settings;

static const option_row table_of_options[] = {
    {"procs", "LIST", OPTION_COUNTS, offsetof(settings, procs), "16,4,64,2,1,2", 1, 1024, NULL,
     "the numbers of processors, one after the other; after the last comes the first"},
    {"collections", "LIST", OPTION_COUNTS, offsetof(settings, collections), "0,1", 0, 1, NULL,
     "collections before each burst: 0, 1 or both, each with a pool of its own"},
    {"bursts", "N", OPTION_COUNT, offsetof(settings, bursts), "2", 1, 100, NULL,
     "bursts from one change to the next"},
    {"rounds", "N", OPTION_COUNT, offsetof(settings, rounds), NULL, 1, 1000000, NULL,
     "times through the list (default 50, with --quick 3)"},
    {"workers", "N", OPTION_COUNT, offsetof(settings, workers), "64", 1, 1024, NULL,
     "threads in a burst, each with one item"},
    {"item-bytes", "SIZE", OPTION_BYTES, offsetof(settings, item_bytes), "4096", 16, 0x1p24, NULL,
     "size of an item"},
    {"during", NULL, OPTION_FLAG, offsetof(settings, during), NULL, 0, 0, NULL,
     "change the number while a burst runs, each round at another moment of it"},
    {"quick", NULL, OPTION_FLAG, offsetof(settings, quick), NULL, 0, 0, NULL,
     "fewer rounds, done in a second"},
};

static const options_spec spec = {
    .about =
        "Counts what a pool loses when the number of processors changes.\v"
        "A burst is a number of threads that take an item each, wait until all of them hold one, "
        "wait 100 microseconds and put it back. Lost is what did not come out again: it may be in "
        "a private slot out of reach, or gone with a set of shards that was replaced. The exit "
        "status is 1 if more was lost than the pool's documentation says, or anything doubled.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

enum {
  EXPERIMENT,
  ENGINE,
  FROM,
  TO,
  DURING,
  COLLECTIONS,
  BURST,
  ROUND_COUNT,
  PUT,
  HITS,
  MISSES,
  OUT_OF_REACH,
  DROPPED,
  LOST_MOST,
  DOCUMENTED,
  BEYOND,
  DOUBLED,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [FROM] = {"from", "from", COLUMN_COUNT, 0},
    [TO] = {"to", "to", COLUMN_COUNT, 0},
    [DURING] = {"during", NULL, COLUMN_FLAG, 0},
    [COLLECTIONS] = {"collections", "collections", COLUMN_COUNT, 0},
    [BURST] = {"burst", "burst", COLUMN_COUNT, 0},
    [ROUND_COUNT] = {"rounds", NULL, COLUMN_COUNT, 0},
    [PUT] = {"put", "put", COLUMN_COUNT, 0},
    [HITS] = {"hits", "hits", COLUMN_REAL, 2},
    [MISSES] = {"lost", "lost", COLUMN_REAL, 2},
    [OUT_OF_REACH] = {"out_of_reach", "out of reach", COLUMN_REAL, 2},
    [DROPPED] = {"dropped", "dropped", COLUMN_REAL, 2},
    [LOST_MOST] = {"lost_most", "most lost", COLUMN_COUNT, 0},
    [DOCUMENTED] = {"documented", "documented", COLUMN_COUNT, 0},
    [BEYOND] = {"beyond", NULL, COLUMN_COUNT, 0},
    [DOUBLED] = {"doubled", "doubled", COLUMN_COUNT, 0},
};

enum {
  S_EXPERIMENT,
  S_SUMMARY,
  S_DEFAULT,
  S_FROM,
  S_BURSTS,
  S_BEYOND,
  S_DOUBLED,
  S_GOOD,
  S_FIELDS
};

static const column summary_columns[S_FIELDS] = {
    [S_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [S_SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [S_DEFAULT] = {"default_procs", NULL, COLUMN_COUNT, 0},
    [S_FROM] = {"default_from", NULL, COLUMN_TEXT, 0},
    [S_BURSTS] = {"bursts", NULL, COLUMN_COUNT, 0},
    [S_BEYOND] = {"beyond", NULL, COLUMN_COUNT, 0},
    [S_DOUBLED] = {"doubled", NULL, COLUMN_COUNT, 0},
    [S_GOOD] = {"as_documented", NULL, COLUMN_FLAG, 0},
};

// One place in the list, with one burst after the change: sums over the rounds.
typedef struct place {
  unsigned from, to;
  uint64_t rounds, hits, misses, out_of_reach, dropped;
  uint64_t lost_most, documented; // of the rounds
  uint64_t beyond, doubled;
} place;

// What is known of the pool without looking into it: how many processors the sets were made for.
typedef struct model {
  bool has_primary;
  unsigned primary_least, primary_most;
  unsigned victim_most; // 0: there is no victim
  uint64_t items, victim_items;
  uint64_t dropped;      // since the last burst's gets
  bool may_have_dropped; // a primary may have been replaced
  uint64_t bursts, hits; // as the workers counted
} model;

typedef struct changer {
  pthread_t thread;
  gate go, done;
  unsigned called; // rounds, by the caller
  unsigned round;  // the thread's
  unsigned to;     // 0: the thread ends
  uint64_t at_ns;
} changer;

typedef struct run {
  settings set;
  burst *team;
  changer changer;
  place *places; // by collections, place in the list, burst
  table rows, summary;
  int procs_at_start;
  const char *procs_from;
  uint64_t bursts, beyond, doubled;
  uint64_t burst_ns; // how long the last one took
  bool partial;
} run;

// ---- The number at the start ----------------------------------------------------------------

// CPUs in the affinity mask, which may be longer than cpu_set_t; 0: not known.
static int cpus_allowed(void) {
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
    if (!mask) return 0;
    size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
    bool known = sched_getaffinity(0, bytes, mask) == 0;
    bool longer = !known && errno == EINVAL;
    int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (!longer) return count;
  }
  return 0;
}

static void look_at_start(run *r) {
  const char *asked = getenv("TIDE_PROCS");
  r->procs_at_start = tide_procs();
  if (asked && strtol(asked, NULL, 10) > 0)
    r->procs_from = "TIDE_PROCS";
  else
    r->procs_from = r->procs_at_start < cpus_allowed() ? "quota" : "affinity";
}

// ---- Changes while a burst runs -------------------------------------------------------------

static void *await_call(void *arg) {
  changer *c = arg;
  gate_open(&c->done, c->round);
  gate_await(&c->go, ++c->round);
  if (c->to) sleep_until(c->at_ns);
  return NULL;
}

static void *change_when_called(void *arg) {
  changer *c = arg;
  sleep_exactly();
  for (;;) {
    tide_blocking(await_call, c);
    if (!c->to) return NULL;
    tide_procs_set((int)c->to);
  }
}

static void call_changer(changer *c, unsigned to, uint64_t at_ns) {
  c->to = to;
  c->at_ns = at_ns;
  gate_open(&c->go, ++c->called);
}

static void *await_change(void *arg) {
  changer *c = arg;
  gate_await(&c->done, c->called);
  return NULL;
}

static void *join_changer(void *arg) {
  changer *c = arg;
  pthread_join(c->thread, NULL);
  return NULL;
}

static bool start_changer(changer *c) {
  int error = thread_start(&c->thread, change_when_called, c);
  if (error) complain("cannot start a thread: %s", strerror(error));
  return !error;
}

static void end_changer(changer *c) {
  call_changer(c, 0, 0);
  tide_blocking(join_changer, c);
}

// ---- One burst ------------------------------------------------------------------------------

// What one burst did, and what it may do.
typedef struct account {
  unsigned low, high; // processors that there were in it
  bool changes;       // while it runs
  uint64_t in, hits;  // the pool had so many items, and so many came out
  uint64_t beyond, doubled;
} account;

static uint64_t above(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

static uint64_t least_of(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// The primary becomes the victim, and the victim is forgotten.
static void collect(model *m) {
  tide_collect();
  m->victim_most = m->has_primary ? m->primary_most : 0;
  m->has_primary = false;
  m->primary_most = 0;
  m->items -= m->victim_items;
}

static void check_before(model *m, account *a, const tide_pool_stats *s) {
  a->in = s->items_primary + s->items_victim;
  a->beyond += above(m->items, a->in);
  a->doubled += above(a->in, m->items);
}

// Whether the puts of a burst may replace the primary.
static bool may_replace(model *m, const account *a) {
  if (!m->has_primary) m->primary_least = a->low;
  m->has_primary = true;
  if (m->primary_most < a->high) m->primary_most = a->high;
  return a->high > m->primary_least;
}

static void check_after(run *r, model *m, account *a, const tide_pool_stats *s) {
  uint64_t expected = above(a->in, a->hits) + r->set.workers;
  m->items = s->items_primary + s->items_victim;
  m->victim_items = s->items_victim;
  m->may_have_dropped = may_replace(m, a);
  m->dropped = above(expected, m->items);
  if (!m->may_have_dropped) a->beyond += m->dropped;
  a->doubled += above(a->hits, a->in) + above(m->items, expected);
  // What was there has been replaced by a primary for all processors that there are now.
  if (m->dropped && !a->changes) m->primary_least = a->high;
}

static void note(run *r, const model *m, account *a, place *p) {
  uint64_t slots = m->primary_most + m->victim_most, misses = r->set.workers - a->hits;
  uint64_t out = misses ? above(a->in, a->hits) : 0;
  uint64_t documented = m->may_have_dropped ? r->set.workers : least_of(slots, r->set.workers);
  a->beyond += above(out, slots) + above(misses, documented);
  p->rounds++;
  p->hits += a->hits;
  p->misses += misses;
  p->out_of_reach += out;
  p->dropped += m->dropped;
  if (p->lost_most < misses) p->lost_most = misses;
  if (p->documented < documented) p->documented = documented;
}

// change_to: the number of processors that there will be before the burst is over; 0: the same.
static bool run_burst(run *r, tide_pool *pool, unsigned change_to, double phase, uint64_t *hits) {
  burst_result result;
  if (change_to) call_changer(&r->changer, change_to, now_ns() + (uint64_t)(phase * r->burst_ns));
  bool good = burst_run(r->team, pool, &result);
  if (change_to) tide_blocking(await_change, &r->changer);
  if (!change_to) r->burst_ns = result.end_ns - result.start_ns;
  *hits = result.hits;
  return good;
}

// The burst with this number after a change.
static bool measure_burst(run *r, tide_pool *pool, model *m, place *p, uint64_t number,
                          double phase) {
  tide_pool_stats stats;
  account a = {.low = p->to, .high = p->to, .changes = r->set.during && number == 0};
  if (a.changes && p->from < p->to) a.low = p->from;
  if (a.changes && p->from > p->to) a.high = p->from;
  tide_pool_stats_read(pool, &stats);
  check_before(m, &a, &stats);
  if (!run_burst(r, pool, a.changes ? p->to : 0, phase, &a.hits)) return false;
  tide_pool_stats_read(pool, &stats);
  note(r, m, &a, p);
  check_after(r, m, &a, &stats);
  p->beyond += a.beyond;
  p->doubled += a.doubled;
  r->beyond += a.beyond;
  r->doubled += a.doubled;
  r->bursts++;
  m->bursts++;
  m->hits += a.hits;
  return true;
}

// ---- The list -------------------------------------------------------------------------------

static place *place_at(run *r, size_t kind, size_t step, uint64_t number) {
  return &r->places[(kind * r->set.procs.count + step) * r->set.bursts + number];
}

// From one number of processors to the next, and the bursts up to the one after that.
static bool measure_step(run *r, tide_pool *pool, model *m, size_t kind, size_t step,
                         double phase) {
  unsigned to = place_at(r, kind, step, 0)->to;
  if (!r->set.during) tide_procs_set((int)to);
  for (uint64_t number = 0; number < r->set.bursts; number++) {
    if (r->set.collections.at[kind] > 0) collect(m);
    if (!measure_burst(r, pool, m, place_at(r, kind, step, number), number, phase)) return false;
  }
  return true;
}

// A burst that finds the pool empty, with the number that the list begins from.
static bool fill(run *r, tide_pool *pool, model *m) {
  unsigned procs = (unsigned)r->set.procs.at[r->set.procs.count - 1];
  account a = {.low = procs, .high = procs};
  tide_pool_stats stats;
  tide_procs_set((int)procs);
  if (!run_burst(r, pool, 0, 0, &a.hits)) return false;
  tide_pool_stats_read(pool, &stats);
  check_after(r, m, &a, &stats);
  m->bursts = 1;
  m->hits = a.hits;
  return true;
}

static bool as_documented(const run *r) {
  return !r->beyond && !r->doubled;
}

static bool measure(run *r, tide_pool *pool, size_t kind) {
  model m = {0};
  if (!fill(r, pool, &m)) return false;
  double rounds = (double)r->set.rounds, kinds = (double)r->set.collections.count;
  uint64_t cycle = tide_gc_cycle(), expected = 0;
  for (uint64_t round = 0; round < r->set.rounds && !r->partial; round++) {
    for (size_t step = 0; step < r->set.procs.count; step++)
      if (!measure_step(r, pool, &m, kind, step, ((double)round + 0.5) / rounds)) return false;
    progress_show(((double)kind + (double)round / rounds) / kinds);
    expected += (uint64_t)r->set.collections.at[kind] * r->set.procs.count * r->set.bursts;
    r->partial = interrupted();
  }
  if (tide_gc_cycle() - cycle != expected) {
    complain("the collector also collected by itself, so what was lost says nothing");
    return false;
  }
  return !as_documented(r) || burst_check_stats(r->team, pool, m.bursts, m.hits);
}

static void name_places(run *r) {
  const numbers *procs = &r->set.procs;
  for (size_t kind = 0; kind < r->set.collections.count; kind++)
    for (size_t step = 0; step < procs->count; step++)
      for (uint64_t number = 0; number < r->set.bursts; number++) {
        place *p = place_at(r, kind, step, number);
        p->to = (unsigned)procs->at[step];
        p->from = number ? p->to : (unsigned)procs->at[(step ? step : procs->count) - 1];
      }
}

static bool measure_all(run *r) {
  for (size_t kind = 0; kind < r->set.collections.count && !r->partial; kind++) {
    tide_pool *pool = burst_pool(r->team, "procs");
    if (!pool) return false;
    bool good = measure(r, pool, kind);
    tide_pool_destroy(pool);
    if (!good) return false;
  }
  return true;
}

// ---- The result -----------------------------------------------------------------------------

static void add_row(run *r, const place *p, uint64_t collections, uint64_t number) {
  double rounds = (double)p->rounds;
  cell row[FIELDS] = {
      [EXPERIMENT].text = "procs",
      [ENGINE].text = r->set.common.engine,
      [FROM].count = p->from,
      [TO].count = p->to,
      [DURING].flag = r->set.during && number == 0,
      [COLLECTIONS].count = (int64_t)collections,
      [BURST].count = (int64_t)number + 1,
      [ROUND_COUNT].count = (int64_t)p->rounds,
      [PUT].count = (int64_t)r->set.workers,
      [HITS].real = (double)p->hits / rounds,
      [MISSES].real = (double)p->misses / rounds,
      [OUT_OF_REACH].real = (double)p->out_of_reach / rounds,
      [DROPPED].real = (double)p->dropped / rounds,
      [LOST_MOST].count = (int64_t)p->lost_most,
      [DOCUMENTED].count = (int64_t)p->documented,
      [BEYOND].count = (int64_t)p->beyond,
      [DOUBLED].count = (int64_t)p->doubled,
  };
  table_add(&r->rows, row);
}

static void add_rows(run *r) {
  for (size_t kind = 0; kind < r->set.collections.count; kind++)
    for (size_t step = 0; step < r->set.procs.count; step++)
      for (uint64_t number = 0; number < r->set.bursts; number++) {
        const place *p = place_at(r, kind, step, number);
        if (p->rounds) add_row(r, p, (uint64_t)r->set.collections.at[kind], number);
      }
  cell row[S_FIELDS] = {
      [S_EXPERIMENT].text = "procs",           [S_SUMMARY].flag = true,
      [S_DEFAULT].count = r->procs_at_start,   [S_FROM].text = r->procs_from,
      [S_BURSTS].count = (int64_t)r->bursts,   [S_BEYOND].count = (int64_t)r->beyond,
      [S_DOUBLED].count = (int64_t)r->doubled, [S_GOOD].flag = as_documented(r),
  };
  table_add(&r->summary, row);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const run *r = data;
  paragraph_print(file,
                  "procs: %s engine, %llu workers, items of %s, %llu rounds, no other collections; "
                  "the number of processors changes %s",
                  r->set.common.engine, (unsigned long long)r->set.workers,
                  size_text(r->set.item_bytes), (unsigned long long)r->set.rounds,
                  r->set.during ? "while the first burst runs" : "before the first burst");
  fputc('\n', file);
  table_print(file, style, &r->rows);
  fputc('\n', file);
  paragraph_print(file,
                  "Means over the rounds. lost: did not come out, either out of reach, in another "
                  "processor's private slot, or dropped, with a set that was replaced. documented: "
                  "the most that may be lost in one burst.");
  paragraph_print(file, "At the start there were %d processors, by %s.", r->procs_at_start,
                  r->procs_from);
  if (r->partial)
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
  if (as_documented(r))
    paragraph_print(file, "%llu bursts: nothing lost beyond the documented, nothing doubled.",
                    (unsigned long long)r->bursts);
  else
    paragraph_print(file, "%llu bursts: %llu items lost beyond the documented, %llu doubled.",
                    (unsigned long long)r->bursts, (unsigned long long)r->beyond,
                    (unsigned long long)r->doubled);
}

// ---------------------------------------------------------------------------------------------

static bool run_bursts(run *r) {
  r->team = burst_create((unsigned)r->set.workers, r->set.item_bytes);
  if (!r->team) return false;
  bool good = !r->set.during || start_changer(&r->changer);
  if (good) {
    good = measure_all(r);
    if (r->set.during) end_changer(&r->changer);
  }
  burst_destroy(r->team);
  return good;
}

static int run_experiment(run *r) {
  tide_gc_percent_set(-1);
  progress_start("procs");
  bool good = run_bursts(r);
  progress_end();
  if (!good) return STATUS_FAILED;
  add_rows(r);
  report rep = {.experiment = "procs",
                .rows = &r->rows,
                .summary = &r->summary,
                .text = print_text,
                .data = r};
  if (!report_write(&rep, &r->set.common)) return STATUS_FAILED;
  if (!as_documented(r)) {
    complain("%llu items lost beyond the documented, %llu doubled", (unsigned long long)r->beyond,
             (unsigned long long)r->doubled);
    return STATUS_FAILED;
  }
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

int procs_run(int argc, char **argv) {
  run r = {.rows = {.columns = columns, .column_count = FIELDS},
           .summary = {.columns = summary_columns, .column_count = S_FIELDS}};
  options_parse(&spec, &r.set, argc, argv);
  if (!r.set.rounds) r.set.rounds = r.set.quick ? ROUNDS_QUICK : ROUNDS;
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!out_prepare(r.set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  look_at_start(&r);
  r.places = calloc(r.set.collections.count * r.set.procs.count * r.set.bursts, sizeof *r.places);
  if (!r.places) {
    complain("no memory for the result");
    return STATUS_FAILED;
  }
  name_places(&r);
  status = run_experiment(&r);
  free(r.places);
  table_free(&r.rows);
  table_free(&r.summary);
  return status;
}
