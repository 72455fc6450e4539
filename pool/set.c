// SPDX-License-Identifier: MIT
// Sets of shards: what a get and a put do to one.
#include "pool_private.h"

#include <limits.h>

shards no_shards;

size_t set_bytes(unsigned processors) {
  return sizeof(shards) + processors * sizeof(shard);
}

// A slot of a set by processor may be looked at by a thread that does not hold it.
static void *look(const cpu_slot *slot) {
  return (void *)AO_load((const AO_t *)(const void *)&slot->item);
}

rt_proc *set_proc(const shards *set, const rt_thread *self) {
  unsigned cpu = set->cpus ? rt_rseq_cpu() : UINT_MAX;
  return cpu < set->cpus ? rt_proc_at(cpu) : self->proc;
}

void *set_take_slot(shards *set, rt_thread *self) {
  if (set->cpus) return tide_cpu_take(&set);
  unsigned p = self->proc->index;
  if (p >= set->count) return NULL;
  cpu_slot *slot = &shard_of(set, p)->slot;
  if (!look(slot)) return NULL; // another thread on this processor may be putting one in just now
  rt_proc_hold(self->proc);
  void *item = look(slot);
  AO_store((AO_t *)(void *)&slot->item, 0);
  rt_proc_let_go(self->proc);
  return item;
}

void *set_take_head(shards *set, rt_thread *self) {
  rt_proc *proc = set_proc(set, self);
  if (proc->index >= set->count) return NULL;
  struct chain *own = &shard_of(set, proc->index)->shared;
  if (chain_looks_empty(own)) return NULL;
  rt_proc_hold(proc);
  void *item = chain_pop_head(own);
  rt_proc_let_go(proc);
  return item;
}

void *set_take_tail(shards *set, unsigned first) {
  for (unsigned i = 0; i < set->count; i++) {
    void *item = chain_pop_tail(&shard_of(set, (first + i) % set->count)->shared);
    if (item) return item;
  }
  return NULL;
}

uint64_t set_items(const shards *set) {
  uint64_t items = 0;
  for (unsigned p = 0; p < set->count; p++)
    items += (look(&shard_of(set, p)->slot) != NULL) + chain_items(&shard_of(set, p)->shared);
  return items;
}

size_t set_sample(const shards *set, const void **items, size_t most) {
  size_t count = 0;
  for (unsigned p = 0; p < set->count && count < most; p++) {
    const void *item = look(&shard_of(set, p)->slot);
    if (item) items[count++] = item;
    count += chain_sample(&shard_of(set, p)->shared, items + count, most - count);
  }
  return count;
}

void set_empty(shards *set, void (*fn)(void *item, void *arg), void *arg) {
  for (unsigned p = 0; p < set->count; p++) {
    shard *s = shard_of(set, p);
    void *item = s->slot.item;
    s->slot.item = NULL;
    if (item) fn(item, arg);
    while ((item = chain_pop_tail(&s->shared))) fn(item, arg);
  }
}
