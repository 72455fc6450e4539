// SPDX-License-Identifier: MIT
// Numbers in events that have names. The runtime writes the trace file, and knows no causes.
#include "event_text.h"
#include <tidepool/gc.h>

const char *event_text(tide_event_kind kind, int which, uint64_t value) {
  if (kind != TIDE_EVENT_CYCLE || which != 1 || value >= TIDE_CAUSES) return NULL;
  return tide_cause_string((tide_cause)value);
}
