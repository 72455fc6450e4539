// SPDX-License-Identifier: MIT
// Words that belong to a CPU, changed without a locked operation: restartable sequences.
//
// The kernel keeps, for each thread, the number of the CPU that it runs on, in an area that the C
// library has registered (rseq). Code between two labels that the thread has announced there is
// *restarted* by the kernel if anything interrupts it: the thread is preempted, moves to another
// CPU, or gets a signal. So a sequence that reads the number, looks at that CPU's words, and ends
// with one storing instruction, either happens as a whole, on the CPU whose words they are, with no
// other thread there in between, or not at all. That also makes it a pinned section by itself: the
// signal that stops a thread for a collection restarts the sequence, which then finds the pool as
// the collection has left it.
//
// Where the kernel tells it (mm_cid, since Linux 6.3) the number is one of those that the process's
// running threads share out among themselves: less than the CPUs it may use, whichever they are.
// Else it is the CPU's own, and is of use where the process may use all CPUs from 0 on.
//
// A sequence reads where its words are from memory, inside: a structure that says, at a fixed
// place, how many CPUs it has words for, and whose words lie TIDE_CPU_APART bytes from one another.
// Everything here says no, or NULL, for a CPU that it has no words for, and in a thread that may
// not use the heap.
//
// At its end each sequence takes its announcement back: its code may be in a shared object that is
// unloaded, and the kernel would look for it there.
//
// For the inline functions of pool.h, and the rooms' own use.
#ifndef TIDEPOOL_CPU_SLOT_PUBLIC_H
#define TIDEPOOL_CPU_SLOT_PUBLIC_H

#include <stddef.h>
#include <stdint.h>
#include <tidepool/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

// The kernel's area of the calling thread, while it may use the heap; else one in which there is no
// CPU's number. The number's offset in it. (runtime/rseq.c)
extern TIDE_API __thread char *tide_rseq __attribute__((tls_model("initial-exec")));
extern TIDE_API ptrdiff_t tide_rseq_field;

// Bytes between CPUs' data: two cache lines, as they are fetched in pairs.
#define TIDE_CPU_APART 128

// A CPU's words: what is in the slot, and how often something has been put in and taken out. Puts
// and takes alternate. A sequence ends with the store of the item, or of NULL; what it stores into
// the counts before that comes to the same however often it is begun again:
//
//   put    puts = takes + 1    so puts are one ahead while there is an item,
//   take   takes = puts        and may be, by a sequence that was broken off, while there is none;
//                              as takes may have drawn level while there still is one.
//
// So with an item there were `puts` puts, and one take less; without, `takes` of both.
typedef struct tide_cpu_slot {
  void *item; // NULL: none
  uintptr_t takes, puts;
} tide_cpu_slot;

// Offsets in the structure that a sequence looks at, of its count, its words, and in those.
enum {
  TIDE_CPU_COUNT_AT = 4,
  TIDE_CPU_WORDS_AT = TIDE_CPU_APART,
  TIDE_CPU_TAKES_AT = TIDE_CPU_WORDS_AT + 8,
  TIDE_CPU_PUTS_AT = TIDE_CPU_WORDS_AT + 16
};

#if defined __GLIBC__ && defined __GNUC__ && !defined __SANITIZE_THREAD__ &&                       \
    (defined __x86_64__ || defined __aarch64__)
#define TIDE_CPU_SLOTS 1

// A sequence begins by finding its CPU's words (what comes to lie in `cpu`, TIDE_CPU_WORDS_AT
// before them). `out` is 0 where it has stored nothing.
//
// 3: what the kernel gets to know of the sequence 1 to 2, which it continues at 4, and so at 0,
// when it breaks it off. In front of 4 is the signature that the kernel wants there. The question
// marks: where the function is in a section group, both are in it too. Of an inline function of C++
// the linker keeps one copy, and with the others all that refers to them must go.
#define TIDE_CPU_KNOWN_BY                                                                          \
  ".pushsection __rseq_cs, \"aw?\"\n"                                                              \
  ".balign 32\n"                                                                                   \
  "3: .long 0, 0\n"                                                                                \
  ".quad 1f, 2f - 1f, 4f\n"                                                                        \
  ".popsection\n"
#define TIDE_CPU_BROKEN_OFF(signature, jump)                                                       \
  ".pushsection __rseq_failure, \"ax?\"\n" signature "4: " jump " 0b\n"                            \
  ".popsection\n"

#if defined __x86_64__

#define TIDE_CPU_SEQUENCE(steps)                                                                   \
  TIDE_CPU_KNOWN_BY                                                                                \
  "0: leaq 3b(%%rip), %[set]\n"                                                                    \
  "movq %[set], 8(%[area])\n"                                                                      \
  "1: xorl %k[out], %k[out]\n"                                                                     \
  "movl (%[area], %[field]), %k[cpu]\n"                                                            \
  "movq (%[at]), %[set]\n"                                                                         \
  "cmpl %c[count](%[set]), %k[cpu]\n"                                                              \
  "jae 2f\n"                                                                                       \
  "shlq $7, %[cpu]\n"                                                                              \
  "addq %[set], %[cpu]\n" steps "2: movq $0, 8(%[area])\n" TIDE_CPU_BROKEN_OFF(                    \
      ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n", "jmp")

#define TIDE_CPU_TAKE                                                                              \
  "movq %c[words](%[cpu]), %[out]\n"                                                               \
  "testq %[out], %[out]\n"                                                                         \
  "jz 2f\n"                                                                                        \
  "movq %c[puts](%[cpu]), %[set]\n"                                                                \
  "movq %[set], %c[takes](%[cpu])\n"                                                               \
  "movq $0, %c[words](%[cpu])\n"
#define TIDE_CPU_PUT                                                                               \
  "cmpq $0, %c[words](%[cpu])\n"                                                                   \
  "jne 2f\n"                                                                                       \
  "movq %c[takes](%[cpu]), %[set]\n"                                                               \
  "incq %[set]\n"                                                                                  \
  "movq %[set], %c[puts](%[cpu])\n"                                                                \
  "movl $1, %k[out]\n"                                                                             \
  "movq %[item], %c[words](%[cpu])\n"
#define TIDE_CPU_ADD_1                                                                             \
  "addq %[offset], %[cpu]\n"                                                                       \
  "movl $1, %k[out]\n"                                                                             \
  "incq %c[words](%[cpu])\n"

#else // aarch64, where who sees the last store must see those before it: a release

#define TIDE_CPU_SEQUENCE(steps)                                                                   \
  TIDE_CPU_KNOWN_BY                                                                                \
  "0: adrp %[set], 3b\n"                                                                           \
  "add %[set], %[set], :lo12:3b\n"                                                                 \
  "str %[set], [%[area], 8]\n"                                                                     \
  "1: ldr %w[cpu], [%[area], %[field]]\n"                                                          \
  "ldr %[set], [%[at]]\n"                                                                          \
  "ldr %w[out], [%[set], %c[count]]\n"                                                             \
  "cmp %w[cpu], %w[out]\n"                                                                         \
  "mov %[out], 0\n"                                                                                \
  "b.hs 2f\n"                                                                                      \
  "add %[cpu], %[set], %[cpu], lsl 7\n" steps                                                      \
  "2: str xzr, [%[area], 8]\n" TIDE_CPU_BROKEN_OFF(".inst 0xd428bc00\n", "b")

#define TIDE_CPU_TAKE                                                                              \
  "ldr %[out], [%[cpu], %c[words]]\n"                                                              \
  "cbz %[out], 2f\n"                                                                               \
  "ldr %[set], [%[cpu], %c[puts]]\n"                                                               \
  "str %[set], [%[cpu], %c[takes]]\n"                                                              \
  "add %[cpu], %[cpu], %c[words]\n"                                                                \
  "stlr xzr, [%[cpu]]\n"
#define TIDE_CPU_PUT                                                                               \
  "ldr %[set], [%[cpu], %c[words]]\n"                                                              \
  "cbnz %[set], 2f\n"                                                                              \
  "ldr %[set], [%[cpu], %c[takes]]\n"                                                              \
  "add %[set], %[set], 1\n"                                                                        \
  "str %[set], [%[cpu], %c[puts]]\n"                                                               \
  "add %[cpu], %[cpu], %c[words]\n"                                                                \
  "mov %[out], 1\n"                                                                                \
  "stlr %[item], [%[cpu]]\n"
#define TIDE_CPU_ADD_1                                                                             \
  "add %[cpu], %[cpu], %[offset]\n"                                                                \
  "ldr %[set], [%[cpu], %c[words]]\n"                                                              \
  "add %[set], %[set], 1\n"                                                                        \
  "mov %[out], 1\n"                                                                                \
  "str %[set], [%[cpu], %c[words]]\n"

#endif

#define TIDE_CPU_OUTPUTS [out] "=&r"(out), [set] "=&r"(set), [cpu] "=&r"(cpu)
#define TIDE_CPU_INPUTS                                                                            \
  [area] "r"(tide_rseq), [field] "r"(tide_rseq_field), [at] "r"(at),                               \
      [count] "i"(TIDE_CPU_COUNT_AT), [words] "i"(TIDE_CPU_WORDS_AT),                              \
      [takes] "i"(TIDE_CPU_TAKES_AT), [puts] "i"(TIDE_CPU_PUTS_AT)

// Takes the item out of this CPU's slot in the set that *at points to. NULL: there is none.
static inline __attribute__((always_inline)) void *tide_cpu_take(const void *at) {
  uintptr_t set, cpu;
  void *out;
  __asm__ __volatile__(TIDE_CPU_SEQUENCE(TIDE_CPU_TAKE)
                       : TIDE_CPU_OUTPUTS:TIDE_CPU_INPUTS
                       : "memory", "cc");
  return out;
}

// Puts the item, which is not NULL, into this CPU's slot. False: there is one in it, or no slot.
static inline __attribute__((always_inline)) int tide_cpu_put(const void *at, void *item) {
  uintptr_t set, cpu, out;
  __asm__ __volatile__(TIDE_CPU_SEQUENCE(TIDE_CPU_PUT)
                       : TIDE_CPU_OUTPUTS
                       : TIDE_CPU_INPUTS, [item] "r"(item)
                       : "memory", "cc");
  return (int)out;
}

// Adds 1 to the counter that is `offset` bytes from this CPU's words. False: it has none.
static inline __attribute__((always_inline)) int tide_cpu_count(const void *at, size_t offset) {
  uintptr_t set, cpu, out;
  __asm__ __volatile__(TIDE_CPU_SEQUENCE(TIDE_CPU_ADD_1)
                       : TIDE_CPU_OUTPUTS
                       : TIDE_CPU_INPUTS, [offset] "r"(offset)
                       : "memory", "cc");
  return (int)out;
}

#else
#define TIDE_CPU_SLOTS 0

static inline void *tide_cpu_take(const void *at) {
  return NULL;
}
static inline int tide_cpu_put(const void *at, void *item) {
  return 0;
}
static inline int tide_cpu_count(const void *at, size_t offset) {
  return 0;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
