// SPDX-License-Identifier: MIT
// The progress bar; see progress.h. It appears once a second has shown that the run will take more
// than two, and is drawn at most ten times a second.
#include "progress.h"
#include "wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 30, LINE_BYTES = 160 };

static const char *bar_label;
static uint64_t started_ns;
static uint64_t drawn_ns;
static int drawn_length; // characters on the screen; 0: none
static bool on_terminal;

void progress_start(const char *label) {
  bar_label = label;
  started_ns = drawn_ns = now_ns();
  drawn_length = 0;
  on_terminal = isatty(STDERR_FILENO);
}

static int terminal_width(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Spaces instead of escape sequences: every terminal has them.
static void draw(const char *line) {
  int length = (int)strlen(line);
  fprintf(stderr, "\r%s%*s", line, drawn_length > length ? drawn_length - length : 0, "");
  drawn_length = length;
}

void progress_show(double share) {
  if (!on_terminal || share <= 0) return;
  if (share > 1) share = 1;
  uint64_t now = now_ns();
  double elapsed = (double)(now - started_ns) * 1e-9;
  if (elapsed < 1 || elapsed / share < 2 || now - drawn_ns < 100 * 1000 * 1000) return;
  drawn_ns = now;

  char line[LINE_BYTES], bar[BAR_CELLS + 1];
  int filled = (int)(share * BAR_CELLS);
  for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
  bar[BAR_CELLS] = '\0';
  int left = (int)(elapsed / share - elapsed + 0.5);
  snprintf(line, sizeof line, "%s [%s] %3d %%, %d:%02d left", bar_label, bar, (int)(share * 100),
           left / 60, left % 60);
  int width = terminal_width();
  if (width <= (int)strlen(line)) line[width > 1 ? width - 1 : 0] = '\0';
  draw(line);
}

void progress_end(void) {
  if (drawn_length == 0) return;
  draw("");
  fputc('\r', stderr);
}
