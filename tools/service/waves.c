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

tooth tooth_of(const schedule *s, const sample *samples, uint64_t wave, uint64_t make_ns,
               uint64_t *scratch) {
  uint64_t start = schedule_wave_ns(s, wave), begin = wave * s->per_wave, end = begin + s->per_wave;
  uint64_t i = begin + 1;
  while (i < end && schedule_due_ns(s, i) - start < make_ns / 2) i++;
  for (uint64_t k = begin; k < end; k++) scratch[k - begin] = samples[k].latency_ns;
  size_t first = (size_t)(i - begin);
  tooth t = {.first_ns = quantile_ns(scratch, first, 0.5),
             .later_ns = quantile_ns(scratch + first, (size_t)(end - i), 0.5)};
  t.stands = (double)t.first_ns >= tooth_ratio * (double)t.later_ns &&
             t.first_ns >= t.later_ns + make_ns / 4;
  return t;
}

// The worst latency of what is due so long after the wave's beginning; 0: nothing is.
static uint64_t worst_between(const schedule *s, const sample *samples, uint64_t wave,
                              uint64_t from_ns, uint64_t to_ns) {
  uint64_t start = schedule_wave_ns(s, wave), i = wave * s->per_wave, end = i + s->per_wave;
  uint64_t worst = 0;
  for (; i < end && schedule_due_ns(s, i) - start < to_ns; i++)
    if (schedule_due_ns(s, i) - start >= from_ns && samples[i].latency_ns > worst)
      worst = samples[i].latency_ns;
  return worst;
}

void usual_wave(const schedule *s, const sample *samples, uint64_t first, uint64_t last,
                uint64_t column_ns, uint64_t *columns, size_t count, uint64_t *scratch) {
  for (size_t c = 0; c < count; c++) {
    for (uint64_t wave = first; wave < last; wave++)
      scratch[wave - first] = worst_between(s, samples, wave, c * column_ns, (c + 1) * column_ns);
    columns[c] = quantile_ns(scratch, (size_t)(last - first), 0.5);
  }
}
