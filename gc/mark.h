// SPDX-License-Identifier: MIT
// A marker: one thread's part of a marking. mark.c does the walk, mark_stack.c keeps the stack,
// markers.c lets several markers share the work.
#ifndef TIDEPOOL_MARK_H
#define TIDEPOOL_MARK_H

#include "heap.h"

enum {
  MARK_QUEUE = 16,        // candidates under way; a power of two
  MARK_PIECE_WORDS = 128, // of a range, scanned at a time
  MARK_SHELF_WORDS = 512,
  MARKERS_MAX = 64,
};
#define MARK_RANGE_TAG ((uintptr_t)1 << 63) // no address of a user's program has it

// What a drain has marked, kept in registers until its end.
typedef struct mark_tally {
  uint64_t bytes, objects;
} mark_tally;

// Work that is waiting is words: a candidate, or two for a range, its end below its tagged start.
typedef struct marker {
  uintptr_t *bottom, *top; // what is waiting lies in between
  uintptr_t *stack, *end;  // the memory for it
  size_t mapped_bytes;
  heap_slot queue[MARK_QUEUE]; // a place whose start is 0 is empty
  // See markers.c.
  unsigned patience; // visits until it is considered again whether others should get some work
  uint64_t considered, offered_at, rang_at; // times, and when something came of it
  bool dropped;                             // candidates, for want of room
  mark_result live;                         // what this marker marked
  uint64_t busy_ns, busy_since_ns;          // not the first's
  uint64_t joined_at_ns, idle_at_ns;        // when it last had work; not the first's
  uint64_t round;                           // of the marking that it takes part in, see markers.c
  unsigned index;                           // among the team's markers; 0: whoever collects
  unsigned generation;                      // its thread ends when the team has another

  // Work for whoever has none; see markers.c.
  rt_pinned_lock lock __attribute__((aligned(128)));
  AO_t shelved; // words; changed under lock
  uintptr_t shelf[MARK_SHELF_WORDS];
} marker;

// ---- mark_stack.c ---------------------------------------------------------------------------

marker *marker_make(unsigned index); // NULL: no memory
void marker_unmake(marker *m);
bool mark_stack_grow(marker *m); // false: it may not, or there is no memory
void mark_stack_shrink(marker *m);
void mark_stack_forget_others(const marker *first); // in the child of a fork; NULL: there is none

static inline void mark_push(marker *m, uintptr_t candidate) {
  if (RT_UNLIKELY(m->top == m->end) && !mark_stack_grow(m)) {
    m->dropped = true;
    return;
  }
  *m->top++ = candidate;
}

static inline void mark_push_range(marker *m, uintptr_t lo, uintptr_t hi) {
  if (RT_UNLIKELY(m->end - m->top < 2) && !mark_stack_grow(m)) {
    m->dropped = true;
    return;
  }
  *m->top++ = hi;
  *m->top++ = lo | MARK_RANGE_TAG;
}

// ---- mark.c ---------------------------------------------------------------------------------

void mark_drain_shared(marker *m); // until its stack is empty; others may be marking

// ---- markers.c ------------------------------------------------------------------------------

marker *markers_first(void); // NULL: no memory, at its first call
bool markers_can_join(void); // whether there are any others
// Opens the marking to other markers. From now on this marker drains with mark_drain_shared.
void markers_open(marker *m);
// For a marker whose stack is empty: takes work of others, or waits for some. False: all is marked.
bool markers_find_work(marker *m);
// Every so many visits: others may need work.
void markers_consider(marker *m);
void markers_add_up(mark_result *sum, bool *dropped); // adds what the others did
enum { MARK_PATIENCE = 64 };

#endif
