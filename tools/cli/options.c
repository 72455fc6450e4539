// SPDX-License-Identifier: MIT
// Reads the command line from a command's table; see options.h.
//
// argp parses and prints help. Its own messages take two lines and do not say what is accepted, so
// it is kept silent (ARGP_NO_ERRS) and every message comes from usage_error here.
#include "options.h"
#include "command.h"
#include "programs.h"

#include <argp.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool.h>

enum { KEY_FIRST = 256, KEY_HELP = 'h', KEY_VERSION = 'V', OPTIONS_MAX = 32 };

static const option_row common_table[] = {
    {"engine", "NAME", OPTION_CHOICE, offsetof(common_options, engine), "native", 0, 0,
     "native,bdw", "the collector to run on: Tidepool's own, or Boehm GC"},
    {"format", "NAME", OPTION_CHOICE, offsetof(common_options, format), "table", 0, 0,
     "table,csv,json", "what to print: table for people, csv, or json (one object a line)"},
    {"out", "DIR", OPTION_TEXT, offsetof(common_options, out), NULL, 0, 0, NULL,
     "also write the result into DIR as table, CSV and JSON lines; DIR is made if it is missing"},
};
enum { COMMON_OPTIONS = sizeof common_table / sizeof common_table[0] };

typedef struct parse {
  option_row table[OPTIONS_MAX]; // the command's own, then the common ones
  size_t count;
  const option_row *positional; // NULL: none, or it has been read
  void *settings;
} parse;

static void usage_error(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void usage_error(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  // Whatever the user typed, the message stays one line.
  for (char *c = text; *c; c++)
    if (iscntrl((unsigned char)*c)) *c = '?';
  complain("%s", text);
  exit(STATUS_USAGE);
}

// What messages call it: "--runs", or "N" for an argument that is no option. Static storage.
static const char *label_of(const option_row *o) {
  static char label[64];
  snprintf(label, sizeof label, "%s%s", o->name ? "--" : "", o->name ? o->name : o->argument);
  return label;
}

// A decimal number that takes up all of the text up to end; NAN if it is none. Signs, hexadecimal,
// "inf" and "nan" are not numbers here.
static double number_in(const char *text, const char *end, bool whole) {
  const char *allowed = whole ? "0123456789" : "0123456789.";
  size_t length = (size_t)(end - text);
  char copy[64];
  if (length == 0 || length >= sizeof copy || !isdigit((unsigned char)text[0])) return NAN;
  memcpy(copy, text, length);
  copy[length] = '\0';
  if (strspn(copy, allowed) != length) return NAN;
  char *rest;
  double value = strtod(copy, &rest);
  return *rest == '\0' ? value : NAN;
}

static const struct {
  const char *name;
  double bytes;
} units[] = {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}};
enum { UNITS = sizeof units / sizeof units[0] };

static double bytes_in(const char *text, const char *end) {
  double unit = 1;
  for (int i = 0; i < UNITS; i++) {
    size_t length = strlen(units[i].name);
    if ((size_t)(end - text) <= length || strncmp(end - length, units[i].name, length) != 0)
      continue;
    end -= length;
    unit = units[i].bytes;
    break;
  }
  return floor(number_in(text, end, unit == 1) * unit);
}

static void bytes_text(char *text, size_t size, double bytes) {
  for (int i = 0; i < UNITS; i++) {
    if (bytes < units[i].bytes || fmod(bytes, units[i].bytes) != 0) continue;
    snprintf(text, size, "%.0f%s", bytes / units[i].bytes, units[i].name);
    return;
  }
  snprintf(text, size, "%.0fB", bytes);
}

// The comparison is written so that NAN is outside too.
static bool in_range(const option_row *o, double value) {
  return value >= o->lowest && value <= o->highest;
}

// The end of a message that says which numbers are accepted.
static const char *or_word(const option_row *o) {
  static char text[64];
  snprintf(text, sizeof text, "%s%s", o->choices ? " or " : "", o->choices ? o->choices : "");
  return text;
}

static double one_number(const option_row *o, const char *text, const char *end) {
  bool whole = o->type != OPTION_REALS;
  double value = number_in(text, end, whole);
  if (!in_range(o, value))
    usage_error("%s: '%.*s' is not a %s from %.12g to %.12g%s", label_of(o), (int)(end - text),
                text, whole ? "whole number" : "number", o->lowest, o->highest, or_word(o));
  return value;
}

static double one_size(const option_row *o, const char *text, const char *end) {
  double value = bytes_in(text, end);
  if (in_range(o, value)) return value;
  char lowest[32], highest[32];
  bytes_text(lowest, sizeof lowest, o->lowest);
  bytes_text(highest, sizeof highest, o->highest);
  usage_error("%s: '%.*s' is not a size from %s to %s (bytes, or a number with B, KiB, MiB, GiB "
              "or TiB)%s",
              label_of(o), (int)(end - text), text, lowest, highest, or_word(o));
}

static double one_in_list(const option_row *o, const char *text, const char *end) {
  size_t length = (size_t)(end - text);
  if (o->choices && strlen(o->choices) == length && strncmp(o->choices, text, length) == 0)
    return HUGE_VAL;
  return o->type == OPTION_SIZES ? one_size(o, text, end) : one_number(o, text, end);
}

static numbers number_list(const option_row *o, const char *text) {
  numbers list = {0};
  for (;;) {
    const char *end = strchrnul(text, ',');
    if (list.count == NUMBERS_MAX)
      usage_error("%s: more than %d values are not accepted", label_of(o), NUMBERS_MAX);
    list.at[list.count++] = one_in_list(o, text, end);
    if (!*end) return list;
    text = end + 1;
  }
}

// Where the length characters at text stand in the list of choices; refuses any other word.
static unsigned word_index(const option_row *o, const char *text, size_t length) {
  const char *word = o->choices;
  for (unsigned i = 0;; i++) {
    const char *end = strchrnul(word, ',');
    if (length && length == (size_t)(end - word) && strncmp(word, text, length) == 0) return i;
    if (!*end) break;
    word = end + 1;
  }
  usage_error("%s: '%.*s' is not accepted; accepted: %s", label_of(o), (int)length, text,
              o->choices);
}

static const char *one_choice(const option_row *o, const char *text) {
  word_index(o, text, strlen(text));
  return text;
}

static uint64_t word_set(const option_row *o, const char *text) {
  uint64_t set = 0;
  for (;;) {
    const char *end = strchrnul(text, ',');
    set |= (uint64_t)1 << word_index(o, text, (size_t)(end - text));
    if (!*end) return set;
    text = end + 1;
  }
}

static const char *one_text(const option_row *o, const char *text) {
  if (!*text) usage_error("%s: the value is empty; accepted: a %s", label_of(o), o->argument);
  return text;
}

static void store(const option_row *o, void *settings, const char *text) {
  void *field = (char *)settings + o->offset;
  switch (o->type) {
  case OPTION_FLAG:
    *(bool *)field = true;
    break;
  case OPTION_TEXT:
    *(const char **)field = one_text(o, text);
    break;
  case OPTION_CHOICE:
    *(const char **)field = one_choice(o, text);
    break;
  case OPTION_SET:
    *(uint64_t *)field = word_set(o, text);
    break;
  case OPTION_COUNT:
    *(uint64_t *)field = (uint64_t)one_number(o, text, text + strlen(text));
    break;
  case OPTION_BYTES:
    *(uint64_t *)field = (uint64_t)one_size(o, text, text + strlen(text));
    break;
  case OPTION_COUNTS:
  case OPTION_REALS:
  case OPTION_SIZES:
    *(numbers *)field = number_list(o, text);
    break;
  }
}

numbers numbers_of(const char *text) {
  const option_row any = {.name = "", .type = OPTION_REALS, .highest = HUGE_VAL};
  return number_list(&any, text);
}

// argp says only that something was wrong with the argument before state->next.
static void refuse_option(const parse *p, const struct argp_state *state) {
  const char *given = state->next > 0 ? state->argv[state->next - 1] : "";
  char accepted[400] = "";
  size_t used = 0;
  for (size_t i = 0; i < p->count; i++) {
    const option_row *o = &p->table[i];
    size_t length = strlen(o->name);
    if (strncmp(given, "--", 2) == 0 && strncmp(given + 2, o->name, length) == 0) {
      if (given[2 + length] == '\0' && o->argument)
        usage_error("--%s needs a value (--%s=%s)", o->name, o->name, o->argument);
      if (given[2 + length] == '=' && !o->argument)
        usage_error("--%s takes no value: '%s'", o->name, given);
    }
    if (used < sizeof accepted)
      used += (size_t)snprintf(accepted + used, sizeof accepted - used, "--%s, ", o->name);
  }
  usage_error("unknown option '%s'; accepted: %s--help", given, accepted);
}

static void store_positional(parse *p, const char *text) {
  if (!p->positional) usage_error("unexpected argument '%s'; accepted: options only", text);
  store(p->positional, p->settings, text);
  p->positional = NULL;
}

static error_t parse_one(int key, char *argument, struct argp_state *state) {
  parse *p = state->input;
  switch (key) {
  case KEY_HELP:
    state->flags &= ~(unsigned)ARGP_NO_ERRS; // it silences the help too
    argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
    return 0;
  case KEY_VERSION:
    options_print_version(stdout);
    exit(STATUS_DONE);
  case ARGP_KEY_ARG:
    store_positional(p, argument);
    return 0;
  case ARGP_KEY_ERROR:
    refuse_option(p, state);
    return 0;
  default:
    break;
  }
  if (key < KEY_FIRST || (size_t)(key - KEY_FIRST) >= p->count) return ARGP_ERR_UNKNOWN;
  store(&p->table[key - KEY_FIRST], p->settings, argument);
  return 0;
}

static bool has_option(const parse *p, const char *name) {
  for (size_t i = 0; i < p->count; i++)
    if (strcmp(p->table[i].name, name) == 0) return true;
  return false;
}

// A command's own option takes the place of a common one of that name, which keeps its default.
static void add_options(parse *p, const option_row *table, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const option_row *o = &table[i];
    if (o->standard) store(o, p->settings, o->standard);
    if (!has_option(p, o->name)) p->table[p->count++] = *o;
  }
}

// The help text of an option with its default, in memory of its own; NULL if there is none.
static char *help_text(const option_row *o) {
  char *text;
  int length = o->standard ? asprintf(&text, "%s (default %s)", o->help, o->standard)
                           : asprintf(&text, "%s", o->help);
  return length < 0 ? NULL : text;
}

void options_parse(const options_spec *spec, void *settings, int argc, char **argv) {
  parse p = {.settings = settings, .positional = spec->positional};
  add_options(&p, spec->table, spec->count);
  add_options(&p, spec->shared, spec->shared_count);
  add_options(&p, common_table, COMMON_OPTIONS);

  char *texts[OPTIONS_MAX];
  struct argp_option rows[OPTIONS_MAX + 3] = {{0}};
  for (size_t i = 0; i < p.count; i++) {
    const option_row *o = &p.table[i];
    texts[i] = help_text(o);
    rows[i] = (struct argp_option){o->name, KEY_FIRST + (int)i, o->argument, 0, texts[i], 0};
  }
  rows[p.count] = (struct argp_option){"help", KEY_HELP, NULL, 0, "print this and exit", -1};
  rows[p.count + 1] =
      (struct argp_option){"version", KEY_VERSION, NULL, 0, "print the version and exit", -1};

  char arguments[64] = "";
  if (spec->positional) snprintf(arguments, sizeof arguments, "[%s]", spec->positional->argument);
  const struct argp parser = {rows, parse_one, arguments, spec->about, NULL, NULL, NULL};
  argp_err_exit_status = STATUS_USAGE;
  if (argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &p) != 0)
    usage_error("the options could not be read; see %s --help", command_title);
  for (size_t i = 0; i < p.count; i++) free(texts[i]);
  program_for_engine(((const common_options *)settings)->engine);
}

void options_print_version(FILE *file) {
  fprintf(file, "tidepool %d.%d.%d\n", TIDE_VERSION_MAJOR, TIDE_VERSION_MINOR, TIDE_VERSION_PATCH);
}
