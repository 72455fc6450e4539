// SPDX-License-Identifier: MIT
// Objects and collections as lines of a recording; see recording.h, and docs/trace-format.md.
//
// An object's number is how many have been recorded before it, and one. The collector is asked at
// the end of each marking which of them it has not marked: that is when an object has died, as far
// as anybody knows.
#include "recording.h"
#include "engine.h"
#include "pace.h"

void recording_alloc(const void *object, size_t size, tide_kind kind) {
  static const char letters[TIDE_KINDS] = {
      [TIDE_SCANNED] = 's', [TIDE_LEAF] = 'l', [TIDE_UNCOLLECTABLE] = 'u'};
  unsigned whom = rt_record_whom();
  if (whom == RT_RECORD_OWN || !rt_record_begin('a')) return;
  rt_record_number(size);
  rt_record_letter(letters[kind]);
  if (whom != RT_RECORD_PROGRAM) rt_record_number(whom);
  rt_record_name(object);
  rt_record_end();
  rt_record_write(false);
}

// Objects without a number are the library's own.
void recording_free(const void *object) {
  if (!rt_record_hold()) return;
  uint64_t number = rt_record_unname(object);
  if (number && rt_record_line('f')) {
    rt_record_number(number);
    rt_record_line_ends();
  }
  rt_record_let_go();
}

void recording_resize(const void *from, const void *to, size_t size) {
  if (!rt_record_hold()) return;
  uint64_t number = rt_record_rename(from, to);
  if (number && rt_record_line('r')) {
    rt_record_number(number);
    rt_record_number(size);
    rt_record_line_ends();
  }
  rt_record_let_go();
}

void recording_external(int64_t bytes) {
  if (!rt_record_begin('x')) return;
  rt_record_signed(bytes);
  rt_record_end();
}

// ---- Collections ----------------------------------------------------------------------------

enum { RANGES_IN_LINE = 8 };

// Numbers that follow one another become one range. With the recorder held.
static struct {
  uint64_t from, to; // 0: none
  unsigned in_line;  // ranges; 0: no line has begun
} dead;

static void end_dead_line(void) {
  if (dead.in_line) rt_record_line_ends();
  dead.in_line = 0;
}

static void put_dead(void) {
  if (!dead.from) return;
  if (dead.in_line == RANGES_IN_LINE) end_dead_line();
  if (dead.in_line || rt_record_line('d')) {
    rt_record_range(dead.from, dead.to);
    dead.in_line++;
  }
  dead.from = 0;
}

static void add_dead(uint64_t number) {
  if (dead.from && number == dead.to + 1) {
    dead.to = number;
    return;
  }
  put_dead();
  dead.from = dead.to = number;
}

void recording_cycle(const tide_cycle *cycle) {
  pacer_memory m;
  pace_memory(&m);
  if (!rt_record_begin('c')) return;
  rt_record_text(tide_cause_string(cycle->cause));
  rt_record_number(cycle->live_bytes);
  rt_record_number(cycle->stack_bytes);
  rt_record_number(cycle->global_bytes);
  rt_record_number(m.used_bytes > m.heap_bytes ? m.used_bytes - m.heap_bytes : 0);
  rt_record_line_ends();
  if (gc_engine->marked) rt_record_unname_dead(gc_engine->marked, add_dead);
  put_dead();
  end_dead_line();
  rt_record_let_go();
}

bool recording_due(size_t size) {
  static AO_t allocated_bytes;
  uint64_t step = (uint64_t)rt_options.record_kib << 10;
  if (!step) return false;
  uint64_t before = AO_fetch_and_add(&allocated_bytes, size);
  return (before + size) / step != before / step;
}
