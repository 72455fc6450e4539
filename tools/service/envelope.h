// SPDX-License-Identifier: MIT
// Request envelopes: what `tidepool marshal` and `tidepool sawtooth` encode.
//
// An envelope is data only: an id, a method, a few headers, a body with numbers, texts that need
// escaping, and a list of items with a list of codes each. The set that the experiments use is made
// from a seed and lies outside the heap, so that requests themselves allocate nothing and what is
// measured is the encoder alone.
#ifndef TIDEPOOL_TOOL_ENVELOPE_H
#define TIDEPOOL_TOOL_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes that should be UTF-8; may hold zero bytes, is not terminated. at NULL: no text (null).
typedef struct text {
  const char *at;
  size_t length;
} text;

typedef struct envelope_header {
  text name; // no two of an envelope alike
  text value;
} envelope_header;

typedef struct envelope_item {
  text sku;
  int64_t quantity;
  double price;
  const int64_t *codes;
  size_t code_count;
} envelope_item;

typedef struct envelope {
  uint64_t id; // below 2^63
  text method;
  const envelope_header *headers;
  size_t header_count;
  text subject;
  text reply_to;
  double amount;
  bool urgent;
  const envelope_item *items;
  size_t item_count;
} envelope;

typedef struct envelopes {
  size_t count;
  const envelope *at;
  void *memory; // that all of it lies in
} envelopes;

// count envelopes, the same ones for the same seed. Complains and returns false when there is no
// memory.
bool envelopes_make(envelopes *set, size_t count, uint64_t seed);
void envelopes_free(envelopes *set);

// The names of goods that requests speak of; an encoder's dictionary has the first ones. Writes at
// most ENVELOPE_WORD_BYTES and returns how many.
enum { ENVELOPE_WORDS = 4096, ENVELOPE_WORD_BYTES = 24 };
size_t envelope_word(char *word, unsigned index);

#endif
