// SPDX-License-Identifier: MIT
// A small plot in text: measured points over the predicted line.
#ifndef TIDEPOOL_TOOL_PLOT_H
#define TIDEPOOL_TOOL_PLOT_H

#include "output.h"

typedef struct plot_point {
  double x;
  double y; // 0 to 1
  size_t series;
} plot_point;

typedef struct plot {
  const char *x_label;
  const char *y_label;
  double x_highest;
  double (*line)(double x);
  const char *line_name;
  const plot_point *points;
  size_t point_count;
  const char *const *series_names; // for the legend
  size_t series_count;
} plot;

// Points outside the frame are left out. Each series has a mark of its own, and a colour where the
// style allows colours.
void plot_print(FILE *file, const text_style *style, const plot *p);

#endif
