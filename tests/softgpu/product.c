/* The product: operands are widened to f32 (or f64) once, sums are in order of k, and each
 * result is rounded once. */
#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <library_types.h>

#include "base/half.h"
#include "gpu.h"

size_t softgpu_size_of(int type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static double load(const softgpu_matrix *x, int64_t batch, int64_t i, int64_t j)
{
    int64_t at = batch * x->batch + i * x->down + j * x->across;
    switch (x->type) {
    case CUDA_R_64F: return ((const double *)x->p)[at];
    case CUDA_R_32F: return (double)((const float *)x->p)[at];
    case CUDA_R_16BF: return (double)choir__f32_from_bf16(((const uint16_t *)x->p)[at]);
    default: return (double)choir__f32_from_f16(((const uint16_t *)x->p)[at]);
    }
}

static void store(const softgpu_matrix *x, int64_t batch, int64_t i, int64_t j, double value)
{
    int64_t at = batch * x->batch + i * x->down + j * x->across;
    switch (x->type) {
    case CUDA_R_64F: ((double *)x->p)[at] = value; break;
    case CUDA_R_32F: ((float *)x->p)[at] = (float)value; break;
    case CUDA_R_16BF: ((uint16_t *)x->p)[at] = choir__bf16_from_f32((float)value); break;
    default: ((uint16_t *)x->p)[at] = choir__f16_from_f32((float)value); break;
    }
}

static float rounded(double value, bool tf32)
{
    float x = (float)value;
    uint32_t bits = choir__bits_of_f32(x);
    if (!tf32 || (bits & 0x7F800000u) == 0x7F800000u)
        return x;
    return choir__f32_of_bits((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

/* sum (m) += a's column by a number, for each k: a (k, m) here. */
static void multiply_f32(const softgpu_product *p, const float *a, const float *b, float *sum)
{
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t i = 0; i < p->m; i++)
            sum[i] += a[k * p->m + i] * b[k];
}

static void multiply_f64(
    const softgpu_product *p, const double *a, const double *b, double *sum)
{
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t i = 0; i < p->m; i++)
            sum[i] += a[k * p->m + i] * b[k];
}

/* Returns the slope of 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
static double gelu_slope(double x)
{
    double c = sqrt(2 / 3.14159265358979323846), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

static void finish(const softgpu_product *p, int64_t batch, int64_t i, int64_t j, double sum)
{
    softgpu_matrix bias = {
        .p = (void *)(uintptr_t)p->bias, .type = p->d.type, .down = 1, .batch = p->bias_batch};
    double value = p->alpha * sum;
    if (p->c.p)
        value += p->beta * load(&p->c, batch, i, j);
    if (p->bias)
        value += load(&bias, batch, i, 0);
    if (p->gelu_in.p)
        value *= gelu_slope(load(&p->gelu_in, batch, i, j));
    store(&p->d, batch, i, j, value);
}

/* sums (n) = the sums over k of x's element (i, k), or (k, i) of the second operand; in f32, in
 * order. */
static void add_up(const softgpu_product *p, const softgpu_matrix *x, bool second, int64_t n,
    const softgpu_matrix *sums)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += (float)(second ? load(x, 0, k, i) : load(x, 0, i, k));
        store(sums, 0, i, 0, (double)sum);
    }
}

static void add_up_operand(const softgpu_product *p)
{
    softgpu_matrix sums = {.type = p->d.type, .down = 1};
    if ((sums.p = p->a_sums))
        add_up(p, &p->a, false, p->m, &sums);
    if ((sums.p = p->b_sums))
        add_up(p, &p->b, true, p->n, &sums);
}

/* A product whose operands have been widened to T, float or double. */
#define RUN(name, T, widen, multiply)                                                          \
    static void name(const softgpu_product *p)                                                 \
    {                                                                                          \
        T *a = malloc((size_t)(p->m * p->k) * sizeof *a),                                      \
          *b = malloc((size_t)p->k * sizeof *b);                                               \
        T *sum = malloc((size_t)p->m * sizeof *sum);                                           \
        for (int64_t batch = 0; batch < p->batch; batch++) {                                   \
            for (int64_t k = 0; k < p->k; k++)                                                 \
                for (int64_t i = 0; i < p->m; i++)                                             \
                    a[k * p->m + i] = widen(load(&p->a, batch, i, k));                         \
            for (int64_t j = 0; j < p->n; j++) {                                               \
                for (int64_t k = 0; k < p->k; k++)                                             \
                    b[k] = widen(load(&p->b, batch, k, j));                                    \
                memset(sum, 0, (size_t)p->m * sizeof *sum);                                    \
                multiply(p, a, b, sum);                                                        \
                for (int64_t i = 0; i < p->m; i++)                                             \
                    finish(p, batch, i, j, (double)sum[i]);                                    \
            }                                                                                  \
        }                                                                                      \
        free(a);                                                                               \
        free(b);                                                                               \
        free(sum);                                                                             \
    }

#define AS_F32(x) rounded(x, p->tf32)
#define AS_F64(x) (x)
RUN(run_f32, float, AS_F32, multiply_f32)
RUN(run_f64, double, AS_F64, multiply_f64)

void softgpu_run_product(const void *args)
{
    const softgpu_product *p = args;
    if (!softgpu_runs())
        return;
    if (p->space_bytes)
        memset(p->space, 0xFF, p->space_bytes);
    if (p->a.type == CUDA_R_64F)
        run_f64(p);
    else
        run_f32(p);
    add_up_operand(p);
}
