// SPDX-License-Identifier: MIT
// The patterns of allocation; see pattern.h.
#include "pattern.h"

#include <math.h>

// The share of the time in which bursty is on.
static const double duty = 0.25;
enum { PHASES = 3 };
static const double phase_rates[PHASES] = {0.25, 1, 4};
// Phases are as long in bytes, so the time of each is 1 / its rate, and the mean rate is this.
static const double phase_mean = PHASES / (1 / 0.25 + 1 + 1 / 4.0);
static const double phase_periods_least = 2, phase_periods_most = 4;

// splitmix64: any state is a good one.
double random_share(uint64_t *random) {
  uint64_t z = *random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static double exponential(pattern *p, double mean) {
  return -log1p(-random_share(&p->random)) * mean;
}

// ---- Stretches ------------------------------------------------------------------------------

static double mean_period_ns(const pattern *p) {
  return p->set.growth_bytes / p->set.rate * 1e9;
}

static stretch next_bursty(pattern *p) {
  p->on = !p->on;
  double share = p->on ? duty : 1 - duty, rate = p->on ? p->set.rate / duty : 0;
  return (stretch){exponential(p, share * mean_period_ns(p)), rate, rate};
}

static void shuffle_phases(pattern *p) {
  for (unsigned i = 0; i < PHASES; i++) p->order[i] = i;
  for (unsigned i = PHASES - 1; i > 0; i--) {
    unsigned j = (unsigned)(random_share(&p->random) * (i + 1)), other = p->order[j];
    p->order[j] = p->order[i];
    p->order[i] = other;
  }
}

static stretch next_phase(pattern *p) {
  if (p->ordinal == 0) shuffle_phases(p);
  double rate = phase_rates[p->order[p->ordinal]] / phase_mean * p->set.rate;
  p->ordinal = (p->ordinal + 1) % PHASES;
  double range = phase_periods_most - phase_periods_least;
  double count = phase_periods_least + random_share(&p->random) * range;
  return (stretch){count * p->set.growth_bytes / rate * 1e9, rate, rate};
}

static stretch next_of_curve(pattern *p) {
  const curve *c = p->set.curve;
  double scale = p->set.rate / curve_mean_rate(c);
  const curve_point *from = &c->points[p->next_point], *to = from + 1;
  p->next_point = (p->next_point + 1) % (c->count - 1);
  return (stretch){to->at_ns - from->at_ns, from->rate * scale, to->rate * scale};
}

static stretch next_stretch(pattern *p) {
  switch (p->set.kind) {
  case PATTERN_BURSTY:
    return next_bursty(p);
  case PATTERN_PHASED:
    return next_phase(p);
  case PATTERN_REPLAY:
    return next_of_curve(p);
  default:
    return (stretch){HUGE_VAL, p->set.rate, p->set.rate};
  }
}

// ---- Chunks ---------------------------------------------------------------------------------

// How fast the rate changes, in bytes/s a nanosecond.
static double slope_of(const stretch *s) {
  return s->rate == s->rate_at_end ? 0 : (s->rate_at_end - s->rate) / s->left_ns;
}

static double bytes_left(const stretch *s) {
  return (s->rate + s->rate_at_end) / 2 * s->left_ns * 1e-9;
}

// The time in which the bytes come, of which the stretch has enough: the lesser root of
// bytes = rate t + slope t^2 / 2, in a form that needs no slope.
static double time_for(const stretch *s, double bytes) {
  double scaled = bytes * 1e9;
  double root = sqrt(fmax(s->rate * s->rate + 2 * slope_of(s) * scaled, 0));
  return fmin(2 * scaled / (s->rate + root), s->left_ns);
}

static void move_on(stretch *s, double by_ns) {
  s->rate += slope_of(s) * by_ns;
  s->left_ns -= by_ns;
}

static chunk poisson_chunk(pattern *p) {
  double after_ns = exponential(p, p->set.chunk_bytes / p->set.rate * 1e9);
  return (chunk){after_ns, (uint64_t)ceil(fmax(exponential(p, p->set.chunk_bytes), 1))};
}

pattern pattern_begin(const pattern_settings *set) {
  return (pattern){.set = *set, .random = set->seed * PATTERNS + set->kind};
}

chunk pattern_next(pattern *p) {
  if (p->set.kind == PATTERN_POISSON) return poisson_chunk(p);
  double wanted = p->set.chunk_bytes, after_ns = 0;
  for (double there = bytes_left(&p->now); there < wanted; there = bytes_left(&p->now)) {
    wanted -= there;
    after_ns += p->now.left_ns;
    p->now = next_stretch(p);
  }
  double time_ns = time_for(&p->now, wanted);
  move_on(&p->now, time_ns);
  return (chunk){after_ns + time_ns, (uint64_t)p->set.chunk_bytes};
}

double pattern_bytes_between(pattern p, double from_ns, double to_ns) {
  double bytes = 0;
  for (double at_ns = 0;;) {
    chunk next = pattern_next(&p);
    at_ns += next.after_ns;
    if (at_ns >= to_ns) return bytes;
    if (at_ns >= from_ns) bytes += (double)next.bytes;
  }
}
