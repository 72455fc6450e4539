// SPDX-License-Identifier: MIT
// The heap goal, after Go's runtime (mgcpacer.go, since Go 1.19):
//
//   by percent   live + (live + stacks + globals) x percent / 100, at least 4 MiB x percent / 100
//   by limit     limit - (used - heap) - headroom, at least live
//   goal         the smaller of the two
//
// Stacks and globals count in the growth because they are scanned like live heap, not in the live
// heap itself. Heap and live include external bytes; used is all that the library has mapped but
// for the heap's free memory, so used - heap is what the heap costs beside its objects: tables,
// mark stacks, thread caches, and the gaps in its blocks. Go starts marking before the goal, as its
// program runs meanwhile and allocates; a collector that stops the world starts at the goal itself.
#include "pacer.h"

static const uint64_t floor_bytes_at_100 = 4 << 20;

// What the threads may take between two looks: runs of slots, each with a block of its own.
static const uint64_t headroom_bytes = 1 << 20;

static uint64_t add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static uint64_t subtract(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

// a x percent / 100, as far as it fits.
static uint64_t percent_of(uint64_t a, int percent) {
  unsigned __int128 product = (unsigned __int128)a * (unsigned)percent / 100;
  return product > UINT64_MAX ? UINT64_MAX : (uint64_t)product;
}

static uint64_t live(const pacer *p) {
  return add(p->live_bytes, p->external_bytes);
}

uint64_t pacer_percent_goal(const pacer *p) {
  if (p->percent < 0) return PACER_NO_GOAL;
  uint64_t scanned = add(live(p), add(p->stack_bytes, p->global_bytes));
  uint64_t goal = add(live(p), percent_of(scanned, p->percent));
  uint64_t floor =
      p->min_heap_bytes ? p->min_heap_bytes : percent_of(floor_bytes_at_100, p->percent);
  return goal > floor ? goal : floor;
}

uint64_t pacer_trigger(const pacer *p) {
  return p->percent == 0 && !p->min_heap_bytes ? 0 : pacer_percent_goal(p);
}

uint64_t pacer_limit_goal(const pacer *p, const pacer_memory *m) {
  if (p->limit_bytes == PACER_NO_LIMIT) return PACER_NO_GOAL;
  uint64_t beside_heap = subtract(m->used_bytes, m->heap_bytes);
  uint64_t goal = subtract(p->limit_bytes, add(beside_heap, headroom_bytes));
  return goal > live(p) ? goal : live(p);
}

uint64_t pacer_goal(const pacer *p, const pacer_memory *m) {
  uint64_t by_percent = pacer_percent_goal(p), by_limit = pacer_limit_goal(p, m);
  return by_limit < by_percent ? by_limit : by_percent;
}

bool pacer_limit_reached(const pacer *p, const pacer_memory *m, uint64_t request) {
  if (p->limit_bytes == PACER_NO_LIMIT) return false;
  return add(m->heap_bytes, request) >= pacer_limit_goal(p, m);
}

// A tenth more than needed, as no two cycles are alike, and at least 1 MiB. For a smaller heap than
// the smallest that is usual it is not worth the calls.
uint64_t pacer_keep(uint64_t needed, uint64_t bytes) {
  if (needed < floor_bytes_at_100) needed = floor_bytes_at_100;
  uint64_t spare = needed / 10 > 1 << 20 ? needed / 10 : 1 << 20;
  uint64_t most = add(needed, spare);
  return most > bytes + spare ? most - bytes : spare;
}

uint64_t pacer_limit_room(const pacer *p, const pacer_memory *m, uint64_t request) {
  if (p->limit_bytes == PACER_NO_LIMIT) return UINT64_MAX;
  return subtract(p->limit_bytes, add(add(m->used_bytes, request), headroom_bytes));
}
