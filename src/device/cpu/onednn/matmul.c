/* Matrix products through oneDNN's matmul primitive.
 *
 * The two batch dimensions are folded into one where the strides allow, or dropped for a single
 * matrix: oneDNN then sees a 2-D, 3-D or, for attention's views into a (B, T, 3C) matrix, a 4-D
 * strided problem.
 *
 * A right-hand matrix that many products share may be packed: converted once to the layout that
 * the primitive prefers. A recurrent step of 32 samples does little besides its product:
 * packing reduces its time from 0.49 to 0.38 ms.
 *
 * If rows of the second operand are whole pages apart (as with 3072 columns in GPT-2's
 * feed-forward layer), they share a few sets of the caches, and oneDNN, which handles this only
 * for powers of two, runs at half its rate. Such an operand is copied one panel of columns at a
 * time, with rows further apart. */
#include "device/cpu/half.h"
#include "device/cpu/onednn/onednn.h"
#include "device/queue.h"

#include <string.h>

/* PAGE, PANEL, PADDING: elements of f32 in a page, in a panel, and between its rows. LONGEST:
 * most rows of a copied operand. WORTH_A_COPY: rows of the first operand from which on the copy
 * pays. */
enum { PAGE = 1024, PANEL = 512, PADDING = 16, LONGEST = 8192, WORTH_A_COPY = 48 };

typedef struct problem {
    int64_t kind, batch0, batch1, m, n, k, dtype, wide, bias, accumulate;
    int64_t a[4], b[4], c[4]; /* strides: batch0, batch1, row, column */
} problem;

/* Merges two batch dimensions that form one run; then batch0 is 1. */
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

static problem problem_of(int kind, const choir__k_matmul *k)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.batch0 = k->batch0, p.batch1 = k->batch1, p.m = k->m, p.n = k->n, p.k = k->k;
    p.dtype = k->dtype, p.bias = k->bias != NULL, p.accumulate = k->accumulate,
    p.wide = k->wide;
    memcpy(p.a, (int64_t[]){k->a_batch0, k->a_batch1, k->a_row, k->a_col}, sizeof p.a);
    memcpy(p.b, (int64_t[]){k->b_batch0, k->b_batch1, k->b_row, k->b_col}, sizeof p.b);
    memcpy(p.c, (int64_t[]){k->c_batch0, k->c_batch1, k->c_row, 1}, sizeof p.c);
    fold_batches(&p);
    return p;
}

static bool describe(dnnl_memory_desc_t *md, choir_dtype dtype, int ndims, const problem *p,
    int64_t rows, int64_t cols, const int64_t stride[4])
{
    const int64_t dims[4] = {p->batch0, p->batch1, rows, cols};
    return choir__onednn_describe(md, dtype, ndims, dims + 4 - ndims, stride + 4 - ndims);
}

enum { MATMUL = 1, PACKED }; /* kinds of problems: PACKED has B in oneDNN's layout */

/* Makes the primitive's description; accumulate: C += A B + bias. */
static bool describe_matmul(choir__onednn *cache, const problem *p,
    const dnnl_matmul_desc_t *desc, dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    bool ok = true;
    if (p->accumulate)
        ok = !choir__dnnl.primitive_attr_clone(&attr, choir__onednn_attr(cache)) &&
             !choir__dnnl.post_ops_create(&ops) && !choir__dnnl.post_ops_append_sum(ops, 1) &&
             !choir__dnnl.primitive_attr_set_post_ops(attr, ops);
    *pd = ok ? choir__onednn_fast(cache, desc, attr ? attr : choir__onednn_attr(cache), NULL)
             : NULL;
    if (ops)
        choir__dnnl.post_ops_destroy(ops);
    if (attr)
        choir__dnnl.primitive_attr_destroy(attr);
    return *pd != NULL;
}

/* Makes the reorder from plain B to the primitive's layout. */
static bool build_reorder(choir__onednn *cache, choir__onednn_plan *plan,
    const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *packed)
{
    dnnl_primitive_desc_t pd;
    dnnl_engine_t engine = choir__onednn_engine(cache);
    plan->bytes[0] = (choir__dnnl.memory_desc_get_size(packed) + 63) & ~(size_t)63;
    return !choir__dnnl.reorder_primitive_desc_create(
               &pd, plain, engine, packed, engine, choir__onednn_attr(cache)) &&
           choir__onednn_build(cache, &plan->reorder[0], pd, 2,
               (int[]){DNNL_ARG_FROM, DNNL_ARG_TO},
               (const dnnl_memory_desc_t *[]){plain, packed});
}

static void build(choir__onednn *cache, choir__onednn_plan *plan, const void *what)
{
    const problem *p = what;
    int ndims = p->batch0 > 1 ? 4 : p->batch1 > 1 ? 3 : 2;
    dnnl_memory_desc_t a, b, c, bias, plain;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    problem row = *p;
    row.batch0 = row.batch1 = 1;
    choir_dtype dtype = (choir_dtype)p->dtype;
    if (!describe(&a, dtype, ndims, p, p->m, p->k, p->a) ||
        !describe(&plain, dtype, ndims, p, p->k, p->n, p->b) ||
        !choir__onednn_describe(&b, (choir_dtype)p->dtype, ndims, plain.dims,
            p->kind == PACKED ? NULL : plain.format_desc.blocking.strides) ||
        !describe(&c, p->wide ? CHOIR_F32 : dtype, ndims, p, p->m, p->n, p->c) ||
        !describe(&bias, CHOIR_F32, ndims, &row, 1, p->n, (int64_t[]){p->n, p->n, p->n, 1}) ||
        choir__dnnl.matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c) ||
        !describe_matmul(cache, p, &desc, &pd))
        return;
    const dnnl_memory_desc_t *operands[] = {&a, &plain, &c, &bias};
    for (int i = 0; i < 3 + (p->bias != 0); i++)
        plan->plain[i] = choir__dnnl.memory_desc_get_size(operands[i]);
    b = *choir__dnnl.primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    bool same = choir__dnnl.memory_desc_equal(&b, &plain);
    if (choir__onednn_build(cache, &plan->op, pd, p->bias ? 4 : 3,
            (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
            (const dnnl_memory_desc_t *[]){&a, &b, &c, &bias}) &&
        !same && !build_reorder(cache, plan, &plain, &b))
        plan->op.primitive = NULL; /* the rest is small and kept until the cache is freed */
}

/* Packs B if the plan needs that, and multiplies. */
static bool execute(choir__onednn *cache, choir__onednn_plan *plan, const void *what,
    void *const data[4], char *scratch)
{
    void *inner[] = {data[0], data[1], data[2], data[3]};
    choir__onednn_op *reorder = &plan->reorder[0];
    (void)what;
    if (reorder->primitive) {
        inner[1] = scratch;
        scratch += plan->bytes[0];
        if (!choir__onednn_run(cache, reorder, (void *[]){data[1], inner[1]}, scratch))
            return false;
    }
    return choir__onednn_run(cache, &plan->op, inner, scratch);
}

static const choir__onednn_kind plans = {build, execute};

static choir__onednn_plan *plan_of(choir__onednn *cache, const problem *p)
{
    bool fresh;
    choir__onednn_plan *plan = choir__onednn_lookup(cache, p, sizeof *p, &fresh);
    if (fresh)
        choir__onednn_settle(cache, plan, &plans, p);
    return plan;
}

static void failed(const choir__k_matmul *k)
{
    choir__queue_fail(CHOIR_ERR_INTERNAL,
        "matmul: oneDNN failed on (%lld, %lld) by (%lld, %lld)", (long long)k->m,
        (long long)k->k, (long long)k->k, (long long)k->n);
}

static bool run(const choir__k_matmul *k)
{
    choir__cpu_context *context = choir__cpu_context_current();
    choir__onednn *cache = choir__cpu_context_onednn(context);
    problem p = problem_of(MATMUL, k);
    choir__onednn_plan *plan = plan_of(cache, &p);
    if (!plan->op.primitive)
        return false;
    void *data[] = {(void *)k->a, (void *)k->b, k->c, (void *)k->bias};
    if (!choir__onednn_run(
            cache, &plan->op, data, choir__cpu_scratch(context, plan->op.scratchpad)))
        failed(k);
    return true;
}

bool choir__onednn_pack(choir__onednn_packed *p, const choir__k_matmul *k, size_t extra)
{
    choir__cpu_context *context = choir__cpu_context_current();
    choir__onednn *cache = choir__cpu_context_onednn(context);
    problem key = problem_of(PACKED, k);
    choir__onednn_plan *plan = plan_of(cache, &key);
    if (!plan->op.primitive)
        return false;
    choir__onednn_op *reorder = &plan->reorder[0];
    extra = (extra + 63) & ~(size_t)63;
    size_t most =
        plan->op.scratchpad > reorder->scratchpad ? plan->op.scratchpad : reorder->scratchpad;
    char *scratch = choir__cpu_scratch(context, extra + plan->bytes[0] + most);
    bool reordered = reorder->primitive;
    *p = (choir__onednn_packed){.cache = cache,
        .op = &plan->op,
        .b = reordered ? scratch + extra : (void *)k->b,
        .extra = scratch,
        .scratchpad = scratch + extra + plan->bytes[0]};
    if (reordered &&
        !choir__onednn_run(cache, reorder, (void *[]){(void *)k->b, p->b}, p->scratchpad))
        failed(k);
    return true;
}

void choir__onednn_matmul_packed(const choir__onednn_packed *p, const choir__k_matmul *k)
{
    void *data[] = {(void *)k->a, p->b, k->c, (void *)k->bias};
    if (!choir__onednn_run(p->cache, p->op, data, p->scratchpad))
        failed(k);
}

static bool rows_collide(const choir__k_matmul *k)
{
    return k->dtype == CHOIR_F32 && k->batch0 * k->batch1 == 1 && k->b_col == 1 &&
           k->b_row % PAGE == 0 && (k->b_row & (k->b_row - 1)) && k->m >= WORTH_A_COPY &&
           k->n > PANEL && k->k <= LONGEST;
}

static bool run_panels(const choir__k_matmul *k)
{
    choir__cpu_context *context = choir__cpu_context_current();
    const int64_t row = PANEL + PADDING;
    float *panel = choir__cpu_panel(context, (size_t)k->k * (size_t)row * sizeof *panel);
    for (int64_t first = 0; first < k->n; first += PANEL) {
        choir__k_matmul part = *k;
        part.n = choir__min(PANEL, k->n - first);
        for (int64_t i = 0; i < k->k; i++)
            memcpy(panel + i * row, (const float *)k->b + i * k->b_row + first,
                (size_t)part.n * sizeof *panel);
        part.b = panel;
        part.b_row = row;
        part.c = (float *)k->c + first;
        part.bias = k->bias ? (const float *)k->bias + first : NULL;
        if (run(&part))
            continue;
        if (!first)
            return false;
        failed(&part); /* oneDNN took the parts before it */
    }
    return true;
}

bool choir__onednn_matmul(const choir__k_matmul *k)
{
    bool offered = k->dtype == CHOIR_F32 || choir__half_products(k->dtype);
    if (!offered || k->k == 0)
        return false;
    if (k->batch0 == 0 || k->batch1 == 0 || k->m == 0 || k->n == 0)
        return true;
    return rows_collide(k) ? run_panels(k) : run(k);
}
