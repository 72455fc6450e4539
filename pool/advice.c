// SPDX-License-Identifier: MIT
// Advice on a pool; see advice.h for the rule that it goes by. Called by report.c and by the tests.
//
// Each cure is the smallest that brings the share of uses that find their items again to 99 %,
// rounded up to a number that one writes down. What collections cannot be blamed for (cold misses,
// more items held than there were) no cure changes, so the promise may be less than that.
#include "advice.h"

static const double good_enough = 0.99;  // of the gets that a cure can help
static const double worth_a_word = 0.05; // misses, as a share of gets
static const double spare = 1.05;        // collections do not come like clockwork

enum {
  GAPS = TIDE_POOL_GAPS,
  TINY_BYTES = 64,     // an item below costs no more to allocate than to get and put
  GROWN_TIMES = 4,     // as large as it was made
  FACTOR_MAX = 50,     // no percent and no limit is advised beyond so many times the period
  PERCENT_MAX = 10000, //
};
static const uint64_t floor_bytes_at_100 = 4 << 20; // gc/pacer.c
static const uint64_t mib = 1 << 20;

// ---- The rule -------------------------------------------------------------------------------

static double clip(double x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

static uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

static uint64_t round_up(double x, uint64_t step) {
  uint64_t whole = (uint64_t)x;
  if ((double)whole < x) whole++;
  return (whole + step - 1) / step * step;
}

// Whether the gaps between uses are those of an even spacing: two numbers next to one another, by
// turns, have a variance of a quarter at most. A little more is chance.
static bool is_even(const tide_pool_stats *s, uint64_t gaps, double mean) {
  double variance = share((double)s->use_gap_squares, (double)gaps) - mean * mean;
  return variance <= 0.3;
}

static double gap_length(const tide_pool_stats *s, int gap) {
  return gap < GAPS - 1 ? gap : (double)s->use_gap_most;
}

// Of the gets that had to reach back over a collection, those that find an item, if the period were
// `longer` times as long, with that survive.
static double reach(const advice *a, const tide_pool_stats *s, double longer, unsigned survive) {
  if (a->even) return 1 - clip(a->gap / longer - survive);
  double found = (double)s->hits_victim;
  for (int gap = 1; gap < GAPS; gap++)
    found += (double)s->forgotten[gap] * (1 - clip(gap_length(s, gap) / longer - survive));
  return share(found, (double)(s->hits_victim + a->forgotten));
}

static double hits_with(const advice *a, const tide_pool_stats *s, double reached) {
  return (double)(a->hits - s->hits_victim) + reached * (double)(s->hits_victim + a->forgotten);
}

// ---- What there is --------------------------------------------------------------------------

static void count_gets(advice *a, const tide_pool_stats *s) {
  a->hits = s->hits_private + s->hits_shared + s->hits_stolen + s->hits_victim;
  uint64_t late = 0; // gets after the first put that the primary did not answer
  for (int gap = 0; gap < GAPS; gap++) {
    late += s->gaps[gap];
    a->forgotten += s->forgotten[gap];
  }
  a->cold = less(s->misses, less(late, s->hits_victim));
  if (a->forgotten > s->misses - a->cold) a->forgotten = s->misses - a->cold; // torn, in use
  a->demand = s->misses - a->cold - a->forgotten;
  a->hit_rate = share((double)a->hits, (double)s->gets);
}

static void measure_gap(advice *a, const pool_facts *pool) {
  const tide_pool_stats *s = &pool->stats;
  double gaps = (double)pool->use_gaps;
  if (!pool->use_gaps) return;
  a->gap = (double)s->use_gap_sum / gaps;
  a->gap_ns = (double)s->use_gap_ns / gaps;
  a->even = is_even(s, pool->use_gaps, a->gap);
  a->predicted = share(hits_with(a, s, reach(a, s, 1, pool->survive)), (double)s->gets);
}

static void measure_memory(advice *a, const pool_facts *pool, const heap_facts *heap) {
  const tide_pool_stats *s = &pool->stats;
  a->items = s->items_primary + s->items_victim;
  a->bytes = s->bytes_primary + s->bytes_victim;
  if (!a->bytes) a->bytes = a->items * pool->item_bytes;
  a->heap_share = clip(share((double)a->bytes, (double)heap->heap_bytes));
  if (heap->limit_bytes != UINT64_MAX)
    a->limit_share = share((double)a->bytes, (double)heap->limit_bytes);
}

static pace_by what_sets_the_pace(const heap_facts *heap) {
  uint64_t half = heap->collections / 2;
  if (heap->by_cause[TIDE_CAUSE_LIMIT] > half) return PACE_BY_LIMIT;
  if (heap->by_cause[TIDE_CAUSE_GOAL] > half) return PACE_BY_PERCENT;
  if (heap->by_cause[TIDE_CAUSE_FORCED] > half) return PACE_BY_PROGRAM;
  return PACE_BY_OTHERS;
}

// ---- Diagnosis ------------------------------------------------------------------------------

static trouble diagnose(advice *a, const pool_facts *pool) {
  const tide_pool_stats *s = &pool->stats;
  bool time_enough = s->rotations >= ADVICE_COLLECTIONS_MIN;
  if (!s->gets && s->puts && time_enough) return NEVER_ASKED;
  if (s->gets < ADVICE_GETS_MIN || !time_enough) return TOO_FEW_DATA;
  uint64_t misses = s->misses - a->cold;
  a->refused = s->dropped_large + s->dropped_full;
  uint64_t given = pool->creates ? a->hits + s->created : s->gets;
  a->not_returned = less(given, s->puts + a->refused + s->dropped_memory + s->dropped_chaos);
  // Where nothing comes back there is no first put, and all misses are cold.
  if (a->not_returned >= s->misses / 2 && (double)s->misses > worth_a_word * (double)s->gets)
    return NOT_PUT_BACK;
  if ((double)misses <= worth_a_word * (double)s->gets) return FINE;
  if (a->forgotten >= a->demand) return a->gap > 0 ? FORGOTTEN : TOO_FEW_DATA;
  return a->refused >= a->demand / 2 ? REFUSED : DEMAND;
}

static burden weigh(const advice *a, const pool_facts *pool) {
  if (pool->made_bytes && pool->item_bytes > GROWN_TIMES * pool->made_bytes && a->bytes >= mib)
    return OVERSIZED;
  if (a->limit_share > 0.25) return GREEDY;
  return pool->made_bytes && pool->made_bytes < TINY_BYTES ? TINY : LIGHT;
}

// ---- Cures ----------------------------------------------------------------------------------

static unsigned survive_for(const advice *a, const pool_facts *pool) {
  for (unsigned s = pool->survive + 1; s <= TIDE_SURVIVE_MAX; s++)
    if (reach(a, &pool->stats, 1, s) >= good_enough) return s;
  return 0;
}

// How many times as long the period has to be; 0: nobody would want that.
static double longer_for(const advice *a, const pool_facts *pool, unsigned survive) {
  double too_short = 1, enough = FACTOR_MAX;
  if (reach(a, &pool->stats, enough, survive) < good_enough) return 0;
  while (enough - too_short > 1e-4) {
    double between = (too_short + enough) / 2;
    if (reach(a, &pool->stats, between, survive) >= good_enough)
      enough = between;
    else
      too_short = between;
  }
  return enough;
}

// The smallest percent that lets the heap grow by so many bytes.
static uint64_t percent_for(const heap_facts *heap, double growth_bytes) {
  double percent = share(100 * growth_bytes, (double)heap->scanned_bytes);
  double by_floor = 100 * (growth_bytes + (double)heap->live_bytes) / (double)floor_bytes_at_100;
  if (!heap->floor_is_set && by_floor < percent) percent = by_floor;
  return round_up(percent, percent < 500 ? 10 : percent < 2000 ? 50 : 100);
}

static bool fits_limit(const heap_facts *heap, double growth_bytes) {
  return heap->limit_bytes == UINT64_MAX ||
         (double)(heap->live_bytes + heap->beside_bytes) + growth_bytes < (double)heap->limit_bytes;
}

static void cure_by_percent(advice *a, const pool_facts *pool, const heap_facts *heap) {
  double longer = spare * longer_for(a, pool, pool->survive);
  double growth_bytes = heap->growth_bytes[TIDE_CAUSE_GOAL] * longer;
  if (growth_bytes <= 0 || heap->percent <= 0 || !fits_limit(heap, growth_bytes)) return;
  uint64_t percent = percent_for(heap, growth_bytes);
  if (percent > (uint64_t)heap->percent && percent <= PERCENT_MAX) a->gc_percent = percent;
}

// At the limit no pool keeps items for longer than one collection.
static void cure_by_limit(advice *a, const pool_facts *pool, const heap_facts *heap) {
  double room_bytes = heap->growth_bytes[TIDE_CAUSE_LIMIT];
  double longer = spare * longer_for(a, pool, pool->survive ? 1 : 0);
  if (longer <= 0 || room_bytes <= 0 || heap->limit_bytes == UINT64_MAX) return;
  a->memory_limit = round_up((double)heap->limit_bytes + (longer - 1) * room_bytes, mib);
  if (heap->percent < 0) return;
  uint64_t percent = percent_for(heap, longer * room_bytes);
  if (percent > (uint64_t)heap->percent) a->limit_percent = percent;
}

// A quarter more than from one use to the next; where the gaps differ, than nearly the longest.
static uint64_t idle_for(const advice *a, const pool_facts *pool) {
  enum { MS = 1000000 };
  const tide_pool_stats *s = &pool->stats;
  double gaps = a->survive ? a->survive : (double)s->use_gap_most;
  double period_ns = share((double)s->use_gap_ns, (double)s->use_gap_sum);
  uint64_t ns = round_up(1.25 * (a->even ? a->gap_ns : gaps * period_ns), MS);
  return ns > pool->min_idle_ns ? ns : 0;
}

static void cure_forgetting(advice *a, const pool_facts *pool, const heap_facts *heap) {
  const tide_pool_stats *s = &pool->stats;
  a->promised = share(hits_with(a, s, good_enough), (double)(s->gets - a->cold));
  a->free_list = s->needed_most;
  if (a->pace == PACE_BY_LIMIT) {
    cure_by_limit(a, pool, heap);
    return;
  }
  // By the rule all is well. Something else takes the items: the limiter, other processors.
  if (reach(a, s, 1, pool->survive) >= good_enough) return;
  a->survive = survive_for(a, pool);
  a->min_idle_ns = idle_for(a, pool);
  if (a->pace == PACE_BY_PERCENT) cure_by_percent(a, pool, heap);
}

// Of the bounds that refused items, the one that did so oftener, so that it would not.
static void cure_refusal(advice *a, const pool_facts *pool) {
  const tide_pool_stats *s = &pool->stats;
  if (s->dropped_large > s->dropped_full) return; // how large they were is not known
  if (pool->max_items != UINT64_MAX && pool->max_items < s->needed_most)
    a->max_items = s->needed_most;
  if (pool->max_bytes != UINT64_MAX && pool->item_bytes)
    a->max_bytes = round_up(spare * (double)(s->needed_most * pool->item_bytes), 4096);
}

static void lighten(advice *a, const pool_facts *pool, const heap_facts *heap) {
  if (a->burden == GREEDY) a->max_bytes = round_up((double)heap->limit_bytes / 10, mib);
  if (a->burden != OVERSIZED) return;
  a->max_item_bytes = 4096;
  while (a->max_item_bytes < 2 * pool->made_bytes) a->max_item_bytes *= 2;
}

advice pool_advise(const pool_facts *pool, const heap_facts *heap) {
  advice a = {0};
  count_gets(&a, &pool->stats);
  measure_gap(&a, pool);
  measure_memory(&a, pool, heap);
  a.pace = what_sets_the_pace(heap);
  a.trouble = diagnose(&a, pool);
  a.burden = weigh(&a, pool);
  if (a.trouble == FORGOTTEN) cure_forgetting(&a, pool, heap);
  if (a.trouble == REFUSED) cure_refusal(&a, pool);
  lighten(&a, pool, heap);
  return a;
}
