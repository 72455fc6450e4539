// SPDX-License-Identifier: MIT
// Events on their way from the threads to the trace file and the listeners.
//
// Each thread that has events has a ring, where it alone writes, and whoever *holds the events*
// alone reads. So recording takes no lock and is allowed anywhere, in a stopped world and in the
// library's own threads too. A full ring loses the newest, and counts it. Rings are on one list,
// which only grows; a ring whose thread has ended is used again by another thread. While nobody
// listens nothing is recorded, and no ring is mapped.
//
//   thread: rt_event --> its ring --+
//   thread: rt_event --> its ring --+--> merged, a batch at a time --> trace file, listeners
//   marker: rt_event --> its ring --+    (rt_events_drain)
//
// The events are held by a lock that is outside all others, for a listener may do nearly anything
// while its thread holds it: allocate, collect, fork. Nobody waits for it who is on the way of an
// allocation: who finds it taken leaves a note (`asked`), and the holder looks again. But where
// others make events faster than a listener takes them, it would look for ever: after a while it
// leaves the rest (`left`) to whoever of them comes next.
//
// The list of listeners has a lock of its own, which nothing is taken under.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RING_EVENTS = 8192, BATCH_EVENTS = 256 };

typedef struct rt_ring {
  AO_t owned;           // 1 while a thread writes here
  uint32_t thread;      // its id
  struct rt_ring *next; // on the list of all; fixed

  // Of whoever holds the events.
  struct rt_ring *next_to_merge;
  AO_t end;        // of what is being delivered
  uint64_t key_ns; // when its first undelivered event ended

  AO_t written __attribute__((aligned(128))); // so far; only the owner writes it
  AO_t taken __attribute__((aligned(128)));   // of them; only who holds the events writes it
  tide_event events[RING_EVENTS] __attribute__((aligned(128)));
} rt_ring;

AO_t rt_events_listeners;
static AO_t lost;
static AO_t rings; // rt_ring *, the newest first

static __thread rt_ring *own __attribute__((tls_model("initial-exec")));
// The one before. If it is still free it is taken again: the thread's events stay in one ring, and
// so in order.
static __thread rt_ring *previous __attribute__((tls_model("initial-exec")));
static __thread bool in_listener __attribute__((tls_model("initial-exec")));

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static AO_t asked; // to deliver, since the holder last looked
static AO_t left;  // 1: there are events that the last holder has left to the next
enum { PATIENCE_NS = 50000000 };

typedef struct batch {
  size_t count;
  tide_event events[BATCH_EVENTS];
} batch;
static AO_t the_batch;   // batch *, mapped with the first listener: static data is scanned
static rt_ring *merging; // rings with something to deliver, the earliest first

// ---- What the table says --------------------------------------------------------------------

static const tide_event_info infos[TIDE_EVENTS] = {
#define INFO(NAME, name, form, a, b, help) {#name, TIDE_EVENT_##form, a, b, help},
    TIDE_EVENT_TABLE(INFO)
#undef INFO
};

const tide_event_info *tide_event_describe(tide_event_kind kind) {
  return (unsigned)kind < TIDE_EVENTS ? &infos[kind] : NULL;
}

const char *tide_event_name(tide_event_kind kind) {
  return (unsigned)kind < TIDE_EVENTS ? infos[kind].name : "unknown";
}

// ---- Recording ------------------------------------------------------------------------------

static rt_ring *first_ring(void) {
  return (rt_ring *)AO_load_acquire(&rings); // acquire: pairs with the release in new_ring
}

// Acquire: pairs with the release in free_ring, so `written` is as the last owner left it.
static bool own_ring(rt_ring *ring) {
  return !AO_load(&ring->owned) && AO_compare_and_swap_acquire(&ring->owned, 0, 1);
}

static rt_ring *new_ring(void) {
  rt_ring *ring = os_map(sizeof *ring);
  if (!ring) return NULL;
  ring->owned = 1;
  do ring->next = (rt_ring *)AO_load(&rings);
  while (!AO_compare_and_swap_release(&rings, (AO_t)ring->next, (AO_t)ring));
  return ring;
}

static rt_ring *free_or_new_ring(void) {
  if (previous && own_ring(previous)) return previous;
  for (rt_ring *ring = first_ring(); ring; ring = ring->next)
    if (own_ring(ring)) return ring;
  return new_ring();
}

static RT_COLD rt_ring *take_ring(void) {
  rt_ring *ring = free_or_new_ring();
  if (!ring) return NULL;
  ring->thread = (uint32_t)syscall(SYS_gettid);
  own = previous = ring;
  if (rt_self()) rt_self()->ring = ring;
  return ring;
}

static void free_ring(rt_ring *ring) {
  AO_store_release(&ring->owned, 0); // release: pairs with the acquire in own_ring
}

static void record(rt_ring *ring, const tide_event *event) {
  AO_t written = AO_load(&ring->written);
  // Acquire: pairs with the release in take_first. The place has been read before it is written.
  if (written - AO_load_acquire(&ring->taken) == RING_EVENTS) {
    AO_fetch_and_add1(&lost);
    return;
  }
  ring->events[written % RING_EVENTS] = *event;
  // Release: pairs with the acquire in begin_merge. Who sees the count sees the event.
  AO_store_release(&ring->written, written + 1);
}

void rt_event_record(tide_event_kind kind, uint64_t at_ns, uint64_t duration_ns, uint64_t a,
                     uint64_t b, const char *label) {
  rt_ring *ring = own ? own : take_ring();
  if (!ring) {
    AO_fetch_and_add1(&lost);
    return;
  }
  tide_event event = {kind, ring->thread, at_ns, duration_ns, a, b, ""};
  memcpy(event.label, label, strnlen(label, sizeof event.label - 1));
  record(ring, &event);
}

bool rt_events_due(void) {
  if (AO_load(&left)) return true;
  return own && AO_load(&own->written) - AO_load(&own->taken) > RING_EVENTS / 2;
}

uint64_t tide_events_lost(void) {
  return AO_load(&lost);
}

// ---- Threads that end -----------------------------------------------------------------------

void rt_events_leave(void) {
  if (!own) return;
  if (rt_self()) rt_self()->ring = NULL;
  free_ring(own);
  own = NULL;
}

// The thread is gone: nobody else writes into its ring.
void rt_events_bury(rt_thread *thread) {
  uint64_t at_ns = os_now_ns();
  rt_event_probe(TIDE_EVENT_THREAD_END, at_ns, 0, 0, 0);
  rt_ring *ring = thread->ring;
  if (!ring) return;
  tide_event event = {TIDE_EVENT_THREAD_END, ring->thread, at_ns, 0, 0, 0, ""};
  if (rt_events_wanted()) record(ring, &event);
  thread->ring = NULL;
  free_ring(ring);
}

// ---- Listeners ------------------------------------------------------------------------------

struct tide_event_listener {
  void (*fn)(const tide_event *event, void *arg);
  void *arg;
  uint64_t since_ns; // what has ended before is not for it
  bool removed;      // is not called any more
  bool left;         // removed by its own call: to be freed when that returns
  tide_event_listener *next;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; // for what follows
static pthread_cond_t call_over = PTHREAD_COND_INITIALIZER;
static tide_event_listener *listeners;    // in the order of adding
static tide_event_listener *being_called; // at most one is: the events are held

static void unlink_and_free(tide_event_listener *listener) { // list_lock held
  tide_event_listener **link = &listeners;
  while (*link != listener) link = &(*link)->next;
  *link = listener->next;
  free(listener);
}

static void append(tide_event_listener *listener) {
  pthread_mutex_lock(&list_lock);
  tide_event_listener **link = &listeners;
  while (*link) link = &(*link)->next;
  *link = listener;
  pthread_mutex_unlock(&list_lock);
}

tide_event_listener *tide_event_listener_add(void (*fn)(const tide_event *event, void *arg),
                                             void *arg) {
  if (!rt_enter("tide_event_listener_add")) return NULL;
  if (!fn) {
    rt_error_set(TIDE_ERR_ARGUMENT, "tide_event_listener_add: no function");
    return NULL;
  }
  int cancellable = rt_cancel_disable();
  tide_event_listener *listener = calloc(1, sizeof *listener);
  if (!listener || !rt_events_listen()) {
    free(listener);
    listener = NULL;
    rt_error_set(TIDE_ERR_MEMORY, "no memory for a listener");
  } else {
    *listener = (tide_event_listener){.fn = fn, .arg = arg, .since_ns = os_now_ns()};
    append(listener);
  }
  rt_cancel_restore(cancellable);
  return listener;
}

static void remove_listener(tide_event_listener *listener) { // list_lock held
  listener->removed = true;
  if (being_called == listener && in_listener) {
    listener->left = true;
    return;
  }
  while (being_called == listener) pthread_cond_wait(&call_over, &list_lock);
  unlink_and_free(listener);
}

void tide_event_listener_remove(tide_event_listener *listener) {
  if (!listener || !rt_enter("tide_event_listener_remove")) return;
  int cancellable = rt_cancel_disable(); // waiting is a cancellation point
  pthread_mutex_lock(&list_lock);
  remove_listener(listener);
  pthread_mutex_unlock(&list_lock);
  rt_events_unlisten();
  rt_cancel_restore(cancellable);
}

static void call(tide_event_listener *listener, const tide_event *event) { // list_lock held
  being_called = listener;
  pthread_mutex_unlock(&list_lock);
  in_listener = true;
  if (rt_self()) rt_quiet_begin(rt_self());
  listener->fn(event, listener->arg);
  if (rt_self()) rt_quiet_end(rt_self());
  in_listener = false;
  pthread_mutex_lock(&list_lock);
  being_called = NULL;
}

static void call_listeners(const tide_event *event) {
  pthread_mutex_lock(&list_lock);
  for (tide_event_listener *listener = listeners, *next; listener; listener = next) {
    bool wants = !listener->removed && event->at_ns + event->duration_ns >= listener->since_ns;
    if (wants) call(listener, event);
    next = listener->next; // who waits to free the listener needs the lock for that
    if (!wants || !listener->removed) continue;
    if (listener->left)
      unlink_and_free(listener);
    else
      pthread_cond_broadcast(&call_over);
  }
  pthread_mutex_unlock(&list_lock);
}

// ---- Delivering -----------------------------------------------------------------------------

// Puts the ring where its first event belongs; behind equals.
static void merge(rt_ring *ring) {
  const tide_event *event = &ring->events[AO_load(&ring->taken) % RING_EVENTS];
  ring->key_ns = event->at_ns + event->duration_ns;
  rt_ring **link = &merging;
  while (*link && (*link)->key_ns <= ring->key_ns) link = &(*link)->next_to_merge;
  ring->next_to_merge = *link;
  *link = ring;
}

// What comes up later is for the next time, or this would have no end.
static void begin_merge(void) {
  merging = NULL;
  for (rt_ring *ring = first_ring(); ring; ring = ring->next) {
    ring->end = AO_load_acquire(&ring->written); // acquire: pairs with the release in record
    if (AO_load(&ring->taken) != ring->end) merge(ring);
  }
}

static void take_first(tide_event *event) {
  rt_ring *ring = merging;
  merging = ring->next_to_merge;
  AO_t taken = AO_load(&ring->taken);
  *event = ring->events[taken % RING_EVENTS];
  AO_store_release(&ring->taken, taken + 1); // release: pairs with the acquire in record
  if (taken + 1 != ring->end) merge(ring);
}

static bool take_batch(batch *b) {
  b->count = 0;
  while (merging && b->count < BATCH_EVENTS) take_first(&b->events[b->count++]);
  return b->count;
}

// A batch is in the file before listeners see it, so that it is there if one of them crashes.
// Everything is read anew after each call: in a child that it has forked there is nothing left.
// False: somebody has asked, and it has become late.
static bool deliver_until(uint64_t end_ns, bool to_listeners) {
  batch *b = (batch *)AO_load_acquire(&the_batch); // acquire: pairs with the release in map_batch
  if (!b) return true;
  begin_merge();
  while (take_batch(b)) {
    rt_trace_events(b->events, b->count);
    for (size_t i = 0; to_listeners && i < b->count; i++) call_listeners(&b->events[i]);
    if (AO_load(&asked) && os_now_ns() > end_ns) return false;
  }
  return true;
}

void rt_events_deliver(bool to_listeners) {
  deliver_until(UINT64_MAX, to_listeners);
}

void rt_events_drain(void) {
  if (!rt_events_wanted() || in_listener) return;
  int cancellable = rt_cancel_disable();
  uint64_t end_ns = os_now_ns() + PATIENCE_NS;
  AO_store(&asked, 1);
  AO_nop_full(); // pairs with the one below: one of the two sees what the other wrote
  while (AO_load(&asked) && pthread_mutex_trylock(&held) == 0) {
    AO_store(&asked, 0);
    AO_store(&left, 0);
    AO_nop_full(); // before looking into the rings
    bool in_time = !rt_events_wanted() || deliver_until(end_ns, true);
    if (!in_time) AO_store(&left, 1);
    pthread_mutex_unlock(&held);
    AO_nop_full();
    if (!in_time) break;
  }
  rt_cancel_restore(cancellable);
}

// ---- Holding the events ---------------------------------------------------------------------

bool rt_events_in_listener(void) {
  return in_listener;
}

void rt_events_hold(void) {
  if (!in_listener) pthread_mutex_lock(&held);
}

bool rt_events_hold_within(uint64_t ns) {
  uint64_t end_ns = os_now_ns() + ns;
  for (unsigned tries = 0; !in_listener && pthread_mutex_trylock(&held) != 0; tries++) {
    if (os_now_ns() > end_ns) return false;
    os_pause(tries);
  }
  return true;
}

void rt_events_give(void) {
  if (!in_listener) pthread_mutex_unlock(&held);
}

static bool map_batch(void) {
  if (AO_load(&the_batch)) return true;
  batch *b = os_map(sizeof *b);
  if (!b) return false;
  // Release: pairs with the acquire in rt_events_deliver.
  if (!AO_compare_and_swap_release(&the_batch, 0, (AO_t)b)) os_unmap(b, sizeof *b);
  return true;
}

bool rt_events_listen(void) {
  if (!map_batch()) return false;
  AO_fetch_and_add1(&rt_events_listeners);
  return true;
}

void rt_events_unlisten(void) {
  AO_fetch_and_sub1(&rt_events_listeners);
}

// ---- Fork -----------------------------------------------------------------------------------

void rt_events_before_fork(void) {
  rt_events_hold();
  pthread_mutex_lock(&list_lock);
}

// The events that were waiting are the parent's to deliver. Rings of threads that the child does
// not have may have been cut off in the middle of an event; it was not counted yet.
static void forget_all(void) {
  for (rt_ring *ring = first_ring(); ring; ring = ring->next) {
    AO_store(&ring->taken, AO_load(&ring->written));
    if (ring != own) free_ring(ring);
  }
  if (own) own->thread = (uint32_t)syscall(SYS_gettid);
  merging = NULL;
  batch *b = (batch *)AO_load(&the_batch);
  if (b) b->count = 0;
  AO_store(&lost, 0);
  AO_store(&left, 0);
}

// In the parent, who has asked meanwhile waits for the next one to deliver: other libraries' locks
// are still held here, and a listener may want them.
void rt_events_after_fork(bool in_child) {
  if (in_child) {
    forget_all();
    rt_trace_after_fork();
    call_over = (pthread_cond_t)PTHREAD_COND_INITIALIZER; // who waited for it is not there
  }
  pthread_mutex_unlock(&list_lock);
  rt_events_give();
}
