// SPDX-License-Identifier: MIT
// The roots of a stopped world.
//
//   stacks      from each thread's sp to the stack's base. The registers are on it (world.c), and
//   so,
//               for every thread but the first, is the static block of thread-local variables,
//               which the C library puts between the stack's base and the thread's own record.
//   static      writable segments of the program and its shared objects (segments.c)
//   TLS         the other blocks of thread-local variables (segments.c)
//   added       ranges that the program has named
//
// Added ranges are kept in the C library's balanced tree, keyed by both bounds, with a count:
// adding and removing takes logarithmic time however many there are. The tree changes only under
// rt_world_lock, so it is whole whenever the world is stopped.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

typedef struct range {
  uintptr_t lo, hi;
  size_t count;
} range;

static void *ranges; // tsearch tree of range; under rt_world_lock

static int compare_ranges(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
  if (x->hi != y->hi) return x->hi < y->hi ? -1 : 1;
  return 0;
}

tide_status tide_roots_add(const void *lo, const void *hi) {
  range key = {(uintptr_t)lo, (uintptr_t)hi, 1};
  if (key.hi < key.lo) return rt_error_set(TIDE_ERR_ARGUMENT, "root range ends before it begins");
  if (!rt_allowed("tide_roots_add")) return TIDE_ERR_STATE;
  if (!rt_ensure_initialised())
    return rt_error_set(TIDE_ERR_MEMORY, "the library could not be initialised");
  range *fresh = malloc(sizeof *fresh);
  if (!fresh) return rt_error_set(TIDE_ERR_MEMORY, "no memory for a root range");
  *fresh = key;
  rt_mutex_take(&rt_world_lock);
  range **node = tsearch(fresh, &ranges, compare_ranges);
  bool known = node && *node != fresh;
  if (known) (*node)->count++;
  pthread_mutex_unlock(&rt_world_lock);
  if (known || !node) free(fresh);
  return node ? TIDE_OK : rt_error_set(TIDE_ERR_MEMORY, "no memory for a root range");
}

tide_status tide_roots_remove(const void *lo, const void *hi) {
  range key = {(uintptr_t)lo, (uintptr_t)hi, 0};
  if (!rt_allowed("tide_roots_remove")) return TIDE_ERR_STATE;
  range *gone = NULL;
  rt_mutex_take(&rt_world_lock);
  range **node = tfind(&key, &ranges, compare_ranges);
  bool known = node;
  if (known && --(*node)->count == 0) {
    gone = *node;
    tdelete(&key, &ranges, compare_ranges);
  }
  pthread_mutex_unlock(&rt_world_lock);
  free(gone);
  return known ? TIDE_OK
               : rt_error_set(TIDE_ERR_ARGUMENT, "no root range with these bounds was added");
}

// ---- Scanning -------------------------------------------------------------------------------

static const char *align_up(const char *address) {
  return (const char *)(((uintptr_t)address + sizeof(void *) - 1) & ~(sizeof(void *) - 1));
}

void rt_scan(const char *lo, const char *hi, rt_root_source source, rt_root_fn fn, void *arg) {
  lo = align_up(lo);
  hi = (const char *)((uintptr_t)hi & ~(sizeof(void *) - 1));
  if (lo < hi) fn(lo, hi, source, arg);
}

enum { PAGE_BYTES = 4096, PIECE_BYTES = 16 * PAGE_BYTES };
static char *doubtful_copy; // there from the start: a collection must not depend on new memory

tide_status rt_roots_init(void) {
  if (!doubtful_copy) doubtful_copy = os_map(PIECE_BYTES);
  return doubtful_copy ? TIDE_OK : rt_error_set(TIDE_ERR_MEMORY, "no memory to look at roots");
}

void rt_scan_doubtful(const char *lo, const char *hi, rt_root_source source, rt_root_fn fn,
                      void *arg) {
  for (lo = align_up(lo); lo < hi;) {
    size_t page_offset = (uintptr_t)lo & (PAGE_BYTES - 1);
    size_t bytes = PIECE_BYTES - page_offset;
    if (bytes > (size_t)(hi - lo)) bytes = (size_t)(hi - lo);
    // Copies up to the first page that is not there; what lies beyond may be there again.
    size_t got = os_read_memory(doubtful_copy, lo, bytes);
    rt_scan(doubtful_copy, doubtful_copy + got, source, fn, arg);
    lo += got == bytes ? bytes
                       : (page_offset + got) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES - page_offset;
  }
}

// A stack whose end is unknown, because its thread was stopped in a handler on another stack: from
// the base downwards as far as there is memory.
static void scan_whole_stack(const rt_thread *thread, rt_root_fn fn, void *arg) {
  const char *hi = thread->stack_hi;
  char probe;
  while (hi > thread->stack_lo) {
    const char *lo = (const char *)(((uintptr_t)hi - 1) & ~(uintptr_t)(PAGE_BYTES - 1));
    if (lo < thread->stack_lo) lo = thread->stack_lo;
    if (os_read_memory(&probe, lo, 1) != 1) return;
    rt_scan_doubtful(lo, hi, RT_ROOT_STACK, fn, arg);
    hi = lo;
  }
}

// The marks may be changing: see put_marks_back.
static void scan_stack(const rt_thread *thread, rt_root_fn fn, void *arg) {
  const char *sp = (const char *)AO_load((const AO_t *)(const void *)&thread->sp);
  const char *alt_sp = (const char *)AO_load((const AO_t *)(const void *)&thread->alt_sp);
  if (sp)
    rt_scan(sp, thread->stack_hi, RT_ROOT_STACK, fn, arg);
  else
    scan_whole_stack(thread, fn, arg);
  if (alt_sp) rt_scan(alt_sp, thread->alt_hi, RT_ROOT_STACK, fn, arg);
}

RT_NOINLINE void rt_clear_stack_below(const rt_thread *self) {
  enum { BYTES = 2048, MARGIN = 4096 };
  char below[BYTES];
  if ((uintptr_t)below - (uintptr_t)self->stack_lo < MARGIN) return; // near its end
  memset(below, 0, sizeof below);
  __asm__ volatile("" : : "r"(below) : "memory"); // it is not dead
}

typedef struct walk {
  rt_root_fn fn;
  void *arg;
} walk;

static void scan_range(const void *node, VISIT visit, void *closure) {
  const walk *w = closure;
  const range *r = *(const range *const *)node;
  if (visit == postorder || visit == leaf)
    rt_scan((const char *)r->lo, (const char *)r->hi, RT_ROOT_ADDED, w->fn, w->arg);
}

void rt_roots_scan(rt_root_fn fn, void *arg) {
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next) {
    scan_stack(thread, fn, arg);
    rt_tls_scan(thread, fn, arg);
  }
  rt_segments_scan(fn, arg);
  walk w = {fn, arg};
  twalk_r(ranges, scan_range, &w);
}
