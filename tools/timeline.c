// SPDX-License-Identifier: MIT
// Draws a picture over time; see timeline.h. In UTF-8 a bar ends in eighths of a row, in ASCII in
// whole rows.
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
  fprintf(file, "  %6s +", "0");
  for (int x = 0; x < TIMELINE_COLUMNS; x++) fputc(t->columns[x].traffic ? '=' : '-', file);
  fprintf(file, "\n  %6s  ", "");
  int last = TIMELINE_COLUMNS;
  while (last > 0 && !t->columns[last - 1].marks) last--;
  for (int x = 0; x < last; x++)
    fputc(t->columns[x].marks > 1 ? '2' : t->columns[x].marks ? '^' : ' ', file);
  fputc('\n', file);
}

void timeline_print(FILE *file, const text_style *style, const timeline *t, bool legend) {
  fprintf(file, "  %s, %s\n", t->title, t->unit);
  for (int row = ROWS - 1; row >= 0; row--) print_row(file, style, t, row);
  print_traffic(file, t);
  if (legend)
    fprintf(file, "  %6s  %.0f ms; %s more than that; = requests are due; ^ a collection, 2: two\n",
            "", t->span_ms, style->utf8 ? "↑" : "^");
}
