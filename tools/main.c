// SPDX-License-Identifier: MIT
// The `tidepool` command: experiments with pools and collections, and benchmarks, on the machine at
// hand.
//
// This file picks the command from its table and looks after what all of them need from the
// process: standard streams that are open, and an exit status that tells when standard output could
// not be written.
#include "command.h"
#include "options.h"
#include "programs.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool.h>
#include <unistd.h>

static const command commands[] = {
    {"forced", "count hits after 0, 1, 2, ... collections made between two uses of a pool",
     forced_run},
    {"period", "measure how the hit rate falls as the gap grows past one collection period",
     period_run},
    {"knobs", "measure how GC percent and the memory limit move that fall", knobs_run},
    {"uneven", "measure how far uneven allocation blurs that fall, and predict it", uneven_run},
    {"procs", "count what a pool loses when the number of processors changes", procs_run},
    {"sawtooth", "show the latency of a service when its pool has been emptied, and the cures",
     sawtooth_run},
    {"marshal", "encode requests with a pooled encoder, and with one made for each", marshal_run},
    {"replay", "replay a recorded program, and work out what its pools would remember", replay_run},
    {"bench", "compare with other allocators and collectors on several workloads", bench_run},
    {"all", "run all of these and write a report with plots", all_run},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

const char *command_title = "tidepool";

void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  progress_end();
  fprintf(stderr, "%s: ", command_title);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

int library_start(void) {
  tide_status status = tide_init(NULL);
  if (status == TIDE_OK) return STATUS_DONE;
  const char *message = tide_error_message();
  complain("%s", *message ? message : tide_status_string(status));
  return status == TIDE_ERR_OPTION ? STATUS_USAGE : STATUS_FAILED;
}

// A standard stream that the caller has closed would be taken by the next file that is opened.
// Holds each place with a descriptor on which the stream's own direction fails, as it would have.
static void hold_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

void complain_stdout(int error) {
  static bool complained;
  if (!complained)
    complain("cannot write to standard output: %s", error ? strerror(error) : "writing failed");
  complained = true;
}

// Runs at exit: what is still buffered may be what fails.
static void close_stdout(void) {
  bool failed = ferror(stdout) != 0;
  errno = 0;
  if (fclose(stdout) != 0) failed = true;
  if (!failed) return;
  complain_stdout(errno);
  _exit(STATUS_FAILED);
}

static void print_help(void) {
  printf("Usage: tidepool COMMAND [OPTION...]\n"
         "Experiments on object pools that the garbage collector empties, and benchmarks.\n\n"
         "Commands:\n");
  for (int i = 0; i < COMMANDS; i++) printf("  %-10s %s\n", commands[i].name, commands[i].summary);
  printf(
      "\n`tidepool COMMAND --help` lists a command's options. `tidepool --version` prints the\n"
      "version. Exit status: 0 done, 1 the run failed, 2 bad usage, 130 interrupted by Ctrl-C.\n");
}

static int refuse(const char *argument) {
  char names[256];
  size_t used = 0;
  for (int i = 0; i < COMMANDS && used < sizeof names; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                             commands[i].name);
  if (!argument)
    complain("a command is missing; commands: %s (see tidepool --help)", names);
  else if (*argument == '-')
    complain("unknown option '%s'; accepted before a command: --help, --version", argument);
  else
    complain("unknown command '%s'; commands: %s", argument, names);
  return STATUS_USAGE;
}

const command *command_find(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(name, commands[i].name) == 0) return &commands[i];
  return NULL;
}

int main(int argc, char **argv) {
  program_remember(argc, argv);
  hold_standard_streams();
  // Only the character set: numbers are written and read the same way everywhere.
  setlocale(LC_CTYPE, "");
  atexit(close_stdout);

  const char *name = argc > 1 ? argv[1] : NULL;
  if (!name) return refuse(NULL);
  if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0 || strcmp(name, "-h") == 0) {
    print_help();
    return STATUS_DONE;
  }
  if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
    options_print_version(stdout);
    return STATUS_DONE;
  }
  const command *found = command_find(name);
  if (!found) return refuse(name);
  static char title[64];
  snprintf(title, sizeof title, "tidepool %s", name);
  command_title = title;
  argv[1] = title;
  return found->run(argc - 1, argv + 1);
}
