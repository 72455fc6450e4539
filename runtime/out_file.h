// SPDX-License-Identifier: MIT
// A file that the library writes on its own behalf while the program runs: the trace of events, the
// recording of allocations.
//
// The program may close all files that it does not know, as daemons do, and open others: so whoever
// writes asks first whether the descriptor still is its file. Written is at a place, not at the
// descriptor's own, and without stdio, as the program may leave from anywhere.
#ifndef TIDEPOOL_OUT_FILE_H
#define TIDEPOOL_OUT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct out_file {
  dev_t device;
  ino_t inode;
  char path[PATH_MAX];
} out_file;

// Makes file->path; `%p` becomes the process's id. False: empty or too long.
bool out_file_name(out_file *file, const char *pattern);
// Opens file->path, empty, and returns the descriptor: none of those that programs take for
// granted. A pipe that nobody reads is refused rather than waited for; so is a file that has been
// opened by this for something else, also in another process. -1: errno says why.
int out_file_open(out_file *file);
// False, with errno set: it is not, or no more.
bool out_file_is_ours(int fd, const out_file *file);
// False, with errno set: not all of it is written.
bool out_file_write(int fd, const char *text, size_t bytes, off_t at);

#endif
