// SPDX-License-Identifier: MIT
#ifndef TIDEPOOL_EXTERNAL_H
#define TIDEPOOL_EXTERNAL_H

#include "rt.h"

uint64_t external_bytes(void);       // now
uint64_t external_least_bytes(void); // since the last marking
void external_marked(void);          // a marking is over

#endif
