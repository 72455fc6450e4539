// SPDX-License-Identifier: MIT
// What every command of `tidepool` shares: the table entry, exit statuses, errors in one line, the
// options that all commands take.
//
// A command reads its options before it touches the library, so that --help works whatever the
// environment holds, and calls library_start afterwards.
#ifndef TIDEPOOL_TOOL_COMMAND_H
#define TIDEPOOL_TOOL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

enum {
  STATUS_DONE = 0,
  STATUS_FAILED = 1,   // the run failed
  STATUS_USAGE = 2,    // an option, an argument or an environment value is not accepted
  STATUS_SIGNAL = 128, // plus the signal that asked it to end: 130 for Ctrl-C. What was measured
                       // until then has been printed.
};

typedef struct command {
  const char *name;
  const char *summary; // one line, for the list of commands
  int (*run)(int argc, char **argv);
} command;

// Defined by the files of the commands, listed in main.c.
int forced_run(int argc, char **argv);
int period_run(int argc, char **argv);
int knobs_run(int argc, char **argv);
int uneven_run(int argc, char **argv);
int procs_run(int argc, char **argv);
int sawtooth_run(int argc, char **argv);
int marshal_run(int argc, char **argv);
int replay_run(int argc, char **argv);
int bench_run(int argc, char **argv);
int all_run(int argc, char **argv);

// The command of that name; NULL: there is none.
const command *command_find(const char *name);

// "tidepool", or "tidepool COMMAND" while one runs; stands before every message.
extern const char *command_title;

// One line on stderr, with the title in front and a newline behind.
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Complains that standard output cannot be written; only once, whoever finds out first.
void complain_stdout(int error);

// Initialises the library from the environment. Returns STATUS_DONE, or complains and returns the
// status to exit with.
int library_start(void);

#endif
