// SPDX-License-Identifier: MIT
// Pools, gets and puts as lines of a recording; see record_pool.h, and docs/trace-format.md.
//
// What `create` allocates is recorded as made for the pool. An item that is an object of the heap
// has the object's number; of any other it is remembered here which get gave it out.
#include "record_pool.h"
#include "record_table.h"

// With the recorder held.
static unsigned pools;
static uint64_t gets;
static record_table elsewhere; // items outside the heap that are in use: the numbers of their gets

static uint64_t bound(uint64_t most) {
  return most == UINT64_MAX ? 0 : most;
}

void record_pool(tide_pool *pool) {
  if (!rt_record_begin('P')) return;
  pool->body->recorded = ++pools;
  rt_record_number(pool->body->survive);
  rt_record_number(pool->body->min_idle_ns);
  rt_record_number(bound(pool->body->max_items));
  rt_record_number(bound(pool->body->max_bytes));
  rt_record_number(bound(pool->body->max_item_bytes));
  rt_record_text(pool->body->name);
  rt_record_end();
}

void record_pool_end(const tide_pool *pool) {
  if (!rt_record_begin('Q')) return;
  rt_record_number(pool->body->recorded);
  rt_record_end();
}

static void put_get(const tide_pool *pool, const void *item, char result) {
  if (!rt_record_begin('g')) return;
  uint64_t number = rt_record_number_of(item);
  gets++;
  rt_record_number(pool->body->recorded);
  rt_record_letter(result);
  rt_record_number(number);
  if (item && !number && !record_table_put(&elsewhere, item, gets)) rt_record_out_of_memory();
  rt_record_end();
}

void *record_pool_get(tide_pool *pool, void *found, void *(*make)(tide_pool *pool)) {
  void *item = found;
  if (!found) {
    unsigned before = rt_record_for(pool->body->recorded);
    item = make(pool);
    rt_record_for(before);
  }
  put_get(pool, item, found ? 'h' : item ? 'm' : 'n');
  return item;
}

void record_pool_put(const tide_pool *pool, const void *item, uint64_t bytes) {
  if (!rt_record_begin('p')) return;
  uint64_t number = rt_record_number_of(item);
  uint64_t get = number ? 0 : record_table_take(&elsewhere, item);
  rt_record_number(pool->body->recorded);
  rt_record_number(number);
  rt_record_number(bytes);
  if (get) rt_record_number(get);
  rt_record_end();
}
