// SPDX-License-Identifier: MIT
// TIDE_DEBUG=gctrace=1: one line on stderr for each collection, written in one piece once the world
// runs again. docs/gctrace.md explains it field by field.
#include "cycle.h"

#include <stdio.h>

static double ms(uint64_t ns) {
  return (double)ns / 1e6;
}
static double mb(uint64_t bytes) {
  return (double)bytes / (1 << 20);
}

void gctrace_print(const tide_cycle *c, uint64_t elapsed_ns, uint64_t gc_cpu_ns) {
  double share = (double)gc_cpu_ns / (double)elapsed_ns / os_cpus_allowed() * 100;
  char goal[32] = "no goal";
  if (c->goal_bytes != UINT64_MAX) snprintf(goal, sizeof goal, "%.1f MB goal", mb(c->goal_bytes));
  rt_report("gc %llu @%.3fs %.0f%%: %.3f+%.3f+%.3f+%.3f ms, sweep %.3f ms, %.1f->%.1f MB, %s, "
            "%.2f MB stacks, %.2f MB globals, %d P (%s)",
            (unsigned long long)c->number, (double)(c->start_at_ns - rt_started_at_ns()) / 1e9,
            share, ms(c->stop_ns), ms(c->hooks_ns), ms(c->mark_ns), ms(c->end_ns), ms(c->sweep_ns),
            mb(c->heap_start_bytes), mb(c->live_bytes), goal, mb(c->stack_bytes),
            mb(c->global_bytes), tide_procs(), tide_cause_string(c->cause));
}
