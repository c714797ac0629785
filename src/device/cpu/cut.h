/* Products whose K is cut into leaves (device/kernels/cut.h), by an engine that knows no cuts.
 */
#ifndef CHOIR_CPU_CUT_H
#define CHOIR_CPU_CUT_H

#include "device/kernels.h"

/* Computes a product k of f32 or 16 bits whose K is cut. Calls `multiply` once per matrix and
 * leaf, with operands that have the leaf's terms alone. */
void choir__cut_matmul(const choir__k_matmul *k, void (*multiply)(const choir__k_matmul *leaf));

#endif
