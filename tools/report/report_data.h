// SPDX-License-Identifier: MIT
// Results as `tidepool all` finds them in its directory: JSON lines that experiments have written,
// and the record of what was run.
//
//   DIR/all.json         the record: a line for each experiment, then one for the run
//   DIR/data/NAME.json   what the experiment NAME measured, here or in data-ENGINE
//
// Nothing in a file is trusted: a field may be missing, of another type, or hold any text.
#ifndef TIDEPOOL_TOOL_REPORT_DATA_H
#define TIDEPOOL_TOOL_REPORT_DATA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum outcome {
  OUTCOME_NOT_RUN, // the user had had enough before
  OUTCOME_SKIPPED, // this build cannot
  OUTCOME_DONE,
  OUTCOME_PARTIAL, // interrupted
  OUTCOME_FAILED,
  OUTCOMES
} outcome;

extern const char *const outcome_names[OUTCOMES];

// One experiment on one engine.
typedef struct entry {
  char *name;
  char *engine;
  outcome outcome;
  double seconds; // that it took; NAN: not known
  char *when;     // it began; "": not known
  char *version;  // of the command that ran it
  char *machine;  // in a few words
  char *command;  // that repeats it
  char *message;  // why it failed or was skipped
  bool has_data;  // there is a file of results that this run has written
} entry;

typedef struct results {
  char *directory;
  entry *entries;
  size_t count;
  json_t *facts; // of the run, an object: see record.c; empty if nothing is known
  json_t *files; // the objects in the files, arrays by "NAME rows", "NAME summary" and so on
} results;

// Arrays of objects that are owned by the results, empty if there are none: those of all engines,
// each with the field `engine`. What is no row says so with a field that is true.
json_t *results_rows(const results *r, const char *name);
json_t *results_summaries(const results *r, const char *name);
json_t *results_series(const results *r, const char *name);      // over time
json_t *results_collections(const results *r, const char *name); // when they were

// Reads the files of all entries. Complains and returns false when one cannot be read; its entry
// has failed then, and the others are read.
bool results_read(results *r);
void results_free(results *r);

// Whether the entry is the first that was skipped for its reason; then the names of all those.
bool skipped_first(const results *r, size_t index);
void skipped_names(FILE *file, const results *r, size_t index);

// "data", or "data-ENGINE" for another than the native one. Static storage.
const char *results_place(const char *engine);

// Reads lines of JSON objects. *missing: there is no such file, and no complaint. Returns a new
// array, or NULL with a complaint.
json_t *json_lines_read(const char *path, bool *missing);

// A field of a row: "" if it is missing or no text.
const char *text_in(const json_t *row, const char *field);
// NAN if it is missing or null; 0 and 1 for false and true.
double number_in_row(const json_t *row, const char *field);
bool flag_in(const json_t *row, const char *field);

// Largest value of a field over the rows; NAN if none has it.
double most_in(const json_t *rows, const char *field);
double least_in(const json_t *rows, const char *field);

// A copy; ends the program with status 1 when there is no memory.
char *copy_text(const char *text);

#endif
