// SPDX-License-Identifier: MIT
// What the files of runtime/ share with one another and with no other room.
#ifndef TIDEPOOL_RT_PRIVATE_H
#define TIDEPOOL_RT_PRIVATE_H

#include "rt.h"

// options.c
int64_t rt_limit_for(uint64_t allowed_bytes); // what `auto` stands for; UINT64_MAX: all is allowed
void rt_options_settle(void);                 // puts numbers in place of `auto` in rt_options
const char *rt_options_conflict(const tide_options *asked);

// init.c

// thread.c
tide_status rt_threads_init(void);
tide_status rt_thread_attach_self(void); // TIDE_OK when it is registered already
void rt_thread_bury(rt_thread *thread);  // has ended without unregistering; rt_world_lock held
void rt_threads_after_fork(void);        // forgets all but the calling thread; rt_world_lock held

// rseq.c
void rt_rseq_init(void);

// proc.c
tide_status rt_procs_init(int procs);
void rt_proc_acquire(rt_thread *self); // a processor for a thread that has none
void rt_proc_release(rt_thread *self);
void rt_procs_lock(void);
void rt_procs_unlock(void);
void rt_procs_after_fork(rt_thread *only);

// world.c
tide_status rt_world_init(void);
void rt_world_lock_for_fork(void); // keeps the world from being stopped, and the registry as it is
void rt_world_unlock_for_fork(void);
void rt_world_enter_blocked(rt_thread *self); // when it returns, no stop signal is on its way
void rt_world_leave_blocked(rt_thread *self); // waits for the pause, if any, to end

// events.c
//
// Who holds the events empties the rings, and has the trace file. A thread that calls a listener
// holds them: for it these two do nothing.
void rt_events_hold(void);
bool rt_events_hold_within(uint64_t ns); // false: it did not get them
void rt_events_give(void);
bool rt_events_in_listener(void); // the calling thread
// One more that events are recorded for. False: no memory to deliver them with.
bool rt_events_listen(void);
void rt_events_unlisten(void);
void rt_events_deliver(bool to_listeners); // held: what is in the rings now
void rt_events_bury(rt_thread *thread);    // it has ended, and the caller speaks for it
void rt_events_before_fork(void);
void rt_events_after_fork(bool in_child);

// trace.c
// The events are held in all of these.
void rt_trace_events(const tide_event *events, size_t count); // nothing, when nothing is traced
void rt_trace_after_fork(void);                               // in the child

// segments.c
void rt_segments_refresh(void);    // reads the loader's list if it has changed
bool rt_segments_still_true(void); // world stopped: loader at rest, list as it was read?
void rt_segments_scan(rt_root_fn fn, void *arg);
bool rt_tls_settled(const rt_thread *thread); // world stopped: is its table of TLS blocks whole?
void rt_tls_scan(const rt_thread *thread, rt_root_fn fn, void *arg);

// roots.c
tide_status rt_roots_init(void);
void rt_scan(const char *lo, const char *hi, rt_root_source source, rt_root_fn fn, void *arg);
// Memory that may be shorter than believed: the kernel copies it, up to the first unreadable byte.
void rt_scan_doubtful(const char *lo, const char *hi, rt_root_source source, rt_root_fn fn,
                      void *arg);

#endif
