// SPDX-License-Identifier: MIT
// Static data and thread-local variables of the program and its shared objects.
//
// The list comes from dl_iterate_phdr, which takes the loader's lock, so it is read before the
// world is stopped. By the time the world has stopped, the list may be out of date, and the lock
// does not help: dlclose unmaps an object before it takes it off the list. So after the stop we
// look at what the loader keeps for debuggers, who face the same question: a state word that says
// whether it is in the middle of a change, and the chain of loaded objects. If the loader is at
// rest and the chain is the one that belonged to our list, the list is true. Otherwise the world is
// started for a moment and the list read again (world.c). Threads in tide_blocking and threads that
// we do not know are not stopped and may unload a library even then: where there are any, the data
// of what can be unloaded is read through the kernel, which tells us of a page that is gone. That
// is all but the program, this library, the C library and the loader. What such threads load
// meanwhile cannot refer to the heap.
//
// Thread-local variables. Those that were there at program start, and those of libraries built for
// it, lie in one block below the thread pointer. The rest are blocks from malloc, found through the
// thread's vector of blocks (the DTV), whose layout is part of glibc's ABI towards debuggers:
// DTV[-1] is its length, DTV[m] the block of module m. A block may be an old one of an unloaded
// module, shorter than the new module's, so it is read through the kernel. A thread may have been
// stopped while realloc moves its DTV; a DTV that was freed is known by the second word of DTV[-1],
// which is 0 in a whole one and a pointer or key of glibc's malloc in a freed one.
//
// Objects loaded with dlmopen into another namespace are not seen.
#define _GNU_SOURCE
#include "rt.h"
#include "rt_private.h"

#include <link.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <string.h>

typedef struct segment {
  const char *lo, *hi;
  bool lasting; // never unloaded
} segment;

typedef struct tls_module {
  size_t id;
  size_t bytes;
} tls_module;

typedef struct list {
  void *items; // at first an array of ours, so that a usual program needs no memory here
  size_t count, room, item_bytes;
  bool mapped;
} list;

static segment first_segments[256];
static tls_module first_modules[64];

static struct {
  bool read;
  unsigned long long adds, subs; // the loader's counters when it was read
  uint64_t chain;                // the debugger's chain then
  list segments, modules;
} known = {.segments = {first_segments, 0, 256, sizeof(segment), false},
           .modules = {first_modules, 0, 64, sizeof(tls_module), false}};

static size_t list_bytes(const list *l) {
  return (l->room * l->item_bytes + 4095) / 4096 * 4096;
}

static void list_push(list *l, const void *item) {
  if (l->count == l->room) {
    list old = *l;
    l->room *= 2;
    l->items = os_map(list_bytes(l));
    // Without the list nothing can be collected, with part of it live objects would be freed.
    if (!l->items) rt_fatal("no memory (%zu bytes) for the list of data segments", list_bytes(l));
    memcpy(l->items, old.items, old.count * old.item_bytes);
    if (old.mapped) os_unmap(old.items, list_bytes(&old));
    l->mapped = true;
  }
  memcpy((char *)l->items + l->count++ * l->item_bytes, item, l->item_bytes);
}

// ---- The loader's state ---------------------------------------------------------------------

extern struct r_debug _r_debug __attribute__((weak));

static bool loader_is_watched(void) {
  return &_r_debug && _r_debug.r_version > 0;
}

// Fixed: nobody can change the chain now. Else it is copied, as it may be freed while we look.
static uint64_t chain_signature(bool fixed) {
  uint64_t signature = 0;
  if (!loader_is_watched()) return 0; // a static program: nothing is loaded or unloaded
  struct link_map object;
  for (const struct link_map *next = _r_debug.r_map; next; next = object.l_next) {
    if (fixed)
      object = *next;
    else if (os_read_memory(&object, next, sizeof object) != sizeof object)
      return 0;
    signature = signature * 1099511628211u + (uintptr_t)next;
    signature = signature * 1099511628211u + object.l_addr;
    signature = signature * 1099511628211u + (uintptr_t)object.l_ld;
  }
  return signature | 1;
}

bool rt_segments_still_true(void) {
  if (!known.read) return false;
  if (!loader_is_watched()) return true;
  return _r_debug.r_state == RT_CONSISTENT && chain_signature(rt_world_is_still()) == known.chain;
}

// ---- Reading the list -----------------------------------------------------------------------

static void add_writable(const struct dl_phdr_info *object, const ElfW(Phdr) * header,
                         bool lasting) {
  segment s = {.lasting = lasting};
  s.lo = (const char *)object->dlpi_addr + header->p_vaddr;
  s.hi = s.lo + header->p_memsz;
  // The part that is read-only after relocation holds what the loader put there.
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *relro = &object->dlpi_phdr[i];
    if (relro->p_type != PT_GNU_RELRO) continue;
    const char *lo = (const char *)object->dlpi_addr + relro->p_vaddr;
    const char *hi = lo + relro->p_memsz;
    if (lo <= s.lo && hi > s.lo) s.lo = hi < s.hi ? hi : s.hi;
  }
  if (s.lo < s.hi) list_push(&known.segments, &s);
}

static bool contains(const struct dl_phdr_info *object, const void *address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &object->dlpi_phdr[i];
    if (header->p_type == PT_LOAD &&
        (uintptr_t)address - (object->dlpi_addr + header->p_vaddr) < header->p_memsz)
      return true;
  }
  return false;
}

static bool is_this_library(const struct dl_phdr_info *object) {
  static const char of_this_library;
  return contains(object, &of_this_library);
}

// This library is linked so that it is never unloaded, and so what it needs never is.
static bool is_lasting(const struct dl_phdr_info *object) {
  if (is_this_library(object) || contains(object, &_r_debug)) return true;
#ifdef __GLIBC__
  if (contains(object, gnu_get_libc_version())) return true; // a string of the C library's own
#endif
  return false;
}

// The runtimes of sanitizers have megabytes of tables in their data, 5 to 50 each, and in them no
// reference to the heap that is not elsewhere too. These functions are there with the runtimes.
extern int __asan_report_present(void) __attribute__((weak));
extern void *__tsan_get_current_report(void) __attribute__((weak));
extern void __ubsan_get_current_report_data(void) __attribute__((weak));

static const void *ignored; // in an object whose data is no root; NULL: there is none

void rt_segments_ignore(const void *address) {
  ignored = address;
  known.read = false;
}

static bool is_ignored(const struct dl_phdr_info *object) {
  const void *const inside[] = {ignored, (const void *)(uintptr_t)__asan_report_present,
                                (const void *)(uintptr_t)__tsan_get_current_report,
                                (const void *)(uintptr_t)__ubsan_get_current_report_data};
  for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
    if (inside[i] && contains(object, inside[i])) return !is_this_library(object);
  return false;
}

static int read_object(struct dl_phdr_info *object, size_t size, void *first) {
  bool *is_first = first, program = *is_first; // the program itself is listed first
  if (*is_first) {
    *is_first = false;
    uint64_t chain = chain_signature(true); // it changes only under the lock that we are under
    if (known.read && object->dlpi_adds == known.adds && object->dlpi_subs == known.subs &&
        chain == known.chain)
      return 1; // nothing has changed
    known.adds = object->dlpi_adds;
    known.subs = object->dlpi_subs;
    known.chain = chain;
    known.segments.count = known.modules.count = 0;
  }
  if (!program && is_ignored(object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &object->dlpi_phdr[i];
    if (header->p_type == PT_LOAD && (header->p_flags & PF_W))
      add_writable(object, header, program || is_lasting(object));
    if (header->p_type == PT_TLS && object->dlpi_tls_modid) {
      tls_module module = {object->dlpi_tls_modid, header->p_memsz};
      list_push(&known.modules, &module);
    }
  }
  return 0;
}

// By whoever is about to stop the world, one at a time. An object may be listed while it is being
// unmapped; the chain that we keep then no longer holds after the stop, and the counters have
// changed too.
void rt_segments_refresh(void) {
  bool first = true;
  dl_iterate_phdr(read_object, &first);
  known.read = true;
}

void rt_segments_scan(rt_root_fn fn, void *arg) {
  const segment *segments = known.segments.items;
  for (size_t i = 0; i < known.segments.count; i++)
    if (segments[i].lasting || rt_world_is_still())
      rt_scan(segments[i].lo, segments[i].hi, RT_ROOT_STATIC, fn, arg);
    else
      rt_scan_doubtful(segments[i].lo, segments[i].hi, RT_ROOT_STATIC, fn, arg);
}

// ---- Thread-local variables -----------------------------------------------------------------

#ifdef __GLIBC__

typedef union dtv_entry {
  size_t counter;
  struct {
    char *block;
    void *to_free; // NULL for a block below the thread pointer
  } pointer;
} dtv_entry;

static const dtv_entry *dtv_of(const rt_thread *thread) {
#if defined __x86_64__
  return ((const dtv_entry *const *)(const void *)thread->thread_pointer)[1];
#else
  return ((const dtv_entry *const *)(const void *)thread->thread_pointer)[0];
#endif
}

// Reads DTV[m]; m = -1 for the head.
static bool read_dtv(const rt_thread *thread, ptrdiff_t m, dtv_entry *entry) {
  return os_read_memory(entry, dtv_of(thread) + m, sizeof *entry) == sizeof *entry;
}

bool rt_tls_settled(const rt_thread *thread) {
  dtv_entry head;
  return !read_dtv(thread, -1, &head) || head.pointer.to_free == NULL;
}

// The block below the thread pointer of a thread whose block is not on its stack: the first thread.
// Blocks of libraries loaded later are taken from the slack below those known by the DTV, which
// glibc sizes at under 4 KiB.
static void scan_static_block(const rt_thread *thread, const char *lowest, rt_root_fn fn,
                              void *arg) {
  const char *hi = thread->thread_pointer;
  if (hi >= thread->stack_lo && hi < thread->stack_hi) return;
#if defined __x86_64__
  rt_scan_doubtful(lowest - 4096, lowest, RT_ROOT_TLS, fn, arg);
  rt_scan_doubtful(lowest, hi, RT_ROOT_TLS, fn, arg);
#else
  rt_scan_doubtful(hi, lowest + 4096, RT_ROOT_TLS, fn, arg); // blocks lie above the thread pointer
#endif
}

// Static blocks lie next to the thread pointer. One that lies elsewhere is from malloc, also when
// it seems not to be: the thread may have been stopped between the two halves of its entry.
enum { STATIC_REACH_BYTES = 64 << 20 };

static bool is_static_block(const rt_thread *thread, const dtv_entry *entry) {
  ptrdiff_t away = entry->pointer.block - thread->thread_pointer;
  return !entry->pointer.to_free && away > -STATIC_REACH_BYTES && away < STATIC_REACH_BYTES;
}

void rt_tls_scan(const rt_thread *thread, rt_root_fn fn, void *arg) {
  // A thread in tide_blocking runs on, and may be moving its DTV: for a moment.
  for (unsigned tries = 0; !rt_tls_settled(thread) && tries < 1000; tries++) os_pause(tries);
  enum { AT_ONCE = 64 };
  dtv_entry first[AT_ONCE], entry; // DTV[-1] and what follows it
  const tls_module *modules = known.modules.items;
  const char *edge = thread->thread_pointer;
  // Not beyond the page, behind which there may be nothing.
  const dtv_entry *dtv = dtv_of(thread) - 1;
  size_t bytes = 4096 - ((uintptr_t)dtv & 4095);
  if (bytes > sizeof first) bytes = sizeof first;
  size_t have = os_read_memory(first, dtv, bytes) / sizeof *first;
  if (!have) return;
  for (size_t i = 0; i < known.modules.count; i++) {
    if (modules[i].id > first->counter) continue; // the thread has not used it yet
    if (modules[i].id + 1 < have)
      entry = first[modules[i].id + 1];
    else if (!read_dtv(thread, (ptrdiff_t)modules[i].id, &entry))
      continue;
    const char *block = entry.pointer.block;
    if (!block || block == (const char *)-1) continue;
    if (!is_static_block(thread, &entry))
      rt_scan_doubtful(block, block + modules[i].bytes, RT_ROOT_TLS, fn, arg);
#if defined __x86_64__
    else if (block < edge)
      edge = block;
#else
    else if (block + modules[i].bytes > edge)
      edge = block + modules[i].bytes;
#endif
  }
  scan_static_block(thread, edge, fn, arg);
}

#else // Another C library: only the static block, which is on the stack for all but the first
      // thread.

bool rt_tls_settled(const rt_thread *thread) {
  return true;
}
void rt_tls_scan(const rt_thread *thread, rt_root_fn fn, void *arg) {}

#endif
