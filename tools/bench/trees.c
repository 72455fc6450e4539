// SPDX-License-Identifier: MIT
// `trees`: binary trees, the allocation benchmark of the Computer Language Benchmarks Game.
//
// A tree of depth N + 1 stretches the heap and is dropped. One of depth N lives on while 2^(N-d+4)
// trees of each depth d = 4, 6, ... N are built, counted and dropped.
#include "peer.h"

typedef struct node {
  struct node *left, *right;
} node;

static node *build(unsigned depth) {
  node *n = allocate(sizeof *n);
  if (depth == 0) return n;
  n->left = build(depth - 1);
  n->right = build(depth - 1);
  return n;
}

static uint64_t count(const node *n) {
  return n->left ? 1 + count(n->left) + count(n->right) : 1;
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

static void build_and_drop(unsigned depth) {
  node *tree = build(depth);
  uint64_t nodes = count(tree);
  if (nodes != (2ull << depth) - 1)
    fail("a tree of depth %u has %llu nodes", depth, (unsigned long long)nodes);
  drop(tree);
}

void trees_run(void) {
  unsigned deepest = (unsigned)parameter("depth");
  uint64_t start_ns = now_ns();
  build_and_drop(deepest + 1);
  node *long_lived = build(deepest);
  for (unsigned depth = 4; depth <= deepest; depth += 2)
    for (uint64_t left = 1ull << (deepest - depth + 4); left > 0; left--) build_and_drop(depth);
  if (count(long_lived) != (2ull << deepest) - 1) fail("the long-lived tree is damaged");
  report("wall_s", seconds_since(start_ns));
  report("cpu_s", cpu_seconds());
  report("peak_mib", peak_resident_bytes() / MIB);
  report("collections", peer_collections());
}
