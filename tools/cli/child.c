// SPDX-License-Identifier: MIT
// Starts a program and waits for its end; see child.h.
#include "child.h"
#include "progress.h"
#include "wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PROGRESS_FD = 3 }; // the child's

typedef struct running {
  pid_t id;
  int said, told;  // our ends of its pipes; -1: closed
  int signal_past; // that had come before it was started, or has been passed on
} running;

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// The environment with the descriptor added; the strings are shared. NULL: no memory.
static char **environment_with(char *variable) {
  size_t count = 0;
  while (environ[count]) count++;
  char **copy = calloc(count + 2, sizeof *copy);
  if (!copy) return NULL;
  copy[0] = variable;
  for (size_t i = 0, used = 1; i < count; i++)
    if (strncmp(environ[i], PROGRESS_VARIABLE "=", sizeof PROGRESS_VARIABLE) != 0)
      copy[used++] = environ[i];
  return copy;
}

// Returns the error number. said and told are the ends that the child writes to.
static int spawn(running *r, const child_spec *c, int said, int told) {
  char variable[64];
  snprintf(variable, sizeof variable, PROGRESS_VARIABLE "=%d", PROGRESS_FD);
  char **environment = environment_with(variable);
  if (!environment) return ENOMEM;
  if (!c->progress) environment[0][sizeof PROGRESS_VARIABLE] = '\0'; // none
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, said, STDERR_FILENO);
  if (c->progress) posix_spawn_file_actions_adddup2(&files, told, PROGRESS_FD);
  if (c->directory) posix_spawn_file_actions_addchdir_np(&files, c->directory);
  int error = posix_spawnp(&r->id, c->program, &files, NULL, c->arguments, environment);
  posix_spawn_file_actions_destroy(&files);
  free(environment);
  return error;
}

// A pipe whose ends are above what the child's own descriptors will be, so that none is overwritten
// while they are put in place.
static int open_pipe(int ends[2]) {
  int low[2];
  if (pipe2(low, O_CLOEXEC) != 0) return errno;
  int error = 0;
  for (int i = 0; i < 2; i++) {
    ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, PROGRESS_FD + 1);
    if (ends[i] < 0) error = errno;
    close(low[i]);
  }
  return error;
}

static int start(running *r, const child_spec *c) {
  int said[2] = {-1, -1}, told[2] = {-1, -1};
  int error = open_pipe(said);
  if (!error) error = open_pipe(told);
  if (!error) error = spawn(r, c, said[1], told[1]);
  close_end(&said[1]);
  close_end(&told[1]);
  r->said = said[0];
  r->told = told[0];
  if (error) {
    close_end(&r->said);
    close_end(&r->told);
  }
  return error;
}

// What does not fit is dropped, so that the child never waits for a reader.
static void read_said(running *r, child_result *result, size_t *used) {
  char text[4096];
  ssize_t length = read(r->said, text, sizeof text);
  if (length < 0 && errno == EINTR) return;
  if (length <= 0) {
    close_end(&r->said);
    return;
  }
  size_t room = sizeof result->said - 1 - *used;
  size_t kept = (size_t)length < room ? (size_t)length : room;
  memcpy(result->said + *used, text, kept);
  *used += kept;
  result->said[*used] = '\0';
}

// Lines with a share each; the last whole one counts. One is written at once, so it comes whole.
static void read_told(running *r, const child_spec *c) {
  char text[4096];
  ssize_t length = read(r->told, text, sizeof text - 1);
  if (length < 0 && errno == EINTR) return;
  if (length <= 0) {
    close_end(&r->told);
    return;
  }
  text[length] = '\0';
  char *end = strrchr(text, '\n');
  if (!end) return;
  *end = '\0';
  char *line = strrchr(text, '\n');
  c->progress(strtod(line ? line + 1 : text, NULL), c->arg);
}

// Returns true when the child has taken too long.
static bool look_after(running *r, uint64_t end_ns) {
  int number = interrupted();
  if (number && number != r->signal_past) {
    r->signal_past = number;
    kill(r->id, number);
  }
  return end_ns && now_ns() >= end_ns;
}

// Until it has ended, even if its streams are closed earlier or held by what it started.
static void await(running *r, const child_spec *c, child_result *result) {
  size_t used = 0;
  int status = 0;
  uint64_t end_ns = c->seconds > 0 ? now_ns() + (uint64_t)(c->seconds * 1e9) : 0;
  bool ended = false;
  while (!ended) {
    if (look_after(r, end_ns) && !result->late) {
      result->late = true;
      kill(r->id, SIGKILL);
    }
    // Short enough for a signal that comes just before the wait, and for an end without a word.
    struct pollfd fds[2] = {{r->said, POLLIN, 0}, {r->told, POLLIN, 0}};
    if (poll(fds, 2, r->said < 0 && r->told < 0 ? 5 : 50) > 0) {
      if (fds[0].revents) read_said(r, result, &used);
      if (fds[1].revents) read_told(r, c);
    }
    ended = waitpid(r->id, &status, WNOHANG) == r->id;
  }
  // What it had said before it ended.
  struct pollfd rest = {r->said, POLLIN, 0};
  while (r->said >= 0 && poll(&rest, 1, 0) > 0) read_said(r, result, &used);
  result->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void child_run(const child_spec *c, child_result *result) {
  running r = {.said = -1, .told = -1, .signal_past = interrupted()};
  result->error = result->status = 0;
  result->late = false;
  result->said[0] = '\0';
  fflush(stderr);
  result->error = start(&r, c);
  if (result->error) return;
  await(&r, c, result);
  close_end(&r.said);
  close_end(&r.told);
}
