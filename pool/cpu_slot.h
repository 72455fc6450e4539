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
// A sequence reads where its words are from memory, inside: a structure whose second 32-bit word is
// how many CPUs it has words for, and whose words lie APART bytes from one another. Everything here
// says no, or NULL, for a CPU that it has no words for, and in a thread that may not use the heap.
#ifndef TIDEPOOL_CPU_SLOT_H
#define TIDEPOOL_CPU_SLOT_H

#include "rt.h"

#define APART 128 // bytes between CPUs' data: two cache lines, as they are fetched in pairs

// A CPU's words: what is in the slot, and how often something has been put in and taken out. Puts
// and takes alternate. A sequence ends with the store of the item, or of NULL; what it stores into
// the counts before that comes to the same however often it is begun again:
//
//   put    puts = takes + 1    so puts are one ahead while there is an item,
//   take   takes = puts        and may be, by a sequence that was broken off, while there is none;
//                              as takes may have drawn level while there still is one.
//
// So with an item there were `puts` puts, and one take less; without, `takes` of both.
typedef struct cpu_slot {
  void *item; // NULL: none
  AO_t takes, puts;
} cpu_slot;

// Offsets in the structure that a sequence looks at, of its count, its words, and in those.
enum { CPU_COUNT_AT = 4, CPU_WORDS_AT = APART, CPU_TAKES_AT = APART + 8, CPU_PUTS_AT = APART + 16 };

#if defined __x86_64__ && defined __GLIBC__ && !defined __SANITIZE_THREAD__
#define CPU_SLOTS 1

// 3: what the kernel gets to know of the sequence 1 to 2, which it continues at 4, and so at 0,
// when it breaks it off. In front of 4 is the signature that the kernel wants there. `out` is 0
// where the sequence has stored nothing.
#define CPU_SEQUENCE(steps)                                                                        \
  ".pushsection __rseq_cs, \"aw\"\n"                                                               \
  ".balign 32\n"                                                                                   \
  "3: .long 0, 0\n"                                                                                \
  ".quad 1f, 2f - 1f, 4f\n"                                                                        \
  ".popsection\n"                                                                                  \
  "0: leaq 3b(%%rip), %[set]\n"                                                                    \
  "movq %[set], 8(%[area])\n"                                                                      \
  "1: xorl %k[out], %k[out]\n"                                                                     \
  "movl (%[area], %[field]), %k[cpu]\n"                                                            \
  "movq (%[at]), %[set]\n"                                                                         \
  "cmpl %c[count](%[set]), %k[cpu]\n"                                                              \
  "jae 2f\n"                                                                                       \
  "shlq $7, %[cpu]\n"                                                                              \
  "addq %[set], %[cpu]\n" steps "2:\n"                                                             \
  ".pushsection __rseq_failure, \"ax\"\n"                                                          \
  ".byte 0x0f, 0xb9, 0x3d\n"                                                                       \
  ".long 0x53053053\n"                                                                             \
  "4: jmp 0b\n"                                                                                    \
  ".popsection\n"
#define CPU_OUTPUTS [out] "=&r"(out), [set] "=&r"(set), [cpu] "=&r"(cpu)
#define CPU_INPUTS                                                                                 \
  [area] "r"(rt_rseq), [field] "r"(rt_rseq_field), [at] "r"(at), [count] "i"(CPU_COUNT_AT),        \
      [words] "i"(CPU_WORDS_AT), [takes] "i"(CPU_TAKES_AT), [puts] "i"(CPU_PUTS_AT)

// Takes the item out of this CPU's slot in the set that *at points to. NULL: there is none.
static inline __attribute__((always_inline)) void *cpu_take(const void *at) {
  uintptr_t set, cpu;
  void *out;
  __asm__ volatile(CPU_SEQUENCE("movq %c[words](%[cpu]), %[out]\n"
                                "testq %[out], %[out]\n"
                                "jz 2f\n"
                                "movq %c[puts](%[cpu]), %[set]\n"
                                "movq %[set], %c[takes](%[cpu])\n"
                                "movq $0, %c[words](%[cpu])\n")
                   : CPU_OUTPUTS:CPU_INPUTS
                   : "memory", "cc");
  return out;
}

// Puts the item, which is not NULL, into this CPU's slot. False: there is one in it, or no slot.
static inline __attribute__((always_inline)) bool cpu_put(const void *at, void *item) {
  uintptr_t set, cpu, out;
  __asm__ volatile(CPU_SEQUENCE("cmpq $0, %c[words](%[cpu])\n"
                                "jne 2f\n"
                                "movq %c[takes](%[cpu]), %[set]\n"
                                "incq %[set]\n"
                                "movq %[set], %c[puts](%[cpu])\n"
                                "movl $1, %k[out]\n"
                                "movq %[item], %c[words](%[cpu])\n")
                   : CPU_OUTPUTS
                   : CPU_INPUTS, [item] "r"(item)
                   : "memory", "cc");
  return out;
}

// Adds 1 to this CPU's counter `offset` bytes into its words. False: it has none.
static inline __attribute__((always_inline)) bool cpu_count(const void *at, size_t offset) {
  uintptr_t set, cpu, out;
  __asm__ volatile(CPU_SEQUENCE("addq %[offset], %[cpu]\n"
                                "movl $1, %k[out]\n"
                                "incq %c[words](%[cpu])\n")
                   : CPU_OUTPUTS
                   : CPU_INPUTS, [offset] "r"(offset)
                   : "memory", "cc");
  return out;
}

#else
#define CPU_SLOTS 0

static inline void *cpu_take(const void *at) {
  return NULL;
}
static inline bool cpu_put(const void *at, void *item) {
  return false;
}
static inline bool cpu_count(const void *at, size_t offset) {
  return false;
}

#endif

// How many CPUs a set may go by; 0: none.
static inline unsigned cpu_slots(void) {
  return CPU_SLOTS ? rt_rseq_cpus : 0;
}

#endif
