// SPDX-License-Identifier: MIT
// A worker of `tidepool bench`: one process that runs one workload once on one peer.
//
//   tidepool-bench-PEER WORKLOAD KEY=VALUE...
//
// It prints its metrics as one JSON object on a line of standard output; or it fails: a line on
// standard error, and an exit status other than 0. The command, bench.c, starts workers and knows
// which parameters and metrics a workload has.
#ifndef TIDEPOOL_BENCH_WORKER_H
#define TIDEPOOL_BENCH_WORKER_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

// The workloads, each in the file of its name. One that fails does not return.
void alloc_run(void);
void trees_run(void);
void gcbench_run(void);
void bigheap_run(void);
void pause_run(void);
void scale_run(void);
void fragment_run(void);
void startup_run(void);
void pool_run(void);
void hooks_run(void);
void pools_run(void);

// Ends the worker with status 1 and one line.
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// The whole number given for the key; it must have been given.
uint64_t parameter(const char *key);

// A metric of this run; NAN: this peer has no such thing.
void report(const char *metric, double value);

// What the peer's first call took and added to the resident memory.
extern uint64_t init_ns;
extern double init_rss_bytes;

// ---- Measuring ------------------------------------------------------------------------------

uint64_t now_ns(void); // CLOCK_MONOTONIC
double seconds_since(uint64_t start_ns);
double cpu_seconds(void); // of all threads, user and system
double resident_bytes(void);
double peak_resident_bytes(void);

// Sorts the values.
void sort_values(double *values, size_t count);
// The value below which the share lies, of sorted values; NAN if there are none.
double percentile(const double *sorted, size_t count, double share);

#define MIB 1048576.0

// ---- Random numbers -------------------------------------------------------------------------

// splitmix64; any state will do.
static inline uint64_t random_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// From 0 to below - 1, which must fit 32 bits; the bias is below 2^-32.
static inline uint64_t random_below(uint64_t *state, uint64_t below) {
  return (random_next(state) >> 32) * below >> 32;
}

#endif
