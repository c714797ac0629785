/* Recomputation: losses, weights and buffers have the same bits with and without it, for every
 * model, in recorded steps, and over the stages of every pipeline schedule, also where a stage
 * boundary cuts a block. The peak of memory falls by the expected amount, and each op runs
 * exactly once more. */
#include "job_fixture.h"

#include "again_fixture.h"
#include "nn/module.h"
#include "tensor/launch.h"

/* --- models --- */

enum { STEPS = 5, SAMPLES = 4, MICROS = 3, MOST_DEVICES = 4 };

typedef struct job {
    const char *model, *schedule, *cuts; /* schedule NULL: one device without a pipeline */
    int devices;
    bool recompute, nested, recorded;
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *pipe;
    choir_optim *optim;
    choir_tensor *x[MICROS], *y[MICROS], *losses[MICROS];
} job;

typedef struct outcome {
    uint32_t loss_bits[STEPS][MICROS];
    uint64_t weights;
    size_t peak;
} outcome;

static choir_tensor *ids(choir_scope *scope, choir_shape shape, int64_t most, int seed)
{
    int64_t values[2048], n = choir__shape_count(shape);
    assert_in_range(n, 1, 2048);
    for (int64_t i = 0; i < n; i++)
        values[i] = (i * 7 + seed * 13 + i / 5) % most;
    return choir_from(scope, CHOIR_I64, shape, values);
}

static choir_shape batch_of(choir_shape sample)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {SAMPLES}};
    memcpy(&shape.dim[1], sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    return shape;
}

static void make_data(job *j, int m)
{
    choir_model_info *info = &j->info;
    char name[16];
    snprintf(name, sizeof name, "x %d", m);
    bool tokens = info->task == CHOIR_LANGUAGE && info->input.ndim == 1;
    j->x[m] = tokens ? ids(j->run, batch_of(info->input), info->classes, m)
                     : choir_randn(j->run, batch_of(info->input), name);
    if (info->task == CHOIR_REGRESSION)
        j->y[m] = choir_randn(j->run, batch_of(info->output), "y");
    else if (info->task == CHOIR_CLASSIFICATION)
        j->y[m] = ids(j->run, choir_dims(SAMPLES), info->classes, m);
    else
        j->y[m] = ids(j->run, batch_of(tokens ? info->input : info->output), info->classes, m);
}

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    int64_t m = micro->micro;
    choir_tensor *x = choir_in(micro, j->x[m]), *y = choir_in(micro, j->y[m]);
    return choir_model_loss(&j->info, choir_model_forward(&j->info, net, x, y), y);
}

static choir_status body(choir_scope *at, void *arg)
{
    job *j = arg;
    choir_module *pipe = j->schedule ? j->pipe : NULL;
    micro_batches all = {0, MICROS, micro_batch, j->net, j, j->losses, pipe};
    return train_micro_batches(at, all, j->optim);
}

static void open_pipeline(job *j)
{
    choir_device *devices[MOST_DEVICES];
    for (int d = 0; d < j->devices; d++)
        devices[d] = cpu_device(d);
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = devices;
    opts.device_count = j->devices;
    opts.schedule = j->schedule;
    opts.cuts = j->cuts;
    j->pipe = choir_pipeline(j->run, j->net, opts);
}

static void recompute_all(choir_module *m)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD) {
            choir_module_recompute(e->child, true);
            recompute_all(e->child);
        }
}

static void open_job(job *j)
{
    j->run = choir_scope_open(choir_device_find("cpu:0"), 11);
    j->net = build_model(j->run, j->model, &j->info);
    if (j->recompute)
        assert_true(choir_module_recompute_blocks(j->net, true) > 0);
    if (j->nested)
        recompute_all(j->net);
    j->pipe = j->net;
    if (j->schedule)
        open_pipeline(j);
    j->optim = choir_adamw(j->run, j->pipe, choir_adamw_defaults());
    choir_optim_clip(j->optim, 0.5f);
    for (int m = 0; m < MICROS; m++)
        make_data(j, m);
    choir_check(choir_scope_status(j->run));
}

static outcome train(job j)
{
    outcome out = {0};
    choir_device_stats stats;
    open_job(&j);
    for (int number = 0; number < STEPS; number++) {
        if (number == STEPS - 1) {
            choir_check(choir_device_sync(j.run->device));
            choir_device_reset_peak(j.run->device);
        }
        choir_check(run_step(j.run, j.recorded, number, body, &j));
        for (int m = 0; m < MICROS; m++)
            out.loss_bits[number][m] = item_bits(j.losses[m]);
    }
    choir_device_get_stats(j.run->device, &stats);
    out.peak = stats.bytes_peak;
    out.weights = hash_of_module(j.net);
    choir_check(choir_scope_close(j.run));
    return out;
}

static void assert_same(const outcome *want, const outcome *got, const job *j)
{
    bool same = !memcmp(want->loss_bits, got->loss_bits, sizeof want->loss_bits) &&
                want->weights == got->weights;
    if (!same)
        fail_msg("%s, %s, %d devices, cuts %s%s%s: not the bits of one device without",
            j->model, j->schedule ? j->schedule : "no pipeline", j->devices,
            j->cuts ? j->cuts : "by cost", j->nested ? ", nested" : "",
            j->recorded ? ", recorded" : "");
    assert_true(got->loss_bits[0][0] != got->loss_bits[STEPS - 1][0]); /* it learns */
}

static void check_model(const char *model, bool smaller)
{
    outcome want = train((job){.model = model});
    for (int way = 0; way < 4; way++) {
        job j = {.model = model, .recompute = true, .nested = way > 1, .recorded = way % 2};
        outcome got = train(j);
        assert_same(&want, &got, &j);
        if (smaller && !j.recorded && !j.nested && got.peak >= want.peak)
            fail_msg("%s: %zu bytes at most, and %zu without recomputation", model, got.peak,
                want.peak);
    }
}

static void mlp(void **state)
{
    check_model("mlp:in=20,hidden=33,classes=7", false);
}

static void cnn(void **state)
{
    check_model("cnn:width=4,image=12,classes=5,dropout=0.3", false);
    check_model("alexnet:width=2,image=63,classes=5,channels=2,hidden=9,dropout=0.3", false);
}

static void resnet(void **state)
{
    check_model("resnet18:width=8,image=16,classes=5,small=1", true);
    check_model("resnet50:width=4,image=32,classes=5,stages=3", true);
}

static void gpt2(void **state)
{
    check_model("gpt2:layers=4,heads=2,width=24,context=10,vocab=31,dropout=0.1", true);
}

static void llama(void **state)
{
    check_model("llama:layers=4,heads=4,kv_heads=2,width=24,context=10,vocab=31", true);
}

static void bert(void **state)
{
    check_model(
        "bert:layers=4,heads=2,width=24,hidden=40,context=10,vocab=31,dropout=0.1", true);
}

static void vit(void **state)
{
    check_model(
        "vit:layers=4,heads=2,width=24,hidden=40,patch=4,image=16,classes=5,dropout=0.1", true);
}

static void recurrent(void **state)
{
    check_model("lstm:layers=2,hidden=17,in=6,out=5,context=7,dropout=0.2", false);
    check_model("lstm:cell=gru,layers=2,hidden=9,in=6,context=10,vocab=31,dropout=0.2", false);
}

static void donut(void **state)
{
    check_model("donut:height=32,image_width=32,window=2,embed=8,depths=2-2,heads=1-2,layers=2,"
                "decoder_heads=2,width=16,hidden=24,context=8,vocab=40,dropout=0.1",
        true);
}

/* --- pipelines --- */

static void check_pipelines(const char *model, const char *cuts)
{
    static const char *const schedules[] = {
        "sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"};
    outcome want = train((job){.model = model});
    for (int devices = 2; devices <= 3; devices++)
        for (size_t s = 0; s < CHOIR_COUNT(schedules); s++) {
            job j = {.model = model,
                .schedule = schedules[s],
                .devices = devices,
                .cuts = cuts,
                .recompute = true,
                .nested = s % 2 && devices == 3,
                .recorded = (s + (size_t)devices) % 2};
            bool few = !strncmp(model, "lstm", 4); /* layers for two chunks per device */
            if ((cuts || few) && (devices != 2 || s == 3))
                continue;
            outcome got = train(j);
            assert_same(&want, &got, &j);
        }
}

static void pipelines(void **state)
{
    static const char model[] =
        "gpt2:layers=4,heads=2,width=24,context=10,vocab=31,dropout=0.1";
    check_pipelines(model, NULL);
    for (int op = 0; op < 12; op++) { /* anywhere in a block */
        char cut[40];
        snprintf(cut, sizeof cut, "transformer.h.1+%d", op);
        check_pipelines(model, cut);
    }
    check_pipelines("resnet18:width=4,image=16,classes=5,small=1", NULL);
    check_pipelines("lstm:layers=2,hidden=16,context=8,vocab=40", NULL);
}

/* --- memory --- */

enum { BLOCKS = 12, ROWS = 64, WIDTH = 256, WIDE = 4 * WIDTH };

static choir_module *wide_block(void)
{
    return choir_nn_sequential(run, choir_nn_linear(run, WIDTH, WIDE), choir_nn_tanh(run),
        choir_nn_linear(run, WIDE, WIDTH));
}

static size_t peak_of(bool recompute)
{
    choir_module *blocks[BLOCKS];
    choir_device_stats stats;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = wide_block();
    choir_module *net = choir_nn_sequential_n(run, blocks, BLOCKS);
    assert_int_equal(choir_module_recompute_blocks(net, recompute), BLOCKS);
    /* The first makes books; the gradients of the second are added to them bucket by bucket,
     * which takes memory while activations go. */
    for (int i = 0; i < 3; i++) {
        choir_scope *micro = choir_micro_open(step, 0);
        choir_tensor *x = choir_full(micro, CHOIR_F32, choir_dims(ROWS, WIDTH), 0.5);
        choir_check(choir_device_sync(run->device));
        choir_device_reset_peak(run->device);
        choir_check(choir_backward(choir_mean(choir_forward(net, x))));
        choir_check(choir_scope_close(micro));
    }
    choir_check(choir_device_sync(run->device));
    choir_device_get_stats(run->device, &stats);
    return stats.bytes_peak;
}

/* Without recomputation, memory holds 2 wide results and the output of each block. With it:
 * each block's output, and one block's results. */
static void bound(void **state)
{
    size_t wide = sizeof(float) * ROWS * WIDE, without = peak_of(false);
    close_scopes(state);
    open_scopes(state);
    size_t with = peak_of(true);
    if (with + (BLOCKS - 1) * 2 * wide > without)
        fail_msg("%zu bytes at most, and %zu without recomputation", with, without);
}

/* --- which ops run again, and how often --- */

static int made;

static void pass_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
}

static void count_again(choir__tape_entry *r)
{
    made++;
    choir__launch_copy(r->out, r->in[0]);
}

static const choir__op counted = {
    .name = "counted", .any_dtype = true, .backward = pass_backward, .recompute = count_again};

static choir_tensor *count(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&counted, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_tensor *y = choir__tensor_like(scope, x);
    choir__launch_copy(y, x);
    choir__tape_entry_new(&counted, y, &x, 1);
    return y;
}

/* Computes s * x + s for s = sigmoid(count(x)): a result inside the module (`inner` keeps it)
 * and an operand, x, with two readers. */
typedef struct gate {
    choir_module base;
    choir_module *within;
    choir_tensor *inner;
} gate;

static choir_tensor *gate_forward(choir_module *self, choir_tensor *const *in, int n)
{
    gate *g = (gate *)self;
    choir_tensor *x = g->within ? choir_forward(g->within, in[0]) : in[0];
    g->inner = choir_sigmoid(count(x));
    return choir_add(choir_mul(g->inner, x), g->inner);
}

static const choir_module_class gate_class = {"gate", sizeof(gate), gate_forward, 0};

static gate *new_gate(bool recompute, choir_module *within)
{
    gate *g = choir_module_new(run, &gate_class);
    if (within)
        choir_module_child(&g->base, "within", &g->within, within);
    choir_module_recompute(&g->base, recompute);
    return g;
}

enum { N = 6 };

struct gradient {
    float x[N];
};

static struct gradient backward(choir_tensor *x, choir_tensor *loss)
{
    struct gradient g;
    choir_check(choir_backward(loss));
    choir_check(choir_read(choir_grad(x), g.x, sizeof g.x));
    return g;
}

static choir_tensor *input(choir_scope *scope)
{
    return choir_require_grad(choir_randn(scope, choir_dims(N), "x"));
}

/* Each op runs again exactly once for backward, in two modules; where one module is within the
 * other, the inner ops run twice. */
static void once(void **state)
{
    static const int times[] = {0, 2, 3};
    struct gradient want;
    for (int way = 0; way < 3; way++) {
        choir_scope *micro = choir_micro_open(step, 0);
        gate *inner = new_gate(way > 0, NULL);
        gate *outer = new_gate(way > 0, way == 2 ? &inner->base : NULL);
        choir_tensor *x = input(micro), *h = x;
        if (way < 2)
            h = choir_forward(&inner->base, x);
        made = 0;
        choir_tensor *y = choir_forward(&outer->base, h);
        assert_int_equal(!outer->inner->storage, way > 0);
        struct gradient got = backward(x, choir_sum(choir_square(y)));
        assert_int_equal(made, times[way]);
        if (way)
            assert_memory_equal(&want, &got, sizeof want);
        want = got;
        choir_check(choir_scope_close(micro));
    }
}

/* Tensors from inside a module are requested later: by an op, by another module, by the host,
 * by choir_keep. */
static void skipped(void **state)
{
    struct gradient want;
    float values[2][N];
    for (int on = 0; on < 2; on++) {
        choir_scope *micro = choir_micro_open(step, 0);
        gate *g = new_gate(on, NULL), *h = new_gate(on, NULL), *k = new_gate(on, NULL);
        choir_tensor *x = input(micro), *y = choir_forward(&g->base, x);
        y = choir_add(choir_forward(&h->base, g->inner), y);
        made = 0;
        choir_tensor *kept = choir_keep(step, h->inner);
        assert_int_equal(made, on);
        choir_check(choir_read(kept, values[on], sizeof values[on]));
        y = choir_forward(&k->base, choir_mul(y, h->inner));
        choir_check(choir_read(k->inner, values[on], sizeof values[on]));
        struct gradient got = backward(x, choir_sum(y));
        if (on)
            assert_memory_equal(&want, &got, sizeof want);
        want = got;
        choir_check(choir_scope_close(micro));
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
}

/* A result that backward has freed is gone for good. A result is not recomputed from values
 * that have changed. */
static void refused(void **state)
{
    float zeros[N] = {0};
    gate *g = new_gate(true, NULL);
    choir_scope *micro = choir_micro_open(step, 0);
    choir_tensor *x = input(micro), *y = choir_forward(&g->base, x);
    backward(x, choir_sum(y));
    assert_true(choir_neg(g->inner)->poisoned);
    assert_says("backward has freed operand 0");
    choir_scope_clear(micro);
    choir_scope_close(micro);
    micro = choir_micro_open(step, 0);
    x = input(micro);
    choir_tensor *h = choir_affine(x, 2, 0);
    y = choir_forward(&g->base, h);
    choir_check(choir_write(h, zeros, sizeof zeros));
    assert_fails(choir_backward(choir_sum(y)), CHOIR_ERR_STATE, "changed in place");
    choir_scope_clear(micro);
    choir_scope_close(micro);
}

/* Outputs that a hook received are kept. A gradient is not written over a value from which a
 * module is recomputed. */
static void note_output(choir_module *m, choir_tensor *out, void *arg)
{
    *(choir_tensor **)arg = out;
}

static void hooked(void **state)
{
    choir_tensor *out = NULL;
    gate *inner = new_gate(false, NULL), *outer = new_gate(true, &inner->base);
    choir_module_hook(&inner->base, (choir_module_hooks){.after_forward = note_output}, &out);
    choir_scope *micro = choir_micro_open(step, 0);
    choir_forward(&outer->base, input(micro));
    assert_true(out && out->storage && !outer->inner->storage);
    choir_check(choir_scope_close(micro));
}

static choir_tensor *scores_forward(choir_module *self, choir_tensor *const *in, int n)
{
    gate *g = (gate *)self;
    choir_tensor *y = choir_add(in[0], count(in[0])); /* (1, N) */
    g->inner = choir_sigmoid(choir_sigmoid(y));
    return y;
}

static const choir_module_class scores_class = {"scores", sizeof(gate), scores_forward, 0};

static void over_the_scores(void **state)
{
    struct gradient want;
    int64_t target = 2;
    for (int on = 0; on < 2; on++) {
        gate *g = choir_module_new(run, &scores_class);
        choir_module_recompute(&g->base, on);
        choir_scope *micro = choir_micro_open(step, 0);
        choir_tensor *x = input(micro), *row = choir_reshape(x, choir_dims(1, N));
        choir_tensor *y = choir_forward(&g->base, row);
        choir_tensor *aside = choir_sum(choir_square(g->inner));
        choir_tensor *loss =
            choir_cross_entropy(y, choir_from(micro, CHOIR_I64, choir_dims(1), &target));
        struct gradient got = backward(x, choir_add(loss, aside));
        if (on)
            assert_memory_equal(&want, &got, sizeof want);
        want = got;
        choir_check(choir_scope_close(micro));
    }
}

/* --- which modules --- */

static int count_blocks(const char *model)
{
    choir_model_info info = {0};
    return choir_module_recompute_blocks(build_model(run, model, &info), true);
}

static void blocks(void **state)
{
    assert_int_equal(count_blocks("gpt2:layers=3,heads=2,width=8,context=4,vocab=9"), 3);
    assert_int_equal(count_blocks("llama:layers=3,heads=2,width=8,context=4,vocab=9"), 3);
    assert_int_equal(count_blocks("bert:layers=3,heads=2,width=8,context=4,vocab=9"), 3);
    assert_int_equal(count_blocks("resnet18:width=2,image=8,classes=5,small=1"), 8);
    assert_int_equal(count_blocks("lstm:layers=2,hidden=4,context=4,vocab=9"), 3);
    assert_int_equal(
        count_blocks("donut:height=32,image_width=32,window=2,embed=8,depths=2-2,heads=1-2,"
                     "layers=3,decoder_heads=2,width=16,hidden=24,context=8,vocab=40"),
        7);
}

/* --- ops in f32 that no model above has --- */

static choir_tensor *images(choir_tensor *const *in, int n, void *arg)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = 2;
    choir_tensor *x = choir_group_norm(in[0], 2, NULL, NULL, 1e-5f); /* (2, 4, 6, 6) */
    x = choir_conv_transpose2d(x, in[1], NULL, o);                   /* (2, 3, 13, 13) */
    x = choir_max_pool2d(choir_avg_pool2d(x, 3, 2, 1), 2, 1, 0);
    return choir_adaptive_max_pool2d(choir_cat((choir_tensor *[]){x, x}, 2, 1), 2, 2);
}

static choir_tensor *rows(choir_tensor *const *in, int n, void *arg)
{
    choir_tensor *x = choir_matmul(in[0], choir_transpose(in[1], 0, 1)); /* (8, 5) */
    x = choir_div(
        choir_softmax(x), choir_expand(choir_exp(choir_narrow(x, 1, 0, 1)), x->shape));
    x = choir_cast(
        choir_cast(choir_log_softmax(choir_dropout(x, 0.3f, "drop")), CHOIR_BF16), CHOIR_F32);
    choir_tensor *target = choir_from(
        choir_tensor_scope(x), CHOIR_I64, choir_dims(8), (int64_t[8]){1, 2, 3, 4, 0, 1, 2, 3});
    choir_tensor *a = choir_nll_loss(x, target), *b = choir_cross_entropy(x, target);
    choir_tensor *c =
        choir_smooth_l1_loss(choir_sum_dim(x, 0), choir_mean_dim(x, 0), 1, CHOIR_LOSS_MEAN);
    return choir_sub(choir_add(a, choir_sqrt(b)), choir_add(c, choir_sum(c)));
}

static void ops(void **state)
{
    choir_tensor *in[2] = {
        choir_require_grad(choir_randn(step, choir_dims(2, 4, 6, 6), "image")),
        choir_require_grad(choir_randn(step, choir_dims(4, 3, 3, 3), "kernel"))};
    assert_true(check_again(images, in, 2, NULL) >= 6);
    in[0] = choir_require_grad(choir_randn(step, choir_dims(8, 6), "a"));
    in[1] = choir_require_grad(choir_randn(step, choir_dims(5, 6), "b"));
    assert_true(check_again(rows, in, 2, NULL) >= 20);
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        IN_SCOPES(ops),
        IN_SCOPES(once),
        IN_SCOPES(skipped),
        IN_SCOPES(refused),
        IN_SCOPES(hooked),
        IN_SCOPES(over_the_scores),
        IN_SCOPES(blocks),
        IN_SCOPES(bound),
        cmocka_unit_test(mlp),
        cmocka_unit_test(cnn),
        cmocka_unit_test(resnet),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(llama),
        cmocka_unit_test(bert),
        cmocka_unit_test(vit),
        cmocka_unit_test(recurrent),
        cmocka_unit_test(donut),
        cmocka_unit_test(pipelines),
    };
    return cmocka_run_group_tests_name("recomputation", tests, NULL, NULL);
}
