// SPDX-License-Identifier: MIT
// `tidepool bench`: what its files share.
//
//   bench.c            the command: options, runs by turns, the result
//   bench_workloads.c  which workloads there are, their options, parameters and metrics
//   bench_worker.c     one run: a process of its own, watched
//   bench_report.c     rows and their columns, the text form
//   bench/             the workers, one executable a peer
#ifndef TIDEPOOL_TOOL_BENCH_H
#define TIDEPOOL_TOOL_BENCH_H

#include "options.h"
#include "output.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  BENCH_METRICS_MAX = 8,
  BENCH_PARAMETERS_MAX = 4,
  BENCH_RUNS_MAX = 100,
  BENCH_COLUMNS_MAX = 64,
  BENCH_WORDS_MAX = 2 * NUMBERS_MAX,
};

// ---- Peers ----------------------------------------------------------------------------------

typedef enum bench_peer_id { TIDEPOOL, BDW, MALLOC, MIMALLOC, GO, BENCH_PEERS } bench_peer_id;
#define BENCH_PEER_WORDS "bdw,malloc,mimalloc,go" // those that --vs names, in the order above

typedef struct bench_peer {
  const char *name;
  const char *worker;  // the executable
  const char *package; // Debian's, which must be there when workers are built; NULL: none
  unsigned has;        // of what workloads may need
} bench_peer;

enum { COLLECTOR = 1, POOLS = 2 };

extern const bench_peer bench_peers[BENCH_PEERS];

// ---- Workloads ------------------------------------------------------------------------------

typedef struct bench_settings {
  common_options common;
  uint64_t vs; // OPTION_SET
  uint64_t runs;
  uint64_t timeout;
  bool quick;
  uint64_t n; // the positional argument; 0: the workload's own number
  uint64_t seed;
  uint64_t bytes;
  uint64_t live;
  uint64_t seconds;
  uint64_t thread_count;
  uint64_t operations;
  uint64_t least_ms;
  uint64_t patterns; // OPTION_SET
  numbers sizes;
  numbers threads;
  numbers markers;
  numbers pools;
  numbers items;
} bench_settings;

// What a worker is told, and a column of the result.
typedef struct bench_parameter {
  const char *key;
  const char *heading; // of a column for a list, or in the title for one number
  bool list;           // numbers in the settings, one configuration each; else uint64_t
  bool set;            // an OPTION_SET in the settings, a configuration for each of its words
  bool power;          // the work grows as 2^value
  bool bytes;          // shown with a unit
  size_t offset;       // in bench_settings
  double typical;      // a larger value than this gives the worker more time; 0: any is alike
  const char *words;   // what the values 0, 1, ... are called; NULL: numbers only
} bench_parameter;

typedef struct bench_metric {
  const char *field;   // in the worker's report
  const char *heading; // with its unit
  int digits;
  // Not from the report: the time that the command saw the process take, in ms.
  bool of_process;
  // Not from the report: the metric of this index over what it is with one thread.
  int speed_up_of; // 0: none
} bench_metric;

typedef struct bench_workload {
  const char *name;
  const char *summary;       // for the list of workloads
  const char *about;         // for --help
  const char *note;          // under the table
  const char *noun;          // of which tidepool takes less when the ratio is below 1
  unsigned needs;            // what a peer must have
  const option_row *options; // besides those of every workload
  size_t option_count;
  const option_row *positional; // NULL: none
  uint64_t n, quick_n;          // the positional argument's defaults
  const char *quick;            // what else --quick stands for, options separated by spaces
  bench_parameter parameters[BENCH_PARAMETERS_MAX + 1]; // the last list varies fastest
  bench_metric metrics[BENCH_METRICS_MAX + 1];          // the first is compared
  int otherwise; // compared instead where the peer has no first metric; 0: nothing is
} bench_workload;

// Ends with one that has no name.
extern const bench_workload bench_workloads[];

// Whether the peer has what the workload measures.
bool bench_able(const bench_workload *workload, int peer);

// ---- A run ----------------------------------------------------------------------------------

typedef enum worker_outcome { WORKER_DONE, WORKER_FAILED, WORKER_INTERRUPTED } worker_outcome;

typedef struct worker_result {
  char text[1024]; // what it printed
  double seconds;  // from its start to its end
} worker_result;

// Whether the peer's worker was built; the second complains if not.
bool worker_built(const bench_peer *peer);
bool worker_exists(const bench_peer *peer);

// Runs a peer's worker with these arguments, the last one NULL, the first two not set. It has so
// many seconds. Complains when it failed.
worker_outcome worker_run(const bench_peer *peer, char **arguments, double seconds,
                          worker_result *result);

// ---- The result -----------------------------------------------------------------------------

// One configuration: a number for each parameter, and what the runs of the peers brought.
typedef struct bench_samples {
  double parameters[BENCH_PARAMETERS_MAX];
  size_t runs[BENCH_PEERS];
  double values[BENCH_PEERS][BENCH_METRICS_MAX][BENCH_RUNS_MAX];
} bench_samples;

typedef struct spread {
  double median, least, most; // NAN: not known
} spread;

// Of a metric over the runs of a peer.
spread bench_spread(const bench_samples *samples, int peer, int metric);

typedef struct bench_report {
  const bench_workload *workload;
  const bench_settings *set;
  bool peers[BENCH_PEERS]; // those that run
  bool partial;
  column columns[BENCH_COLUMNS_MAX];
  char names[BENCH_COLUMNS_MAX][40];
  size_t column_count;
  table rows;
  table summary;
  size_t configurations;
  // Over the configurations: logarithms of ratios added up, how many, and the extremes.
  struct {
    double logs, least, most;
    size_t count;
  } ratios[BENCH_PEERS];
  double worst_spread;
} bench_report;

// Workload, settings and peers are set; describes the columns.
void bench_report_start(bench_report *r);
// Adds the rows of a configuration, one for each peer.
void bench_report_add(bench_report *r, const bench_samples *samples);
// Prints and writes it. Returns false with a complaint.
bool bench_report_write(bench_report *r);
void bench_report_free(bench_report *r);

#endif
