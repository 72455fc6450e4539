// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_CYCLE_H
#define TIDEPOOL_CYCLE_H

#include "rt.h"
#include <tidepool/gc.h>

// Whether a collection is due at this allocation, and why.
bool cycle_due(rt_thread *self, tide_cause *cause);

// Collects, unless the cause is gone once it is this thread's turn: for TIDE_CAUSE_GOAL when
// another thread has collected meanwhile, for TIDE_CAUSE_MEMORY when more than `seen` collections
// have started.
void cycle_collect(rt_thread *self, tide_cause cause, uint64_t seen);

// Holds off collections, for who looks at the heap.
void cycle_lock(void);
void cycle_unlock(void);

bool cycle_disabled(void);
void cycle_stats(tide_memstats *stats); // its own fields

// gctrace.c
// elapsed_ns and gc_cpu_ns: since the start of the program, and of it spent collecting.
void gctrace_print(const tide_cycle *cycle, uint64_t elapsed_ns, uint64_t gc_cpu_ns);

#endif
