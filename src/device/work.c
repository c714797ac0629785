/* The work of tasks. A task is recognised by its function, found in the device's two kernel
 * tables. FLOPs are counted from the arguments by the textbook: 2 per multiplication and
 * addition that the result needs. Additional work of a kernel (attention's backward computes
 * the scores again) does not count. */
#include "device/work.h"

#include <stdio.h>
#include <string.h>

typedef void describe_fn(const void *args, choir__kernel_work *work);

/* Returns the terms of each element's sum: K, or the terms of the node that is computed. */
static int64_t terms_of(const choir__k_matmul *k)
{
    const choir__node node = choir__cut_node(k->cut, k->node);
    int64_t from, end, unused;
    choir__cut_leaf(k->cut, k->k, node.start, &from, &unused);
    choir__cut_leaf(k->cut, k->k, node.start + node.leaves - 1, &unused, &end);
    return (end - from) * choir__cut_outer(k->cut);
}

static void describe_matmul(const void *args, choir__kernel_work *work)
{
    const choir__k_matmul *k = args;
    int64_t batch = k->batch0 * k->batch1, terms = terms_of(k);
    work->flops = 2.0 * (double)batch * (double)k->m * (double)k->n * (double)terms;
    int used =
        batch > 1 ? snprintf(work->shape, sizeof work->shape, "%lldx", (long long)batch) : 0;
    snprintf(work->shape + used, sizeof work->shape - (size_t)used, "%lldx%lldx%lld",
        (long long)k->m, (long long)k->n, (long long)terms);
}

static void describe_conv(const void *args, choir__kernel_work *work)
{
    const choir__conv_shape *s = &((const choir__k_conv *)args)->s;
    work->flops = 2.0 * (double)(s->n * s->oh * s->ow) * (double)s->o *
                  (double)(s->kh * s->kw * (s->c / s->groups));
    snprintf(work->shape, sizeof work->shape, "%lldx%lldx%lldx%lld to %lld, %lldx%lld/%lld",
        (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->c, (long long)s->o,
        (long long)s->kh, (long long)s->kw, (long long)s->stride_h);
}

/* Returns the number of pairs of a query and a key that it sees. */
static double pairs(const choir__attention_shape *n)
{
    double sum = 0;
    for (int64_t t = n->ahead; t < n->ahead + n->t; t++) {
        int64_t from = n->window ? choir__max(0, t - n->window + 1) : 0;
        sum += (double)choir__max(0, (n->causal ? choir__min(n->s, t + 1) : n->s) - from);
    }
    return sum * (double)(n->b * n->h);
}

static void describe_attention(const void *args, choir__kernel_work *work)
{
    const choir__attention_shape *n = &((const choir__k_attention *)args)->n;
    work->flops = 4 * pairs(n) * (double)n->d;
    snprintf(work->shape, sizeof work->shape, "%lldx%lldx%lldx%lld%s", (long long)n->b,
        (long long)n->h, (long long)n->t, (long long)n->d, n->causal ? " causal" : "");
}

static void describe_attention_backward(const void *args, choir__kernel_work *work)
{
    describe_attention(args, work);
    work->flops *= 2;
}

/* Counts `steps` products of (B, H) by (H, G H): the forward, or the backward's gradient of the
 * state. */
static void describe_recurrent(const void *args, choir__kernel_work *work)
{
    const choir__k_recurrent *k = args;
    double gates = (double)choir__recurrent_cell_gates(k->cell), width = (double)k->width;
    work->flops = 2.0 * (double)k->steps * (double)k->batch * width * gates * width;
    snprintf(work->shape, sizeof work->shape, "%lld steps of %lldx%lld", (long long)k->steps,
        (long long)k->batch, (long long)k->width);
}

/* The kernels by number, in the order of their table. */
enum kernel {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
        KERNELS
};

static const char *const names[KERNELS] = {
#define X(name) #name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

static describe_fn *const describers[KERNELS] = {
    [KERNEL_matmul] = describe_matmul,
    [KERNEL_conv] = describe_conv,
    [KERNEL_conv_backward_input] = describe_conv,
    [KERNEL_conv_backward_weight] = describe_conv,
    [KERNEL_attention] = describe_attention,
    [KERNEL_attention_backward] = describe_attention_backward,
    [KERNEL_recurrent] = describe_recurrent,
    [KERNEL_recurrent_backward] = describe_recurrent,
};

/* Returns the number of the kernel that fn is; KERNELS: fn is not in the table. */
static enum kernel kernel_in(const choir__kernels *table, choir__task *fn)
{
#define X(name)                                                                                \
    if ((choir__task *)table->name == fn)                                                      \
        return KERNEL_##name;
    CHOIR__KERNEL_LIST(X)
#undef X
    return KERNELS;
}

static enum kernel kernel_of(const choir_device *device, choir__task *fn)
{
    enum kernel kernel = kernel_in(device->kernels, fn);
    return kernel < KERNELS ? kernel : kernel_in(device->reference, fn);
}

choir__kernel_work choir__kernel_work_of(
    const choir_device *device, choir__task *fn, const void *args)
{
    choir__kernel_work work = {0};
    enum kernel kernel = kernel_of(device, fn);
    if (kernel == KERNELS)
        return work;
    work.name = names[kernel];
    if (describers[kernel])
        describers[kernel](args, &work);
    return work;
}

/* Offsets of sizes in the arguments of kernels without a describe function: rows and columns,
 * or a count of elements. */
static const struct {
    bool known;
    int rows, cols; /* offsets; cols 0: rows is a count */
} sized[KERNELS] = {
#define ROWS(k)                                                                                \
    [KERNEL_##k] = {true, offsetof(choir__k_##k, rows), offsetof(choir__k_##k, cols)}
#define COUNT(k) [KERNEL_##k] = {true, offsetof(choir__k_##k, n), 0}
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

const char *choir__kernel_work_text(
    const choir_device *device, choir__task *fn, const void *args, char *text, size_t bytes)
{
    choir__kernel_work work = choir__kernel_work_of(device, fn, args);
    enum kernel kernel = kernel_of(device, fn);
    if (kernel < KERNELS && !*work.shape && sized[kernel].known) {
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
