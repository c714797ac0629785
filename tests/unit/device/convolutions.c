/* Convolutions of signals and volumes as modules: values and gradients against plain loops in
 * f64, names and shapes in files, wrong sizes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/autograd.h>
#include <choir/checkpoint.h>

#include "base/base.h"
#include "checkpoint/format/safetensors.h"
#include "scopes_fixture.h"
#include "written_files.h"
#include "tensor/tensor.h"

enum { N = 2, IN = 4, OUT = 6 };

/* A layer of IN to OUT channels. A signal is a volume whose depth and height are 1. */
typedef struct layer {
    int dims; /* of the kernel: 1 or 3 */
    int kernel[3], stride[3], padding[3], dilation[3];
    int groups;
    bool no_bias;
} layer;

static const layer layers[] = {
    {1, {1, 1, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1, false},
    {1, {1, 1, 5}, {1, 1, 3}, {0, 0, 4}, {1, 1, 2}, 2, false},
    {1, {1, 1, 2}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}, 1, true},
    {3, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1, false},
    {3, {3, 1, 2}, {2, 1, 3}, {1, 0, 1}, {1, 2, 2}, 2, false},
    {3, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, 1, true},
};

static const int64_t sizes[3] = {4, 5, 7};

static choir_module *new_layer(const layer *l)
{
    if (l->dims == 1) {
        choir_conv_opts o = {.stride = l->stride[2],
            .padding = l->padding[2],
            .dilation = l->dilation[2],
            .groups = l->groups};
        choir_nn_conv_opts all = choir_nn_conv_defaults(l->kernel[2]);
        all.conv = o;
        all.no_bias = true;
        return l->no_bias ? choir_nn_conv1d_with(run, IN, OUT, all)
                          : choir_nn_conv1d(run, IN, OUT, l->kernel[2], o);
    }
    choir_nn_conv3d_opts o = choir_nn_conv3d_defaults(1);
    memcpy(o.kernel, l->kernel, sizeof o.kernel);
    memcpy(o.conv.stride, l->stride, sizeof l->stride);
    memcpy(o.conv.padding, l->padding, sizeof l->padding);
    memcpy(o.conv.dilation, l->dilation, sizeof l->dilation);
    o.conv.groups = l->groups;
    o.no_bias = l->no_bias;
    bool cubic = l->kernel[0] == l->kernel[1] && l->kernel[0] == l->kernel[2];
    return cubic ? choir_nn_conv3d(run, IN, OUT, l->kernel[0], o.conv)
                 : choir_nn_conv3d_with(run, IN, OUT, o);
}

/* --- plain loops --- */

static float *values(choir_tensor *t, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(float);
    float *v = malloc(bytes);
    assert_int_equal(choir_tensor_count(t), count);
    ok(choir_read(t, v, bytes));
    return v;
}

static int64_t size_of(const layer *l, int d)
{
    return l->dims == 1 && d < 2 ? 1 : sizes[d];
}

static int64_t size_out(const layer *l, int d)
{
    return (size_of(l, d) + 2 * l->padding[d] - l->dilation[d] * (l->kernel[d] - 1) - 1) /
               l->stride[d] +
           1;
}

/* Returns the index of the input's pixel that place k of the kernel sees at the output's pixel
 * p, or -1 for padding. Both are (depth, height, width). */
static int64_t seen(const layer *l, const int64_t p[3], const int64_t k[3])
{
    int64_t index = 0;
    for (int d = 0; d < 3; d++) {
        int64_t at = p[d] * l->stride[d] - l->padding[d] + k[d] * l->dilation[d];
        if (at < 0 || at >= size_of(l, d))
            return -1;
        index = index * size_of(l, d) + at;
    }
    return index;
}

/* One pair of channels: the input's pixels and their gradients, the kernel, the output. */
typedef struct pair {
    const float *x, *w, *gy;
    double *gx, *gw, *y;
} pair;

/* Adds what place `tap` of the kernel contributes, from input pixel `in` to output pixel `out`.
 */
static void plain_tap(const pair *c, int64_t in, int64_t tap, int64_t out)
{
    c->y[out] += (double)c->w[tap] * (double)c->x[in];
    c->gw[tap] += (double)c->gy[out] * (double)c->x[in];
    c->gx[in] += (double)c->gy[out] * (double)c->w[tap];
}

static void plain_pair(const layer *l, const pair *c)
{
    int64_t pixels[3], taps[3], count = l->kernel[0] * l->kernel[1] * l->kernel[2];
    for (int d = 0; d < 3; d++)
        pixels[d] = size_out(l, d);
    for (int64_t out = 0; out < pixels[0] * pixels[1] * pixels[2]; out++) {
        int64_t p[3] = {
            out / pixels[2] / pixels[1], out / pixels[2] % pixels[1], out % pixels[2]};
        for (int64_t tap = 0; tap < count; tap++) {
            taps[0] = tap / l->kernel[2] / l->kernel[1];
            taps[1] = tap / l->kernel[2] % l->kernel[1];
            taps[2] = tap % l->kernel[2];
            int64_t in = seen(l, p, taps);
            if (in >= 0)
                plain_tap(c, in, tap, out);
        }
    }
}

static void compare(const char *what, const double *expected, float *got, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(expected[i] - (double)got[i]) < 2e-5))
            fail_msg("%s, entry %lld: expected %g, got %g", what, (long long)i, expected[i],
                (double)got[i]);
    free(got);
}

static int64_t product(const layer *l, int64_t of(const layer *, int))
{
    return of(l, 0) * of(l, 1) * of(l, 2);
}

/* y, and all gradients for the loss sum(y^2) / 2, whose gradient is y. */
static void check_layer(const layer *l)
{
    enum { MOST = 4096 };
    static double y[MOST], gx[MOST], gw[MOST];
    int64_t in = product(l, size_of), out = product(l, size_out), cols = IN / l->groups;
    int64_t taps = l->kernel[0] * l->kernel[1] * l->kernel[2];
    choir_module *net = new_layer(l);
    choir_shape shape = {5, {N, IN, sizes[0], sizes[1], sizes[2]}};
    choir_tensor *x =
        choir_randn(step, l->dims == 1 ? choir_dims(N, IN, sizes[2]) : shape, "x");
    choir_tensor *output = choir_forward(net, choir_require_grad(x));
    choir_tensor *weight = choir_module_find(net, "weight");
    choir_tensor *bias = choir_module_find(net, "bias");
    assert_true(l->no_bias == !bias);
    float *of_x = values(x, N * IN * in), *of_w = values(weight, OUT * cols * taps);
    float *of_y = values(output, N * OUT * out), *of_b = bias ? values(bias, OUT) : NULL;
    choir_tensor *loss = choir_affine(choir_sum(choir_square(output)), 0.5f, 0);
    ok(choir_backward(loss));

    double gb[OUT] = {0};
    assert_true(N * OUT * out <= MOST && N * IN * in <= MOST && OUT * cols * taps <= MOST);
    memset(gx, 0, sizeof gx);
    memset(gw, 0, sizeof gw);
    for (int64_t row = 0; row < N * OUT; row++) {
        int64_t n = row / OUT, o = row % OUT, first = n * IN + o / (OUT / l->groups) * cols;
        for (int64_t i = row * out; i < (row + 1) * out; i++) {
            y[i] = of_b ? (double)of_b[o] : 0;
            gb[o] += (double)of_y[i];
        }
        for (int64_t c = 0; c < cols; c++)
            plain_pair(l,
                &(pair){of_x + (first + c) * in, of_w + (o * cols + c) * taps, of_y + row * out,
                    gx + (first + c) * in, gw + (o * cols + c) * taps, y + row * out});
    }
    compare("y", y, of_y, N * OUT * out);
    compare("gradient of x", gx, values(choir_grad(x), N * IN * in), N * IN * in);
    compare("of weight", gw, values(choir_grad(weight), OUT * cols * taps), OUT * cols * taps);
    if (bias)
        compare("of bias", gb, values(choir_grad(bias), OUT), OUT);
    free(of_x);
    free(of_w);
    free(of_b);
}

static void plain_loops(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(layers); i++)
        check_layer(&layers[i]);
}

/* --- files --- */

static choir_module *new_net(void)
{
    choir_module *signals = choir_nn_sequential(
        run, choir_nn_conv1d(run, 3, 4, 5, choir_conv_defaults()), choir_nn_relu(run));
    return choir_nn_sequential(
        run, signals, choir_nn_conv3d(run, 2, 4, 3, choir_conv3d_defaults()));
}

static void assert_entry(const choir__st_file *file, const char *name, choir_shape shape)
{
    const choir__st_tensor *t = st_find(file, name);
    if (!t)
        fail_msg("there is no %s", name);
    assert_true(choir__same_shape(t->shape, shape));
}

/* A file has the names and shapes of PyTorch's layers, and gives the weights back. */
static void files(void **state)
{
    char path[64], mine[65], theirs[65];
    choir__st_file *file;
    choir_module *net = new_net(), *other = new_net();
    choir_tensor *t = choir_module_find(other, "1.weight");
    float *zeros = calloc(4 * 2 * 27, sizeof *zeros);
    ok(choir_write(t, zeros, 4 * 2 * 27 * sizeof *zeros));
    free(zeros);
    ok(choir_weights_sha256(net, NULL, mine));
    ok(choir_weights_sha256(other, NULL, theirs));
    assert_string_not_equal(mine, theirs);
    snprintf(path, sizeof path, "/tmp/choir-convolutions-%d.safetensors", (int)getpid());
    ok(choir_save(net, path));
    ok(choir__st_open(path, &file));
    assert_int_equal(choir__st_count(file), 4);
    assert_entry(file, "0.0.weight", choir_dims(4, 3, 5));
    assert_entry(file, "0.0.bias", choir_dims(4));
    assert_entry(file, "1.weight", (choir_shape){5, {4, 2, 3, 3, 3}});
    assert_entry(file, "1.bias", choir_dims(4));
    choir__st_close(file);
    ok(choir_load(other, path));
    unlink(path);
    ok(choir_weights_sha256(other, NULL, theirs));
    assert_string_equal(mine, theirs);
}

/* --- wrong sizes --- */

static void refused(choir_module *module, const char *why)
{
    assert_non_null(module);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, why);
    choir_scope_clear(run);
}

static void refusals(void **state)
{
    choir_conv_opts thirds = choir_conv_defaults();
    thirds.groups = 3;
    refused(choir_nn_conv1d(run, 4, 6, 3, thirds), "conv1d: 3 groups do not divide");
    refused(choir_nn_conv1d(run, 4, 6, 0, choir_conv_defaults()),
        "conv1d: expected a kernel of 1 or more, got (0)");
    choir_nn_conv3d_opts flat = choir_nn_conv3d_defaults(3);
    flat.kernel[1] = 0;
    refused(choir_nn_conv3d_with(run, 4, 6, flat),
        "conv3d: expected a kernel of 1 or more, got (3, 0, 3)");
    refused(choir_nn_conv3d(run, 0, 6, 3, choir_conv3d_defaults()), "conv3d");
    choir_module *volumes = choir_nn_conv3d(run, 4, 6, 3, choir_conv3d_defaults());
    choir_tensor *images = choir_zeros(step, CHOIR_F32, choir_dims(1, 4, 5, 5));
    choir_forward(volumes, images);
    assert_fails(choir_scope_status(step), CHOIR_ERR_SHAPE, "(N, C, D, H, W)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(plain_loops),
        IN_SCOPES(files),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
