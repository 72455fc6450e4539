// SPDX-License-Identifier: MIT
// Numbers of addresses; see record_table.h. Open addressing with linear probing: entries are taken
// out by moving those behind them up, so there are no graves.
#include "record_table.h"
#include "rt.h"

#include <string.h>

enum { ROOM_LEAST = 4096 };

void *record_map(size_t bytes) {
  void *address = os_reserve(bytes);
  if (address && !os_commit(address, bytes)) {
    os_unreserve(address, bytes);
    address = NULL;
  }
  return address;
}

void record_unmap(void *address, size_t bytes) {
  os_unreserve(address, bytes);
}

static record_entry *make_entries(size_t room) {
  return record_map(room * sizeof(record_entry));
}

static size_t home(const record_table *t, uintptr_t address) {
  return (size_t)((address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (t->room - 1);
}

// Where the address is, or could go.
static size_t place(const record_table *t, uintptr_t address) {
  size_t i = home(t, address);
  while (t->entries[i].address && t->entries[i].address != address) i = (i + 1) & (t->room - 1);
  return i;
}

static bool grow(record_table *t) {
  record_table larger = {.room = t->room ? 2 * t->room : ROOM_LEAST, .count = t->count};
  larger.entries = make_entries(larger.room);
  if (!larger.entries) return false;
  for (size_t i = 0; i < t->room; i++)
    if (t->entries[i].address)
      larger.entries[place(&larger, t->entries[i].address)] = t->entries[i];
  if (t->entries) record_unmap(t->entries, t->room * sizeof *t->entries);
  *t = larger;
  return true;
}

bool record_table_put(record_table *t, const void *address, uint64_t number) {
  if (2 * t->count >= t->room && !grow(t)) return false;
  record_entry *entry = &t->entries[place(t, (uintptr_t)address)];
  if (!entry->address) t->count++;
  *entry = (record_entry){(uintptr_t)address, number};
  return true;
}

uint64_t record_table_get(const record_table *t, const void *address) {
  return t->room && address ? t->entries[place(t, (uintptr_t)address)].number : 0;
}

uint64_t record_table_take(record_table *t, const void *address) {
  uint64_t number = record_table_get(t, address);
  if (!number) return 0;
  size_t hole = place(t, (uintptr_t)address), mask = t->room - 1;
  for (size_t i = (hole + 1) & mask; t->entries[i].address; i = (i + 1) & mask) {
    size_t from = home(t, t->entries[i].address);
    if (((i - from) & mask) < ((i - hole) & mask)) continue; // it would come before its home
    t->entries[hole] = t->entries[i];
    hole = i;
  }
  t->entries[hole] = (record_entry){0, 0};
  t->count--;
  return number;
}

bool record_list_add(record_list *l, const void *address, uint64_t number) {
  if (l->count == l->room) {
    size_t room = l->room ? 2 * l->room : ROOM_LEAST;
    record_entry *larger = make_entries(room);
    if (!larger) return false;
    if (l->count) memcpy(larger, l->entries, l->count * sizeof *larger);
    if (l->entries) record_unmap(l->entries, l->room * sizeof *l->entries);
    l->entries = larger;
    l->room = room;
  }
  l->entries[l->count++] = (record_entry){(uintptr_t)address, number};
  return true;
}

uintptr_t *record_list_find(record_list *l, uint64_t number) {
  size_t from = 0, to = l->count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (l->entries[middle].number < number)
      from = middle + 1;
    else
      to = middle;
  }
  return from < l->count && l->entries[from].number == number ? &l->entries[from].address : NULL;
}
