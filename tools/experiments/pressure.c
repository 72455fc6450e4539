// SPDX-License-Identifier: MIT
// The live heap and the allocator of an experiment; see pressure.h.
//
// The allocator keeps two clocks. `due` is when the next chunk would be allocated if nothing ever
// held the thread up: as the pattern says. `next` is when it will be. After a pause of the
// collector or of the scheduler the thread is behind, and catches up by halving the distance
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
// A chunk may be far off; the end of the thread is looked for this often.
static const uint64_t nap_ns = 20 * 1000 * 1000;

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
  pattern pattern;
  void *(*make)(size_t bytes);
  uint64_t start_ns;
  AO_t bytes; // allocated so far
  volatile unsigned stop;
  volatile unsigned failed;
};

typedef struct appointment {
  const pressure *p;
  uint64_t at_ns;
} appointment;

static void *sleep_for_chunk(void *arg) {
  const appointment *a = arg;
  for (uint64_t now = now_ns(); now < a->at_ns && !AO_int_load(&a->p->stop); now = now_ns())
    sleep_until(a->at_ns - now > nap_ns ? now + nap_ns : a->at_ns);
  return NULL;
}

// Apart, so that no stale word keeps the chunk alive: of a few megabytes that would be seen.
__attribute__((noinline)) static bool make_chunk(pressure *p, size_t bytes) {
  volatile char *made = p->make(bytes);
  if (!made) return false;
  *made = 1;
  (void)AO_fetch_and_add(&p->bytes, bytes);
  return true;
}

static void *allocate(void *arg) {
  pressure *p = arg;
  sleep_exactly();
  double due = (double)p->start_ns, next = due;
  while (!AO_int_load(&p->stop)) {
    chunk planned = pattern_next(&p->pattern);
    due += planned.after_ns;
    next = fmax(fmax(due, next + planned.after_ns / 2), (double)now_ns() - late_at_once_ns);
    appointment a = {p, (uint64_t)next};
    if (now_ns() < a.at_ns) tide_blocking(sleep_for_chunk, &a);
    if (AO_int_load(&p->stop)) break;
    if (!make_chunk(p, planned.bytes)) {
      AO_int_store(&p->failed, 1);
      return NULL;
    }
    double now = (double)now_ns();
    if (due < now - given_up_ns) due = now;
  }
  return NULL;
}

static pressure *start(const pattern_settings *set, void *(*make)(size_t bytes)) {
  pressure *p = calloc(1, sizeof *p);
  if (!p) {
    complain("no memory for the allocating thread");
    return NULL;
  }
  p->pattern = pattern_begin(set);
  p->make = make;
  p->start_ns = now_ns();
  int error = thread_start(&p->thread, allocate, p);
  if (!error) return p;
  complain("cannot start the allocating thread: %s", strerror(error));
  free(p);
  return NULL;
}

// Inline functions of the library, which have no one address.
static void *make_zeroed(size_t bytes) {
  return tide_alloc(bytes);
}

static void *make_leaf(size_t bytes) {
  return tide_alloc_leaf(bytes);
}

pressure *pressure_start(double bytes_per_second) {
  const pattern_settings steady = {
      .kind = PATTERN_STEADY, .rate = bytes_per_second, .chunk_bytes = PRESSURE_CHUNK_BYTES};
  return start(&steady, make_zeroed);
}

pressure *pressure_start_pattern(const pattern_settings *set, uint64_t *at_ns) {
  pressure *p = start(set, make_leaf);
  if (p) *at_ns = p->start_ns;
  return p;
}

uint64_t pressure_bytes(const pressure *p) {
  return (uint64_t)AO_load(&p->bytes);
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
