// SPDX-License-Identifier: MIT
// A library that holds references in its static data and in its thread-local variables. Its
// constructor allocates, too. Tests load copies of it under other names.
#include "holder.h"

#include <tidepool/gc.h>

#define EXPORT __attribute__((visibility("default")))

static void *initialised_slots[HOLDER_SLOTS] = {(void *)8}; // .data
static void *zero_slots[HOLDER_SLOTS];                      // .bss
static _Thread_local void *tls_slots[HOLDER_SLOTS];
static unsigned long *made_by_constructor;

static __attribute__((constructor)) void construct(void) {
  made_by_constructor = tide_alloc(sizeof *made_by_constructor);
  if (made_by_constructor) *made_by_constructor = HOLDER_MAGIC;
}

static __attribute__((destructor)) void destruct(void) {
  // Still there, unless nobody took the trouble to scan us.
  if (made_by_constructor && *made_by_constructor != HOLDER_MAGIC) __builtin_trap();
}

EXPORT void **holder_slots(holder_place place) {
  switch (place) {
  case HOLDER_DATA:
    return initialised_slots;
  case HOLDER_BSS:
    return zero_slots;
  case HOLDER_TLS:
    return tls_slots;
  }
  return NULL;
}

EXPORT unsigned long holder_made_by_constructor(void) {
  return made_by_constructor ? *made_by_constructor : 0;
}
