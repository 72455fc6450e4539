// SPDX-License-Identifier: MIT
// The simulation; see replay_sim.h.
//
// What is garbage is known by bytes alone: those of objects that are dead by the recording, and of
// items that nobody holds and no pool has. A collection takes them off the heap's size, and the
// rest is live. Pools have queues as the real ones have with one processor: the primary gives what
// was put last, a victim what was put first.
#include "replay_sim.h"
#include "pacer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool/gc.h>

enum { PAGE_BYTES = 4096, SLOW_PATH_BYTES = 4096 };

typedef struct item {
  uint64_t bytes;    // in the heap
  uint64_t measured; // by the pool's limits
  uint64_t put_us;
} item;

// The items of a primary or a victim.
typedef struct set {
  item *items; // from first to end, the oldest first
  size_t first, end, room;
  uint64_t since_us, retired_us;
  unsigned age;
} set;

typedef struct pool {
  const trace_pool *options;
  set primary;
  bool has_primary;
  set *victims; // the latest first
  size_t victim_count, victim_room;
  uint64_t items, measured;     // in all sets
  uint64_t first_use, last_use; // rounds; 0: none
  double *gaps_ms;
  size_t gap_count, gap_room;
} pool;

typedef struct sim {
  const trace *t;
  const sim_setting *setting;
  sim_result *result;
  uint64_t *bytes;  // by object: in the heap; 0: it is not, or somebody else's to count
  uint64_t *holder; // by object: the get that has it as its item; 0: none
  item *held;       // by get
  bool *is_held;
  pool *pools;
  pacer pacer;
  uint64_t beside_bytes;
  uint64_t heap_bytes, garbage_bytes, external_bytes;
  uint64_t grown_bytes; // since the last collection
  uint64_t first_us, last_us, now_us;
  bool failed; // no memory
} sim;

// By what tide_class_by_arithmetic says: the largest size of the same class.
uint64_t sim_object_bytes(uint64_t bytes) {
  if (bytes > TIDE_SMALL_MAX) return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  unsigned of = tide_class_by_arithmetic(bytes);
  uint64_t from = (bytes + 15) / 16, to = TIDE_SMALL_MAX / 16;
  if (!from) from = 1;
  while (from < to) {
    uint64_t middle = from + (to - from + 1) / 2;
    if (tide_class_by_arithmetic(16 * middle) == of)
      from = middle;
    else
      to = middle - 1;
  }
  return 16 * from;
}

// ---- Sets -----------------------------------------------------------------------------------

static bool set_push(set *s, item one) {
  if (s->end == s->room) {
    size_t room = s->room ? 2 * s->room : 16;
    item *larger = realloc(s->items, room * sizeof *larger);
    if (!larger) return false;
    s->items = larger;
    s->room = room;
  }
  s->items[s->end++] = one;
  return true;
}

static bool set_take(set *s, bool latest, item *one) {
  if (s->first == s->end) return false;
  *one = latest ? s->items[--s->end] : s->items[s->first++];
  return true;
}

// ---- Collections ----------------------------------------------------------------------------

// The set's items are garbage.
static void drop(sim *s, pool *p, set *gone) {
  for (size_t i = gone->first; i < gone->end; i++) {
    s->garbage_bytes += gone->items[i].bytes;
    p->measured -= gone->items[i].measured;
    p->items--;
  }
  free(gone->items);
  *gone = (set){0};
}

static void retire(sim *s, pool *p, bool keeps) {
  p->has_primary = false;
  if (!keeps) {
    drop(s, p, &p->primary);
    return;
  }
  if (p->victim_count == p->victim_room) {
    size_t room = p->victim_room ? 2 * p->victim_room : 4;
    set *larger = realloc(p->victims, room * sizeof *larger);
    if (!larger) {
      s->failed = true;
      return;
    }
    p->victims = larger;
    p->victim_room = room;
  }
  memmove(p->victims + 1, p->victims, p->victim_count * sizeof *p->victims);
  p->victims[0] = p->primary;
  p->victims[0].retired_us = s->now_us;
  p->victims[0].age = 0;
  p->victim_count++;
  p->primary = (set){0};
}

static uint64_t min_idle_us_of(const sim *s, const pool *p) {
  if (!s->setting->idle_ms) return p->options->min_idle_ns / 1000;
  return (uint64_t)(1000 * s->setting->idle_ms[p - s->pools]);
}

// As rotate_by_policy in pool/rotate.c.
static void rotate(sim *s, pool *p, bool by_limit) {
  unsigned survive = s->setting->survive ? s->setting->survive : p->options->survive;
  uint64_t min_idle_us = min_idle_us_of(s, p);
  if (by_limit && survive > 1) survive = 1;
  if (by_limit) min_idle_us = 0;
  for (size_t i = 0; i < p->victim_count; i++) p->victims[i].age++;
  while (p->victim_count) {
    set *oldest = &p->victims[p->victim_count - 1];
    if (oldest->age < survive || s->now_us - oldest->retired_us < min_idle_us) break;
    drop(s, p, oldest);
    p->victim_count--;
  }
  if (p->has_primary && s->now_us - p->primary.since_us >= min_idle_us / 4)
    retire(s, p, survive || min_idle_us);
}

static void collect(sim *s, bool by_limit) {
  for (size_t i = 0; i < s->t->pool_count && !s->setting->forgets_nothing; i++)
    if (s->pools[i].options) rotate(s, &s->pools[i], by_limit);
  s->heap_bytes -= s->garbage_bytes;
  s->garbage_bytes = 0;
  s->grown_bytes = 0;
  s->pacer.live_bytes = s->heap_bytes;
  s->pacer.external_bytes = s->external_bytes;
  if (!s->result->collections++) s->first_us = s->now_us;
  s->last_us = s->now_us;
}

static void collect_if_due(sim *s, uint64_t request) {
  uint64_t heap = s->heap_bytes + s->external_bytes;
  const pacer_memory m = {.heap_bytes = heap, .used_bytes = heap + s->beside_bytes};
  if (heap >= pacer_trigger(&s->pacer) && s->grown_bytes >= SLOW_PATH_BYTES)
    collect(s, false);
  else if (pacer_limit_reached(&s->pacer, &m, request) && s->grown_bytes >= SIM_LEAST_GROWTH)
    collect(s, true);
}

static void allocate(sim *s, uint64_t bytes) {
  collect_if_due(s, bytes);
  s->heap_bytes += bytes;
  s->grown_bytes += bytes;
}

// ---- Objects --------------------------------------------------------------------------------

// By hand, so that the heap is smaller at once; or found dead.
static void object_dies(sim *s, uint64_t object, bool by_hand) {
  uint64_t bytes = s->bytes[object], get = s->holder[object];
  s->bytes[object] = s->holder[object] = 0;
  if (get && s->is_held[get]) {
    s->is_held[get] = false;
    bytes += s->held[get].bytes;
  }
  if (by_hand)
    s->heap_bytes -= bytes;
  else
    s->garbage_bytes += bytes;
}

static void resize(sim *s, const trace_event *e) {
  uint64_t before = s->bytes[e->object], after = sim_object_bytes((uint64_t)e->bytes);
  if (!before) return; // it has become an item, or is dead
  if (after > before) collect_if_due(s, after - before);
  s->heap_bytes += after - before;
  if (after > before) s->grown_bytes += after - before;
  s->bytes[e->object] = after;
}

// The item in use is made as large as the recorded one is by now, if it is not yet.
static void grow_item(sim *s, const trace_event *e) {
  uint64_t get = s->holder[e->object], bytes = sim_object_bytes((uint64_t)e->bytes);
  if (!get || !s->is_held[get] || s->held[get].bytes >= bytes) return;
  allocate(s, bytes - s->held[get].bytes);
  s->held[get].bytes = bytes;
}

static void add_external(sim *s, int64_t bytes) {
  uint64_t gone = bytes < 0 ? (uint64_t)-bytes : 0;
  s->external_bytes += bytes > 0 ? (uint64_t)bytes : 0;
  s->external_bytes -= gone < s->external_bytes ? gone : s->external_bytes;
  if (s->external_bytes < s->pacer.external_bytes) s->pacer.external_bytes = s->external_bytes;
  if (bytes > 0) s->grown_bytes += (uint64_t)bytes;
  if (bytes > 0) collect_if_due(s, 0);
}

// ---- Pools ----------------------------------------------------------------------------------

static bool find(pool *p, item *found) {
  if (p->has_primary && set_take(&p->primary, true, found)) return true;
  for (size_t i = 0; i < p->victim_count; i++)
    if (set_take(&p->victims[i], false, found)) return true;
  return false;
}

static void note_gap(sim *s, pool *p, const item *found) {
  if (p->gap_count == p->gap_room) {
    size_t room = p->gap_room ? 2 * p->gap_room : 64;
    double *larger = realloc(p->gaps_ms, room * sizeof *larger);
    if (!larger) {
      s->failed = true;
      return;
    }
    p->gaps_ms = larger;
    p->gap_room = room;
  }
  p->gaps_ms[p->gap_count++] = (double)(s->now_us - found->put_us) / 1000;
}

static uint64_t make(sim *s, uint32_t cost) {
  const trace_cost *c = &s->t->costs[cost];
  uint64_t all = 0;
  for (size_t i = 0; i < c->count; i++) {
    uint64_t bytes = sim_object_bytes(s->t->parts[c->first + i].bytes);
    allocate(s, bytes);
    all += bytes;
  }
  return all;
}

static void get(sim *s, const trace_event *e) {
  pool *p = &s->pools[e->pool - 1];
  sim_pool *counts = &s->result->pools[e->pool - 1];
  item got = {0};
  counts->gets++;
  if (p->options && find(p, &got)) {
    counts->hits++;
    p->items--;
    p->measured -= got.measured;
    note_gap(s, p, &got);
  } else if (e->letter != 'n') {
    got.bytes = make(s, e->cost);
  }
  if (e->letter == 'n') { // the program has nothing that it could put, or drop
    s->garbage_bytes += got.bytes;
    return;
  }
  s->held[e->other] = got;
  s->is_held[e->other] = true;
  if (e->object) s->holder[e->object] = e->other;
}

// The replay's item in the place of the recorded one.
static item item_of_put(sim *s, const trace_event *e) {
  item one = {.put_us = s->now_us, .measured = (uint64_t)e->bytes};
  if (e->other && s->is_held[e->other]) {
    s->is_held[e->other] = false;
    one.bytes = s->held[e->other].bytes;
  } else if (e->object) {
    one.bytes = s->bytes[e->object]; // the pool's from here on
    s->bytes[e->object] = 0;
  }
  if (e->object) s->holder[e->object] = 0;
  return one;
}

static bool has_room(const pool *p, const item *one) {
  const trace_pool *o = p->options;
  return (!o->max_item_bytes || one->measured <= o->max_item_bytes) &&
         (!o->max_items || p->items < o->max_items) &&
         (!o->max_bytes || p->measured + one->measured <= o->max_bytes);
}

static void note_use(sim *s, pool *p, sim_pool *counts) {
  uint64_t round = s->result->collections + 1;
  if (p->last_use == round) return;
  if (!p->first_use) p->first_use = round;
  p->last_use = round;
  counts->uses++;
}

static void put(sim *s, const trace_event *e) {
  pool *p = &s->pools[e->pool - 1];
  item one = item_of_put(s, e);
  if (!p->options || !has_room(p, &one) || !set_push(&p->primary, one)) {
    s->garbage_bytes += one.bytes;
    return;
  }
  if (!p->has_primary) p->primary.since_us = s->last_us;
  p->has_primary = true;
  p->items++;
  p->measured += one.measured;
  sim_pool *counts = &s->result->pools[e->pool - 1];
  if (p->items > counts->most_items) counts->most_items = p->items;
  note_use(s, p, counts);
}

static void end_pool(sim *s, uint32_t number) {
  pool *p = &s->pools[number - 1];
  drop(s, p, &p->primary);
  for (size_t i = 0; i < p->victim_count; i++) drop(s, p, &p->victims[i]);
  p->victim_count = 0;
  p->has_primary = false;
  p->options = NULL; // what is put from here on is lost
}

// ---- The whole ------------------------------------------------------------------------------

// As the recorded program's last collection had it.
static void take_surroundings(sim *s, const trace_collection *c) {
  s->pacer.stack_bytes = c->stack_bytes;
  s->pacer.global_bytes = c->global_bytes;
  s->beside_bytes = c->beside_bytes;
}

static void step(sim *s, const trace_event *e) {
  s->now_us = e->time_us;
  switch (e->kind) {
  case TRACE_ALLOC:
    s->bytes[e->object] = sim_object_bytes((uint64_t)e->bytes);
    allocate(s, s->bytes[e->object]);
    break;
  case TRACE_FREE:
    object_dies(s, e->object, true);
    break;
  case TRACE_DEATHS:
    for (uint64_t o = e->object; o <= e->other; o++) object_dies(s, o, false);
    break;
  case TRACE_RESIZE:
    resize(s, e);
    break;
  case TRACE_GROWTH:
    grow_item(s, e);
    break;
  case TRACE_EXTERNAL:
    add_external(s, e->bytes);
    break;
  case TRACE_COLLECTION:
    take_surroundings(s, &s->t->collections[e->object]);
    if (s->t->collections[e->object].forced) collect(s, false);
    break;
  case TRACE_POOL:
    s->pools[e->pool - 1].options = &s->t->pools[e->pool - 1];
    break;
  case TRACE_POOL_END:
    end_pool(s, e->pool);
    break;
  case TRACE_GET:
    get(s, e);
    break;
  case TRACE_PUT:
    put(s, e);
    break;
  }
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void sum_up(sim *s) {
  sim_result *r = s->result;
  r->period_ms = r->collections > 1
                     ? (double)(s->last_us - s->first_us) / 1000 / (double)(r->collections - 1)
                     : NAN;
  for (size_t i = 0; i < s->t->pool_count; i++) {
    pool *p = &s->pools[i];
    sim_pool *counts = &r->pools[i];
    counts->use_gap =
        counts->uses > 1 ? (double)(p->last_use - p->first_use) / (double)(counts->uses - 1) : NAN;
    if (p->gap_count) qsort(p->gaps_ms, p->gap_count, sizeof *p->gaps_ms, compare);
    counts->gap_ms = p->gap_count ? p->gaps_ms[p->gap_count / 2] : NAN;
    counts->long_gap_ms = p->gap_count ? p->gaps_ms[(p->gap_count * 99 - 1) / 100] : NAN;
  }
}

static void *zeroed(sim *s, uint64_t count, size_t bytes) {
  void *memory = calloc(count + 1, bytes);
  if (!memory) s->failed = true;
  return memory;
}

static void begin(sim *s) {
  const trace *t = s->t;
  s->bytes = zeroed(s, t->objects, sizeof *s->bytes);
  s->holder = zeroed(s, t->objects, sizeof *s->holder);
  s->held = zeroed(s, t->gets, sizeof *s->held);
  s->is_held = zeroed(s, t->gets, sizeof *s->is_held);
  s->pools = zeroed(s, t->pool_count, sizeof *s->pools);
  s->result->pools = zeroed(s, t->pool_count, sizeof *s->result->pools);
  s->pacer = (pacer){.percent = s->setting->gc_percent,
                     .min_heap_bytes = s->setting->min_heap_bytes,
                     .limit_bytes = s->setting->memory_limit == INT64_MAX
                                        ? PACER_NO_LIMIT
                                        : (uint64_t)s->setting->memory_limit};
  if (t->collection_count) take_surroundings(s, &t->collections[0]);
}

static void end(sim *s) {
  for (size_t i = 0; s->pools && i < s->t->pool_count; i++) {
    pool *p = &s->pools[i];
    for (size_t v = 0; v < p->victim_count; v++) free(p->victims[v].items);
    free(p->primary.items);
    free(p->victims);
    free(p->gaps_ms);
  }
  free(s->bytes);
  free(s->holder);
  free(s->held);
  free(s->is_held);
  free(s->pools);
  if (s->failed) free(s->result->pools);
}

bool simulate(const trace *t, const sim_setting *setting, sim_result *result) {
  *result = (sim_result){0};
  sim s = {.t = t, .setting = setting, .result = result};
  begin(&s);
  enum { ASK_EVERY = 1 << 16 };
  for (size_t i = 0; i < t->event_count && !s.failed && !result->stopped; i++) {
    step(&s, &t->events[i]);
    if (i % ASK_EVERY == 0 && setting->stop) result->stopped = setting->stop();
  }
  if (!s.failed) sum_up(&s);
  end(&s);
  return !s.failed;
}
