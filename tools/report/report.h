// SPDX-License-Identifier: MIT
// The report of `tidepool all`: DIR/report.html, with plots and their data in DIR/plots.
//
//   report.c           the table of sections, and what all of them have
//   report_data.c      results, read from files
//   report_page.c      text, findings and tables in HTML; report_frame.c the page around them
//   report_style.c     the style sheet
//   report_figure.c    data, gnuplot scripts and pictures
//   report_marks.c     what the plots of several sections have in common
//   report_rule.c      sections: the rule, forced, period, knobs
//   report_changes.c   sections: uneven, procs, replay
//   report_latency.c   sections: sawtooth, marshal
//   report_bench.c     section: bench
//
// A new section is a function here, a row in the table in report.c, and a row in all_jobs.c that
// says how its experiment is run.
#ifndef TIDEPOOL_TOOL_REPORT_H
#define TIDEPOOL_TOOL_REPORT_H

#include "report_page.h"

// Each writes what it has to say about the rows of its experiment, of which there are some. Returns
// false with a complaint when a file cannot be written.
bool report_rule(page *p);
bool report_forced(page *p);
bool report_period(page *p);
bool report_knobs(page *p);
bool report_uneven(page *p);
bool report_procs(page *p);
bool report_sawtooth(page *p);
bool report_marshal(page *p);
bool report_replay(page *p);
bool report_bench(page *p);

typedef struct report_outcome {
  char *findings; // lines for a terminal; to be freed
  bool complete;  // false: a file or a picture is missing, and it has been said
} report_outcome;

// Reads the results of the entries and writes the report. Returns false with a complaint when there
// is no page.
bool report_make(results *r, report_outcome *made);

#endif
