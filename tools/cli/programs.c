// SPDX-License-Identifier: MIT
// Finds the command's other programs and becomes one of them; see programs.h.
//
// In the build the programs are beside each other, and the workers in bench/. Installed, `tidepool`
// is in the bin directory and the others are where meson was told to put them: taken from the
// command's own place if it can be, since an installation may have been moved.
#include "programs.h"
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool.h>
#include <unistd.h>

// From the directory of this program, unless they begin with a slash.
static const char *const places[] = {
    ".", "bench", PROGRAMS_FROM_BINDIR, BINDIR_FROM_PROGRAMS, BINDIR, PROGRAMS_DIR};
enum { PLACES = sizeof places / sizeof places[0] };

bool program_find(const char *name, char path[PATH_MAX]) {
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  own[length > 0 ? length : 0] = '\0';
  char *slash = strrchr(own, '/');
  if (slash) slash[1] = '\0';
  for (int i = 0; i < PLACES; i++) {
    const char *from = *places[i] == '/' ? "" : own;
    int needed = snprintf(path, PATH_MAX, "%s%s/%s", from, places[i], name);
    if (needed < PATH_MAX && access(path, X_OK) == 0) return true;
  }
  return false;
}

static char **line; // as the command was started

void program_remember(int argc, char **argv) {
  line = calloc((size_t)argc + 1, sizeof *line);
  if (line) memcpy(line, argv, (size_t)argc * sizeof *line);
}

static void refuse_engine(const char *engine, const char *path) {
  if (strcmp(engine, "native") == 0)
    complain("--engine: there is no %s", path);
  else
    complain("--engine: %s was not built (install libgc-dev, then configure and build again); "
             "accepted: %s",
             engine, tide_engine());
  exit(STATUS_USAGE);
}

void program_for_engine(const char *engine) {
  if (strcmp(engine, tide_engine()) == 0) return;
  char name[64], path[PATH_MAX];
  bool native = strcmp(engine, "native") == 0;
  snprintf(name, sizeof name, "tidepool%s%s", native ? "" : "-", native ? "" : engine);
  if (!program_find(name, path)) refuse_engine(engine, path);
  if (line) execv(path, line);
  complain("--engine: cannot start %s: %s", path, strerror(line ? errno : ENOMEM));
  exit(STATUS_FAILED);
}
