// SPDX-License-Identifier: MIT
// Reads curves, and has one built in; see curve.h.
#include "curve.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double time_highest_ms = 1e8, rate_highest = 1e5;

// Milliseconds and MB/s. Requests come in a wave, twice; in the second a batch of work runs too,
// and then there is a moment in which nearly nothing is asked.
static const double standard[][2] = {
    {0, 60},     {500, 140},  {900, 110}, {1200, 50}, {1500, 90}, {1600, 90}, {1601, 330},
    {1900, 330}, {1901, 130}, {2200, 60}, {2300, 15}, {2700, 15}, {2850, 60}, {3000, 60},
};
enum { STANDARD_POINTS = sizeof standard / sizeof standard[0] };

static bool refuse(char *error, size_t size, size_t line, const char *what) {
  snprintf(error, size, "line %zu: %s", line, what);
  return false;
}

// The number at the text, which is moved behind it; NAN where there is none. Signs, exponents,
// "inf" and "nan" are no numbers here.
static double number_at(const char **text) {
  size_t length = strspn(*text, "0123456789.");
  if (!isdigit((unsigned char)**text)) return NAN;
  char *end;
  double value = strtod(*text, &end);
  if (end != *text + length) return NAN;
  *text = end;
  return *end == '\0' || isspace((unsigned char)*end) ? value : NAN;
}

static const char *skip_space(const char *text) {
  return text + strspn(text, " \t\r\n\v\f");
}

// Two numbers and nothing else.
static bool parse_line(const char *text, curve_point *point) {
  double at_ms = number_at(&text);
  text = skip_space(text);
  double rate = number_at(&text);
  *point = (curve_point){at_ms * 1e6, rate * 1e6};
  return at_ms <= time_highest_ms && rate <= rate_highest && *skip_space(text) == '\0';
}

static bool check_whole(const curve *c, char *error, size_t size) {
  if (c->count < 2) {
    snprintf(error, size, "%s; accepted: two lines or more, 'MILLISECONDS MB/S'",
             c->count ? "only one line" : "no line");
    return false;
  }
  double length_ms = curve_length_ns(c) * 1e-6, rate = curve_mean_rate(c) * 1e-6;
  if (length_ms >= 1 && rate >= 1) return true;
  snprintf(error, size, "%g ms with a mean of %g MB/s; accepted: 1 ms and 1 MB/s, or more",
           length_ms, rate);
  return false;
}

bool curve_read(FILE *file, curve *c, char *error, size_t error_size) {
  char line[CURVE_LINE_MAX + 2];
  double first_ns = 0;
  c->count = 0;
  errno = 0;
  for (size_t number = 1; fgets(line, sizeof line, file); number++) {
    size_t length = strlen(line);
    if ((length == 0 || line[length - 1] != '\n') && !feof(file))
      return refuse(error, error_size, number, "longer than 200 characters, or not text");
    const char *text = skip_space(line);
    if (*text == '\0' || *text == '#') continue;
    if (c->count == CURVE_POINTS_MAX)
      return refuse(error, error_size, number, "more than 4096 moments are not accepted");
    curve_point *point = &c->points[c->count];
    if (!parse_line(text, point))
      return refuse(error, error_size, number,
                    "accepted: a moment in milliseconds, 0 to 1e8, and a rate in MB/s, 0 to 1e5");
    if (c->count == 0) first_ns = point->at_ns;
    point->at_ns -= first_ns;
    if (c->count && point->at_ns <= point[-1].at_ns)
      return refuse(error, error_size, number, "not later than the moment before it");
    c->count++;
  }
  if (!ferror(file)) return check_whole(c, error, error_size);
  snprintf(error, error_size, "%s", errno ? strerror(errno) : "reading failed");
  return false;
}

void curve_standard(curve *c) {
  c->count = STANDARD_POINTS;
  for (size_t i = 0; i < STANDARD_POINTS; i++)
    c->points[i] = (curve_point){standard[i][0] * 1e6, standard[i][1] * 1e6};
}

double curve_length_ns(const curve *c) {
  return c->points[c->count - 1].at_ns;
}

double curve_mean_rate(const curve *c) {
  double sum = 0;
  for (size_t i = 1; i < c->count; i++)
    sum += (c->points[i].at_ns - c->points[i - 1].at_ns) *
           (c->points[i].rate + c->points[i - 1].rate) / 2;
  return sum / curve_length_ns(c);
}
