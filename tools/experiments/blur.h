// SPDX-License-Identifier: MIT
// What a pool keeps over a gap, from the moments at which collections started: pure functions of
// numbers, no clock and no pool.
//
// An item that is put at x and asked for at x + T is still there if fewer than `survive` + 1
// collections started in between. Over all x in a window of time, the share of those for which that
// holds is the hit rate to expect of gaps that begin anywhere in it: blur_predict. It is exact for
// any moments. Where collections are spaced evenly, G apart, it is the straight line
// 1 - clip(T/G - survive, 0, 1): blur_straight. How far the two are apart is what uneven periods
// blur.
//
// Between two collections the xs that keep their item are one interval, from the first collection
// to T before the one that is fatal: so the share is a sum over the periods.
#ifndef TIDEPOOL_TOOL_BLUR_H
#define TIDEPOOL_TOOL_BLUR_H

#include <stddef.h>

// Moments are in any one unit and on any one clock, and in ascending order. They must reach to the
// end of the window and a gap more: after the last of them there is no collection.
typedef struct moments {
  size_t count;
  const double *at;
} moments;

// NAN for an empty window.
double blur_predict(const moments *starts, double from, double to, double gap, unsigned survive);

// NAN for NAN.
double blur_straight(double gap_over_period, unsigned survive);

// The periods that a window touches, the whole of each, if there are moments on both sides of it.
typedef struct periods {
  size_t count;
  double mean; // NAN if there are none
  double cv;   // coefficient of variation: standard deviation / mean
  // Of each with the next, -1 to 1; NAN for fewer than three, and where they do not vary.
  double correlation;
} periods;

periods blur_periods(const moments *starts, double from, double to);

#endif
