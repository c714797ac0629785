/* Further results of products (choir_device.epilogues): a linear layer's backward launches no
 * sum for its bias, and no kernel for the slope of GELU before the layer. The gradients are as
 * near to those of separate kernels as the dtype allows, in both orders of the weight, for
 * weights that are no parameters, and for those whose gradient is made in parts. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "autograd/book.h"
#include "device/device.h"
#include "device/work.h"
#include "nn/module.h"
#include "sample.h"
#include "tensor/op.h"

enum { MOST_GRADIENTS = 4 };

static choir_device *device;

static int find_device(void **state)
{
    device = choir_device_find("cuda:0");
    if (!device)
        print_message("%s\n", choir_error_message());
    return device && device->epilogues ? 0 : -1;
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
    bool gelu;         /* the layer's operand is GELU of x */
    choir_dtype dtype; /* of autocast; f32: without */
    int sums, gelus;   /* kernels that backward launches nevertheless: sums over rows */
} job;

static choir_tensor *apply(const layer *l, const job *j, choir_tensor *x)
{
    choir_tensor *w = l->weight;
    if (j->of_view)
        w = choir_scale(choir_in(choir_tensor_scope(x), w), 2);
    if (j->gelu && device->epilogues)
        return choir__linear_of_gelu(x, w, l->bias, j->in_out);
    if (j->gelu)
        x = choir_gelu_tanh(x);
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

static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};

/* --- its gradients --- */

typedef struct outcome {
    float *grad[MOST_GRADIENTS]; /* of the weight, of the bias, of x */
    int64_t n[MOST_GRADIENTS];
    float *y;  /* the layer's result */
    int sums;  /* launched, over rows */
    int gelus; /* launched, either way, in backward */
} outcome;

static void count_tasks(
    void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    outcome *o = arg;
    const char *name = choir__kernel_work_of(device, fn, args).name;
    if (name && !strcmp(name, "sum"))
        o->sums += ((const choir__k_sum *)args)->over_rows;
    if (name && !strcmp(name, "unary"))
        o->gelus += ((const choir__k_unary *)args)->op == CHOIR__GELU_TANH;
    if (name && !strcmp(name, "unary_backward"))
        o->gelus += ((const choir__k_unary_backward *)args)->op == CHOIR__GELU_TANH;
}

static float *values_of(choir_tensor *t)
{
    assert_non_null(t);
    float *values = malloc((size_t)t->count * sizeof *values);
    ok(choir_read(t, values, (size_t)t->count * sizeof *values));
    return values;
}

static void keep(outcome *o, int i, choir_tensor *g)
{
    o->grad[i] = values_of(g);
    o->n[i] = g->count;
}

/* GELU's operand is a result of 16 bits, as in a model. */
static choir_tensor *operand(const job *j, choir_tensor *x)
{
    return j->gelu ? choir_cast(x, j->dtype) : x;
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
    choir_tensor *y = choir_cast(apply(l, j, operand(j, x)), CHOIR_F32);
    choir_tensor *loss = choir_sum(choir_square(choir_affine(y, 1, 1)));
    o.y = values_of(y);
    choir__queue_observe(device->queue, count_tasks, &o);
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
    assert_memory_equal(with.y, without.y, (size_t)(j->rows * j->out) * sizeof(float));
    free(with.y), free(without.y);
    if (j->gelu && (with.gelus != j->gelus || without.gelus < 1))
        fail_msg("%s: %d kernels of GELU are launched, and %d without epilogues", j->name,
            with.gelus, without.gelus);
    for (int i = 0; i < MOST_GRADIENTS && with.grad[i]; i++) {
        double d = distance(with.grad[i], without.grad[i], with.n[i]);
        if (!(d < bound))
            fail_msg("%s: gradient %d is off by %g", j->name, i, d);
        free(with.grad[i]), free(without.grad[i]);
    }
}

static void linear(void **state)
{
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
    for (size_t i = 0; i < CHOIR_COUNT(jobs); i++)
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
            job j = jobs[i];
            if (j.in == 2048 && !sample_one_of(4)) /* seconds on the soft GPU */
                continue;
            j.dtype = dtypes[d];
            /* a 16-bit weight's gradient is 16-bit as well, and the bias's f32 */
            j.sums |= j.of_view && j.dtype != CHOIR_F32;
            compare(&j);
        }
}

/* GELU's result is that of the separate op, bit for bit, and its slope comes with the product,
 * whose sums are not rounded before; in f32 and for odd rows within the kernel's own task. */
static void linear_of_gelu(void **state)
{
    static const job jobs[] = {
        {.name = "GELU, (out, in)", .rows = 40, .in = 24, .out = 16},
        {.name = "GELU, (in, out)", .rows = 40, .in = 64, .out = 16, .in_out = true},
        {.name = "GELU, odd sizes", .rows = 13, .in = 7, .out = 5},
        {.name = "GELU, a weight that is a result",
            .rows = 9,
            .in = 8,
            .out = 16,
            .of_view = true},
    };
    for (size_t i = 0; i < CHOIR_COUNT(jobs); i++)
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
            job j = jobs[i];
            j.dtype = dtypes[d];
            j.gelu = true;
            j.sums = j.of_view && j.dtype != CHOIR_F32;
            compare(&j);
        }
}

/* --- a block of GPT-2 --- */

static void see_gelu(choir_module *module, choir_tensor *const *in, int count, void *arg)
{
    assert_int_equal(count, 1);
    *(int64_t *)arg = choir_tensor_size(in[0], 2);
}

/* Returns how many records of one step, forward, are of choir__linear_of_gelu. */
static int joint(choir_scope *run, choir_module *block, choir_dtype dtype)
{
    int count = 0;
    choir_scope *s = choir_step_open(run, 0);
    if (dtype != CHOIR_F32)
        choir_autocast(s, dtype);
    choir_tensor *y = choir_forward(block, choir_randn(s, choir_dims(2, 4, 16), "x"));
    for (const choir__tape_entry *r = s->tape; r; r = r->next)
        count += !strcmp(r->op->name, "linear_of_gelu");
    ok(choir_backward(choir_sum(choir_cast(y, CHOIR_F32))));
    if (choir__run_of(run)->books)
        choir__book_consume(choir__run_of(run)->books);
    ok(choir_scope_close(s));
    return count;
}

/* Under autocast GELU and the layer that reads it are one op, unless a hook sees GELU's result,
 * or the layer is recomputed by itself. */
static void in_a_block(void **state)
{
    int64_t seen = 0;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *block = choir_nn_transformer_block(run, 16, 2, true, 0, 0.02);
    choir_module *proj = choir_module_at(block, "mlp.c_proj");
    assert_int_equal(joint(run, block, CHOIR_BF16), 1);
    assert_int_equal(joint(run, block, CHOIR_F32), 0);
    device->epilogues = false;
    assert_int_equal(joint(run, block, CHOIR_BF16), 0);
    device->epilogues = true;
    choir_module_recompute(proj, true);
    assert_int_equal(joint(run, block, CHOIR_BF16), 0);
    choir_module_recompute(proj, false);
    assert_int_equal(joint(run, block, CHOIR_BF16), 1);
    choir_module_hook(proj, (choir_module_hooks){.before_forward = see_gelu}, &seen);
    assert_int_equal(joint(run, block, CHOIR_BF16), 0);
    assert_int_equal(seen, 64);
    ok(choir_scope_close(run));
}

/* --- launches --- */

/* Returns the launches of a product (m, k) by (k, n) on the software-emulated GPU; 0 on others,
 * which do not count them. */
static long launches_of(choir__k_matmul k)
{
    long (*launches)(void) = NULL;
    void *library = dlopen("libsoftgpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        *(void **)&launches = dlsym(library, "softgpu_launches");
    enum { ROOM = 4096 }; /* bytes of each operand */
    choir__pool_block *block = choir__block_new(device, 6 * ROOM);
    char *at = choir__block_data(block);
    choir__k_fill zero = {.y = at, .n = 6 * ROOM / 4, .dtype = CHOIR_F32};
    choir__launch(device, CHOIR_F32, fill, &zero);
    k.batch0 = k.batch1 = k.a_row = k.b_col = 1;
    k.a = at, k.a_col = k.m;
    k.b = at + ROOM, k.b_row = k.n;
    k.c = at + 2 * ROOM, k.c_row = k.n;
    k.a_sums = k.a_sums ? at + 3 * ROOM : NULL;
    k.b_sums = k.b_sums ? at + 4 * ROOM : NULL;
    k.gelu_in = k.gelu_in ? at + 5 * ROOM : NULL;
    ok(choir_device_sync(device));
    long before = launches ? launches() : 0;
    choir__launch(device, k.dtype, matmul, &k);
    ok(choir_device_sync(device));
    choir__block_free(block);
    return launches ? launches() - before : 0;
}

/* A product with an epilogue of the library is one launch; others are followed by kernels. */
static void one_launch(void **state)
{
    static char given;
    choir__k_matmul k = {.m = 16, .n = 24, .k = 32, .dtype = CHOIR_BF16};
    if (!launches_of(k))
        skip();
    for (int wide = 0; wide < 2; wide++) {
        k.wide = wide;
        k.a_sums = &given;
        assert_int_equal(launches_of(k), 1);
        k.a_sums = NULL, k.b_sums = &given;
        assert_int_equal(launches_of(k), 1);
        k.b_sums = NULL;
    }
    k.wide = false;
    k.b_sums = &given, k.dtype = CHOIR_F32;
    assert_int_equal(launches_of(k), 1);
    k.dtype = CHOIR_F64;
    assert_true(launches_of(k) > 1);
    k.b_sums = NULL, k.gelu_in = &given, k.dtype = CHOIR_BF16;
    assert_int_equal(launches_of(k), 1);
    k.n = 20;
    assert_int_equal(launches_of(k), 2);
    k.n = 24, k.dtype = CHOIR_F32;
    assert_int_equal(launches_of(k), 2);
}

/* --- 16-bit biases --- */

/* Counts casts of `out` elements: those of the bias. */
typedef struct casts {
    int64_t out;
    int count;
} casts;

static void count_casts(
    void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    casts *c = arg;
    const char *name = choir__kernel_work_of(device, fn, args).name;
    const choir__k_copy *k = args;
    if (name && !strcmp(name, "copy") && k->x_dtype != k->y_dtype && k->ndim == 1 &&
        k->shape[0] == c->out)
        c->count++;
}

/* A bias is rounded once per scope, however often the layer is used, and its gradient is
 * f32: that of the two uses. */
static void bias_once(void **state)
{
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear),
        cmocka_unit_test(linear_of_gelu), cmocka_unit_test(in_a_block),
        cmocka_unit_test(one_launch), cmocka_unit_test(bias_once)};
    return cmocka_run_group_tests_name("epilogues", tests, find_device, NULL);
}
