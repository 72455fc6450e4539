// SPDX-License-Identifier: MIT
// Marks in plots; see report_marks.h.
#include "report_marks.h"

#include <math.h>
#include <string.h>

size_t mark_of(marks *m, const char *name, const char *engine) {
  bool open = *engine && strcmp(engine, "native") != 0;
  char whole[MARK_BYTES];
  snprintf(whole, sizeof whole, "%s%s%s", name, open ? ", " : "", open ? engine : "");
  size_t i = 0;
  while (i < m->count && strcmp(m->names[i], whole) != 0) i++;
  if (i < m->count) return i;
  if (m->count == MARKS_MAX) return MARKS_MAX - 1;
  memcpy(m->names[i], whole, sizeof whole);
  snprintf(m->kinds[i], sizeof m->kinds[i], "%s", name);
  m->open[i] = open;
  return m->count++;
}

size_t marks_colour(const marks *m, size_t series) {
  size_t colour = 0;
  for (size_t i = 0; i < series; i++) {
    bool first = true;
    for (size_t j = 0; j < i; j++)
      if (strcmp(m->kinds[j], m->kinds[i]) == 0) first = false;
    if (strcmp(m->kinds[i], m->kinds[series]) == 0) return colour % FIGURE_COLOURS;
    colour += first;
  }
  return colour % FIGURE_COLOURS;
}

// Whether the legend has the same with a filled mark.
static bool is_second(const marks *m, size_t series) {
  for (size_t i = 0; i < m->count && m->open[series]; i++)
    if (!m->open[i] && strcmp(m->kinds[i], m->kinds[series]) == 0) return true;
  return false;
}

static bool any_second(const marks *m) {
  for (size_t i = 0; i < m->count; i++)
    if (is_second(m, i)) return true;
  return false;
}

size_t marks_entries(const marks *m) {
  size_t count = any_second(m);
  for (size_t i = 0; i < m->count; i++) count += !is_second(m, i);
  return count;
}

void marks_plot(figure *f, const marks *m, const char *x, const char *y) {
  static const int filled[FIGURE_COLOURS] = {7, 9, 5, 13, 11, 15};
  for (size_t i = 0; i < m->count; i++) {
    size_t colour = marks_colour(m, i);
    fprintf(f->script,
            ", \\\n  data using (column('series') == %zu ? column('%s') : NaN):'%s' with points "
            "pointtype %d pointsize %s linecolor rgb series%zu title '",
            i, x, y, filled[colour] - (m->open[i] ? 1 : 0),
            m->open[i] ? "1.1 linewidth 1.6" : "0.9", colour);
    if (!is_second(m, i)) figure_text(f->script, m->names[i]);
    fputc('\'', f->script);
  }
  if (any_second(m))
    fputs(
        ", \\\n  keyentry with points pointtype 6 pointsize 1.1 linewidth 1.6 linecolor rgb muted "
        "title 'open: bdw'",
        f->script);
}

json_t *rows_of_one_rate(const json_t *rows) {
  json_t *chosen = json_array();
  double rate = NAN;
  size_t index;
  json_t *row;
  json_array_foreach(rows, index, row) {
    double found = number_in_row(row, "rate_mb_s");
    if (index == 0 || found == 200) rate = found;
  }
  json_array_foreach(rows, index, row) if (number_in_row(row, "rate_mb_s") == rate)
      json_array_append(chosen, row);
  return chosen;
}

const char *counted(size_t count, const char *noun) {
  static char texts[4][64];
  static unsigned next;
  char *text = texts[next++ % 4];
  snprintf(text, sizeof texts[0], "%zu %s%s", count, noun, count == 1 ? "" : "s");
  return text;
}
