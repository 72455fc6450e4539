// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_LIMIT_H
#define TIDEPOOL_LIMIT_H

#include "engine.h"
#include "pacer.h"

// In the API INT64_MAX means no limit.
static inline uint64_t limit_meant(int64_t bytes) {
  return bytes == INT64_MAX ? PACER_NO_LIMIT : (uint64_t)bytes;
}
static inline int64_t limit_told(uint64_t bytes) {
  return bytes == PACER_NO_LIMIT ? INT64_MAX : (int64_t)bytes;
}

void limit_init(const tide_options *options);

bool limit_matters(void); // one is set, or an episode is on, or the program thinks so

// Before `request` bytes more are taken, by a program that has set a limit: makes room for them as
// far as free memory goes, and tells the program of an episode's begin or end. May call its
// handler: no lock is held, and the thread is not pinned.
void limit_before(rt_thread *self, size_t request);
void limit_note(void); // how far above the soft limit memory is

bool limit_is_hard(void); // there is a hard limit
// Whether memory that counts may become `more` bytes more under the hard limit, with `mapped` what
// the engine has mapped and not given back. Any thread, also pinned.
bool limit_hard_allows(uint64_t mapped, uint64_t more);

// Whether a collection may start now for the soft limit's sake.
bool limit_allows(rt_thread *self);
// With the world still stopped, lest another thread takes the pause for the program's time: a
// collection has taken the time from began to ended.
void limit_collected(uint64_t began_ns, uint64_t ended_ns);
bool limit_active(void); // the limiter

void limit_stats(tide_memstats *stats); // after the engine's and pace_stats
void limit_lock_take(void);             // for fork
void limit_lock_give(void);
void limit_after_fork(void); // in the child

#endif
