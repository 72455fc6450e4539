// SPDX-License-Identifier: MIT
// What the tests of objects and of the heap as a whole share beyond testing.h.
#ifndef TIDEPOOL_HEAP_TESTING_H
#define TIDEPOOL_HEAP_TESTING_H

#include "testing.h"

#include "heap.h"

#include <pthread.h>

// The native heap's own. In a program on the other engine they are not there: tests that use them
// end before they do (on_bdw).
#pragma weak heap
#pragma weak heap_shapes
#pragma weak heap_find_large
#pragma weak heap_locks_take
#pragma weak heap_locks_give
#pragma weak mark_stack_mapped_bytes

static MAYBE_UNUSED void *volatile sink;
static MAYBE_UNUSED void *table[4096]; // static data: a root

// Whether an object starts at the hidden address. Frees nothing, keeps nothing alive.
static NOINLINE bool is_alive(uintptr_t hidden) {
  return tide_size(reveal(hidden)) != 0;
}

static NOINLINE size_t count_alive(const uintptr_t *hidden, size_t count) {
  size_t alive = 0;
  for (size_t i = 0; i < count; i++) alive += is_alive(hidden[i]);
  return alive;
}

static NOINLINE void collect(void) {
  clear_stack();
  tide_collect();
}

static MAYBE_UNUSED bool is_filled(const void *memory, unsigned char byte, size_t bytes) {
  const unsigned char *at = memory;
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != byte) return false;
  return true;
}

enum { MANY = 100 };
static MAYBE_UNUSED uintptr_t hidden_objects[MANY];

// Objects of `bytes`, known only by their hidden addresses, and by table[i] = address + offset.
static NOINLINE void make_objects(size_t bytes, ptrdiff_t offset, bool refer) {
  for (int i = 0; i < MANY; i++) {
    char *object = tide_alloc(bytes);
    memset(object, i + 1, bytes);
    hidden_objects[i] = hide(object);
    table[i] = refer ? object + offset : NULL;
    tide_alloc(bytes); // no neighbours among them
  }
}

#endif
