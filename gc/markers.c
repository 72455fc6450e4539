// SPDX-License-Identifier: MIT
// Several markers: how they share the work of a marking.
//
// A marking starts with one marker, the thread that collects. It needs no atomic operation. Once it
// has marked enough to show that the heap is not a small one, it opens the marking, and threads
// that sleep in this file join it one after the other, as there is work for them.
//
// A marker works on its own stack, without locks. Beside it, it has a shelf, and puts work there
// when the shelf is empty: the oldest half of its stack, which tends to be the largest part of the
// graph. A marker whose stack is empty takes half of what it finds on a shelf. A range is halved,
// so that one long array is soon on as many stacks as there are markers. The owner takes back what
// nobody has taken.
//
//   own stack  --(oldest half, if the shelf is empty)-->  own shelf  --(half)-->  another's stack
//
// Who finds nothing sleeps. Invariant: a marker that waits has an empty stack and an empty shelf,
// and only its owner puts work on a shelf. So when all members wait, everything is marked, and the
// last one to find nothing says so.
//
// The threads are no threads of the heap: they are never stopped, have all signals blocked, take no
// lock but those of this file as long as they mark, and see the heap only while the world is
// stopped. They are made while the world runs, and not at all in a program with a small heap. When
// the last thread leaves the heap, they end: else a program whose first thread has left by
// pthread_exit would never.
//
// Fork: one collection at a time, so no marking is under way then. The child has none of the
// threads; it forgets them, and their markers with whatever they were doing, and makes new ones.
#define _GNU_SOURCE
#include "mark.h"

#include <string.h>

enum {
  STACK_BYTES = 256 * 1024,
  PREPARE_BYTES = 16 << 20, // smaller heaps have one marker, unless verify=1 wants to see several
  SHARE_WORDS = 64,         // who has so much gives some away without being asked
  // Every so many times that it is considered: who has less, and is asked, gives some away; who has
  // given some away wakes somebody. That costs as much as marking a hundred objects.
  OFFER_TIMES = 16,
  RING_TIMES = 16,
};

static struct {
  rt_pinned_lock lock;
  unsigned int bell;   // changes when there may be work; who has none waits for that
  bool open;           // a marking is under way, and others may join
  uint64_t round;      // its number
  AO_t members;        // that have joined it
  AO_t waiting;        // of them, for work
  unsigned generation; // of threads: those of an earlier one leave
  AO_t count;          // of markers below, all with a thread but the first
  marker *markers[MARKERS_MAX];
} team = {.lock = RT_PINNED_LOCK_INIT};

static void ring(bool all) { // team.lock held
  team.bell++;
  if (all)
    os_futex_wake_all(&team.bell);
  else
    os_futex_wake_one(&team.bell);
}

// Gives the lock up meanwhile.
static void wait_for_bell(void) {
  unsigned int heard = team.bell;
  rt_pinned_lock_give(&team.lock);
  os_futex_wait(&team.bell, heard);
  rt_pinned_lock_take(&team.lock);
}

// ---- Shelves --------------------------------------------------------------------------------

static bool is_range(uintptr_t word) {
  return word & MARK_RANGE_TAG;
}

// A range at the bottom of the stack: its second half goes on the shelf.
static bool offer_half_range(marker *m) {
  uintptr_t *bottom = m->bottom;
  if (!is_range(bottom[1])) return false;
  uintptr_t hi = bottom[0], lo = bottom[1] & ~MARK_RANGE_TAG;
  if (hi - lo < 2 * MARK_PIECE_WORDS * sizeof(uintptr_t)) return false;
  uintptr_t middle = lo + (hi - lo) / 4 / sizeof(uintptr_t) * 2 * sizeof(uintptr_t);
  bottom[0] = middle;
  m->shelf[0] = hi;
  m->shelf[1] = middle | MARK_RANGE_TAG;
  AO_store(&m->shelved, 2);
  return true;
}

static void offer_half_stack(marker *m) {
  size_t have = (size_t)(m->top - m->bottom), words = have / 2;
  if (words > MARK_SHELF_WORDS - 1) words = MARK_SHELF_WORDS - 1;
  if (is_range(m->bottom[words])) words++; // its end is the word before
  if (words == have) return;               // nothing but a short range
  memcpy(m->shelf, m->bottom, words * sizeof(uintptr_t));
  m->bottom += words;
  AO_store(&m->shelved, words);
}

static void offer(marker *m) {
  rt_pinned_lock_take(&m->lock);
  if (!offer_half_range(m)) offer_half_stack(m);
  rt_pinned_lock_give(&m->lock);
  m->offered_at = m->considered;
}

static bool wanted(void) {
  return AO_load(&team.waiting) || AO_load(&team.members) < AO_load(&team.count);
}

// Nothing here needs an order: who sleeps although there is work is rung for at one of the next
// times, and what nobody takes, its owner does.
void markers_consider(marker *m) {
  m->patience = MARK_PATIENCE;
  m->considered++;
  size_t words = (size_t)(m->top - m->bottom);
  if (!AO_load(&m->shelved)) {
    if (words < 2) return;
    if (words < SHARE_WORDS && (m->considered - m->offered_at < OFFER_TIMES || !wanted())) return;
    offer(m);
  }
  if (m->considered - m->rang_at < RING_TIMES || !AO_load(&m->shelved) || !wanted()) return;
  m->rang_at = m->considered;
  rt_pinned_lock_take(&team.lock);
  ring(false);
  rt_pinned_lock_give(&team.lock);
}

// Half of what is on the shelf, or all of it, goes on the stack, which is empty.
static bool take(marker *m, marker *from, bool all) {
  if (!AO_load(&from->shelved)) return false; // a hint; the next look decides
  rt_pinned_lock_take(&from->lock);
  size_t have = AO_load(&from->shelved), words = all ? have : (have + 1) / 2;
  if (words < have && is_range(from->shelf[have - words])) words++;
  memcpy(m->stack, from->shelf + have - words, words * sizeof(uintptr_t));
  AO_store(&from->shelved, have - words);
  rt_pinned_lock_give(&from->lock);
  m->bottom = m->stack;
  m->top = m->stack + words;
  return words;
}

static bool steal(marker *m) {
  size_t count = AO_load_acquire(&team.count);
  for (size_t i = 1; i < count; i++)
    if (take(m, team.markers[(m->index + i) % count], false)) return true;
  return false;
}

static bool any_shelved(void) {
  for (size_t i = 0; i < AO_load(&team.count); i++)
    if (AO_load(&team.markers[i]->shelved)) return true;
  return false;
}

// ---- Members --------------------------------------------------------------------------------

void markers_open(marker *m) {
  rt_pinned_lock_take(&team.lock);
  m->round = ++team.round;
  m->considered = RING_TIMES; // the first one may ring at once
  m->offered_at = m->rang_at = 0;
  m->patience = 1;
  AO_store(&team.members, 1);
  AO_store(&team.waiting, 0);
  team.open = true;
  rt_pinned_lock_give(&team.lock);
}

static void join(marker *m) { // team.lock held
  m->round = team.round;
  m->busy_ns = 0;
  m->joined_at_ns = m->busy_since_ns = os_now_ns();
  m->live = (mark_result){0};
  m->considered = m->offered_at = m->rang_at = 0;
  m->patience = MARK_PATIENCE;
  m->dropped = false;
  AO_fetch_and_add1(&team.members);
}

// Waits for work. False: there will be none. team.lock is held.
static bool wait_for_work(const marker *m) {
  AO_fetch_and_add1(&team.waiting);
  while (team.open && team.round == m->round) {
    if (any_shelved()) {
      AO_fetch_and_sub1(&team.waiting);
      return true;
    }
    if (AO_load(&team.waiting) == AO_load(&team.members)) {
      team.open = false;
      ring(true);
      break;
    }
    wait_for_bell();
  }
  return false;
}

bool markers_find_work(marker *m) {
  for (;;) {
    if (take(m, m, true) || steal(m)) return true;
    m->idle_at_ns = os_now_ns();
    m->busy_ns += m->idle_at_ns - m->busy_since_ns;
    rt_pinned_lock_take(&team.lock);
    bool more = wait_for_work(m);
    rt_pinned_lock_give(&team.lock);
    if (!more) return false;
    m->busy_since_ns = os_now_ns();
  }
}

void markers_add_up(mark_result *sum, bool *dropped) {
  rt_pinned_lock_take(&team.lock);
  for (size_t i = 1; i < AO_load(&team.count); i++) {
    const marker *m = team.markers[i];
    if (m->round != team.round) continue;
    sum->markers++;
    sum->live_bytes += m->live.live_bytes;
    sum->live_objects += m->live.live_objects;
    sum->others_ns += m->busy_ns;
    *dropped |= m->dropped;
  }
  rt_pinned_lock_give(&team.lock);
}

// ---- Threads --------------------------------------------------------------------------------

static void take_part(marker *m) { // team.lock held
  join(m);
  rt_pinned_lock_give(&team.lock);
  while (markers_find_work(m)) mark_drain_shared(m);
  // Not the wait for the others' end.
  rt_event(TIDE_EVENT_MARKER, m->joined_at_ns, m->idle_at_ns - m->joined_at_ns, tide_gc_cycle(), 0);
  mark_stack_shrink(m);
  rt_pinned_lock_take(&team.lock);
}

static void *marker_main(void *argument) {
  marker *m = argument;
  rt_own_thread_block_signals();
  rt_pinned_lock_take(&team.lock);
  while (team.generation == m->generation)
    if (team.open && team.round != m->round)
      take_part(m);
    else
      wait_for_bell();
  rt_pinned_lock_give(&team.lock);
  rt_events_leave();
  AO_fetch_and_sub1(&rt_own_threads);
  marker_unmake(m);
  return NULL;
}

// Adds a marker; the first is whoever collects.
static bool add_marker(void) {
  size_t index = AO_load(&team.count);
  marker *m = marker_make((unsigned)index);
  if (!m) return false;
  m->generation = team.generation;
  m->round = team.round;
  if (index && !rt_own_thread_start(marker_main, m, "tide-marker", STACK_BYTES)) {
    marker_unmake(m);
    return false;
  }
  team.markers[index] = m;
  AO_store_release(&team.count, index + 1); // release: pairs with the acquire in steal
  return true;
}

marker *markers_first(void) {
  return AO_load(&team.count) || add_marker() ? team.markers[0] : NULL;
}

static size_t markers_wanted(void) {
  enum { MOST_BY_ITSELF = 16 };
  size_t wanted = (size_t)rt_options.markers;
  if (wanted) return wanted;
  wanted = (size_t)os_cpus_usable();
  return wanted < MOST_BY_ITSELF ? wanted : MOST_BY_ITSELF;
}

void markers_prepare(void) {
  static size_t wanted; // less when there was no memory or no thread for more
  if (AO_load(&heap.bytes) < PREPARE_BYTES && !rt_options.verify) return;
  if (!wanted) wanted = markers_wanted();
  while (AO_load(&team.count) < wanted)
    if (!add_marker()) wanted = AO_load(&team.count);
}

bool markers_can_join(void) {
  return AO_load(&team.count) > 1;
}

static void forget_threads(void) {
  team.generation++;
  team.open = false;
  AO_store(&team.count, AO_load(&team.count) > 0);
}

void markers_leave(void) {
  rt_pinned_lock_take(&team.lock);
  forget_threads();
  ring(true);
  rt_pinned_lock_give(&team.lock);
}

void markers_after_fork(void) {
  team.lock = (rt_pinned_lock)RT_PINNED_LOCK_INIT;
  mark_stack_forget_others(team.markers[0]);
  forget_threads(); // they were cut off anywhere in what they did; their markers are not used again
}
