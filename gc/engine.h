// SPDX-License-Identifier: MIT
// What the cycle and the public API need of a heap. There are two: the native heap
// (engine_native.c), in libtidepool, and Boehm GC (bdw/), in libtidepool-bdw. Each library has one
// of them, and all else is the same: pacing, hooks, statistics and everything above know only this.
//
// Calls are made by a registered thread that may use the heap and is not pinned, unless said
// otherwise.
#ifndef TIDEPOOL_ENGINE_H
#define TIDEPOOL_ENGINE_H

#include "rt.h"
#include <tidepool/gc.h>

typedef struct engine_object {
  void *start;
  size_t size;
  tide_kind kind;
} engine_object;

typedef struct engine_live {
  uint64_t live_bytes, live_objects, stack_bytes, global_bytes;
  uint64_t markers, others_ns; // as in tide_cycle.markers; that all but the first were busy
} engine_live;

// What the engine has mapped and not given back to the system.
typedef struct engine_memory {
  uint64_t used_bytes; // all but
  uint64_t free_bytes; // free memory of the heap
} engine_memory;

// The cycle's part of a collection: called with the world stopped, on the collecting thread.
typedef struct engine_calls {
  void (*stopped)(const rt_stop *stop);    // nothing is marked yet
  void (*marked)(const engine_live *live); // the live set is known
  void (*ended)(void);                     // the threads are about to be let go
} engine_calls;

typedef struct engine {
  const char *name;
  // Before init: sets options that the engine has no use for to their default, and says so with
  // rt_error_set.
  tide_status (*settle)(tide_options *options);
  tide_status (*init)(void);

  bool (*attach)(rt_thread *thread);                   // as rt_client's
  void (*detach)(rt_thread *thread, bool left_behind); //
  void (*allow)(rt_thread *thread, bool allowed);      //
  void (*fork_locked)(void);
  void (*fork_unlock)(bool in_child);

  // NULL: no memory. Starts no collection. alignment: a power of two, 16 for none in particular.
  void *(*alloc)(rt_thread *self, size_t size, size_t alignment, tide_kind kind);
  size_t (*largest)(void); // sizes above it cannot be had
  // The allocated object that holds the address.
  bool (*find)(rt_thread *self, const void *address, engine_object *object);
  bool (*free)(rt_thread *self, void *start);                // false: no object starts there
  bool (*resize)(rt_thread *self, void *start, size_t size); // in place; false: it cannot be done

  size_t (*bytes)(void); // allocated: live at the last collection plus what came since
  // Marks from the roots, with the world stopped, and frees what is not marked at once or later.
  void (*collect)(rt_thread *self, const engine_calls *calls);
  // In calls->marked: whether the allocated object that starts there was marked. NULL: the engine
  // cannot tell, and recordings have nothing die but by hand.
  bool (*marked)(const void *start);
  void (*finish_sweep)(rt_thread *self);
  void (*memory)(engine_memory *memory); // by any thread, also pinned or with the world stopped
  // Gives free memory back to the system but for keep_bytes of it; 0: all that it can. After
  // finish_sweep. Where not exactly, more may stay if that makes the heap faster.
  void (*release)(rt_thread *self, size_t keep_bytes, bool exactly);
  void (*walk)(rt_thread *self, bool (*fn)(const tide_object *, void *), void *arg);
  void (*stats)(tide_memstats *stats); // the heap's fields; by any thread, no lock
} engine;

extern const engine *const gc_engine; // of this library

#endif
