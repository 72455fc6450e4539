// SPDX-License-Identifier: MIT
// The record of `tidepool all`: a row for each experiment and engine, and the facts of the run as
// the summary. It is what the screen shows, and what a page is made from later.
#include "all.h"
#include "command.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  EXPERIMENT,
  NAME,
  ENGINE,
  OUTCOME,
  SECONDS,
  WHEN,
  VERSION,
  MACHINE,
  COMMAND,
  HAS_DATA,
  MESSAGE,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [NAME] = {"name", "experiment", COLUMN_TEXT, 0},
    [ENGINE] = {"engine", "engine", COLUMN_TEXT, 0},
    [OUTCOME] = {"outcome", "outcome", COLUMN_TEXT, 0},
    [SECONDS] = {"seconds", "seconds", COLUMN_REAL, 1},
    [WHEN] = {"begun", NULL, COLUMN_TEXT, 0},
    [VERSION] = {"version", NULL, COLUMN_TEXT, 0},
    [MACHINE] = {"machine", NULL, COLUMN_TEXT, 0},
    [COMMAND] = {"command", NULL, COLUMN_TEXT, 0},
    [HAS_DATA] = {"has_data", NULL, COLUMN_FLAG, 0},
    [MESSAGE] = {"message", NULL, COLUMN_TEXT, 0},
};

// The facts, all of them texts; and whether this is the summary, which is none.
static const column fact_columns[] = {
    {"experiment", NULL, COLUMN_TEXT, 0}, {"summary", NULL, COLUMN_FLAG, 0},
    {"version", NULL, COLUMN_TEXT, 0},    {"date", NULL, COLUMN_TEXT, 0},
    {"engine", NULL, COLUMN_TEXT, 0},     {"seed", NULL, COLUMN_TEXT, 0},
    {"command", NULL, COLUMN_TEXT, 0},    {"options", NULL, COLUMN_TEXT, 0},
    {"cpu", NULL, COLUMN_TEXT, 0},        {"cpus", NULL, COLUMN_TEXT, 0},
    {"memory", NULL, COLUMN_TEXT, 0},     {"kernel", NULL, COLUMN_TEXT, 0},
    {"libc", NULL, COLUMN_TEXT, 0},       {"compiler", NULL, COLUMN_TEXT, 0},
};
enum { FACTS = sizeof fact_columns / sizeof fact_columns[0], SUMMARY_FACT = 1 };

// ---- Reading --------------------------------------------------------------------------------

entry *record_entry(results *r, const char *name, const char *engine) {
  for (size_t i = 0; i < r->count; i++)
    if (strcmp(r->entries[i].name, name) == 0 && strcmp(r->entries[i].engine, engine) == 0)
      return &r->entries[i];
  entry *entries = realloc(r->entries, (r->count + 1) * sizeof *entries);
  if (!entries) {
    complain("no memory for the report");
    exit(STATUS_FAILED);
  }
  r->entries = entries;
  entries[r->count] = (entry){.name = copy_text(name),
                              .engine = copy_text(engine),
                              .seconds = NAN,
                              .when = copy_text(""),
                              .version = copy_text(""),
                              .machine = copy_text(""),
                              .command = copy_text(""),
                              .message = copy_text("")};
  return &entries[r->count++];
}

static void replace(char **text, const char *with) {
  free(*text);
  *text = copy_text(with);
}

static outcome outcome_of(const char *text) {
  for (outcome o = 0; o < OUTCOMES; o++)
    if (strcmp(outcome_names[o], text) == 0) return o;
  return OUTCOME_FAILED;
}

// A name becomes part of a path.
static bool is_name(const char *text) {
  return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(text);
}

static void read_row(results *r, const json_t *row) {
  const char *name = text_in(row, "name"), *engine = text_in(row, "engine");
  if (!is_name(name) || !is_name(engine)) return;
  entry *e = record_entry(r, name, engine);
  e->outcome = outcome_of(text_in(row, "outcome"));
  e->seconds = number_in_row(row, "seconds");
  e->has_data = flag_in(row, "has_data");
  replace(&e->when, text_in(row, "begun"));
  replace(&e->version, text_in(row, "version"));
  replace(&e->machine, text_in(row, "machine"));
  replace(&e->command, text_in(row, "command"));
  replace(&e->message, text_in(row, "message"));
}

bool record_read(results *r) {
  char *path;
  if (asprintf(&path, "%s/all.json", r->directory) < 0) {
    complain("no memory for the report");
    return false;
  }
  bool missing;
  json_t *rows = json_lines_read(path, &missing);
  free(path);
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) {
    if (flag_in(row, "summary"))
      json_object_update(r->facts, row);
    else
      read_row(r, row);
  }
  json_decref(rows);
  return rows || missing;
}

// ---- Writing --------------------------------------------------------------------------------

typedef struct record {
  const results *results;
  const char *findings; // NULL: the page has not been made
  table rows, summary;
} record;

static void add_rows(record *rec) {
  const results *r = rec->results;
  rec->rows = (table){.columns = columns, .column_count = FIELDS};
  rec->summary = (table){.columns = fact_columns, .column_count = FACTS};
  for (size_t i = 0; i < r->count; i++) {
    const entry *e = &r->entries[i];
    cell row[FIELDS] = {
        [EXPERIMENT].text = "all",   [NAME].text = e->name,
        [ENGINE].text = e->engine,   [OUTCOME].text = outcome_names[e->outcome],
        [SECONDS].real = e->seconds, [WHEN].text = e->when,
        [VERSION].text = e->version, [MACHINE].text = e->machine,
        [COMMAND].text = e->command, [HAS_DATA].flag = e->has_data,
        [MESSAGE].text = e->message,
    };
    table_add(&rec->rows, row);
  }
  cell facts[FACTS];
  for (size_t i = 0; i < FACTS; i++) facts[i].text = text_in(r->facts, fact_columns[i].field);
  facts[0].text = "all";
  facts[SUMMARY_FACT].flag = true;
  table_add(&rec->summary, facts);
}

static void print_messages(FILE *file, const results *r) {
  for (size_t i = 0; i < r->count; i++) {
    const entry *e = &r->entries[i];
    if (e->outcome != OUTCOME_SKIPPED) {
      if (*e->message) paragraph_print(file, "%s: %s", e->name, e->message);
    } else if (skipped_first(r, i)) {
      fprintf(file, "Left out, as %s: ", e->message);
      skipped_names(file, r, i);
      fputc('\n', file);
    }
  }
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const record *rec = data;
  const results *r = rec->results;
  table_print(file, style, &rec->rows);
  fputc('\n', file);
  print_messages(file, r);
  char *copy = copy_text(rec->findings);
  for (char *rest = copy, *line; (line = strsep(&rest, "\n"));)
    if (*line) paragraph_print(file, "%s", line);
  free(copy);
  if (rec->findings) fprintf(file, "\nThe report is %s/report.html.\n", r->directory);
  if (*text_in(r->facts, "command"))
    fprintf(file, "Repeat with: %s\n", text_in(r->facts, "command"));
}

// options NULL: files only.
static bool write_record(results *r, const char *findings, const common_options *options) {
  record rec = {.results = r, .findings = findings};
  add_rows(&rec);
  report rep = {.experiment = "all",
                .rows = &rec.rows,
                .summary = &rec.summary,
                .text = print_text,
                .data = &rec};
  bool good = report_save(&rep, r->directory);
  if (good && options) good = report_print(&rep, options->format);
  table_free(&rec.rows);
  table_free(&rec.summary);
  return good;
}

bool record_save(results *r, const char *findings) {
  return write_record(r, findings, NULL);
}

bool record_print(results *r, const char *findings, const common_options *options) {
  return write_record(r, findings, options);
}
