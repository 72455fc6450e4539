// SPDX-License-Identifier: MIT
// The command line, read from one table a command.
//
// A row of the table names the option, its default as the user would type it, its range, and where
// the value goes. Help texts, defaults and error messages all come from it; argp lays the help out.
// A value that is not accepted ends the program with status 2 and one line that names it and says
// what is accepted.
#ifndef TIDEPOOL_TOOL_OPTIONS_H
#define TIDEPOOL_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum option_type {
  OPTION_FLAG,   // bool; takes no value
  OPTION_TEXT,   // const char *
  OPTION_CHOICE, // const char *, one of the words in choices
  OPTION_SET,    // uint64_t, words of choices separated by commas; bit i is the ith word
  OPTION_COUNT,  // uint64_t, a whole number
  OPTION_BYTES,  // uint64_t, a number with an optional unit
  OPTION_COUNTS, // numbers, whole, separated by commas
  OPTION_REALS,  // numbers, separated by commas
  OPTION_SIZES,  // numbers, each with an optional unit, separated by commas
} option_type;

typedef struct option_row {
  const char *name;
  const char *argument; // what --help calls the value; NULL for a flag
  option_type type;
  size_t offset;        // of the field in the settings
  const char *standard; // the default as typed; NULL: the field stays zero
  double lowest;
  double highest;
  const char *choices; // separated by commas; for numbers one word, which stands for HUGE_VAL
  const char *help;
} option_row;

#define NUMBERS_MAX 64

typedef struct numbers {
  size_t count;
  double at[NUMBERS_MAX];
} numbers;

// The options that every command takes; the first field of each command's settings.
typedef struct common_options {
  const char *engine;
  const char *format;
  const char *out;
} common_options;

typedef struct options_spec {
  const char *about; // what the command does, a paragraph or more for --help
  const option_row *table;
  size_t count;
  const option_row *shared; // more of it, that several commands have; NULL: none
  size_t shared_count;
  const option_row *positional; // an argument that is no option and may be left out; NULL: none
} options_spec;

// Fills settings, which begins with a common_options, from the defaults and the command line.
// Returns only when all of it was accepted and this is the program for the engine that was chosen;
// --help and --version exit with status 0.
void options_parse(const options_spec *spec, void *settings, int argc, char **argv);

// Reads a list as typed on the command line; for values that are fixed in the program.
numbers numbers_of(const char *text);

void options_print_version(FILE *file);

#endif
