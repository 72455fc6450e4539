// SPDX-License-Identifier: MIT
// Requests that come in waves, and what their latencies say: pure functions of numbers.
//
// The schedule is fixed before anything runs (open loop): request i is due at a moment that does
// not depend on how the ones before it fared, and its latency counts from there. So a service that
// falls behind shows it, in every request that had to wait.
//
// A wave is `wave_ns` of requests at even distances; after it comes `gap_ns` of silence. Without
// gaps the waves join into one steady stream.
#ifndef TIDEPOOL_TOOL_WAVES_H
#define TIDEPOOL_TOOL_WAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct schedule {
  uint64_t wave_ns;
  uint64_t gap_ns;
  uint64_t per_wave; // requests
  uint64_t waves;
} schedule;

// As many whole waves as fit into total_ns, but two at least; each has one request at least.
schedule schedule_make(double per_second, uint64_t wave_ns, uint64_t gap_ns, uint64_t total_ns);
uint64_t schedule_requests(const schedule *s);
// When request i is due, from the beginning.
uint64_t schedule_due_ns(const schedule *s, uint64_t i);
// The wave's beginning.
uint64_t schedule_wave_ns(const schedule *s, uint64_t wave);

// What became of a request.
typedef struct sample {
  uint64_t latency_ns; // from when it was due until it was done
  bool done;
  bool late;   // begun more than a millisecond after it was due
  bool missed; // had to make its encoder
} sample;

// The requests that were due in a short time.
typedef struct bin {
  uint64_t start_ns; // from the beginning
  uint64_t count, misses;
  uint64_t median_ns, most_ns; // of the latencies; 0 if there is no request
} bin;

// Bins of bin_ns from the beginning of a wave to its end. How many there are; at most `room` are
// filled in. samples are those of all requests. Complains about nothing and needs no memory:
// scratch has room for per_wave numbers.
size_t bins_of_wave(const schedule *s, const sample *samples, uint64_t wave, uint64_t bin_ns,
                    bin *bins, size_t room, uint64_t *scratch);

// Whether a wave begins with a tooth. If every worker had to make what it needs, in make_ns, no
// request that is due in the first half of that time would be done before the whole of it is over:
// all of them would take make_ns / 2 at least. So their median is compared with that of the wave's
// other requests, and the line is drawn in the middle. Medians, so that a pause of the collector or
// of the machine here or there makes no difference.
typedef struct tooth {
  uint64_t first_ns;
  uint64_t later_ns; // 0 if there are no others
  bool stands;       // first is twice as much as later, and make_ns / 4 more, both at least
} tooth;

// The wave is complete. scratch has room for per_wave numbers.
tooth tooth_of(const schedule *s, const sample *samples, uint64_t wave, uint64_t make_ns,
               uint64_t *scratch);

// The usual wave: for each of `count` columns of column_ns, from a wave's beginning on, the median,
// over waves first to last - 1, of the worst latency of the requests that are due there; 0 where
// there are none. scratch has room for last - first numbers.
void usual_wave(const schedule *s, const sample *samples, uint64_t first, uint64_t last,
                uint64_t column_ns, uint64_t *columns, size_t count, uint64_t *scratch);

// The smallest number that at least this share of all is not above. Sorts. 0 if there are none.
uint64_t quantile_ns(uint64_t *numbers, size_t count, double share);

#endif
