// SPDX-License-Identifier: MIT
// The trace file: what is in it; that it is whole JSON whenever somebody looks, also after the end
// of the program, however it came; and files that cannot be written.
#define _GNU_SOURCE
#include "events_testing.h"

#include "json_testing.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

// ---- The trace file -------------------------------------------------------------------------

static char directory[] = "/tmp/tide-events-XXXXXX", path[64];
static char text[8 << 20];
static size_t text_bytes;

static void make_directory(void) {
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/trace.json", directory);
}

static void remove_directory(void) {
  unlink(path);
  rmdir(directory);
}

static void read_file(const char *name) {
  FILE *file = fopen(name, "re");
  ck_assert_ptr_nonnull(file);
  text_bytes = fread(text, 1, sizeof text - 1, file);
  text[text_bytes] = 0;
  fclose(file);
}

static size_t count_text(const char *part) {
  size_t count = 0, length = strlen(part);
  // Not strstr, which measures the rest of the text each time under AddressSanitizer.
  for (const char *at = text; (at = strchr(at, '"')); at++) count += !strncmp(at, part, length);
  return count;
}

// The file is whole, and this is how many events of the library it has.
static size_t events_in(const char *name) {
  read_file(name);
  if (!is_json(text, text_bytes)) ck_abort_msg("no JSON: %.2000s", text);
  return count_text("\"cat\":\"tidepool\"");
}

static void begin_trace(void) {
  init_with(OPTIONS(o.gc_percent = -1));
  tide_status status = tide_trace_start(path);
  ck_assert_msg(status == TIDE_OK, "%s", tide_error_message());
}

#define ck_assert_has(part)                                                                        \
  do {                                                                                             \
    if (!strstr(text, part)) ck_abort_msg("%s is not in: %.4000s", part, text);                    \
  } while (0)

START_TEST(the_checker_is_strict) {
  static const char *const good[] = {"[]", "{}", " [1, -0.5e+3, \"\\u00e9\\n\\\"\"] ",
                                     "{\"a\":{\"b\":[true,false,null]}}",
                                     "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""};
  static const char *const bad[] = {"",
                                    "[",
                                    "[1,]",
                                    "[1 2]",
                                    "{\"a\"}",
                                    "{a:1}",
                                    "01",
                                    "[1.]",
                                    "\"\\x\"",
                                    "\"\n\"",
                                    "[1]x",
                                    "\"\x80\"",
                                    "\"\xc0\x80\"",
                                    "\"\xed\xa0\x80\"",
                                    "\"\xf5\x80\x80\x80\"",
                                    "\"\xe2\x82\"",
                                    "\"open",
                                    "nul",
                                    "\"\\u12g4\"",
                                    "-",
                                    "[1],"};
  for (size_t i = 0; i < LENGTH(good); i++)
    ck_assert_msg(is_json(good[i], strlen(good[i])), "%s", good[i]);
  for (size_t i = 0; i < LENGTH(bad); i++)
    ck_assert_msg(!is_json(bad[i], strlen(bad[i])), "%s", bad[i]);
}
END_TEST

START_TEST(the_three_forms) {
  begin_trace();
  ck_assert_uint_eq(events_in(path), 0);
  uint64_t at = os_now_ns(), ts = at - rt_started_at_ns();
  rt_event(TIDE_EVENT_CYCLE, at, 1234567, 3, TIDE_CAUSE_FORCED);
  rt_event(TIDE_EVENT_STOP, at, 7, 3, 2);
  rt_event(TIDE_EVENT_HEAP, at, 0, 4096, TIDE_EVENT_NONE);
  rt_event(TIDE_EVENT_MEMORY, at, 0, TIDE_EVENT_NONE - 1, 5);
  rt_event_labelled(TIDE_EVENT_ROTATE, at, 0, 1, 0, "lines");
  rt_event(TIDE_EVENT_THREAD_END, at, 0, 0, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 6);
  char part[256], common[64];
  snprintf(common, sizeof common, "\"ts\":%llu.%03u", (unsigned long long)(ts / 1000),
           (unsigned)(ts % 1000));
  snprintf(part, sizeof part,
           "{\"name\":\"cycle\",\"cat\":\"tidepool\",\"ph\":\"X\",%s,\"dur\":1234.567,"
           "\"pid\":%d,\"tid\":%d,\"args\":{\"number\":3,\"cause\":\"forced\"}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("\"dur\":0.007,");
  ck_assert_has("{\"number\":3,\"threads\":2}}");
  snprintf(part, sizeof part,
           "{\"name\":\"heap\",\"cat\":\"tidepool\",\"ph\":\"C\",%s,\"pid\":%d,\"tid\":%d,"
           "\"args\":{\"heap_bytes\":4096}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("{\"total_bytes\":18446744073709551614,\"limit_bytes\":5}}");
  snprintf(part, sizeof part,
           "{\"name\":\"rotate\",\"cat\":\"tidepool\",\"ph\":\"i\",%s,\"s\":\"t\",\"pid\":%d,"
           "\"tid\":%d,\"args\":{\"rotations\":1,\"label\":\"lines\"}}",
           common, getpid(), gettid());
  ck_assert_has(part);
  ck_assert_has("\"args\":{}}");
  snprintf(part, sizeof part, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,", getpid());
  ck_assert_has(part);
  ck_assert_uint_eq(count_text("\"thread_name\""), 1);
}
END_TEST

START_TEST(what_was_before_is_not_in_it) {
  start();
  emit(1, 0);
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK);
  emit(2, 0);
  rt_events_drain();
  ck_assert_uint_eq(events_in(path), 1);
  ck_assert_uint_eq(all.count, 2);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  emit(3, 0);
  rt_events_drain();
  ck_assert_uint_eq(all.count, 3);
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK); // anew
  emit(4, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 1);
  ck_assert_has("{\"rotations\":4}");
  ck_assert_uint_eq(all.count, 4); // stopping delivers to the listeners too
}
END_TEST

// Labels of any bytes; more than the buffer holds; looked at after each delivery.
START_TEST(whole_at_every_moment) {
  begin_trace();
  uint64_t random = test_seed();
  size_t emitted = 0;
  for (int round = 0; round < 60; round++) {
    size_t count = random_below(&random, round % 20 ? 60 : 2000);
    for (size_t i = 0; i < count; i++) {
      char label[32];
      for (size_t k = 0; k < sizeof label; k++) label[k] = (char)next_random(&random);
      label[random_below(&random, sizeof label)] = 0;
      tide_event_kind kind = (tide_event_kind)random_below(&random, TIDE_EVENTS);
      rt_event_labelled(kind, os_now_ns(), 0, next_random(&random), next_random(&random), label);
    }
    emitted += count;
    rt_events_drain();
    ck_assert_uint_eq(events_in(path), emitted);
  }
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), emitted);
}
END_TEST

static void *emit_with_a_name(void *name) {
  prctl(PR_SET_NAME, name);
  emit(1, 0);
  rt_events_drain();
  rt_events_leave();
  return NULL;
}

START_TEST(names_are_escaped) {
  begin_trace();
  static char names[][16] = {"q\"b\\s/\t\x01", "\xff\xc3", "caf\xc3\xa9 \xe2\x82\xac", "x\xe2\x82"};
  for (size_t i = 0; i < LENGTH(names); i++) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, emit_with_a_name, names[i]), 0);
    pthread_join(thread, NULL);
  }
  rt_event_labelled(TIDE_EVENT_ROTATE, os_now_ns(), 0, 1, 0, "12345678901234567890 \xe2\x82\xac");
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  events_in(path);
  ck_assert_has("{\"name\":\"q\\\"b\\\\s/\\u0009\\u0001\"}");
  ck_assert_has("{\"name\":\"\\ufffd\\ufffd\"}");
  ck_assert_has("{\"name\":\"caf\xc3\xa9 \xe2\x82\xac\"}");
  ck_assert_has("{\"name\":\"x\\ufffd\\ufffd\"}");
  ck_assert_has("\"label\":\"12345678901234567890 \\ufffd\\ufffd\"");
}
END_TEST

// ---- The end of the program -----------------------------------------------------------------

static void emit_a_few(void) {
  if (tide_trace_start(path) != TIDE_OK) _exit(9);
  emit(1, 0);
  emit(2, 0);
}

static void leave_by_exit(void *arg) {
  emit_a_few();
  exit(0);
}
// The thread unregisters: an event more.
static void leave_by_main_thread(void *arg) {
  emit_a_few();
  pthread_exit(NULL);
}
static void leave_by_underscore_exit(void *arg) {
  emit_a_few();
  rt_events_drain();
  emit(3, 0); // is not in the file
  _exit(0);
}
static void leave_by_signal(void *arg) {
  emit_a_few();
  rt_events_drain();
  emit(3, 0);
  raise(SIGKILL);
}
static void exit_at_once(const tide_event *event, void *arg) {
  emit(3, 0);
  exit(0);
}
static void leave_from_a_listener(void *arg) {
  if (tide_trace_start(path) != TIDE_OK) _exit(9);
  listen(exit_at_once, NULL);
  emit(1, 0);
  emit(2, 0);
  rt_events_drain();
}
static void *drain(void *arg) {
  rt_events_drain();
  return NULL;
}
// Somebody else sits in a listener for ever.
static void leave_while_events_are_held(void *arg) {
  emit_a_few();
  listen(hold, NULL);
  emit(3, 0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, drain, NULL)) _exit(8);
  wait_until(&entered);
  emit(4, 0); // is not in the file
  exit(0);
}

static const struct leaving {
  void (*leave)(void *);
  int signal;
  size_t events;
} leavings[] = {
    {leave_by_exit, 0, 2},
    {leave_by_underscore_exit, 0, 2},
    {leave_by_signal, SIGKILL, 2},
    {leave_from_a_listener, 0, 3},
    {leave_while_events_are_held, 0, 3},
    {leave_by_main_thread, 0, 3}, // the last: not under ThreadSanitizer
};

START_TEST(whole_after_the_end) {
  child c;
  in_child(&c, 20, leavings[_i].leave, NULL);
  if (leavings[_i].signal)
    ck_assert(WIFSIGNALED(c.status) && WTERMSIG(c.status) == leavings[_i].signal);
  else
    assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
  ck_assert_uint_eq(events_in(path), leavings[_i].events);
}
END_TEST

static void stop_tracing(const tide_event *event, void *arg) {
  calls++;
  if (calls == 1) ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
}

START_TEST(stopped_by_a_listener) {
  begin_trace();
  listen(stop_tracing, NULL);
  for (uint64_t i = 0; i < 10; i++) emit(i, 0);
  rt_events_drain();
  ck_assert_int_eq(calls, 10);
  ck_assert_uint_eq(events_in(path), 10);
  ck_assert_int_eq(tide_trace_stop(), TIDE_ERR_STATE);
}
END_TEST

// ---- Files that cannot be written -----------------------------------------------------------

START_TEST(wrong_calls) {
  init_with(OPTIONS(o.gc_percent = -1));
  ck_assert_int_eq(tide_trace_stop(), TIDE_ERR_STATE);
  ck_assert_int_eq(tide_trace_start(NULL), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_trace_start(""), TIDE_ERR_ARGUMENT);
  static char longest[5000];
  memset(longest, 'x', sizeof longest - 1);
  ck_assert_int_eq(tide_trace_start(longest), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_trace_start("/no/such/directory/trace"), TIDE_ERR_SYSTEM);
  ck_assert_str_eq(tide_error_message(),
                   "trace file '/no/such/directory/trace': No such file or directory");
  ck_assert_int_eq(tide_trace_start("/dev/full"), TIDE_ERR_SYSTEM);
  ck_assert_str_eq(tide_error_message(),
                   "trace file '/dev/full': No space left on device; tracing stops");
  ck_assert(!rt_events_wanted());
  ck_assert_int_eq(tide_trace_start(path), TIDE_OK);
  ck_assert_int_eq(tide_trace_start(path), TIDE_ERR_STATE);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), path));
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
}
END_TEST

START_TEST(the_process_in_the_path) {
  init_with(OPTIONS(o.gc_percent = -1));
  char pattern[128], expected[128];
  snprintf(pattern, sizeof pattern, "%s/%%p-%%d%%p%%", directory);
  snprintf(expected, sizeof expected, "%s/%d-%%d%d%%", directory, getpid(), getpid());
  ck_assert_int_eq(tide_trace_start(pattern), TIDE_OK);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(expected), 0);
  unlink(expected);
}
END_TEST

static void trace_to_a_full_device(void *arg) {
  init_with(OPTIONS(o.gc_percent = -1));
  if (tide_trace_start("/dev/full") != TIDE_ERR_SYSTEM) _exit(2);
  fprintf(stderr, "%s\n", tide_error_message());
  emit(1, 0);
  rt_events_drain();
  tide_collect();
  if (rt_events_wanted()) _exit(1);
}

START_TEST(a_full_device) {
  child c;
  in_child(&c, 20, trace_to_a_full_device, NULL);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "trace file '/dev/full': No space left on device; tracing stops\n");
}
END_TEST

// The limit on a file's size stands for a disk that is full.
static void fill_the_disk(void *arg) {
  begin_trace();
  listen(remember, &all);
  struct rlimit limit = {3000, 3000};
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int i = 0; i < 100; i++) {
    emit((uint64_t)i, 0);
    rt_events_drain();
  }
  if (all.count != 100) _exit(1);
  if (tide_trace_stop() != TIDE_ERR_STATE) _exit(2);
}

START_TEST(the_disk_becomes_full) {
  child c;
  in_child(&c, 20, fill_the_disk, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, path));
  ck_assert_ptr_nonnull(strstr(c.errors, "File too large"));
  size_t events = events_in(path);
  ck_assert_uint_ge(events, 10);
  char last[64];
  snprintf(last, sizeof last, "{\"rotations\":%zu}", events - 1);
  ck_assert_has(last);
}
END_TEST

// As daemons do: the number becomes another file's, which must stay as it is.
static void close_all_files(void *arg) {
  begin_trace();
  emit(1, 0);
  rt_events_drain();
  for (int fd = STDERR_FILENO + 1; fd < 100; fd++) close(fd);
  char name[80];
  snprintf(name, sizeof name, "%s/other", directory);
  for (int fd = 0; fd < 90;) {
    fd = open(name, O_WRONLY | O_CREAT, 0600);
    MUST(fd >= 0);
  }
  emit(2, 0);
  rt_events_drain();
  emit(3, 0);
  rt_events_drain();
}

START_TEST(a_file_that_the_program_closed) {
  child c;
  in_child(&c, 20, close_all_files, NULL);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_uint_eq(events_in(path), 1);
  char name[80];
  struct stat status;
  snprintf(name, sizeof name, "%s/other", directory);
  ck_assert_int_eq(stat(name, &status), 0);
  ck_assert_int_eq(status.st_size, 0);
  unlink(name);
}
END_TEST

START_TEST(a_child_does_not_trace) {
  begin_trace();
  emit(1, 0);
  rt_events_drain();
  emit(2, 0);
  pid_t pid = fork();
  if (pid == 0) {
    if (rt_events_wanted()) _exit(1);
    emit(3, 0);
    rt_events_drain();
    if (tide_trace_stop() != TIDE_ERR_STATE) _exit(2);
    char own[80];
    snprintf(own, sizeof own, "%s/child-%%p", directory);
    if (tide_trace_start(own) != TIDE_OK) _exit(3);
    emit(4, 0);
    exit(0);
  }
  ck_assert_int_eq(child_result(pid, 20), 0);
  ck_assert_uint_eq(events_in(path), 1);
  char own[80];
  snprintf(own, sizeof own, "%s/child-%d", directory, (int)pid);
  ck_assert_uint_eq(events_in(own), 1);
  ck_assert_has("{\"rotations\":4}");
  unlink(own);
  emit(5, 0);
  ck_assert_int_eq(tide_trace_stop(), TIDE_OK);
  ck_assert_uint_eq(events_in(path), 3);
}
END_TEST

// ---------------------------------------------------------------------------------------------

static Suite *suite(void) {
  Suite *s = suite_create("trace");
  TCase *t = tcase_create("trace");
  limit_time(t, 60);
  tcase_add_checked_fixture(t, make_directory, remove_directory);
  tcase_add_test(t, the_checker_is_strict);
  tcase_add_test(t, the_three_forms);
  tcase_add_test(t, what_was_before_is_not_in_it);
  tcase_add_test(t, whole_at_every_moment);
  tcase_add_test(t, names_are_escaped);
  tcase_add_loop_test(t, whole_after_the_end, 0, LENGTH(leavings) - UNDER_TSAN);
  tcase_add_test(t, stopped_by_a_listener);
  tcase_add_test(t, wrong_calls);
  tcase_add_test(t, the_process_in_the_path);
  tcase_add_test(t, a_full_device);
  tcase_add_test(t, the_disk_becomes_full);
  tcase_add_test(t, a_file_that_the_program_closed);
  tcase_add_test(t, a_child_does_not_trace);
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  no_threads_of_the_library();
  return run_suite(suite());
}
