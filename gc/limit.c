// SPDX-License-Identifier: MIT
// The memory limits: what the soft one does with a program that comes near it, and the hard one.
//
// What counts is all that the library has mapped and not given back to the system, and external
// bytes. Near the soft limit, in this order:
//
//   free memory of the heap goes back to the system, before more is taken than fits beside it;
//   what the last collection has left to be swept is swept at once;
//   a collection starts, if the limiter allows it;
//   else the heap grows past the limit, and the overshoot is noted.
//
// The limiter's episodes are told to the program by its handler. A thread that allocates calls it,
// outside the pause and every lock, one call at a time: who finds something to tell while a call is
// on leaves it to that thread. So the program always learns how it is now, and of all episodes but
// those that were over before a call about the one before had returned.
//
// The hard limit is looked at where the engine takes memory; behind it there is none.
#include "limit.h"
#include "external.h"
#include "limiter.h"
#include "pace.h"

static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;
static limiter state;                // under it
static tide_limit_handler handler;   //
static void *handler_arg;            //
static AO_t active, told;            // state.active; what of it the program knows
static AO_t teller;                  // the thread that calls the handler, an rt_thread; 0: none
static AO_t episodes, overshoot_max; // begun; bytes
static AO_t hard = (AO_t)PACER_NO_LIMIT;
static AO_t making_room; // 1 while a thread does

void limit_init(const tide_options *options) {
  AO_store(&hard, limit_meant(options->hard_limit));
}

bool limit_matters(void) {
  return pace_soft_limit() != PACER_NO_LIMIT || AO_load(&hard) != (AO_t)PACER_NO_LIMIT ||
         AO_load(&active) || AO_load(&told);
}

static uint64_t total(void) {
  pacer_memory m;
  pace_memory(&m);
  return m.used_bytes + m.free_bytes;
}

// ---- The hard limit -------------------------------------------------------------------------

int64_t tide_hard_limit_set(int64_t bytes) {
  if (!rt_enter("tide_hard_limit_set")) return INT64_MAX;
  for (;;) {
    AO_t old = AO_load(&hard);
    if (bytes < 0 || AO_compare_and_swap(&hard, old, limit_meant(bytes))) return limit_told(old);
  }
}

bool limit_is_hard(void) {
  return AO_load(&hard) != PACER_NO_LIMIT;
}

bool limit_hard_allows(uint64_t mapped, uint64_t more) {
  uint64_t most = AO_load(&hard);
  if (RT_LIKELY(most == PACER_NO_LIMIT)) return true;
  uint64_t counted = mapped + external_bytes();
  return counted <= most && more <= most - counted;
}

// ---- Room and overshoot ---------------------------------------------------------------------

static void note(uint64_t total_bytes, uint64_t limit) {
  if (total_bytes <= limit) return;
  for (;;) {
    AO_t most = AO_load(&overshoot_max);
    if (total_bytes - limit <= most) return;
    if (AO_compare_and_swap(&overshoot_max, most, total_bytes - limit)) return;
  }
}

void limit_note(void) {
  uint64_t limit = pace_soft_limit();
  if (limit != PACER_NO_LIMIT) note(total(), limit);
}

// So much more is given back than has to be: a search through the heap is to be worth it.
enum { AT_LEAST_BYTES = 4 << 20 };

// The engine would take a keep of 0 for an order to search all its blocks for free pages.
static void make_room(rt_thread *self, const pacer_memory *m, size_t request) {
  if (RT_UNLIKELY(rt_options.poison)) return; // poison given back would read as zeros
  uint64_t soft = pace_soft_limit(), most = AO_load(&hard);
  const pacer p = {.limit_bytes = soft < most ? soft : most};
  if (m->free_bytes <= pacer_limit_room(&p, m, request)) return;
  if (!AO_compare_and_swap(&making_room, 0, 1)) return;
  uint64_t keep = pacer_limit_room(&p, m, request + AT_LEAST_BYTES);
  gc_engine->release(self, keep ? keep : 1, true);
  AO_store(&making_room, 0);
}

// ---- The limiter ----------------------------------------------------------------------------

static uint64_t enter(rt_thread *self) {
  rt_pin(self);
  rt_pinned_lock_take(&lock);
  return os_now_ns();
}

static void leave(rt_thread *self) {
  bool was = AO_load(&active), is = state.active;
  if (is && !was) AO_fetch_and_add1(&episodes);
  // Release: pairs with the acquire in limit_stats; who sees the episode sees its number.
  AO_store_release(&active, is);
  if (RT_UNLIKELY(is && !was))
    rt_event(TIDE_EVENT_LIMITER_BEGIN, state.held_at_ns, 0, total(), pace_soft_limit());
  if (RT_UNLIKELY(was && !is))
    rt_event(TIDE_EVENT_LIMITER_END, os_now_ns(), 0, total(), pace_soft_limit());
  rt_pinned_lock_give(&lock);
  rt_unpin(self);
}

bool limit_active(void) {
  return AO_load(&active);
}

bool limit_allows(rt_thread *self) {
  uint64_t now_ns = enter(self);
  bool allowed = limiter_allows(&state, now_ns);
  leave(self);
  return allowed;
}

void limit_collected(uint64_t began_ns, uint64_t ended_ns) {
  rt_pinned_lock_take(&lock); // free: no thread was stopped in a pinned section
  limiter_collected(&state, began_ns, ended_ns);
  rt_pinned_lock_give(&lock);
}

// ---- Telling the program --------------------------------------------------------------------

tide_limit_handler tide_limit_handler_set(tide_limit_handler fn, void *arg) {
  rt_thread *self = rt_enter("tide_limit_handler_set");
  if (!self) return NULL;
  enter(self);
  tide_limit_handler old = handler;
  handler = fn;
  handler_arg = arg;
  leave(self);
  // Whoever has just asked for the old one calls it once more.
  AO_t by;
  for (unsigned tries = 0; (by = AO_load_acquire(&teller)) && by != (AO_t)self; tries++)
    os_pause(tries);
  return old;
}

static void call_handler(rt_thread *self) {
  enter(self);
  tide_limit_handler fn = handler;
  void *arg = handler_arg;
  leave(self);
  tide_limit_state now = {AO_load(&told), AO_load(&episodes), total(),
                          limit_told(pace_soft_limit())};
  if (fn) fn(&now, arg);
}

static RT_COLD void tell(rt_thread *self) {
  if (!AO_compare_and_swap(&teller, 0, (AO_t)self)) return;
  int cancellable = rt_cancel_disable();
  rt_quiet_begin(self);
  AO_t now;
  do {
    while ((now = AO_load(&active)) != AO_load(&told)) {
      AO_store(&told, now);
      call_handler(self);
    }
    AO_store_release(&teller, 0); // pairs with the acquire in tide_limit_handler_set
    AO_nop_full();                // who has found it set until now has changed `active` before
  } while (AO_load(&active) != AO_load(&told) && AO_compare_and_swap(&teller, 0, (AO_t)self));
  rt_quiet_end(self);
  rt_cancel_restore(cancellable);
}

static RT_COLD void end_episode_in_time(rt_thread *self) {
  uint64_t now_ns = enter(self);
  limiter_active(&state, now_ns);
  leave(self);
}

void limit_before(rt_thread *self, size_t request) {
  pacer_memory m;
  pace_memory(&m);
  note(m.used_bytes + m.free_bytes, pace_soft_limit());
  make_room(self, &m, request);
  if (RT_UNLIKELY(AO_load(&active))) end_episode_in_time(self);
  if (RT_UNLIKELY(AO_load(&active) != AO_load(&told))) tell(self);
}

// ---- The rest -------------------------------------------------------------------------------

// After the engine's and the pace's: of what they say, so that it adds up to that.
void limit_stats(tide_memstats *s) {
  uint64_t limit = limit_meant(s->memory_limit);
  s->total_bytes = s->sys - s->heap_released + s->external_bytes;
  note(s->total_bytes, limit);
  s->limit_overshoot_bytes = s->total_bytes > limit ? s->total_bytes - limit : 0;
  s->limit_overshoot_max_bytes = AO_load(&overshoot_max);
  s->hard_limit = limit_told(AO_load(&hard));
  s->limiter_active = AO_load_acquire(&active);
  s->limiter_episodes = AO_load(&episodes);
}

void limit_lock_take(void) {
  rt_pinned_lock_take(&lock);
}
void limit_lock_give(void) {
  rt_pinned_lock_give(&lock);
}
void limit_after_fork(void) {
  AO_store(&making_room, 0);
  if (AO_load(&teller) != (AO_t)rt_self()) AO_store(&teller, 0);
}
