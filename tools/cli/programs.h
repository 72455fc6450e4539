// SPDX-License-Identifier: MIT
// The other programs that belong to the command: itself on the other engine, and the workers of
// `tidepool bench`.
//
// A process has one engine, the library that its program is linked with. So there are two programs,
// the same but for that: `tidepool` on the native heap and, where libgc was there when it was
// built, `tidepool-bdw`. Whichever is started reads its options, and replaces itself by the other
// one where --engine asks for that. No command knows of it.
#ifndef TIDEPOOL_TOOL_PROGRAMS_H
#define TIDEPOOL_TOOL_PROGRAMS_H

#include <limits.h>
#include <stdbool.h>

// Where the program of that name is; false: nowhere, and path is where it should be.
bool program_find(const char *name, char path[PATH_MAX]);

// First of all: keeps the command line, for the other program.
void program_remember(int argc, char **argv);

// Returns if this is the program on that engine. Else the other one takes over, with the command
// line that was kept; if that cannot be, ends with a complaint.
void program_for_engine(const char *engine);

#endif
