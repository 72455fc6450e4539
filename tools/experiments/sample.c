// SPDX-License-Identifier: MIT
// Runs gaps side by side; see sample.h.
//
// One thread does it all: of all that is planned, gaps to begin and gaps to end, it takes what
// comes first, waits, and uses that gap's pool. Gaps of one configuration have one length, so they
// end in the order in which they began. A pool whose gap is over goes on a list of free ones.
//
// Each use takes all items of the pool and puts them back, as a burst does: at the begin of a gap
// it fills the pool, at its end it counts.
#include "sample.h"
#include "command.h"
#include "wait.h"

#include <atomic_ops.h>
#include <math.h>
#include <stdlib.h>
#include <tidepool.h>

typedef struct lane {
  tide_pool *pool;
  AO_t number; // from 1; what it writes into its items while it holds them
  uint64_t item_bytes;
  uint64_t misses; // of the use that runs
  uint64_t uses, hits;
  struct lane *next; // all of them
  struct lane *next_free;
} lane;

typedef struct sample_gap {
  lane *lane;
  uint64_t put_ns;
} sample_gap;

typedef struct state {
  sample_run *run;
  lane *all, *free;
} state;

typedef struct use {
  uint64_t get_ns, put_ns, hits;
} use;

typedef struct event {
  sample_config *config; // NULL: there is none
  double at_ns;
  bool end; // of a gap
} event;

// ---- Pools ----------------------------------------------------------------------------------

static void *make_item(void *arg) {
  lane *l = arg;
  AO_t *item = tide_alloc_leaf(l->item_bytes);
  l->misses++;
  if (item) *item = 0;
  return item;
}

static lane *add_lane(state *s) {
  lane *l = calloc(1, sizeof *l);
  if (l) {
    l->pool = tide_pool_create(&(tide_pool_options){
        .name = "sample", .create = make_item, .arg = l, .survive = (int)s->run->survive});
    if (l->pool) {
      l->number = ++s->run->pools;
      l->item_bytes = s->run->item_bytes;
      l->next = s->all;
      return s->all = l;
    }
  }
  free(l);
  complain("no memory for a pool");
  return NULL;
}

static lane *free_lane(state *s) {
  lane *l = s->free;
  if (!l) return add_lane(s);
  s->free = l->next_free;
  return l;
}

// An item's first word is 0 in the pool, and its lane's number while the lane holds it.
static const char *take_items(lane *l, AO_t **items, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    items[i] = tide_pool_get(l->pool);
    if (!items[i]) return "out of memory: an item could not be made";
    if (*items[i] != 0) return "the pool gave out an item that was in use";
    *items[i] = l->number;
  }
  return NULL;
}

static const char *put_items(lane *l, AO_t **items, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    if (*items[i] != l->number) return "an item changed while it was held";
    *items[i] = 0;
    tide_pool_put(l->pool, items[i]);
  }
  return NULL;
}

static bool use_lane(lane *l, unsigned count, use *u) {
  AO_t *items[SAMPLE_ITEMS_MAX];
  l->misses = 0;
  uint64_t began_ns = now_ns();
  const char *fault = take_items(l, items, count);
  uint64_t held_ns = now_ns();
  if (!fault) fault = put_items(l, items, count);
  if (fault) {
    complain("%s", fault);
    return false;
  }
  u->get_ns = began_ns + (held_ns - began_ns) / 2;
  u->put_ns = held_ns + (now_ns() - held_ns) / 2;
  u->hits = count - l->misses;
  l->uses++;
  l->hits += u->hits;
  return true;
}

// ---- Gaps -----------------------------------------------------------------------------------

static bool begin_gap(state *s, event e) {
  sample_config *c = e.config;
  sample_gap *g = &c->gaps[c->begun++];
  g->lane = free_lane(s);
  use u;
  if (!g->lane || !use_lane(g->lane, s->run->items, &u)) return false;
  g->put_ns = u.put_ns;
  c->late_sum_ns += (double)u.put_ns - e.at_ns;
  return true;
}

static bool end_gap(state *s, event e) {
  sample_config *c = e.config;
  sample_gap *g = &c->gaps[c->done++];
  use u;
  if (!use_lane(g->lane, s->run->items, &u)) return false;
  c->hits += u.hits;
  c->gap_sum_ns += (double)(u.get_ns - g->put_ns);
  if (cycles_between(s->run->cycles, g->put_ns, u.get_ns) <= s->run->survive) c->survived++;
  g->lane->next_free = s->free;
  s->free = g->lane;
  return true;
}

static void look_at(event *first, event e) {
  if (!first->config || e.at_ns < first->at_ns) *first = e;
}

static event first_event(const sample_run *run) {
  event first = {0};
  for (unsigned k = 0; k < run->config_count; k++) {
    sample_config *c = &run->configs[k];
    if (c->begun < c->bursts)
      look_at(&first, (event){c, (double)run->from_ns + sample_start_ns(run, k, c->begun), false});
    if (c->done < c->begun)
      look_at(&first, (event){c, (double)c->gaps[c->done].put_ns + c->gap_ns, true});
  }
  return first;
}

// Until all is done, or the program is asked to end.
static bool run_events(state *s) {
  for (;;) {
    event e = first_event(s->run);
    if (!e.config || !wait_until((uint64_t)e.at_ns)) return true;
    if (!(e.end ? end_gap(s, e) : begin_gap(s, e))) return false;
    if (pressure_failed(s->run->pressure)) {
      complain("out of memory: the allocating thread gave up");
      return false;
    }
    if (s->run->progress) s->run->progress(s->run->progress_arg);
  }
}

// A pool's statistics against what its gaps counted.
static bool check_lane(const lane *l, unsigned items) {
  tide_pool_stats stats;
  tide_pool_stats_read(l->pool, &stats);
  uint64_t gets = l->uses * items;
  if (stats.gets == gets && stats.puts == gets && stats.misses == gets - l->hits) return true;
  complain("a pool counted %llu gets, %llu puts and %llu misses; its gaps %llu, %llu and %llu",
           (unsigned long long)stats.gets, (unsigned long long)stats.puts,
           (unsigned long long)stats.misses, (unsigned long long)gets, (unsigned long long)gets,
           (unsigned long long)(gets - l->hits));
  return false;
}

static bool free_lanes(state *s, bool good) {
  for (lane *l = s->all, *next; l; l = next) {
    next = l->next;
    good = good && check_lane(l, s->run->items);
    tide_pool_destroy(l->pool);
    free(l);
  }
  return good;
}

bool sample_measure(sample_run *run) {
  state s = {.run = run};
  bool good = true;
  for (unsigned k = 0; k < run->config_count; k++) {
    sample_config *c = &run->configs[k];
    c->gaps = calloc(c->bursts, sizeof *c->gaps);
    if (c->gaps) continue;
    complain("no memory for %u gaps", c->bursts);
    good = false;
    break;
  }
  if (good) good = run_events(&s);
  run->until_ns = now_ns();
  good = free_lanes(&s, good);
  for (unsigned k = 0; k < run->config_count; k++) {
    free(run->configs[k].gaps);
    run->configs[k].gaps = NULL;
  }
  return good;
}
