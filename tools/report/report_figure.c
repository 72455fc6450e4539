// SPDX-License-Identifier: MIT
// Writes data and scripts, runs gnuplot, and makes its SVG part of the page; see report_figure.h.
//
// gnuplot's SVG stands alone: it has colours of its own, and names of its own for its marks. In the
// page, colours become variables of the style sheet, so that they change with light and dark; names
// get the figure's in front; the font is the page's.
#include "report_figure.h"
#include "child.h"
#include "command.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double wide_width = 760, wide_height = 400, narrow_width = 360, narrow_height = 330;
static const double gnuplot_seconds = 60;

// By which gnuplot and the page call a colour. Series after Okabe and Ito, so that they can be told
// apart by the colour-blind; brighter on dark paper.
static const struct colour {
  const char *name;
  unsigned char light[3], dark[3];
} colours[] = {
    {"ink", {27, 31, 36}, {230, 232, 235}},       {"muted", {87, 96, 106}, {160, 168, 178}},
    {"grid", {223, 227, 232}, {52, 58, 66}},      {"rule", {150, 158, 168}, {125, 134, 145}},
    {"series0", {0, 114, 178}, {92, 178, 236}},   {"series1", {213, 94, 0}, {244, 137, 66}},
    {"series2", {0, 148, 108}, {45, 194, 150}},   {"series3", {184, 96, 150}, {222, 146, 192}},
    {"series4", {64, 160, 210}, {146, 208, 245}}, {"series5", {200, 138, 0}, {240, 189, 70}},
};
enum { COLOURS = sizeof colours / sizeof colours[0] };

void figure_print_colours(FILE *file, bool dark) {
  for (int i = 0; i < COLOURS; i++) {
    const unsigned char *c = dark ? colours[i].dark : colours[i].light;
    fprintf(file, "--%s:#%02x%02x%02x;", colours[i].name, c[0], c[1], c[2]);
  }
}

// ---- The files ------------------------------------------------------------------------------

void figure_start(figure *f) {
  f->csv = open_memstream(&f->csv_text, &f->csv_bytes);
  f->script = open_memstream(&f->script_text, &f->script_bytes);
  if (f->csv && f->script) return;
  complain("no memory for the report");
  exit(STATUS_FAILED);
}

void figure_number(figure *f, double value, char behind) {
  if (isfinite(value)) fprintf(f->csv, "%.10g", value);
  fputc(behind, f->csv);
}

void figure_text(FILE *file, const char *text) {
  for (const unsigned char *c = (const unsigned char *)text; *c; c++)
    fputc(*c < 0x20 || *c == 0x7f || strchr("\"'`\\,<>&#$%{}^@|", *c) ? '?' : *c, file);
}

void figure_place_key(figure *f, const figure_key *k) {
  size_t rows = (k->entries + k->columns - 1) / k->columns;
  size_t narrow_rows = (k->entries + k->narrow_columns - 1) / k->narrow_columns;
  static const char above[] = "set key at screen 0.01, screen 0.985 left top horizontal maxcols";
  fprintf(f->script, "if (narrow) {\n  %s %zu width -3\n  set tmargin %zu.5\n} else {\n", above,
          k->narrow_columns, narrow_rows + 1);
  if (k->inside)
    fprintf(f->script, "  set key at graph %s\n}\n", k->inside);
  else
    fprintf(f->script, "  %s %zu\n  set tmargin %zu.5\n}\n", above, k->columns, rows + 1);
}

// A file in plots/, of which only the ending differs. Static storage.
static const char *path_of(const page *p, const figure *f, const char *ending) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/plots/%s%s", p->results->directory, f->name, ending);
  return path;
}

static bool write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  bool good = file && fputs(text, file) >= 0;
  int error = errno;
  if (file && fclose(file) != 0 && good) good = false, error = errno;
  if (!good) complain("cannot write %s: %s", path, strerror(error));
  return good;
}

// What stands around the section's commands. The loop draws the three forms one after the other;
// `narrow` lets commands tell them apart.
static char *whole_script(const figure *f) {
  double width = f->width ? f->width : wide_width, height = f->height ? f->height : wide_height;
  double low = f->narrow_height ? f->narrow_height : narrow_height;
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  if (!file) return NULL;
  fprintf(file,
          "# %s\n# In the directory of report.html: gnuplot plots/%s.gp\n"
          "# draws plots/%s.svg, plots/%s-narrow.svg and plots/%s.png from plots/%s.csv.\n"
          "data = 'plots/%s.csv'\nset encoding utf8\n",
          f->title, f->name, f->name, f->name, f->name, f->name, f->name);
  for (int i = 0; i < COLOURS; i++) {
    const unsigned char *c = colours[i].light;
    fprintf(file, "%s = '#%02x%02x%02x'\n", colours[i].name, c[0], c[1], c[2]);
  }
  fprintf(
      file,
      "do for [form = 1:3] {\n"
      "narrow = form == 2\n"
      "if (form == 1) {\n"
      "  set terminal svg size %.0f,%.0f dynamic noenhanced font 'sans-serif,14' rounded "
      "linewidth 1.2\n  set output 'plots/%s.svg'\n}\n"
      "if (form == 2) {\n"
      "  set terminal svg size %.0f,%.0f dynamic noenhanced font 'sans-serif,12' rounded "
      "linewidth 1.2\n  set output 'plots/%s-narrow.svg'\n}\n"
      "if (form == 3) {\n"
      "  if (!strstrt(GPVAL_TERMINALS, ' pngcairo ')) { break }\n"
      "  set terminal pngcairo size %.0f,%.0f noenhanced font 'sans,14' fontscale 1.8 linewidth "
      "2.4 pointscale 2.8 rounded background '#ffffff'\n  set output 'plots/%s.png'\n}\n"
      "reset\n"
      "set datafile separator comma\nset datafile columnheaders\n"
      "set border 3 linecolor rgb rule\n"
      "set tics nomirror out scale 0.5 textcolor rgb muted\n"
      "set grid ytics linetype 1 linecolor rgb grid linewidth 0.8\n"
      "set key Left reverse samplen 1.6 textcolor rgb ink\n"
      "set xlabel textcolor rgb muted\nset ylabel textcolor rgb muted\n",
      width, height, f->name, narrow_width, low, f->name, width * 2, height * 2, f->name);
  fputs(f->script_text, file);
  fputs("\nunset output\n}\n", file);
  fclose(file);
  return text;
}

// ---- gnuplot --------------------------------------------------------------------------------

static void complain_gnuplot(page *p, const figure *f, child_result *result) {
  if (result->error == ENOENT) {
    complain("gnuplot is not installed, so the report has tables and scripts but no pictures "
             "(Debian: apt-get install gnuplot-nox, then tidepool all --from %s)",
             p->results->directory);
    p->pictures = false;
    return;
  }
  p->complete = false;
  if (result->error) {
    complain("cannot start gnuplot: %s", strerror(result->error));
    p->pictures = false;
    return;
  }
  char *line = result->said + strspn(result->said, "\r\n \t");
  for (char *c = line; *c; c++)
    if (*c == '\n' || *c == '\r') *c = ' ';
  complain("gnuplot could not draw plots/%s.gp: %s", f->name,
           result->late ? "it took too long" : line);
}

static bool draw(page *p, const figure *f) {
  if (!p->pictures) return false;
  char script[128];
  snprintf(script, sizeof script, "plots/%s.gp", f->name);
  // -d: whatever the user's own settings are.
  child_spec c = {.program = "gnuplot",
                  .arguments = (char *[]){"gnuplot", "-d", script, NULL},
                  .directory = p->results->directory,
                  .seconds = gnuplot_seconds};
  child_result result;
  child_run(&c, &result);
  if (!result.error && !result.late && result.status == 0) return true;
  complain_gnuplot(p, f, &result);
  return false;
}

// ---- SVG ------------------------------------------------------------------------------------

// NULL: it cannot be read.
static char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return NULL;
  char part[4096], *text = NULL;
  size_t length, bytes;
  FILE *copy = open_memstream(&text, &bytes);
  while (copy && (length = fread(part, 1, sizeof part, file)) > 0) fwrite(part, 1, length, copy);
  if (copy) fclose(copy);
  fclose(file);
  return text;
}

// Copies text up to end with colours, names and fonts made the page's.
static void print_adapted(FILE *file, const char *text, const char *prefix) {
  while (*text) {
    unsigned red, green, blue;
    int length = 0;
    if (strncmp(text, "rgb(", 4) == 0 &&
        sscanf(text, "rgb(%u,%u,%u)%n", &red, &green, &blue, &length) == 3 && length > 0) {
      int i = 0;
      while (i < COLOURS && (colours[i].light[0] != red || colours[i].light[1] != green ||
                             colours[i].light[2] != blue))
        i++;
      if (i < COLOURS)
        fprintf(file, "var(--%s)", colours[i].name);
      else
        fprintf(file, "rgb(%u,%u,%u)", red, green, blue);
      text += length;
    } else if (strncmp(text, "xlink:href='#", 13) == 0) {
      fprintf(file, "href='#%s-", prefix);
      text += 13;
    } else if (strncmp(text, " id='", 5) == 0 || strncmp(text, " id=\"", 5) == 0) {
      fprintf(file, " id=%c%s-", text[4], prefix);
      text += 5;
    } else if (strncmp(text, " font-family=\"sans-serif\"", 25) == 0) {
      text += 25;
    } else if (strncmp(text, " color=\"black\"", 14) == 0) {
      text += 14;
    } else {
      fputc(*text++, file);
    }
  }
}

// Takes out all between begin and end, both included.
static void cut_all(char *text, const char *begin, const char *end) {
  char *to = text, *from = text;
  for (;;) {
    char *next = strstr(from, begin);
    char *stop = next ? strstr(next, end) : NULL;
    size_t length = stop ? (size_t)(next - from) : strlen(from);
    memmove(to, from, length);
    to += length;
    if (!stop) break;
    from = stop + strlen(end);
  }
  *to = '\0';
}

// Groups in which nothing is drawn.
static void cut_empty_groups(char *text) {
  char *to = text;
  for (char *from = text; *from;) {
    char *open_end = strncmp(from, "<g ", 3) == 0 ? strchr(from, '>') : NULL;
    if (open_end && strncmp(open_end + 1, "\n</g>\n", 6) == 0) {
      from = open_end + 7;
      continue;
    }
    *to++ = *from++;
  }
  *to = '\0';
}

static bool print_svg(FILE *file, const char *path, const figure *f, const char *form) {
  char *text = read_file(path);
  char *inner = text ? strstr(text, "<g id=\"gnuplot_canvas\">") : NULL;
  char *end = inner ? strstr(inner, "</svg>") : NULL;
  double width = 0, height = 0;
  char *box = text ? strstr(text, "viewBox=\"0 0 ") : NULL;
  bool good = end && box && sscanf(box, "viewBox=\"0 0 %lf %lf", &width, &height) == 2;
  if (good) {
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s-%s", f->name, form);
    *end = '\0';
    cut_all(inner, "<title>gnuplot_plot", "</title>");
    cut_all(inner, "<filter", "</filter>");
    cut_empty_groups(inner);
    fprintf(file,
            "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
            "aria-labelledby=\"%s-t %s-d\"><title id=\"%s-t\">",
            form, width, height, prefix, prefix, prefix);
    html_text(file, f->title);
    fprintf(file, "</title><desc id=\"%s-d\">", prefix);
    html_text(file, f->description);
    fputs("</desc>\n", file);
    print_adapted(file, inner, prefix);
    fputs("</svg>\n", file);
  }
  free(text);
  return good;
}

// ---------------------------------------------------------------------------------------------

static void print_figure(page *p, const figure *f, bool drawn, const char *caption) {
  fprintf(p->body, "<figure id=\"figure-%s\">\n", f->name);
  if (drawn) {
    bool wide = print_svg(p->body, path_of(p, f, ".svg"), f, "wide");
    bool narrow = print_svg(p->body, path_of(p, f, "-narrow.svg"), f, "narrow");
    if (!wide || !narrow) {
      complain("cannot read the picture that plots/%s.gp has drawn", f->name);
      p->complete = false;
      drawn = false;
    }
  }
  if (!drawn) {
    fputs("<p class=\"missing\">", p->body);
    html_text(p->body, f->title);
    fputs(": not drawn, as gnuplot was missing or failed.</p>\n", p->body);
  }
  fputs("<figcaption>", p->body);
  html_text(p->body, caption);
  fprintf(p->body,
          " <span class=\"files\">Data and script: <a href=\"plots/%s.csv\">plots/%s.csv</a>, "
          "<a href=\"plots/%s.gp\">plots/%s.gp</a></span></figcaption>\n</figure>\n",
          f->name, f->name, f->name, f->name);
}

void figure_drop(figure *f) {
  fclose(f->csv);
  fclose(f->script);
  free(f->csv_text);
  free(f->script_text);
}

bool figure_end(page *p, figure *f, const char *caption, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, caption);
  vsnprintf(text, sizeof text, caption, arguments);
  va_end(arguments);
  fclose(f->csv);
  fclose(f->script);
  char *script = whole_script(f);
  static const char *const drawings[] = {".svg", "-narrow.svg", ".png"};
  for (size_t i = 0; i < sizeof drawings / sizeof drawings[0]; i++)
    unlink(path_of(p, f, drawings[i])); // no picture of other data
  bool good = script && write_file(path_of(p, f, ".csv"), f->csv_text) &&
              write_file(path_of(p, f, ".gp"), script);
  if (good) print_figure(p, f, draw(p, f), text);
  if (!good) p->complete = false;
  free(script);
  free(f->csv_text);
  free(f->script_text);
  return good;
}
