// SPDX-License-Identifier: MIT
// The heap goal, after Go's runtime (mgcpacer.go, since Go 1.18):
//
//   goal = live + (live + stacks + globals) x percent / 100, at least 4 MiB x percent / 100
//
// Stacks and globals count in the growth because they are scanned like live heap, not in the live
// heap itself. Go starts marking before the goal, as its program runs meanwhile and allocates; a
// collector that stops the world starts at the goal itself.
#include "pacer.h"

static const uint64_t floor_bytes_at_100 = 4 << 20;

static uint64_t add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// a x percent / 100, as far as it fits.
static uint64_t percent_of(uint64_t a, int percent) {
  unsigned __int128 product = (unsigned __int128)a * (unsigned)percent / 100;
  return product > UINT64_MAX ? UINT64_MAX : (uint64_t)product;
}

uint64_t pacer_goal(const pacer *p) {
  if (p->percent < 0) return PACER_NO_GOAL;
  uint64_t scanned = add(p->live_bytes, add(p->stack_bytes, p->global_bytes));
  uint64_t goal = add(p->live_bytes, percent_of(scanned, p->percent));
  uint64_t floor =
      p->min_heap_bytes ? p->min_heap_bytes : percent_of(floor_bytes_at_100, p->percent);
  return goal > floor ? goal : floor;
}

uint64_t pacer_trigger(const pacer *p) {
  return p->percent == 0 && !p->min_heap_bytes ? 0 : pacer_goal(p);
}

// A tenth more than needed, as no two cycles are alike, and at least 1 MiB. For a smaller heap than
// the smallest that is usual it is not worth the calls.
uint64_t pacer_keep(uint64_t needed, uint64_t bytes) {
  if (needed < floor_bytes_at_100) needed = floor_bytes_at_100;
  uint64_t spare = needed / 10 > 1 << 20 ? needed / 10 : 1 << 20;
  uint64_t most = add(needed, spare);
  return most > bytes + spare ? most - bytes : spare;
}
