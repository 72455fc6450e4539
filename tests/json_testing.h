// SPDX-License-Identifier: MIT
// Whether a text is JSON (RFC 8259), strictly: UTF-8 without exception, nothing before or behind.
#ifndef TIDEPOOL_JSON_TESTING_H
#define TIDEPOOL_JSON_TESTING_H

#include "testing.h"

typedef struct json {
  const unsigned char *at;
  int depth;
} json;

static bool json_value(json *j);

static void json_space(json *j) {
  while (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t') j->at++;
}

static bool json_take(json *j, const char *token) {
  size_t length = strlen(token);
  if (strncmp((const char *)j->at, token, length) != 0) return false;
  j->at += length;
  return true;
}

static size_t json_digits(json *j) {
  size_t count = 0;
  while (*j->at >= '0' && *j->at <= '9') j->at++, count++;
  return count;
}

static bool json_number(json *j) {
  json_take(j, "-");
  bool zero = *j->at == '0';
  size_t digits = json_digits(j);
  if (!digits || (zero && digits > 1)) return false;
  if (json_take(j, ".") && !json_digits(j)) return false;
  if (!json_take(j, "e") && !json_take(j, "E")) return true;
  if (!json_take(j, "+")) json_take(j, "-");
  return json_digits(j);
}

static bool json_escape(json *j) {
  if (*j->at != 'u') return *j->at && strchr("\"\\/bfnrt", *j->at) && j->at++;
  j->at++;
  for (int i = 0; i < 4; i++, j->at++)
    if (!*j->at || !strchr("0123456789abcdefABCDEF", *j->at)) return false;
  return true;
}

// By the value, not by the bytes: another way than the library's.
static bool json_character(json *j) {
  static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
  uint32_t first = *j->at++, code;
  if (first < 0x80) return first >= 0x20;
  int bytes = (first & 0xe0) == 0xc0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : 4;
  if (first < 0xc0 || first >= 0xf8) return false;
  code = first & (0x7fu >> bytes);
  for (int i = 1; i < bytes; i++, j->at++) {
    if ((*j->at & 0xc0) != 0x80) return false;
    code = code << 6 | (*j->at & 0x3f);
  }
  return code >= lowest[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

static bool json_string(json *j) {
  if (!json_take(j, "\"")) return false;
  while (!json_take(j, "\""))
    if (json_take(j, "\\") ? !json_escape(j) : !json_character(j)) return false;
  return true;
}

static bool json_members(json *j, bool named, const char *close) {
  json_space(j);
  if (json_take(j, close)) return true;
  do {
    json_space(j);
    if (named) {
      if (!json_string(j)) return false;
      json_space(j);
      if (!json_take(j, ":")) return false;
    }
    if (!json_value(j)) return false;
    json_space(j);
  } while (json_take(j, ","));
  return json_take(j, close);
}

static bool json_value(json *j) {
  if (++j->depth > 100) return false;
  json_space(j);
  bool good = json_take(j, "{")   ? json_members(j, true, "}")
              : json_take(j, "[") ? json_members(j, false, "]")
              : *j->at == '"'     ? json_string(j)
                                  : json_take(j, "true") || json_take(j, "false") ||
                                    json_take(j, "null") || json_number(j);
  j->depth--;
  return good;
}

// text is terminated by a zero byte, which is no part of it.
static bool is_json(const char *text, size_t bytes) {
  json j = {(const unsigned char *)text, 0};
  if (!json_value(&j)) return false;
  json_space(&j);
  return (const char *)j.at == text + bytes;
}

#endif
