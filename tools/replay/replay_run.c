// SPDX-License-Identifier: MIT
// The replay on the real heap; see replay_run.h.
//
// What keeps objects must not look like the program's memory: the heap's goal counts roots. So
// scanned objects refer to each other, in a ring through their first two words, and only leaf
// objects and items in use have a place in a table that is a root. Addresses by number are in
// malloc'd memory, which is none. An object that dies is taken out of the ring, and its own words
// are cleared: if a stale word on the stack keeps it, it keeps nobody else.
//
// An item is one object of the heap, the first part of its cost, which refers to the others.
#include "replay_run.h"
#include "command.h"
#include "progress.h"
#include "wait.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tidepool.h>
#include <unistd.h>

// What a scanned object begins with: the smallest has room for just this.
typedef struct ring {
  struct ring *next, *before;
} ring;

typedef struct item {
  struct item *rest; // of its parts
  uint64_t bytes;    // in the first part: of all of them, as the pool's limits measure them
} item;

typedef struct replay {
  const trace *t;
  void **address;   // by object; NULL: it is not there, or belongs to an item
  uint64_t *place;  // by object: in the table of leaf objects, and one; 0: in the ring
  uint64_t *holder; // by object: the get that has it as its item; 0: none
  uint64_t *held;   // by get: the item's place in the table, and one; 0: none
  void **table;     // a root
  uint64_t table_room, table_end;
  uint64_t *free_places;
  uint64_t free_count;
  tide_pool **pools;
  uint32_t cost; // of the item that has to be made
  bool failed;
} replay;

static ring all; // a root: its neighbours

// Read by a hook with the world stopped.
static volatile uint64_t now_us, first_us, last_us, collections;

static void note_collection(const tide_cycle *cycle, void *arg) {
  (void)cycle;
  (void)arg;
  if (!collections) first_us = now_us;
  last_us = now_us;
  collections++;
}

// ---- The table ------------------------------------------------------------------------------

static bool grow_table(replay *r) { // places not in use are NULL
  uint64_t room = r->table_room ? 2 * r->table_room : 64;
  void **larger = calloc(room, sizeof *larger);
  uint64_t *places = realloc(r->free_places, room * sizeof *places);
  if (places) r->free_places = places;
  if (!larger || !places || tide_roots_add(larger, larger + room) != TIDE_OK) return false;
  if (r->table) {
    memcpy(larger, r->table, r->table_room * sizeof *larger);
    tide_roots_remove(r->table, r->table + r->table_room);
    free(r->table);
  }
  r->table = larger;
  r->table_room = room;
  return true;
}

// 0: no memory.
static uint64_t place_of(replay *r, void *object) {
  if (!r->free_count && r->table_end == r->table_room && !grow_table(r)) {
    r->failed = true;
    return 0;
  }
  uint64_t place = r->free_count ? r->free_places[--r->free_count] : r->table_end++;
  r->table[place] = object;
  return place + 1;
}

static void *give_place(replay *r, uint64_t place) {
  void *object = r->table[place - 1];
  r->table[place - 1] = NULL;
  r->free_places[r->free_count++] = place - 1;
  return object;
}

// ---- Objects --------------------------------------------------------------------------------

static void *allocate(replay *r, char letter, uint64_t bytes) {
  if (!bytes) bytes = 1;
  void *object = letter == 'l'   ? tide_alloc_leaf(bytes)
                 : letter == 'u' ? tide_alloc_uncollectable(bytes)
                                 : tide_alloc(bytes);
  if (!object) r->failed = true;
  return object;
}

static void keep(replay *r, uint64_t number, void *object, char letter) {
  r->address[number] = object;
  if (letter == 'l') {
    r->place[number] = place_of(r, object);
    return;
  }
  ring *o = object;
  o->next = all.next;
  o->before = &all;
  all.next->before = o;
  all.next = o;
}

// Nobody refers to it from here on.
static void *let_go(replay *r, uint64_t number) {
  void *object = r->address[number];
  if (!object) return NULL;
  r->address[number] = NULL;
  if (r->place[number]) {
    give_place(r, r->place[number]);
    r->place[number] = 0;
    return object;
  }
  ring *o = object;
  o->next->before = o->before;
  o->before->next = o->next;
  *o = (ring){NULL, NULL};
  return object;
}

static void object_dies(replay *r, uint64_t number, bool by_hand) {
  void *object = let_go(r, number);
  uint64_t get = r->holder[number];
  r->holder[number] = 0;
  if (get && r->held[get]) {
    object = give_place(r, r->held[get]);
    r->held[get] = 0;
  }
  if (object && (by_hand || tide_object_kind(object) == TIDE_UNCOLLECTABLE)) tide_free(object);
}

static void resize(replay *r, const trace_event *e) {
  if (!r->address[e->object]) return;
  bool leaf = r->place[e->object];
  void *object = let_go(r, e->object);
  void *resized = tide_realloc(object, e->bytes ? (size_t)e->bytes : 1);
  if (!resized) r->failed = true;
  if (resized) keep(r, e->object, resized, leaf ? 'l' : 's');
}

// ---- Items ----------------------------------------------------------------------------------

// All parts are scanned, as they refer to each other.
static item *add_part(replay *r, item *first, uint64_t bytes) {
  item *part = allocate(r, 's', bytes);
  if (!part || !first) return part;
  part->rest = first->rest;
  first->rest = part;
  return first;
}

static item *make(replay *r, uint32_t cost) {
  const trace_cost *c = &r->t->costs[cost];
  const trace_part *parts = &r->t->parts[c->first];
  item *made = add_part(r, NULL, c->count ? parts[0].bytes : sizeof *made);
  for (size_t i = 1; i < c->count && made; i++) add_part(r, made, parts[i].bytes);
  if (!made) return NULL;
  made->bytes = 0;
  for (size_t i = 0; i < c->count; i++) made->bytes += parts[i].bytes;
  return made;
}

static void *create(void *arg) {
  return make(arg, ((replay *)arg)->cost);
}

static size_t measure(const void *of, void *arg) {
  (void)arg;
  return ((const item *)of)->bytes;
}

static void grow_item(replay *r, const trace_event *e) {
  uint64_t get = r->holder[e->object], bytes = (uint64_t)e->bytes;
  item *held = get && r->held[get] ? r->table[r->held[get] - 1] : NULL;
  if (!held || held->bytes >= bytes || tide_object_kind(held) == TIDE_LEAF) return;
  add_part(r, held, bytes - held->bytes);
  held->bytes = bytes;
}

static void get(replay *r, const trace_event *e) {
  r->cost = e->cost;
  tide_pool *pool = r->pools[e->pool - 1];
  bool nothing = e->letter == 'n'; // it could not make one, and has nothing to put or drop
  void *got = pool ? tide_pool_get(pool) : make(r, e->cost);
  if (nothing || !got) return;
  r->held[e->other] = place_of(r, got);
  if (e->object) r->holder[e->object] = e->other;
}

static item *item_of_put(replay *r, const trace_event *e) {
  if (e->object) r->holder[e->object] = 0;
  if (e->other && r->held[e->other]) {
    item *held = give_place(r, r->held[e->other]);
    r->held[e->other] = 0;
    return held;
  }
  void *own = e->object ? let_go(r, e->object) : NULL;
  if (!own) return make(r, 0);
  *(item *)own = (item){NULL, tide_size(own)};
  return own;
}

static void put(replay *r, const trace_event *e) {
  item *one = item_of_put(r, e);
  tide_pool *pool = r->pools[e->pool - 1];
  if (!one || !pool) return;
  if (e->bytes) one->bytes = (uint64_t)e->bytes;
  tide_pool_put(pool, one);
}

static void begin_pool(replay *r, uint32_t number) {
  const trace_pool *p = &r->t->pools[number - 1];
  r->pools[number - 1] = tide_pool_create(&(tide_pool_options){
      .name = p->name,
      .create = create,
      .size = p->max_items || p->max_bytes || p->max_item_bytes ? measure : NULL,
      .max_item_bytes = p->max_item_bytes,
      .max_bytes = p->max_bytes,
      .max_items = p->max_items,
      .survive = p->survive ? (int)p->survive : TIDE_SURVIVE_NONE,
      .min_idle_ns = p->min_idle_ns,
      .arg = r});
  if (!r->pools[number - 1]) r->failed = true;
}

static void end_pool(replay *r, uint32_t number, run_pool *counts) {
  tide_pool *pool = r->pools[number - 1];
  if (!pool) return;
  tide_pool_stats stats;
  tide_pool_stats_read(pool, &stats);
  *counts = (run_pool){stats.gets, stats.gets - stats.misses};
  tide_pool_destroy(pool);
  r->pools[number - 1] = NULL;
}

// ---- The run --------------------------------------------------------------------------------

// Apart, so that its frame, with whatever object it had last, is gone by the next event.
static __attribute__((noinline)) void step(replay *r, const trace_event *e, run_pool *counts) {
  void *object;
  switch (e->kind) {
  case TRACE_ALLOC:
    object = allocate(r, e->letter, (uint64_t)e->bytes);
    if (object) keep(r, e->object, object, e->letter);
    break;
  case TRACE_FREE:
    object_dies(r, e->object, true);
    break;
  case TRACE_DEATHS:
    for (uint64_t o = e->object; o <= e->other; o++) object_dies(r, o, false);
    break;
  case TRACE_RESIZE:
    resize(r, e);
    break;
  case TRACE_GROWTH:
    grow_item(r, e);
    break;
  case TRACE_EXTERNAL:
    tide_external_add(e->bytes);
    break;
  case TRACE_COLLECTION:
    if (r->t->collections[e->object].forced) tide_collect();
    break;
  case TRACE_POOL:
    begin_pool(r, e->pool);
    break;
  case TRACE_POOL_END:
    end_pool(r, e->pool, &counts[e->pool - 1]);
    break;
  case TRACE_GET:
    get(r, e);
    break;
  case TRACE_PUT:
    put(r, e);
    break;
  }
}

// What the child tells its parent, in shared memory.
typedef struct outcome {
  volatile double share; // done
  uint64_t collections;
  double period_ms, seconds;
  run_pool pools[];
} outcome;

static bool prepare(replay *r) {
  const trace *t = r->t;
  r->address = calloc(t->objects + 1, sizeof *r->address);
  r->place = calloc(t->objects + 1, sizeof *r->place);
  r->holder = calloc(t->objects + 1, sizeof *r->holder);
  r->held = calloc(t->gets + 1, sizeof *r->held);
  r->pools = calloc(t->pool_count + 1, sizeof *r->pools);
  return r->address && r->place && r->holder && r->held && r->pools;
}

static bool run(replay *r, const run_setting *setting, outcome *o) {
  uint64_t start_ns = now_ns();
  for (size_t i = 0; i < r->t->event_count && !r->failed; i++) {
    const trace_event *e = &r->t->events[i];
    if (e->time_us != now_us) {
      now_us = e->time_us;
      o->share = setting->speed > 0 ? (double)now_us / (double)r->t->duration_us
                                    : (double)i / (double)r->t->event_count;
      if (setting->speed > 0)
        wait_until(start_ns + (uint64_t)((double)e->time_us * 1000 / setting->speed));
    }
    step(r, e, o->pools);
  }
  o->seconds = (double)(now_ns() - start_ns) / 1e9;
  for (uint32_t i = 1; i <= r->t->pool_count; i++) end_pool(r, i, &o->pools[i - 1]);
  o->collections = collections;
  o->period_ms =
      collections > 1 ? (double)(last_us - first_us) / 1000 / (double)(collections - 1) : NAN;
  return !r->failed;
}

static void note_globals(const tide_cycle *cycle, void *to) {
  *(volatile uint64_t *)to = cycle->global_bytes;
}

// The goal counts what is scanned: where the recorded program had more static data than this one,
// zeros stand for the rest.
static bool add_globals(const trace *t) {
  if (!t->collection_count) return true;
  volatile uint64_t own = 0;
  tide_hook *hook = tide_hook_add(TIDE_MARK_DONE, note_globals, (void *)&own);
  if (!hook) return false;
  tide_collect();
  tide_hook_remove(hook);
  uint64_t wanted = t->collections[t->collection_count - 1].global_bytes;
  if (wanted < own + 8) return true;
  size_t bytes = (size_t)(wanted - own) / 8 * 8;
  char *more = calloc(1, bytes);
  return more && tide_roots_add(more, more + bytes) == TIDE_OK;
}

static int in_child(const trace *t, const run_setting *setting, outcome *o) {
  replay *r = calloc(1, sizeof *r);
  all = (ring){&all, &all};
  tide_gc_percent_set(setting->gc_percent);
  tide_memory_limit_set(setting->memory_limit);
  tide_min_heap_set(setting->min_heap_bytes);
  if (r) r->t = t;
  if (r && prepare(r) && add_globals(t) && tide_hook_add(TIDE_STW_START, note_collection, NULL) &&
      run(r, setting, o))
    return STATUS_DONE;
  complain("no memory for the replay");
  return STATUS_FAILED;
}

// ---- Its process ----------------------------------------------------------------------------

// False: the user asked the program to end.
static bool await(pid_t child, int *status, const outcome *o, double done, double share) {
  static const uint64_t nap_ns = 2000000;
  for (;;) {
    if (waitpid(child, status, WNOHANG) == child) return true;
    progress_show(done + share * o->share);
    if (wait_until(now_ns() + nap_ns)) continue;
    kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) continue;
    return false;
  }
}

static bool ended_well(int status) {
  if (WIFSIGNALED(status)) complain("the replay was ended by signal %d", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == STATUS_DONE;
}

static bool take_outcome(const trace *t, const outcome *o, run_result *result) {
  size_t bytes = t->pool_count * sizeof *result->pools;
  *result = (run_result){o->collections, o->period_ms, o->seconds, malloc(bytes + 1)};
  if (result->pools) memcpy(result->pools, o->pools, bytes);
  return result->pools;
}

bool run_replay(const trace *t, const run_setting *setting, double done, double share,
                run_result *result) {
  size_t bytes = sizeof(outcome) + t->pool_count * sizeof(run_pool);
  outcome *o = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(NULL);
  pid_t parent = getpid(), child = o == MAP_FAILED ? -1 : fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent ? in_child(t, setting, o) : STATUS_FAILED);
  }
  if (child < 0) complain("a process for the replay cannot be made: %s", strerror(errno));
  int status = 0;
  bool good = child > 0 && await(child, &status, o, done, share) && ended_well(status) &&
              take_outcome(t, o, result);
  if (o != MAP_FAILED) munmap(o, bytes);
  return good;
}
