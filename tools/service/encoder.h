// SPDX-License-Identifier: MIT
// The encoder that `tidepool marshal` and `tidepool sawtooth` keep in pools: it writes envelopes as
// JSON. It is the workload, not a JSON library.
//
// It is made of heap objects: a struct, an output buffer and a scratch buffer that both grow, and,
// if wished, a dictionary. The body goes through the scratch buffer, as its length stands in front
// of it. The dictionary remembers the escaped form of short texts: it is filled with
// ENVELOPE_WORDS words when the encoder is made, which is what makes that take long, and changes
// with use, so an encoder has one user at a time and cannot be shared.
#ifndef TIDEPOOL_TOOL_ENCODER_H
#define TIDEPOOL_TOOL_ENCODER_H

#include "envelope.h"

typedef struct encoder encoder;

typedef struct encoder_options {
  size_t output_bytes; // what the buffers begin with
  size_t scratch_bytes;
  bool dictionary;
} encoder_options;

// NULL when there is no memory. The caller's reference is all that keeps it alive.
encoder *encoder_create(const encoder_options *options);

// The envelope as one JSON object, in the encoder's own buffer until the next call; at is NULL when
// there was no memory. Bytes that are no UTF-8 become U+FFFD, numbers that JSON has no form for
// null.
text encoder_encode(encoder *e, const envelope *what);

// Envelopes encoded so far; 0: it has just been made.
uint64_t encoder_uses(const encoder *e);
// All its objects, in bytes.
uint64_t encoder_bytes(const encoder *e);

#endif
