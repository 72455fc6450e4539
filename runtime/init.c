// SPDX-License-Identifier: MIT
// Start-up, messages, and fork.
//
// The library initialises once, under init_lock, by tide_init or by the first call that needs it.
//
// Fork. The handlers are installed when the library is loaded. The child has only the thread that
// forked; every other thread is gone in the middle of whatever it did. Before the fork we take
// every lock of the library in lock order, so no shared structure is half changed. A thread may
// still have been inside a pinned section that holds no lock: it was then changing only its own run
// of free slots, a block that it had just taken, or a processor's part of something. The child
// gives up the runs as they are (their slots count as allocated, and the next sweep frees them),
// puts such blocks right (small_after_fork) and opens the processors. The world cannot be stopped
// across the fork instead: fork takes malloc's locks after our handler, and a stopped thread may
// hold one.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

tide_options rt_options;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static AO_t initialised; // set once all is ready; acquire pairs with the release in initialise
static uint64_t started_at_ns;

bool rt_initialised(void) {
  return AO_load_acquire(&initialised);
}
uint64_t rt_started_at_ns(void) {
  return started_at_ns;
}

// ---- Messages -------------------------------------------------------------------------------

static __thread char message[400] __attribute__((tls_model("initial-exec")));

tide_status rt_error_set(tide_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

const char *tide_error_message(void) {
  return message;
}

const char *tide_status_string(tide_status status) {
  switch (status) {
  case TIDE_OK:
    return "no error";
  case TIDE_ERR_OPTION:
    return "option not accepted";
  case TIDE_ERR_ARGUMENT:
    return "argument out of range";
  case TIDE_ERR_MEMORY:
    return "out of memory";
  case TIDE_ERR_STATE:
    return "not allowed here or now";
  case TIDE_ERR_SYSTEM:
    return "system call failed";
  }
  return "unknown status";
}

static void report(const char *format, va_list arguments) {
  char line[512] = "tidepool: ";
  size_t length = strlen(line);
  int wrote = vsnprintf(line + length, sizeof line - length - 1, format, arguments);
  length += wrote < 0 ? 0 : (size_t)wrote;
  if (length > sizeof line - 2) length = sizeof line - 2;
  line[length++] = '\n';
  syscall(SYS_write, STDERR_FILENO, line, length); // write() is a cancellation point
}

void rt_report(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
}

void rt_fatal(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
  abort();
}

// ---- Fork -----------------------------------------------------------------------------------

static void before_fork(void) {
  rt_events_before_fork(); // a listener may make any call, tide_init among them
  pthread_mutex_lock(&init_lock);
  if (!rt_initialised()) return;
  rt_client_calls.fork_prepare();
  rt_world_lock_for_fork();
  rt_procs_lock();
  rt_client_calls.fork_locked();
}

static void give_back(bool in_child) {
  rt_client_calls.fork_unlock(in_child);
  if (in_child) {
    rt_threads_after_fork();
    rt_procs_after_fork(rt_self());
  }
  rt_procs_unlock();
  rt_world_unlock_for_fork();
  rt_client_calls.fork_done();
}

static void after_fork(bool in_child) {
  if (rt_initialised()) give_back(in_child);
  pthread_mutex_unlock(&init_lock);
  rt_events_after_fork(in_child);
}

static void in_parent(void) {
  after_fork(false);
}
static void in_child(void) {
  rt_record_after_fork();
  after_fork(true);
}

static int fork_handlers_error;
__attribute__((constructor)) static void install_fork_handlers(void) {
  fork_handlers_error = pthread_atfork(before_fork, in_parent, in_child);
}

// ---- Start-up -------------------------------------------------------------------------------

static tide_status start(void) {
  started_at_ns = os_now_ns();
  int cpus = os_cpus_usable(); // also if procs is set: the first call reads files
  tide_status status = rt_client_calls.init(&rt_options);
  if (status != TIDE_OK) return status;
  int procs = (int)rt_options.procs;
  status = rt_procs_init(procs ? procs : cpus);
  if (status != TIDE_OK) return status;
  status = rt_world_init();
  if (status != TIDE_OK) return status;
  rt_rseq_init();
  status = rt_roots_init();
  if (status != TIDE_OK) return status;
  if (fork_handlers_error) return rt_error_set(TIDE_ERR_MEMORY, "no memory for the fork handlers");
  return rt_threads_init();
}

// The file that an option names. One that cannot be made is a bad value like any other.
static tide_status begin_file(tide_status so_far, const char *option, const char *path,
                              tide_status (*start_file)(const char *path), const char *without) {
  char before[sizeof message];
  memcpy(before, message, sizeof before);
  if (start_file(path) == TIDE_OK) return so_far;
  char why[sizeof message];
  memcpy(why, message, sizeof why);
  const char *also = so_far == TIDE_OK ? "" : before;
  return rt_error_set(TIDE_ERR_OPTION, "%.170s%soption %s: %.180s; %s", also,
                      *also ? "; also " : "", option, why, without);
}

// The first value that is refused is the one that the message is about.
static tide_status resolve(const tide_options *options) {
  tide_status resolved = rt_options_resolve(options, &rt_options);
  char first[sizeof message];
  memcpy(first, message, sizeof first);
  tide_status settled = rt_client_calls.settle(&rt_options);
  if (resolved == TIDE_OK) return settled;
  memcpy(message, first, sizeof first);
  return resolved;
}

// Returns whether the library runs; *status is what tide_init says.
static bool initialise(const tide_options *options, tide_status *status) {
  int cancellable = rt_cancel_disable();
  pthread_mutex_lock(&init_lock);
  *status = TIDE_OK;
  bool first = !rt_initialised();
  if (first) {
    *status = resolve(options);
    rt_options_settle();
    tide_status started = start();
    if (started == TIDE_OK && rt_options.record)
      *status =
          begin_file(*status, "record", rt_options.record, rt_record_start, "nothing is recorded");
    if (started != TIDE_OK)
      *status = started;
    else
      AO_store_release(&initialised, 1);
  } else if (options) {
    const char *field = rt_options_conflict(options);
    if (field)
      *status = rt_error_set(TIDE_ERR_STATE, "already initialised with another value of option %s",
                             field);
  }
  pthread_mutex_unlock(&init_lock);
  // The lock of the events is outside init_lock.
  if (first && rt_initialised() && rt_options.trace)
    *status = begin_file(*status, "trace", rt_options.trace, rt_trace_start, "nothing is traced");
  rt_cancel_restore(cancellable);
  return rt_initialised();
}

bool rt_ensure_initialised(void) {
  if (RT_LIKELY(rt_initialised())) return true;
  tide_status status;
  bool running = initialise(NULL, &status);
  if (status != TIDE_OK) rt_report("%s", message); // nobody else looks
  return running;
}

tide_status tide_init(const tide_options *options) {
  tide_status status;
  if (!initialise(options, &status)) return status;
  tide_status registered = rt_thread_attach_self();
  return registered != TIDE_OK ? registered : status;
}

void tide_options_read(tide_options *options) {
  if (rt_initialised()) {
    *options = rt_options;
    return;
  }
  // Resolved texts share their storage, hence the lock.
  int cancellable = rt_cancel_disable();
  pthread_mutex_lock(&init_lock);
  if (rt_initialised())
    *options = rt_options;
  else
    rt_options_resolve(NULL, options);
  pthread_mutex_unlock(&init_lock);
  rt_cancel_restore(cancellable);
}

// ---- The gate to the heap -------------------------------------------------------------------

RT_COLD rt_thread *rt_enter_slow(const char *what) {
  if (!rt_ensure_initialised()) return NULL;
  rt_thread *self = rt_self();
  if (!self) {
    if (rt_thread_attach_self() != TIDE_OK) {
      rt_report("%s: this thread cannot be registered: %s", what, message);
      return NULL;
    }
    self = rt_self();
  }
  return rt_allowed(what) ? self : NULL;
}

bool rt_allowed(const char *what) {
  rt_thread *self = rt_self();
  if (RT_LIKELY(!self || !self->refusal)) return true;
  rt_error_set(TIDE_ERR_STATE, "%s: not allowed %s", what, self->refusal);
  rt_report("%s: not allowed %s", what, self->refusal);
  return false;
}
