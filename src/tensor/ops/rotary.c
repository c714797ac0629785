/* Rotary positions (Su et al., 2021), laid out like Llama's: dimension i is rotated with i +
 * D/2. The angles are computed in f64 once, as a table; an f32 angle at position 8000 would
 * have an error of up to 3e-4 radian. The backward of a rotation is the inverse rotation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/dry.h>

#include "base/floats.h"
#include "base/math/functions.h"
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

choir_rotary_opts choir_rotary_defaults(void)
{
    return (choir_rotary_opts){.theta = 10000};
}

/* --- the rates of a table's dimensions --- */

/* Llama 3.1: waves longer than the original context / low_freq are slowed down by factor, those
 * shorter than the original context / high_freq stay, and those between are interpolated. */
static double by_turns(double rate, const choir_rotary_opts *o)
{
    double turns = (double)o->original_context * rate / (2 * M_PI);
    if (turns < o->low_freq)
        return rate / o->factor;
    if (turns > o->high_freq)
        return rate;
    double smooth = (turns - o->low_freq) / (o->high_freq - o->low_freq);
    return (1 - smooth) * rate / o->factor + smooth * rate;
}

/* Returns the dimension, perhaps between two, that turns so often in the original context. */
static double dimension_of(double turns, int64_t dim, const choir_rotary_opts *o)
{
    return (double)dim * choir__log((double)o->original_context / (turns * 2 * M_PI)) /
           (2 * choir__log(o->theta));
}

/* YaRN: dimensions before the first bound keep their rate, those behind the second are slowed
 * down, and those between are interpolated. */
static double by_dimensions(double rate, int64_t i, int64_t dim, const choir_rotary_opts *o)
{
    double fast = dimension_of(o->high_freq, dim, o), slow = dimension_of(o->low_freq, dim, o);
    fast = fmax(o->unrounded ? fast : floor(fast), 0);
    slow = fmin(o->unrounded ? slow : ceil(slow), (double)dim - 1);
    if (slow == fast)
        slow += 0.001;
    double ramp = fmin(fmax(((double)i - fast) / (slow - fast), 0), 1);
    return rate / o->factor * ramp + rate * (1 - ramp);
}

static int64_t length_of(const choir_rotary_opts *o, int64_t positions)
{
    return o->length ? o->length : positions;
}

/* Dynamic NTK: a longer text has a larger theta. */
static double theta_for(int64_t length, int64_t dim, const choir_rotary_opts *o)
{
    double original = (double)o->original_context;
    if (o->scaling != CHOIR_ROTARY_DYNAMIC || length <= o->original_context)
        return o->theta;
    return o->theta * choir__pow(o->factor * (double)length / original - (o->factor - 1),
                          (double)dim / ((double)dim - 2));
}

/* Returns the rate of dimension i of dim / 2. */
static double rate_of(int64_t i, int64_t dim, int64_t length, const choir_rotary_opts *o)
{
    double rate = choir__pow(theta_for(length, dim, o), -2.0 * (double)i / (double)dim);
    const double *divisors = length > o->original_context ? o->long_factors : o->short_factors;
    switch (o->scaling) {
    case CHOIR_ROTARY_LINEAR: return rate / o->factor;
    case CHOIR_ROTARY_LLAMA3: return by_turns(rate, o);
    case CHOIR_ROTARY_YARN: return by_dimensions(rate, i, dim, o);
    case CHOIR_ROTARY_LONGROPE: return rate / divisors[i];
    case CHOIR_ROTARY_PLAIN:
    case CHOIR_ROTARY_DYNAMIC: break;
    }
    return rate;
}

static double amplitude(const choir_rotary_opts *o)
{
    if (o->attention_factor > 0)
        return o->attention_factor;
    if (o->scaling == CHOIR_ROTARY_YARN && o->factor > 1)
        return 0.1 * choir__log(o->factor) + 1;
    if (o->scaling == CHOIR_ROTARY_LONGROPE && o->factor > 1)
        return sqrt(1 + choir__log(o->factor) / choir__log((double)o->original_context));
    return 1;
}

/* Returns whether the options of a scaling belong together. */
static bool sound_scaling(const choir_rotary_opts *o, int64_t dim)
{
    bool factor = isfinite(o->factor) && o->factor > 0, original = o->original_context > 0;
    bool bands = o->low_freq > 0 && o->high_freq > o->low_freq;
    switch (o->scaling) {
    case CHOIR_ROTARY_PLAIN: return true;
    case CHOIR_ROTARY_LINEAR: return factor;
    case CHOIR_ROTARY_LLAMA3:
    case CHOIR_ROTARY_YARN: return factor && original && bands;
    case CHOIR_ROTARY_DYNAMIC: return factor && original && dim > 2;
    case CHOIR_ROTARY_LONGROPE: break;
    default: return false;
    }
    for (int64_t i = 0; o->short_factors && o->long_factors && i < dim / 2; i++)
        if (!(o->short_factors[i] > 0) || !(o->long_factors[i] > 0))
            return false;
    return o->short_factors && o->long_factors && o->original_context > 1;
}

static bool sound(const choir_rotary_opts *o, int64_t dim)
{
    return isfinite(o->theta) && o->theta > 0 && sound_scaling(o, dim) && o->length >= 0 &&
           (!o->attention_factor || (isfinite(o->attention_factor) && o->attention_factor > 0));
}

choir_tensor *choir_rotary_table(choir_scope *scope, choir_dtype dtype, int64_t positions,
    int64_t dim, choir_rotary_opts opts)
{
    CHOIR__DEFAULT_FLOATS;
    scope = choir__open_scope(scope, __func__);
    if (positions < 1 || dim < 2 || dim % 2 || positions > INT64_MAX / 16 / dim)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "rotary_table: expected positions, and an even number of dimensions, got %lld "
            "of %lld",
            (long long)positions, (long long)dim);
    if (!sound(&opts, dim))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "rotary_table: theta %g, factor %g, low_freq %g, high_freq %g, original_context %lld, "
            "attention_factor %g and the factors of rates do not make sense together; begin "
            "with choir_rotary_defaults()",
            opts.theta, opts.factor, opts.low_freq, opts.high_freq,
            (long long)opts.original_context, opts.attention_factor);
    const double amplify = amplitude(&opts);
    const bool dry = choir_device_is_dry(scope->device); /* values are never read */
    double *values = malloc((size_t)(positions * dim) * sizeof *values);
    if (!values)
        return choir__poison(scope, CHOIR_ERR_MEMORY,
            "rotary_table: no memory for %lld positions", (long long)positions);
    for (int64_t i = 0; i < dim / 2 && !dry; i++) {
        const double rate = rate_of(i, dim, length_of(&opts, positions), &opts);
        for (int64_t t = 0; t < positions; t++) {
            double *cosine = &values[t * dim + i], *sine = cosine + dim / 2;
            choir__sin_cos((double)t * rate, sine, cosine);
            *sine *= amplify;
            *cosine *= amplify;
        }
    }
    /* in place: each element is read before it is overwritten */
    float *narrow = (float *)values;
    for (int64_t i = 0; dtype == CHOIR_F32 && i < positions * dim && !dry; i++) {
        float value = (float)values[i];
        memcpy(&narrow[i], &value, sizeof value);
    }
    choir_tensor *table =
        dtype == CHOIR_F32 || dtype == CHOIR_F64
            ? choir_from(scope, dtype, choir_dims(positions, dim), values)
            : choir__poison(scope, CHOIR_ERR_DTYPE, "rotary_table: expected f32 or f64, got %s",
                  choir_dtype_name(dtype));
    free(values);
    return table;
}

static void turn(choir_tensor *y, const choir_tensor *x, const choir_tensor *table,
    int64_t offset, bool back)
{
    const int64_t *dim = y->shape.dim;
    choir__k_rotary args = {.y = {.p = choir__data(y)},
        .x = {.p = choir__data(x)},
        .table = (char *)choir__data(table) +
                 (size_t)(offset * dim[3]) * choir_dtype_size(table->dtype),
        .b = dim[0],
        .t = dim[1],
        .h = dim[2],
        .d = dim[3],
        .table_b = table->shape.ndim == 3 ? dim[1] * dim[3] : 0,
        .back = back,
        .dtype = y->dtype};
    memcpy(args.y.stride, y->stride, sizeof args.y.stride);
    memcpy(args.x.stride, x->stride, sizeof args.x.stride);
    choir__launch(choir__device_of(y), y->dtype, rotary, &args);
}

static void rotary_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gx = sink->dest(sink, r, 0);
    if (!gx)
        return;
    if (gy->stride[3] != 1)
        gy = choir__dense_rows(sink->scope, gy);
    choir_tensor *out = gx->stride[3] == 1 ? gx
                                           : choir__tensor_new(sink->scope,
                                                 choir__device_of(gy), gy->dtype, gy->shape);
    if (gy->poisoned || out->poisoned)
        return;
    turn(out, gy, r->in[1], *(const int64_t *)r->attrs, true);
    sink->give(sink, r, 0, out);
}

static void rotary_again(choir__tape_entry *r)
{
    turn(r->out, r->in[0], r->in[1], *(const int64_t *)r->attrs, false);
}

static const choir__op rotary_op = {.name = "rotary",
    .by_token = true,
    .half_native = 1,
    .backward = rotary_backward,
    .recompute = rotary_again,
    .reads_in = 2};

choir_tensor *choir_rotary(choir_tensor *x, choir_tensor *table, int64_t offset)
{
    x = choir__sound(x, __func__);
    choir_tensor *poisoned, *in[2] = {x, table};
    if (in[0]->shape.ndim == 4 && in[0]->stride[3] != 1)
        in[0] = choir_contiguous(in[0]);
    choir_scope *scope = choir__begin(&rotary_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], table = in[1];
    const int64_t *dim = x->shape.dim;
    const bool each = table->shape.ndim == 3; /* a row of its own for each token */
    if (x->shape.ndim != 4 || (table->shape.ndim != 2 && !each) ||
        !choir__is_contiguous(table) || choir__cols(table) != dim[3] || dim[3] % 2 ||
        (each && (table->shape.dim[0] != dim[0] || table->shape.dim[1] != dim[1] || offset)) ||
        choir__beside(x->dtype) != table->dtype || !choir__is_float(x->dtype))
        return choir__shape_error(rotary_op.name, scope, in, 2,
            "expected a floating x (B, T, H, D), D even, and a table (positions, D), or "
            "(B, T, D) without an offset, of its dtype");
    if (!each && (offset < 0 || offset > table->shape.dim[0] - dim[1]))
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "rotary: %lld positions from %lld on are outside a table of %lld",
            (long long)dim[1], (long long)offset, (long long)table->shape.dim[0]);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    /* The table has no gradient, but must live on unchanged. */
    return choir__computed(
        &rotary_op, y, in, 2, (choir__keeps){&offset, sizeof offset, {NULL}});
}
