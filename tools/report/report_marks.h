// SPDX-License-Identifier: MIT
// Marks in plots of points: a colour and a shape for each series, and an open shape for the second
// engine.
#ifndef TIDEPOOL_TOOL_REPORT_MARKS_H
#define TIDEPOOL_TOOL_REPORT_MARKS_H

#include "report_figure.h"

enum { MARKS_MAX = 24, MARK_BYTES = 64 };

typedef struct marks {
  char names[MARKS_MAX][MARK_BYTES]; // as the legend has them
  char kinds[MARKS_MAX][MARK_BYTES]; // the same without the engine
  bool open[MARKS_MAX];
  size_t count;
} marks;

// The series of that name on that engine; a new one if need be. Where there are too many, the last.
size_t mark_of(marks *m, const char *name, const char *engine);

// The colour of a series; those that differ in the engine only have one.
size_t marks_colour(const marks *m, size_t series);

// Lines in the legend.
size_t marks_entries(const marks *m);

// Adds the points of all series to the plot command: columns `series`, and these two. Series that
// differ in the engine only have one line in the legend, and another says what open marks are.
void marks_plot(figure *f, const marks *m, const char *x, const char *y);

// The rows of one rate, a new array: of 200 MB/s where they are, else of the first.
json_t *rows_of_one_rate(const json_t *rows);

// "1 configuration", "7 configurations"; static storage, overwritten by the fourth call after it.
const char *counted(size_t count, const char *noun);

#endif
