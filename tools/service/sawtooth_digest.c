// SPDX-License-Identifier: MIT
// What the samples of a case say, in a few numbers; see sawtooth.h. All samples are kept, so
// quantiles are exact; the first wave is a warm-up and never counts.
#include "command.h"
#include "sawtooth.h"

#include <math.h>
#include <stdlib.h>

static double us(uint64_t ns) {
  return (double)ns * 1e-3;
}

uint64_t saw_origin_ns(const saw_case *c) {
  return schedule_wave_ns(&c->plan, 1);
}

void *saw_memory(size_t count, size_t size) {
  void *block = calloc(count + 1, size);
  if (block) return block;
  complain("no memory for the results");
  exit(STATUS_FAILED);
}

static void digest_requests(const saw_case *c, saw_digest *d) {
  uint64_t first = c->plan.per_wave, last = first + c->waves * c->plan.per_wave;
  uint64_t *latencies = saw_memory(last - first, sizeof *latencies);
  for (uint64_t i = first; i < last; i++) {
    const sample *s = &c->samples[i];
    latencies[d->requests++] = s->latency_ns;
    d->misses += s->missed;
    d->late += s->late;
  }
  d->p50_us = us(quantile_ns(latencies, d->requests, 0.5));
  d->p99_us = us(quantile_ns(latencies, d->requests, 0.99));
  d->p999_us = us(quantile_ns(latencies, d->requests, 0.999));
  d->most_us = us(quantile_ns(latencies, d->requests, 1));
  free(latencies);
}

static double median_us(uint64_t *times, size_t count) {
  return us(quantile_ns(times, count, 0.5));
}

static void digest_waves(const saw_run *r, const saw_case *c, saw_digest *d) {
  uint64_t *scratch = saw_memory(c->plan.per_wave, sizeof *scratch);
  uint64_t *kinds = saw_memory(c->waves * 3, sizeof *kinds);
  uint64_t *first = kinds, *later = first + c->waves, *worst = later + c->waves;
  for (uint64_t i = 0; i < c->waves; i++) {
    bin bins[SAWTOOTH_WAVE_BINS];
    tooth t = tooth_of(&c->plan, c->samples, i + 1, (uint64_t)r->make_ns, scratch);
    bins_of_wave(&c->plan, c->samples, i + 1, SAWTOOTH_BIN_NS, bins, SAWTOOTH_WAVE_BINS, scratch);
    first[i] = t.first_ns;
    later[i] = t.later_ns;
    worst[i] = bins[0].most_ns;
    d->teeth += t.stands;
    d->misses_first += bins[0].misses;
  }
  d->first_us = median_us(first, c->waves);
  d->later_us = median_us(later, c->waves);
  d->first_most_us = median_us(worst, c->waves);
  free(scratch);
  free(kinds);
}

static void digest_pauses(const saw_case *c, saw_digest *d) {
  uint64_t *pauses = saw_memory(c->collection_count, sizeof *pauses);
  size_t known = 0;
  for (size_t i = 0; i < c->collection_count; i++) {
    if (c->collections[i].at_ns < saw_origin_ns(c)) continue;
    d->collections++;
    if (c->collections[i].pause_ns) pauses[known++] = c->collections[i].pause_ns;
  }
  d->pause_p50_us = known ? us(quantile_ns(pauses, known, 0.5)) : NAN;
  d->pause_most_us = known ? us(quantile_ns(pauses, known, 1)) : NAN;
  free(pauses);
}

// Idle encoders as they lay before a wave, and what a higher percent lets the heap grow by.
static uint64_t bytes_kept(const saw_run *r, const saw_case *c) {
  double items = c->idle_looks ? (double)c->idle_items / (double)c->idle_looks : 0;
  double grown =
      isnan(c->growth_bytes) ? 0 : c->growth_bytes * (1 - (double)r->percent / c->percent);
  return (uint64_t)(items * (double)r->encoder_bytes + grown);
}

saw_digest saw_digest_of(const saw_run *r, const saw_case *c) {
  saw_digest d = {.bytes_kept = bytes_kept(r, c)};
  // From one use of the pool to the next.
  d.gap_ms = (double)(c->plan.gap_ns + c->plan.wave_ns / c->plan.per_wave) * 1e-6;
  digest_requests(c, &d);
  digest_waves(r, c, &d);
  digest_pauses(c, &d);
  return d;
}
