// SPDX-License-Identifier: MIT
// The headers are C++ too.
#include <tidepool.h>

int main() {
  int **cell = static_cast<int **>(tide_alloc(sizeof(int *)));
  *cell = static_cast<int *>(tide_alloc_leaf(sizeof(int)));
  tide_options options = TIDE_OPTIONS_DEFAULT;
  tide_options_read(&options);
  return tide_base(*cell) == *cell && options.gc_percent >= -1 ? 0 : 1;
}
