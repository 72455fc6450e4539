// SPDX-License-Identifier: MIT
// `bigheap`: how fast a collector marks, with a heap that no cache holds.
//
// Objects of 32 bytes are allocated in order and then linked, in shuffled order, as one complete
// binary tree: following a reference leads to an unforeseeable place in memory. Three full
// collections follow. The array that the shuffling needs is not a root and is gone before them.
#include "peer.h"

#include <sys/mman.h>

enum { COLLECTIONS = 3 };

typedef struct node {
  struct node *left, *right;
  uint64_t data[2];
} node;

static node *root;

static node **map_array(size_t count) {
  void *memory = mmap(NULL, count * sizeof(node *), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("out of memory");
  return memory;
}

static void shuffle(node **nodes, size_t count, uint64_t seed) {
  for (size_t left = count; left > 1; left--) {
    size_t other = random_below(&seed, left);
    node *swapped = nodes[left - 1];
    nodes[left - 1] = nodes[other];
    nodes[other] = swapped;
  }
}

static void build(size_t count, uint64_t seed) {
  node **nodes = map_array(count);
  peer_automatic(false);
  uint64_t start_ns = now_ns();
  for (size_t i = 0; i < count; i++) nodes[i] = allocate(sizeof(node));
  report("alloc_ns", seconds_since(start_ns) * 1e9 / (double)count);
  shuffle(nodes, count, seed);
  for (size_t i = 0; i < count; i++) {
    if (2 * i + 1 < count) nodes[i]->left = nodes[2 * i + 1];
    if (2 * i + 2 < count) nodes[i]->right = nodes[2 * i + 2];
    nodes[i]->data[0] = i;
  }
  root = nodes[0];
  munmap(nodes, count * sizeof(node *));
  peer_automatic(true);
}

// Nodes that are where they should be.
static size_t sound_nodes(const node *n, size_t place) {
  if (!n || n->data[0] != place) return 0;
  return 1 + sound_nodes(n->left, 2 * place + 1) + sound_nodes(n->right, 2 * place + 2);
}

void bigheap_run(void) {
  size_t count = parameter("mib") * (size_t)MIB / sizeof(node);
  build(count, parameter("seed"));
  double seconds[COLLECTIONS];
  for (int i = 0; i < COLLECTIONS; i++) {
    uint64_t start_ns = now_ns();
    peer_collect();
    seconds[i] = seconds_since(start_ns);
  }
  if (sound_nodes(root, 0) != count) fail("objects that are in use were lost");
  sort_values(seconds, COLLECTIONS);
  double median = percentile(seconds, COLLECTIONS, 0.5);
  report("collection_s", median);
  report("ns_per_object", median * 1e9 / (double)count);
  report("cpu_s", cpu_seconds());
  report("peak_mib", peak_resident_bytes() / MIB);
}
