// SPDX-License-Identifier: MIT
// Numbers of addresses: see record.h. What is at an address dies, and another thing comes to be
// there, with another number.
//
// Two ways lead from one to the other: a table by address, and a list by number, in which the dead
// are looked for. A number that was taken by hand keeps its place in the list, with no address,
// until then.
#include "record_table.h"
#include "rt.h"

static uint64_t numbers; // given so far
static record_table by_address;
static record_list by_number;

void rt_record_name(const void *address) {
  numbers++;
  if (!record_table_put(&by_address, address, numbers) ||
      !record_list_add(&by_number, address, numbers))
    rt_record_out_of_memory();
}

uint64_t rt_record_number_of(const void *address) {
  return record_table_get(&by_address, address);
}

static void list_at(uint64_t number, const void *address) {
  uintptr_t *at = record_list_find(&by_number, number);
  if (at) *at = (uintptr_t)address;
}

uint64_t rt_record_unname(const void *address) {
  uint64_t number = record_table_take(&by_address, address);
  if (number) list_at(number, NULL);
  return number;
}

uint64_t rt_record_rename(const void *from, const void *to) {
  uint64_t number = record_table_take(&by_address, from);
  if (!number) return 0;
  list_at(number, to);
  if (!record_table_put(&by_address, to, number)) rt_record_out_of_memory();
  return number;
}

void rt_record_unname_dead(bool (*lives)(const void *address), void (*gone)(uint64_t number)) {
  size_t kept = 0;
  for (size_t i = 0; i < by_number.count; i++) {
    record_entry entry = by_number.entries[i];
    const void *address = (const void *)entry.address;
    if (!address) continue;
    if (lives(address)) {
      by_number.entries[kept++] = entry;
      continue;
    }
    record_table_take(&by_address, address);
    gone(entry.number);
  }
  by_number.count = kept;
}
