// SPDX-License-Identifier: MIT
// A library whose thread-local variable lies in the static block: the loader puts it into the slack
// that the C library has left there.
#define EXPORT __attribute__((visibility("default")))

enum { SLOTS = 32 };

static _Thread_local void *slots[SLOTS] __attribute__((tls_model("initial-exec")));

void **static_tls_slots(void);

EXPORT void **static_tls_slots(void) {
  return slots;
}
