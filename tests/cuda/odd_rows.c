/* Scores of an odd number of classes in 16 bits: their rows begin at multiples of 16 bytes, so
 * that products by tensor cores are fast. All ops compute the same numbers from them as from
 * rows without gaps: the same bits where products add in one order. NVIDIA's libraries have
 * other kernels for rows that begin elsewhere, so on its GPUs the distance counts. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "base/base.h"
#include "sample.h"
#include "tensor/tensor.h"

enum {
    BATCH = 2,
    LENGTH = 8,
    CLASSES = 515,
    SPACED = 520,
    WIDTH = 32,
    STEPS = 2,
    MANY = 1 << 17
};

/* How the loss is computed from the scores y (BATCH, LENGTH, CLASSES). */
typedef choir_tensor *reader(choir_scope *run, choir_tensor *y, choir_tensor *wanted);

typedef struct outcome {
    float loss[STEPS], grad[MANY];
    int64_t count;
} outcome;

static choir_device *device;
static outcome results[2];

static int find_device(void **state)
{
    device = choir_device_find("cuda:0");
    return device && device->row_bytes ? 0 : -1;
}

static void collect(const char *name, choir_tensor *t, void *arg)
{
    outcome *o = arg;
    choir_tensor *g = choir_grad(t);
    assert_true(o->count + g->count <= MANY);
    ok(choir_read(g, o->grad + o->count, (size_t)g->count * sizeof(float)));
    o->count += g->count;
}

/* --- readers --- */

static choir_tensor *loss_of(choir_scope *run, choir_tensor *y, choir_tensor *wanted)
{
    return choir_cross_entropy(y, wanted);
}

static choir_tensor *loss_of_rows(choir_scope *run, choir_tensor *y, choir_tensor *wanted)
{
    choir_tensor *rows = choir_reshape(y, choir_dims(-1, CLASSES));
    assert_ptr_equal(rows->storage, y->storage); /* nothing is copied */
    return choir_cross_entropy(rows, choir_reshape(wanted, choir_dims(-1)));
}

static choir_tensor *smoothed(choir_scope *run, choir_tensor *y, choir_tensor *wanted)
{
    choir_cross_entropy_opts o = choir_cross_entropy_defaults();
    o.label_smoothing = 0.1f;
    o.weight = choir_full(choir_tensor_scope(y), CHOIR_F32, choir_dims(CLASSES), 0.5);
    return choir_cross_entropy_with(y, wanted, o);
}

/* The scores are read again, so their memory is not the gradient's. */
static choir_tensor *with_others(choir_scope *run, choir_tensor *y, choir_tensor *wanted)
{
    choir_tensor *large = choir_mean(choir_square(y)), *p = choir_mean(choir_softmax(y));
    choir_tensor *some = choir_mean(choir_square(choir_narrow(y, 2, 3, 511)));
    return choir_add(
        choir_add(choir_cross_entropy(y, wanted), choir_scale(large, 0.5)), choir_add(p, some));
}

static void see(choir_tensor *t, choir_tensor *grad, void *arg)
{
    static uint16_t values[BATCH * LENGTH * CLASSES];
    assert_int_equal(grad->count, t->count);
    ok(choir_read(grad, values, sizeof values));
}

static choir_tensor *kept_and_watched(choir_scope *run, choir_tensor *y, choir_tensor *wanted)
{
    choir_keep(run, y);
    choir_on_grad(y, see, NULL);
    return choir_cross_entropy(y, wanted);
}

/* --- training --- */

static void take_step(choir_scope *run, choir_module *net, choir_optim *optim, reader *read,
    bool spaced, outcome *o, int step)
{
    int64_t ids[BATCH * LENGTH], wanted[BATCH * LENGTH];
    choir_shape shape = choir_dims(BATCH, LENGTH);
    choir_scope *s = choir_step_open(run, 0);
    for (int i = 0; i < BATCH * LENGTH; i++)
        ids[i] = i * 37 % CLASSES, wanted[i] = (i * 53 + 514) % CLASSES;
    choir_autocast(s, CHOIR_BF16);
    choir_tensor *y = choir_forward(net, choir_from(s, CHOIR_I64, shape, ids));
    ok(choir_scope_status(s));
    assert_int_equal(y->dtype, CHOIR_BF16);
    assert_int_equal(y->stride[1], spaced ? SPACED : CLASSES);
    choir_tensor *loss = read(run, y, choir_from(s, CHOIR_I64, shape, wanted));
    ok(choir_scope_status(s));
    o->loss[step] = (float)choir_item(loss);
    ok(choir_backward(loss));
    if (step == 0)
        choir_module_visit(net, false, collect, o);
    ok(choir_optim_step(optim));
    ok(choir_scope_close(s));
}

static void train(choir_module *net_of(choir_scope *run), reader *read, bool spaced, outcome *o)
{
    int row_bytes = device->row_bytes;
    *o = (outcome){.count = 0};
    if (!spaced)
        device->row_bytes = 0;
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *net = net_of(run);
    choir_optim *optim = choir_sgd(run, net, choir_sgd_defaults());
    for (int i = 0; i < STEPS; i++)
        take_step(run, net, optim, read, spaced, o, i);
    ok(choir_scope_close(run));
    device->row_bytes = row_bytes;
}

static choir_module *gpt2(choir_scope *run)
{
    return choir_model(run, "gpt2:layers=1,heads=2,width=32,context=8,vocab=515", NULL);
}

/* An embedding, and scores with a bias. */
static choir_module *biased(choir_scope *run)
{
    return choir_nn_sequential(run,
        choir_nn_embedding(run, CLASSES, WIDTH, choir_init_normal(0, 1)),
        choir_nn_linear(run, WIDTH, CLASSES));
}

/* The scores are computed again in backward. */
static choir_module *recomputed(choir_scope *run)
{
    choir_module *net = gpt2(run);
    choir_module_recompute(net, true);
    return net;
}

static void expect_same(const outcome *a, const outcome *b)
{
    double off = 0, all = 0;
    if (on_soft_gpu()) {
        assert_memory_equal(a, b, sizeof *a);
        return;
    }
    for (int i = 0; i < STEPS; i++)
        assert_true(fabsf(a->loss[i] - b->loss[i]) <= 2e-2f * fabsf(b->loss[i]));
    for (int64_t i = 0; i < b->count; i++) {
        double x = a->grad[i], y = b->grad[i];
        off += (x - y) * (x - y), all += y * y;
    }
    assert_int_equal(a->count, b->count);
    assert_true(off <= 2e-2 * 2e-2 * all);
}

static void same_numbers(void **state)
{
    static choir_module *(*const nets[])(choir_scope * run) = {gpt2, biased, recomputed};
    static reader *const readers[] = {
        loss_of, loss_of_rows, smoothed, with_others, kept_and_watched};
    for (size_t n = 0; n < CHOIR_COUNT(nets); n++)
        for (size_t i = 0; i < CHOIR_COUNT(readers); i++) {
            for (int spaced = 0; spaced < 2; spaced++)
                train(nets[n], readers[i], spaced, &results[spaced]);
            assert_true(results[0].count > CLASSES * WIDTH && results[0].loss[0] > 1);
            expect_same(&results[0], &results[1]);
        }
}

/* Short rows and other types have no gaps. */
static void elsewhere(void **state)
{
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *few = choir_nn_linear(run, WIDTH, 101),
                 *many = choir_nn_linear(run, WIDTH, CLASSES);
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *x = choir_randn(s, choir_dims(4, WIDTH), "x");
    assert_int_equal(choir_forward(many, x)->stride[0], CLASSES);
    choir_autocast(s, CHOIR_BF16);
    assert_int_equal(choir_forward(few, x)->stride[0], 101);
    assert_int_equal(choir_forward(many, x)->stride[0], SPACED);
    assert_int_equal(choir_contiguous(choir_forward(many, x))->stride[0], CLASSES);
    ok(choir_scope_close(s));
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_numbers), cmocka_unit_test(elsewhere)};
    return cmocka_run_group_tests_name("odd_rows", tests, find_device, NULL);
}
