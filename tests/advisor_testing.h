// SPDX-License-Identifier: MIT
// What the tests of the advisor and of reports on pools share beyond pool_testing.h: pools that are
// used, and reports, which are read as JSON.
//
// Where only tide_collect collects, numbers are exact: one thread, one processor, and pools that go
// by it.
#ifndef TIDEPOOL_ADVISOR_TESTING_H
#define TIDEPOOL_ADVISOR_TESTING_H

#include "json_testing.h"
#include "pool_testing.h"

enum { ITEMS = 8, ITEM_BYTES = 4096, ITEMS_MOST = 128 };

static void *held[ITEMS_MOST]; // static: a root

// ---- Reading reports ------------------------------------------------------------------------

static char *report_of(void (*report)(FILE *out)) {
  static char *text;
  static size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  ck_assert_ptr_nonnull(out);
  report(out);
  fclose(out);
  return text;
}

// The line about the pool; the name is as JSON has it. All lines are JSON.
static char *json_of(const char *name) {
  char *text = report_of(tide_pool_report_json), *found = NULL, wanted[256];
  snprintf(wanted, sizeof wanted, "{\"name\":\"%s\",", name);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    ck_assert_msg(is_json(line, strlen(line)), "not JSON: %s", line);
    if (!strncmp(line, wanted, strlen(wanted))) found = line;
  }
  ck_assert_msg(found != NULL, "no pool %s", name);
  return found;
}

// ---- Programs -------------------------------------------------------------------------------

static void *make_item(void *arg) {
  return tide_alloc_leaf(ITEM_BYTES);
}

static tide_pool *pool_with(tide_pool_options options) {
  if (!options.create) options.create = make_item;
  tide_pool *pool = tide_pool_create(&options);
  ck_assert_ptr_nonnull(pool);
  return pool;
}

static void use(tide_pool *pool, int items) {
  for (int i = 0; i < items; i++) held[i] = tide_pool_get(pool);
  for (int i = 0; i < items; i++) {
    tide_pool_put(pool, held[i]);
    held[i] = NULL;
  }
}

static MAYBE_UNUSED void one_processor(void) {
  setenv("TIDE_DEBUG", "poolseed=1", 1);
  tide_procs_set(1);
}

static MAYBE_UNUSED void only_collections_asked_for(void) {
  one_processor();
  tide_gc_disable();
}

#endif
