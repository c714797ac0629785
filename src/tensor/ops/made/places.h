/* Inside ops made of others: numbers in a row on the device where they are used. */
#ifndef CHOIR_PLACES_H
#define CHOIR_PLACES_H

#include "tensor/op.h"

/* Returns 0, 1, ..., count - 1: (count) f64, made by kernels alone, so that a recorded step may
 * have it. count is at least 1. */
choir_tensor *choir__places(choir_scope *scope, choir_device *device, int64_t count);

#endif
