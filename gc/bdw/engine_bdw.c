// SPDX-License-Identifier: MIT
// Boehm GC as an engine: start, fork, and the table. See bdw.h for what it is used as.
//
// libgc makes the thread that initialises it one of its own; it is taken off the list at once. Its
// list then is empty for good: its stop signals nobody, and it scans no stack. It also sets
// handlers for its two signals, SIGPWR and SIGXCPU, which nobody sends any more: the program's are
// put back.
#include "bdw.h"

#include <signal.h>

enum {
  MARKERS_MAX = 16,      // that it takes
  START_BYTES = 4 << 20, // without it, it would end the process
};

static void *no_memory(size_t bytes) {
  return NULL;
}

// What has to be set before it starts. Interior pointers count everywhere; that also makes it add a
// byte to each object (see bdw_objects.c).
static void configure(void) {
  GC_set_handle_fork(0); // fork calls us, and we call it, in the right order of locks
  GC_set_all_interior_pointers(1);
  GC_set_no_dls(1);
  GC_set_dont_precollect(1);
  GC_set_disable_automatic_collection(1);
  GC_set_allocd_bytes_per_finalizer(0);
  GC_set_finalize_on_demand(1);
  GC_set_java_finalization(0);
  GC_set_warn_proc(GC_ignore_warn_proc);
  GC_set_oom_fn(no_memory);
  int64_t markers = rt_options.markers ? rt_options.markers : os_cpus_usable();
  GC_set_markers_count((unsigned)(markers > MARKERS_MAX ? MARKERS_MAX : markers));
  GC_disable(); // but for the collections that we make
}

static void start_libgc(void) {
  enum { SIGNALS = 2 };
  static const int theirs[SIGNALS] = {SIGPWR, SIGXCPU};
  struct sigaction before[SIGNALS];
  for (int i = 0; i < SIGNALS; i++) sigaction(theirs[i], NULL, &before[i]);
  configure();
  GC_init();
  GC_unregister_my_thread();
  GC_clear_roots();
  GC_set_find_leak(0);
  for (int i = 0; i < SIGNALS; i++) sigaction(theirs[i], &before[i], NULL);
}

static tide_status bdw_init(void) {
  static bool started; // and something else then failed
  if (!started && GC_is_init_called())
    return rt_error_set(TIDE_ERR_STATE, "libgc is in use by the program itself, which cannot share "
                                        "it with Tidepool");
  if (!started && !bdw_has_room(START_BYTES))
    return rt_error_set(TIDE_ERR_MEMORY, "no address space for the heap");
  if (!started) start_libgc();
  started = true;
  if (GC_is_incremental_mode())
    return rt_error_set(TIDE_ERR_STATE,
                        "GC_ENABLE_INCREMENTAL is set: libgc would collect by itself");
  tide_status status = bdw_objects_init();
  if (status != TIDE_OK) return status;
  bdw_collect_init();
  bdw_memory_note();
  return TIDE_OK;
}

static tide_status bdw_settle(tide_options *options) {
  if (!options->mark_stack_bytes) return TIDE_OK;
  options->mark_stack_bytes = 0;
  return rt_error_set(TIDE_ERR_OPTION,
                      "option mark_stack_bytes (TIDE_MARKSTACK) is not available on "
                      "Boehm GC; its mark stack has no bound");
}

static void bdw_allow(rt_thread *thread, bool allowed) {
  // Nothing is allocated but through tide_alloc_slow, which looks by itself.
}

static void bdw_fork_locked(void) {
  rt_pinned_lock_take(&bdw_lock);
  GC_atfork_prepare();
}

static void bdw_fork_unlock(bool in_child) {
  if (in_child)
    GC_atfork_child();
  else
    GC_atfork_parent();
  if (in_child) bdw_collect_after_fork();
  rt_pinned_lock_give(&bdw_lock);
}

static size_t bdw_allocated(void) {
  AO_t bytes = AO_load(&bdw_bytes);
  return bytes > PTRDIFF_MAX ? 0 : bytes;
}

static const engine engine_bdw = {
    .name = "bdw",
    .init = bdw_init,
    .settle = bdw_settle,
    .attach = bdw_attach,
    .detach = bdw_detach,
    .allow = bdw_allow,
    .fork_locked = bdw_fork_locked,
    .fork_unlock = bdw_fork_unlock,
    .alloc = bdw_alloc,
    .largest = bdw_largest,
    .find = bdw_find,
    .free = bdw_free,
    .resize = bdw_resize,
    .bytes = bdw_allocated,
    .collect = bdw_collect,
    .marked = bdw_bits_get, // what is allocated after a marking is what was marked
    .finish_sweep = bdw_finish_sweep,
    .memory = bdw_memory,
    .release = bdw_release,
    .walk = bdw_walk,
    .stats = bdw_stats,
};
const engine *const gc_engine = &engine_bdw;
