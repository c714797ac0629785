/* DataParallel gives exactly the bits of one device. With a batch in M pieces, the losses, the
 * gradient norm and the weights equal those of a step of M micro-batches, on any number of
 * devices, gathered or balanced, recorded or not. */
#include "base/tree.h"
#include "job_fixture.h"
#include "tensor/launch.h"

enum { STEPS = 5, BATCH = 24, MOST = 8 };

typedef enum way { SINGLE, GATHERED, BALANCED } way;

typedef struct plan {
    const char *model;
    way way;
    int64_t pieces, batches; /* of a step */
    int devices, dim;
    bool recorded;
    const double *weights;
} plan;

typedef struct outcome {
    uint32_t loss_bits[STEPS], norm_bits[STEPS];
    uint64_t weights; /* a hash over all parameters and buffers */
} outcome;

typedef struct job {
    const plan *plan;
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *dp;
    choir_optim *optim;
    choir_tensor *x[STEPS][2], *y[STEPS][2]; /* of the run: a batch, by step */
    choir_tensor *feed_x[2], *feed_y[2];     /* where a recorded step reads them */
    choir_tensor *losses[2 * MOST];
} job;

static int eight_devices(void **state)
{
    return setenv("CHOIR_CPU_DEVICES", "8", 1);
}

/* --- a model whose batch is dimension 1, as of recurrent networks --- */

typedef struct sequences {
    choir_module base;
    choir_module *rnn, *out;
} sequences;

static choir_tensor *sequences_forward(choir_module *self, choir_tensor *const *in, int count)
{
    sequences *s = (sequences *)self; /* (T, B, 6) -> (T, B, 5) */
    return choir_forward(s->out, choir_forward(s->rnn, in[0]));
}

static const choir_module_class sequences_class = {
    "sequences", sizeof(sequences), sequences_forward, 0};

static choir_module *new_sequences(choir_scope *run, choir_model_info *info)
{
    sequences *s = choir_module_new(run, &sequences_class);
    choir_recurrent_opts opts = choir_recurrent_defaults();
    opts.layers = 2;
    opts.dropout = 0.2f;
    choir_module_child(&s->base, "rnn", &s->rnn, choir_nn_lstm(run, 6, 17, opts));
    choir_module_child(&s->base, "out", &s->out, choir_nn_linear(run, 17, 5));
    info->task = CHOIR_REGRESSION;
    return &s->base;
}

/* --- one job --- */

static choir_shape with_batch(choir_shape sample)
{
    choir_shape s = {.ndim = sample.ndim + 1, .dim = {BATCH}};
    memcpy(s.dim + 1, sample.dim, sizeof s.dim - sizeof s.dim[0]);
    return s;
}

static choir_tensor *ids(job *j, choir_shape shape, int64_t below, int seed)
{
    int64_t n = choir__shape_count(shape), *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (i * 7919 + seed * 104729 + i * i % 13) % below;
    choir_tensor *t = choir_from(j->run, CHOIR_I64, shape, data);
    free(data);
    return t;
}

static choir_tensor *floats(job *j, choir_shape shape, int seed)
{
    int64_t n = choir__shape_count(shape);
    float *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((i * 2654435761u + (unsigned)seed * 40503u) % 1000) / 500 - 1;
    choir_tensor *t = choir_from(j->run, CHOIR_F32, shape, data);
    free(data);
    return t;
}

static void make_data(job *j)
{
    const choir_model_info *i = &j->info;
    for (int s = 0; s < STEPS; s++)
        for (int b = 0; b < j->plan->batches; b++) {
            int seed = 2 * s + b;
            if (j->plan->dim) {
                j->x[s][b] = floats(j, choir_dims(7, BATCH, 6), seed);
                j->y[s][b] = floats(j, choir_dims(7, BATCH, 5), seed + 100);
            } else if (i->task == CHOIR_LANGUAGE) {
                j->x[s][b] = ids(j, with_batch(i->input), i->classes, seed);
                j->y[s][b] = ids(j, with_batch(i->input), i->classes, seed + 100);
            } else {
                j->x[s][b] = floats(j, with_batch(i->input), seed);
                j->y[s][b] = i->task == CHOIR_REGRESSION
                                 ? floats(j, with_batch(i->output), seed + 100)
                                 : ids(j, choir_dims(BATCH), i->classes, seed + 100);
            }
        }
    for (int b = 0; b < j->plan->batches; b++) {
        j->feed_x[b] = choir__tensor_like(j->run, j->x[0][b]);
        j->feed_y[b] = choir__tensor_like(j->run, j->y[0][b]);
    }
}

static void open_job(job *j, const plan *p)
{
    *j = (job){.plan = p, .run = choir_scope_open(NULL, 11)};
    j->net = p->dim ? new_sequences(j->run, &j->info) : build_model(j->run, p->model, &j->info);
    choir_data_parallel_opts opts = choir_data_parallel_defaults();
    opts.device_count = p->devices;
    opts.pieces = p->pieces;
    opts.dim = p->dim;
    opts.weights = p->weights;
    j->dp = p->way == SINGLE     ? j->net
            : p->way == GATHERED ? choir_data_parallel(j->run, j->net, opts)
                                 : choir_data_parallel_balanced(j->run, j->net, opts);
    j->optim = clipped_adamw(j->run, j->dp);
    make_data(j);
    choir_check(choir_scope_status(j->run));
}

/* --- a step, in three ways --- */

static choir_tensor *criterion(choir_tensor *out, choir_tensor *target, void *arg)
{
    return choir_model_loss(arg, out, target);
}

static choir_tensor *slice(const job *j, choir_tensor *t, int64_t i)
{
    int64_t n = BATCH / j->plan->pieces;
    return choir_narrow(t, j->plan->dim, i * n, n);
}

static void single(job *j, choir_scope *step, int batch)
{
    int64_t m = j->plan->pieces;
    for (int64_t i = 0; i < m; i++) {
        choir_scope *micro = choir_micro_open(step, batch * m + i);
        choir_tensor *x = slice(j, choir_in(micro, j->feed_x[batch]), i);
        choir_tensor *y = slice(j, choir_in(micro, j->feed_y[batch]), i);
        choir_tensor *loss = criterion(choir_forward(j->net, x), y, &j->info);
        choir_check(choir_backward(loss));
        j->losses[batch * m + i] = choir_keep(j->run, loss);
        choir_check(choir_scope_close(micro));
    }
}

/* Applies the criterion to slices of the gathered output. */
static choir_tensor *gathered_losses(job *j, choir_tensor *x, choir_tensor *y)
{
    choir_tensor *out = choir_forward(j->dp, x), *losses[MOST];
    for (int64_t i = 0; i < j->plan->pieces; i++)
        losses[i] =
            choir_reshape(criterion(slice(j, out, i), slice(j, y, i), &j->info), choir_dims(1));
    return choir_cat(losses, (int)j->plan->pieces, 0);
}

static void parallel(job *j, choir_scope *step, int batch)
{
    int64_t m = j->plan->pieces;
    choir_scope *s = j->plan->batches > 1 ? choir_micro_open(step, batch) : step;
    choir_tensor *x = choir_in(s, j->feed_x[batch]), *y = choir_in(s, j->feed_y[batch]);
    choir_tensor *losses = j->plan->way == GATHERED
                               ? gathered_losses(j, x, y)
                               : choir_criterion_parallel(choir_forward_shards(j->dp, &x, 1), y,
                                     criterion, &j->info);
    choir_check(choir_backward(losses));
    choir_tensor *kept = choir_keep(j->run, losses); /* (m) */
    for (int64_t i = 0; i < m; i++)
        j->losses[batch * m + i] = choir_narrow(kept, 0, i, 1);
    if (s != step)
        choir_check(choir_scope_close(s));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    for (int b = 0; b < j->plan->batches; b++) {
        if (j->plan->way == SINGLE)
            single(j, step, b);
        else
            parallel(j, step, b);
    }
    return choir_optim_step(j->optim);
}

static void feed(job *j, int step)
{
    for (int b = 0; b < j->plan->batches; b++) {
        choir__launch_copy(j->feed_x[b], j->x[step][b]);
        choir__launch_copy(j->feed_y[b], j->y[step][b]);
    }
}

static outcome train(const plan *p)
{
    job j;
    outcome o = {0};
    open_job(&j, p);
    for (int step = 0; step < STEPS; step++) {
        feed(&j, step);
        choir_check(run_step(j.run, p->recorded, step, body, &j));
        float values[2 * MOST];
        int64_t n = p->pieces * p->batches;
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)choir_item(j.losses[i]);
        o.loss_bits[step] = bits_of(choir__tree_sum(values, n, 1.0f / (float)n));
        o.norm_bits[step] = item_bits(choir_optim_grad_norm(j.optim));
    }
    o.weights = hash_of_module(j.net);
    choir_check(choir_scope_close(j.run));
    return o;
}

/* --- comparing --- */

static const char *const way_names[] = {"single", "gathered", "balanced"};

static void assert_same(const plan *p, const outcome *want, const outcome *got)
{
    bool same = !memcmp(want, got, sizeof *want);
    for (int i = 0; i < STEPS && !same; i++)
        print_error(
            "%s, %s%s, %d pieces on %d devices, step %d: loss %08x, not %08x; norm %08x, "
            "not %08x\n",
            p->model, way_names[p->way], p->recorded ? " recorded" : "", (int)p->pieces,
            p->devices, i, got->loss_bits[i], want->loss_bits[i], got->norm_bits[i],
            want->norm_bits[i]);
    assert_true(same);
}

static void compare(const char *model, int dim, int64_t batches)
{
    static const int64_t cuts[] = {1, 2, 3, 4, 6, 8};
    static const int devices[] = {1, 2, 3, 4, 8};
    for (size_t c = 0; c < CHOIR_COUNT(cuts); c++) {
        plan p = {
            .model = model, .pieces = cuts[c], .batches = batches, .dim = dim, .devices = 1};
        outcome want = train(&p);
        assert_true(want.loss_bits[0] != want.loss_bits[STEPS - 1]); /* it did learn */
        for (size_t d = 0; d < CHOIR_COUNT(devices); d++)
            for (int w = GATHERED; w <= BALANCED; w++) {
                p.way = (way)w;
                p.devices = devices[d];
                p.recorded = (d + (size_t)w + c) % 2; /* both, for each model and way */
                outcome got = train(&p);
                assert_same(&p, &want, &got);
            }
    }
}

static void toy(void **state)
{
    compare("toy", 0, 1);
    compare("toy", 0, 2);
}

static void mlp(void **state)
{
    /* enough parameters for the devices to add slices of them, and to share the update */
    compare("mlp:in=20,hidden=530,classes=7", 0, 1);
}

static void cnn(void **state)
{
    compare("cnn:width=4,image=12,classes=5,dropout=0.3", 0, 1);
}

static void gpt2(void **state)
{
    compare("gpt2:layers=2,heads=2,width=24,context=10,vocab=31,dropout=0.1", 0, 1);
    compare("gpt2:layers=1,heads=2,width=24,context=10,vocab=31,dropout=0.1", 0, 2);
}

static void lstm(void **state)
{
    compare("lstm, sequence first", 1, 1);
}

/* Most pieces are on the second device and none on the third; the result is unchanged. */
static void weights(void **state)
{
    static const double shares[] = {1, 4, 0.01}, first_idle[] = {0, 1, 1};
    for (int i = 0; i < 2; i++) {
        plan p = {.model = "cnn:width=4,image=12,classes=5,dropout=0.3",
            .pieces = 6,
            .batches = 2,
            .devices = 3};
        outcome want = train(&p);
        p.weights = i ? first_idle : shares;
        for (int w = GATHERED; w <= BALANCED; w++) {
            p.way = (way)w;
            outcome got = train(&p);
            assert_same(&p, &want, &got);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(toy), cmocka_unit_test(mlp),
        cmocka_unit_test(cnn), cmocka_unit_test(gpt2), cmocka_unit_test(lstm),
        cmocka_unit_test(weights)};
    return cmocka_run_group_tests(tests, eight_devices, NULL);
}
