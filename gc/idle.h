// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_IDLE_H
#define TIDEPOOL_IDLE_H

void idle_start(void);           // after a collection, no lock held
void idle_percent_changed(void); // not pinned, no lock held
void idle_leave(void);           // the last thread leaves the heap
void idle_after_fork(void);      // in the child

#endif
