// SPDX-License-Identifier: MIT
// The system: memory, time, futexes, CPUs. Every system call of the runtime and the collector that
// is not about threads, signals or control groups (cgroup.c) is here.
//
// But for os_cpus_allowed and os_address_space_left, nothing here takes a lock of the C library or
// calls malloc, so it may be used while the world is stopped.
#define _GNU_SOURCE
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

size_t os_page_bytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t os_now_ns(void) {
  return clock_ns(CLOCK_MONOTONIC);
}
uint64_t os_unix_ns(void) {
  return clock_ns(CLOCK_REALTIME);
}
uint64_t os_cpu_ns(void) {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int os_cpus_allowed(void) {
  // The kernel may know more CPUs than cpu_set_t has room for; it then refuses with EINVAL, and a
  // larger set is tried.
  for (int cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 2) {
    cpu_set_t *set = CPU_ALLOC((size_t)cpus);
    if (!set) break;
    int failed = sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)cpus), set);
    int count = failed ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)cpus), set);
    CPU_FREE(set);
    if (count > 0) return count;
    if (errno != EINVAL) break;
  }
  return 1;
}

// The kernel counts a directory's links as if each thread were a directory in this one.
unsigned os_threads(void) {
  struct stat tasks;
  return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? (unsigned)tasks.st_nlink - 2
                                                                    : UINT_MAX;
}

bool os_thread_has_ended(pid_t tid) {
  char path[64], stat[128];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT && os_threads() != UINT_MAX; // there is a /proc
  ssize_t length = read(file, stat, sizeof stat - 1);
  close(file);
  if (length <= 0) return errno == ESRCH;
  stat[length] = 0;
  const char *state = strrchr(stat, ')'); // behind the name: " S ..."
  return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

// ---- Memory ---------------------------------------------------------------------------------

void *os_reserve(size_t bytes) {
  void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? NULL : address;
}

bool os_commit(void *address, size_t bytes) {
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
}

void os_uncommit(void *address, size_t bytes) {
  mprotect(address, bytes, PROT_NONE);
}

void os_unreserve(void *address, size_t bytes) {
  munmap(address, bytes);
}

bool os_release(void *address, size_t bytes) {
  return madvise(address, bytes, MADV_DONTNEED) == 0;
}

bool os_huge(void *address, size_t bytes, bool wanted) {
  return madvise(address, bytes, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
}

static AO_t mapped_bytes;

void *os_map(size_t bytes) {
  void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return NULL;
  AO_fetch_and_add(&mapped_bytes, bytes);
  return address;
}

void os_unmap(void *address, size_t bytes) {
  munmap(address, bytes);
  AO_fetch_and_add(&mapped_bytes, (AO_t)0 - bytes);
}

void *os_map_larger(void *address, size_t bytes, size_t larger_bytes) {
#ifdef __SANITIZE_THREAD__
  // It knows nothing of mremap, and would see races with what had been at the new place before.
  void *larger = os_map(larger_bytes);
  if (!larger) return NULL;
  memcpy(larger, address, bytes);
  os_unmap(address, bytes);
#else
  void *larger = mremap(address, bytes, larger_bytes, MREMAP_MAYMOVE);
  if (larger == MAP_FAILED) return NULL;
  AO_fetch_and_add(&mapped_bytes, larger_bytes - bytes);
#endif
  return larger;
}

uint64_t os_mapped_bytes(void) {
  return AO_load(&mapped_bytes);
}

size_t os_address_space_left(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  size_t used_pages = 0;
  FILE *statm = fopen("/proc/self/statm", "re");
  if (statm) {
    if (fscanf(statm, "%zu", &used_pages) != 1) used_pages = 0;
    fclose(statm);
  }
  size_t used = used_pages * os_page_bytes();
  return used < limit.rlim_cur ? (size_t)limit.rlim_cur - used : 0;
}

RT_SCANS_MEMORY size_t os_read_memory(void *to, const void *address, size_t bytes) {
  struct iovec local = {to, bytes};
  struct iovec remote = {(void *)(uintptr_t)address, bytes};
  // By this thread's id: the process's is that of the first thread, which may have ended.
  ssize_t got = process_vm_readv((pid_t)syscall(SYS_gettid), &local, 1, &remote, 1, 0);
  if (got >= 0) return (size_t)got;
  if (errno != ENOSYS && errno != EPERM) return 0;
  // A sandbox that forbids the call: read without its protection rather than not at all.
  const volatile char *from = address;
  for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = from[i];
  return bytes;
}

// ---- Futexes --------------------------------------------------------------------------------

static long futex(unsigned int *word, int operation, unsigned int value,
                  const struct timespec *timeout) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

// May return for no reason.
void os_futex_wait(unsigned int *word, unsigned int value) {
#ifdef __SANITIZE_THREAD__ // in a wait that it does not know it holds the stop signal back
  usleep(50);
#else
  futex(word, FUTEX_WAIT, value, NULL);
#endif
}

bool os_futex_wait_ns(unsigned int *word, unsigned int value, uint64_t ns) {
  struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  return futex(word, FUTEX_WAIT, value, &timeout) == 0 || errno != ETIMEDOUT;
}

void os_pause(unsigned tries) {
  static unsigned int never; // nobody wakes it
  if (tries < 8)
    sched_yield();
  else
    os_futex_wait_ns(&never, 0, 50000u << (tries < 28 ? (tries - 8) / 4 : 5)); // up to 1.6 ms
}

void os_futex_wake_one(unsigned int *word) {
  futex(word, FUTEX_WAKE, 1, NULL);
}
void os_futex_wake_all(unsigned int *word) {
  futex(word, FUTEX_WAKE, INT32_MAX, NULL);
}
