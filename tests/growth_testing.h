// SPDX-License-Identifier: MIT
// What the tests of growth, of large objects and of shapes share beyond heap_testing.h. Each of
// them has a short form, and a full one for which TIDE_TEST_FULL is set (the stress suite).
#ifndef TIDEPOOL_GROWTH_TESTING_H
#define TIDEPOOL_GROWTH_TESTING_H

#include "heap_testing.h"

#include <sys/resource.h>

#define GIB ((size_t)1 << 30)

static MAYBE_UNUSED bool is_full_form(void) {
  return getenv("TIDE_TEST_FULL") != NULL;
}
static MAYBE_UNUSED size_t short_or_full(size_t in_short, size_t in_full) {
  return is_full_form() ? in_full : in_short;
}

// The first number in the line of a file in /proc that begins with `name`.
static MAYBE_UNUSED size_t proc_number(const char *path, const char *name) {
  char line[256];
  size_t number = 0;
  FILE *file = fopen(path, "re");
  ck_assert_ptr_nonnull(file);
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name))) number = strtoul(line + strlen(name), NULL, 10);
  fclose(file);
  return number;
}
static MAYBE_UNUSED size_t available_bytes(void) {
  return proc_number("/proc/meminfo", "MemAvailable:") << 10;
}
static MAYBE_UNUSED size_t address_space_bytes(void) {
  return proc_number("/proc/self/status", "VmSize:") << 10;
}

static MAYBE_UNUSED size_t count_maps(void) {
  char line[4096];
  size_t maps = 0;
  FILE *file = fopen("/proc/self/maps", "re");
  ck_assert_ptr_nonnull(file);
  while (fgets(line, sizeof line, file)) maps += strchr(line, '\n') != NULL;
  fclose(file);
  return maps;
}

static MAYBE_UNUSED void limit_address_space(size_t bytes) {
  struct rlimit limit;
  ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = bytes;
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static MAYBE_UNUSED double seconds_on(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// What of the heap may have memory behind it: all that was ever used and not given back.
static MAYBE_UNUSED size_t mapped_bytes(void) {
  tide_memstats stats = read_stats();
  return stats.heap_sys - stats.heap_released;
}

#endif
