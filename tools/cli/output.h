// SPDX-License-Identifier: MIT
// Results on their way out: rows under one description of the columns, printed as a table for
// people, as CSV or as JSON lines.
//
// A command builds a report: rows, an optional summary (a second table, JSON only), and a function
// that writes the text form around the rows. report_write prints the form asked for, and with
// --out writes all three into the directory.
#ifndef TIDEPOOL_TOOL_OUTPUT_H
#define TIDEPOOL_TOOL_OUTPUT_H

#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum column_type {
  COLUMN_TEXT,
  COLUMN_COUNT, // whole number; COUNT_OFF: "off" in a table, empty in CSV, null in JSON
  COLUMN_BYTES, // the same, a size in a table
  COLUMN_REAL,  // NAN: not known; "-" in a table, empty in CSV, null in JSON
  COLUMN_FLAG,  // yes or no
  COLUMN_BAR,   // 0 to 1 as a picture; tables only
} column_type;

#define COUNT_OFF INT64_MIN // of a setting

typedef struct column {
  const char *field;   // name in CSV and JSON; NULL: in tables only
  const char *heading; // in a table; NULL: in CSV and JSON only
  column_type type;
  int digits; // behind the point of a real number; -1: as many as it has
} column;

typedef union cell {
  const char *text;
  int64_t count;
  double real;
  bool flag;
} cell;

typedef struct table {
  const column *columns;
  size_t column_count;
  cell *cells; // row after row
  size_t row_count;
} table;

// Adds a row of column_count cells. Ends the program with status 1 when there is no memory.
void table_add(table *t, const cell *row);
void table_free(table *t);

// How text may look where it goes.
typedef struct text_style {
  bool utf8;
  bool colour;
} text_style;

// A paragraph, wrapped at 78 columns. A ~ is a space at which no line is broken.
void paragraph_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

void table_print(FILE *file, const text_style *style, const table *t);

typedef struct report {
  const char *experiment; // names the files in --out
  const table *rows;
  const table *summary; // NULL: none
  const table *more[2]; // JSON only, behind the summary, up to the first NULL
  void (*text)(FILE *file, const text_style *style, const void *data);
  const void *data;
} report;

// Makes the directory of --out and tries whether it can be written, ahead of a run whose result
// would be lost. Complains and returns false if not. NULL is fine.
bool out_prepare(const char *directory);

// The files alone, and the form that is asked for alone. Complain and return false on the first
// error.
bool report_save(const report *r, const char *directory);
bool report_print(const report *r, const char *format);

// Prints the report and writes the files. Complains and returns false on the first error.
bool report_write(const report *r, const common_options *options);

// Writes a table as DIRECTORY/NAME.csv. Complains and returns false on an error.
bool out_write_csv(const char *directory, const char *name, const table *t);

// A size for people: "32 MiB", "4 KiB". Static storage, overwritten by the fourth call after it.
const char *size_text(uint64_t bytes);

#endif
