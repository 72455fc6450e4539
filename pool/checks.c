// SPDX-License-Identifier: MIT
// TIDE_DEBUG=poolcheck=1. checks.h says when what is called.
//
// A table outside the heap knows each idle item: where it was put, and what was in it. The item
// itself is overwritten with a pattern until it is got or dropped. What was in it is kept in a copy
// that keeps alive what the item did: an uncollectable object, which is scanned, or malloc'd memory
// if the item is a leaf. Addresses in the table are inverted, and no root leads there.
//
// No report may be wrong. So every way out of a pool passes here: with checks a pool goes the way
// of one with a `drop` (rotate.c), and an item has left the table before its address can be used
// again. What is not known to be memory (no object of the heap, and no `size`) may be a number that
// means something else to another pool: then the table has it for each pool by itself.
//
// Under created_only the table also remembers what `create` has made, as long as it lives. An entry
// too many lets a mistake pass; one too few would accuse. The one for an object that has died goes
// at a cycle's end, under the lock: whoever gets that address from `create` afterwards enters it
// anew, behind that.
//
// In the child of a fork, items that other threads were putting or taking out are in no pool, but
// in the table: so from then on nothing is said of entries from before.
#define _GNU_SOURCE
#include "checks.h"
#include "careful.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HAS_BACKTRACE 1
#else
#define HAS_BACKTRACE 0
#endif

enum {
  PATTERN = 0xd5,
  FRAMES = 16,
  INNER_FRAMES = 8, // of the pool itself, at most
  BUCKETS = 1 << 16,
  SLAB_BYTES = 1 << 16,
  ENDED_POOLS = 256, // that are kept
};

typedef struct stack {
  unsigned count;
  void *at[FRAMES]; // return addresses, the innermost first
} stack;

struct pool_check {
  bool unsure; // there was no memory for an entry: the table may lack items that it made
  bool ended;
  stack end; // where it was destroyed
};

typedef struct entry {
  struct entry *next; // in the bucket, or free
  uintptr_t hidden;   // the item's address, inverted
  tide_pool *scope;   // NULL: the address means the same to every pool
  tide_pool *pool;    // in which it is idle; NULL: in none
  tide_pool *maker;   // whose `create` made it, under created_only
  bool heap;          // an object of the heap
  bool leaf;          // the copy is malloc'd
  unsigned forks;     // the process's when it was put
  size_t bytes;       // overwritten
  void *copy;         // NULL: nothing is
  stack put;
} entry;

// Under `lock`. At every moment the child of a fork could use all of it.
static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;
static AO_t *buckets; // entry *
static entry *free_entries;
static unsigned forks;
static AO_t made; // entries with a maker
static tide_pool *ended[ENDED_POOLS];
static unsigned next_ended;

// ---- Call stacks ----------------------------------------------------------------------------

static RT_NOINLINE void take_stack(stack *s, const void *caller) {
#if HAS_BACKTRACE
  void *all[FRAMES + INNER_FRAMES];
  unsigned count = (unsigned)backtrace(all, FRAMES + INNER_FRAMES), first = 0;
  while (first < count && all[first] != caller) first++;
  if (first == count) first = 0; // then with our own
  s->count = count - first < FRAMES ? count - first : FRAMES;
  memcpy(s->at, all + first, s->count * sizeof *s->at);
#else
  s->count = 1;
  s->at[0] = (void *)(uintptr_t)caller;
#endif
}

typedef struct module {
  uintptr_t address;
  uintptr_t offset; // in it, as addr2line takes it
  const char *name; // "": the program
} module;

static int find_module(struct dl_phdr_info *info, size_t bytes, void *arg) {
  module *m = arg;
  m->offset = m->address - info->dlpi_addr;
  for (unsigned i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || m->offset - part->p_vaddr >= part->p_memsz) continue;
    m->name = info->dlpi_name;
    return 1;
  }
  return 0;
}

static void report_frame(void *returns_to) {
  char program[512];
  module m = {.address = (uintptr_t)returns_to - 1}; // in the call
  if (!dl_iterate_phdr(find_module, &m)) {
    rt_report("    %p", returns_to);
    return;
  }
  if (!*m.name) {
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length < 0 ? 0 : length] = 0;
    m.name = program;
  }
  Dl_info symbol;
  if (dladdr((void *)m.address, &symbol) && symbol.dli_sname)
    rt_report("    %s+0x%zx (%.300s+0x%zx)", symbol.dli_sname,
              (size_t)(m.address - (uintptr_t)symbol.dli_saddr), m.name, (size_t)m.offset);
  else
    rt_report("    %.300s+0x%zx", m.name, (size_t)m.offset);
}

static void report_stack(const char *what, const stack *s) {
  rt_report("  %s", what);
  for (unsigned i = 0; i < s->count; i++) report_frame(s->at[i]);
}

// One report at a time; who comes second waits for the end that the first one makes.
static void report_begins(void) {
  static AO_TS_t taken = AO_TS_INITIALIZER;
  if (AO_test_and_set_full(&taken) == AO_TS_CLEAR) return;
  for (unsigned tries = 0;; tries++) os_pause(tries);
}

// ---- The table ------------------------------------------------------------------------------

static void take_lock(void) {
  rt_pin(rt_self());
  rt_pinned_lock_take(&lock);
}
static void give_lock(void) {
  rt_pinned_lock_give(&lock);
  rt_unpin(rt_self());
}

static AO_t *bucket_of(uintptr_t hidden, const tide_pool *scope) {
  uint64_t key = (hidden ^ (uintptr_t)scope) * UINT64_C(0x9e3779b97f4a7c15);
  return &buckets[key / (UINT64_MAX / BUCKETS + 1)];
}

// Whether the address means the same to every pool. The system maps nothing at the lowest ones.
static bool is_memory(const tide_pool *pool, const void *item) {
  enum { LOWEST = 1 << 16 };
  char byte;
  if (tide_size(item)) return true;
  return pool->body->size && (uintptr_t)item >= LOWEST && os_read_memory(&byte, item, 1) == 1;
}

// The four below: lock held.
static entry *look_up(const void *item, const tide_pool *scope) {
  uintptr_t hidden = ~(uintptr_t)item;
  entry *e = (entry *)AO_load(bucket_of(hidden, scope));
  while (e && (e->hidden != hidden || e->scope != scope)) e = e->next;
  return e;
}

// The one of an item that is in the pool. Whether it is memory may have changed, if it was freed.
static entry *find_idle(const tide_pool *pool, const void *item) {
  entry *e = look_up(item, pool);
  if (!e) e = look_up(item, NULL);
  return e && e->pool == pool ? e : NULL;
}

static entry *new_entry(void) {
  if (!free_entries) {
    entry *slab = os_map(SLAB_BYTES);
    for (size_t i = 0; slab && i < SLAB_BYTES / sizeof *slab; i++) {
      slab[i].next = free_entries;
      free_entries = &slab[i];
    }
  }
  entry *e = free_entries;
  if (e) free_entries = e->next;
  return e;
}

// NULL: no memory.
static entry *find_or_enter(tide_pool *pool, const void *item, tide_pool *scope) {
  entry *e = look_up(item, scope);
  if (e) return e;
  e = new_entry();
  if (!e) {
    pool->body->check->unsure = true;
    return NULL;
  }
  AO_t *bucket = bucket_of(~(uintptr_t)item, scope);
  *e = (entry){.next = (entry *)AO_load(bucket), .hidden = ~(uintptr_t)item, .scope = scope};
  AO_store_release(bucket, (AO_t)e); // whole, should somebody fork
  return e;
}

static void take_off(AO_t *bucket, entry *wanted) {
  entry *before = NULL;
  for (entry *e = (entry *)AO_load(bucket); e != wanted; e = e->next) before = e;
  if (before)
    before->next = wanted->next;
  else
    AO_store(bucket, (AO_t)wanted->next);
  if (wanted->maker) AO_store(&made, AO_load(&made) - 1);
  wanted->next = free_entries;
  free_entries = wanted;
}

static void forget(entry *e) {
  take_off(bucket_of(e->hidden, e->scope), e);
}

static void set_maker(entry *e, tide_pool *maker) {
  AO_store(&made, AO_load(&made) + (maker != NULL) - (e->maker != NULL));
  e->maker = maker;
}

// Takes entries off for which fn says so; a bucket at a time, so that nobody waits for long.
static void sift(bool (*fn)(entry *e, const void *arg), const void *arg) {
  for (size_t i = 0; i < BUCKETS; i++) {
    if (!AO_load(&buckets[i])) continue;
    take_lock();
    for (entry *e = (entry *)AO_load(&buckets[i]), *next; e; e = next) {
      next = e->next;
      if (fn(e, arg)) take_off(&buckets[i], e);
    }
    give_lock();
  }
}

// ---- Faults ---------------------------------------------------------------------------------

static void must_live(const tide_pool *pool, const char *what, const stack *here) {
  if (!pool->body->check->ended) return;
  report_begins();
  rt_report("pool \"%s\" %s, but it has been destroyed", pool->body->name, what);
  report_stack("destroyed by", &pool->body->check->end);
  report_stack("and now used by", here);
  abort();
}

static void must_be_a_start(const tide_pool *pool, const void *item, const stack *here) {
  const char *base = tide_base(item);
  if (!base || base == item) return;
  report_begins();
  rt_report("pool \"%s\": %p is put, which is inside an object: base %p, offset %zu",
            pool->body->name, item, (const void *)base, (size_t)((const char *)item - base));
  report_stack("put by", here);
  abort();
}

static RT_COLD void report_doubled(const tide_pool *pool, const void *item, const entry *idle,
                                   const stack *here) {
  report_begins();
  if (idle->pool == pool)
    rt_report("pool \"%s\": %p is put, but is idle in it already", pool->body->name, item);
  else
    rt_report("pool \"%s\": %p is put, but is idle in pool \"%s\" already", pool->body->name, item,
              idle->pool->body->name);
  report_stack("put first by", &idle->put);
  report_stack("and now by", here);
  abort();
}

static RT_COLD void report_foreign(const tide_pool *pool, const void *item, const stack *here) {
  report_begins();
  rt_report("pool \"%s\": %p is put, which its create has not made", pool->body->name, item);
  report_stack("put by", here);
  abort();
}

// here: the get; NULL: the item is dropped.
static RT_COLD void report_end_of(const entry *was, const stack *here) {
  report_stack("put by", &was->put);
  if (here)
    report_stack("seen by the get of", here);
  else
    rt_report("  seen when the item was dropped");
  abort();
}

// Freed by hand, that is.
static void must_be_an_object(const entry *was, const void *item, const stack *here) {
  if (!was->heap || tide_base(item) == item) return;
  report_begins();
  rt_report("pool \"%s\": %p was freed while it was idle", was->pool->body->name, item);
  report_end_of(was, here);
}

static void must_be_untouched(const entry *was, const unsigned char *item, const stack *here) {
  size_t first = 0, differ = 0;
  while (first < was->bytes && item[first] == PATTERN) first++;
  if (first == was->bytes) return;
  for (size_t i = first; i < was->bytes; i++) differ += item[i] != PATTERN;
  report_begins();
  rt_report("pool \"%s\": %p was used after put: %zu of its %zu bytes differ, the first one at "
            "offset %zu, which is now 0x%02x",
            was->pool->body->name, (const void *)item, differ, was->bytes, first, item[first]);
  report_end_of(was, here);
}

// ---- Copies ---------------------------------------------------------------------------------

static void free_copy(void *copy, bool leaf) {
  if (leaf)
    free(copy);
  else
    tide_free(copy);
}

void check_cover(tide_pool *pool, void *item) {
  size_t bytes = tide_size(item);
  if (!bytes && pool->body->size && is_memory(pool, item))
    bytes = pool->body->size(item, pool->body->arg);
  if (!bytes) return;
  bool leaf = tide_object_kind(item) == TIDE_LEAF;
  rt_quiet_begin(rt_self());
  void *copy = leaf ? malloc(bytes) : tide_alloc_uncollectable(bytes);
  rt_quiet_end(rt_self());
  if (!copy) return;
  bool covered = os_read_memory(copy, item, bytes) == bytes;
  take_lock();
  entry *e = covered ? find_idle(pool, item) : NULL;
  if (e) {
    e->bytes = bytes;
    e->leaf = leaf;
    e->copy = copy;
  }
  give_lock();
  if (e)
    memset(item, PATTERN, bytes);
  else
    free_copy(copy, leaf);
}

static void uncover(const entry *was, void *item, const stack *here) {
  must_be_an_object(was, item, here);
  if (!was->copy) return;
  must_be_untouched(was, item, here);
  memcpy(item, was->copy, was->bytes);
  free_copy(was->copy, was->leaf);
}

// ---- Puts and gets --------------------------------------------------------------------------

// Enters the item as idle; what there was of it before is left in *was. False: it has no entry.
static bool enter(tide_pool *pool, void *item, const stack *here, entry *was) {
  bool heap = tide_size(item);
  tide_pool *scope = is_memory(pool, item) ? NULL : pool;
  take_lock();
  entry *e = find_or_enter(pool, item, scope);
  if (e) {
    *was = *e;
    was->pool = e->forks == forks ? e->pool : NULL;
    e->pool = pool;
    e->heap = heap;
    e->forks = forks;
    e->copy = NULL;
    e->put = *here;
  }
  give_lock();
  return e;
}

void check_put(tide_pool *pool, void *item, const void *caller) {
  stack here;
  entry was;
  take_stack(&here, caller);
  must_live(pool, "is put to", &here);
  must_be_a_start(pool, item, &here);
  if (!enter(pool, item, &here, &was)) return;
  if (was.pool) report_doubled(pool, item, &was, &here);
  bool foreign = pool->body->created_only && was.maker != pool && !pool->body->check->unsure;
  if (foreign) report_foreign(pool, item, &here);
  if (was.copy) free_copy(was.copy, was.leaf); // from before a fork
}

void check_made(tide_pool *pool, void *item) {
  if (!pool->body->created_only) return;
  bool heap = tide_size(item);
  tide_pool *scope = is_memory(pool, item) ? NULL : pool;
  take_lock();
  entry *e = find_or_enter(pool, item, scope);
  if (e) {
    set_maker(e, pool);
    e->heap = heap;
  }
  give_lock();
}

// What has been dropped may be put again, by whoever has been told of it: its maker stays known.
static void take_out(tide_pool *pool, void *item, const stack *here) {
  take_lock();
  entry *e = find_idle(pool, item), was = {0};
  if (e) was = *e;
  if (e && e->maker) {
    e->pool = NULL;
    e->copy = NULL;
  } else if (e) {
    forget(e);
  }
  give_lock();
  if (was.pool) uncover(&was, item, here);
}

void check_got(tide_pool *pool, void *item, const void *caller) {
  stack here;
  take_stack(&here, caller);
  must_live(pool, "is asked for an item", &here);
  if (item) take_out(pool, item, &here);
}

void check_dropped(tide_pool *pool, void *item) {
  take_out(pool, item, NULL);
}

// ---- Pools ----------------------------------------------------------------------------------

static bool has_died(entry *e, const void *arg) {
  if (e->pool || !e->heap) return false;
  const void *item = (const void *)~e->hidden;
  return tide_base(item) != item;
}

static void on_cycle_end(const tide_cycle *cycle, void *arg) {
  if (AO_load(&made)) sift(has_died, NULL);
}

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static int fork_handler_error;

// Another thread may have been in any of this.
static void in_child(void) {
  once = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  lock = (rt_pinned_lock)RT_PINNED_LOCK_INIT;
  forks++;
}

__attribute__((constructor)) static void install_fork_handler(void) {
  fork_handler_error = pthread_atfork(NULL, NULL, in_child);
}

static bool prepare(void) {
  if (buckets) return true;
  static tide_hook *hook;
  if (!hook) hook = tide_hook_add(TIDE_CYCLE_END, on_cycle_end, NULL);
  stack first;
  take_stack(&first, NULL); // loads what later calls need
  if (hook && !fork_handler_error) buckets = os_map(BUCKETS * sizeof *buckets);
  if (!buckets) rt_error_set(TIDE_ERR_MEMORY, "no memory for poolcheck");
  return buckets;
}

bool check_init(void) {
  if (!rt_options.poolcheck) return true;
  int cancellable = rt_cancel_disable();
  pthread_mutex_lock(&once);
  bool ready = prepare();
  pthread_mutex_unlock(&once);
  rt_cancel_restore(cancellable);
  return ready;
}

bool check_begin(tide_pool *pool) {
  if (rt_options.poolcheck) pool->body->check = calloc(1, sizeof *pool->body->check);
  return pool->body->check || !rt_options.poolcheck;
}

void check_free(tide_pool *pool) {
  free(pool->body->check);
}

void check_end(tide_pool *pool, const void *caller) {
  stack here;
  take_stack(&here, caller);
  must_live(pool, "is destroyed", &here);
  pool->body->check->end = here;
}

// What it made may be idle in another pool.
static bool leaves_with(entry *e, const void *pool) {
  bool elsewhere = e->pool && e->pool != pool;
  if (e->maker == pool && elsewhere) set_maker(e, NULL);
  return e->pool == pool || e->maker == pool;
}

tide_pool *check_keep(tide_pool *pool) {
  // Its items have all been dropped, but for those that a fork has cut off.
  if (pool->body->created_only || forks) sift(leaves_with, pool);
  take_lock();
  pool->body->check->ended = true;
  tide_pool *oldest = ended[next_ended];
  ended[next_ended] = pool;
  next_ended = (next_ended + 1) % ENDED_POOLS;
  give_lock();
  return oldest;
}
