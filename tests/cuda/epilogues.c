/* Further results of products (choir_device.epilogues): a linear layer's backward launches no
 * sum for its bias. The gradients are as near to those of separate kernels as the dtype allows,
 * in both orders of the weight, for weights that are no parameters, and for those whose
 * gradient is made in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "device/device.h"
#include "device/work.h"
#include "nn/module.h"
#include "tensor/op.h"

enum { MOST_GRADIENTS = 4 };

static choir_device *device;

static int find_device(void **state)
{
    (void)state;
    device = choir_device_find("cuda:0");
    if (!device)
        print_message("%s\n", choir_error_message());
    return device && device->epilogues ? 0 : -1;
}

static void ok(choir_status status)
{
    if (status != CHOIR_OK)
        fail_msg("%s: %s", choir_status_name(status), choir_error_message());
}

/* --- a layer --- */

typedef struct layer {
    choir_module base;
    choir_tensor *weight, *bias;
} layer;

static const choir_module_class layer_class = {"layer", sizeof(layer), NULL, 0};

typedef struct job {
    const char *name;
    int64_t rows, in, out;
    bool in_out;
    bool of_view;      /* the weight is a result, not the parameter itself */
    choir_dtype dtype; /* of autocast; f32: without */
    int sums;          /* over rows, that are launched nevertheless */
} job;

static choir_tensor *apply(const layer *l, const job *j, choir_tensor *x)
{
    choir_tensor *w = l->weight;
    if (j->of_view)
        w = choir_scale(choir_in(choir_tensor_scope(x), w), 2);
    return j->in_out ? choir__linear_in_out(x, w, l->bias) : choir_linear(x, w, l->bias);
}

static layer *new_layer(choir_scope *run, const job *j)
{
    layer *l = choir_module_new(run, &layer_class);
    choir_shape w = j->in_out ? choir_dims(j->in, j->out) : choir_dims(j->out, j->in);
    choir_module_param(&l->base, "weight", &l->weight, w, choir_init_normal(0, 0.2));
    choir_module_param(
        &l->base, "bias", &l->bias, choir_dims(j->out), choir_init_normal(0, 0.5));
    choir__module_ready(&l->base);
    return l;
}

/* --- its gradients --- */

typedef struct outcome {
    float *grad[MOST_GRADIENTS]; /* of the weight, of the bias, of x */
    int64_t n[MOST_GRADIENTS];
    int sums; /* launched, over rows */
} outcome;

static void count_sums(void *arg, choir__task *fn, const void *args, double start, double end)
{
    const char *name = choir__work_of(device, fn, args).name;
    (void)start, (void)end;
    if (name && !strcmp(name, "sum") && ((const choir__k_sum *)args)->over_rows)
        ++*(int *)arg;
}

static void keep(outcome *o, int i, choir_tensor *g)
{
    assert_non_null(g);
    o->n[i] = g->count;
    o->grad[i] = malloc((size_t)g->count * sizeof(float));
    ok(choir_read(g, o->grad[i], (size_t)g->count * sizeof(float)));
}

static outcome train(const job *j, bool epilogues)
{
    outcome o = {.sums = 0};
    device->epilogues = epilogues;
    choir_scope *run = choir_scope_open(device, 3);
    layer *l = new_layer(run, j);
    choir_scope *s = choir_step_open(run, 0);
    if (j->dtype != CHOIR_F32)
        choir_autocast(s, j->dtype);
    choir_tensor *x = choir_randn(s, choir_dims(j->rows, j->in), "x");
    choir_require_grad(x);
    choir_tensor *y = choir_cast(apply(l, j, x), CHOIR_F32);
    choir_tensor *loss = choir_sum(choir_square(choir_affine(y, 1, 1)));
    ok(choir_device_sync(device));
    choir__queue_observe(device->queue, count_sums, &o.sums);
    ok(choir_backward(loss));
    ok(choir_device_sync(device));
    choir__queue_observe(device->queue, NULL, NULL);
    keep(&o, 0, choir_grad(l->weight));
    keep(&o, 1, choir_grad(l->bias));
    keep(&o, 2, choir_grad(x));
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
    device->epilogues = true;
    return o;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(error / size);
}

static void compare(const job *j)
{
    double bound = j->dtype == CHOIR_F32 ? 1e-5 : j->dtype == CHOIR_F16 ? 2e-3 : 1e-2;
    outcome with = train(j, true), without = train(j, false);
    if (with.sums != j->sums || without.sums != 1)
        fail_msg("%s: %d sums are launched, and %d without epilogues", j->name, with.sums,
            without.sums);
    for (int i = 0; i < MOST_GRADIENTS && with.grad[i]; i++) {
        double d = distance(with.grad[i], without.grad[i], with.n[i]);
        if (!(d < bound))
            fail_msg("%s: gradient %d is off by %g", j->name, i, d);
        free(with.grad[i]), free(without.grad[i]);
    }
}

static void linear(void **state)
{
    (void)state;
    static const job jobs[] = {
        {.name = "(out, in)", .rows = 40, .in = 24, .out = 16},
        {.name = "(in, out)", .rows = 40, .in = 24, .out = 16, .in_out = true},
        {.name = "odd sizes", .rows = 13, .in = 7, .out = 5},
        {.name = "odd sizes (in, out)", .rows = 13, .in = 7, .out = 5, .in_out = true},
        {.name = "one row", .rows = 1, .in = 3, .out = 33},
        {.name = "a weight that is a result", .rows = 9, .in = 8, .out = 16, .of_view = true},
        {.name = "in parts", .rows = 2, .in = 2048, .out = 3400, .sums = 1},
        {.name = "a result in parts",
            .rows = 2,
            .in = 2048,
            .out = 3400,
            .of_view = true,
            .sums = 1},
        {.name = "in parts (in, out)", .rows = 2, .in = 2048, .out = 3400, .in_out = true},
    };
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
    for (size_t i = 0; i < CHOIR_COUNT(jobs); i++)
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
            job j = jobs[i];
            j.dtype = dtypes[d];
            /* a 16-bit weight's gradient is 16-bit as well, and the bias's f32 */
            j.sums |= j.of_view && j.dtype != CHOIR_F32;
            compare(&j);
        }
}

/* --- 16-bit biases --- */

/* Counts casts of `out` elements: those of the bias. */
typedef struct casts {
    int64_t out;
    int count;
} casts;

static void count_casts(void *arg, choir__task *fn, const void *args, double start, double end)
{
    casts *c = arg;
    const char *name = choir__work_of(device, fn, args).name;
    const choir__k_copy *k = args;
    (void)start, (void)end;
    if (name && !strcmp(name, "copy") && k->x_dtype != k->y_dtype && k->ndim == 1 &&
        k->shape[0] == c->out)
        c->count++;
}

/* A bias is rounded once per scope, however often the layer is used, and its gradient is
 * f32: that of the two uses. */
static void bias_once(void **state)
{
    (void)state;
    job j = {.name = "used twice", .rows = 40, .in = 16, .out = 16, .dtype = CHOIR_BF16};
    casts c = {.out = j.out};
    choir_scope *run = choir_scope_open(device, 3);
    layer *l = new_layer(run, &j);
    choir_scope *s = choir_step_open(run, 0);
    choir_autocast(s, j.dtype);
    choir_tensor *x = choir_randn(s, choir_dims(j.rows, j.in), "x");
    ok(choir_device_sync(device));
    choir__queue_observe(device->queue, count_casts, &c);
    choir_tensor *y = apply(l, &j, apply(l, &j, x));
    choir_tensor *loss = choir_sum(choir_cast(y, CHOIR_F32));
    ok(choir_backward(loss));
    ok(choir_device_sync(device));
    choir__queue_observe(device->queue, NULL, NULL);
    assert_int_equal(c.count, 1);
    float w[16 * 16], g[16];
    ok(choir_read(l->weight, w, sizeof w));
    ok(choir_read(choir_grad(l->bias), g, sizeof g));
    for (int i = 0; i < 16; i++) { /* the later use's rows, and the earlier one's through w */
        double exact = (double)j.rows;
        for (int o = 0; o < 16; o++)
            exact += (double)j.rows * (double)w[o * 16 + i];
        assert_true(fabs((double)g[i] - exact) < 0.02 * (double)j.rows);
    }
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear), cmocka_unit_test(bias_once)};
    return cmocka_run_group_tests_name("epilogues", tests, find_device, NULL);
}
