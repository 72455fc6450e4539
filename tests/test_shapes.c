// SPDX-License-Identifier: MIT
// Marking, by the shape of the graph: wide, deep, shared, cyclic, scattered; with all the room that
// the mark stack wants, with next to none by option, and with none because the system gives no
// memory. Everything must be alive and whole afterwards, and the marks must stand verify=1.
//
// A shape is built under table[0] (or in ranges of its own), from nodes that know their number.
// How marking is set up comes out of one table, `ways`.
#include "growth_testing.h"

#include <sys/mman.h>

// ---- Ways to mark ---------------------------------------------------------------------------

static const struct way {
  const char *name;
  int64_t markers;
  int64_t mark_stack_bytes;
} ways[] = {
    {"one marker", 1, 0},
    {"two markers", 2, 0},
    {"four markers", 4, 0},
    {"64 KiB of stack", 1, 64 << 10},
    {"64 KiB for each of two markers", 2, 300 << 10},
};

static tide_options options_of(const struct way *way) {
  return OPTIONS(o.gc_percent = -1, o.verify = 1, o.poison = 1, o.markers = way->markers,
                 o.mark_stack_bytes = way->mark_stack_bytes);
}

// ---- Nodes ----------------------------------------------------------------------------------

typedef struct node {
  struct node *left, *right;
  uintptr_t number; // ~n: no address
} node;

static node *new_node(uintptr_t number, node *left, node *right) {
  node *n = tide_alloc(sizeof *n);
  MUST(n);
  *n = (node){left, right, ~number};
  return n;
}

static void must_be(const node *n, uintptr_t number) {
  MUST(n && n->number == ~number);
}

// Millions in the full form.
static size_t scale(void) {
  return short_or_full(UNDER_ASAN ? 100000 : 1000000, 10000000);
}

// An order in which neighbours are far apart: i -> i x step mod n, with step prime to n.
static size_t scattered(size_t i, size_t n) {
  return (size_t)((unsigned __int128)i * 7368787 % n);
}

// ---- Shapes ---------------------------------------------------------------------------------
//
// Each `build` returns how many objects it has made that are to be alive.

static size_t build_array(void) {
  size_t n = scale();
  node **array = table[0] = tide_alloc(n * sizeof *array);
  for (size_t i = 0; i < n; i++) array[i] = new_node(i, NULL, NULL);
  return n + 1;
}
static void check_array(void) {
  node **array = table[0];
  for (size_t i = 0; i < scale(); i++) must_be(array[i], i);
}

// The same, linked in the order of addresses or across them.
static size_t build_list(bool far_apart) {
  size_t n = far_apart ? scale() / 4 : scale();
  node **all = malloc(n * sizeof *all);
  for (size_t i = 0; i < n; i++) all[i] = new_node(i, NULL, NULL);
  for (size_t i = 0; i + 1 < n; i++)
    all[far_apart ? scattered(i, n) : i]->left = all[far_apart ? scattered(i + 1, n) : i + 1];
  table[0] = all[0];
  free(all);
  return n;
}
static void check_list(bool far_apart) {
  size_t n = far_apart ? scale() / 4 : scale(), i = 0;
  for (node *at = table[0]; at; at = at->left, i++) must_be(at, far_apart ? scattered(i, n) : i);
  MUST(i == n);
}
static size_t build_near_list(void) {
  return build_list(false);
}
static void check_near_list(void) {
  check_list(false);
}
static size_t build_far_list(void) {
  return build_list(true);
}
static void check_far_list(void) {
  check_list(true);
}

// A tree over the numbers [from, to).
static node *new_tree(size_t from, size_t to) {
  if (from == to) return NULL;
  size_t middle = from + (to - from) / 2;
  node *left = new_tree(from, middle);
  return new_node(middle, left, new_tree(middle + 1, to));
}
static void check_subtree(const node *n, size_t from, size_t to) {
  size_t middle = from + (to - from) / 2;
  if (from == to) {
    MUST(!n);
    return;
  }
  must_be(n, middle);
  check_subtree(n->left, from, middle);
  check_subtree(n->right, middle + 1, to);
}
static size_t build_tree(void) {
  table[0] = new_tree(0, scale());
  return scale();
}
static void check_tree(void) {
  check_subtree(table[0], 0, scale());
}

// Everybody knows the same one, and it knows everybody: an array, in a cycle with its elements.
static size_t build_hub(void) {
  size_t n = scale();
  node **spokes = table[0] = tide_alloc(n * sizeof *spokes);
  node *hub = new_node(n, (node *)(void *)spokes, NULL);
  for (size_t i = 0; i < n; i++) spokes[i] = new_node(i, hub, i ? spokes[i - 1] : hub);
  table[0] = hub;
  return n + 2;
}
static void check_hub(void) {
  node *hub = table[0];
  must_be(hub, scale());
  node **spokes = (node **)(void *)hub->left;
  for (size_t i = 0; i < scale(); i++) {
    must_be(spokes[i], i);
    MUST(spokes[i]->left == hub && spokes[i]->right == (i ? spokes[i - 1] : hub));
  }
}

// Any to any; a list through all of them is what makes each reachable.
static node **unseen; // malloc'd, before memory runs out
static size_t build_tangle(void) {
  size_t n = scale() / 4;
  uint64_t state = n;
  unseen = malloc(n * sizeof *unseen);
  for (size_t i = 0; i < n; i++) unseen[i] = new_node(i, NULL, NULL);
  for (size_t i = 0; i < n; i++) {
    unseen[scattered(i, n)]->left = i + 1 < n ? unseen[scattered(i + 1, n)] : NULL;
    unseen[i]->right = unseen[random_below(&state, n)];
  }
  table[0] = unseen[0];
  return n;
}
static void check_tangle(void) {
  size_t n = scale() / 4;
  uint64_t state = n;
  size_t i = 0;
  for (node *at = table[0]; at; at = at->left) unseen[~at->number] = at, i++;
  MUST(i == n);
  for (i = 0; i < n; i++)
    MUST(unseen[i]->number == ~i && unseen[i]->right == unseen[random_below(&state, n)]);
}

// Two lists of arrays, each of which refers to nodes of its own and, last, to the next array, so
// that most of the nodes of a whole list wait on the stack. The first leads to higher addresses,
// the second to lower ones, where a pass over the heap in their order finds least, and so it is
// short.
enum { TEETH = 64, BACKWARDS = 1000 };
static size_t comb_length(void) {
  return scale() / 200;
}
static node **new_comb_part(size_t number) {
  node **part = tide_alloc((TEETH + 1) * sizeof *part);
  for (size_t k = 0; k < TEETH; k++) part[k] = new_node(number * TEETH + k, NULL, NULL);
  return part;
}
static size_t build_combs(void) {
  node **last = NULL;
  for (size_t i = 0; i < comb_length(); i++) {
    node **part = new_comb_part(i);
    *(last ? (void **)&last[TEETH] : &table[0]) = part;
    last = part;
  }
  for (size_t i = BACKWARDS; i-- > 0;) {
    node **part = new_comb_part(i);
    part[TEETH] = table[1];
    table[1] = part;
  }
  return (comb_length() + BACKWARDS) * (1 + TEETH);
}
static void check_comb(node *const *part, size_t length) {
  for (size_t i = 0; i < length; i++, part = (node *const *)(const void *)part[TEETH])
    for (size_t k = 0; k < TEETH; k++) must_be(part[k], i * TEETH + k);
  MUST(!part);
}
static void check_combs(void) {
  check_comb(table[0], comb_length());
  check_comb(table[1], BACKWARDS);
}

// A chain of arrays, each of which refers to a thousand nodes and, last, in the middle or first, to
// the next array.
enum { FAN = 1000 };
static size_t fans(void) {
  return scale() / FAN;
}
static size_t place_of_next(size_t array) {
  return array % 3 == 0 ? FAN : array % 3 == 1 ? 0 : FAN / 2;
}
static size_t build_fans(void) {
  node **next = NULL;
  for (size_t i = 0; i < fans(); i++) {
    node **array = tide_alloc((FAN + 1) * sizeof *array);
    for (size_t k = 0, at = 0; k < FAN; k++, at++) {
      if (at == place_of_next(i)) at++;
      array[at] = new_node(i * FAN + k, NULL, NULL);
    }
    array[place_of_next(i)] = (node *)(void *)next;
    table[0] = next = array;
  }
  return fans() * (FAN + 1);
}
static void check_fans(void) {
  node **array = table[0];
  for (size_t i = fans(); i-- > 0; array = (node **)(void *)array[place_of_next(i)])
    for (size_t k = 0, at = 0; k < FAN; k++, at++) {
      if (at == place_of_next(i)) at++;
      must_be(array[at], i * FAN + k);
    }
  MUST(!array);
}

// A list of large objects, each referring to the next from its last word.
enum { LARGE_WORDS = 6000 };
static size_t build_large_list(void) {
  size_t n = scale() / 2000;
  for (size_t i = 0; i < n; i++) {
    void **object = tide_alloc(LARGE_WORDS * sizeof *object);
    MUST(object);
    object[0] = (void *)~i;
    object[LARGE_WORDS - 1] = table[0];
    object[LARGE_WORDS / 2] = new_node(i, NULL, NULL);
    table[0] = object;
  }
  return 2 * n;
}
static void check_large_list(void) {
  void **object = table[0];
  for (size_t i = scale() / 2000; i-- > 0; object = object[LARGE_WORDS - 1]) {
    MUST(object[0] == (void *)~i);
    must_be(object[LARGE_WORDS / 2], i);
  }
  MUST(!object);
}

// A range of roots full of references, to nodes that each have another. The range is not in the
// heap, so what a dropped reference of it leads to could not be found again.
static node **wide_roots;
static size_t roots_bytes(void) {
  return short_or_full((UNDER_ASAN ? 1 : 8) * MIB, 64 * MIB);
}
static size_t build_wide_roots(void) {
  size_t n = roots_bytes() / sizeof *wide_roots;
  wide_roots =
      mmap(NULL, roots_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(wide_roots, MAP_FAILED);
  ck_assert_int_eq(tide_roots_add(wide_roots, wide_roots + n), TIDE_OK);
  for (size_t i = 0; i < n; i++) wide_roots[i] = new_node(i, new_node(~i, NULL, NULL), NULL);
  return 2 * n;
}
static void check_wide_roots(void) {
  for (size_t i = 0; i < roots_bytes() / sizeof *wide_roots; i++) {
    must_be(wide_roots[i], i);
    must_be(wide_roots[i]->left, ~i);
  }
}

// Uncollectable objects are roots as well; each refers to a small tree.
enum { TREE = 15 };
static size_t build_uncollectable(void) {
  size_t n = scale() / TREE / 2;
  uintptr_t *hidden = malloc(n * sizeof *hidden); // a list through malloc'd memory, unseen
  for (size_t i = 0; i < n; i++) {
    node **object = tide_alloc_uncollectable(i % 1000 ? 48 : 40000);
    object[0] = new_tree(i, i + TREE);
    hidden[i] = hide(object);
  }
  table[1] = hidden;
  return n * (TREE + 1);
}
static void check_uncollectable(void) {
  const uintptr_t *hidden = table[1];
  for (size_t i = 0; i < scale() / TREE / 2; i++)
    check_subtree(*(node **)reveal(hidden[i]), i, i + TREE);
}

static const struct shape {
  const char *name;
  size_t (*build)(void);
  void (*check)(void);
} shapes[] = {
    {"array", build_array, check_array},
    {"list", build_near_list, check_near_list},
    {"scattered list", build_far_list, check_far_list},
    {"tree", build_tree, check_tree},
    {"hub", build_hub, check_hub},
    {"tangle", build_tangle, check_tangle},
    {"combs", build_combs, check_combs},
    {"chain of fans", build_fans, check_fans},
    {"list of large objects", build_large_list, check_large_list},
    {"wide roots", build_wide_roots, check_wide_roots},
    {"uncollectable", build_uncollectable, check_uncollectable},
};
enum { SHAPES = LENGTH(shapes), WAYS = LENGTH(ways) };

// ---- Tests ----------------------------------------------------------------------------------

static NOINLINE void make_garbage(void) {
  for (int i = 0; i < 20000; i++) // in short lists: a stray word may keep one
    sink = new_node((uintptr_t)i, i % 8 ? sink : NULL, NULL);
  sink = NULL;
}

// Collects twice with garbage around: the shape is there, as it was, and next to nothing else.
static void assert_marked(const struct shape *shape, size_t objects) {
  for (int i = 0; i < 2; i++) {
    make_garbage();
    clear_stack();
    tide_collect();
    uint64_t found = read_stats().heap_objects;
    ck_assert_msg(found >= objects && found <= objects + 100, "%s: %llu objects, not %zu",
                  shape->name, (unsigned long long)found, objects);
    shape->check();
  }
}

START_TEST(every_shape_is_marked_whole_in_every_way) {
  const struct shape *shape = &shapes[_i % SHAPES];
  const struct way *way = &ways[_i / SHAPES];
  if (way->mark_stack_bytes && on_bdw("mark stacks have no bound")) return;
  init_with(options_of(way));
  assert_marked(shape, shape->build());
  table[0] = NULL;
}
END_TEST

// The limit comes when the shape is there, so what fails is what marking itself asks for.
static void mark_without_memory(void *arg) {
  const struct shape *shape = &shapes[*(int *)arg % SHAPES];
  init_with(options_of(&ways[0]));
  size_t objects = shape->build();
  make_garbage(); // so that what assert_marked makes finds room
  clear_stack();
  limit_address_space(address_space_bytes() + (*(int *)arg < SHAPES ? 0 : 1024 << 10));
  assert_marked(shape, objects);
}

START_TEST(every_shape_is_marked_whole_when_the_stack_cannot_grow) {
  child c;
  in_child(&c, is_full_form() ? 250 : 50, mark_without_memory, &_i);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("shapes");
  TCase *cases = tcase_create("shapes");
  tcase_set_timeout(cases, is_full_form() ? 280 : 60);
  tcase_add_loop_test(cases, every_shape_is_marked_whole_in_every_way, 0, SHAPES * WAYS);
  if (!UNDER_ASAN) // it reserves terabytes itself
    tcase_add_loop_test(cases, every_shape_is_marked_whole_when_the_stack_cannot_grow, 0,
                        2 * SHAPES);
  suite_add_tcase(suite, cases);
  return run_suite(suite);
}
