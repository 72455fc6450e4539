// SPDX-License-Identifier: MIT
// A program of somebody else's: built against the installed library and against the subproject.
#include <tidepool.h>
#include <stdio.h>

static void *make(void *arg) {
  return tide_alloc(64);
}

int main(void) {
  if (tide_init(NULL) != TIDE_OK) return 1;
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "buffers", .create = make});
  void *item = tide_pool_get(pool);
  tide_pool_put(pool, item);
  tide_collect();
  int survived = tide_pool_get(pool) == item;
  tide_pool_destroy(pool);
  printf("%s\n", survived ? "survived one collection" : "lost");
  return !survived;
}
