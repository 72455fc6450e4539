// SPDX-License-Identifier: MIT
// Memory outside the heap that objects of the heap keep alive: how much there is, as the program
// tells it.
//
// The sum is one word, changed by one atomic addition from any thread. It counts as heap: in what
// has been allocated, as soon as it is added; in what is live, as far as it was there at the last
// collection. Memory that goes away after that, as when finalizers free it, was not live after all:
// so of what was there, the least since the last collection is what counts as live.
//
// A subtraction too many is given back to the sum by whoever made it, so the sum comes to what it
// would have been if that one had stopped at zero.
#include "external.h"
#include "cycle.h"
#include "engine.h"
#include "limit.h"
#include "pace.h"
#include "recording.h"

static struct {
  AO_t sum;   // below zero for a moment, while a subtraction too many is being given back
  AO_t least; // since the last collection
} __attribute__((aligned(128))) external;

static const int64_t most = INT64_C(1) << 60; // at a time, and four times that in all

uint64_t external_bytes(void) {
  int64_t sum = (int64_t)AO_load(&external.sum);
  return sum < 0 ? 0 : (uint64_t)sum;
}
uint64_t external_least_bytes(void) {
  return AO_load(&external.least);
}
void external_marked(void) {
  AO_store(&external.least, external_bytes());
}

static RT_COLD void refuse(int64_t bytes, const char *why) {
  static AO_t warned;
  if (!AO_fetch_and_add1(&warned))
    rt_report("tide_external_add(%lld): %s (said once)", (long long)bytes, why);
}

static RT_COLD void give_back(int64_t bytes, int64_t below_zero) {
  AO_fetch_and_add(&external.sum, (AO_t)(below_zero < -bytes ? below_zero : -bytes));
  refuse(bytes, "more taken away than was added; counted as 0 from here on");
}

// The memory is there in any case; a collection is due as it would be at an allocation.
static RT_COLD void look(void) {
  rt_thread *self = rt_self();
  if (!self || self->refusal) return;
  if (RT_UNLIKELY(limit_matters())) limit_before(self, 0);
  cycle_reason reason;
  if (cycle_due(self, 0, &reason)) cycle_collect(self, &reason);
}

void tide_external_add(int64_t bytes) {
  if (RT_UNLIKELY(bytes > most || bytes < -most)) {
    refuse(bytes, "not accepted: at most 2^60 bytes at a time; ignored");
    return;
  }
  int64_t sum = (int64_t)(AO_fetch_and_add(&external.sum, (AO_t)bytes) + (AO_t)bytes);
  if (rt_recording()) recording_external(bytes);
  if (bytes >= 0) {
    if (RT_UNLIKELY(sum > 4 * most)) {
      AO_fetch_and_add(&external.sum, (AO_t)-bytes);
      refuse(bytes, "not accepted: more than 2^62 bytes in all; ignored");
    } else if (RT_UNLIKELY(pace_worth_a_look((uint64_t)sum, (uint64_t)bytes))) {
      look();
    }
    return;
  }
  if (RT_UNLIKELY(sum < 0)) {
    give_back(bytes, -sum);
    sum = 0;
  }
  // Two threads at a time may store the larger one last. The next subtraction finds that out.
  if ((AO_t)sum < AO_load(&external.least)) AO_store(&external.least, (AO_t)sum);
}
