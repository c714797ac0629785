/* Prices of kernels: see costs.h. */
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

int choir__cost_form(int kernel, const int64_t dims[CHOIR__STEP_DIMS])
{
    enum { MOST = 8 };
    int bits = 0;
    if (kernel != KERNEL_matmul)
        return 0;
    int64_t least = choir__min(dims[1], choir__min(dims[2], dims[3]));
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

/* Returns the row whose form is nearest. */
static const choir__cost_row *row_of(
    const choir__costs *costs, int kernel, choir_dtype dtype, int form)
{
    const choir__cost_row *best = NULL;
    for (int i = 0; costs && i < costs->row_count; i++) {
        const choir__cost_row *r = &costs->rows[i];
        if (r->kernel != kernel || r->dtype != dtype || !r->count)
            continue;
        if (!best || abs(r->form - form) < abs(best->form - form))
            best = r;
    }
    return best;
}

static double interpolate(const choir__cost_row *r, double size)
{
    const choir__cost_sample *s = r->samples, *last = &s[r->count - 1];
    if (size <= s[0].size)
        return s[0].seconds;
    if (size >= last->size)
        return last->seconds * (size / last->size);
    int i = 1;
    while (s[i].size < size)
        i++;
    double whole = choir__log(s[i].size / s[i - 1].size),
           part = choir__log(size / s[i - 1].size) / whole;
    return s[i - 1].seconds * choir__exp(part * choir__log(s[i].seconds / s[i - 1].seconds));
}

double choir__kernel_seconds(const choir__device_model *device, const choir__costs *costs,
    const choir__step_entry *e, bool *measured, double *spread)
{
    const int kernel = e->as.kernel.id;
    const choir__cost_row *row =
        row_of(costs, kernel, e->as.kernel.dtype, choir__cost_form(kernel, e->as.kernel.dims));
    if (measured)
        *measured = row;
    if (spread)
        *spread = row ? row->spread : 0;
    if (!row)
        return by_data_sheet(device, e);
    return interpolate(row, multiplies(kernel) ? e->as.kernel.flops : e->as.kernel.bytes);
}

void choir__costs_add(choir__costs *costs, int kernel, choir_dtype dtype, int form, double size,
    double seconds, double spread)
{
    int at = 0;
    while (at < costs->row_count &&
           (costs->rows[at].kernel != kernel || costs->rows[at].dtype != dtype ||
               costs->rows[at].form != form))
        at++;
    if (at == costs->row_count) {
        CHOIR__GROW(costs->rows, costs->row_count);
        costs->rows[costs->row_count++] = (choir__cost_row){kernel, dtype, form, NULL, 0, 0};
    }
    choir__cost_row *r = &costs->rows[at];
    int place = r->count;
    CHOIR__GROW(r->samples, r->count);
    for (; place > 0 && r->samples[place - 1].size > size; place--)
        r->samples[place] = r->samples[place - 1];
    r->samples[place] = (choir__cost_sample){size, seconds};
    r->count++;
    r->spread = spread > r->spread ? spread : r->spread;
}

void choir__costs_free(choir__costs *costs)
{
    for (int i = 0; i < costs->row_count; i++)
        free(costs->rows[i].samples);
    free(costs->rows);
    *costs = (choir__costs){0};
}
