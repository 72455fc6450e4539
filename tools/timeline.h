// SPDX-License-Identifier: MIT
// A small picture of something over time, in text: a column of bars, and beneath it when there was
// any traffic and when collections started.
#ifndef TIDEPOOL_TOOL_TIMELINE_H
#define TIDEPOOL_TOOL_TIMELINE_H

#include "output.h"

enum { TIMELINE_COLUMNS = 66 };

typedef struct timeline_column {
  double most;    // NAN: nothing was measured there
  bool traffic;   // requests were due
  unsigned marks; // collections that started there
} timeline_column;

typedef struct timeline {
  const char *title;
  const char *unit; // of the bars
  double top;       // the highest bar; what is above is cut off, and marked
  double span_ms;   // of all columns
  timeline_column columns[TIMELINE_COLUMNS];
} timeline;

// The first one of several has the legend.
void timeline_print(FILE *file, const text_style *style, const timeline *t, bool legend);

#endif
