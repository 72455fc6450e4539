// SPDX-License-Identifier: MIT
// The schedule of gaps; see gaps.h for what it is for.
//
// One thread runs it all: it takes the lane whose next burst is due first, waits, runs the burst.
// A lane alternates between two states, about to fill its pool or about to measure it. Whenever
// a lane is free it takes, of all the phases that any configuration still needs, the one that comes
// next after the present moment.
#include "gaps.h"
#include "command.h"
#include "wait.h"

#include <math.h>
#include <stdlib.h>

// Time to choose and get ready before a burst can start.
static const double get_ready_ns = 200e3;
enum { WARM_UP_BURSTS = 32 };
// How far from a phase a gap may begin that stands for it, unless the phases are further apart.
#define PHASE_TOLERANCE 0.01
static const double golden_ratio = 0.6180339887498949;

typedef struct lane {
  tide_pool *pool;
  gap_config *config; // NULL: nothing left to do
  unsigned phase;     // of config's, taken for this lane
  double at_ns;       // when to call the workers
  bool filled;        // the next burst measures
  uint64_t put_ns;    // of the burst that filled
  uint64_t bursts;    // on this pool
  uint64_t hits;
} lane;

// ---- Phases ---------------------------------------------------------------------------------

// Phase i of n, in [0, 1). The shift stays within the middle half of a step, so that n points
// stand for the period to within 3/4 of a step wherever the seed puts them.
static double phase_of(const gap_config *c, unsigned i) {
  return (i + c->phase_shift) / c->bursts;
}

static bool plan_phases(gap_config *c, uint64_t seed) {
  c->phase_shift = 0.25 + 0.5 * fmod((double)seed * golden_ratio + 0.5, 1);
  c->used = calloc(c->bursts, sizeof *c->used);
  c->phases = calloc(c->bursts, sizeof *c->phases);
  if (c->used && c->phases) return true;
  complain("no memory for %u gaps", c->bursts);
  return false;
}

void gaps_free(gap_config *c) {
  free(c->used);
  free(c->phases);
  c->used = NULL;
  c->phases = NULL;
}

// The period over the last few collections, for looking a period ahead.
static double recent_period_ns(const cycle_log *log) {
  uint64_t last = cycles_count(log) - 1;
  return cycles_period_ns(log, last > 8 ? last - 8 : 0, last);
}

// The phase of a moment. In a period that is not over yet the last ones tell how long it will be;
// while it lasts longer than they did, the phase stays just below 1.
static double phase_at(const cycle_log *log, uint64_t at_ns) {
  uint64_t last = cycles_count(log) - 1;
  while (last > 0 && cycles_start_ns(log, last) > at_ns) last--;
  double since = (double)at_ns - (double)cycles_start_ns(log, last);
  bool over = last + 1 < cycles_count(log);
  double period = over ? cycles_period_ns(log, last, last + 1) : recent_period_ns(log);
  return fmin(since / period, 0.999999);
}

static int compare_reals(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double gaps_phase_deviation(const gap_config *c) {
  double worst = 0;
  qsort(c->phases, c->done, sizeof *c->phases, compare_reals);
  for (unsigned i = 0; i < c->done; i++) {
    double below = c->phases[i] - (double)i / c->done;
    double above = (double)(i + 1) / c->done - c->phases[i];
    worst = fmax(worst, fmax(below, above));
  }
  return worst;
}

// ---- Bursts ---------------------------------------------------------------------------------

// A burst, and what it teaches about how long bursts take.
static bool timed_burst(gap_run *run, tide_pool *pool, burst_result *result) {
  if (!burst_run(run->team, pool, result)) return false;
  double to_get = (double)(result->get_ns - result->start_ns);
  double to_put = (double)(result->put_ns - result->start_ns);
  double weight = run->call_to_put_ns == 0 ? 1 : 1.0 / 16;
  run->call_to_get_ns += weight * (to_get - run->call_to_get_ns);
  run->call_to_put_ns += weight * (to_put - run->call_to_put_ns);
  return true;
}

// Of all unused phases the one for which `distance` from the given phase is smallest is taken for
// the lane; without any the lane is left without a configuration. Returns the distance.
static double take_nearest(gap_run *run, lane *l, double phase,
                           double (*distance)(double from, double to)) {
  double shortest = HUGE_VAL;
  l->config = NULL;
  for (unsigned k = 0; k < run->config_count; k++) {
    gap_config *c = &run->configs[k];
    for (unsigned i = 0; i < c->bursts; i++) {
      double d = c->used[i] ? HUGE_VAL : distance(phase, phase_of(c, i));
      if (d >= shortest) continue;
      shortest = d;
      l->config = c;
      l->phase = i;
    }
  }
  if (l->config) l->config->used[l->phase] = true;
  return shortest;
}

static double until(double from, double to) {
  return to >= from ? to - from : to - from + 1;
}

static double apart(double from, double to) {
  return fabs(to - from);
}

// The next job for a free lane: the unused phase that can be reached first.
static void aim(gap_run *run, lane *l) {
  const cycle_log *log = run->cycles;
  double period = recent_period_ns(log);
  double last_start = (double)cycles_start_ns(log, cycles_count(log) - 1);
  // The phase that the put of a burst called as early as possible would have.
  double earliest = (double)now_ns() + get_ready_ns;
  double phase = fmod((earliest + run->call_to_put_ns - last_start) / period, 1);
  l->at_ns = earliest + take_nearest(run, l, phase, until) * period;
  l->filled = false;
}

// Fills the pool. If that came at another phase than the one aimed at, the gap stands for the
// unused phase that is nearest to where it began; if none is near, the lane aims again.
static bool fill(gap_run *run, lane *l, burst_result *result) {
  if (!timed_burst(run, l->pool, result)) return false;
  l->config->used[l->phase] = false;
  double missed_by = take_nearest(run, l, phase_at(run->cycles, result->put_ns), apart);
  gap_config *c = l->config;
  bool missed = !c->anywhere && missed_by > fmax(1.0 / c->bursts, PHASE_TOLERANCE);
  if (missed && run->aims_left > 0) {
    run->aims_left--;
    c->used[l->phase] = false;
    aim(run, l);
    return true;
  }
  if (c->begun++ == 0) c->first_cycle = cycles_count(run->cycles) - 1;
  l->put_ns = result->put_ns;
  l->at_ns = (double)l->put_ns + c->gap_ns - run->call_to_get_ns;
  l->filled = true;
  return true;
}

static bool measure(gap_run *run, lane *l, burst_result *result) {
  gap_config *c = l->config;
  if (!timed_burst(run, l->pool, result)) return false;
  c->phases[c->done++] = phase_at(run->cycles, l->put_ns);
  c->hits += result->hits;
  c->gap_sum_ns += (double)(result->get_ns - l->put_ns);
  if (cycles_between(run->cycles, l->put_ns, result->get_ns) < 2) c->survived++;
  c->last_cycle = cycles_count(run->cycles) - 1;
  return true;
}

// The lane's next burst, and what follows from it.
static bool step(gap_run *run, lane *l, double *done_ns) {
  burst_result result;
  bool measuring = l->filled;
  if (!(measuring ? measure(run, l, &result) : fill(run, l, &result))) return false;
  l->bursts++;
  l->hits += result.hits;
  if (pressure_failed(run->pressure)) {
    complain("out of memory: the allocating thread gave up");
    return false;
  }
  if (!measuring) return true;
  *done_ns += l->config->gap_ns;
  if (run->progress) run->progress(*done_ns, run->progress_arg);
  aim(run, l);
  return true;
}

static lane *first_due(lane *lanes, unsigned count) {
  lane *first = NULL;
  for (unsigned i = 0; i < count; i++)
    if (lanes[i].config && (!first || lanes[i].at_ns < first->at_ns)) first = &lanes[i];
  return first;
}

static gaps_end run_lanes(gap_run *run, lane *lanes) {
  double done_ns = 0;
  for (unsigned i = 0; i < run->lanes; i++) aim(run, &lanes[i]);
  for (;;) {
    lane *l = first_due(lanes, run->lanes);
    if (!l) return GAPS_DONE;
    if (!wait_until((uint64_t)l->at_ns)) return GAPS_INTERRUPTED;
    if (!step(run, l, &done_ns)) return GAPS_FAILED;
  }
}

gaps_end gaps_measure(gap_run *run) {
  lane lanes[GAP_LANES_MAX] = {{0}};
  gaps_end end = GAPS_DONE;
  for (unsigned i = 0; i < run->config_count; i++) {
    if (!plan_phases(&run->configs[i], run->seed + i)) return GAPS_FAILED;
    run->aims_left += 2 * run->configs[i].bursts;
  }
  for (unsigned i = 0; end == GAPS_DONE && i < run->lanes; i++)
    if (!(lanes[i].pool = burst_pool(run->team, "gaps"))) end = GAPS_FAILED;
  if (end == GAPS_DONE) end = run_lanes(run, lanes);
  for (unsigned i = 0; i < run->lanes; i++) {
    lane *l = &lanes[i];
    if (end != GAPS_FAILED && !burst_check_stats(run->team, l->pool, l->bursts, l->hits))
      end = GAPS_FAILED;
    tide_pool_destroy(l->pool);
  }
  return end;
}

static gaps_end await_cycles(gap_run *run, uint64_t count, double limit_ns) {
  double give_up_ns = (double)now_ns() + limit_ns;
  while (cycles_count(run->cycles) < count) {
    if (!wait_until(now_ns() + 1000 * 1000)) return GAPS_INTERRUPTED;
    if (pressure_failed(run->pressure)) {
      complain("out of memory: the allocating thread gave up");
      return GAPS_FAILED;
    }
    if ((double)now_ns() < give_up_ns) continue;
    complain("no steady collections: %llu in %.1f s, expected %llu",
             (unsigned long long)cycles_count(run->cycles), limit_ns * 1e-9,
             (unsigned long long)count);
    return GAPS_FAILED;
  }
  return GAPS_DONE;
}

gaps_end gaps_warm_up(gap_run *run, double limit_ns) {
  burst_result result;
  tide_pool *pool = burst_pool(run->team, "warm-up");
  bool good = pool != NULL;
  for (int i = 0; good && i < WARM_UP_BURSTS; i++) good = timed_burst(run, pool, &result);
  tide_pool_destroy(pool);
  return good ? await_cycles(run, 3, limit_ns) : GAPS_FAILED;
}

double gaps_period_ns(const gap_run *run) {
  return recent_period_ns(run->cycles);
}
