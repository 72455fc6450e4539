// SPDX-License-Identifier: MIT
// The managed heap and its collector: allocation, collections, pacing, hooks, statistics.
//
// Objects do not move. A word anywhere in a root or in a scanned object that holds an address
// inside an object, at its start or not, aligned to 8 bytes, keeps the object alive. An address
// just past the end of an object does so when it is in a register or on a stack (where compilers
// make such addresses), not when it is stored elsewhere.
#ifndef TIDEPOOL_GC_H
#define TIDEPOOL_GC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tidepool/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

// The collector behind these functions: "native", or "bdw" (Boehm GC) in libtidepool-bdw. Needs no
// initialisation.
TIDE_API const char *tide_engine(void);

// ---- Allocation -----------------------------------------------------------------------------
//
// Every function returns NULL on failure, after the out-of-memory handler has been asked; the heap
// stays usable. Sizes are in bytes; size 0 gives a distinct object of the smallest size. Objects
// are aligned to 16 bytes. Each may collect.

typedef enum tide_kind {
  TIDE_SCANNED,       // zeroed; every aligned word in it may be a reference
  TIDE_LEAF,          // contents undefined; never looked at by the collector
  TIDE_UNCOLLECTABLE, // as TIDE_SCANNED, and a root itself: lives until tide_free
  TIDE_KINDS
} tide_kind;

static inline void *tide_alloc(size_t size);      // TIDE_SCANNED
static inline void *tide_alloc_leaf(size_t size); // TIDE_LEAF
TIDE_API void *tide_alloc_uncollectable(size_t size);

// An object of the given kind at an address that is a multiple of alignment, a power of two of at
// most 1 GiB (else NULL, TIDE_ERR_ARGUMENT in tide_error_message). Every call that takes an object
// takes it.
TIDE_API void *tide_alloc_aligned(size_t alignment, size_t size, tide_kind kind);

// Changes the size of an object, in place where possible. NULL allocates a scanned object; size 0
// frees and returns NULL. The part beyond the old size, as tide_size gives it, is zero in scanned
// objects. On failure the object is as it was. An address that is no object's start is refused and
// reported: returns NULL.
TIDE_API void *tide_realloc(void *object, size_t size);

// Frees an object at once, for whoever knows better than the collector. NULL is ignored. An address
// that is not the start of a live object is refused and reported on stderr, and nothing changes.
TIDE_API void tide_free(void *object);

// Usable bytes of the object that starts at the address, at least what was asked for; 0 if none
// starts there.
TIDE_API size_t tide_size(const void *object);

// Start of the object that holds the address, or NULL.
TIDE_API void *tide_base(const void *address);

// Kind of the object that starts at the address; TIDE_KINDS if none starts there.
TIDE_API tide_kind tide_object_kind(const void *object);

// Asked once for each allocation that fails, with the size in bytes, outside every lock. What it
// returns is what the allocation returns; it may free memory and allocate, abort or longjmp.
typedef void *(*tide_oom_handler)(size_t size, void *arg);

// NULL (the default): failing allocations return NULL. Returns the handler before.
TIDE_API tide_oom_handler tide_oom_handler_set(tide_oom_handler handler, void *arg);

// ---- Collections ----------------------------------------------------------------------------

// A full collection, over when it returns: stops the world, runs the hooks, marks, restarts, and
// sweeps everything. Also while collections are disabled or GC percent is off. As every collection
// it gives memory back to the system that the heap has not needed for five collections.
TIDE_API void tide_collect(void);

// As tide_collect, and gives all free memory back to the system.
TIDE_API void tide_collect_and_release(void);

// No collection starts by itself between disable and enable. Calls nest, over all threads together.
// tide_gc_enable returns TIDE_ERR_STATE, and changes nothing, when collections are not disabled.
TIDE_API void tide_gc_disable(void);
TIDE_API tide_status tide_gc_enable(void);

// Number of collections started. Never waits.
TIDE_API uint64_t tide_gc_cycle(void);

// ---- Pacing ---------------------------------------------------------------------------------

// A collection starts when the heap reaches
//   live + (live + stacks + globals) x percent / 100, at least the smallest heap,
// with live, stacks and globals in bytes as the last collection found them (Go's GOGC), external
// bytes counted as live; or earlier, for the sake of the memory limit. 0 collects
// at every allocation that leaves the fast path; negative is off. Returns the old percent (-1 =
// off). Acts at once.
TIDE_API int tide_gc_percent_set(int percent);

// The heap size in bytes below which growth starts no collection. 0: 4 MiB x percent / 100.
// Returns the old one. Acts at once.
TIDE_API size_t tide_min_heap_set(size_t bytes);

// Bytes outside the heap that objects of the heap keep alive, as malloc'd memory that a finalizer
// will free: added when it comes, taken away (negative) when it goes. They count in the pace and in
// the limits as if they were objects. Any thread, registered or not. What takes away more than
// there is leaves 0, and is reported on stderr once; so is, and ignored, what is more than 2^60 at
// a time or 2^62 in all. Adding may collect, as an allocation would, in a thread that may use the
// heap. A few nanoseconds.
TIDE_API void tide_external_add(int64_t bytes);

// ---- Memory limits --------------------------------------------------------------------------
//
// What counts is the memory that the library has mapped and not given back to the system (the heap
// with its free memory, tables, mark stacks, threads' caches), and external bytes: total_bytes in
// tide_memstats. Not other memory of the program.

// The soft limit, Go's GOMEMLIMIT, in bytes; INT64_MAX (the default) means none, a negative value
// only asks. Returns the old one. Acts at once; does not collect by itself. Near the limit free
// memory goes back to the system, and collections start however little the heap has grown. If live
// memory is so near to the limit, or above it, that collecting would take more than half of the
// time, a limiter holds such collections back, and memory passes the limit: see
// tide_limit_handler_set. So does an object that does not fit, after a collection. Collections that
// are disabled stay so.
TIDE_API int64_t tide_memory_limit_set(int64_t bytes);

// The hard limit: an allocation that would take memory above it fails, after a collection. What is
// above it already stays; the mark stack may pass it while the world is stopped. INT64_MAX (the
// default) means none, a negative value only asks. Returns the old one. Acts at once.
TIDE_API int64_t tide_hard_limit_set(int64_t bytes);

typedef struct tide_limit_state {
  bool active;          // an episode has begun; else it has ended
  uint64_t episodes;    // begun since the start
  uint64_t total_bytes; // that count towards the limit
  int64_t limit_bytes;  // the soft limit; INT64_MAX: none by now
} tide_limit_state;

typedef void (*tide_limit_handler)(const tide_limit_state *state, void *arg);

// Has fn(state, arg) called when the limiter begins to hold collections back, and when it has not
// done so for a second of the program's time: once each an episode, one call at a time, by a thread
// that allocates, outside the pause and without any lock. fn may use the heap, drop what the
// program can do without, change the limits, or end the program; it must not longjmp. arg is not a
// root. NULL (the default): nobody is told. Returns the handler before, which is not called any
// more, unless by the calling thread.
TIDE_API tide_limit_handler tide_limit_handler_set(tide_limit_handler fn, void *arg);

// ---- Hooks ----------------------------------------------------------------------------------

typedef enum tide_hook_point {
  TIDE_STW_START, // the world is stopped, nothing is marked: what a hook drops here dies in this
                  // very cycle
  TIDE_MARK_DONE, // the world is stopped, the live set is known
  TIDE_CYCLE_END, // the world runs again; runs on the thread that collected
  TIDE_HOOK_POINTS
} tide_hook_point;

typedef enum tide_cause {
  TIDE_CAUSE_GOAL,   // the heap reached the goal that percent sets
  TIDE_CAUSE_LIMIT,  // memory reached the soft limit
  TIDE_CAUSE_TIME,   // there was none for a long time (gc_interval_ms)
  TIDE_CAUSE_FORCED, // tide_collect
  TIDE_CAUSE_MEMORY, // the system gave no memory, or the hard limit none
  TIDE_CAUSE_STRESS, // TIDE_DEBUG=stress=N or record_kib=N
  TIDE_CAUSES
} tide_cause;

TIDE_API const char *tide_cause_string(tide_cause cause); // never NULL

// One collection. Bytes and counts; times in nanoseconds, those ending in _at_ns on
// CLOCK_MONOTONIC. A field is 0 until its moment has come: at TIDE_STW_START those up to
// stopped_at_ns are known, at TIDE_MARK_DONE those up to mark_ns, at TIDE_CYCLE_END all.
typedef struct tide_cycle {
  uint64_t number;           // 1 for the first
  tide_cause cause;          //
  uint64_t heap_start_bytes; // allocated when it started, garbage included
  uint64_t external_bytes;   // by tide_external_add
  uint64_t total_bytes;      // what counted towards the limits
  uint64_t goal_bytes;       // the goal it started under, external counted; UINT64_MAX: none
  int64_t limit_bytes;       // the soft memory limit; INT64_MAX: none
  bool limiter_active;       // the limiter held collections back
  uint64_t start_at_ns;      // when it was decided; the period is from one to the next
  uint64_t stop_ns;          // from asking threads to stop until the last one had
  uint64_t stopped_at_ns;    // when the last one had
  uint64_t threads_stopped;  // threads that were signalled or found in tide_blocking
  uint64_t hooks_ns;         // the TIDE_STW_START hooks
  uint64_t live_bytes;       // what was marked
  uint64_t live_objects;     //
  uint64_t stack_bytes;      // stacks and registers scanned
  uint64_t global_bytes;     // static data, thread-local variables and added ranges scanned
  uint64_t mark_ns;          // roots and marking
  uint64_t markers;          // threads that marked, the collecting one counted
  uint64_t mark_cpu_ns;      // the time that they were busy, added up
  uint64_t end_ns;           // the TIDE_MARK_DONE hooks, checks and preparation for the sweep
  uint64_t pause_ns;         // from asking threads to stop until they are let go
  uint64_t sweep_ns;         // sweeping left over from the cycle before, done ahead of the stop
  uint64_t next_goal_bytes;  // UINT64_MAX: none
} tide_cycle;

typedef void (*tide_hook_fn)(const tide_cycle *cycle, void *arg);
typedef struct tide_hook tide_hook;

// Has fn(cycle, arg) called at point of every collection, in the order of adding. arg is not a
// root. At the two stopped points fn must be short, and must not lock, fork, call malloc or stdio,
// or allocate; a tide_ call that it may not make is refused and reported. Allowed everywhere:
// tide_gc_cycle. A hook at TIDE_CYCLE_END may use the heap; its allocations start no collection,
// and if it collects, the hooks at that point are not called for that. Returns NULL when there is
// no memory or the point is unknown.
TIDE_API tide_hook *tide_hook_add(tide_hook_point point, tide_hook_fn fn, void *arg);

// When it returns, fn is not running and will not be called again; so not from fn's own call. NULL
// is ignored.
TIDE_API void tide_hook_remove(tide_hook *hook);

// ---- Looking at the heap --------------------------------------------------------------------

typedef struct tide_object {
  void *start;
  size_t size; // usable bytes
  tide_kind kind;
  bool marked; // reachable from the roots at this moment
} tide_object;

// Marks, then calls fn for every object, garbage included, in address order, all with the world
// stopped; the rules of a stopped hook apply to fn. Ends early when fn returns false. Frees nothing
// and is no collection: no hook runs.
TIDE_API void tide_heap_walk(bool (*fn)(const tide_object *object, void *arg), void *arg);

#define TIDE_PAUSE_HISTORY 256
#define TIDE_SIZE_CLASSES  62

// Go's MemStats, in bytes, objects and nanoseconds.
typedef struct tide_memstats {
  uint64_t heap_alloc;    // bytes of allocated objects, garbage not yet swept included
  uint64_t total_alloc;   // bytes allocated since the start; only grows
  uint64_t mallocs;       // objects allocated since the start
  uint64_t frees;         // objects freed since the start; counted when swept
  uint64_t heap_objects;  // mallocs - frees
  uint64_t heap_sys;      // = heap_idle + heap_inuse: heap address space made usable
  uint64_t heap_idle;     // in blocks that hold nothing
  uint64_t heap_inuse;    // in blocks that hold something, but for pages of them given back
  uint64_t heap_released; // the part of heap_idle given back to the system
  uint64_t gc_sys;        // the collector's mark stack, and its tables as far as they are touched
  uint64_t other_sys;     // threads, caches
  uint64_t sys;           // heap_sys + gc_sys + other_sys
  uint64_t next_gc;       // the goal, external bytes counted; UINT64_MAX: none
  uint64_t last_gc_ns;    // end of the last collection, Unix time; 0: none yet
  uint64_t pause_total_ns;
  uint64_t pause_ns[TIDE_PAUSE_HISTORY];     // circular, the latest at (num_gc + 255) % 256
  uint64_t pause_end_ns[TIDE_PAUSE_HISTORY]; // Unix time, circular as pause_ns
  uint64_t num_gc;                           // ended
  uint64_t num_forced_gc;
  uint64_t num_limit_gc;  // TIDE_CAUSE_LIMIT
  double gc_cpu_fraction; // share of the CPU time available to the process since the start
  int gc_percent;         // -1: off
  uint64_t external_bytes;
  uint64_t total_bytes; // what counts towards the limits: sys - heap_released + external_bytes
  int64_t memory_limit; // the soft one; INT64_MAX: none
  int64_t hard_limit;   // INT64_MAX: none
  uint64_t limit_overshoot_bytes;     // total_bytes above the soft limit
  uint64_t limit_overshoot_max_bytes; // the most since the start, as far as anybody looked: that is
                                      // at slow allocations, collections, and calls like this
  bool limiter_active;
  uint64_t limiter_episodes; // begun since the start
  uint64_t disable_depth;    // how many tide_gc_enable calls are due
  struct {
    uint32_t size; // of an object
    uint64_t mallocs;
    uint64_t frees;
  } by_size[TIDE_SIZE_CLASSES];
} tide_memstats;

// Stops nobody, waits for nobody, and takes a few microseconds. Allowed in any thread and anywhere,
// also in tide_blocking and in hooks; does not register the thread. What other threads allocate and
// free meanwhile may be in it or not; the sums are those of the parts in any case.
TIDE_API void tide_memstats_read(tide_memstats *stats);

// ---- Inline allocation ----------------------------------------------------------------------
//
// A thread allocates by moving a pointer down through a run of free slots of one size class. The
// names below are for the inline functions only.

#define TIDE_SMALL_MAX 32768 // bytes; larger objects have blocks of their own

typedef struct tide_run {
  char *next;     // the next free slot
  char *limit;    // one slot below the run; the run is spent when next reaches it
  size_t size;    // of a slot
  uint32_t block; // the block that the run is in; 0: none
  uint32_t slot;  // where to look for the block's next run
} tide_run;

typedef struct tide_cache {
  tide_run runs[TIDE_KINDS][TIDE_SIZE_CLASSES];
} tide_cache;

// The calling thread's cache; one that is always spent in threads that may not allocate.
extern TIDE_API __thread tide_cache *tide_cache_current __attribute__((tls_model("initial-exec")));
// The class of a size, by granules of 16 bytes.
extern TIDE_API const unsigned char tide_class_of[TIDE_SMALL_MAX / 16 + 1];

TIDE_API void *tide_alloc_slow(size_t size, tide_kind kind);

// The same by arithmetic, which compilers do beforehand where the size is a constant: steps of 16
// bytes up to 256, eight steps to each doubling up to 8192, then six classes more.
static inline unsigned tide_class_by_arithmetic(size_t size) {
  if (size <= 256) return size ? (unsigned)(size - 1) / 16 : 0;
  if (size > 8192)
    return 56u + (size > 9360) + (size > 10912) + (size > 13104) + (size > 16384) + (size > 21840);
  unsigned log2 = 63u - (unsigned)__builtin_clzl(size - 1);
  return 16 + (log2 - 8) * 8 + (unsigned)((size - 1) >> (log2 - 3)) - 8;
}

static inline __attribute__((always_inline)) void *tide_alloc_kind(tide_kind kind, size_t size) {
  if (__builtin_expect(size <= TIDE_SMALL_MAX && (unsigned)kind < TIDE_KINDS, 1)) {
    unsigned size_class = __builtin_constant_p(size) ? tide_class_by_arithmetic(size)
                                                     : tide_class_of[(size + 15) / 16];
    tide_run *run = &tide_cache_current->runs[kind][size_class];
    char *object = run->next;
    if (__builtin_expect(object != run->limit, 1)) {
      run->next = object - run->size;
      // What the caller stores into the object must not come before this: a collection in between
      // would take the object for a free slot. (The thread's own signal is the collection, so the
      // compiler is all that has to be told.)
      __atomic_signal_fence(__ATOMIC_SEQ_CST);
      return object;
    }
  }
  return tide_alloc_slow(size, kind);
}

static inline void *tide_alloc(size_t size) {
  return tide_alloc_kind(TIDE_SCANNED, size);
}
static inline void *tide_alloc_leaf(size_t size) {
  return tide_alloc_kind(TIDE_LEAF, size);
}

#ifdef __cplusplus
}
#endif
#endif
