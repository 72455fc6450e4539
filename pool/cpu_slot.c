// SPDX-License-Identifier: MIT
// Whether restartable sequences can be had on this system; cpu_slot.h has the idea.
#define _GNU_SOURCE
#include "cpu_slot.h"

#include <sched.h>
#include <sys/auxv.h>

unsigned cpu_slots;

#if CPU_SLOTS

ptrdiff_t cpu_slots_area, cpu_slots_field;

// The C library's, since glibc 2.35: where it has put the kernel's area, and how much of it is in
// use; 0: it has registered none.
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

enum {
  FIELD_CPU = 4, // offsets in struct rseq
  FIELD_CONCURRENCY = 24,
  FEATURES_IN_AUXV = 27, // AT_RSEQ_FEATURE_SIZE: so many bytes does the kernel fill in
};

// Are the CPUs that the process may use the first ones?
static bool cpus_are_the_first(unsigned count) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
  for (unsigned i = 0; i < count; i++)
    if (i >= CPU_SETSIZE || !CPU_ISSET(i, &set)) return false;
  return true;
}

void cpu_slots_init(void) {
  if (cpu_slots || !&__rseq_size || !__rseq_size) return;
  unsigned cpus = (unsigned)rt_cpus();
  cpu_slots_area = __rseq_offset;
  // glibc registers 32 bytes, in which the field lies, whatever it says of itself.
  bool concurrency = getauxval(FEATURES_IN_AUXV) >= FIELD_CONCURRENCY + 4;
  cpu_slots_field = concurrency ? FIELD_CONCURRENCY : FIELD_CPU;
  if (concurrency || cpus_are_the_first(cpus)) cpu_slots = cpus;
}

#else

void cpu_slots_init(void) {}

#endif
