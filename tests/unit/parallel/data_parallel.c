/* DataParallel compared with the same module on one device: scattered inputs and gathered
 * results, the replicas' values, the weight of uneven pieces, the use of memory, and messages.
 * tests/multi/data_parallel.c checks that the bits are the same. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "tensor/tensor.h"

static choir_scope *run, *step;

static choir_device *device(int i)
{
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", i);
    return choir_device_find(name);
}

static int open_run(void **state)
{
    setenv("CHOIR_CPU_DEVICES", "8", 1);
    run = choir_scope_open(device(0), 5);
    step = choir_step_open(run, 0);
    return 0;
}

static int close_run(void **state)
{
    choir_scope_close(step);
    return choir_scope_close(run) != CHOIR_OK;
}

static void next_step(void)
{
    choir_scope_close(step);
    step = choir_step_open(run, 1);
}

static choir_data_parallel_opts on(int devices)
{
    choir_data_parallel_opts opts = choir_data_parallel_defaults();
    opts.device_count = devices;
    return opts;
}

static choir_module *mlp(void)
{
    return choir_nn_sequential(
        run, choir_nn_linear(run, 3, 5), choir_nn_tanh(run), choir_nn_linear(run, 5, 2));
}

static void read_all(choir_tensor *t, float *values)
{
    choir_check(choir_read(t, values, (size_t)choir_tensor_count(t) * sizeof *values));
}

static void assert_equal(choir_tensor *a, choir_tensor *b)
{
    size_t bytes = (size_t)choir_tensor_count(a) * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    assert_true(choir__same_shape(a->shape, b->shape));
    read_all(a, x);
    read_all(b, y);
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

static void assert_near(choir_tensor *a, choir_tensor *b)
{
    int64_t n = choir_tensor_count(a);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    assert_true(choir__same_shape(a->shape, b->shape));
    read_all(a, x);
    read_all(b, y);
    for (int64_t i = 0; i < n; i++)
        assert_float_equal(x[i], y[i], 1e-6);
    free(x);
    free(y);
}

static void assert_error(choir_status status, const char *const *words)
{
    assert_int_equal(choir_scope_status(step), status);
    for (; *words; words++)
        assert_says(*words);
}

#define says(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- forward --- */

static void forward_of_any_batch(void **state)
{
    choir_module *net = mlp();
    choir_module *dp = choir_data_parallel(run, net, on(8));
    for (int64_t batch = 1; batch <= 30; batch += batch < 10 ? 1 : 10) {
        choir_scope *s = choir_step_open(run, (uint64_t)batch);
        choir_tensor *x = choir_randn(s, choir_dims(batch, 3), "x");
        choir_tensor *y = choir_forward(dp, x);
        assert_ptr_equal(choir_tensor_device(y), device(0));
        assert_near(y, choir_forward(net, x));
        choir_check(choir_scope_close(s));
    }
}

static void evaluation(void **state)
{
    choir_module *net = choir_nn_sequential(run, mlp(), choir_nn_dropout(run, 0.5f));
    choir_data_parallel_opts opts = on(3);
    opts.output_device = device(2);
    choir_module *dp = choir_data_parallel(run, net, opts);
    choir_module_train(dp, false);
    choir_scope *s = choir_no_grad(step);
    choir_tensor *x = choir_randn(s, choir_dims(7, 3), "x"), *y = choir_forward(dp, x);
    assert_ptr_equal(choir_tensor_device(y), device(2));
    assert_false(y->requires_grad);
    assert_near(y, choir_forward(net, x));
    choir_check(choir_scope_close(s));
}

/* --- a module of several inputs --- */

typedef struct blend {
    choir_module base;
    choir_module *fc;
    choir_tensor *shift; /* (4) */
    int64_t seen[8];     /* batch sizes, by call */
    int calls;
} blend;

/* fc(a) * b * scale + shift; b (B, 4) or NULL, scale (). */
static choir_tensor *blend_forward(choir_module *self, choir_tensor *const *in, int count)
{
    blend *m = (blend *)self;
    assert_int_equal(count, 3);
    m->seen[m->calls++ % 8] = choir_tensor_size(in[0], 0);
    choir_tensor *y = choir_forward(m->fc, in[0]);
    y = choir_mul(in[1] ? choir_mul(y, in[1]) : y, in[2]);
    return choir_add(y, m->shift);
}

static blend *new_blend(void)
{
    static const choir_module_class type = {"blend", sizeof(blend), blend_forward, 0};
    blend *m = choir_module_new(run, &type);
    choir_module_child(&m->base, "fc", &m->fc, choir_nn_linear(run, 3, 4));
    choir_module_param(&m->base, "shift", &m->shift, choir_dims(4), choir_init_uniform(-1, 1));
    return m;
}

static void inputs_and_their_gradients(void **state)
{
    static const char *const names[] = {"fc.weight", "fc.bias", "shift"};
    choir_tensor *grads[2][6];
    for (int way = 0; way < 2; way++) {
        blend *m = new_blend();
        choir_module *dp =
            way ? choir_data_parallel(run, &m->base, on(4)) : &m->base; /* 3 3 3 1 */
        choir_scope *s = choir_step_open(run, 3);
        choir_tensor *a = choir_require_grad(choir_randn(s, choir_dims(10, 3), "a"));
        choir_tensor *b = choir_require_grad(choir_randn(s, choir_dims(10, 4), "b"));
        choir_tensor *scale = choir_require_grad(choir_full(s, CHOIR_F32, CHOIR_SCALAR, 1.5));
        choir_tensor *y = choir_forward(dp, choir_tanh(a), b, scale);
        choir_check(choir_backward(choir_mean(choir_square(y))));
        assert_int_equal(m->calls, way ? 4 : 1);
        assert_int_equal(m->seen[way ? 3 : 0], way ? 1 : 10);
        choir_tensor *leaves[] = {a, b, scale};
        for (int i = 0; i < 3; i++) {
            grads[way][i] = choir_keep(run, choir_grad(leaves[i]));
            choir_tensor *p = choir_module_find(&m->base, names[i]);
            grads[way][3 + i] = choir_keep(run, choir_grad(p));
        }
        choir_check(choir_scope_close(s));
    }
    for (int i = 0; i < 6; i++)
        assert_near(grads[0][i], grads[1][i]);
}

static void an_input_left_out(void **state)
{
    blend *m = new_blend();
    choir_module *dp = choir_data_parallel(run, &m->base, on(2));
    choir_tensor *a = choir_randn(step, choir_dims(4, 3), "a"),
                 *one = choir_full(step, CHOIR_F32, CHOIR_SCALAR, 1);
    choir_tensor *y = choir_forward(dp, a, NULL, one);
    assert_near(y, choir_forward(&m->base, a, NULL, one));
}

/* --- the four steps --- */

static choir_tensor *mean_forward(choir_module *self, choir_tensor *const *in, int count)
{
    return choir_mean(in[0]);
}

static void scatter_apply_gather(void **state)
{
    static const choir_module_class type = {"mean", sizeof(choir_module), mean_forward, 0};
    float means[4], x[20];
    choir_data_parallel_opts opts = on(4);
    opts.dim = 1; /* of (2, 10): pieces of 3 3 3 1 columns */
    choir_module *dp = choir_data_parallel(run, choir_module_new(run, &type), opts);
    for (int i = 0; i < 20; i++)
        x[i] = (float)i;
    choir_tensor *t = choir_from(step, CHOIR_F32, choir_dims(2, 10), x);
    choir_shards *in = choir_scatter(&t, 1, dp);
    assert_int_equal(choir_shards_count(in), 4);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(choir_tensor_device(choir_shards_at(in, i)), device(i));
        assert_int_equal(choir_tensor_size(choir_shards_at(in, i), 1), i < 3 ? 3 : 1);
    }
    choir_shards *out = choir_parallel_apply(dp, in);
    choir_tensor *y = choir_gather(out, device(3), 0); /* scalars: a vector */
    assert_int_equal(choir_tensor_ndim(y), 1);
    assert_ptr_equal(choir_tensor_device(y), device(3));
    read_all(y, means);
    for (int i = 0; i < 4; i++)
        assert_float_equal(means[i], i < 3 ? 6 + 3 * i : 14, 1e-6);
    choir_tensor *whole = choir_gather(choir_parallel_apply(dp, in), NULL, 0);
    assert_float_equal(choir_item(choir_mean(whole)), (6 + 9 + 12 + 14) / 4.0, 1e-6);
}

/* --- a loss inside of the module: a vector comes out, and its mean is what PyTorch has --- */

typedef struct with_loss {
    choir_module base;
    choir_module *net;
} with_loss;

static choir_tensor *loss_forward(choir_module *self, choir_tensor *const *in, int count)
{
    return choir_mse_loss(choir_forward(((with_loss *)self)->net, in[0]), in[1]);
}

static void mean_of_gathered_losses(void **state)
{
    static const choir_module_class type = {"with_loss", sizeof(with_loss), loss_forward, 0};
    choir_tensor *grads[2];
    for (int way = 0; way < 2; way++) {
        with_loss *m = choir_module_new(run, &type);
        choir_module_child(&m->base, "net", &m->net, mlp());
        choir_module *dp = way ? choir_data_parallel(run, &m->base, on(3)) : &m->base;
        choir_scope *s = choir_step_open(run, 3);
        choir_tensor *x = choir_randn(s, choir_dims(9, 3), "x"),
                     *y = choir_randn(s, choir_dims(9, 2), "y");
        choir_tensor *loss = choir_forward(dp, x, y);
        assert_int_equal(choir_tensor_count(loss), way ? 3 : 1);
        choir_check(choir_backward(choir_mean(loss)));
        choir_tensor *w = choir_module_find(&m->base, "net.0.weight");
        grads[way] = choir_keep(run, choir_grad(w));
        choir_check(choir_scope_close(s));
    }
    assert_near(grads[0], grads[1]);
}

/* --- the criterion on uneven pieces: the batch's mean all the same --- */

static choir_tensor *square_error(choir_tensor *out, choir_tensor *target, void *arg)
{
    return choir_mse_loss(out, target);
}

static void uneven_pieces(void **state)
{
    static const double weights[] = {1, 3, 3};
    choir_tensor *grads[3], *losses[3];
    for (int way = 0; way < 3; way++) {
        choir_module *net = mlp();
        choir_data_parallel_opts opts = on(way == 1 ? 4 : 3); /* 3 3 3 1; 1 5 4 */
        opts.weights = way == 2 ? weights : NULL;
        choir_module *dp = way ? choir_data_parallel_balanced(run, net, opts) : net;
        choir_scope *s = choir_step_open(run, 3);
        choir_tensor *x = choir_randn(s, choir_dims(10, 3), "x"),
                     *y = choir_randn(s, choir_dims(10, 2), "y"), *loss;
        loss = way ? choir_criterion_parallel(
                         choir_forward_shards(dp, &x, 1), y, square_error, NULL)
                   : square_error(choir_forward(net, x), y, NULL);
        losses[way] = choir_keep(run, choir_mean(loss));
        choir_check(choir_backward(loss));
        grads[way] = choir_keep(run, choir_grad(choir_module_find(net, "0.weight")));
        choir_check(choir_scope_close(s));
    }
    for (int way = 1; way < 3; way++) {
        assert_near(losses[0], losses[way]);
        assert_near(grads[0], grads[way]);
    }
}

/* --- replicas --- */

static choir_tensor *seen[8];
static int seen_count;

static void see(choir_tensor *t, choir_tensor *grad, void *arg)
{
    seen[seen_count++ % 8] = t;
}

static void hooks_and_frozen_parameters(void **state)
{
    choir_module *net = mlp();
    choir_module *dp = choir_data_parallel(run, net, on(3));
    choir_tensor *w = choir_module_find(net, "0.weight"),
                 *v = choir_module_find(net, "2.weight");
    choir_on_grad(w, see, NULL);
    v->requires_grad = false;
    seen_count = 0;
    choir_tensor *x = choir_randn(step, choir_dims(6, 3), "x");
    choir_check(choir_backward(choir_mean(choir_forward(dp, x))));
    assert_int_equal(seen_count, 3); /* once a replica */
    assert_non_null(choir_grad(w));
    assert_null(choir_grad(v));
    assert_ptr_equal(choir_module_find(net, "0.weight"), w); /* bound to itself again */
}

static void values_follow_the_first(void **state)
{
    choir_module *net = choir_nn_linear(run, 2, 1);
    float w[2] = {1, 1}, b = 0, y[4];
    choir_module *dp = choir_data_parallel(run, net, on(4));
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(4, 2), 1);
    choir_check(choir_write(choir_module_find(net, "bias"), &b, sizeof b));
    for (int i = 0; i < 3; i++) {
        w[0] = (float)i;
        choir_check(choir_write(choir_module_find(net, "weight"), w, sizeof w));
        read_all(choir_forward(dp, x), y);
        for (int k = 0; k < 4; k++)
            assert_float_equal(y[k], i + 1, 0);
    }
}

/* Running statistics follow piece 0 alone, wherever it runs, and all replicas evaluate with
 * them. */
static void buffers_follow_the_first(void **state)
{
    static const double none_on_the_first[] = {0, 1, 1};
    float want[3], got[3];
    for (int way = 0; way < 2; way++) {
        choir_module *net = choir_nn_batch_norm(run, 3), *own = choir_nn_batch_norm(run, 3);
        choir_data_parallel_opts opts = on(3);
        opts.pieces = 3;
        opts.weights = way ? none_on_the_first : NULL;
        choir_module *dp = choir_data_parallel(run, net, opts);
        choir_tensor *x = choir_randn(step, choir_dims(12, 3), "x");
        choir_forward(dp, x);
        choir_forward(own, choir_narrow(x, 0, 0, 4));
        read_all(choir_module_find(net, "running_mean"), got);
        read_all(choir_module_find(own, "running_mean"), want);
        assert_memory_equal(got, want, sizeof want);
        assert_true(got[0] != 0);
        choir_module_train(dp, false);
        choir_module_train(own, false);
        assert_equal(choir_forward(dp, x), choir_forward(own, x));
    }
}

/* A recorded step updates the replicas' values at every replay, even if they were up to date
 * when it was recorded. */
typedef struct replayed {
    choir_module *dp;
    choir_optim *optim;
    choir_tensor *x;
} replayed;

static choir_status train_replicas(choir_scope *s, void *arg)
{
    replayed *r = arg;
    choir_status status =
        choir_backward(choir_mean(choir_square(choir_forward(r->dp, choir_in(s, r->x)))));
    return status == CHOIR_OK ? choir_optim_step(r->optim) : status;
}

static void replays_after_a_look(void **state)
{
    choir_tensor *weight[2];
    replayed jobs[2]; /* a step is known by its argument */
    for (int way = 0; way < 2; way++) {
        choir_module *net = choir_nn_linear(run, 3, 2);
        replayed *r = &jobs[way];
        r->dp = choir_data_parallel(run, net, on(2));
        r->x = choir_full(run, CHOIR_F32, choir_dims(4, 3), 0.5);
        r->optim = choir_sgd(run, r->dp, choir_sgd_defaults());
        weight[way] = choir_module_find(net, "weight");
        choir_check(choir_write(weight[way], (float[]){1, 2, 3, 4, 5, 6}, 24));
        for (int i = 0; i < 6; i++) {
            choir_check(choir_step(run, train_replicas, r));
            choir_scope *look = choir_step_open(run, 100);
            if (way && i == 1)
                choir_forward(r->dp, choir_in(look, r->x));
            choir_check(choir_scope_close(look));
        }
    }
    assert_equal(weight[0], weight[1]);
}

/* --- a module used both ways --- */

static void beside_the_module_itself(void **state)
{
    choir_tensor *grads[2];
    choir_tensor *x = choir_randn(step, choir_dims(6, 3), "x");
    for (int way = 0; way < 2; way++) { /* three losses: two of pieces, one without */
        choir_module *net = mlp(), *dp = choir_data_parallel(run, net, on(2));
        for (int i = 0; i < 3; i++) {
            choir_scope *s = choir_micro_open(step, i);
            choir_tensor *y = choir_forward(way && i != 1 ? dp : net, choir_in(s, x));
            choir_check(choir_backward(choir_mean(choir_square(y))));
            choir_check(choir_scope_close(s));
        }
        grads[way] = choir_keep(run, choir_grad(choir_module_find(net, "0.weight")));
    }
    assert_near(grads[0], grads[1]);
}

/* --- memory --- */

enum { WORDS = 8192, TOKENS = 560 };

static size_t peak(int i)
{
    choir_device_stats stats;
    choir_device_get_stats(device(i), &stats);
    return stats.bytes_peak;
}

static choir_tensor *cross_entropy(choir_tensor *out, choir_tensor *target, void *arg)
{
    return choir_cross_entropy(out, target);
}

/* Trains a model with a large vocabulary, to see how scores and optimizer state are distributed
 * over devices. */
static void train_words(bool balanced, const double *weights, bool adam)
{
    choir_scope *r = choir_scope_open(device(0), 5);
    choir_module *net = choir_nn_sequential(
        r, choir_nn_linear(r, 16, 32), choir_nn_gelu(r), choir_nn_linear(r, 32, WORDS));
    choir_data_parallel_opts opts = on(4);
    opts.weights = weights;
    choir_module *dp = choir_data_parallel_balanced(r, net, opts);
    choir_optim *o = adam ? choir_adamw(r, dp, choir_adamw_defaults())
                          : choir_sgd(r, dp, choir_sgd_defaults());
    for (int i = 0; i < 4; i++) {
        choir_device_sync(device(i));
        choir__pool_trim(device(i));
        choir_device_reset_peak(device(i));
    }
    for (int i = 0; i < 3; i++) {
        choir_scope *s = choir_step_open(r, (uint64_t)i);
        choir_tensor *x = choir_randn(s, choir_dims(TOKENS, 16), "x"), *y = choir_argmax(x);
        choir_check(
            choir_backward(balanced ? choir_criterion_parallel(choir_forward_shards(dp, &x, 1),
                                          y, cross_entropy, NULL)
                                    : choir_cross_entropy(choir_forward(dp, x), y)));
        choir_check(choir_optim_step(o));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(r));
}

static void memory(void **state)
{
    static const double less[] = {1, 2, 2, 2};
    train_words(false, NULL, false);
    assert_true(2 * peak(0) > 5 * peak(1)); /* all scores and their gradient are on the first */
    assert_true(peak(1) < 1.02 * (double)peak(3) && peak(3) < 1.02 * (double)peak(1));
    train_words(true, NULL, false);
    for (int i = 1; i < 4; i++)
        assert_true(fabs((double)peak(i) / (double)peak(0) - 1) < 0.05);
    train_words(true, NULL, true);
    assert_true((double)peak(0) > 1.1 * (double)peak(1)); /* two moments of each parameter */
    train_words(true, less, true);
    for (int i = 1; i < 4; i++)
        assert_true(fabs((double)peak(i) / (double)peak(0) - 1) < 0.05);
}

/* --- refused calls --- */

static void assert_refused(choir_module *net, choir_data_parallel_opts opts,
    choir_status status, const char *const *words)
{
    choir_data_parallel(run, net, opts);
    assert_error(status, words);
    choir_scope_clear(run);
}

static void bad_options(void **state)
{
    choir_device *twice[] = {device(0), device(2), device(2)}, *away[] = {device(1), device(0)};
    choir_device *missing[] = {device(0), NULL};
    choir_data_parallel_opts o = on(3);
    o.devices = twice;
    assert_refused(mlp(), o, CHOIR_ERR_DEVICE, says("cpu:2", "twice"));
    o = on(2), o.devices = away;
    assert_refused(mlp(), o, CHOIR_ERR_DEVICE, says("'0.weight'", "cpu:0", "cpu:1"));
    o = on(2), o.devices = missing;
    choir_module *net = mlp();
    missing[1] = choir_device_find("cpu:99");
    assert_refused(net, o, CHOIR_ERR_DEVICE, says("cpu:99"));
    assert_refused(mlp(), on(9), CHOIR_ERR_DEVICE, says("cpu:8"));
    assert_refused(mlp(), on(-1), CHOIR_ERR_ARGUMENT, says("-1"));
    o = on(2), o.dim = -1;
    assert_refused(mlp(), o, CHOIR_ERR_ARGUMENT, says("dim from 0 to 5, got -1"));
    o = on(2), o.pieces = -4;
    assert_refused(mlp(), o, CHOIR_ERR_ARGUMENT, says("got -4"));
    o = on(2), o.weights = (double[]){1, NAN};
    assert_refused(mlp(), o, CHOIR_ERR_ARGUMENT, says("device 1", "nan"));
    o.weights = (double[]){0, 0};
    assert_refused(mlp(), o, CHOIR_ERR_ARGUMENT, says("weight"));
}

static void modules_that_cannot_be_cloned(void **state)
{
    choir_module *inner = choir_data_parallel(run, mlp(), on(2));
    choir_module *outer = choir_nn_sequential(run, inner, choir_nn_relu(run));
    assert_refused(
        outer, on(2), CHOIR_ERR_ARGUMENT, says("sequential", "data_parallel", "cloned"));
    blend *m = new_blend();
    choir_tensor *own = m->shift;
    m->shift = choir_full(run, CHOIR_F32, choir_dims(4), 0);
    assert_refused(&m->base, on(2), CHOIR_ERR_ARGUMENT, says("blend", "'shift'", "cloned"));
    m->shift = own;
}

static void bad_inputs(void **state)
{
    blend *m = new_blend();
    choir_module *dp = choir_data_parallel(run, &m->base, on(2));
    choir_tensor *a = choir_randn(step, choir_dims(4, 3), "a"),
                 *b = choir_randn(step, choir_dims(5, 4), "b"),
                 *one = choir_full(step, CHOIR_F32, CHOIR_SCALAR, 1);
    assert_true(choir_forward(dp, a, b, one)->poisoned);
    assert_error(CHOIR_ERR_SHAPE, says("4 and 5 samples", "(4, 3)", "(5, 4)"));
    choir_scope_clear(step);
    assert_true(choir_forward(dp, one, one, one)->poisoned);
    assert_error(CHOIR_ERR_SHAPE, says("no input has a dimension 0"));
    choir_scope_clear(step);
    choir_tensor *none = choir_zeros(step, CHOIR_F32, choir_dims(0, 3));
    assert_true(choir_forward(dp, none, NULL, one)->poisoned);
    assert_error(CHOIR_ERR_SHAPE, says("0 samples"));
    choir_scope_clear(step);
    choir_shards *s = choir_scatter(&a, 1, &m->base);
    assert_true(choir_gather(s, NULL, 0)->poisoned);
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
    choir_scope_clear(run);
    s = choir_scatter(&a, 1, dp);
    assert_true(choir_gather(s, NULL, 0)->poisoned);
    assert_error(CHOIR_ERR_STATE, says("has not run"));
    choir_scope_clear(step);
}

/* --- what fails in a replica --- */

static choir_tensor *fails_on_the_third(choir_module *self, choir_tensor *const *in, int count)
{
    blend *m = (blend *)self;
    m->calls++;
    if (m->seen[0] && choir_tensor_device(in[0]) == device(2))
        return choir_matmul(choir_forward(m->fc, in[0]), in[0]);
    return choir_add(choir_forward(m->fc, in[0]), m->shift);
}

static void a_failing_replica(void **state)
{
    static const choir_module_class type = {"fragile", sizeof(blend), fails_on_the_third, 0};
    blend *m = choir_module_new(run, &type);
    choir_module_child(&m->base, "fc", &m->fc, choir_nn_linear(run, 3, 4));
    choir_module_param(&m->base, "shift", &m->shift, choir_dims(4), choir_init_constant(0));
    choir_module *dp = choir_data_parallel(run, &m->base, on(4));
    choir_optim *o = choir_sgd(run, dp, choir_sgd_defaults());
    for (int i = 0; i < 4; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *x = choir_randn(s, choir_dims(8, 3), "x"), *y;
        m->seen[0] = i == 1; /* the second step fails */
        m->calls = 0;
        y = choir_forward(dp, x);
        choir_status status = choir_backward(choir_mean(y));
        assert_int_equal(m->calls, i == 1 ? 3 : 4); /* the fourth did not begin */
        if (i == 1) {
            assert_int_equal(status, CHOIR_ERR_SHAPE);
            assert_fails(
                choir_scope_status(s), CHOIR_ERR_SHAPE, "replica of module 'fragile' on cpu:2");
            assert_says("matmul");
            assert_int_equal(choir_scope_close(s), CHOIR_ERR_SHAPE);
            continue;
        }
        ok(status);
        choir_check(choir_optim_step(o));
        choir_check(choir_scope_close(s));
    }
}

/* A kernel that fails while it runs on another device. */
static void a_failing_device(void **state)
{
    choir_module *net = choir_nn_embedding(run, 10, 4, choir_init_normal(0, 1));
    choir_module *dp = choir_data_parallel(run, net, on(4));
    choir_optim *o = choir_sgd(run, dp, choir_sgd_defaults());
    for (int i = 0; i < 4; i++) {
        int64_t ids[8] = {1, 2, 3, 4, 5, i == 1 ? 77 : 6, 7, 8}; /* a piece of cpu:2 */
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *y = choir_forward(dp, choir_from(s, CHOIR_I64, choir_dims(8), ids));
        choir_status status = choir_backward(choir_mean(choir_square(y)));
        if (status == CHOIR_OK)
            status = choir_optim_step(o);
        choir_device_sync(device(0));
        choir_status closed = choir_scope_close(s);
        if (i != 1) {
            ok(status);
            ok(closed);
            continue;
        }
        assert_fails(closed, CHOIR_ERR_RANGE, "77");
        assert_says("cpu:2");
        choir_scope_clear(run);
    }
    float w[40];
    read_all(choir_module_find(net, "weight"), w);
    for (int i = 0; i < 40; i++)
        assert_true(isfinite(w[i]));
}

static choir_tensor *keeps_outside; /* of the batch's scope, with a gradient */

static choir_tensor *adds_outside(choir_tensor *out, choir_tensor *target, void *arg)
{
    return choir_mean(choir_add(out, choir_to(keeps_outside, choir_tensor_device(out))));
}

static void ways_around_the_join(void **state)
{
    choir_module *net = mlp();
    choir_module *dp = choir_data_parallel_balanced(run, net, on(2));
    choir_tensor *x = choir_randn(step, choir_dims(4, 3), "x");
    choir_shards *out = choir_forward_shards(dp, &x, 1);
    assert_fails(choir_backward(choir_mean(choir_shards_at(out, 1))), CHOIR_ERR_STATE,
        "choir_criterion_parallel");
    choir_scope_clear(choir_tensor_scope(choir_shards_at(out, 1)));
    /* A parameter that the batch's own tape uses besides. */
    next_step();
    x = choir_randn(step, choir_dims(4, 3), "x");
    choir_tensor *w = choir_in(step, choir_module_find(net, "0.weight"));
    choir_tensor *loss =
        choir_add(choir_mean(choir_forward(dp, x)), choir_mean(choir_square(w)));
    assert_fails(choir_backward(loss), CHOIR_ERR_STATE, "outside");
    /* A tensor that requires a gradient and is not an input is refused. */
    next_step();
    x = choir_randn(step, choir_dims(4, 3), "x");
    keeps_outside = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2, 2), 1));
    loss = choir_criterion_parallel(choir_forward_shards(dp, &x, 1), NULL, adds_outside, NULL);
    assert_fails(choir_backward(loss), CHOIR_ERR_SCOPE, "input of the module");
    next_step();
    x = choir_randn(step, choir_dims(4, 3), "x");
    choir_check(choir_backward(choir_mean(choir_forward(dp, x)))); /* all is well again */
    assert_non_null(choir_grad(choir_module_find(net, "0.weight")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, open_run, close_run)
        T(forward_of_any_batch),
        T(evaluation),
        T(inputs_and_their_gradients),
        T(an_input_left_out),
        T(scatter_apply_gather),
        T(mean_of_gathered_losses),
        T(uneven_pieces),
        T(hooks_and_frozen_parameters),
        T(values_follow_the_first),
        T(buffers_follow_the_first),
        T(replays_after_a_look),
        T(beside_the_module_itself),
        T(memory),
        T(bad_options),
        T(modules_that_cannot_be_cloned),
        T(bad_inputs),
        T(a_failing_replica),
        T(a_failing_device),
        T(ways_around_the_join),
#undef T
    };
    return cmocka_run_group_tests_name("data parallel", tests, NULL, NULL);
}
