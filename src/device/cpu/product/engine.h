/* The engine of one type: a batch of products, distributed over the cores of a device. */
#ifndef CHOIR_PRODUCT_ENGINE_H
#define CHOIR_PRODUCT_ENGINE_H

#include "device/cpu/product/blocks.h"

/* Work of a core from which on a division gains, in multiply-adds. */
enum { LEAST = 256 * 1024 };

/* How a batch is cut into parts: by matrices, or each matrix into stripes of `each` rows or
 * columns. */
typedef struct division {
    const choir__k_matmul *k;
    const cell *packed;
    int64_t row_stripes, column_stripes; /* of a matrix; one of them is 1 */
} division;

static job job_of(const choir__k_matmul *k, const cell *packed, int64_t matrix_number)
{
    int64_t i = matrix_number / k->batch1, j = matrix_number % k->batch1;
    matrix a = {k->a, k->a_row, k->a_col, k->dtype}, b = {k->b, k->b_col, k->b_row, k->dtype};
    size_t size = is_half(k->dtype) && k->wide ? sizeof(real) : choir_dtype_size(k->dtype);
    size_t each = choir_dtype_size(k->dtype);
    a.p = (const char *)a.p + (i * k->a_batch0 + j * k->a_batch1) * (int64_t)each;
    b.p = (const char *)b.p + (i * k->b_batch0 + j * k->b_batch1) * (int64_t)each;
    const bool turned = turns(k);
    return (job){.k = k,
        .a = turned ? b : a,
        .b = turned ? a : b,
        .turned = turned,
        .c = (char *)k->c + (i * k->c_batch0 + j * k->c_batch1) * (int64_t)size,
        .packed = packed,
        .chains = choir__max(1, (k->k + CHAIN - 1) / CHAIN),
        .m = turned ? k->n : k->m,
        .n = turned ? k->m : k->n};
}

/* Narrows *from and *size to stripe i of `stripes` of whole panels. */
static void narrow(int64_t *from, int64_t *size, int64_t i, int64_t stripes, int64_t each)
{
    int64_t panels = (*size + each - 1) / each, all = *size;
    *from = panels * i / stripes * each;
    *size = choir__min(all, panels * (i + 1) / stripes * each) - *from;
}

static void run_parts(const void *arg, int64_t first, int64_t count)
{
    const division *d = arg;
    int64_t stripes = d->row_stripes * d->column_stripes;
    begin_tiles();
    for (int64_t part = first; part < first + count; part++) {
        job w = job_of(d->k, d->packed, part / stripes);
        narrow(&w.row, &w.m, part % stripes / d->column_stripes, d->row_stripes, TALL);
        narrow(&w.column, &w.n, part % d->column_stripes, d->column_stripes, BROAD);
        run_job(&w);
    }
    end_tiles();
}

static void multiply(const choir__k_matmul *k, const cell *packed)
{
    int64_t cores = choir__cpu_context_threads(choir__cpu_context_current());
    int64_t matrices = k->batch0 * k->batch1, each = k->m * k->n * choir__max(1, k->k);
    division d = {k, packed, 1, 1};
    if (matrices == 0 || k->m == 0 || k->n == 0)
        return;
    if (cores > 1 && matrices % cores) { /* few, or many of which one core would have more */
        const int64_t m = turns(k) ? k->n : k->m, n = turns(k) ? k->m : k->n;
        bool tall = m >= n;
        int64_t panels = tall ? (m + TALL - 1) / TALL : (n + BROAD - 1) / BROAD;
        int64_t stripes = choir__max(1, choir__min(choir__min(cores, panels), each / LEAST));
        *(tall ? &d.row_stripes : &d.column_stripes) = stripes;
        each /= stripes;
    }
    int64_t parts = matrices * d.row_stripes * d.column_stripes;
    choir__cpu_parallel(parts, LEAST / choir__max(1, each) + 1, run_parts, &d);
}

#endif
