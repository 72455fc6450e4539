// SPDX-License-Identifier: MIT
// The tables of size_class.h, made from its one list.
#include "size_class.h"

const uint32_t size_class_bytes[TIDE_SIZE_CLASSES] = {
#define ROW(class, bytes, below) [class] = bytes,
    SIZE_CLASS_TABLE(ROW)
#undef ROW
};

// By granules of 16 bytes. Class 0 also serves size 0.
const unsigned char tide_class_of[TIDE_SMALL_MAX / 16 + 1] = {
#define ROW(class, bytes, below) [(below) / 16 + 1 ...(bytes) / 16] = class,
    SIZE_CLASS_TABLE(ROW)
#undef ROW
};
