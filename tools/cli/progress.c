// SPDX-License-Identifier: MIT
// The progress bar; see progress.h. It appears once a second has shown that the run will take more
// than two, and is drawn at most ten times a second.
#include "progress.h"
#include "wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BAR_CELLS = 30, LINE_BYTES = 160 };
static const uint64_t tell_every_ns = 100 * 1000 * 1000;

static const char *bar_label;
static uint64_t started_ns;
static uint64_t drawn_ns;
static int drawn_length; // characters on the screen; 0: none
static bool on_terminal;
static int listener = -1; // a pipe; -1: nobody asked

// Whatever the variable holds, nothing but a pipe is written to.
static int find_listener(void) {
  const char *text = getenv(PROGRESS_VARIABLE);
  int fd = text && *text ? atoi(text) : -1;
  struct stat status;
  return fd > STDERR_FILENO && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? fd : -1;
}

static void tell(double share) {
  char line[32];
  int length = snprintf(line, sizeof line, "%.4f\n", share);
  (void)!write(listener, line, (size_t)length);
}

void progress_start(const char *label) {
  bar_label = label;
  listener = find_listener();
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
  if ((!on_terminal && listener < 0) || share <= 0) return;
  if (share > 1) share = 1;
  uint64_t now = now_ns();
  if (listener >= 0) {
    if (now - drawn_ns < tell_every_ns) return;
    drawn_ns = now;
    tell(share);
    return;
  }
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
