// SPDX-License-Identifier: MIT
// What the tests of pools share beyond testing.h: counts, collections, and what threads have to do
// under ThreadSanitizer.
#ifndef TIDEPOOL_POOL_TESTING_H
#define TIDEPOOL_POOL_TESTING_H

#include "testing.h"

#include <tidepool.h>

static MAYBE_UNUSED tide_pool_stats stats_of(tide_pool *pool) {
  tide_pool_stats stats;
  tide_pool_stats_read(pool, &stats);
  return stats;
}

static MAYBE_UNUSED uint64_t hits(const tide_pool_stats *stats) {
  return stats->hits_private + stats->hits_shared + stats->hits_stolen + stats->hits_victim;
}

static MAYBE_UNUSED NOINLINE void collect_times(int times) {
  for (int i = 0; i < times; i++) {
    clear_stack();
    tide_collect();
  }
}

// So that who takes what from whom does not hang on the CPUs that threads come to be on.
static MAYBE_UNUSED void go_by_processors(void) {
  const char *debug = getenv("TIDE_DEBUG");
  char more[256];
  snprintf(more, sizeof more, "%s%spoolseed=1", debug ? debug : "", debug && *debug ? "," : "");
  setenv("TIDE_DEBUG", more, 1);
}

// ThreadSanitizer holds signals back, the stop signal too, until a call of the C library.
static MAYBE_UNUSED void let_signals_in(void) {
  if (UNDER_TSAN) time(NULL);
}

// It takes its part of a thread away before the library's own end of it.
static MAYBE_UNUSED void leave_early(void) {
  if (UNDER_TSAN) tide_thread_unregister();
}

#endif
