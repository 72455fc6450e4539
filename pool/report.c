// SPDX-License-Identifier: MIT
// The reports on pools: copies numbers, has advice.c judge them, and writes that down, for people
// or as JSON.
//
// Under the lock of the list of pools numbers are copied, and nothing else; pools may go away as
// soon as it is given back. Of items only addresses are taken, a few of each pool, and asked for
// their sizes afterwards: an item may be gone by then, and an address where no object starts has
// size 0.
#define _GNU_SOURCE
#include "pool_private.h"
#include "report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// ---- Copying --------------------------------------------------------------------------------

// As much as there is room for, by whole characters of UTF-8.
static void copy_name(char *to, const char *name) {
  size_t length = strnlen(name, ADVICE_NAME_BYTES);
  if (length == ADVICE_NAME_BYTES) length--;
  while (length && name[length] && ((unsigned char)name[length] & 0xc0) == 0x80) length--;
  memcpy(to, name, length);
  to[length] = 0;
}

static void count_one(tide_pool *pool, void *count) {
  ++*(size_t *)count;
}

static void copy_one(tide_pool *pool, void *arg) {
  report *r = arg;
  if (r->count++ >= r->room) return;
  report_entry *e = &r->entries[r->count - 1];
  memset(e, 0, sizeof *e);
  const pool_body *body = pool->body;
  copy_name(e->pool.name, body->name);
  stats_copy(pool, &e->pool.stats);
  uint64_t uses = e->pool.stats.uses;
  e->pool.use_gaps = uses && !body->at_reset.uses ? uses - 1 : uses;
  e->pool.survive = body->survive;
  e->pool.min_idle_ns = body->min_idle_ns;
  e->pool.max_item_bytes = body->max_item_bytes;
  e->pool.max_bytes = body->max_bytes;
  e->pool.max_items = body->max_items;
  e->pool.creates = body->create;
  e->samples = set_sample(primary_of(pool), e->sample, REPORT_SAMPLES);
  for (unsigned i = 0; i < pool->victims; i++)
    e->samples += set_sample(body->victim[i], e->sample + e->samples, REPORT_SAMPLES - e->samples);
}

// False: no memory. More pools may have been made since they were counted.
static bool copy_pools(report *r) {
  size_t count = 0;
  pools_for_each(count_one, &count);
  for (;;) {
    r->room = count + 8;
    r->entries = malloc(r->room * sizeof *r->entries);
    if (!r->entries) return false;
    r->count = 0;
    pools_for_each(copy_one, r);
    if (r->count <= r->room) return true;
    count = r->count;
    free(r->entries);
  }
}

// Neither what percent makes of what is live nor the usual smallest heap: tide_min_heap_set.
static bool is_a_floor_of_its_own(const heap_facts *h, uint64_t goal_bytes) {
  double percent = h->percent < 0 ? 0 : h->percent / 100.0;
  double by_percent = (double)h->live_bytes + (double)h->scanned_bytes * percent;
  bool usual = goal_bytes == (uint64_t)((4 << 20) * percent);
  return goal_bytes != UINT64_MAX && !usual && (double)goal_bytes > by_percent + 4096;
}

static void copy_heap(heap_facts *h) {
  tide_memstats *stats = malloc(sizeof *stats); // some kilobytes
  if (!stats) return;
  tide_memstats_read(stats);
  h->heap_bytes = stats->heap_alloc + stats->external_bytes;
  h->beside_bytes = stats->total_bytes > h->heap_bytes ? stats->total_bytes - h->heap_bytes : 0;
  h->limit_bytes = stats->memory_limit == INT64_MAX ? UINT64_MAX : (uint64_t)stats->memory_limit;
  h->percent = stats->gc_percent;
  const pool_pace *pace = &pool_pace_now;
  h->live_bytes = AO_load(&pace->live_bytes);
  h->scanned_bytes = AO_load(&pace->scanned_bytes);
  h->floor_is_set = rt_options.min_heap_bytes || is_a_floor_of_its_own(h, stats->next_gc);
  free(stats);
  for (int cause = 0; cause < TIDE_CAUSES; cause++) {
    h->by_cause[cause] = AO_load(&pace->collections[cause]);
    h->collections += h->by_cause[cause];
    double times = (double)AO_load(&pace->grown[cause]);
    if (times > 0) h->growth_bytes[cause] = (double)AO_load(&pace->grown_bytes[cause]) / times;
  }
}

static int by_size(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void weigh_items(report_entry *e) {
  const tide_pool_stats *s = &e->pool.stats;
  uint64_t sizes[REPORT_SAMPLES], sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < e->samples; i++) {
    size_t bytes = tide_size(e->sample[i]);
    if (bytes) sum += sizes[count++] = bytes;
  }
  if (count) {
    qsort(sizes, count, sizeof *sizes, by_size);
    e->pool.item_bytes = sum / count;
    e->pool.made_bytes = sizes[count / 2];
  }
  uint64_t items = s->items_primary + s->items_victim, bytes = s->bytes_primary + s->bytes_victim;
  if (items && bytes) e->pool.item_bytes = bytes / items;
  if (s->created && s->created_bytes) e->pool.made_bytes = s->created_bytes / s->created;
}

// What is lost most comes first.
static int by_loss(const void *a, const void *b) {
  const advice *x = &((const report_entry *)a)->advice, *y = &((const report_entry *)b)->advice;
  if (x->forgotten != y->forgotten) return x->forgotten < y->forgotten ? 1 : -1;
  uint64_t missed = x->cold + x->demand, missed_there = y->cold + y->demand;
  if (missed != missed_there) return missed < missed_there ? 1 : -1;
  return strcmp(((const report_entry *)a)->pool.name, ((const report_entry *)b)->pool.name);
}

static bool make(report *r) {
  memset(r, 0, sizeof *r);
  copy_heap(&r->heap);
  if (!copy_pools(r)) return false;
  for (size_t i = 0; i < r->count; i++) {
    weigh_items(&r->entries[i]);
    r->entries[i].advice = pool_advise(&r->entries[i].pool, &r->heap);
  }
  qsort(r->entries, r->count, sizeof *r->entries, by_loss);
  return true;
}

// ---- Asking ---------------------------------------------------------------------------------

static void write_report(FILE *out, void (*put)(FILE *out, const report *r)) {
  report r;
  int cancellable = rt_cancel_disable();
  if (make(&r))
    put(out, &r);
  else
    rt_report("no memory for a report on pools");
  free(r.entries);
  rt_cancel_restore(cancellable);
}

void tide_pool_report(FILE *out) {
  if (out && rt_enter("tide_pool_report")) write_report(out, pool_report_text);
}

void tide_pool_report_json(FILE *out) {
  if (out && rt_enter("tide_pool_report_json")) write_report(out, pool_report_json);
}

// ---- At the exit ----------------------------------------------------------------------------

// To the file itself: another thread may hold the stream for ever. Nobody may be reading any more;
// that must not change how the program ends.
static void write_to_stderr(const char *text, size_t bytes) {
  static const struct timespec at_once = {0, 0};
  sigset_t broken, before;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  while (bytes) {
    long wrote = syscall(SYS_write, STDERR_FILENO, text, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    text += wrote;
    bytes -= (size_t)wrote;
  }
  if (bytes && !sigismember(&before, SIGPIPE)) sigtimedwait(&broken, NULL, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *report_at_exit(void *arg) {
  rt_thread *self = rt_self();
  if (self && self->refusal) return NULL; // the exit comes from a stopped hook
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return NULL;
  tide_pool_report(out);
  fclose(out);
  if (text) write_to_stderr(text, bytes);
  free(text);
  return NULL;
}

// The exit may come from inside tide_blocking.
void pool_report_at_exit(void) {
  if (rt_initialised() && rt_options.poolreport == 1) tide_active(report_at_exit, NULL);
}
