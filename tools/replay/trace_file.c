// SPDX-License-Identifier: MIT
// Reads a recording, line by line; see trace_file.h. Each kind of line has a row in a table: its
// letter, the fields that it has, the function that takes it, and what is accepted, in words.
#include "trace_file.h"
#include "command.h"
#include "trace_deaths.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 8, BYTES_BITS = 48 };

// What is known of an object while reading.
typedef struct object {
  uint64_t bytes, root; // root: the item that it is a part of
  uint64_t item_bytes;  // of all parts of the item that it is the root of
  uint64_t get;         // that gave it out, if it is an item in use; 0: none
  uint64_t made_at;     // bytes allocated before
  size_t made_after;    // collections
  size_t heard_of;      // events, when it was last mentioned
  uint32_t pool;        // whose `create` made it; 0: none's
  char letter;
  bool alive;
} object;

typedef struct reader {
  trace *t;
  object *objects; // the first is nobody
  bool *out;       // gets whose item, which is no object, has not been put
  uint32_t *cost;  // of the pools' next items; 0: not known
  struct pending { // what `create` has made, and no get has taken yet
    uint64_t object, thread;
  } * pending;
  size_t object_room, out_room, cost_room, pending_count, pending_room;
  death *deaths;
  size_t death_count, death_room;
  uint64_t allocated;     // bytes
  uint64_t stretch[2];    // of it, when the last collection but one was, and the last
  size_t last_collection; // events, in front of it
  size_t event_room, cost_list_room, part_room, pool_room, collection_room;
  uint64_t time_us, thread;
  bool ended;
  char *fields[FIELDS];
  size_t field_count;
} reader;

// ---- Memory ---------------------------------------------------------------------------------

// Room for one more; ends the program when there is no memory.
static void *one_more(void *array, size_t count, size_t *room, size_t bytes) {
  if (count < *room) return array;
  *room = *room ? 2 * *room : 64;
  void *larger = realloc(array, *room * bytes);
  if (larger) return larger;
  complain("no memory for the trace");
  exit(STATUS_FAILED);
}

static trace_event *add_event(reader *r, trace_kind kind) {
  trace *t = r->t;
  t->events = one_more(t->events, t->event_count, &r->event_room, sizeof *t->events);
  trace_event *e = &t->events[t->event_count++];
  *e = (trace_event){.time_us = r->time_us, .allocated = r->allocated, .kind = kind};
  return e;
}

static uint32_t add_cost(reader *r) {
  trace *t = r->t;
  t->costs = one_more(t->costs, t->cost_count, &r->cost_list_room, sizeof *t->costs);
  t->costs[t->cost_count] = (trace_cost){t->part_count, 0};
  return (uint32_t)t->cost_count++;
}

static void add_part(reader *r, const object *o) {
  trace *t = r->t;
  t->parts = one_more(t->parts, t->part_count, &r->part_room, sizeof *t->parts);
  t->parts[t->part_count++] = (trace_part){o->bytes, o->letter};
  t->costs[t->cost_count - 1].count++;
}

// ---- Fields ---------------------------------------------------------------------------------

static bool number_in(const char *text, uint64_t lowest, uint64_t highest, uint64_t *value) {
  char *end;
  if (!isdigit((unsigned char)*text)) return false;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  if (errno || *end || number < lowest || number > highest) return false;
  *value = number;
  return true;
}

static bool number(const reader *r, size_t field, uint64_t lowest, uint64_t highest,
                   uint64_t *value) {
  return field < r->field_count && number_in(r->fields[field], lowest, highest, value);
}

static bool bytes_field(const reader *r, size_t field, uint64_t *value) {
  return number(r, field, 0, UINT64_C(1) << BYTES_BITS, value);
}

static bool signed_number(const reader *r, size_t field, int64_t *value) {
  const char *text = r->fields[field];
  bool negative = *text == '-';
  uint64_t absolute;
  if (!number_in(text + negative, 0, INT64_MAX, &absolute)) return false;
  *value = negative ? -(int64_t)absolute : (int64_t)absolute;
  return true;
}

// One of the letters.
static bool letter(const reader *r, size_t field, const char *letters, char *value) {
  const char *text = r->fields[field];
  if (!*text || text[1] || !strchr(letters, *text)) return false;
  *value = *text;
  return true;
}

static bool living_object(const reader *r, size_t field, uint64_t *value) {
  return number(r, field, 1, r->t->objects, value) && r->objects[*value].alive;
}
// The same, or 0 for none.
static bool item_object(const reader *r, size_t field, uint64_t *value) {
  return number(r, field, 0, 0, value) || living_object(r, field, value);
}
static bool pool_field(const reader *r, size_t field, uint32_t *pool) {
  uint64_t value;
  if (!number(r, field, 1, r->t->pool_count, &value)) return false;
  *pool = (uint32_t)value;
  return true;
}

// ---- Lines ----------------------------------------------------------------------------------
//
// Each takes the line's fields, the first at 0, and returns false if they are not accepted.

static bool take_time(reader *r) {
  uint64_t us;
  if (!number(r, 0, 1, UINT64_C(1) << BYTES_BITS, &us)) return false;
  r->time_us += us;
  return r->time_us <= UINT64_C(1) << BYTES_BITS;
}

static bool take_thread(reader *r) {
  if (!number(r, 0, 1, r->t->threads + 1, &r->thread)) return false;
  if (r->thread > r->t->threads) r->t->threads = r->thread;
  return true;
}

static bool take_option(reader *r) {
  int64_t value;
  if (!signed_number(r, 1, &value)) return false;
  const char *name = r->fields[0];
  if (strcmp(name, "gc_percent") == 0) {
    r->t->gc_percent = (int)value;
    return value >= -1 && value <= INT32_MAX;
  }
  if (strcmp(name, "memory_limit") == 0) {
    r->t->memory_limit = value;
    return value >= 0;
  }
  if (strcmp(name, "min_heap_bytes") == 0) {
    r->t->min_heap_bytes = (uint64_t)value;
    return value >= 0;
  }
  return strcmp(name, "record_kib") == 0; // a replay needs it not
}

static void hear_of(reader *r, uint64_t number) {
  r->objects[number].heard_of = r->t->event_count;
}

static bool take_alloc(reader *r) {
  object o = {.alive = true,
              .made_at = r->allocated,
              .made_after = r->t->collection_count,
              .heard_of = r->t->event_count};
  if (!bytes_field(r, 0, &o.bytes) || !letter(r, 1, "slu", &o.letter)) return false;
  if (r->field_count > 2 && !pool_field(r, 2, &o.pool)) return false;
  uint64_t made = ++r->t->objects;
  r->objects = one_more(r->objects, made, &r->object_room, sizeof o);
  r->objects[made] = o;
  if (o.pool) {
    r->allocated += o.bytes;
    r->pending = one_more(r->pending, r->pending_count, &r->pending_room, sizeof(struct pending));
    r->pending[r->pending_count++] = (struct pending){made, r->thread};
    return true;
  }
  trace_event *e = add_event(r, TRACE_ALLOC);
  e->object = made;
  e->bytes = (int64_t)o.bytes;
  e->letter = o.letter;
  r->allocated += o.bytes;
  hear_of(r, made);
  return true;
}

static bool take_free(reader *r) {
  uint64_t freed;
  if (!living_object(r, 0, &freed)) return false;
  r->objects[freed].alive = false;
  add_event(r, TRACE_FREE)->object = freed;
  return true;
}

static void add_death(reader *r, uint64_t number) {
  object *o = &r->objects[number];
  o->alive = false;
  uint64_t from = r->stretch[0], to = r->stretch[1];
  r->deaths = one_more(r->deaths, r->death_count, &r->death_room, sizeof *r->deaths);
  r->deaths[r->death_count++] =
      (death){.object = number,
              .bytes = o->bytes,
              .earliest = o->heard_of,
              .latest = r->last_collection,
              .from = o->made_at > from ? o->made_at : from,
              .to = to,
              .stretch = to - from,
              .age = (unsigned)(r->t->collection_count - o->made_after) - 1};
}

static bool take_range(reader *r, char *text) {
  char *dash = strchr(text, '-');
  uint64_t from, to;
  if (dash) *dash = '\0';
  bool good = number_in(text, 1, r->t->objects, &from);
  to = from;
  if (good && dash) good = number_in(dash + 1, from + 1, r->t->objects, &to);
  if (dash) *dash = '-'; // for the message
  for (uint64_t i = from; good && i <= to; i++) {
    good = r->objects[i].alive;
    if (good) add_death(r, i);
  }
  return good;
}

// More fields than others have: they are not split.
static bool take_deaths(reader *r) {
  if (!r->t->collection_count) return false;
  char *rest = r->fields[0];
  while (rest) {
    char *space = strchr(rest, ' ');
    if (space) *space = '\0';
    bool good = take_range(r, rest);
    if (space) *space = ' ';
    if (!good) return false;
    rest = space ? space + 1 : NULL;
  }
  return true;
}

static bool take_resize(reader *r) {
  uint64_t resized, bytes;
  if (!living_object(r, 0, &resized) || !bytes_field(r, 1, &bytes)) return false;
  object *o = &r->objects[resized];
  bool part = o->pool;
  if (!part || o->root) {
    trace_event *e = add_event(r, part ? TRACE_GROWTH : TRACE_RESIZE);
    e->object = part ? o->root : resized;
    if (part) r->objects[o->root].item_bytes += bytes - o->bytes;
    e->bytes = (int64_t)(part ? r->objects[o->root].item_bytes : bytes);
    hear_of(r, e->object);
  }
  o->bytes = bytes;
  return true;
}

static bool take_external(reader *r) {
  int64_t bytes;
  if (!signed_number(r, 0, &bytes)) return false;
  add_event(r, TRACE_EXTERNAL)->bytes = bytes;
  return true;
}

static bool take_collection(reader *r) {
  static const char *const causes[] = {"goal", "limit", "time", "forced", "memory", "stress"};
  trace *t = r->t;
  trace_collection c = {.time_us = r->time_us, .forced = strcmp(r->fields[0], "forced") == 0};
  bool known = false;
  for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
    if (strcmp(r->fields[0], causes[i]) == 0) known = true;
  if (!known || !bytes_field(r, 1, &c.live_bytes) || !bytes_field(r, 2, &c.stack_bytes) ||
      !bytes_field(r, 3, &c.global_bytes) || !bytes_field(r, 4, &c.beside_bytes))
    return false;
  r->stretch[0] = r->stretch[1];
  r->stretch[1] = r->allocated;
  r->last_collection = t->event_count;
  add_event(r, TRACE_COLLECTION)->object = t->collection_count;
  t->collections = one_more(t->collections, t->collection_count, &r->collection_room, sizeof c);
  t->collections[t->collection_count++] = c;
  return true;
}

static bool take_pool(reader *r) {
  trace *t = r->t;
  uint64_t survive;
  trace_pool p = {0};
  if (!number(r, 0, 0, 255, &survive) || !number(r, 1, 0, INT64_MAX, &p.min_idle_ns) ||
      !number(r, 2, 0, INT64_MAX, &p.max_items) || !number(r, 3, 0, INT64_MAX, &p.max_bytes) ||
      !number(r, 4, 0, INT64_MAX, &p.max_item_bytes))
    return false;
  p.survive = (unsigned)survive;
  p.name = strdup(r->fields[5]);
  t->pools = one_more(t->pools, t->pool_count, &r->pool_room, sizeof p);
  r->cost = one_more(r->cost, t->pool_count, &r->cost_room, sizeof *r->cost);
  if (!p.name) return false;
  r->cost[t->pool_count] = 0;
  t->pools[t->pool_count++] = p;
  add_event(r, TRACE_POOL)->pool = (uint32_t)t->pool_count;
  return true;
}

static bool take_pool_end(reader *r) {
  uint32_t pool;
  if (!pool_field(r, 0, &pool)) return false;
  add_event(r, TRACE_POOL_END)->pool = pool;
  return true;
}

// Of what the thread's `create` for the pool has made.
static uint32_t cost_of_made(reader *r, uint32_t pool, uint64_t root) {
  uint32_t cost = add_cost(r);
  size_t kept = 0;
  for (size_t i = 0; i < r->pending_count; i++) {
    struct pending p = r->pending[i];
    object *o = &r->objects[p.object];
    if (p.thread != r->thread || o->pool != pool) {
      r->pending[kept++] = p;
      continue;
    }
    add_part(r, o);
    if (root && o->alive) o->root = root;
    if (root && o->alive) r->objects[root].item_bytes += o->bytes;
  }
  r->pending_count = kept;
  return cost;
}

static bool take_get(reader *r) {
  trace *t = r->t;
  uint32_t pool;
  uint64_t item;
  char result;
  if (!pool_field(r, 0, &pool) || !letter(r, 1, "hmn", &result) || !item_object(r, 2, &item))
    return false;
  uint32_t made = result != 'h' ? cost_of_made(r, pool, item) : 0;
  if (result == 'm') r->cost[pool - 1] = made;
  t->gets++;
  r->out = one_more(r->out, t->gets, &r->out_room, sizeof *r->out);
  r->out[t->gets] = result != 'n' && !item;
  if (item) r->objects[item].get = t->gets;
  t->pools[pool - 1].gets++;
  t->pools[pool - 1].hits += result == 'h';
  trace_event *e = add_event(r, TRACE_GET);
  e->pool = pool;
  e->other = t->gets;
  e->object = item;
  e->letter = result;
  e->cost = r->cost[pool - 1];
  if (item) hear_of(r, item);
  return true;
}

// An item from elsewhere, in a pool that makes none: others of it may be the same.
static void note_cost_of_put(reader *r, uint32_t pool, uint64_t item) {
  if (!item || r->cost[pool - 1]) return;
  r->cost[pool - 1] = add_cost(r);
  add_part(r, &r->objects[item]);
}

static bool take_put(reader *r) {
  uint32_t pool;
  uint64_t get = 0, item, bytes;
  if (!pool_field(r, 0, &pool) || !item_object(r, 1, &item) || !bytes_field(r, 2, &bytes))
    return false;
  if (r->field_count > 3 && (item || !number(r, 3, 1, r->t->gets, &get) || !r->out[get]))
    return false;
  if (get) r->out[get] = false;
  if (item) get = r->objects[item].get;
  if (item) r->objects[item].get = 0;
  note_cost_of_put(r, pool, item);
  trace_event *e = add_event(r, TRACE_PUT);
  e->pool = pool;
  e->other = get;
  e->object = item;
  e->bytes = (int64_t)bytes;
  if (item) hear_of(r, item);
  return true;
}

static bool take_end(reader *r) {
  r->ended = true;
  return true;
}

typedef struct line_kind {
  char letter;
  unsigned least, most; // fields; the last one takes the rest of the line
  bool (*take)(reader *r);
  const char *accepted;
} line_kind;

static const line_kind line_kinds[] = {
    {'t', 1, 1, take_time, "t MICROSECONDS, from 1 on"},
    {'h', 1, 1, take_thread, "h THREAD, one that there is or the next number"},
    {'o', 2, 2, take_option, "o gc_percent|memory_limit|min_heap_bytes|record_kib NUMBER"},
    {'a', 2, 3, take_alloc, "a BYTES s|l|u, and the POOL that it is made for, if any"},
    {'f', 1, 1, take_free, "f OBJECT, one that is alive"},
    {'d', 1, 1, take_deaths, "d with OBJECTs or ranges FROM-TO, all alive, behind a c"},
    {'r', 2, 2, take_resize, "r OBJECT BYTES, of one that is alive"},
    {'x', 1, 1, take_external, "x BYTES, with a sign"},
    {'c', 5, 5, take_collection,
     "c goal|limit|time|forced|memory|stress LIVE STACKS GLOBALS BESIDE, in bytes"},
    {'P', 6, 6, take_pool,
     "P SURVIVE MIN_IDLE_NS MAX_ITEMS MAX_BYTES MAX_ITEM_BYTES NAME, survive up to 255"},
    {'Q', 1, 1, take_pool_end, "Q POOL, one that there is"},
    {'g', 3, 3, take_get, "g POOL h|m|n OBJECT, one that is alive or 0"},
    {'p', 3, 4, take_put,
     "p POOL OBJECT BYTES, the object alive or 0, and behind a 0 the GET whose item it is, if any"},
    {'e', 0, 0, take_end, "e, and nothing behind it"},
};
enum { LINE_KINDS = sizeof line_kinds / sizeof *line_kinds };

// ---- The file -------------------------------------------------------------------------------

// Splits what is behind the letter at single spaces. False: not as many fields as there should be.
static bool split(reader *r, char *rest, const line_kind *kind) {
  r->field_count = 0;
  while (*rest == ' ' && r->field_count < kind->most) {
    r->fields[r->field_count++] = ++rest;
    if (r->field_count == kind->most) return true; // the last has all that follows
    rest = strchrnul(rest, ' ');
  }
  return !*rest && r->field_count >= kind->least;
}

// Ends each field but the last where the next begins.
static void cut(reader *r) {
  for (size_t i = 1; i < r->field_count; i++) r->fields[i][-1] = '\0';
}

static bool take_line(reader *r, char *line, const line_kind **kind) {
  *kind = NULL;
  for (int i = 0; i < LINE_KINDS; i++)
    if (line_kinds[i].letter == *line) *kind = &line_kinds[i];
  if (!*kind || r->ended || !split(r, line + 1, *kind)) return false;
  cut(r);
  return (*kind)->take(r);
}

static void say_broken(const char *path, size_t line_number, const char *line, size_t length,
                       const line_kind *kind, bool ended) {
  char shown[48], accepted[16 + 2 * LINE_KINDS] = "";
  size_t n = 0;
  for (; n < length && n < sizeof shown - 1; n++)
    shown[n] = line[n] >= 0x20 && line[n] < 0x7f ? line[n] : line[n] ? '?' : ' ';
  shown[n] = '\0';
  for (int i = 0; i < LINE_KINDS; i++)
    snprintf(accepted + strlen(accepted), sizeof accepted - strlen(accepted), "%s%c", i ? " " : "",
             line_kinds[i].letter);
  if (ended)
    complain("%s: line %zu: '%s' is not accepted: the trace has ended with 'e'", path, line_number,
             shown);
  else if (kind)
    complain("%s: line %zu: '%s' is not accepted; accepted: %s", path, line_number, shown,
             kind->accepted);
  else
    complain("%s: line %zu: '%s' is not accepted; accepted: a line that begins with one of %s",
             path, line_number, shown, accepted);
}

static bool read_header(const char *path, char *line, ssize_t length) {
  if (length > 0 && line[length - 1] == '\n') line[length - 1] = '\0';
  if (length > 0 && strcmp(line, "tidepool-trace 1") == 0) return true;
  say_broken(path, 1, line ? line : "", length > 0 ? strlen(line) : 0,
             &(line_kind){.accepted = "tidepool-trace 1, as TIDE_DEBUG=record=FILE writes it"},
             false);
  return false;
}

// Whole lines. One without its end is the last that a program wrote that was killed.
static bool read_lines(reader *r, FILE *file, const char *path) {
  char *line = NULL;
  size_t room = 0;
  ssize_t length = getline(&line, &room, file);
  bool good = read_header(path, line, length);
  for (size_t at = 2; good && (length = getline(&line, &room, file)) > 0; at++) {
    if (line[length - 1] != '\n') break;
    line[length - 1] = '\0';
    const line_kind *kind;
    bool ended = r->ended, text = strlen(line) == (size_t)length - 1;
    if (text && take_line(r, line, &kind)) continue;
    say_broken(path, at, line, (size_t)length - 1, text ? kind : NULL, ended);
    good = false;
  }
  free(line);
  return good;
}

static void begin(reader *r, trace *t) {
  *t = (trace){.gc_percent = 100, .memory_limit = INT64_MAX};
  *r = (reader){.t = t};
  add_cost(r);
  r->objects = one_more(NULL, 0, &r->object_room, sizeof *r->objects);
  r->objects[0] = (object){0};
  r->out = one_more(NULL, 0, &r->out_room, sizeof *r->out);
}

static void end(reader *r) {
  r->t->duration_us = r->time_us;
  r->t->cut_short = !r->ended;
  free(r->objects);
  free(r->out);
  free(r->cost);
  free(r->pending);
  free(r->deaths);
}

// NULL, with errno set, also where nothing can be read, as of a directory.
static FILE *open_file(const char *path) {
  FILE *file = fopen(path, "re");
  if (!file) return NULL;
  int first = fgetc(file), error = errno;
  if (first != EOF || !ferror(file)) {
    if (first != EOF) ungetc(first, file);
    return file;
  }
  fclose(file);
  errno = error;
  return NULL;
}

trace *trace_read(const char *path, int *status) {
  *status = STATUS_USAGE;
  FILE *file = open_file(path);
  trace *t = file ? malloc(sizeof *t) : NULL;
  if (!t) {
    complain("%s: %s; accepted: a file that TIDE_DEBUG=record=FILE has made", path,
             strerror(errno));
    if (file) fclose(file);
    return NULL;
  }
  reader r;
  begin(&r, t);
  bool good = read_lines(&r, file, path);
  if (good && ferror(file)) {
    complain("%s: %s", path, strerror(errno));
    *status = STATUS_FAILED;
    good = false;
  }
  if (good && !deaths_place(t, r.deaths, r.death_count)) {
    complain("no memory for the trace");
    *status = STATUS_FAILED;
    good = false;
  }
  end(&r);
  fclose(file);
  if (good) return t;
  trace_free(t);
  return NULL;
}

void trace_free(trace *t) {
  if (!t) return;
  for (size_t i = 0; i < t->pool_count; i++) free(t->pools[i].name);
  free(t->events);
  free(t->costs);
  free(t->parts);
  free(t->pools);
  free(t->collections);
  free(t);
}
