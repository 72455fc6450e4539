// SPDX-License-Identifier: MIT
// `tidepool sawtooth`: the latency of a service whose workers have their encoders from a pool, over
// time and around collections.
//
// Requests come in waves, on a schedule that is fixed beforehand (waves.h). Any free worker takes
// the next request, waits until it is due, gets an encoder, encodes an envelope, puts the encoder
// back. Beside it a live heap and an allocating thread set the collection period G, which is
// measured before the first case. When the gap between two waves is longer than two periods, the
// pool is empty at the beginning of each wave, every worker makes its own encoder, and the requests
// that come meanwhile wait: the tooth. Then come the cures, each on the same schedule.
//
// A case: a new pool (or free list, or neither), one wave to warm up, the waves that count. Nothing
// of the service allocates on the heap but making encoders.
#include "sawtooth.h"
#include "command.h"
#include "cycles.h"
#include "pressure.h"
#include "progress.h"
#include "wait.h"

#include <atomic_ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 14, SECONDS_QUICK = 3, WORKERS_MAX = 64, ENVELOPES = 1000 };
static const double requests_most = 20e6; // in a case
static const uint64_t late_ns = 1000 * 1000;
static const double short_ratio = 0.3; // the short gap, in periods

static const encoder_options made = {
    .output_bytes = 128 << 10, .scratch_bytes = 64 << 10, .dictionary = true};

#define CASE_NAMES "steady,below,beyond,freelist,owned,survive,min_idle,percent"
enum { CASE_SURVIVE = 5, CASE_MIN_IDLE, CASE_PERCENT };

const saw_kind saw_kinds[SAWTOOTH_CASES] = {
    {"steady", SUPPLY_POOL, REST_NONE, false, "a pool, no gaps"},
    {"below", SUPPLY_POOL, REST_SHORT, false, "a pool, short gaps"},
    {"beyond", SUPPLY_POOL, REST_LONG, false, "a pool, long gaps"},
    {"freelist", SUPPLY_FREELIST, REST_LONG, true, "a free list, a place for each worker"},
    {"owned", SUPPLY_OWNED, REST_LONG, true, "an encoder that each worker owns"},
    [CASE_SURVIVE] = {"survive", SUPPLY_POOL, REST_LONG, true, "a pool that survives more"},
    [CASE_MIN_IDLE] = {"min_idle", SUPPLY_POOL, REST_LONG, true, "a pool that keeps for a time"},
    [CASE_PERCENT] = {"percent", SUPPLY_POOL, REST_LONG, true, "a pool, rarer collections"},
};

static const option_row table_of_options[] = {
    {"rate", "N", OPTION_COUNT, offsetof(saw_settings, rate), "20000", 1, 1000000, NULL,
     "requests a second while a wave lasts"},
    {"workers", "N", OPTION_COUNT, offsetof(saw_settings, workers), "4", 1, WORKERS_MAX, NULL,
     "threads that serve them"},
    {"ratio", "X", OPTION_REALS, offsetof(saw_settings, ratio), "2.5", 0.01, 100, NULL,
     "the long gap between two waves, as a multiple of the collection period"},
    {"wave-ms", "N", OPTION_COUNT, offsetof(saw_settings, wave_ms), "100", 10, 1000, NULL,
     "how long a wave lasts"},
    {"seconds", "N", OPTION_COUNT, offsetof(saw_settings, seconds), NULL, 1, 3600, NULL,
     "length of a case (default 14, with --quick 3); two waves at least"},
    {"cases", "LIST", OPTION_SET, offsetof(saw_settings, cases), CASE_NAMES, 0, 0, CASE_NAMES,
     "what is measured"},
    {"live", "SIZE", OPTION_BYTES, offsetof(saw_settings, live_bytes), "16MiB", 0x1p20, 0x1p36,
     NULL, "memory that the rest of the program keeps"},
    {"alloc-rate", "N", OPTION_COUNT, offsetof(saw_settings, alloc_rate), "200", 1, 100000, NULL,
     "MB/s that the rest of the program allocates and drops"},
    {"seed", "N", OPTION_COUNT, offsetof(saw_settings, seed), "1", 0, 4294967295, NULL,
     "what the requests are made from"},
    {"series", NULL, OPTION_FLAG, offsetof(saw_settings, series), NULL, 0, 0, NULL,
     "with JSON, also the latencies over time and the collections, an object each"},
    {"quick", NULL, OPTION_FLAG, offsetof(saw_settings, quick), NULL, 0, 0, NULL,
     "short cases, half a minute in all"},
};

static const options_spec spec = {
    .about =
        "Serves requests at a set rate with a pooled encoder and buffers, beside a program that "
        "sets the pace of collections, and shows the latencies over time.\v"
        "Latencies count from when a request was due, not from when it was begun. steady and below "
        "use the pool more often than it forgets, beyond less often; the other cases are cures for "
        "that. With --out the latencies over time go to sawtooth-series.csv and the collections to "
        "sawtooth-collections.csv.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

// ---- The service ----------------------------------------------------------------------------

typedef struct service service;

typedef struct worker {
  service *of;
  unsigned number;
  pthread_t thread;
} worker;

struct service {
  const saw_run *run;
  saw_case *c;
  supply *from;
  uint64_t start_ns;
  uint64_t requests;
  AO_t next; // request
  volatile unsigned failed;
  worker workers[WORKERS_MAX];
};

// Whether it was written as it should be.
static bool serve(worker *w, uint64_t i, uint64_t due_ns) {
  service *s = w->of;
  sample *to = &s->c->samples[i];
  to->late = now_ns() > due_ns + late_ns;
  encoder *e = supply_get(s->from, w->number);
  if (!e) return false;
  to->missed = encoder_uses(e) == 0;
  size_t which = i % s->run->envelopes.count;
  size_t length = encoder_encode(e, &s->run->envelopes.at[which]).length;
  supply_put(s->from, w->number, e);
  to->latency_ns = now_ns() - due_ns;
  to->done = true;
  return length == s->run->lengths[which];
}

static void *work(void *arg) {
  worker *w = arg;
  service *s = w->of;
  sleep_exactly();
  while (!s->failed) {
    uint64_t i = AO_fetch_and_add1(&s->next);
    if (i >= s->requests) break;
    uint64_t due_ns = s->start_ns + schedule_due_ns(&s->c->plan, i);
    if (!wait_until(due_ns)) break;
    if (!serve(w, i, due_ns)) AO_int_store(&s->failed, 1);
  }
  return NULL;
}

static void *join_workers(void *arg) {
  service *s = arg;
  for (uint64_t i = 0; i < s->run->set.workers; i++)
    if (s->workers[i].of) pthread_join(s->workers[i].thread, NULL);
  return NULL;
}

static bool start_workers(service *s) {
  for (unsigned i = 0; i < s->run->set.workers; i++) {
    worker *w = &s->workers[i];
    *w = (worker){.of = s, .number = i};
    int error = thread_start(&w->thread, work, w);
    if (!error) continue;
    w->of = NULL;
    s->failed = 1;
    complain("cannot start worker %u of %u: %s", i + 1, (unsigned)s->run->set.workers,
             strerror(error));
    return false;
  }
  return true;
}

// Looks at what is idle just before each wave, until the last one begins.
static void watch(service *s, double done, double all) {
  const uint64_t ahead_ns = 1000 * 1000;
  saw_case *c = s->c;
  for (uint64_t wave = 1; wave < c->plan.waves && !s->failed; wave++) {
    if (!wait_until(s->start_ns + schedule_wave_ns(&c->plan, wave) - ahead_ns)) return;
    c->idle_items += supply_items(s->from);
    c->idle_looks++;
    progress_show((done + (double)wave / (double)c->plan.waves) / all);
  }
}

// The pool or the list must have counted what the workers saw.
static bool check_counts(const service *s) {
  const saw_case *c = s->c;
  uint64_t requests = 0, missed = 0, gets, misses;
  for (uint64_t i = 0; i < s->requests; i++) {
    requests += c->samples[i].done;
    missed += c->samples[i].missed;
  }
  supply_counts(s->from, &gets, &misses);
  if (gets == 0 || (gets == requests && misses == missed)) return true;
  complain("%s: the pool counted %llu gets and %llu misses; the workers counted %llu and %llu",
           c->kind->name, (unsigned long long)gets, (unsigned long long)misses,
           (unsigned long long)requests, (unsigned long long)missed);
  return false;
}

static bool run_service(service *s, double done, double all) {
  s->start_ns = now_ns() + 20 * 1000 * 1000;
  bool good = start_workers(s);
  if (good) watch(s, done, all);
  tide_blocking(join_workers, s);
  if (!good) return false;
  if (!s->failed) return check_counts(s);
  complain("%s: out of memory, or an encoder was used by two workers at a time", s->c->kind->name);
  return false;
}

// ---- One case -------------------------------------------------------------------------------

// Waves of which every request is done; without the first.
static uint64_t complete_waves(const saw_case *c) {
  uint64_t i = 0, requests = schedule_requests(&c->plan);
  while (i < requests && c->samples[i].done) i++;
  uint64_t waves = i / c->plan.per_wave;
  return waves ? waves - 1 : 0;
}

static bool keep_collections(saw_case *c, const cycle_log *log, uint64_t first, uint64_t start_ns) {
  uint64_t count = cycles_count(log);
  c->period_ns = count ? cycles_period_ns(log, first, count - 1) : NAN;
  c->growth_bytes = count ? cycles_growth_bytes(log, first, count - 1) : NAN;
  c->collections = calloc(count - first + 1, sizeof *c->collections);
  if (!c->collections) {
    complain("no memory for the results");
    return false;
  }
  for (uint64_t i = first; i < count; i++) {
    uint64_t at_ns = cycles_start_ns(log, i);
    if (at_ns < start_ns) continue;
    c->collections[c->collection_count++] =
        (saw_collection){at_ns - start_ns, cycles_pause_ns(log, i)};
  }
  return true;
}

static void plan_case(const saw_run *r, saw_case *c, unsigned index) {
  double gaps[] = {[REST_NONE] = 0, [REST_SHORT] = short_ratio, [REST_LONG] = r->set.ratio.at[0]};
  double ratio = gaps[saw_kinds[index].gap];
  uint64_t gap_ns = (uint64_t)(ratio * r->period_ns);
  *c = (saw_case){.kind = &saw_kinds[index], .percent = r->percent};
  c->plan = schedule_make((double)r->set.rate, r->set.wave_ms * 1000 * 1000, gap_ns,
                          r->set.seconds * 1000 * 1000 * 1000);
  if (index == CASE_SURVIVE) c->survive = (int)fmin(ceil(ratio) + 1, TIDE_SURVIVE_MAX);
  if (index == CASE_MIN_IDLE) c->min_idle_ns = 2 * gap_ns;
  // One and a half times what would make the gap one period.
  if (index == CASE_PERCENT) c->percent = (int)ceil(r->percent * fmax(1.5 * ratio, 1));
}

static bool measure_case(saw_run *r, unsigned index, const cycle_log *log, double done,
                         double all) {
  saw_case *c = &r->cases[r->count];
  plan_case(r, c, index);
  service *s = calloc(1, sizeof *s);
  c->samples = calloc(schedule_requests(&c->plan), sizeof *c->samples);
  if (!s || !c->samples) {
    complain("no memory for %llu requests", (unsigned long long)schedule_requests(&c->plan));
    free(s);
    return false;
  }
  r->count++;
  *s = (service){.run = r, .c = c, .requests = schedule_requests(&c->plan)};
  tide_gc_percent_set(c->percent);
  tide_collect(); // what the last case has left is gone, and the goal is this one's
  uint64_t first = cycles_count(log);
  const tide_pool_options options = {.survive = c->survive, .min_idle_ns = c->min_idle_ns};
  s->from = supply_create(c->kind->from, (unsigned)r->set.workers, &made, &options);
  bool good = s->from && run_service(s, done, all) && keep_collections(c, log, first, s->start_ns);
  supply_destroy(s->from);
  free(s);
  tide_gc_percent_set(r->percent);
  c->waves = complete_waves(c);
  c->partial = c->waves + 1 < c->plan.waves;
  return good;
}

// ---- All cases ------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// What it takes to make an encoder, and what each envelope should become.
static bool measure_encoder(saw_run *r) {
  enum { TIMES = 15 };
  double times[TIMES];
  encoder *e = NULL;
  for (int i = 0; i < TIMES; i++) {
    uint64_t start = now_ns();
    e = encoder_create(&made);
    times[i] = (double)(now_ns() - start);
    if (!e) break;
  }
  r->lengths = malloc(r->envelopes.count * sizeof *r->lengths);
  if (!e || !r->lengths) {
    complain("out of memory");
    return false;
  }
  qsort(times, TIMES, sizeof times[0], compare);
  r->make_ns = times[TIMES / 2];
  r->encoder_bytes = encoder_bytes(e);
  uint64_t start = now_ns();
  for (size_t i = 0; i < r->envelopes.count; i++)
    r->lengths[i] = encoder_encode(e, &r->envelopes.at[i]).length;
  r->request_ns = (double)(now_ns() - start) / (double)r->envelopes.count;
  return true;
}

// The period that the pressure makes, from the mean of several collections.
static bool find_period(saw_run *r, const cycle_log *log, const pressure *p) {
  enum { SETTLE = 2, PERIODS = 8 };
  const uint64_t most_ns = UINT64_C(60) * 1000 * 1000 * 1000;
  uint64_t start_ns = now_ns(), first = cycles_count(log) + SETTLE;
  while (cycles_count(log) <= first + PERIODS) {
    if (now_ns() - start_ns > most_ns || pressure_failed(p)) {
      complain(pressure_failed(p)
                   ? "out of memory"
                   : "there were hardly any collections in a minute: --alloc-rate is too low for "
                     "--live and the GC percent");
      return false;
    }
    if (!wait_until(now_ns() + 1000 * 1000)) {
      r->partial = true;
      return true;
    }
  }
  r->period_ns = cycles_period_ns(log, first, first + PERIODS);
  return true;
}

static double count_cases(const saw_run *r) {
  return (double)__builtin_popcountll(r->set.cases);
}

static bool measure_beside(saw_run *r, const cycle_log *log, const pressure *p) {
  bool good = find_period(r, log, p);
  for (unsigned i = 0; good && !r->partial && i < SAWTOOTH_CASES; i++) {
    if (!(r->set.cases >> i & 1)) continue;
    good = measure_case(r, i, log, (double)r->count, count_cases(r));
    if (good && pressure_failed(p)) {
      complain("out of memory");
      good = false;
    }
    r->partial = interrupted();
  }
  return good;
}

static bool measure(saw_run *r) {
  if (!measure_encoder(r)) return false;
  ballast *live = ballast_create(r->set.live_bytes);
  cycle_log *log = live ? cycles_watch() : NULL;
  bool good = log != NULL;
  if (good) {
    tide_collect_and_release(); // so that the first goal knows the live heap
    pressure *p = pressure_start((double)r->set.alloc_rate * 1e6);
    good = p && measure_beside(r, log, p);
    pressure_stop(p);
  }
  cycles_unwatch(log);
  ballast_free(live);
  return good;
}

// ---------------------------------------------------------------------------------------------

static int run_experiment(saw_run *r) {
  sleep_exactly();
  progress_start("sawtooth");
  bool good = measure(r);
  progress_end();
  if (!good || !sawtooth_report(r)) return STATUS_FAILED;
  return r->partial ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

static int check(saw_run *r) {
  if (r->set.ratio.count != 1) {
    complain("--ratio: %zu numbers; accepted: one", r->set.ratio.count);
    return STATUS_USAGE;
  }
  double requests = (double)r->set.rate * (double)r->set.seconds;
  if (requests <= requests_most) return STATUS_DONE;
  complain("--rate times --seconds: %.0f requests in a case; accepted: at most %.0f", requests,
           requests_most);
  return STATUS_USAGE;
}

// The collections must come from the heap's growth.
static int read_pace(saw_run *r) {
  tide_options in_force;
  tide_options_read(&in_force);
  r->percent = (int)in_force.gc_percent;
  if (r->percent > 0) return STATUS_DONE;
  complain("TIDE_GCPERCENT: %s; accepted here: a percent above 0, since this experiment lives by "
           "the heap's growth",
           r->percent < 0 ? "collections are off" : "0 collects all the time");
  return STATUS_USAGE;
}

int sawtooth_run(int argc, char **argv) {
  static saw_run r;
  options_parse(&spec, &r.set, argc, argv);
  if (!r.set.seconds) r.set.seconds = r.set.quick ? SECONDS_QUICK : SECONDS;
  int status = check(&r);
  if (status == STATUS_DONE) status = library_start();
  if (status == STATUS_DONE) status = read_pace(&r);
  if (status != STATUS_DONE) return status;
  if (!out_prepare(r.set.common.out)) return STATUS_FAILED;
  interrupts_catch();
  if (!envelopes_make(&r.envelopes, ENVELOPES, r.set.seed)) return STATUS_FAILED;
  status = run_experiment(&r);
  for (size_t i = 0; i < r.count; i++) {
    free(r.cases[i].samples);
    free(r.cases[i].collections);
  }
  free(r.lengths);
  envelopes_free(&r.envelopes);
  return status;
}
