// SPDX-License-Identifier: MIT
// `alloc`: the price of an allocation, reclaiming included.
//
// Objects of one size; each is touched and takes the place of the oldest in a ring, so that nearly
// all are garbage soon, as in most programs. The ring is short enough to stay out of the way and
// long enough that no allocator gets away with handing out the same object for ever.
#include "peer.h"

enum { RING_MOST = 1024, RING_LEAST = 16, RING_BYTES = 1 << 20 };

static void *ring[RING_MOST];

void alloc_run(void) {
  size_t size = parameter("size");
  uint64_t count = parameter("bytes") / size;
  if (count == 0) count = 1;
  size_t entries = RING_MOST;
  while (entries > RING_LEAST && entries * size > RING_BYTES) entries /= 2;

  uint64_t start_ns = now_ns();
  for (uint64_t i = 0; i < count; i++) {
    void **place = &ring[i & (entries - 1)];
    uint64_t *object = allocate(size);
    *object = i;
    if (!PEER_COLLECTS && *place) peer_free(*place);
    *place = object;
  }
  report("ns", (double)(now_ns() - start_ns) / (double)count);
  report("cpu_s", cpu_seconds());
  report("collections", peer_collections());
  report("peak_mib", peak_resident_bytes() / MIB);
}
