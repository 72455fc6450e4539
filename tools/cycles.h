// SPDX-License-Identifier: MIT
// A log of collections: when each one started and what it left alive.
//
// A hook at TIDE_STW_START writes it, with the world stopped; readers are registered threads
// outside tide_blocking, so no reader runs while it is written and no lock is needed.
#ifndef TIDEPOOL_TOOL_CYCLES_H
#define TIDEPOOL_TOOL_CYCLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cycle_log cycle_log;

// Starts a log. Complains and returns NULL when there is no memory.
cycle_log *cycles_watch(void);
void cycles_unwatch(cycle_log *log);

// Collections in the log; the first has index 0. Only the last few thousand can be asked about.
uint64_t cycles_count(const cycle_log *log);
uint64_t cycles_start_ns(const cycle_log *log, uint64_t index);
// Collections that did not come from the heap's growth.
uint64_t cycles_unpaced(const cycle_log *log);
// Collections that started after the one moment and not after the other.
uint64_t cycles_between(const cycle_log *log, uint64_t from_ns, uint64_t to_ns);
// Mean time from one start to the next over the collections from first to last, NAN if there are
// not two of them.
double cycles_period_ns(const cycle_log *log, uint64_t first, uint64_t last);
// Mean live heap after the collections from first to last, NAN if there is none.
double cycles_live_bytes(const cycle_log *log, uint64_t first, uint64_t last);

#endif
