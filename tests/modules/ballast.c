// SPDX-License-Identifier: MIT
// A library with so much data that a collection is likely to be looking at it when it is unloaded.
__attribute__((visibility("default"))) char ballast[8 << 20];
