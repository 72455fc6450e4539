// SPDX-License-Identifier: MIT
// Numbers of addresses, for the recorder: which object an address is by now.
//
// Its memory is mapped apart: it is no root, and counts towards no limit, so that a recorded
// program collects when it would have.
#ifndef TIDEPOOL_RECORD_TABLE_H
#define TIDEPOOL_RECORD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *record_map(size_t bytes); // NULL: no memory
void record_unmap(void *address, size_t bytes);

typedef struct record_entry {
  uintptr_t address; // 0: none
  uint64_t number;   // not 0
} record_entry;

// By address, in no order. A zeroed one is empty.
typedef struct record_table {
  record_entry *entries;
  size_t room; // a power of two, or 0
  size_t count;
} record_table;

// Replaces what is there. False: no memory.
bool record_table_put(record_table *t, const void *address, uint64_t number);
uint64_t record_table_get(const record_table *t, const void *address); // 0: it has none
uint64_t record_table_take(record_table *t, const void *address);      // the same, and removes it

// By number, in the order of adding, which is ascending. A zeroed one is empty.
typedef struct record_list {
  record_entry *entries;
  size_t room, count;
} record_list;

bool record_list_add(record_list *l, const void *address, uint64_t number); // false: no memory
// The address of the number's entry; NULL: there is none.
uintptr_t *record_list_find(record_list *l, uint64_t number);

#endif
