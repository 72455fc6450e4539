// SPDX-License-Identifier: MIT
// What is wrong with a pool, and what would help. From copies of numbers only: facts in, advice
// out, so it can be computed anywhere and tested by itself.
//
// Two times decide whether a pool is any use: T between two uses of it, and G between two
// collections. What is measured is T/G, as a mean number of collections from one use to the next.
// An item survives s of them, so of uses that are evenly spaced the share
//   1 - clip(T/G - s, 0, 1)
// finds its items again. Where the gaps differ too much to be those of even spacing, the same is
// applied to each length of gap, as often as misses had it.
//
// All cures move one side of that: survive and min_idle_ns raise s, GC percent and the memory limit
// lengthen G, and a free list forgets nothing. What is promised is computed from what a cure would
// make of the misses by forgetting. No cure prevents the others.
#ifndef TIDEPOOL_ADVICE_H
#define TIDEPOOL_ADVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <tidepool/gc.h>
#include <tidepool/pool.h>

enum { ADVICE_NAME_BYTES = 128 };

// With fewer gets or collections nothing is said.
enum { ADVICE_GETS_MIN = 20, ADVICE_COLLECTIONS_MIN = 3 };

typedef struct pool_facts {
  char name[ADVICE_NAME_BYTES];
  tide_pool_stats stats;
  uint64_t use_gaps; // that stats.use_gap_sum adds up: one less than uses, unless they were reset
  unsigned survive;
  uint64_t min_idle_ns;
  uint64_t max_item_bytes, max_bytes, max_items; // UINT64_MAX: none
  bool creates;
  uint64_t made_bytes; // an item, when it was made, or as most are; 0: not known
  uint64_t item_bytes; // an item of those in the pool; 0: not known
} pool_facts;

typedef struct heap_facts {
  uint64_t heap_bytes;                // now
  uint64_t beside_bytes;              // what counts towards the limit, but for those
  uint64_t limit_bytes;               // UINT64_MAX: none
  int percent;                        // -1: off
  bool floor_is_set;                  // the smallest heap is not 4 MiB x percent / 100
  uint64_t live_bytes, scanned_bytes; // as the last collection left them
  uint64_t collections, by_cause[TIDE_CAUSES];
  double growth_bytes[TIDE_CAUSES]; // from one collection to one by that cause; 0: not known
} heap_facts;

// What is wrong with the hit rate: the worst of it.
#define ADVICE_TROUBLES(X)                                                                         \
  X(FINE, "fine")                                                                                  \
  X(TOO_FEW_DATA, "too_few_data")                                                                  \
  X(NEVER_ASKED, "never_asked")                                                                    \
  X(FORGOTTEN, "forgotten")                                                                        \
  X(NOT_PUT_BACK, "not_put_back")                                                                  \
  X(REFUSED, "refused")                                                                            \
  X(DEMAND, "demand")

// And with what it takes.
#define ADVICE_BURDENS(X)                                                                          \
  X(LIGHT, "light")                                                                                \
  X(OVERSIZED, "oversized")                                                                        \
  X(GREEDY, "greedy")                                                                              \
  X(TINY, "tiny")

#define ADVICE_NAME(NAME, name) NAME,
typedef enum trouble { ADVICE_TROUBLES(ADVICE_NAME) } trouble;
typedef enum burden { ADVICE_BURDENS(ADVICE_NAME) } burden;
#undef ADVICE_NAME

// What sets the pace of collections, for the most part.
typedef enum pace_by { PACE_BY_PERCENT, PACE_BY_LIMIT, PACE_BY_PROGRAM, PACE_BY_OTHERS } pace_by;

typedef struct advice {
  uint64_t hits, cold, demand, forgotten; // gets
  double hit_rate, predicted;             // of all gets
  double gap;                             // T/G; 0: not known
  double gap_ns;                          // T
  bool even;                              // predicted by the rule for evenly spaced uses
  uint64_t items, bytes;                  // in the pool; bytes 0: not known
  double heap_share, limit_share;         // 0: not known, or no limit
  trouble trouble;
  burden burden;
  pace_by pace;
  uint64_t not_returned, refused;

  // Cures; 0: this one does not help, or is not needed.
  double promised; // hit rate with one of the next five, cold misses left out
  uint64_t gc_percent, memory_limit, min_idle_ns, free_list;
  unsigned survive;
  uint64_t limit_percent; // which GC percent memory_limit needs as well
  uint64_t max_item_bytes, max_bytes, max_items;
} advice;

advice pool_advise(const pool_facts *pool, const heap_facts *heap);

#endif
