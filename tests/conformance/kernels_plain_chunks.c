/* Sums over rows whose rows are cut into leaves: the tree of the leaves' own sums. And
 * attention cut into chunks (device/kernels/attention.h): one call for all chunks gives the
 * bits of a call per pair of chunks, combined in the order that is written there, on every
 * instruction set; and the numbers of attention without chunks, on the tokens in their own
 * order. */
#include "conformance/harness.h"

typedef struct chunk_case {
    int64_t b, h, g, t, d, chunks, window;
    bool causal, biased;
} chunk_case;

static const chunk_case cases[] = {
    {1, 1, 1, 8, 4, 4, 0, true, false},
    {2, 4, 2, 48, 17, 3, 0, true, false},
    {1, 2, 1, 300, 8, 6, 70, true, false},
    {1, 2, 2, 280, 33, 8, 0, true, true},
    {1, 3, 1, 132, 5, 4, 0, false, true},
    {2, 2, 1, 90, 16, 5, 9, true, true},
    {1, 1, 1, 512, 64, 2, 0, true, false},
};

/* The memory of one attention: each operand's heads are dense. */
typedef struct memory {
    const chunk_case *c;
    int64_t nq, nk, rows; /* elements of queries, of keys; rows of queries */
    float *q, *k, *v, *gy, *bias, *y, *lse, *delta, *gq, *gk, *gv;
} memory;

static float *zeros(int64_t n)
{
    return calloc((size_t)n + 16, sizeof(float));
}

static memory new_memory(const chunk_case *c)
{
    memory m = {.c = c, .nq = c->b * c->h * c->t * c->d, .nk = c->b * c->g * c->t * c->d};
    m.rows = c->b * c->h * c->t;
    m.q = uniform(m.nq, -2, 2), m.k = uniform(m.nk, -2, 2), m.v = uniform(m.nk, -1, 2);
    m.gy = uniform(m.nq, -1, 1);
    m.bias = c->biased ? uniform(c->b * c->t * c->t, -1, 1) : NULL;
    m.y = zeros(m.nq), m.gq = zeros(m.nq), m.gk = zeros(m.nk), m.gv = zeros(m.nk);
    m.lse = zeros(m.rows), m.delta = zeros(m.rows);
    return m;
}

/* Returns memory with m's operands, and results of its own. */
static memory with_results(const memory *m)
{
    memory r = *m;
    r.y = zeros(m->nq), r.gq = zeros(m->nq), r.gk = zeros(m->nk), r.gv = zeros(m->nk);
    r.lse = zeros(m->rows), r.delta = zeros(m->rows);
    return r;
}

static void free_results(memory *m)
{
    float *all[] = {m->y, m->gq, m->gk, m->gv, m->lse, m->delta};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        free(all[i]);
}

static void free_memory(memory *m)
{
    float *all[] = {m->q, m->k, m->v, m->gy, m->bias};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        free(all[i]);
    free_results(m);
}

static choir__k_attention call_of(const memory *m)
{
    const chunk_case *c = m->c;
    int64_t head = c->t * c->d;
    choir__heads q = {NULL, c->h * head, head, c->d}, k = {NULL, c->g * head, head, c->d};
    choir__k_attention a = {.q = q, .k = k, .v = k, .y = q, .gy = q, .gq = q, .gk = k, .gv = k};
    a.q.p = m->q, a.k.p = m->k, a.v.p = m->v, a.y.p = m->y, a.gy.p = m->gy;
    a.gq.p = m->gq, a.gk.p = m->gk, a.gv.p = m->gv, a.lse = m->lse, a.delta = m->delta;
    a.bias = (choir__attention_bias){m->bias, c->b, {c->t * c->t, 0, c->t}};
    a.n = (choir__attention_shape){.b = c->b,
        .h = c->h,
        .g = c->g,
        .t = c->t,
        .s = c->t,
        .d = c->d,
        .window = c->window,
        .scale = 0.3f,
        .causal = c->causal,
        .chunks = c->chunks};
    return a;
}

/* delta = rowsum(gy y) */
static void find_delta(memory *m)
{
    for (int64_t i = 0; i < m->rows; i++) {
        float sum = 0;
        for (int64_t c = 0; c < m->c->d; c++)
            sum += m->gy[i * m->c->d + c] * m->y[i * m->c->d + c];
        m->delta[i] = sum;
    }
}

/* --- pairs --- */

static void move(choir__heads *x, int64_t t)
{
    x->p = (float *)x->p + t * x->t;
}

/* Returns the call for a leaf of queries and a leaf of keys. */
static choir__k_attention pair_of(const memory *m, int64_t queries, int64_t keys)
{
    choir__k_attention a = call_of(m);
    int64_t n = m->c->chunks, t = m->c->t / n;
    a.n.chunks = 0, a.n.t = a.n.s = t, a.lse_row = m->c->t;
    a.n.ahead = t * (choir__chunk_of_leaf(queries, n) - choir__chunk_of_leaf(keys, n));
    choir__heads *of_queries[] = {&a.q, &a.y, &a.gy, &a.gq};
    choir__heads *of_keys[] = {&a.k, &a.v, &a.gk, &a.gv};
    for (int i = 0; i < 4; i++) {
        move(of_queries[i], queries * t);
        move(of_keys[i], keys * t);
    }
    a.lse = m->lse + queries * t, a.delta = m->delta + queries * t;
    if (m->bias)
        a.bias.p = m->bias + queries * t * m->c->t + keys * t;
    return a;
}

static void forward_by_pairs(const choir__kernels *table, memory *m)
{
    float *sums = zeros(m->rows);
    int64_t n = m->c->chunks, t = m->c->t / n;
    for (int64_t c = 0; c < n;
         c++) /* one chunk of keys after another, as they come in a ring */
        for (int64_t l = 0; l < n; l++) {
            choir__k_attention a = pair_of(m, l, choir__leaf_of_chunk(c, n));
            a.sum = sums + l * t;
            a.begun = c > 0, a.open = c + 1 < n;
            table->attention(&a);
        }
    free(sums);
}

/* Sums leaves [lo, hi) in the tree into the first of them. */
static void add_leaves(float **leaf, int64_t lo, int64_t hi, int64_t n)
{
    int64_t half = 1;
    if (hi - lo < 2)
        return;
    while (2 * half < hi - lo)
        half *= 2;
    add_leaves(leaf, lo, lo + half, n);
    add_leaves(leaf, lo + half, hi, n);
    for (int64_t i = 0; i < n; i++)
        leaf[lo][i] += leaf[lo + half][i];
}

static void backward_by_pairs(const choir__kernels *table, memory *m)
{
    int64_t n = m->c->chunks;
    float *gk[16], *gv[16];
    for (int64_t l = 0; l < n; l++) {
        gk[l] = zeros(m->nk), gv[l] = zeros(m->nk);
        for (int64_t c = 0; c < n; c++) {
            memory own = *m;
            own.gk = gk[l], own.gv = gv[l];
            choir__k_attention a = pair_of(&own, l, choir__leaf_of_chunk(c, n));
            a.begun = c > 0;
            table->attention_backward(&a);
        }
    }
    add_leaves(gk, 0, n, m->nk);
    add_leaves(gv, 0, n, m->nk);
    memcpy(m->gk, gk[0], (size_t)m->nk * sizeof(float));
    memcpy(m->gv, gv[0], (size_t)m->nk * sizeof(float));
    for (int64_t l = 0; l < n; l++)
        free(gk[l]), free(gv[l]);
}

static void same(const char *isa, const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("%s: %s %lld: %.9g by pairs, %.9g in one call", isa, what, (long long)i,
                (double)a[i], (double)b[i]);
}

static void pairs(void **state)
{
    const choir__kernels *table[MAX_TABLES];
    const char *isa[MAX_TABLES];
    int count = isa_tables(table, isa);
    for (size_t i = 0; i < CHOIR_COUNT(cases) * (size_t)count; i++) {
        const choir__kernels *kernels = table[i % (size_t)count];
        const char *name = isa[i % (size_t)count];
        memory m = new_memory(&cases[i / (size_t)count]), other = with_results(&m);
        choir__k_attention a = call_of(&m);
        kernels->attention(&a);
        forward_by_pairs(kernels, &other);
        same(name, "y", other.y, m.y, m.nq);
        same(name, "lse", other.lse, m.lse, m.rows);
        find_delta(&m);
        memcpy(other.delta, m.delta, (size_t)m.rows * sizeof(float));
        kernels->attention_backward(&a);
        backward_by_pairs(kernels, &other);
        same(name, "gq", other.gq, m.gq, m.nq);
        same(name, "gk", other.gk, m.gk, m.nk);
        same(name, "gv", other.gv, m.gv, m.nk);
        free_results(&other);
        free_memory(&m);
    }
}

/* --- the numbers --- */

/* Copies rows of x from the order of leaves to the order of tokens, or back. */
static float *in_order(const memory *m, const float *x, int64_t heads, int64_t width, bool back)
{
    int64_t n = m->c->chunks, t = m->c->t / n;
    float *y = zeros(heads * m->c->t * width);
    for (int64_t i = 0; i < heads * m->c->t; i++) {
        int64_t at = i % m->c->t, token = choir__chunk_of_leaf(at / t, n) * t + at % t;
        int64_t to = i - at + token;
        memcpy(y + (back ? i : to) * width, x + (back ? to : i) * width,
            (size_t)width * sizeof(float));
    }
    return y;
}

static void near(const char *what, const memory *m, const float *leaves, const float *tokens,
    int64_t heads, int64_t width)
{
    float *y = in_order(m, leaves, heads, width, false);
    double worst = 0, top = 1e-6;
    for (int64_t i = 0; i < heads * m->c->t * width; i++) {
        worst = fmax(worst, fabs((double)y[i] - (double)tokens[i]));
        top = fmax(top, fabs((double)tokens[i]));
    }
    if (worst > 2e-5 * top)
        fail_msg("%s: %g beside numbers up to %g", what, worst, top);
    free(y);
}

/* Returns m's operands in the order of tokens, for attention without chunks. */
static memory tokens_of(const memory *m)
{
    const chunk_case *c = m->c;
    memory t = with_results(m);
    t.q = in_order(m, m->q, c->b * c->h, c->d, false);
    t.k = in_order(m, m->k, c->b * c->g, c->d, false);
    t.v = in_order(m, m->v, c->b * c->g, c->d, false);
    t.gy = in_order(m, m->gy, c->b * c->h, c->d, false);
    if (m->bias) { /* rows, then columns */
        float *rows = in_order(m, m->bias, c->b, c->t, false);
        t.bias = in_order(m, rows, c->b * c->t, 1, false);
        free(rows);
    }
    return t;
}

static void numbers(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        const chunk_case *c = &cases[i];
        memory m = new_memory(c), t = tokens_of(&m);
        choir__k_attention a = call_of(&m), plain = call_of(&t);
        plain.n.chunks = 0, plain.delta = NULL;
        choir__cpu_kernels("baseline")->attention(&a);
        choir__cpu_reference.attention(&plain);
        near("y", &m, m.y, t.y, c->b * c->h, c->d);
        near("lse", &m, m.lse, t.lse, c->b * c->h, 1);
        find_delta(&m);
        choir__cpu_kernels("baseline")->attention_backward(&a);
        choir__cpu_reference.attention_backward(&plain);
        near("gq", &m, m.gq, t.gq, c->b * c->h, c->d);
        near("gk", &m, m.gk, t.gk, c->b * c->g, c->d);
        near("gv", &m, m.gv, t.gv, c->b * c->g, c->d);
        memory r = with_results(&m); /* the reference kernels know chunks, too */
        choir__k_attention by_reference = call_of(&r);
        choir__cpu_reference.attention(&by_reference);
        near("the reference's y", &m, r.y, t.y, c->b * c->h, c->d);
        forward_by_pairs(&choir__cpu_reference, &r);
        near("the reference's y by pairs", &m, r.y, t.y, c->b * c->h, c->d);
        free_results(&r);
        free_memory(&t);
        free_memory(&m);
    }
}

/* --- sums over rows: kernels/cut.h --- */

enum { COLS = 71, ROWS = 3 * 22 };

static const choir__cut cuts[] = {{1, 2}, {3, 4}, {2, 5}, {3, 7}, {1, 6}, {3, 22}, {1, 1}};

/* Copies the rows of leaf l, which the kernel would get without the others; returns their
 * number. */
static int64_t take_leaf(choir__cut cut, int64_t l, const float *x, int64_t cols, float *to)
{
    int64_t count = 0;
    for (int64_t r = 0; r < ROWS; r++)
        if (choir__cut_leaf_of(cut, ROWS, r) == l)
            memcpy(to + count++ * cols, x + r * cols, (size_t)cols * sizeof *x);
    return count;
}

static void sums_of_rows(const choir__kernels *kernels, const char *isa, choir__cut cut)
{
    float *x = uniform(ROWS * COLS, -1, 1), *own = zeros(ROWS * COLS), *leaf[ROWS];
    float y[COLS];
    choir__k_sum k = {
        .x = x, .y = y, .rows = ROWS, .cols = COLS, .scale = 1, .over_rows = true, .cut = cut};
    kernels->sum(&k);
    for (int64_t l = 0; l < cut.leaves; l++) {
        choir__k_sum part = {
            .x = own, .y = leaf[l] = zeros(COLS), .cols = COLS, .scale = 1, .over_rows = true};
        part.rows = take_leaf(cut, l, x, COLS, own);
        kernels->sum(&part);
    }
    add_leaves(leaf, 0, cut.leaves, COLS);
    same(isa, "sum", leaf[0], y, COLS);
    for (int64_t l = 0; l < cut.leaves; l++)
        free(leaf[l]);
    free(x), free(own);
}

static void weights_of_norms(const choir__kernels *kernels, const char *isa, choir__cut cut)
{
    float *x = uniform(ROWS * COLS, -1, 1), *gy = uniform(ROWS * COLS, -1, 1);
    float *mean = uniform(ROWS, -1, 1), *rstd = uniform(ROWS, 1, 2), *leaf[ROWS], y[2 * COLS];
    float *own = zeros(ROWS * (2 * COLS + 2)), *own_gy = own + ROWS * COLS,
          *own_mean = own_gy + ROWS * COLS, *own_rstd = own_mean + ROWS;
    choir__k_layer_norm_weights k = {.x = x,
        .gy = gy,
        .mean = mean,
        .rstd = rstd,
        .rows = ROWS,
        .cols = COLS,
        .ggamma = y,
        .gbeta = y + COLS,
        .cut = cut};
    kernels->layer_norm_weights(&k);
    for (int64_t l = 0; l < cut.leaves; l++) {
        choir__k_layer_norm_weights part = {.x = own,
            .gy = own_gy,
            .mean = own_mean,
            .rstd = own_rstd,
            .cols = COLS,
            .ggamma = leaf[l] = zeros(2 * COLS),
            .gbeta = leaf[l] + COLS};
        take_leaf(cut, l, gy, COLS, own_gy);
        take_leaf(cut, l, mean, 1, own_mean);
        take_leaf(cut, l, rstd, 1, own_rstd);
        part.rows = take_leaf(cut, l, x, COLS, own);
        kernels->layer_norm_weights(&part);
    }
    add_leaves(leaf, 0, cut.leaves, 2 * COLS);
    same(isa, "layer_norm_weights", leaf[0], y, 2 * COLS);
    for (int64_t l = 0; l < cut.leaves; l++)
        free(leaf[l]);
    free(x), free(gy), free(mean), free(rstd), free(own);
}

static void losses_of_rows(const choir__kernels *kernels, const char *isa, choir__cut cut)
{
    float *x = uniform(ROWS * COLS, -1, 1), *own = zeros(ROWS * COLS), *leaf[ROWS];
    float loss, count, lse[ROWS];
    int64_t target[ROWS] = {0}; /* class 0, of each row */
    choir__k_cross_entropy k = {.logits = x,
        .targets = target,
        .loss = &loss,
        .lse = lse,
        .count = &count,
        .rows = ROWS,
        .cols = COLS,
        .ignore_index = -1,
        .losses = CHOIR__ROWS_SUM,
        .cut = cut};
    kernels->cross_entropy(&k);
    for (int64_t l = 0; l < cut.leaves; l++) {
        choir__k_cross_entropy part = k;
        part.cut = (choir__cut){0};
        part.logits = own, part.loss = leaf[l] = zeros(1);
        part.rows = take_leaf(cut, l, x, COLS, own);
        kernels->cross_entropy(&part);
    }
    add_leaves(leaf, 0, cut.leaves, 1);
    same(isa, "cross_entropy", leaf[0], &loss, 1);
    for (int64_t l = 0; l < cut.leaves; l++)
        free(leaf[l]);
    free(x), free(own);
}

static void rows(void **state)
{
    const choir__kernels *table[MAX_TABLES];
    const char *isa[MAX_TABLES];
    int count = isa_tables(table, isa);
    for (size_t i = 0; i < CHOIR_COUNT(cuts) * (size_t)count; i++) {
        size_t t = i % (size_t)count;
        sums_of_rows(table[t], isa[t], cuts[i / (size_t)count]);
        weights_of_norms(table[t], isa[t], cuts[i / (size_t)count]);
        losses_of_rows(table[t], isa[t], cuts[i / (size_t)count]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(pairs),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests_name("chunks", tests, NULL, NULL);
}
