// SPDX-License-Identifier: MIT
// The workload of `tidepool marshal` and `tidepool sawtooth`: what the encoder writes is read back
// with a JSON library and compared with the envelope, field by field; what it allocates is counted,
// exactly, with collections off; and each way to have an encoder keeps it through as many
// collections as it should.
#include "testing.h"

#include "supply.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <tidepool.h>

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
}

#define TEXT(literal) ((text){literal, sizeof(literal) - 1})

static const encoder_options plain = {.output_bytes = 4096, .scratch_bytes = 4096};
static const encoder_options tiny = {.output_bytes = 1, .scratch_bytes = 1};
static const encoder_options learned = {
    .output_bytes = 256, .scratch_bytes = 256, .dictionary = true};

// ---- Reading back ---------------------------------------------------------------------------

static json_t *parsed(text what) {
  json_error_t error;
  json_t *object =
      json_loadb(what.at, what.length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!object)
    ck_abort_msg("%s at %d of: %.*s", error.text, error.position, (int)what.length, what.at);
  return object;
}

static void assert_text(const json_t *value, text expected) {
  if (!expected.at) {
    ck_assert(json_is_null(value));
    return;
  }
  ck_assert(json_is_string(value));
  ck_assert_uint_eq(json_string_length(value), expected.length);
  ck_assert_mem_eq(json_string_value(value), expected.at, expected.length);
}

static void assert_real(const json_t *value, double expected) {
  if (!isfinite(expected)) {
    ck_assert(json_is_null(value));
    return;
  }
  ck_assert(json_is_number(value));
  ck_assert(json_number_value(value) == expected);
}

static void assert_item(const json_t *object, const envelope_item *item) {
  ck_assert_uint_eq(json_object_size(object), 4);
  assert_text(json_object_get(object, "sku"), item->sku);
  ck_assert_int_eq(json_integer_value(json_object_get(object, "quantity")), item->quantity);
  assert_real(json_object_get(object, "price"), item->price);
  const json_t *codes = json_object_get(object, "codes");
  ck_assert(json_is_array(codes));
  ck_assert_uint_eq(json_array_size(codes), item->code_count);
  for (size_t i = 0; i < item->code_count; i++)
    ck_assert_int_eq(json_integer_value(json_array_get(codes, i)), item->codes[i]);
}

static void assert_body(const json_t *body, const envelope *what) {
  ck_assert_uint_eq(json_object_size(body), 5);
  assert_text(json_object_get(body, "subject"), what->subject);
  assert_text(json_object_get(body, "reply_to"), what->reply_to);
  assert_real(json_object_get(body, "amount"), what->amount);
  ck_assert(json_is_boolean(json_object_get(body, "urgent")));
  ck_assert_int_eq(json_is_true(json_object_get(body, "urgent")), what->urgent);
  const json_t *items = json_object_get(body, "items");
  ck_assert(json_is_array(items));
  ck_assert_uint_eq(json_array_size(items), what->item_count);
  for (size_t i = 0; i < what->item_count; i++)
    assert_item(json_array_get(items, i), &what->items[i]);
}

static void assert_envelope(text written, const envelope *what) {
  json_t *object = parsed(written);
  ck_assert_uint_eq(json_object_size(object), 5);
  ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(object, "id")), what->id);
  assert_text(json_object_get(object, "method"), what->method);
  const json_t *headers = json_object_get(object, "headers");
  ck_assert_uint_eq(json_object_size(headers), what->header_count);
  for (size_t i = 0; i < what->header_count; i++) {
    const envelope_header *h = &what->headers[i];
    assert_text(json_object_getn(headers, h->name.at, h->name.length), h->value);
  }
  // The body is what stands between its key and the last brace.
  const char *body = memmem(written.at, written.length, "\"body\":", 7);
  ck_assert_ptr_nonnull(body);
  size_t length = (size_t)(written.at + written.length - 1 - (body + 7));
  ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(object, "body_bytes")), length);
  assert_body(json_object_get(object, "body"), what);
  json_decref(object);
}

// ---- Texts and numbers that are hard --------------------------------------------------------

static const text hard_texts[] = {
    TEXT(""),
    TEXT("plain"),
    TEXT("\""),
    TEXT("\\"),
    TEXT("\\\"\\\""),
    TEXT("ends in a backslash\\"),
    TEXT("\b\f\n\r\t"),
    TEXT("\0"),
    TEXT("a\0b\0"),
    TEXT("\x01\x02\x1e\x1f\x7f"),
    TEXT("</script>/"),
    TEXT("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xef\xbf\xbf"),
    TEXT("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf \xf0\x9f\x8c\x8a"),
    TEXT("\xe2\x80\xa8\xe2\x80\xa9"), // line separators that JavaScript once broke at
    TEXT("exactly twenty-four long"),
    TEXT("just twenty-five long \"q\""),
    {NULL, 0},
};

START_TEST(test_hard_texts) {
  const encoder_options *options[] = {&plain, &tiny, &learned};
  encoder *e = encoder_create(options[_i]);
  for (size_t i = 0; i < LENGTH(hard_texts); i++) {
    const envelope_header headers[] = {{TEXT("x"), hard_texts[i]}, {TEXT("y\"\n\\"), TEXT("z")}};
    const envelope_item items[] = {{.sku = hard_texts[i]}, {.sku = TEXT("second")}};
    const envelope what = {.method = hard_texts[i],
                           .headers = headers,
                           .header_count = 2,
                           .subject = hard_texts[i],
                           .reply_to = hard_texts[LENGTH(hard_texts) - 1 - i],
                           .items = items,
                           .item_count = 2};
    for (int again = 0; again < 3; again++) assert_envelope(encoder_encode(e, &what), &what);
  }
}
END_TEST

// What is no UTF-8 becomes U+FFFD, and what is around it stays.
START_TEST(test_bad_utf8) {
#define BAD "\xef\xbf\xbd"
  static const struct {
    text given, expected;
  } cases[] = {
      {TEXT("\x80"), TEXT(BAD)},
      {TEXT("a\xff"
            "b"),
       TEXT("a" BAD "b")},
      {TEXT("\xc3"), TEXT(BAD)},                         // cut off
      {TEXT("\xe2\x82"), TEXT(BAD BAD)},                 // cut off
      {TEXT("\xe2\x82\""), TEXT(BAD BAD "\"")},          // cut off before what must be escaped
      {TEXT("\xc0\xaf"), TEXT(BAD BAD)},                 // overlong
      {TEXT("\xe0\x80\xaf"), TEXT(BAD BAD BAD)},         // overlong
      {TEXT("\xf0\x80\x80\xaf"), TEXT(BAD BAD BAD BAD)}, // overlong
      {TEXT("\xed\xa0\x80"), TEXT(BAD BAD BAD)},         // a surrogate
      {TEXT("\xf4\x90\x80\x80"), TEXT(BAD BAD BAD BAD)}, // above U+10FFFF
  };
  encoder *e = encoder_create(_i ? &learned : &plain);
  for (size_t i = 0; i < LENGTH(cases); i++) {
    envelope what = {.subject = cases[i].given};
    for (int again = 0; again < 2; again++) {
      text written = encoder_encode(e, &what);
      assert_envelope(written, &(envelope){.subject = cases[i].expected});
    }
  }
}
END_TEST

START_TEST(test_hard_numbers) {
  static const double reals[] = {0,
                                 0.01,
                                 0.1,
                                 1.1,
                                 -1.25,
                                 0.005,
                                 1e-7,
                                 1e300,
                                 -5e-324,
                                 1.0 / 3,
                                 12345.67,
                                 99999999.99,
                                 1e13,
                                 1e22,
                                 123456789012.34,
                                 4503599627370496.5,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 1.005,
                                 2.675};
  static const int64_t codes[] = {0, -1, 9, 10, INT64_MAX, INT64_MIN, 1000000};
  encoder *e = encoder_create(&tiny);
  for (size_t i = 0; i < LENGTH(reals); i++) {
    const envelope_item items[] = {{.sku = TEXT("a"),
                                    .quantity = codes[i % LENGTH(codes)],
                                    .price = reals[i],
                                    .codes = codes,
                                    .code_count = i % (LENGTH(codes) + 1)}};
    const envelope what = {.id = INT64_MAX - i,
                           .amount = reals[i],
                           .urgent = i % 2,
                           .items = items,
                           .item_count = i % 2};
    assert_envelope(encoder_encode(e, &what), &what);
  }
}
END_TEST

START_TEST(test_random_texts) {
  uint64_t seed = test_seed();
  encoder *e = encoder_create(&learned), *fresh = encoder_create(&tiny);
  for (int i = 0; i < 20000; i++) {
    char letters[64], expected[64];
    size_t length = random_below(&seed, sizeof letters);
    // Mostly what must be escaped; a short alphabet, so that texts come again.
    for (size_t c = 0; c < length; c++) letters[c] = "\"\\\n\x01 ab\x7f"[random_below(&seed, 8)];
    memcpy(expected, letters, length);
    const envelope what = {.method = {letters, length % 4}, .subject = {letters, length}};
    text written = encoder_encode(e, &what), again = encoder_encode(fresh, &what);
    MUST(written.length == again.length && memcmp(written.at, again.at, again.length) == 0);
    MUST(memcmp(letters, expected, length) == 0);
    if (i % 20 == 0) assert_envelope(written, &what);
  }
}
END_TEST

// ---- The set --------------------------------------------------------------------------------

START_TEST(test_set) {
  envelopes set, same, other;
  ck_assert(envelopes_make(&set, 1000, 7));
  ck_assert(envelopes_make(&same, 1000, 7));
  ck_assert(envelopes_make(&other, 1000, 8));
  encoder *e = encoder_create(&tiny), *f = encoder_create(&learned);
  size_t alike = 0, with_escapes = 0;
  for (size_t i = 0; i < set.count; i++) {
    text written = encoder_encode(e, &set.at[i]);
    assert_envelope(written, &set.at[i]);
    ck_assert_uint_gt(set.at[i].item_count, 0);
    ck_assert_uint_gt(set.at[i].header_count, 2);
    with_escapes += memchr(written.at, '\\', written.length) != NULL;
    text again = encoder_encode(f, &same.at[i]);
    ck_assert_uint_eq(written.length, again.length);
    ck_assert_mem_eq(written.at, again.at, again.length);
    text third = encoder_encode(f, &other.at[i]);
    alike += third.length == written.length && memcmp(third.at, written.at, third.length) == 0;
  }
  ck_assert_uint_eq(alike, 0);
  ck_assert_uint_gt(with_escapes, 500);
  ck_assert_uint_eq(encoder_uses(e), 1000);
  envelopes_free(&set);
  envelopes_free(&same);
  envelopes_free(&other);
}
END_TEST

// ---- What it allocates ----------------------------------------------------------------------

enum { OPS = 1000 };

static void encode_all(supply *from, const envelopes *set) {
  for (size_t i = 0; i < OPS; i++) {
    encoder *e = supply_get(from, 0);
    MUST(encoder_encode(e, &set->at[i % set->count]).at != NULL);
    supply_put(from, 0, e);
  }
}

static void count_allocations(supply_kind kind, uint64_t *objects, uint64_t *bytes) {
  envelopes set;
  ck_assert(envelopes_make(&set, 100, 1));
  tide_gc_percent_set(-1);
  supply *from = supply_create(kind, 1, &plain, NULL);
  ck_assert_ptr_nonnull(from);
  encode_all(from, &set); // warms up
  tide_memstats before = read_stats();
  encode_all(from, &set);
  tide_memstats after = read_stats();
  ck_assert_uint_eq(after.num_gc, before.num_gc);
  *objects = after.mallocs - before.mallocs;
  *bytes = after.total_alloc - before.total_alloc;
  supply_destroy(from);
  envelopes_free(&set);
}

START_TEST(test_fresh_allocates) {
  uint64_t objects, bytes;
  count_allocations(SUPPLY_FRESH, &objects, &bytes);
  // A struct and two buffers that need not grow.
  ck_assert_uint_eq(objects, 3 * OPS);
  ck_assert_uint_eq(bytes, OPS * encoder_bytes(encoder_create(&plain)));
}
END_TEST

START_TEST(test_others_allocate_nothing) {
  static const supply_kind kinds[] = {SUPPLY_POOL, SUPPLY_FREELIST, SUPPLY_OWNED};
  uint64_t objects, bytes;
  count_allocations(kinds[_i], &objects, &bytes);
  ck_assert_uint_eq(objects, 0);
  ck_assert_uint_eq(bytes, 0);
}
END_TEST

// ---- What it keeps --------------------------------------------------------------------------

static bool kept_through(supply_kind kind, const tide_pool_options *options, int collections) {
  tide_gc_percent_set(-1);
  supply *from = supply_create(kind, 1, &learned, options);
  envelope what = {.subject = TEXT("x")};
  encoder *e = supply_get(from, 0);
  ck_assert_uint_eq(encoder_uses(e), 0);
  encoder_encode(e, &what);
  supply_put(from, 0, e);
  ck_assert_uint_eq(supply_items(from), kind == SUPPLY_FRESH ? 0 : 1);
  e = NULL;
  for (int i = 0; i < collections; i++) tide_collect();
  uint64_t items = supply_items(from);
  bool kept = encoder_uses(supply_get(from, 0)) == 1;
  ck_assert_uint_eq(items, kept);
  uint64_t gets, misses;
  supply_counts(from, &gets, &misses);
  if (gets) ck_assert_uint_eq(gets - misses, kept);
  supply_destroy(from);
  return kept;
}

START_TEST(test_what_is_kept) {
  const tide_pool_options survives = {.survive = 4};
  const tide_pool_options rests = {.min_idle_ns = UINT64_C(3600) * 1000000000};
  ck_assert(!kept_through(SUPPLY_FRESH, NULL, 0));
  ck_assert(kept_through(SUPPLY_POOL, NULL, 1));
  ck_assert(!kept_through(SUPPLY_POOL, NULL, 2));
  ck_assert(kept_through(SUPPLY_POOL, &survives, 4));
  ck_assert(!kept_through(SUPPLY_POOL, &survives, 5));
  ck_assert(kept_through(SUPPLY_POOL, &rests, 6));
  ck_assert(kept_through(SUPPLY_FREELIST, NULL, 6));
  ck_assert(kept_through(SUPPLY_OWNED, NULL, 6));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("envelope");
  TCase *json = tcase_create("json");
  tcase_set_timeout(json, 60);
  tcase_add_loop_test(json, test_hard_texts, 0, 3);
  tcase_add_loop_test(json, test_bad_utf8, 0, 2);
  tcase_add_test(json, test_hard_numbers);
  tcase_add_test(json, test_random_texts);
  tcase_add_test(json, test_set);
  suite_add_tcase(suite, json);
  TCase *heap = tcase_create("heap");
  tcase_add_test(heap, test_fresh_allocates);
  tcase_add_loop_test(heap, test_others_allocate_nothing, 0, 3);
  tcase_add_test(heap, test_what_is_kept);
  suite_add_tcase(suite, heap);
  return run_suite(suite);
}
