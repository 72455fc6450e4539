// SPDX-License-Identifier: MIT
// The headers are C++ too. Compiled twice for one program, with and without SECOND_FILE: an inline
// function that uses a pool is in both files, and the linker keeps one of the two.
#include <tidepool.h>

inline void *get_and_put(tide_pool *pool) {
  void *item = tide_pool_get(pool);
  tide_pool_put(pool, item);
  return item;
}

extern void *(*const from_second_file)(tide_pool *pool);

#ifdef SECOND_FILE
void *(*const from_second_file)(tide_pool *pool) = get_and_put;
#else
int main() {
  int **cell = static_cast<int **>(tide_alloc(sizeof(int *)));
  *cell = static_cast<int *>(tide_alloc_leaf(sizeof(int)));
  tide_options options = TIDE_OPTIONS_DEFAULT;
  tide_options_read(&options);
  if (tide_base(*cell) != *cell || options.gc_percent < -1) return 1;
  tide_pool *pool = tide_pool_create(nullptr);
  tide_pool_put(pool, cell);
  return get_and_put(pool) == cell && from_second_file(pool) == cell ? 0 : 2;
}
#endif
