/* 16-bit floats on devices whose kernels all accept them (choir_device.half). Training under
 * autocast makes f32 copies there only where f32 results need them. It is as near to f32 as
 * training with copies, and takes less memory and fewer kernels. With `half` off, the same
 * device works as CPUs do. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "autograd/book.h"
#include "tensor/autocast.h"

enum { STEPS = 4, MANY = 1 << 20 };

typedef enum way { IN_F32, WIDENED, NATIVE } way;

typedef struct job {
    const char *model;
    bool image;
    int64_t batch, length, classes; /* an image's side; of tokens a sequence's length */
    choir_dtype dtype;
    bool watched; /* hooks see gpt2's norms, which then take no 16-bit operands */
} job;

typedef struct outcome {
    double loss[STEPS];
    float *grad; /* of the first step, of all parameters */
    int64_t count;
    size_t peak;
    uint64_t tasks;
    int copies;        /* to f32, in the forward pass of the last step */
    int64_t most;      /* elements of the largest of them */
    bool halves_found; /* some op's result was 16-bit */
} outcome;

static choir_device *device;

static int find_device(void **state)
{
    device = choir_device_find("cuda:0");
    if (!device)
        print_message("%s\n", choir_error_message());
    return device && device->half ? 0 : -1;
}

static void collect(const char *name, choir_tensor *t, void *arg)
{
    outcome *o = arg;
    choir_tensor *g = choir_grad(t);
    assert_non_null(g);
    assert_int_equal(g->dtype, CHOIR_F32);
    assert_true(o->count + g->count <= MANY);
    ok(choir_read(g, o->grad + o->count, (size_t)g->count * sizeof(float)));
    o->count += g->count;
}

static void look_at_tape(const choir_scope *s, outcome *o)
{
    o->copies = 0, o->most = 0;
    for (const choir__tape_entry *r = s->tape; r; r = r->next) {
        o->halves_found |= choir__is_half(r->out->dtype);
        if (r->op != &choir__widen_op)
            continue;
        o->copies++;
        o->most = choir__max(o->most, r->out->count);
    }
}

static choir_tensor *scores(choir_scope *s, choir_module *net, const job *j, int64_t *wanted)
{
    int64_t n = j->image ? j->batch : j->batch * j->length, ids[256];
    assert_true(n <= 256);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = i * 7 % j->classes;
        wanted[i] = (i * 7 + 3) % j->classes;
    }
    choir_tensor *x = j->image
                          ? choir_randn(s, choir_dims(j->batch, 3, j->length, j->length), "x")
                          : choir_from(s, CHOIR_I64, choir_dims(j->batch, j->length), ids);
    return choir_forward(net, x);
}

static void take_step(
    choir_scope *run, choir_module *net, choir_optim *optim, const job *j, way how, outcome *o)
{
    int64_t wanted[256];
    choir_scope *s = choir_step_open(run, 0);
    if (how != IN_F32)
        choir_autocast(s, j->dtype);
    choir_tensor *y = scores(s, net, j, wanted);
    choir_shape rows = y->shape;
    rows.ndim--;
    choir_tensor *loss = choir_cross_entropy(y, choir_from(s, CHOIR_I64, rows, wanted));
    ok(choir_scope_status(s));
    assert_int_equal(loss->dtype, CHOIR_F32);
    look_at_tape(s, o);
    *o->loss = choir_item(loss);
    ok(choir_backward(loss));
    if (!o->count)
        choir_module_visit(net, false, collect, o);
    ok(choir_optim_step(optim));
    ok(choir_scope_close(s));
    ok(choir_device_sync(device));
}

static void see(choir_module *module, choir_tensor *const *in, int count, void *arg)
{
    assert_int_equal(in[0]->dtype, CHOIR_F32);
    ++*(int *)arg;
}

static void watch_norms(choir_module *net, int *calls)
{
    static const char *const norms[] = {"transformer.h.0.ln_1", "transformer.h.0.ln_2",
        "transformer.h.1.ln_1", "transformer.h.1.ln_2", "transformer.ln_f"};
    for (size_t i = 0; i < CHOIR_COUNT(norms); i++)
        choir_module_hook(
            choir_module_at(net, norms[i]), (choir_module_hooks){.before_forward = see}, calls);
}

static outcome train(const job *j, way how)
{
    int calls = 0;
    outcome o = {.grad = malloc(MANY * sizeof(float))};
    double loss[STEPS];
    choir_device_stats before, after;
    device->half = how == NATIVE;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *net = choir_model(run, j->model, NULL);
    ok(choir_scope_status(run));
    if (j->watched)
        watch_norms(net, &calls);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.02f;
    choir_optim *optim = choir_sgd(run, net, hp);
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS - 1)
            choir_device_reset_peak(device);
        choir_device_get_stats(device, &before);
        take_step(run, net, optim, j, how, &o);
        loss[i] = *o.loss;
    }
    choir_device_get_stats(device, &after);
    o.peak = after.bytes_peak;
    o.tasks = after.tasks - before.tasks;
    for (int i = 0; i < STEPS; i++)
        o.loss[i] = loss[i];
    assert_int_equal(calls, j->watched ? 5 * STEPS : 0);
    ok(choir_scope_close(run));
    device->half = true;
    return o;
}

static double distance(const outcome *a, const outcome *b)
{
    double error = 0, size = 0;
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        error += pow((double)a->grad[i] - (double)b->grad[i], 2);
        size += pow((double)b->grad[i], 2);
    }
    return sqrt(error / size);
}

/* Returns the native outcome. bound: limit of ||g - g32|| / ||g32||; of losses: limit of their
 * relative difference. */
static outcome compare(const job *j, double bound, double of_losses)
{
    outcome o[3];
    for (way h = IN_F32; h <= NATIVE; h++)
        o[h] = train(j, h);
    double native = distance(&o[NATIVE], &o[IN_F32]),
           widened = distance(&o[WIDENED], &o[IN_F32]);
    print_message("%s %s: loss %.4f (f32 %.4f), gradients off by %.4f (%.4f with f32 copies), "
                  "%d copies (%d), %zu bytes (%zu), %llu tasks (%llu)\n",
        j->model, choir_dtype_name(j->dtype), o[NATIVE].loss[STEPS - 1],
        o[IN_F32].loss[STEPS - 1], native, widened, o[NATIVE].copies, o[WIDENED].copies,
        o[NATIVE].peak, o[WIDENED].peak, (unsigned long long)o[NATIVE].tasks,
        (unsigned long long)o[WIDENED].tasks);
    for (int i = 0; i < STEPS; i++)
        assert_true(
            fabs(o[NATIVE].loss[i] - o[IN_F32].loss[i]) < of_losses * o[IN_F32].loss[i]);
    assert_true(o[NATIVE].halves_found && native < bound && native < 2 * widened + 1e-3);
    assert_true(o[NATIVE].copies < o[WIDENED].copies && o[NATIVE].tasks < o[WIDENED].tasks);
    assert_true(o[NATIVE].peak <= o[WIDENED].peak);
    for (way h = IN_F32; h <= NATIVE; h++)
        free(o[h].grad);
    return o[NATIVE];
}

/* Nothing is widened: kernels add the results of linear layers to the f32 residual stream, and
 * norms write what products read. */
static void gpt2(void **state)
{
    job j = {"gpt2:layers=2,heads=2,width=32,context=16,vocab=320,dropout=0.1", false, 2, 16,
        320, CHOIR_BF16, false};
    outcome o = compare(&j, 0.03, 0.02);
    assert_int_equal(o.copies, 0);
}

/* The kernels that take 16-bit operands beside f32 ones have the bits of copies, and are fewer.
 */
static void beside(void **state)
{
    job j = {"gpt2:layers=2,heads=2,width=32,context=16,vocab=320,dropout=0.1", false, 2, 16,
        320, CHOIR_BF16, false};
    outcome one = train(&j, NATIVE);
    j.watched = true;
    outcome apart = train(&j, NATIVE);
    assert_memory_equal(one.loss, apart.loss, sizeof one.loss);
    assert_int_equal(one.count, apart.count);
    assert_memory_equal(one.grad, apart.grad, (size_t)one.count * sizeof *one.grad);
    print_message("%llu tasks, %llu with copies\n", (unsigned long long)one.tasks,
        (unsigned long long)apart.tasks);
    assert_true(one.tasks + 15 <= apart.tasks);
    free(one.grad), free(apart.grad);
}

static void llama(void **state)
{
    job j = {"llama:layers=1,heads=2,width=32,context=16,vocab=320", false, 2, 16, 320,
        CHOIR_BF16, false};
    outcome o = compare(&j, 0.03, 0.02);
    assert_true(o.most <= 2 * 16 * 32);
}

static void resnet(void **state)
{
    for (int f16 = 0; f16 < 2; f16++) {
        job j = {"resnet18:width=4,image=16,classes=5,small=1", true, 16, 16, 5,
            f16 ? CHOIR_F16 : CHOIR_BF16, false};
        outcome o = compare(&j, f16 ? 0.15 : 0.4, 0.03); /* 20 layers deep */
        assert_int_equal(o.copies, 0);
    }
}

/* --- sums of f32 and 16 bits, whose readers come in any order --- */

enum { ROWS = 6, WIDE = 16 };

/* Returns the gradient of h, which is added to x: of norm(x + h) and of `first`, which reads
 * the sum before the norm does. */
static void gradient_of_addend(int first, bool native, float *g)
{
    device->half = native;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *norm = choir_nn_layer_norm(run, WIDE),
                 *net = choir_nn_linear(run, WIDE, WIDE);
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *x = choir_randn(s, choir_dims(ROWS, WIDE), "x");
    choir_tensor *h = choir_randn(s, choir_dims(ROWS, WIDE), "h");
    choir_autocast(s, CHOIR_BF16);
    choir_require_grad(h);
    choir_tensor *sum = choir_add(x, choir_cast(h, CHOIR_BF16)), *y = NULL;
    if (first == 1)
        y = choir_sum(choir_square(choir_forward(net, sum)));
    if (first == 2)
        y = choir_sum(choir_square(choir_narrow(sum, 0, 0, 2)));
    choir_tensor *z = choir_sum(choir_square(choir_forward(norm, sum)));
    ok(choir_backward(y ? choir_add(y, choir_scale(z, 0.01)) : z));
    ok(choir_read(choir_grad(h), g, ROWS * WIDE * sizeof *g));
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
    device->half = true;
}

static void expect_near(const float *a, const float *b, double bound)
{
    double error = 0, size = 0;
    for (int i = 0; i < ROWS * WIDE; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)a[i], 2);
    }
    assert_true(size > 0 && sqrt(error / size) < bound);
}

static void readers_in_any_order(void **state)
{
    for (int first = 0; first < 3; first++) {
        float g[2][ROWS * WIDE];
        for (int native = 0; native < 2; native++)
            gradient_of_addend(first, native, g[native]);
        expect_near(g[0], g[1], 0.02);
    }
}

/* Returns the gradient of x, which two products read, and another op that is before, between or
 * after them in backward: a sum, which gives all its operands one gradient, or a square. */
static void gradient_of_products(int other, int place, bool native, float *g)
{
    device->half = native;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *net[2];
    for (int i = 0; i < 2; i++)
        net[i] = choir_nn_linear(run, WIDE, WIDE);
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *leaf = choir_randn(s, choir_dims(ROWS, WIDE), "x"), *y = NULL;
    choir_tensor *h = choir_randn(s, choir_dims(ROWS, WIDE), "h");
    choir_autocast(s, CHOIR_BF16);
    choir_require_grad(leaf);
    choir_tensor *x = choir_scale(leaf, 2);
    for (int i = 0; i < 3; i++) {
        choir_tensor *part = i != place   ? choir_forward(net[i > place], x)
                             : other == 0 ? choir_add(x, h)
                                          : choir_square(x);
        part = choir_cast(part, CHOIR_F32);
        y = y ? choir_add(y, part) : part;
    }
    ok(choir_backward(choir_sum(choir_mul(y, h))));
    ok(choir_read(choir_grad(leaf), g, ROWS * WIDE * sizeof *g));
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
    device->half = true;
}

/* Their gradients are added up in f32, by the products themselves. */
static void readers_that_multiply(void **state)
{
    for (int other = 0; other < 2; other++)
        for (int place = 0; place < 3; place++) {
            float g[2][ROWS * WIDE];
            for (int native = 0; native < 2; native++)
                gradient_of_products(other, place, native, g[native]);
            expect_near(g[0], g[1], 0.01);
        }
}

/* A parameter plus a 16-bit tensor of its shape, as of a low-rank change of a weight. */
static void parameter_in_a_sum(void **state)
{
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *net = choir_nn_linear(run, WIDE, WIDE);
    choir_tensor *weight = choir_module_find(net, "weight");
    choir_scope *s = choir_step_open(run, 0);
    choir_autocast(s, CHOIR_BF16);
    choir_tensor *a = choir_randn(s, choir_dims(WIDE, WIDE), "a");
    choir_tensor *loss = choir_sum(choir_square(choir_add(weight, choir_matmul(a, a))));
    ok(choir_scope_status(s));
    ok(choir_backward(loss));
    assert_non_null(choir_grad(weight));
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
}

/* A weight that changes between two layers' uses in one step: the second use sees the change,
 * in every step. */
static void changed_between(void **state)
{
    double seen[3];
    float zeros[WIDE * WIDE] = {0}, ones[WIDE * WIDE];
    for (int k = 0; k < WIDE * WIDE; k++)
        ones[k] = 1;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *a = choir_nn_linear(run, WIDE, WIDE), *b = choir_nn_linear(run, WIDE, WIDE);
    for (int i = 0; i < 3; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_autocast(s, CHOIR_BF16);
        choir_tensor *x = choir_forward(a, choir_full(s, CHOIR_F32, choir_dims(2, WIDE), 1));
        ok(choir_write(choir_module_find(b, "weight"), zeros, sizeof zeros));
        ok(choir_write(choir_module_find(b, "bias"), zeros, WIDE * sizeof *zeros));
        choir_tensor *y = choir_cast(choir_forward(b, x), CHOIR_F32);
        seen[i] = choir_item(choir_sum(choir_square(y)));
        ok(choir_write(choir_module_find(b, "weight"), ones, sizeof ones));
        ok(choir_scope_close(s));
    }
    for (int i = 0; i < 3; i++)
        assert_true(seen[i] == 0);
    ok(choir_scope_close(run));
}

/* --- recurrent layers: all their cells, both directions, the last states --- */

static choir_tensor *of_layer(choir_scope *s, choir_module *net)
{
    choir_tensor *y = choir_forward(net, choir_randn(s, choir_dims(6, 3, 8), "x"));
    return choir_mean(choir_square(choir_cast(y, CHOIR_F32)));
}

static void recurrent(void **state)
{
    choir_recurrent_opts opts = choir_recurrent_defaults();
    opts.bidirectional = true;
    for (int gru = 0; gru < 2; gru++) {
        outcome o[2];
        choir_scope *run = choir_scope_open(device, 3);
        choir_module *net =
            gru ? choir_nn_gru(run, 8, 16, opts) : choir_nn_lstm(run, 8, 16, opts);
        ok(choir_scope_status(run));
        for (int half = 0; half < 2; half++) {
            o[half] = (outcome){.grad = malloc(MANY * sizeof(float))};
            choir_scope *s = choir_step_open(run, 1);
            if (half)
                choir_autocast(s, CHOIR_BF16);
            choir_tensor *loss = of_layer(s, net);
            look_at_tape(s, &o[half]);
            *o[half].loss = choir_item(loss);
            ok(choir_backward(loss));
            choir_module_visit(net, false, collect, &o[half]);
            ok(choir_scope_close(s));
            choir__run_of(run)->books ? choir__book_consume(choir__run_of(run)->books)
                                      : (void)0;
        }
        assert_true(fabs(*o[1].loss - *o[0].loss) < 0.02 * *o[0].loss);
        assert_true(distance(&o[1], &o[0]) < 0.03);
        assert_int_equal(o[1].copies, 1); /* the test's own cast */
        free(o[0].grad), free(o[1].grad);
        ok(choir_scope_close(run));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(beside),
        cmocka_unit_test(llama), cmocka_unit_test(resnet),
        cmocka_unit_test(readers_in_any_order), cmocka_unit_test(readers_that_multiply),
        cmocka_unit_test(parameter_in_a_sum), cmocka_unit_test(changed_between),
        cmocka_unit_test(recurrent)};
    return cmocka_run_group_tests_name("16 bits on the device", tests, find_device, NULL);
}
