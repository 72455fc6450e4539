// SPDX-License-Identifier: MIT
// Size classes: the slot sizes that small objects are rounded up to.
//
// Steps of 16 bytes up to 256, then eight steps to each doubling up to 8 KiB (so that rounding
// wastes at most 1/8 of an object, 1/16 on average), then the largest multiples of 16 of which
// 7, 6, 5, 4, 3 and 2 fit into a block of 64 KiB. Programs have the classes compiled in (gc.h), so
// to change them is to change the ABI.
#ifndef TIDEPOOL_SIZE_CLASS_H
#define TIDEPOOL_SIZE_CLASS_H

#include <stdint.h>
#include <tidepool/gc.h>

// X(class, bytes, bytes of the class below)
// clang-format off
#define SIZE_CLASS_TABLE(X)                                                             \
  X(0, 16, -16)         X(1, 32, 16)          X(2, 48, 32)          X(3, 64, 48)        \
  X(4, 80, 64)          X(5, 96, 80)          X(6, 112, 96)         X(7, 128, 112)      \
  X(8, 144, 128)        X(9, 160, 144)        X(10, 176, 160)       X(11, 192, 176)     \
  X(12, 208, 192)       X(13, 224, 208)       X(14, 240, 224)       X(15, 256, 240)     \
  X(16, 288, 256)       X(17, 320, 288)       X(18, 352, 320)       X(19, 384, 352)     \
  X(20, 416, 384)       X(21, 448, 416)       X(22, 480, 448)       X(23, 512, 480)     \
  X(24, 576, 512)       X(25, 640, 576)       X(26, 704, 640)       X(27, 768, 704)     \
  X(28, 832, 768)       X(29, 896, 832)       X(30, 960, 896)       X(31, 1024, 960)    \
  X(32, 1152, 1024)     X(33, 1280, 1152)     X(34, 1408, 1280)     X(35, 1536, 1408)   \
  X(36, 1664, 1536)     X(37, 1792, 1664)     X(38, 1920, 1792)     X(39, 2048, 1920)   \
  X(40, 2304, 2048)     X(41, 2560, 2304)     X(42, 2816, 2560)     X(43, 3072, 2816)   \
  X(44, 3328, 3072)     X(45, 3584, 3328)     X(46, 3840, 3584)     X(47, 4096, 3840)   \
  X(48, 4608, 4096)     X(49, 5120, 4608)     X(50, 5632, 5120)     X(51, 6144, 5632)   \
  X(52, 6656, 6144)     X(53, 7168, 6656)     X(54, 7680, 7168)     X(55, 8192, 7680)   \
  X(56, 9360, 8192)     X(57, 10912, 9360)    X(58, 13104, 10912)   X(59, 16384, 13104) \
  X(60, 21840, 16384)   X(61, 32768, 21840)
// clang-format on

extern const uint32_t size_class_bytes[TIDE_SIZE_CLASSES];

// The class for a size of at most TIDE_SMALL_MAX bytes.
static inline unsigned size_class_for(size_t size) {
  return tide_class_of[(size + 15) / 16];
}

#endif
