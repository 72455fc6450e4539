// SPDX-License-Identifier: MIT
// When objects of a recording died. A collection only says that they are dead by then: since the
// one before, or since they were made. All deaths at the collection's moment would be right for a
// replay that collects just then, and far too late for any other.
//
// So each death gets a place in between. For an object that was made in that stretch it is the mean
// lifetime after its making: as many of a stretch's objects as live over its end but not over the
// next, so long a part of the stretch do they live in the mean (Little's law). For older ones it is
// the middle of the stretch. A stretch is measured in bytes allocated. No object dies before it was
// last heard of.
#ifndef TIDEPOOL_TOOL_TRACE_DEATHS_H
#define TIDEPOOL_TOOL_TRACE_DEATHS_H

#include "trace_file.h"

typedef struct death {
  uint64_t object, bytes;
  size_t earliest, latest; // it goes in front of one of these events
  uint64_t from, to;       // between them, by bytes allocated
  uint64_t stretch;        // bytes allocated from one collection to the next
  unsigned age;            // collections that it has outlived; from 2 on it does not matter
} death;

// The part of a stretch that objects live which do not live long, 0 to 1.
double deaths_lifetime(const death *deaths, size_t count);

// Puts them among the events. False: no memory, the trace is as it was.
bool deaths_place(trace *t, const death *deaths, size_t count);

#endif
