// SPDX-License-Identifier: MIT
// Rings and chains, without the heap: rings come from calloc and stay until the process ends, which
// stands in for the collector's promise that no ring comes back while somebody looks at it.
//
// Needs only pool/ring.c, so that it also runs under ThreadSanitizer, which does not get along with
// the signals that stop the world:
//   cc -fsanitize=thread -Ipool tests/test_ring.c pool/ring.c -lcheck -lpthread
#include "ring.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW 1
#endif
#endif
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
#define SLOW 1
#endif
// Where each instruction can be made to trap, and signals come when they are sent.
#if defined __x86_64__ && !defined __SANITIZE_THREAD__
#define CAN_STEP 1
#else
#define CAN_STEP 0
#endif
#ifdef SLOW
#define VALUES 200000
#else
#define VALUES 2000000
#endif

#define CONSUMERS   9
#define BEFORE_WRAP ((uint32_t)-500)

static struct ring *new_ring(size_t slots, uint32_t start) {
  struct ring *ring = ring_init(calloc(1, ring_bytes(slots)), slots);
  ring->ends = ring_pack(start, start);
  return ring;
}

static uint32_t start_of_rings; // where the ends of a chain's rings begin
static size_t slots_of_rings;   // of each ring of a chain; 0: as many as it asks for

// Pushes as the pool does, with a new ring if need be. Returns how many slots the chain wanted it
// to have, 0 for none.
static size_t push(struct chain *chain, void *item) {
  struct ring *spare = NULL;
  size_t slots = chain_push(chain, item, &spare);
  if (!slots) return 0;
  spare = new_ring(slots_of_rings ? slots_of_rings : slots, start_of_rings);
  ck_assert_uint_eq(chain_push(chain, item, &spare), 0);
  free(spare); // NULL, or not needed after all: a consumer has made room
  return slots;
}

static void *item(uintptr_t number) {
  return (void *)number;
}
static uintptr_t number(void *taken) {
  return (uintptr_t)taken;
}

// ---- One thread -----------------------------------------------------------------------------

START_TEST(ring_has_a_stack_at_its_head_and_a_queue_at_its_tail) {
  struct ring *ring = new_ring(8, 0);
  ck_assert_ptr_null(ring_pop_head(ring));
  ck_assert_ptr_null(ring_pop_tail(ring));
  for (uintptr_t i = 1; i <= 6; i++) ck_assert_int_eq(ring_push(ring, item(i)), 1);
  ck_assert_uint_eq(number(ring_pop_head(ring)), 6);
  ck_assert_uint_eq(number(ring_pop_tail(ring)), 1);
  ck_assert_uint_eq(number(ring_pop_head(ring)), 5);
  ck_assert_uint_eq(number(ring_pop_tail(ring)), 2);
  ck_assert_int_eq(ring_push(ring, item(7)), 1);
  ck_assert_uint_eq(number(ring_pop_tail(ring)), 3);
  ck_assert_uint_eq(number(ring_pop_head(ring)), 7);
  ck_assert_uint_eq(number(ring_pop_head(ring)), 4);
  ck_assert_ptr_null(ring_pop_head(ring));
  ck_assert_ptr_null(ring_pop_tail(ring));
}
END_TEST

START_TEST(full_ring_refuses_and_loses_nothing) {
  struct ring *ring = new_ring(8, 0);
  for (uintptr_t i = 1; i <= 8; i++) ck_assert_int_eq(ring_push(ring, item(i)), 1);
  ck_assert_int_eq(ring_push(ring, item(9)), 0);
  ck_assert_uint_eq(number(ring_pop_tail(ring)), 1);
  ck_assert_int_eq(ring_push(ring, item(9)), 1);
  ck_assert_int_eq(ring_push(ring, item(10)), 0);
  for (uintptr_t i = 2; i <= 9; i++) ck_assert_uint_eq(number(ring_pop_tail(ring)), i);
  ck_assert_ptr_null(ring_pop_tail(ring));
}
END_TEST

START_TEST(slot_is_filled_only_when_its_consumer_has_cleared_it) {
  struct ring *ring = new_ring(8, 0);
  for (uintptr_t i = 1; i <= 8; i++) ring_push(ring, item(i));
  // A consumer in the middle of its step: the tail has moved, the slot is not cleared.
  ring->ends = ring_pack(8, 1);
  ck_assert_int_eq(ring_push(ring, item(9)), 0);
  ring->slots[0] = 0;
  ck_assert_int_eq(ring_push(ring, item(9)), 1);
}
END_TEST

START_TEST(taken_items_leave_no_trace_for_the_collector) {
  struct ring *ring = new_ring(8, 0);
  for (uintptr_t i = 1; i <= 8; i++) ring_push(ring, item(i));
  for (int i = 0; i < 4; i++) ring_pop_head(ring), ring_pop_tail(ring);
  for (int i = 0; i < 8; i++) ck_assert_uint_eq(ring->slots[i], 0);
}
END_TEST

START_TEST(ring_works_across_the_wrap_around_of_its_ends) {
  struct ring *ring = new_ring(16, BEFORE_WRAP);
  uintptr_t in = 0, out = 0;
  for (int round = 0; round < 400; round++) {
    while (ring_push(ring, item(in + 1))) in++;
    ck_assert_uint_eq(in - out, 16);
    for (int i = 0; i < 10; i++) ck_assert_uint_eq(number(ring_pop_tail(ring)), ++out);
    uintptr_t top = number(ring_pop_head(ring)); // and back: across the wrap in both directions
    ck_assert_uint_eq(top, in);
    ck_assert_int_eq(ring_push(ring, item(top)), 1);
  }
  ck_assert_uint_lt(ring_head(ring->ends), 1 << 20);
}
END_TEST

START_TEST(chain_grows_by_doubling_up_to_the_largest_ring) {
  struct chain chain = {0};
  ck_assert_ptr_null(chain_pop_head(&chain));
  ck_assert_ptr_null(chain_pop_tail(&chain));
  size_t largest = 0, in = 0;
  while (largest < RING_SLOTS_MAX || in % RING_SLOTS_MAX) {
    // A new ring is asked for when 8, 8 + 16, 8 + 16 + 32, ... items are in: 8 less than a power
    // of 2.
    size_t expected = (in & (in + RING_SLOTS_MIN)) == 0 ? in + RING_SLOTS_MIN : 0;
    size_t grown = push(&chain, item(++in));
    if (grown != expected) ck_abort_msg("at item %zu a ring of %zu slots", in, grown);
    if (grown) largest = grown;
  }
  ck_assert_uint_eq(largest, RING_SLOTS_MAX);
  size_t oldest = 0, wrong = 0;
  while (oldest < in / 2) wrong += number(chain_pop_tail(&chain)) != ++oldest;
  for (; in > oldest; in--) wrong += number(chain_pop_head(&chain)) != in;
  ck_assert_uint_eq(wrong, 0);
  ck_assert_ptr_null(chain_pop_head(&chain));
  ck_assert_ptr_null(chain_pop_tail(&chain));
}
END_TEST

START_TEST(chain_asks_for_no_ring_above_the_largest) {
  struct chain chain = {0};
  struct ring *ring = new_ring(RING_SLOTS_MAX, 0), *none = NULL;
  ring->ends = ring_pack((uint32_t)RING_SLOTS_MAX, 1);
  ck_assert_uint_eq(chain_push(&chain, item(1), &ring), 0);
  ck_assert_uint_eq(chain_push(&chain, item(2), &none), RING_SLOTS_MAX);
}
END_TEST

START_TEST(chain_uses_a_spare_of_any_size) {
  struct chain chain = {0};
  struct ring *spare = new_ring(64, 0);
  ck_assert_uint_eq(chain_push(&chain, item(1), &spare), 0);
  ck_assert_ptr_null(spare);
  struct ring *kept = spare = new_ring(8, 0);
  for (uintptr_t i = 2; i <= 64; i++) ck_assert_uint_eq(chain_push(&chain, item(i), &spare), 0);
  ck_assert_ptr_eq(spare, kept); // not needed yet
  ck_assert_uint_eq(chain_push(&chain, item(65), &spare), 0);
  ck_assert_ptr_null(spare);
  for (uintptr_t i = 1; i <= 65; i++) ck_assert_uint_eq(number(chain_pop_tail(&chain)), i);
}
END_TEST

START_TEST(drained_rings_are_unlinked) {
  struct chain chain = {0};
  for (uintptr_t i = 1; i <= 8 + 16 + 1; i++) push(&chain, item(i));
  struct ring *newest = chain.newest;
  for (int i = 0; i < 8 + 16 + 1; i++) chain_pop_tail(&chain);
  ck_assert_uint_eq(chain.oldest, (AO_t)newest);
  ck_assert_uint_eq(newest->prev, 0);
  ck_assert_ptr_null(chain_pop_tail(&chain));
  // It goes on from the newest ring, which has 31 slots free.
  for (uintptr_t i = 1; i <= 31; i++) ck_assert_uint_eq(push(&chain, item(i)), 0);
  ck_assert_uint_eq(number(chain_pop_head(&chain)), 31);
  ck_assert_uint_eq(number(chain_pop_tail(&chain)), 1);
}
END_TEST

START_TEST(chain_agrees_with_a_model) {
  // The model is an array with two ends; the operations are random, from a fixed seed.
  enum { STEPS = 300000 };
  static uintptr_t model[STEPS];
  size_t lo = 0, hi = 0;
  struct chain chain = {0};
  start_of_rings = BEFORE_WRAP;
  uint64_t random = 88172645463325252u;
  for (uintptr_t step = 1; step <= STEPS; step++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    // Long phases of growing and of shrinking, so that the chain gets many rings and loses them.
    bool growing = step / 3000 % 2 == 0;
    if (random % 8 < (growing ? 5 : 2)) {
      push(&chain, item(step));
      model[hi++] = step;
    } else if (random % 16 < 8) {
      ck_assert_uint_eq(number(chain_pop_head(&chain)), hi > lo ? model[--hi] : 0);
    } else {
      ck_assert_uint_eq(number(chain_pop_tail(&chain)), hi > lo ? model[lo++] : 0);
    }
  }
}
END_TEST

// ---- One producer, many consumers -----------------------------------------------------------
//
// The producer pushes the parcels in order of their numbers and now and then takes one back. Each
// must arrive once, with its contents; and at one consumer they arrive in order.

struct parcel {
  uintptr_t number; // written before the push, read after the pop: not atomic, for TSan to check
  AO_t arrivals;
};

static uintptr_t values = VALUES;
static struct parcel *parcels;
static AO_t arrived; // how many

static struct ring *one_ring; // what is under test, this or the chain
static struct chain the_chain;

static void *pop_tail(void) {
  return one_ring ? ring_pop_tail(one_ring) : chain_pop_tail(&the_chain);
}

static void *pop_head(void) {
  return one_ring ? ring_pop_head(one_ring) : chain_pop_head(&the_chain);
}

static void push_parcel(struct parcel *parcel) {
  if (!one_ring) {
    push(&the_chain, parcel);
    return;
  }
  while (!ring_push(one_ring, parcel)) sched_yield();
}

// Returns the parcel's number, 0 if it is not the parcel that it says it is.
static uintptr_t receive(struct parcel *parcel) {
  uintptr_t received = parcel->number;
  if (received < 1 || received > values || parcel != &parcels[received]) return 0;
  AO_fetch_and_add1(&parcel->arrivals);
  AO_fetch_and_add1(&arrived);
  return received;
}

static void *consume(void *arg) {
  uintptr_t last = 0;
  while (AO_load(&arrived) < values) {
    struct parcel *parcel = pop_tail();
    if (!parcel) {
      sched_yield();
      continue;
    }
    uintptr_t received = receive(parcel);
    if (received <= last) return (void *)"a parcel out of order or not one of ours";
    last = received;
  }
  return NULL;
}

static void deliver_all(void) {
  parcels = calloc(values + 1, sizeof *parcels);
  pthread_t consumers[CONSUMERS];
  for (int i = 0; i < CONSUMERS; i++)
    ck_assert_int_eq(pthread_create(&consumers[i], NULL, consume, NULL), 0);
  for (uintptr_t i = 1; i <= values; i++) {
    parcels[i].number = i;
    push_parcel(&parcels[i]);
    if (i % 10 != 0) continue;
    struct parcel *back = pop_head();
    if (back) ck_assert_uint_ne(receive(back), 0);
  }
  for (int i = 0; i < CONSUMERS; i++) {
    void *complaint;
    pthread_join(consumers[i], &complaint);
    ck_assert_msg(!complaint, "%s", (const char *)complaint);
  }
  for (uintptr_t i = 1; i <= values; i++)
    ck_assert_msg(parcels[i].arrivals == 1, "parcel %lu arrived %lu times", (unsigned long)i,
                  (unsigned long)parcels[i].arrivals);
  ck_assert_ptr_null(pop_tail());
  ck_assert_ptr_null(pop_head());
}

START_TEST(ring_delivers_each_value_once) {
  static const size_t slots[] = {8, 1024};
  one_ring = new_ring(slots[_i], BEFORE_WRAP);
  deliver_all();
}
END_TEST

START_TEST(chain_delivers_each_value_once) {
  start_of_rings = BEFORE_WRAP;
  deliver_all();
}
END_TEST

// Rings of one slot are linked and unlinked with every item, so that consumers meet at each of the
// moments in between.
START_TEST(chain_of_smallest_rings_delivers_each_value_once) {
  slots_of_rings = 1;
  values = VALUES / 10;
  deliver_all();
}
END_TEST

// ---- Cut off --------------------------------------------------------------------------------
//
// A fork takes what there is of a chain at one moment, and the producer is not there any more.
// Whoever goes on with it may miss the item that was on its way, and no other.

#if CAN_STEP

static struct {
  struct chain chain;
  size_t used;
  char memory[8192] __attribute__((aligned(64))); // for rings
} all, *copies;

enum { COPIES_MOST = 10000, TRAP_FLAG = 0x100 };
static size_t copied;

static void copy_all(int signal_number) {
  if (copied < COPIES_MOST) copies[copied++] = all;
}

// Each instruction traps while the flag is set.
static void set_traps(bool on) {
  if (on)
    __asm__ volatile("pushfq\n orq %0, (%%rsp)\n popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
  else
    __asm__ volatile("pushfq\n andq %0, (%%rsp)\n popfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

static void push_step_by_step(uintptr_t value, bool in_steps) {
  struct ring *spare = NULL;
  if (in_steps) set_traps(true);
  size_t slots = chain_push(&all.chain, item(value), &spare);
  set_traps(false);
  if (!slots) return;
  spare = ring_init(all.memory + all.used, slots);
  all.used += (ring_bytes(slots) + 63) / 64 * 64;
  if (all.used > sizeof all.memory) ck_abort();
  if (in_steps) set_traps(true);
  slots = chain_push(&all.chain, item(value), &spare);
  set_traps(false);
  if (slots) ck_abort();
}

// Values from..to-1 are in the chain, and `to` perhaps.
static void check_what_goes_on(uintptr_t from, uintptr_t to) {
  enum { FIRST = 100, LAST = 140 };
  unsigned times[LAST + 1] = {0};
  for (uintptr_t v = FIRST; v <= LAST; v++) push_step_by_step(v, false);
  uint64_t items = chain_items(&all.chain);
  void *taken;
  for (; (taken = chain_pop_tail(&all.chain)); items--) times[number(taken)]++;
  bool right = items == 0;
  for (uintptr_t v = 0; v <= LAST; v++) {
    bool is_there = (v >= from && v < to) || v >= FIRST;
    right = right && (v == to ? times[v] <= 1 : times[v] == is_there);
  }
  // A ck_assert writes to Check's pipe also when it holds.
  if (!right) ck_abort_msg("of %u to %u, and then 100 to 140", (unsigned)from, (unsigned)to);
}

START_TEST(a_push_that_is_cut_off_costs_its_item_at_most) {
  copies = malloc(COPIES_MOST * sizeof *copies);
  signal(SIGTRAP, copy_all);
  for (uintptr_t before = 0; before < 30; before++)
    for (uintptr_t taken = 0; taken <= before; taken += before ? before : 1) {
      memset(&all, 0, sizeof all);
      for (uintptr_t v = 1; v <= before; v++) push_step_by_step(v, false);
      for (uintptr_t v = 1; v <= taken; v++)
        if (number(chain_pop_tail(&all.chain)) != v) ck_abort();
      copied = 0;
      push_step_by_step(before + 1, true);
      ck_assert_uint_gt(copied, 10);
      ck_assert_uint_lt(copied, COPIES_MOST);
      for (size_t i = 0; i < copied; i++) {
        all = copies[i];
        check_what_goes_on(taken + 1, before + 1);
      }
    }
  free(copies);
}
END_TEST

#endif

int main(void) {
  Suite *suite = suite_create("ring");
  TCase *order = tcase_create("one thread");
  tcase_set_timeout(order, 60);
  tcase_add_test(order, ring_has_a_stack_at_its_head_and_a_queue_at_its_tail);
  tcase_add_test(order, full_ring_refuses_and_loses_nothing);
  tcase_add_test(order, slot_is_filled_only_when_its_consumer_has_cleared_it);
  tcase_add_test(order, taken_items_leave_no_trace_for_the_collector);
  tcase_add_test(order, ring_works_across_the_wrap_around_of_its_ends);
  tcase_add_test(order, chain_grows_by_doubling_up_to_the_largest_ring);
  tcase_add_test(order, chain_asks_for_no_ring_above_the_largest);
  tcase_add_test(order, chain_uses_a_spare_of_any_size);
  tcase_add_test(order, drained_rings_are_unlinked);
  tcase_add_test(order, chain_agrees_with_a_model);
  suite_add_tcase(suite, order);
#if CAN_STEP
  TCase *cut_off = tcase_create("cut off");
  tcase_set_timeout(cut_off, 60);
  tcase_add_test(cut_off, a_push_that_is_cut_off_costs_its_item_at_most);
  suite_add_tcase(suite, cut_off);
#endif
  TCase *delivery = tcase_create("one producer, nine consumers");
  tcase_set_timeout(delivery, 300);
  tcase_add_loop_test(delivery, ring_delivers_each_value_once, 0, 2);
  tcase_add_test(delivery, chain_delivers_each_value_once);
  tcase_add_test(delivery, chain_of_smallest_rings_delivers_each_value_once);
  suite_add_tcase(suite, delivery);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
