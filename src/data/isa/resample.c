/* The resampling loop. For each output row, it first combines the input rows (along memory, one
 * vector of bytes at a time), then the columns (a pixel's channels in a vector of four). */
#include "data/images/resample.h"
#include "device/cpu/isa/isa.h"

#define RESAMPLE CHOIR__PASTE(choir__resample, CHOIR_ISA)
choir__resample_fn RESAMPLE;

INLINE vec widen(const uint8_t *p)
{
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined(__SSE2__)
    int32_t four;
    memcpy(&four, p, sizeof four);
    __m128i zero = _mm_setzero_si128();
    __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero);
    return _mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero));
#else
    vec x;
    for (int i = 0; i < W; i++)
        x[i] = p[i];
    return x;
#endif
}

/* row (3 * width, rounded up to W) = the weighted sum of `taps` rows. */
static void join_rows(const choir__resample *k, int y)
{
    const float *weight = k->y.weight + (int64_t)y * k->y.taps;
    const uint8_t *in = k->in + k->y.first[y] * k->stride;
    for (int64_t i = 0; i < 3 * (int64_t)k->width; i += W) {
        vec sum = v_set(weight[0]) * widen(in + i);
        for (int t = 1; t < k->y.taps; t++)
            sum += v_set(weight[t]) * widen(in + t * k->stride + i);
        v_store(k->row + i, sum);
    }
}

INLINE vec4 pixel(const float *row, int x)
{
    vec4 p;
    memcpy(&p, row + 3 * (int64_t)x, sizeof p);
    return p;
}

INLINE void join_columns(const choir__resample *k, int taps, float *out)
{
    vec4 mul, add;
    memcpy(&mul, k->mul, sizeof mul);
    memcpy(&add, k->add, sizeof add);
    const float *weight = k->x.weight;
    for (int x = 0; x < k->x.count; x++, weight += taps, out += 3) {
        int first = k->x.first[x];
        vec4 sum = pixel(k->row, first) * weight[0];
        for (int t = 1; t < taps; t++)
            sum += pixel(k->row, first + t) * weight[t];
        sum = sum * mul + add;
        memcpy(out, &sum, (x + 1 < k->x.count ? 4 : 3) * sizeof *out);
    }
}

void RESAMPLE(const choir__resample *k)
{
    for (int y = 0; y < k->y.count; y++) {
        float *out = k->out + (int64_t)y * k->x.count * 3;
        join_rows(k, y);
        switch (k->x.taps) { /* common cases, unrolled */
        case 1: join_columns(k, 1, out); break;
        case 2: join_columns(k, 2, out); break;
        case 3: join_columns(k, 3, out); break;
        case 4: join_columns(k, 4, out); break;
        case 5: join_columns(k, 5, out); break;
        default: join_columns(k, k->x.taps, out); break;
        }
    }
}
