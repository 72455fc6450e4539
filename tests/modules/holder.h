// SPDX-License-Identifier: MIT
// What holder.c has to offer, for dlsym.
#ifndef TIDEPOOL_TESTS_HOLDER_H
#define TIDEPOOL_TESTS_HOLDER_H

enum { HOLDER_SLOTS = 100, HOLDER_MAGIC = 0x5eed };

typedef enum holder_place { HOLDER_DATA, HOLDER_BSS, HOLDER_TLS } holder_place;

typedef void **(*holder_slots_fn)(holder_place place); // "holder_slots": the calling thread's
typedef unsigned long (*holder_made_fn)(void);         // "holder_made_by_constructor": HOLDER_MAGIC

void **holder_slots(holder_place place);
unsigned long holder_made_by_constructor(void);

#endif
