// SPDX-License-Identifier: MIT
// A log of collections: when each one started, why, what it left alive, and how long the world
// stood.
//
// Hooks at the two stopped points write it; readers are registered threads outside tide_blocking,
// so no reader runs while it is written and no lock is needed. The pause alone is added when the
// world runs again, in one atomic store.
#ifndef TIDEPOOL_TOOL_CYCLES_H
#define TIDEPOOL_TOOL_CYCLES_H

#include <stdbool.h>
#include <stdint.h>
#include <tidepool.h>

typedef struct cycle_log cycle_log;

// Starts a log. Complains and returns NULL when there is no memory.
cycle_log *cycles_watch(void);
void cycles_unwatch(cycle_log *log);

// Collections in the log; the first has index 0. The last 65536 are kept: where a range that is
// asked about begins before them, they stand for it.
uint64_t cycles_count(const cycle_log *log);
// The index of the first that is kept.
uint64_t cycles_oldest(const cycle_log *log);
uint64_t cycles_start_ns(const cycle_log *log, uint64_t index);
// How long the world stood; 0: not known yet, as the collection is not over.
uint64_t cycles_pause_ns(const cycle_log *log, uint64_t index);
// Collections that came neither from the heap's growth nor from the memory limit.
uint64_t cycles_unpaced(const cycle_log *log);
// Collections after the first and up to the last that had this cause.
uint64_t cycles_caused(const cycle_log *log, tide_cause cause, uint64_t first, uint64_t last);
// Collections that started after the one moment and not after the other.
uint64_t cycles_between(const cycle_log *log, uint64_t from_ns, uint64_t to_ns);
// Mean time from one start to the next over the collections from first to last, NAN if there are
// not two of them.
double cycles_period_ns(const cycle_log *log, uint64_t first, uint64_t last);
// How much the heap could grow from what the one collection left to the goal of the next, mean over
// the collections after the first and up to the last, NAN if there is none.
double cycles_growth_bytes(const cycle_log *log, uint64_t first, uint64_t last);
// Mean live heap after the collections from first to last, NAN if there is none.
double cycles_live_bytes(const cycle_log *log, uint64_t first, uint64_t last);

#endif
