/* The ops of image networks against central differences: convolutions with all options, pooling
 * to a given size, group norm, and batch norm with its fused ops. */

#include "base/base.h"
#include "gradcheck_fixture.h"

/* --- convolutions --- */

typedef struct conv_case {
    choir_conv_opts opts;
    int64_t in, out, kh, kw;
} conv_case;

static choir_tensor *apply_conv(choir_tensor *const *in, int count, void *arg)
{
    const conv_case *c = arg;
    return weigh(choir_conv2d(in[0], in[1], count > 2 ? in[2] : NULL, c->opts));
}

static choir_tensor *apply_transpose(choir_tensor *const *in, int count, void *arg)
{
    const conv_case *c = arg;
    return weigh(choir_conv_transpose2d(in[0], in[1], count > 2 ? in[2] : NULL, c->opts));
}

static void convolutions(void **state)
{
    static conv_case cases[] = {
        {{.stride = 1, .dilation = 1, .groups = 4}, 4, 4, 3, 3}, /* depthwise */
        {{.stride = 1, .padding = 1, .dilation = 1, .groups = 2}, 4, 8, 3, 3},
        {{.stride = 2,
             .stride_w = 1,
             .padding = 1,
             .padding_w = -1,
             .dilation = 1,
             .groups = 1},
            3, 2, 3, 2},
        {{.stride = 1,
             .padding = 1,
             .padding_w = 2,
             .dilation = 1,
             .dilation_w = 2,
             .groups = 1},
            2, 3, 1, 3},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        conv_case *c = &cases[i];
        int64_t per_group = c->in / c->opts.groups;
        choir_tensor *in[3] = {leaf(choir_dims(2, c->in, 5, 6), false),
            leaf(choir_dims(c->out, per_group, c->kh, c->kw), false),
            leaf(choir_dims(c->out), false)};
        check(apply_conv, in, i % 2 ? 2 : 3, c);
    }
}

static void transposed(void **state)
{
    static conv_case cases[] = {
        {{.stride = 1, .dilation = 1, .groups = 1}, 3, 2, 3, 3},
        {{.stride = 2, .padding = 1, .output_padding = 1, .dilation = 1, .groups = 1}, 2, 3, 3,
            3},
        {{.stride = 3,
             .stride_w = 2,
             .padding = 1,
             .padding_w = -1,
             .output_padding = 2,
             .output_padding_w = -1,
             .dilation = 1,
             .groups = 2},
            4, 2, 2, 3},
        {{.stride = 1, .padding = 2, .dilation = 2, .groups = 3}, 3, 6, 3, 2},
        {{.stride = 1, .dilation = 2, .output_padding = 1, .groups = 1}, 2, 2, 2, 2},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        conv_case *c = &cases[i];
        choir_tensor *in[3] = {leaf(choir_dims(2, c->in, 3, 4), false),
            leaf(choir_dims(c->in, c->out / c->opts.groups, c->kh, c->kw), false),
            leaf(choir_dims(c->out), false)};
        check(apply_transpose, in, i % 2 ? 2 : 3, c);
    }
}

/* --- pooling --- */

static choir_tensor *apply_adaptive_avg(choir_tensor *const *in, int count, void *arg)
{
    const int64_t *size = arg;
    return weigh(choir_adaptive_avg_pool2d(in[0], size[0], size[1]));
}

static choir_tensor *apply_adaptive_max(choir_tensor *const *in, int count, void *arg)
{
    const int64_t *size = arg;
    return weigh(choir_adaptive_max_pool2d(in[0], size[0], size[1]));
}

static void pooling(void **state)
{
    static int64_t sizes[][2] = {{1, 1}, {2, 3}, {5, 7}, {3, 5}, {6, 2}};
    for (size_t i = 0; i < CHOIR_COUNT(sizes); i++) {
        choir_tensor *x = leaf(choir_dims(2, 3, 5, 7), false);
        check(apply_adaptive_avg, &x, 1, sizes[i]);
        x = leaf(choir_dims(2, 3, 5, 7), false);
        check(apply_adaptive_max, &x, 1, sizes[i]);
    }
}

/* --- norms --- */

static choir_tensor *apply_group_norm(choir_tensor *const *in, int count, void *arg)
{
    return weigh(choir_group_norm(
        in[0], *(int64_t *)arg, count > 1 ? in[1] : NULL, count > 2 ? in[2] : NULL, 1e-5f));
}

static void group_norm(void **state)
{
    for (int64_t groups = 1; groups <= 6; groups++) {
        if (6 % groups)
            continue;
        choir_tensor *in[3] = {leaf(choir_dims(2, 6, 3, 2), false), leaf(choir_dims(6), true),
            leaf(choir_dims(6), false)};
        check(apply_group_norm, in, groups == 2 ? 1 : 3, &groups);
    }
    int64_t two = 2;
    choir_tensor *flat = leaf(choir_dims(3, 8), false);
    check(apply_group_norm, &flat, 1, &two);
}

typedef struct norm_case {
    bool training, relu;
} norm_case;

/* in: x, gamma, beta and maybe a residual */
static choir_tensor *apply_batch_norm(choir_tensor *const *in, int count, void *arg)
{
    const norm_case *c = arg;
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_batch_norm_opts o = choir_batch_norm_defaults();
    o.training = c->training;
    o.relu = c->relu;
    o.residual = count > 3 ? in[3] : NULL;
    return weigh(
        choir_batch_norm_with(in[0], in[1], in[2], choir_full(s, CHOIR_F64, choir_dims(3), 0.1),
            choir_full(s, CHOIR_F64, choir_dims(3), 1.3), o));
}

static void batch_norm(void **state)
{
    for (int i = 0; i < 8; i++) {
        norm_case c = {.training = i & 1, .relu = i & 2};
        choir_tensor *in[4] = {leaf(choir_dims(2, 3, 4, 2), false), leaf(choir_dims(3), true),
            leaf(choir_dims(3), false), leaf(choir_dims(2, 3, 4, 2), false)};
        check(apply_batch_norm, in, i & 4 ? 4 : 3, &c);
    }
}

/* A residual that is x itself, and a result that is used twice: its gradient is a sum. */
static choir_tensor *apply_block(choir_tensor *const *in, int count, void *arg)
{
    choir_scope *s = choir_tensor_scope(in[0]);
    choir_batch_norm_opts o = choir_batch_norm_defaults();
    o.relu = true;
    o.residual = in[0];
    choir_tensor *mean = choir_full(s, CHOIR_F64, choir_dims(3), 0);
    choir_tensor *y = choir_batch_norm_with(in[0], in[1], in[2], mean, mean, o);
    o.residual = y;
    choir_tensor *z =
        choir_batch_norm_with(choir_square(y), in[1], in[2], mean, mean, o); /* y twice */
    return weigh(z);
}

static void blocks(void **state)
{
    choir_tensor *in[3] = {leaf(choir_dims(2, 3, 3, 2), false), leaf(choir_dims(3), true),
        leaf(choir_dims(3), false)};
    check(apply_block, in, 3, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(convolutions),
        IN_SCOPES(transposed),
        IN_SCOPES(pooling),
        IN_SCOPES(group_norm),
        IN_SCOPES(batch_norm),
        IN_SCOPES(blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
