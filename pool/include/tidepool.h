// SPDX-License-Identifier: MIT
// Everything: the process, the collector and the pools.
#ifndef TIDEPOOL_H
#define TIDEPOOL_H

#include <tidepool/runtime.h>
#include <tidepool/gc.h>
#include <tidepool/pool.h>

#endif
