// SPDX-License-Identifier: MIT
// The rest of the program, as a pool sees it: a live heap of a given size, and a thread that
// allocates and drops memory, at a steady rate or by a pattern. Together they set the collection
// period.
#ifndef TIDEPOOL_TOOL_PRESSURE_H
#define TIDEPOOL_TOOL_PRESSURE_H

#include "pattern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Live memory of just this size, by steps of 4 KiB and with the references to it counted in. It
// lives as long as a root holds what is returned. Complains and returns NULL when there is no
// memory.
typedef struct ballast ballast;
ballast *ballast_create(uint64_t bytes);
// Frees it at once, so that no stale word on a stack keeps it alive. NULL is ignored.
void ballast_free(ballast *b);

typedef struct pressure pressure;

enum { PRESSURE_CHUNK_BYTES = 64 * 1024 };

// Starts a thread that allocates bytes_per_second in zeroed chunks. Complains and returns NULL when
// it cannot.
pressure *pressure_start(double bytes_per_second);

// The same by a pattern from its beginning, in chunks whose contents are left as they are: however
// large one is, it takes no time. at_ns is set to the moment at which it began.
pressure *pressure_start_pattern(const pattern_settings *set, uint64_t *at_ns);

// What it has allocated so far, in bytes.
uint64_t pressure_bytes(const pressure *p);

// Whether it ran out of memory and gave up.
bool pressure_failed(const pressure *p);

// Ends the thread. NULL is ignored.
void pressure_stop(pressure *p);

#endif
