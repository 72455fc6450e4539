// SPDX-License-Identifier: MIT
// `gcbench`: GCBench by John Ellis and Pete Kovac, as Hans Boehm adapted it.
//
// A tree of depth N stretches the heap and is dropped. A tree of depth N - 2 and an array of half a
// million doubles live on, while trees of depth 4, 6, ... N - 2 are built, half of them from the
// top down (old nodes come to refer to new ones) and half from the bottom up. Each depth allocates
// as much as the others.
#include "peer.h"

enum { DEPTH_LEAST = 4, ARRAY_LENGTH = 500000 };

typedef struct node {
  struct node *left, *right;
  int i, j;
} node;

static uint64_t size_of_tree(unsigned depth) {
  return (2ull << depth) - 1;
}

static uint64_t iterations(unsigned stretch, unsigned depth) {
  return 2 * size_of_tree(stretch) / size_of_tree(depth);
}

static void populate(unsigned depth, node *n) {
  if (depth == 0) return;
  n->left = allocate(sizeof *n);
  n->right = allocate(sizeof *n);
  populate(depth - 1, n->left);
  populate(depth - 1, n->right);
}

static node *build(unsigned depth) {
  if (depth == 0) return allocate(sizeof(node));
  node *left = build(depth - 1), *right = build(depth - 1);
  node *n = allocate(sizeof *n);
  n->left = left;
  n->right = right;
  return n;
}

// For who frees by hand.
static void drop(node *n) {
  if (PEER_COLLECTS) return;
  if (n->left) {
    drop(n->left);
    drop(n->right);
  }
  peer_free(n);
}

static void time_construction(unsigned stretch, unsigned depth) {
  uint64_t count = iterations(stretch, depth);
  for (uint64_t i = 0; i < count; i++) {
    node *tree = allocate(sizeof *tree);
    populate(depth, tree);
    escape(tree);
    drop(tree);
  }
  for (uint64_t i = 0; i < count; i++) {
    node *tree = build(depth);
    escape(tree);
    drop(tree);
  }
}

// A call of its own: no word of the frame that lives on refers to the tree.
static __attribute__((noinline)) void stretch_heap(unsigned depth) {
  node *tree = build(depth);
  escape(tree);
  drop(tree);
}

void gcbench_run(void) {
  unsigned stretch = (unsigned)parameter("depth"), deepest = stretch - 2;
  uint64_t start_ns = now_ns();
  stretch_heap(stretch);

  node *long_lived = allocate(sizeof *long_lived);
  populate(deepest, long_lived);
  double *array = allocate_leaf(ARRAY_LENGTH * sizeof *array);
  for (int i = 0; i < ARRAY_LENGTH; i++) array[i] = 1.0 / i;

  for (unsigned depth = DEPTH_LEAST; depth <= deepest; depth += 2)
    time_construction(stretch, depth);
  if (!long_lived->left || array[1000] != 1.0 / 1000) fail("the long-lived data are damaged");
  report("wall_s", seconds_since(start_ns));
  report("cpu_s", cpu_seconds());
  report("peak_mib", peak_resident_bytes() / MIB);
  report("collections", peer_collections());
}
