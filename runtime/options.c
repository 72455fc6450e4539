// SPDX-License-Identifier: MIT
// Options: what the program asked for, else the environment, else the default.
//
// Everything is driven by TIDE_OPTION_TABLE. A value that is not accepted is never guessed at: the
// default serves, and the message says what was wrong, what is accepted and what is used.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum form { INTEGER, PERCENT, BYTES } form;

typedef struct option {
  const char *field;
  form form;
  const char *environment;
  const char *key;
  int64_t standard, lowest, highest;
  size_t offset; // in tide_options
} option;

static const option table[] = {
#define OPTION_ROW(field, form, environment, key, standard, lowest, highest, help)                 \
  {#field, form, environment, key, standard, lowest, highest, offsetof(tide_options, field)},
    TIDE_OPTION_TABLE(OPTION_ROW)
#undef OPTION_ROW
};
#define OPTIONS (sizeof table / sizeof table[0])

static int64_t *field_of(tide_options *options, const option *o) {
  return (int64_t *)(void *)((char *)options + o->offset);
}

// ---- Messages -------------------------------------------------------------------------------

typedef struct complaints {
  char text[384];
  size_t length;
} complaints;

// Adds one complaint; a hostile value is cut short and stripped of what a terminal would act on.
static void complain(complaints *c, const char *name, const char *value, const char *accepted,
                     const char *instead) {
  char shown[48];
  size_t n = 0;
  for (; value[n] && n < sizeof shown - 4; n++)
    shown[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
  strcpy(shown + n, value[n] ? "..." : "");
  int wrote =
      snprintf(c->text + c->length, sizeof c->text - c->length, "%s%s='%s' is not accepted: %s; %s",
               c->length ? "; also " : "", name, shown, accepted, instead);
  if (wrote > 0) c->length += (size_t)wrote;
  if (c->length >= sizeof c->text) c->length = sizeof c->text - 1;
}

static void complain_value(complaints *c, const option *o, const char *value) {
  static const char *const forms[] = {"an integer", "'off' or an integer",
                                      "a number with B, KiB, MiB, GiB or TiB, or of bytes,"};
  char name[48], accepted[128], instead[48];
  snprintf(name, sizeof name, "%s%s%s", o->environment, *o->key ? " " : "", o->key);
  if (o->highest == INT64_MAX)
    snprintf(accepted, sizeof accepted, "%s of at least %lld", forms[o->form],
             (long long)o->lowest);
  else
    snprintf(accepted, sizeof accepted, "%s from %lld to %lld", forms[o->form],
             (long long)o->lowest, (long long)o->highest);
  snprintf(instead, sizeof instead, "using %lld", (long long)o->standard);
  complain(c, name, value, accepted, instead);
}

// ---- Parsing --------------------------------------------------------------------------------

static bool parse_bytes_suffix(const char *suffix, int *shift) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  *shift = 0;
  if (!*suffix) return true;
  for (int i = 0; i < 5; i++)
    if (!strcmp(suffix, names[i])) {
      *shift = 10 * i;
      return true;
    }
  return false;
}

static bool parse_value(const option *o, const char *text, int64_t *value) {
  if (o->form == PERCENT && !strcmp(text, "off")) return *value = -1, true;
  bool negative = *text == '-' && o->form != BYTES;
  if (!isdigit((unsigned char)text[negative])) return false;
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno) return false;
  int shift = 0;
  if (o->form == BYTES ? !parse_bytes_suffix(end, &shift) : *end != 0) return false;
  if (number > INT64_MAX >> shift) return false;
  if (o->form == PERCENT && number < -1) number = -1;
  number <<= shift;
  if (number < o->lowest || number > o->highest) return false;
  *value = number;
  return true;
}

static const option *find_key(const char *key, size_t length) {
  for (size_t i = 0; i < OPTIONS; i++)
    if (length && strlen(table[i].key) == length && !strncmp(table[i].key, key, length))
      return &table[i];
  return NULL;
}

// TIDE_DEBUG=key=value,key=value,...
static void parse_debug(const char *list, tide_options *options, complaints *c) {
  while (*list) {
    size_t length = strcspn(list, ",");
    char item[64];
    snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1),
             list);
    list += length + (list[length] == ',');
    if (!length) continue;
    size_t key_length = strcspn(item, "=");
    const option *o = find_key(item, key_length);
    if (!o) {
      char accepted[128] = "a list of";
      for (size_t i = 0; i < OPTIONS; i++)
        if (*table[i].key) {
          size_t used = strlen(accepted);
          snprintf(accepted + used, sizeof accepted - used, " %s=N", table[i].key);
        }
      complain(c, "TIDE_DEBUG", item, accepted, "ignored");
    } else if (item[key_length] != '=' || length >= sizeof item ||
               !parse_value(o, item + key_length + 1, field_of(options, o))) {
      complain_value(c, o, item[key_length] ? item + key_length + 1 : "");
    }
  }
}

// ---- Resolving ------------------------------------------------------------------------------

tide_status rt_options_resolve(const tide_options *asked, tide_options *resolved) {
  complaints c = {.length = 0};
  for (size_t i = 0; i < OPTIONS; i++) *field_of(resolved, &table[i]) = table[i].standard;

  for (size_t i = 0; i < OPTIONS; i++) {
    const option *o = &table[i];
    if (*o->key) continue;
    // Empty counts as not set, as in Go. In a setuid program the environment is not trusted.
    const char *text = secure_getenv(o->environment);
    if (text && *text && !parse_value(o, text, field_of(resolved, o))) complain_value(&c, o, text);
  }
  const char *debug = secure_getenv("TIDE_DEBUG");
  if (debug) parse_debug(debug, resolved, &c);

  for (size_t i = 0; asked && i < OPTIONS; i++) {
    const option *o = &table[i];
    int64_t value = *(const int64_t *)(const void *)((const char *)asked + o->offset);
    if (value == TIDE_UNSET) continue;
    if (o->form == PERCENT && value < -1) value = -1;
    if (value >= o->lowest && value <= o->highest) {
      *field_of(resolved, o) = value;
      continue;
    }
    char number[24], accepted[64], instead[48];
    snprintf(number, sizeof number, "%lld", (long long)value);
    snprintf(accepted, sizeof accepted, "a value from %lld to %lld", (long long)o->lowest,
             (long long)o->highest);
    snprintf(instead, sizeof instead, "using %lld", (long long)*field_of(resolved, o));
    char name[48];
    snprintf(name, sizeof name, "option %s", o->field);
    complain(&c, name, number, accepted, instead);
  }
  return c.length ? rt_error_set(TIDE_ERR_OPTION, "%s", c.text) : TIDE_OK;
}

// The name of the first field that *asked sets to another value than the one in force, or NULL.
const char *rt_options_conflict(const tide_options *asked) {
  for (size_t i = 0; i < OPTIONS; i++) {
    int64_t value = *(const int64_t *)(const void *)((const char *)asked + table[i].offset);
    if (value != TIDE_UNSET && value != *field_of(&rt_options, &table[i])) return table[i].field;
  }
  return NULL;
}
