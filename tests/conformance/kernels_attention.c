/* Conformance of attention and its gradient: heads strided and dense, one block of queries and
 * many, grouped heads, windows, biases. Products have fused terms where the machine can, so
 * instruction sets are compared only with the reference.
 *
 *   test_conformance_kernels_attention [WIDTH]   runs only heads of at least WIDTH elements */
#include "conformance/harness.h"

typedef struct attention_case {
    int64_t b, h, g, t, s, d, window;
    bool causal, packed;
    int bias; /* 0: none, 1: (B, 1, 1, S), 2: (1, H, T, S) */
    float softcap;
} attention_case;

static const attention_case cases[] = {
    {2, 2, 2, 5, 5, 3, 0, false, true, 0, 0},
    {1, 3, 3, 64, 64, 32, 0, true, true, 0, 0},
    {2, 1, 1, 1, 1, 1, 0, true, false, 0, 0},
    {1, 2, 2, 17, 40, 16, 0, false, false, 1, 0},
    {2, 4, 2, 33, 33, 8, 0, true, false, 2, 0},
    {1, 4, 1, 150, 150, 20, 0, true, false, 0, 0},
    {1, 2, 1, 260, 260, 17, 37, true, false, 0, 0},
    {1, 1, 1, 300, 1030, 7, 0, false, false, 0, 0},
    {2, 2, 2, 131, 131, 5, 0, false, true, 1, 0},
    {4, 2, 2, 49, 49, 16, 0, false, true, 2, 0},
    {1, 2, 2, 20, 31, 4, 0, true, false, 0, 0},
    {1, 2, 2, 31, 20, 4, 3, true, false, 0, 0},
    /* head widths for which GPUs have kernels, and widths between and beyond them */
    {1, 1, 1, 140, 140, 64, 0, true, true, 0, 0},
    {1, 2, 1, 40, 135, 96, 0, false, true, 1, 0},
    {1, 2, 1, 70, 70, 128, 50, true, false, 2, 0},
    {1, 1, 1, 17, 65, 200, 0, false, false, 0, 0},
    /* scores that a soft cap bends */
    {1, 4, 2, 70, 70, 16, 9, true, false, 0, 1.5f},
    {2, 2, 1, 33, 41, 130, 0, false, true, 2, 3},
};

static int64_t least_width;

static choir__attention_shape shape_of(const attention_case *c)
{
    return (choir__attention_shape){.b = c->b,
        .h = c->h,
        .g = c->g,
        .t = c->t,
        .s = c->s,
        .d = c->d,
        .window = c->window,
        .scale = c->d < 64 ? 0.3f : 0.1f,
        .softcap = c->softcap,
        .causal = c->causal};
}

/* Numbers that bf16 holds: lse, which the test computes, is then that of every dtype's. */
static float *coarse(int64_t n, float low, float high)
{
    float *x = uniform(n, low, high);
    for (int64_t i = 0; i < n; i++)
        x[i] = choir__f32_from_bf16(choir__bf16_from_f32(x[i]));
    return x;
}

/* Returns the strides of heads (B, rows, heads * D): within a (B, T, C) tensor if packed, else
 * each head dense. */
static choir__heads strides(const attention_case *c, int64_t heads, int64_t rows)
{
    if (c->packed)
        return (choir__heads){NULL, rows * heads * c->d, c->d, heads * c->d};
    return (choir__heads){NULL, heads * rows * c->d, rows * c->d, c->d};
}

static choir__attention_bias bias_of(const attention_case *c)
{
    if (c->bias == 1)
        return (choir__attention_bias){NULL, c->b, {c->s, 0, 0}};
    return (choir__attention_bias){NULL, 1, {0, c->t * c->s, c->s}};
}

static int64_t bias_count(const attention_case *c)
{
    return c->bias == 1 ? c->b * c->s : c->h * c->t * c->s;
}

/* Hides all keys from a sample, or from one query in seven. */
static float *hidden(const attention_case *c, float *bias)
{
    for (int64_t i = 0; i < bias_count(c); i++)
        if (c->bias == 1 ? i / c->s == 1 : i / c->s % c->t % 7 == 3)
            bias[i] = -INFINITY;
    return bias;
}

static void attention(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        const attention_case *c = &cases[i];
        if (c->d < least_width)
            continue;
        int64_t nq = c->b * c->h * c->t * c->d, nk = c->b * c->g * c->s * c->d;
        trial t = TRIAL(attention, .q = strides(c, c->h, c->t), .k = strides(c, c->g, c->s),
            .v = strides(c, c->g, c->s), .y = strides(c, c->h, c->t), .bias = bias_of(c),
            .n = shape_of(c));
        t.tolerance = 1e-5;
        give(&t, AT(attention, q.p), nq, uniform(nq, -2, 2));
        give(&t, AT(attention, k.p), nk, uniform(nk, -2, 2));
        give(&t, AT(attention, v.p), nk, uniform(nk, -1, 2));
        if (c->bias)
            give(&t, AT(attention, bias.p), bias_count(c),
                hidden(c, uniform(bias_count(c), -1, 1)));
        take(&t, AT(attention, y.p), nq);
        take(&t, AT(attention, lse), c->b * c->h * c->t);
        keep_wide(&t);
        check(t);
    }
}

/* Returns lse as the forward pass computes it, and y. */
static float *lse_of(
    const attention_case *c, float *q, float *k, float *v, float *bias, float *y)
{
    float *lse = malloc((size_t)(c->b * c->h * c->t) * sizeof *lse);
    choir__k_attention args = {.q = strides(c, c->h, c->t),
        .k = strides(c, c->g, c->s),
        .v = strides(c, c->g, c->s),
        .y = strides(c, c->h, c->t),
        .bias = bias_of(c),
        .lse = lse,
        .n = shape_of(c)};
    args.q.p = q, args.k.p = k, args.v.p = v, args.y.p = y, args.bias.p = bias;
    choir__cpu_reference.attention(&args);
    return lse;
}

static void attention_backward(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        const attention_case *c = &cases[i];
        if (c->d < least_width)
            continue;
        int64_t nq = c->b * c->h * c->t * c->d, nk = c->b * c->g * c->s * c->d;
        int64_t nb = bias_count(c);
        choir__heads of_q = strides(c, c->h, c->t), of_k = strides(c, c->g, c->s);
        trial t = TRIAL(attention_backward, .q = of_q, .k = of_k, .v = of_k, .y = of_q,
            .gy = of_q, .gq = of_q, .gk = of_k, .gv = of_k, .bias = bias_of(c),
            .gbias = bias_of(c), .n = shape_of(c));
        t.tolerance = 2e-5;
        t.f64_tolerance = 1e-6; /* lse and y come as f32 */
        float *q = coarse(nq, -2, 2), *k = coarse(nk, -2, 2), *v = coarse(nk, -1, 2);
        float *bias = c->bias ? hidden(c, coarse(nb, -1, 1)) : NULL;
        float *y = malloc((size_t)nq * sizeof *y);
        give(&t, AT(attention_backward, lse), c->b * c->h * c->t, lse_of(c, q, k, v, bias, y));
        keep_wide(&t);
        if (i % 2)
            give(&t, AT(attention_backward, y.p), nq, y);
        else
            free(y);
        give(&t, AT(attention_backward, q.p), nq, q);
        give(&t, AT(attention_backward, k.p), nk, k);
        give(&t, AT(attention_backward, v.p), nk, v);
        give(&t, AT(attention_backward, gy.p), nq, uniform(nq, -1, 1));
        if (c->bias) {
            give(&t, AT(attention_backward, bias.p), nb, bias);
            update(&t, AT(attention_backward, gbias.p), nb, uniform(nb, -0.1f, 0.1f));
        }
        if (i % 5 && c->s > 1) /* where there is one key, its gradient is 0 and has no error */
            take(&t, AT(attention_backward, gq.p), nq);
        if (c->s > 1)
            take(&t, AT(attention_backward, gk.p), nk);
        take(&t, AT(attention_backward, gv.p), nk);
        check(t);
    }
}

int main(int argc, char **argv)
{
    least_width = argc > 1 ? atoi(argv[1]) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_backward),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
