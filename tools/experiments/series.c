// SPDX-License-Identifier: MIT
// Plans and measures the series of a study; see series.h.
//
// A series has a live heap and an allocating thread of its own. Its settings are applied to the
// running program once the heap is live; then collections come until the pace has settled, and then
// its gaps are measured.
#include "series.h"
#include "command.h"
#include "pace.h"
#include "progress.h"
#include "wait.h"

#include <math.h>
#include <stdlib.h>
#include <tidepool.h>

const option_row study_options[STUDY_OPTIONS] = {
    {"live", "SIZE", OPTION_BYTES, offsetof(study_settings, live_bytes), "32MiB", 0x1p20, 0x1p38,
     NULL, "live heap beside the allocation"},
    {"bursts", "N", OPTION_COUNT, offsetof(study_settings, bursts), NULL, 1, GAP_BURSTS_MAX, NULL,
     "gaps measured for each configuration (default 20 to 300: by the mode, more where gaps are "
     "shorter)"},
    {"seed", "N", OPTION_COUNT, offsetof(study_settings, seed), "1", 0, 4294967295, NULL,
     "shifts the phases at which gaps begin"},
    {"workers", "N", OPTION_COUNT, offsetof(study_settings, workers), "64", 1, 1024, NULL,
     "threads in a burst, each with one item"},
    {"item-bytes", "SIZE", OPTION_BYTES, offsetof(study_settings, item_bytes), "4096", 16, 0x1p24,
     NULL, "size of an item"},
};

// A gap of so many periods or more finds nothing, wherever in the period it begins.
static const double anywhere_ratio = 3;

enum { AGEING_BURSTS = 400 };
// An episode of the limiter from the series before is over by then.
static const uint64_t limit_settles_ns = 1200 * 1000 * 1000;

// ---- The plan -------------------------------------------------------------------------------

double study_period_ns(const series *one) {
  return one->growth_bytes / (one->rate * 1e6) * 1e9;
}

static double sum_of(const numbers *list) {
  double sum = 0;
  for (size_t i = 0; i < list->count; i++) sum += list->at[i];
  return sum;
}

static double sum_of_gaps_ns(const study *s, const series *one) {
  return sum_of(&s->gaps_ms) * 1e6 + sum_of(&s->set->ratios) * study_period_ns(one);
}

static bool has_limit(const series *one) {
  return one->memory_limit != INT64_MAX;
}

// Gaps side by side make bursts side by side, which must stay rare against the period; and their
// pools' items are live heap, which must stay small against the rest.
static unsigned lanes_for(const study *s, const series *one) {
  if (has_limit(one)) return 1; // the blocks that the items lie in count towards the limit
  const double burst_ns = 2e6;  // a generous guess: it is only to keep them apart
  double by_time = study_period_ns(one) / (20 * burst_ns);
  double items = (double)s->set->workers * (double)s->set->item_bytes;
  double by_memory = (double)s->set->live_bytes / 32 / items;
  return (unsigned)fmax(1, fmin(GAP_LANES_MAX, fmin(by_time, by_memory)));
}

static unsigned bursts_for(const study *s, const series *one) {
  if (s->set->bursts) return (unsigned)s->set->bursts;
  const study_effort *e = &s->effort;
  double bursts = e->budget_s * 1e9 * lanes_for(s, one) / sum_of_gaps_ns(s, one);
  return (unsigned)fmin(fmax(bursts, e->lowest), e->highest);
}

static double planned_ns(const study *s, const series *one) {
  return sum_of_gaps_ns(s, one) * bursts_for(s, one) / lanes_for(s, one);
}

static void apply(const series *one) {
  tide_gc_percent_set(one->gc_percent);
  tide_memory_limit_set(one->memory_limit);
}

// The goal under a limit depends on what is mapped beside the objects, which only the library
// knows. More than one collection a chunk there cannot be.
static bool expect_growth(study *s) {
  ballast *live = ballast_create(s->set->live_bytes);
  for (size_t i = 0; live && i < s->count; i++) {
    series *one = &s->list[i];
    double growth = pace_growth_bytes((double)s->set->live_bytes, one->gc_percent);
    if (has_limit(one)) {
      tide_memstats m;
      apply(one);
      tide_collect_and_release();
      tide_memstats_read(&m);
      growth = fmin(growth, (double)m.next_gc - (double)m.heap_alloc);
    }
    one->growth_bytes = fmax(growth, PRESSURE_CHUNK_BYTES);
    s->total_ns += planned_ns(s, one);
  }
  ballast_free(live);
  return live != NULL;
}

// ---- One series -----------------------------------------------------------------------------

static void show_progress(double done_ns, void *arg) {
  study *s = arg;
  progress_show((s->done_ns + done_ns / s->lanes) / s->total_ns);
}

// Under a limit the period is as it was found. Where it is not long against a burst, no gap of a
// few periods can be told from another, and only those of --gaps are left.
static unsigned plan_gaps(const study *s, const series *one, const gap_run *g,
                          gap_config *configs) {
  double period = has_limit(one) ? gaps_period_ns(g) : study_period_ns(one);
  bool told_apart = !has_limit(one) || period > 10 * g->call_to_put_ns;
  unsigned count = 0;
  for (size_t i = 0; i < s->gaps_ms.count; i++) configs[count++].gap_ns = s->gaps_ms.at[i] * 1e6;
  for (size_t i = 0; told_apart && i < s->set->ratios.count; i++)
    configs[count++].gap_ns = s->set->ratios.at[i] * period;
  for (unsigned i = 0; i < count; i++) {
    configs[i].bursts = bursts_for(s, one);
    configs[i].anywhere = configs[i].gap_ns > anywhere_ratio * period;
  }
  return count;
}

static gaps_end settle(gap_run *g, const series *one) {
  gaps_end end = gaps_warm_up(g, 10 * study_period_ns(one) + 5e9);
  if (end != GAPS_DONE || !has_limit(one)) return end;
  return wait_until(now_ns() + limit_settles_ns) ? GAPS_DONE : GAPS_INTERRUPTED;
}

// The gaps of one series, beside a pressure that runs.
static bool measure_gaps(study *s, gap_run *g, const series *one) {
  gap_config configs[2 * NUMBERS_MAX] = {{0}};
  gaps_end end = settle(g, one);
  g->configs = configs;
  if (end == GAPS_DONE) g->config_count = plan_gaps(s, one, g, configs);

  tide_memstats before, after;
  tide_memstats_read(&before);
  uint64_t start_ns = now_ns(), start_bytes = pressure_bytes(g->pressure);
  if (end == GAPS_DONE) end = gaps_measure(g);
  double bytes = (double)(pressure_bytes(g->pressure) - start_bytes);
  double time_ns = (double)(now_ns() - start_ns);
  tide_memstats_read(&after);

  uint64_t episodes = after.limiter_episodes - before.limiter_episodes;
  series_facts facts = {
      .rate = bytes / time_ns * 1e3,
      .paused_share = (double)(after.pause_total_ns - before.pause_total_ns) / time_ns,
      .limiter_episodes = episodes,
      .limiter_active = has_limit(one) && (episodes > 0 || before.limiter_active),
  };
  for (unsigned i = 0; i < g->config_count; i++) {
    if (end != GAPS_FAILED && configs[i].done) study_add_row(s, one, g, &configs[i], &facts);
    gaps_free(&configs[i]);
  }
  if (end == GAPS_INTERRUPTED) s->partial = true;
  return end != GAPS_FAILED;
}

static bool measure_series(study *s, const series *one) {
  s->lanes = lanes_for(s, one);
  // The items of the pools are part of the live heap.
  uint64_t items = s->lanes * s->set->workers * s->set->item_bytes;
  uint64_t rest = s->set->live_bytes - (items < s->set->live_bytes / 2 ? items : 0);
  ballast *live = ballast_create(rest);
  gap_run g = {.team = s->team,
               .cycles = live ? cycles_watch() : NULL,
               .lanes = s->lanes,
               .seed = s->set->seed,
               .progress = show_progress,
               .progress_arg = s};
  bool good = g.cycles != NULL;
  if (good) {
    apply(one);
    tide_collect_and_release(); // so that the first goal knows the live heap
    pressure *p = pressure_start(one->rate * 1e6);
    g.pressure = p;
    good = p && measure_gaps(s, &g, one);
    pressure_stop(p);
    s->unpaced += cycles_unpaced(g.cycles) - 1;
  }
  cycles_unwatch(g.cycles);
  ballast_free(live);
  return good;
}

// ---------------------------------------------------------------------------------------------

// A thread keeps a block of memory for each size of object that it has ever made, in a burst the
// items and now and then a part of the pool. The blocks count towards a limit, so before anything
// is measured there, all workers are to have all of theirs.
static bool age_team(study *s) {
  bool limits = false;
  for (size_t i = 0; i < s->count; i++) limits = limits || has_limit(&s->list[i]);
  tide_pool *pool = limits ? burst_pool(s->team, "ageing") : NULL;
  bool good = pool || !limits;
  burst_result result;
  for (int i = 0; pool && good && i < AGEING_BURSTS && !interrupted(); i++) {
    tide_collect();
    tide_collect(); // the pool is empty
    good = burst_run(s->team, pool, &result);
  }
  tide_pool_destroy(pool);
  return good;
}

static bool measure_all(study *s) {
  bool good = age_team(s) && expect_growth(s);
  for (size_t i = 0; good && !s->partial && i < s->count; i++) {
    good = measure_series(s, &s->list[i]);
    s->done_ns += planned_ns(s, &s->list[i]);
  }
  return good;
}

static int run(study *s) {
  s->procs = tide_procs();
  s->team = burst_create((unsigned)s->set->workers, s->set->item_bytes);
  if (!s->team) return STATUS_FAILED;
  sleep_exactly();
  progress_start(s->name);
  bool good = measure_all(s);
  progress_end();
  burst_destroy(s->team);
  if (!good || !study_report(s)) return STATUS_FAILED;
  return s->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

int study_check(const study_settings *set) {
  if (!set->quick || !set->full) return STATUS_DONE;
  complain("--quick and --full exclude each other");
  return STATUS_USAGE;
}

int study_run(study *s) {
  if (!out_prepare(s->set->common.out)) return STATUS_FAILED;
  interrupts_catch();
  study_begin_rows(s);
  int status = run(s);
  study_free_rows(s);
  return status;
}
