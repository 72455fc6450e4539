// SPDX-License-Identifier: MIT
// The log of collections, a ring that three hooks fill; see cycles.h.
#include "cycles.h"
#include "command.h"

#include <atomic_ops.h>
#include <math.h>
#include <stdlib.h>

enum { KEPT = 65536 };

typedef struct entry {
  uint64_t start_ns;
  uint64_t goal_bytes; // that it started under
  uint64_t live_bytes; // 0 until marking is done
  AO_t pause_ns;       // 0 until the world runs again
  tide_cause cause;
} entry;

struct cycle_log {
  volatile uint64_t count;
  volatile uint64_t unpaced;
  tide_hook *at_start;
  tide_hook *at_mark;
  tide_hook *at_end;
  entry ring[KEPT];
};

static void log_start(const tide_cycle *cycle, void *arg) {
  cycle_log *log = arg;
  log->ring[log->count % KEPT] = (entry){
      .start_ns = cycle->start_at_ns, .goal_bytes = cycle->goal_bytes, .cause = cycle->cause};
  log->count++;
  if (cycle->cause != TIDE_CAUSE_GOAL && cycle->cause != TIDE_CAUSE_LIMIT) log->unpaced++;
}

static void log_live(const tide_cycle *cycle, void *arg) {
  cycle_log *log = arg;
  if (log->count > 0) log->ring[(log->count - 1) % KEPT].live_bytes = cycle->live_bytes;
}

// The next collection may have started meanwhile.
static void log_pause(const tide_cycle *cycle, void *arg) {
  cycle_log *log = arg;
  uint64_t count = log->count;
  for (uint64_t back = 1; back <= 2 && back <= count; back++) {
    entry *e = &log->ring[(count - back) % KEPT];
    if (e->start_ns == cycle->start_at_ns) AO_store(&e->pause_ns, (AO_t)cycle->pause_ns);
  }
}

cycle_log *cycles_watch(void) {
  cycle_log *log = calloc(1, sizeof *log);
  if (log) {
    log->at_start = tide_hook_add(TIDE_STW_START, log_start, log);
    log->at_mark = tide_hook_add(TIDE_MARK_DONE, log_live, log);
    log->at_end = tide_hook_add(TIDE_CYCLE_END, log_pause, log);
    if (log->at_start && log->at_mark && log->at_end) return log;
  }
  complain("no memory for a log of collections");
  cycles_unwatch(log);
  return NULL;
}

void cycles_unwatch(cycle_log *log) {
  if (!log) return;
  tide_hook_remove(log->at_start);
  tide_hook_remove(log->at_mark);
  tide_hook_remove(log->at_end);
  free(log);
}

uint64_t cycles_count(const cycle_log *log) {
  return log->count;
}

uint64_t cycles_oldest(const cycle_log *log) {
  return log->count > KEPT ? log->count - KEPT : 0;
}

uint64_t cycles_start_ns(const cycle_log *log, uint64_t index) {
  return log->ring[index % KEPT].start_ns;
}

uint64_t cycles_pause_ns(const cycle_log *log, uint64_t index) {
  return AO_load(&log->ring[index % KEPT].pause_ns);
}

uint64_t cycles_unpaced(const cycle_log *log) {
  return log->unpaced;
}

uint64_t cycles_between(const cycle_log *log, uint64_t from_ns, uint64_t to_ns) {
  uint64_t found = 0, count = log->count;
  for (uint64_t back = 1; back <= count && back <= KEPT; back++) {
    uint64_t start_ns = cycles_start_ns(log, count - back);
    if (start_ns <= from_ns) break;
    if (start_ns <= to_ns) found++;
  }
  return found;
}

// The first of a range that is still there.
static uint64_t kept_from(const cycle_log *log, uint64_t first) {
  return first < cycles_oldest(log) ? cycles_oldest(log) : first;
}

uint64_t cycles_caused(const cycle_log *log, tide_cause cause, uint64_t first, uint64_t last) {
  uint64_t found = 0;
  for (uint64_t i = kept_from(log, first + 1); i <= last && i < log->count; i++)
    if (log->ring[i % KEPT].cause == cause) found++;
  return found;
}

double cycles_period_ns(const cycle_log *log, uint64_t first, uint64_t last) {
  first = kept_from(log, first);
  if (last <= first || last >= log->count) return NAN;
  uint64_t time = cycles_start_ns(log, last) - cycles_start_ns(log, first);
  return (double)time / (double)(last - first);
}

double cycles_growth_bytes(const cycle_log *log, uint64_t first, uint64_t last) {
  first = kept_from(log, first);
  if (last <= first || last >= log->count) return NAN;
  double sum = 0;
  for (uint64_t i = first; i < last; i++) {
    double live = (double)log->ring[i % KEPT].live_bytes;
    sum += fmax((double)log->ring[(i + 1) % KEPT].goal_bytes - live, 0);
  }
  return sum / (double)(last - first);
}

double cycles_live_bytes(const cycle_log *log, uint64_t first, uint64_t last) {
  first = kept_from(log, first);
  if (last < first || last >= log->count) return NAN;
  double sum = 0;
  for (uint64_t i = first; i <= last; i++) sum += (double)log->ring[i % KEPT].live_bytes;
  return sum / (double)(last - first + 1);
}
