// SPDX-License-Identifier: MIT
// The restartable sequences of tidepool/cpu_slot.h, each broken off in front of each of its
// instructions. A thread here has an area of its own making in place of the kernel's, so the number
// of its CPU is what the test says, and the test does what the kernel does: a trap in front of the
// instruction, and on at the address that the sequence has announced for that.
#define _GNU_SOURCE
#include "rt_testing.h"

#include "pool_private.h"

#include <sys/mman.h>
#include <ucontext.h>

#if TIDE_CPU_SLOTS

// What the kernel reads of a sequence. The linker names where they begin and end.
typedef struct sequence {
  uint32_t version, flags;
  uintptr_t start, bytes, broken_off;
} sequence;
extern const sequence __start___rseq_cs[], __stop___rseq_cs[];

#if defined __x86_64__
enum { SIGNATURE = 0x53053053 };
#else
enum { SIGNATURE = (int)0xd428bc00 };
#endif

static struct {
  _Alignas(32) int32_t cpu_when_begun;
  int32_t cpu;
  const sequence *announced;
  uint32_t flags, node, concurrency;
} area;

// A set for as many CPUs as the test says, with one more that must stay as it is.
enum { CPUS = 3 };
static struct {
  _Alignas(TIDE_CPU_APART) uint32_t first_field;
  uint32_t cpus;
  struct {
    _Alignas(TIDE_CPU_APART) tide_cpu_slot slot;
    AO_t counts[4];
  } of[CPUS + 1];
} set;
static void *at;

static int items[4];

static void run_on(uint32_t cpu) {
  init_with(OPTIONS(o.procs = 1));
  memset(&set, 0, sizeof set);
  set.cpus = CPUS;
  at = &set;
  area.cpu = area.cpu_when_begun = (int32_t)cpu;
  area.concurrency = cpu;
  tide_rseq = (char *)&area;
}

static NOINLINE void *take(void) {
  return tide_cpu_take(&at);
}
static NOINLINE int put(void *item) {
  return tide_cpu_put(&at, item);
}
static NOINLINE int add_1(void) {
  return tide_cpu_count(&at, offsetof(__typeof__(set.of[0]), counts[2]));
}

static void check_slot(unsigned cpu, const void *item, uintptr_t takes, uintptr_t puts) {
  ck_assert_ptr_eq(set.of[cpu].slot.item, item);
  // What is not settled by the item may be ahead: see tide_cpu_slot.
  ck_assert_uint_eq(item ? set.of[cpu].slot.puts - 1 : set.of[cpu].slot.takes, takes);
  if (item) ck_assert_uint_eq(set.of[cpu].slot.puts, puts);
  ck_assert_ptr_null(area.announced); // taken back
}

START_TEST(a_slot_holds_one_item_of_its_cpu) {
  run_on(_i);
  ck_assert_ptr_null(take());
  ck_assert(put(&items[0]));
  ck_assert(!put(&items[1]));
  check_slot(_i, &items[0], 0, 1);
  for (unsigned other = 0; other <= CPUS; other++)
    if (other != (unsigned)_i) check_slot(other, NULL, 0, 0);
  ck_assert_ptr_eq(take(), &items[0]);
  ck_assert_ptr_null(take());
  check_slot(_i, NULL, 1, 1);
  ck_assert(put(&items[2]));
  check_slot(_i, &items[2], 1, 2);
  for (int i = 0; i < 5; i++) ck_assert(add_1());
  ck_assert_uint_eq(set.of[_i].counts[2], 5);
  ck_assert_uint_eq(set.of[_i].counts[1] + set.of[_i].counts[3], 0);
  check_slot(_i, &items[2], 1, 2);
}
END_TEST

static const uint32_t without_words[] = {CPUS, CPUS + 1, 1u << 31, UINT32_MAX};

START_TEST(a_cpu_without_words_is_told) {
  run_on(without_words[_i]);
  ck_assert_ptr_null(take());
  ck_assert(!put(&items[0]));
  ck_assert(!add_1());
  for (unsigned cpu = 0; cpu <= CPUS; cpu++) {
    check_slot(cpu, NULL, 0, 0);
    ck_assert_uint_eq(set.of[cpu].slot.puts, 0);
    ck_assert_uint_eq(set.of[cpu].counts[2], 0);
  }
}
END_TEST

// All those of this program, the library's among them.
START_TEST(the_kernel_finds_what_it_wants) {
  size_t count = 0;
  for (const sequence *s = __start___rseq_cs; s < __stop___rseq_cs; s++, count++) {
    ck_assert_uint_eq(s->version, 0);
    ck_assert_uint_eq(s->flags, 0);
    ck_assert_uint_gt(s->bytes, 8);
    ck_assert_uint_lt(s->bytes, 100);
    ck_assert(s->broken_off < s->start || s->broken_off >= s->start + s->bytes);
    int32_t before;
    memcpy(&before, (void *)(s->broken_off - 4), 4);
    ck_assert_int_eq(before, (int32_t)SIGNATURE);
  }
  ck_assert_uint_ge(count, 3);
}
END_TEST

// ---- Broken off -----------------------------------------------------------------------------

// The trap comes in front of the instruction `wanted`, counted from the first in a sequence.
static volatile int wanted, passed, broken_off;
static void (*volatile meanwhile)(void); // what another thread does on this CPU then

static bool in_sequence(uintptr_t pc) {
  const sequence *s = area.announced;
  return s && pc - s->start < s->bytes;
}

static void break_off(uintptr_t *pc) {
  broken_off++;
  *pc = area.announced->broken_off;
  area.announced = NULL;
  if (meanwhile) meanwhile();
}

#if defined __x86_64__

// Each instruction traps while the flag is set.
enum { TRAP_FLAG = 0x100 };

static void on_trap(int signal, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (broken_off || !in_sequence((uintptr_t)registers[REG_RIP])) return;
  if (passed++ == wanted) break_off((uintptr_t *)&registers[REG_RIP]);
}

static void set_traps(bool on) {
  if (on)
    __asm__ volatile("pushfq\n orq %0, (%%rsp)\n popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
  else
    __asm__ volatile("pushfq\n andq %0, (%%rsp)\n popfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

#else

// A breakpoint is written over the instruction, in the sequence that fn contains.
static uint32_t *trapping, instruction;

static void write_instruction(uint32_t *where, uint32_t what) {
  long page = sysconf(_SC_PAGESIZE);
  void *lo = (void *)((uintptr_t)where & ~(uintptr_t)(page - 1));
  ck_assert_int_eq(mprotect(lo, (size_t)page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  *where = what;
  __builtin___clear_cache((char *)where, (char *)(where + 1));
}

static void on_trap(int signal, siginfo_t *info, void *context) {
  unsigned long long *pc = &((ucontext_t *)context)->uc_mcontext.pc;
  write_instruction(trapping, instruction);
  trapping = NULL;
  ck_assert(in_sequence((uintptr_t)*pc));
  break_off((uintptr_t *)pc);
}

static void set_traps_in(uintptr_t function) {
  const sequence *its = NULL; // the first behind the function's beginning
  for (const sequence *s = __start___rseq_cs; s < __stop___rseq_cs; s++)
    if (s->start > function && (!its || s->start < its->start)) its = s;
  if ((uintptr_t)wanted >= its->bytes / 4) return;
  trapping = (uint32_t *)its->start + wanted;
  instruction = *trapping;
  write_instruction(trapping, 0xd4200000); // brk 0
}

#endif

// Runs what uses a sequence, broken off once, in front of instruction n. False: it is not run that
// often.
static bool runs_broken_off(int n, void (*use)(void), uintptr_t function) {
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO}, before;
  sigaction(SIGTRAP, &action, &before);
  wanted = n;
  passed = broken_off = 0;
#if defined __x86_64__
  set_traps(true);
  use();
  set_traps(false);
#else
  set_traps_in(function);
  use();
  if (trapping) write_instruction(trapping, instruction);
  trapping = NULL;
#endif
  sigaction(SIGTRAP, &before, NULL);
  return broken_off;
}

static void *taken;
static int done;
static void use_take(void) {
  taken = take();
}
static void use_put(void) {
  done = put(&items[0]);
}
static void use_add_1(void) {
  done = add_1();
}

// ... and nobody has been there meanwhile: it comes to the same.
START_TEST(a_sequence_that_is_broken_off_happens_once) {
  enum { FEWEST = 8 };
  meanwhile = NULL;
  int n = 0;
  for (run_on(1); runs_broken_off(n, use_put, (uintptr_t)put); run_on(1), n++) {
    ck_assert(done);
    check_slot(1, &items[0], 0, 1);
  }
  ck_assert_int_ge(n, FEWEST);
  n = 0;
  for (run_on(2), put(&items[1]); runs_broken_off(n, use_take, (uintptr_t)take);
       run_on(2), put(&items[1]), n++) {
    ck_assert_ptr_eq(taken, &items[1]);
    check_slot(2, NULL, 1, 1);
  }
  ck_assert_int_ge(n, FEWEST);
  n = 0;
  for (run_on(0); runs_broken_off(n, use_add_1, (uintptr_t)add_1); run_on(0), n++) {
    ck_assert(done);
    ck_assert_uint_eq(set.of[0].counts[2], 1);
  }
  ck_assert_int_ge(n, FEWEST);
}
END_TEST

static void somebody_puts(void) {
  ck_assert(tide_cpu_put(&at, &items[3]));
}
static void somebody_takes(void) {
  ck_assert_ptr_eq(tide_cpu_take(&at), &items[1]);
}
static void moved(void) {
  area.cpu = area.cpu_when_begun = 2;
  area.concurrency = 2;
}
static void set_is_gone(void) {
  static struct {
    _Alignas(TIDE_CPU_APART) uint32_t first_field;
    uint32_t cpus;
  } none;
  at = &none;
}

// ... and others have been: it finds what they have left.
START_TEST(a_sequence_that_is_broken_off_sees_what_others_did) {
  meanwhile = somebody_puts;
  for (int n = 0; run_on(1), runs_broken_off(n, use_put, (uintptr_t)put); n++) {
    ck_assert(!done);
    check_slot(1, &items[3], 0, 1);
  }
  meanwhile = somebody_takes;
  for (int n = 0; run_on(1), put(&items[1]), runs_broken_off(n, use_take, (uintptr_t)take); n++) {
    ck_assert_ptr_null(taken);
    check_slot(1, NULL, 1, 1);
  }
  meanwhile = moved;
  for (int n = 0; run_on(1), runs_broken_off(n, use_put, (uintptr_t)put); n++) {
    ck_assert(done);
    check_slot(1, NULL, 0, 0);
    check_slot(2, &items[0], 0, 1);
  }
  for (int n = 0; run_on(1), put(&items[1]), runs_broken_off(n, use_take, (uintptr_t)take); n++) {
    ck_assert_ptr_null(taken);
    check_slot(1, &items[1], 0, 1);
  }
  meanwhile = set_is_gone;
  for (int n = 0; run_on(1), put(&items[1]), runs_broken_off(n, use_take, (uintptr_t)take); n++) {
    ck_assert_ptr_null(taken);
    check_slot(1, &items[1], 0, 1);
  }
}
END_TEST

#endif

int main(void) {
  Suite *suite = suite_create("cpu_slot");
#if TIDE_CPU_SLOTS
  TCase *words = tcase_create("words");
  tcase_add_loop_test(words, a_slot_holds_one_item_of_its_cpu, 0, CPUS);
  tcase_add_loop_test(words, a_cpu_without_words_is_told, 0, LENGTH(without_words));
  tcase_add_test(words, the_kernel_finds_what_it_wants);
  suite_add_tcase(suite, words);
  TCase *broken = tcase_create("broken off");
  tcase_add_test(broken, a_sequence_that_is_broken_off_happens_once);
  tcase_add_test(broken, a_sequence_that_is_broken_off_sees_what_others_did);
  suite_add_tcase(suite, broken);
#endif
  return run_suite(suite);
}
