// SPDX-License-Identifier: MIT
// Stopping the world and starting it again.
//
// The world has an epoch: even while it runs, odd while it is stopped. To stop, whoever holds
// rt_world_lock makes the epoch odd and looks at each other thread:
//   - a thread in tide_blocking is frozen: it may go on outside the heap, and waits if it comes
//   back;
//   - a running thread is sent the stop signal. Its handler notes where the stack ends (the kernel
//     has just put the registers on it), acknowledges, and waits for the epoch to change.
// A thread in a pinned section only notes the signal, finishes the section, and stops by itself.
//
// No signal handler runs on a stopped thread, nor on the one that has stopped the world: it could
// move references about behind the marker's back, and the C library's own cancellation signal could
// take the thread out of its stop. So all signals are blocked there, also those that the C library
// keeps to itself.
//
// The handler uses nothing but this thread's record, a futex, and errno, which it restores. Between
// stop and start, whoever stopped the world takes no lock of the C library and calls no malloc: a
// stopped thread may hold any of those. The one lock that matters for roots, the dynamic loader's,
// is dealt with by looking, after the stop, whether the loader was at rest (segments.c); if not,
// the world is started again for a moment.
//
// The signal is SIGURG: debuggers pass it on silently, its default is to be ignored, and a
// program's own use of it is rare. A SIGURG that is not ours goes to the handler that was there
// before.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t rt_world_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stopper_lock = PTHREAD_MUTEX_INITIALIZER; // who stops the world; outside it

static unsigned int epoch;        // changed only under rt_world_lock; waited on
static unsigned int acknowledged; // threads that have stopped in this epoch; waited on
static struct sigaction previous_action;

int tide_stop_signal(void) {
  return SIGURG;
}

// ---- Signals --------------------------------------------------------------------------------

// By the system call: pthread_sigmask leaves out the C library's own signals.
typedef uint64_t signal_mask;

static signal_mask block_all_signals(void) {
  signal_mask all = ~(signal_mask)0, before;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  return before;
}

static void restore_signals(signal_mask before) {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

static signal_mask stopper_mask; // under rt_world_lock

// ---- Being stopped --------------------------------------------------------------------------

// A pause of a small heap is over before a thread has gone to sleep and been woken. So where every
// thread has a CPU to itself, it first looks for a while whether the word still has the value.
static bool may_spin; // in this stop; set before the epoch is

static void spin_while(const unsigned int *word, unsigned int value) {
  enum { MOST_NS = 100000, LOOKS = 32 };
  for (uint64_t end = os_now_ns() + MOST_NS; os_now_ns() < end;)
    for (int i = 0; i < LOOKS; i++) {
      if (AO_int_load(word) != value) return;
      rt_relax();
    }
}

static void acknowledge_and_wait(rt_thread *self, unsigned int now) {
  bool spin = may_spin;
  AO_int_store(&self->stopped_epoch, now);
  // Release: pairs with the acquire in rt_world_stop; sp and the stack are visible to the marker.
  AO_int_fetch_and_add_release(&acknowledged, 1);
  os_futex_wake_all(&acknowledged);
  // Acquire: pairs with the release in rt_world_start; what hooks and the collector did is visible.
  if (spin) spin_while(&epoch, now);
  while (AO_int_load_acquire(&epoch) == now) os_futex_wait(&epoch, now);
}

static bool within(const char *address, const char *lo, const char *hi) {
  return address >= lo && address < hi;
}

// The first thread's stack may grow further once the program has raised its limit.
static bool on_own_stack(rt_thread *self, const char *here) {
  if (within(here, self->stack_lo, self->stack_hi)) return true;
  struct rlimit limit;
  if (self->tid != getpid() || getrlimit(RLIMIT_STACK, &limit) != 0) return false;
  if (limit.rlim_cur < (uintptr_t)self->stack_hi) self->stack_lo = self->stack_hi - limit.rlim_cur;
  return within(here, self->stack_lo, self->stack_hi);
}

// Notes which stacks are to be scanned for a thread stopped at address `here` of one of them.
static void note_stack(rt_thread *self, char *here) {
  self->alt_sp = NULL;
  self->sp = here;
  if (on_own_stack(self, here)) return;
  // In a handler of the program's that runs on an alternate stack. Where its own stack ended then
  // is not known to us: all of it is scanned.
  stack_t alt;
  if (sigaltstack(NULL, &alt) == 0 && (alt.ss_flags & SS_ONSTACK) &&
      within(here, alt.ss_sp, (char *)alt.ss_sp + alt.ss_size)) {
    self->sp = NULL;
    self->alt_sp = here;
    self->alt_hi = (char *)alt.ss_sp + alt.ss_size;
    return;
  }
  rt_fatal("thread %d is on a stack that is not its own, which cannot be scanned", (int)self->tid);
}

// A thread that is stopped may be in tide_blocking, having entered it after it was asked: then the
// region's own marks are put back afterwards. By then the next stop may have frozen the thread, and
// its stacks are being scanned: from the one mark or the other, which lies below it.
static void put_marks_back(rt_thread *self, char *sp, char *alt_sp) {
  AO_store((AO_t *)(void *)&self->sp, (AO_t)sp);
  AO_store((AO_t *)(void *)&self->alt_sp, (AO_t)alt_sp);
}

// Stops the thread, whose stack is to be scanned from `here` on.
static void stop_at(rt_thread *self, char *here, unsigned int now) {
  char *sp = self->sp, *alt_sp = self->alt_sp;
  note_stack(self, here);
  acknowledge_and_wait(self, now);
  put_marks_back(self, sp, alt_sp);
}

static bool still_to_stop(const rt_thread *thread, unsigned int now) {
  return AO_int_load(&thread->asked_epoch) == now && AO_int_load(&thread->stopped_epoch) != now;
}

static bool asked_to_stop(const rt_thread *self, unsigned int now) {
  return (now & 1) && still_to_stop(self, now);
}

static void pass_on(int signal_number, siginfo_t *info, void *context) {
  if (previous_action.sa_flags & SA_SIGINFO)
    previous_action.sa_sigaction(signal_number, info, context);
  else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    previous_action.sa_handler(signal_number);
}

static void on_stop_signal(int signal_number, siginfo_t *info, void *context) {
  int saved_errno = errno;
  rt_thread *self = rt_self();
  // Acquire: pairs with the release in rt_world_stop; self->asked_epoch belongs to this epoch.
  unsigned int now = AO_int_load_acquire(&epoch);
  if (!self || !asked_to_stop(self, now)) {
    pass_on(signal_number, info, context);
  } else if (self->pinned) {
    self->stop_deferred = 1;
  } else if (!self->stopping) { // else rt_stop_deferred looks again
    self->stopping = 1;
    stop_at(self, __builtin_frame_address(0), now);
    self->stopping = 0;
  }
  errno = saved_errno;
}

static void stop_here(void *argument) {
  rt_thread *self = argument;
  // Acquire: as in the handler.
  unsigned int now = AO_int_load_acquire(&epoch);
  if (asked_to_stop(self, now)) acknowledge_and_wait(self, now);
}

RT_COLD void rt_stop_deferred(rt_thread *self) {
  if (self->pinned) return;
  int saved_errno = errno;
  char *sp = self->sp, *alt_sp = self->alt_sp; // as in stop_at
  do {
    self->stopping = 1;
    AO_compiler_barrier();
    self->stop_deferred = 0;
    signal_mask before = block_all_signals();
    rt_with_registers_on_stack(self, stop_here, self);
    restore_signals(before);
    self->stopping = 0;
    AO_compiler_barrier();
    // The world may have been started and stopped again while the signal changed nothing.
  } while (asked_to_stop(self, AO_int_load_acquire(&epoch)));
  put_marks_back(self, sp, alt_sp);
  errno = saved_errno;
}

// Two functions, so that the frame whose address is noted lies below the saved registers.
static RT_NOINLINE void note_sp_and_call(rt_thread *self, void (*fn)(void *), void *arg) {
  note_stack(self, __builtin_frame_address(0));
  fn(arg);
  AO_compiler_barrier(); // no tail call: the frame stays
}

RT_NOINLINE void rt_with_registers_on_stack(rt_thread *self, void (*fn)(void *), void *arg) {
  __builtin_unwind_init(); // every callee-saved register goes to this frame
  note_sp_and_call(self, fn, arg);
  AO_compiler_barrier();
}

// The thread and whoever stops the world each write first (BLOCKED; asked_epoch), then look at what
// the other wrote: one of them sees the other. A thread that finds itself asked goes back, unless
// it has been frozen already, and is stopped where a system call cannot be interrupted by that.
void rt_world_enter_blocked(rt_thread *self) {
  for (;;) {
    // Release: whoever finds the thread blocked sees its registers on its stack, and self->sp.
    AO_int_store_release(&self->state, RT_BLOCKED);
    AO_nop_full(); // pairs with the one in ask
    unsigned int now = AO_int_load_acquire(&epoch);
    if (!asked_to_stop(self, now)) return;
    if (!AO_int_compare_and_swap(&self->state, RT_BLOCKED, RT_RUNNING)) return;
    for (unsigned tries = 0; asked_to_stop(self, now); tries++) os_pause(tries);
  }
}

void rt_world_leave_blocked(rt_thread *self) {
  for (;;) {
    unsigned int state = AO_int_load(&self->state);
    // Acquire: pairs with the release in thaw.
    if (state == RT_BLOCKED) {
      if (AO_int_compare_and_swap_acquire(&self->state, RT_BLOCKED, RT_RUNNING)) return;
    } else if (state == RT_FROZEN) {
      AO_int_compare_and_swap(&self->state, RT_FROZEN, RT_FROZEN_WAITED);
    } else {
      os_futex_wait(&self->state, RT_FROZEN_WAITED);
    }
  }
}

// ---- Stopping -------------------------------------------------------------------------------

// Returns whether the thread must acknowledge.
static bool ask(rt_thread *thread, unsigned int now) {
  AO_int_store(&thread->asked_epoch, now);
  AO_nop_full(); // pairs with the one in rt_world_enter_blocked; and before the signal
  // Acquire: pairs with the release in rt_world_enter_blocked.
  if (AO_int_compare_and_swap_acquire(&thread->state, RT_BLOCKED, RT_FROZEN)) {
    AO_int_store(&thread->asked_epoch, 0);
    return false;
  }
  if (syscall(SYS_tgkill, getpid(), thread->tid, tide_stop_signal()) == 0) return true;
  if (errno != ESRCH) rt_fatal("thread %d cannot be signalled (error %d)", (int)thread->tid, errno);
  rt_thread_bury(thread);
  return false;
}

static void name_the_late(unsigned int now) {
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next)
    if (still_to_stop(thread, now))
      rt_report("waiting for thread %d to stop: does it block signal %d, or has the program "
                "replaced the handler?",
                (int)thread->tid, tide_stop_signal());
}

// A thread that ended without having unregistered may be signalled for as long as it is not off the
// kernel's list, which for the first thread is as long as the process. Returns how many there were.
static unsigned bury_the_dead(unsigned int now) {
  unsigned buried = 0;
  for (rt_thread *thread = rt_threads(), *next; thread; thread = next) {
    next = thread->next;
    if (!still_to_stop(thread, now)) continue;
    if (!os_thread_has_ended(thread->tid)) continue;
    rt_thread_bury(thread);
    buried++;
  }
  return buried;
}

// Waits until all that are expected have acknowledged; returns how many that were.
static unsigned wait_for(unsigned int expected, unsigned int now) {
  enum { PATIENCE_NS = 100000000, WARN_AFTER = 50 }; // 5 s
  for (unsigned late = 0;;) {
    // Acquire: pairs with the release in acknowledge_and_wait.
    unsigned int count = AO_int_load_acquire(&acknowledged);
    if (count == expected) return expected;
    if (may_spin) spin_while(&acknowledged, count);
    if (os_futex_wait_ns(&acknowledged, count, PATIENCE_NS)) continue;
    expected -= bury_the_dead(now);
    if (++late == WARN_AFTER) name_the_late(now);
  }
}

static bool still; // under rt_world_lock

bool rt_world_is_still(void) {
  return still;
}

static int cpus; // counted once: it takes malloc

int rt_cpus(void) {
  return cpus;
}

static bool fewer_than_cpus(const rt_thread *self) {
  int running = 1;
  for (const rt_thread *thread = rt_threads(); thread; thread = thread->next)
    running += thread != self && AO_int_load(&thread->state) == RT_RUNNING;
  return running <= cpus;
}

static void stop_once(rt_thread *self, rt_stop *stop) {
  unsigned int now = epoch + 1, expected = 0;
  stop->threads = 0;
  may_spin = fewer_than_cpus(self);
  AO_int_store(&acknowledged, 0);
  // Release: pairs with the acquire in on_stop_signal.
  AO_int_store_release(&epoch, now);
  for (rt_thread *thread = rt_threads(), *next; thread; thread = next) {
    next = thread->next; // the thread may be taken off the registry
    if (thread == self) continue;
    stop->threads++;
    expected += ask(thread, now);
  }
  expected = wait_for(expected, now);
  // No thread is made now but by one that we have not stopped. In this order: one of our own that
  // leaves meanwhile is still in the first number.
  unsigned threads = os_threads();
  still = threads == 1 + expected + AO_load_acquire(&rt_own_threads);
}

static void thaw(rt_thread *thread) {
  for (;;) {
    unsigned int state = AO_int_load(&thread->state);
    if (state != RT_FROZEN && state != RT_FROZEN_WAITED) return;
    // Release: pairs with the acquire in rt_world_leave_blocked.
    if (!AO_int_compare_and_swap_release(&thread->state, state, RT_BLOCKED)) continue;
    if (state == RT_FROZEN_WAITED) os_futex_wake_all(&thread->state);
    return;
  }
}

static void start_once(rt_thread *self) {
  // Release: pairs with the acquire in acknowledge_and_wait.
  AO_int_store_release(&epoch, epoch + 1);
  os_futex_wake_all(&epoch);
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next)
    if (thread != self) thaw(thread);
}

static bool roots_are_settled(rt_thread *self) {
  if (!rt_segments_still_true()) return false;
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next)
    if (!rt_tls_settled(thread)) return false;
  return true;
}

void rt_world_stop(rt_thread *self, rt_stop *stop) {
  rt_mutex_take(&stopper_lock);
  stop->asked_at_ns = os_now_ns();
  for (unsigned tries = 0;; tries++) {
    rt_segments_refresh(); // takes the loader's lock: before the stop
    rt_mutex_take(&rt_world_lock);
    stopper_mask = block_all_signals(); // nobody can want to stop this thread now
    stop_once(self, stop);
    if (roots_are_settled(self)) break;
    start_once(self);
    restore_signals(stopper_mask);
    pthread_mutex_unlock(&rt_world_lock);
    // A thread is loading or unloading a library, or moving its table of thread-local blocks.
    os_pause(tries);
  }
  stop->stopped_at_ns = os_now_ns();
}

void rt_world_start(rt_thread *self) {
  start_once(self);
  signal_mask before = stopper_mask;
  pthread_mutex_unlock(&rt_world_lock);
  pthread_mutex_unlock(&stopper_lock);
  restore_signals(before);
}

void rt_world_lock_for_fork(void) {
  rt_mutex_take(&stopper_lock);
  rt_mutex_take(&rt_world_lock);
}

void rt_world_unlock_for_fork(void) {
  pthread_mutex_unlock(&rt_world_lock);
  pthread_mutex_unlock(&stopper_lock);
}

tide_status rt_world_init(void) {
  cpus = os_cpus_allowed();
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_stop_signal;
  // SA_RESTART: system calls go on. No SA_ONSTACK: the frame belongs on the stack that was in use,
  // where it is scanned with the rest.
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  memset(&action.sa_mask, 0xff, sizeof action.sa_mask); // sigfillset leaves out the C library's own
  struct sigaction before;
  if (sigaction(tide_stop_signal(), &action, &before) != 0)
    return rt_error_set(TIDE_ERR_SYSTEM, "no handler can be set for signal %d", tide_stop_signal());
  bool again = (before.sa_flags & SA_SIGINFO) && before.sa_sigaction == on_stop_signal;
  if (!again) previous_action = before;
  return TIDE_OK;
}
