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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum form { INTEGER, PERCENT, BYTES, LIMIT } form;

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

// ---- Complaints -----------------------------------------------------------------------------
//
// Collected while options are resolved, and put into words afterwards, when it is known what is
// used instead.

typedef struct complaint {
  const option *option; // NULL: no such key
  bool from_program;
  char value[48];
} complaint;

enum { COMPLAINTS_MAX = 16 };

typedef struct complaints {
  complaint items[COMPLAINTS_MAX];
  size_t count;
} complaints;

// A hostile value is cut short and stripped of what a terminal would act on.
static void complain(complaints *c, const option *o, bool from_program, const char *value) {
  if (c->count == COMPLAINTS_MAX) return;
  complaint *item = &c->items[c->count++];
  item->option = o;
  item->from_program = from_program;
  size_t n = 0;
  for (; value[n] && n < sizeof item->value - 4; n++)
    item->value[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
  strcpy(item->value + n, value[n] ? "..." : "");
}

typedef struct text {
  char chars[384];
  size_t length;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int wrote = vsnprintf(t->chars + t->length, sizeof t->chars - t->length, format, arguments);
  va_end(arguments);
  if (wrote > 0) t->length += (size_t)wrote;
  if (t->length < sizeof t->chars) return;
  t->length = sizeof t->chars - 1;
  strcpy(t->chars + t->length - 3, "...");
}

static void say_unknown_key(text *t, const complaint *item) {
  say(t, "TIDE_DEBUG='%s' is not accepted: a list of", item->value);
  for (size_t i = 0; i < OPTIONS; i++)
    if (*table[i].key) say(t, " %s=N", table[i].key);
  say(t, "; ignored");
}

static bool takes_auto(const option *o) {
  return o->form == LIMIT && o->lowest == TIDE_LIMIT_AUTO;
}

static void say_accepted(text *t, const option *o, bool from_program) {
#define SIZE "a number with B, KiB, MiB, GiB or TiB, or of bytes,"
  static const char *const forms[] = {
      [INTEGER] = "an integer",
      [PERCENT] = "'off' or an integer",
      [BYTES] = SIZE,
      [LIMIT] = "'off' or " SIZE,
  };
  const char *accepted = takes_auto(o) ? "'off', 'auto' or " SIZE : forms[o->form];
#undef SIZE
  if (from_program) accepted = takes_auto(o) ? "TIDE_LIMIT_AUTO or a value" : "a value";
  long long lowest = takes_auto(o) ? 0 : (long long)o->lowest;
  if (o->highest == INT64_MAX)
    say(t, "%s of at least %lld", accepted, lowest);
  else
    say(t, "%s from %lld to %lld", accepted, lowest, (long long)o->highest);
}

static void say_used(text *t, const option *o, tide_options *resolved) {
  int64_t value = *field_of(resolved, o);
  if (o->form == LIMIT && value == INT64_MAX)
    say(t, "off");
  else if (o->form == LIMIT && value == TIDE_LIMIT_AUTO)
    say(t, "auto");
  else
    say(t, "%lld", (long long)value);
}

static void say_bad_value(text *t, const complaint *item, tide_options *resolved) {
  const option *o = item->option;
  if (item->from_program)
    say(t, "option %s", o->field);
  else
    say(t, "%s%s%s", o->environment, *o->key ? " " : "", o->key);
  say(t, "='%s' is not accepted: ", item->value);
  say_accepted(t, o, item->from_program);
  say(t, "; using ");
  say_used(t, o, resolved);
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

static bool parse_word(const option *o, const char *written, int64_t *value) {
  bool off = !strcmp(written, "off"), is_auto = !strcmp(written, "auto");
  if (off && o->form == PERCENT) return *value = -1, true;
  if (off && o->form == LIMIT) return *value = INT64_MAX, true;
  if (is_auto && takes_auto(o)) return *value = TIDE_LIMIT_AUTO, true;
  return false;
}

static bool parse_value(const option *o, const char *written, int64_t *value) {
  if (parse_word(o, written, value)) return true;
  bool size = o->form == BYTES || o->form == LIMIT;
  bool negative = *written == '-' && !size;
  if (!isdigit((unsigned char)written[negative])) return false;
  char *end;
  errno = 0;
  long long number = strtoll(written, &end, 10);
  if (errno) return false;
  int shift = 0;
  if (size ? !parse_bytes_suffix(end, &shift) : *end != 0) return false;
  if (number > INT64_MAX >> shift) return false; // of a size, which is not negative
  if (o->form == PERCENT && number < -1) number = -1;
  number *= (int64_t)1 << shift;
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
      complain(c, NULL, false, item);
    } else if (item[key_length] != '=' || length >= sizeof item ||
               !parse_value(o, item + key_length + 1, field_of(options, o))) {
      complain(c, o, false, item[key_length] ? item + key_length + 1 : "");
    }
  }
}

// ---- Resolving ------------------------------------------------------------------------------

static void from_environment(tide_options *resolved, complaints *c) {
  for (size_t i = 0; i < OPTIONS; i++) {
    const option *o = &table[i];
    if (*o->key) continue;
    // Empty counts as not set, as in Go. In a setuid program the environment is not trusted.
    const char *value = secure_getenv(o->environment);
    if (value && *value && !parse_value(o, value, field_of(resolved, o)))
      complain(c, o, false, value);
  }
  const char *debug = secure_getenv("TIDE_DEBUG");
  if (debug) parse_debug(debug, resolved, c);
}

// What the program asks for: TIDE_UNSET, or a value, with any negative percent being -1.
static int64_t asked_value(const tide_options *asked, const option *o) {
  int64_t value = *(const int64_t *)(const void *)((const char *)asked + o->offset);
  return value != TIDE_UNSET && o->form == PERCENT && value < -1 ? -1 : value;
}

static void from_program(const tide_options *asked, tide_options *resolved, complaints *c) {
  for (size_t i = 0; i < OPTIONS; i++) {
    const option *o = &table[i];
    int64_t value = asked_value(asked, o);
    if (value == TIDE_UNSET) continue;
    if (value >= o->lowest && value <= o->highest) {
      *field_of(resolved, o) = value;
    } else {
      char number[24];
      snprintf(number, sizeof number, "%lld", (long long)value);
      complain(c, o, true, number);
    }
  }
}

tide_status rt_options_resolve(const tide_options *asked, tide_options *resolved) {
  complaints c = {.count = 0};
  for (size_t i = 0; i < OPTIONS; i++) *field_of(resolved, &table[i]) = table[i].standard;
  from_environment(resolved, &c);
  if (asked) from_program(asked, resolved, &c);
  if (!c.count) return TIDE_OK;
  text t = {.length = 0};
  for (size_t i = 0; i < c.count; i++) {
    if (i) say(&t, "; also ");
    if (c.items[i].option)
      say_bad_value(&t, &c.items[i], resolved);
    else
      say_unknown_key(&t, &c.items[i]);
  }
  return rt_error_set(TIDE_ERR_OPTION, "%s", t.chars);
}

// ---- In force -------------------------------------------------------------------------------

static tide_options as_resolved; // what rt_options were before `auto` became a number

int64_t rt_limit_for(uint64_t allowed_bytes) {
  if (allowed_bytes == UINT64_MAX) return INT64_MAX;
  uint64_t limit = allowed_bytes / 10 * 9 + allowed_bytes % 10 * 9 / 10; // the product may overflow
  return limit < INT64_MAX ? (int64_t)limit : INT64_MAX;
}

void rt_options_settle(void) {
  as_resolved = rt_options;
  if (rt_options.memory_limit == TIDE_LIMIT_AUTO)
    rt_options.memory_limit = rt_limit_for(os_cgroup_memory_bytes(""));
}

// The name of the first field that *asked sets to another value than the one in force, or NULL.
// Where `auto` is in force, both that and the number it stands for will do.
const char *rt_options_conflict(const tide_options *asked) {
  for (size_t i = 0; i < OPTIONS; i++) {
    int64_t value = asked_value(asked, &table[i]);
    if (value != TIDE_UNSET && value != *field_of(&rt_options, &table[i]) &&
        value != *field_of(&as_resolved, &table[i]))
      return table[i].field;
  }
  return NULL;
}
