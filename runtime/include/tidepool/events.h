// SPDX-License-Identifier: MIT
// What the library does, as it does it: events, for listeners in the program, for a trace file that
// Perfetto and chrome://tracing open, and as USDT probes for bpftrace, perf and gdb.
//
// The table below is the only list of them. While nobody listens and nothing is traced, an event
// costs one load. Each thread records into a ring of its own, without locks; the thread that has
// just collected empties the rings once the world runs again.
#ifndef TIDEPOOL_EVENTS_H
#define TIDEPOOL_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <tidepool/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

// X(NAME, name, form, a, b, help)
// NAME makes TIDE_EVENT_NAME. A SPAN has a beginning and a duration, an INSTANT is a moment, a
// COUNTER says that its numbers have these values from now on. a and b name the event's two
// numbers; "": there is none.
#define TIDE_EVENT_TABLE(X)                                                                        \
  X(CYCLE, cycle, SPAN, "number", "cause",                                                         \
    "a collection, from its decision until the threads run again")                                 \
  X(SWEEP_REST, sweep_rest, SPAN, "number", "",                                                    \
    "sweeping what was left of the collection before, ahead of the stop")                          \
  X(STOP, stop, SPAN, "number", "threads", "stopping the other threads")                           \
  X(HOOKS, hooks, SPAN, "number", "", "hooks at `TIDE_STW_START`")                                 \
  X(MARK, mark, SPAN, "live_bytes", "live_objects", "scanning roots and marking")                  \
  X(MARKER, marker, SPAN, "number", "",                                                            \
    "one marker thread's share of marking, the collecting thread's not counted")                   \
  X(FINISH, finish, SPAN, "number", "", "hooks at `TIDE_MARK_DONE`, the next goal, restart")       \
  X(SWEEP, sweep, SPAN, "blocks", "", "sweeping on the way of an allocation")                      \
  X(RELEASE, release, SPAN, "bytes", "", "memory given back to the system")                        \
  X(HEAP, heap, COUNTER, "heap_bytes", "goal_bytes", "the heap's size, and its goal")              \
  X(MEMORY, memory, COUNTER, "total_bytes", "limit_bytes",                                         \
    "everything mapped plus external bytes, and the soft limit")                                   \
  X(EXTERNAL, external, COUNTER, "external_bytes", "", "bytes outside the heap that are counted")  \
  X(LIMITER_BEGIN, limiter_begin, INSTANT, "total_bytes", "limit_bytes",                           \
    "collections take too much time: the soft limit is exceeded from now on")                      \
  X(LIMITER_END, limiter_end, INSTANT, "total_bytes", "limit_bytes", "the soft limit holds again") \
  X(OUT_OF_MEMORY, out_of_memory, INSTANT, "bytes", "", "an allocation of so many bytes failed")   \
  X(ROTATE, rotate, INSTANT, "rotations", "",                                                      \
    "an object cache rotated by a hook, for the nth time; its name is the label")                  \
  X(THREAD_START, thread_start, INSTANT, "", "", "the thread registered")                          \
  X(THREAD_END, thread_end, INSTANT, "", "", "the thread unregistered")

typedef enum tide_event_kind {
#define TIDE_EVENT_KIND(NAME, name, form, a, b, help) TIDE_EVENT_##NAME,
  TIDE_EVENT_TABLE(TIDE_EVENT_KIND)
#undef TIDE_EVENT_KIND
      TIDE_EVENTS
} tide_event_kind;

typedef enum tide_event_form {
  TIDE_EVENT_SPAN,
  TIDE_EVENT_INSTANT,
  TIDE_EVENT_COUNTER,
} tide_event_form;

// A number of a counter that has no value: no goal, no limit. Left out of the trace.
#define TIDE_EVENT_NONE UINT64_MAX

typedef struct tide_event {
  tide_event_kind kind;
  uint32_t thread;      // whose it is: the kernel's thread id
  uint64_t at_ns;       // CLOCK_MONOTONIC; a span's beginning
  uint64_t duration_ns; // of a span; 0 otherwise
  uint64_t a, b;        // as the table names them
  char label[24];       // "" for most; cut to fit, always terminated
} tide_event;

// What the table says of a kind. Static storage.
typedef struct tide_event_info {
  const char *name;
  tide_event_form form;
  const char *a, *b; // "": unused
  const char *help;
} tide_event_info;

TIDE_API const tide_event_info *tide_event_describe(tide_event_kind kind); // NULL: no such kind
TIDE_API const char *tide_event_name(tide_event_kind kind);                // never NULL

// ---- Listeners ------------------------------------------------------------------------------

typedef struct tide_event_listener tide_event_listener;

// Has fn(event, arg) called for every event that ends from now on. Calls come one at a time, while
// the world runs, on whatever thread empties the rings: usually one that has just collected, after
// the fact. *event is valid during the call. Events of one thread come in the order in which they
// were recorded, that is, a span when it has ended; of several threads, in the order of their ends
// as far as they are known by then.
//
// fn may use the heap, collect, print, fork, and add and remove listeners. Events that come up
// meanwhile are delivered later, never inside a call. fn must return, and must not take a lock that
// the program holds around calls of this library. arg is not a root. NULL: no function, no memory,
// or not allowed here.
TIDE_API tide_event_listener *
tide_event_listener_add(void (*fn)(const tide_event *event, void *arg), void *arg);

// When it returns, fn is not running and will not be called again; from fn's own call, when that
// call returns. What has not been delivered to fn by then is not. NULL is ignored.
TIDE_API void tide_event_listener_remove(tide_event_listener *listener);

// Events that were lost because a thread's ring was full, or there was no memory for one. Never
// waits, and is allowed everywhere.
TIDE_API uint64_t tide_events_lost(void);

// ---- The trace file -------------------------------------------------------------------------

// Writes every event that ends from now on to a file in Chrome's trace event format; `%p` in path
// becomes the process's id. The file is whole, closed JSON each time it has been written to, at
// least once for each collection; what is waiting at the program's exit is written then. A child
// made by fork does not trace. When the file cannot be written to any more, a line on stderr says
// so, the file is cut back to where it was whole, and the program goes on without a trace.
// TIDE_ERR_SYSTEM: the file cannot be made, or cannot be written to; TIDE_ERR_STATE: one is being
// written already, or the call is not allowed here; TIDE_ERR_ARGUMENT: no path, or one too long.
TIDE_API tide_status tide_trace_start(const char *path);

// Delivers what is waiting, also to the listeners, and closes the file. In a listener it only
// closes the file. TIDE_ERR_STATE when nothing is traced; TIDE_ERR_SYSTEM when the last of it could
// not be written.
TIDE_API tide_status tide_trace_stop(void);

#ifdef __cplusplus
}
#endif
#endif
