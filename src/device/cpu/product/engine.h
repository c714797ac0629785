/* The engine of one type: a batch of products, distributed over the cores of a device. */
#ifndef CHOIR_PRODUCT_ENGINE_H
#define CHOIR_PRODUCT_ENGINE_H

#ifdef THIN
#include "device/cpu/product/thin.h"
#else
#include "device/cpu/product/blocks.h"
#endif

/* Work of a core from which on a division gains, in multiply-adds. */
enum { LEAST = 256 * 1024 };
/* Bytes up to which all of B is packed at once. */
enum { MOST_PACKED = 24 << 20 };

/* How a batch is cut into parts: by matrices, or each matrix into stripes of `each` rows or
 * columns. */
typedef struct division {
    const choir__k_matmul *k;
    const choir__operands *other;
    int64_t row_stripes,
        column_stripes; /* stripes of a matrix; rows or columns have one stripe */
} division;

static bool is_turned(const choir__k_matmul *k, const choir__operands *other)
{
    if (other->windows_b)
        return turns_windows(other->windows_b, k);
    return !other->windows_a && !other->packed && turns(k);
}

/* B where k states it is. Held in 16 bits beside f32 it is a matrix of that type. */
static matrix operand_b(const choir__k_matmul *k)
{
    matrix b = {.p = k->b,
        .apart = k->b_col,
        .next = k->b_row,
        .dtype = k->dtype,
        .held = k->b_held,
        .row_bytes = k->b_bytes};
    if (k->dtype == CHOIR_F32 && (k->b_held == CHOIR__BF16 || k->b_held == CHOIR__F16)) {
        b.dtype = k->b_held == CHOIR__BF16 ? CHOIR_BF16 : CHOIR_F16;
        b.held = CHOIR__F32;
        *(k->b_col == 1 ? &b.next : &b.apart) = k->b_bytes / 2;
    }
    return b;
}

static job job_of(const choir__k_matmul *k, const choir__operands *other, int64_t matrix_number)
{
    int64_t i = matrix_number / k->batch1, j = matrix_number % k->batch1;
    matrix a = {.p = k->a,
        .apart = k->a_row,
        .next = k->a_col,
        .dtype = k->dtype,
        .windows = other->windows_a};
    matrix b = operand_b(k);
    b.windows = other->windows_b;
    size_t size = is_half(k->dtype) && k->wide ? sizeof(real) : choir_dtype_size(k->dtype);
    size_t each = choir_dtype_size(k->dtype);
    a.p = (const char *)a.p + (i * k->a_batch0 + j * k->a_batch1) * (int64_t)each;
    if (!k->b_held) /* a held operand is one matrix */
        b.p = (const char *)b.p + (i * k->b_batch0 + j * k->b_batch1) * (int64_t)each;
    const bool turned = is_turned(k, other);
    return (job){.k = k,
        .a = turned ? b : a,
        .b = turned ? a : b,
        .turned = turned,
        .c = (char *)k->c + (i * k->c_batch0 + j * k->c_batch1) * (int64_t)size,
        .packed = other->packed,
        .terms = terms_of(k),
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

/* Products of few rows go their own way. */
static void run(job *w)
{
#ifdef THIN
    if (is_thin(w)) {
        run_thin(w);
        return;
    }
#endif
    run_job(w);
}

static void run_parts(const void *arg, int64_t first, int64_t count)
{
    const division *d = arg;
    int64_t stripes = d->row_stripes * d->column_stripes;
    begin_tiles();
    for (int64_t part = first; part < first + count; part++) {
        job w = job_of(d->k, d->other, part / stripes);
        narrow(&w.row, &w.m, part % stripes / d->column_stripes, d->row_stripes, TALL);
        narrow(&w.column, &w.n, part % d->column_stripes, d->column_stripes, BROAD);
        run(&w);
    }
    end_tiles();
}

/* Cells of all of B, packed. */
static int64_t packed_cells(const choir__k_matmul *k)
{
    return whole(k->n, BROAD) * terms_of(k).deep;
}

static void pack_all(cell *to, const choir__k_matmul *k)
{
    const matrix b = operand_b(k);
    const terms t = terms_of(k);
    section s;
    for (position at = {0, 0}; next_section(&t, &at, &s);)
        pack_columns(to + s.at * whole(k->n, BROAD), &b, 0, k->n, &s, NULL);
}

/* Returns B packed as a whole if many blocks of rows would pack it each and it is small, or
 * NULL. */
static const cell *packed_once(const choir__k_matmul *k)
{
    const size_t bytes = (size_t)packed_cells(k) * sizeof(cell);
    const terms t = terms_of(k);
    if (!t.several || t.gathers || k->m <= FEW_M || k->batch0 * k->batch1 > 1 ||
        bytes > MOST_PACKED)
        return NULL;
    cell *to = choir__cpu_packed(choir__cpu_context_current(), bytes);
    pack_all(to, k);
    return to;
}

static void multiply(const choir__k_matmul *k, const choir__operands *given)
{
    int64_t cores = choir__cpu_context_threads(choir__cpu_context_current());
    int64_t matrices = k->batch0 * k->batch1, each = k->m * k->n * choir__max(1, k->k);
    choir__operands other = given ? *given : (choir__operands){0};
    division d = {k, &other, 1, 1};
    if (matrices == 0 || k->m == 0 || k->n == 0)
        return;
    if (!other.packed && !other.windows_b && !is_turned(k, &other))
        other.packed = packed_once(k);
    if (cores > 1 && matrices % cores) { /* cores would have unequal numbers of matrices */
        const bool turned = is_turned(k, &other);
        const int64_t m = turned ? k->n : k->m, n = turned ? k->m : k->n;
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
