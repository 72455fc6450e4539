// SPDX-License-Identifier: MIT
// `startup`: what the first call costs, one object included. worker.c has measured it, as in every
// run; this workload does nothing else.
#include "peer.h"

void startup_run(void) {
  report("init_us", (double)init_ns * 1e-3);
  report("added_kib", init_rss_bytes / 1024);
  report("peak_mib", peak_resident_bytes() / MIB);
}
