// SPDX-License-Identifier: MIT
// Deaths among the events of a recording; see trace_deaths.h.
#include "trace_deaths.h"

#include <stdlib.h>
#include <string.h>

double deaths_lifetime(const death *deaths, size_t count) {
  double by_age[2] = {0, 0};
  for (size_t i = 0; i < count; i++)
    if (deaths[i].age < 2) by_age[deaths[i].age] += (double)deaths[i].bytes;
  double all = by_age[0] + by_age[1];
  return all > 0 ? by_age[1] / all : 0;
}

// The first event before which so much had been allocated.
static size_t event_at(const trace *t, uint64_t allocated) {
  size_t from = 0, to = t->event_count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (t->events[middle].allocated < allocated)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

static size_t place_of(const trace *t, const death *d, double lifetime) {
  uint64_t room = d->to > d->from ? d->to - d->from : 0;
  uint64_t lives = d->age ? room / 2 : (uint64_t)(lifetime * (double)d->stretch + 0.5);
  size_t at = event_at(t, d->from + (lives < room ? lives : room));
  if (at > d->latest) at = d->latest;
  return at > d->earliest ? at : d->earliest;
}

typedef struct placed {
  size_t at;
  uint64_t object;
} placed;

static int compare(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->object > y->object) - (x->object < y->object);
}

static trace_event event_of(const trace *t, const placed *p) {
  const trace_event *before = p->at ? &t->events[p->at - 1] : NULL;
  return (trace_event){.kind = TRACE_DEATHS,
                       .time_us = before ? before->time_us : 0,
                       .allocated = before ? before->allocated : 0,
                       .object = p->object,
                       .other = p->object};
}

// Numbers that follow one another are one event.
static size_t merge(const trace *t, const placed *deaths, size_t count, trace_event *to) {
  size_t n = 0, next = 0;
  for (size_t i = 0; i <= t->event_count; i++) {
    bool first = true;
    for (; next < count && deaths[next].at == i; next++) {
      bool follows = !first && deaths[next].object == to[n - 1].other + 1;
      if (follows)
        to[n - 1].other++;
      else
        to[n++] = event_of(t, &deaths[next]);
      first = false;
    }
    if (i < t->event_count) to[n++] = t->events[i];
  }
  return n;
}

bool deaths_place(trace *t, const death *deaths, size_t count) {
  if (!count) return true;
  double lifetime = deaths_lifetime(deaths, count);
  placed *order = malloc(count * sizeof *order);
  trace_event *events = malloc((t->event_count + count) * sizeof *events);
  if (order && events) {
    for (size_t i = 0; i < count; i++)
      order[i] = (placed){place_of(t, &deaths[i], lifetime), deaths[i].object};
    qsort(order, count, sizeof *order, compare);
    t->event_count = merge(t, order, count, events);
    trace_event *old = t->events;
    t->events = events;
    events = old;
  }
  bool good = order && events;
  free(order);
  free(events);
  return good;
}
