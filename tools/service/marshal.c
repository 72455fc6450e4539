// SPDX-License-Identifier: MIT
// `tidepool marshal`: request envelopes encoded as JSON, with an encoder and its buffers made for
// each request, from a pool, from a free list, or owned by the thread.
//
// A run is one mode on a number of threads. Each thread encodes all envelopes once to warm up: what
// a pool misses the first time, and buffers that grow to the size of the largest envelope, are not
// counted. Then all wait, the statistics are read, and the rounds that count begin; at their end
// all wait once more. So allocs_op and bytes_op are differences of exact counts: statistics are
// exact where no thread runs, but one that is just ending may be counted as it was before. Runs of
// the modes alternate, so that what a busy machine adds falls on all.
#include "command.h"
#include "output.h"
#include "progress.h"
#include "supply.h"
#include "wait.h"

#include <atomic_ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 50, ROUNDS_QUICK = 10, RUNS = 5, RUNS_QUICK = 3, THREADS_MAX = 256 };
enum { MODES = 4, RUNS_MAX = 1000 };

// What an encoder of this workload begins with.
static const encoder_options made = {.output_bytes = 4096, .scratch_bytes = 512};

typedef struct settings {
  common_options common;
  uint64_t envelopes;
  numbers threads;
  uint64_t modes; // a bit for each supply_kind
  uint64_t rounds;
  uint64_t runs;
  uint64_t seed;
  bool quick;
} settings;

// In the order of supply_kind.
#define MODE_NAMES "fresh,pool,freelist,owned"
static const char *const mode_names[MODES] = {"fresh", "pool", "freelist", "owned"};

static const option_row table_of_options[] = {
    {"envelopes", "N", OPTION_COUNT, offsetof(settings, envelopes), "1000", 1, 1000000, NULL,
     "envelopes in the set"},
    {"threads", "LIST", OPTION_COUNTS, offsetof(settings, threads), "1,2", 1, THREADS_MAX, NULL,
     "threads that encode at a time, each of them all envelopes"},
    {"modes", "LIST", OPTION_SET, offsetof(settings, modes), MODE_NAMES, 0, 0, MODE_NAMES,
     "where an encoder comes from: made for each envelope, a pool, a free list, or the thread's "
     "own"},
    {"rounds", "N", OPTION_COUNT, offsetof(settings, rounds), NULL, 1, 1000000, NULL,
     "times through the set in a run (default 50, with --quick 10)"},
    {"runs", "N", OPTION_COUNT, offsetof(settings, runs), NULL, 1, RUNS_MAX, NULL,
     "runs of each mode, by turns; medians count (default 5, with --quick 3)"},
    {"seed", "N", OPTION_COUNT, offsetof(settings, seed), "1", 0, 4294967295, NULL,
     "what the envelopes are made from"},
    {"quick", NULL, OPTION_FLAG, offsetof(settings, quick), NULL, 0, 0, NULL,
     "fewer rounds and runs, done in a second or two"},
};

static const options_spec spec = {
    .about = "Encodes request envelopes as JSON, with and without a pooled encoder and buffers.\v"
             "An encoder is a struct, an output buffer and a scratch buffer on the heap. Each "
             "thread goes through all envelopes once before anything is counted.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

enum {
  EXPERIMENT,
  ENGINE,
  MODE,
  THREADS,
  ENVELOPES,
  ROUND_COUNT,
  RUN_COUNT,
  NS_OP,
  NS_OP_LEAST,
  NS_OP_MOST,
  ALLOCS_OP,
  BYTES_OP,
  HIT_RATE,
  COLLECTIONS,
  FRESH_NS,
  FRESH_ALLOCS,
  PARTIAL,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [MODE] = {"mode", "encoder", COLUMN_TEXT, 0},
    [THREADS] = {"threads", "threads", COLUMN_COUNT, 0},
    [ENVELOPES] = {"envelopes", NULL, COLUMN_COUNT, 0},
    [ROUND_COUNT] = {"rounds", NULL, COLUMN_COUNT, 0},
    [RUN_COUNT] = {"runs", NULL, COLUMN_COUNT, 0},
    [NS_OP] = {"ns_op", "ns/op", COLUMN_REAL, 1},
    [NS_OP_LEAST] = {"ns_op_min", NULL, COLUMN_REAL, 1},
    [NS_OP_MOST] = {"ns_op_max", NULL, COLUMN_REAL, 1},
    [ALLOCS_OP] = {"allocs_op", "allocs/op", COLUMN_REAL, 4},
    [BYTES_OP] = {"bytes_op", "B/op", COLUMN_REAL, 1},
    [HIT_RATE] = {"hit_rate", "hit rate", COLUMN_REAL, 4},
    [COLLECTIONS] = {"collections", "collections", COLUMN_REAL, 0},
    [FRESH_NS] = {"fresh_over_this", "times faster", COLUMN_REAL, 2},
    [FRESH_ALLOCS] = {"allocs_over_fresh", NULL, COLUMN_REAL, 6},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

enum { S_EXPERIMENT, S_SUMMARY, S_SEED, S_OPS, S_OUTPUT, S_SHARE, S_FASTER, S_FIELDS };

static const column summary_columns[S_FIELDS] = {
    [S_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [S_SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [S_SEED] = {"seed", NULL, COLUMN_COUNT, 0},
    [S_OPS] = {"ops", NULL, COLUMN_COUNT, 0}, // of one thread, in one run
    [S_OUTPUT] = {"output_bytes_op", NULL, COLUMN_REAL, 1},
    [S_SHARE] = {"pool_allocs_over_fresh", NULL, COLUMN_REAL, 6}, // the worst number of threads
    [S_FASTER] = {"pool_times_faster", NULL, COLUMN_REAL, 2},     // the same
};

// ---- One run --------------------------------------------------------------------------------

typedef struct outcome {
  double ns_op, allocs_op, bytes_op, hit_rate, collections;
} outcome;

enum { OUTCOMES = sizeof(outcome) / sizeof(double) };

typedef struct team team;

typedef struct worker {
  team *team;
  unsigned number;
  pthread_t thread;
} worker;

struct team {
  const envelopes *set;
  supply *from;
  uint64_t rounds;
  uint64_t output_bytes; // of one round
  unsigned workers;
  gate arrived;           // once everybody has warmed up, once everybody is done
  gate leave;             // for the rounds that count, for the end: the statistics have been read
  volatile unsigned here; // workers at the gate
  volatile unsigned failed;
  worker team[THREADS_MAX];
};

typedef struct stop {
  worker *w;
  unsigned round;
} stop;

static void *arrive(void *arg) {
  const stop *at = arg;
  team *t = at->w->team;
  // Full: the last one passes on to the caller what all of them did.
  if (AO_int_fetch_and_add1_full(&t->here) + 1 == t->workers * at->round)
    gate_open(&t->arrived, at->round);
  gate_await(&t->leave, at->round);
  return NULL;
}

// Once through the set. Whether all of it was written.
static bool encode_all(worker *w) {
  const team *t = w->team;
  uint64_t written = 0;
  for (size_t i = 0; i < t->set->count; i++) {
    encoder *e = supply_get(t->from, w->number);
    if (!e) return false;
    written += encoder_encode(e, &t->set->at[i]).length;
    supply_put(t->from, w->number, e);
  }
  return written == t->output_bytes;
}

static void *work(void *arg) {
  worker *w = arg;
  team *t = w->team;
  bool good = encode_all(w);
  tide_blocking(arrive, &(stop){w, 1});
  for (uint64_t i = 0; good && i < t->rounds; i++) good = encode_all(w);
  if (!good) AO_int_store(&t->failed, 1);
  tide_blocking(arrive, &(stop){w, 2});
  return NULL;
}

typedef struct moment {
  uint64_t ns, mallocs, bytes, collections, gets, misses;
} moment;

static moment look(supply *from) {
  moment m;
  tide_memstats stats;
  tide_memstats_read(&stats);
  supply_counts(from, &m.gets, &m.misses);
  m.mallocs = stats.mallocs;
  m.bytes = stats.total_alloc;
  m.collections = stats.num_gc;
  m.ns = now_ns();
  return m;
}

static void *await_arrival(void *arg) {
  const stop *at = arg;
  gate_await(&at->w->team->arrived, at->round);
  return NULL;
}

static void *join_all(void *arg) {
  team *t = arg;
  for (unsigned i = 0; i < t->workers; i++) pthread_join(t->team[i].thread, NULL);
  return NULL;
}

// How many could be started.
static unsigned start_workers(team *t, unsigned workers) {
  t->workers = workers;
  for (unsigned i = 0; i < workers; i++) {
    worker *w = &t->team[i];
    *w = (worker){.team = t, .number = i};
    int error = thread_start(&w->thread, work, w);
    if (!error) continue;
    complain("cannot start worker %u of %u: %s", i + 1, workers, strerror(error));
    return i;
  }
  return workers;
}

static bool run_team(team *t, unsigned workers, outcome *found) {
  unsigned started = start_workers(t, workers);
  if (started < workers) exit(STATUS_FAILED); // those that run wait for the others
  tide_blocking(await_arrival, &(stop){&t->team[0], 1});
  moment before = look(t->from);
  gate_open(&t->leave, 1);
  tide_blocking(await_arrival, &(stop){&t->team[0], 2});
  moment after = look(t->from);
  gate_open(&t->leave, 2);
  tide_blocking(join_all, t);
  if (t->failed) {
    complain("out of memory, or an encoder was used by two threads at a time");
    return false;
  }
  double ops = (double)workers * (double)t->rounds * (double)t->set->count;
  uint64_t gets = after.gets - before.gets;
  *found = (outcome){
      .ns_op = (double)(after.ns - before.ns) / ops,
      .allocs_op = (double)(after.mallocs - before.mallocs) / ops,
      .bytes_op = (double)(after.bytes - before.bytes) / ops,
      .hit_rate = gets ? 1 - (double)(after.misses - before.misses) / (double)gets : NAN,
      .collections = (double)(after.collections - before.collections),
  };
  return true;
}

// ---- All runs -------------------------------------------------------------------------------

typedef struct run {
  settings set;
  envelopes envelopes;
  uint64_t output_bytes; // of all envelopes
  outcome *outcomes;     // by number of threads, mode, run
  unsigned done[NUMBERS_MAX][MODES];
  table rows, summary;
  bool partial;
} run;

static bool has_mode(const run *r, unsigned mode) {
  return r->set.modes >> mode & 1;
}

static outcome *outcomes_of(const run *r, size_t threads, unsigned mode) {
  return &r->outcomes[(threads * MODES + mode) * r->set.runs];
}

static bool run_once(run *r, size_t threads, unsigned mode) {
  unsigned workers = (unsigned)r->set.threads.at[threads];
  team *t = calloc(1, sizeof *t);
  if (!t) {
    complain("no memory for %u threads", workers);
    return false;
  }
  t->set = &r->envelopes;
  t->rounds = r->set.rounds;
  t->output_bytes = r->output_bytes;
  t->from = supply_create((supply_kind)mode, workers, &made, NULL);
  tide_collect(); // what the last mode has left is not this one's
  outcome *to = outcomes_of(r, threads, mode) + r->done[threads][mode];
  bool good = t->from && run_team(t, workers, to);
  r->done[threads][mode]++;
  supply_destroy(t->from);
  free(t);
  return good;
}

// What one encoder writes for all of them, for the others to be compared with.
static bool measure_output(run *r) {
  encoder *e = encoder_create(&made);
  for (size_t i = 0; e && i < r->envelopes.count; i++)
    r->output_bytes += encoder_encode(e, &r->envelopes.at[i]).length;
  if (!e) complain("out of memory");
  return e != NULL;
}

static bool measure(run *r) {
  if (!measure_output(r)) return false;
  double done = 0, all = (double)(r->set.runs * r->set.threads.count * MODES);
  for (uint64_t i = 0; i < r->set.runs; i++)
    for (size_t threads = 0; threads < r->set.threads.count; threads++)
      for (unsigned mode = 0; mode < MODES; mode++) {
        if (interrupted()) {
          r->partial = true;
          return true;
        }
        if (has_mode(r, mode) && !run_once(r, threads, mode)) return false;
        progress_show(++done / all);
      }
  return true;
}

// ---- The result -----------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// What share of the runs lies below, of one of an outcome's fields; NAN where the field is.
static double quantile(const run *r, size_t threads, unsigned mode, size_t field, double share) {
  unsigned runs = r->done[threads][mode];
  double sorted[RUNS_MAX];
  const double *first = (const double *)outcomes_of(r, threads, mode) + field;
  for (unsigned i = 0; i < runs; i++) sorted[i] = first[i * OUTCOMES];
  if (!runs || isnan(sorted[0])) return NAN;
  qsort(sorted, runs, sizeof sorted[0], compare);
  double at = share * (runs - 1);
  return (sorted[(unsigned)floor(at)] + sorted[(unsigned)ceil(at)]) / 2;
}

static outcome median_of(const run *r, size_t threads, unsigned mode) {
  double fields[OUTCOMES];
  outcome median;
  for (size_t i = 0; i < OUTCOMES; i++) fields[i] = quantile(r, threads, mode, i, 0.5);
  memcpy(&median, fields, sizeof median);
  return median;
}

static void add_row(run *r, size_t threads, unsigned mode) {
  outcome m = median_of(r, threads, mode), fresh = median_of(r, threads, SUPPLY_FRESH);
  cell row[FIELDS] = {
      [EXPERIMENT].text = "marshal",
      [ENGINE].text = r->set.common.engine,
      [MODE].text = mode_names[mode],
      [THREADS].count = (int64_t)r->set.threads.at[threads],
      [ENVELOPES].count = (int64_t)r->set.envelopes,
      [ROUND_COUNT].count = (int64_t)r->set.rounds,
      [RUN_COUNT].count = r->done[threads][mode],
      [NS_OP].real = m.ns_op,
      [NS_OP_LEAST].real = quantile(r, threads, mode, 0, 0),
      [NS_OP_MOST].real = quantile(r, threads, mode, 0, 1),
      [ALLOCS_OP].real = m.allocs_op,
      [BYTES_OP].real = m.bytes_op,
      [HIT_RATE].real = m.hit_rate,
      [COLLECTIONS].real = m.collections,
      [FRESH_NS].real = fresh.ns_op / m.ns_op,
      [FRESH_ALLOCS].real = m.allocs_op / fresh.allocs_op,
      [PARTIAL].flag = r->done[threads][mode] < r->set.runs,
  };
  table_add(&r->rows, row);
}

static void add_rows(run *r) {
  double share = NAN, faster = NAN;
  for (size_t threads = 0; threads < r->set.threads.count; threads++)
    for (unsigned mode = 0; mode < MODES; mode++) {
      if (!r->done[threads][mode]) continue;
      add_row(r, threads, mode);
      const cell *row = r->rows.cells + (r->rows.row_count - 1) * FIELDS;
      if (mode != SUPPLY_POOL) continue;
      share = fmax(share, row[FRESH_ALLOCS].real); // fmax and fmin ignore a NAN
      faster = fmin(faster, row[FRESH_NS].real);
    }
  cell row[S_FIELDS] = {
      [S_EXPERIMENT].text = "marshal",
      [S_SUMMARY].flag = true,
      [S_SEED].count = (int64_t)r->set.seed,
      [S_OPS].count = (int64_t)(r->set.envelopes * r->set.rounds),
      [S_OUTPUT].real = (double)r->output_bytes / (double)r->set.envelopes,
      [S_SHARE].real = share,
      [S_FASTER].real = faster,
  };
  table_add(&r->summary, row);
}

static const cell *row_of(const run *r, const char *mode, int64_t threads) {
  for (size_t i = 0; i < r->rows.row_count; i++) {
    const cell *row = r->rows.cells + i * FIELDS;
    if (row[THREADS].count == threads && strcmp(row[MODE].text, mode) == 0) return row;
  }
  return NULL;
}

static void print_finding(FILE *file, const run *r, int64_t threads) {
  const cell *fresh = row_of(r, "fresh", threads), *pool = row_of(r, "pool", threads);
  if (!fresh || !pool) return;
  paragraph_print(file,
                  "%lld thread%s: with the pool %.3g~allocations and %.3g~bytes an envelope, "
                  "without %.3g and %.0f, that is %.2g~%% of the allocations; it is %.1f~times as "
                  "fast, with %.0f~collections in place of %.0f.",
                  (long long)threads, threads == 1 ? "" : "s", pool[ALLOCS_OP].real,
                  pool[BYTES_OP].real, fresh[ALLOCS_OP].real, fresh[BYTES_OP].real,
                  pool[FRESH_ALLOCS].real * 100, pool[FRESH_NS].real, pool[COLLECTIONS].real,
                  fresh[COLLECTIONS].real);
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const run *r = data;
  paragraph_print(
      file,
      "marshal: %s engine, %llu envelopes of %.0f bytes of JSON on average, seed %llu, %llu rounds "
      "a run, medians of %llu runs by turns",
      r->set.common.engine, (unsigned long long)r->set.envelopes,
      (double)r->output_bytes / (double)r->set.envelopes, (unsigned long long)r->set.seed,
      (unsigned long long)r->set.rounds, (unsigned long long)r->set.runs);
  fputc('\n', file);
  table_print(file, style, &r->rows);
  fputc('\n', file);
  paragraph_print(file, "An op is one envelope; ns/op is wall time over what all threads did. The "
                        "first round of each thread is not counted. times faster: than fresh.");
  for (size_t i = 0; i < r->set.threads.count; i++)
    print_finding(file, r, (int64_t)r->set.threads.at[i]);
  if (r->partial) paragraph_print(file, "Partial result: interrupted before all runs were done.");
}

// ---------------------------------------------------------------------------------------------

static int run_experiment(run *r) {
  progress_start("marshal");
  bool good = measure(r);
  progress_end();
  if (!good) return STATUS_FAILED;
  add_rows(r);
  report rep = {.experiment = "marshal",
                .rows = &r->rows,
                .summary = &r->summary,
                .text = print_text,
                .data = r};
  if (!report_write(&rep, &r->set.common)) return STATUS_FAILED;
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

int marshal_run(int argc, char **argv) {
  static run r = {.rows = {.columns = columns, .column_count = FIELDS},
                  .summary = {.columns = summary_columns, .column_count = S_FIELDS}};
  options_parse(&spec, &r.set, argc, argv);
  if (!r.set.rounds) r.set.rounds = r.set.quick ? ROUNDS_QUICK : ROUNDS;
  if (!r.set.runs) r.set.runs = r.set.quick ? RUNS_QUICK : RUNS;
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!out_prepare(r.set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  if (!envelopes_make(&r.envelopes, r.set.envelopes, r.set.seed)) return STATUS_FAILED;
  r.outcomes = calloc(r.set.threads.count * MODES * r.set.runs, sizeof *r.outcomes);
  if (r.outcomes)
    status = run_experiment(&r);
  else
    complain("no memory for the results");
  if (!r.outcomes) status = STATUS_FAILED;
  free(r.outcomes);
  envelopes_free(&r.envelopes);
  table_free(&r.rows);
  table_free(&r.summary);
  return status;
}
