// SPDX-License-Identifier: MIT
// The runtime's inside, for runtime/ and the rooms above it. Read this first.
//
// What the runtime gives to the rooms above:
//   - the registry of threads, and stopping and restarting them (world.c);
//   - pinned sections: steps in which the calling thread is not stopped (below);
//   - enumeration of the roots of a stopped world (roots.c);
//   - processors (proc.c), memory and time from the system (os.c), what control groups allow
//     (cgroup.c), the options in force;
//   - events: what a room has to say to listeners, traces and probes (events_emit.h, events.c).
//
// Lock order, outermost first:
//   events > init_lock > the client's cycle and hook locks > rt_world_lock > proc lock > the
//   client's heap locks.
// Two classes of locks exist. A *pinned* lock is only ever taken by a thread that cannot be
// stopped: inside a pinned section, holding rt_world_lock, or not yet on the registry. So none is
// held while the world is stopped. Every other lock may be held by a stopped thread; a thread that
// stops the world must not wait for one of those until it has restarted the world.
#ifndef TIDEPOOL_RT_H
#define TIDEPOOL_RT_H

#include <atomic_ops.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <tidepool/runtime.h>
#include <unistd.h>

#define RT_LIKELY(x)   __builtin_expect(!!(x), 1)
#define RT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RT_NOINLINE    __attribute__((noinline))
#define RT_COLD        __attribute__((cold, noinline))

// Conservative scanning reads words that the sanitizers hold to be out of bounds or racy: red zones
// of a stack, a stopped thread's half-written word. Functions that do so say so with this.
#define RT_SCANS_MEMORY __attribute__((no_sanitize("address", "thread", "undefined")))

// In a loop that waits for another CPU.
static inline void rt_relax(void) {
#if defined __x86_64__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

// ---- Threads --------------------------------------------------------------------------------

// A thread's relation to the heap. Changed by the thread itself, and between BLOCKED and FROZEN by
// whoever stops the world.
enum {
  RT_RUNNING = 0,       // uses the heap; is signalled to stop
  RT_BLOCKED = 1,       // inside tide_blocking
  RT_FROZEN = 2,        // inside tide_blocking while the world is stopped: leaving it must wait
  RT_FROZEN_WAITED = 3, // the same, and the thread waits to be woken
};

struct rt_proc;

typedef struct rt_thread {
  // Used by the thread itself, also in its signal handler; hence volatile, not atomic.
  volatile int pinned;                 // depth of pinned sections
  volatile int stop_deferred;          // the stop signal came while pinned
  struct rt_proc *proc;                // NULL while blocked
  const char *refusal;                 // why this thread may not use the heap now; NULL: it may
  unsigned int state;                  // RT_RUNNING, RT_BLOCKED, ...; waited on
  volatile unsigned int asked_epoch;   // the last world epoch in which the thread was asked to stop
  volatile unsigned int stopped_epoch; // the last one in which it has acknowledged that
  volatile int stopping;               // on its way into a stop: a second signal changes nothing

  // Set by the thread before it acknowledges or blocks; read by whoever stops the world.
  char *sp;     // everything at and above it on the stack is scanned
  char *alt_sp; // where the thread was stopped on its alternate signal stack; NULL: it was not
  char *alt_hi;

  // Fixed after registration.
  char *stack_lo;
  char *stack_hi;
  char *thread_pointer; // where the C library's thread block is
  pthread_t pthread;
  pid_t tid;

  int block_depth;           // nesting of tide_blocking and tide_active
  int quiet;                 // depth of rt_quiet_begin
  unsigned slow_allocations; // so far
  void *client;              // the collector's part of the thread
  struct rt_ring *ring;      // of its events; NULL: it has had none. For who buries the thread

  struct rt_thread *next; // registry, under rt_world_lock
  struct rt_thread *prev;
} rt_thread;

// The calling thread, or NULL when it is not registered. Async-signal-safe.
extern __thread rt_thread *rt_self_ __attribute__((tls_model("initial-exec")));
static inline rt_thread *rt_self(void) {
  return rt_self_;
}

// The calling thread, initialised and registered if need be, when it may use the heap. Otherwise
// reports the refusal, naming the call `what`, and returns NULL.
rt_thread *rt_enter_slow(const char *what);
static inline rt_thread *rt_enter(const char *what) {
  rt_thread *self = rt_self_;
  if (RT_LIKELY(self && !self->refusal)) return self;
  return rt_enter_slow(what);
}

// Whether the calling thread may make the call `what`, which does not need it to be registered;
// reports a refusal.
bool rt_allowed(const char *what);

// Between these the thread's allocations that fail return NULL without asking the program's
// handler. That may longjmp, out of what has to be ended, or return memory that is not the heap's.
static inline void rt_quiet_begin(rt_thread *self) {
  self->quiet++;
}
static inline void rt_quiet_end(rt_thread *self) {
  self->quiet--;
}

// ---- Pinned sections ------------------------------------------------------------------------
//
// Between rt_pin and rt_unpin the calling thread is not stopped; a stop that arrives is acted on by
// rt_unpin. Pinned sections are short, nest, and neither block, allocate from the heap nor take a
// lock that is not a pinned lock.

void rt_stop_deferred(rt_thread *self);

static inline void rt_pin(rt_thread *self) {
  self->pinned = self->pinned + 1;
  AO_compiler_barrier();
}

static inline void rt_unpin(rt_thread *self) {
  AO_compiler_barrier();
  self->pinned = self->pinned - 1;
  AO_compiler_barrier();
  if (RT_UNLIKELY(self->stop_deferred)) rt_stop_deferred(self);
}

// Takes a mutex outside pinned sections, where the thread may be stopped while it waits. In its
// pthread_mutex_lock ThreadSanitizer holds the stop signal back; so there we sleep, and look again.
static inline void rt_mutex_take(pthread_mutex_t *mutex) {
#ifdef __SANITIZE_THREAD__
  while (pthread_mutex_trylock(mutex) != 0) usleep(50);
#else
  pthread_mutex_lock(mutex);
#endif
}

// A mutex for pinned sections.
typedef struct rt_pinned_lock {
  pthread_mutex_t mutex;
} rt_pinned_lock;
#define RT_PINNED_LOCK_INIT                                                                        \
  { PTHREAD_MUTEX_INITIALIZER }
static inline void rt_pinned_lock_take(rt_pinned_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
}
static inline void rt_pinned_lock_give(rt_pinned_lock *lock) {
  pthread_mutex_unlock(&lock->mutex);
}

// ---- Processors -----------------------------------------------------------------------------

#define RT_PROCS_MAX 1024

typedef struct rt_proc {
  AO_t held;        // 1 while a thread is in a pinned section on it
  unsigned index;   // 0 .. tide_procs() - 1
  unsigned threads; // that have it now, under the proc lock
  struct rt_proc *next_idle;
} __attribute__((aligned(128))) rt_proc;

// Makes the calling thread, which is pinned, the only one on a processor: its own or, where that is
// agreed for some data, the one whose index is the number of the CPU. What only ever happens
// between the two on processor P is single-threaded per P, and is never cut by a collection.
void rt_proc_wait(rt_proc *proc);
static inline void rt_proc_hold(rt_proc *proc) {
  // Acquire: pairs with the release in rt_proc_let_go.
  if (RT_UNLIKELY(!AO_compare_and_swap_acquire(&proc->held, 0, 1))) rt_proc_wait(proc);
}
static inline void rt_proc_let_go(rt_proc *proc) {
  // Release: the next thread on this processor sees all that this one did.
  AO_store_release(&proc->held, 0);
}
rt_proc *rt_proc_at(unsigned index);

// ---- Restartable sequences (rseq.c) ----------------------------------------------------------

// The calling thread's area, while it may use the heap; else one in which both numbers are none.
extern TIDE_API __thread char *tide_rseq __attribute__((tls_model("initial-exec")));
extern TIDE_API ptrdiff_t tide_rseq_field; // offset in it of the CPU's number
extern unsigned rt_rseq_cpus; // how many numbers there are, from 0 on; 0: no sequences here
// The CPU that the thread is on, by its number there; it may be on another one already.
static inline unsigned rt_rseq_cpu(void) {
  return *(volatile uint32_t *)(void *)(tide_rseq + tide_rseq_field);
}
// To be told in the thread itself whether it may use the heap from now on.
void rt_rseq_allow(rt_thread *self, bool allowed);

// ---- The world ------------------------------------------------------------------------------

typedef struct rt_stop {
  uint64_t asked_at_ns;
  uint64_t stopped_at_ns;
  uint64_t threads; // other threads that were stopped or found blocked
} rt_stop;

extern pthread_mutex_t rt_world_lock; // the registry; held while the world is stopped

// Stops every other registered thread outside its pinned sections, and returns with rt_world_lock
// held, the loader at rest and the list of data segments true. The caller is not pinned and holds
// no lock that a thread in a pinned section may want.
void rt_world_stop(rt_thread *self, rt_stop *stop);
void rt_world_start(rt_thread *self);

// With the world stopped: whether no other thread of the process runs at all. Then no memory goes
// away meanwhile. When in doubt, false.
bool rt_world_is_still(void);

// Threads of the library's own (own_thread.c), which are not registered and leave all memory but
// the collector's alone. Counted when they have been made; whoever ends, or registers for a while,
// takes itself off before.
extern AO_t rt_own_threads;
// Starts one; false: there is none to be had. fn first blocks all signals. name: up to 15
// characters.
bool rt_own_thread_start(void *(*fn)(void *), void *arg, const char *name, size_t stack_bytes);
void rt_own_thread_block_signals(void);

// Calls fn(arg) with the calling thread's registers on its stack and thread->sp set below them.
void rt_with_registers_on_stack(rt_thread *self, void (*fn)(void *), void *arg);

// Overwrites what calls that have returned left on the stack below the caller. Later frames come to
// lie there, and where they have gaps it would be scanned: what they held by then would live on.
void rt_clear_stack_below(const rt_thread *self);

// The registered threads, for a caller that holds rt_world_lock.
rt_thread *rt_threads(void);

// ---- Roots ----------------------------------------------------------------------------------

typedef enum rt_root_source {
  RT_ROOT_STACK,
  RT_ROOT_STATIC,
  RT_ROOT_TLS,
  RT_ROOT_ADDED
} rt_root_source;
typedef void (*rt_root_fn)(const void *lo, const void *hi, rt_root_source source, void *arg);

// With the world stopped by the calling thread (and inside rt_with_registers_on_stack): hands every
// root range to fn, bounds aligned to words. Takes no lock and no memory. The memory may be gone
// after fn returns.
void rt_roots_scan(rt_root_fn fn, void *arg);
// By the engine, before the first stop: the shared object that holds the address has no roots. What
// is linked into the program or into this library keeps its own. The runtimes of sanitizers are
// ignored anyway.
void rt_segments_ignore(const void *address);

// ---- The client -----------------------------------------------------------------------------
//
// The room above defines rt_client_calls: the runtime initialises it and tells it of threads, and
// otherwise knows nothing of it.

typedef struct rt_client {
  // Before init: puts options that it cannot follow back to their default, and says so with
  // rt_error_set.
  tide_status (*settle)(tide_options *options);
  // Once, before any thread is attached. Reports with rt_error_set.
  tide_status (*init)(const tide_options *options);
  // In the thread itself, before it is on the registry; false: no memory.
  bool (*thread_attach)(rt_thread *thread);
  // With rt_world_lock held, before the thread is off the registry. left_behind: in the child of a
  // fork, for a thread that was cut off anywhere.
  void (*thread_detach)(rt_thread *thread, bool left_behind);
  // In the thread itself: whether it may allocate from now on.
  void (*thread_allow)(rt_thread *thread, bool allowed);
  // Around fork (init.c), in this order: takes the locks outside rt_world_lock; takes the pinned
  // locks; gives those back, in the child before the threads left behind are detached; gives the
  // first ones back.
  void (*fork_prepare)(void);
  void (*fork_locked)(void);
  void (*fork_unlock)(bool in_child);
  void (*fork_done)(void);
  // What an event's number (0: a, 1: b) means, in words; NULL: it is a number.
  const char *(*event_text)(tide_event_kind kind, int which, uint64_t value);
} rt_client;

extern const rt_client rt_client_calls;

// ---- Cancellation ---------------------------------------------------------------------------
//
// Where the library holds a lock it must not be cancelled. Asynchronous cancellation is not
// supported in registered threads at all.

static inline int rt_cancel_disable(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}
static inline void rt_cancel_restore(int before) {
  pthread_setcancelstate(before, NULL);
}

// ---- The process ----------------------------------------------------------------------------

extern tide_options rt_options; // in force; read-only after initialisation
bool rt_initialised(void);
bool rt_ensure_initialised(void); // by whoever needs the library; problems go to stderr
int rt_cpus(void);                // that the process may use, as counted when it was initialised
uint64_t rt_started_at_ns(void);

tide_status rt_options_resolve(const tide_options *asked, tide_options *resolved);

// Sets the calling thread's error message. Returns status.
tide_status rt_error_set(tide_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// One line to stderr, in one write: "tidepool: ...". Takes no lock.
void rt_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same, then abort(): for what must never happen.
void rt_fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define RT_CHECK(condition)                                                                        \
  do {                                                                                             \
    if (RT_UNLIKELY(!(condition)))                                                                 \
      rt_fatal("%s:%d: check failed: %s", __FILE__, __LINE__, #condition);                         \
  } while (0)

// ---- The system (os.c) ----------------------------------------------------------------------

size_t os_page_bytes(void);
unsigned os_threads(void);           // of the process; UINT_MAX: not known
bool os_thread_has_ended(pid_t tid); // one of the process's; when in doubt, false
uint64_t os_now_ns(void);            // CLOCK_MONOTONIC
uint64_t os_unix_ns(void);           // CLOCK_REALTIME
uint64_t os_cpu_ns(void);            // CPU time of the process
int os_cpus_allowed(void);           // CPUs that the thread may run on, at least 1

// Address space without memory; NULL when refused. Sizes and addresses are multiples of a page.
void *os_reserve(size_t bytes);
bool os_commit(void *address, size_t bytes); // makes reserved space usable, zeroed; false: refused
void os_uncommit(void *address, size_t bytes);  // takes that back, for memory never written to
void os_unreserve(void *address, size_t bytes); // of os_reserve, committed or not
bool os_release(void *address, size_t bytes);   // gives the memory back; stays usable, zeroed
// Asks for huge pages, or for small ones; false: the system does not know of them.
bool os_huge(void *address, size_t bytes, bool wanted);
void *os_map(size_t bytes); // reserve and commit
void os_unmap(void *address, size_t bytes);
// Makes what os_map gave larger, elsewhere if need be; NULL: it stays as it is.
void *os_map_larger(void *address, size_t bytes, size_t larger_bytes);
uint64_t os_mapped_bytes(void);     // by os_map, now
size_t os_address_space_left(void); // under RLIMIT_AS; SIZE_MAX without a limit
void os_futex_wait(unsigned int *word, unsigned int value); // returns at a wake or for no reason
bool os_futex_wait_ns(unsigned int *word, unsigned int value, uint64_t ns); // false: time over
void os_futex_wake_one(unsigned int *word);
void os_futex_wake_all(unsigned int *word);
// Lets other threads run: for a loop that waits for something that is about to happen. Sleeps once
// yielding has not helped, so that a thread of lower priority gets its turn.
void os_pause(unsigned tries);
// Bytes that could be copied from address of this process, up to bytes.
size_t os_read_memory(void *to, const void *address, size_t bytes);

// ---- Control groups (cgroup.c) --------------------------------------------------------------
//
// What they allow the process. For initialisation: they read files through stdio. `root` is put in
// front of every path; "" but in tests.

uint64_t os_cgroup_memory_bytes(const char *root); // tightest limit; UINT64_MAX: none
int os_cgroup_cpus(const char *root);              // of the tightest quota, rounded up; 0: none
// CPUs that the process may use at the same time, by affinity and quota, at least 1. Looked up by
// initialisation and the same from then on.
int os_cpus_usable(void);

#include "events_emit.h"
#include "record.h"

#endif
