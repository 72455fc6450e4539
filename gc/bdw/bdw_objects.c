// SPDX-License-Identifier: MIT
// Objects on libgc's heap: taken, found, freed.
//
// Small ones are taken a block's worth at a time and handed out by the thread itself, which is
// pinned and needs no lock; the others one by one. libgc would add a byte to every object, so that
// an address past its end is one inside. Here such addresses count on stacks only, as on the native
// heap (bdw_collect.c), so objects are asked for one byte smaller and have just our sizes; scanned
// ones are of a kind of our own, since libgc does not look at the last word of its own kind.
//
// Not GC_malloc_many: it overwrites 16 KiB of the stack below the caller, which may have less left.
//
// Only grow() makes libgc's heap larger. Otherwise a bound of one byte is in force for it: so libgc
// gives what it has or says that it has nothing, and how far to grow is decided here.
#include "bdw.h"
#include "limit.h"
#include "pace.h"

#include <gc/gc_inline.h>
#include <string.h>
#include <sys/mman.h>

// Inline allocation finds nothing in it and calls tide_alloc_slow.
static tide_cache spent;
__thread tide_cache *tide_cache_current __attribute__((tls_model("initial-exec"))) = &spent;

rt_pinned_lock bdw_lock = RT_PINNED_LOCK_INIT;
bdw_local *bdw_locals;
static bdw_local *free_locals;
static uint32_t slot_bytes[BDW_SMALL_CLASSES]; // as libgc makes them

// Kinds of libgc's: scanned objects that it clears; large ones, which are cleared here; its own
// that are not collected.
static int kind_scanned, kind_unclear, kind_uncollectable;
static void *spare; // a block, see forget_failure
static AO_t passed_limit;

static int new_kind(int clear) {
  return (int)GC_new_kind(GC_new_free_list(), 0 | GC_DS_LENGTH, 1, clear);
}

static void *ask(size_t bytes, int kind) {
  if (kind != kind_uncollectable) return GC_generic_malloc(bytes - 1, kind);
  // Of these libgc subtracts the byte itself, if they are small.
  return GC_generic_malloc_uncollectable(bytes < BDW_SMALL_MAX ? bytes : bytes - 1, kind);
}

// libgc takes memory for tables when it meets a kind or a size for the first time. It is to have
// met them before memory runs out: what is freed then is to serve any size.
static bool meet_sizes(void) {
  const int kinds[] = {GC_I_PTRFREE, kind_scanned, kind_unclear};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    void *first = ask(size_class_bytes[0], kinds[i]);
    if (!first) return false;
    GC_free(first);
  }
  for (int i = 0; i < BDW_SMALL_CLASSES; i++) {
    void *first = ask(size_class_bytes[i], GC_I_PTRFREE);
    if (!first) return false;
    slot_bytes[i] = (uint32_t)GC_size(first);
    GC_free(first);
  }
  return true;
}

tide_status bdw_objects_init(void) {
  if (spare) return TIDE_OK; // and something else then failed
  kind_scanned = new_kind(1);
  kind_unclear = new_kind(0);
  spare = GC_malloc_uncollectable(BDW_BLOCK_BYTES - 1);
  if (!spare) return rt_error_set(TIDE_ERR_MEMORY, "no memory for the heap");
  kind_uncollectable = GC_get_kind_and_size(spare, NULL);
  GC_free(ask(size_class_bytes[0], kind_uncollectable)); // its block stays for good
  bdw_memory_init();
  bool met = meet_sizes();
  GC_set_max_heap_size(1);
  if (met) return TIDE_OK;
  spare = NULL;
  return rt_error_set(TIDE_ERR_MEMORY, "no memory for the heap");
}

// ---- Threads --------------------------------------------------------------------------------

bool bdw_attach(rt_thread *thread) {
  rt_pinned_lock_take(&bdw_lock);
  bdw_local *local = free_locals;
  if (local) {
    free_locals = local->next_free;
  } else if ((local = os_map((sizeof *local + os_page_bytes() - 1) & ~(os_page_bytes() - 1)))) {
    local->older = bdw_locals;
    AO_store_release((AO_t *)&bdw_locals, (AO_t)local); // for bdw_stats, which takes no lock
  }
  rt_pinned_lock_give(&bdw_lock);
  thread->client = local;
  return local;
}

// What the thread has at hand is left to the next one.
void bdw_detach(rt_thread *thread, bool left_behind) {
  bdw_local *local = thread->client;
  rt_pinned_lock_take(&bdw_lock);
  local->next_free = free_locals;
  free_locals = local;
  rt_pinned_lock_give(&bdw_lock);
}

size_t bdw_drop_slots(void) {
  size_t bytes = 0;
  for (bdw_local *local = bdw_locals; local; local = local->older) {
    for (int kind = 0; kind < TIDE_UNCOLLECTABLE; kind++)
      for (int i = 0; i < BDW_SMALL_CLASSES; i++) bytes += local->left[kind][i] * slot_bytes[i];
    memset(local->left, 0, sizeof local->left);
  }
  return bytes;
}

// ---- Growing --------------------------------------------------------------------------------

bool bdw_has_room(size_t bytes) {
  enum { OTHERS_BYTES = 8 << 20 };
  void *room = os_reserve(bytes + OTHERS_BYTES);
  bool usable = room && os_commit(room, bytes + OTHERS_BYTES);
  if (room) munmap(room, bytes + OTHERS_BYTES);
  return usable;
}

static bool expand(size_t bytes) {
  if (!limit_hard_allows(bdw_mapped_bytes(), bytes + BDW_TABLE_STEP)) return false;
  if (!bdw_has_room(bytes)) return false;
  GC_set_max_heap_size(0);
  bool grown = GC_expand_hp(bytes);
  GC_set_max_heap_size(1);
  bdw_memory_note();
  return grown;
}

// By a sixteenth, as libgc tends to; by what has to be where a limit is near or memory is short.
// libgc does not place a large object where many words that look like addresses point: it gets room
// to evade some.
static bool grow(size_t bytes) {
  enum { EVADE_BYTES = 1 << 19, MOST_BYTES = 16 << 20 };
  size_t least = (bytes + BDW_BLOCK_BYTES - 1) & ~(size_t)(BDW_BLOCK_BYTES - 1);
  if (least < BDW_MIN_GROWTH) least = BDW_MIN_GROWTH;
  size_t ample = least + (least < EVADE_BYTES ? 0 : EVADE_BYTES);
  size_t step = bdw_heap_bytes() / 16;
  if (step > MOST_BYTES) step = MOST_BYTES;
  if (step > ample && !limit_matters()) ample = step & ~(size_t)(BDW_BLOCK_BYTES - 1);
  return expand(ample) || (ample > least && expand(least));
}

// ---- Taking ---------------------------------------------------------------------------------

// While the last request has failed, libgc has every collection write to the record that it has of
// the thread, and we are none of its threads. So a failure is followed by a request that does not
// fail: for the block that is given back here.
static void forget_failure(void) {
  GC_free(spare);
  spare = GC_generic_malloc_uncollectable(BDW_BLOCK_BYTES - 1, kind_uncollectable);
}

// An object of at least so many bytes. Lock held.
static void *take(size_t bytes, int kind) {
  void *base = ask(bytes, kind);
  if (!base && grow(bytes)) base = ask(bytes, kind);
  if (RT_UNLIKELY(!base)) forget_failure();
  return base;
}

// libgc's tables grow with what is in use; and free memory that it had given back to the system
// counts once more when it takes it again, all without that grow() was asked. It takes whole
// blocks, however large, and keeps them when the object is freed: then the hard limit is passed
// until who asked has had them given back. Lock held.
static bool is_within_limit(uint64_t mapped_before) {
  bdw_memory_note();
  uint64_t mapped = bdw_mapped_bytes();
  if (mapped <= mapped_before || limit_hard_allows(mapped, BDW_TABLE_STEP)) return true;
  if (!limit_hard_allows(mapped, 0)) AO_store(&passed_limit, 1);
  return false;
}

static void give_back(void *base) {
  GC_free(base);
  bdw_memory_note();
}

// A block's worth. Lock held.
static bool fill(bdw_local *local, unsigned size_class, tide_kind kind) {
  size_t asked = size_class_bytes[size_class], want = BDW_BLOCK_BYTES / asked, got = 0;
  if (want > BDW_SLOTS_MAX) want = BDW_SLOTS_MAX;
  void **slots = local->slots[kind][size_class];
  uint64_t mapped = bdw_mapped_bytes();
  for (; got < want; got++) {
    void *slot = take(asked, kind == TIDE_LEAF ? GC_I_PTRFREE : kind_scanned);
    if (!slot) break;
    slots[got] = slot;
    if (bdw_bits_make_room(slot)) continue;
    GC_free(slot);
    break;
  }
  if (!is_within_limit(mapped))
    while (got) give_back(slots[--got]);
  if (!got) return false;
  AO_fetch_and_add(&bdw_bytes, got * slot_bytes[size_class]);
  local->left[kind][size_class] = (unsigned char)got;
  return true;
}

static void *take_small(rt_thread *self, unsigned size_class, tide_kind kind) {
  bdw_local *local = self->client;
  void *slot = NULL;
  rt_pin(self);
  bool filled = local->left[kind][size_class];
  if (RT_UNLIKELY(!filled)) {
    rt_pinned_lock_take(&bdw_lock);
    filled = fill(local, size_class, kind);
    rt_pinned_lock_give(&bdw_lock);
  }
  if (RT_LIKELY(filled)) {
    slot = local->slots[kind][size_class][--local->left[kind][size_class]];
    bdw_bits_set(slot, true);
    bdw_count_taken(local, slot_bytes[size_class]);
  }
  rt_unpin(self);
  return slot;
}

static void *align(void *base, size_t alignment) {
  return (void *)(((uintptr_t)base + alignment - 1) & ~(alignment - 1));
}

// One object at a time; `bytes` may have been made larger for its alignment. Pinned, lock held.
static bool take_single(bdw_local *local, size_t bytes, size_t alignment, int kind, bdw_object *o) {
  uint64_t mapped = bdw_mapped_bytes();
  void *base = take(bytes, kind);
  if (!base) return false;
  void *start = align(base, alignment);
  o->base = base;
  o->start = start;
  o->base_bytes = GC_size(base);
  bool aligned = start == base || alignment > BDW_BLOCK_BYTES;
  if (!aligned || !bdw_bits_make_room(start) || !is_within_limit(mapped)) {
    give_back(base);
    return false;
  }
  bdw_bits_set(start, true);
  bdw_count_taken(local, o->base_bytes);
  AO_fetch_and_add(&bdw_bytes, o->base_bytes);
  return true;
}

// Small slots lie at multiples of their size in a block, larger objects begin a block. So up to a
// block's size a rounded size does, or a block; beyond that there has to be room to begin at a
// multiple.
static bool take_aligned(bdw_local *local, size_t bytes, size_t alignment, int kind,
                         bdw_object *o) {
  if (alignment > BDW_BLOCK_BYTES)
    return take_single(local, bytes + alignment - BDW_BLOCK_BYTES, alignment, kind, o);
  size_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
  if (take_single(local, rounded, alignment, kind, o)) return true;
  return rounded <= BDW_SMALL_MAX && take_single(local, BDW_SMALL_MAX + 16, alignment, kind, o);
}

// Large spans come from the system anew, where that is cheaper than to overwrite what may be there.
static void clear(void *start, size_t bytes) {
  enum { RELEASE_BYTES = 1 << 20 };
  char *at = start, *end = at + bytes;
  if (bytes >= RELEASE_BYTES) {
    size_t page = os_page_bytes();
    char *lo = align(at, page), *hi = (char *)((uintptr_t)end & ~(page - 1));
    if (os_release(lo, (size_t)(hi - lo))) {
      memset(at, 0, (size_t)(lo - at));
      at = hi;
    }
  }
  memset(at, 0, (size_t)(end - at));
}

static void *take_other(rt_thread *self, size_t size, size_t alignment, tide_kind kind) {
  size_t bytes =
      size <= TIDE_SMALL_MAX ? size_class_bytes[size_class_for(size)] : (size + 15) & ~(size_t)15;
  // Aligned objects are small only if their rounded size is; a kind that libgc clears serves both.
  bool unclear = kind == TIDE_SCANNED && bytes > BDW_SMALL_MAX;
  int theirs = kind == TIDE_LEAF            ? GC_I_PTRFREE
               : kind == TIDE_UNCOLLECTABLE ? kind_uncollectable
               : unclear                    ? kind_unclear
                                            : kind_scanned;
  bdw_object o;
  rt_pin(self);
  rt_pinned_lock_take(&bdw_lock);
  bool taken = alignment > 16 ? take_aligned(self->client, bytes, alignment, theirs, &o)
                              : take_single(self->client, bytes, 16, theirs, &o);
  rt_pinned_lock_give(&bdw_lock);
  rt_unpin(self);
  if (!taken) return NULL;
  // Until here it holds what it held before, and a collection may look at it: that keeps garbage,
  // and does no harm.
  if (unclear) clear(o.start, bdw_usable(&o));
  return o.start;
}

void *bdw_alloc(rt_thread *self, size_t size, size_t alignment, tide_kind kind) {
  void *object;
  if (RT_LIKELY(size <= BDW_SMALL_MAX && alignment <= 16 && kind != TIDE_UNCOLLECTABLE))
    object = take_small(self, size_class_for(size), kind);
  else
    object = take_other(self, size, alignment, kind);
  if (RT_UNLIKELY(AO_load(&passed_limit))) {
    AO_store(&passed_limit, 0);
    bdw_release(self, 0, true);
  }
  return object;
}

size_t bdw_largest(void) {
  return (size_t)1 << 46; // no system has that much; sums with alignments do not overflow
}

// ---- Finding and freeing --------------------------------------------------------------------

static tide_kind kind_of(int theirs) {
  if (theirs == kind_scanned || theirs == kind_unclear) return TIDE_SCANNED;
  return theirs == GC_I_PTRFREE ? TIDE_LEAF : TIDE_UNCOLLECTABLE;
}

bool bdw_look_at(void *base, size_t base_bytes, bdw_object *object) {
  void *start = base;
  if (!bdw_bits_get(base)) {
    if (base_bytes <= BDW_BLOCK_BYTES) return false;
    start = bdw_bits_first((char *)base + BDW_BLOCK_BYTES, (char *)base + base_bytes);
    if (!start) return false;
  }
  *object = (bdw_object){base, start, base_bytes, kind_of(GC_get_kind_and_size(base, NULL))};
  return true;
}

bool bdw_look_up(const void *address, bdw_object *object) {
  void *base = GC_base((void *)(uintptr_t)address);
  return base && bdw_look_at(base, GC_size(base), object) && object->start <= address;
}

bool bdw_find(rt_thread *self, const void *address, engine_object *object) {
  bdw_object o;
  rt_pin(self);
  rt_pinned_lock_take(&bdw_lock);
  bool found = bdw_look_up(address, &o);
  rt_pinned_lock_give(&bdw_lock);
  rt_unpin(self);
  if (found) *object = (engine_object){o.start, bdw_usable(&o), o.kind};
  return found;
}

bool bdw_free(rt_thread *self, void *start) {
  bdw_object o;
  rt_pin(self);
  rt_pinned_lock_take(&bdw_lock);
  bool ours = bdw_look_up(start, &o) && o.start == start;
  if (ours) {
    bdw_bits_set(start, false);
    if (RT_UNLIKELY(rt_options.poison)) bdw_poison(&o);
    bdw_count_freed(o.base_bytes);
    give_back(o.base);
  }
  rt_pinned_lock_give(&bdw_lock);
  rt_unpin(self);
  return ours;
}

bool bdw_resize(rt_thread *self, void *start, size_t size) {
  engine_object o;
  return bdw_find(self, start, &o) && o.start == start && size <= o.size && size >= o.size / 2;
}
