// SPDX-License-Identifier: MIT
// A program that the command starts and waits for: one of its own experiments, or gnuplot.
//
// What it prints is thrown away, but for what it says on standard error. An experiment tells how
// far it is through a pipe; progress.h names the variable that holds its descriptor.
#ifndef TIDEPOOL_TOOL_CHILD_H
#define TIDEPOOL_TOOL_CHILD_H

#include <stdbool.h>

typedef struct child_spec {
  const char *program; // searched in PATH if it has no slash
  char *const *arguments;
  const char *directory;                     // where it runs; NULL: here
  double seconds;                            // the most that it may take; 0: no end
  void (*progress)(double share, void *arg); // NULL: not asked for
  void *arg;
} child_spec;

typedef struct child_result {
  int error;       // an errno value: it could not be started, and the rest says nothing
  int status;      // what it exited with; 128 and more: plus the signal that ended it
  bool late;       // it took too long and was ended
  char said[4096]; // on standard error, the beginning
} child_result;

// A signal that asks the command to end is passed on once, and the child may take its time then.
void child_run(const child_spec *c, child_result *result);

#endif
