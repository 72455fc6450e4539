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

typedef struct words {
  char text[32];
} words;

// "12.3 MB goal", or "no goal".
static words bound(uint64_t bytes, uint64_t none, const char *name) {
  words w;
  if (bytes == none)
    snprintf(w.text, sizeof w.text, "no %s", name);
  else
    snprintf(w.text, sizeof w.text, "%.1f MB %s", mb(bytes), name);
  return w;
}

// What is not so in most lines.
static words states(const tide_cycle *c, uint64_t disable_depth) {
  words w = {""};
  size_t length = 0;
  if (c->limiter_active) length = (size_t)snprintf(w.text, sizeof w.text, ", limiter");
  if (disable_depth)
    snprintf(w.text + length, sizeof w.text - length, ", disabled %llu",
             (unsigned long long)disable_depth);
  return w;
}

void gctrace_print(const tide_cycle *c, uint64_t elapsed_ns, uint64_t gc_cpu_ns,
                   uint64_t disable_depth) {
  double share = (double)gc_cpu_ns / (double)elapsed_ns / rt_cpus() * 100;
  rt_report(
      "gc %llu @%.6fs %.1f%%: %.3f+%.3f+%.3f+%.3f ms, sweep %.3f ms, %.1f->%.1f MB, %s, "
      "%.2f MB stacks, %.2f MB globals, %.2f MB external, %.1f MB total, %s, %llu markers, "
      "%d P%s (%s)",
      (unsigned long long)c->number, (double)(c->start_at_ns - rt_started_at_ns()) / 1e9, share,
      ms(c->stop_ns), ms(c->hooks_ns), ms(c->mark_ns), ms(c->end_ns), ms(c->sweep_ns),
      mb(c->heap_start_bytes), mb(c->live_bytes), bound(c->goal_bytes, UINT64_MAX, "goal").text,
      mb(c->stack_bytes), mb(c->global_bytes), mb(c->external_bytes), mb(c->total_bytes),
      bound((uint64_t)c->limit_bytes, INT64_MAX, "limit").text, (unsigned long long)c->markers,
      tide_procs(), states(c, disable_depth).text, tide_cause_string(c->cause));
}
