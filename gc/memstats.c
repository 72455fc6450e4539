// SPDX-License-Identifier: MIT
// Statistics: the heap's numbers from the engine, the collections' from the cycle.
#include "cycle.h"
#include "engine.h"

#include <string.h>

void tide_memstats_read(tide_memstats *stats) {
  memset(stats, 0, sizeof *stats);
  rt_thread *self = rt_enter("tide_memstats_read");
  if (!self) return;
  cycle_lock(); // between collections, so that all numbers are of one moment
  gc_engine->stats(self, stats);
  cycle_stats(stats);
  cycle_unlock();
}
