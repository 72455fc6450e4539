// SPDX-License-Identifier: MIT
// `tidepool all`: what its files share.
//
//   all.c         the command: options, what is run, the end
//   all_jobs.c    which experiments there are and how each mode runs them
//   all_record.c  the record of what was run, on disk and on the screen
//   child.c       one experiment, a process of its own
//   report.c      the page
#ifndef TIDEPOOL_TOOL_ALL_H
#define TIDEPOOL_TOOL_ALL_H

#include "options.h"
#include "report_data.h"

#include <stdbool.h>
#include <stdint.h>

// ---- Experiments ----------------------------------------------------------------------------

typedef enum mode { MODE_QUICK, MODE_STANDARD, MODE_FULL, MODES } mode;

// A command line without the program: words separated by spaces. NULL: not run.
typedef struct job_form {
  const char *words;
  double seconds; // that it takes, about
} job_form;

// What the user can give it; without a file of --trace, what takes one is not run.
typedef enum job_input { TAKES_NOTHING, TAKES_SEED, TAKES_TRACE } job_input;

typedef struct job {
  const char *name; // of its files
  const char *part; // what --only calls it
  job_input takes;
  job_form native[MODES];
  job_form others[MODES]; // on each other engine
} job;

enum { JOB_WORDS_MAX = 24 };

extern const job all_jobs[]; // up to one without a name

// The engines that are known; a build need not have all.
enum { ENGINES = 2 };
extern const char *const all_engines[ENGINES];

// How a job is run on that engine.
const job_form *job_form_of(const job *j, mode m, const char *engine);

// Whether the command is in this build; its name, in static storage.
bool job_exists(const job *j);
const char *job_command(const job *j);

// The command line of a job, without the program: words that lie in `text`, up to a NULL.
typedef struct job_line {
  char text[512];
  char *words[JOB_WORDS_MAX];
} job_line;

// trace: of --trace, must stay valid; NULL: none.
void job_line_make(job_line *line, const job *j, mode m, uint64_t seed, const char *engine,
                   const char *trace);

// ---- The record -----------------------------------------------------------------------------

// Reads DIR/all.json into entries and facts; nothing if there is none. Complains and returns false
// if it cannot be read.
bool record_read(results *r);

// The entry of that name and engine, a new one if need be.
entry *record_entry(results *r, const char *name, const char *engine);

// Writes DIR/all.txt, .csv and .json. Complains and returns false on the first error.
bool record_save(results *r, const char *findings);
// The same, and prints the form that was asked for.
bool record_print(results *r, const char *findings, const common_options *options);

#endif
