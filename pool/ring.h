// SPDX-License-Identifier: MIT
// The queue behind a pool's shared items: one thread works at the head, any number at the tail.
//
// A ring holds a fixed number of items, a power of two. Its two ends, head and tail, are counters
// that only ever wrap around, packed into one 64-bit word, so that whoever moves an end sees the
// other in the same instant: two takers can never both win the last item. The *producer*, one
// thread at a time, pushes and pops at the head like a stack (what it used last is warm in its
// cache); *consumers*, any threads, take at the tail and get the oldest item.
//
// The invariant: between tail and head every slot holds an item. Outside, a slot is 0, or its
// consumer, which has moved the tail already, is still reading it. The producer may fill a slot
// only when it is 0: the clearing is what gives the slot back.
//
// A chain is rings linked from the oldest to the newest, each twice as large as the one before. The
// producer pushes into the newest only, so a ring that was found empty after it had a newer one
// stays empty: consumers then move the chain's tail past it. Nothing here allocates or frees: who
// pushes brings the memory of a new ring along, and a ring that has been unlinked belongs to the
// garbage collector, for a slower consumer may still be looking at it.
//
// Called by pool.c. Items are never NULL. Zeroed memory is an empty chain.
#ifndef TIDEPOOL_RING_H
#define TIDEPOOL_RING_H

#include <atomic_ops.h>
#include <stddef.h>
#include <stdint.h>

// The smallest ring, and the largest that a chain asks for: with 2^20 slots the 8 MiB of a ring are
// still quickly scanned, and ten million items need no more than a few dozen rings.
#define RING_SLOTS_MIN ((size_t)8)
#define RING_SLOTS_MAX ((size_t)1 << 20)

struct ring {
  AO_t ends;     // head in the upper 32 bits: the next slot to fill; tail in the lower: the oldest
  uint32_t mask; // slots - 1; fixed
  AO_t next;     // the newer ring or 0; set once, by the producer
  AO_t prev;     // the older ring or 0; set to 0 by the consumer that unlinks that one
  AO_t slots[];
};

_Static_assert(sizeof(AO_t) == 8, "both ends of a ring must fit into one word");

static inline AO_t ring_pack(uint32_t head, uint32_t tail) {
  return (AO_t)head << 32 | tail;
}
static inline uint32_t ring_head(AO_t ends) {
  return (uint32_t)(ends >> 32);
}
static inline uint32_t ring_tail(AO_t ends) {
  return (uint32_t)ends;
}

// Memory that a ring takes, in bytes. slots is a power of two.
size_t ring_bytes(size_t slots);

// Makes an empty ring of zeroed memory.
struct ring *ring_init(void *memory, size_t slots);

int ring_push(struct ring *ring, void *item); // producer; 0: full
void *ring_pop_head(struct ring *ring);       // producer; NULL: empty
void *ring_pop_tail(struct ring *ring);       // anyone; NULL: empty

struct chain {
  struct ring *newest; // the producer's own; whether it is empty is anybody's guess
  AO_t oldest;         // the ring where consumers begin; 0: there never was one
};

// Producer. Returns 0 when the item is in. Otherwise the chain lacks a ring, the result is how many
// slots it should have, and the caller tries again with *spare. A spare of any size is welcome;
// when it is put to use, *spare becomes NULL.
size_t chain_push(struct chain *chain, void *item, struct ring **spare);

int chain_looks_empty(const struct chain *chain); // anyone; it may have changed by then
uint64_t chain_items(const struct chain *chain);  // anyone; about, while it is in use
// Some of the items, up to `most`, to look at their addresses: they may be gone by then. Returns
// how many. Anyone.
size_t chain_sample(const struct chain *chain, const void **items, size_t most);

void *chain_pop_head(struct chain *chain); // producer; NULL: empty
void *chain_pop_tail(struct chain *chain); // anyone; NULL: empty

#endif
