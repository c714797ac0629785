/* Attention as models use it, in 16 bits, computed twice: by cuDNN, if the plug-in finds it,
 * and by Choir's own kernels, which take operands that do not begin at multiples of 16 bytes.
 * Both agree, and equal launches give equal bits: also the second one, when memory for cuDNN's
 * workspace has been found, and the twentieth.
 *
 * The software-emulated GPU has a cuDNN here, whose workspaces are large, and computes the
 * small shapes alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "cuda/first_gpu.h"
#include "sample.h"

typedef struct use {
    const char *of;
    int64_t b, h, g, t, d;
    bool causal, small;
} use;

static const use uses[] = {
    {"gpt2", 4, 12, 12, 640, 64, true, false}, /* 39 MB of workspace */
    {"gpt2, its context", 8, 12, 12, 1024, 64, true, false},
    {"llama", 2, 8, 2, 256, 128, true, false},
    {"bert", 2, 4, 4, 192, 64, false, false},
    {"bert, its context", 2, 12, 12, 512, 64, false, false},
    {"vit", 2, 4, 4, 197, 64, false, false},
    {"a small gpt2", 2, 2, 2, 24, 16, true, true},
    {"a small llama", 1, 4, 2, 33, 8, true, true},
    {"a small vit", 1, 2, 2, 17, 16, false, true},
};

enum { LAUNCHES = 20, RESULTS = 4, SHIFT = 1 };

/* The operands of one way to compute it, `off` elements after a multiple of 16 bytes. */
typedef struct operands {
    on_device q, k, v, gy, y, lse, grad[3];
    int64_t off, nq, nk, rows;
} operands;

static on_device shifted(int64_t n, int64_t off, uint64_t call, float low, float high)
{
    uint16_t *x = uniform_bf16(n, call, low, high),
             *all = calloc((size_t)(n + off), sizeof *all);
    memcpy(all + off, x, (size_t)n * sizeof *x);
    on_device d = to_device(device, all, (size_t)(n + off) * sizeof *all);
    free(x);
    free(all);
    return d;
}

static operands operands_of(const use *u, int64_t off)
{
    int64_t nq = u->b * u->t * u->h * u->d, nk = u->b * u->t * u->g * u->d;
    operands o = {.off = off, .nq = nq, .nk = nk, .rows = u->b * u->h * u->t};
    o.q = shifted(nq, off, 1, -2, 2), o.k = shifted(nk, off, 2, -2, 2);
    o.v = shifted(nk, off, 3, -1, 2), o.gy = shifted(nq, off, 4, -1, 1);
    o.y = room(nq + off, 2), o.lse = room(o.rows, 4);
    o.grad[0] = room(nq + off, 2);
    o.grad[1] = room(nk + off, 2), o.grad[2] = room(nk + off, 2);
    return o;
}

static void let_go(operands *o)
{
    on_device *all[] = {
        &o->q, &o->k, &o->v, &o->gy, &o->y, &o->lse, &o->grad[0], &o->grad[1], &o->grad[2]};
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        choir__block_free(all[i]->block);
}

/* Heads of a packed (b, t, heads * d) tensor. */
static choir__heads heads(const use *u, const operands *o, on_device x, int64_t heads)
{
    return (choir__heads){(uint16_t *)choir__block_data(x.block) + o->off, u->t * heads * u->d,
        u->d, heads * u->d};
}

static void compute(const use *u, const operands *o)
{
    choir__attention_shape n = {.b = u->b,
        .h = u->h,
        .g = u->g,
        .t = u->t,
        .s = u->t,
        .d = u->d,
        .scale = 1 / sqrtf((float)u->d),
        .causal = u->causal};
    choir__k_attention f = {.q = heads(u, o, o->q, u->h),
        .k = heads(u, o, o->k, u->g),
        .v = heads(u, o, o->v, u->g),
        .y = heads(u, o, o->y, u->h),
        .lse = choir__block_data(o->lse.block),
        .n = n,
        .dtype = CHOIR_BF16};
    choir__k_attention_backward b = {.q = f.q,
        .k = f.k,
        .v = f.v,
        .y = f.y,
        .gy = heads(u, o, o->gy, u->h),
        .gq = heads(u, o, o->grad[0], u->h),
        .gk = heads(u, o, o->grad[1], u->g),
        .gv = heads(u, o, o->grad[2], u->g),
        .lse = f.lse,
        .n = n,
        .dtype = CHOIR_BF16};
    call_on_device(device, offsetof(choir__kernels, attention), &f, sizeof f);
    call_on_device(device, offsetof(choir__kernels, attention_backward), &b, sizeof b);
}

/* Reads y or a gradient. */
static uint16_t *result(const operands *o, int i)
{
    int64_t n = i < 2 ? o->nq : o->nk;
    uint16_t *x = malloc((size_t)n * sizeof *x);
    const on_device *d = i ? &o->grad[i - 1] : &o->y;
    const uint16_t *p = (const uint16_t *)choir__block_data(d->block) + o->off;
    ok(device->far->get(x, p, (size_t)n * sizeof *x));
    return x;
}

static void expect_near(const use *u, const operands *a, const operands *b, int i)
{
    static const char *const names[RESULTS] = {"y", "gq", "gk", "gv"};
    uint16_t *x = result(a, i), *y = result(b, i);
    double off = 0, all = 0;
    for (int64_t j = 0; j < (i < 2 ? a->nq : a->nk); j++) {
        double p = (double)choir__f32_from_bf16(x[j]), q = (double)choir__f32_from_bf16(y[j]);
        off += (p - q) * (p - q), all += q * q;
    }
    if (!(off <= 2e-2 * 2e-2 * all)) /* NaN, too */
        fail_msg("%s: %s is %.3g off its norm", u->of, names[i], sqrt(off / all));
    free(x);
    free(y);
}

static void expect_equal_launches(const use *u, const operands *o, int launches)
{
    uint16_t *first[RESULTS];
    for (int i = 0; i < RESULTS; i++)
        first[i] = result(o, i);
    for (int n = 1; n < launches; n++) {
        compute(u, o);
        for (int i = 0; i < RESULTS; i++) {
            uint16_t *again = result(o, i);
            size_t bytes = (size_t)(i < 2 ? o->nq : o->nk) * sizeof *again;
            if (memcmp(first[i], again, bytes) != 0)
                fail_msg("%s: launch %d has other bits", u->of, n + 1);
            free(again);
        }
    }
    for (int i = 0; i < RESULTS; i++)
        free(first[i]);
}

static void as_models_use_it(void **state)
{
    bool soft = on_soft_gpu();
    choir__library_use before[CHOIR__LIBRARIES], after[CHOIR__LIBRARIES];
    choir__device_libraries(device, before);
    for (size_t i = 0; i < CHOIR_COUNT(uses); i++) {
        const use *u = &uses[i];
        if (soft && !u->small)
            continue;
        operands by_library = operands_of(u, 0), by_choir = operands_of(u, SHIFT);
        for (int n = 0; n < 2; n++) { /* the second finds memory as the first left it */
            compute(u, &by_library);
            compute(u, &by_choir);
            for (int r = 0; r < RESULTS; r++)
                expect_near(u, &by_library, &by_choir, r);
        }
        expect_equal_launches(u, &by_library, soft ? 2 : LAUNCHES);
        let_go(&by_library);
        let_go(&by_choir);
    }
    choir__device_libraries(device, after);
    const choir__library_use *dnn = &after[CHOIR__CUDNN];
    printf("cuDNN %zu: %ld plans; none for %ld problems; %ld refused when called\n",
        dnn->version, dnn->made - before[CHOIR__CUDNN].made, dnn->none, dnn->refused);
    assert_int_equal(dnn->none, 0);
    assert_int_equal(dnn->refused, 0);
    assert_true(!soft || dnn->version == 0 || dnn->made > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_models_use_it)};
    return cmocka_run_group_tests_name("attention in use", tests, find_device, NULL);
}
