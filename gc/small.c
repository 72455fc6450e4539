// SPDX-License-Identifier: MIT
// Small objects: how a thread gets the runs of free slots that tide_alloc moves through.
//
// A thread owns at most one block of each class and kind. It looks for the next run of free slots
// in the block's allocated bits, claims the run by setting the bits of all its slots, zeroes it,
// and hands it to the inline allocator, which then needs neither lock nor bits. When the block has
// no more, the thread takes another: one with room, one that becomes so by being swept, an empty
// one.
//
// A run is used from its end down. An object's address, on a stack, also counts as the end of what
// lies below (mark.c): that is then what the thread allocated next, as a rule a part of the object,
// and not what it allocated just before, which may be the root of a large structure long dropped.
//
// What if the thread is stopped? Outside this file it may be between reading run.next and writing
// it back (tide_alloc): so a collection leaves a thread's runs alone. It only takes the unused
// slots of each run out of the allocated bits while it marks, and puts them back. Inside this file
// the thread is pinned. If it is cut off by a fork, its runs stay allocated in the child until the
// next sweep.
#include "heap.h"

#include <string.h>

// A run is at least one slot and otherwise at most this long: short enough to be still in the first
// level cache, zeroed, when it is used.
enum { RUN_BYTES = 4096 };

// A thread adds what it has claimed to the heap's size in such portions: all threads share that
// word.
enum { COUNT_BYTES = 16384 };

// Where a thread may not allocate, its cache is this one: every run is spent.
static tide_cache spent;
__thread tide_cache *tide_cache_current __attribute__((tls_model("initial-exec"))) =
    (tide_cache *)&spent;

static rt_pinned_lock locals_lock = RT_PINNED_LOCK_INIT;
static heap_local *free_locals; // to use again, under locals_lock
static AO_t all_locals;         // the newest; never unmapped

void small_lock_take(void) {
  rt_pinned_lock_take(&locals_lock);
}
void small_lock_give(void) {
  rt_pinned_lock_give(&locals_lock);
}

// ---- Threads --------------------------------------------------------------------------------

// Spent runs; the counts go on.
static heap_local *new_local(void) { // locals_lock held
  heap_local *local = os_map((sizeof *local + 4095) / 4096 * 4096);
  if (!local) return NULL;
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++)
      local->cache.runs[kind][i].size = size_class_bytes[i];
  local->older = (heap_local *)AO_load(&all_locals);
  AO_store_release(&all_locals, (AO_t)local); // pairs with the acquire in small_add_allocated
  return local;
}

bool small_attach(rt_thread *thread) {
  rt_pinned_lock_take(&locals_lock);
  heap_local *local = free_locals;
  if (local)
    free_locals = local->next_free;
  else
    local = new_local();
  rt_pinned_lock_give(&locals_lock);
  if (local) AO_store(&local->in_use, 1);
  thread->client = local;
  return local;
}

void small_allow(rt_thread *thread, bool allowed) {
  tide_cache_current = allowed ? &heap_local_of(thread)->cache : &spent;
}

static void set_bits(AO_t *bits, uint32_t from, uint32_t to, bool value);
static void set_run(heap_local *local, tide_run *run, block_index block, uint32_t slot,
                    uint32_t count);

static void count_bytes(heap_local *local) {
  AO_fetch_and_add(&heap.bytes, local->uncounted_bytes);
  local->uncounted_bytes = 0;
}

// A run is used from its end down: what is left of it are its first slots.
static uint32_t unused_slots(const tide_run *run) {
  return (uint32_t)((size_t)(run->next - run->limit) / run->size);
}
static uint32_t first_slot(const tide_run *run) { // of one that has a block
  uintptr_t first = (uintptr_t)run->limit + run->size;
  return (uint32_t)((first - block_address(run->block)) / run->size);
}

static void give_up_run(heap_local *local, tide_kind kind, int size_class) {
  tide_run *run = &local->cache.runs[kind][size_class];
  if (!run->block) return;
  heap_block *block = &heap.blocks[run->block];
  size_list *list = &heap.lists[kind][size_class];
  uint32_t unused = unused_slots(run), first = first_slot(run);
  rt_pinned_lock_take(&list->lock);
  set_bits(small_bits(run->block), first, first + unused, false);
  set_run(local, run, 0, 0, 0);
  // What was claimed before the last marking is not in the heap's size (see small_show_runs).
  if (local->counted[kind][size_class]) local->uncounted_bytes -= unused * run->size;
  block->owner = NULL;
  block->zeroed = 0; // the slots given back may have been handed out before
  block_file_or_free(list, block);
  rt_pinned_lock_give(&list->lock);
}

// A thread cut off by a fork may have left `changes` odd and a run half set.
static void end_change(heap_local *local, tide_run *run, AO_t *tally) {
  AO_store(&local->changes, (AO_load(&local->changes) + 1) & ~(AO_t)1);
  if (!(AO_load(tally) & TALLY_CHANGING)) return;
  AO_store(tally, AO_load(tally) & ~(AO_t)(TALLY_CHANGING | TALLY_BLOCK));
  run->block = 0;
}

// What the next thread finds. Of one cut off by a fork the slots of its runs stay allocated.
static void clear_local(heap_local *local) {
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
      tide_run *run = &local->cache.runs[kind][i];
      end_change(local, run, &local->tally[kind][i]);
      run->next = run->limit;
      set_run(local, run, 0, 0, 0);
    }
  memset(local->counted, 0, sizeof local->counted);
}

void small_detach(rt_thread *thread, bool left_behind) {
  heap_local *local = heap_local_of(thread);
  for (int kind = 0; kind < TIDE_KINDS; kind++)
    for (int i = 0; i < TIDE_SIZE_CLASSES; i++)
      if (!left_behind) give_up_run(local, (tide_kind)kind, i);
  count_bytes(local);
  clear_local(local);
  AO_store(&local->in_use, 0);
  rt_pinned_lock_take(&locals_lock);
  local->next_free = free_locals;
  free_locals = local;
  rt_pinned_lock_give(&locals_lock);
}

// What has been allocated in a run beyond its tally is what lies above next. The run's owner may be
// setting it meanwhile, or be interrupted in the middle of that for as long as the system likes.
// Nobody waits or tries again: whenever a run is set, its tally alone is the count.
static uint64_t allocated_in(const heap_local *local, int kind, int size_class) {
  const AO_t *tally = &local->tally[kind][size_class];
  AO_t before = AO_load_acquire(tally);
  if ((before & (TALLY_CHANGING | TALLY_BLOCK)) != TALLY_BLOCK) return before / HEAP_TALLY;
  const volatile tide_run *run = &local->cache.runs[kind][size_class];
  uint32_t block = run->block, slot = run->slot;
  uintptr_t next = (uintptr_t)run->next;
  AO_nop_read(); // the run is read, before the second look
  AO_t after = AO_load(tally);
  if (before != after) return after / HEAP_TALLY;
  const heap_shape *shape = &heap_shapes[size_class];
  uint64_t above = block_address(block) + (uintptr_t)slot * shape->bytes - shape->bytes - next;
  return after / HEAP_TALLY + (above * shape->reciprocal >> 32);
}

// From the array's first to its last element whose bit is set.
static void prefetch_elements(const char *array, size_t element_bytes, AO_t bits) {
  enum { LINE_BYTES = 64 };
  if (!bits) return;
  const char *from = array + (size_t)__builtin_ctzl(bits) * element_bytes;
  const char *last = array + (size_t)(63 - __builtin_clzl(bits)) * element_bytes;
  for (; from < last; from += LINE_BYTES) __builtin_prefetch(from);
  __builtin_prefetch(last);
}

// What allocated_in is going to read of a thread's part, all at once.
static void ask_for(const heap_local *local) {
  for (int kind = 0; kind < TIDE_KINDS; kind++) {
    AO_t classes = AO_load(&local->had_runs[kind]);
    const tide_run *runs = local->cache.runs[kind];
    prefetch_elements((const char *)local->tally[kind], sizeof(AO_t), classes);
    if (AO_load(&local->in_use)) prefetch_elements((const char *)runs, sizeof *runs, classes);
  }
}

void small_add_allocated(uint64_t allocated[TIDE_SIZE_CLASSES]) {
  const heap_local *local = (const heap_local *)AO_load_acquire(&all_locals);
  if (local) ask_for(local);
  for (; local; local = local->older) {
    if (local->older) ask_for(local->older);
    for (int kind = 0; kind < TIDE_KINDS; kind++)
      for (AO_t classes = AO_load(&local->had_runs[kind]); classes; classes &= classes - 1) {
        int size_class = __builtin_ctzl(classes);
        allocated[size_class] += allocated_in(local, kind, size_class);
      }
  }
}

// In the child of a fork, before the threads left behind are detached: blocks that no thread of the
// child owns go to their class's lists, whatever state their owner's run was in.
void small_after_fork(void) {
  rt_thread *self = rt_self();
  block_index end = heap_frontier();
  for (block_index i = 1; i < end; i++) {
    heap_block *block = &heap.blocks[i];
    if (block->state == BLOCK_TAKEN) heap_give_blocks(i, 1, true);
    if (block->state != BLOCK_SMALL || !block->owner) continue;
    if (self && heap_local_of(self)->cache.runs[block->kind][block->size_class].block == i)
      continue;
    block->owner = NULL;
    block->zeroed = 0;
    block_set_tag(i, (tide_kind)block->kind, block->size_class); // it may have got no further
    block_file(&heap.lists[block->kind][block->size_class], block);
  }
  // Of pieces that were being given back to the system nobody knows whether they were counted.
  AO_store(&heap.used_blocks, end - 1 - heap.free_blocks);
  AO_store(&heap.leaving_blocks, 0);
  heap_count_bits();
}

// ---- Bits -----------------------------------------------------------------------------------

// Sets or clears the allocated bits of slots [from, to).
static void set_bits(AO_t *bits, uint32_t from, uint32_t to, bool value) {
  while (from < to) {
    uint32_t word_end = (from | 63) + 1;
    uint32_t n = (word_end < to ? word_end : to) - from;
    AO_t mask = (n == 64 ? ~(AO_t)0 : (((AO_t)1 << n) - 1)) << (from % 64);
    // Atomic: another thread may be freeing a slot of the same word. No order is needed: what a
    // slot holds is handed over by other means.
    if (value)
      AO_or(&bits[2 * (from / 64)], mask);
    else
      AO_and(&bits[2 * (from / 64)], ~mask);
    from += n;
  }
}

// The first free slot from `from` on, or block->slots; *count, at least 1, how many follow each
// other from there, at most `most`.
static uint32_t find_free_slots(const heap_block *block, const AO_t *bits, uint32_t from,
                                uint32_t most, uint32_t *count) {
  uint32_t slots = block->slots;
  while (from < slots) {
    // Acquire: pairs with the release in small_free.
    AO_t free = ~AO_load_acquire(&bits[2 * (from / 64)]) >> (from % 64);
    if (free) {
      from += (uint32_t)__builtin_ctzl(free);
      break;
    }
    from = (from | 63) + 1;
  }
  if (from >= slots) return slots;
  if (most > slots - from) most = slots - from;
  uint32_t n = 0;
  while (n < most) {
    AO_t taken = AO_load_acquire(&bits[2 * ((from + n) / 64)]) >> ((from + n) % 64);
    if (taken) {
      n += (uint32_t)__builtin_ctzl(taken);
      break;
    }
    n = ((from + n) | 63) + 1 - from;
  }
  *count = n < most ? n : most;
  return from;
}

bool block_has_room(const heap_block *block) {
  uint32_t count;
  return find_free_slots(block, small_bits(block_index_of(block)), 0, 1, &count) < block->slots;
}

// ---- Where a run is -------------------------------------------------------------------------

static uint64_t slots_used(const tide_run *run, unsigned size_class) { // of the run so far
  if (!run->block) return 0;
  uintptr_t above = block_address(run->block) + (uintptr_t)run->slot * run->size - run->size;
  return (above - (uintptr_t)run->next) * heap_shapes[size_class].reciprocal >> 32;
}

// Every change of a run but the inline allocator's steps through it. Another thread may want to
// know whether a slot lies in the run (small_handed_out), or how many have been allocated
// (allocated_in): it reads `changes`, or the run's tally, before and after.
static void set_run(heap_local *local, tide_run *run, block_index block, uint32_t slot,
                    uint32_t count) {
  size_t at = (size_t)(run - &local->cache.runs[0][0]);
  unsigned size_class = at % TIDE_SIZE_CLASSES;
  AO_t changes = AO_load(&local->changes), *tally = &local->tally[0][0] + at;
  AO_t allocated = AO_load(tally) / HEAP_TALLY + slots_used(run, size_class);
  AO_t number = (AO_load(tally) + TALLY_NUMBER) % HEAP_TALLY & ~(AO_t)(TALLY_NUMBER - 1);
  AO_store(&local->changes, changes + 1);
  AO_store(tally, allocated * HEAP_TALLY + number + TALLY_CHANGING);
  AO_nop_write(); // before any part of the change; pairs with the acquires of the readers
  run->block = block;
  run->slot = slot + count;
  char *start = block ? (char *)block_address(block) + (size_t)slot * run->size : NULL;
  run->limit = block ? start - run->size : NULL;
  run->next = block ? run->limit + (size_t)count * run->size : NULL;
  AO_store_release(tally, allocated * HEAP_TALLY + number + (block ? TALLY_BLOCK : 0));
  AO_store_release(&local->changes, changes + 2);
  AO_t *had = &local->had_runs[at / TIDE_SIZE_CLASSES], bit = (AO_t)1 << size_class;
  if (RT_UNLIKELY(!(AO_load(had) & bit))) AO_store_release(had, AO_load(had) | bit);
}

bool small_handed_out(const heap_ref *ref) {
  // The address may be of an object that is no more, and its block on the way to a large object,
  // whose bits lie where the owner does.
  heap_local *owner = *(heap_local *volatile *)&ref->block->owner;
  if (ref->block->state != BLOCK_SMALL || (uintptr_t)owner <= 1) return true;
  const tide_run *run = &owner->cache.runs[ref->block->kind][ref->block->size_class];
  for (unsigned tries = 0;; tries++) {
    AO_t changes = AO_load_acquire(&owner->changes);
    uintptr_t next = AO_load_acquire((const AO_t *)(const void *)&run->next);
    uintptr_t limit = AO_load_acquire((const AO_t *)(const void *)&run->limit);
    // An object's address reached the caller after its owner's run had moved past it.
    if (changes % 2 == 0 && AO_load(&owner->changes) == changes)
      return ref->start > next || ref->start <= limit;
    os_pause(tries);
  }
}

// ---- Blocks ---------------------------------------------------------------------------------

// Makes a block that was taken one of slots, owned by the caller.
static void format_block(heap_block *block, unsigned size_class, tide_kind kind, bool zeroed,
                         heap_local *owner) {
  uint32_t bytes = size_class_bytes[size_class];
  memset(small_bits(block_index_of(block)), 0, HEAP_BIT_WORDS * sizeof(AO_t));
  block->kind = (uint8_t)kind;
  block->size_class = (uint8_t)size_class;
  block->object_bytes = bytes;
  block->slots = heap_shapes[size_class].slots;
  block->zeroed = zeroed;
  block->dirty = 1;
  block->swept = heap.markings;
  block->owner = owner;
  block->lowest_freed = block->slots;
  block->next = block->prev = 0;
  block_set_state(block, BLOCK_SMALL);
  block_set_tag(block_index_of(block), kind, size_class);
}

// The next block of the list with room, sweeping a bounded number of them. The list's lock is held.
static heap_block *next_with_room(size_list *list) {
  heap_block *block = block_pop(&list->partial);
  if (block) return block;
  for (unsigned steps = 0; steps < SWEEP_STEP; steps++) {
    block = block_pop(&list->unswept);
    if (!block) return NULL;
    sweep_block(list, block);
    if (block_has_room(block)) return block;
    block_file(list, block);
  }
  return NULL;
}

// The same, counted as a whole again. Blocks whose missing pages the hard limit does not allow go
// behind the others.
static heap_block *next_allowed(size_list *list) {
  block_chain refused = {0, 0};
  heap_block *block = next_with_room(list);
  for (unsigned steps = 0; block && !heap_fill_block(block); steps++) {
    block->filed = heap.markings;
    block->full = 0;
    block->next = block->prev = 0;
    block_append(&refused, &(block_chain){block_index_of(block), block_index_of(block)});
    block = steps < SWEEP_STEP ? next_with_room(list) : NULL;
  }
  block_append(&list->partial, &refused);
  return block;
}

static heap_block *fresh_block(heap_local *owner, unsigned size_class, tide_kind kind) {
  bool zeroed = false;
  rt_pinned_lock_take(&heap.lock);
  block_index index = heap_take_blocks(1, 1, false, &zeroed);
  if (index) heap_touch_bits(index);
  rt_pinned_lock_give(&heap.lock);
  // Before new memory is used, some blocks of other classes are swept: they may turn out empty.
  while (!index) {
    bool more = sweep_some(SWEEP_STEP);
    rt_pinned_lock_take(&heap.lock);
    index = heap_take_blocks(1, 1, true, &zeroed);
    if (index) heap_touch_bits(index);
    rt_pinned_lock_give(&heap.lock);
    if (!more) break;
  }
  if (!index) return NULL;
  heap_block *block = &heap.blocks[index];
  format_block(block, size_class, kind, zeroed, owner);
  return block;
}

// ---- Runs -----------------------------------------------------------------------------------

// At the end of the block: back to slots that were freed by hand meanwhile, or the block is filed.
static bool turn_back(heap_local *local, unsigned size_class, tide_kind kind) {
  tide_run *run = &local->cache.runs[kind][size_class];
  heap_block *block = &heap.blocks[run->block];
  size_list *list = &heap.lists[kind][size_class];
  rt_pinned_lock_take(&list->lock);
  block->zeroed = 0;
  bool freed = block->lowest_freed < block->slots;
  set_run(local, run, freed ? run->block : 0, block->lowest_freed, 0);
  block->lowest_freed = block->slots;
  if (!freed) {
    block->owner = NULL;
    block_file(list, block);
  }
  rt_pinned_lock_give(&list->lock);
  return freed;
}

// Looks for a run in the block that the thread owns. Gives the block up when there is none.
static bool next_run_in_block(heap_local *local, unsigned size_class, tide_kind kind, bool single) {
  tide_run *run = &local->cache.runs[kind][size_class];
  if (!run->block) return false;
  heap_block *block = &heap.blocks[run->block];
  AO_t *bits = small_bits(run->block);
  uint32_t most = single || run->size >= RUN_BYTES ? 1 : (uint32_t)(RUN_BYTES / run->size);
  uint32_t count, slot;
  while ((slot = find_free_slots(block, bits, run->slot, most, &count)) >= block->slots)
    if (!turn_back(local, size_class, kind)) return false;
  set_bits(bits, slot, slot + count, true);
  char *start = (char *)block_address(run->block) + (size_t)slot * run->size;
  size_t bytes = count * run->size;
  if (kind != TIDE_LEAF && !block->zeroed) memset(start, 0, bytes);
  set_run(local, run, run->block, slot, count);
  local->counted[kind][size_class] = 1;
  local->uncounted_bytes += bytes;
  if (local->uncounted_bytes >= COUNT_BYTES) count_bytes(local);
  return true;
}

static bool own_block(heap_local *local, unsigned size_class, tide_kind kind) {
  size_list *list = &heap.lists[kind][size_class];
  sweep_span span = sweep_begin();
  rt_pinned_lock_take(&list->lock);
  heap_block *block = next_allowed(list);
  if (block) {
    block->owner = local;
    block->lowest_freed = block->slots;
  }
  rt_pinned_lock_give(&list->lock);
  if (!block) {
    block = fresh_block(local, size_class, kind);
  }
  sweep_end(span);
  if (!block) return false;
  tide_run *run = &local->cache.runs[kind][size_class];
  set_run(local, run, block_index_of(block), 0, 0);
  return true;
}

void *small_alloc(rt_thread *self, unsigned size_class, tide_kind kind) {
  heap_local *local = heap_local_of(self);
  tide_run *run = &local->cache.runs[kind][size_class];
  bool single = rt_options.stress || rt_recording(); // so that every allocation is seen
  rt_pin(self);
  void *object = NULL;
  // The run need not be spent: aligned objects come here directly.
  while (run->next == run->limit && !next_run_in_block(local, size_class, kind, single))
    if (!own_block(local, size_class, kind)) break;
  if (run->next != run->limit) {
    object = run->next;
    run->next -= run->size;
  }
  rt_unpin(self);
  return object;
}

// A block without an owner that has got a free slot: findable, or free altogether.
static void refile(size_list *list, heap_block *block) { // list's lock held
  if (block->filed != heap.markings) return; // on the unswept list: whoever pops it will see
  if (block_is_empty(block)) {
    block_unfile(list, block);
    rt_pinned_lock_take(&heap.lock);
    heap_give_blocks(block_index_of(block), 1, true);
    rt_pinned_lock_give(&heap.lock);
  } else if (block->full) {
    block_unfile(list, block);
    block_file(list, block);
  }
}

void small_free(const heap_ref *ref) {
  heap_block *block = ref->block;
  size_list *list = &heap.lists[block->kind][block->size_class];
  uint32_t slot = (uint32_t)((ref->start & (HEAP_BLOCK_BYTES - 1)) / block->object_bytes);
  AO_fetch_and_add(&heap.bytes, (AO_t)0 - block->object_bytes);
  rt_pinned_lock_take(&list->lock);
  sweep_block(list, block); // a later sweep would give the slot its allocated bit back
  AO_fetch_and_add1(&heap.freed_slots[block->size_class]);
  if (rt_options.poison) memset((void *)ref->start, 0xdb, block->object_bytes);
  // Release: pairs with the owner's look at the bits; what we wrote into the slot comes first.
  AO_and_release(&ref->bits[0], ~ref->mask);
  if (!block->owner)
    refile(list, block);
  else if (slot < block->lowest_freed)
    block->lowest_freed = slot;
  rt_pinned_lock_give(&list->lock);
}

// ---- Around marking -------------------------------------------------------------------------

// In tide_blocking a thread has no use for its blocks, and is not in the middle of one: a program
// of many threads that wait would hold as many blocks of each class as it has threads.
static bool is_outside(const rt_thread *thread) {
  return AO_int_load(&thread->state) != RT_RUNNING;
}

// Sets or clears the allocated bits of what is left of every thread's runs.
static void for_each_unused_run(bool show, bool sweep) {
  for (rt_thread *thread = rt_threads(); thread; thread = thread->next) {
    heap_local *local = heap_local_of(thread);
    if (sweep) local->uncounted_bytes = 0; // the heap's size is what was marked
    for (int kind = 0; kind < TIDE_KINDS; kind++)
      for (int i = 0; i < TIDE_SIZE_CLASSES; i++) {
        tide_run *run = &local->cache.runs[kind][i];
        if (!run->block) continue;
        if (sweep) sweep_block(&heap.lists[kind][i], &heap.blocks[run->block]);
        if (sweep) local->counted[kind][i] = 0;
        if (sweep && is_outside(thread)) {
          give_up_run(local, (tide_kind)kind, i);
          continue;
        }
        uint32_t first = first_slot(run);
        set_bits(small_bits(run->block), first, first + unused_slots(run), show);
      }
  }
}

void small_hide_runs(void) {
  for_each_unused_run(false, false);
}
void small_show_runs(bool sweep) {
  for_each_unused_run(true, sweep);
}
