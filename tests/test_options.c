// SPDX-License-Identifier: MIT
// Options: where values come from, which are accepted, what is said about the others.
#include "options_testing.h"

#include "rt_private.h"

#include <limits.h>

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

static tide_status resolve(tide_options asked, tide_options *resolved) {
  return rt_options_resolve(&asked, resolved);
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

// ---------------------------------------------------------------------------------------------

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
  return run_suite(suite);
}
