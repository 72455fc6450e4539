// SPDX-License-Identifier: MIT
// The limiter, with a clock that is made up: how much of the time collecting may take for a limit's
// sake, and when an episode begins and ends.
#include "testing.h"

#include "limiter.h"

#define MS(n) ((uint64_t)(n)*1000000)
#define S(n)  ((uint64_t)(n)*1000000000)

// What happens to a limiter, in order. A collection begins at the time where the step before ended.
typedef enum event { END, RUN, COLLECT, ASK } event;
typedef struct step {
  event event;
  unsigned ms;  // of RUN and COLLECT
  bool allowed; // ASK: what it must say
  bool active;  // what it must be after that
} step;
#define R(ms)                                                                                      \
  { RUN, ms, 0, 0 }
#define C(ms)                                                                                      \
  { COLLECT, ms, 0, 0 }
#define ALLOWED                                                                                    \
  { ASK, 0, true, false }
#define ALLOWED_STILL_ACTIVE                                                                       \
  { ASK, 0, true, true }
#define HELD                                                                                       \
  { ASK, 0, false, true }

static const struct {
  const char *what;
  step steps[16];
} tables[] = {
    {"nothing has been collected", {ALLOWED, R(5000), ALLOWED}},
    {"100 ms in advance", {C(99), ALLOWED, C(1), ALLOWED, C(1), HELD}},
    {"ahead falls as the program runs",
     {C(100), R(50), C(60), HELD, R(9), HELD, R(1), ALLOWED_STILL_ACTIVE}},
    {"a program that has run for long has saved nothing", {R(100000), C(101), HELD}},
    {"a collection of 3 s is owed for 3 s, but for 100 ms",
     {R(1000), C(3000), HELD, R(2899), HELD, R(1), ALLOWED_STILL_ACTIVE}},
    {"what was owed before a collection counts as 100 ms at the most",
     {C(3000), C(80), HELD, R(79), HELD, R(1), ALLOWED_STILL_ACTIVE}},
    {"an episode ends when nothing was held back for a second",
     {C(150), HELD, R(500), ALLOWED_STILL_ACTIVE, R(499), ALLOWED_STILL_ACTIVE, R(1), ALLOWED}},
    {"holding back begins the second anew",
     {C(600), HELD, R(400), HELD, R(999), ALLOWED_STILL_ACTIVE, R(1), ALLOWED}},
    {"collections are not in that second",
     {C(150), HELD, R(500), C(2000), R(300), C(100), R(199), C(1), ALLOWED_STILL_ACTIVE, R(1),
      ALLOWED}},
    {"a second episode", {C(150), HELD, R(1000), ALLOWED, C(150), HELD, R(1000), ALLOWED}},
};

START_TEST(limiter_on_a_table_of_steps) {
  limiter l = {0};
  uint64_t now = S(77);
  for (const step *s = tables[_i].steps; s->event != END; s++) {
    int at = (int)(s - tables[_i].steps);
    if (s->event == COLLECT) limiter_collected(&l, now, now + MS(s->ms));
    now += MS(s->ms);
    if (s->event != ASK) continue;
    bool active_before = limiter_active(&l, now), allowed = limiter_allows(&l, now);
    ck_assert_msg(allowed == s->allowed, "%s: allowed at %d", tables[_i].what, at);
    ck_assert_msg(limiter_active(&l, now) == s->active, "%s: active at %d", tables[_i].what, at);
    ck_assert_msg(active_before == s->active || !allowed, "%s: begins at %d", tables[_i].what, at);
  }
}
END_TEST

START_TEST(clock_that_stands_still_or_goes_back_changes_nothing) {
  limiter l = {0};
  limiter_collected(&l, S(10), S(10) + MS(150));
  ck_assert(!limiter_allows(&l, S(10) + MS(150)));
  limiter still = l;
  for (int i = 0; i < 1000; i++) {
    MUST(!limiter_allows(&l, S(10) + MS(150)));
    limiter_collected(&l, S(10) + MS(150), S(10) + MS(150));
    limiter_collected(&l, S(10) + MS(150), S(10)); // ended before it began
    limiter_collected(&l, S(9), S(10));            // a second that has been accounted for
    MUST(limiter_active(&l, S(10) + MS(150)) && limiter_active(&l, 0));
  }
  ck_assert_uint_eq(l.ahead_ns, still.ahead_ns);
  ck_assert_uint_eq(l.seen_ns, still.seen_ns);
  ck_assert_uint_eq(l.held_at_ns, still.held_at_ns);
}
END_TEST

START_TEST(collection_that_began_before_the_last_one_ended_counts_from_there) {
  limiter l = {0};
  limiter_collected(&l, S(10), S(10) + MS(60));
  limiter_collected(&l, S(10) + MS(20), S(10) + MS(90)); // 30 ms of it are new
  ck_assert_uint_eq(l.ahead_ns, MS(90));
  ck_assert(limiter_allows(&l, S(10) + MS(90)));
}
END_TEST

START_TEST(asking_with_a_time_that_has_passed_is_asking_now) {
  limiter l = {0};
  limiter_collected(&l, S(10), S(10) + MS(150));
  ck_assert(!limiter_allows(&l, S(5)));
  ck_assert(limiter_active(&l, S(10) + MS(150)));
  ck_assert(limiter_allows(&l, S(10) + MS(200)));
  ck_assert(!limiter_active(&l, S(12)));
}
END_TEST

START_TEST(forced_collections_in_a_row_do_not_block_the_limits_for_long) {
  static const unsigned took_ms[] = {1, 20, 99, 100, 101, 700};
  limiter l = {0};
  uint64_t now = S(1), took = MS(took_ms[_i]);
  for (int i = 0; i < 500; i++, now += took) limiter_collected(&l, now, now + took);
  ck_assert_uint_le(l.ahead_ns, LIMITER_AHEAD_NS + took);
  ck_assert(!limiter_allows(&l, now + took - 1));
  ck_assert(limiter_allows(&l, now + took));
}
END_TEST

// ---- Random programs ------------------------------------------------------------------------

enum { SPANS = 2000 };
typedef struct span {
  uint64_t from, to;
} span;
static span spans[SPANS]; // collections
static uint64_t longest;

// Collects whenever it may, and runs for a random time in between, most of them very short.
static void run_program(uint64_t *random, uint64_t longest_collection, uint64_t longest_run) {
  limiter l = {0};
  uint64_t now = S(1);
  longest = 0;
  for (int i = 0; i < SPANS;) {
    if (limiter_allows(&l, now)) {
      uint64_t took = 1 + random_below(random, longest_collection);
      spans[i++] = (span){now, now + took};
      limiter_collected(&l, now, now + took);
      now += took;
      if (took > longest) longest = took;
    }
    now += random_below(random, random_below(random, 20) ? 1 + longest_run / 100 : longest_run);
  }
}

// In the window of a second that begins at `from`, or ends with it.
static uint64_t collected_in(uint64_t from, uint64_t to, int near) {
  uint64_t sum = 0;
  for (int i = near; i >= 0 && spans[i].to > from; i--)
    sum += (spans[i].to < to ? spans[i].to : to) - (spans[i].from > from ? spans[i].from : from);
  return sum;
}

START_TEST(collecting_for_the_limit_takes_half_of_any_window) {
  uint64_t random = test_seed();
  for (int round = 0; round < 40; round++) {
    run_program(&random, MS(1) << random_below(&random, 10),
                1 + (MS(1) << random_below(&random, 8)));
    static const uint64_t windows[] = {MS(50), MS(300), S(1), S(10)};
    // A window with the most in it ends where a collection does.
    for (size_t w = 0; w < LENGTH(windows); w++)
      for (int i = 0; i < SPANS; i++) {
        uint64_t to = spans[i].to, from = to > windows[w] ? to - windows[w] : 0;
        MUST(collected_in(from, to, i) <= windows[w] / 2 + longest / 2 + LIMITER_AHEAD_NS / 2);
      }
  }
}
END_TEST

START_TEST(program_that_collects_less_than_half_of_the_time_is_never_held_back) {
  uint64_t random = test_seed();
  for (int round = 0; round < 100; round++) {
    limiter l = {0};
    uint64_t now = S(1), most = 1 + (MS(1) << random_below(&random, 6)); // up to 32 ms each
    for (int i = 0; i < 2000; i++) {
      uint64_t took = random_below(&random, most);
      MUST(limiter_allows(&l, now));
      limiter_collected(&l, now, now + took);
      now += took + took + random_below(&random, 1000);
      MUST(!limiter_active(&l, now));
    }
  }
}
END_TEST

START_TEST(any_order_of_calls_keeps_the_limiter_sane) {
  uint64_t random = test_seed();
  for (int round = 0; round < 200; round++) {
    limiter l = {0};
    uint64_t now = S(1000), most = 0;
    for (int i = 0; i < 1000; i++) {
      uint64_t at = random_below(&random, 8) ? now : now - random_below(&random, now);
      uint64_t seen = l.seen_ns, took = random_below(&random, MS(1) << random_below(&random, 12));
      switch (random_below(&random, 4)) {
      case 0:
        limiter_collected(&l, at, at + took);
        if (at + took > now) now = at + took;
        if (took > most) most = took;
        break;
      case 1: {
        bool allowed = limiter_allows(&l, at);
        MUST(allowed == (l.ahead_ns <= LIMITER_AHEAD_NS));
        MUST(allowed || l.active);
        break;
      }
      case 2:
        limiter_active(&l, at);
        break;
      default:
        now += took;
      }
      MUST(l.seen_ns >= seen && l.ahead_ns <= LIMITER_AHEAD_NS + most);
    }
    now += most + LIMITER_QUIET_NS;
    MUST(limiter_allows(&l, now) && !limiter_active(&l, now)); // no state that does not end
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("limiter");
  TCase *steps = tcase_create("steps");
  tcase_set_timeout(steps, 30);
  tcase_add_loop_test(steps, limiter_on_a_table_of_steps, 0, LENGTH(tables));
  tcase_add_test(steps, clock_that_stands_still_or_goes_back_changes_nothing);
  tcase_add_test(steps, collection_that_began_before_the_last_one_ended_counts_from_there);
  tcase_add_test(steps, asking_with_a_time_that_has_passed_is_asking_now);
  tcase_add_loop_test(steps, forced_collections_in_a_row_do_not_block_the_limits_for_long, 0, 6);
  suite_add_tcase(suite, steps);
  TCase *random = tcase_create("random programs");
  tcase_set_timeout(random, 60);
  tcase_add_test(random, collecting_for_the_limit_takes_half_of_any_window);
  tcase_add_test(random, program_that_collects_less_than_half_of_the_time_is_never_held_back);
  tcase_add_test(random, any_order_of_calls_keeps_the_limiter_sane);
  suite_add_tcase(suite, random);
  return run_suite(suite);
}
