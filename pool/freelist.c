// SPDX-License-Identifier: MIT
// Free lists: bounded, and collections take nothing out of them.
//
// A list has max_items nodes for all its life, each on one of two stacks: `full`, with an item, or
// `free`. A get pops a node off the full stack, takes the item, and pushes the node on the free
// one; a put goes the other way. Between pop and push the node is the caller's own. Both stacks are
// Treiber's: a head is a number of a node and a tag that changes with each push, so that a head
// that has been away and come back is not taken for the old one.
//
// No step waits for another thread, so a thread may be stopped, or be cut off by a fork, anywhere.
// The collector sees every item at every moment: an uncollectable object has the nodes, and whoever
// moves an item has it in a register or on the stack until it is stored. What is in transit in
// either direction occupies a node: so bounds are never passed, and of items that came out of the
// list none is refused.
//
// What else was tried. Wall time in ns of a get and a put, bare, on 2 CPUs, with 1, 2 and 16
// threads of four items each; medians of 15 short runs in turn:
//   two stacks                 16  17  18    as they are here, with all checks: 22  22  24
//   array, spin lock           17  18  19    on a busy machine, 16 threads, a quarter of the runs
//                                            took 159 and more, with two stacks 36
//   array, pinned mutex        39  39  39
//   slots by CPU, two stacks   19  20  20    with one item each 13  14  10; but what is in another
//                                            CPU's slot is out of reach, and the order is lost
//
// Fork. A thread cut off between pop and push leaves a node that is on neither stack. The first use
// of a list in a child puts all such nodes back; what was in them went with their threads.
#include "pool_private.h"

#include <inttypes.h>
#include <string.h>

// Written by whoever has popped it; the statistics and late poppers read.
typedef struct node {
  AO_t item;
  AO_t next;  // the number of the one below it; 0: none
  AO_t bytes; // of the item, where the list measures
  AO_t moves; // times that it was filled or emptied; odd: it has an item
} node;

struct tide_freelist {
  // Heads: the node's number, from 1, in the bits of `numbers`; the tag in those above.
  AO_t full, free;
  AO_t bytes; // in the list, or about to be
  AO_t misses, created, dropped_full, dropped_large;
  AO_t forks; // as of the process when the nodes were known to be right

  AO_t numbers __attribute__((aligned(APART))); // a mask
  bool measures;
  void *(*create)(void *arg);
  void (*reset)(void *item, void *arg);
  void (*drop)(void *item, void *arg);
  size_t (*size)(const void *item, void *arg);
  void *arg;
  uint64_t max_item_bytes, max_bytes; // UINT64_MAX: any
  size_t max_items;
  const char *name; // behind the nodes
  tide_freelist_stats at_reset;
  node node[] __attribute__((aligned(APART)));
};

// ---- Stacks ---------------------------------------------------------------------------------

static node *pop(tide_freelist *list, AO_t *head) {
  for (;;) {
    // Acquire: pairs with the release in push, so `next` is that of this push or, when the node has
    // been popped meanwhile, anything: then the tag has changed or the node is off the head.
    AO_t top = AO_load_acquire(head), number = top & list->numbers;
    if (!number) return NULL;
    node *n = &list->node[number - 1];
    AO_t below = (top & ~list->numbers) | AO_load(&n->next);
    // Acquire: pairs with the release in push; what is in the node is seen, and in its item.
    if (AO_compare_and_swap_acquire(head, top, below)) return n;
  }
}

static void push(tide_freelist *list, AO_t *head, node *n) {
  AO_t number = (AO_t)(n - list->node) + 1;
  for (;;) {
    AO_t top = AO_load(head); // orders nothing
    AO_store(&n->next, top & list->numbers);
    AO_t above = ((top | list->numbers) + 1) | number; // the next tag; it may wrap
    // Release: pairs with the acquires in pop. Every other change of a head is a pop's
    // read-modify-write, which continues it.
    if (AO_compare_and_swap_release(head, top, above)) return;
  }
}

// ---- Fork -----------------------------------------------------------------------------------

static AO_t forks; // that have led to this process; changed while it has one thread
static rt_pinned_lock mending = RT_PINNED_LOCK_INIT;
static int fork_handler_error;

static void in_child(void) {
  AO_store(&forks, AO_load(&forks) + 1);
  mending = (rt_pinned_lock)RT_PINNED_LOCK_INIT; // whoever had it is not here
}

__attribute__((constructor)) static void install_fork_handler(void) {
  fork_handler_error = pthread_atfork(NULL, NULL, in_child);
}

#define ON_FULL_STACK ((AO_t)1 << 63) // in `next`, while nodes are put back

// May be cut off itself, and is then done again: it leaves the full stack as it is.
static void put_nodes_back(tide_freelist *list) {
  AO_t bytes = 0, number = list->full & list->numbers;
  while (number) {
    node *n = &list->node[number - 1];
    bytes += n->bytes;
    number = n->next & list->numbers;
    n->next |= ON_FULL_STACK;
  }
  list->free &= ~list->numbers;
  for (size_t i = 0; i < list->max_items; i++) {
    node *n = &list->node[i];
    if (n->next & ON_FULL_STACK) {
      n->next &= list->numbers;
      continue;
    }
    n->item = 0;
    n->moves += n->moves & 1;
    push(list, &list->free, n);
  }
  list->bytes = bytes;
}

static RT_COLD void mend_slow(tide_freelist *list) {
  rt_thread *self = rt_self();
  rt_pin(self);
  rt_pinned_lock_take(&mending);
  if (list->forks != AO_load(&forks)) put_nodes_back(list);
  AO_store_release(&list->forks, AO_load(&forks)); // pairs with the acquire in mend
  rt_pinned_lock_give(&mending);
  rt_unpin(self);
}

// Before each step, behind any callback: those may fork.
static void mend(tide_freelist *list) {
  if (RT_UNLIKELY(AO_load_acquire(&list->forks) != AO_load(&forks))) mend_slow(list);
}

// ---- Get ------------------------------------------------------------------------------------

static void unreserve(tide_freelist *list, AO_t bytes) {
  if (list->measures) AO_fetch_and_add(&list->bytes, (AO_t)0 - bytes);
}

static void *take(tide_freelist *list) {
  mend(list);
  node *n = pop(list, &list->full);
  if (!n) return NULL;
  void *item = (void *)AO_load(&n->item);
  AO_t bytes = AO_load(&n->bytes);
  AO_store(&n->item, 0);
  AO_store(&n->moves, AO_load(&n->moves) + 1);
  push(list, &list->free, n);
  unreserve(list, bytes);
  return item;
}

static RT_NOINLINE void *miss(tide_freelist *list) {
  AO_fetch_and_add1(&list->misses);
  void *item = list->create ? list->create(list->arg) : NULL;
  if (item) AO_fetch_and_add1(&list->created);
  return item;
}

void *tide_freelist_get(tide_freelist *list) {
  if (RT_UNLIKELY(!rt_enter("tide_freelist_get"))) return NULL;
  void *item = take(list);
  return RT_LIKELY(item) ? item : miss(list);
}

// ---- Put ------------------------------------------------------------------------------------

static bool reserve(tide_freelist *list, AO_t bytes) {
  for (;;) {
    AO_t in = AO_load(&list->bytes); // never more than max_bytes
    if (bytes > list->max_bytes - in) return false;
    if (AO_compare_and_swap(&list->bytes, in, in + bytes)) return true;
  }
}

static bool insert(tide_freelist *list, void *item, AO_t bytes) {
  mend(list);
  if (list->measures && !reserve(list, bytes)) return false;
  node *n = pop(list, &list->free);
  if (!n) {
    unreserve(list, bytes);
    return false;
  }
  AO_store(&n->item, (AO_t)item);
  AO_store(&n->bytes, bytes);
  AO_store(&n->moves, AO_load(&n->moves) + 1);
  push(list, &list->full, n);
  return true;
}

static void drop(tide_freelist *list, void *item) {
  if (!list->drop) return;
  rt_quiet_begin(rt_self());
  list->drop(item, list->arg);
  rt_quiet_end(rt_self());
}

static RT_COLD void refuse(tide_freelist *list, void *item, AO_t *cause) {
  AO_fetch_and_add1(cause);
  drop(list, item);
}

static AO_t size_of(const tide_freelist *list, const void *item) {
  if (RT_LIKELY(!list->measures)) return 0;
  return list->size ? list->size(item, list->arg) : tide_size(item);
}

void tide_freelist_put(tide_freelist *list, void *item) {
  if (!item || RT_UNLIKELY(!rt_enter("tide_freelist_put"))) return;
  if (list->reset) list->reset(item, list->arg);
  AO_t bytes = size_of(list, item);
  if (RT_UNLIKELY(bytes > list->max_item_bytes))
    refuse(list, item, &list->dropped_large);
  else if (RT_UNLIKELY(!insert(list, item, bytes)))
    refuse(list, item, &list->dropped_full);
}

// ---- Making and destroying ------------------------------------------------------------------

static uint64_t or_any(uint64_t most) {
  return most ? most : UINT64_MAX;
}

static void set_up(tide_freelist *list, size_t max_items, const tide_freelist_options *o) {
  list->numbers = UINT64_MAX >> __builtin_clzll(max_items);
  list->measures = o->size || o->max_item_bytes || o->max_bytes;
  list->create = o->create;
  list->reset = o->reset;
  list->drop = o->drop;
  list->size = o->size;
  list->arg = o->arg;
  list->max_item_bytes = or_any(o->max_item_bytes);
  list->max_bytes = or_any(o->max_bytes);
  list->max_items = max_items;
  list->forks = AO_load(&forks);
  for (size_t i = max_items; i > 0; i--) push(list, &list->free, &list->node[i - 1]);
}

tide_freelist *tide_freelist_create(size_t max_items, const tide_freelist_options *options) {
  static const tide_freelist_options defaults;
  if (!rt_enter("tide_freelist_create")) return NULL;
  if (!max_items || max_items > UINT32_MAX) {
    rt_error_set(TIDE_ERR_ARGUMENT,
                 "tide_freelist_create: max_items %zu is not accepted: 1 to %" PRIu32, max_items,
                 UINT32_MAX);
    return NULL;
  }
  if (fork_handler_error) {
    rt_error_set(TIDE_ERR_MEMORY, "no memory for the fork handler of free lists");
    return NULL;
  }
  if (!options) options = &defaults;
  const char *name = options->name ? options->name : "freelist";
  size_t nodes_bytes = max_items * sizeof(node), name_bytes = strlen(name) + 1;
  // Uncollectable, hence a root, for the items and arg.
  rt_quiet_begin(rt_self());
  tide_freelist *list =
      tide_alloc_aligned(APART, sizeof *list + nodes_bytes + name_bytes, TIDE_UNCOLLECTABLE);
  rt_quiet_end(rt_self());
  if (!list) return NULL;
  list->name = memcpy((char *)list->node + nodes_bytes, name, name_bytes);
  set_up(list, max_items, options);
  return list;
}

void tide_freelist_destroy(tide_freelist *list) {
  if (!list || !rt_enter("tide_freelist_destroy")) return;
  void *item;
  int cancellable = rt_cancel_disable(); // as in tide_pool_destroy
  while (list->drop && (item = take(list))) drop(list, item);
  rt_cancel_restore(cancellable);
  tide_free(list);
}

// ---- Statistics -----------------------------------------------------------------------------

// Since the list was made. A node that has moved n times has been filled (n + 1) / 2 times and
// emptied n / 2 times.
static void read_all(tide_freelist *list, tide_freelist_stats *s) {
  mend(list);
  for (size_t i = 0; i < list->max_items; i++) {
    AO_t moves = AO_load(&list->node[i].moves);
    s->puts += moves - moves / 2;
    s->hits += moves / 2;
  }
  s->items = s->puts - s->hits;
  s->bytes = AO_load(&list->bytes);
  s->misses = AO_load(&list->misses);
  s->created = AO_load(&list->created);
  s->dropped_full = AO_load(&list->dropped_full);
  s->dropped_large = AO_load(&list->dropped_large);
  s->gets = s->hits + s->misses;
}

void tide_freelist_stats_read(tide_freelist *list, tide_freelist_stats *stats) {
  memset(stats, 0, sizeof *stats);
  if (!rt_enter("tide_freelist_stats_read")) return;
  read_all(list, stats);
  const tide_freelist_stats *before = &list->at_reset;
  stats->name = list->name;
  stats->gets -= before->gets;
  stats->hits -= before->hits;
  stats->misses -= before->misses;
  stats->created -= before->created;
  stats->puts -= before->puts;
  stats->dropped_full -= before->dropped_full;
  stats->dropped_large -= before->dropped_large;
}

void tide_freelist_stats_reset(tide_freelist *list) {
  if (!rt_enter("tide_freelist_stats_reset")) return;
  tide_freelist_stats now = {0};
  read_all(list, &now);
  list->at_reset = now;
}
