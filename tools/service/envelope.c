// SPDX-License-Identifier: MIT
// Makes the set of envelopes; see envelope.h. All of a set lies in one block of slots of a fixed
// size, one for each envelope.
#include "envelope.h"
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADERS = 5, ITEMS = 6, CODES = 4, VALUE_BYTES = 96 };

typedef struct slot {
  envelope_header headers[HEADERS];
  envelope_item items[ITEMS];
  int64_t codes[ITEMS][CODES];
  char values[HEADERS][VALUE_BYTES];
  char subject[VALUE_BYTES];
  char skus[ITEMS][ENVELOPE_WORD_BYTES];
} slot;

// splitmix64
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t below(uint64_t *state, uint64_t bound) {
  return next_random(state) % bound;
}

static text text_of(const char *at) {
  return (text){at, strlen(at)};
}

static const char *one_of(uint64_t *state, const char *const *list, size_t count) {
  return list[below(state, count)];
}

static const char *const methods[] = {"orders.create", "orders.update", "stock.reserve",
                                      "invoice.send"};
static const char *const agents[] = {"shop/4.2 (till \"north\")", "shop/4.1", "back\\office 1.0"};
// With what JSON must escape, and with what it need not.
static const char *const subjects[] = {
    "Please leave it at the \"side door\"",
    "path C:\\orders\\in\tthen\tprint",
    "Grüße an die Küche, für später",
    "first line\nsecond line\nthird line",
    "plain words and nothing that needs any care at all",
};
enum {
  METHODS = sizeof methods / sizeof methods[0],
  AGENTS = sizeof agents / sizeof agents[0],
  SUBJECTS = sizeof subjects / sizeof subjects[0]
};

size_t envelope_word(char *word, unsigned index) {
  static const char kinds[8][8] = {"lamp", "chair",     "shelf", "rope",
                                   "tin",  "\"spare\"", "bolt",  "net"};
  char digits[] = "0000";
  for (unsigned i = 0, rest = index; i < 4; i++, rest /= 10)
    digits[3 - i] = (char)('0' + rest % 10);
  const char *kind = kinds[index % 8];
  size_t length = strlen(kind);
  memcpy(word, kind, length);
  word[length] = '/';
  memcpy(word + length + 1, digits, 4);
  return length + 5;
}

static void fill_headers(slot *s, uint64_t *state) {
  static const char *const names[HEADERS] = {"host", "user-agent", "trace", "content-type", "etag"};
  snprintf(s->values[0], VALUE_BYTES, "till-%u.shop.example", (unsigned)below(state, 500));
  snprintf(s->values[1], VALUE_BYTES, "%s", one_of(state, agents, AGENTS));
  snprintf(s->values[2], VALUE_BYTES, "%016llx%016llx", (unsigned long long)next_random(state),
           (unsigned long long)next_random(state));
  snprintf(s->values[3], VALUE_BYTES, "application/json; charset=\"utf-8\"");
  snprintf(s->values[4], VALUE_BYTES, "\"%08x\"", (unsigned)next_random(state));
  for (int i = 0; i < HEADERS; i++)
    s->headers[i] = (envelope_header){text_of(names[i]), text_of(s->values[i])};
}

static size_t fill_items(slot *s, uint64_t *state, uint64_t *cents_in_all) {
  size_t count = 2 + below(state, ITEMS - 1);
  for (size_t i = 0; i < count; i++) {
    envelope_item *item = &s->items[i];
    unsigned word = (unsigned)below(state, ENVELOPE_WORDS);
    uint64_t cents = 99 + below(state, 90000);
    *item = (envelope_item){.sku = {s->skus[i], envelope_word(s->skus[i], word)},
                            .quantity = 1 + (int64_t)below(state, 40),
                            .price = (double)cents / 100,
                            .codes = s->codes[i],
                            .code_count = below(state, CODES + 1)};
    for (size_t c = 0; c < item->code_count; c++)
      s->codes[i][c] = (int64_t)below(state, 2000000) - 1000000;
    *cents_in_all += cents * (uint64_t)item->quantity;
  }
  return count;
}

static envelope make_one(slot *s, uint64_t *state) {
  uint64_t cents = 0;
  fill_headers(s, state);
  size_t items = fill_items(s, state, &cents);
  snprintf(s->subject, VALUE_BYTES, "%s", one_of(state, subjects, SUBJECTS));
  bool answered = below(state, 3) == 0;
  return (envelope){.id = next_random(state) >> 1,
                    .method = text_of(one_of(state, methods, METHODS)),
                    .headers = s->headers,
                    .header_count = 3 + below(state, HEADERS - 2),
                    .subject = text_of(s->subject),
                    .reply_to = answered ? text_of(s->values[0]) : (text){0},
                    .amount = (double)cents / 100,
                    .urgent = below(state, 10) == 0,
                    .items = s->items,
                    .item_count = items};
}

bool envelopes_make(envelopes *set, size_t count, uint64_t seed) {
  envelope *list = calloc(count, sizeof *list + sizeof(slot));
  *set = (envelopes){.count = count, .at = list, .memory = list};
  if (!list) {
    complain("no memory for %zu envelopes", count);
    return false;
  }
  slot *slots = (slot *)(void *)(list + count);
  for (size_t i = 0; i < count; i++) list[i] = make_one(&slots[i], &seed);
  return true;
}

void envelopes_free(envelopes *set) {
  free(set->memory);
  *set = (envelopes){0};
}
