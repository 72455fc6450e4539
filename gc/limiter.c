// SPDX-License-Identifier: MIT
// When live memory comes near the limit, or passes it, each collection frees less and the next is
// due sooner, until the program does nothing but collect. Then the limit has to yield. The rule:
//
//   The collector may be ahead of the program by 100 ms. While it is ahead by more, no collection
//   starts for the limit's sake; the heap grows past the limit instead.
//
// `ahead` grows while a collection runs and falls while the program does, never below 0. A
// collection counts at most once in it: whatever was owed before, after a collection of 80 ms the
// program has to run for 80 ms at the most. So in the long run collecting takes half of the time at
// the most, and in any window half of it and half of one collection and 50 ms. With the world
// stopped no CPU works for the program, so wall time is what is shared.
//
// Collections for other causes count too, but are never held back.
//
// The limiter is *active* from the first collection that it holds back until the program has run
// for a second without that: an episode, which the program is told of. Go's limiter stops the
// program's help with marking, and never holds back a collection; one that stops the world must.
#include "limiter.h"

static uint64_t later(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

// The program has run until now.
static void run_to(limiter *l, uint64_t now_ns) {
  if (now_ns <= l->seen_ns) return;
  uint64_t ran_ns = now_ns - l->seen_ns;
  l->ahead_ns = l->ahead_ns > ran_ns ? l->ahead_ns - ran_ns : 0;
  l->seen_ns = now_ns;
}

void limiter_collected(limiter *l, uint64_t began_ns, uint64_t ended_ns) {
  run_to(l, began_ns);
  began_ns = later(began_ns, l->seen_ns);
  if (ended_ns <= began_ns) return;
  uint64_t took_ns = ended_ns - began_ns;
  if (l->ahead_ns > LIMITER_AHEAD_NS) l->ahead_ns = LIMITER_AHEAD_NS;
  l->ahead_ns += took_ns;
  l->held_at_ns += took_ns;
  l->seen_ns = ended_ns;
}

bool limiter_active(limiter *l, uint64_t now_ns) {
  if (l->active && now_ns >= l->held_at_ns && now_ns - l->held_at_ns >= LIMITER_QUIET_NS)
    l->active = false;
  return l->active;
}

bool limiter_allows(limiter *l, uint64_t now_ns) {
  run_to(l, now_ns);
  if (l->ahead_ns <= LIMITER_AHEAD_NS) return true;
  l->active = true;
  l->held_at_ns = l->seen_ns;
  return false;
}
