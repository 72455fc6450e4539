// SPDX-License-Identifier: MIT
// Small pictures of something over time, in text. A timeline is a row of bars, and beneath it when
// there was any traffic and when collections started. Strips are several such rows, each a line
// high, to one scale.
#ifndef TIDEPOOL_TOOL_TIMELINE_H
#define TIDEPOOL_TOOL_TIMELINE_H

#include "output.h"

enum { TIMELINE_COLUMNS = 66, TIMELINE_TICKS = 4, STRIP_COLUMNS = 50 };

typedef struct timeline_column {
  double most;    // NAN: nothing was measured there
  bool traffic;   // requests were due
  unsigned marks; // collections that started there
} timeline_column;

typedef struct timeline_tick {
  int column;
  double ms;
} timeline_tick;

typedef struct timeline {
  const char *title;
  double top;                          // the highest bar; what is above is cut off, and marked
  timeline_tick ticks[TIMELINE_TICKS]; // in order, the last one of several is at the right end
  timeline_column columns[TIMELINE_COLUMNS];
} timeline;

// The first one of several has the legend.
void timeline_print(FILE *file, const text_style *style, const timeline *t, bool legend);

typedef struct strip {
  const char *name;
  double columns[STRIP_COLUMNS]; // NAN: nothing
} strip;

// The title says what the bars show; behind each strip stands its highest bar. From 0 to span_ms.
void strips_print(FILE *file, const text_style *style, const char *title, double span_ms,
                  const strip *strips, size_t count);

// The next 1, 2 or 5 with zeros behind it, for scales; 1 at least.
double round_up(double value);

#endif
