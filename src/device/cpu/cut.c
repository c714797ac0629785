/* Products whose K is cut, leaf by leaf: a product into a slab of f32 (f64), the fixed tree
 * over slabs, then bias, old C and one rounding.
 *
 * Slabs are a stack, as of the tree's nodes: leaf l is added to as many slabs below it as l
 * ends in ones, and those that are left at the end from the right. If a leaf has runs of
 * several blocks, its operands are copied first, so that their terms are evenly apart. */
#include "device/cpu/cut.h"

#include "base/half.h"
#include "device/cpu/context.h"

/* One matrix of the batch. */
typedef struct cut_product {
    choir__k_matmul k;
    int64_t first, leaves; /* the node */
    size_t each;           /* bytes of an element of operands */
    bool f64;
    char *slabs, *a, *b; /* room; a, b: copies of a leaf's terms */
    size_t slab;         /* bytes of a slab */
} cut_product;

/* to (entries, terms) = the runs [lo, hi) of each of `outer` blocks of `block` terms. */
static void gather(char *to, const char *from, size_t each, int64_t entries, int64_t apart,
    int64_t next, int64_t outer, int64_t block, int64_t lo, int64_t hi)
{
    for (int64_t i = 0; i < entries; i++)
        for (int64_t o = 0; o < outer; o++) {
            const char *x = from + (i * apart + (o * block + lo) * next) * (int64_t)each;
            for (int64_t l = lo; l < hi; l++, to += each, x += next * (int64_t)each)
                memcpy(to, x, each);
        }
}

/* Computes leaf l into a slab. */
static void multiply_leaf(
    const cut_product *p, int64_t l, char *slab, void (*multiply)(const choir__k_matmul *leaf))
{
    const choir__k_matmul *k = &p->k;
    const int64_t outer = choir__cut_outer(k->cut), block = k->k / outer;
    int64_t lo, hi;
    choir__cut_leaf(k->cut, k->k, p->first + l, &lo, &hi);
    choir__k_matmul leaf = *k;
    leaf.cut = (choir__cut){0, 0}, leaf.node = (choir__node){0, 0};
    leaf.bias = NULL, leaf.accumulate = false, leaf.wide = true;
    leaf.c = slab, leaf.c_row = k->n;
    leaf.k = outer * (hi - lo);
    if (outer > 1) {
        gather(p->a, k->a, p->each, k->m, k->a_row, k->a_col, outer, block, lo, hi);
        gather(p->b, k->b, p->each, k->n, k->b_col, k->b_row, outer, block, lo, hi);
        leaf.a = p->a, leaf.a_row = leaf.k, leaf.a_col = 1;
        leaf.b = p->b, leaf.b_row = 1, leaf.b_col = leaf.k;
    } else {
        leaf.a = (const char *)k->a + lo * k->a_col * (int64_t)p->each;
        leaf.b = (const char *)k->b + lo * k->b_row * (int64_t)p->each;
    }
    multiply(&leaf);
}

/* left += right, n elements */
static void add(char *left, const char *right, int64_t n, bool f64)
{
    for (int64_t i = 0; i < n; i++)
        if (f64)
            ((double *)left)[i] += ((const double *)right)[i];
        else
            ((float *)left)[i] += ((const float *)right)[i];
}

/* Adds the bias and the old C to a row of sums in f64, rounded once or to C's type. */
static void end_f64(const choir__k_matmul *k, double *c, const double *sums)
{
    const double *bias = k->bias;
    for (int64_t j = 0; j < k->n; j++) {
        const double sum = bias ? sums[j] + bias[j] : sums[j];
        c[j] = k->accumulate ? c[j] + sum : sum;
    }
}

static void end_f32(const choir__k_matmul *k, int64_t at, const float *sums)
{
    const float *bias = k->bias;
    const bool narrow = k->dtype != CHOIR_F32 && !k->wide, bf16 = k->dtype == CHOIR_BF16;
    float *wide = (float *)k->c + at;
    uint16_t *half = (uint16_t *)k->c + at;
    for (int64_t j = 0; j < k->n; j++) {
        float sum = bias ? sums[j] + bias[j] : sums[j];
        if (!narrow) {
            wide[j] = k->accumulate ? wide[j] + sum : sum;
            continue;
        }
        if (k->accumulate)
            sum = (bf16 ? choir__f32_from_bf16 : choir__f32_from_f16)(half[j]) + sum;
        half[j] = (bf16 ? choir__bf16_from_f32 : choir__f16_from_f32)(sum);
    }
}

static void multiply_matrix(const cut_product *p, void (*multiply)(const choir__k_matmul *leaf))
{
    const choir__k_matmul *k = &p->k;
    char *top = p->slabs; /* above the last slab in use */
    for (int64_t l = 0; l < p->leaves; l++, top += p->slab) {
        multiply_leaf(p, l, top, multiply);
        for (int64_t ones = l; ones & 1; ones >>= 1, top -= p->slab)
            add(top - p->slab, top, k->m * k->n, p->f64);
    }
    for (top -= p->slab; top > p->slabs; top -= p->slab)
        add(top - p->slab, top, k->m * k->n, p->f64);
    for (int64_t i = 0; i < k->m; i++)
        if (p->f64)
            end_f64(k, (double *)k->c + i * k->c_row, (const double *)p->slabs + i * k->n);
        else
            end_f32(k, i * k->c_row, (const float *)p->slabs + i * k->n);
}

void choir__cut_matmul(const choir__k_matmul *k, void (*multiply)(const choir__k_matmul *leaf))
{
    const choir__node node = choir__cut_node(k->cut, k->node);
    const bool f64 = k->dtype == CHOIR_F64, copies = choir__cut_outer(k->cut) > 1;
    const size_t each = choir_dtype_size(k->dtype), sum = f64 ? sizeof(double) : sizeof(float);
    const size_t of_c = k->wide || f64 ? sum : each;
    cut_product p = {.k = *k, .first = node.start, .leaves = node.leaves, .each = each};
    int64_t slabs = 1;
    for (int64_t l = node.leaves; l > 1; l = (l + 1) / 2)
        slabs++;
    const int64_t outer = choir__cut_outer(k->cut);
    const size_t most = (size_t)(k->k / outer / choir__max(1, k->cut.leaves) + 1) *
                        (size_t)outer * each; /* bytes of an entry's terms in a leaf */
    p.f64 = f64;
    p.slab = ((size_t)(k->m * k->n) * sum + 63) & ~(size_t)63;
    const size_t a = ((size_t)k->m * most + 63) & ~(size_t)63;
    p.slabs = choir__cpu_workspace(choir__cpu_context_current(),
        (size_t)slabs * p.slab + (copies ? a + (size_t)k->n * most : 0));
    p.a = p.slabs + (size_t)slabs * p.slab;
    p.b = p.a + a;
    for (int64_t i = 0; i < k->batch0; i++)
        for (int64_t j = 0; j < k->batch1; j++) {
            p.k.a = (const char *)k->a + (i * k->a_batch0 + j * k->a_batch1) * (int64_t)each;
            p.k.b = (const char *)k->b + (i * k->b_batch0 + j * k->b_batch1) * (int64_t)each;
            p.k.c = (char *)k->c + (i * k->c_batch0 + j * k->c_batch1) * (int64_t)of_c;
            p.k.batch0 = p.k.batch1 = 1;
            multiply_matrix(&p, multiply);
        }
}
