/* Image networks: names, counters and files, results that are released and recomputed, and
 * errors that name the layer. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/autograd.h>
#include <choir/checkpoint.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/safetensors.h"
#include "scopes_fixture.h"
#include "written_files.h"
#include "tensor/op.h"

static choir_module *build(const char *text, choir_model_info *info)
{
    *info = (choir_model_info){0};
    ok(choir_model_describe(text, info));
    return choir_model_build(run, info);
}

static int64_t size_of(choir_module *net, const char *name, int dim)
{
    choir_tensor *t = choir_module_find(net, name);
    if (!t)
        fail_msg("there is no %s", name);
    return choir_tensor_size(t, dim);
}

static void count(const char *name, choir_tensor *t, void *arg)
{
    ++*(int *)arg;
}

/* The numbers of parameters equal those of the published files. */
static void published_sizes(void **state)
{
    static const struct {
        const char *name;
        int tensors;
        int64_t parameters;
    } nets[] = {{"resnet18", 122, 11689512}, {"resnet34", 218, 21797672},
        {"resnet50", 320, 25557032}, {"alexnet", 16, 61100840}};
    for (size_t i = 0; i < CHOIR_COUNT(nets); i++) {
        choir_model_info info;
        int tensors = 0;
        choir_scope *outer = run;
        run = choir_scope_open(NULL, 1);
        choir_module *net = build(nets[i].name, &info);
        choir_module_visit(net, true, count, &tensors);
        assert_int_equal(tensors, nets[i].tensors);
        assert_int_equal(choir_module_param_count(net), nets[i].parameters);
        choir_scope_close(run);
        run = outer;
    }
}

static void published_names(void **state)
{
    choir_model_info info;
    choir_module *r = build("resnet50:width=8,classes=7", &info);
    assert_int_equal(size_of(r, "conv1.weight", 3), 7);
    assert_int_equal(size_of(r, "layer1.0.downsample.0.weight", 0), 32);
    assert_int_equal(size_of(r, "layer1.0.downsample.1.running_var", 0), 32);
    assert_int_equal(size_of(r, "layer4.2.conv3.weight", 0), 256);
    assert_int_equal(size_of(r, "layer3.5.bn2.bias", 0), 32);
    assert_int_equal(size_of(r, "fc.weight", 1), 256);
    assert_null(choir_module_find(r, "layer1.1.downsample.0.weight"));
    assert_null(choir_module_find(r, "conv1.bias"));
    assert_int_equal(
        choir_tensor_dtype(choir_module_find(r, "bn1.num_batches_tracked")), CHOIR_I64);
    choir_module *a = build("alexnet:width=2,hidden=8,classes=3", &info);
    assert_int_equal(size_of(a, "features.10.weight", 0), 8);
    assert_int_equal(size_of(a, "classifier.1.weight", 1), 8 * 36);
    assert_int_equal(size_of(a, "classifier.6.bias", 0), 3);
}

static const char *small = "resnet18:width=4,stages=2,small=1,image=8,channels=2,classes=3";

static choir_tensor *image(choir_scope *s, int64_t n)
{
    return choir_randn(s, choir_dims(n, 2, 8, 8), "image");
}

/* --- counters --- */

static int64_t batches(choir_module *net)
{
    int64_t value = -1;
    choir_tensor *t = choir_module_find(net, "layer2.0.bn1.num_batches_tracked");
    ok(choir_read(t, &value, sizeof value));
    return value;
}

static void file_name(char path[64])
{
    snprintf(path, 64, "/tmp/choir-images-%d.safetensors", (int)getpid());
}

/* Training batches are counted, by micro-batch 0 alone. Files store the counters as i64, and
 * old files without them load. */
static void counters(void **state)
{
    choir_model_info info;
    char path[64];
    choir_module *net = build(small, &info), *other = build(small, &info);
    for (int64_t i = 0; i < 4; i++) {
        choir_scope *micro = choir_micro_open(step, i % 2);
        choir_forward(net, image(micro, 2));
        ok(choir_scope_close(micro));
    }
    assert_int_equal(batches(net), 2);
    choir_module_train(net, false);
    choir_forward(net, image(step, 2));
    assert_int_equal(batches(net), 2);

    file_name(path);
    ok(choir_save(net, path));
    ok(choir_load(other, path));
    assert_int_equal(batches(other), 2);
    char mine[65], theirs[65];
    ok(choir_weights_sha256(net, NULL, mine));
    ok(choir_weights_sha256(other, NULL, theirs));
    assert_string_equal(mine, theirs);

    choir__st_file *file;
    ok(choir__st_open(path, &file));
    choir__st_tensor *kept = calloc((size_t)choir__st_count(file), sizeof *kept);
    int left = 0;
    for (int i = 0; i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        if (!strstr(t->name, "num_batches_tracked"))
            kept[left++] = *t;
        else
            assert_int_equal(t->dtype, CHOIR_I64);
    }
    char old[80];
    snprintf(old, sizeof old, "%s.old", path);
    ok(st_write(old, kept, left, NULL));
    choir__st_close(file);
    free(kept);
    ok(choir_load(other, old));
    assert_int_equal(batches(other), 0);
    unlink(path);
    unlink(old);
}

/* --- released results --- */

typedef struct outcome {
    float loss, grad[2 * 2 * 3 * 3], first[9];
} outcome;

/* Runs conv(norm(conv(x))); drop: the norm's result is released, else it is read. */
static outcome pass(bool drop)
{
    outcome o;
    choir_scope *s = choir_micro_open(step, 0);
    float values[2 * 2 * 3 * 3];
    for (int i = 0; i < 36; i++)
        values[i] = (float)(i % 7) - 2.5f;
    choir_tensor *w =
        choir_require_grad(choir_from(s, CHOIR_F32, choir_dims(2, 2, 3, 3), values));
    choir_tensor *x = choir_from(s, CHOIR_F32, choir_dims(2, 2, 3, 3), values);
    choir_tensor *gamma = choir_full(s, CHOIR_F32, choir_dims(2), 0.7);
    choir_tensor *beta = choir_full(s, CHOIR_F32, choir_dims(2), 0.1);
    choir_conv_opts same = choir_conv_defaults();
    same.padding = 1;
    choir_batch_norm_opts opts = choir_batch_norm_defaults();
    opts.relu = true;
    choir_tensor *mean = choir_zeros(s, CHOIR_F32, choir_dims(2));
    choir_tensor *var = choir_full(s, CHOIR_F32, choir_dims(2), 1);
    choir_tensor *h =
        choir_batch_norm_with(choir_conv2d(x, w, NULL, same), gamma, beta, mean, var, opts);
    choir_tensor *y = choir_conv2d(h, w, NULL, same);
    if (drop) {
        choir__done_with(h);
        choir__done_with(h);
        assert_null(h->storage);
    }
    memset(o.first, 0, sizeof o.first);
    if (!drop) {
        choir_tensor *part = choir_narrow(choir_flatten(h, 0), 0, 0, 9);
        ok(choir_read(part, o.first, sizeof o.first));
    }
    choir_tensor *loss = choir_mean(choir_square(y));
    ok(choir_backward(loss));
    o.loss = (float)choir_item(loss);
    ok(choir_read(choir_grad(w), o.grad, sizeof o.grad));
    ok(choir_scope_close(s));
    return o;
}

static void dropped_results(void **state)
{
    outcome kept = pass(false), dropped = pass(true);
    assert_true(kept.loss == dropped.loss);
    assert_memory_equal(kept.grad, dropped.grad, sizeof kept.grad);
    float sum = 0;
    for (int i = 0; i < 9; i++)
        sum += kept.first[i];
    assert_true(sum > 0);
}

/* A parameter gets its memory and first values before it is visited. */
static void has_memory(const char *name, choir_tensor *t, void *arg)
{
    assert_non_null(t);
}

/* A net keeps less than the results of all its layers, and in eval next to nothing. */
static void memory(void **state)
{
    choir_model_info info;
    choir_device_stats before, after;
    choir_module *net = build("resnet18:width=16,small=1,image=32", &info);
    choir_device *device = run->device;
    choir_tensor *x = choir_randn(step, choir_dims(4, 3, 32, 32), "x");
    choir_module_visit(net, true, has_memory, NULL);
    choir_device_sync(device);
    int64_t stage = (int64_t)4 * 16 * 32 * 32 * 4; /* bytes of one result of the first stage */
    for (int grad = 1; grad >= 0; grad--) {
        choir_scope *s = grad ? choir_micro_open(step, 0) : choir_no_grad(step);
        choir_module_train(net, grad);
        choir_device_get_stats(device, &before);
        choir_forward(net, choir_in(s, x));
        choir_device_get_stats(device, &after);
        int64_t held = (int64_t)after.bytes_now - (int64_t)before.bytes_now;
        /* 20 convolutions, 8 blocks; halving from stage to stage: 5 + 2 + ..., and slack */
        assert_in_range(held, 0, grad ? 16 * stage : stage / 4);
        ok(choir_scope_close(s));
    }
}

/* --- refused inputs --- */

static void refuses(choir_tensor *y, choir_status status, const char *text)
{
    assert_true(y->poisoned);
    assert_int_equal(choir_scope_status(step), status);
    assert_says(text);
    choir_scope_clear(step);
}

static choir_tensor *ones(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return choir_full(step, CHOIR_F32, choir_dims(a, b, c, d), 1);
}

static void refused_ops(void **state)
{
    choir_conv_opts o = choir_conv_defaults();
    refuses(choir_conv2d(ones(1, 3, 4, 4), ones(2, 3, 5, 5), NULL, o), CHOIR_ERR_SHAPE,
        "(1, 3, 4, 4), f32 (2, 3, 5, 5)");
    refuses(choir_conv2d(ones(1, 3, 4, 4), ones(2, 4, 3, 3), NULL, o), CHOIR_ERR_SHAPE,
        "the image's channels");
    o.groups = 2;
    refuses(
        choir_conv2d(ones(1, 4, 4, 4), ones(3, 2, 3, 3), NULL, o), CHOIR_ERR_SHAPE, "groups");
    refuses(choir_conv_transpose2d(ones(1, 3, 4, 4), ones(3, 2, 3, 3), NULL, o),
        CHOIR_ERR_SHAPE, "groups");
    o.groups = 1;
    o.stride_w = -1;
    refuses(choir_conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), NULL, o), CHOIR_ERR_ARGUMENT,
        "stride 1 x -1");
    o = choir_conv_defaults();
    o.output_padding = 1;
    refuses(choir_conv_transpose2d(ones(1, 3, 4, 4), ones(3, 2, 3, 3), NULL, o),
        CHOIR_ERR_ARGUMENT, "got 1 x 1");
    o.output_padding = 0, o.padding = 9;
    refuses(choir_conv_transpose2d(ones(1, 3, 4, 4), ones(3, 2, 3, 3), NULL, o),
        CHOIR_ERR_SHAPE, "leaves 1 pixel or more");
    refuses(choir_conv_transpose2d(ones(1, 3, 4, 4), ones(2, 2, 3, 3), NULL, o),
        CHOIR_ERR_SHAPE, "channels");
    refuses(choir_adaptive_avg_pool2d(ones(1, 3, 4, 4), 0, 2), CHOIR_ERR_ARGUMENT, "0 x 2");
    refuses(choir_adaptive_max_pool2d(choir_mean_dim(ones(1, 3, 4, 4), 0), 1, 1),
        CHOIR_ERR_SHAPE, "(3, 4, 4)");
    refuses(choir_group_norm(ones(1, 4, 2, 2), 3, NULL, NULL, 1e-5f), CHOIR_ERR_ARGUMENT,
        "3 groups do not divide the 4 channels");
    choir_tensor *two = choir_zeros(step, CHOIR_F32, choir_dims(2));
    choir_batch_norm_opts b = choir_batch_norm_defaults();
    refuses(choir_batch_norm_with(ones(1, 2, 1, 1), NULL, NULL, two, two, b), CHOIR_ERR_SHAPE,
        "more than one value per channel");
    b.residual = ones(1, 2, 3, 1);
    refuses(choir_batch_norm_with(ones(1, 2, 3, 3), NULL, NULL, two, two, b), CHOIR_ERR_SHAPE,
        "residual");
    b.residual = NULL, b.batches = two;
    refuses(choir_batch_norm_with(ones(1, 2, 3, 3), NULL, NULL, two, two, b), CHOIR_ERR_SHAPE,
        "one i64");
}

/* The message ends with the layer's path. */
static void refused_in_a_net(void **state)
{
    choir_model_info info;
    choir_module *net = build(small, &info);
    refuses(choir_forward(net, ones(2, 3, 8, 8)), CHOIR_ERR_SHAPE, "in module 'conv1'");
    choir_module *a = build("alexnet:width=2,hidden=8,classes=3", &info);
    refuses(choir_forward(a, ones(2, 3, 30, 30)), CHOIR_ERR_SHAPE, "; in module 'features.5'");
    refuses(choir_forward(net, ones(1, 2, 1, 1)), CHOIR_ERR_SHAPE, "; in module 'bn1'");
}

static void refused_modules(void **state)
{
    choir_conv_opts o = choir_conv_defaults();
    o.groups = 3;
    choir_nn_conv2d(run, 4, 6, 3, o);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "3 groups do not divide");
    choir_scope_clear(run);
    choir_nn_group_norm(run, 3, 4);
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
    choir_scope_clear(run);
    choir_nn_conv_transpose2d(run, 0, 6, 3, choir_conv_defaults());
    assert_int_equal(choir_scope_status(run), CHOIR_ERR_ARGUMENT);
    choir_scope_clear(run);
    choir_model_info info = {.input = choir_dims(10)};
    assert_fails(
        choir_model_describe("resnet34", &info), CHOIR_ERR_ARGUMENT, "samples of (10)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(published_sizes),
        IN_SCOPES(published_names),
        IN_SCOPES(counters),
        IN_SCOPES(dropped_results),
        IN_SCOPES(memory),
        IN_SCOPES(refused_ops),
        IN_SCOPES(refused_in_a_net),
        IN_SCOPES(refused_modules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
