/* PyTorch's default initial values: the numbers that result from torch.manual_seed(seed) and
 * then constructing the same layers in the same order.
 *
 * One Mersenne Twister provides all of them. uniform_ takes the low 24 bits of one draw per
 * element, exactly as ATen does. normal_ of 16 elements or more is ATen's Box-Muller over
 * blocks of 16; with fewer elements it computes one by one in double. Logarithms and cosines
 * are computed in double here, so a value may differ from ATen's vectorised ones in its last
 * bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/rng.h"
#include "nn/module.h"
#include "tensor/held.h"

typedef struct source {
    choir__mt19937 mt;
    bool has_spare; /* ATen's generator keeps the second of two normal samples */
    double spare;
} source;

static float unit(source *s)
{
    return (float)(choir__mt_next(&s->mt) & 0xFFFFFF) * 0x1p-24f;
}

static double unit53(source *s)
{
    uint64_t high = choir__mt_next(&s->mt), low = choir__mt_next(&s->mt);
    return (double)((high << 32 | low) & ((1ull << 53) - 1)) * 0x1p-53;
}

static void uniform(source *s, float *y, int64_t n, double low, double high)
{
    float from = (float)low, to = (float)high;
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(unit(s), to - from, from); /* as ATen is compiled */
}

static float normal_one(source *s, double mean, double deviation)
{
    double z = s->spare;
    s->has_spare = !s->has_spare;
    if (s->has_spare) { /* generates two new ones */
        double u1 = unit53(s), u2 = unit53(s);
        choir__normal_pair(1 - u2, u1, &z, &s->spare);
    }
    return (float)(z * deviation + mean);
}

/* Converts 16 uniform numbers to 16 normal ones: pair j gives the cosine at j and the sine at j
 * + 8. */
static void box_muller(float *y, double mean, double deviation)
{
    for (int j = 0; j < 8; j++) {
        double one, other;
        choir__normal_pair(1 - (double)y[j], (double)y[j + 8], &one, &other);
        y[j] = (float)(one * deviation + mean);
        y[j + 8] = (float)(other * deviation + mean);
    }
}

static void normal(source *s, float *y, int64_t n, double mean, double deviation)
{
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            y[i] = normal_one(s, mean, deviation);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = unit(s);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        box_muller(y + i, mean, deviation);
    if (n % 16) { /* the last block is drawn again and overlaps the one before */
        for (int64_t i = n - 16; i < n; i++)
            y[i] = unit(s);
        box_muller(y + n - 16, mean, deviation);
    }
}

/* --- draws of each layer --- */

/* kaiming_uniform(a = sqrt 5) of weights, as PyTorch computes its bound; biases 1/sqrt(fan_in).
 */
static void linear_uniform(source *s, float *y, const choir_tensor *t, int64_t fan_in)
{
    double gain = sqrt(2.0 / (1 + 5.0)), root = sqrt((double)fan_in);
    double bound = t->shape.ndim > 1 ? sqrt(3.0) * (gain / root) : 1 / root;
    uniform(s, y, t->count, -bound, bound);
}

static int64_t fan_in_of(const choir_tensor *weight)
{
    int64_t count = 1;
    for (int d = 1; d < weight->shape.ndim; d++)
        count *= weight->shape.dim[d];
    return count;
}

static bool is_linear(const char *kind)
{
    static const char *const kinds[] = {
        "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d"};
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
        if (!strcmp(kind, kinds[i]))
            return true;
    return false;
}

/* Returns whether the model chose the initial values of a parameter, other than the defaults of
 * PyTorch's layer. */
static bool chosen(const char *kind, const choir__param *p, int64_t fan_in)
{
    bool linear = is_linear(kind);
    choir_init own = linear ? choir__fan_in_init(fan_in) : choir_init_normal(0, 1);
    return (linear || !strcmp(kind, "embedding")) &&
           (p->init_kind != (int)own.kind || p->init_a != own.a || p->init_b != own.b);
}

static bool draw_own(source *s, const choir__param *p, float *y, int64_t n)
{
    if (p->init_kind == CHOIR_INIT_UNIFORM)
        uniform(s, y, n, p->init_a, p->init_b);
    else if (p->init_kind == CHOIR_INIT_NORMAL)
        normal(s, y, n, p->init_a, p->init_b);
    for (int64_t i = 0; p->init_kind == CHOIR_INIT_CONSTANT && i < n; i++)
        y[i] = (float)p->init_a;
    return true;
}

/* Draws the values of one parameter of `m`, whose weight is given. Returns false if the
 * parameter keeps its values, or gets others in the second pass: each is written once, since
 * the ranks of a strategy may share the memory and the faster ones compute with it already. */
static bool draw(source *s, const choir_module *m, const choir_tensor *weight,
    const choir_tensor *t, bool again, float *y)
{
    const char *kind = m->type->name;
    if (t->param->init_kind == CHOIR_INIT_ORTHOGONAL) /* keeps Choir's values */
        return false;
    const bool later = chosen(kind, t->param, fan_in_of(weight));
    if (again)
        return later && draw_own(s, t->param, y, t->count);
    if (is_linear(kind))
        linear_uniform(s, y, t, fan_in_of(weight));
    else if (!strcmp(kind, "embedding"))
        normal(s, y, t->count, 0, 1);
    else
        draw_own(s, t->param, y, t->count);
    return !later;
}

/* Draws in the order of networks in PyTorch: each layer draws its own values while it is
 * constructed. After all layers exist, a second pass (`again`) draws those that the model chose
 * differently. */
static choir_status init(choir_module *m, source *s, bool again)
{
    choir_status status = CHOIR_OK;
    const choir_tensor *weight = NULL;
    choir_tensor all[2]; /* the first parameter, which may be the weight, and the present one */
    int all_count = 0;
    for (choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            status = init(e->child, s, again);
        if (e->kind != CHOIR__PARAM || e->tensor->poisoned || e->tensor->param->adapts)
            continue;
        choir_tensor *t = e->tensor;
        if (!choir__same_shape(t->shape, t->param->whole))
            return choir__error(CHOIR_ERR_STATE,
                "choir_module_init_torch: this rank has a part of parameter '%s' alone: it comes "
                "before choir_tensor_parallel",
                t->param->name);
        choir_tensor *values = &all[all_count < 2 ? all_count++ : 1];
        *values = *t; /* in the shape of its values */
        values->shape = choir__values_shape(t);
        values->count = choir__shape_count(values->shape);
        weight = weight ? weight : values;
        float *y = choir__calloc((size_t)values->count + 1, sizeof *y);
        bool drawn = draw(s, m, weight, values, again, y);
        if (t->param->padding >= 0)
            memset(y + t->param->padding * values->shape.dim[1], 0,
                (size_t)values->shape.dim[1] * sizeof *y);
        if (drawn)
            status = t->held ? choir__held_write(t, y)
                             : choir_write(t, y, (size_t)t->count * sizeof *y);
        free(y);
    }
    return status;
}

choir_status choir_module_init_torch(choir_module *module, uint64_t seed)
{
    choir_status use = choir__use_module(module, __func__);
    if (use != CHOIR_OK)
        return use;
    source s = {.has_spare = false};
    choir__mt_seed(&s.mt, (uint32_t)seed);
    choir__module_ready(module);
    choir_status status = choir__scope_status(module->run);
    for (int again = 0; again < 2 && status == CHOIR_OK; again++)
        status = init(module, &s, again);
    return status;
}
