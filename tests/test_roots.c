// SPDX-License-Identifier: MIT
// Roots of every kind: each keeps its objects, and loses them when it goes.
#define _GNU_SOURCE
#include "rt_testing.h"

#include <sys/mman.h>
#include <sys/resource.h>

#ifndef SS_AUTODISARM // the kernel has had it for long; not all of its names reach libc's headers
#define SS_AUTODISARM (1u << 31)
#endif

static void *data_slots[GROUP] = {(void *)8};
static void *bss_slots[GROUP];
static _Thread_local void *tls_slots[GROUP];

static void check_slots(void **slots) {
  group g;
  group_fill(&g, slots);
  collect_clean();
  collect_clean();
  assert_group_lives(&g);
  forget(slots, GROUP);
  collect_clean();
  assert_group_gone(&g);
}

// ---- Static data, own stack, thread-local variables -----------------------------------------

START_TEST(static_data) {
  init_verified();
  check_slots(data_slots);
  check_slots(bss_slots);
}
END_TEST

START_TEST(own_stack) {
  init_verified();
  void *slots[GROUP];
  check_slots(slots);
}
END_TEST

START_TEST(thread_local_of_main) {
  init_verified();
  check_slots(tls_slots);
}
END_TEST

// ---- Another thread -------------------------------------------------------------------------

typedef struct worker {
  group *g;
  void **(*slots)(void); // NULL: on its own stack
  volatile int ready, go;
  bool forget;
} worker;

static NOINLINE void **own_tls_slots(void) {
  return tls_slots;
}

static NOINLINE void *worker_main(void *argument) {
  worker *w = argument;
  void *on_stack[GROUP];
  void **slots = w->slots ? w->slots() : on_stack;
  group_fill(w->g, slots);
  clear_stack();
  set_flag(&w->ready);
  wait_until(&w->go);
  if (!w->forget) return NULL; // with the pointers left where they are
  forget(slots, GROUP);
  w->ready = w->go = 0;
  clear_stack();
  set_flag(&w->ready);
  wait_until(&w->go);
  return NULL;
}

static void check_worker(void **(*slots)(void), bool forgets, const pthread_attr_t *attributes) {
  group g;
  worker w = {&g, slots, 0, 0, forgets};
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, attributes, worker_main, &w), 0);
  wait_until(&w.ready);
  collect_clean();
  assert_group_lives(&g);
  if (forgets) {
    w.ready = 0;
    set_flag(&w.go);
    wait_until(&w.ready);
    collect_clean();
    assert_group_gone(&g);
  }
  set_flag(&w.go);
  pthread_join(thread, NULL);
  collect_clean();
  assert_group_gone(&g);
}

START_TEST(stack_of_another_thread) {
  init_verified();
  check_worker(NULL, true, NULL);
}
END_TEST

START_TEST(stack_of_a_thread_that_ends) {
  init_verified();
  check_worker(NULL, false, NULL);
}
END_TEST

START_TEST(thread_local_of_a_worker) {
  init_verified();
  check_worker(own_tls_slots, true, NULL);
  check_worker(own_tls_slots, false, NULL); // the memory of the block outlives the thread
}
END_TEST

START_TEST(stack_from_the_program) {
  init_verified();
  enum { BYTES = 256 * 1024 };
  void *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, BYTES);
  check_worker(NULL, true, &attributes);
  check_worker(own_tls_slots, false, &attributes);
  munmap(stack, BYTES);
  collect_clean();
}
END_TEST

static void *raw_worker(void *argument) {
  worker *w = argument;
  set_flag(&w->ready);
  wait_until(&w->go);
  return NULL;
}

static NOINLINE void give_to(group *g, void **mapped) {
  group_fill(g, mapped);
}

START_TEST(stack_of_an_unknown_thread_is_none) {
  init_verified();
  enum { BYTES = 256 * 1024 };
  void **stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, BYTES);
  worker w = {NULL, NULL, 0, 0, false};
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, &attributes, raw_worker, &w), 0);
  wait_until(&w.ready);
  group g;
  give_to(&g, stack);
  collect_clean();
  assert_group_gone(&g);
  set_flag(&w.go);
  pthread_join(thread, NULL);
}
END_TEST

// ---- Registers ------------------------------------------------------------------------------

#if defined __x86_64__

typedef struct holder {
  uintptr_t hidden;
  volatile int *ready;
  volatile int *done;
} holder;

// The address exists in the named register only, in a loop that calls nothing.
#define HOLD_IN(reg)                                                                               \
  static NOINLINE void hold_in_##reg(holder *h) {                                                  \
    __asm__ volatile("movq %[hidden], %%" #reg "\n\t"                                              \
                     "notq %%" #reg "\n\t"                                                         \
                     "movl $1, (%[ready])\n"                                                       \
                     "1:\tpause\n\t"                                                               \
                     "cmpl $0, (%[done])\n\t"                                                      \
                     "je 1b\n\t"                                                                   \
                     "xorl %%eax, %%eax\n\t"                                                       \
                     "movq %%rax, %%" #reg                                                         \
                     :                                                                             \
                     : [hidden] "m"(h->hidden), [ready] "r"(h->ready), [done] "r"(h->done)         \
                     : #reg, "rax", "cc", "memory");                                               \
  }
HOLD_IN(rbx)
HOLD_IN(r12)
HOLD_IN(r13)
HOLD_IN(r14)
HOLD_IN(r15)
HOLD_IN(r10) // not saved by callees, but by the kernel
HOLD_IN(r11)

static void (*const hold_in[])(holder *) = {hold_in_rbx, hold_in_r12, hold_in_r13, hold_in_r14,
                                            hold_in_r15, hold_in_r10, hold_in_r11};
enum { REGISTERS = sizeof hold_in / sizeof *hold_in, REGISTER_ROUNDS = 10 };

typedef struct register_test {
  uintptr_t hidden[REGISTERS * REGISTER_ROUNDS];
  volatile int ready[REGISTERS * REGISTER_ROUNDS], done[REGISTERS * REGISTER_ROUNDS];
} register_test;

static void *register_main(void *argument) {
  register_test *t = argument;
  for (int i = 0; i < REGISTERS * REGISTER_ROUNDS; i++) {
    tide_gc_disable(); // until the object is in the register
    t->hidden[i] = hidden_member(i);
    clear_stack();
    holder h = {t->hidden[i], &t->ready[i], &t->done[i]};
    hold_in[i % REGISTERS](&h);
  }
  return NULL;
}

START_TEST(register_of_another_thread) {
  init_verified();
  static register_test t;
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, register_main, &t), 0);
  for (int i = 0; i < REGISTERS * REGISTER_ROUNDS; i++) {
    while (!t.ready[i]) continue;
    tide_gc_enable();
    collect_clean();
    ck_assert_msg(member_lives(t.hidden[i], i), "object %d was lost", i);
    t.done[i] = 1;
  }
  pthread_join(thread, NULL);
  collect_clean();
  int alive = 0;
  for (int i = 0; i < REGISTERS * REGISTER_ROUNDS; i++) alive += member_lives(t.hidden[i], i);
  ck_assert_int_le(alive, GROUP_STRAYS);
}
END_TEST

// The same for the thread that collects: the address is in a register that callees save.
#define COLLECT_WITH(reg, keep)                                                                    \
  static NOINLINE void collect_with_##reg(uintptr_t hidden) {                                      \
    __asm__ volatile("movq %%rsp, %%" #keep "\n\t"                                                 \
                     "movq %[hidden], %%" #reg "\n\t"                                              \
                     "notq %%" #reg "\n\t"                                                         \
                     "subq $256, %%rsp\n\t"                                                        \
                     "andq $-64, %%rsp\n\t"                                                        \
                     "call *%[collect]\n\t"                                                        \
                     "xorl %%eax, %%eax\n\t"                                                       \
                     "movq %%rax, %%" #reg "\n\t"                                                  \
                     "movq %%" #keep ", %%rsp"                                                     \
                     :                                                                             \
                     : [hidden] "r"(hidden), [collect] "r"(tide_collect)                           \
                     : #reg, #keep, "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",   \
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc",         \
                       "memory");                                                                  \
  }
COLLECT_WITH(rbx, r12)
COLLECT_WITH(r13, r12)
COLLECT_WITH(r14, r12)
COLLECT_WITH(r15, r12)
COLLECT_WITH(r12, r13)

START_TEST(register_of_the_collecting_thread) {
  init_verified();
  void (*const collect_with[])(uintptr_t) = {collect_with_rbx, collect_with_r13, collect_with_r14,
                                             collect_with_r15, collect_with_r12};
  for (int i = 0; i < 50; i++) {
    uintptr_t hidden = hidden_member(i);
    clear_stack();
    collect_with[i % 5](hidden);
    ck_assert_msg(member_lives(hidden, i), "object %d was lost", i);
  }
}
END_TEST

#endif

// ---- Ranges ---------------------------------------------------------------------------------

START_TEST(added_range) {
  init_verified();
  void **slots = malloc(GROUP * sizeof *slots);
  void *end = slots + GROUP;
  ck_assert_int_eq(tide_roots_add(slots, end), TIDE_OK);
  group g;
  group_fill(&g, slots);
  collect_clean();
  assert_group_lives(&g);

  // Part of it, or more, or shifted: not a range that was added.
  ck_assert_int_eq(tide_roots_remove(slots, slots + 1), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_remove(slots + 1, end), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_remove(slots, slots + GROUP + 1), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_remove(slots, slots), TIDE_ERR_ARGUMENT);
  ck_assert_str_ne(tide_error_message(), "");
  collect_clean();
  assert_group_lives(&g);

  // Counted.
  ck_assert_int_eq(tide_roots_add(slots, end), TIDE_OK);
  ck_assert_int_eq(tide_roots_remove(slots, end), TIDE_OK);
  collect_clean();
  assert_group_lives(&g);
  ck_assert_int_eq(tide_roots_remove(slots, end), TIDE_OK);
  collect_clean();
  assert_group_gone(&g);
  ck_assert_int_eq(tide_roots_remove(slots, end), TIDE_ERR_ARGUMENT);
  free(slots);
}
END_TEST

START_TEST(ranges_at_odd_bounds) {
  init_verified();
  void **slots = calloc(GROUP + 2, sizeof *slots);
  char *lo = (char *)slots + 3, *hi = (char *)(slots + GROUP + 2) - 3; // both words at the ends cut
  ck_assert_int_eq(tide_roots_add(hi, lo), TIDE_ERR_ARGUMENT);
  ck_assert_int_eq(tide_roots_add(lo, lo), TIDE_OK); // empty
  ck_assert_int_eq(tide_roots_add(lo, hi), TIDE_OK);
  group g;
  group_fill(&g, slots + 1);
  collect_clean();
  assert_group_lives(&g);
  ck_assert_int_eq(tide_roots_remove(lo, hi), TIDE_OK);
  ck_assert_int_eq(tide_roots_remove(lo, lo), TIDE_OK);
  collect_clean();
  assert_group_gone(&g);
  free(slots);
}
END_TEST

// Ranges that lie within one another are different ranges.
START_TEST(ranges_that_overlap) {
  init_verified();
  void **slots = malloc(GROUP * sizeof *slots);
  ck_assert_int_eq(tide_roots_add(slots, slots + GROUP), TIDE_OK);
  ck_assert_int_eq(tide_roots_add(slots, slots + GROUP / 2), TIDE_OK);
  ck_assert_int_eq(tide_roots_remove(slots, slots + GROUP), TIDE_OK);
  group g;
  group_fill(&g, slots);
  collect_clean();
  int alive = group_alive(&g);
  ck_assert_int_ge(alive, GROUP / 2);
  ck_assert_int_le(alive, GROUP / 2 + GROUP_STRAYS);
  ck_assert_int_eq(tide_roots_remove(slots, slots + GROUP / 2), TIDE_OK);
  free(slots);
}
END_TEST

START_TEST(a_hundred_thousand_ranges) {
  init_verified();
  enum { RANGES = 100000, STEP = 2 };
  void **slots = calloc(RANGES * STEP, sizeof *slots);
  uint64_t began = now_ns();
  for (size_t i = 0; i < RANGES; i++) { // in an order of no particular kind
    void **slot = slots + STEP * (i * 7919 % RANGES);
    ck_assert_int_eq(tide_roots_add(slot, slot + 1), TIDE_OK);
  }
  uint64_t added = now_ns();
  group g;
  void *objects[GROUP];
  group_fill(&g, objects);
  for (int i = 0; i < GROUP; i++) slots[STEP * i * (RANGES / GROUP)] = objects[i];
  forget(objects, GROUP);
  collect_clean();
  assert_group_lives(&g);
  uint64_t collected = now_ns();
  for (size_t i = RANGES; i-- > 0;)
    ck_assert_int_eq(tide_roots_remove(slots + STEP * i, slots + STEP * i + 1), TIDE_OK);
  uint64_t removed = now_ns();
  collect_clean();
  assert_group_gone(&g);
  // A tenth of a second each on a quiet machine; a cost that grew with their number would be
  // minutes.
  ck_assert_uint_lt(added - began, 5000000000u);
  ck_assert_uint_lt(collected - added, 5000000000u);
  ck_assert_uint_lt(removed - collected, 5000000000u);
  free(slots);
}
END_TEST

// ---- Other memory ---------------------------------------------------------------------------

static void check_uncollectable(size_t bytes) {
  void **slots = tide_alloc_uncollectable(bytes);
  uintptr_t hidden = hide(slots);
  group g;
  group_fill(&g, slots + bytes / sizeof *slots - GROUP);
  slots = NULL;
  collect_clean();
  collect_clean();
  assert_group_lives(&g);
  tide_free(reveal(hidden));
  collect_clean();
  assert_group_gone(&g);
}

START_TEST(uncollectable_objects) {
  init_verified();
  check_uncollectable(GROUP * sizeof(void *));
  check_uncollectable(TIDE_SMALL_MAX);
  check_uncollectable(300000);
}
END_TEST

START_TEST(malloc_is_none) {
  init_with(OPTIONS(o.verify = 1, o.poison = 1));
  void **slots = malloc(GROUP * sizeof *slots);
  group g;
  group_fill(&g, slots);
  collect_clean();
  assert_group_gone(&g);
  int poisoned = 0;
  for (int i = 0; i < GROUP; i++) {
    const unsigned char *bytes = slots[i];
    int same = 0;
    for (size_t k = 0; k < GROUP_WORDS * sizeof(uint64_t); k++) same += bytes[k] == 0xdb;
    poisoned += same == GROUP_WORDS * sizeof(uint64_t);
  }
  ck_assert_int_ge(poisoned, GROUP - GROUP_STRAYS);
  free(slots);
}
END_TEST

START_TEST(mapped_memory_is_none) {
  init_verified();
  void **slots = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  group g;
  group_fill(&g, slots);
  collect_clean();
  assert_group_gone(&g);
  munmap(slots, 4096);
}
END_TEST

static void note_globals(const tide_cycle *cycle, void *bytes) {
  *(uint64_t *)bytes = cycle->global_bytes;
}

// They are megabytes. Where one is linked into the program itself, its data are the program's.
START_TEST(tables_of_a_sanitizers_runtime_are_none) {
#ifdef __clang__
  if (UNDER_ASAN || UNDER_TSAN) return;
#endif
  init_verified();
  uint64_t bytes = 0;
  tide_hook *hook = tide_hook_add(TIDE_MARK_DONE, note_globals, &bytes);
  tide_collect();
  tide_hook_remove(hook);
  ck_assert_uint_gt(bytes, sizeof data_slots);
  ck_assert_uint_lt(bytes, 2 * MIB);
}
END_TEST

// ---- Forms of pointers ----------------------------------------------------------------------

// Moves each pointer of the slots to `offset` bytes after its object's start.
static NOINLINE void shift(void **slots, int count, size_t offset) {
  for (int i = 0; i < count; i++) slots[i] = (char *)slots[i] + offset;
  keep_in_memory(slots);
}

START_TEST(inner_pointers) {
  init_verified();
  void *stack_slots[GROUP];
  void **added = malloc(GROUP * sizeof *added);
  tide_roots_add(added, added + GROUP);
  void **places[] = {stack_slots, bss_slots, tls_slots, added};
  size_t last = GROUP_WORDS * sizeof(uint64_t) - 1;
  size_t offsets[] = {1, 7, 8, last / 2, last};
  for (size_t place = 0; place < 4; place++)
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
      group g;
      group_fill(&g, places[place]);
      shift(places[place], GROUP, offsets[i]);
      collect_clean();
      assert_group_lives(&g);
      forget(places[place], GROUP);
      collect_clean();
      assert_group_gone(&g);
    }
  tide_roots_remove(added, added + GROUP);
  free(added);
}
END_TEST

static NOINLINE uintptr_t new_large(void **slot) {
  char *object = tide_alloc(1 << 20);
  *slot = object + 700001;
  return hide(object);
}

static NOINLINE bool large_lives(uintptr_t hidden) {
  return tide_base((char *)reveal(hidden) + 700001) == reveal(hidden);
}

// Pointers to inside a large object, far from its first page.
START_TEST(inner_pointers_to_large_objects) {
  init_verified();
  uintptr_t hidden[20];
  for (int i = 0; i < 20; i++) hidden[i] = new_large(&bss_slots[i]);
  collect_clean();
  int alive = 0;
  for (int i = 0; i < 20; i++) alive += large_lives(hidden[i]);
  ck_assert_int_eq(alive, 20);
  forget(bss_slots, 20);
  collect_clean();
  for (int i = alive = 0; i < 20; i++) alive += large_lives(hidden[i]);
  ck_assert_int_le(alive, GROUP_STRAYS);
}
END_TEST

START_TEST(pointers_past_the_end_on_a_stack) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  size_t size = tide_size(slots[0]);
  shift(slots, GROUP, size);
  collect_clean();
  assert_group_lives(&g);
  forget(slots, GROUP);
  collect_clean();
  assert_group_gone(&g);
}
END_TEST

// Stored elsewhere, an address past the end is the next object's.
START_TEST(pointers_past_the_end_elsewhere) {
  init_verified();
  group g;
  group_fill(&g, bss_slots);
  size_t size = tide_size(bss_slots[0]);
  for (int i = 1; i < GROUP; i += 2) bss_slots[i] = NULL; // the objects between go
  shift(bss_slots, GROUP, size);
  for (int i = 1; i < GROUP; i += 2) bss_slots[i] = NULL;
  collect_clean();
  int alive = 0;
  for (int i = 0; i < GROUP; i += 2) alive += member_lives(g.hidden[i], i);
  ck_assert_int_le(alive, GROUP_STRAYS);
  forget(bss_slots, GROUP);
}
END_TEST

// ---- Regions and handlers -------------------------------------------------------------------

static void *collect_from_elsewhere(void *argument) {
  for (int i = 0; i < 10; i++) tide_collect();
  set_flag(argument);
  return NULL;
}

static void *wait_blocked(void *flag) {
  wait_until(flag);
  return NULL;
}

START_TEST(caller_of_tide_blocking) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  volatile int done = 0;
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, collect_from_elsewhere, (void *)&done), 0);
  tide_blocking(wait_blocked, (void *)&done);
  assert_group_lives(&g);
  pthread_join(thread, NULL);
  forget(slots, GROUP);
  collect_clean();
  assert_group_gone(&g);
}
END_TEST

typedef struct alt_test {
  group own, alt;
  volatile int ready, go, gone, end;
} alt_test;
static alt_test alt;

static void on_alt_stack(int number) {
  void *slots[GROUP];
  group_fill(&alt.alt, slots); // raise() is a call like any other: nothing was interrupted
  set_flag(&alt.ready);
  while (!alt.go) continue;
  forget(slots, GROUP);
}

static void *alt_main(void *flags) {
  static char stack[256 * 1024];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = *(int *)flags};
  stack_t before;
  MUST(sigaltstack(&alternate, &before) == 0);
  struct sigaction action = {.sa_handler = on_alt_stack, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  void *slots[GROUP];
  group_fill(&alt.own, slots);
  raise(SIGUSR1);
  forget(slots, GROUP);
  sigaltstack(&before, NULL); // AddressSanitizer's, which it unmaps when the thread ends
  set_flag(&alt.gone);
  wait_until(&alt.end);
  return NULL;
}

static void check_alternate_stack(int flags) {
  init_verified();
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, alt_main, &flags), 0);
  wait_until(&alt.ready);
  for (int i = 0; i < 5; i++) collect_clean();
  assert_group_lives(&alt.own);
  assert_group_lives(&alt.alt);
  set_flag(&alt.go);
  wait_until(&alt.gone);
  set_flag(&alt.end);
  pthread_join(thread, NULL);
  // The alternate stack is static data here, and a root for that reason; the handler has cleared
  // it.
  collect_clean();
  assert_group_gone(&alt.own);
}

START_TEST(alternate_signal_stack) {
  check_alternate_stack(0);
}
END_TEST

static void disarmed_child(void *arg) {
  check_alternate_stack((int)SS_AUTODISARM);
}

// With SS_AUTODISARM the kernel forgets the alternate stack while a handler runs on it, so its
// bounds cannot be found out. Then the program ends with a line that says so, and nothing is freed.
START_TEST(alternate_signal_stack_disarmed) {
  child c;
  in_child(&c, 20, disarmed_child, NULL);
  ck_assert(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGABRT);
  ck_assert_ptr_nonnull(strstr(c.errors, "on a stack that is not its own"));
}
END_TEST

// ---- Large stacks ---------------------------------------------------------------------------

static NOINLINE void deep(int depth, void (*bottom)(void)) {
  volatile char frame[64 * 1024];
  frame[0] = frame[sizeof frame - 1] = 1;
  if (depth)
    deep(depth - 1, bottom);
  else
    bottom();
  keep_in_memory((void *)frame);
}

static void be_collected_deep_down(void) {
  volatile int done = 0;
  pthread_t thread;
  ck_assert_int_eq(tide_thread_create(&thread, NULL, collect_from_elsewhere, (void *)&done), 0);
  wait_until(&done);
  pthread_join(thread, NULL);
}

// A program may raise the limit of its first thread's stack at any time; the kernel then lets it
// grow beyond what it was when the thread was registered.
START_TEST(main_stack_grows_after_a_new_limit) {
  struct rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  ck_assert(limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= (rlim_t)48 << 20);
  init_verified();
  limit.rlim_cur = (rlim_t)48 << 20;
  ck_assert_int_eq(setrlimit(RLIMIT_STACK, &limit), 0);
  deep(32 * 16, be_collected_deep_down); // 32 MiB
}
END_TEST

// Only what lies between sp and base is scanned: a stack that has been deep is not touched again.
START_TEST(main_stack_grows_and_shrinks) {
  init_verified();
  void *slots[GROUP];
  group g;
  group_fill(&g, slots);
  deep(6 * 16, be_collected_deep_down); // 6 of the usual 8 MiB
  be_collected_deep_down();
  collect_clean();
  assert_group_lives(&g);
  forget(slots, GROUP);
}
END_TEST

// ---- Dead frames ----------------------------------------------------------------------------

typedef struct node {
  struct node *next;
} node;

static NOINLINE uintptr_t build_list(int length) {
  node *head = NULL;
  for (int i = 0; i < length; i++) {
    node *fresh = tide_alloc(sizeof *fresh);
    fresh->next = head;
    head = fresh;
  }
  return hide(head);
}

// Without any clearing of the stack.
START_TEST(dropped_lists_go) {
  init_verified();
  int gone = 0;
  for (int run = 0; run < 20; run++) {
    uintptr_t hidden = build_list(20000);
    tide_collect();
    tide_memstats stats;
    tide_memstats_read(&stats);
    gone += stats.heap_objects < 10000;
    ck_assert_uint_ne(hidden, 0);
  }
  ck_assert_int_ge(gone, 19);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("roots");
  TCase *t = tcase_create("places");
  limit_time(t, 60);
  tcase_add_test(t, static_data);
  tcase_add_test(t, own_stack);
  tcase_add_test(t, thread_local_of_main);
  tcase_add_test(t, stack_of_another_thread);
  tcase_add_test(t, stack_of_a_thread_that_ends);
  tcase_add_test(t, thread_local_of_a_worker);
  tcase_add_test(t, stack_from_the_program);
  tcase_add_test(t, stack_of_an_unknown_thread_is_none);
#if defined __x86_64__
  tcase_add_test(t, register_of_another_thread);
  tcase_add_test(t, register_of_the_collecting_thread);
#endif
  tcase_add_test(t, uncollectable_objects);
  tcase_add_test(t, malloc_is_none);
  tcase_add_test(t, mapped_memory_is_none);
  tcase_add_test(t, tables_of_a_sanitizers_runtime_are_none);
  suite_add_tcase(s, t);

  t = tcase_create("ranges");
  limit_time(t, 60);
  tcase_add_test(t, added_range);
  tcase_add_test(t, ranges_at_odd_bounds);
  tcase_add_test(t, ranges_that_overlap);
  tcase_add_test(t, a_hundred_thousand_ranges);
  suite_add_tcase(s, t);

  t = tcase_create("pointers");
  limit_time(t, 60);
  tcase_add_test(t, inner_pointers);
  tcase_add_test(t, inner_pointers_to_large_objects);
  tcase_add_test(t, pointers_past_the_end_on_a_stack);
  tcase_add_test(t, pointers_past_the_end_elsewhere);
  suite_add_tcase(s, t);

  t = tcase_create("stacks");
  limit_time(t, 60);
  tcase_add_test(t, caller_of_tide_blocking);
  tcase_add_test(t, alternate_signal_stack);
  tcase_add_test(t, alternate_signal_stack_disarmed);
  tcase_add_test(t, main_stack_grows_after_a_new_limit);
  tcase_add_test(t, main_stack_grows_and_shrinks);
  if (!UNDER_ASAN) tcase_add_test(t, dropped_lists_go); // its frames are larger, and full of gaps
  suite_add_tcase(s, t);
  return s;
}

int main(void) {
  return run_suite(suite());
}
