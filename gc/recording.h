// SPDX-License-Identifier: MIT
// What the collector reports to the recorder (runtime/record.h): objects and collections. To be
// called only while rt_recording(); then every allocation takes the slow way (small.c).
#ifndef TIDEPOOL_RECORDING_H
#define TIDEPOOL_RECORDING_H

#include "rt.h"
#include <tidepool/gc.h>

// By a thread that holds nothing: it may write to the file.
void recording_alloc(const void *object, size_t size, tide_kind kind);
void recording_free(const void *object); // before its memory can be another's
void recording_resize(const void *from, const void *to, size_t size); // the same for `from`
void recording_external(int64_t bytes);
// With the world stopped, everything marked and nothing swept.
void recording_cycle(const tide_cycle *cycle);

// Whether record_kib has a collection due before an allocation of so many bytes.
bool recording_due(size_t size);

#endif
