// SPDX-License-Identifier: MIT
// Inside the reports on pools.
//
//   report.c       copies numbers, has advice.c judge them, and writes at the exit
//   report_text.c  for people: the numbers, the diagnosis in a sentence, and the cures in another
//   report_json.c  the same as JSON
//
// Numbers with a decimal point are written by pool_report_decimal: the C library has a comma in
// some locales.
#ifndef TIDEPOOL_REPORT_H
#define TIDEPOOL_REPORT_H

#include "advice.h"

#include <stdio.h>

enum { REPORT_SAMPLES = 32 };

typedef struct report_entry {
  pool_facts pool;
  advice advice;
  const void *sample[REPORT_SAMPLES]; // items
  size_t samples;
} report_entry;

typedef struct report {
  heap_facts heap;
  report_entry *entries; // malloc'd: nothing in it keeps an object alive
  size_t count, room;
} report;

#define LLU(x) (unsigned long long)(x)

void pool_report_decimal(FILE *out, double x, int decimals); // x is at least 0

// A sentence or two without a line end. There may be no cure: then nothing.
void pool_report_diagnosis(FILE *out, const report_entry *e, const heap_facts *heap);
void pool_report_cure(FILE *out, const report_entry *e, const heap_facts *heap);

void pool_report_text(FILE *out, const report *r);
void pool_report_json(FILE *out, const report *r);

#endif
