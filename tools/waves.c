// SPDX-License-Identifier: MIT
// Schedules of requests, and their latencies by time; see waves.h.
#include "waves.h"

#include <math.h>
#include <stdlib.h>

static const double tooth_ratio = 2;

schedule schedule_make(double per_second, uint64_t wave_ns, uint64_t gap_ns, uint64_t total_ns) {
  double requests = round(per_second * (double)wave_ns * 1e-9);
  uint64_t waves = (total_ns + gap_ns) / (wave_ns + gap_ns);
  return (schedule){.wave_ns = wave_ns,
                    .gap_ns = gap_ns,
                    .per_wave = requests < 1 ? 1 : (uint64_t)requests,
                    .waves = waves < 2 ? 2 : waves};
}

uint64_t schedule_requests(const schedule *s) {
  return s->waves * s->per_wave;
}

uint64_t schedule_wave_ns(const schedule *s, uint64_t wave) {
  return wave * (s->wave_ns + s->gap_ns);
}

uint64_t schedule_due_ns(const schedule *s, uint64_t i) {
  uint64_t into_wave =
      (uint64_t)((double)(i % s->per_wave) * (double)s->wave_ns / (double)s->per_wave);
  return schedule_wave_ns(s, i / s->per_wave) + into_wave;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

uint64_t quantile_ns(uint64_t *numbers, size_t count, double share) {
  if (!count) return 0;
  qsort(numbers, count, sizeof *numbers, compare);
  double rank = ceil(share * (double)count);
  size_t at = rank < 1 ? 0 : (size_t)rank - 1;
  return numbers[at < count ? at : count - 1];
}

size_t bins_of_wave(const schedule *s, const sample *samples, uint64_t wave, uint64_t bin_ns,
                    bin *bins, size_t room, uint64_t *scratch) {
  size_t count = (size_t)((s->wave_ns + bin_ns - 1) / bin_ns);
  uint64_t start = schedule_wave_ns(s, wave), i = wave * s->per_wave, end = i + s->per_wave;
  for (size_t b = 0; b < count && b < room; b++) {
    uint64_t from = start + b * bin_ns;
    size_t found = 0;
    bins[b] = (bin){.start_ns = from};
    for (; i < end && schedule_due_ns(s, i) < from + bin_ns; i++) {
      if (!samples[i].done) continue;
      bins[b].misses += samples[i].missed;
      scratch[found++] = samples[i].latency_ns;
    }
    bins[b].count = found;
    bins[b].median_ns = quantile_ns(scratch, found, 0.5); // sorts
    bins[b].most_ns = found ? scratch[found - 1] : 0;
  }
  return count;
}

tooth tooth_of(const bin *bins, size_t count, uint64_t least_ns) {
  uint64_t later[256];
  size_t found = 0;
  for (size_t i = 1; i < count && found < 256; i++)
    if (bins[i].count) later[found++] = bins[i].most_ns;
  if (!found || !bins[0].count) return (tooth){0};
  tooth t = {.first_ns = bins[0].most_ns, .later_ns = quantile_ns(later, found, 0.5)};
  t.stands =
      (double)t.first_ns >= tooth_ratio * (double)t.later_ns && t.first_ns >= t.later_ns + least_ns;
  return t;
}
