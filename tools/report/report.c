// SPDX-License-Identifier: MIT
// The sections of the report, and what all of them have; see report.h.
#include "report.h"
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// In the order of the page. A section has the entry of its name, and those whose names begin with
// it and a "-"; without any it is left out.
static const struct {
  const char *id, *title;
  bool (*write)(page *p);
} sections[] = {
    {"forced", "Collections by hand", report_forced},
    {"period", "Collections by pace", report_period},
    {"knobs", "Turning the knobs", report_knobs},
    {"uneven", "Uneven allocation", report_uneven},
    {"procs", "Changing processors", report_procs},
    {"sawtooth", "The tooth", report_sawtooth},
    {"marshal", "Encoding requests", report_marshal},
    {"replay", "A recorded program", report_replay},
    {"bench", "Beside the peers", report_bench},
};
enum { SECTIONS = sizeof sections / sizeof sections[0] };

static bool belongs(const entry *e, const char *id) {
  size_t length = strlen(id);
  return strncmp(e->name, id, length) == 0 && (e->name[length] == '\0' || e->name[length] == '-');
}

// To those of its files that are there.
static void write_links(page *p, const entry *e) {
  static const char *const endings[] = {"csv", "json", "txt"};
  const char *before = *e->command ? "; results: " : "Results: ";
  for (size_t i = 0; e->has_data && i < sizeof endings / sizeof endings[0]; i++) {
    char name[200], path[4096];
    snprintf(name, sizeof name, "%s/%s.%s", results_place(e->engine), e->name, endings[i]);
    snprintf(path, sizeof path, "%s/%s", p->results->directory, name);
    if (access(path, F_OK) != 0) continue;
    fprintf(p->body, "%s<a href=\"", before);
    html_text(p->body, name);
    fprintf(p->body, "\">%s</a>", endings[i]);
    before = ", ";
  }
}

static void write_files(page *p, const entry *e) {
  if (e->outcome == OUTCOME_SKIPPED) return;
  fputs("<p class=\"repeat\">", p->body);
  if (*e->command) {
    fputs("Repeat with <code>", p->body);
    html_text(p->body, e->command);
    fputs("</code>", p->body);
  }
  write_links(p, e);
  fputs("</p>\n", p->body);
}

static void write_trouble(page *p, const entry *e) {
  const char *because = *e->message ? e->message : "it did not say why";
  char name[160];
  bool other = strcmp(e->engine, "native") != 0;
  snprintf(name, sizeof name, "%s%s%s", e->name, other ? " on " : "", other ? e->engine : "");
  if (e->outcome == OUTCOME_FAILED)
    page_finding(p, VERDICT_FAILED, "%s failed: %s.", name, because);
  else if (e->outcome == OUTCOME_NOT_RUN)
    page_finding(p, VERDICT_FAILED, "%s was not run: the user ended the run before.", name);
  else if (e->outcome == OUTCOME_PARTIAL)
    page_say(p, "%s was interrupted: what it had measured until then is shown.", name);
}

// Returns false when a file could not be written, which has been said.
static bool write_section(page *p, const char *id, const char *title, bool (*write)(page *p)) {
  const results *r = p->results;
  bool any = false, rows = false, good = true;
  for (size_t i = 0; i < r->count; i++) {
    if (!belongs(&r->entries[i], id) || r->entries[i].outcome == OUTCOME_SKIPPED) continue;
    any = true;
    rows = rows || json_array_size(results_rows(r, r->entries[i].name)) > 0;
  }
  if (!any) return true;
  page_section(p, id, title);
  for (size_t i = 0; i < r->count; i++)
    if (belongs(&r->entries[i], id)) write_trouble(p, &r->entries[i]);
  if (rows) good = write(p);
  for (size_t i = 0; i < r->count; i++)
    if (belongs(&r->entries[i], id)) write_files(p, &r->entries[i]);
  page_section_end(p);
  return good;
}

static char *findings_text(const page *p) {
  static const char *const marks[] = {"", "as expected", "falls short", "not measured"};
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  for (size_t i = 0; file && i < p->finding_count; i++) {
    const finding *f = &p->findings[i];
    fprintf(file, "%s: %s%s%s\n", f->title, marks[f->verdict], *marks[f->verdict] ? ". " : "",
            f->text);
  }
  if (file) fclose(file);
  return text;
}

static bool make_plots_place(const results *r) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plots", r->directory);
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return true;
  complain("cannot make %s: %s", path, strerror(errno));
  return false;
}

bool report_make(results *r, report_outcome *made) {
  page p;
  char path[4096];
  *made = (report_outcome){.complete = results_read(r)};
  if (!make_plots_place(r) || !page_open(&p, r)) return false;
  bool good = report_rule(&p);
  for (int i = 0; i < SECTIONS; i++)
    good = write_section(&p, sections[i].id, sections[i].title, sections[i].write) && good;
  snprintf(path, sizeof path, "%s/report.html", r->directory);
  bool written = page_write(&p, path);
  made->complete = made->complete && good && p.complete;
  made->findings = findings_text(&p);
  page_free(&p);
  return written;
}
