// SPDX-License-Identifier: MIT
// The machine that results come from, in words.
#ifndef TIDEPOOL_TOOL_MACHINE_H
#define TIDEPOOL_TOOL_MACHINE_H

#include <jansson.h>
#include <stddef.h>

// An object with texts: cpu, cpus, memory, kernel, libc, compiler, version, options (those of the
// library that are in force). NULL: no memory. The library has been started.
json_t *machine_facts(void);

// Now, as "2026-01-31 23:59 UTC".
void date_text(char *text, size_t size);

#endif
