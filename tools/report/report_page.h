// SPDX-License-Identifier: MIT
// The page that is being written: HTML from what sections say.
//
// Text goes through one escaping function; markup is only in the files of the page itself. A
// section's first finding also stands at the top of the page, so sections are written into a buffer
// of their own and the page is put together at the end.
#ifndef TIDEPOOL_TOOL_REPORT_PAGE_H
#define TIDEPOOL_TOOL_REPORT_PAGE_H

#include "report_data.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum verdict {
  VERDICT_NONE,  // nothing was expected
  VERDICT_GOOD,  // as expected
  VERDICT_SHORT, // falls short of what was expected
  VERDICT_FAILED // was not measured
} verdict;

typedef struct finding {
  char section[32]; // its id
  char title[64];
  verdict verdict;
  char *text;
} finding;

enum { FINDINGS_MAX = 32 };

typedef struct page {
  const results *results;
  FILE *body; // sections
  char *body_text;
  size_t body_bytes;
  finding findings[FINDINGS_MAX]; // the first of each section
  size_t finding_count;
  char section[32]; // that is being written
  char title[64];
  bool pictures; // gnuplot is there, as far as is known
  bool complete; // all pictures that were wanted have been drawn
} page;

// How a column of a table looks.
typedef enum look {
  LOOK_TEXT,
  LOOK_NUMBER,
  LOOK_BYTES,   // a size, "none" where it is not known
  LOOK_PERCENT, // 0.123 as 12.3 %
  LOOK_FLAG,
} look;

typedef struct page_column {
  const char *field;
  const char *heading;
  look look;
  int digits;
  const char *unknown; // in place of a number that is not known; NULL: a dash
} page_column;

// Escaped for text and for attribute values between double quotes. What is no character of a page
// (control characters, broken UTF-8) becomes a replacement character.
void html_text(FILE *file, const char *text);

bool page_open(page *p, const results *r);
// Writes the page. Returns false with a complaint when it cannot be written; what was there before
// is kept then.
bool page_write(page *p, const char *path);
void page_free(page *p);

void page_section(page *p, const char *id, const char *title);
void page_section_end(page *p);
void page_heading(page *p, const char *text);

// A paragraph.
void page_say(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
// What the numbers say about an expectation.
void page_finding(page *p, verdict v, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Rows as a table in a box that scrolls; where there are many it is folded. A first column "engine"
// is left out where there is one engine only.
void page_table(page *p, const char *caption, const page_column *columns, size_t count,
                const json_t *rows);

#endif
