// SPDX-License-Identifier: MIT
// Options of the rooms above the runtime, as rows of TIDE_OPTION_TABLE (options.h).
#ifndef TIDEPOOL_UPPER_OPTIONS_H
#define TIDEPOOL_UPPER_OPTIONS_H

#define TIDE_UPPER_OPTION_TABLE(X)                                                                 \
  X(poolseed, INTEGER, "TIDE_DEBUG", "poolseed", 0, 0, 1,                                          \
    "pools go by the processors that threads have, never by CPUs: the same steps on the same "     \
    "processors have the same result")                                                             \
  X(poolchaos, INTEGER, "TIDE_DEBUG", "poolchaos", 0, 0, INT32_MAX,                                \
    "pools lose a quarter of the puts and mix up the rest, by this seed; 0 means they do not")     \
  X(poolreport, INTEGER, "TIDE_DEBUG", "poolreport", 0, 0, 1,                                      \
    "print the report on pools on stderr when the program exits")                                  \
  X(poolcheck, INTEGER, "TIDE_DEBUG", "poolcheck", 0, 0, 1,                                        \
    "stop the program, with call stacks, where it puts an item twice, uses it after put, or uses " \
    "a pool wrongly in other ways")

#endif
