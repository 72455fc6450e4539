// SPDX-License-Identifier: MIT
// Statistics: each part of the collector adds its own numbers. Nobody is stopped and no lock is
// taken, so that a program may look as often as it likes, and from any thread: one that is not
// registered is not stopped by collections either. Each part sees to it that its numbers agree with
// one another.
#include "cycle.h"
#include "engine.h"
#include "limit.h"
#include "pace.h"

#include <string.h>

void tide_memstats_read(tide_memstats *stats) {
  memset(stats, 0, sizeof *stats);
  if (!rt_ensure_initialised()) return;
  gc_engine->stats(stats);
  cycle_stats(stats);
  pace_stats(stats);
  limit_stats(stats);
}
