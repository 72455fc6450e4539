// SPDX-License-Identifier: MIT
// Tables as text, CSV and JSON lines, and the files of --out; see output.h.
#include "output.h"
#include "command.h"

#include <errno.h>
#include <jansson.h>
#include <langinfo.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BAR_CELLS = 20, CELL_BYTES = 128, PARAGRAPH_COLUMNS = 78 };
enum { MORE = sizeof((report){0}.more) / sizeof((report){0}.more[0]) };

void table_add(table *t, const cell *row) {
  size_t width = t->column_count;
  cell *cells = realloc(t->cells, (t->row_count + 1) * width * sizeof *cells);
  if (!cells) {
    complain("no memory for the results");
    exit(STATUS_FAILED);
  }
  memcpy(cells + t->row_count * width, row, width * sizeof *row);
  t->cells = cells;
  t->row_count++;
}

void table_free(table *t) {
  free(t->cells);
  t->cells = NULL;
  t->row_count = 0;
}

// ---- Text -----------------------------------------------------------------------------------

void paragraph_print(FILE *file, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t used = 0;
  for (char *rest = text, *word; (word = strsep(&rest, " "));) {
    size_t length = strlen(word);
    bool wraps = used > 0 && used + 1 + length > PARAGRAPH_COLUMNS;
    fputs(used == 0 ? "" : wraps ? "\n" : " ", file);
    for (const char *c = word; *c; c++) fputc(*c == '~' ? ' ' : *c, file);
    used = used == 0 || wraps ? length : used + 1 + length;
  }
  fputc('\n', file);
}

// A bar of up to 20 character cells; in UTF-8 the last one may be filled by eighths.
static void bar_text(char *text, const text_style *style, double share) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int parts = (int)lround(fmin(fmax(share, 0), 1) * BAR_CELLS * 8);
  *text = '\0';
  if (!style->utf8) parts = (parts + 4) / 8 * 8;
  for (; parts >= 8; parts -= 8) strcat(text, style->utf8 ? "█" : "#");
  strcat(text, eighths[parts]);
}

static void cell_text(char *text, const text_style *style, const column *c, cell value) {
  switch (c->type) {
  case COLUMN_TEXT:
    snprintf(text, CELL_BYTES, "%s", value.text);
    break;
  case COLUMN_COUNT:
  case COLUMN_BYTES:
    if (value.count == COUNT_OFF)
      strcpy(text, "off");
    else if (c->type == COLUMN_BYTES)
      snprintf(text, CELL_BYTES, "%s", size_text((uint64_t)value.count));
    else
      snprintf(text, CELL_BYTES, "%lld", (long long)value.count);
    break;
  case COLUMN_REAL:
    if (!isfinite(value.real))
      strcpy(text, "-");
    else if (c->digits < 0)
      snprintf(text, CELL_BYTES, "%.12g", value.real);
    else
      snprintf(text, CELL_BYTES, "%.*f", c->digits, value.real);
    break;
  case COLUMN_FLAG:
    strcpy(text, value.flag ? "yes" : "no");
    break;
  case COLUMN_BAR:
    bar_text(text, style, value.real);
    break;
  }
}

static bool left_aligned(const column *c) {
  return c->type == COLUMN_TEXT || c->type == COLUMN_BAR;
}

static int width_of(const text_style *style, const table *t, size_t index) {
  const column *c = &t->columns[index];
  char text[CELL_BYTES];
  int width = (int)strlen(c->heading);
  if (c->type == COLUMN_BAR) return width; // the last one; nothing to align behind it
  for (size_t row = 0; row < t->row_count; row++) {
    cell_text(text, style, c, t->cells[row * t->column_count + index]);
    if ((int)strlen(text) > width) width = (int)strlen(text);
  }
  return width;
}

// Prints one line: the headings, or the cells of a row. Spaces go in front of the next text, so
// that no line ends in any.
static void print_line(FILE *file, const text_style *style, const table *t, const int *widths,
                       const cell *row) {
  char text[CELL_BYTES];
  int owed = 0;
  for (size_t i = 0; i < t->column_count; i++) {
    const column *c = &t->columns[i];
    if (!c->heading) continue;
    if (row)
      cell_text(text, style, c, row[i]);
    else
      strcpy(text, c->heading);
    int space = widths[i] - (int)strlen(text);
    if (space < 0) space = 0;
    int before = left_aligned(c) ? 0 : space;
    if (*text) {
      fprintf(file, "%*s%s", owed + before, "", text);
      owed = 2 + space - before;
    } else {
      owed += 2 + space;
    }
  }
  fputc('\n', file);
}

void table_print(FILE *file, const text_style *style, const table *t) {
  int widths[64] = {0};
  for (size_t i = 0; i < t->column_count; i++)
    if (t->columns[i].heading) widths[i] = width_of(style, t, i);
  print_line(file, style, t, widths, NULL);
  for (size_t row = 0; row < t->row_count; row++)
    print_line(file, style, t, widths, t->cells + row * t->column_count);
}

// ---- CSV and JSON ---------------------------------------------------------------------------

static void print_csv_text(FILE *file, const char *text) {
  if (!strpbrk(text, ",\"\n\r")) {
    fputs(text, file);
    return;
  }
  fputc('"', file);
  for (; *text; text++) {
    if (*text == '"') fputc('"', file);
    fputc(*text, file);
  }
  fputc('"', file);
}

static bool is_known(const column *c, cell value) {
  if (c->type == COLUMN_COUNT || c->type == COLUMN_BYTES) return value.count != COUNT_OFF;
  return c->type != COLUMN_REAL || isfinite(value.real);
}

static void print_csv_cell(FILE *file, const column *c, cell value) {
  char text[CELL_BYTES];
  if (!is_known(c, value)) return;
  if (c->type == COLUMN_TEXT) {
    print_csv_text(file, value.text);
  } else if (c->type == COLUMN_FLAG) {
    fputs(value.flag ? "true" : "false", file);
  } else if (c->type == COLUMN_BYTES) {
    fprintf(file, "%lld", (long long)value.count);
  } else {
    cell_text(text, &(text_style){0}, c, value);
    fputs(text, file);
  }
}

static void table_print_csv(FILE *file, const table *t) {
  for (size_t row = 0; row <= t->row_count; row++) {
    const char *separator = "";
    for (size_t i = 0; i < t->column_count; i++) {
      const column *c = &t->columns[i];
      if (!c->field) continue;
      fputs(separator, file);
      separator = ",";
      if (row == 0)
        fputs(c->field, file);
      else
        print_csv_cell(file, c, t->cells[(row - 1) * t->column_count + i]);
    }
    fputc('\n', file);
  }
}

static double rounded(double value, int digits) {
  double scale = pow(10, digits);
  return digits < 0 ? value : round(value * scale) / scale;
}

static json_t *cell_json(const column *c, cell value) {
  if (!is_known(c, value)) return json_null();
  switch (c->type) {
  case COLUMN_TEXT:
    return json_string(value.text);
  case COLUMN_COUNT:
  case COLUMN_BYTES:
    return json_integer(value.count);
  case COLUMN_REAL:
    return json_real(rounded(value.real, c->digits));
  case COLUMN_FLAG:
    return json_boolean(value.flag);
  case COLUMN_BAR:
    break;
  }
  return NULL;
}

// One object a line. jansson reports errors of the file as well as its own lack of memory.
static bool table_print_json(FILE *file, const table *t) {
  for (size_t row = 0; row < t->row_count; row++) {
    json_t *object = json_object();
    bool good = object != NULL;
    for (size_t i = 0; good && i < t->column_count; i++) {
      const column *c = &t->columns[i];
      if (!c->field) continue;
      json_t *value = cell_json(c, t->cells[row * t->column_count + i]);
      good = json_object_set_new(object, c->field, value) == 0;
    }
    // Twelve significant digits: a rounded 0.1 stays 0.1.
    good = good && json_dumpf(object, file, JSON_REAL_PRECISION(12)) == 0;
    json_decref(object);
    if (!good) return false;
    fputc('\n', file);
  }
  return true;
}

// ---- Reports --------------------------------------------------------------------------------

static text_style style_for(FILE *file) {
  const char *no_colour = getenv("NO_COLOR");
  const char *terminal = getenv("TERM");
  bool dumb = !terminal || !*terminal || strcmp(terminal, "dumb") == 0;
  return (text_style){
      .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
      .colour = !(no_colour && *no_colour) && !dumb && isatty(fileno(file)),
  };
}

// Returns false with errno set; also when an earlier write to the file failed.
static bool print_form(FILE *file, const report *r, const char *format) {
  errno = 0;
  if (strcmp(format, "json") == 0) {
    bool good = table_print_json(file, r->rows);
    if (good && r->summary) good = table_print_json(file, r->summary);
    for (size_t i = 0; good && i < MORE && r->more[i]; i++)
      good = table_print_json(file, r->more[i]);
    if (!good) return false;
  } else if (strcmp(format, "csv") == 0) {
    table_print_csv(file, r->rows);
  } else {
    text_style style = style_for(file);
    r->text(file, &style, r->data);
  }
  return fflush(file) == 0 && !ferror(file);
}

static const char *error_text(void) {
  return errno ? strerror(errno) : "out of memory";
}

static bool write_file(const report *r, const char *directory, const char *format) {
  char *path;
  const char *suffix = strcmp(format, "table") == 0 ? "txt" : format;
  if (asprintf(&path, "%s/%s.%s", directory, r->experiment, suffix) < 0) {
    complain("no memory for the results");
    return false;
  }
  FILE *file = fopen(path, "w");
  bool good = file && print_form(file, r, format);
  int error = errno;
  if (file && fclose(file) != 0 && good) {
    good = false;
    error = errno;
  }
  errno = error;
  if (!good) complain("cannot write %s: %s", path, error_text());
  free(path);
  return good;
}

bool out_write_csv(const char *directory, const char *name, const table *t) {
  return write_file(&(report){.experiment = name, .rows = t}, directory, "csv");
}

bool out_prepare(const char *directory) {
  if (!directory) return true;
  char *path = strdup(directory);
  bool good = path != NULL;
  // Each parent in turn; one that exists is no error.
  for (char *slash = path; good && slash;) {
    slash = strchr(slash + 1, '/');
    if (slash) *slash = '\0';
    good = mkdir(path, 0777) == 0 || errno == EEXIST;
    if (slash) *slash = '/';
  }
  struct stat status;
  if (good) good = stat(directory, &status) == 0;
  if (good && !S_ISDIR(status.st_mode)) {
    good = false;
    errno = ENOTDIR;
  }
  if (good) good = access(directory, W_OK | X_OK) == 0;
  if (!good) complain("--out: cannot write to '%s': %s", directory, error_text());
  free(path);
  return good;
}

bool report_save(const report *r, const char *directory) {
  static const char *const forms[] = {"table", "csv", "json"};
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
    if (!write_file(r, directory, forms[i])) return false;
  return true;
}

bool report_print(const report *r, const char *format) {
  if (print_form(stdout, r, format)) return true;
  complain_stdout(errno);
  return false;
}

bool report_write(const report *r, const common_options *options) {
  if (options->out && !report_save(r, options->out)) return false;
  return report_print(r, options->format);
}

const char *size_text(uint64_t bytes) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  static char texts[4][32];
  static unsigned next;
  char *text = texts[next++ % 4];
  int unit = 0;
  double value = (double)bytes;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  snprintf(text, sizeof texts[0], value == floor(value) ? "%.0f %s" : "%.1f %s", value,
           names[unit]);
  return text;
}
