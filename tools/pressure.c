// SPDX-License-Identifier: MIT
// The live heap and the steady allocator of an experiment; see pressure.h.
//
// The allocator keeps two clocks. `due` is when the next chunk would be allocated if nothing ever
// held the thread up: chunk n at start + n x interval. `next` is when it will be. After a pause of
// the collector or of the scheduler the thread is behind, and catches up by halving the distance
// between chunks until it is on time again, instead of all at once. What it could not make up for
// within a quarter of a second is given up, so that a program that was suspended does not wake to
// a flood.
#include "pressure.h"
#include "command.h"
#include "output.h"
#include "wait.h"

#include <atomic_ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tidepool.h>

enum { PIECE_BYTES = 4096 };
static const double late_at_once_ns = 1e6; // as much lateness is made up for without spacing
static const double given_up_ns = 250e6;

// ---- The live heap --------------------------------------------------------------------------

struct ballast { // a scanned object
  size_t count;
  void *pieces[]; // leaf objects
};

ballast *ballast_create(uint64_t bytes) {
  size_t places = (size_t)(bytes / PIECE_BYTES);
  ballast *b = tide_alloc(sizeof *b + places * sizeof b->pieces[0]);
  uint64_t used = b ? tide_size(b) : 0;
  while (b && b->count < places && used + PIECE_BYTES <= bytes) {
    void *piece = tide_alloc_leaf(PIECE_BYTES);
    if (!piece) {
      ballast_free(b);
      b = NULL;
      break;
    }
    memset(piece, 1, PIECE_BYTES);
    used += tide_size(piece);
    b->pieces[b->count++] = piece;
  }
  if (!b) complain("out of memory: %s cannot be kept live", size_text(bytes));
  return b;
}

void ballast_free(ballast *b) {
  if (!b) return;
  for (size_t i = 0; i < b->count; i++) tide_free(b->pieces[i]);
  tide_free(b);
}

// ---- The allocator --------------------------------------------------------------------------

struct pressure {
  pthread_t thread;
  double interval_ns; // between two chunks
  AO_t chunks;        // allocated so far
  volatile unsigned stop;
  volatile unsigned failed;
};

static void *sleep_for_chunk(void *arg) {
  sleep_until(*(const uint64_t *)arg);
  return NULL;
}

static void *allocate(void *arg) {
  pressure *p = arg;
  sleep_exactly();
  double due = (double)now_ns(), next = due;
  while (!AO_int_load(&p->stop)) {
    uint64_t at = (uint64_t)next;
    if (now_ns() < at) tide_blocking(sleep_for_chunk, &at);
    volatile char *chunk = tide_alloc(PRESSURE_CHUNK_BYTES);
    if (!chunk) {
      AO_int_store(&p->failed, 1);
      return NULL;
    }
    *chunk = 1;
    (void)AO_fetch_and_add1(&p->chunks);

    double now = (double)now_ns();
    due += p->interval_ns;
    if (due < now - given_up_ns) due = now;
    next = fmax(fmax(due, next + p->interval_ns / 2), now - late_at_once_ns);
  }
  return NULL;
}

pressure *pressure_start(double bytes_per_second) {
  pressure *p = calloc(1, sizeof *p);
  if (!p) {
    complain("no memory for the allocating thread");
    return NULL;
  }
  p->interval_ns = PRESSURE_CHUNK_BYTES / bytes_per_second * 1e9;
  int error = thread_start(&p->thread, allocate, p);
  if (!error) return p;
  complain("cannot start the allocating thread: %s", strerror(error));
  free(p);
  return NULL;
}

uint64_t pressure_bytes(const pressure *p) {
  return (uint64_t)AO_load(&p->chunks) * PRESSURE_CHUNK_BYTES;
}

bool pressure_failed(const pressure *p) {
  return AO_int_load(&p->failed) != 0;
}

static void *join_thread(void *arg) {
  pressure *p = arg;
  pthread_join(p->thread, NULL);
  return NULL;
}

void pressure_stop(pressure *p) {
  if (!p) return;
  AO_int_store(&p->stop, 1);
  tide_blocking(join_thread, p);
  free(p);
}
