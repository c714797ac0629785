/* The work of tasks. A task is recognised by its function, found in the device's two kernel
 * tables; work_size.c counts what its arguments ask for. */
#include "device/work.h"

#include <stdio.h>
#include <string.h>

/* --- shapes as texts --- */

typedef void write_fn(const void *args, const choir__kernel_work *work, char *text);

enum { SHAPE = sizeof(((choir__kernel_work *)0)->shape) };

static void write_matmul(const void *args, const choir__kernel_work *work, char *text)
{
    const long long batch = work->dims[0], m = work->dims[1], n = work->dims[2];
    int used = batch > 1 ? snprintf(text, SHAPE, "%lldx", batch) : 0;
    (void)args;
    snprintf(
        text + used, SHAPE - (size_t)used, "%lldx%lldx%lld", m, n, (long long)work->dims[3]);
}

static void write_conv(const void *args, const choir__kernel_work *work, char *text)
{
    const choir__conv_shape *s = &((const choir__k_conv *)args)->s;
    (void)work;
    snprintf(text, SHAPE, "%lldx%lldx%lldx%lld to %lld, %lldx%lld/%lld", (long long)s->n,
        (long long)s->h, (long long)s->w, (long long)s->c, (long long)s->o, (long long)s->kh,
        (long long)s->kw, (long long)s->stride_h);
}

static void write_attention(const void *args, const choir__kernel_work *work, char *text)
{
    const choir__attention_shape *n = &((const choir__k_attention *)args)->n;
    (void)work;
    snprintf(text, SHAPE, "%lldx%lldx%lldx%lld%s", (long long)n->b, (long long)n->h,
        (long long)n->t, (long long)n->d, n->causal ? " causal" : "");
}

static void write_recurrent(const void *args, const choir__kernel_work *work, char *text)
{
    (void)args;
    snprintf(text, SHAPE, "%lld steps of %lldx%lld", (long long)work->dims[0],
        (long long)work->dims[1], (long long)work->dims[2]);
}

/* --- kernels by number --- */

static const char *const names[CHOIR__KERNEL_COUNT] = {
#define X(name) #name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

static write_fn *const writers[CHOIR__KERNEL_COUNT] = {
    [CHOIR__KERNEL_matmul] = write_matmul,
    [CHOIR__KERNEL_conv] = write_conv,
    [CHOIR__KERNEL_conv_backward_input] = write_conv,
    [CHOIR__KERNEL_conv_backward_weight] = write_conv,
    [CHOIR__KERNEL_attention] = write_attention,
    [CHOIR__KERNEL_attention_backward] = write_attention,
    [CHOIR__KERNEL_recurrent] = write_recurrent,
    [CHOIR__KERNEL_recurrent_backward] = write_recurrent,
};

static choir__kernel_id kernel_in(const choir__kernels *table, choir__queue_task *fn)
{
#define X(name)                                                                                \
    if ((choir__queue_task *)table->name == fn)                                                \
        return CHOIR__KERNEL_##name;
    CHOIR__KERNEL_LIST(X)
#undef X
    return CHOIR__KERNEL_COUNT;
}

choir__kernel_id choir__kernel_of(const choir_device *device, choir__queue_task *fn)
{
    choir__kernel_id kernel = kernel_in(device->kernels, fn);
    return kernel < CHOIR__KERNEL_COUNT ? kernel : kernel_in(device->reference, fn);
}

choir__kernel_work choir__kernel_work_by(choir__kernel_id id, const void *args)
{
    choir__kernel_work work = {.id = id, .name = id < CHOIR__KERNEL_COUNT ? names[id] : NULL};
    if (id < CHOIR__KERNEL_COUNT)
        choir__kernel_size(id, args, &work);
    return work;
}

choir__kernel_work choir__kernel_work_of(
    const choir_device *device, choir__queue_task *fn, const void *args)
{
    choir__kernel_work work = choir__kernel_work_by(choir__kernel_of(device, fn), args);
    if (work.name && writers[work.id])
        writers[work.id](args, &work, work.shape);
    return work;
}

/* --- messages --- */

/* Offsets of sizes in the arguments of kernels without a describe function: rows and columns,
 * or a count of elements. */
static const struct {
    bool known;
    int rows, cols; /* offsets; cols 0: rows is a count */
} sized[CHOIR__KERNEL_COUNT] = {
#define ROWS(k)                                                                                \
    [CHOIR__KERNEL_##k] = {true, offsetof(choir__k_##k, rows), offsetof(choir__k_##k, cols)}
#define COUNT(k) [CHOIR__KERNEL_##k] = {true, offsetof(choir__k_##k, n), 0}
    ROWS(sum),
    ROWS(max_rows),
    ROWS(softmax),
    ROWS(softmax_backward),
    ROWS(layer_norm),
    ROWS(layer_norm_backward),
    ROWS(layer_norm_weights),
    ROWS(swiglu),
    ROWS(swiglu_backward),
    ROWS(batch_norm),
    ROWS(batch_norm_backward),
    ROWS(cross_entropy),
    ROWS(cross_entropy_backward),
    ROWS(nll),
    ROWS(nll_backward),
    COUNT(count_targets),
    COUNT(loss_divisor),
    COUNT(fill),
    COUNT(unary),
    COUNT(unary_backward),
    COUNT(add_scaled),
    COUNT(dropout),
    COUNT(random),
    COUNT(embedding),
    COUNT(expand),
    COUNT(pair_loss),
    COUNT(pair_loss_backward),
#undef ROWS
#undef COUNT
};

static int64_t number_at(const void *args, int place)
{
    int64_t n;
    memcpy(&n, (const char *)args + place, sizeof n);
    return n;
}

const char *choir__kernel_work_text(const choir_device *device, choir__queue_task *fn,
    const void *args, char *text, size_t bytes)
{
    choir__kernel_work work = choir__kernel_work_of(device, fn, args);
    choir__kernel_id kernel = work.id;
    if (kernel < CHOIR__KERNEL_COUNT && !*work.shape && sized[kernel].known) {
        long long rows = number_at(args, sized[kernel].rows);
        if (sized[kernel].cols)
            snprintf(work.shape, sizeof work.shape, "%lldx%lld", rows,
                (long long)number_at(args, sized[kernel].cols));
        else
            snprintf(work.shape, sizeof work.shape, "of %lld", rows);
    }
    snprintf(text, bytes, "%s%s%s", work.name ? work.name : "a copy or a recorded step",
        *work.shape ? " " : "", work.shape);
    return text;
}
