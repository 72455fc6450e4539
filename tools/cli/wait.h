// SPDX-License-Identifier: MIT
// Time, waiting, and being asked to end.
//
// A thread that waits must not look like a running mutator: it would be stopped by a signal in
// every collection and hold a processor. So every wait here happens inside tide_blocking, or says
// that the caller must be there.
#ifndef TIDEPOOL_TOOL_WAIT_H
#define TIDEPOOL_TOOL_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Nanoseconds on CLOCK_MONOTONIC.
uint64_t now_ns(void);

// Waits outside the heap until the clock shows at_ns; a moment that has passed is no wait. Returns
// false as soon as the user asked the program to end.
bool wait_until(uint64_t at_ns);

// The same for a thread that is inside tide_blocking already; nothing cuts it short.
void sleep_until(uint64_t at_ns);

// From here on SIGINT, SIGTERM and SIGHUP ask the program to end. One that comes more than a second
// after the first ends it at once; sooner, it is the same request once more (timeout(1) signals the
// process and its group).
void interrupts_catch(void);
// The signal that asked, 0 if none has.
int interrupted(void);

// Asks the kernel to end the calling thread's sleeps on time instead of up to 50 us late.
void sleep_exactly(void);

// tide_thread_create with a small stack, and with the signals above left to the first thread.
// Returns the error number.
int thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

// A gate that opens once a round, for any number of waiting threads at a time. Rounds count up.
typedef struct gate {
  volatile unsigned round; // the last round that it was opened for
} gate;

void gate_open(gate *g, unsigned round);
// The caller is inside tide_blocking. Returns when the gate has been opened for the round.
void gate_await(gate *g, unsigned round);

#endif
