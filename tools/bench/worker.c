// SPDX-License-Identifier: MIT
// A worker's main program, its parameters and its report; see worker.h.
#include "peer.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static const struct {
  const char *name;
  void (*run)(void);
} workloads[] = {
    {"alloc", alloc_run},       {"trees", trees_run},     {"gcbench", gcbench_run},
    {"bigheap", bigheap_run},   {"pause", pause_run},     {"scale", scale_run},
    {"fragment", fragment_run}, {"startup", startup_run}, {"pool", pool_run},
    {"hooks", hooks_run},       {"pools", pools_run},
};
enum { WORKLOADS = sizeof workloads / sizeof workloads[0] };

static char **parameters; // KEY=VALUE, NULL behind the last

uint64_t init_ns;
double init_rss_bytes;

void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  _Exit(1);
}

// NULL when the key is not given.
static const char *value_of(const char *key) {
  size_t length = strlen(key);
  for (char **p = parameters; *p; p++)
    if (strncmp(*p, key, length) == 0 && (*p)[length] == '=') return *p + length + 1;
  return NULL;
}

static uint64_t number_of(const char *key, const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end) fail("%s=%s: not a whole number", key, text);
  return value;
}

uint64_t parameter(const char *key) {
  const char *text = value_of(key);
  if (!text) fail("%s=NUMBER is missing", key);
  return number_of(key, text);
}

// Kept until the end, so that a worker which fails half-way prints no result.
static char line[1024];
static size_t line_length;

void report(const char *metric, double value) {
  size_t room = sizeof line - line_length;
  int length = isfinite(value) ? snprintf(line + line_length, room, ", \"%s\": %.9g", metric, value)
                               : snprintf(line + line_length, room, ", \"%s\": null", metric);
  if (length < 0 || (size_t)length >= room) fail("the report is too long");
  line_length += (size_t)length;
}

// The first call and the first object.
static void start_peer(void) {
  const char *markers = value_of("markers");
  unsigned count = markers ? (unsigned)number_of("markers", markers) : 0;
  double before_bytes = resident_bytes();
  uint64_t before_ns = now_ns();
  peer_init(count);
  escape(allocate(16));
  init_ns = now_ns() - before_ns;
  init_rss_bytes = resident_bytes() - before_bytes;
}

int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); // nobody would read the result
  if (argc < 2) fail("usage: %s WORKLOAD KEY=VALUE...", argv[0]);
  parameters = argv + 2;
  int chosen = 0;
  while (chosen < WORKLOADS && strcmp(workloads[chosen].name, argv[1]) != 0) chosen++;
  if (chosen == WORKLOADS) fail("unknown workload '%s'", argv[1]);
  start_peer();
  workloads[chosen].run();
  // The line begins with the comma of its first metric.
  if (printf("{%s}\n", line + 2) < 0 || fflush(stdout) != 0) fail("cannot write the result");
  return 0;
}
