// SPDX-License-Identifier: MIT
// An allocation rate against time, read from text:
//
//   # milliseconds  MB/s
//   0     120
//   400   180.5
//   1000  120
//
// A line is a moment and the rate at that moment; between two lines the rate goes straight from the
// one to the other. The curve lasts from the first line to the last, and then begins again. Lines
// that are empty or begin with # are passed over. A fall or a rise at once is two moments a
// fraction of a millisecond apart. A curve takes at least 1 ms and has a mean of at least 1 MB/s.
#ifndef TIDEPOOL_TOOL_CURVE_H
#define TIDEPOOL_TOOL_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CURVE_POINTS_MAX = 4096, CURVE_LINE_MAX = 200 };

typedef struct curve_point {
  double at_ns; // from the first one's 0, ascending
  double rate;  // bytes a second
} curve_point;

typedef struct curve {
  size_t count; // 2 or more
  curve_point points[CURVE_POINTS_MAX];
} curve;

// Reads a curve. On an error returns false and says in one line, without a name for the file, what
// is wrong and what is accepted.
bool curve_read(FILE *file, curve *c, char *error, size_t error_size);

// The one that is built in: three seconds of a service, with a mean of about 100 MB/s.
void curve_standard(curve *c);

double curve_length_ns(const curve *c);
double curve_mean_rate(const curve *c); // bytes a second, over its length

#endif
