// SPDX-License-Identifier: MIT
// A program that has a pool and asks for nothing else: what it says at its exit is the library's.
#include <tidepool/pool.h>

int main(void) {
  static char item;
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "quiet"});
  tide_pool_put(pool, &item);
  return tide_pool_get(pool) == &item ? 3 : 1;
}
