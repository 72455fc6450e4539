// SPDX-License-Identifier: MIT
// The one table of options. From it come the fields of tide_options, the environment parser, the
// defaults, the messages about bad values and the table in docs/options.md.
//
// A field left at TIDE_UNSET, or at NULL if it is a text, takes the environment's value, and
// without one the default. A field that the program sets wins over the environment: who writes a
// number into the program means it.
#ifndef TIDEPOOL_OPTIONS_H
#define TIDEPOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <tidepool/upper_options.h>

// Marks a field that the program leaves to the environment and the defaults.
#define TIDE_UNSET INT64_MIN

// A limit that is taken from the process's control groups. INT64_MAX is none.
#define TIDE_LIMIT_AUTO (-1)

// X(field, form, environment, key, default, lowest, highest, help)
// form is how the value is written in the environment: an INTEGER, a PERCENT (an integer or `off`;
// every negative number is -1), BYTES (a number with optional B, KiB, MiB, GiB or TiB), a LIMIT (as
// BYTES, or `off`, which is INT64_MAX, or where lowest is TIDE_LIMIT_AUTO also `auto`), or a TEXT
// (not empty, shorter than PATH_MAX; the three numbers are 0, and the default is NULL, for none).
// environment is the variable's name. Where key is not "", the variable is TIDE_DEBUG and key the
// name inside its comma-separated list.
#define TIDE_OPTION_TABLE(X)                                                                       \
  X(gc_percent, PERCENT, "TIDE_GCPERCENT", "", 100, -1, INT32_MAX,                                 \
    "heap growth that starts a collection, in percent of what is live; `off` (or -1) turns the "   \
    "automatic collections off")                                                                   \
  X(procs, INTEGER, "TIDE_PROCS", "", 0, 0, 1024,                                                  \
    "number of processors (P) that per-processor caches are divided over; 0 means the CPUs that "  \
    "the process "                                                                                 \
    "may use")                                                                                     \
  X(markers, INTEGER, "TIDE_MARKERS", "", 0, 0, 64,                                                \
    "most threads that mark at the same time, the collecting one counted; heaps below 16 MiB "     \
    "have one; 0 means the CPUs that the process may use, at most 16")                             \
  X(min_heap_bytes, BYTES, "TIDE_MINHEAP", "", 0, 0, INT64_MAX,                                    \
    "heap size below which the heap's growth starts no collection; 0 means 4 MiB x percent / 100") \
  X(memory_limit, LIMIT, "TIDE_MEMLIMIT", "", INT64_MAX, TIDE_LIMIT_AUTO, INT64_MAX,               \
    "soft limit on everything the library has mapped plus external bytes; `off` means none; "      \
    "`auto` takes nine tenths of the tightest memory limit of the process's control groups, none " \
    "if there is none")                                                                            \
  X(hard_limit, LIMIT, "TIDE_HARDLIMIT", "", INT64_MAX, 0, INT64_MAX,                              \
    "memory, counted the same way, above which allocation fails; `off` means none")                \
  X(gc_interval_ms, INTEGER, "TIDE_GCINTERVAL", "", 120000, 0, INT32_MAX,                          \
    "longest time in milliseconds without a collection before one is made, once there has been "   \
    "one; 0 means never for this reason")                                                          \
  X(mark_stack_bytes, BYTES, "TIDE_MARKSTACK", "", 0, 0, INT64_MAX,                                \
    "most memory that the mark stack may take; marking goes on with less by scanning the heap "    \
    "again; 0 means no bound")                                                                     \
  X(hugepages, INTEGER, "TIDE_HUGEPAGES", "", 1, 0, 1,                                             \
    "ask the system for huge pages once the heap has 32 MiB")                                      \
  X(gctrace, INTEGER, "TIDE_DEBUG", "gctrace", 0, 0, 1,                                            \
    "print one line on stderr for each collection")                                                \
  X(verify, INTEGER, "TIDE_DEBUG", "verify", 0, 0, 1,                                              \
    "check the whole heap after each marking; stop the program at the first fault")                \
  X(stress, INTEGER, "TIDE_DEBUG", "stress", 0, 0, INT32_MAX,                                      \
    "collect at every Nth allocation; 0 means never for this reason")                              \
  X(poison, INTEGER, "TIDE_DEBUG", "poison", 0, 0, 1,                                              \
    "overwrite objects that are freed with the byte 0xdb")                                         \
  TIDE_UPPER_OPTION_TABLE(X)                                                                       \
  X(trace, TEXT, "TIDE_DEBUG", "trace", 0, 0, 0,                                                   \
    "file to write a trace of events to, in Chrome's trace format; `%p` in the name becomes the "  \
    "process id")                                                                                  \
  X(record, TEXT, "TIDE_DEBUG", "record", 0, 0, 0,                                                 \
    "file to record allocations and the use of pools to, for `tidepool replay`; `%p` in the name " \
    "becomes the process id")                                                                      \
  X(record_kib, INTEGER, "TIDE_DEBUG", "record_kib", 0, 0, INT32_MAX,                              \
    "while recording, collect at every N KiB allocated, so that it is known better when objects "  \
    "died; 0 means never for this reason")

// The type of a field, by form. Numbers are 64 bits wide so that each can hold TIDE_UNSET.
#define TIDE_OPTION_TYPE_INTEGER int64_t
#define TIDE_OPTION_TYPE_PERCENT int64_t
#define TIDE_OPTION_TYPE_BYTES   int64_t
#define TIDE_OPTION_TYPE_LIMIT   int64_t
#define TIDE_OPTION_TYPE_TEXT    const char *

// What leaves it open.
#define TIDE_OPTION_UNSET_INTEGER TIDE_UNSET
#define TIDE_OPTION_UNSET_PERCENT TIDE_UNSET
#define TIDE_OPTION_UNSET_BYTES   TIDE_UNSET
#define TIDE_OPTION_UNSET_LIMIT   TIDE_UNSET
#define TIDE_OPTION_UNSET_TEXT    NULL

typedef struct tide_options {
#define TIDE_OPTION_FIELD(field, form, environment, key, standard, lowest, highest, help)          \
  TIDE_OPTION_TYPE_##form field;
  TIDE_OPTION_TABLE(TIDE_OPTION_FIELD)
#undef TIDE_OPTION_FIELD
} tide_options;

#define TIDE_OPTION_UNSET(field, form, environment, key, standard, lowest, highest, help)          \
  TIDE_OPTION_UNSET_##form,
#define TIDE_OPTIONS_DEFAULT                                                                       \
  { TIDE_OPTION_TABLE(TIDE_OPTION_UNSET) }

#endif
