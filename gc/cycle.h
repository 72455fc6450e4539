// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_CYCLE_H
#define TIDEPOOL_CYCLE_H

#include "rt.h"
#include <tidepool/gc.h>

typedef struct cycle_reason {
  tide_cause cause;
  size_t request; // bytes that are going to be taken
  uint64_t seen;  // collections that had started when the cause was found
} cycle_reason;

// Whether a collection is due before `request` bytes more are taken, and why.
bool cycle_due(rt_thread *self, size_t request, cycle_reason *reason);

// Collects, unless the reason is gone once it is this thread's turn.
void cycle_collect(rt_thread *self, const cycle_reason *reason);

// Holds off collections, for who looks at the heap.
void cycle_lock(void);
void cycle_unlock(void);

// A collection because there was none for a long time, after which the heap is taken to be idle.
void cycle_by_time(rt_thread *self);
uint64_t cycle_last_start_ns(void); // 0: there was none

bool cycle_disabled(void);
void cycle_stats(tide_memstats *stats); // its own fields

// gctrace.c
// elapsed_ns and gc_cpu_ns: since the start of the program, and of it spent collecting.
// disable_depth: as in tide_memstats.
void gctrace_print(const tide_cycle *cycle, uint64_t elapsed_ns, uint64_t gc_cpu_ns,
                   uint64_t disable_depth);

#endif
