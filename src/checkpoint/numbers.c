/* Conversions between the float types in files, block by block by way of f32; memory need not
 * be aligned. A check for infinities and NaNs has no branch per number, because nearly always
 * all are finite. */
#include "checkpoint/stored.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "tensor/tensor.h"

enum { BLOCK = 1024 };

static void widen(float *out, const void *in, choir_dtype from, size_t n)
{
    if (from == CHOIR_F32) {
        memcpy(out, in, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = 0;
        double wide = 0;
        if (from == CHOIR_F64)
            memcpy(&wide, (const char *)in + i * sizeof wide, sizeof wide);
        else
            memcpy(&half, (const char *)in + i * sizeof half, sizeof half);
        out[i] = from == CHOIR_F64    ? (float)wide
                 : from == CHOIR_BF16 ? choir__f32_from_bf16(half)
                                      : choir__f32_from_f16(half);
    }
}

static void narrow(void *out, choir_dtype to, const float *in, size_t n)
{
    if (to == CHOIR_F32) {
        memcpy(out, in, n * sizeof *in);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double wide = (double)in[i];
        uint16_t half =
            to == CHOIR_BF16 ? choir__bf16_from_f32(in[i]) : choir__f16_from_f32(in[i]);
        if (to == CHOIR_F64)
            memcpy((char *)out + i * sizeof wide, &wide, sizeof wide);
        else
            memcpy((char *)out + i * sizeof half, &half, sizeof half);
    }
}

bool choir__convertible(choir_dtype to, choir_dtype from)
{
    return to == from || (choir__is_float(to) && choir__is_float(from));
}

void choir__numbers_convert(
    void *out, choir_dtype to, const void *in, choir_dtype from, size_t count)
{
    float block[BLOCK];
    if (to == from) {
        memcpy(out, in, count * choir_dtype_size(to));
        return;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < BLOCK ? count - at : BLOCK;
        widen(block, (const char *)in + at * choir_dtype_size(from), from, n);
        narrow((char *)out + at * choir_dtype_size(to), to, block, n);
    }
}

/* The loop has no branch, because nearly always all are finite. */
static bool all_finite(const float *in, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !bad;
}

int64_t choir__first_nonfinite(const void *in, choir_dtype dtype, size_t count, float *value)
{
    float block[BLOCK];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < BLOCK ? count - at : BLOCK;
        widen(block, (const char *)in + at * choir_dtype_size(dtype), dtype, n);
        for (size_t i = 0; !all_finite(block, n) && i < n; i++)
            if (!isfinite(block[i])) {
                *value = block[i];
                return (int64_t)(at + i);
            }
    }
    return -1;
}

choir_status choir__check_finite(
    choir_status code, const choir__checked *what, const void *in, size_t count)
{
    float value;
    int64_t at = choir__is_float(what->dtype)
                     ? choir__first_nonfinite(in, what->dtype, count, &value)
                     : -1;
    return at < 0 ? CHOIR_OK
                  : choir__error(code,
                        "%s: tensor '%.200s' %s holds %g, as f32, at index %lld%s; "
                        "weights must be finite",
                        what->path, what->name, choir__shape_text(what->whole), (double)value,
                        (long long)at, what->part ? " of its part" : "");
}
