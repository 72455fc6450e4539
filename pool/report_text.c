// SPDX-License-Identifier: MIT
// The report on pools for people: for each pool its numbers, what is wrong in a sentence, and what
// would help in another. Every number in a sentence comes from the advice or the facts.
#include "report.h"

#include <unistd.h>

// ---- Numbers --------------------------------------------------------------------------------

void pool_report_decimal(FILE *out, double x, int decimals) {
  uint64_t scale = 1;
  for (int i = 0; i < decimals; i++) scale *= 10;
  uint64_t scaled = (uint64_t)(x * (double)scale + 0.5);
  fprintf(out, "%llu.%0*llu", LLU(scaled / scale), decimals, LLU(scaled % scale));
}

static void put_percent(FILE *out, double share) {
  pool_report_decimal(out, 100 * share, 1);
  fputs(" %", out);
}

// Whole percents, for sentences: nothing is 0 or 100 that is not.
static unsigned whole_percent(double share) {
  unsigned percent = (unsigned)(100 * share + 0.5);
  if (percent == 0 && share > 0) return 1;
  return percent >= 100 && share < 1 ? 99 : percent;
}

// A promise is rounded down, and nothing is certain.
static unsigned promise(double share) {
  unsigned percent = (unsigned)(100 * share + 1e-6);
  return percent < 99 ? percent : 99;
}

static void put_bytes(FILE *out, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes;
  unsigned unit = 0;
  while (x >= 1024 && unit < 4) {
    x /= 1024;
    unit++;
  }
  if (unit == 0 || x == (double)(uint64_t)x)
    fprintf(out, "%llu", LLU(x));
  else
    pool_report_decimal(out, x, 1);
  fprintf(out, " %s", units[unit]);
}

// ---- Sentences ------------------------------------------------------------------------------

static void say_forgotten(FILE *out, const report_entry *e) {
  const advice *a = &e->advice;
  fputs("Used every ", out);
  pool_report_decimal(out, a->gap, 1);
  fputs(" collections", out);
  if (!a->even) fprintf(out, " on average, %llu at most", LLU(e->pool.stats.use_gap_most));
  fprintf(out, ", so %u %% of gets are reused.", whole_percent(a->hit_rate));
}

static void say_not_put_back(FILE *out, const report_entry *e) {
  const advice *a = &e->advice;
  uint64_t gets = e->pool.stats.gets;
  fprintf(out,
          "%llu of %llu items never came back: look for ways out that leave out tide_pool_put, as "
          "after an error.",
          LLU(a->not_returned), LLU(gets));
}

static void say_refused(FILE *out, const report_entry *e) {
  const tide_pool_stats *s = &e->pool.stats;
  if (s->dropped_large > s->dropped_full)
    fprintf(out,
            "%llu items were larger than max_item_bytes = %llu and were dropped: raise it, or make "
            "items smaller.",
            LLU(s->dropped_large), LLU(e->pool.max_item_bytes));
  else
    fprintf(out,
            "%llu items found the pool full (max_items, max_bytes) and were dropped, while up to "
            "%llu were needed.",
            LLU(s->dropped_full), LLU(s->needed_most));
}

static void say_trouble(FILE *out, const report_entry *e) {
  const tide_pool_stats *s = &e->pool.stats;
  const advice *a = &e->advice;
  switch (a->trouble) {
  case FINE:
    fputs(a->burden == LIGHT ? "Nothing to do." : "The hit rate is fine.", out);
    break;
  case TOO_FEW_DATA:
    fprintf(out, "Too few data: %llu gets, %llu collections, %llu uses; it takes %d, %d and 2.",
            LLU(s->gets), LLU(s->rotations), LLU(s->uses), ADVICE_GETS_MIN, ADVICE_COLLECTIONS_MIN);
    break;
  case NEVER_ASKED:
    fprintf(out, "%llu items were put and none was asked for: nobody uses this pool.",
            LLU(s->puts));
    break;
  case FORGOTTEN:
    say_forgotten(out, e);
    break;
  case NOT_PUT_BACK:
    say_not_put_back(out, e);
    break;
  case REFUSED:
    say_refused(out, e);
    break;
  case DEMAND:
    fprintf(out,
            "%u %% of gets came while more items were out than had ever been put back, up to %llu; "
            "that ends when the number of items out stops growing.",
            whole_percent((double)a->demand / (double)s->gets), LLU(s->needed_most));
    break;
  }
}

static void say_burden(FILE *out, const report_entry *e) {
  const advice *a = &e->advice;
  switch (a->burden) {
  case LIGHT:
    return;
  case OVERSIZED:
    fputs("Its items have grown to ", out);
    put_bytes(out, e->pool.item_bytes);
    fputs(" on average, from ", out);
    put_bytes(out, e->pool.made_bytes);
    fputs(", and hold ", out);
    put_bytes(out, a->bytes);
    fprintf(out, ": set max_item_bytes = %llu, and the large ones go to the collector.",
            LLU(a->max_item_bytes));
    break;
  case GREEDY:
    fprintf(out, "It holds %u %% of the memory limit: max_bytes = %llu would hold it to a tenth.",
            whole_percent(a->limit_share), LLU(a->max_bytes));
    break;
  case TINY:
    fprintf(out, "Items of %llu bytes gain nothing from a pool: allocating one costs no more.",
            LLU(e->pool.made_bytes));
    break;
  }
}

static const char *or_(bool *any) {
  const char *word = *any ? "; " : "";
  *any = true;
  return word;
}

static void put_ms(FILE *out, uint64_t ns) {
  fprintf(out, "min_idle_ns = %llu (%llu ms)", LLU(ns), LLU(ns / 1000000));
}

static void put_limit(FILE *out, const advice *a, bool *any) {
  fprintf(out, "%sa memory limit of ", or_(any));
  put_bytes(out, a->memory_limit);
  if (a->limit_percent) fprintf(out, " with GC percent %llu", LLU(a->limit_percent));
}

static void put_free_list(FILE *out, const report_entry *e, bool *any) {
  fprintf(out, "%sa free list of %llu item%s", or_(any), LLU(e->advice.free_list),
          e->advice.free_list == 1 ? "" : "s");
  if (!e->pool.made_bytes) return;
  fputs(" (", out);
  put_bytes(out, e->advice.free_list * e->pool.made_bytes);
  fputs(")", out);
}

static void put_cures(FILE *out, const report_entry *e) {
  const advice *a = &e->advice;
  bool any = false;
  fprintf(out, "Any one of these would make it %u %%: ", promise(a->promised));
  if (a->gc_percent) fprintf(out, "%sGC percent %llu", or_(&any), LLU(a->gc_percent));
  if (a->memory_limit) put_limit(out, a, &any);
  if (a->survive) fprintf(out, "%ssurvive = %u", or_(&any), a->survive);
  if (a->min_idle_ns) {
    fputs(or_(&any), out);
    put_ms(out, a->min_idle_ns);
  }
  if (a->free_list) put_free_list(out, e, &any);
  fputs(".", out);
}

// Why GC percent is not among them.
static void say_pace(FILE *out, const report_entry *e, const heap_facts *heap) {
  const advice *a = &e->advice;
  if (a->pace == PACE_BY_LIMIT)
    fputs(" The memory limit sets the pace here, not GC percent, and overrules survive and "
          "min_idle_ns.",
          out);
  else if (a->pace == PACE_BY_PROGRAM)
    fputs(" Collections are the program's own here (tide_collect): GC percent does not matter.",
          out);
  else if (a->pace == PACE_BY_PERCENT && !a->gc_percent && a->survive &&
           heap->limit_bytes != UINT64_MAX)
    fputs(" GC percent cannot do it under this memory limit.", out);
}

void pool_report_cure(FILE *out, const report_entry *e, const heap_facts *heap) {
  const advice *a = &e->advice;
  if (a->trouble == FORGOTTEN) {
    put_cures(out, e);
    say_pace(out, e, heap);
  }
  if (a->trouble == REFUSED && a->max_items)
    fprintf(out, "Set max_items = %llu.", LLU(a->max_items));
  else if (a->trouble == REFUSED && a->max_bytes)
    fprintf(out, "Set max_bytes = %llu.", LLU(a->max_bytes));
}

void pool_report_diagnosis(FILE *out, const report_entry *e, const heap_facts *heap) {
  say_trouble(out, e);
  if (e->advice.burden == LIGHT) return;
  fputs(" ", out);
  say_burden(out, e);
}

// ---- For people -----------------------------------------------------------------------------

static void put_name(FILE *out, const char *name) {
  for (; *name; name++) fputc((unsigned char)*name < ' ' || *name == 127 ? '?' : *name, out);
}

static void put_gap(FILE *out, const advice *a) {
  fputs("  T/G ", out);
  pool_report_decimal(out, a->gap, 2);
  fprintf(out, " (%s), predicted ", a->even ? "even" : "uneven");
  put_percent(out, a->predicted);
  fputs("\n", out);
}

static void put_memory(FILE *out, const advice *a) {
  fprintf(out, "  in it now: %llu items", LLU(a->items));
  if (a->bytes) {
    fputs(", ", out);
    put_bytes(out, a->bytes);
    fputs(", ", out);
    put_percent(out, a->heap_share);
    fputs(" of the heap", out);
  }
  if (a->limit_share > 0) {
    fputs(", ", out);
    put_percent(out, a->limit_share);
    fputs(" of the limit", out);
  }
  fputs("\n", out);
}

static void put_entry(FILE *out, const report_entry *e, const heap_facts *heap) {
  const advice *a = &e->advice;
  fputs("pool ", out);
  put_name(out, e->pool.name);
  fprintf(out, ": %llu gets, hit rate ", LLU(e->pool.stats.gets));
  put_percent(out, a->hit_rate);
  fprintf(out, "; misses: %llu cold, %llu demand, %llu forgotten\n", LLU(a->cold), LLU(a->demand),
          LLU(a->forgotten));
  if (a->gap > 0) put_gap(out, a);
  if (a->items) put_memory(out, a);
  fputs("  ", out);
  pool_report_diagnosis(out, e, heap);
  fputs("\n", out);
  if (a->trouble != FORGOTTEN && !a->max_items && !(a->trouble == REFUSED && a->max_bytes)) return;
  fputs("  ", out);
  pool_report_cure(out, e, heap);
  fputs("\n", out);
}

void pool_report_text(FILE *out, const report *r) {
  const heap_facts *heap = &r->heap;
  fprintf(out, "tidepool: %zu pool%s of process %d, %llu collections", r->count,
          r->count == 1 ? "" : "s", (int)getpid(), LLU(heap->collections));
  const char *before = " (";
  for (int cause = 0; cause < TIDE_CAUSES; cause++) {
    if (!heap->by_cause[cause]) continue;
    fprintf(out, "%s%llu %s", before, LLU(heap->by_cause[cause]),
            tide_cause_string((tide_cause)cause));
    before = ", ";
  }
  fputs(heap->collections ? ")" : "", out);
  if (heap->percent >= 0) fprintf(out, ", GC percent %d", heap->percent);
  fputs("\n", out);
  for (size_t i = 0; i < r->count; i++) put_entry(out, &r->entries[i], heap);
}
