// SPDX-License-Identifier: MIT
// What the tests of options, of initialisation and of messages share beyond testing.h: the
// documented options once more, and ways to ask for them.
#ifndef TIDEPOOL_OPTIONS_TESTING_H
#define TIDEPOOL_OPTIONS_TESTING_H

#include "testing.h"

// The documented options that are numbers, written down once more: a change of the library's own
// table that changes what programs rely on shows here.
typedef struct option {
  const char *field, *variable, *key;
  size_t offset;
  int64_t standard, lowest, highest;
} option;
#define ROW(name, variable, key, standard, lowest, highest)                                        \
  { #name, variable, key, offsetof(tide_options, name), standard, lowest, highest }
static const option known[] = {
    ROW(gc_percent, "TIDE_GCPERCENT", NULL, 100, -1, INT32_MAX),
    ROW(procs, "TIDE_PROCS", NULL, 0, 0, 1024),
    ROW(markers, "TIDE_MARKERS", NULL, 0, 0, 64),
    ROW(min_heap_bytes, "TIDE_MINHEAP", NULL, 0, 0, INT64_MAX),
    ROW(memory_limit, "TIDE_MEMLIMIT", NULL, INT64_MAX, -1, INT64_MAX),
    ROW(hard_limit, "TIDE_HARDLIMIT", NULL, INT64_MAX, 0, INT64_MAX),
    ROW(gc_interval_ms, "TIDE_GCINTERVAL", NULL, 120000, 0, INT32_MAX),
    ROW(mark_stack_bytes, "TIDE_MARKSTACK", NULL, 0, 0, INT64_MAX),
    ROW(hugepages, "TIDE_HUGEPAGES", NULL, 1, 0, 1),
    ROW(gctrace, "TIDE_DEBUG", "gctrace", 0, 0, 1),
    ROW(verify, "TIDE_DEBUG", "verify", 0, 0, 1),
    ROW(stress, "TIDE_DEBUG", "stress", 0, 0, INT32_MAX),
    ROW(poison, "TIDE_DEBUG", "poison", 0, 0, 1),
    ROW(poolseed, "TIDE_DEBUG", "poolseed", 0, 0, 1),
    ROW(poolchaos, "TIDE_DEBUG", "poolchaos", 0, 0, INT32_MAX),
    ROW(poolreport, "TIDE_DEBUG", "poolreport", 0, 0, 1),
    ROW(poolcheck, "TIDE_DEBUG", "poolcheck", 0, 0, 1),
    ROW(record_kib, "TIDE_DEBUG", "record_kib", 0, 0, INT32_MAX),
};

static MAYBE_UNUSED int64_t *field_of(tide_options *options, const option *o) {
  return (int64_t *)(void *)((char *)options + o->offset);
}

static const tide_options all_unset = TIDE_OPTIONS_DEFAULT;

static void clear_environment(void) {
  for (size_t i = 0; i < LENGTH(known); i++) unsetenv(known[i].variable);
}

static MAYBE_UNUSED tide_status init_again(tide_options asked) {
  return tide_init(&asked);
}

#endif
