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
// says no, or NULL, for a CPU that it has no words for, and in a thread that the kernel does not
// know (its CPU is below 0: something has forbidden the C library to register it).
#ifndef TIDEPOOL_CPU_SLOT_H
#define TIDEPOOL_CPU_SLOT_H

#include "rt.h"

#define APART 128 // bytes between CPUs' data: two cache lines, as they are fetched in pairs

// How many numbers there are, and whether they can be had at all; 0: use another way. Fixed.
extern unsigned cpu_slots;
void cpu_slots_init(void);

// A CPU's words: what is in the slot, and how often something has been taken out of it. They
// alternate: so what has been put in is `takes`, and one more if there is something now.
typedef struct cpu_slot {
  void *item; // NULL: none
  AO_t takes;
} __attribute__((aligned(16))) cpu_slot;

// Offsets in the structure that a sequence looks at.
enum { CPU_COUNT_AT = 4, CPU_WORDS_AT = APART };

#if defined __x86_64__ && defined __GLIBC__ && !defined __SANITIZE_THREAD__
#define CPU_SLOTS 1

extern ptrdiff_t cpu_slots_area;  // of the kernel's area, from the thread pointer
extern ptrdiff_t cpu_slots_field; // of the number, in it

// 3: what the kernel gets to know of the sequence 1 to 2, which it restarts at 4, and so at 0. In
// front of 4 is the signature that it wants there. `out` is 0 where the sequence has stored
// nothing.
#define CPU_SEQUENCE(steps)                                                                        \
  ".pushsection __rseq_cs, \"aw\"\n"                                                               \
  ".balign 32\n"                                                                                   \
  "3: .long 0, 0\n"                                                                                \
  ".quad 1f, 2f - 1f, 4f\n"                                                                        \
  ".popsection\n"                                                                                  \
  "0: leaq 3b(%%rip), %[set]\n"                                                                    \
  "movq %[set], %%fs:8(%[area])\n"                                                                 \
  "1: xorl %k[out], %k[out]\n"                                                                     \
  "cmpl $0, %%fs:4(%[area])\n"                                                                     \
  "jl 2f\n"                                                                                        \
  "movl %%fs:(%[area], %[field]), %k[cpu]\n"                                                       \
  "movq (%[at]), %[set]\n"                                                                         \
  "cmpl %c[count](%[set]), %k[cpu]\n"                                                              \
  "jae 2f\n"                                                                                       \
  "shlq $7, %[cpu]\n"                                                                              \
  "addq %[set], %[cpu]\n" steps "2:\n"                                                             \
  ".pushsection .text.unlikely, \"ax\"\n"                                                          \
  ".byte 0x0f, 0xb9, 0x3d\n"                                                                       \
  ".long 0x53053053\n"                                                                             \
  "4: jmp 0b\n"                                                                                    \
  ".popsection\n"
#define CPU_OUTPUTS [out] "=&r"(out), [set] "=&r"(set), [cpu] "=&r"(cpu)
#define CPU_INPUTS                                                                                 \
  [area] "r"(cpu_slots_area), [field] "r"(cpu_slots_field), [at] "r"(at),                          \
      [count] "i"(CPU_COUNT_AT), [words] "i"(CPU_WORDS_AT)

// Takes the item out of this CPU's slot in the set that *at points to. NULL: there is none. NULL
// and takes + 1 are stored in one piece.
static inline __attribute__((always_inline)) void *cpu_take(const void *at) {
  uintptr_t set, cpu;
  void *out;
  if (RT_UNLIKELY(!cpu_slots)) return NULL;
  __asm__ volatile(CPU_SEQUENCE("movq %c[words](%[cpu]), %[out]\n"
                                "testq %[out], %[out]\n"
                                "jz 2f\n"
                                "movq 8 + %c[words](%[cpu]), %[set]\n"
                                "incq %[set]\n"
                                "movq %[set], %%xmm0\n"
                                "pslldq $8, %%xmm0\n"
                                "movdqa %%xmm0, %c[words](%[cpu])\n")
                   : CPU_OUTPUTS:CPU_INPUTS
                   : "memory", "cc", "xmm0");
  return out;
}

// Puts the item, which is not NULL, into this CPU's slot. False: there is one in it, or no slot.
static inline __attribute__((always_inline)) bool cpu_put(const void *at, void *item) {
  uintptr_t set, cpu, out;
  if (RT_UNLIKELY(!cpu_slots)) return false;
  __asm__ volatile(CPU_SEQUENCE("cmpq $0, %c[words](%[cpu])\n"
                                "jne 2f\n"
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
  if (RT_UNLIKELY(!cpu_slots)) return false;
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

#endif
