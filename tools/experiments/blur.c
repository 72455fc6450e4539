// SPDX-License-Identifier: MIT
// The expected hit rate of gaps that begin anywhere in a window; see blur.h.
#include "blur.h"

#include <math.h>
#include <stdbool.h>

double blur_straight(double gap_over_period, unsigned survive) {
  if (isnan(gap_over_period)) return NAN;
  return 1 - fmin(fmax(gap_over_period - survive, 0), 1);
}

double blur_predict(const moments *starts, double from, double to, double gap, unsigned survive) {
  if (!(to > from)) return NAN;
  double kept = 0;
  size_t next = 0; // the first collection after x
  for (double x = from; x < to;) {
    while (next < starts->count && starts->at[next] <= x) next++;
    double end = next < starts->count ? fmin(starts->at[next], to) : to;
    // What is put before `last` is asked for before the collection that it does not outlive.
    size_t fatal = next + survive;
    double last = fatal < starts->count ? starts->at[fatal] - gap : to;
    kept += fmax(fmin(end, last) - x, 0);
    x = end;
  }
  return kept / (to - from);
}

periods blur_periods(const moments *starts, double from, double to) {
  size_t first = 0, last = 0;
  for (size_t i = 0; i < starts->count; i++) {
    if (starts->at[i] <= from) first = i;
    last = i;
    if (starts->at[i] >= to) break;
  }
  if (last <= first) return (periods){.mean = NAN, .cv = NAN, .correlation = NAN};
  double n = (double)(last - first), mean = (starts->at[last] - starts->at[first]) / n;
  double squares = 0, products = 0, before = NAN;
  for (size_t i = first; i < last; i++) {
    double off = starts->at[i + 1] - starts->at[i] - mean;
    squares += off * off;
    if (i > first) products += before * off;
    before = off;
  }
  double variance = squares / n;
  bool varies = n >= 3 && variance > 1e-18 * mean * mean;
  return (periods){.count = last - first,
                   .mean = mean,
                   .cv = sqrt(variance) / mean,
                   .correlation = varies ? products / (n - 1) / variance : NAN};
}
