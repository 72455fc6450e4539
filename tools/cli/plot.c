// SPDX-License-Identifier: MIT
// Draws a plot into a grid of characters; see plot.h. In UTF-8 with fuller marks, else in ASCII.
#include "plot.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 61, ROWS = 17, MARKS = 6 };
// What a cell holds; FIRST_MARK and up are the marks of the series.
enum { EMPTY, LINE, SEVERAL, FIRST_MARK };

static const char *const marks_utf8[MARKS] = {"●", "▲", "■", "○", "△", "□"};
static const char *const marks_ascii[MARKS] = {"o", "x", "#", "@", "%", "&"};
static const int colours[MARKS] = {36, 33, 35, 32, 34, 31};

typedef struct grid {
  unsigned char at[ROWS][COLUMNS];
} grid;

static void print_mark(FILE *file, const text_style *style, size_t series) {
  size_t mark = series % MARKS;
  if (style->colour) fprintf(file, "\033[%dm", colours[mark]);
  fputs(style->utf8 ? marks_utf8[mark] : marks_ascii[mark], file);
  if (style->colour) fputs("\033[0m", file);
}

static void print_cell(FILE *file, const text_style *style, unsigned char what) {
  if (what == EMPTY)
    fputc(' ', file);
  else if (what == LINE)
    fputs(style->utf8 ? "·" : ".", file);
  else if (what == SEVERAL)
    fputc('*', file);
  else
    print_mark(file, style, what - FIRST_MARK);
}

static bool has_several(const grid *g) {
  return memchr(g, SEVERAL, sizeof *g) != NULL;
}

static int row_of(double y) {
  return (int)lround((1 - y) * (ROWS - 1));
}

static void fill(grid *g, const plot *p) {
  for (int x = 0; x < COLUMNS; x++) {
    int row = row_of(p->line(x * p->x_highest / (COLUMNS - 1)));
    if (row >= 0 && row < ROWS) g->at[row][x] = LINE;
  }
  for (size_t i = 0; i < p->point_count; i++) {
    const plot_point *point = &p->points[i];
    long x = lround(point->x / p->x_highest * (COLUMNS - 1));
    int row = row_of(point->y);
    if (x < 0 || x >= COLUMNS || row < 0 || row >= ROWS) continue;
    unsigned char *at = &g->at[row][x], mark = (unsigned char)(FIRST_MARK + point->series % MARKS);
    *at = *at == EMPTY || *at == LINE || *at == mark ? mark : SEVERAL;
  }
}

// The horizontal axis with a tick for every half.
static void print_axis(FILE *file, const plot *p) {
  char ticks[COLUMNS + 8] = "";
  int used = 0;
  fprintf(file, "  %4s +", "");
  for (int x = 0; x < COLUMNS; x++) fputc('-', file);
  for (double x = 0; x <= p->x_highest + 1e-9; x += 0.5) {
    int at = (int)lround(x / p->x_highest * (COLUMNS - 1));
    int space = at - 1 - used;
    if (x > 0 && space < 1) continue;
    used += snprintf(ticks + used, sizeof ticks - (size_t)used, "%*s%.1f", space < 0 ? 0 : space,
                     "", x);
  }
  fprintf(file, "\n  %4s  %s  %s\n", "", ticks, p->x_label);
}

void plot_print(FILE *file, const text_style *style, const plot *p) {
  grid g = {{{0}}};
  fill(&g, p);
  fprintf(file, "  %s\n", p->y_label);
  for (int row = 0; row < ROWS; row++) {
    double y = 1 - (double)row / (ROWS - 1);
    if (row % 4 == 0)
      fprintf(file, "  %4.2f |", y);
    else
      fprintf(file, "  %4s |", "");
    int last = COLUMNS;
    while (last > 0 && g.at[row][last - 1] == EMPTY) last--;
    for (int x = 0; x < last; x++) print_cell(file, style, g.at[row][x]);
    fputc('\n', file);
  }
  print_axis(file, p);
  fprintf(file, "  %s %s", style->utf8 ? "·" : ".", p->line_name);
  for (size_t i = 0; i < p->series_count; i++) {
    fputs("   ", file);
    print_mark(file, style, i);
    fprintf(file, " %s", p->series_names[i]);
  }
  if (has_several(&g)) fputs("   * several", file);
  fputc('\n', file);
}
