// SPDX-License-Identifier: MIT
// `fragment`: how much memory an allocator holds for how much that is in use, after a while.
//
// Sizes are log-uniform. Three of four objects die soon: they take the place of the oldest of a
// few. The fourth lives long: it dies when the live bytes are at their target and chance picks it.
// The mix of sizes changes from phase to phase, so that what one phase left behind must serve for
// the sizes of the next. Every byte is written, as memory that is not written is not resident.
#include "peer.h"

#include <string.h>

enum { SHORT_LIVED = 64, LONG_LIVED_EVERY = 4, MEAN_LEAST = 128 };

typedef struct object {
  uint64_t size;
  uint64_t contents[];
} object;

typedef struct phase {
  double least, most; // bytes
  unsigned share;     // of the operations, percent; phases allocate about as much, not as often
} phase;

static const phase phases[] = {
    {16, 1024, 45},
    {1024, 65536, 5},
    {16, 65536, 5},
    {16, 1024, 45},
};
enum { PHASES = sizeof phases / sizeof phases[0] };

typedef struct heap {
  object **long_lived;
  size_t count, room;
  object *short_lived[SHORT_LIVED];
  size_t oldest;
  uint64_t live_bytes, live_most;
  uint64_t random;
} heap;

static heap h;

static object *make(const phase *p) {
  double exponent = (double)(random_next(&h.random) >> 11) * 0x1p-53;
  size_t size = (size_t)(p->least * pow(p->most / p->least, exponent));
  object *o = allocate(size);
  memset(o, 1, size);
  o->size = size;
  h.live_bytes += size;
  return o;
}

static void end(object *o) {
  if (!o) return;
  h.live_bytes -= o->size;
  peer_free(o);
}

static void end_any_long_lived(void) {
  size_t place = random_below(&h.random, h.count);
  object *o = h.long_lived[place];
  h.long_lived[place] = h.long_lived[--h.count];
  h.long_lived[h.count] = NULL;
  end(o);
}

static void add_long_lived(object *o) {
  while (h.count > 0 && (h.live_bytes > h.live_most || h.count == h.room)) end_any_long_lived();
  h.long_lived[h.count++] = o;
}

static void add_short_lived(object *o) {
  end(h.short_lived[h.oldest]);
  h.short_lived[h.oldest] = o;
  h.oldest = (h.oldest + 1) % SHORT_LIVED;
}

static double run_phase(const phase *p, uint64_t operations) {
  for (uint64_t i = 0; i < operations; i++) {
    object *o = make(p);
    if (i % LONG_LIVED_EVERY == 0)
      add_long_lived(o);
    else
      add_short_lived(o);
  }
  return resident_bytes() / (double)h.live_bytes;
}

void fragment_run(void) {
  uint64_t operations = parameter("ops");
  h.random = parameter("seed");
  h.live_most = parameter("live_bytes");
  h.room = h.live_most / MEAN_LEAST + 1;
  h.long_lived = allocate(h.room * sizeof *h.long_lived);

  uint64_t start_ns = now_ns();
  while (h.live_bytes < h.live_most && h.count < h.room) add_long_lived(make(&phases[0]));
  double overhead[PHASES];
  for (int i = 0; i < PHASES; i++)
    overhead[i] = run_phase(&phases[i], operations * phases[i].share / 100);
  report("rss_over_live", overhead[PHASES - 1]);
  report("phase_1", overhead[0]);
  report("phase_2", overhead[1]);
  report("phase_3", overhead[2]);
  report("rss_mib", resident_bytes() / MIB);
  report("peak_mib", peak_resident_bytes() / MIB);
  report("wall_s", seconds_since(start_ns));
}
