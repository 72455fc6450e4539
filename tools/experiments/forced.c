// SPDX-License-Identifier: MIT
// `tidepool forced`: what exactly k collections between two uses leave of a pool.
//
// Automatic collections are off, so that the collections made here are the only ones; that they
// were is checked against the collector's own count. The rule says: none or one, and everything is
// still there; two or more, and nothing is. Each row has a pool of its own, and its first burst,
// which finds the pool empty, is not counted.
#include "burst.h"
#include "command.h"
#include "output.h"
#include "progress.h"
#include "wait.h"

#include <string.h>

typedef struct settings {
  common_options common;
  numbers procs;
  uint64_t bursts;
  uint64_t workers;
  uint64_t item_bytes;
  uint64_t max_forced;
} settings;

static const option_row table_of_options[] = {
    {"procs", "LIST", OPTION_COUNTS, offsetof(settings, procs), "1,2,4,12", 1, 1024, NULL,
     "numbers of processors to run with"},
    {"bursts", "N", OPTION_COUNT, offsetof(settings, bursts), "100", 1, 1000000, NULL,
     "bursts in a row of the result"},
    {"workers", "N", OPTION_COUNT, offsetof(settings, workers), "64", 1, 1024, NULL,
     "threads in a burst, each with one item"},
    {"item-bytes", "SIZE", OPTION_BYTES, offsetof(settings, item_bytes), "4096", 16, 0x1p24, NULL,
     "size of an item"},
    {"max-forced", "N", OPTION_COUNT, offsetof(settings, max_forced), "3", 0, 100, NULL,
     "try 0 to N collections between bursts"},
};

static const options_spec spec = {
    .about = "Counts how many items a pool still has after 0, 1, 2, ... collections.\v"
             "A burst is a number of threads that take an item each, wait until all of them hold "
             "one, wait 100 microseconds and put it back. A hit is an item that came out of the "
             "pool; on a miss it had to be made.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

enum {
  EXPERIMENT,
  ENGINE,
  PROCS,
  FORCED,
  BURSTS,
  WORKERS,
  HITS,
  RATE,
  PREDICTED,
  COLLECTIONS,
  EXPECTED_COLLECTIONS,
  PARTIAL,
  BAR,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [PROCS] = {"procs", "procs", COLUMN_COUNT, 0},
    [FORCED] = {"forced", "collections between", COLUMN_COUNT, 0},
    [BURSTS] = {"bursts", "bursts", COLUMN_COUNT, 0},
    [WORKERS] = {"workers", NULL, COLUMN_COUNT, 0},
    [HITS] = {"hits_per_burst", "hits per burst", COLUMN_REAL, 2},
    [RATE] = {"hit_rate", "hit rate", COLUMN_REAL, 4},
    [PREDICTED] = {"predicted", "predicted", COLUMN_REAL, 0},
    [COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [EXPECTED_COLLECTIONS] = {"expected_collections", NULL, COLUMN_COUNT, 0},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
    [BAR] = {NULL, "", COLUMN_BAR, 0},
};

typedef struct run {
  settings set;
  burst *team;
  table rows;
  double shares_done; // of all bursts, for the progress bar
  bool partial;
} run;

static void add_row(run *r, int procs, uint64_t forced, uint64_t bursts, uint64_t hits,
                    uint64_t collections) {
  double uses = (double)(bursts * r->set.workers);
  double rate = (double)hits / uses;
  cell row[FIELDS] = {
      [EXPERIMENT].text = "forced",
      [ENGINE].text = r->set.common.engine,
      [PROCS].count = procs,
      [FORCED].count = (int64_t)forced,
      [BURSTS].count = (int64_t)bursts,
      [WORKERS].count = (int64_t)r->set.workers,
      [HITS].real = (double)hits / (double)bursts,
      [RATE].real = rate,
      [PREDICTED].real = forced < 2 ? 1 : 0,
      [COLLECTIONS].count = (int64_t)collections,
      [EXPECTED_COLLECTIONS].count = (int64_t)(forced * bursts),
      [PARTIAL].flag = bursts < r->set.bursts,
      [BAR].real = rate,
  };
  table_add(&r->rows, row);
}

// One row: a new pool, a burst that fills it, then collections and bursts by turns.
static bool measure(run *r, tide_pool *pool, int procs, uint64_t forced) {
  burst_result filled, result;
  if (!burst_run(r->team, pool, &filled)) return false;
  uint64_t first_cycle = tide_gc_cycle();
  uint64_t done = 0, hits = 0;
  double rows = (double)(r->set.procs.count * (r->set.max_forced + 1));
  for (; done < r->set.bursts && !interrupted(); done++) {
    for (uint64_t i = 0; i < forced; i++) tide_collect();
    if (!burst_run(r->team, pool, &result)) return false;
    hits += result.hits;
    progress_show((r->shares_done + (double)done / (double)r->set.bursts) / rows);
  }
  r->shares_done += 1;
  if (done < r->set.bursts) r->partial = true;
  if (done > 0) add_row(r, procs, forced, done, hits, tide_gc_cycle() - first_cycle);
  return burst_check_stats(r->team, pool, done + 1, hits + filled.hits);
}

static bool measure_all(run *r) {
  for (size_t i = 0; i < r->set.procs.count; i++) {
    int procs = (int)r->set.procs.at[i];
    tide_procs_set(procs);
    for (uint64_t forced = 0; forced <= r->set.max_forced && !r->partial; forced++) {
      tide_pool *pool = burst_pool(r->team, "forced");
      if (!pool) return false;
      bool good = measure(r, pool, procs, forced);
      tide_pool_destroy(pool);
      if (!good) return false;
    }
  }
  return true;
}

// ---- The text form --------------------------------------------------------------------------

typedef struct findings {
  double least_kept;      // smallest hit rate after fewer than two collections
  double most_left;       // largest after two or more
  bool kept, left;        // whether there are such rows
  bool as_predicted;      // but for an item a processor, see below
  bool other_collections; // the collector counted others than ours
} findings;

// A processor's part of a pool has one private slot, out of which no other processor takes. So a
// burst may miss as many items as there are processors, though they are there.
static bool row_as_predicted(const cell *row) {
  double missed = (double)row[WORKERS].count - row[HITS].real;
  return row[FORCED].count < 2 ? missed <= (double)row[PROCS].count : row[HITS].real == 0;
}

static findings look_at(const table *rows) {
  findings f = {.least_kept = 1, .as_predicted = true};
  for (size_t i = 0; i < rows->row_count; i++) {
    const cell *row = rows->cells + i * FIELDS;
    double rate = row[RATE].real;
    if (row[COLLECTIONS].count != row[EXPECTED_COLLECTIONS].count) f.other_collections = true;
    if (!row_as_predicted(row)) f.as_predicted = false;
    if (row[FORCED].count < 2) {
      f.kept = true;
      if (rate < f.least_kept) f.least_kept = rate;
    } else {
      f.left = true;
      if (rate > f.most_left) f.most_left = rate;
    }
  }
  return f;
}

static void print_conclusion(FILE *file, const run *r) {
  findings f = look_at(&r->rows);
  double kept = f.least_kept * 100, left = f.most_left * 100;
  if (f.other_collections)
    paragraph_print(file,
                    "Not a clean run: the collector also collected by itself (collections and "
                    "expected_collections in the CSV and JSON forms).");
  if (!f.kept) return;
  if (!f.as_predicted)
    paragraph_print(file,
                    "Not as predicted: as few as %.1f~%% of the items came back after none or one "
                    "collection, and up to %.1f~%% after two or more.",
                    kept, left);
  else
    paragraph_print(file,
                    "%sAfter none or one collection at least %.1f~%% of the items came back (each "
                    "processor's private slot may keep one from the others)%s.",
                    f.left ? "An idle item survives one collection and is lost at the second. "
                           : "",
                    kept, f.left ? "; after two or more, none" : "");
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const run *r = data;
  paragraph_print(file,
                  "forced: %s engine, %llu workers, items of %s, %llu bursts a row, no other "
                  "collections",
                  r->set.common.engine, (unsigned long long)r->set.workers,
                  size_text(r->set.item_bytes), (unsigned long long)r->set.bursts);
  fputc('\n', file);
  table_print(file, style, &r->rows);
  fputc('\n', file);
  if (r->partial)
    paragraph_print(file, "Partial result: interrupted before all of it was measured.");
  else
    print_conclusion(file, r);
}

// ---------------------------------------------------------------------------------------------

static int run_experiment(run *r) {
  tide_gc_percent_set(-1);
  r->team = burst_create((unsigned)r->set.workers, r->set.item_bytes);
  if (!r->team) return STATUS_FAILED;
  progress_start("forced");
  bool good = measure_all(r);
  progress_end();
  burst_destroy(r->team);
  if (!good) return STATUS_FAILED;
  report rep = {.experiment = "forced", .rows = &r->rows, .text = print_text, .data = r};
  if (!report_write(&rep, &r->set.common)) return STATUS_FAILED;
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

int forced_run(int argc, char **argv) {
  run r = {.rows = {.columns = columns, .column_count = FIELDS}};
  options_parse(&spec, &r.set, argc, argv);
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!out_prepare(r.set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  status = run_experiment(&r);
  table_free(&r.rows);
  return status;
}
