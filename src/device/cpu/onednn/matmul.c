/* Matrix products through oneDNN's matmul primitive.
 *
 * The two batch dimensions are folded into one where the strides allow, or dropped where there
 * is one matrix: oneDNN then sees a 2-D, 3-D or, for attention's views into a (B, T, 3C)
 * matrix, a 4-D strided problem. */
#include "device/cpu/onednn/onednn.h"
#include "device/queue.h"

#include <string.h>

typedef struct problem {
    int64_t kind, batch0, batch1, m, n, k, dtype, bias;
    int64_t a[4], b[4], c[4]; /* strides: batch0, batch1, row, column */
} problem;

/* One batch dimension where two are one run; then batch0 is 1. */
static void fold_batches(problem *p)
{
    if (p->batch1 == 1) {
        p->batch1 = p->batch0;
        p->a[1] = p->a[0], p->b[1] = p->b[0], p->c[1] = p->c[0];
        p->batch0 = 1;
    } else if (p->batch0 > 1 && p->a[0] == p->a[1] * p->batch1 &&
               p->b[0] == p->b[1] * p->batch1 && p->c[0] == p->c[1] * p->batch1) {
        p->batch1 *= p->batch0;
        p->batch0 = 1;
    }
    if (p->batch0 == 1)
        p->a[0] = p->b[0] = p->c[0] = 0;
    if (p->batch0 == 1 && p->batch1 == 1)
        p->a[1] = p->b[1] = p->c[1] = 0;
}

static problem problem_of(const choir__k_matmul *k)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.kind = 1;
    p.batch0 = k->batch0, p.batch1 = k->batch1, p.m = k->m, p.n = k->n, p.k = k->k;
    p.dtype = k->dtype, p.bias = k->bias != NULL;
    memcpy(p.a, (int64_t[]){k->a_batch0, k->a_batch1, k->a_row, k->a_col}, sizeof p.a);
    memcpy(p.b, (int64_t[]){k->b_batch0, k->b_batch1, k->b_row, k->b_col}, sizeof p.b);
    memcpy(p.c, (int64_t[]){k->c_batch0, k->c_batch1, k->c_row, 1}, sizeof p.c);
    fold_batches(&p);
    return p;
}

static bool describe(dnnl_memory_desc_t *md, int ndims, const problem *p, int64_t rows,
    int64_t cols, const int64_t stride[4])
{
    const int64_t dims[4] = {p->batch0, p->batch1, rows, cols};
    return choir__onednn_describe(
        md, (choir_dtype)p->dtype, ndims, dims + 4 - ndims, stride + 4 - ndims);
}

static void build(choir__onednn *cache, choir__onednn_plan *plan, const problem *p)
{
    int ndims = p->batch0 > 1 ? 4 : p->batch1 > 1 ? 3 : 2;
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    problem row = *p;
    row.batch0 = row.batch1 = 1;
    if (!describe(&a, ndims, p, p->m, p->k, p->a) ||
        !describe(&b, ndims, p, p->k, p->n, p->b) ||
        !describe(&c, ndims, p, p->m, p->n, p->c) ||
        !describe(&bias, ndims, &row, 1, p->n, (int64_t[]){p->n, p->n, p->n, 1}) ||
        dnnl_matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c) ||
        dnnl_primitive_desc_create(
            &pd, &desc, choir__onednn_attr(cache), choir__onednn_engine(cache), NULL))
        return;
    choir__onednn_build(cache, &plan->op, pd, p->bias ? 4 : 3,
        (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        (const dnnl_memory_desc_t *[]){&a, &b, &c, &bias});
}

void choir__onednn_matmul(const choir__k_matmul *k)
{
    if ((k->dtype != CHOIR_F32 && k->dtype != CHOIR_BF16) || k->k == 0) {
        choir__cpu_reference.matmul(k);
        return;
    }
    if (k->batch0 == 0 || k->batch1 == 0 || k->m == 0 || k->n == 0)
        return;
    choir__cpu_context *context = choir__cpu_context_current();
    choir__onednn *cache = choir__cpu_context_onednn(context);
    problem p = problem_of(k);
    bool fresh;
    choir__onednn_plan *plan = choir__onednn_lookup(cache, &p, sizeof p, &fresh);
    if (fresh)
        build(cache, plan, &p);
    if (!plan->op.primitive) { /* bf16 on a machine without it */
        choir__cpu_reference.matmul(k);
        return;
    }
    void *data[] = {(void *)k->a, (void *)k->b, k->c, (void *)k->bias};
    if (!choir__onednn_run(
            cache, &plan->op, data, choir__cpu_scratch(context, plan->op.scratchpad)))
        choir__queue_fail(CHOIR_ERR_INTERNAL,
            "matmul: oneDNN failed on (%lld, %lld) by (%lld, %lld)", (long long)k->m,
            (long long)k->k, (long long)k->k, (long long)k->n);
}
