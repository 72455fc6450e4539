// SPDX-License-Identifier: MIT
// Rings and chains of rings; ring.h has the idea and the invariant.
//
// Two hand-overs carry all the ordering, each a release that an acquire pairs with:
//   an item  from the push, which moves the head, to the consumer that moves the tail;
//   a ring   from the producer that links it, through `next` and `oldest`, to consumers.
// Each change of `ends` is a read-modify-write, so that later ones continue the release of a push
// and need none of their own. Everything else orders nothing. A slot goes back from its consumer to
// the producer without ordering: it is a single word, and what happens to one word happens in one
// order for all. The producer needs no ordering with itself; where it is another thread than
// before, the caller has ordered the two.
#include "ring.h"

size_t ring_bytes(size_t slots) {
  return sizeof(struct ring) + slots * sizeof(AO_t);
}

struct ring *ring_init(void *memory, size_t slots) {
  struct ring *ring = memory;
  ring->mask = (uint32_t)(slots - 1);
  return ring;
}

int ring_push(struct ring *ring, void *item) {
  AO_t ends = AO_load(&ring->ends); // a tail that moves on now only makes more room
  uint32_t head = ring_head(ends);
  if (head - ring_tail(ends) > ring->mask) return 0;
  AO_t *slot = &ring->slots[head & ring->mask];
  if (AO_load(slot)) return 0; // its consumer is still reading
  AO_store(slot, (AO_t)item);
  // Release: pairs with the acquire in ring_pop_tail; who takes the item sees what is in it. A head
  // that wraps is carried out of the word and leaves the tail alone.
  AO_fetch_and_add_release(&ring->ends, ring_pack(1, 0));
  return 1;
}

void *ring_pop_head(struct ring *ring) {
  for (;;) {
    AO_t ends = AO_load(&ring->ends);
    uint32_t head = ring_head(ends), tail = ring_tail(ends);
    if (head == tail) return NULL;
    // No ordering: the producer put the item in, and it will fill the slot again.
    if (!AO_compare_and_swap(&ring->ends, ends, ring_pack(head - 1, tail))) continue;
    AO_t *slot = &ring->slots[(head - 1) & ring->mask];
    void *item = (void *)AO_load(slot);
    AO_store(slot, 0);
    return item;
  }
}

void *ring_pop_tail(struct ring *ring) {
  for (;;) {
    AO_t ends = AO_load(&ring->ends);
    uint32_t head = ring_head(ends), tail = ring_tail(ends);
    if (head == tail) return NULL;
    // Acquire: pairs with the release in ring_push. The ends may have moved away and come back in
    // between; the slot is read afterwards, so it is the present item that is taken.
    if (!AO_compare_and_swap_acquire(&ring->ends, ends, ring_pack(head, tail + 1))) continue;
    AO_t *slot = &ring->slots[tail & ring->mask];
    void *item = (void *)AO_load(slot);
    AO_store(slot, 0); // from here on it is the producer's
    return item;
  }
}

// Makes the ring the chain's newest. A fork may cut the producer off anywhere in here: consumers
// must have come to know the ring first (newest_of).
static void link_ring(struct chain *chain, struct ring *ring) {
  struct ring *before = chain->newest;
  AO_store(&ring->prev, (AO_t)before); // the producer's own until a consumer unlinks `before`
  // Release: pairs with the acquires in chain_pop_tail; consumers find the ring made ready, and
  // every push into the ring before it done.
  AO_store_release(before ? &before->next : &chain->oldest, (AO_t)ring);
  // Release: pairs with the acquire in chain_looks_empty.
  AO_store_release((AO_t *)&chain->newest, (AO_t)ring);
}

// For a push. In the child of a fork there may be a ring that a producer, who is not there, has
// linked and not made the newest: what was pushed into the one before it would be lost.
static struct ring *newest_of(struct chain *chain) {
  struct ring *newest = chain->newest;
  AO_t newer = AO_load(newest ? &newest->next : &chain->oldest);
  if (!newer) return newest;
  AO_store_release((AO_t *)&chain->newest, newer); // as in link_ring
  return (struct ring *)newer;
}

size_t chain_push(struct chain *chain, void *item, struct ring **spare) {
  struct ring *newest = newest_of(chain);
  if (newest && ring_push(newest, item)) return 0;
  if (*spare) {
    ring_push(*spare, item); // it is empty, and nobody else knows it yet
    link_ring(chain, *spare);
    *spare = NULL;
    return 0;
  }
  if (!newest) return RING_SLOTS_MIN;
  size_t slots = 2 * ((size_t)newest->mask + 1);
  return slots < RING_SLOTS_MAX ? slots : RING_SLOTS_MAX;
}

void *chain_pop_head(struct chain *chain) {
  for (struct ring *ring = chain->newest; ring; ring = (struct ring *)AO_load(&ring->prev)) {
    void *item = ring_pop_head(ring);
    if (item) return item;
  }
  return NULL;
}

void *chain_pop_tail(struct chain *chain) {
  // Acquire: pairs with the releases in link_ring and below.
  struct ring *ring = (struct ring *)AO_load_acquire(&chain->oldest);
  while (ring) {
    // Read before the pop: only if there was a newer ring already does an empty one stay empty.
    // Acquire: pairs with the release in link_ring.
    struct ring *next = (struct ring *)AO_load_acquire(&ring->next);
    void *item = ring_pop_tail(ring);
    if (item) return item;
    if (!next) return NULL;
    // Release: pairs with the acquire above, in a consumer that reads `next` from here. Whoever
    // wins also takes the ring out of the producer's sight. No ring comes back under the same
    // address while anyone looks at it: the collector sees to that.
    if (AO_compare_and_swap_release(&chain->oldest, (AO_t)ring, (AO_t)next))
      AO_store(&next->prev, 0);
    ring = next;
  }
  return NULL;
}

uint64_t chain_items(const struct chain *chain) {
  uint64_t items = 0;
  // Acquires: as in chain_pop_tail.
  const struct ring *ring = (const struct ring *)AO_load_acquire(&chain->oldest);
  for (; ring; ring = (const struct ring *)AO_load_acquire(&ring->next)) {
    AO_t ends = AO_load(&ring->ends);
    items += ring_head(ends) - ring_tail(ends);
  }
  return items;
}

size_t chain_sample(const struct chain *chain, const void **items, size_t most) {
  size_t count = 0;
  const struct ring *ring = (const struct ring *)AO_load_acquire(&chain->oldest);
  for (; ring; ring = (const struct ring *)AO_load_acquire(&ring->next)) {
    AO_t ends = AO_load(&ring->ends);
    for (uint32_t at = ring_tail(ends); at != ring_head(ends) && count < most; at++) {
      const void *item = (const void *)AO_load(&ring->slots[at & ring->mask]);
      if (item) items[count++] = item;
    }
  }
  return count;
}

int chain_looks_empty(const struct chain *chain) {
  // The likeliest one first. Acquire: pairs with the release in link_ring.
  const struct ring *newest = (const struct ring *)AO_load_acquire((const AO_t *)&chain->newest);
  if (newest) {
    AO_t ends = AO_load(&newest->ends);
    if (ring_head(ends) != ring_tail(ends)) return 0;
  }
  const struct ring *ring = (const struct ring *)AO_load_acquire(&chain->oldest);
  for (; ring; ring = (const struct ring *)AO_load_acquire(&ring->next)) {
    AO_t ends = AO_load(&ring->ends);
    if (ring_head(ends) != ring_tail(ends)) return 0;
  }
  return 1;
}
