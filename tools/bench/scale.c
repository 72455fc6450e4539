// SPDX-License-Identifier: MIT
// `scale`: whether threads that allocate get in each other's way.
//
// Each of a number of threads, none of them the first of the process, allocates the same count of
// objects and keeps the last few in a ring of its own. The time is from the moment when all may
// begin to the moment when the last one is done.
#include "peer.h"

#include <stdlib.h>

enum { RING = 64 };

typedef struct member {
  pthread_t thread;
  uint64_t ready_ns; // when it came to the barrier
} member;

static size_t object_size;
static uint64_t count_each;
static pthread_barrier_t begin;

static void *allocate_all(void *arg) {
  member *self = arg;
  void **ring = allocate(RING * sizeof *ring);
  self->ready_ns = now_ns();
  pthread_barrier_wait(&begin);
  for (uint64_t i = 0; i < count_each; i++) {
    void **place = &ring[i % RING];
    uint64_t *object = allocate(object_size);
    *object = i;
    if (!PEER_COLLECTS && *place) peer_free(*place);
    *place = object;
  }
  for (int i = 0; i < RING && !PEER_COLLECTS; i++) peer_free(ring[i]);
  escape(ring);
  peer_free(ring);
  return NULL;
}

void scale_run(void) {
  unsigned threads = (unsigned)parameter("threads");
  object_size = parameter("size");
  count_each = parameter("bytes") / object_size;
  if (count_each == 0) count_each = 1;
  member *team = calloc(threads, sizeof *team);
  uint64_t start_ns = 0;
  if (!team || pthread_barrier_init(&begin, NULL, threads) != 0) fail("out of memory");
  for (unsigned i = 0; i < threads; i++)
    if (peer_thread_start(&team[i].thread, allocate_all, &team[i]) != 0)
      fail("no thread can be started");
  for (unsigned i = 0; i < threads; i++) {
    peer_thread_join(team[i].thread);
    if (team[i].ready_ns > start_ns) start_ns = team[i].ready_ns;
  }
  double seconds = seconds_since(start_ns);
  free(team);
  report("wall_s", seconds);
  report("mallocs_s", (double)(count_each * threads) / seconds * 1e-6);
  report("cpu_s", cpu_seconds());
  report("collections", peer_collections());
}
