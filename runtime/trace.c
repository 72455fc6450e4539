// SPDX-License-Identifier: MIT
// The trace file: events in Chrome's trace event format, a JSON array.
//
// The file is whole at any moment between two writes. It ends with a closing bracket; what is
// written next begins where that stands, and brings a new one:
//
//   [\n{...},\n{...}\n]\n
//                   ^ end: the next write begins here, with ",\n{...}\n]\n"
//
// If a write fails, what it may have left is cut off, the bracket is put back, and tracing stops.
//
// Everything here belongs to whoever holds the events (events.c). Nothing uses malloc or stdio's
// files, as the program may leave from anywhere: what is waiting then is written by a destructor.
#define _GNU_SOURCE
#include "out_file.h"
#include "rt.h"
#include "rt_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  TEXT_BYTES = 64 << 10,
  ENTRY_BYTES = 2048, // more than an event with its thread's name takes
  NAMED = 1024,       // threads, by their ids
  COMM_BYTES = 64,
};
static const char closing[] = "\n]\n";
enum { CLOSING_BYTES = sizeof closing - 1 };

static int file = -1; // -1: nothing is traced
static off_t end;
static uint64_t since_ns; // what has ended before is not for this file

static struct pages {
  size_t used; // of text
  char text[TEXT_BYTES];
  out_file file;
  uint32_t named[NAMED]; // threads whose names are in the file; some are written again and again
} * pages;               // mapped: static data is scanned

// ---- Text -----------------------------------------------------------------------------------

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = TEXT_BYTES - pages->used;
  int wrote = vsnprintf(pages->text + pages->used, room, format, arguments);
  va_end(arguments);
  RT_CHECK(wrote >= 0 && (size_t)wrote < room); // ENTRY_BYTES are free before each entry
  pages->used += (size_t)wrote;
}

// Bytes of the well-formed UTF-8 character that s begins with; 0: it begins with none.
static size_t utf8_bytes(const unsigned char *s) {
  if (s[0] < 0x80) return 1;
  size_t bytes = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  for (size_t i = 1; i < bytes; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;     // the terminator too
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0; // could be shorter
  if (s[0] == 0xed && s[1] > 0x9f) return 0; // half of a pair of UTF-16
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0; // beyond the last character
  return bytes;
}

static void put_string(const char *string) {
  put("\"");
  for (const unsigned char *s = (const unsigned char *)string; *s;) {
    size_t bytes = utf8_bytes(s);
    if (!bytes)
      put("\\ufffd");
    else if (*s < 0x20 || *s == 0x7f)
      put("\\u%04x", *s);
    else if (*s == '"' || *s == '\\')
      put("\\%c", *s);
    else
      put("%.*s", (int)bytes, (const char *)s);
    s += bytes ? bytes : 1;
  }
  put("\"");
}

// Microseconds, exact to the nanosecond.
static void put_time(const char *name, uint64_t ns) {
  put(",\"%s\":%llu.%03u", name, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

// ---- Names of threads -----------------------------------------------------------------------

// What /proc says under path, without the newline; false: the thread is gone.
static bool read_comm(const char *path, char comm[COMM_BYTES]) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, comm, COMM_BYTES - 1);
  close(fd);
  if (length <= 0) return false;
  comm[length] = 0;
  comm[strcspn(comm, "\n")] = 0;
  return true;
}

static void put_name(const char *what, uint32_t thread, const char *name) {
  put("{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":", what,
      (int)getpid(), (unsigned)thread);
  put_string(name);
  put("}}");
}

static void put_process_name(void) {
  char comm[COMM_BYTES];
  if (!read_comm("/proc/self/comm", comm)) strcpy(comm, "process");
  put("[\n");
  put_name("process_name", (uint32_t)getpid(), comm);
}

// An id may have been another thread's before.
static void name_thread_once(const tide_event *event) {
  uint32_t *named = &pages->named[event->thread % NAMED];
  if (*named == event->thread && event->kind != TIDE_EVENT_THREAD_START) return;
  *named = event->thread;
  char path[64], comm[COMM_BYTES];
  snprintf(path, sizeof path, "/proc/self/task/%u/comm", (unsigned)event->thread);
  if (!read_comm(path, comm)) return;
  put(",\n");
  put_name("thread_name", event->thread, comm);
}

// ---- Events ---------------------------------------------------------------------------------

static void put_number(const tide_event *event, int which, const char *before) {
  const tide_event_info *info = tide_event_describe(event->kind);
  uint64_t value = which ? event->b : event->a;
  const char *text = rt_client_calls.event_text(event->kind, which, value);
  put("%s\"%s\":", before, which ? info->b : info->a);
  if (text)
    put_string(text);
  else
    put("%llu", (unsigned long long)value);
}

static void put_arguments(const tide_event *event) {
  const tide_event_info *info = tide_event_describe(event->kind);
  bool counter = info->form == TIDE_EVENT_COUNTER;
  const char *before = "";
  put(",\"args\":{");
  if (*info->a && !(counter && event->a == TIDE_EVENT_NONE)) {
    put_number(event, 0, before);
    before = ",";
  }
  if (*info->b && !(counter && event->b == TIDE_EVENT_NONE)) {
    put_number(event, 1, before);
    before = ",";
  }
  if (*event->label) {
    put("%s\"label\":", before);
    put_string(event->label);
  }
  put("}");
}

static void put_event(const tide_event *event) {
  static const char *const phases[] = {
      [TIDE_EVENT_SPAN] = "X", [TIDE_EVENT_INSTANT] = "i", [TIDE_EVENT_COUNTER] = "C"};
  const tide_event_info *info = tide_event_describe(event->kind);
  uint64_t started = rt_started_at_ns();
  put(",\n{\"name\":\"%s\",\"cat\":\"tidepool\",\"ph\":\"%s\"", info->name, phases[info->form]);
  put_time("ts", event->at_ns > started ? event->at_ns - started : 0);
  if (info->form == TIDE_EVENT_SPAN) put_time("dur", event->duration_ns);
  if (info->form == TIDE_EVENT_INSTANT) put(",\"s\":\"t\""); // of its thread
  put(",\"pid\":%d,\"tid\":%u", (int)getpid(), (unsigned)event->thread);
  put_arguments(event);
  put("}");
}

// ---- The file -------------------------------------------------------------------------------

static void stop_tracing(void) {
  file = -1;
  rt_events_unlisten();
}

// Sets errno when the text could not be written.
static bool write_text(void) {
  memcpy(pages->text + pages->used, closing, CLOSING_BYTES);
  size_t bytes = pages->used;
  pages->used = 0;
  if (!out_file_write(file, pages->text, bytes + CLOSING_BYTES, end)) return false;
  end += (off_t)bytes;
  return true;
}

// The bracket's bytes were in the file before: there is room for them.
static void cut_back(void) {
  if (end) out_file_write(file, closing, CLOSING_BYTES, end);
  if (ftruncate(file, end ? end + CLOSING_BYTES : 0) != 0) return; // a device, say
}

static void close_ours(void) {
  if (out_file_is_ours(file, &pages->file)) close(file);
}

static bool flush(void) {
  if (!pages->used) return true;
  bool ours = out_file_is_ours(file, &pages->file);
  if (ours && write_text()) return true;
  rt_error_set(TIDE_ERR_SYSTEM, "trace file '%.250s': %s; tracing stops", pages->file.path,
               strerror(errno));
  if (ours) {
    cut_back();
    close(file);
  }
  stop_tracing();
  return false;
}

void rt_trace_events(const tide_event *events, size_t count) {
  for (size_t i = 0; i < count && file >= 0; i++) {
    if (events[i].at_ns + events[i].duration_ns < since_ns) continue;
    name_thread_once(&events[i]);
    put_event(&events[i]);
    bool full = TEXT_BYTES - pages->used < ENTRY_BYTES;
    if (full && !flush()) rt_report("%s", tide_error_message());
  }
  if (file >= 0 && !flush()) rt_report("%s", tide_error_message());
}

// ---- Start and stop -------------------------------------------------------------------------

static tide_status begin_file(void) {
  file = out_file_open(&pages->file);
  if (file < 0)
    return rt_error_set(TIDE_ERR_SYSTEM, "trace file '%.250s': %s", pages->file.path,
                        strerror(errno));
  if (!rt_events_listen()) {
    close(file);
    file = -1;
    return rt_error_set(TIDE_ERR_MEMORY, "no memory for a trace");
  }
  end = 0;
  since_ns = os_now_ns();
  pages->used = 0; // of a trace that lost its file
  memset(pages->named, 0, sizeof pages->named);
  put_process_name();
  return flush() ? TIDE_OK : TIDE_ERR_SYSTEM;
}

static tide_status start_held(const char *path) {
  if (file >= 0)
    return rt_error_set(TIDE_ERR_STATE, "events are traced to '%.250s' already", pages->file.path);
  if (!pages) pages = os_map(sizeof *pages);
  if (!pages) return rt_error_set(TIDE_ERR_MEMORY, "no memory for a trace");
  if (!path || !out_file_name(&pages->file, path))
    return rt_error_set(TIDE_ERR_ARGUMENT, "the path of a trace file is empty or too long");
  return begin_file();
}

tide_status rt_trace_start(const char *path) {
  int cancellable = rt_cancel_disable();
  rt_events_hold();
  tide_status status = start_held(path);
  rt_events_give();
  rt_cancel_restore(cancellable);
  return status;
}

tide_status tide_trace_start(const char *path) {
  return rt_enter("tide_trace_start") ? rt_trace_start(path) : TIDE_ERR_STATE;
}

static tide_status stop_held(void) {
  if (file < 0) return rt_error_set(TIDE_ERR_STATE, "no events are traced");
  if (!rt_events_in_listener()) rt_events_deliver(true);
  if (file < 0) return TIDE_ERR_SYSTEM; // a write has failed; the message says how
  close_ours();
  stop_tracing();
  return TIDE_OK;
}

tide_status tide_trace_stop(void) {
  if (!rt_enter("tide_trace_stop")) return TIDE_ERR_STATE;
  int cancellable = rt_cancel_disable();
  rt_events_hold();
  tide_status status = stop_held();
  rt_events_give();
  rt_cancel_restore(cancellable);
  return status;
}

void rt_trace_after_fork(void) {
  if (file < 0) return;
  close_ours(); // it is the parent's
  stop_tracing();
}

// The exit may come from a listener, and other threads still run: one of them may hold the events
// for as long as it likes.
__attribute__((destructor)) static void finish(void) {
  enum { PATIENCE_NS = 1000000000 };
  if (!rt_initialised() || !rt_events_wanted() || !rt_events_hold_within(PATIENCE_NS)) return;
  if (file >= 0) {
    rt_events_deliver(false);
    if (file >= 0) close_ours();
    if (file >= 0) stop_tracing();
  }
  rt_events_give();
}
