// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_EVENT_TEXT_H
#define TIDEPOOL_EVENT_TEXT_H

#include "rt.h"

// The runtime's client: an event's number (0: a, 1: b) in words; NULL: it is a number.
const char *event_text(tide_event_kind kind, int which, uint64_t value);

#endif
