// SPDX-License-Identifier: MIT
// The burst: a team of threads that use a pool all at once, then leave it alone.
//
// Each worker takes an item, waits until every worker holds one, waits 100 us more, and puts its
// item back. So a burst needs as many items as there are workers, and a miss is a call of the
// pool's create function. Between bursts, and while they wait for each other, workers are outside
// the heap.
//
// While a worker holds an item it owns every byte of it: it writes its number over the whole item
// and looks again before it puts the item back. An item that two workers hold, or one whose memory
// was collected while in use, is found that way, and the run fails.
#ifndef TIDEPOOL_TOOL_BURST_H
#define TIDEPOOL_TOOL_BURST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tidepool.h>

typedef struct burst burst;

typedef struct burst_result {
  uint64_t hits;     // items that came out of the pool; the others were made
  uint64_t start_ns; // when the workers were called, on CLOCK_MONOTONIC
  uint64_t get_ns;   // when they took their items, mean over the workers
  uint64_t put_ns;   // when they put them back, mean over the workers
  uint64_t end_ns;   // when the last one was done
} burst_result;

// Starts the workers. Complains and returns NULL when there is no memory or a thread cannot start.
burst *burst_create(unsigned workers, size_t item_bytes);
void burst_destroy(burst *b);

unsigned burst_workers(const burst *b);

// A pool whose misses the team counts; NULL, with a complaint, when there is no memory.
tide_pool *burst_pool(burst *b, const char *name);

// One burst on a pool made by burst_pool. Called by the thread that made the team. Complains and
// returns false when an item was doubled or damaged, or could not be made.
bool burst_run(burst *b, tide_pool *pool, burst_result *result);

// Complains and returns false when the pool's own statistics, taken since it was made, do not say
// that there were this many bursts with this many hits.
bool burst_check_stats(const burst *b, tide_pool *pool, uint64_t bursts, uint64_t hits);

#endif
