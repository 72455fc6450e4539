// SPDX-License-Identifier: MIT
// `tidepool bench`: the same workloads on Tidepool and on other allocators and collectors.
//
// A run is a process of its own, so that no peer works in a heap that another one has left, and all
// the memory that it takes is its own. The peers run by turns: what a busy machine adds falls on
// all alike.
#include "bench.h"
#include "command.h"
#include "progress.h"
#include "wait.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_OF_ALL = 4, OPTIONS_MAX = 16, ARGUMENTS_MAX = 64, TEXT_BYTES = 64 };

static const option_row options_of_all[OPTIONS_OF_ALL] = {
    {"vs", "LIST", OPTION_SET, offsetof(bench_settings, vs), NULL, 0, 0, BENCH_PEER_WORDS ",all",
     "peers to compare with, of " BENCH_PEER_WORDS ", or all"},
    {"runs", "N", OPTION_COUNT, offsetof(bench_settings, runs), "5", 1, BENCH_RUNS_MAX, NULL,
     "runs of each peer in each configuration"},
    {"timeout", "N", OPTION_COUNT, offsetof(bench_settings, timeout), "120", 1, 1000000, NULL,
     "seconds after which a run is taken for hung; with larger numbers than the defaults, as much "
     "longer as there is more to do"},
    {"quick", NULL, OPTION_FLAG, offsetof(bench_settings, quick), NULL, 0, 0, NULL,
     "one run of something small; other options still count"},
};

typedef struct bench {
  bench_settings set;
  const bench_workload *workload;
  bench_report report;
  bench_samples samples;      // of the configuration that is being measured
  double single[BENCH_PEERS]; // what speed-ups refer to; NAN: not known
  uint64_t runs_done, runs_planned;
} bench;

// ---- Options --------------------------------------------------------------------------------

// The command line with what --quick stands for in front, where the user's own options overrule it.
static int expand_quick(const bench_workload *w, int argc, char **argv, char **expanded) {
  static char text[128];
  int count = 0;
  snprintf(text, sizeof text, "--runs=1 %s", w->quick);
  expanded[count++] = argv[0];
  for (char *rest = text, *word; (word = strsep(&rest, " "));)
    if (*word) expanded[count++] = word;
  for (int i = 1; i < argc && count < ARGUMENTS_MAX - 1; i++) expanded[count++] = argv[i];
  expanded[count] = NULL;
  return count;
}

static void read_options(bench *b, int argc, char **argv) {
  const bench_workload *w = b->workload;
  option_row rows[OPTIONS_MAX];
  memcpy(rows, options_of_all, sizeof options_of_all);
  for (size_t i = 0; i < w->option_count; i++) rows[OPTIONS_OF_ALL + i] = w->options[i];
  const options_spec spec = {.about = w->about,
                             .table = rows,
                             .count = OPTIONS_OF_ALL + w->option_count,
                             .positional = w->positional};
  options_parse(&spec, &b->set, argc, argv);
  if (b->set.quick) {
    char *expanded[ARGUMENTS_MAX];
    int count = expand_quick(w, argc, argv, expanded);
    b->set = (bench_settings){0};
    options_parse(&spec, &b->set, count, expanded);
  }
  if (w->positional && b->set.n == 0) b->set.n = b->set.quick ? w->quick_n : w->n;
}

static void refuse_peers(const bench_workload *w) {
  char names[64];
  size_t used = 0;
  for (int peer = 1; peer < BENCH_PEERS; peer++)
    if (bench_able(w, peer))
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? "," : "",
                               bench_peers[peer].name);
  complain("--vs: peers without %s have nothing to measure here; accepted: %s",
           w->needs & POOLS ? "pools" : "a collector", names);
}

// Which peers run. Returns false with a complaint when none of those that were asked for can.
static bool choose_peers(bench *b) {
  bool all = b->set.vs >> (BENCH_PEERS - 1) & 1;
  bool asked = b->set.vs != 0, able = false;
  b->report.peers[TIDEPOOL] = true;
  for (int peer = 1; peer < BENCH_PEERS; peer++) {
    bool chosen = all || (b->set.vs >> (peer - 1) & 1);
    b->report.peers[peer] = chosen;
    if (chosen && bench_able(b->workload, peer)) able = true;
  }
  if (asked && !able) refuse_peers(b->workload);
  return able || !asked;
}

static bool peer_runs(const bench *b, int peer) {
  return b->report.peers[peer] && bench_able(b->workload, peer);
}

static bool workers_exist(const bench *b) {
  for (int peer = 0; peer < BENCH_PEERS; peer++)
    if (peer_runs(b, peer) && !worker_exists(&bench_peers[peer])) return false;
  return true;
}

// ---- Configurations -------------------------------------------------------------------------

static const void *setting(const bench *b, const bench_parameter *p) {
  return (const char *)&b->set + p->offset;
}

static size_t value_count(const bench *b, const bench_parameter *p) {
  if (p->set) return (size_t)__builtin_popcountll(*(const uint64_t *)setting(b, p));
  return p->list ? ((const numbers *)setting(b, p))->count : 1;
}

static double value_at(const bench *b, const bench_parameter *p, size_t index) {
  if (p->list) {
    double value = ((const numbers *)setting(b, p))->at[index];
    return isinf(value) ? 0 : value; // the one word of such a list
  }
  uint64_t value = *(const uint64_t *)setting(b, p);
  if (!p->set) return (double)value;
  for (; index > 0; index--) value &= value - 1;
  return __builtin_ctzll(value);
}

static size_t configuration_count(const bench *b) {
  size_t count = 1;
  for (const bench_parameter *p = b->workload->parameters; p->key; p++) count *= value_count(b, p);
  return count;
}

// The index is a number whose digits choose from the lists, the last one being the least.
static void set_configuration(bench *b, size_t index) {
  const bench_parameter *parameters = b->workload->parameters;
  int count = 0;
  while (parameters[count].key) count++;
  memset(b->samples.runs, 0, sizeof b->samples.runs);
  for (int i = count - 1; i >= 0; i--) {
    const bench_parameter *p = &parameters[i];
    size_t values = value_count(b, p);
    b->samples.parameters[i] = value_at(b, p, index % values);
    index /= values;
  }
}

static double seconds_allowed(const bench *b) {
  double factor = 1;
  for (int i = 0; b->workload->parameters[i].key; i++) {
    const bench_parameter *p = &b->workload->parameters[i];
    double value = b->samples.parameters[i];
    if (p->typical <= 0 || value <= p->typical) continue;
    factor *= p->power ? exp2(value - p->typical) : value / p->typical;
  }
  return fmin((double)b->set.timeout * factor, 1e9);
}

// ---- Runs -----------------------------------------------------------------------------------

// Puts the metrics of a report where the samples are. Returns false with a complaint when one is
// missing or the text is something else.
static bool read_report(bench *b, int peer, const worker_result *result) {
  size_t run = b->samples.runs[peer];
  const bench_metric *metrics = b->workload->metrics;
  json_t *object = json_loads(result->text, 0, NULL);
  bool good = json_is_object(object);
  for (int i = 0; good && metrics[i].field; i++) {
    double *value = &b->samples.values[peer][i][run];
    json_t *found = json_object_get(object, metrics[i].field);
    if (metrics[i].of_process)
      *value = result->seconds * 1e3;
    else if (json_is_null(found) || metrics[i].speed_up_of)
      *value = NAN;
    else if (json_is_number(found))
      *value = json_number_value(found);
    else
      good = false;
  }
  json_decref(object);
  if (!good)
    complain("%s: the worker's report on %s cannot be read", bench_peers[peer].name,
             b->workload->name);
  return good;
}

static worker_outcome run_peer(bench *b, int peer) {
  char texts[BENCH_PARAMETERS_MAX][TEXT_BYTES];
  char *arguments[BENCH_PARAMETERS_MAX + 3] = {NULL, (char *)b->workload->name};
  for (int i = 0; b->workload->parameters[i].key; i++) {
    snprintf(texts[i], TEXT_BYTES, "%s=%.0f", b->workload->parameters[i].key,
             b->samples.parameters[i]);
    arguments[i + 2] = texts[i];
  }
  worker_result result;
  worker_outcome outcome = worker_run(&bench_peers[peer], arguments, seconds_allowed(b), &result);
  if (outcome != WORKER_DONE) return outcome;
  if (!read_report(b, peer, &result)) return WORKER_FAILED;
  b->samples.runs[peer]++;
  progress_show((double)++b->runs_done / (double)b->runs_planned);
  return WORKER_DONE;
}

// All runs of one configuration, the peers by turns.
static worker_outcome run_configuration(bench *b) {
  for (uint64_t run = 0; run < b->set.runs; run++)
    for (int peer = 0; peer < BENCH_PEERS; peer++) {
      if (!peer_runs(b, peer)) continue;
      worker_outcome outcome = run_peer(b, peer);
      if (outcome != WORKER_DONE) return outcome;
    }
  return WORKER_DONE;
}

// Fills in the metrics that are another one over what it was with one thread. The list of threads
// varies fastest, so that the configurations before and behind have the same other parameters.
static void add_speed_ups(bench *b, size_t index) {
  const bench_parameter *parameters = b->workload->parameters;
  const bench_metric *metrics = b->workload->metrics;
  int threads = 0;
  while (parameters[threads].key && strcmp(parameters[threads].key, "threads") != 0) threads++;
  for (int i = 0; metrics[i].field; i++)
    for (int peer = 0; metrics[i].speed_up_of && peer < BENCH_PEERS; peer++) {
      int of = metrics[i].speed_up_of;
      if (index % value_count(b, &parameters[threads]) == 0) b->single[peer] = NAN;
      if (b->samples.parameters[threads] == 1)
        b->single[peer] = bench_spread(&b->samples, peer, of).median;
      for (size_t run = 0; run < b->samples.runs[peer]; run++)
        b->samples.values[peer][i][run] = b->samples.values[peer][of][run] / b->single[peer];
    }
}

static bool measure_all(bench *b) {
  size_t configurations = configuration_count(b);
  for (size_t i = 0; i < configurations && !b->report.partial; i++) {
    set_configuration(b, i);
    worker_outcome outcome = run_configuration(b);
    if (outcome == WORKER_FAILED) return false;
    b->report.partial = outcome == WORKER_INTERRUPTED;
    add_speed_ups(b, i);
    bench_report_add(&b->report, &b->samples);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------

static int run_workload(bench *b, int argc, char **argv) {
  read_options(b, argc, argv);
  if (!choose_peers(b)) return STATUS_USAGE;
  // Tidepool's variables are checked here, where a bad value is bad usage.
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!workers_exist(b) || !out_prepare(b->set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  b->report.workload = b->workload;
  b->report.set = &b->set;
  bench_report_start(&b->report);
  for (int peer = 0; peer < BENCH_PEERS; peer++)
    if (peer_runs(b, peer)) b->runs_planned += b->set.runs * configuration_count(b);
  progress_start("bench");
  bool good = measure_all(b);
  progress_end();
  if (!good || !bench_report_write(&b->report)) return STATUS_FAILED;
  return b->report.partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

static void print_help(void) {
  printf("Usage: tidepool bench WORKLOAD [OPTION...]\n"
         "The same work done by Tidepool and by other allocators and collectors.\n\n"
         "Workloads:\n");
  for (const bench_workload *w = bench_workloads; w->name; w++) {
    char usage[32];
    snprintf(usage, sizeof usage, "%s%s%s%s", w->name, w->positional ? " [" : "",
             w->positional ? w->positional->argument : "", w->positional ? "]" : "");
    printf("  %-15s %s\n", usage, w->summary);
  }
  printf("\nPeers: " BENCH_PEER_WORDS "; `--vs all` takes all of them.\n"
         "`tidepool bench WORKLOAD --help` lists the options of a workload.\n");
}

static int refuse(const char *argument) {
  char names[256];
  size_t used = 0;
  for (const bench_workload *w = bench_workloads; w->name && used < sizeof names; w++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", w->name);
  if (!argument)
    complain("a workload is missing; workloads: %s (see tidepool bench --help)", names);
  else if (*argument == '-')
    complain("unknown option '%s'; accepted before a workload: --help", argument);
  else
    complain("unknown workload '%s'; workloads: %s", argument, names);
  return STATUS_USAGE;
}

int bench_run(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : NULL;
  if (name && (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0 || strcmp(name, "-h") == 0)) {
    print_help();
    return STATUS_DONE;
  }
  const bench_workload *w = bench_workloads;
  while (name && w->name && strcmp(name, w->name) != 0) w++;
  if (!name || !w->name) return refuse(name);

  static char title[64];
  static bench b; // large
  snprintf(title, sizeof title, "%s %s", command_title, name);
  command_title = title;
  argv[1] = title;
  b.workload = w;
  int status = run_workload(&b, argc - 1, argv + 1);
  bench_report_free(&b.report);
  return status;
}
