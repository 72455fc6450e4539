// SPDX-License-Identifier: MIT
// Puts the page together: the head with its style, the title, what was found at a glance, the
// sections, and what was run on which machine.
#include "command.h"
#include "report_figure.h"
#include "report_page.h"
#include "report_style.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool page_open(page *p, const results *r) {
  *p = (page){.results = r, .pictures = true, .complete = true};
  p->body = open_memstream(&p->body_text, &p->body_bytes);
  if (!p->body) complain("no memory for the report");
  return p->body != NULL;
}

void page_free(page *p) {
  if (p->body) fclose(p->body);
  free(p->body_text);
  for (size_t i = 0; i < p->finding_count; i++) free(p->findings[i].text);
  *p = (page){0};
}

static const char *fact(const page *p, const char *name) {
  return text_in(p->results->facts, name);
}

static void print_palettes(FILE *file) {
  fputs(
      ":root{color-scheme:light dark;--paper:#ffffff;--link:#0a58a8;--good:#1a7f4b;--bad:#b3400a;",
      file);
  figure_print_colours(file, false);
  fputs("}\n@media (prefers-color-scheme:dark){:root{--paper:#15181c;--link:#7db8f0;"
        "--good:#4cc38a;--bad:#f4915a;",
        file);
  figure_print_colours(file, true);
  fputs("}}\n@media print{:root{--paper:#ffffff;--link:#0a58a8;--good:#1a7f4b;--bad:#b3400a;",
        file);
  figure_print_colours(file, false);
  fputs("}}\n", file);
}

static void print_head(FILE *file) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>Tidepool: what collections leave of pools</title>\n<style>\n",
        file);
  print_palettes(file);
  fputs(report_style, file);
  fputs("</style>\n</head>\n<body>\n", file);
}

// ---- The first screen -----------------------------------------------------------------------

static void print_where(FILE *file, const page *p) {
  static const char *const parts[] = {"cpu", "kernel", "libc", "date"};
  const char *version = fact(p, "version");
  if (!*version) {
    fputs("<p class=\"where\">No record says on which machine this was measured.</p>\n", file);
    return;
  }
  fputs("<p class=\"where\">Version ", file);
  html_text(file, version);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (!*fact(p, parts[i])) continue;
    fputs(" · ", file);
    html_text(file, fact(p, parts[i]));
  }
  fputs(" · <a href=\"#run\">all of it</a></p>\n", file);
}

static bool any_outcome(const page *p, outcome o) {
  for (size_t i = 0; i < p->results->count; i++)
    if (p->results->entries[i].outcome == o) return true;
  return false;
}

static void print_notice(FILE *file, const page *p) {
  bool failed = any_outcome(p, OUTCOME_FAILED);
  bool cut = any_outcome(p, OUTCOME_PARTIAL) || any_outcome(p, OUTCOME_NOT_RUN);
  if (failed)
    fputs("<p class=\"notice\"><b>Something failed.</b> Not every experiment could be measured; "
          "those that failed say so below.</p>\n",
          file);
  if (cut)
    fputs("<p class=\"notice\"><b>A partial result.</b> The run was interrupted before all of it "
          "was measured; what there is, is below.</p>\n",
          file);
}

static void print_glance(FILE *file, const page *p) {
  static const char *const classes[] = {"plain", "good", "short", "short"};
  static const char *const marks[] = {"·", "✓", "✗", "✗"};
  static const char *const words[] = {"", "As expected: ", "Falls short: ", "Not measured: "};
  if (p->finding_count == 0) return;
  fputs("<ul class=\"glance\">\n", file);
  for (size_t i = 0; i < p->finding_count; i++) {
    const finding *f = &p->findings[i];
    // The word is for who cannot see the mark.
    fprintf(file, "<li class=\"%s\"><span class=\"mark\" title=\"%s\">%s</span> <a href=\"#%s\">",
            classes[f->verdict], words[f->verdict], marks[f->verdict], f->section);
    html_text(file, f->title);
    fputs("</a> <span>", file);
    html_text(file, f->text);
    fputs("</span></li>\n", file);
  }
  fputs("</ul>\n", file);
}

// ---- What was run ---------------------------------------------------------------------------

static void print_facts(FILE *file, const page *p) {
  static const struct {
    const char *name, *label;
  } rows[] = {
      {"cpu", "Processor"},    {"cpus", "CPUs"},      {"memory", "Memory"},
      {"kernel", "System"},    {"libc", "C library"}, {"compiler", "Compiler"},
      {"version", "Tidepool"}, {"date", "Begun"},     {"engine", "Engine"},
      {"options", "In force"}, {"seed", "Seed"},      {"command", "Repeat with"},
  };
  fputs("<dl>\n", file);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const json_t *value = json_object_get(p->results->facts, rows[i].name);
    char number[32] = "";
    if (json_is_integer(value))
      snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    const char *text = *number ? number : fact(p, rows[i].name);
    if (!*text) continue;
    bool code = strcmp(rows[i].name, "command") == 0;
    fprintf(file, "<dt>%s</dt><dd%s>", rows[i].label, code ? " class=\"command\"" : "");
    html_text(file, text);
    fputs("</dd>\n", file);
  }
  fputs("</dl>\n", file);
}

static void print_entry(FILE *file, const entry *e) {
  fputs("<tr><td class=\"l\">", file);
  html_text(file, e->name);
  fputs("</td><td class=\"l\">", file);
  html_text(file, e->engine);
  fprintf(file, "</td><td class=\"l\">%s</td><td>", outcome_names[e->outcome]);
  if (isfinite(e->seconds))
    fprintf(file, "%.1f", e->seconds);
  else
    fputs("–", file);
  fputs("</td><td class=\"l\">", file);
  html_text(file, *e->when ? e->when : "–");
  fputs("</td><td class=\"l command\">", file);
  html_text(file, e->command);
  fputs("</td></tr>\n", file);
}

// A line for each reason, with what it concerns.
static void print_skipped(FILE *file, const results *r) {
  for (size_t i = 0; i < r->count; i++) {
    if (!skipped_first(r, i)) continue;
    fputs("<p>Left out, as ", file);
    html_text(file, r->entries[i].message);
    fputs(": ", file);
    skipped_names(file, r, i);
    fputs(".</p>\n", file);
  }
}

// Whether parts come from another machine or version than the last run.
static bool is_mixed(const page *p) {
  const results *r = p->results;
  for (size_t i = 1; i < r->count; i++)
    if (strcmp(r->entries[i].machine, r->entries[0].machine) != 0 ||
        strcmp(r->entries[i].version, r->entries[0].version) != 0)
      return true;
  return false;
}

static void print_run(FILE *file, const page *p) {
  fputs("<section id=\"run\">\n<h2>What was run, and where</h2>\n", file);
  if (*fact(p, "version"))
    print_facts(file, p);
  else
    fputs("<p>The results were there when this page was written, and nothing says which machine "
          "they come from.</p>\n",
          file);
  print_skipped(file, p->results);
  if (is_mixed(p))
    fputs("<p class=\"notice\">Not all parts were measured on the same machine and version, or "
          "not in one run.</p>\n",
          file);
  fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Experiments\">"
        "<table>\n<thead><tr><th scope=\"col\" class=\"l\">experiment</th><th scope=\"col\" "
        "class=\"l\">engine</th><th scope=\"col\" class=\"l\">outcome</th><th scope=\"col\">"
        "seconds</th><th scope=\"col\" class=\"l\">begun</th><th scope=\"col\" class=\"l\">"
        "command</th></tr></thead>\n<tbody>\n",
        file);
  for (size_t i = 0; i < p->results->count; i++)
    if (p->results->entries[i].outcome != OUTCOME_SKIPPED)
      print_entry(file, &p->results->entries[i]);
  fputs("</tbody></table></div>\n</section>\n", file);
}

// ---------------------------------------------------------------------------------------------

static void print_page(FILE *file, const page *p) {
  print_head(file);
  fputs("<header>\n<h1>What collections leave of pools</h1>\n<p class=\"lede\">Tidepool is a C "
        "runtime with a garbage collector whose object pools lose what lies idle through two "
        "collections. This page shows what that means on one machine, measured.</p>\n",
        file);
  print_where(file, p);
  print_notice(file, p);
  print_glance(file, p);
  fputs("</header>\n<main>\n", file);
  fputs(p->body_text, file);
  print_run(file, p);
  fputs("</main>\n<footer>Written by <code>tidepool all</code>. The page needs nothing but itself; "
        "beside it lie the results in <code>data/</code> and the plots in "
        "<code>plots/</code>.</footer>\n</body>\n</html>\n",
        file);
}

bool page_write(page *p, const char *path) {
  char *part;
  if (fflush(p->body) != 0 || asprintf(&part, "%s.part", path) < 0) {
    complain("no memory for the report");
    return false;
  }
  errno = 0;
  FILE *file = fopen(part, "w");
  if (file) print_page(file, p);
  bool good = file && fflush(file) == 0 && !ferror(file);
  int error = errno;
  if (file && fclose(file) != 0 && good) good = false, error = errno;
  if (good && rename(part, path) != 0) good = false, error = errno;
  if (!good) {
    complain("cannot write %s: %s", path, strerror(error));
    unlink(part);
  }
  free(part);
  return good;
}
