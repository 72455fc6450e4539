// SPDX-License-Identifier: MIT
// A progress bar on standard error, for runs of more than two seconds and only on a terminal. A run
// that `tidepool all` has started draws none, but tells how far it is.
#ifndef TIDEPOOL_TOOL_PROGRESS_H
#define TIDEPOOL_TOOL_PROGRESS_H

// The environment variable in which a run finds the descriptor of the pipe that it tells. A line
// has one share.
#define PROGRESS_VARIABLE "TIDEPOOL_PROGRESS_FD"

// The clock starts. label says what runs and must stay valid.
void progress_start(const char *label);

// share: how much of the run is over, 0 to 1. Cheap enough to be called for every burst.
void progress_show(double share);

// Takes the bar off the screen. Also before anything else is printed.
void progress_end(void);

#endif
