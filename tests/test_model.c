// SPDX-License-Identifier: MIT
// Random object graphs against a model.
//
// Each graph has a shadow in malloc'd memory, which the collector does not see and where addresses
// are hidden. Random operations allocate, link, drop, free and resize, on the graph and on its
// shadow alike. At every check each object that the shadow can reach from its roots must be intact:
// its number, its links, a pattern made from its number in all the rest. What the shadow cannot
// reach must be gone after a full collection, but for the little that a conservative collector may
// hold.
//
// Single-threaded runs repeat exactly under the seed that they print (TIDE_TEST_SEED). All runs
// together take TIDE_MODEL_SECONDS, 60 by default.
#include "testing.h"

#include <pthread.h>
#include <unistd.h>

enum {
  LINKS_MAX = 4,
  ROOTS = 64,
  SHELF = 64, // places of the table through which threads exchange objects
  SLACK_OBJECTS = 64,
};

// ---- Objects --------------------------------------------------------------------------------

// How every object begins; the rest of it is the pattern.
typedef struct object {
  uint64_t number;
  uint64_t bytes; // asked for
  struct object *links[LINKS_MAX];
} object;

typedef struct shadow {
  uintptr_t hidden; // the object's address
  uint64_t number;
  size_t bytes;
  tide_kind kind;
  uint32_t links[LINKS_MAX]; // shadows; 0: none
  uint32_t references;       // links and roots that lead here, also from what is unreachable
  uint32_t next_free;
  bool used, reached;
} shadow;

typedef struct graph {
  uint64_t random;
  uint64_t steps;
  shadow *shadows; // 0 is not used
  uint32_t room, free;
  uint32_t roots[ROOTS]; // shadows; 0: none
  object *root_words[ROOTS];
  uint32_t *stack; // of the traversal
  uint32_t live;   // reached at the last check
} graph;

static unsigned char pattern_at(uint64_t number, size_t offset) {
  return (unsigned char)(number * 0x9d + offset * 7 + (offset >> 8));
}

static void write_pattern(object *o, size_t from) {
  unsigned char *bytes = (unsigned char *)o;
  if (from < sizeof *o) from = sizeof *o;
  for (size_t i = from; i < o->bytes; i++) bytes[i] = pattern_at(o->number, i);
}

static void check_pattern(const object *o, size_t bytes, const char *what) {
  const unsigned char *at = (const unsigned char *)o;
  for (size_t i = sizeof *o; i < bytes; i++)
    if (at[i] != pattern_at(o->number, i))
      ck_abort_msg("%s: object %llu of %zu bytes at %p: byte %zu is %d", what,
                   (unsigned long long)o->number, bytes, (const void *)o, i, at[i]);
}

static size_t random_bytes(uint64_t *state) {
  size_t shape = random_below(state, 1000);
  if (shape < 800) return sizeof(object) + random_below(state, 200);
  if (shape < 960) return sizeof(object) + random_below(state, 3000);
  if (shape < 995) return sizeof(object) + random_below(state, 40000);
  return sizeof(object) + random_below(state, 300000);
}

static object *allocate(uint64_t *state, uint64_t number, size_t bytes, tide_kind kind) {
  object *o = random_below(state, 8)
                  ? tide_alloc_kind(kind, bytes)
                  : tide_alloc_aligned((size_t)8 << random_below(state, 12), bytes, kind);
  MUST(o);
  if (tide_size(o) < bytes)
    ck_abort_msg("a new object of %zu bytes, kind %d, at %p has size %zu and base %p", bytes,
                 (int)kind, (void *)o, tide_size(o), tide_base(o));
  if (kind != TIDE_LEAF)
    for (size_t i = 0; i < bytes; i++)
      if (((unsigned char *)o)[i]) ck_abort_msg("a new object of %zu bytes is not zero", bytes);
  o->number = number;
  o->bytes = bytes;
  memset(o->links, 0, sizeof o->links);
  write_pattern(o, 0);
  return o;
}

// ---- The graph and its shadow ---------------------------------------------------------------

static graph *graph_create(uint64_t seed, uint32_t room) {
  graph *g = calloc(1, sizeof *g);
  g->random = seed;
  g->room = room;
  g->shadows = calloc(room, sizeof *g->shadows);
  g->stack = calloc(room, sizeof *g->stack);
  for (uint32_t i = room - 1; i > 0; i--) g->shadows[i].next_free = g->free, g->free = i;
  MUST(tide_roots_add(g->root_words, g->root_words + ROOTS) == TIDE_OK);
  return g;
}

static void graph_destroy(graph *g) {
  for (uint32_t i = 1; i < g->room; i++)
    if (g->shadows[i].used && g->shadows[i].kind == TIDE_UNCOLLECTABLE)
      tide_free(reveal(g->shadows[i].hidden));
  MUST(tide_roots_remove(g->root_words, g->root_words + ROOTS) == TIDE_OK);
  free(g->shadows);
  free(g->stack);
  free(g);
}

static object *object_of(const graph *g, uint32_t index) {
  return index ? reveal(g->shadows[index].hidden) : NULL;
}

static void set_root(graph *g, size_t root, uint32_t index) {
  g->shadows[g->roots[root]].references--; // of shadow 0 they do not matter
  g->shadows[index].references++;
  g->roots[root] = index;
  g->root_words[root] = object_of(g, index);
}

static void set_link(graph *g, uint32_t from, size_t link, uint32_t to) {
  shadow *s = &g->shadows[from];
  g->shadows[s->links[link]].references--;
  g->shadows[to].references++;
  s->links[link] = to;
  object_of(g, from)->links[link] = object_of(g, to);
}

static void forget(graph *g, uint32_t index) {
  shadow *s = &g->shadows[index];
  for (int i = 0; i < LINKS_MAX; i++) {
    g->shadows[s->links[i]].references--;
    s->links[i] = 0;
  }
  s->used = false;
  s->next_free = g->free;
  g->free = index;
}

static void check_object(const graph *g, uint32_t index) {
  const shadow *s = &g->shadows[index];
  const object *o = object_of(g, index);
  if (tide_size(o) < s->bytes || o->number != s->number || o->bytes != s->bytes)
    ck_abort_msg("step %llu: object %llu of %zu bytes at %p is lost: size %zu, number %llu",
                 (unsigned long long)g->steps, (unsigned long long)s->number, s->bytes,
                 (const void *)o, tide_size(o), (unsigned long long)o->number);
  for (int i = 0; i < LINKS_MAX; i++)
    if (o->links[i] != object_of(g, s->links[i]))
      ck_abort_msg("step %llu: object %llu: link %d has changed", (unsigned long long)g->steps,
                   (unsigned long long)s->number, i);
  check_pattern(o, s->bytes, "reachable");
}

static void reach(graph *g, uint32_t index, size_t *top) {
  if (!index || g->shadows[index].reached) return;
  g->shadows[index].reached = true;
  g->stack[(*top)++] = index;
}

// Checks what is reachable, and forgets what is not.
static NOINLINE void check_graph(graph *g) {
  size_t top = 0;
  for (int i = 0; i < ROOTS; i++) {
    MUST(g->root_words[i] == object_of(g, g->roots[i]));
    reach(g, g->roots[i], &top);
  }
  for (uint32_t i = 1; i < g->room; i++)
    if (g->shadows[i].used && g->shadows[i].kind == TIDE_UNCOLLECTABLE) reach(g, i, &top);
  while (top) {
    uint32_t index = g->stack[--top];
    check_object(g, index);
    // The collector does not look into leaves, so their links are null.
    for (int i = 0; i < LINKS_MAX; i++) reach(g, g->shadows[index].links[i], &top);
  }
  g->live = 0;
  for (uint32_t i = 1; i < g->room; i++) {
    shadow *s = &g->shadows[i];
    if (s->reached)
      g->live++;
    else if (s->used)
      forget(g, i);
    s->reached = false;
  }
}

// ---- Operations -----------------------------------------------------------------------------

// A reachable shadow, found by walking from a root; 0 if the root is empty.
static uint32_t pick(graph *g) {
  uint32_t index = g->roots[random_below(&g->random, ROOTS)];
  for (size_t steps = random_below(&g->random, 12); steps && index; steps--) {
    uint32_t next = g->shadows[index].links[random_below(&g->random, LINKS_MAX)];
    if (next) index = next;
  }
  return index;
}

static void add_object(graph *g) {
  if (!g->free) check_graph(g); // forgets the unreachable
  if (!g->free) {
    for (size_t i = 0; i < ROOTS; i++)
      if (random_below(&g->random, 2)) set_root(g, i, 0);
    check_graph(g);
  }
  if (!g->free) return; // all uncollectable or reachable from those: later
  uint32_t index = g->free;
  shadow *s = &g->shadows[index];
  g->free = s->next_free;
  size_t dice = random_below(&g->random, 40);
  tide_kind kind = dice == 0 ? TIDE_UNCOLLECTABLE : dice < 10 ? TIDE_LEAF : TIDE_SCANNED;
  size_t bytes = random_bytes(&g->random);
  uint64_t number = next_random(&g->random);
  *s = (shadow){.number = number, .bytes = bytes, .kind = kind, .used = true};
  s->hidden = hide(allocate(&g->random, number, bytes, kind));
  set_root(g, random_below(&g->random, ROOTS), index);
}

static void link_objects(graph *g) {
  uint32_t from = pick(g), to = pick(g);
  if (!from || g->shadows[from].kind == TIDE_LEAF) return;
  set_link(g, from, random_below(&g->random, LINKS_MAX), random_below(&g->random, 6) ? to : 0);
}

// A root's object that nothing else refers to, so that it may go or move; its root, or ROOTS.
static size_t pick_lonely(graph *g) {
  for (int tries = 0; tries < 8; tries++) {
    size_t root = random_below(&g->random, ROOTS);
    if (g->roots[root] && g->shadows[g->roots[root]].references == 1) return root;
  }
  return ROOTS;
}

static void free_object(graph *g) {
  size_t root = pick_lonely(g);
  if (root == ROOTS) return;
  uint32_t index = g->roots[root];
  check_object(g, index);
  object *o = object_of(g, index);
  set_root(g, root, 0);
  forget(g, index);
  tide_free(o);
}

static void resize_object(graph *g) {
  size_t root = pick_lonely(g);
  if (root == ROOTS) return;
  shadow *s = &g->shadows[g->roots[root]];
  size_t bytes = random_bytes(&g->random), kept = bytes < s->bytes ? bytes : s->bytes;
  object *o = tide_realloc(g->root_words[root], bytes);
  MUST(o);
  g->root_words[root] = o;
  s->hidden = hide(o);
  s->bytes = bytes;
  check_pattern(o, kept, "resized");
  o->bytes = bytes;
  write_pattern(o, kept);
}

static void free_an_uncollectable(graph *g) {
  for (int tries = 0; tries < 8; tries++) {
    uint32_t index = 1 + (uint32_t)random_below(&g->random, g->room - 1);
    shadow *s = &g->shadows[index];
    if (!s->used || s->kind != TIDE_UNCOLLECTABLE || s->references) continue;
    check_object(g, index);
    tide_free(reveal(s->hidden));
    forget(g, index);
    return;
  }
}

static void step(graph *g) {
  g->steps++;
  size_t dice = random_below(&g->random, 1000);
  if (dice < 400)
    add_object(g);
  else if (dice < 750)
    link_objects(g);
  else if (dice < 850)
    set_root(g, random_below(&g->random, ROOTS), pick(g));
  else if (dice < 900)
    set_root(g, random_below(&g->random, ROOTS), 0);
  else if (dice < 940)
    free_object(g);
  else if (dice < 980)
    resize_object(g);
  else if (dice < 998)
    free_an_uncollectable(g);
  else if (dice == 998)
    tide_collect();
  else
    check_graph(g);
}

// ---- Runs -----------------------------------------------------------------------------------

typedef struct mode {
  const char *name;
  int64_t stress, verify, poison, percent;
  uint32_t objects;
  int threads; // 0: the test's own
} mode;

static const mode modes[] = {
    {"stress 1, one thread", 1, 1, 1, 100, 300, 0}, {"stress 7, one thread", 7, 1, 0, 100, 2000, 0},
    {"free, one thread", 0, 0, 0, 30, 30000, 0},    {"stress 1, threads", 1, 1, 1, 100, 100, 4},
    {"stress 7, threads", 7, 1, 0, 100, 500, 6},    {"free, threads", 0, 0, 0, 30, 5000, 8},
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double model_seconds(void) {
  const char *given = getenv("TIDE_MODEL_SECONDS");
  return given ? strtod(given, NULL) : 60;
}

static uint64_t deadline_ns(void) {
  return now_ns() + (uint64_t)(model_seconds() / LENGTH(modes) * 1e9);
}

static void start_mode(const mode *m) {
  init_with(OPTIONS(o.stress = m->stress, o.verify = m->verify, o.poison = m->poison,
                    o.gc_percent = m->percent, o.min_heap_bytes = 1 << 20));
}

// After a full collection there is little more than what the shadow reaches.
static void check_leak(uint64_t reachable) {
  clear_stack();
  tide_collect();
  uint64_t objects = read_stats().heap_objects;
  ck_assert_uint_ge(objects, reachable);
  ck_assert_msg(objects <= reachable + reachable / 100 + SLACK_OBJECTS,
                "%llu objects are left where %llu are reachable", (unsigned long long)objects,
                (unsigned long long)reachable);
}

START_TEST(graph_agrees_with_its_shadow) {
  const mode *m = &modes[_i];
  uint64_t end = deadline_ns();
  start_mode(m);
  graph *g = graph_create(test_seed() + (uint64_t)_i, m->objects);
  do {
    for (int i = 0; i < 5000 && (i % 50 || now_ns() < end); i++) step(g);
    check_graph(g);
    check_leak(g->live);
  } while (now_ns() < end);
  printf("%s: %llu steps, %llu collections\n", m->name, (unsigned long long)g->steps,
         (unsigned long long)read_stats().num_gc);
  graph_destroy(g);
  check_leak(0);
}
END_TEST

// ---- Threads --------------------------------------------------------------------------------

// Where threads leave objects for one another: packages of two, the first linked to the second,
// whose number is one more.
static object *shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;

static void check_package(const object *o) {
  if (!o) return;
  MUST(tide_base((const char *)o + o->bytes - 1) == o);
  check_pattern(o, o->bytes, "package");
  const object *second = o->links[1];
  MUST(second && second->number == o->number + 1);
  check_pattern(second, second->bytes, "second of a package");
}

static NOINLINE void exchange(graph *g) {
  uint64_t number = next_random(&g->random) | 1;
  object *mine = allocate(&g->random, number, random_bytes(&g->random), TIDE_SCANNED);
  mine->links[1] = allocate(&g->random, number + 1, random_bytes(&g->random), TIDE_LEAF);
  size_t place = random_below(&g->random, SHELF);
  pthread_mutex_lock(&shelf_lock);
  object *other = shelf[place];
  shelf[place] = mine;
  pthread_mutex_unlock(&shelf_lock);
  check_package(other);
  for (int i = 0; i < 20; i++) add_object(g);
  check_package(other); // only this frame has it
  if (!other || random_below(&g->random, 2)) return;
  tide_free(other->links[1]);
  tide_free(other);
}

typedef struct worker {
  const mode *m;
  uint64_t seed, end_ns, steps;
  pthread_t thread;
} worker;

static void *sleep_a_little(void *arg) {
  usleep(500);
  return NULL;
}

// One life: a graph of its own, some thousand steps, and the end, with its objects left behind.
static void *live(void *arg) {
  worker *w = arg;
  graph *g = graph_create(w->seed, w->m->objects);
  size_t steps = 500 + random_below(&g->random, 5000);
  while (g->steps < steps && now_ns() < w->end_ns) {
    for (int i = 0; i < 20; i++) step(g);
    exchange(g);
    if (random_below(&g->random, 50) == 0) tide_blocking(sleep_a_little, NULL);
  }
  check_graph(g);
  w->steps += g->steps;
  graph_destroy(g);
  return NULL;
}

static void start_worker(worker *w) {
  w->seed += 1000;
  // Half of them are registered by their first call.
  int error = w->seed / 1000 % 2 ? pthread_create(&w->thread, NULL, live, w)
                                 : tide_thread_create(&w->thread, NULL, live, w);
  ck_assert_int_eq(error, 0);
}

START_TEST(graphs_of_threads_agree_with_their_shadows) {
  const mode *m = &modes[_i];
  uint64_t end = deadline_ns(), seed = test_seed(), steps = 0, lives = 0;
  start_mode(m);
  worker workers[8];
  for (int i = 0; i < m->threads; i++) {
    workers[i] = (worker){.m = m, .seed = seed + (uint64_t)i, .end_ns = end};
    start_worker(&workers[i]);
  }
  do {
    for (int i = 0; i < m->threads; i++) {
      tide_blocking(sleep_a_little, NULL);
      pthread_join(workers[i].thread, NULL);
      lives++;
      start_worker(&workers[i]);
    }
  } while (now_ns() < end);
  for (int i = 0; i < m->threads; i++) {
    pthread_join(workers[i].thread, NULL);
    steps += workers[i].steps;
  }
  for (int i = 0; i < SHELF; i++) check_package(shelf[i]);
  uint64_t reachable = 0;
  for (int i = 0; i < SHELF; i++) reachable += shelf[i] ? 2 : 0;
  check_leak(reachable);
  memset(shelf, 0, sizeof shelf);
  check_leak(0);
  printf("%s: %llu steps, %llu lives, %llu collections\n", m->name, (unsigned long long)steps,
         (unsigned long long)lives, (unsigned long long)read_stats().num_gc);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("model");
  TCase *cases = tcase_create("model");
  tcase_set_timeout(cases, model_seconds() + 60);
  tcase_add_loop_test(cases, graph_agrees_with_its_shadow, 0, 3);
  tcase_add_loop_test(cases, graphs_of_threads_agree_with_their_shadows, 3, LENGTH(modes));
  suite_add_tcase(suite, cases);
  return run_suite(suite);
}
