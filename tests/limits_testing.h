// SPDX-License-Identifier: MIT
// What the tests of limits, external bytes and statistics share beyond growth_testing.h.
#ifndef TIDEPOOL_LIMITS_TESTING_H
#define TIDEPOOL_LIMITS_TESTING_H

#include "growth_testing.h"

#define MB(n) ((int64_t)(n) << 20)

// ---- Live memory ----------------------------------------------------------------------------

// A list of objects of 1 KiB that are scanned.
typedef struct node {
  struct node *next;
  char rest[1024 - sizeof(void *)];
} node;

static MAYBE_UNUSED node *volatile live_list; // static data: a root

static NOINLINE bool grow_list(node *volatile *list, size_t bytes) {
  for (size_t done = 0; done < bytes; done += sizeof(node)) {
    node *new = tide_alloc(sizeof *new);
    if (!new) return false;
    new->next = *list;
    *list = new;
  }
  return true;
}

static NOINLINE void *filled_leaf(size_t bytes) {
  void *object = tide_alloc_leaf(bytes);
  return object ? memset(object, 7, bytes) : NULL;
}

static NOINLINE void make_garbage(size_t bytes, size_t object_bytes) {
  for (size_t done = 0; done < bytes; done += object_bytes) sink = tide_alloc_leaf(object_bytes);
  sink = NULL;
}

// ---- Time -----------------------------------------------------------------------------------

static MAYBE_UNUSED uint64_t now_ns(void) {
  return (uint64_t)(seconds_on(CLOCK_MONOTONIC) * 1e9);
}

// Also where a stop's signal interrupts it.
static MAYBE_UNUSED void sleep_ms(unsigned ms) {
  uint64_t end = now_ns() + ms * UINT64_C(1000000);
  for (uint64_t now = now_ns(); now < end; now = now_ns()) {
    uint64_t left = end - now;
    nanosleep(&(struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)}, NULL);
  }
}

// ---- Collections as they come ---------------------------------------------------------------

enum { CYCLES_MAX = 100000 };
static MAYBE_UNUSED tide_cycle last_cycle;
static MAYBE_UNUSED uint64_t cycles_by_cause[TIDE_CAUSES];
static MAYBE_UNUSED struct { uint64_t from, to; } pauses[CYCLES_MAX];
static MAYBE_UNUSED size_t pause_count; // but for those that were forced

// A hook at TIDE_MARK_DONE: no two of them run at a time.
static MAYBE_UNUSED void note_cycle(const tide_cycle *cycle, void *arg) {
  last_cycle = *cycle;
  cycles_by_cause[cycle->cause]++;
  if (cycle->cause == TIDE_CAUSE_FORCED || pause_count == CYCLES_MAX) return;
  // The hook runs at the pause's end, but for what comes after it.
  pauses[pause_count].from = cycle->stopped_at_ns - cycle->stop_ns;
  pauses[pause_count++].to = cycle->stopped_at_ns + cycle->hooks_ns + cycle->mark_ns;
}

static MAYBE_UNUSED void note_cycles(void) {
  ck_assert_ptr_nonnull(tide_hook_add(TIDE_MARK_DONE, note_cycle, NULL));
}

// The most of any second that was spent in pauses.
static MAYBE_UNUSED double largest_pause_share(void) {
  uint64_t most = 0, sum = 0, second = 1000000000;
  for (size_t last = 0, first = 0; last < pause_count; last++) {
    uint64_t from = pauses[last].to - second;
    sum += pauses[last].to - pauses[last].from;
    for (; pauses[first].to <= from; first++) sum -= pauses[first].to - pauses[first].from;
    uint64_t cut = pauses[first].from < from ? from - pauses[first].from : 0;
    if (sum - cut > most) most = sum - cut;
  }
  return (double)most / (double)second;
}

static MAYBE_UNUSED double longest_pause(void) {
  uint64_t most = 0;
  for (size_t i = 0; i < pause_count; i++)
    if (pauses[i].to - pauses[i].from > most) most = pauses[i].to - pauses[i].from;
  return (double)most / 1e9;
}

// The limiter's bound. What it counts of a collection is a little more than the pause.
static MAYBE_UNUSED void assert_time_is_shared(void) {
  double share = largest_pause_share(), most = 0.55 + longest_pause() / 2 + 0.02;
  ck_assert_msg(share <= most, "%.3f of a second, not %.3f, in %zu pauses", share, most,
                pause_count);
}

// Whether the limiter has left the limit alone. On a machine with much else to do pauses may last
// so long that it has not, and then memory passes the limit. It needs a reason to.
static MAYBE_UNUSED bool limit_was_kept(void) {
  tide_memstats stats = read_stats();
  if (!stats.limiter_episodes) return true;
  ck_assert_uint_ge(stats.pause_total_ns, 50000000); // of the 100 ms that it gives in advance
  return false;
}

#endif
