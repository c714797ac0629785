/* PowerSGD (Vogels et al., 2019). A gradient M (n, m) is sent as its product with r vectors:
 *
 *     M_w = gradient of rank w + the error of the previous step       (error feedback)
 *     P = sum_w M_w Q, orthogonalised        one all-reduce, with the gradients sent exactly
 *     Q = mean_w M_w' P                      a second all-reduce
 *     result = P Q',  error: M_w - result
 *
 * Q comes from the previous step, orthogonalised: a power iteration that continues from step to
 * step. A vector of Q that has become zero (its gradient was zero) is drawn again.
 *
 * P is stored as (r, n) and Q as (r, m), so that all loops run along rows of M. All state
 * changes on the group's queue, so a recorded step continues where the previous one ended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/rng.h"
#include "comm/reduce.h"
#include "parallel/ddp/ddp.h"

/* The state of a gradient from step to step, in whichever bucket it is. */
typedef struct memory {
    const char *name;
    int use; /* ordinal of the gradient among the gradients of this name */
    float *q, *error;
    uint64_t drawn; /* how often q has been drawn */
    struct memory *next;
} memory;

/* A gradient in a bucket, and its position in the scratch array. */
typedef struct matrix {
    memory *memory; /* NULL: it is sent exactly */
    int64_t at, n, m, r;
    int64_t to, q_to; /* position of P, or of the gradient; position of Q */
} matrix;

typedef struct plan {
    unsigned layout;
    matrix *matrices;
    int count, compressed;
    int64_t first, second; /* elements of the two all-reduces */
} plan;

typedef struct powersgd {
    choir_powersgd_opts opts;
    plan *plans; /* (plan_count) by bucket */
    int plan_count;
    memory *memories;
    int64_t step; /* the current step, from 0 */
} powersgd;

typedef struct work {
    choir_ddp_bucket bucket;
    powersgd *powersgd;
    const plan *plan;
    float *scratch; /* [exact gradients and Ps | Qs] */
    int world;
} work;

/* --- vectors --- */

static void draw(const powersgd *g, memory *s, int64_t vector, float *q, int64_t m)
{
    uint64_t key = choir__mix(choir__rng_key(g->opts.seed, s->name), s->drawn);
    for (int64_t i = 0; i < m; i++) {
        uint32_t bits[4];
        choir__philox(key, (uint64_t)vector, (uint64_t)i, bits);
        double one, other;
        choir__normal_pair(
            1 - (double)choir__unit(bits[0]), (double)choir__unit(bits[1]), &one, &other);
        q[i] = (float)one;
    }
}

static double dot_wide(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Uses 16 lanes, which are added in order. */
static float dot(const float *a, const float *b, int64_t n)
{
    enum { LANES = 16 };
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        lane[i % LANES] += a[i] * b[i];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static void add_times(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Subtracts from v (n) its projection on the k vectors before it, and scales it to length 1.
 * Returns false if nothing is left. A second round removes what cancellation left in the
 * first. */
static bool orthogonalise_one(float *v, const float *before, int64_t k, int64_t n)
{
    double length = sqrt(dot_wide(v, v, n)), left = length;
    for (int round = 0; round < 2; round++) {
        for (int64_t j = 0; j < k; j++)
            add_times(v, (float)-dot_wide(v, before + j * n, n), before + j * n, n);
        left = sqrt(dot_wide(v, v, n));
        if (!(left > 1e-6 * length) || left < 1e-30) {
            if (isfinite(left)) /* a value that is not finite stays visible in the result */
                memset(v, 0, (size_t)n * sizeof *v);
            return false;
        }
        for (int64_t i = 0; i < n; i++)
            v[i] = (float)((double)v[i] / left);
        length = 1;
    }
    return true;
}

/* --- the three parts of the work --- */

static void prepare_q(const work *w, const matrix *x)
{
    memory *s = x->memory;
    bool fresh = !w->powersgd->opts.warm_start || !s->drawn;
    if (fresh)
        s->drawn++;
    for (int64_t k = 0; k < x->r; k++) {
        float *v = s->q + k * x->m;
        if (fresh)
            draw(w->powersgd, s, k, v, x->m);
        if (orthogonalise_one(v, s->q, k, x->m) || fresh)
            continue;
        s->drawn++;
        draw(w->powersgd, s, k, v, x->m);
        orthogonalise_one(v, s->q, k, x->m);
    }
}

/* Replaces the gradient by M; computes P. */
static choir_status compress(const void *args)
{
    const work *w = args;
    float unit = w->bucket.scale * (float)w->world; /* the result is a mean over ranks */
    for (int i = 0; i < w->plan->count; i++) {
        const matrix *x = &w->plan->matrices[i];
        float *m = w->bucket.data + x->at, *to = w->scratch + x->to;
        if (!x->memory) {
            memcpy(to, m, (size_t)x->m * sizeof *m);
            continue;
        }
        for (int64_t j = 0; j < x->n * x->m; j++)
            m[j] = m[j] * unit + (x->memory->error ? x->memory->error[j] : 0);
        prepare_q(w, x);
        for (int64_t row = 0; row < x->n; row++)
            for (int64_t k = 0; k < x->r; k++)
                to[k * x->n + row] = dot(m + row * x->m, x->memory->q + k * x->m, x->m);
    }
    return CHOIR_OK;
}

/* Orthogonalises P; computes Q. */
static choir_status project(const void *args)
{
    const work *w = args;
    for (int i = 0; i < w->plan->count; i++) {
        const matrix *x = &w->plan->matrices[i];
        const float *m = w->bucket.data + x->at;
        float *p = w->scratch + x->to, *q = w->scratch + x->q_to;
        if (!x->memory)
            continue;
        for (int64_t k = 0; k < x->r; k++)
            orthogonalise_one(p + k * x->n, p, k, x->n);
        memset(q, 0, (size_t)(x->r * x->m) * sizeof *q);
        for (int64_t row = 0; row < x->n; row++)
            for (int64_t k = 0; k < x->r; k++)
                add_times(q + k * x->m, p[k * x->n + row], m + row * x->m, x->m);
    }
    return CHOIR_OK;
}

static void decompress_one(const work *w, const matrix *x)
{
    float *m = w->bucket.data + x->at, *error = x->memory->error, *q = x->memory->q;
    const float *p = w->scratch + x->to, *sum = w->scratch + x->q_to;
    for (int64_t j = 0; j < x->r * x->m; j++)
        q[j] = sum[j] / (float)w->world;
    if (error)
        memcpy(error, m, (size_t)(x->n * x->m) * sizeof *m);
    memset(m, 0, (size_t)(x->n * x->m) * sizeof *m);
    for (int64_t row = 0; row < x->n; row++)
        for (int64_t k = 0; k < x->r; k++)
            add_times(m + row * x->m, p[k * x->n + row], q + k * x->m, x->m);
    for (int64_t j = 0; error && j < x->n * x->m; j++)
        error[j] -= m[j];
}

/* Computes the result and the error. */
static choir_status decompress(const void *args)
{
    const work *w = args;
    for (int i = 0; i < w->plan->count; i++) {
        const matrix *x = &w->plan->matrices[i];
        if (x->memory) {
            decompress_one(w, x);
            continue;
        }
        float *y = w->bucket.data + x->at;
        memcpy(y, w->scratch + x->to, (size_t)x->m * sizeof *y);
        choir__arith_find(CHOIR_F32, CHOIR_SUM)->rescale(y, x->m, (double)w->bucket.scale, 1);
    }
    return CHOIR_OK;
}

/* --- plans --- */

static memory *recall(powersgd *g, const char *name, int use, const matrix *x)
{
    for (memory *s = g->memories; s; s = s->next)
        if (s->use == use && !strcmp(s->name, name))
            return s;
    memory *s = choir__calloc(1, sizeof *s);
    s->name = name;
    s->use = use;
    s->q = choir__calloc((size_t)(x->r * x->m), sizeof *s->q);
    if (g->opts.error_feedback)
        s->error = choir__calloc((size_t)(x->n * x->m), sizeof *s->error);
    s->next = g->memories;
    g->memories = s;
    return s;
}

static bool worth_it(const powersgd *g, const choir_ddp_entry *e, matrix *x)
{
    if (!e->rows || e->shape.ndim < 2)
        return false;
    *x = (matrix){.at = e->at, .n = e->shape.dim[0], .m = e->count / e->shape.dim[0]};
    x->r = choir__min(choir__min(x->n, x->m), g->opts.rank);
    return (double)(x->n + x->m) * (double)x->r * g->opts.min_rate <
           (double)x->n * (double)x->m;
}

static void make_plan(powersgd *g, const choir_ddp_bucket *b, plan *p)
{
    free(p->matrices);
    *p = (plan){.layout = b->layout, .count = b->entry_count};
    p->matrices = choir__calloc((size_t)p->count + 1, sizeof *p->matrices);
    for (int i = 0; i < p->count; i++) {
        const choir_ddp_entry *e = &b->entries[i];
        matrix x;
        if (worth_it(g, e, &x)) {
            int use = 0;
            for (int j = 0; j < i; j++)
                use += b->entries[j].name == e->name;
            x.memory = recall(g, e->name, use, &x);
            x.to = p->first;
            x.q_to = p->second;
            p->first += x.n * x.r;
            p->second += x.m * x.r;
            p->compressed++;
        } else {
            x = (matrix){.at = e->at, .m = e->count, .to = p->first};
            p->first += e->count;
        }
        p->matrices[i] = x;
    }
    p->first = (p->first + 15) / 16 * 16;
    for (int i = 0; i < p->count; i++)
        p->matrices[i].q_to += p->first;
}

/* The queue's work points to plans, so every bucket has a plan before the first work is issued.
 */
static plan *plan_for(powersgd *g, const choir_ddp_bucket *b)
{
    if (b->buckets > g->plan_count) {
        size_t n = (size_t)b->buckets;
        g->plans = choir__realloc(g->plans, n * sizeof *g->plans);
        memset(g->plans + g->plan_count, 0, (n - (size_t)g->plan_count) * sizeof *g->plans);
        g->plan_count = b->buckets;
    }
    plan *p = &g->plans[b->index];
    if (p->layout != b->layout)
        make_plan(g, b, p);
    return p;
}

/* --- the hook --- */

static choir_status issue(powersgd *g, const choir_ddp_bucket *b, plan *p)
{
    choir_work done;
    void *scratch;
    work w = {.bucket = *b, .powersgd = g, .plan = p, .world = choir_group_world(b->group)};
    choir_status status = choir__group_scratch(
        b->group, (size_t)(p->first + p->second) * sizeof(float), &scratch);
    if (status != CHOIR_OK)
        return status;
    w.scratch = scratch;
    status = choir_group_call(b->group, compress, &w, sizeof w, &done);
    if (status == CHOIR_OK)
        status =
            choir_group_all_reduce(b->group, w.scratch, p->first, CHOIR_F32, CHOIR_SUM, &done);
    if (status == CHOIR_OK)
        status = choir_group_call(b->group, project, &w, sizeof w, &done);
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(
            b->group, w.scratch + p->first, p->second, CHOIR_F32, CHOIR_SUM, &done);
    if (status == CHOIR_OK)
        status = choir_group_call(b->group, decompress, &w, sizeof w, &done);
    return status;
}

static choir_status hook(const choir_ddp_bucket *b, void *arg)
{
    powersgd *g = arg;
    int64_t step = g->step;
    if (b->index == b->buckets - 1)
        g->step++;
    if (step < g->opts.start_step)
        return choir_ddp_all_reduce(b, NULL);
    plan *p = plan_for(g, b);
    return p->compressed ? issue(g, b, p) : choir_ddp_all_reduce(b, NULL);
}

/* --- setup --- */

static void free_powersgd(void *arg)
{
    powersgd *g = arg;
    for (int i = 0; i < g->plan_count; i++)
        free(g->plans[i].matrices);
    for (memory *s = g->memories, *next; s; s = next) {
        next = s->next;
        free(s->q);
        free(s->error);
        free(s);
    }
    free(g->plans);
    free(g);
}

choir_powersgd_opts choir_powersgd_defaults(void)
{
    return (choir_powersgd_opts){.rank = 1,
        .start_step = 1000,
        .warm_start = true,
        .error_feedback = true,
        .min_rate = 2};
}

choir_status choir_ddp_powersgd(choir_module *ddp, choir_powersgd_opts opts)
{
    if (opts.rank < 1 || opts.start_step < 0 || !(opts.min_rate > 0))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_ddp_powersgd: expected a rank of 1 or more, a first step of 0 or more "
            "and a rate above 0, got %d, %lld and %g; begin with choir_powersgd_defaults()",
            opts.rank, (long long)opts.start_step, opts.min_rate);
    choir__ddp *d;
    choir_status found = choir__ddp_of(ddp, "choir_ddp_powersgd", &d);
    if (found == CHOIR_OK && d->part_count > 1)
        found = choir__error(CHOIR_ERR_UNSUPPORTED,
            "choir_ddp_powersgd: expected parameters on one device, got %d devices",
            d->part_count);
    if (found != CHOIR_OK)
        return found;
    powersgd *g = choir__calloc(1, sizeof *g);
    g->opts = opts;
    choir_status status = choir_ddp_set_hook(ddp, hook, g);
    if (status != CHOIR_OK) {
        free(g);
        return status;
    }
    /* A recorded step does not change, so recording starts only after compression has begun and
     * has made its state. */
    if (choir__run_of(ddp->run)->warm_up < opts.start_step + 2)
        choir__run_of(ddp->run)->warm_up = opts.start_step + 2;
    choir__on_end(ddp->run, free_powersgd, g);
    return CHOIR_OK;
}
