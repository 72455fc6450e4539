// SPDX-License-Identifier: MIT
// Threads: the registry, and the way in and out of the heap.
//
// A thread is registered by tide_thread_register, tide_thread_create, or its first call that needs
// the heap, and unregisters when it exits, by the destructor of a thread-specific key. Destructors
// of other keys may use the heap too, so ours asks to be called again until its last turn
// (PTHREAD_DESTRUCTOR_ITERATIONS). Those that come after it in that turn are refused the heap: the
// thread could not leave the registry any more. Should one end that way all the same (its first
// call came in one of the later turns), it is taken off the registry by the next stop, which cannot
// signal it or, after a tenth of a second, asks the kernel whether it still lives (world.c).
//
// The registry changes only under rt_world_lock, which whoever stops the world holds: no thread
// comes or goes while the world is stopped. A thread that starts or exits during a pause waits for
// the lock; it is not on the registry yet, or is still and can be stopped there.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread rt_thread *rt_self_ __attribute__((tls_model("initial-exec")));

static rt_thread *registry; // under rt_world_lock
static rt_thread *retired;  // records to use again, under rt_world_lock
static pthread_key_t exit_key;
static __thread int exit_rounds __attribute__((tls_model("initial-exec"))); // of our destructor

rt_thread *rt_threads(void) {
  return registry;
}

// ---- Registration ---------------------------------------------------------------------------

static char *own_thread_pointer(void) {
#if defined __x86_64__
  char *pointer;
  __asm__("movq %%fs:0, %0" : "=r"(pointer));
  return pointer;
#elif defined __aarch64__
  char *pointer;
  __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
  return pointer;
#else
#error "tell own_thread_pointer and segments.c how this machine finds thread-local variables"
#endif
}

static bool find_own_stack(rt_thread *self) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void *lo;
  size_t bytes;
  int failed = pthread_attr_getstack(&attributes, &lo, &bytes);
  pthread_attr_destroy(&attributes);
  if (failed) return false;
  self->stack_lo = lo;
  self->stack_hi = (char *)lo + bytes;
  return true;
}

static rt_thread *carve_record(void) { // rt_world_lock held
  // Records are never unmapped: whoever stopped the world may still wake one.
  static char *slab, *slab_end;
  enum { RECORD_BYTES = (sizeof(rt_thread) + 127) / 128 * 128, SLAB_BYTES = 16384 };
  if ((size_t)(slab_end - slab) < RECORD_BYTES) {
    slab = os_map(SLAB_BYTES);
    slab_end = slab ? slab + SLAB_BYTES : NULL;
    if (!slab) return NULL;
  }
  slab += RECORD_BYTES;
  return (rt_thread *)(void *)(slab - RECORD_BYTES);
}

static rt_thread *new_record(void) {
  rt_mutex_take(&rt_world_lock);
  rt_thread *record = retired;
  if (record)
    retired = record->next;
  else
    record = carve_record();
  pthread_mutex_unlock(&rt_world_lock);
  if (record) memset(record, 0, sizeof *record);
  return record;
}

static void retire_record(rt_thread *record) { // rt_world_lock held
  record->next = retired;
  retired = record;
}

static void unblock_stop_signal(void) {
  // Programs that leave signals to one thread block them all in the others, before they start them.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, tide_stop_signal());
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void allow(rt_thread *self, bool allowed) {
  rt_client_calls.thread_allow(self, allowed);
  rt_rseq_allow(self, allowed);
}

static tide_status attach_self(void) {
  rt_thread *self = new_record();
  if (!self) return rt_error_set(TIDE_ERR_MEMORY, "no memory to register a thread");
  self->pthread = pthread_self();
  self->tid = (pid_t)syscall(SYS_gettid);
  self->thread_pointer = own_thread_pointer();
  bool ready = find_own_stack(self) && pthread_setspecific(exit_key, self) == 0;
  if (!ready || !rt_client_calls.thread_attach(self)) {
    pthread_setspecific(exit_key, NULL);
    rt_mutex_take(&rt_world_lock);
    retire_record(self);
    pthread_mutex_unlock(&rt_world_lock);
    return rt_error_set(TIDE_ERR_MEMORY, "no memory to register a thread");
  }
  unblock_stop_signal();
  rt_mutex_take(&rt_world_lock);
  self->next = registry;
  if (registry) registry->prev = self;
  registry = self;
  rt_self_ = self;
  pthread_mutex_unlock(&rt_world_lock);
  rt_proc_acquire(self);
  allow(self, true);
  rt_event(TIDE_EVENT_THREAD_START, os_now_ns(), 0, 0, 0);
  return TIDE_OK;
}

tide_status rt_thread_attach_self(void) {
  if (rt_self_) return TIDE_OK;
  if (exit_rounds >= PTHREAD_DESTRUCTOR_ITERATIONS)
    return rt_error_set(TIDE_ERR_STATE, "the thread is at its end");
  int cancellable = rt_cancel_disable();
  tide_status status = attach_self();
  if (RT_UNLIKELY(rt_events_due())) rt_events_drain(); // a program may do nothing but make threads
  rt_cancel_restore(cancellable);
  return status;
}

static void remove_from_registry(rt_thread *thread) { // rt_world_lock held
  if (thread->prev)
    thread->prev->next = thread->next;
  else
    registry = thread->next;
  if (thread->next) thread->next->prev = thread->prev;
}

static void detach_self(rt_thread *self) {
  // A thread may exit out of tide_blocking (pthread_exit, cancellation): it then has no processor.
  if (self->proc) rt_proc_release(self);
  allow(self, false);
  rt_mutex_take(&rt_world_lock);
  rt_client_calls.thread_detach(self, false);
  remove_from_registry(self);
  rt_event(TIDE_EVENT_THREAD_END, os_now_ns(), 0, 0, 0);
  rt_events_leave();
  rt_self_ = NULL;
  retire_record(self);
  pthread_mutex_unlock(&rt_world_lock);
}

static void on_thread_exit(void *value) {
  if (rt_self_ != value) return; // it has unregistered by itself
  if (++exit_rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
    pthread_setspecific(exit_key, value);
  else
    detach_self(value);
}

void rt_thread_bury(rt_thread *thread) {
  if (thread->proc) rt_proc_release(thread);
  rt_client_calls.thread_detach(thread, false);
  remove_from_registry(thread);
  rt_events_bury(thread);
  retire_record(thread);
}

tide_status rt_threads_init(void) {
  static bool made;
  if (made) return TIDE_OK;
  if (pthread_key_create(&exit_key, on_thread_exit) != 0)
    return rt_error_set(TIDE_ERR_SYSTEM, "no thread-specific key left (PTHREAD_KEYS_MAX)");
  made = true;
  return TIDE_OK;
}

void rt_threads_after_fork(void) {
  rt_thread *self = rt_self_;
  for (rt_thread *thread = registry, *next; thread; thread = next) {
    next = thread->next;
    if (thread == self) continue;
    rt_client_calls.thread_detach(thread, true);
    remove_from_registry(thread);
    retire_record(thread);
  }
  if (self) self->tid = (pid_t)syscall(SYS_gettid);
  AO_store(&rt_own_threads, 0);
}

tide_status tide_thread_register(void) {
  if (rt_self_) return TIDE_OK;
  if (!rt_ensure_initialised())
    return rt_error_set(TIDE_ERR_MEMORY, "the library could not be initialised");
  return rt_thread_attach_self();
}

tide_status tide_thread_unregister(void) {
  rt_thread *self = rt_self_;
  if (!self) return rt_error_set(TIDE_ERR_STATE, "the calling thread is not registered");
  if (self->block_depth || self->refusal)
    return rt_error_set(TIDE_ERR_STATE, "a thread cannot be unregistered %s",
                        self->refusal ? self->refusal : "inside tide_active");
  pthread_setspecific(exit_key, NULL);
  detach_self(self);
  return TIDE_OK;
}

// ---- Creation -------------------------------------------------------------------------------

typedef struct birth {
  void *(*fn)(void *);
  void *arg;
  unsigned int registered; // 0 not yet, 1 yes, 2 failed; waited on
} birth;

static void *thread_main(void *argument) {
  birth *b = argument;
  void *(*fn)(void *) = b->fn;
  void *arg = b->arg;
  bool failed = rt_thread_attach_self() != TIDE_OK;
  // Release: the creator's frame, with *b in it, may be gone after this. arg is now on our stack.
  AO_int_store_release(&b->registered, failed ? 2 : 1);
  os_futex_wake_all(&b->registered);
  return failed ? NULL : fn(arg);
}

int tide_thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
                       void *arg) {
  if (!rt_allowed("tide_thread_create")) return EPERM;
  if (!rt_ensure_initialised()) return ENOMEM;
  // The creator waits until the new thread is on the registry: until then arg, which may be the
  // only reference to an object, is on the creator's stack.
  birth b = {fn, arg, 0};
  int error = pthread_create(thread, attributes, thread_main, &b);
  if (error) return error;
  unsigned int outcome;
  while ((outcome = AO_int_load_acquire(&b.registered)) == 0) os_futex_wait(&b.registered, 0);
  if (outcome == 1) return 0;
  int detached = PTHREAD_CREATE_JOINABLE;
  if (attributes) pthread_attr_getdetachstate(attributes, &detached);
  if (detached == PTHREAD_CREATE_JOINABLE) pthread_join(*thread, NULL);
  return ENOMEM;
}

// ---- Blocking regions -----------------------------------------------------------------------

typedef struct region {
  rt_thread *self;
  void *(*fn)(void *);
  void *arg;
  void *result;
} region;

static void go_blocked(rt_thread *self) {
  rt_proc_release(self);
  allow(self, false);
  self->refusal = "inside tide_blocking (see tide_active)";
  rt_world_enter_blocked(self);
}

static void go_running(rt_thread *self) {
  rt_world_leave_blocked(self);
  self->refusal = NULL;
  rt_proc_acquire(self);
  allow(self, true);
}

static void run_blocked(void *argument) {
  region *r = argument;
  go_blocked(r->self);
  r->result = r->fn(r->arg);
  go_running(r->self);
}

void *tide_blocking(void *(*fn)(void *), void *arg) {
  rt_thread *self = rt_self_;
  if (!self || self->refusal) return fn(arg);
  region r = {self, fn, arg, NULL};
  self->block_depth++;
  rt_with_registers_on_stack(self, run_blocked, &r);
  self->block_depth--;
  return r.result;
}

void *tide_active(void *(*fn)(void *), void *arg) {
  rt_thread *self = rt_self_;
  if (!self || AO_int_load(&self->state) == RT_RUNNING) return fn(arg);
  // Frames between the region's entry and here are scanned while fn runs, as the thread is then
  // stopped where it is; afterwards the region's own mark holds again.
  char *sp = self->sp, *alt_sp = self->alt_sp;
  go_running(self);
  self->block_depth++;
  void *result = fn(arg);
  self->block_depth--;
  self->sp = sp;
  self->alt_sp = alt_sp;
  go_blocked(self);
  return result;
}
