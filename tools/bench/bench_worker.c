// SPDX-License-Identifier: MIT
// One run of `tidepool bench`: finds the peer's worker, starts it in a process of its own and reads
// what it prints, until it ends, takes too long, or the user has had enough.
#include "bench.h"
#include "command.h"
#include "programs.h"
#include "wait.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tidepool.h>
#include <unistd.h>

extern char **environ;

// ---- Where workers are ----------------------------------------------------------------------

// Tidepool's is there once for each engine.
static bool worker_path(const bench_peer *peer, char path[PATH_MAX]) {
  char name[64];
  bool other = peer == &bench_peers[TIDEPOOL] && strcmp(tide_engine(), "native") != 0;
  snprintf(name, sizeof name, "%s%s%s", peer->worker, other ? "-" : "", other ? tide_engine() : "");
  return program_find(name, path);
}

bool worker_built(const bench_peer *peer) {
  char path[PATH_MAX];
  return worker_path(peer, path);
}

bool worker_exists(const bench_peer *peer) {
  char path[PATH_MAX];
  if (worker_path(peer, path)) return true;
  if (peer->package)
    complain("%s: %s was not built: install %s, then configure and build again", peer->name,
             peer->worker, peer->package);
  else
    complain("%s: %s is neither beside the command nor there", peer->name, path);
  return false;
}

// ---- The process ----------------------------------------------------------------------------

typedef struct stream {
  int fd; // -1: closed
  char *text;
  size_t used, room;
} stream;

typedef struct process {
  pid_t id;
  stream out, err;
} process;

static void close_stream(stream *s) {
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
}

// Returns the error number.
static int start(process *p, const char *path, char **arguments) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return errno;
  if (pipe2(err, O_CLOEXEC) != 0) {
    int error = errno;
    close(out[0]);
    close(out[1]);
    return error;
  }
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err[1], STDERR_FILENO);
  // A group of its own: Ctrl-C is for the command, which ends the worker and all that it started.
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  int error = posix_spawn(&p->id, path, &files, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(out[1]);
  close(err[1]);
  p->out.fd = out[0];
  p->err.fd = err[0];
  if (error) {
    close_stream(&p->out);
    close_stream(&p->err);
  }
  return error;
}

// Reads what there is. What does not fit is dropped, so that the worker never waits for a reader.
static void read_some(stream *s) {
  char text[4096];
  ssize_t length = read(s->fd, text, sizeof text);
  if (length < 0 && errno == EINTR) return;
  if (length <= 0) {
    close_stream(s);
    return;
  }
  size_t room = s->room - 1 - s->used;
  size_t kept = (size_t)length < room ? (size_t)length : room;
  memcpy(s->text + s->used, text, kept);
  s->used += kept;
  s->text[s->used] = '\0';
}

// Until both streams are closed. Returns false when it took too long or the user interrupted.
static bool read_all(process *p, uint64_t end_ns) {
  while (p->out.fd >= 0 || p->err.fd >= 0) {
    if (interrupted() || now_ns() >= end_ns) return false;
    struct pollfd fds[2] = {{p->out.fd, POLLIN, 0}, {p->err.fd, POLLIN, 0}};
    // Short enough for a signal that comes just before the wait.
    if (poll(fds, 2, 100) <= 0) continue;
    if (fds[0].revents) read_some(&p->out);
    if (fds[1].revents) read_some(&p->err);
  }
  return true;
}

// A process that has closed its streams is about to end; one that is not is given no more time than
// any other.
static bool await_exit(const process *p, int *status, uint64_t end_ns) {
  for (;;) {
    pid_t found = waitpid(p->id, status, WNOHANG);
    if (found == p->id) return true;
    if (interrupted() || now_ns() >= end_ns) return false;
    usleep(200);
  }
}

// Ends the worker and all that it started.
static void end_process(process *p) {
  kill(-p->id, SIGKILL);
  while (waitpid(p->id, NULL, 0) < 0 && errno == EINTR) continue;
}

static void complain_status(const char *name, const char *workload, int status, char *said) {
  char *end = strpbrk(said, "\r\n");
  if (end) *end = '\0';
  const char *colon = *said ? ": " : "";
  if (WIFSIGNALED(status))
    complain("%s: the worker crashed in %s (%s)%s%s", name, workload, strsignal(WTERMSIG(status)),
             colon, said);
  else
    complain("%s: the worker failed in %s with status %d%s%s", name, workload, WEXITSTATUS(status),
             colon, said);
}

worker_outcome worker_run(const bench_peer *peer, char **arguments, double seconds,
                          worker_result *result) {
  char path[PATH_MAX], said[512] = "";
  process p = {.out = {-1, result->text, 0, sizeof result->text},
               .err = {-1, said, 0, sizeof said}};
  result->text[0] = '\0';
  worker_path(peer, path); // was there before the first run; if it has gone, it cannot be started
  arguments[0] = path;
  uint64_t start_ns = now_ns();
  int error = start(&p, path, arguments);
  if (error) {
    complain("%s: cannot start %s: %s", peer->name, path, strerror(error));
    return WORKER_FAILED;
  }
  int status = 0;
  uint64_t end_ns = start_ns + (uint64_t)(seconds * 1e9);
  bool ended = read_all(&p, end_ns);
  result->seconds = (double)(now_ns() - start_ns) * 1e-9;
  ended = ended && await_exit(&p, &status, end_ns);
  if (!ended) end_process(&p);
  close_stream(&p.out);
  close_stream(&p.err);
  if (!ended && interrupted()) return WORKER_INTERRUPTED;
  if (!ended)
    complain("%s: the worker hangs in %s: not done after %.0f s (see --timeout)", peer->name,
             arguments[1], seconds);
  else if (status != 0)
    complain_status(peer->name, arguments[1], status, said);
  return ended && status == 0 ? WORKER_DONE : WORKER_FAILED;
}
