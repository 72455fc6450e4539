// SPDX-License-Identifier: MIT
// Draws pictures over time; see timeline.h. In UTF-8 a bar ends in eighths of a row. In ASCII the
// rows of a timeline are full or empty, and a strip has a sign for each height.
#include "timeline.h"

#include <math.h>

enum { ROWS = 6, EIGHTHS = 8, LABEL_EVERY = 3 };

// How many eighths of a row the bar fills; what was measured shows, however little it is.
static int height_of(const timeline *t, const timeline_column *c) {
  if (isnan(c->most)) return 0;
  int height = (int)lround(fmin(c->most / t->top, 1) * ROWS * EIGHTHS);
  return height < 1 ? 1 : height;
}

static void print_cell(FILE *file, const text_style *style, int eighths) {
  static const char *const parts[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (!style->utf8) {
    fputc(eighths <= 0 ? ' ' : eighths < EIGHTHS / 2 ? '_' : '#', file);
    return;
  }
  fputs(parts[eighths < 0 ? 0 : eighths > EIGHTHS ? EIGHTHS : eighths], file);
}

static bool is_cut_off(const timeline *t, const timeline_column *c) {
  return !isnan(c->most) && c->most > t->top;
}

static void print_row(FILE *file, const text_style *style, const timeline *t, int row) {
  if (row == ROWS - 1 || (row + 1) % LABEL_EVERY == 0)
    fprintf(file, "  %6.0f |", t->top * (row + 1) / ROWS);
  else
    fprintf(file, "  %6s |", "");
  int last = TIMELINE_COLUMNS;
  while (last > 0 && height_of(t, &t->columns[last - 1]) <= row * EIGHTHS) last--;
  for (int x = 0; x < last; x++)
    if (row == ROWS - 1 && is_cut_off(t, &t->columns[x]))
      fputs(style->utf8 ? "↑" : "^", file);
    else
      print_cell(file, style, height_of(t, &t->columns[x]) - row * EIGHTHS);
  fputc('\n', file);
}

static void print_traffic(FILE *file, const timeline *t) {
  fprintf(file, "  %6d +", 0);
  for (int x = 0; x < TIMELINE_COLUMNS; x++) fputc(t->columns[x].traffic ? '=' : '-', file);
  fprintf(file, "\n  %6s  ", "");
  int last = TIMELINE_COLUMNS;
  while (last > 0 && !t->columns[last - 1].marks) last--;
  for (int x = 0; x < last; x++)
    fputc(t->columns[x].marks > 1 ? '2' : t->columns[x].marks ? '^' : ' ', file);
  fputc('\n', file);
}

// Each label begins below its column, but for the last, which ends there.
static void print_ticks(FILE *file, const timeline *t) {
  int at = 0;
  fprintf(file, "  %6s  ", "");
  for (int i = 0; i < TIMELINE_TICKS; i++) {
    bool last = i == TIMELINE_TICKS - 1;
    char label[32];
    int length = snprintf(label, sizeof label, "%.0f%s", t->ticks[i].ms, last ? " ms" : "");
    int begin = last ? t->ticks[i].column + 1 - length : t->ticks[i].column;
    if (begin < at + (i > 0)) continue; // no room
    fprintf(file, "%*s%s", begin - at, "", label);
    at = begin + length;
  }
  fputc('\n', file);
}

void timeline_print(FILE *file, const text_style *style, const timeline *t, bool legend) {
  fprintf(file, "  %s\n", t->title);
  for (int row = ROWS - 1; row >= 0; row--) print_row(file, style, t, row);
  print_traffic(file, t);
  print_ticks(file, t);
  if (legend)
    fprintf(file, "  %6s  = requests are due   ^ a collection   2 several   %s higher\n", "",
            style->utf8 ? "↑" : "^ on top:");
}

// ---- Strips ---------------------------------------------------------------------------------

static double highest(const strip *s) {
  double most = NAN;
  for (int x = 0; x < STRIP_COLUMNS; x++) most = fmax(most, s->columns[x]); // ignores a NAN
  return most;
}

// height: in eighths, as print_cell's.
static void print_strip_cell(FILE *file, const text_style *style, int height) {
  static const char signs[] = " _.:-=+*#";
  if (style->utf8)
    print_cell(file, style, height);
  else
    fputc(signs[height], file);
}

static void print_strip(FILE *file, const text_style *style, const strip *s, double top) {
  fprintf(file, "  %-8s |", s->name);
  for (int x = 0; x < STRIP_COLUMNS; x++) {
    double value = s->columns[x];
    int height = isnan(value) ? 0 : (int)lround(value / top * EIGHTHS);
    print_strip_cell(file, style, isnan(value) ? 0 : height < 1 ? 1 : height);
  }
  double most = highest(s);
  if (isnan(most))
    fputs("|      -\n", file);
  else
    fprintf(file, "| %6.0f\n", most);
}

void strips_print(FILE *file, const text_style *style, const char *title, double span_ms,
                  const strip *strips, size_t count) {
  double top = 0;
  for (size_t i = 0; i < count; i++) top = fmax(top, highest(&strips[i]));
  fprintf(file, "  %s\n", title);
  for (size_t i = 0; i < count; i++) print_strip(file, style, &strips[i], fmax(top, 1));
  char end[32];
  snprintf(end, sizeof end, "%g ms", span_ms);
  fprintf(file, "  %8s  0%*s    most\n", "", STRIP_COLUMNS - 1, end);
}

double round_up(double value) {
  double unit = pow(10, floor(log10(fmax(value, 1))));
  double steps[] = {1, 2, 5};
  for (int i = 0; i < 3; i++)
    if (value <= steps[i] * unit) return steps[i] * unit;
  return 10 * unit;
}
