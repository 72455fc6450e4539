// SPDX-License-Identifier: MIT
// TIDE_DEBUG=verify=1: after a marking, with the world still stopped, what a root or a marked
// object refers to is marked. The first fault stops the program with a line that names it.
//
// libgc's own structures are not looked at; those of ours are checked by looking objects up.
#include "bdw.h"

RT_SCANS_MEMORY static void check_words(const void *lo, const void *hi, const char *where) {
  for (const uintptr_t *at = lo; at + 1 <= (const uintptr_t *)hi; at++) {
    bdw_object o;
    if (!bdw_look_up((const void *)*at, &o) || GC_is_marked(o.base)) continue;
    rt_fatal("verify: the object at %p, which %s at %p refers to, is not marked", o.start, where,
             (const void *)at);
  }
}

static void check_root(const void *lo, const void *hi, rt_root_source source, void *arg) {
  check_words(lo, hi, "a root");
}

static bool check_object(void *start, void *arg) {
  bdw_object o;
  if (!bdw_look_up(start, &o) || o.start != start)
    rt_fatal("verify: %p is allocated, but libgc has no object there", start);
  bool marked = GC_is_marked(o.base);
  if (o.kind == TIDE_UNCOLLECTABLE && !marked)
    rt_fatal("verify: the uncollectable object at %p is not marked", start);
  if (marked && o.kind != TIDE_LEAF)
    check_words(start, (const char *)start + bdw_usable(&o), "an object");
  return true;
}

void bdw_verify(void) {
  bdw_bits_each(check_object, NULL);
  rt_roots_scan(check_root, NULL);
}
