// SPDX-License-Identifier: MIT
// Writes envelopes as JSON; see encoder.h.
//
// Writing functions make room first and then store without looking, so each says to `reserve` how
// much it may write at most. When there is no memory, the encoder is marked as failed, the buffer
// is as it was, and the whole envelope counts for nothing.
#include "encoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tidepool.h>

typedef struct buffer {
  char *at; // leaf
  size_t used;
  size_t room;
} buffer;

// A place of the dictionary. The word's hash says which; a newer word takes the place of an older.
typedef struct entry {
  unsigned char length; // 0: empty
  unsigned char escaped_length;
  char word[ENVELOPE_WORD_BYTES];
  char escaped[38];
} entry;

enum { PLACES = ENVELOPE_WORDS }; // a power of two

struct encoder { // scanned
  buffer output;
  buffer scratch;
  entry *dictionary; // leaf; NULL: none
  uint64_t uses;
  bool failed;
};

// ---- Buffers --------------------------------------------------------------------------------

static bool buffer_create(buffer *b, size_t bytes) {
  *b = (buffer){.at = tide_alloc_leaf(bytes), .room = bytes};
  return b->at != NULL;
}

// Room for so many more bytes. Where to write them, or NULL.
static char *reserve(encoder *e, buffer *b, size_t bytes) {
  if (b->room - b->used >= bytes) return b->at + b->used;
  size_t room = b->room * 2;
  while (room - b->used < bytes) room *= 2;
  char *larger = tide_realloc(b->at, room);
  if (!larger) {
    e->failed = true;
    return NULL;
  }
  b->at = larger;
  b->room = room;
  return larger + b->used;
}

static void put(encoder *e, buffer *b, const char *bytes, size_t length) {
  char *to = reserve(e, b, length);
  if (!to) return;
  memcpy(to, bytes, length);
  b->used += length;
}

static void put_literal(encoder *e, buffer *b, const char *literal) {
  put(e, b, literal, strlen(literal));
}

// ---- Texts ----------------------------------------------------------------------------------

// How many bytes the well-formed UTF-8 sequence at s has, 0 if there is none: no overlong form, no
// surrogate, nothing above U+10FFFF.
static size_t sequence_length(const unsigned char *s, size_t left) {
  size_t length = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
  if (length == 0 || length > left) return 0;
  for (size_t i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
  if (s[0] == 0xed && s[1] > 0x9f) return 0;
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return length;
}

// Writes one byte below 0x20, a quotation mark or a backslash, in at most six.
static char *escape_byte(char *to, unsigned char byte) {
  static const char hex[] = "0123456789abcdef";
  static const char letters[256] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                    ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};
  *to++ = '\\';
  if (letters[byte]) {
    *to++ = letters[byte];
    return to;
  }
  memcpy(to, "u00", 3);
  to[3] = hex[byte >> 4];
  to[4] = hex[byte & 15];
  return to + 5;
}

// What stands in a text as it is.
static bool is_plain(unsigned char byte) {
  return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

// Writes at most six bytes for each of the text, and returns how many.
static size_t escape(char *to, text what) {
  const unsigned char *at = (const unsigned char *)what.at, *end = at + what.length;
  char *start = to;
  while (at < end) {
    const unsigned char *plain = at;
    while (at < end && is_plain(*at)) at++;
    memcpy(to, plain, (size_t)(at - plain));
    to += at - plain;
    if (at == end) break;
    if (*at < 0x80) {
      to = escape_byte(to, *at++);
      continue;
    }
    size_t length = sequence_length(at, (size_t)(end - at));
    memcpy(to, length ? (const char *)at : "\xef\xbf\xbd", length ? length : 3);
    to += length ? length : 3;
    at += length ? length : 1;
  }
  return (size_t)(to - start);
}

// FNV-1a
static entry *place_of(entry *dictionary, text word) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < word.length; i++) hash = (hash ^ (unsigned char)word.at[i]) * 16777619u;
  return &dictionary[(hash ^ hash >> 16) & (PLACES - 1)];
}

static void remember(entry *place, text word, const char *escaped, size_t length) {
  if (length > sizeof place->escaped) return;
  place->length = (unsigned char)word.length;
  place->escaped_length = (unsigned char)length;
  memcpy(place->word, word.at, word.length);
  memcpy(place->escaped, escaped, length);
}

static void put_escaped(encoder *e, buffer *b, text what) {
  bool is_word = e->dictionary && what.length > 0 && what.length <= ENVELOPE_WORD_BYTES;
  entry *place = is_word ? place_of(e->dictionary, what) : NULL;
  if (place && place->length == what.length && memcmp(place->word, what.at, what.length) == 0) {
    put(e, b, place->escaped, place->escaped_length);
    return;
  }
  char *to = reserve(e, b, what.length * 6);
  if (!to) return;
  size_t length = escape(to, what);
  b->used += length;
  if (place) remember(place, what, to, length);
}

static void put_text(encoder *e, buffer *b, text what) {
  if (!what.at) {
    put_literal(e, b, "null");
    return;
  }
  put(e, b, "\"", 1);
  put_escaped(e, b, what);
  put(e, b, "\"", 1);
}

// ---- Numbers --------------------------------------------------------------------------------

static char *digits_of(char *end, uint64_t value) {
  do *--end = (char)('0' + value % 10);
  while (value /= 10);
  return end;
}

static void put_integer(encoder *e, buffer *b, int64_t value) {
  char digits[24], *end = digits + sizeof digits;
  char *at = digits_of(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
  if (value < 0) *--at = '-';
  put(e, b, at, (size_t)(end - at));
}

// Whole cents are written as such: a division rounds once, so reading them gives the same number.
static void put_real(encoder *e, buffer *b, double value) {
  char digits[40];
  if (!isfinite(value)) {
    put_literal(e, b, "null");
    return;
  }
  double cents = fabs(value) < 1e13 ? nearbyint(value * 100) : 0;
  if (cents > 0 && cents / 100 == value) {
    char *end = digits + sizeof digits;
    uint64_t whole = (uint64_t)cents, rest = whole % 100;
    *--end = (char)('0' + rest % 10);
    *--end = (char)('0' + rest / 10);
    *--end = '.';
    char *at = digits_of(end, whole / 100);
    put(e, b, at, (size_t)(digits + sizeof digits - at));
    return;
  }
  int length = snprintf(digits, sizeof digits, "%.17g", value);
  put(e, b, digits, (size_t)length);
}

// ---- An envelope ----------------------------------------------------------------------------

static void put_item(encoder *e, buffer *b, const envelope_item *item) {
  put_literal(e, b, "{\"sku\":");
  put_text(e, b, item->sku);
  put_literal(e, b, ",\"quantity\":");
  put_integer(e, b, item->quantity);
  put_literal(e, b, ",\"price\":");
  put_real(e, b, item->price);
  put_literal(e, b, ",\"codes\":[");
  for (size_t i = 0; i < item->code_count; i++) {
    if (i) put(e, b, ",", 1);
    put_integer(e, b, item->codes[i]);
  }
  put(e, b, "]}", 2);
}

static void put_body(encoder *e, buffer *b, const envelope *what) {
  put_literal(e, b, "{\"subject\":");
  put_text(e, b, what->subject);
  put_literal(e, b, ",\"reply_to\":");
  put_text(e, b, what->reply_to);
  put_literal(e, b, ",\"amount\":");
  put_real(e, b, what->amount);
  put_literal(e, b, what->urgent ? ",\"urgent\":true" : ",\"urgent\":false");
  put_literal(e, b, ",\"items\":[");
  for (size_t i = 0; i < what->item_count; i++) {
    if (i) put(e, b, ",", 1);
    put_item(e, b, &what->items[i]);
  }
  put(e, b, "]}", 2);
}

text encoder_encode(encoder *e, const envelope *what) {
  buffer *out = &e->output, *body = &e->scratch;
  e->uses++;
  e->failed = false;
  out->used = body->used = 0;
  put_body(e, body, what);

  put_literal(e, out, "{\"id\":");
  put_integer(e, out, (int64_t)what->id);
  put_literal(e, out, ",\"method\":");
  put_text(e, out, what->method);
  put_literal(e, out, ",\"headers\":{");
  for (size_t i = 0; i < what->header_count; i++) {
    if (i) put(e, out, ",", 1);
    put_text(e, out, what->headers[i].name);
    put(e, out, ":", 1);
    put_text(e, out, what->headers[i].value);
  }
  put_literal(e, out, "},\"body_bytes\":");
  put_integer(e, out, (int64_t)body->used);
  put_literal(e, out, ",\"body\":");
  put(e, out, body->at, body->used);
  put(e, out, "}", 1);
  return e->failed ? (text){0} : (text){out->at, out->used};
}

// ---------------------------------------------------------------------------------------------

static bool fill_dictionary(encoder *e) {
  size_t bytes = PLACES * sizeof(entry);
  e->dictionary = tide_alloc_leaf(bytes);
  if (!e->dictionary) return false;
  memset(e->dictionary, 0, bytes);
  for (unsigned i = 0; i < ENVELOPE_WORDS; i++) {
    char letters[ENVELOPE_WORD_BYTES], escaped[ENVELOPE_WORD_BYTES * 6];
    text word = {letters, envelope_word(letters, i)};
    remember(place_of(e->dictionary, word), word, escaped, escape(escaped, word));
  }
  return true;
}

encoder *encoder_create(const encoder_options *options) {
  encoder *e = tide_alloc(sizeof *e);
  if (!e) return NULL;
  bool good = buffer_create(&e->output, options->output_bytes) &&
              buffer_create(&e->scratch, options->scratch_bytes) &&
              (!options->dictionary || fill_dictionary(e));
  return good ? e : NULL;
}

uint64_t encoder_uses(const encoder *e) {
  return e->uses;
}

uint64_t encoder_bytes(const encoder *e) {
  return tide_size(e) + tide_size(e->output.at) + tide_size(e->scratch.at) +
         (e->dictionary ? tide_size(e->dictionary) : 0);
}
