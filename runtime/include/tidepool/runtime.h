// SPDX-License-Identifier: MIT
// The process as Tidepool sees it: initialisation, threads, processors, roots.
//
// Thread rule for every function here and in gc.h and pool.h, unless its comment says otherwise:
// any thread may call it; a thread that Tidepool has not met is registered by its first call.
// None may be called from a signal handler, and none between fork and exec in a child made by
// vfork.
#ifndef TIDEPOOL_RUNTIME_H
#define TIDEPOOL_RUNTIME_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <tidepool/options.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIDE_VERSION_MAJOR 0
#define TIDE_VERSION_MINOR 1
#define TIDE_VERSION_PATCH 0

#define TIDE_API __attribute__((visibility("default")))

typedef enum tide_status {
  TIDE_OK = 0,
  TIDE_ERR_OPTION,   // an option or an environment variable has a value that is not accepted
  TIDE_ERR_ARGUMENT, // an argument is outside its range
  TIDE_ERR_MEMORY,   // the system gave no memory
  TIDE_ERR_STATE,    // the call is not allowed here or now
  TIDE_ERR_SYSTEM,   // another system call failed
} tide_status;

// A short English name of the status, never NULL; static storage.
TIDE_API const char *tide_status_string(tide_status status);

// What the calling thread's last failed call had to say: one line, no newline, "" if nothing has
// failed. Valid until the thread's next failing call.
TIDE_API const char *tide_error_message(void);

// Initialises the library and registers the calling thread. NULL means the environment and the
// defaults. Safe from any thread and from several at once: one initialises, the others wait for it.
// Returns TIDE_OK; TIDE_ERR_OPTION if a value was refused (the library then runs with the default
// in its place; the message names the variable, the value, what is accepted and what is used);
// TIDE_ERR_MEMORY or TIDE_ERR_SYSTEM if it cannot run at all.
// When the library is already initialised: TIDE_OK, or TIDE_ERR_STATE if *options sets a field to
// another value than the one in force. Does not collect.
TIDE_API tide_status tide_init(const tide_options *options);

// The options in force, numbers in place of `auto`; texts last as long as the process. Before
// tide_init: the environment and the defaults, as they are; texts last until the next call.
TIDE_API void tide_options_read(tide_options *options);

// ---- Threads --------------------------------------------------------------------------------
//
// A registered thread is stopped by a signal (see tide_stop_signal) while a collection looks for
// roots; its stack, registers and thread-local variables are roots. System calls that SA_RESTART
// covers go on by themselves; nanosleep, poll, select, sem_timedwait, and socket calls with a
// timeout may end early with EINTR: make such calls inside tide_blocking.

// Registers the calling thread. TIDE_OK also when it is registered already. The thread unregisters
// by itself when it exits.
TIDE_API tide_status tide_thread_register(void);

// Takes the calling thread off the list: what only it refers to may be collected. TIDE_ERR_STATE
// when the thread is not registered, or inside tide_blocking or tide_active.
TIDE_API tide_status tide_thread_unregister(void);

// As pthread_create, with the new thread registered before fn runs. Returns pthread_create's error
// number, ENOMEM when the thread cannot be registered, EPERM where the heap may not be used.
TIDE_API int tide_thread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                void *(*fn)(void *), void *arg);

// Runs fn(arg) outside the heap: the thread gives up its processor and is neither signalled nor
// waited for, while its stack down to this call stays a root. fn must not use the heap or hold the
// only pointer to an object in its own frames; a tide_ call in it is refused and reported. When fn
// returns during a pause, the call waits for the pause to end. Returns what fn returns.
// Inside another tide_blocking it simply calls fn.
TIDE_API void *tide_blocking(void *(*fn)(void *), void *arg);

// The inverse, inside tide_blocking: runs fn(arg) with the heap allowed again. Nests with
// tide_blocking to any depth. Outside tide_blocking it simply calls fn.
TIDE_API void *tide_active(void *(*fn)(void *), void *arg);

// The signal that stops threads; it must not be blocked in a registered thread or handled by the
// program.
TIDE_API int tide_stop_signal(void);

// ---- Processors -----------------------------------------------------------------------------

// The number of processors (P): how many ways caches are divided, Go's GOMAXPROCS. At first the
// number of CPUs that the process may use, or that the CPU quota of its control groups is enough
// for, rounded up, if those are fewer; at most 1024. A running thread has a processor; it gives it
// up in tide_blocking; threads beyond the number of processors share them.
TIDE_API int tide_procs(void);

// Sets it, 1 to 1024, and returns the old number; outside that range it only asks. Stops the world
// for a moment.
TIDE_API int tide_procs_set(int procs);

// Puts the calling thread onto that processor, 0 to tide_procs() - 1, whether others are on it or
// not, until it blocks (tide_blocking) or the number changes. For tests in which it matters who
// shares with whom. Returns the processor that the thread was on; for a number outside that range
// it only asks. -1 where the heap may not be used.
TIDE_API int tide_proc_use(int processor);

// ---- Roots ----------------------------------------------------------------------------------
//
// Roots by themselves: the writable data of the program and of every shared object, also one
// loaded later; the stack and registers of every registered thread; thread-local variables of the
// program and of shared objects. Not roots: malloc'd memory, mapped files, pthread_setspecific
// values, the stack of a thread that Tidepool has not met.

// Makes [lo, hi) a root; it must stay readable until removed. The same range may be added several
// times and must be removed as often. TIDE_ERR_ARGUMENT when hi is below lo, TIDE_ERR_STATE where
// the heap may not be used.
TIDE_API tide_status tide_roots_add(const void *lo, const void *hi);

// Removes a range that was added with just these bounds; TIDE_ERR_ARGUMENT if there is none.
TIDE_API tide_status tide_roots_remove(const void *lo, const void *hi);

#ifdef __cplusplus
}
#endif

#include <tidepool/events.h>

#endif
