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
    float *slabs;
    int64_t slab; /* elements from one slab to the next */
    char *a, *b;  /* room for copies of a leaf's terms */
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

typedef void multiply_fn(const choir__k_matmul *k);

/* Computes leaf l into a slab. */
static void multiply_leaf(const cut_product *p, int64_t l, float *slab, multiply_fn *multiply)
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

/* Adds the slab to the one below it. */
static void add_below(const cut_product *p, float *slab)
{
    float *below = slab - p->slab;
    for (int64_t i = 0; i < p->k.m * p->k.n; i++)
        below[i] += slab[i];
}

/* Adds the bias and the old C to a row of sums, rounded to C's type. at: the row in C. */
static void end_row(const choir__k_matmul *k, int64_t at, const float *sums)
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

static void multiply_matrix(const cut_product *p, multiply_fn *multiply)
{
    const choir__k_matmul *k = &p->k;
    float *top = p->slabs; /* above the last slab in use */
    for (int64_t l = 0; l < p->leaves; l++, top += p->slab) {
        multiply_leaf(p, l, top, multiply);
        for (int64_t ones = l; ones & 1; ones >>= 1, top -= p->slab)
            add_below(p, top);
    }
    for (top -= p->slab; top > p->slabs; top -= p->slab)
        add_below(p, top);
    for (int64_t i = 0; i < k->m; i++)
        end_row(k, i * k->c_row, p->slabs + i * k->n);
}

void choir__cut_matmul(const choir__k_matmul *k, multiply_fn *multiply)
{
    const choir__node node = choir__cut_node(k->cut, k->node);
    const int64_t outer = choir__cut_outer(k->cut), each = (int64_t)choir_dtype_size(k->dtype);
    const int64_t of_c = k->wide ? (int64_t)sizeof(float) : each;
    const int64_t terms = outer > 1 ? (k->k / outer / k->cut.leaves + 1) * outer : 0;
    cut_product p = {.k = *k, .first = node.start, .leaves = node.leaves, .each = (size_t)each};
    int64_t slabs = 1;
    for (int64_t l = node.leaves; l > 1; l = (l + 1) / 2)
        slabs++;
    p.slab = (k->m * k->n + 15) & ~INT64_C(15);
    p.slabs = choir__cpu_workspace(choir__cpu_context_current(),
        (size_t)(slabs * p.slab) * sizeof(float) + (size_t)((k->m + k->n) * terms * each));
    p.a = (char *)(p.slabs + slabs * p.slab);
    p.b = p.a + k->m * terms * each;
    p.k.batch0 = p.k.batch1 = 1;
    for (int64_t i = 0; i < k->batch0; i++)
        for (int64_t j = 0; j < k->batch1; j++) {
            p.k.a = (const char *)k->a + (i * k->a_batch0 + j * k->a_batch1) * each;
            p.k.b = (const char *)k->b + (i * k->b_batch0 + j * k->b_batch1) * each;
            p.k.c = (char *)k->c + (i * k->c_batch0 + j * k->c_batch1) * of_c;
            multiply_matrix(&p, multiply);
        }
}
