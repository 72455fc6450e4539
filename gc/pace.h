// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_PACE_H
#define TIDEPOOL_PACE_H

#include "engine.h"
#include "pacer.h"

// At the start, from the options.
void pace_init(const tide_options *options);

// Whether the heap's growth has a collection due, or the limit has, before `request` bytes more are
// taken, and why.
bool pace_due(rt_thread *self, size_t request, tide_cause *cause);
// The same for one reason.
bool pace_goal_reached(void);
bool pace_limit_reached(size_t request);
// With so many external bytes, the last ones just added, pace_due may say yes. Quick, for
// tide_external_add.
bool pace_worth_a_look(uint64_t external_bytes, uint64_t added);

// With the world stopped: what was found live. Returns the next goal.
uint64_t pace_marked(const engine_live *live);

uint64_t pace_goal(void);       // in force; PACER_NO_GOAL: none
uint64_t pace_heap_goal(void);  // what of it is for the heap, external bytes left out; 0: none
uint64_t pace_soft_limit(void); // PACER_NO_LIMIT: none
bool pace_is_off(void);         // GC percent
void pace_memory(pacer_memory *memory);
// How much of the heap's free memory may stay, with `needed` the largest heap size to be prepared
// for, without external bytes, and `request` bytes more to be taken.
size_t pace_keep_bytes(uint64_t needed, size_t request);

void pace_stats(tide_memstats *stats);
void pace_lock_take(void); // for fork
void pace_lock_give(void);

#endif
