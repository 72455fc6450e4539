// SPDX-License-Identifier: MIT
// The C library's allocator as a peer; see peer.h.
#include <stdlib.h>
#include "peer_free.h"

static inline void *peer_alloc(size_t size) {
  return calloc(1, size);
}
static inline void *peer_alloc_leaf(size_t size) {
  return malloc(size);
}
static inline void peer_free(void *object) {
  free(object);
}
