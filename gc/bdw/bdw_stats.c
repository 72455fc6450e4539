// SPDX-License-Identifier: MIT
// Numbers: of objects, which are counted here, and of memory, which libgc counts.
//
// Objects that are taken are counted by the thread that takes them, frees when a marking has told
// what is left: all that was taken and is not live has been freed, in each class. libgc's numbers
// are copied whenever they may have changed, so that they are read without its lock.
//
// An object counts in the class that its size is of. libgc has sizes of its own between 512 bytes
// and 2 KiB, so there the class may be another than the one that the size asked for is of.
#include "bdw.h"

#include <string.h>

AO_t bdw_bytes;

// ---- Memory ---------------------------------------------------------------------------------

// Of libgc: its heap, free blocks, and the part of them given back, all counted in full; what it
// has of the system besides.
static struct { AO_t heap, free, unmapped, beside; } noted;
static uint64_t own_bytes; // blocks in its heap that hold no objects of the program: counted beside

void bdw_memory_note(void) {
  struct GC_prof_stats_s s;
  GC_get_prof_stats(&s, sizeof s);
  uint64_t heap = s.heapsize_full - own_bytes;
  AO_store(&noted.heap, heap);
  AO_store(&noted.free, s.free_bytes_full);
  AO_store(&noted.unmapped, s.unmapped_bytes);
  AO_store(&noted.beside, s.obtained_from_os_bytes - heap);
}

void bdw_memory_init(void) {
  struct GC_prof_stats_s s;
  GC_get_prof_stats(&s, sizeof s);
  own_bytes = s.heapsize_full - s.free_bytes_full;
  bdw_memory_note();
}

static uint64_t below(uint64_t a, uint64_t b) { // a - b, where another thread may be changing both
  return a > b ? a - b : 0;
}

uint64_t bdw_heap_bytes(void) {
  return AO_load(&noted.heap);
}
uint64_t bdw_unmapped_bytes(void) {
  return AO_load(&noted.unmapped);
}

static uint64_t tables_bytes(void) {
  return AO_load(&noted.beside) + bdw_bits_bytes();
}

void bdw_memory(engine_memory *memory) {
  uint64_t free = AO_load(&noted.free);
  memory->used_bytes = below(AO_load(&noted.heap), free) + tables_bytes() + os_mapped_bytes();
  memory->free_bytes = below(free, AO_load(&noted.unmapped));
}

uint64_t bdw_mapped_bytes(void) {
  engine_memory m;
  bdw_memory(&m);
  return m.used_bytes + m.free_bytes;
}

// ---- Objects --------------------------------------------------------------------------------

static struct { AO_t objects[BDW_COUNTED_CLASSES], bytes; } freed; // since the start

static unsigned class_of(size_t bytes) {
  return bytes <= TIDE_SMALL_MAX ? size_class_for(bytes) : TIDE_SIZE_CLASSES;
}

static void add(AO_t *sum, size_t more) { // by the only one who changes it
  AO_store(sum, AO_load(sum) + more);
}

void bdw_count(bdw_counts *counts, size_t bytes) {
  counts->objects[class_of(bytes)]++;
  counts->bytes += bytes;
}

void bdw_count_taken(bdw_local *local, size_t bytes) {
  add(&local->taken[class_of(bytes)], 1);
  add(&local->taken_bytes, bytes);
}

void bdw_count_freed(size_t bytes) {
  add(&freed.objects[class_of(bytes)], 1);
  add(&freed.bytes, bytes);
  AO_fetch_and_add(&bdw_bytes, (AO_t)0 - bytes);
}

static void add_up_taken(bdw_counts *sum) {
  memset(sum, 0, sizeof *sum);
  // Acquire: pairs with the release in bdw_attach.
  const bdw_local *local = (const bdw_local *)AO_load_acquire((AO_t *)&bdw_locals);
  for (; local; local = local->older) {
    for (int i = 0; i < BDW_COUNTED_CLASSES; i++) sum->objects[i] += AO_load(&local->taken[i]);
    sum->bytes += AO_load(&local->taken_bytes);
  }
}

void bdw_count_live(const bdw_counts *live) {
  bdw_counts taken;
  add_up_taken(&taken);
  for (int i = 0; i < BDW_COUNTED_CLASSES; i++)
    AO_store(&freed.objects[i], taken.objects[i] - live->objects[i]);
  AO_store(&freed.bytes, taken.bytes - live->bytes);
}

// Frees are read before what was taken, so that no more of the former are seen.
static void object_stats(tide_memstats *s) {
  bdw_counts frees, taken;
  for (int i = 0; i < BDW_COUNTED_CLASSES; i++) frees.objects[i] = AO_load(&freed.objects[i]);
  frees.bytes = AO_load(&freed.bytes);
  AO_nop_read();
  add_up_taken(&taken);
  for (int i = 0; i < BDW_COUNTED_CLASSES; i++) {
    // A collection may be setting them one by one.
    uint64_t mallocs = frees.objects[i] + below(taken.objects[i], frees.objects[i]);
    s->mallocs += mallocs;
    s->frees += frees.objects[i];
    if (i == TIDE_SIZE_CLASSES) break;
    s->by_size[i].size = size_class_bytes[i];
    s->by_size[i].mallocs = mallocs;
    s->by_size[i].frees = frees.objects[i];
  }
  s->heap_objects = s->mallocs - s->frees;
  s->heap_alloc = below(taken.bytes, frees.bytes);
  s->total_alloc = frees.bytes + s->heap_alloc;
}

// Each number is read once, and the others are made from those: they always add up.
void bdw_stats(tide_memstats *s) {
  object_stats(s);
  uint64_t heap = AO_load(&noted.heap), free = AO_load(&noted.free);
  if (free > heap) free = heap;
  uint64_t unmapped = AO_load(&noted.unmapped);
  s->heap_sys = heap;
  s->heap_idle = free;
  s->heap_inuse = heap - free;
  s->heap_released = unmapped < free ? unmapped : free;
  s->gc_sys = tables_bytes();
  s->other_sys = os_mapped_bytes();
  s->sys = s->heap_sys + s->gc_sys + s->other_sys;
}
