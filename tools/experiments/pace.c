// SPDX-License-Identifier: MIT
// The pace of collections by the settings; see pace.h.
#include "pace.h"
#include "command.h"

#include <math.h>
#include <tidepool.h>

bool pace_percent(int *percent) {
  tide_options in_force;
  tide_options_read(&in_force);
  *percent = (int)in_force.gc_percent;
  if (*percent > 0) return true;
  complain("TIDE_GCPERCENT: %s; accepted here: a percent above 0, since this experiment lives by "
           "the heap's growth",
           *percent < 0 ? "collections are off" : "0 collects all the time");
  return false;
}

double pace_growth_bytes(double live_bytes, int percent) {
  if (percent < 0) return HUGE_VAL;
  tide_options in_force;
  tide_options_read(&in_force);
  double floor_bytes =
      in_force.min_heap_bytes > 0 ? (double)in_force.min_heap_bytes : 4 * 0x1p20 * percent / 100;
  return fmax(live_bytes * (1 + percent / 100.0), floor_bytes) - live_bytes;
}
