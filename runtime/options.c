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
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum form { INTEGER, PERCENT, BYTES, LIMIT, TEXT } form;

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

static int64_t *field_of(const tide_options *options, const option *o) {
  return (int64_t *)((uintptr_t)options + o->offset);
}
static const char **text_of(const tide_options *options, const option *o) { // of the form TEXT
  return (const char **)((uintptr_t)options + o->offset);
}

#define IS_TEXT(field, form, environment, key, standard, lowest, highest, help) +(form == TEXT)
enum { TEXTS = 0 TIDE_OPTION_TABLE(IS_TEXT) };
#undef IS_TEXT

// Where resolved texts are. Asking before initialisation leaves those in force as they are.
static char in_force[TEXTS][PATH_MAX], asked_for[TEXTS][PATH_MAX];

static char *storage_of(const tide_options *options, const option *o) {
  size_t index = 0;
  for (const option *before = table; before < o; before++) index += before->form == TEXT;
  return (options == &rt_options ? in_force : asked_for)[index];
}

// ---- Complaints -----------------------------------------------------------------------------
//
// Collected while options are resolved, and put into words afterwards, when it is known what is
// used instead.

enum { COMPLAINTS_MAX = 16, SHOWN_BYTES = 48 };

typedef struct complaint {
  const option *option; // NULL: no such key
  bool from_program;
  char value[SHOWN_BYTES];
} complaint;

typedef struct complaints {
  complaint items[COMPLAINTS_MAX];
  size_t count;
} complaints;

// A hostile value is cut short and stripped of what a terminal would act on.
static void tame(char shown[SHOWN_BYTES], const char *value, size_t length) {
  size_t n = 0;
  for (; n < length && n < SHOWN_BYTES - 4; n++)
    shown[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
  strcpy(shown + n, n < length ? "..." : "");
}

static void complain(complaints *c, const option *o, bool from_program, const char *value,
                     size_t length) {
  if (c->count == COMPLAINTS_MAX) return;
  complaint *item = &c->items[c->count++];
  item->option = o;
  item->from_program = from_program;
  tame(item->value, value, length);
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
    if (*table[i].key) say(t, " %s=%s", table[i].key, table[i].form == TEXT ? "TEXT" : "N");
  say(t, "; ignored");
}

static bool is_size(const option *o) {
  return o->form == BYTES || o->form == LIMIT;
}
static bool takes_off(const option *o) {
  return o->form == PERCENT || o->form == LIMIT;
}
static bool takes_auto(const option *o) {
  return o->form == LIMIT && o->lowest == TIDE_LIMIT_AUTO;
}

// What could be in its place, after the words that are accepted.
static const char *accepted_kind(const option *o, bool from_program) {
  if (from_program) return "a value";
  if (o->form == TEXT) return "a text";
  return is_size(o) ? "a number with B, KiB, MiB, GiB or TiB, or of bytes," : "an integer";
}

static const char *accepted_words(const option *o, bool from_program) {
  if (from_program) return takes_auto(o) ? "TIDE_LIMIT_AUTO or " : ""; // off is in the range
  return takes_auto(o) ? "'off', 'auto' or " : takes_off(o) ? "'off' or " : "";
}

static void say_accepted(text *t, const option *o, bool from_program) {
  say(t, "%s%s ", accepted_words(o, from_program), accepted_kind(o, from_program));
  long long lowest = takes_auto(o) ? 0 : (long long)o->lowest;
  if (o->form == TEXT)
    say(t, "of 1 to %d characters", PATH_MAX - 1);
  else if (o->highest == INT64_MAX)
    say(t, "of at least %lld", lowest);
  else
    say(t, "from %lld to %lld", lowest, (long long)o->highest);
}

static void say_used_text(text *t, const char *used) {
  char shown[SHOWN_BYTES];
  tame(shown, used, strlen(used));
  say(t, "'%s'", shown);
}

static void say_used(text *t, const option *o, const tide_options *resolved) {
  int64_t value = o->form == TEXT ? 0 : *field_of(resolved, o);
  if (o->form == TEXT && *text_of(resolved, o))
    say_used_text(t, *text_of(resolved, o));
  else if (o->form == TEXT)
    say(t, "none");
  else if (o->form == LIMIT && value == INT64_MAX)
    say(t, "off");
  else if (o->form == LIMIT && value == TIDE_LIMIT_AUTO)
    say(t, "auto");
  else
    say(t, "%lld", (long long)value);
}

static void say_bad_value(text *t, const complaint *item, const tide_options *resolved) {
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
  if (takes_off(o) && !strcmp(written, "off"))
    *value = o->form == LIMIT ? INT64_MAX : -1;
  else if (takes_auto(o) && !strcmp(written, "auto"))
    *value = TIDE_LIMIT_AUTO;
  else
    return false;
  return true;
}

static bool parse_number(const option *o, const char *written, int64_t *value) {
  if (parse_word(o, written, value)) return true;
  bool negative = *written == '-' && !is_size(o);
  if (!isdigit((unsigned char)written[negative])) return false;
  char *end;
  errno = 0;
  long long number = strtoll(written, &end, 10);
  if (errno) return false;
  int shift = 0;
  if (is_size(o) ? !parse_bytes_suffix(end, &shift) : *end != 0) return false;
  if (number > INT64_MAX >> shift) return false; // of a size, which is not negative
  if (o->form == PERCENT && number < -1) number = -1;
  number *= (int64_t)1 << shift;
  if (number < o->lowest || number > o->highest) return false;
  *value = number;
  return true;
}

// A copy: the program's own may not last, and an item of TIDE_DEBUG has no end.
static bool keep_text(const option *o, const char *value, size_t length, tide_options *resolved) {
  if (length == 0 || length >= PATH_MAX) return false;
  char *kept = storage_of(resolved, o);
  memmove(kept, value, length); // of itself, for who asks for what an earlier call resolved
  kept[length] = 0;
  *text_of(resolved, o) = kept;
  return true;
}

static bool parse_value(const option *o, const char *value, size_t length, tide_options *resolved) {
  if (o->form == TEXT) return keep_text(o, value, length, resolved);
  char written[64];
  if (length >= sizeof written) return false;
  memcpy(written, value, length);
  written[length] = 0;
  return parse_number(o, written, field_of(resolved, o));
}

static const option *find_key(const char *key, size_t length) {
  for (size_t i = 0; i < OPTIONS; i++)
    if (length && strlen(table[i].key) == length && !strncmp(table[i].key, key, length))
      return &table[i];
  return NULL;
}

static void parse_item(const char *item, size_t length, tide_options *resolved, complaints *c) {
  const char *equals = memchr(item, '=', length);
  size_t key_length = equals ? (size_t)(equals - item) : length;
  const option *o = find_key(item, key_length);
  const char *value = equals ? equals + 1 : item + length;
  size_t value_length = (size_t)(item + length - value);
  if (!o)
    complain(c, NULL, false, item, length);
  else if (!equals || !parse_value(o, value, value_length, resolved))
    complain(c, o, false, value, value_length);
}

// TIDE_DEBUG=key=value,key=value,...
static void parse_debug(const char *list, tide_options *resolved, complaints *c) {
  while (*list) {
    size_t length = strcspn(list, ",");
    if (length) parse_item(list, length, resolved, c);
    list += length + (list[length] == ',');
  }
}

// ---- Resolving ------------------------------------------------------------------------------

static void set_defaults(tide_options *resolved) {
  for (size_t i = 0; i < OPTIONS; i++)
    if (table[i].form == TEXT)
      *text_of(resolved, &table[i]) = NULL;
    else
      *field_of(resolved, &table[i]) = table[i].standard;
}

static void from_environment(tide_options *resolved, complaints *c) {
  for (size_t i = 0; i < OPTIONS; i++) {
    const option *o = &table[i];
    if (*o->key) continue;
    // Empty counts as not set, as in Go. In a setuid program the environment is not trusted.
    const char *value = secure_getenv(o->environment);
    if (value && *value && !parse_value(o, value, strlen(value), resolved))
      complain(c, o, false, value, strlen(value));
  }
  const char *debug = secure_getenv("TIDE_DEBUG");
  if (debug) parse_debug(debug, resolved, c);
}

// What the program asks for: TIDE_UNSET, or a value, with any negative percent being -1.
static int64_t asked_value(const tide_options *asked, const option *o) {
  int64_t value = *field_of(asked, o);
  return value != TIDE_UNSET && o->form == PERCENT && value < -1 ? -1 : value;
}

static void text_from_program(const char *value, const option *o, tide_options *resolved,
                              complaints *c) {
  size_t length = value ? strnlen(value, PATH_MAX) : 0;
  if (value && !keep_text(o, value, length, resolved)) complain(c, o, true, value, length);
}

static void from_program(const tide_options *asked, tide_options *resolved, complaints *c) {
  for (size_t i = 0; i < OPTIONS; i++) {
    const option *o = &table[i];
    if (o->form == TEXT) {
      text_from_program(*text_of(asked, o), o, resolved, c);
      continue;
    }
    int64_t value = asked_value(asked, o);
    if (value == TIDE_UNSET) continue;
    if (value >= o->lowest && value <= o->highest) {
      *field_of(resolved, o) = value;
    } else {
      char number[24];
      snprintf(number, sizeof number, "%lld", (long long)value);
      complain(c, o, true, number, strlen(number));
    }
  }
}

tide_status rt_options_resolve(const tide_options *asked, tide_options *resolved) {
  complaints c = {.count = 0};
  set_defaults(resolved);
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

// Where `auto` is in force, both that and the number it stands for will do.
static bool conflicts(const tide_options *asked, const option *o) {
  if (o->form == TEXT) {
    const char *value = *text_of(asked, o), *kept = *text_of(&rt_options, o);
    return value && (!kept || strcmp(value, kept));
  }
  int64_t value = asked_value(asked, o);
  return value != TIDE_UNSET && value != *field_of(&rt_options, o) &&
         value != *field_of(&as_resolved, o);
}

// The name of the first field that *asked sets to another value than the one in force, or NULL.
const char *rt_options_conflict(const tide_options *asked) {
  for (size_t i = 0; i < OPTIONS; i++)
    if (conflicts(asked, &table[i])) return table[i].field;
  return NULL;
}
