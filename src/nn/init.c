/* Initial values that follow from a parameter's shape: Xavier's and Kaiming's become uniform or
 * normal ones when the parameter is registered; orthogonal ones are computed when it is drawn.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "base/math/functions.h"
#include "base/rng.h"
#include "nn/module.h"
#include "tensor/launch.h"

choir_init choir_init_xavier_uniform(double gain)
{
    return (choir_init){CHOIR_INIT_XAVIER_UNIFORM, gain, 0};
}

choir_init choir_init_xavier_normal(double gain)
{
    return (choir_init){CHOIR_INIT_XAVIER_NORMAL, gain, 0};
}

choir_init choir_init_kaiming_uniform(double gain, bool by_outputs)
{
    return (choir_init){CHOIR_INIT_KAIMING_UNIFORM, gain, by_outputs};
}

choir_init choir_init_kaiming_normal(double gain, bool by_outputs)
{
    return (choir_init){CHOIR_INIT_KAIMING_NORMAL, gain, by_outputs};
}

choir_init choir_init_orthogonal(double gain)
{
    return (choir_init){CHOIR_INIT_ORTHOGONAL, gain, 0};
}

double choir_init_gain(const char *nonlinearity, double slope)
{
    CHOIR__DEFAULT_FLOATS;
    const struct {
        const char *name;
        double gain;
    } gains[] = {{"linear", 1}, {"sigmoid", 1}, {"tanh", 5.0 / 3}, {"relu", sqrt(2.0)},
        {"leaky_relu", sqrt(2 / (1 + slope * slope))}, {"selu", 0.75}};
    if (choir__lacks(nonlinearity, __func__, "name"))
        return NAN;
    for (size_t i = 0; i < CHOIR_COUNT(gains); i++)
        if (!strcmp(gains[i].name, nonlinearity))
            return gains[i].gain;
    choir__error(CHOIR_ERR_ARGUMENT,
        "choir_init_gain: unknown nonlinearity '%s': choose one of linear, sigmoid, tanh, relu, "
        "leaky_relu, selu",
        nonlinearity);
    return NAN;
}

/* --- from a shape to numbers --- */

/* Returns sqrt of the number that divides the variance: fan_in, fan_out or their mean. */
static double fan_root(choir_init init, choir_shape shape)
{
    double field = 1;
    for (int d = 2; d < shape.ndim; d++)
        field *= (double)shape.dim[d];
    double in = (double)shape.dim[1] * field, out = (double)shape.dim[0] * field;
    bool xavier =
        init.kind == CHOIR_INIT_XAVIER_UNIFORM || init.kind == CHOIR_INIT_XAVIER_NORMAL;
    return sqrt(xavier ? (in + out) / 2 : init.b != 0 ? out : in);
}

bool choir__init_resolve(
    choir_scope *run, const char *name, choir_shape shape, choir_init *init)
{
    CHOIR__DEFAULT_FLOATS;
    if (init->kind < CHOIR_INIT_XAVIER_UNIFORM)
        return true;
    if (shape.ndim < 2) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "parameter '%s': expected two dimensions or more for initial values that follow from "
            "the shape, got %s",
            name, choir__shape_text(shape));
        return false;
    }
    if (init->kind == CHOIR_INIT_ORTHOGONAL)
        return true;
    double deviation = init->a / fan_root(*init, shape), bound = sqrt(3.0) * deviation;
    bool uniform =
        init->kind == CHOIR_INIT_XAVIER_UNIFORM || init->kind == CHOIR_INIT_KAIMING_UNIFORM;
    *init = uniform ? (choir_init){CHOIR_INIT_UNIFORM, -bound, bound}
                    : (choir_init){CHOIR_INIT_NORMAL, 0, deviation};
    return true;
}

/* --- orthogonal values --- */

/* Makes the `count` vectors (n) of q orthonormal, one after the other (Gram and Schmidt),
 * twice, because the first pass leaves what rounding has cost. */
static void orthonormalise(double *q, int64_t count, int64_t n)
{
    for (int64_t j = 0; j < count; j++)
        for (int pass = 0; pass < 2; pass++) {
            double *a = q + j * n, square = 0;
            for (int64_t i = 0; i < j; i++) {
                const double *b = q + i * n;
                double product = 0;
                for (int64_t k = 0; k < n; k++)
                    product += a[k] * b[k];
                for (int64_t k = 0; k < n; k++)
                    a[k] -= product * b[k];
            }
            for (int64_t k = 0; k < n; k++)
                square += a[k] * a[k];
            double inverse = 1 / sqrt(square);
            for (int64_t k = 0; k < n; k++)
                a[k] *= inverse;
        }
}

/* Fills q with n normal numbers, keyed by the parameter's name. */
static void normal_draws(const choir__param *p, double *q, int64_t n)
{
    uint64_t key = choir__rng_key(p->tensor->scope->seed, p->name);
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t word[4];
        double other;
        choir__philox(key, 0, (uint64_t)i, word);
        choir__normal_pair(
            1 - (double)choir__unit(word[0]), (double)choir__unit(word[1]), &q[i], &other);
        if (i + 1 < n)
            q[i + 1] = other;
    }
}

void choir__draw_orthogonal(const choir__param *p, choir_tensor *y, int64_t first)
{
    const choir_shape whole = choir__param_values(p);
    int64_t all = choir__shape_count(whole), out = whole.dim[0], rest = all / out;
    int64_t count = choir__min(out, rest), n = choir__max(out, rest);
    double *q = choir__calloc((size_t)all, sizeof *q);
    float *values = choir__calloc((size_t)y->count, sizeof *values);
    normal_draws(p, q, all);
    orthonormalise(q, count, n);
    for (int64_t i = 0; i < y->count; i++) {
        int64_t row = (first + i) / rest, column = (first + i) % rest;
        double value = out <= rest ? q[row * n + column] : q[column * n + row];
        values[i] = (float)(p->init_a * value);
    }
    choir_status status = choir_write(y, values, (size_t)y->count * sizeof *values);
    if (status != CHOIR_OK)
        choir__scope_fail(p->tensor->scope, status);
    free(values);
    free(q);
}
