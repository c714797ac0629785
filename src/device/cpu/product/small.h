/* Small products beside oneDNN. */
#ifndef CHOIR_PRODUCT_SMALL_H
#define CHOIR_PRODUCT_SMALL_H

#include "device/cpu/isa/isa.h"

/* Multiplies f32 operands, and leaves others to the reference. */
void KERNEL(small_matmul)(const choir__k_matmul *args);

#endif
