// SPDX-License-Identifier: MIT
// Time, CPU time and memory of a worker, and percentiles; see worker.h.
#include "worker.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double seconds_since(uint64_t start_ns) {
  return (double)(now_ns() - start_ns) * 1e-9;
}

static double seconds_of(struct timeval t) {
  return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// The number of KiB behind a name in a file of /proc, as bytes; NAN if it is not there. System
// calls alone: stdio would have the allocator start that is about to be measured.
static double bytes_in(const char *path, const char *name) {
  static char text[4096];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = '\0';
  const char *found = strstr(text, name);
  return found ? strtod(found + strlen(name), NULL) * 1024 : NAN;
}

// The kernel adds this one up page by page; its quick counts (statm) are off by up to a few hundred
// KiB.
double resident_bytes(void) {
  return bytes_in("/proc/self/smaps_rollup", "\nRss:");
}

// Not getrusage, which knows of the time before exec too.
double peak_resident_bytes(void) {
  return bytes_in("/proc/self/status", "\nVmHWM:");
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void sort_values(double *values, size_t count) {
  qsort(values, count, sizeof *values, compare);
}

double percentile(const double *sorted, size_t count, double share) {
  return count ? sorted[(size_t)(share * (double)(count - 1) + 0.5)] : NAN;
}
