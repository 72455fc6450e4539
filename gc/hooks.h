// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_HOOKS_H
#define TIDEPOOL_HOOKS_H

#include <tidepool/gc.h>

// Held by the collecting thread from before the stop until after the restart, so that the lists are
// whole while the world is stopped.
void hooks_lock(void);
void hooks_unlock(void);
void hooks_run_stopped(tide_hook_point point, const tide_cycle *cycle); // lock held
void hooks_run_end(const tide_cycle *cycle);                            // lock not held
void hooks_after_fork(void);                                            // in the child, lock held

#endif
