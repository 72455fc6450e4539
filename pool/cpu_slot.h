// SPDX-License-Identifier: MIT
// The sequences of tidepool/cpu_slot.h, by the names of this room.
#ifndef TIDEPOOL_CPU_SLOT_H
#define TIDEPOOL_CPU_SLOT_H

#include "rt.h"
#include <tidepool/cpu_slot.h>

#define APART TIDE_CPU_APART

typedef tide_cpu_slot cpu_slot;

// How many CPUs a set may go by; 0: none.
static inline unsigned cpu_slots(void) {
  return TIDE_CPU_SLOTS ? rt_rseq_cpus : 0;
}

#endif
