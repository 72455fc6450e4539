// SPDX-License-Identifier: MIT
// Options: where values come from, which are accepted, what is said about the others; and the
// ways into the library: tide_init once, twice, from many threads, and not at all.
#include "testing.h"

#include "rt.h"
#include "rt_private.h"

#include <limits.h>
#include <pthread.h>
#include <regex.h>

// ---- Tables ---------------------------------------------------------------------------------

// The documented options that are numbers, written down once more: a change of the library's own
// table that changes what programs rely on shows here.
typedef struct option {
  const char *field, *variable, *key;
  size_t offset;
  int64_t standard, lowest, highest;
} option;
#define ROW(name, variable, key, standard, lowest, highest)                                        \
  { #name, variable, key, offsetof(tide_options, name), standard, lowest, highest }
static const option known[] = {
    ROW(gc_percent, "TIDE_GCPERCENT", NULL, 100, -1, INT32_MAX),
    ROW(procs, "TIDE_PROCS", NULL, 0, 0, 1024),
    ROW(markers, "TIDE_MARKERS", NULL, 0, 0, 64),
    ROW(min_heap_bytes, "TIDE_MINHEAP", NULL, 0, 0, INT64_MAX),
    ROW(memory_limit, "TIDE_MEMLIMIT", NULL, INT64_MAX, -1, INT64_MAX),
    ROW(hard_limit, "TIDE_HARDLIMIT", NULL, INT64_MAX, 0, INT64_MAX),
    ROW(gc_interval_ms, "TIDE_GCINTERVAL", NULL, 120000, 0, INT32_MAX),
    ROW(mark_stack_bytes, "TIDE_MARKSTACK", NULL, 0, 0, INT64_MAX),
    ROW(hugepages, "TIDE_HUGEPAGES", NULL, 1, 0, 1),
    ROW(gctrace, "TIDE_DEBUG", "gctrace", 0, 0, 1),
    ROW(verify, "TIDE_DEBUG", "verify", 0, 0, 1),
    ROW(stress, "TIDE_DEBUG", "stress", 0, 0, INT32_MAX),
    ROW(poison, "TIDE_DEBUG", "poison", 0, 0, 1),
    ROW(poolseed, "TIDE_DEBUG", "poolseed", 0, 0, 1),
    ROW(poolchaos, "TIDE_DEBUG", "poolchaos", 0, 0, INT32_MAX),
    ROW(poolreport, "TIDE_DEBUG", "poolreport", 0, 0, 1),
    ROW(poolcheck, "TIDE_DEBUG", "poolcheck", 0, 0, 1),
    ROW(record_kib, "TIDE_DEBUG", "record_kib", 0, 0, INT32_MAX),
};

static int64_t *field_of(tide_options *options, const option *o) {
  return (int64_t *)(void *)((char *)options + o->offset);
}

// A value as messages and the environment have it.
static const char *written(char text[32], const option *o, int64_t value) {
  bool limit = o->standard == INT64_MAX;
  if (limit && value == INT64_MAX) return "off";
  if (limit && value == TIDE_LIMIT_AUTO) return "auto";
  snprintf(text, 32, "%lld", (long long)value);
  return text;
}

static const option *option_named(const char *field) {
  for (size_t i = 0; i < LENGTH(known); i++)
    if (!strcmp(known[i].field, field)) return &known[i];
  ck_abort_msg("no option %s", field);
}

static void set_in_environment(const option *o, const char *value) {
  char text[256];
  snprintf(text, sizeof text, "%s%s%s", o->key ? o->key : "", o->key ? "=" : "", value);
  setenv(o->variable, text, 1);
}

static const tide_options all_unset = TIDE_OPTIONS_DEFAULT;

static void clear_environment(void) {
  for (size_t i = 0; i < LENGTH(known); i++) unsetenv(known[i].variable);
}

static tide_status resolve(tide_options asked, tide_options *resolved) {
  return rt_options_resolve(&asked, resolved);
}
static tide_status init_again(tide_options asked) {
  return tide_init(&asked);
}

// ---- Sources --------------------------------------------------------------------------------

START_TEST(defaults_are_the_documented_ones) {
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_OK);
  for (size_t i = 0; i < LENGTH(known); i++)
    ck_assert_int_eq(*field_of(&resolved, &known[i]), known[i].standard);
  ck_assert_ptr_null(resolved.trace);
  ck_assert_ptr_null(resolved.record);
  // None is missing here.
  ck_assert_uint_eq(LENGTH(known) * sizeof(int64_t) + 2 * sizeof resolved.trace, sizeof resolved);
}
END_TEST

START_TEST(unset_fields_leave_it_to_the_environment) {
  const option *o = &known[_i];
  set_in_environment(o, "1");
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(&all_unset, &resolved), TIDE_OK);
  for (size_t i = 0; i < LENGTH(known); i++)
    ck_assert_int_eq(*field_of(&resolved, &known[i]), i == (size_t)_i ? 1 : known[i].standard);
}
END_TEST

START_TEST(program_wins_over_environment) {
  const option *o = &known[_i];
  set_in_environment(o, "1");
  tide_options asked = all_unset, resolved;
  *field_of(&asked, o) = 0;
  ck_assert_int_eq(rt_options_resolve(&asked, &resolved), TIDE_OK);
  ck_assert_int_eq(*field_of(&resolved, o), 0);
}
END_TEST

START_TEST(bounds_themselves_are_accepted_from_both) {
  const option *o = &known[_i];
  for (int highest = 0; highest < 2; highest++) {
    int64_t value = highest ? o->highest : o->lowest;
    char text[32];
    tide_options asked = all_unset, resolved;
    *field_of(&asked, o) = value;
    ck_assert_int_eq(rt_options_resolve(&asked, &resolved), TIDE_OK);
    ck_assert_int_eq(*field_of(&resolved, o), value);
    set_in_environment(o, written(text, o, value));
    ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_OK);
    ck_assert_int_eq(*field_of(&resolved, o), value);
    clear_environment();
  }
}
END_TEST

// ---- Values in the environment --------------------------------------------------------------

static const struct {
  const char *field, *text;
  int64_t value;
} good[] = {
    {"gc_percent", "off", -1},
    {"gc_percent", "-1", -1},
    {"gc_percent", "-5", -1},
    {"gc_percent", "0", 0},
    {"gc_percent", "007", 7},
    {"gc_percent", "250", 250},
    {"gc_percent", "", 100}, // empty is as not set
    {"procs", "3", 3},
    {"markers", "64", 64},
    {"min_heap_bytes", "0", 0},
    {"min_heap_bytes", "17", 17},
    {"min_heap_bytes", "17B", 17},
    {"min_heap_bytes", "3KiB", 3 << 10},
    {"min_heap_bytes", "64MiB", 64 << 20},
    {"min_heap_bytes", "2GiB", (int64_t)2 << 30},
    {"min_heap_bytes", "5TiB", (int64_t)5 << 40},
    {"min_heap_bytes", "8388607TiB", (int64_t)8388607 << 40},
    {"mark_stack_bytes", "64KiB", 64 << 10},
    {"memory_limit", "off", INT64_MAX},
    {"memory_limit", "auto", -1},
    {"memory_limit", "0", 0},
    {"memory_limit", "3GiB", (int64_t)3 << 30},
    {"memory_limit", "9223372036854775807", INT64_MAX},
    {"memory_limit", "", INT64_MAX},
    {"hard_limit", "off", INT64_MAX},
    {"hard_limit", "4KiB", 4 << 10},
    {"hard_limit", "4096B", 4096},
    {"gc_interval_ms", "0", 0},
    {"gc_interval_ms", "500", 500},
    {"stress", "7", 7},
};

START_TEST(good_values_of_the_environment) {
  const option *o = option_named(good[_i].field);
  if (o->key)
    set_in_environment(o, good[_i].text);
  else
    setenv(o->variable, good[_i].text, 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_OK);
  ck_assert_int_eq(*field_of(&resolved, o), good[_i].value);
}
END_TEST

static const struct {
  const char *field, *text;
} bad[] = {
    {"gc_percent", "abc"},
    {"gc_percent", "OFF"},
    {"gc_percent", "offf"},
    {"gc_percent", "of"},
    {"gc_percent", " 100"},
    {"gc_percent", "100 "},
    {"gc_percent", "100%"},
    {"gc_percent", "1e2"},
    {"gc_percent", "0x10"},
    {"gc_percent", "+100"},
    {"gc_percent", "1.5"},
    {"gc_percent", "-"},
    {"gc_percent", "--5"},
    {"gc_percent", "2147483648"},
    {"gc_percent", "18446744073709551716"}, // 100 if it wrapped
    {"gc_percent", "-18446744073709551516"},
    {"procs", "1025"},
    {"procs", "-1"},
    {"procs", "off"},
    {"procs", "4KiB"},
    {"procs", "4,5"},
    {"min_heap_bytes", "off"},
    {"min_heap_bytes", "-1"},
    {"min_heap_bytes", "-4MiB"},
    {"min_heap_bytes", "4 MiB"},
    {"min_heap_bytes", "4mib"},
    {"min_heap_bytes", "4MB"},
    {"min_heap_bytes", "4M"},
    {"min_heap_bytes", "4MiBs"},
    {"min_heap_bytes", "MiB"},
    {"min_heap_bytes", "4PiB"},
    {"min_heap_bytes", "1.5GiB"},
    {"min_heap_bytes", "8388608TiB"}, // 2^63
    {"min_heap_bytes", "9223372036854775808"},
    {"min_heap_bytes", "9223372036854775807KiB"},
    {"markers", "65"},
    {"markers", "-1"},
    {"mark_stack_bytes", "lots"},
    {"mark_stack_bytes", "auto"},
    {"memory_limit", "-1"},
    {"memory_limit", "-2"},
    {"memory_limit", "Auto"},
    {"memory_limit", "automatic"},
    {"memory_limit", "OFF"},
    {"memory_limit", "1.5GiB"},
    {"memory_limit", "90%"},
    {"memory_limit", "8388608TiB"},
    {"memory_limit", "9223372036854775808"},
    {"hard_limit", "auto"},
    {"hard_limit", "-1"},
    {"hard_limit", "none"},
    {"gc_interval_ms", "off"},
    {"gc_interval_ms", "auto"},
    {"gc_interval_ms", "-1"},
    {"gc_interval_ms", "2m"},
    {"gc_interval_ms", "2147483648"},
    {"gctrace", "2"},
    {"gctrace", "-1"},
    {"gctrace", "yes"},
    {"gctrace", ""},
    {"verify", "1 "},
    {"stress", "2147483648"},
    {"stress", "-1"},
    {"stress", "1KiB"},
    {"poison", "0xdb"},
};

static void assert_contains(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "no '%s' in: %s", part, text);
}

static void assert_one_plain_line(const char *text) {
  ck_assert_uint_gt(strlen(text), 0);
  for (const char *c = text; *c; c++)
    ck_assert_msg((unsigned char)*c >= 32 && *c != 127, "byte %d in: %s", *c, text);
}

START_TEST(bad_values_are_named_and_the_default_serves) {
  const option *o = option_named(bad[_i].field);
  set_in_environment(o, bad[_i].text);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  ck_assert_int_eq(*field_of(&resolved, o), o->standard);
  const char *message = tide_error_message();
  char shown[64], used[48], text[32];
  snprintf(shown, sizeof shown, "='%s'", bad[_i].text);
  snprintf(used, sizeof used, "using %s", written(text, o, o->standard));
  assert_one_plain_line(message);
  assert_contains(message, o->variable);
  if (o->key) assert_contains(message, o->key);
  assert_contains(message, shown);
  assert_contains(message, used);
}
END_TEST

START_TEST(message_says_what_is_accepted) {
  tide_options resolved;
  setenv("TIDE_GCPERCENT", "x", 1);
  rt_options_resolve(NULL, &resolved);
  assert_contains(tide_error_message(), "'off' or an integer from -1 to 2147483647");
  clear_environment();
  setenv("TIDE_MINHEAP", "x", 1);
  rt_options_resolve(NULL, &resolved);
  assert_contains(tide_error_message(), "B, KiB, MiB, GiB or TiB");
  assert_contains(tide_error_message(), "at least 0");
  clear_environment();
  setenv("TIDE_PROCS", "x", 1);
  rt_options_resolve(NULL, &resolved);
  assert_contains(tide_error_message(), "an integer from 0 to 1024");
  clear_environment();
  setenv("TIDE_MEMLIMIT", "x", 1);
  rt_options_resolve(NULL, &resolved);
  assert_contains(tide_error_message(), "'off', 'auto' or a number with B, KiB");
  assert_contains(tide_error_message(), "at least 0");
  clear_environment();
  setenv("TIDE_HARDLIMIT", "auto", 1);
  rt_options_resolve(NULL, &resolved);
  assert_contains(tide_error_message(), "accepted: 'off' or a number with B, KiB");
}
END_TEST

START_TEST(message_says_which_limit_is_used) {
  tide_options resolved;
  setenv("TIDE_MEMLIMIT", "auto", 1);
  ck_assert_int_eq(resolve(OPTIONS(o.memory_limit = -2), &resolved), TIDE_ERR_OPTION);
  ck_assert_int_eq(resolved.memory_limit, TIDE_LIMIT_AUTO);
  assert_contains(tide_error_message(), "TIDE_LIMIT_AUTO or a value of at least 0; using auto");
  setenv("TIDE_MEMLIMIT", "1KiB", 1);
  ck_assert_int_eq(resolve(OPTIONS(o.memory_limit = -2), &resolved), TIDE_ERR_OPTION);
  assert_contains(tide_error_message(), "using 1024");
}
END_TEST

// A message about a hostile value is one short line without what a terminal would act on.
static void assert_hostile_value_is_tamed(const char *variable, const char *value) {
  setenv(variable, value, 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  assert_one_plain_line(tide_error_message());
  assert_contains(tide_error_message(), variable);
  ck_assert_uint_lt(strlen(tide_error_message()), 400);
  ck_assert_int_eq(resolved.gc_percent, 100);
}

START_TEST(hostile_values_are_tamed_in_the_message) {
  static const char *const variables[] = {"TIDE_GCPERCENT", "TIDE_MINHEAP", "TIDE_DEBUG"};
  const char *variable = variables[_i];
  assert_hostile_value_is_tamed(variable, "\033[2J\033]0;title\007");
  assert_hostile_value_is_tamed(variable, "a\nb\rc\td\177");
  assert_hostile_value_is_tamed(variable, "\200\377\303\251");
  assert_hostile_value_is_tamed(variable, "%s%n%s%n%1000000d");
  assert_hostile_value_is_tamed(variable, "'quoted' \"twice\" `three` $(four)");
  enum { LONG = 100000 };
  char *text = malloc(LONG + 1);
  memset(text, '9', LONG);
  text[LONG] = 0;
  assert_hostile_value_is_tamed(variable, text);
  memset(text, ',', LONG);
  memcpy(text + LONG - 5, "what?", 5);
  assert_hostile_value_is_tamed(variable, text);
  free(text);
}
END_TEST

START_TEST(bad_values_of_the_program_are_named_by_field) {
  const option *o = &known[_i];
  for (int above = 0; above < 2; above++) {
    if (above && o->highest == INT64_MAX) continue;          // there is none
    if (!above && o == option_named("gc_percent")) continue; // means off
    tide_options asked = all_unset, resolved;
    *field_of(&asked, o) = above ? o->highest + 1 : o->lowest - 1;
    ck_assert_int_eq(rt_options_resolve(&asked, &resolved), TIDE_ERR_OPTION);
    ck_assert_int_eq(*field_of(&resolved, o), o->standard);
    char shown[32], used[48], text[32];
    snprintf(shown, sizeof shown, "%lld", (long long)*field_of(&asked, o));
    snprintf(used, sizeof used, "using %s", written(text, o, o->standard));
    assert_contains(tide_error_message(), o->field);
    assert_contains(tide_error_message(), shown);
    assert_contains(tide_error_message(), used);
  }
}
END_TEST

START_TEST(bad_value_of_the_program_falls_back_to_the_environment) {
  setenv("TIDE_PROCS", "5", 1);
  tide_options resolved;
  ck_assert_int_eq(resolve(OPTIONS(o.procs = 5000), &resolved), TIDE_ERR_OPTION);
  ck_assert_int_eq(resolved.procs, 5);
  assert_contains(tide_error_message(), "using 5");
}
END_TEST

START_TEST(message_about_the_environment_knows_what_the_program_set) {
  setenv("TIDE_GCPERCENT", "often", 1);
  tide_options resolved;
  ck_assert_int_eq(resolve(OPTIONS(o.gc_percent = 50), &resolved), TIDE_ERR_OPTION);
  ck_assert_int_eq(resolved.gc_percent, 50);
  assert_contains(tide_error_message(), "using 50");
}
END_TEST

START_TEST(two_bad_values_are_both_named) {
  setenv("TIDE_GCPERCENT", "often", 1);
  setenv("TIDE_PROCS", "all", 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  assert_contains(tide_error_message(), "TIDE_GCPERCENT='often'");
  assert_contains(tide_error_message(), "TIDE_PROCS='all'");
  assert_contains(tide_error_message(), "using 100");
  assert_contains(tide_error_message(), "using 0");
}
END_TEST

START_TEST(every_option_bad_at_once_gives_one_bounded_line) {
  for (size_t i = 0; i < LENGTH(known); i++) setenv(known[i].variable, "nonsense", 1);
  setenv("TIDE_DEBUG", "gctrace=x,verify=x,stress=x,poison=x,unknown=1", 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  assert_one_plain_line(tide_error_message());
  assert_contains(tide_error_message(), "TIDE_GCPERCENT='nonsense'");
  for (size_t i = 0; i < LENGTH(known); i++)
    ck_assert_int_eq(*field_of(&resolved, &known[i]), known[i].standard);
}
END_TEST

// ---- TIDE_DEBUG -----------------------------------------------------------------------------

static const struct {
  const char *list;
  tide_status status;
  int64_t gctrace, verify, stress;
  const char *named; // in the message
} lists[] = {
    {"", TIDE_OK, 0, 0, 0, NULL},
    {",", TIDE_OK, 0, 0, 0, NULL},
    {"gctrace=1", TIDE_OK, 1, 0, 0, NULL},
    {"gctrace=1,verify=1,stress=12", TIDE_OK, 1, 1, 12, NULL},
    {"stress=12,gctrace=1,verify=1", TIDE_OK, 1, 1, 12, NULL},
    {",,gctrace=1,,verify=1,", TIDE_OK, 1, 1, 0, NULL},
    {"gctrace=1,gctrace=0", TIDE_OK, 0, 0, 0, NULL}, // the last one counts
    {"gctrace=0,gctrace=1", TIDE_OK, 1, 0, 0, NULL},
    {"gctrace", TIDE_ERR_OPTION, 0, 0, 0, "gctrace"},
    {"gctrace=", TIDE_ERR_OPTION, 0, 0, 0, "gctrace"},
    {"gctrace=1=1", TIDE_ERR_OPTION, 0, 0, 0, "1=1"},
    {"=1", TIDE_ERR_OPTION, 0, 0, 0, "=1"},
    {"=", TIDE_ERR_OPTION, 0, 0, 0, "="},
    {"GCTRACE=1", TIDE_ERR_OPTION, 0, 0, 0, "GCTRACE"},
    {"gctrac=1", TIDE_ERR_OPTION, 0, 0, 0, "gctrac"},
    {"gctraces=1", TIDE_ERR_OPTION, 0, 0, 0, "gctraces"},
    {" gctrace=1", TIDE_ERR_OPTION, 0, 0, 0, " gctrace"},
    {"gctrace=1 verify=1", TIDE_ERR_OPTION, 0, 0, 0, "1 verify=1"},
    {"gctrace=1;verify=1", TIDE_ERR_OPTION, 0, 0, 0, "1;verify=1"},
    {"unknown=1,verify=1", TIDE_ERR_OPTION, 0, 1, 0, "unknown=1"}, // the others still count
    {"verify=1,stress=-3", TIDE_ERR_OPTION, 0, 1, 0, "-3"},
    {"stress=0000000000000000000000000000000000000000000000000000000000000000005", TIDE_ERR_OPTION,
     0, 0, 0, "stress"},
};

START_TEST(debug_list_forms) {
  setenv("TIDE_DEBUG", lists[_i].list, 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), lists[_i].status);
  ck_assert_int_eq(resolved.gctrace, lists[_i].gctrace);
  ck_assert_int_eq(resolved.verify, lists[_i].verify);
  ck_assert_int_eq(resolved.stress, lists[_i].stress);
  if (!lists[_i].named) return;
  assert_one_plain_line(tide_error_message());
  assert_contains(tide_error_message(), "TIDE_DEBUG");
  assert_contains(tide_error_message(), lists[_i].named);
}
END_TEST

START_TEST(unknown_name_in_the_debug_list_is_told_the_known_ones) {
  setenv("TIDE_DEBUG", "help", 1);
  tide_options resolved;
  rt_options_resolve(NULL, &resolved);
  for (size_t i = 0; i < LENGTH(known); i++)
    if (known[i].key) assert_contains(tide_error_message(), known[i].key);
  assert_contains(tide_error_message(), "poolcheck=N trace=TEXT record=TEXT record_kib=N; ignored");
  assert_contains(tide_error_message(),
                  "poolreport=N poolcheck=N trace=TEXT record=TEXT record_kib=N; ignored");
}
END_TEST

START_TEST(bad_value_after_a_good_one_says_which_is_used) {
  setenv("TIDE_DEBUG", "stress=9,stress=x", 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  char used[32];
  snprintf(used, sizeof used, "using %lld", (long long)resolved.stress);
  assert_contains(tide_error_message(), used);
}
END_TEST

// ---- Texts ----------------------------------------------------------------------------------

// A text of so many characters, in static storage.
static char *text_of(size_t length) {
  static char text[PATH_MAX + 8];
  memset(text, 'a', length);
  text[length] = 0;
  return text;
}

static void set_trace_in_environment(const char *value) {
  char list[PATH_MAX + 64];
  snprintf(list, sizeof list, "gctrace=1,trace=%s,stress=5", value);
  setenv("TIDE_DEBUG", list, 1);
}

START_TEST(texts_of_the_environment) {
  static const char *const texts[] = {
      "t", "/tmp/a b/trace-%p.json", "gctrace=0", "=", "==", "off", "0", "\303\251\n"};
  for (size_t i = 0; i <= LENGTH(texts); i++) {
    const char *text = i < LENGTH(texts) ? texts[i] : text_of(PATH_MAX - 1);
    set_trace_in_environment(text);
    tide_options resolved;
    ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_OK);
    ck_assert_str_eq(resolved.trace, text);
    ck_assert_int_eq(resolved.gctrace, 1);
    ck_assert_int_eq(resolved.stress, 5);
  }
}
END_TEST

START_TEST(text_in_the_environment_ends_at_a_comma) {
  setenv("TIDE_DEBUG", "trace=a,b,stress=5", 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  ck_assert_str_eq(resolved.trace, "a");
  ck_assert_int_eq(resolved.stress, 5);
  assert_contains(tide_error_message(), "TIDE_DEBUG='b'");
}
END_TEST

START_TEST(bad_texts_of_the_environment_are_named_and_none_serves) {
  const char *text = _i ? text_of((size_t)PATH_MAX + _i - 1) : "";
  set_trace_in_environment(text);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  ck_assert_ptr_null(resolved.trace);
  ck_assert_int_eq(resolved.gctrace, 1);
  ck_assert_int_eq(resolved.stress, 5);
  assert_one_plain_line(tide_error_message());
  assert_contains(tide_error_message(), _i ? "TIDE_DEBUG trace='aaaa" : "TIDE_DEBUG trace=''");
  assert_contains(tide_error_message(), "a text of 1 to 4095 characters; using none");
}
END_TEST

START_TEST(text_without_an_equals_sign_is_none) {
  setenv("TIDE_DEBUG", "trace", 1);
  tide_options resolved;
  ck_assert_int_eq(rt_options_resolve(NULL, &resolved), TIDE_ERR_OPTION);
  ck_assert_ptr_null(resolved.trace);
}
END_TEST

START_TEST(text_of_the_program_wins_and_is_copied) {
  setenv("TIDE_DEBUG", "trace=environment", 1);
  char *text = text_of(PATH_MAX - 1);
  strcpy(text, "a,b"); // a program's text may have commas
  tide_options resolved;
  ck_assert_int_eq(resolve(OPTIONS(o.trace = text), &resolved), TIDE_OK);
  memset(text, 'x', 3);
  ck_assert_str_eq(resolved.trace, "a,b");
  ck_assert_int_eq(resolve(OPTIONS(o.trace = text_of(PATH_MAX - 1)), &resolved), TIDE_OK);
  ck_assert_uint_eq(strlen(resolved.trace), PATH_MAX - 1);
  ck_assert_int_eq(rt_options_resolve(&all_unset, &resolved), TIDE_OK);
  ck_assert_str_eq(resolved.trace, "environment");
}
END_TEST

START_TEST(bad_text_of_the_program_falls_back_to_the_environment) {
  setenv("TIDE_DEBUG", "trace=a\033b", 1);
  tide_options resolved;
  const char *text = _i ? text_of(PATH_MAX) : "";
  ck_assert_int_eq(resolve(OPTIONS(o.trace = text), &resolved), TIDE_ERR_OPTION);
  ck_assert_str_eq(resolved.trace, "a\033b");
  assert_one_plain_line(tide_error_message());
  assert_contains(tide_error_message(), _i ? "option trace='aaaa" : "option trace=''");
  assert_contains(tide_error_message(), "a value of 1 to 4095 characters; using 'a?b'");
}
END_TEST

// A relative name would be a file in the directory of the build.
#define TRACE "/dev/null"

START_TEST(text_in_force_is_not_the_programs_and_is_compared_by_what_it_says) {
  char text[] = TRACE;
  init_with(OPTIONS(o.trace = text));
  text[0] = 'x';
  tide_options in_force;
  tide_options_read(&in_force);
  ck_assert_str_eq(in_force.trace, TRACE);
  ck_assert_int_eq(tide_init(&in_force), TIDE_OK);
  text[0] = '/';
  ck_assert_int_eq(init_again(OPTIONS(o.trace = text)), TIDE_OK);
  ck_assert_int_eq(tide_init(&all_unset), TIDE_OK);
  static const char *const others[] = {"/dev/nul", "/dev/null ", "", "x"};
  for (size_t i = 0; i < LENGTH(others); i++) {
    ck_assert_int_eq(init_again(OPTIONS(o.trace = others[i])), TIDE_ERR_STATE);
    assert_contains(tide_error_message(), "option trace");
  }
}
END_TEST

START_TEST(text_cannot_be_asked_for_when_there_is_none_in_force) {
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.trace = TRACE)), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), "option trace");
}
END_TEST

START_TEST(options_read_before_init_may_be_passed_to_it) {
  setenv("TIDE_DEBUG", "trace=" TRACE, 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_str_eq(before.trace, TRACE);
  setenv("TIDE_DEBUG", "trace=/dev/full", 1);
  ck_assert_int_eq(tide_init(&before), TIDE_OK);
  tide_options_read(&after);
  ck_assert_str_eq(after.trace, TRACE);
  ck_assert_str_eq(before.trace, TRACE);
  ck_assert_int_eq(tide_init(&before), TIDE_OK);
}
END_TEST

// ---- Initialisation -------------------------------------------------------------------------

START_TEST(options_are_the_same_before_and_after_init) {
  setenv("TIDE_GCPERCENT", "70", 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_int_eq(before.gc_percent, 70);
  init_with(OPTIONS(o.procs = 3));
  tide_options_read(&after);
  ck_assert_int_eq(after.procs, 3);
  after.procs = before.procs;
  ck_assert_mem_eq(&before, &after, sizeof before);
}
END_TEST

START_TEST(options_act) {
  init_with(OPTIONS(o.procs = 7, o.gc_percent = 300, o.min_heap_bytes = 50 << 20, o.stress = 2));
  ck_assert_int_eq(tide_procs(), 7);
  tide_memstats stats = read_stats();
  ck_assert_int_eq(stats.gc_percent, 300);
  ck_assert_uint_eq(stats.next_gc, 50 * MIB);
  for (int i = 0; i < 10; i++) ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_uint_eq(read_stats().num_gc, 5);
}
END_TEST

START_TEST(init_may_be_repeated) {
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(tide_init(&all_unset), TIDE_OK);
  tide_options in_force;
  tide_options_read(&in_force);
  ck_assert_int_eq(tide_init(&in_force), TIDE_OK);
}
END_TEST

START_TEST(init_with_another_value_is_refused_and_changes_nothing) {
  init_with(OPTIONS(o.gc_percent = 50, o.procs = 3));
  const option *o = &known[_i];
  tide_options asked = all_unset, before, after;
  tide_options_read(&before);
  int64_t in_force = *field_of(&before, o);
  *field_of(&asked, o) = in_force < INT64_MAX ? in_force + 1 : in_force - 1;
  ck_assert_int_eq(tide_init(&asked), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), o->field);
  tide_options_read(&after);
  ck_assert_mem_eq(&before, &after, sizeof before);
  ck_assert_ptr_nonnull(tide_alloc(16));
}
END_TEST

START_TEST(init_may_be_repeated_with_any_negative_percent) {
  init_with(OPTIONS(o.gc_percent = -5));
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = -1)), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = -5)), TIDE_OK);
}
END_TEST

// ---- Limits that are `auto` -----------------------------------------------------------------

START_TEST(auto_is_nine_tenths_of_what_is_allowed) {
  static const struct {
    uint64_t allowed;
    int64_t limit;
  } cases[] = {
      {UINT64_MAX, INT64_MAX},
      {0, 0},
      {1, 0},
      {9, 8},
      {10, 9},
      {19, 17},
      {20, 18},
      {1 << 30, 966367641},
      {(uint64_t)1 << 62, 4150517416584649113},
      {UINT64_MAX / 2, 8301034833169298226},
      {UINT64_MAX - 1, INT64_MAX},
  };
  for (size_t i = 0; i < LENGTH(cases); i++)
    ck_assert_int_eq(rt_limit_for(cases[i].allowed), cases[i].limit);
}
END_TEST

START_TEST(auto_becomes_a_number_and_may_be_asked_for_again) {
  if (_i) setenv("TIDE_MEMLIMIT", "auto", 1);
  tide_options before, after;
  tide_options_read(&before);
  ck_assert_int_eq(before.memory_limit, _i ? TIDE_LIMIT_AUTO : INT64_MAX);
  if (_i)
    ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  else
    init_with(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO));
  tide_options_read(&after);
  ck_assert_int_eq(after.memory_limit, rt_limit_for(os_cgroup_memory_bytes("")));
  ck_assert_int_eq(init_again(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO)), TIDE_OK);
  ck_assert_int_eq(tide_init(&after), TIDE_OK);
  after.memory_limit--;
  ck_assert_int_eq(tide_init(&after), TIDE_ERR_STATE);
  assert_contains(tide_error_message(), "memory_limit");
}
END_TEST

START_TEST(auto_is_not_the_number_that_was_asked_for) {
  init_with(OPTIONS(o.memory_limit = rt_limit_for(os_cgroup_memory_bytes(""))));
  ck_assert_int_eq(init_again(OPTIONS(o.memory_limit = TIDE_LIMIT_AUTO)), TIDE_ERR_STATE);
}
END_TEST

START_TEST(init_after_the_first_allocation_is_a_repeated_one) {
  ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_int_eq(tide_init(NULL), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = 100)), TIDE_OK);
  ck_assert_int_eq(init_again(OPTIONS(o.gc_percent = 99)), TIDE_ERR_STATE);
}
END_TEST

START_TEST(init_with_a_bad_option_runs_with_the_default) {
  setenv("TIDE_GCPERCENT", "often", 1);
  ck_assert_int_eq(tide_init(NULL), TIDE_ERR_OPTION);
  assert_contains(tide_error_message(), "often");
  ck_assert_int_eq(read_stats().gc_percent, 100);
  ck_assert_ptr_nonnull(tide_alloc(16));
  ck_assert_int_eq(tide_init(NULL), TIDE_OK); // it has been said
}
END_TEST

static void init_badly(void *arg) {
  setenv("TIDE_GCPERCENT", "often", 1);
  tide_init(NULL);
  tide_collect();
}

START_TEST(init_says_nothing_on_stderr) {
  child c;
  in_child(&c, 20, init_badly, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

static void *touch(void *arg) {
  return tide_alloc(16);
}
static void do_nothing(const tide_cycle *cycle, void *arg) {}

static void first_use(void *arg) {
  switch (*(int *)arg) {
  case 0:
    ck_assert_ptr_nonnull(tide_alloc(16));
    break;
  case 1:
    tide_collect();
    break;
  case 2:
    ck_assert_int_eq(tide_thread_register(), TIDE_OK);
    break;
  case 3:
    ck_assert_int_eq(tide_roots_add(&all_unset, &all_unset), TIDE_OK);
    break;
  case 4:
    ck_assert_int_eq(read_stats().num_gc, 0);
    break;
  case 5:
    ck_assert_ptr_nonnull(tide_hook_add(TIDE_CYCLE_END, do_nothing, NULL));
    break;
  case 6: {
    pthread_t thread;
    ck_assert_int_eq(tide_thread_create(&thread, NULL, touch, NULL), 0);
    pthread_join(thread, NULL);
    break;
  }
  }
  ck_assert_ptr_nonnull(tide_alloc(100));
  ck_assert_int_eq(read_stats().gc_percent, 100);
}

START_TEST(use_without_init_reports_a_bad_value_once_and_goes_on) {
  setenv("TIDE_GCPERCENT", "\033often", 1);
  child c;
  in_child(&c, 20, first_use, &_i);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  assert_contains(c.errors, "tidepool: TIDE_GCPERCENT='?often'");
  assert_contains(c.errors, "using 100\n");
}
END_TEST

START_TEST(use_without_init_says_nothing_when_all_is_well) {
  child c;
  in_child(&c, 20, first_use, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

// ---- Many at once ---------------------------------------------------------------------------

enum { THREADS = 16 };
static pthread_barrier_t at_once;
static tide_status statuses[THREADS];

static void *init_at_once(void *arg) {
  tide_status *status = arg;
  pthread_barrier_wait(&at_once);
  *status = tide_init(NULL);
  ck_assert_ptr_nonnull(rt_self());
  ck_assert_ptr_nonnull(tide_alloc(16));
  return NULL;
}

static void *allocate_at_once(void *arg) {
  pthread_barrier_wait(&at_once);
  ck_assert_ptr_nonnull(tide_alloc(16));
  return NULL;
}

static void run_at_once(void *(*fn)(void *)) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&at_once, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, &statuses[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

START_TEST(init_from_many_threads_at_once) {
  run_at_once(init_at_once);
  for (int i = 0; i < THREADS; i++) ck_assert_int_eq(statuses[i], TIDE_OK);
  tide_collect();
  ck_assert_uint_eq(read_stats().num_gc, 1);
}
END_TEST

START_TEST(bad_value_is_told_to_just_one_of_many) {
  setenv("TIDE_PROCS", "many", 1);
  run_at_once(init_at_once);
  int told = 0;
  for (int i = 0; i < THREADS; i++) told += statuses[i] == TIDE_ERR_OPTION;
  ck_assert_int_eq(told, 1);
}
END_TEST

static void allocate_from_many(void *arg) {
  setenv("TIDE_PROCS", "many", 1);
  run_at_once(allocate_at_once);
}

START_TEST(bad_value_is_reported_once_for_many_first_allocations) {
  child c;
  in_child(&c, 20, allocate_from_many, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
}
END_TEST

// ---- Messages -------------------------------------------------------------------------------

START_TEST(status_strings_are_there_and_differ) {
  for (int i = -1; i <= TIDE_ERR_SYSTEM + 1; i++) {
    const char *name = tide_status_string((tide_status)i);
    ck_assert_ptr_nonnull(name);
    ck_assert_uint_gt(strlen(name), 0);
    for (int k = 0; k < i; k++) ck_assert_str_ne(name, tide_status_string((tide_status)k));
  }
  ck_assert_int_eq(TIDE_OK, 0);
  ck_assert_str_eq(tide_status_string((tide_status)-1), tide_status_string((tide_status)1000));
}
END_TEST

START_TEST(cause_strings_are_there_and_differ) {
  for (int i = 0; i <= TIDE_CAUSES; i++) {
    const char *name = tide_cause_string((tide_cause)i);
    ck_assert_uint_gt(strlen(name), 0);
    for (int k = 0; k < i; k++) ck_assert_str_ne(name, tide_cause_string((tide_cause)k));
  }
  ck_assert_ptr_nonnull(tide_cause_string((tide_cause)-1));
}
END_TEST

static void *fail_elsewhere(void *arg) {
  ck_assert_str_eq(tide_error_message(), "");
  ck_assert_int_eq(tide_gc_enable(), TIDE_ERR_STATE);
  return NULL;
}

START_TEST(error_messages_belong_to_threads) {
  ck_assert_str_eq(tide_error_message(), "");
  init_with(all_unset);
  ck_assert_str_eq(tide_error_message(), "");
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, fail_elsewhere, NULL), 0);
  pthread_join(thread, NULL);
  ck_assert_str_eq(tide_error_message(), "");
  ck_assert_int_eq(tide_roots_remove(&thread, &thread), TIDE_ERR_ARGUMENT);
  ck_assert_uint_gt(strlen(tide_error_message()), 0);
}
END_TEST

// ---- gctrace --------------------------------------------------------------------------------

static void *volatile sink;
static void make_garbage(size_t bytes) {
  for (size_t done = 0; done < bytes; done += 1024) sink = tide_alloc_leaf(1024);
}

static void collect_for_three_reasons(void *arg) {
  init_with(OPTIONS(o.gctrace = 1));
  tide_collect();
  while (read_stats().num_gc < 2) make_garbage(4096);
  tide_gc_percent_set(-1);
  tide_collect_and_release();
  ck_assert_uint_eq(read_stats().num_gc, 3);
}

#define NUMBER "[0-9]+\\.[0-9]"
static const char line_form[] =
    "^tidepool: gc ([0-9]+) @" NUMBER "{6}s " NUMBER "%: " NUMBER "{3}\\+" NUMBER "{3}\\+" NUMBER
    "{3}\\+" NUMBER "{3} ms, sweep " NUMBER "{3} ms, " NUMBER "->" NUMBER " MB, (" NUMBER
    " MB|no) goal, " NUMBER "{2} MB stacks, " NUMBER "{2} MB globals, " NUMBER
    "{2} MB external, " NUMBER " MB total, (" NUMBER " MB|no) limit, [0-9]+ markers, [0-9]+ P(, "
    "limiter)?(, disabled [0-9]+)? \\((goal|limit|time|forced|memory|stress)\\)$";

// Each line has the form, the numbers count from 1, and the causes are these.
static void assert_trace(char *text, const char *const *causes, size_t expected) {
  regex_t form;
  ck_assert_int_eq(regcomp(&form, line_form, REG_EXTENDED), 0);
  size_t lines = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
    regmatch_t groups[7];
    ck_assert_msg(regexec(&form, line, 7, groups, 0) == 0, "not of the form: %s", line);
    ck_assert_uint_lt(lines, expected);
    ck_assert_uint_eq(strtoul(line + groups[1].rm_so, NULL, 10), lines + 1);
    line[groups[6].rm_eo] = 0;
    ck_assert_str_eq(line + groups[6].rm_so, causes[lines]);
  }
  ck_assert_uint_eq(lines, expected);
  regfree(&form);
}

START_TEST(gctrace_prints_one_line_for_each_collection) {
  child c;
  in_child(&c, 20, collect_for_three_reasons, NULL);
  assert_ended_well(&c);
  ck_assert_ptr_nonnull(strstr(c.errors, "no goal, ")); // the last one ran with percent off
  assert_trace(c.errors, (const char *const[]){"forced", "goal", "forced"}, 3);
}
END_TEST

static void collect_under_stress(void *arg) {
  init_with(OPTIONS(o.gctrace = 1, o.stress = 3));
  for (int i = 0; i < 9; i++) sink = tide_alloc(32);
}

START_TEST(gctrace_names_stress) {
  child c;
  in_child(&c, 20, collect_under_stress, NULL);
  assert_ended_well(&c);
  assert_trace(c.errors, (const char *const[]){"stress", "stress", "stress"}, 3);
}
END_TEST

static void collect_without_trace(void *arg) {
  init_with(OPTIONS(o.verify = 1));
  make_garbage(16 * MIB);
  tide_collect();
}

START_TEST(nothing_is_printed_without_gctrace) {
  child c;
  in_child(&c, 20, collect_without_trace, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

int main(void) {
  clear_environment();
  Suite *suite = suite_create("options");
  TCase *values = tcase_create("values");
  tcase_set_timeout(values, 20);
  tcase_add_test(values, defaults_are_the_documented_ones);
  tcase_add_loop_test(values, unset_fields_leave_it_to_the_environment, 0, LENGTH(known));
  tcase_add_loop_test(values, program_wins_over_environment, 0, LENGTH(known));
  tcase_add_loop_test(values, bounds_themselves_are_accepted_from_both, 0, LENGTH(known));
  tcase_add_loop_test(values, good_values_of_the_environment, 0, LENGTH(good));
  tcase_add_loop_test(values, bad_values_are_named_and_the_default_serves, 0, LENGTH(bad));
  tcase_add_test(values, message_says_what_is_accepted);
  tcase_add_test(values, message_says_which_limit_is_used);
  tcase_add_loop_test(values, hostile_values_are_tamed_in_the_message, 0, 3);
  tcase_add_loop_test(values, bad_values_of_the_program_are_named_by_field, 0, LENGTH(known));
  tcase_add_test(values, bad_value_of_the_program_falls_back_to_the_environment);
  tcase_add_test(values, message_about_the_environment_knows_what_the_program_set);
  tcase_add_test(values, two_bad_values_are_both_named);
  tcase_add_test(values, every_option_bad_at_once_gives_one_bounded_line);
  tcase_add_loop_test(values, debug_list_forms, 0, LENGTH(lists));
  tcase_add_test(values, unknown_name_in_the_debug_list_is_told_the_known_ones);
  tcase_add_test(values, bad_value_after_a_good_one_says_which_is_used);
  tcase_add_test(values, texts_of_the_environment);
  tcase_add_test(values, text_in_the_environment_ends_at_a_comma);
  tcase_add_loop_test(values, bad_texts_of_the_environment_are_named_and_none_serves, 0, 4);
  tcase_add_test(values, text_without_an_equals_sign_is_none);
  tcase_add_test(values, text_of_the_program_wins_and_is_copied);
  tcase_add_loop_test(values, bad_text_of_the_program_falls_back_to_the_environment, 0, 2);
  suite_add_tcase(suite, values);
  TCase *init = tcase_create("initialisation");
  tcase_set_timeout(init, 40);
  tcase_add_test(init, options_are_the_same_before_and_after_init);
  tcase_add_test(init, options_act);
  tcase_add_test(init, init_may_be_repeated);
  tcase_add_loop_test(init, init_with_another_value_is_refused_and_changes_nothing, 0,
                      LENGTH(known));
  tcase_add_test(init, init_may_be_repeated_with_any_negative_percent);
  tcase_add_test(init, auto_is_nine_tenths_of_what_is_allowed);
  tcase_add_loop_test(init, auto_becomes_a_number_and_may_be_asked_for_again, 0, 2);
  tcase_add_test(init, auto_is_not_the_number_that_was_asked_for);
  tcase_add_test(init, text_in_force_is_not_the_programs_and_is_compared_by_what_it_says);
  tcase_add_test(init, text_cannot_be_asked_for_when_there_is_none_in_force);
  tcase_add_test(init, options_read_before_init_may_be_passed_to_it);
  tcase_add_test(init, init_after_the_first_allocation_is_a_repeated_one);
  tcase_add_test(init, init_with_a_bad_option_runs_with_the_default);
  tcase_add_test(init, init_says_nothing_on_stderr);
  tcase_add_loop_test(init, use_without_init_reports_a_bad_value_once_and_goes_on, 0, 7);
  tcase_add_loop_test(init, use_without_init_says_nothing_when_all_is_well, 0, 7);
  tcase_add_test(init, init_from_many_threads_at_once);
  tcase_add_test(init, bad_value_is_told_to_just_one_of_many);
  tcase_add_test(init, bad_value_is_reported_once_for_many_first_allocations);
  suite_add_tcase(suite, init);
  TCase *messages = tcase_create("messages");
  tcase_set_timeout(messages, 40);
  tcase_add_test(messages, status_strings_are_there_and_differ);
  tcase_add_test(messages, cause_strings_are_there_and_differ);
  tcase_add_test(messages, error_messages_belong_to_threads);
  tcase_add_test(messages, gctrace_prints_one_line_for_each_collection);
  tcase_add_test(messages, gctrace_names_stress);
  tcase_add_test(messages, nothing_is_printed_without_gctrace);
  suite_add_tcase(suite, messages);
  return run_suite(suite);
}
