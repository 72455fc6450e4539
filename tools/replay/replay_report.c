// SPDX-License-Identifier: MIT
// What `tidepool replay` prints: rows, a table of percents and limits for each pool, and what would
// help, in words. See replay.h.
#include "command.h"
#include "replay.h"
#include "wait.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
  EXPERIMENT,
  ENGINE,
  POOL,
  NUMBER,
  PERCENT,
  LIMIT,
  OWN,
  GETS,
  RECORDED,
  MEASURED,
  SIMULATED,
  ERROR,
  RECORDED_COLLECTIONS,
  COLLECTIONS,
  SIMULATED_COLLECTIONS,
  RECORDED_PERIOD,
  PERIOD,
  SIMULATED_PERIOD,
  USE_GAP,
  IDLE,
  PARTIAL,
  FIELDS
};

static const column columns[FIELDS] = {
    [EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [ENGINE] = {"engine", NULL, COLUMN_TEXT, 0},
    [POOL] = {"pool", NULL, COLUMN_TEXT, 0}, // empty: the program had none
    [NUMBER] = {"pool_number", NULL, COLUMN_COUNT, 0},
    [PERCENT] = {"gc_percent", NULL, COLUMN_COUNT, 0},
    [LIMIT] = {"memory_limit", NULL, COLUMN_BYTES, 0},
    [OWN] = {"recorded_setting", NULL, COLUMN_FLAG, 0},
    [GETS] = {"gets", NULL, COLUMN_COUNT, 0},
    [RECORDED] = {"recorded", NULL, COLUMN_REAL, 3},
    [MEASURED] = {"measured", NULL, COLUMN_REAL, 3},
    [SIMULATED] = {"simulated", NULL, COLUMN_REAL, 3},
    [ERROR] = {"error", NULL, COLUMN_REAL, 3}, // measured - simulated
    [RECORDED_COLLECTIONS] = {"recorded_collections", NULL, COLUMN_COUNT, 0},
    [COLLECTIONS] = {"collections", NULL, COLUMN_COUNT, 0},
    [SIMULATED_COLLECTIONS] = {"simulated_collections", NULL, COLUMN_COUNT, 0},
    [RECORDED_PERIOD] = {"recorded_period_ms", NULL, COLUMN_REAL, 2},
    [PERIOD] = {"gc_period_ms", NULL, COLUMN_REAL, 2},
    [SIMULATED_PERIOD] = {"simulated_period_ms", NULL, COLUMN_REAL, 2},
    [USE_GAP] = {"use_gap", NULL, COLUMN_REAL, 2},
    [IDLE] = {"idle_ms", NULL, COLUMN_REAL, 2},
    [PARTIAL] = {"partial", NULL, COLUMN_FLAG, 0},
};

enum {
  S_EXPERIMENT,
  S_SUMMARY,
  S_FILE,
  S_OBJECTS,
  S_POOLS,
  S_GETS,
  S_THREADS,
  S_DURATION,
  S_COMPLETE,
  S_SPEED,
  S_SECONDS,
  S_MEASURED,
  S_ERROR,
  S_FIELDS
};

static const column summary_columns[S_FIELDS] = {
    [S_EXPERIMENT] = {"experiment", NULL, COLUMN_TEXT, 0},
    [S_SUMMARY] = {"summary", NULL, COLUMN_FLAG, 0},
    [S_FILE] = {"file", NULL, COLUMN_TEXT, 0},
    [S_OBJECTS] = {"objects", NULL, COLUMN_COUNT, 0},
    [S_POOLS] = {"pools", NULL, COLUMN_COUNT, 0},
    [S_GETS] = {"gets", NULL, COLUMN_COUNT, 0},
    [S_THREADS] = {"threads", NULL, COLUMN_COUNT, 0},
    [S_DURATION] = {"recorded_s", NULL, COLUMN_REAL, 3},
    [S_COMPLETE] = {"complete", NULL, COLUMN_FLAG, 0},
    [S_SPEED] = {"speed", NULL, COLUMN_TEXT, 0},
    [S_SECONDS] = {"replay_s", NULL, COLUMN_REAL, 3},   // at the program's own setting
    [S_MEASURED] = {"measured", NULL, COLUMN_COUNT, 0}, // settings
    [S_ERROR] = {"max_abs_error", NULL, COLUMN_REAL, 3},
};

typedef struct page { // for the text
  const replay *r;
  const table *rows;
} page;

// ---- Numbers --------------------------------------------------------------------------------

static double rate(uint64_t hits, uint64_t gets) {
  return gets ? (double)hits / (double)gets : NAN;
}
static double sim_rate(const sim_result *s, size_t pool) {
  return rate(s->pools[pool].hits, s->pools[pool].gets);
}
static double run_rate(const run_result *s, size_t pool) {
  return rate(s->pools[pool].hits, s->pools[pool].gets);
}

static double recorded_period_ms(const trace *t) {
  size_t n = t->collection_count;
  if (n < 2) return NAN;
  return (double)(t->collections[n - 1].time_us - t->collections[0].time_us) / 1000 /
         (double)(n - 1);
}

static int64_t limit_cell(int64_t limit) {
  return limit == INT64_MAX ? COUNT_OFF : limit;
}

// ---- Rows -----------------------------------------------------------------------------------

// What holds for the whole of a point.
static void fill_point(cell *row, const replay *r, const replay_point *p) {
  const trace *t = r->t;
  row[EXPERIMENT].text = "replay";
  row[ENGINE].text = r->set.common.engine;
  row[PERCENT].count = p->gc_percent < 0 ? COUNT_OFF : p->gc_percent;
  row[LIMIT].count = limit_cell(p->memory_limit);
  row[OWN].flag = p->recorded;
  row[RECORDED_COLLECTIONS].count = p->recorded ? (int64_t)t->collection_count : COUNT_OFF;
  row[COLLECTIONS].count = p->measured ? (int64_t)p->run.collections : COUNT_OFF;
  row[SIMULATED_COLLECTIONS].count = p->simulated ? (int64_t)p->sim.collections : COUNT_OFF;
  row[RECORDED_PERIOD].real = p->recorded ? recorded_period_ms(t) : NAN;
  row[PERIOD].real = p->measured ? p->run.period_ms : NAN;
  row[SIMULATED_PERIOD].real = p->simulated ? p->sim.period_ms : NAN;
  row[PARTIAL].flag = r->partial;
}

static void fill_pool(cell *row, const replay *r, const replay_point *p, size_t pool) {
  const trace_pool *of = &r->t->pools[pool];
  const sim_pool *sim = p->simulated ? &p->sim.pools[pool] : NULL;
  row[POOL].text = of->name;
  row[NUMBER].count = (int64_t)pool + 1;
  row[GETS].count = (int64_t)of->gets;
  row[RECORDED].real = p->recorded ? rate(of->hits, of->gets) : NAN;
  row[MEASURED].real = p->measured ? run_rate(&p->run, pool) : NAN;
  row[SIMULATED].real = sim ? sim_rate(&p->sim, pool) : NAN;
  row[ERROR].real = row[MEASURED].real - row[SIMULATED].real;
  row[USE_GAP].real = sim ? sim->use_gap : NAN;
  row[IDLE].real = sim ? sim->gap_ms : NAN;
}

static void add_point(table *rows, const replay *r, const replay_point *p) {
  cell row[FIELDS] = {[POOL].text = "",      [NUMBER].count = COUNT_OFF, [GETS].count = 0,
                      [RECORDED].real = NAN, [MEASURED].real = NAN,      [SIMULATED].real = NAN,
                      [ERROR].real = NAN,    [USE_GAP].real = NAN,       [IDLE].real = NAN};
  fill_point(row, r, p);
  if (!r->t->pool_count) table_add(rows, row);
  for (size_t pool = 0; pool < r->t->pool_count; pool++) {
    fill_pool(row, r, p, pool);
    table_add(rows, row);
  }
}

// The largest difference between measured and simulated of the pools that have been used.
static double worst_error(const table *rows) {
  double worst = NAN;
  for (size_t i = 0; i < rows->row_count; i++)
    worst = fmax(worst, fabs(rows->cells[i * FIELDS + ERROR].real));
  return worst;
}

static void add_summary(table *summary, const replay *r, const table *rows) {
  const trace *t = r->t;
  int64_t measured = 0;
  for (size_t i = 0; i < r->point_count; i++) measured += r->points[i].measured;
  cell row[S_FIELDS] = {
      [S_EXPERIMENT].text = "replay",
      [S_SUMMARY].flag = true,
      [S_FILE].text = r->set.file,
      [S_OBJECTS].count = (int64_t)t->objects,
      [S_POOLS].count = (int64_t)t->pool_count,
      [S_GETS].count = (int64_t)t->gets,
      [S_THREADS].count = (int64_t)t->threads,
      [S_DURATION].real = (double)t->duration_us / 1e6,
      [S_COMPLETE].flag = !t->cut_short,
      [S_SPEED].text = r->set.speed,
      [S_SECONDS].real = r->points[0].measured ? r->points[0].run.seconds : NAN,
      [S_MEASURED].count = measured,
      [S_ERROR].real = worst_error(rows),
  };
  table_add(summary, row);
}

// ---- Which pools ----------------------------------------------------------------------------

enum { POOLS_SHOWN = 12, GETS_LEAST = 20 };

typedef struct shown {
  size_t at[POOLS_SHOWN];
  size_t count;
} shown;

static int compare_places(const void *a, const void *b) {
  size_t x = *(const size_t *)a, y = *(const size_t *)b;
  return (x > y) - (x < y);
}

// In words and tables only those that are used most, in the order in which they were made.
static shown pools_shown(const trace *t) {
  shown s = {.count = 0};
  for (size_t i = 0; i < t->pool_count; i++) {
    size_t at = s.count; // the list goes from the most gets to the fewest
    while (at && t->pools[s.at[at - 1]].gets < t->pools[i].gets) at--;
    if (at == POOLS_SHOWN || !t->pools[i].gets) continue;
    if (s.count < POOLS_SHOWN) s.count++;
    memmove(s.at + at + 1, s.at + at, (s.count - at - 1) * sizeof *s.at);
    s.at[at] = i;
  }
  qsort(s.at, s.count, sizeof *s.at, compare_places);
  return s;
}

static bool is_shown(const shown *s, int64_t number) {
  if (number == COUNT_OFF) return true;
  for (size_t i = 0; i < s->count; i++)
    if ((int64_t)s->at[i] + 1 == number) return true;
  return false;
}

// With its number where another pool has the same name. Static storage.
static const char *label_of(const trace *t, size_t pool) {
  static char label[128];
  const char *name = t->pools[pool].name;
  bool alone = true;
  for (size_t i = 0; i < t->pool_count; i++)
    if (i != pool && strcmp(t->pools[i].name, name) == 0) alone = false;
  if (alone)
    snprintf(label, sizeof label, "%.100s", name);
  else
    snprintf(label, sizeof label, "%.100s #%zu", name, pool + 1);
  return label;
}

// ---- The table of a pool --------------------------------------------------------------------

static const replay_point *point_at(const replay *r, size_t percent, size_t limit) {
  return &r->points[1 + percent * r->set.limits.count + limit];
}

// What all cells have; NAN: they differ, or one is not known.
static double same_everywhere(const table *grid) {
  double least = INFINITY, most = -INFINITY;
  for (size_t i = 0; i < grid->row_count * grid->column_count; i++) {
    if (i % grid->column_count == 0) continue; // the percent
    double value = grid->cells[i].real;
    if (!isfinite(value)) return NAN;
    least = fmin(least, value);
    most = fmax(most, value);
  }
  return most - least < 0.0005 ? most : NAN;
}

// Percents down, limits across. Returns whether it has ended with an empty line.
static bool print_grid(FILE *file, const text_style *style, const replay *r, size_t pool) {
  const numbers *percents = &r->set.percents, *limits = &r->set.limits;
  size_t width = 1 + limits->count;
  column heads[1 + NUMBERS_MAX] = {{"", "percent", COLUMN_COUNT, 0}};
  char names[NUMBERS_MAX][32];
  for (size_t l = 0; l < limits->count; l++) {
    bool off = limits->at[l] == HUGE_VAL;
    snprintf(names[l], sizeof names[l], "%s",
             off ? "no limit" : size_text((uint64_t)limits->at[l]));
    heads[1 + l] = (column){"", names[l], COLUMN_REAL, 3};
  }
  table grid = {.columns = heads, .column_count = width};
  for (size_t p = 0; p < percents->count; p++) {
    cell row[1 + NUMBERS_MAX];
    row[0].count = percents->at[p] == HUGE_VAL ? COUNT_OFF : (int64_t)percents->at[p];
    for (size_t l = 0; l < limits->count; l++) {
      const replay_point *at = point_at(r, p, l);
      row[1 + l].real = at->simulated ? sim_rate(&at->sim, pool) : NAN;
    }
    table_add(&grid, row);
  }
  const char *label = label_of(r->t, pool);
  double same = same_everywhere(&grid);
  if (isfinite(same)) {
    paragraph_print(file, "%s: hit rate %.3f by simulation, at all percents and limits.", label,
                    same);
  } else {
    paragraph_print(file, "%s: hit rate by simulation, at GC percents and memory limits", label);
    table_print(file, style, &grid);
    fputc('\n', file);
  }
  table_free(&grid);
  return !isfinite(same);
}

// ---- In words -------------------------------------------------------------------------------

// Worth saying.
static const double little = 0.02;

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...) {
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, size - used, format, arguments);
  va_end(arguments);
}

// The smallest percent without a limit that does nearly as well as all others of the table, and
// better than now.
static void append_percent(char *text, size_t size, const replay *r, size_t pool, double now) {
  const numbers *percents = &r->set.percents, *limits = &r->set.limits;
  const replay_point *found = NULL;
  double best = now + little;
  for (size_t p = 0; p < percents->count; p++)
    for (size_t l = 0; l < limits->count; l++) {
      const replay_point *at = point_at(r, p, l);
      if (!at->simulated || at->memory_limit != INT64_MAX || at->gc_percent < 0) continue;
      double hits = sim_rate(&at->sim, pool);
      bool better = hits > best + (found ? little : 0);
      bool smaller = found && at->gc_percent < found->gc_percent && hits > best - little;
      if (!better && !smaller) continue;
      found = at;
      best = fmax(best, hits);
    }
  if (found)
    append(text, size, " GC percent %d makes it %.1f~%%.", found->gc_percent,
           100 * sim_rate(&found->sim, pool));
}

static void append_survive(char *text, size_t size, const replay *r, size_t pool, double now,
                           double best) {
  const replay_cure *found = NULL;
  for (size_t i = 0; i < REPLAY_CURES; i++) {
    const replay_cure *c = &r->cures[i];
    if (!c->simulated || c->survive <= r->t->pools[pool].survive) continue;
    double hits = sim_rate(&c->sim, pool);
    if (hits > now + little && (!found || hits > sim_rate(&found->sim, pool) + little)) found = c;
    if (hits > best - little) break;
  }
  if (found)
    append(text, size, " survive %u makes it %.1f~%%.", found->survive,
           100 * sim_rate(&found->sim, pool));
}

static void append_idle(char *text, size_t size, const replay *r, size_t pool, double now) {
  if (!r->idle_simulated || sim_rate(&r->idle, pool) < now + little) return;
  append(text, size, " min_idle_ns = %.0f000000 (%.0f~ms) makes it %.1f~%%.", r->idle_ms[pool],
         r->idle_ms[pool], 100 * sim_rate(&r->idle, pool));
}

// The largest limit that costs something, at the program's own percent or, if that is not in the
// table, at any.
static void append_limit(char *text, size_t size, const replay *r, size_t pool, double now) {
  const replay_point *found = NULL;
  for (size_t i = 1; i < r->point_count; i++) {
    const replay_point *at = &r->points[i];
    if (!at->simulated || at->memory_limit == INT64_MAX) continue;
    if (at->gc_percent != r->points[0].gc_percent) continue;
    if (sim_rate(&at->sim, pool) > now - little) continue;
    if (!found || at->memory_limit > found->memory_limit) found = at;
  }
  if (!found) return;
  const char *words = size_text((uint64_t)found->memory_limit), *space = strchr(words, ' ');
  append(text, size, " A limit of %.*s~%s leaves %.1f~%%.", (int)(space - words), words, space + 1,
         100 * sim_rate(&found->sim, pool));
}

static void print_words(FILE *file, const replay *r, size_t pool) {
  const trace_pool *of = &r->t->pools[pool];
  const replay_point *own = &r->points[0];
  char text[900] = "";
  if (!own->simulated || !r->best_simulated) return;
  double now = sim_rate(&own->sim, pool), best = sim_rate(&r->best, pool);
  append(text, sizeof text,
         "%s: of %llu gets %.1f~%% were hits when recorded, %.1f~%% are by simulation",
         label_of(r->t, pool), (unsigned long long)of->gets, 100 * rate(of->hits, of->gets),
         100 * now);
  if (own->measured)
    append(text, sizeof text, ", %.1f~%% when replayed", 100 * run_rate(&own->run, pool));
  append(text, sizeof text, ".");
  if (of->gets < GETS_LEAST)
    append(text, sizeof text, " Too few gets to say more.");
  else if (best < now + little)
    append(text, sizeof text, " Collections take next to nothing from it.");
  else
    append(text, sizeof text, " If collections took nothing from it, %.1f~%% would be.",
           100 * best);
  uint64_t items = r->best.pools[pool].most_items;
  if (of->gets >= GETS_LEAST && best >= now + little) {
    append_percent(text, sizeof text, r, pool, now);
    append_survive(text, sizeof text, r, pool, now, best);
    append_idle(text, sizeof text, r, pool, now);
    append(text, sizeof text, " A free list of %llu item%s would keep all of them.",
           (unsigned long long)items, items == 1 ? "" : "s");
  }
  if (of->gets >= GETS_LEAST) append_limit(text, sizeof text, r, pool, now);
  paragraph_print(file, "%s", text);
}

// ---- The text -------------------------------------------------------------------------------

static void print_head(FILE *file, const replay *r) {
  const trace *t = r->t;
  char percent[16] = "off";
  if (t->gc_percent >= 0) snprintf(percent, sizeof percent, "%d", t->gc_percent);
  paragraph_print(
      file,
      "replay: %s engine, %s: %.3f s of a program with %llu threads, %llu objects, %zu pools "
      "and %zu collections, GC percent %s, %s%s%s",
      r->set.common.engine, r->set.file, (double)t->duration_us / 1e6,
      (unsigned long long)t->threads, (unsigned long long)t->objects, t->pool_count,
      t->collection_count, percent, t->memory_limit == INT64_MAX ? "no limit" : "limit ",
      t->memory_limit == INT64_MAX ? "" : size_text((uint64_t)t->memory_limit),
      t->cut_short ? "; the recording has no end" : "");
}

// What is taken from the rows into a table for people.
typedef struct heading {
  size_t field;
  const char *text;
} heading;

// Where COUNT_OFF means that it is not known, not "off".
static bool is_collections(size_t field) {
  return field == RECORDED_COLLECTIONS || field == COLLECTIONS || field == SIMULATED_COLLECTIONS;
}

// Of settings that were measured, and the program's own. by_pool: a row for each pool; else for the
// first alone, as all say the same.
static void print_some(FILE *file, const text_style *style, const page *p, const shown *s,
                       const heading *headings, size_t count, bool by_pool) {
  column heads[FIELDS];
  table some = {.columns = heads, .column_count = count};
  for (size_t h = 0; h < count; h++) {
    heads[h] = columns[headings[h].field];
    heads[h].heading = headings[h].text;
    if (is_collections(headings[h].field)) heads[h].type = COLUMN_REAL;
  }
  size_t pools = p->r->t->pool_count ? p->r->t->pool_count : 1;
  for (size_t i = 0; i < p->rows->row_count; i++) {
    const cell *row = p->rows->cells + i * FIELDS;
    if (!row[OWN].flag && row[COLLECTIONS].count == COUNT_OFF) continue;
    if (by_pool ? !is_shown(s, row[NUMBER].count) : i % pools != 0) continue;
    cell few[FIELDS];
    for (size_t h = 0; h < count; h++) {
      few[h] = row[headings[h].field];
      if (!is_collections(headings[h].field)) continue;
      few[h].real = few[h].count == COUNT_OFF ? NAN : (double)few[h].count;
    }
    table_add(&some, few);
  }
  table_print(file, style, &some);
  table_free(&some);
}

static void print_measured(FILE *file, const text_style *style, const page *p, const shown *s) {
  static const heading of_points[] = {{PERCENT, "percent"},
                                      {LIMIT, "limit"},
                                      {RECORDED_COLLECTIONS, "collections: recorded"},
                                      {COLLECTIONS, "replayed"},
                                      {SIMULATED_COLLECTIONS, "simulated"},
                                      {RECORDED_PERIOD, "period ms: recorded"},
                                      {PERIOD, "replayed"},
                                      {SIMULATED_PERIOD, "simulated"}};
  static const heading of_pools[] = {{NUMBER, "#"},          {POOL, "pool"},
                                     {PERCENT, "percent"},   {LIMIT, "limit"},
                                     {GETS, "gets"},         {RECORDED, "hit rate: recorded"},
                                     {MEASURED, "replayed"}, {SIMULATED, "simulated"},
                                     {USE_GAP, "use gap"},   {IDLE, "idle ms"}};
  print_some(file, style, p, s, of_points, sizeof of_points / sizeof *of_points, false);
  if (!s->count) return;
  fputc('\n', file);
  print_some(file, style, p, s, of_pools, sizeof of_pools / sizeof *of_pools, true);
}

static void print_time(FILE *file, const replay *r) {
  const replay_point *own = &r->points[0];
  if (own->measured)
    paragraph_print(file, "Replayed %s in %.3f s.",
                    strcmp(r->set.speed, "recorded") == 0 ? "at the recorded speed"
                                                          : "as fast as possible",
                    own->run.seconds);
  bool by_time = false;
  for (size_t i = 0; i < r->t->pool_count; i++) by_time |= r->t->pools[i].min_idle_ns != 0;
  if (by_time && own->measured && strcmp(r->set.speed, "fast") == 0)
    paragraph_print(file, "There are pools with min_idle_ns, which is real time: what was replayed "
                          "means nothing for them but with --speed recorded.");
}

static void print_text(FILE *file, const text_style *style, const void *data) {
  const page *p = data;
  const replay *r = p->r;
  const shown s = pools_shown(r->t);
  print_head(file, r);
  fputc('\n', file);
  print_measured(file, style, p, &s);
  fputc('\n', file);
  paragraph_print(file,
                  "Replayed is on the real heap; periods are in the recording's time. use gap: "
                  "collections from one use to the next. idle: median time in the pool.");
  print_time(file, r);
  if (s.count < r->t->pool_count)
    paragraph_print(file, "%zu of %zu pools are shown, those with the most gets.", s.count,
                    r->t->pool_count);
  if (!r->t->pool_count) paragraph_print(file, "The program had no pools.");
  if (s.count) fputc('\n', file);
  bool apart = true;
  for (size_t i = 0; i < s.count; i++) apart = print_grid(file, style, r, s.at[i]);
  if (!apart) fputc('\n', file);
  for (size_t i = 0; i < s.count; i++) print_words(file, r, s.at[i]);
  if (r->partial) paragraph_print(file, "Partial result: interrupted before the end.");
}

bool replay_report(const replay *r) {
  table rows = {.columns = columns, .column_count = FIELDS};
  table summary = {.columns = summary_columns, .column_count = S_FIELDS};
  for (size_t i = 0; i < r->point_count; i++) add_point(&rows, r, &r->points[i]);
  add_summary(&summary, r, &rows);
  const page p = {r, &rows};
  const report rep = {
      .experiment = "replay", .rows = &rows, .summary = &summary, .text = print_text, .data = &p};
  bool good = report_write(&rep, &r->set.common);
  table_free(&rows);
  table_free(&summary);
  return good;
}
