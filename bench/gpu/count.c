/* The count: each task of a step is one call of a kernel of the table, and its traffic is that
 * of the textbook, every operand read once and every result written once. Statistics per row,
 * weights of norms and other small operands do not count. Products, convolutions and attention
 * are listed apart, since their time is not that of memory. */
#include "count.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kernels.h"
#include "device/queue.h"
#include "device/work.h"

enum { KINDS = 96 };

typedef struct kind {
    char name[64];
    long calls;
    double bytes;
    bool product;
} kind;

static struct {
    choir_device *device;
    double parameters; /* elements */
    kind kinds[KINDS];
    int count;
} all;

static double size(choir_dtype dtype)
{
    return (double)choir_dtype_size(dtype);
}

/* Returns the number of elements that an operand has of its own: those of dimensions in which
 * it does not repeat. */
static double own(const choir__strided *x, const int64_t *shape, int ndim)
{
    double n = 1;
    for (int i = 0; i < ndim; i++)
        n *= x->stride[i] ? (double)shape[i] : 1;
    return n;
}

static double product(const choir__k_matmul *k)
{
    double batch = (double)(k->batch0 * k->batch1), s = size(k->dtype);
    double c = size(k->wide ? CHOIR_F32 : k->dtype) * (k->accumulate ? 2 : 1);
    double of_gelu = k->gelu_in ? (double)(k->m * k->n) * s : 0;
    return batch * ((double)(k->m * k->k + k->k * k->n) * s + (double)(k->m * k->n) * c) +
           of_gelu;
}

static double heads(const choir__attention_shape *n, choir_dtype dtype, int of_t, int of_s)
{
    return size(dtype) * (double)(n->b * n->d) *
           (double)(of_t * n->h * n->t + of_s * n->g * n->s);
}

static double images(const choir__conv_shape *s, choir_dtype dtype)
{
    double x = (double)(s->n * s->h * s->w * s->c), y = (double)(s->n * s->oh * s->ow * s->o);
    return size(dtype) * (x + y + (double)(s->o * s->kh * s->kw * (s->c / s->groups)));
}

/* Returns the bytes of `times` passes over rows of cols elements. */
static double passes(int64_t rows, int64_t cols, choir_dtype dtype, int times)
{
    return (double)times * (double)rows * (double)cols * size(dtype);
}

static double rounded(const choir__k_round *k)
{
    double n = 0;
    for (int r = 0; r < k->count; r++)
        n += (double)k->run[r].n;
    return n * (size(CHOIR_F32) + size(k->dtype));
}

/* kernel, expression: the bytes of a call with arguments k */
#define OF_PRODUCTS(X)                                                                         \
    X(matmul, product(k))                                                                      \
    X(attention, heads(&k->n, k->dtype, 2, 2))                                                 \
    X(attention_backward, heads(&k->n, k->dtype, 4, 4))                                        \
    X(conv, images(&k->s, k->dtype))                                                           \
    X(conv_backward_input, images(&k->s, k->dtype))                                            \
    X(conv_backward_weight, images(&k->s, k->dtype))
#define OF_OTHERS(X)                                                                           \
    X(fill, passes(1, k->n, k->dtype, 1))                                                      \
    X(copy, own(&k->x, k->shape, k->ndim) * size(k->x_dtype) +                                 \
                own(&k->y, k->shape, k->ndim) * size(k->y_dtype))                              \
    X(round, rounded(k))                                                                       \
    X(unary, passes(1, k->n, k->dtype, 2))                                                     \
    X(unary_backward, passes(1, k->n, k->dtype, 3))                                            \
    X(binary,                                                                                  \
        size(k->dtype) * (own(&k->y, k->shape, k->ndim) + own(&k->a, k->shape, k->ndim) +      \
                             own(&k->b, k->shape, k->ndim)))                                   \
    X(add_scaled, passes(1, k->n, k->dtype, k->b && !k->b_half ? 3 : 2) +                      \
                      passes(1, k->n, k->b_half, !!k->b_half))                                 \
    X(sum, passes(k->rows, k->cols, k->dtype, 1))                                              \
    X(softmax, passes(k->rows, k->cols, k->dtype, 2))                                          \
    X(softmax_backward, passes(k->rows, k->cols, k->dtype, 3))                                 \
    X(layer_norm, passes(k->rows, k->cols, k->dtype, k->add ? 2 : 1) +                         \
                      passes(k->rows, k->cols, k->half_y ? k->half : k->dtype, 1) +            \
                      passes(k->rows, k->cols, k->half, !!k->y_half) +                         \
                      passes(k->rows, k->cols, k->half_add ? k->half : k->dtype, !!k->add))    \
    X(layer_norm_backward, passes(k->rows, k->cols, k->dtype, k->gx_add ? 3 : 2) +             \
                               passes(k->rows, k->cols, k->half_gy ? k->half : k->dtype, 1) +  \
                               passes(k->rows, k->cols, k->half, !!k->gx_half))                \
    X(layer_norm_weights, passes(k->rows, k->cols, k->dtype, 1) +                              \
                              passes(k->rows, k->cols, k->half_gy ? k->half : k->dtype, 1))    \
    X(swiglu, passes(k->rows, k->cols, k->dtype, 3))                                           \
    X(swiglu_backward, passes(k->rows, k->cols, k->dtype, 5))                                  \
    X(rotary, passes(k->b * k->t, k->h * k->d, k->dtype, 2))                                   \
    X(batch_norm, passes(k->rows, k->cols, k->dtype,                                           \
                      2 + (k->train && !k->again) + (k->residual ? 1 : 0)))                    \
    X(batch_norm_backward,                                                                     \
        passes(k->rows, k->cols, k->dtype, 5 + (k->y ? 2 : 0) + (k->gresidual ? 1 : 0)))       \
    X(embedding, passes(k->n, k->cols, k->dtype, 2))                                           \
    X(embedding_backward,                                                                      \
        passes(k->total, k->cols, k->dtype, 1) + passes(k->rows, k->cols, CHOIR_F32, 1))       \
    X(cross_entropy, passes(k->rows, k->cols, k->dtype, 1))                                    \
    X(cross_entropy_backward, passes(k->rows, k->cols, k->dtype, 2))                           \
    X(pair_loss, passes(1, k->n, k->dtype, 3))                                                 \
    X(pair_loss_backward, passes(1, k->n, k->dtype, 3))                                        \
    X(dropout, passes(1, k->n, k->dtype, 2))                                                   \
    X(adam, 28 * all.parameters) /* g read; parameter, m and v both ways */                    \
    X(sgd, 20 * all.parameters)                                                                \
    X(grad_norm, 4 * all.parameters)                                                           \
    X(unscale, 8 * all.parameters)

#define FUNCTION(kernel, expression)                                                           \
    static double bytes_of_##kernel(const void *args)                                          \
    {                                                                                          \
        const choir__k_##kernel *k = args;                                                     \
        (void)k;                                                                               \
        return expression;                                                                     \
    }
OF_PRODUCTS(FUNCTION)
OF_OTHERS(FUNCTION)

static const struct {
    const char *name;
    double (*bytes)(const void *args);
    bool product;
} known[] = {
#define PRODUCT(kernel, expression) {#kernel, bytes_of_##kernel, true},
#define OTHER(kernel, expression)   {#kernel, bytes_of_##kernel, false},
    OF_PRODUCTS(PRODUCT) OF_OTHERS(OTHER)};

/* --- counting --- */

/* True if rows of a 16-bit operand do not begin at multiples of 16 bytes, which tensor cores
 * are given at a time. */
static bool odd_rows(const choir__k_matmul *k)
{
    int64_t a = k->a_row == 1 ? k->a_col : k->a_row, b = k->b_row == 1 ? k->b_col : k->b_row;
    return choir_dtype_size(k->dtype) == 2 && (a % 8 || b % 8 || (!k->wide && k->c_row % 8));
}

/* Names a task. A copy between two types is a cast. */
static void name_task(const char *name, const void *args, char text[64])
{
    const choir__k_copy *k = args;
    if (name && !strcmp(name, "copy") && k->x_dtype != k->y_dtype)
        snprintf(text, 64, "cast %s to %s", choir_dtype_name(k->x_dtype),
            choir_dtype_name(k->y_dtype));
    else if (name && !strcmp(name, "matmul") && odd_rows(args))
        snprintf(text, 64, "matmul of odd rows");
    else
        snprintf(text, 64, "%s", name ? name : "bytes copied");
}

static void observe(
    void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    const char *name = choir__kernel_work_of(all.device, fn, args).name;
    char text[64];
    int i = 0;
    (void)arg, (void)start, (void)end;
    name_task(name, args, text);
    while (i < all.count && strcmp(all.kinds[i].name, text) != 0)
        i++;
    if (i == KINDS)
        return;
    kind *k = &all.kinds[i];
    if (i == all.count) {
        all.count++;
        *k = (kind){0};
        memcpy(k->name, text, sizeof text);
    }
    k->calls++;
    for (size_t j = 0; name && j < CHOIR_COUNT(known); j++)
        if (!strcmp(known[j].name, name)) {
            k->bytes += known[j].bytes(args);
            k->product = known[j].product;
        }
}

void choir__count_begin(choir_device *device, int64_t parameters)
{
    all.device = device;
    all.parameters = (double)parameters;
    all.count = 0;
    choir__queue_observe(device->queue, observe, NULL);
}

static int by_bytes(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    if (x->product != y->product)
        return x->product ? 1 : -1;
    return x->bytes != y->bytes ? x->bytes < y->bytes ? 1 : -1 : strcmp(x->name, y->name);
}

void choir__count_end(const char *workload, int64_t batch, long launches, bool json)
{
    long calls[2] = {0};
    double bytes[2] = {0};
    choir__queue_observe(all.device->queue, NULL, NULL);
    qsort(all.kinds, (size_t)all.count, sizeof *all.kinds, by_bytes);
    for (int i = 0; i < all.count; i++) {
        const kind *k = &all.kinds[i];
        calls[k->product] += k->calls;
        bytes[k->product] += k->bytes;
        if (!json)
            printf("  %-26s %5ld calls %8.2f GB%s\n", k->name, k->calls, k->bytes * 1e-9,
                k->product ? "  (product)" : "");
    }
    if (json)
        printf("{\"workload\":\"%s\",\"batch\":%lld,\"launches\":%ld,\"tasks\":%ld,"
               "\"gb\":%.3f,\"products\":%ld,\"products_gb\":%.3f}\n",
            workload, (long long)batch, launches, calls[0], bytes[0] * 1e-9, calls[1],
            bytes[1] * 1e-9);
    else
        printf("%s, batch %lld: %ld launches; between products %ld calls, %.1f GB; products "
               "and attention %ld calls, %.1f GB\n",
            workload, (long long)batch, launches, calls[0], bytes[0] * 1e-9, calls[1],
            bytes[1] * 1e-9);
    fflush(stdout);
}

long choir__count_launches(void)
{
    void *library = dlopen("libsoftgpu.so", RTLD_LAZY | RTLD_NOLOAD);
    long (*launches)(void) = NULL;
    if (library)
        *(void **)&launches = dlsym(library, "softgpu_launches");
    return launches ? launches() : 0;
}
