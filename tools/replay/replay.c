// SPDX-License-Identifier: MIT
// `tidepool replay FILE`: a recorded program (TIDE_DEBUG=record=FILE) done again, really and in
// mind.
//
// The real replay shows that what was recorded is understood: its pools, on the real heap, should
// hit as often as they did, and as the simulation says. The simulation then goes through the table
// of settings, which takes a fraction of the time, and through a few cures.
#include "replay.h"
#include "command.h"
#include "progress.h"
#include "wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERCENTS "50,100,200,400,800"

static const option_row table_of_options[] = {
    {"speed", "NAME", OPTION_CHOICE, offsetof(replay_settings, speed), "fast", 0, 0,
     "fast,recorded", "as fast as possible, or in the time that it took when it was recorded"},
    {"measure", "WHAT", OPTION_CHOICE, offsetof(replay_settings, measure), "own", 0, 0,
     "none,own,all",
     "what to replay on the real heap, beside the simulation: nothing, the program's own GC "
     "percent "
     "and limit, or each pair in the table too"},
    {"percents", "LIST", OPTION_COUNTS, offsetof(replay_settings, percents), PERCENTS, 0, 1000000,
     "off", "GC percents of the table"},
    {"limits", "LIST", OPTION_SIZES, offsetof(replay_settings, limits), NULL, 0x1p20, 0x1p40, "off",
     "memory limits of the table (default off, and 2, 8 and 32 MiB more than the most that was "
     "live)"},
};

static const option_row file_argument = {
    NULL, "FILE", OPTION_TEXT, offsetof(replay_settings, file),           NULL,
    0,    0,      NULL,        "what TIDE_DEBUG=record=FILE has recorded"};

static const options_spec spec = {
    .about =
        "Replays what TIDE_DEBUG=record=FILE has recorded of a program: its objects and its pools, "
        "on the real heap. Then works out, by simulation, what each pool would remember at other "
        "GC percents and memory limits, and what would help.\v"
        "Where an object died is known from the recorded program's collections; with "
        "TIDE_DEBUG=record_kib=N it is known better.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
    .positional = &file_argument,
};

// ---- The points -----------------------------------------------------------------------------

// All that ever counted towards a limit, but for garbage.
static uint64_t most_live(const trace *t) {
  uint64_t most = 0;
  for (size_t i = 0; i < t->collection_count; i++) {
    uint64_t bytes = t->collections[i].live_bytes + t->collections[i].beside_bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}

static void choose_limits(replay *r) {
  static const double more_mib[] = {32, 8, 2};
  if (r->set.limits.count) return;
  double mib = ceil((double)most_live(r->t) / 0x1p20);
  r->set.limits.at[r->set.limits.count++] = HUGE_VAL;
  for (size_t i = 0; i < sizeof more_mib / sizeof *more_mib; i++)
    r->set.limits.at[r->set.limits.count++] = (mib + more_mib[i]) * 0x1p20;
}

static bool list_points(replay *r) {
  const numbers *percents = &r->set.percents, *limits = &r->set.limits;
  r->points = calloc(1 + percents->count * limits->count, sizeof *r->points);
  if (!r->points) return false;
  r->points[r->point_count++] = (replay_point){
      .gc_percent = r->t->gc_percent, .memory_limit = r->t->memory_limit, .recorded = true};
  for (size_t p = 0; p < percents->count; p++)
    for (size_t l = 0; l < limits->count; l++)
      r->points[r->point_count++] = (replay_point){
          .gc_percent = percents->at[p] == HUGE_VAL ? -1 : (int)percents->at[p],
          .memory_limit = limits->at[l] == HUGE_VAL ? INT64_MAX : (int64_t)limits->at[l]};
  return true;
}

// ---- Runs -----------------------------------------------------------------------------------

static sim_setting setting_of(const replay *r, const replay_point *p) {
  return (sim_setting){.gc_percent = p->gc_percent,
                       .memory_limit = p->memory_limit,
                       .min_heap_bytes = r->t->min_heap_bytes,
                       .stop = interrupted};
}

// False: no memory. *done: not stopped before its end.
static bool simulate_one(const replay *r, const sim_setting *s, sim_result *result, bool *done) {
  if (interrupted()) return true;
  if (!simulate(r->t, s, result)) {
    complain("no memory for the simulation");
    return false;
  }
  *done = !result->stopped;
  if (!*done) free(result->pools);
  return true;
}

static bool measures(const replay *r, const replay_point *p) {
  if (strcmp(r->set.measure, "none") == 0) return false;
  return p->recorded || strcmp(r->set.measure, "all") == 0;
}

// The share of the whole that real replays take, as a guess.
static double share_of_runs(const replay *r) {
  if (strcmp(r->set.measure, "none") == 0) return 0;
  return strcmp(r->set.speed, "recorded") == 0 ? 0.9 : 0.5;
}

static bool run_all(replay *r) {
  size_t count = 0, done = 0;
  for (size_t i = 0; i < r->point_count; i++) count += measures(r, &r->points[i]);
  double share = count ? share_of_runs(r) / (double)count : 0;
  for (size_t i = 0; i < r->point_count && !interrupted(); i++) {
    replay_point *p = &r->points[i];
    if (!measures(r, p)) continue;
    const run_setting s = {.gc_percent = p->gc_percent,
                           .memory_limit = p->memory_limit,
                           .min_heap_bytes = r->t->min_heap_bytes,
                           .speed = strcmp(r->set.speed, "recorded") == 0 ? 1 : 0};
    p->measured = run_replay(r->t, &s, share * (double)done++, share, &p->run);
    if (!p->measured && !interrupted()) return false;
  }
  return true;
}

// With as much min_idle_ns as nearly all items need that come out of a pool that forgets nothing:
// in whole milliseconds, with a tenth to spare.
static bool simulate_idle(replay *r) {
  if (!r->best_simulated) return true;
  r->idle_ms = calloc(r->t->pool_count + 1, sizeof *r->idle_ms);
  if (!r->idle_ms) {
    complain("no memory for the simulation");
    return false;
  }
  for (size_t i = 0; i < r->t->pool_count; i++)
    r->idle_ms[i] = r->best.pools[i].hits ? ceil(1.1 * r->best.pools[i].long_gap_ms) : 0;
  sim_setting s = setting_of(r, &r->points[0]);
  s.idle_ms = r->idle_ms;
  return simulate_one(r, &s, &r->idle, &r->idle_simulated);
}

// What the words need: the best that there is, and some cures.
static bool simulate_cures(replay *r) {
  static const unsigned survive[REPLAY_CURES] = {2, 3, 4, 8, 16, 64};
  sim_setting s = setting_of(r, &r->points[0]);
  s.forgets_nothing = true;
  if (!simulate_one(r, &s, &r->best, &r->best_simulated)) return false;
  s.forgets_nothing = false;
  for (size_t i = 0; i < REPLAY_CURES; i++) {
    replay_cure *c = &r->cures[i];
    s.survive = c->survive = survive[i];
    if (!simulate_one(r, &s, &c->sim, &c->simulated)) return false;
  }
  return simulate_idle(r);
}

static bool simulate_all(replay *r) {
  double from = share_of_runs(r);
  for (size_t i = 0; i < r->point_count; i++) {
    replay_point *p = &r->points[i];
    const sim_setting s = setting_of(r, p);
    if (!simulate_one(r, &s, &p->sim, &p->simulated)) return false;
    if (i == 0 && !simulate_cures(r)) return false;
    progress_show(from + (1 - from) * (double)(i + 1) / (double)r->point_count);
  }
  return true;
}

static void free_all(replay *r) {
  for (size_t i = 0; i < r->point_count; i++) {
    if (r->points[i].simulated) free(r->points[i].sim.pools);
    if (r->points[i].measured) free(r->points[i].run.pools);
  }
  for (size_t i = 0; i < REPLAY_CURES; i++)
    if (r->cures[i].simulated) free(r->cures[i].sim.pools);
  if (r->best_simulated) free(r->best.pools);
  if (r->idle_simulated) free(r->idle.pools);
  free(r->idle_ms);
  free(r->points);
}

static int run(replay *r) {
  choose_limits(r);
  if (!list_points(r)) {
    complain("no memory for the table");
    return STATUS_FAILED;
  }
  progress_start("replay");
  r->began_ns = now_ns();
  bool good = run_all(r) && simulate_all(r);
  progress_end();
  r->partial = interrupted();
  if (!good || !replay_report(r)) return STATUS_FAILED;
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

// Collections are the replay's, not ours: nothing here is on the heap but in the children that
// replay_run.c makes.
int replay_run(int argc, char **argv) {
  replay r = {.points = NULL};
  options_parse(&spec, &r.set, argc, argv);
  if (!r.set.file) {
    complain("a FILE is missing; accepted: one that TIDE_DEBUG=record=FILE has made");
    return STATUS_USAGE;
  }
  int status = library_start();
  if (status != STATUS_DONE) return status;
  trace *t = trace_read(r.set.file, &status);
  if (!t) return status;
  if (!out_prepare(r.set.common.out)) {
    trace_free(t);
    return STATUS_FAILED;
  }
  interrupts_catch();
  r.t = t;
  status = run(&r);
  free_all(&r);
  trace_free(t);
  return status;
}
