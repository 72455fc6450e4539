// SPDX-License-Identifier: MIT
// The library's own files; see out_file.h.
#define _GNU_SOURCE
#include "out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool out_file_name(out_file *file, const char *pattern) {
  size_t used = 0;
  for (const char *p = pattern; *p; p++) {
    size_t room = sizeof file->path - used;
    bool pid = p[0] == '%' && p[1] == 'p';
    int wrote = pid ? snprintf(file->path + used, room, "%d", (int)getpid())
                    : snprintf(file->path + used, room, "%c", *p);
    if ((size_t)wrote >= room) return false;
    used += (size_t)wrote;
    p += pid;
  }
  return used > 0;
}

static int open_above_standard(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return higher;
}

// For this process alone, and empty. A file system without locks is trusted.
static bool take(int fd, struct stat *status) {
  if (fstat(fd, status) != 0) return false;
  if (!S_ISREG(status->st_mode)) return true;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    errno = EBUSY;
    return false;
  }
  return ftruncate(fd, 0) == 0;
}

int out_file_open(out_file *file) {
  struct stat status;
  int fd = open_above_standard(file->path);
  if (fd < 0) return -1;
  if (!take(fd, &status)) {
    int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  file->device = status.st_dev;
  file->inode = status.st_ino;
  return fd;
}

bool out_file_is_ours(int fd, const out_file *file) {
  struct stat now;
  if (fstat(fd, &now) != 0) return false;
  errno = EBADF;
  return now.st_dev == file->device && now.st_ino == file->inode;
}

static bool write_all(int fd, const char *text, size_t bytes, off_t at) {
  while (bytes) {
    ssize_t wrote = pwrite(fd, text, bytes, at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return false;
    text += wrote;
    at += wrote;
    bytes -= (size_t)wrote;
  }
  return true;
}

// Where a file would become larger than it may (ulimit -f), the kernel sends a signal besides,
// which would end the program.
bool out_file_write(int fd, const char *text, size_t bytes, off_t at) {
  sigset_t too_large, before, pending;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  sigpending(&pending);
  bool written = write_all(fd, text, bytes, at);
  int error = errno;
  // Not sigtimedwait, which is a cancellation point. One that was waiting before is not ours.
  if (!written && !sigismember(&pending, SIGXFSZ))
    syscall(SYS_rt_sigtimedwait, &too_large, NULL, &(struct timespec){0, 0}, (size_t)(_NSIG / 8));
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return written;
}
