// SPDX-License-Identifier: MIT
// Emitting an event: included by rt.h.
//
// rt_event fires the USDT probe of its kind, which is a no-op instruction and a note in the file,
// and then, if anybody listens, records the event into the calling thread's ring. May be called
// anywhere on any thread, pinned, with any lock and in a stopped world: it takes no lock and no
// malloc. It may map the thread's ring.
//
// Where a time would have to be read for the event alone, ask rt_events_wanted first and pass 0 if
// they are not: the probe then has 0 too.
#ifndef TIDEPOOL_EVENTS_EMIT_H
#define TIDEPOOL_EVENTS_EMIT_H

#ifdef TIDE_USDT
#include <sys/sdt.h>
#endif

extern AO_t rt_events_listeners; // listeners and trace files

static inline bool rt_events_wanted(void) {
  return RT_UNLIKELY(AO_load(&rt_events_listeners));
}

void rt_event_record(tide_event_kind kind, uint64_t at_ns, uint64_t duration_ns, uint64_t a,
                     uint64_t b, const char *label);

// The kind is a constant wherever this is called, so one case remains.
static inline __attribute__((always_inline)) void
rt_event_probe(tide_event_kind kind, uint64_t at_ns, uint64_t duration_ns, uint64_t a, uint64_t b) {
#ifdef TIDE_USDT
#define RT_EVENT_PROBE(NAME, name, form, a_name, b_name, help)                                     \
  case TIDE_EVENT_##NAME:                                                                          \
    STAP_PROBE4(tidepool, name, at_ns, duration_ns, a, b);                                         \
    break;
  switch (kind) {
    TIDE_EVENT_TABLE(RT_EVENT_PROBE)
  case TIDE_EVENTS:
    break;
  }
#undef RT_EVENT_PROBE
#endif
}

// label: copied, the first 23 bytes of it.
static inline __attribute__((always_inline)) void
rt_event_labelled(tide_event_kind kind, uint64_t at_ns, uint64_t duration_ns, uint64_t a,
                  uint64_t b, const char *label) {
  rt_event_probe(kind, at_ns, duration_ns, a, b);
  if (rt_events_wanted()) rt_event_record(kind, at_ns, duration_ns, a, b, label);
}

static inline __attribute__((always_inline)) void
rt_event(tide_event_kind kind, uint64_t at_ns, uint64_t duration_ns, uint64_t a, uint64_t b) {
  rt_event_labelled(kind, at_ns, duration_ns, a, b, "");
}

// Delivers what has been recorded, to the trace file and the listeners. Called after a collection,
// by a thread that is registered, or at least could be, and holds nothing: not pinned, the world
// running. Returns at once when another thread delivers, which then looks again before it leaves,
// or when the call comes from a listener.
void rt_events_drain(void);

// Whether the calling thread's ring is more than half full. Who emits many events outside
// collections then drains.
bool rt_events_due(void);

// The calling thread records nothing from here on: its ring is another's to use. It may still take
// one again.
void rt_events_leave(void);

// tide_trace_start for a thread that need not be registered. Not with init_lock held.
tide_status rt_trace_start(const char *path);

#endif
