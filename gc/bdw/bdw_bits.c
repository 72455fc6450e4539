// SPDX-License-Identifier: MIT
// Which addresses are those of allocated objects: a bit for each granule of 16 bytes.
//
// libgc knows where objects may lie, not which of them are in use: it has free lists, and marks
// that hold for a moment. The API asks for more. tide_size says 0 of what the last collection has
// found dead, tide_free refuses it, and a walk sees neither free objects nor those that threads
// have at hand.
//
// The bits are in chunks, each for 64 MiB of addresses, found by a table in two levels of all
// addresses that a program can have; a chunk takes memory where it is used. A second bit notes
// what a marking has found. Then one sweep over the words makes it the first: what a collection
// leaves allocated is what was allocated before it and is marked.
//
// Bits are set without a lock, by whoever takes an object, and cleared under the engine's lock or
// with the world stopped. Chunks are made under the lock and stay.
#include "bdw.h"

#include <string.h>

enum {
  ADDRESS_BITS = 48,
  CHUNK_SHIFT = 26,
  TABLE_SHIFT = 37, // each table is for 2048 chunks, as the first level is for as many tables
  TABLE_ENTRIES = 1 << (TABLE_SHIFT - CHUNK_SHIFT),
  TABLES = 1 << (ADDRESS_BITS - TABLE_SHIFT),
  PART_SHIFT = 20, // parts of a chunk, looked at only once they have held an object
  PARTS = 1 << (CHUNK_SHIFT - PART_SHIFT),
  GRANULE_SHIFT = 4,
  WORDS = 1 << (CHUNK_SHIFT - GRANULE_SHIFT - 6),
  PART_WORDS = WORDS / PARTS,
};
_Static_assert(PARTS == 64, "a bit for each part");

typedef struct chunk {
  AO_t allocated[WORDS], marked[WORDS];
  AO_t parts;         // a bit for each that has held an object
  uintptr_t base;     // the first address
  struct chunk *next; // with higher addresses
} chunk;

static AO_t tables[TABLES]; // each of AO_t[TABLE_ENTRIES], of chunks by address; 0: none
static chunk *lowest;
static AO_t parts_in_use, chunk_count;

static size_t round_to_pages(size_t bytes) {
  return (bytes + os_page_bytes() - 1) & ~(os_page_bytes() - 1);
}

size_t bdw_bits_bytes(void) {
  return AO_load(&parts_in_use) * (2 * PART_WORDS * sizeof(AO_t)) +
         AO_load(&chunk_count) * 2 * os_page_bytes();
}

static size_t entry_of(uintptr_t address) {
  return (address >> CHUNK_SHIFT) % TABLE_ENTRIES;
}

static chunk *chunk_of(const void *start) {
  uintptr_t address = (uintptr_t)start;
  if (address >> ADDRESS_BITS) return NULL;
  // Acquire: pairs with the releases in make_chunk.
  const AO_t *table = (const AO_t *)AO_load_acquire(&tables[address >> TABLE_SHIFT]);
  return table ? (chunk *)AO_load_acquire(&table[entry_of(address)]) : NULL;
}
static size_t word_of(const void *start) {
  return ((uintptr_t)start >> (GRANULE_SHIFT + 6)) & (WORDS - 1);
}
static AO_t bit_of(const void *start) {
  return (AO_t)1 << ((uintptr_t)start >> GRANULE_SHIFT & 63);
}

static AO_t *table_for(uintptr_t address) {
  AO_t *table = (AO_t *)AO_load(&tables[address >> TABLE_SHIFT]);
  if (table || !(table = os_map(TABLE_ENTRIES * sizeof *table))) return table;
  AO_store_release(&tables[address >> TABLE_SHIFT], (AO_t)table);
  return table;
}

static chunk *make_chunk(uintptr_t address) {
  AO_t *table = table_for(address);
  size_t bytes = round_to_pages(sizeof(chunk));
  chunk *new = table ? os_reserve(bytes) : NULL;
  if (!new || !os_commit(new, bytes)) return NULL;
  new->base = address >> CHUNK_SHIFT << CHUNK_SHIFT;
  chunk **at = &lowest;
  while (*at && (*at)->base < new->base) at = &(*at)->next;
  new->next = *at;
  *at = new;
  AO_fetch_and_add1(&chunk_count);
  AO_store_release(&table[entry_of(address)], (AO_t) new);
  return new;
}

bool bdw_bits_make_room(const void *start) {
  if ((uintptr_t)start >> ADDRESS_BITS) return false;
  chunk *c = chunk_of(start);
  if (!c && !(c = make_chunk((uintptr_t)start))) return false;
  AO_t part = (AO_t)1 << (((uintptr_t)start >> PART_SHIFT) & (PARTS - 1));
  if (AO_load(&c->parts) & part) return true;
  AO_store(&c->parts, AO_load(&c->parts) | part);
  AO_fetch_and_add1(&parts_in_use);
  return true;
}

bool bdw_bits_get(const void *start) {
  const chunk *c = chunk_of(start);
  return c && !((uintptr_t)start & 15) && AO_load(&c->allocated[word_of(start)]) & bit_of(start);
}

void bdw_bits_set(const void *start, bool value) {
  AO_t *word = &chunk_of(start)->allocated[word_of(start)];
  if (value)
    AO_or(word, bit_of(start));
  else
    AO_and(word, ~bit_of(start));
}

void *bdw_bits_first(void *lo, void *hi) {
  for (char *at = lo; at < (char *)hi; at += BDW_BLOCK_BYTES)
    if (bdw_bits_get(at)) return at;
  return NULL;
}

void bdw_bits_mark(const void *start) {
  chunk_of(start)->marked[word_of(start)] |= bit_of(start);
}

static bool next_part(const chunk *c, unsigned *part) {
  while (*part < PARTS && !(c->parts >> *part & 1)) ++*part;
  return *part < PARTS;
}

void bdw_bits_keep_marked(void) {
  for (chunk *c = lowest; c; c = c->next)
    for (unsigned part = 0; next_part(c, &part); part++) {
      size_t from = (size_t)part * PART_WORDS;
      memcpy(c->allocated + from, c->marked + from, PART_WORDS * sizeof(AO_t));
      memset(c->marked + from, 0, PART_WORDS * sizeof(AO_t));
    }
}

void bdw_bits_each(bool (*fn)(void *start, void *arg), void *arg) {
  for (chunk *c = lowest; c; c = c->next)
    for (unsigned part = 0; next_part(c, &part); part++)
      for (size_t i = (size_t)part * PART_WORDS; i < (size_t)(part + 1) * PART_WORDS; i++)
        for (AO_t left = c->allocated[i]; left; left &= left - 1) {
          uintptr_t granule = i * 64 + (unsigned)__builtin_ctzl(left);
          if (!fn((void *)(c->base + (granule << GRANULE_SHIFT)), arg)) return;
        }
}
