// SPDX-License-Identifier: MIT
// The stack of a marker. It lies outside the heap, and is no root; it doubles when it is full, and
// is given back when it has become large.
#include "mark.h"

#include <string.h>

enum {
  FIRST_BYTES = 64 * 1024,  // never less: marking goes on with that
  KEPT_BYTES = 1024 * 1024, // a larger stack is given back after the marking
};

static AO_t mapped_bytes; // of all markers

uint64_t mark_stack_mapped_bytes(void) {
  return AO_load(&mapped_bytes);
}

static void set_stack(marker *m, uintptr_t *stack, size_t bytes) {
  m->stack = m->bottom = m->top = stack;
  m->end = stack + bytes / sizeof(uintptr_t);
  m->mapped_bytes = bytes;
}

// A bound is for all markers together, what they begin with counted. That is at most half of it, so
// that there is something to grow into.
static bool allowed(size_t more, size_t share) {
  size_t most = (size_t)rt_options.mark_stack_bytes;
  return !most || AO_load(&mapped_bytes) + more <= most / share;
}

static size_t marker_bytes(void) {
  return (sizeof(marker) + 4095) / 4096 * 4096;
}

marker *marker_make(unsigned index) {
  size_t bytes = marker_bytes();
  if (index && !allowed(bytes + FIRST_BYTES, 2)) return NULL; // the first is always there
  marker *m = os_map(bytes);
  uintptr_t *stack = m ? os_map(FIRST_BYTES) : NULL;
  if (!stack) {
    if (m) os_unmap(m, bytes);
    return NULL;
  }
  AO_fetch_and_add(&mapped_bytes, bytes + FIRST_BYTES);
  m->index = index;
  m->lock = (rt_pinned_lock)RT_PINNED_LOCK_INIT;
  set_stack(m, stack, FIRST_BYTES);
  return m;
}

void marker_unmake(marker *m) {
  AO_fetch_and_add(&mapped_bytes, (AO_t)0 - (marker_bytes() + m->mapped_bytes));
  os_unmap(m->stack, m->mapped_bytes);
  os_unmap(m, marker_bytes());
}

RT_COLD bool mark_stack_grow(marker *m) {
  size_t words = (size_t)(m->top - m->bottom);
  if (m->bottom - m->stack >= (m->end - m->stack) / 2) { // half of it has been given away
    memmove(m->stack, m->bottom, words * sizeof(uintptr_t));
    m->bottom = m->stack;
    m->top = m->stack + words;
    return true;
  }
  // Moved, not copied: near a limit there is no room for it twice.
  size_t old_bytes = m->mapped_bytes, given_away = (size_t)(m->bottom - m->stack);
  uintptr_t *stack =
      allowed(old_bytes, 1) ? os_map_larger(m->stack, old_bytes, 2 * old_bytes) : NULL;
  if (!stack) return false;
  set_stack(m, stack, 2 * old_bytes);
  m->bottom += given_away;
  m->top = m->bottom + words;
  AO_fetch_and_add(&mapped_bytes, old_bytes);
  return true;
}

void mark_stack_shrink(marker *m) {
  if (m->mapped_bytes <= KEPT_BYTES) return;
  uintptr_t *stack = os_map(FIRST_BYTES);
  if (!stack) return;
  os_unmap(m->stack, m->mapped_bytes);
  AO_fetch_and_add(&mapped_bytes, (AO_t)0 - (m->mapped_bytes - FIRST_BYTES));
  set_stack(m, stack, FIRST_BYTES);
}

void mark_stack_forget_others(const marker *first) {
  AO_store(&mapped_bytes, first ? marker_bytes() + first->mapped_bytes : 0);
}
