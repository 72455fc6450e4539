// SPDX-License-Identifier: MIT
// What sawtooth.c measures and sawtooth_report.c prints.
#ifndef TIDEPOOL_TOOL_SAWTOOTH_H
#define TIDEPOOL_TOOL_SAWTOOTH_H

#include "options.h"
#include "output.h"
#include "supply.h"
#include "waves.h"

#define SAWTOOTH_BIN_NS (UINT64_C(5) * 1000 * 1000)

enum { SAWTOOTH_CASES = 8, SAWTOOTH_WAVE_BINS = 256 };

// How long the encoders rest between two waves.
typedef enum rest { REST_NONE, REST_SHORT, REST_LONG } rest;

typedef struct saw_kind {
  const char *name;
  supply_kind from;
  rest gap;
  bool cure;
  const char *about; // for the text
} saw_kind;

extern const saw_kind saw_kinds[SAWTOOTH_CASES];

typedef struct saw_settings {
  common_options common;
  uint64_t rate; // requests a second
  uint64_t workers;
  uint64_t live_bytes;
  uint64_t alloc_rate; // MB/s
  numbers ratio;       // one: the long gap in collection periods
  uint64_t wave_ms;
  uint64_t seconds; // a case; 0: by `quick`
  uint64_t cases;   // a bit each
  uint64_t seed;
  bool series;
  bool quick;
} saw_settings;

typedef struct saw_collection {
  uint64_t at_ns; // from the beginning of the case
  uint64_t pause_ns;
} saw_collection;

// A case as it was measured. The first wave is a warm-up and never counts.
typedef struct saw_case {
  const saw_kind *kind;
  int percent; // in force
  int survive; // 0: the default
  uint64_t min_idle_ns;
  schedule plan;
  sample *samples; // schedule_requests of them
  uint64_t waves;  // that count: complete
  saw_collection *collections;
  size_t collection_count;
  double period_ns;    // mean, NAN if there were not two collections
  double growth_bytes; // that the heap could grow by from one to the next
  uint64_t idle_items; // idle encoders just before a wave, summed up over the waves
  uint64_t idle_looks;
  bool partial;
} saw_case;

typedef struct saw_run {
  saw_settings set;
  envelopes envelopes;
  size_t *lengths; // of the JSON of each
  uint64_t encoder_bytes;
  double make_ns;    // to make an encoder
  double request_ns; // to encode an envelope, mean
  double period_ns;  // found before the first case
  int percent;       // that the cases run under
  saw_case cases[SAWTOOTH_CASES];
  size_t count;
  bool partial;
} saw_run;

// What a case says. Teeth and misses_first are summed up over the waves.
typedef struct saw_digest {
  uint64_t requests, misses, late;
  uint64_t teeth;
  uint64_t misses_first; // in the first bin of a wave
  double p50_us, p99_us, p999_us, most_us;
  double first_us, later_us; // medians over the waves, see waves.h
  double first_most_us;      // the same of the worst in the first bin
  double pause_p50_us, pause_most_us;
  uint64_t collections; // once the first wave was over
  double gap_ms;
  uint64_t bytes_kept;
} saw_digest;

// The case has one complete wave at least that counts. Ends the program when there is no memory.
saw_digest saw_digest_of(const saw_run *r, const saw_case *c);
// The beginning of what counts.
uint64_t saw_origin_ns(const saw_case *c);
// Zeroed; count may be 0. Ends the program when there is none.
void *saw_memory(size_t count, size_t size);

// Prints the report and writes the files. Complains and returns false on the first error.
bool sawtooth_report(const saw_run *r);

#endif
