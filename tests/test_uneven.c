// SPDX-License-Identifier: MIT
// The pure parts of `tidepool uneven`: the exact prediction, the patterns of allocation, curves,
// and when gaps begin. Nothing here waits or looks at a clock; what is random comes from fixed
// seeds.
#include "testing.h"

#include "blur.h"
#include "curve.h"
#include "pattern.h"
#include "sample.h"

#include <math.h>

// ---- The prediction -------------------------------------------------------------------------

#define MOMENTS(...)                                                                               \
  (&(moments){.count = LENGTH(((double[]){__VA_ARGS__})), .at = (double[]){__VA_ARGS__}})

// Over whole periods of evenly spaced collections it is the straight line, wherever the window
// begins and whatever the items outlive.
START_TEST(even_collections_give_the_line) {
  enum { COUNT = 100 };
  double at[COUNT];
  const moments starts = {COUNT, at};
  for (double period = 0.25; period < 300; period *= 7) {
    for (int i = 0; i < COUNT; i++) at[i] = 1000 + i * period;
    for (unsigned survive = 1; survive <= 4; survive++)
      for (double ratio = 0; ratio < 7; ratio += 0.125)
        for (double shift = 0; shift < 1; shift += 0.3) {
          double from = 1000 + (3 + shift) * period;
          double got = blur_predict(&starts, from, from + 40 * period, ratio * period, survive);
          double line = fmin(fmax(1 - (ratio - survive), 0), 1);
          MUST(fabs(got - line) < 1e-9);
          MUST(fabs(blur_straight(ratio, survive) - line) < 1e-12);
        }
  }
}
END_TEST

static bool near(double a, double b) {
  return fabs(a - b) < 1e-12;
}

// A short period and a long one, in turn: 1 and 3, so the mean is 2.
START_TEST(short_and_long_in_turn) {
  const moments *starts = MOMENTS(0, 1, 4, 5, 8, 9, 12, 13, 16);
  // Put in the short one: two collections come 3 to 4 later. In the long one: 1 to 4 later.
  ck_assert(near(blur_predict(starts, 0, 4, 1, 1), 1));
  ck_assert(near(blur_predict(starts, 0, 4, 2, 1), 0.75)); // the line says 1
  ck_assert(near(blur_predict(starts, 0, 4, 3, 1), 0.5));  // the line says 0.5
  ck_assert(near(blur_predict(starts, 0, 4, 3.5, 1), 0.25));
  // Two neighbours always come to 4, so the lower end of the line is where it was.
  ck_assert(near(blur_predict(starts, 0, 4, 4, 1), 0));
  // Of the third collection: 4 to 5 and 4 to 7 later.
  ck_assert(near(blur_predict(starts, 0, 4, 4, 2), 1));
  ck_assert(near(blur_predict(starts, 0, 4, 5, 2), 0.5));
  ck_assert(near(blur_predict(starts, 0, 4, 7, 2), 0));
  // Windows that are a part of a period.
  ck_assert(near(blur_predict(starts, 0, 1, 2, 1), 1));
  ck_assert(near(blur_predict(starts, 1, 4, 2, 1), 2 / 3.0));
  ck_assert(near(blur_predict(starts, 2.5, 3.5, 2, 1), 0.5));
}
END_TEST

// Long periods that come together are survived whatever the mean says.
START_TEST(a_crowd_and_a_calm) {
  const moments *starts = MOMENTS(0, 10, 20, 30, 31, 32, 33, 34, 35, 36, 46, 56, 66);
  // In [10, 30) the second collection is 10 to 20 away but for the last one's neighbours.
  ck_assert(near(blur_predict(starts, 10, 20, 15, 1), 0.5));
  ck_assert(near(blur_predict(starts, 20, 30, 15, 1), 0));
  ck_assert(near(blur_predict(starts, 20, 30, 6, 1), 0.5));
  ck_assert(near(blur_predict(starts, 30, 34, 2, 1), 0));
  ck_assert(near(blur_predict(starts, 30, 34, 1.5, 1), 0.5));
}
END_TEST

START_TEST(few_collections_or_none) {
  ck_assert(near(blur_predict(&(moments){0, NULL}, 0, 10, 5, 1), 1));
  ck_assert(near(blur_predict(MOMENTS(4), 0, 10, 5, 1), 1));
  ck_assert(near(blur_predict(MOMENTS(4, 6), 0, 10, 3, 1), 0.9)); // put in (3, 4)
  ck_assert(near(blur_predict(MOMENTS(4, 4, 6), 0, 10, 1, 1), 0.9));
  ck_assert(near(blur_predict(MOMENTS(-5, -4, 20, 21), 0, 10, 3, 1), 1));
  ck_assert(isnan(blur_predict(MOMENTS(1, 2), 3, 3, 1, 1)));
  ck_assert(isnan(blur_predict(MOMENTS(1, 2), 3, 2, 1, 1)));
  ck_assert(isnan(blur_straight(NAN, 1)));
}
END_TEST

static double exponential(uint64_t *random) {
  return -log1p(-random_share(random));
}

// A period with the mean 1 that varies by 1 / sqrt(steps) of it.
static double gamma_period(uint64_t *random, unsigned steps) {
  double sum = 0;
  for (unsigned i = 0; i < steps; i++) sum += exponential(random);
  return sum / steps;
}

// Counts collections in a gap from each of many moments.
static double brute_force(const moments *starts, double from, double to, double gap,
                          unsigned survive) {
  enum { STEPS = 20000 };
  unsigned kept = 0;
  for (unsigned i = 0; i < STEPS; i++) {
    double x = from + (i + 0.5) / STEPS * (to - from);
    unsigned met = 0;
    for (size_t k = 0; k < starts->count; k++) met += starts->at[k] > x && starts->at[k] <= x + gap;
    kept += met <= survive;
  }
  return (double)kept / STEPS;
}

START_TEST(as_counted_by_brute_force) {
  enum { COUNT = 60 };
  uint64_t random = 7;
  double at[COUNT];
  const moments starts = {COUNT, at};
  for (unsigned round = 0; round < 60; round++) {
    double now = -5;
    unsigned steps = 1u << random_below(&random, 6);
    for (unsigned i = 0; i < COUNT; i++) at[i] = now += gamma_period(&random, steps);
    double from = random_share(&random) * 10, to = from + 1 + random_share(&random) * 30;
    double gap = random_share(&random) * 5;
    unsigned survive = 1 + (unsigned)random_below(&random, 3);
    double got = blur_predict(&starts, from, to, gap, survive);
    double counted = brute_force(&starts, from, to, gap, survive);
    // Each collection may put one step on the wrong side of it, twice.
    ck_assert_msg(fabs(got - counted) < 2.0 * COUNT / 20000, "round %u: %f, counted %f", round, got,
                  counted);
    MUST(blur_predict(&starts, from, to, gap * 1.1, survive) <= got + 1e-12);
    MUST(blur_predict(&starts, from, to, gap, survive + 1) >= got - 1e-12);
  }
}
END_TEST

enum { LONG = 200000 };

static moments long_run(unsigned steps) {
  double *at = calloc(LONG, sizeof *at), now = 0;
  ck_assert_ptr_nonnull(at);
  uint64_t random = steps;
  for (size_t i = 0; i < LONG; i++) at[i] = now += gamma_period(&random, steps);
  return (moments){LONG, at};
}

// Of collections at random moments the number in a gap has a Poisson distribution.
START_TEST(random_moments) {
  moments starts = long_run(1);
  for (double gap = 0.5; gap < 4; gap += 0.5) {
    double got = blur_predict(&starts, 10, LONG - 1000, gap, 1);
    ck_assert_msg(fabs(got - exp(-gap) * (1 + gap)) < 0.01, "%f at %f", got, gap);
  }
  free((void *)starts.at);
}
END_TEST

// The rule that the command and the documentation give for periods that vary by c: at the corners
// of the line the hit rate is off by 0.4 c sqrt(S) and 0.4 c sqrt(S + 1).
START_TEST(rule_for_the_corners) {
  for (unsigned steps = 25; steps <= 100; steps *= 4) {
    moments starts = long_run(steps);
    periods p = blur_periods(&starts, 10, LONG - 1000);
    ck_assert(fabs(p.cv - 1 / sqrt(steps)) < 0.01 * p.cv + 0.001);
    ck_assert(fabs(p.correlation) < 0.02);
    for (unsigned survive = 1; survive <= 3; survive++) {
      double upper = 1 - blur_predict(&starts, 10, LONG - 1000, survive * p.mean, survive);
      double lower = blur_predict(&starts, 10, LONG - 1000, (survive + 1) * p.mean, survive);
      ck_assert_msg(fabs(upper / (0.4 * p.cv * sqrt(survive)) - 1) < 0.06, "%f", upper);
      ck_assert_msg(fabs(lower / (0.4 * p.cv * sqrt(survive + 1)) - 1) < 0.06, "%f", lower);
    }
    free((void *)starts.at);
  }
}
END_TEST

START_TEST(periods_of_a_window) {
  const moments *starts = MOMENTS(0, 1, 4, 5, 8, 9, 100);
  periods p = blur_periods(starts, 0, 8); // 1, 3, 1, 3
  ck_assert_uint_eq(p.count, 4);
  ck_assert(near(p.mean, 2) && near(p.cv, 0.5) && near(p.correlation, -1));
  p = blur_periods(starts, 1.5, 4.5); // 3, 1: the whole of both
  ck_assert_uint_eq(p.count, 2);
  ck_assert(near(p.mean, 2) && near(p.cv, 0.5) && isnan(p.correlation));
  p = blur_periods(starts, 50, 60);
  ck_assert(p.count == 1 && near(p.mean, 91) && near(p.cv, 0));
  p = blur_periods(MOMENTS(1, 2, 3, 4), 0, 9); // no more than there are
  ck_assert(p.count == 3 && near(p.mean, 1) && near(p.cv, 0) && isnan(p.correlation));
  p = blur_periods(MOMENTS(5), 0, 9);
  ck_assert(p.count == 0 && isnan(p.mean) && isnan(p.cv));
  p = blur_periods(&(moments){0, NULL}, 0, 9);
  ck_assert(p.count == 0 && isnan(p.mean));
}
END_TEST

// ---- Patterns -------------------------------------------------------------------------------

#define RATE   200e6
#define GROWTH ((double)(32 * MIB))
#define CHUNK  65536.0
#define PERIOD (GROWTH / RATE * 1e9) // ns, of the mean rate

static curve standard_curve;

static pattern_settings settings_of(pattern_kind kind, uint64_t seed) {
  if (!standard_curve.count) curve_standard(&standard_curve);
  return (pattern_settings){.kind = kind,
                            .rate = RATE,
                            .growth_bytes = GROWTH,
                            .chunk_bytes = kind == PATTERN_POISSON ? GROWTH / 8 : CHUNK,
                            .curve = &standard_curve,
                            .seed = seed};
}

static pattern begin(pattern_kind kind, uint64_t seed) {
  pattern_settings set = settings_of(kind, seed);
  return pattern_begin(&set);
}

START_TEST(mean_rates) {
  for (pattern_kind kind = 0; kind < PATTERNS; kind++) {
    double to = 4000 * PERIOD;
    double rate = pattern_bytes_between(begin(kind, 3), 0, to) / to * 1e9;
    ck_assert_msg(fabs(rate / RATE - 1) < 0.05, "pattern %d: %f", kind, rate / RATE);
  }
}
END_TEST

START_TEST(same_seed_same_chunks) {
  for (pattern_kind kind = 0; kind < PATTERNS; kind++) {
    pattern one = begin(kind, 5), two = begin(kind, 5), other = begin(kind, 6);
    bool differs = false;
    for (int i = 0; i < 20000; i++) {
      chunk a = pattern_next(&one), b = pattern_next(&two), c = pattern_next(&other);
      MUST(a.after_ns == b.after_ns && a.bytes == b.bytes);
      MUST(a.after_ns >= 0 && isfinite(a.after_ns) && a.bytes > 0);
      differs = differs || a.after_ns != c.after_ns;
    }
    ck_assert_int_eq(differs, kind != PATTERN_STEADY && kind != PATTERN_REPLAY);
  }
}
END_TEST

// Looking ahead changes nothing, and parts of the time add up.
START_TEST(bytes_between) {
  for (pattern_kind kind = 0; kind < PATTERNS; kind++) {
    pattern p = begin(kind, 9), copy = p;
    double whole = pattern_bytes_between(p, 0, 20 * PERIOD);
    double parts = pattern_bytes_between(p, 0, 7.3 * PERIOD) +
                   pattern_bytes_between(p, 7.3 * PERIOD, 20 * PERIOD);
    ck_assert(whole > 0 && whole == parts);
    ck_assert(pattern_next(&p).after_ns == pattern_next(&copy).after_ns);
  }
}
END_TEST

START_TEST(steady_is_steady) {
  pattern p = begin(PATTERN_STEADY, 1);
  for (int i = 0; i < 1000; i++) {
    chunk c = pattern_next(&p);
    MUST(c.bytes == CHUNK && fabs(c.after_ns - CHUNK / RATE * 1e9) < 1e-6);
  }
}
END_TEST

// Mean and standard deviation of one series of numbers.
typedef struct spread {
  double count, sum, squares;
} spread;

static void note(spread *s, double value) {
  s->count++;
  s->sum += value;
  s->squares += value * value;
}
static double mean_of(const spread *s) {
  return s->sum / s->count;
}
static double cv_of(const spread *s) {
  return sqrt(s->squares / s->count - mean_of(s) * mean_of(s)) / mean_of(s);
}

START_TEST(poisson_is_poisson) {
  pattern p = begin(PATTERN_POISSON, 1);
  double mean = GROWTH / 8, products = 0;
  spread times = {0}, sizes = {0};
  unsigned above = 0;
  for (int i = 0; i < 100000; i++) {
    chunk c = pattern_next(&p);
    note(&times, c.after_ns);
    note(&sizes, (double)c.bytes);
    products += (c.after_ns / (mean / RATE * 1e9) - 1) * ((double)c.bytes / mean - 1);
    above += c.after_ns > 2 * mean / RATE * 1e9;
  }
  ck_assert(fabs(mean_of(&times) / (mean / RATE * 1e9) - 1) < 0.02);
  ck_assert(fabs(mean_of(&sizes) / mean - 1) < 0.02);
  ck_assert(fabs(cv_of(&times) - 1) < 0.02 && fabs(cv_of(&sizes) - 1) < 0.02);
  ck_assert(fabs(above / 100000.0 - exp(-2)) < 0.01); // a memoryless one
  ck_assert(fabs(products / 100000) < 0.02);          // sizes do not depend on times
}
END_TEST

START_TEST(bursty_is_on_a_quarter_of_the_time) {
  pattern p = begin(PATTERN_BURSTY, 1);
  double apart = CHUNK / (4 * RATE) * 1e9, on = 0, all = 0;
  spread offs = {0};
  for (int i = 0; i < 2000000; i++) {
    double after = pattern_next(&p).after_ns;
    MUST(after > 0.999999 * apart); // never faster
    all += after;
    on += apart;
    if (after > 1.000001 * apart) note(&offs, after - apart);
  }
  ck_assert(fabs(on / all - 0.25) < 0.01);
  // Nearly all offs are told apart, but for those without a chunk in between.
  ck_assert(fabs(mean_of(&offs) / (0.75 * PERIOD) - 1) < 0.05);
  ck_assert(fabs(cv_of(&offs) - 1) < 0.05);
  ck_assert(fabs(offs.count / (all / PERIOD) - 1) < 0.05);
}
END_TEST

// Which of the three rates the chunk was made at; -1 for one that belongs to two phases.
static int phase_of(double after_ns) {
  // A third of the bytes at each rate: so times are as 4 : 1 : 1/4, and the mean rate is 3 / 5.25.
  static const double rates[3] = {0.25, 1, 4};
  double apart = CHUNK / RATE * 1e9;
  for (int i = 0; i < 3; i++) {
    double rate = rates[i] * 5.25 / 3;
    if (fabs(after_ns * rate / apart - 1) < 1e-6) return i;
  }
  return -1;
}

START_TEST(phased_takes_three_rates_in_turn) {
  pattern p = begin(PATTERN_PHASED, 1);
  double chunks[3] = {0}, run = 0, between = 0;
  int now = -1, rounds = 0, seen = 0;
  for (int i = 0; i < 1000000; i++) {
    int phase = phase_of(pattern_next(&p).after_ns);
    if (phase < 0) {
      between++;
      continue;
    }
    chunks[phase]++;
    if (phase == now) {
      run++;
      continue;
    }
    if (now >= 0) { // 2 to 4 periods, or twice that where the last of three is the next first
      double long_for = run * CHUNK / GROWTH;
      MUST(rounds == 0 || (long_for > 1.98 && long_for < 8.02));
      rounds++;
    }
    now = phase;
    seen |= 1 << phase;
    run = 0;
  }
  ck_assert_int_eq(seen, 7);
  ck_assert_int_gt(rounds, 300);
  ck_assert(between < 0.002 * 1e6);
  for (int i = 0; i < 3; i++) ck_assert(fabs(chunks[i] / 1e6 - 1 / 3.0) < 0.02);
}
END_TEST

// What a replay has allocated by each moment, against the area under its curve.
static void check_replay(const curve *c, double rate) {
  pattern_settings set = {
      .kind = PATTERN_REPLAY, .rate = rate, .chunk_bytes = CHUNK, .growth_bytes = GROWTH};
  set.curve = c;
  pattern p = pattern_begin(&set);
  double scale = rate / curve_mean_rate(c), at = 0, made = 0;
  double next = pattern_next(&p).after_ns;
  double begin_ns = 0, area = 0; // of the loop's begin, and up to there
  for (int loop = 0; loop < 5; loop++) {
    for (size_t i = 1; i < c->count; i++) {
      const curve_point *a = &c->points[i - 1], *b = &c->points[i];
      area += (a->rate + b->rate) / 2 * (b->at_ns - a->at_ns) * 1e-9 * scale;
      while (at + next <= begin_ns + b->at_ns) {
        at += next;
        made += CHUNK;
        next = pattern_next(&p).after_ns;
      }
      MUST(fabs(area - made) <= CHUNK * 1.01);
    }
    begin_ns += curve_length_ns(c);
  }
}

static void read_text(const char *text, size_t length, curve *c, bool good, const char *says) {
  char error[200] = "";
  FILE *file = length ? fmemopen((void *)text, length, "r") : fopen("/dev/null", "r");
  ck_assert_ptr_nonnull(file);
  bool got = curve_read(file, c, error, sizeof error);
  fclose(file);
  ck_assert_msg(got == good, "'%.60s': %s", text, error);
  if (!good) ck_assert_msg(strstr(error, says) != NULL, "'%.60s': %s", text, error);
  if (!good) ck_assert_uint_eq(count_lines(error), 0);
}

static void accept(const char *text, curve *c) {
  read_text(text, strlen(text), c, true, NULL);
}

START_TEST(replay_follows_its_curve) {
  curve c;
  curve_standard(&c);
  check_replay(&c, RATE);
  check_replay(&c, 3e6);
  accept("0 0\n100 500\n101 0\n300 0\n301 20\n400 20\n", &c); // from 0, to 0, a calm, a step
  check_replay(&c, curve_mean_rate(&c));
  accept("0 100\n1 100\n", &c);
  check_replay(&c, RATE);
  accept("0 0.0001\n50 90000\n50.5 0\n", &c); // many chunks in little time
  check_replay(&c, curve_mean_rate(&c));
}
END_TEST

// ---- Patterns and the prediction ------------------------------------------------------------

enum { COLLECTIONS = 3000 };

// The collections that a pattern makes beside a live heap, in ns.
static moments collections_of(pattern_kind kind, double chunk_bytes) {
  pattern_settings set = settings_of(kind, 2);
  if (chunk_bytes > 0) set.chunk_bytes = chunk_bytes;
  pattern p = pattern_begin(&set);
  double *at = calloc(COLLECTIONS, sizeof *at), now = 0, grown = 0;
  ck_assert_ptr_nonnull(at);
  for (size_t i = 0; i < COLLECTIONS;) {
    chunk c = pattern_next(&p);
    now += c.after_ns;
    if (grown >= GROWTH) {
      at[i++] = now;
      grown = 0;
    }
    grown += (double)c.bytes;
  }
  return (moments){COLLECTIONS, at};
}

static periods blur_at(pattern_kind kind, double chunk_bytes, double ratio, double *blur) {
  moments starts = collections_of(kind, chunk_bytes);
  double from = starts.at[1], to = starts.at[COLLECTIONS - 50];
  periods p = blur_periods(&starts, from, to);
  *blur = blur_predict(&starts, from, to, ratio * p.mean, 1) - blur_straight(ratio, 1);
  free((void *)starts.at);
  return p;
}

START_TEST(what_the_patterns_blur) {
  double blur;
  periods p = blur_at(PATTERN_STEADY, 0, 1.5, &blur);
  ck_assert(p.cv < 0.01 && fabs(blur) < 0.01);
  // Random, but small: sqrt(2 / 512).
  p = blur_at(PATTERN_POISSON, CHUNK, 2, &blur);
  ck_assert_msg(p.cv > 0.05 && p.cv < 0.075 && blur < 0.05, "%f %f", p.cv, blur);
  p = blur_at(PATTERN_POISSON, 0, 2, &blur);
  ck_assert_msg(p.cv > 0.4 && p.cv < 0.55 && fabs(p.correlation) < 0.1, "%f", p.cv);
  ck_assert_msg(blur > 0.15 && blur < 0.3, "%f", blur);
  p = blur_at(PATTERN_BURSTY, 0, 1, &blur);
  ck_assert_msg(p.cv > 0.8 && p.cv < 1.3 && blur < -0.2, "%f %f", p.cv, blur);
  // Long periods follow long ones: the lower end of the line moves most.
  p = blur_at(PATTERN_PHASED, 0, 2, &blur);
  ck_assert_msg(p.correlation > 0.3 && blur > 0.4, "%f %f", p.correlation, blur);
}
END_TEST

// ---- Curves ---------------------------------------------------------------------------------

START_TEST(curves_that_are_read) {
  curve c;
  accept("# a comment\n\n  100 10\r\n\t200\t30  \n 400 20", &c); // the last line without an end
  ck_assert_uint_eq(c.count, 3);
  ck_assert(c.points[0].at_ns == 0 && c.points[1].at_ns == 100e6 && c.points[2].at_ns == 300e6);
  ck_assert(c.points[0].rate == 10e6 && c.points[2].rate == 20e6);
  ck_assert(curve_length_ns(&c) == 300e6);
  ck_assert(fabs(curve_mean_rate(&c) - 70e6 / 3) < 1);
}
END_TEST

static void refuse(const char *text, const char *says) {
  curve c;
  read_text(text, strlen(text), &c, false, says);
}

START_TEST(curves_that_are_refused) {
  refuse("", "no line; accepted: two lines or more");
  refuse("# nothing\n\n", "no line");
  refuse("0 10\n", "only one line");
  refuse("0 10\n10 -5\n", "line 2: accepted: a moment in milliseconds");
  refuse("0 10\n-10 5\n", "line 2: accepted");
  refuse("0 10\n10 x\n", "line 2: accepted");
  refuse("0 10\n10 5x\n", "line 2: accepted");
  refuse("0 10\n10\n", "line 2: accepted");
  refuse("0 10\n10 5 7\n", "line 2: accepted");
  refuse("0 10\n10 1e3\n", "line 2: accepted");
  refuse("0 10\n10 nan\n", "line 2: accepted");
  refuse("0 10\n10 inf\n", "line 2: accepted");
  refuse("0 10\n10 1.2.3\n", "line 2: accepted");
  refuse("0 10\n1,5 10\n", "line 2: accepted");
  refuse("0 10\n10 100001\n", "line 2: accepted");
  refuse("0 10\n100000001 10\n", "line 2: accepted");
  refuse("0 10\n\n# x\n10 10\n10 20\n", "line 5: not later than the moment before it");
  refuse("10 10\n5 20\n", "line 2: not later");
  refuse("0 0\n10 0\n", "a mean of 0 MB/s; accepted: 1 ms and 1 MB/s, or more");
  refuse("0 10\n0.5 10\n", "0.5 ms with");
}
END_TEST

START_TEST(curves_that_are_huge) {
  curve c;
  size_t size = 10 * MIB;
  char *text = malloc(size);
  ck_assert_ptr_nonnull(text);
  memset(text, '7', size);
  read_text(text, size, &c, false, "line 1: longer than 200 characters");
  memset(text, 0, size);
  read_text(text, size, &c, false, "line 1: longer than 200 characters, or not text");
  size_t length = 0;
  for (int i = 0; i <= CURVE_POINTS_MAX; i++)
    length += (size_t)snprintf(text + length, size - length, "%d 10\n", i);
  read_text(text, length, &c, false, "line 4097: more than 4096 moments");
  *strrchr(text, '4') = '#'; // the last moment's 4096 is a comment now
  read_text(text, length, &c, true, NULL);
  ck_assert_uint_eq(c.count, CURVE_POINTS_MAX);
  free(text);
}
END_TEST

START_TEST(curve_of_a_directory) {
  curve c;
  char error[200];
  FILE *file = fopen("/", "r");
  ck_assert_ptr_nonnull(file);
  ck_assert(!curve_read(file, &c, error, sizeof error));
  ck_assert_str_eq(error, strerror(EISDIR));
  fclose(file);
}
END_TEST

// The file for users to begin with is the built-in one.
START_TEST(shipped_curve) {
  curve built_in, shipped;
  char error[200] = "";
  FILE *file = fopen(SOURCE_ROOT "/tests/curve.txt", "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_msg(curve_read(file, &shipped, error, sizeof error), "%s", error);
  fclose(file);
  curve_standard(&built_in);
  ck_assert_uint_eq(shipped.count, built_in.count);
  for (size_t i = 0; i < shipped.count; i++)
    MUST(shipped.points[i].at_ns == built_in.points[i].at_ns &&
         shipped.points[i].rate == built_in.points[i].rate);
}
END_TEST

// ---- When gaps begin ------------------------------------------------------------------------

START_TEST(one_gap_in_each_part) {
  sample_config configs[3] = {{.bursts = 500}, {.bursts = 500}, {.bursts = 7}};
  sample_run run = {.configs = configs, .config_count = 3, .window_ns = 5e9, .seed = 4};
  sample_run other = run;
  other.seed = 5;
  double sum = 0;
  unsigned same = 0;
  for (unsigned k = 0; k < 3; k++) {
    double part = run.window_ns / configs[k].bursts;
    for (unsigned i = 0; i < configs[k].bursts; i++) {
      double at = sample_start_ns(&run, k, i);
      MUST(at >= i * part && at < (i + 1) * part);
      MUST(at == sample_start_ns(&run, k, i));
      same += at == sample_start_ns(&other, k, i);
      same += k == 1 && at == sample_start_ns(&run, 0, i);
      sum += at / part - i;
    }
  }
  ck_assert_uint_eq(same, 0);
  ck_assert(fabs(sum / 1007 - 0.5) < 0.05);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("uneven");
  TCase *prediction = tcase_create("prediction");
  tcase_add_test(prediction, even_collections_give_the_line);
  tcase_add_test(prediction, short_and_long_in_turn);
  tcase_add_test(prediction, a_crowd_and_a_calm);
  tcase_add_test(prediction, few_collections_or_none);
  tcase_add_test(prediction, as_counted_by_brute_force);
  tcase_add_test(prediction, random_moments);
  tcase_add_test(prediction, rule_for_the_corners);
  tcase_add_test(prediction, periods_of_a_window);
  suite_add_tcase(suite, prediction);
  TCase *patterns = tcase_create("patterns");
  tcase_set_timeout(patterns, 60);
  tcase_add_test(patterns, mean_rates);
  tcase_add_test(patterns, same_seed_same_chunks);
  tcase_add_test(patterns, bytes_between);
  tcase_add_test(patterns, steady_is_steady);
  tcase_add_test(patterns, poisson_is_poisson);
  tcase_add_test(patterns, bursty_is_on_a_quarter_of_the_time);
  tcase_add_test(patterns, phased_takes_three_rates_in_turn);
  tcase_add_test(patterns, replay_follows_its_curve);
  tcase_add_test(patterns, what_the_patterns_blur);
  suite_add_tcase(suite, patterns);
  TCase *curves = tcase_create("curves");
  tcase_add_test(curves, curves_that_are_read);
  tcase_add_test(curves, curves_that_are_refused);
  tcase_add_test(curves, curves_that_are_huge);
  tcase_add_test(curves, curve_of_a_directory);
  tcase_add_test(curves, shipped_curve);
  suite_add_tcase(suite, curves);
  TCase *starts = tcase_create("starts");
  tcase_add_test(starts, one_gap_in_each_part);
  suite_add_tcase(suite, starts);
  return run_suite(suite);
}
