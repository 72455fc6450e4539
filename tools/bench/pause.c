// SPDX-License-Identifier: MIT
// `pause`: how long collections keep the program from running.
//
// A table of lists of four entries each, 32 to 256 bytes large, is the live heap. Every thread has
// a part of the table, and for a number of seconds puts new entries in the place of random ones.
// The lists so become scattered over the heap.
#include "peer.h"

#include <stdlib.h>

enum { LIST_LENGTH = 4, ENTRY_LEAST = 32, ENTRY_MOST = 256, SAMPLES_MOST = 65536, BATCH = 256 };

typedef struct entry {
  struct entry *next;
  uint64_t size;
} entry;

typedef struct mutator {
  entry **lists; // its part of the table
  size_t count;
  uint64_t random;
  uint64_t operations;
  uint64_t end_ns;
  pthread_t thread;
} mutator;

static entry **lists;     // the table
static double *pauses_us; // not in a root: nothing here is a reference
static double *stops_us;
static size_t samples;

static void record(uint64_t pause_ns, uint64_t stop_ns) {
  if (samples == SAMPLES_MOST) return; // more than enough to know the distribution
  pauses_us[samples] = (double)pause_ns * 1e-3;
  stops_us[samples++] = (double)stop_ns * 1e-3;
}

static entry *make_entry(entry *next, uint64_t *random) {
  size_t size = ENTRY_LEAST + random_below(random, ENTRY_MOST - ENTRY_LEAST + 1);
  entry *e = allocate(size);
  e->size = size;
  e->next = next;
  return e;
}

static void replace_one(entry **list, uint64_t *random) {
  for (uint64_t before = random_below(random, LIST_LENGTH); before > 0; before--)
    list = &(*list)->next;
  entry *old = *list;
  *list = make_entry(old->next, random);
  peer_free(old);
}

static void *mutate(void *arg) {
  mutator *m = arg;
  while (now_ns() < m->end_ns) {
    for (int i = 0; i < BATCH; i++)
      replace_one(&m->lists[random_below(&m->random, m->count)], &m->random);
    m->operations += BATCH;
  }
  return NULL;
}

static size_t fill_table(uint64_t live_bytes, uint64_t *random) {
  size_t count = live_bytes / (LIST_LENGTH * (ENTRY_LEAST + ENTRY_MOST) / 2) + 1;
  lists = allocate(count * sizeof *lists);
  for (size_t i = 0; i < count * LIST_LENGTH; i++)
    lists[i / LIST_LENGTH] = make_entry(lists[i / LIST_LENGTH], random);
  return count;
}

// Runs the threads; returns the operations of all, and the seconds in *seconds.
static uint64_t run_threads(size_t list_count, unsigned threads, uint64_t *random,
                            double *seconds) {
  mutator *team = calloc(threads, sizeof *team);
  if (!team) fail("out of memory");
  uint64_t start_ns = now_ns(), end_ns = start_ns + parameter("seconds") * 1000000000u;
  for (unsigned i = 0; i < threads; i++) {
    size_t first = list_count * i / threads, end = list_count * (i + 1) / threads;
    if (first == end) fail("more threads than lists");
    team[i] = (mutator){.lists = lists + first,
                        .count = end - first,
                        .random = random_next(random),
                        .end_ns = end_ns};
    if (peer_thread_start(&team[i].thread, mutate, &team[i]) != 0) fail("no thread can be started");
  }
  uint64_t operations = 0;
  for (unsigned i = 0; i < threads; i++) {
    peer_thread_join(team[i].thread);
    operations += team[i].operations;
  }
  *seconds = seconds_since(start_ns);
  free(team);
  return operations;
}

void pause_run(void) {
  uint64_t random = parameter("seed");
  pauses_us = malloc(SAMPLES_MOST * sizeof *pauses_us);
  stops_us = malloc(SAMPLES_MOST * sizeof *stops_us);
  if (!pauses_us || !stops_us) fail("out of memory");
  size_t count = fill_table(parameter("live_bytes"), &random);
  double before = peer_collections(), seconds;
  peer_watch_pauses(record);
  uint64_t operations = run_threads(count, (unsigned)parameter("threads"), &random, &seconds);
  sort_values(pauses_us, samples);
  sort_values(stops_us, samples);
  report("pause_us", percentile(pauses_us, samples, 0.5));
  report("pause_p99_us", percentile(pauses_us, samples, 0.99));
  report("pause_max_us", percentile(pauses_us, samples, 1));
  report("stop_us", percentile(stops_us, samples, 0.5));
  report("stop_max_us", percentile(stops_us, samples, 1));
  report("collections", peer_collections() - before);
  report("kops_s", (double)operations / seconds * 1e-3);
}
