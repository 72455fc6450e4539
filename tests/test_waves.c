// SPDX-License-Identifier: MIT
// The schedule of `tidepool sawtooth`, and what it makes of latencies: pure functions, on numbers
// that are made up here.
#include "testing.h"

#include "waves.h"

#define MS UINT64_C(1000000)

// ---- The schedule ---------------------------------------------------------------------------

START_TEST(test_schedule) {
  schedule s = schedule_make(20000, 100 * MS, 200 * MS, 3000 * MS);
  ck_assert_uint_eq(s.per_wave, 2000);
  ck_assert_uint_eq(s.waves, 10); // the gap behind the last one need not fit
  ck_assert_uint_eq(schedule_requests(&s), 20000);
  ck_assert_uint_eq(schedule_due_ns(&s, 0), 0);
  ck_assert_uint_eq(schedule_due_ns(&s, 1), 50000);
  ck_assert_uint_eq(schedule_due_ns(&s, 1999), 1999 * 50000);
  ck_assert_uint_eq(schedule_due_ns(&s, 2000), 300 * MS);
  ck_assert_uint_eq(schedule_due_ns(&s, 19999), 2700 * MS + 1999 * 50000);
  ck_assert_uint_eq(schedule_wave_ns(&s, 9), 2700 * MS);
}
END_TEST

START_TEST(test_schedule_fits) {
  ck_assert_uint_eq(schedule_make(1000, 100 * MS, 200 * MS, 2800 * MS).waves, 10);
  ck_assert_uint_eq(schedule_make(1000, 100 * MS, 200 * MS, 2799 * MS).waves, 9);
  ck_assert_uint_eq(schedule_make(1000, 100 * MS, 0, 1000 * MS).waves, 10);
  ck_assert_uint_eq(schedule_make(1000, 100 * MS, 900 * MS, MS).waves, 2); // two at least
  ck_assert_uint_eq(schedule_make(1, 100 * MS, 0, 1000 * MS).per_wave, 1); // one at least
}
END_TEST

// Rates that do not divide: still even, in order, within the wave, and the same number in each.
START_TEST(test_schedule_even) {
  static const double rates[] = {30, 333, 7001, 20000, 99991, 1000000};
  schedule s = schedule_make(rates[_i], 70 * MS, 33 * MS, 500 * MS);
  double distance = 70e6 / (double)s.per_wave;
  for (uint64_t i = 1; i < schedule_requests(&s); i++) {
    uint64_t before = schedule_due_ns(&s, i - 1), due = schedule_due_ns(&s, i);
    uint64_t start = schedule_wave_ns(&s, i / s.per_wave);
    MUST(due > before && due >= start && due < start + 70 * MS);
    if (i % s.per_wave == 0) continue;
    MUST((double)(due - before) > distance - 1.01 && (double)(due - before) < distance + 1.01);
  }
}
END_TEST

// ---- Quantiles and bins ---------------------------------------------------------------------

START_TEST(test_quantiles) {
  uint64_t numbers[] = {50, 10, 40, 20, 30};
  ck_assert_uint_eq(quantile_ns(numbers, 5, 0), 10);
  ck_assert_uint_eq(quantile_ns(numbers, 5, 0.2), 10);
  ck_assert_uint_eq(quantile_ns(numbers, 5, 0.21), 20);
  ck_assert_uint_eq(quantile_ns(numbers, 5, 0.5), 30);
  ck_assert_uint_eq(quantile_ns(numbers, 5, 0.99), 50);
  ck_assert_uint_eq(quantile_ns(numbers, 5, 1), 50);
  ck_assert_uint_eq(quantile_ns(numbers, 1, 0.001), 10);
  ck_assert_uint_eq(quantile_ns(numbers, 0, 0.5), 0);
}
END_TEST

enum { BINS = 20 };

// 1000 requests a second, so five in a bin of 5 ms; each took 100 ns, and the ith 1 ns for each i.
static void fill(schedule *s, sample *samples) {
  *s = schedule_make(1000, 100 * MS, 50 * MS, 300 * MS);
  for (uint64_t i = 0; i < schedule_requests(s); i++)
    samples[i] = (sample){.latency_ns = 100 + i, .done = true};
}

START_TEST(test_bins) {
  schedule s;
  sample samples[200];
  uint64_t scratch[100];
  bin bins[BINS];
  fill(&s, samples);
  ck_assert_uint_eq(schedule_requests(&s), 200);
  samples[101].missed = samples[104].missed = samples[105].missed = true;
  samples[102].latency_ns = 9000;
  samples[199].done = false; // the program was interrupted
  ck_assert_uint_eq(bins_of_wave(&s, samples, 1, 5 * MS, bins, BINS, scratch), BINS);
  for (unsigned i = 0; i < BINS; i++) {
    ck_assert_uint_eq(bins[i].start_ns, (150 + 5 * i) * MS);
    ck_assert_uint_eq(bins[i].count, i == 19 ? 4 : 5);
  }
  ck_assert_uint_eq(bins[0].misses, 2);
  ck_assert_uint_eq(bins[0].most_ns, 9000);
  ck_assert_uint_eq(bins[0].median_ns, 203); // of 200, 201, 203, 204, 9000
  ck_assert_uint_eq(bins[1].misses, 1);
  ck_assert_uint_eq(bins[1].most_ns, 209);
  ck_assert_uint_eq(bins[19].most_ns, 298);
  ck_assert_uint_eq(bins_of_wave(&s, samples, 0, 5 * MS, bins, BINS, scratch), BINS);
  ck_assert_uint_eq(bins[0].start_ns, 0);
  ck_assert_uint_eq(bins[0].most_ns, 104);
  ck_assert_uint_eq(bins[19].most_ns, 199);
}
END_TEST

// A last bin that is shorter, bins without a request, and less room than there are bins.
START_TEST(test_odd_bins) {
  schedule s = schedule_make(100, 12 * MS, 0, 24 * MS);
  sample samples[2] = {{.latency_ns = 7, .done = true}, {.latency_ns = 8, .done = true}};
  uint64_t scratch[1];
  bin bins[4] = {[2] = {.count = 77}};
  ck_assert_uint_eq(s.per_wave, 1);
  ck_assert_uint_eq(bins_of_wave(&s, samples, 1, 5 * MS, bins, 2, scratch), 3);
  ck_assert_uint_eq(bins[0].most_ns, 8);
  ck_assert_uint_eq(bins[1].count, 0);
  ck_assert_uint_eq(bins[1].most_ns, 0);
  ck_assert_uint_eq(bins[2].count, 77); // not touched
}
END_TEST

// ---- The tooth ------------------------------------------------------------------------------

enum { PER_WAVE = 2000, IN_HALF = 10 };
#define MAKE (UINT64_C(1000) * 1000) // in half of it ten requests are due

static sample tooth_samples[3 * PER_WAVE];
static uint64_t tooth_scratch[PER_WAVE];
static schedule tooth_plan;

// Three waves of 2000 requests, 50 us apart; the second one begins as told.
static void fill_tooth(uint64_t first_ns, uint64_t later_ns) {
  tooth_plan = schedule_make(20000, 100 * MS, 50 * MS, 400 * MS);
  ck_assert_uint_eq(schedule_requests(&tooth_plan), LENGTH(tooth_samples));
  for (uint64_t i = 0; i < LENGTH(tooth_samples); i++) {
    bool first = i >= PER_WAVE && i < PER_WAVE + IN_HALF;
    tooth_samples[i] = (sample){.latency_ns = first ? first_ns : later_ns, .done = true};
  }
}

static tooth tooth_in(uint64_t wave) {
  return tooth_of(&tooth_plan, tooth_samples, wave, MAKE, tooth_scratch);
}

START_TEST(test_tooth) {
  fill_tooth(700000, 20000);
  tooth t = tooth_in(1);
  ck_assert(t.stands);
  ck_assert_uint_eq(t.first_ns, 700000);
  ck_assert_uint_eq(t.later_ns, 20000);
  ck_assert(!tooth_in(0).stands);
  ck_assert(!tooth_in(2).stands);
}
END_TEST

START_TEST(test_no_tooth) {
  fill_tooth(20000, 20000);
  ck_assert(!tooth_in(1).stands);
  fill_tooth(269999, 20000); // by less than a quarter of what it takes
  ck_assert(!tooth_in(1).stands);
  fill_tooth(270000, 20000);
  ck_assert(tooth_in(1).stands);
  fill_tooth(1999999, 1000000); // less than twice
  ck_assert(!tooth_in(1).stands);
  fill_tooth(2000000, 1000000);
  ck_assert(tooth_in(1).stands);
}
END_TEST

// Some requests that fared otherwise, at the beginning or later, hide no tooth and make none.
START_TEST(test_tooth_beside_pauses) {
  const uint64_t begin = PER_WAVE;
  fill_tooth(20000, 20000);
  for (uint64_t i = 0; i < IN_HALF / 2; i++) tooth_samples[begin + 2 * i].latency_ns = 30 * MS;
  ck_assert(!tooth_in(1).stands);
  tooth_samples[begin + 1].latency_ns = 30 * MS; // more than half of them
  ck_assert(tooth_in(1).stands);
  fill_tooth(700000, 20000);
  for (uint64_t i = IN_HALF; i < PER_WAVE / 2; i++) tooth_samples[begin + i].latency_ns = 30 * MS;
  for (uint64_t i = 0; i < IN_HALF / 2 - 1; i++) tooth_samples[begin + i].latency_ns = 0;
  ck_assert(tooth_in(1).stands);
}
END_TEST

// What is due in the first half of the time that it takes to make an encoder, but one at least.
START_TEST(test_tooth_window) {
  fill_tooth(700000, 20000);
  tooth t = tooth_of(&tooth_plan, tooth_samples, 1, 4 * MAKE, tooth_scratch);
  ck_assert_uint_eq(t.first_ns, 20000); // 10 of 40
  ck_assert(!t.stands);
  for (uint64_t i = 1; i < PER_WAVE; i++) tooth_samples[PER_WAVE + i].latency_ns = 20000;
  ck_assert(!tooth_of(&tooth_plan, tooth_samples, 1, MAKE, tooth_scratch).stands);
  ck_assert(tooth_of(&tooth_plan, tooth_samples, 1, MAKE / 100, tooth_scratch).stands);
  schedule lone = schedule_make(1, 100 * MS, 0, 200 * MS);
  sample two[2] = {{.latency_ns = 100}, {.latency_ns = 700000}};
  ck_assert(!tooth_of(&lone, two, 0, MAKE, tooth_scratch).stands);
  ck_assert(tooth_of(&lone, two, 1, MAKE, tooth_scratch).stands);
  ck_assert_uint_eq(tooth_of(&lone, two, 1, MAKE, tooth_scratch).later_ns, 0);
}
END_TEST

// ---- The usual wave -------------------------------------------------------------------------

START_TEST(test_usual_wave) {
  uint64_t columns[4], scratch[3];
  fill_tooth(20000, 20000);
  // Columns of two requests. The medians of three waves: one that is high makes no difference.
  tooth_samples[1].latency_ns = 40000;
  tooth_samples[PER_WAVE].latency_ns = 900000;
  tooth_samples[2 * PER_WAVE].latency_ns = 50000;
  tooth_samples[2 * PER_WAVE + 2].latency_ns = 900000;
  usual_wave(&tooth_plan, tooth_samples, 0, 3, 100000, columns, 4, scratch);
  ck_assert_uint_eq(columns[0], 50000);
  ck_assert_uint_eq(columns[1], 20000);
  ck_assert_uint_eq(columns[3], 20000);
  usual_wave(&tooth_plan, tooth_samples, 1, 2, 100000, columns, 4, scratch); // one wave
  ck_assert_uint_eq(columns[0], 900000);
  usual_wave(&tooth_plan, tooth_samples, 1, 3, 60 * MS, columns, 4, scratch);
  ck_assert_uint_eq(columns[0], 900000);
  ck_assert_uint_eq(columns[1], 20000);
  ck_assert_uint_eq(columns[2], 0); // the wave is over
  usual_wave(&tooth_plan, tooth_samples, 0, 1, 20000, columns, 4, scratch);
  ck_assert_uint_eq(columns[0], 20000);
  ck_assert_uint_eq(columns[1], 0); // no request is due there
  ck_assert_uint_eq(columns[2], 40000);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("waves");
  TCase *plan = tcase_create("schedule");
  tcase_add_test(plan, test_schedule);
  tcase_add_test(plan, test_schedule_fits);
  tcase_add_loop_test(plan, test_schedule_even, 0, 6);
  suite_add_tcase(suite, plan);
  TCase *numbers = tcase_create("latencies");
  tcase_add_test(numbers, test_quantiles);
  tcase_add_test(numbers, test_bins);
  tcase_add_test(numbers, test_odd_bins);
  tcase_add_test(numbers, test_tooth);
  tcase_add_test(numbers, test_no_tooth);
  tcase_add_test(numbers, test_tooth_beside_pauses);
  tcase_add_test(numbers, test_tooth_window);
  tcase_add_test(numbers, test_usual_wave);
  suite_add_tcase(suite, numbers);
  return run_suite(suite);
}
