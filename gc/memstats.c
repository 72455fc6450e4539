// SPDX-License-Identifier: MIT
// Statistics: each part of the collector adds its own numbers. Nobody is stopped and no lock is
// taken, so that a program may look as often as it likes; each part sees to it that its numbers
// agree with one another.
#include "cycle.h"
#include "engine.h"
#include "limit.h"
#include "pace.h"

#include <string.h>

void tide_memstats_read(tide_memstats *stats) {
  memset(stats, 0, sizeof *stats);
  rt_thread *self = rt_enter("tide_memstats_read");
  if (!self) return;
  gc_engine->stats(self, stats);
  cycle_stats(stats);
  pace_stats(stats);
  limit_stats(stats);
}
