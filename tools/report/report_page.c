// SPDX-License-Identifier: MIT
// The parts that sections are made of: text, findings, tables; see report_page.h. report_frame.c
// puts the page together.
#include "report_page.h"
#include "command.h"
#include "output.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_UNFOLDED = 12, TEXT_BYTES = 1200 };

// ---- Text -----------------------------------------------------------------------------------

// The length of the character in UTF-8 at text; 0 if it is none that a page may hold.
static size_t character_at(const unsigned char *text) {
  if (text[0] < 0x80) {
    bool space = text[0] == '\t' || text[0] == '\n' || text[0] == '\r';
    return (text[0] >= 0x20 && text[0] != 0x7f) || space ? 1 : 0;
  }
  size_t length = text[0] >= 0xc2 && text[0] < 0xe0   ? 2
                  : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
                  : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                      : 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if (length == 2 && text[0] == 0xc2 && text[1] < 0xa0) return 0;  // control characters
  if (length == 3 && text[0] == 0xe0 && text[1] < 0xa0) return 0;  // longer than need be
  if (length == 3 && text[0] == 0xed && text[1] >= 0xa0) return 0; // half a pair
  if (length == 3 && text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe) return 0;
  if (length == 4 && text[0] == 0xf0 && text[1] < 0x90) return 0;
  if (length == 4 && text[0] == 0xf4 && text[1] >= 0x90) return 0;
  return length;
}

void html_text(FILE *file, const char *text) {
  const unsigned char *c = (const unsigned char *)text;
  while (*c) {
    size_t length = character_at(c);
    if (length == 0)
      fputs("\xef\xbf\xbd", file);
    else if (*c == '&')
      fputs("&amp;", file);
    else if (*c == '<')
      fputs("&lt;", file);
    else if (*c == '>')
      fputs("&gt;", file);
    else if (*c == '"')
      fputs("&quot;", file);
    else if (*c == '\'')
      fputs("&#39;", file);
    else
      fwrite(c, 1, length, file);
    c += length ? length : 1;
  }
}

// ---- Sections -------------------------------------------------------------------------------

void page_section(page *p, const char *id, const char *title) {
  snprintf(p->section, sizeof p->section, "%s", id);
  snprintf(p->title, sizeof p->title, "%s", title);
  fprintf(p->body, "<section id=\"%s\">\n<h2>", id);
  html_text(p->body, title);
  fputs("</h2>\n", p->body);
}

void page_section_end(page *p) {
  fputs("</section>\n", p->body);
}

void page_heading(page *p, const char *text) {
  fputs("<h3>", p->body);
  html_text(p->body, text);
  fputs("</h3>\n", p->body);
}

void page_say(page *p, const char *format, ...) {
  char text[TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fputs("<p>", p->body);
  html_text(p->body, text);
  fputs("</p>\n", p->body);
}

static const struct {
  const char *class, *mark, *words;
} verdicts[] = {
    [VERDICT_NONE] = {"plain", "", ""},
    [VERDICT_GOOD] = {"good", "✓", "As expected."},
    [VERDICT_SHORT] = {"short", "✗", "Falls short."},
    [VERDICT_FAILED] = {"short", "✗", "Not measured."},
};

static void note_finding(page *p, verdict v, const char *text) {
  for (size_t i = 0; i < p->finding_count; i++)
    if (strcmp(p->findings[i].section, p->section) == 0) return;
  if (p->finding_count == FINDINGS_MAX) return;
  finding *f = &p->findings[p->finding_count++];
  memcpy(f->section, p->section, sizeof f->section);
  memcpy(f->title, p->title, sizeof f->title);
  f->verdict = v;
  f->text = copy_text(text);
}

void page_finding(page *p, verdict v, const char *format, ...) {
  char text[TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  note_finding(p, v, text);
  fprintf(p->body, "<p class=\"finding %s\">", verdicts[v].class);
  if (v != VERDICT_NONE)
    fprintf(p->body, "<span class=\"mark\" aria-hidden=\"true\">%s</span> <b>%s</b> ",
            verdicts[v].mark, verdicts[v].words);
  html_text(p->body, text);
  fputs("</p>\n", p->body);
}

// ---- Tables ---------------------------------------------------------------------------------

// Whole numbers in groups of three, as 12 345; \u2009 is a thin space.
static void print_grouped(FILE *file, const char *digits) {
  if (*digits == '-') fputs("−", file), digits++;
  size_t whole = strcspn(digits, ".");
  for (size_t i = 0; digits[i]; i++) {
    if (i > 0 && i < whole && whole > 4 && (whole - i) % 3 == 0) fputs("\u2009", file);
    fputc(digits[i], file);
  }
}

static void print_cell(FILE *file, const page_column *c, const json_t *row) {
  const json_t *value = json_object_get(row, c->field);
  char text[64];
  double number = number_in_row(row, c->field);
  if (c->look == LOOK_FLAG) {
    fputs(json_is_true(value) ? "yes" : "no", file);
  } else if (c->look == LOOK_TEXT || json_is_string(value)) {
    html_text(file, text_in(row, c->field));
  } else if (!isfinite(number)) {
    html_text(file, c->unknown ? c->unknown : "–");
  } else if (c->look == LOOK_BYTES) {
    html_text(file, size_text((uint64_t)fmax(number, 0)));
  } else if (c->look == LOOK_PERCENT) {
    fprintf(file, "%.*f %%", c->digits, number * 100);
  } else {
    if (c->digits < 0)
      snprintf(text, sizeof text, "%.6g", number);
    else
      snprintf(text, sizeof text, "%.*f", c->digits, number);
    print_grouped(file, text);
  }
}

static void print_row(FILE *file, const page_column *columns, size_t count, const json_t *row) {
  fputs("<tr>", file);
  for (size_t i = 0; i < count; i++) {
    fputs(columns[i].look == LOOK_TEXT ? "<td class=\"l\">" : "<td>", file);
    print_cell(file, &columns[i], row);
    fputs("</td>", file);
  }
  fputs("</tr>\n", file);
}

// Whether a column is there to tell the engines apart, and there is but one.
static bool is_idle(const page_column *c, const json_t *rows) {
  size_t index;
  json_t *row;
  const char *engine = "";
  if (strcmp(c->field, "engine") != 0) return false;
  json_array_foreach(rows, index, row) {
    const char *other = text_in(row, "engine");
    if (*engine && *other && strcmp(other, engine) != 0) return false;
    if (*other) engine = other;
  }
  return true;
}

void page_table(page *p, const char *caption, const page_column *columns, size_t count,
                const json_t *rows) {
  size_t row_count = json_array_size(rows), index;
  json_t *row;
  if (row_count == 0) return;
  if (count && is_idle(&columns[0], rows)) columns++, count--;
  bool folded = row_count > ROWS_UNFOLDED;
  fputs(folded ? "<details><summary>" : "<p class=\"caption\">", p->body);
  html_text(p->body, caption);
  if (folded)
    fprintf(p->body, " (%zu rows)</summary>\n", row_count);
  else
    fputs("</p>\n", p->body);
  fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", p->body);
  html_text(p->body, caption);
  fputs("\"><table>\n<thead><tr>", p->body);
  for (size_t i = 0; i < count; i++) {
    fprintf(p->body, "<th scope=\"col\"%s>", columns[i].look == LOOK_TEXT ? " class=\"l\"" : "");
    html_text(p->body, columns[i].heading);
    fputs("</th>", p->body);
  }
  fputs("</tr></thead>\n<tbody>\n", p->body);
  json_array_foreach(rows, index, row) print_row(p->body, columns, count, row);
  fprintf(p->body, "</tbody></table></div>%s\n", folded ? "</details>" : "");
}
