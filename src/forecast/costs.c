/* Prices a kernel by a table of measured calls, or by the device's data sheet if the table
 * lacks its kind. Within a row of the table the price is interpolated by size; the row is
 * the one of the nearest form. */
#include "forecast/costs.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "device/kernels.h"

enum {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

/* Returns whether a kernel's size is its FLOPs. */
static bool multiplies(int kernel)
{
    switch (kernel) {
    case KERNEL_matmul:
    case KERNEL_conv:
    case KERNEL_conv_backward_input:
    case KERNEL_conv_backward_weight:
    case KERNEL_attention:
    case KERNEL_attention_backward:
    case KERNEL_recurrent:
    case KERNEL_recurrent_backward: return true;
    default: return false;
    }
}

static bool attends(int kernel)
{
    return kernel == KERNEL_attention || kernel == KERNEL_attention_backward;
}

double choir__optimizer_bytes(int kernel, double elements)
{
    switch (kernel) {
    case KERNEL_grad_norm: return 4 * elements;
    case KERNEL_average: return 3 * 4 * elements;
    case KERNEL_sgd:
    case KERNEL_lion: return 5 * 4 * elements;
    case KERNEL_adam:
    case KERNEL_rmsprop: return 7 * 4 * elements;
    case KERNEL_lamb: return 9 * 4 * elements;
    default: return 0;
    }
}

/* Returns the form of a call: for products the bits of the least of m, n and k, at most 8. */
static int form_of(const choir__cost_call *c)
{
    enum { MOST = 8 };
    int bits = 0;
    if (c->kernel != KERNEL_matmul)
        return 0;
    int64_t least = choir__min(c->dims[1], choir__min(c->dims[2], c->dims[3]));
    while (bits < MOST && least >> (bits + 1))
        bits++;
    return bits;
}

static double by_data_sheet(const choir__device_model *d, const choir__step_entry *e)
{
    const int kernel = e->as.kernel.id;
    const choir_dtype dtype = e->as.kernel.dtype;
    const bool half = dtype == CHOIR_BF16 || dtype == CHOIR_F16;
    double rate = half ? d->bf16_flops : d->tf32_flops > 0 ? d->tf32_flops : d->f32_flops;
    if (dtype == CHOIR_F64)
        rate = d->f32_flops / 2;
    rate *= attends(kernel) ? d->attention_share : d->product_share;
    double computing = e->as.kernel.flops / rate,
           moving = e->as.kernel.bytes / (d->memory_bytes_s * d->memory_share);
    double seconds = computing > moving ? computing : moving;
    return seconds > d->launch_s ? seconds : d->launch_s;
}

/* --- tables --- */

static double size_of(const choir__cost_call *c)
{
    return multiplies(c->kernel) ? c->flops : c->bytes;
}

/* Returns the row whose form is nearest; NULL: the kernel has none. */
static const choir__cost_row *row_of(const choir__costs *costs, const choir__cost_call *c)
{
    const choir__cost_row *best = NULL;
    const int form = form_of(c);
    for (int i = 0; costs && i < costs->row_count; i++) {
        const choir__cost_row *r = &costs->rows[i];
        if (r->kernel != c->kernel || r->dtype != c->dtype)
            continue;
        if (!best || abs(r->form - form) < abs(best->form - form))
            best = r;
    }
    return best;
}

/* Returns the sample of an equal call, or NULL. */
static const choir__cost_sample *equal_in(const choir__cost_row *r, const choir__cost_call *c)
{
    const double size = size_of(c);
    for (int i = 0; i < r->count && r->samples[i].size <= size; i++) {
        const choir__cost_call *of = &r->samples[i].call;
        if (of->flops == c->flops && of->bytes == c->bytes &&
            memcmp(of->dims, c->dims, sizeof of->dims) == 0)
            return &r->samples[i];
    }
    return NULL;
}

static double interpolate(const choir__cost_row *r, double size)
{
    const choir__cost_sample *s = r->samples, *last = &s[r->count - 1];
    if (size <= s[0].size)
        return s[0].seconds;
    if (size >= last->size)
        return last->size > 0 ? last->seconds * (size / last->size) : last->seconds;
    int i = 1;
    while (s[i].size < size)
        i++;
    if (!(s[i].size > s[i - 1].size) || !(s[i - 1].size > 0))
        return s[i].seconds;
    double whole = choir__log(s[i].size / s[i - 1].size),
           part = choir__log(size / s[i - 1].size) / whole;
    return s[i - 1].seconds * choir__exp(part * choir__log(s[i].seconds / s[i - 1].seconds));
}

double choir__kernel_seconds(const choir__device_model *device, const choir__costs *costs,
    const choir__step_entry *e, bool *measured, double *spread)
{
    choir__cost_call call = {
        e->as.kernel.id, e->as.kernel.dtype, e->as.kernel.flops, e->as.kernel.bytes, {0}};
    memcpy(call.dims, e->as.kernel.dims, sizeof call.dims);
    const choir__cost_row *row = row_of(costs, &call);
    const choir__cost_sample *equal = row ? equal_in(row, &call) : NULL;
    if (measured)
        *measured = row;
    if (spread)
        *spread = equal ? equal->spread : row ? row->samples[row->count / 2].spread : 0;
    if (!row)
        return by_data_sheet(device, e);
    return (equal ? equal->seconds : interpolate(row, size_of(&call))) + costs->task_s;
}

void choir__costs_append(
    choir__costs *costs, const choir__cost_call *call, double seconds, double spread)
{
    const int form = form_of(call);
    int at = 0;
    while (at < costs->row_count &&
           (costs->rows[at].kernel != call->kernel || costs->rows[at].dtype != call->dtype ||
               costs->rows[at].form != form))
        at++;
    if (at == costs->row_count) {
        CHOIR__GROW(costs->rows, costs->row_count);
        costs->rows[costs->row_count++] =
            (choir__cost_row){.kernel = call->kernel, .form = form, .dtype = call->dtype};
    }
    choir__cost_row *r = &costs->rows[at];
    CHOIR__GROW(r->samples, r->count);
    r->samples[r->count++] = (choir__cost_sample){*call, size_of(call), seconds, spread};
}

static int by_size(const void *a, const void *b)
{
    const choir__cost_sample *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

void choir__costs_sort(choir__costs *costs)
{
    for (int i = 0; i < costs->row_count; i++)
        qsort(costs->rows[i].samples, (size_t)costs->rows[i].count,
            sizeof *costs->rows[i].samples, by_size);
}

void choir__costs_free(choir__costs *costs)
{
    for (int i = 0; i < costs->row_count; i++)
        free(costs->rows[i].samples);
    free(costs->rows);
    *costs = (choir__costs){.row_count = 0};
}
