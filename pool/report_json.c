// SPDX-License-Identifier: MIT
// The report on pools as JSON: an object a line, one for each pool. What is not known is null.
#include "report.h"

#include <stdlib.h>

// ---- JSON -----------------------------------------------------------------------------------

// Bytes of the UTF-8 character that text begins with; 0: it begins with none.
static size_t character_bytes(const unsigned char *text) {
  static const unsigned char second_lo[] = {[0] = 0xa0, [0x10] = 0x90};
  static const unsigned char second_hi[] = {[0x0d] = 0x9f, [0x14] = 0x8f};
  unsigned first = text[0];
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  unsigned lo = 0x80, hi = 0xbf, kind = first - 0xe0; // overlong, surrogates, beyond the last
  if (first >= 0xe0 && kind < sizeof second_lo && second_lo[kind]) lo = second_lo[kind];
  if (first >= 0xe0 && kind < sizeof second_hi && second_hi[kind]) hi = second_hi[kind];
  if (text[1] < lo || text[1] > hi) return 0;
  for (size_t i = 2; i < bytes; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  return bytes;
}

static void put_string(FILE *out, const char *string) {
  const unsigned char *at = (const unsigned char *)string;
  fputc('"', out);
  while (*at) {
    size_t bytes = character_bytes(at);
    if (!bytes)
      fputs("\\ufffd", out);
    else if (*at < ' ' || *at == 127)
      fprintf(out, "\\u%04x", *at);
    else
      fprintf(out, "%s%.*s", *at == '"' || *at == '\\' ? "\\" : "", (int)bytes, (const char *)at);
    at += bytes ? bytes : 1;
  }
  fputc('"', out);
}

static void put_field(FILE *out, const char *name, uint64_t value) {
  fprintf(out, ",\"%s\":%llu", name, LLU(value));
}

// null where it is not known, or does not help.
static void put_if(FILE *out, const char *name, uint64_t value) {
  if (value)
    put_field(out, name, value);
  else
    fprintf(out, ",\"%s\":null", name);
}

static void put_real(FILE *out, const char *name, double value, bool known) {
  fprintf(out, ",\"%s\":", name);
  if (known)
    pool_report_decimal(out, value, 4);
  else
    fputs("null", out);
}

// What was said, as a text of its own, or "" if there was nothing. NULL: no memory.
static char *as_text(const report_entry *e, const heap_facts *heap,
                     void (*say)(FILE *out, const report_entry *e, const heap_facts *heap)) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return NULL;
  say(out, e, heap);
  fclose(out);
  return text;
}

static void put_said(FILE *out, const char *name, const report_entry *e, const heap_facts *heap,
                     void (*say)(FILE *out, const report_entry *e, const heap_facts *heap)) {
  char *text = as_text(e, heap, say);
  fprintf(out, ",\"%s\":", name);
  put_string(out, text ? text : "");
  free(text);
}

static void put_cures_json(FILE *out, const advice *a) {
  bool cured = a->trouble == FORGOTTEN;
  put_real(out, "promised", a->promised, cured);
  put_if(out, "gc_percent", a->gc_percent);
  put_if(out, "memory_limit", a->memory_limit);
  put_if(out, "limit_percent", a->limit_percent);
  put_if(out, "survive", a->survive);
  put_if(out, "min_idle_ns", a->min_idle_ns);
  put_if(out, "free_list", a->free_list);
  put_if(out, "max_item_bytes", a->max_item_bytes);
  put_if(out, "max_bytes", a->max_bytes);
  put_if(out, "max_items", a->max_items);
}

static void put_json(FILE *out, const report_entry *e, const heap_facts *heap) {
#define WORD(NAME, name) name,
  static const char *const troubles[] = {ADVICE_TROUBLES(WORD)};
  static const char *const burdens[] = {ADVICE_BURDENS(WORD)};
#undef WORD
  const advice *a = &e->advice;
  bool limited = heap->limit_bytes != UINT64_MAX;
  fputs("{\"name\":", out);
  put_string(out, e->pool.name);
  put_field(out, "gets", e->pool.stats.gets);
  put_field(out, "puts", e->pool.stats.puts);
  put_real(out, "hit_rate", a->hit_rate, true);
  put_field(out, "cold", a->cold);
  put_field(out, "demand", a->demand);
  put_field(out, "forgotten", a->forgotten);
  put_real(out, "gap", a->gap, a->gap > 0);
  put_if(out, "gap_ns", (uint64_t)a->gap_ns);
  put_real(out, "predicted", a->predicted, a->gap > 0);
  fprintf(out, ",\"predicted_by\":\"%s\"", a->even ? "even" : "gaps");
  put_field(out, "items", a->items);
  put_if(out, "bytes", a->bytes);
  put_real(out, "heap_share", a->heap_share, a->bytes);
  put_real(out, "limit_share", a->limit_share, a->bytes && limited);
  fprintf(out, ",\"trouble\":\"%s\",\"burden\":\"%s\"", troubles[a->trouble], burdens[a->burden]);
  put_said(out, "diagnosis", e, heap, pool_report_diagnosis);
  put_said(out, "cure", e, heap, pool_report_cure);
  put_cures_json(out, a);
  fputs("}\n", out);
}

void pool_report_json(FILE *out, const report *r) {
  for (size_t i = 0; i < r->count; i++) put_json(out, &r->entries[i], &r->heap);
}
