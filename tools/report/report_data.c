// SPDX-License-Identifier: MIT
// Reads results; see report_data.h. jansson parses; a line that is no object is an error that names
// the file and the line.
#include "report_data.h"
#include "command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const outcome_names[OUTCOMES] = {
    [OUTCOME_NOT_RUN] = "not run", [OUTCOME_SKIPPED] = "skipped", [OUTCOME_DONE] = "done",
    [OUTCOME_PARTIAL] = "partial", [OUTCOME_FAILED] = "failed",
};

char *copy_text(const char *text) {
  char *copy = strdup(text ? text : "");
  if (copy) return copy;
  complain("no memory for the report");
  exit(STATUS_FAILED);
}

// ---- Fields ---------------------------------------------------------------------------------

const char *text_in(const json_t *row, const char *field) {
  const char *text = json_string_value(json_object_get(row, field));
  return text ? text : "";
}

double number_in_row(const json_t *row, const char *field) {
  const json_t *value = json_object_get(row, field);
  if (json_is_boolean(value)) return json_is_true(value) ? 1 : 0;
  return json_is_number(value) ? json_number_value(value) : NAN;
}

bool flag_in(const json_t *row, const char *field) {
  return json_is_true(json_object_get(row, field));
}

double most_in(const json_t *rows, const char *field) {
  double most = NAN;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) most = fmax(most, number_in_row(row, field));
  return most;
}

double least_in(const json_t *rows, const char *field) {
  double least = NAN;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) least = fmin(least, number_in_row(row, field));
  return least;
}

// ---- Files ----------------------------------------------------------------------------------

static bool has_text(const char *line) {
  return line[strspn(line, " \t\r\n")] != '\0';
}

static json_t *read_lines(FILE *file, const char *path) {
  json_t *rows = json_array();
  char *line = NULL;
  size_t room = 0, number = 0;
  while (rows && getline(&line, &room, file) >= 0) {
    number++;
    if (!has_text(line)) continue;
    json_error_t error;
    json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(row)) {
      complain("%s: line %zu is not a JSON object%s%s", path, number, row ? "" : ": ",
               row ? "" : error.text);
      json_decref(row);
      json_decref(rows);
      free(line);
      return NULL;
    }
    json_array_append_new(rows, row);
  }
  free(line);
  if (rows && ferror(file)) {
    complain("cannot read %s: %s", path, strerror(errno));
    json_decref(rows);
    return NULL;
  }
  return rows;
}

json_t *json_lines_read(const char *path, bool *missing) {
  FILE *file = fopen(path, "r");
  *missing = !file && errno == ENOENT;
  if (!file && !*missing) complain("cannot read %s: %s", path, strerror(errno));
  if (!file) return NULL;
  json_t *rows = read_lines(file, path);
  fclose(file);
  return rows;
}

const char *results_place(const char *engine) {
  static char place[64];
  if (strcmp(engine, "native") == 0) return "data";
  snprintf(place, sizeof place, "data-%s", engine);
  return place;
}

// ---- Results --------------------------------------------------------------------------------

static json_t *list_under(json_t *files, const char *name, const char *kind) {
  char key[160];
  snprintf(key, sizeof key, "%s %s", name, kind);
  json_t *list = json_object_get(files, key);
  if (list) return list;
  json_object_set_new(files, key, json_array());
  return json_object_get(files, key);
}

json_t *results_rows(const results *r, const char *name) {
  return list_under(r->files, name, "rows");
}

json_t *results_summaries(const results *r, const char *name) {
  return list_under(r->files, name, "summary");
}

json_t *results_series(const results *r, const char *name) {
  return list_under(r->files, name, "series");
}

json_t *results_collections(const results *r, const char *name) {
  return list_under(r->files, name, "collection");
}

static void keep_row(results *r, const entry *e, json_t *row) {
  static const char *const flags[] = {"summary", "series", "collection"};
  const char *kind = "rows";
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
    if (flag_in(row, flags[i])) kind = flags[i];
  if (!json_object_get(row, "engine")) json_object_set_new(row, "engine", json_string(e->engine));
  json_array_append(list_under(r->files, e->name, kind), row);
}

static bool read_entry(results *r, entry *e) {
  char *path;
  if (asprintf(&path, "%s/%s/%s.json", r->directory, results_place(e->engine), e->name) < 0) {
    complain("no memory for the report");
    return false;
  }
  bool missing;
  json_t *rows = json_lines_read(path, &missing);
  free(path);
  if (!rows) e->has_data = false;
  if (!rows && !missing) {
    e->outcome = OUTCOME_FAILED;
    free(e->message);
    e->message = copy_text("its results cannot be read");
  }
  if (!rows) return missing;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) keep_row(r, e, row);
  json_decref(rows);
  return true;
}

bool results_read(results *r) {
  json_decref(r->files);
  r->files = json_object();
  bool good = true;
  for (size_t i = 0; i < r->count; i++)
    if (r->entries[i].has_data && !read_entry(r, &r->entries[i])) good = false;
  return good;
}

static bool skipped_alike(const entry *a, const entry *b) {
  return a->outcome == OUTCOME_SKIPPED && b->outcome == OUTCOME_SKIPPED &&
         strcmp(a->message, b->message) == 0;
}

bool skipped_first(const results *r, size_t index) {
  for (size_t i = 0; i < index; i++)
    if (skipped_alike(&r->entries[i], &r->entries[index])) return false;
  return r->entries[index].outcome == OUTCOME_SKIPPED;
}

void skipped_names(FILE *file, const results *r, size_t index) {
  const char *before = "", *last = "";
  for (size_t i = index; i < r->count; i++) {
    const entry *e = &r->entries[i];
    if (!skipped_alike(e, &r->entries[index]) || strcmp(e->name, last) == 0) continue;
    fprintf(file, "%s%s", before, e->name);
    before = ", ";
    last = e->name;
  }
}

void results_free(results *r) {
  for (size_t i = 0; i < r->count; i++) {
    entry *e = &r->entries[i];
    free(e->name);
    free(e->engine);
    free(e->when);
    free(e->version);
    free(e->machine);
    free(e->command);
    free(e->message);
  }
  free(r->entries);
  free(r->directory);
  json_decref(r->facts);
  json_decref(r->files);
  *r = (results){0};
}
