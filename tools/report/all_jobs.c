// SPDX-License-Identifier: MIT
// How `tidepool all` runs each experiment. Quick is under five minutes on two CPUs altogether; the
// seconds weigh the progress bar.
#include "all.h"
#include "bench.h"
#include "command.h"

#include <stdio.h>
#include <string.h>

const char *const all_engines[ENGINES] = {"native", "bdw"};

const job all_jobs[] = {
    {"forced",
     "forced",
     TAKES_NOTHING,
     {{"forced --bursts=50", 2}, {"forced", 3}, {"forced --bursts=300", 9}},
     {{"forced --bursts=50", 3}, {"forced", 3}, {"forced --bursts=300", 9}}},
    {"period",
     "period",
     TAKES_SEED,
     {{"period --quick", 56}, {"period", 130}, {"period --full", 600}},
     {{"period --quick --rates=200,800 --bursts=40", 20},
      {"period --quick", 56},
      {"period --full", 600}}},
    {"knobs",
     "knobs",
     TAKES_SEED,
     {{"knobs --quick", 70}, {"knobs", 190}, {"knobs --full", 1500}},
     {{"knobs --quick --percents=50 --limits=44MiB --bursts=15", 12},
      {"knobs --quick", 70},
      {"knobs", 190}}},
    {"uneven",
     "uneven",
     TAKES_SEED,
     {{"uneven --quick --ratios=0.5,0.75,1,1.25,1.5,1.75,2,2.5,3", 40},
      {"uneven", 130},
      {"uneven --full", 900}},
     {{NULL, 0}, {"uneven --quick", 40}, {"uneven", 130}}},
    {"procs",
     "procs",
     TAKES_NOTHING,
     {{"procs --quick", 1}, {"procs", 5}, {"procs --rounds=100", 15}},
     {{"procs --quick", 1}, {"procs", 5}, {"procs --rounds=100", 15}}},
    {"sawtooth",
     "sawtooth",
     TAKES_SEED,
     {{"sawtooth --quick --series", 30},
      {"sawtooth --series", 120},
      {"sawtooth --series --seconds=30", 250}},
     {{NULL, 0}, {NULL, 0}, {"sawtooth --series", 120}}},
    {"marshal",
     "marshal",
     TAKES_SEED,
     {{"marshal --quick", 2}, {"marshal", 8}, {"marshal", 8}},
     {{"marshal --quick", 2}, {"marshal", 8}, {"marshal", 8}}},
    {"replay",
     "replay",
     TAKES_TRACE,
     {{"replay", 2}, {"replay", 2}, {"replay --measure=all", 10}},
     {{"replay", 2}, {"replay", 2}, {"replay --measure=all", 10}}},
    {"bench-pause",
     "bench",
     TAKES_NOTHING,
     {{"bench pause --runs=1 --seconds=2", 9}, {"bench pause --runs=3", 30}, {"bench pause", 50}},
     {{NULL, 0}}},
    {"bench-trees",
     "bench",
     TAKES_NOTHING,
     {{"bench trees 15 --runs=3", 3}, {"bench trees --runs=3", 20}, {"bench trees", 35}},
     {{NULL, 0}}},
    {"bench-gcbench",
     "bench",
     TAKES_NOTHING,
     {{"bench gcbench 14 --runs=1", 2}, {"bench gcbench --runs=3", 8}, {"bench gcbench", 12}},
     {{NULL, 0}}},
    {"bench-alloc",
     "bench",
     TAKES_NOTHING,
     {{"bench alloc --runs=1 --bytes=64MiB", 2}, {"bench alloc --runs=3", 40}, {"bench alloc", 70}},
     {{NULL, 0}}},
    {"bench-scale",
     "bench",
     TAKES_NOTHING,
     {{"bench scale --runs=1 --threads=1,2 --sizes=32,256 --bytes=32MiB", 1},
      {"bench scale --runs=2 --threads=1,2,4 --sizes=32,256,2048", 40},
      {"bench scale", 300}},
     {{NULL, 0}}},
    {"bench-bigheap",
     "bench",
     TAKES_NOTHING,
     {{"bench bigheap 64 --runs=1", 6}, {"bench bigheap --runs=2", 60}, {"bench bigheap", 150}},
     {{NULL, 0}}},
    {"bench-pool",
     "bench",
     TAKES_NOTHING,
     {{"bench pool --runs=1 --sizes=64,4096,65536,struct --threads=1,2 --least-ms=50", 5},
      {"bench pool --runs=3 --threads=1,2", 80},
      {"bench pool", 200}},
     {{NULL, 0}}},
    {"bench-hooks",
     "bench",
     TAKES_NOTHING,
     {{"bench hooks --runs=1 --items=10,100000", 1},
      {"bench hooks --runs=1", 25},
      {"bench hooks", 120}},
     {{NULL, 0}}},
    {"bench-fragment",
     "bench",
     TAKES_NOTHING,
     {{NULL, 0}, {NULL, 0}, {"bench fragment", 60}},
     {{NULL, 0}}},
    {.name = NULL},
};

const job_form *job_form_of(const job *j, mode m, const char *engine) {
  return strcmp(engine, all_engines[0]) == 0 ? &j->native[m] : &j->others[m];
}

const char *job_command(const job *j) {
  static char name[32];
  const char *words = j->native[MODE_FULL].words;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(words, " "), words);
  return name;
}

bool job_exists(const job *j) {
  return command_find(job_command(j)) != NULL;
}

// The peers that have been built and can do the workload.
static void append_peers(char *text, size_t size, const job *j) {
  const bench_workload *w = bench_workloads;
  while (w->name && strcmp(w->name, j->name + strlen("bench-")) != 0) w++;
  const char *before = " --vs=";
  for (int peer = 1; w->name && peer < BENCH_PEERS; peer++) {
    if (!bench_able(w, peer) || !worker_built(&bench_peers[peer])) continue;
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", before, bench_peers[peer].name);
    before = ",";
  }
}

void job_line_make(job_line *line, const job *j, mode m, uint64_t seed, const char *engine,
                   const char *trace) {
  size_t size = sizeof line->text, count = 0;
  snprintf(line->text, size, "%s", job_form_of(j, m, engine)->words);
  if (strcmp(j->part, "bench") == 0) append_peers(line->text, size, j);
  size_t used = strlen(line->text);
  if (j->takes == TAKES_SEED)
    used +=
        (size_t)snprintf(line->text + used, size - used, " --seed=%llu", (unsigned long long)seed);
  if (strcmp(engine, all_engines[0]) != 0)
    snprintf(line->text + used, size - used, " --engine=%s", engine);
  for (char *rest = line->text, *word; count < JOB_WORDS_MAX - 2 && (word = strsep(&rest, " "));)
    line->words[count++] = word;
  if (j->takes == TAKES_TRACE && trace)
    line->words[count++] = (char *)trace; // whatever is in its name
  line->words[count] = NULL;
}
