// SPDX-License-Identifier: MIT
// Figures: numbers as CSV and a gnuplot script beside the page, and the picture in it.
//
// A section writes the rows of the CSV and the plot commands; what all scripts have in common (the
// palette, sizes, three forms of output) is here. A script can be run by hand in the directory of
// the report and draws plots/NAME.svg, plots/NAME-narrow.svg for a phone, and plots/NAME.png.
#ifndef TIDEPOOL_TOOL_REPORT_FIGURE_H
#define TIDEPOOL_TOOL_REPORT_FIGURE_H

#include "report_page.h"

typedef struct figure {
  const char *name;
  const char *title;       // what it is, for who cannot see it
  const char *description; // the same in a sentence or two
  double width, height;    // of the picture; 0: the usual
  double narrow_height;    // 0: the usual
  FILE *csv;               // rows, after a line of headings
  FILE *script;            // commands of gnuplot up to and with `plot`
  char *csv_text, *script_text;
  size_t csv_bytes, script_bytes;
} figure;

// Colours have names in scripts: ink, muted, grid, rule, and these for series 0, 1, ...
enum { FIGURE_COLOURS = 6 };

// Opens the two streams. Ends the program with status 1 when there is no memory.
void figure_start(figure *f);

// A number for a CSV file, nothing where it is not known, with a comma or newline behind it.
void figure_number(figure *f, double value, char behind);
// Text that neither CSV nor gnuplot takes for anything else; odd characters become a "?".
void figure_text(FILE *file, const char *text);

// A legend above the plot: so many entries, and columns of them where there is width and where
// there is not. gnuplot makes them fewer when it takes the plot for too narrow. inside: a place
// within the plot ("1, graph 1 top right") that is free where there is width; else NULL.
typedef struct figure_key {
  size_t entries, columns, narrow_columns;
  const char *inside;
} figure_key;

void figure_place_key(figure *f, const figure_key *k);

// Writes the files, draws, and puts the figure with the caption into the page. Complains and
// returns false when a file cannot be written.
bool figure_end(page *p, figure *f, const char *caption, ...) __attribute__((format(printf, 3, 4)));

// In place of figure_end, when there turned out to be nothing to draw.
void figure_drop(figure *f);

// The colours for the style sheet: variables for light or dark paper.
void figure_print_colours(FILE *file, bool dark);

#endif
