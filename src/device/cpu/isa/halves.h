/* bf16 and f16 operands of kernels that compute f32: a part of an operand is widened, which is
 * exact, while it is in the first cache, and a part of the result is rounded once. So no f32
 * copy of a whole tensor passes through memory, and the bits are as with copies. */
#ifndef CHOIR_ISA_HALVES_H
#define CHOIR_ISA_HALVES_H

#include "base/half.h"
#include "device/cpu/isa/isa.h"

INLINE choir__convert_row *widening(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 ? choir__widen_bf16 : choir__widen_f16;
}

INLINE choir__convert_row *rounding(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 ? choir__narrow_bf16 : choir__narrow_f16;
}

/* Returns elements [at, at + n) of p as f32: where they are, or widened into `room`; NULL if p
 * is. */
INLINE float *wide_part(const void *p, int64_t at, int64_t n, choir_dtype dtype, float *room)
{
    if (!p || !is_half(dtype))
        return p ? (float *)p + at : NULL;
    widening(dtype)(room, (const uint16_t *)p + at, n);
    return room;
}

/* Returns where a kernel writes these elements in f32: in p itself, or in `room`, from which
 * put_part rounds them. */
INLINE float *part_dest(void *p, int64_t at, choir_dtype dtype, float *room)
{
    if (!p || !is_half(dtype))
        return p ? (float *)p + at : NULL;
    return room;
}

INLINE void put_part(void *p, int64_t at, int64_t n, choir_dtype dtype, const float *from)
{
    if (p && is_half(dtype))
        rounding(dtype)((uint16_t *)p + at, from, n);
}

#endif
