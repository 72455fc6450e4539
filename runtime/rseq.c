// SPDX-License-Identifier: MIT
// Restartable sequences: whether this system has them, and where a thread finds what it needs for
// one. The rooms above write the sequences, and explain them.
//
// The C library registers an area of each thread with the kernel, since glibc 2.35, and says where.
// tide_rseq points to the calling thread's, as long as the thread may use the heap; else to one
// that names no CPU, so that a sequence finds that out by the same look that it takes anyway.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <sched.h>
#include <sys/auxv.h>

enum {
  CPU = 4, // offsets in the kernel's struct rseq
  CONCURRENCY = 24,
  FEATURES_IN_AUXV = 27, // AT_RSEQ_FEATURE_SIZE: how many bytes the kernel fills in
};

static uint32_t no_area[16]
    __attribute__((aligned(64))) = {[CPU / 4] = UINT32_MAX, [CONCURRENCY / 4] = UINT32_MAX};

TIDE_API __thread char *tide_rseq __attribute__((tls_model("initial-exec"))) = (char *)no_area;
unsigned rt_rseq_cpus;
TIDE_API ptrdiff_t tide_rseq_field = CPU;

#if (defined __x86_64__ || defined __aarch64__) && defined __GLIBC__

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

// Are the CPUs that the process may use the first ones?
static bool cpus_are_the_first(unsigned count) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
  for (unsigned i = 0; i < count; i++)
    if (i >= CPU_SETSIZE || !CPU_ISSET(i, &set)) return false;
  return true;
}

void rt_rseq_init(void) {
  if (!&__rseq_size || !__rseq_size) return;
  // glibc registers 32 bytes, in which the field lies, whatever it says of itself.
  bool concurrency = getauxval(FEATURES_IN_AUXV) >= CONCURRENCY + 4;
  unsigned cpus = (unsigned)rt_cpus();
  if (!concurrency && !cpus_are_the_first(cpus)) return;
  tide_rseq_field = concurrency ? CONCURRENCY : CPU;
  rt_rseq_cpus = cpus;
}

// In a thread that the kernel does not know, because something has forbidden the C library to
// register it, the CPU is below 0, and the other field is not kept.
void rt_rseq_allow(rt_thread *self, bool allowed) {
  char *area = rt_rseq_cpus ? self->thread_pointer + __rseq_offset : (char *)no_area;
  bool known = *(volatile int32_t *)(void *)(area + CPU) >= 0;
  tide_rseq = allowed && known ? area : (char *)no_area;
}

#else

void rt_rseq_init(void) {}
void rt_rseq_allow(rt_thread *self, bool allowed) {}

#endif
