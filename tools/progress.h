// SPDX-License-Identifier: MIT
// A progress bar on standard error, for runs of more than two seconds and only on a terminal.
#ifndef TIDEPOOL_TOOL_PROGRESS_H
#define TIDEPOOL_TOOL_PROGRESS_H

// The clock starts. label says what runs and must stay valid.
void progress_start(const char *label);

// share: how much of the run is over, 0 to 1. Cheap enough to be called for every burst.
void progress_show(double share);

// Takes the bar off the screen. Also before anything else is printed.
void progress_end(void);

#endif
