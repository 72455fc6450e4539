// SPDX-License-Identifier: MIT
// What the settings in force say about the pace of collections, ahead of any.
#ifndef TIDEPOOL_TOOL_PACE_H
#define TIDEPOOL_TOOL_PACE_H

#include <stdbool.h>

// The GC percent. Complains and returns false where the heap's growth starts no collections.
bool pace_percent(int *percent);

// How far a heap may grow by the GC percent from one collection to the next, in bytes. A negative
// percent: HUGE_VAL.
double pace_growth_bytes(double live_bytes, int percent);

#endif
