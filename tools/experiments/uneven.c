// SPDX-License-Identifier: MIT
// `tidepool uneven`: how far uneven allocation blurs the line that a pool's hit rate follows.
//
// Beside a live heap a thread allocates by a pattern (pattern.h), so that collections come at
// uneven distances. Gaps of several lengths, all at the same time, sample a window of it evenly
// (sample.h). Their hit rate is compared with two predictions (blur.h): the straight line, which
// knows only the mean period, and the exact one, which knows when the collections were.
//
// Lengths of gaps are multiples of the period that the pattern is going to have in the window:
// a pattern follows from the seed, so what it will allocate is known before it does.
#include "uneven.h"
#include "command.h"
#include "pace.h"
#include "progress.h"
#include "wait.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool.h>

#define RATIOS       "0.5,0.75,1,1.25,1.5,1.75,2,2.5,3"
#define RATIOS_QUICK "0.5,1,1.5,2,3"
#define RATIOS_FULL  "0.25,0.5,0.75,0.9,1,1.1,1.25,1.5,1.75,1.9,2,2.1,2.25,2.5,3,4"

static const option_row table_of_options[] = {
    {"patterns", "LIST", OPTION_SET, offsetof(uneven_settings, patterns), PATTERN_NAMES, 0, 0,
     PATTERN_NAMES, "how the program allocates"},
    {"rates", "LIST", OPTION_REALS, offsetof(uneven_settings, rates), NULL, 1, 100000, NULL,
     "mean allocation rates in MB/s, but of a --curve, which has its own (default 200; with --full "
     "50,200,800)"},
    {"ratios", "LIST", OPTION_REALS, offsetof(uneven_settings, ratios), NULL, 0.01, 100, NULL,
     "gaps, as multiples of the expected mean period (default " RATIOS
     ", with --survive=S each S - 1 more; with --quick and --full fewer and more)"},
    {"window-ms", "N", OPTION_COUNT, offsetof(uneven_settings, window_ms), NULL, 1, 86400000, NULL,
     "for how long gaps begin, for each pattern and rate (default 23000; with --quick 6500; with "
     "--full 60000)"},
    {"bursts", "N", OPTION_COUNT, offsetof(uneven_settings, bursts), NULL, 1, SAMPLE_BURSTS_MAX,
     NULL,
     "gaps measured for each configuration (default 2000; with --quick 600; with --full "
     "5000)"},
    {"live", "SIZE", OPTION_BYTES, offsetof(uneven_settings, live_bytes), "32MiB", 0x1p20, 0x1p38,
     NULL, "live heap beside the allocation"},
    {"chunk", "SIZE", OPTION_BYTES, offsetof(uneven_settings, chunk_bytes), NULL, 1024, 0x1p36,
     NULL,
     "mean size of poisson's chunks (default an eighth of what is allocated from one "
     "collection to the next)"},
    {"curve", "FILE", OPTION_TEXT, offsetof(uneven_settings, curve), NULL, 0, 0, NULL,
     "what replay allocates, over and over: in each line a moment in milliseconds and a rate in "
     "MB/s (default a built-in one, scaled to each of --rates)"},
    {"survive", "S", OPTION_COUNT, offsetof(uneven_settings, survive), "1", 1, 64, NULL,
     "collections that the pools' items outlive"},
    {"items", "N", OPTION_COUNT, offsetof(uneven_settings, items), "64", 1, SAMPLE_ITEMS_MAX, NULL,
     "items in a pool"},
    {"item-bytes", "SIZE", OPTION_BYTES, offsetof(uneven_settings, item_bytes), "16", 16, 0x1p16,
     NULL, "size of an item"},
    {"seed", "N", OPTION_COUNT, offsetof(uneven_settings, seed), "1", 0, 4294967295, NULL,
     "draws the patterns and when gaps begin"},
    {"quick", NULL, OPTION_FLAG, offsetof(uneven_settings, quick), NULL, 0, 0, NULL,
     "25 configurations in 40 seconds"},
    {"full", NULL, OPTION_FLAG, offsetof(uneven_settings, full), NULL, 0, 0, NULL,
     "240 configurations in a quarter of an hour"},
};

static const options_spec spec = {
    .about = "Measures how far uneven allocation blurs the line that a pool's hit rate follows, "
             "1 - clip(T/G - 1, 0, 1), and predicts it from when collections came.\v"
             "steady: the same all the time. poisson: chunks of random size at random moments. "
             "bursty: all of it in a quarter of the time. phased: a quarter, one and four times a "
             "rate in turn. replay: a rate that follows a curve. The lists, --window-ms and "
             "--bursts win over --quick and --full.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

// What a mode chooses where the user does not.
typedef struct mode {
  const char *ratios, *rates;
  unsigned window_ms, bursts;
} mode;

static const mode mode_standard = {RATIOS, "200", 23000, 2000};
static const mode mode_quick = {RATIOS_QUICK, "200", 6500, 600};
static const mode mode_full = {RATIOS_FULL, "50,200,800", 60000, 5000};

// Fewer periods than this in a window say nothing about a mean; of more, and they crowd at times,
// not all moments are kept. The chunks of a window are looked at ahead.
enum { PERIODS_LEAST = 4, PERIODS_MOST = 50000 };
static const double chunks_most = 1e8;

// ---- Settings -------------------------------------------------------------------------------

static bool has(const uneven_settings *set, pattern_kind kind) {
  return set->patterns >> kind & 1;
}

static bool check(const uneven_settings *set) {
  if (set->quick && set->full)
    complain("--quick and --full exclude each other");
  else if (set->curve && !has(set, PATTERN_REPLAY))
    complain("--curve: accepted only with replay among --patterns");
  else if (set->chunk_bytes && !has(set, PATTERN_POISSON))
    complain("--chunk: accepted only with poisson among --patterns");
  else
    return true;
  return false;
}

static void choose(uneven_settings *set) {
  const mode *m = set->quick ? &mode_quick : set->full ? &mode_full : &mode_standard;
  if (!set->rates.count) set->rates = numbers_of(m->rates);
  if (!set->window_ms) set->window_ms = m->window_ms;
  if (!set->bursts) set->bursts = m->bursts;
  if (set->ratios.count) return;
  set->ratios = numbers_of(m->ratios);
  for (size_t i = 0; i < set->ratios.count; i++) set->ratios.at[i] += (double)set->survive - 1;
}

// The name is as the user typed it: whatever it holds, the message stays one line.
static bool refuse_curve(const char *name, const char *error) {
  char text[400];
  snprintf(text, sizeof text, "--curve: %s: %s", name, error);
  for (char *c = text; *c; c++)
    if (iscntrl((unsigned char)*c)) *c = '?';
  complain("%s", text);
  return false;
}

static bool read_curve(uneven *u) {
  const char *name = u->set.curve;
  char error[300];
  if (!name) {
    curve_standard(&u->curve);
    return true;
  }
  FILE *file = fopen(name, "re");
  if (!file) return refuse_curve(name, strerror(errno));
  bool good = curve_read(file, &u->curve, error, sizeof error);
  fclose(file);
  return good || refuse_curve(name, error);
}

// A curve from a file has a rate of its own.
static void list_series(uneven *u) {
  for (pattern_kind kind = 0; kind < PATTERNS; kind++) {
    if (!has(&u->set, kind)) continue;
    bool own = kind == PATTERN_REPLAY && u->set.curve;
    size_t count = own ? 1 : u->set.rates.count;
    for (size_t i = 0; i < count; i++) {
      double rate = own ? curve_mean_rate(&u->curve) : u->set.rates.at[i] * 1e6;
      u->list[u->count++] = (uneven_series){.kind = kind, .rate = rate};
    }
  }
}

// ---- The plan -------------------------------------------------------------------------------

static pattern_settings pattern_of(const uneven *u, const uneven_series *one) {
  double few = u->set.chunk_bytes ? (double)u->set.chunk_bytes : u->growth_bytes / 8;
  return (pattern_settings){
      .kind = one->kind,
      .rate = one->rate,
      .growth_bytes = u->growth_bytes,
      .chunk_bytes = one->kind == PATTERN_POISSON ? few : PRESSURE_CHUNK_BYTES,
      .curve = &u->curve,
      .seed = u->set.seed,
  };
}

static double window_ns(const uneven *u) {
  return (double)u->set.window_ms * 1e6;
}

// From the start of the allocation to the window: two periods, so that the first goal is forgotten.
static double lead_ns(const uneven *u, const uneven_series *one) {
  return 2 * u->growth_bytes / one->rate * 1e9;
}

static double longest_gap_ns(const uneven *u, const uneven_series *one) {
  double ratio = 0;
  for (size_t i = 0; i < u->set.ratios.count; i++) ratio = fmax(ratio, u->set.ratios.at[i]);
  return ratio * one->period_ns;
}

static double planned_ns(const uneven *u, const uneven_series *one) {
  return lead_ns(u, one) + window_ns(u) + longest_gap_ns(u, one);
}

// Complains and returns false where a window is too long or too short.
static bool plan_one(uneven *u, uneven_series *one) {
  pattern_settings set = pattern_of(u, one);
  unsigned long long window_ms = u->set.window_ms;
  const char *name = uneven_pattern_name(one->kind);
  // A collection is due once a chunk has passed the goal: with large ones that is far beyond it.
  double cycle_bytes = u->growth_bytes + set.chunk_bytes;
  double most_bytes = fmin(PERIODS_MOST * cycle_bytes, chunks_most * set.chunk_bytes);
  double most_ms = floor(most_bytes / one->rate * 1e3);
  if ((double)window_ms > most_ms) {
    complain("--window-ms: %llu is too long for %s at %g MB/s; accepted: at most %.0f", window_ms,
             name, one->rate * 1e-6, most_ms);
    return false;
  }
  double from = lead_ns(u, one);
  double bytes = pattern_bytes_between(pattern_begin(&set), from, from + window_ns(u));
  one->period_ns = window_ns(u) * cycle_bytes / fmax(bytes, set.chunk_bytes);
  u->total_ns += planned_ns(u, one);
  if (one->period_ns * PERIODS_LEAST <= window_ns(u)) return true;
  complain("--window-ms: %llu is too short for %s at %g MB/s, where a collection is expected "
           "every %.0f ms; accepted: %d periods or more",
           window_ms, name, one->rate * 1e-6, one->period_ns * 1e-6, PERIODS_LEAST);
  return false;
}

static bool plan(uneven *u) {
  for (size_t i = 0; i < u->count; i++)
    if (!plan_one(u, &u->list[i])) return false;
  return true;
}

// What the pools add to the live heap: items and, roughly, the pools' own parts.
static uint64_t pools_bytes(const uneven *u, const uneven_series *one) {
  double gaps = 0;
  for (size_t i = 0; i < u->set.ratios.count; i++)
    gaps += 1 + u->set.ratios.at[i] * one->period_ns * (double)u->set.bursts / window_ns(u);
  return (uint64_t)(gaps * (double)(u->set.items * (u->set.item_bytes + 16) + 512));
}

// ---- One series -----------------------------------------------------------------------------

static void show_progress(void *arg) {
  const uneven *u = arg;
  progress_show((u->done_ns + (double)(now_ns() - u->began_ns)) / u->total_ns);
}

// The collections of the log, copied out; the moments are freed by the caller. Complains and
// returns false when not all of them since the window began are there.
static bool copy_moments(const sample_run *run, moments *starts) {
  uint64_t oldest = cycles_oldest(run->cycles), count = cycles_count(run->cycles);
  if (oldest > 0 && cycles_start_ns(run->cycles, oldest) > run->from_ns) {
    complain("too many collections to keep their moments: more than %llu; a shorter --window-ms, "
             "lower --rates or more --live have fewer",
             (unsigned long long)(count - oldest));
    return false;
  }
  double *at = calloc(count - oldest + 1, sizeof *at);
  if (!at) {
    complain("no memory for the moments of %llu collections", (unsigned long long)(count - oldest));
    return false;
  }
  for (uint64_t i = oldest; i < count; i++)
    at[i - oldest] = (double)cycles_start_ns(run->cycles, i);
  *starts = (moments){(size_t)(count - oldest), at};
  return true;
}

static bool add_rows(uneven *u, const uneven_series *one, const sample_run *run, double rate_mb_s) {
  moments starts;
  if (!copy_moments(run, &starts)) return false;
  for (unsigned k = 0; k < run->config_count; k++)
    uneven_add_row(u, one, run, &run->configs[k], &starts, rate_mb_s);
  free((void *)starts.at);
  return true;
}

// How much of what the pattern wanted since the window began has been allocated, noted unless it
// ended before its time: then single chunks would count for too much.
static void note_pace(uneven *u, const uneven_series *one, double bytes, double elapsed_ns) {
  if (interrupted()) return;
  pattern_settings set = pattern_of(u, one);
  double from = lead_ns(u, one);
  double wanted = pattern_bytes_between(pattern_begin(&set), from, from + elapsed_ns);
  u->pace_low = fmin(u->pace_low, bytes / wanted);
}

// Beside a pressure that began to run at start_ns.
static bool measure_window(uneven *u, const uneven_series *one, sample_run *run,
                           uint64_t start_ns) {
  sample_config configs[SAMPLE_CONFIGS_MAX] = {{0}};
  run->configs = configs;
  run->config_count = (unsigned)u->set.ratios.count;
  for (unsigned k = 0; k < run->config_count; k++)
    configs[k] = (sample_config){.gap_ns = u->set.ratios.at[k] * one->period_ns,
                                 .bursts = (unsigned)u->set.bursts};
  run->from_ns = start_ns + (uint64_t)lead_ns(u, one);
  if (!wait_until(run->from_ns)) return true;
  uint64_t before = pressure_bytes(run->pressure);
  if (!sample_measure(run)) return false;
  double bytes = (double)(pressure_bytes(run->pressure) - before);
  double elapsed_ns = (double)(run->until_ns - run->from_ns);
  note_pace(u, one, bytes, elapsed_ns);
  return add_rows(u, one, run, bytes / elapsed_ns * 1e3);
}

static bool measure_series(uneven *u, const uneven_series *one) {
  uint64_t pools = pools_bytes(u, one), start_ns = 0;
  uint64_t rest = u->set.live_bytes - (pools < u->set.live_bytes / 2 ? pools : 0);
  ballast *live = ballast_create(rest);
  sample_run run = {.cycles = NULL,
                    .window_ns = window_ns(u),
                    .items = (unsigned)u->set.items,
                    .item_bytes = u->set.item_bytes,
                    .survive = (unsigned)u->set.survive,
                    .seed = u->set.seed * PATTERNS + one->kind,
                    .progress = show_progress,
                    .progress_arg = u};
  cycle_log *log = live ? cycles_watch() : NULL;
  run.cycles = log;
  bool good = log != NULL;
  if (good) {
    tide_collect_and_release(); // so that the first goal knows the live heap
    pattern_settings set = pattern_of(u, one);
    pressure *p = pressure_start_pattern(&set, &start_ns);
    run.pressure = p;
    good = p && measure_window(u, one, &run, start_ns);
    pressure_stop(p);
    u->unpaced += cycles_unpaced(log) - 1;
  }
  cycles_unwatch(log);
  ballast_free(live);
  return good;
}

// ---------------------------------------------------------------------------------------------

static bool measure_all(uneven *u) {
  for (size_t i = 0; i < u->count && !u->partial; i++) {
    u->began_ns = now_ns();
    if (!measure_series(u, &u->list[i])) return false;
    u->done_ns += planned_ns(u, &u->list[i]);
    u->partial = interrupted() != 0;
  }
  return true;
}

static int run(uneven *u) {
  u->procs = tide_procs();
  u->pace_low = 1;
  u->growth_bytes = pace_growth_bytes((double)u->set.live_bytes, u->gc_percent);
  list_series(u);
  if (!plan(u)) return STATUS_USAGE;
  if (!out_prepare(u->set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  sleep_exactly();
  uneven_begin_rows(u);
  progress_start("uneven");
  bool good = measure_all(u);
  progress_end();
  good = good && uneven_report(u);
  uneven_free_rows(u);
  if (!good) return STATUS_FAILED;
  return u->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

int uneven_run(int argc, char **argv) {
  static uneven u;
  options_parse(&spec, &u.set, argc, argv);
  if (!check(&u.set) || !read_curve(&u)) return STATUS_USAGE;
  choose(&u.set);
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!pace_percent(&u.gc_percent)) return STATUS_USAGE;
  return run(&u);
}
