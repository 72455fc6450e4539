// SPDX-License-Identifier: MIT
// mimalloc as a peer; see peer.h.
#include <mimalloc.h>
#include "peer_free.h"

static inline void *peer_alloc(size_t size) {
  return mi_zalloc(size);
}
static inline void *peer_alloc_leaf(size_t size) {
  return mi_malloc(size);
}
static inline void peer_free(void *object) {
  mi_free(object);
}
