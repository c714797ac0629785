/* Conformance of group norm and of pooling to a given size. */
#include "conformance/harness.h"

/* images, pixels, channels, groups */
static const int64_t groups[][4] = {{1, 1, 2, 1}, {2, 3, 6, 3}, {1, 49, 16, 4}, {3, 5, 17, 17},
    {2, 65, 33, 3}, {1, 257, 64, 32}, {2, 130, 48, 1}, {4, 7, 127, 127}, {1, 1025, 8, 2},
    {2, 1200, 40, 5}, {33, 4, 24, 3}};

static void group_norm(void **state)
{
    for (size_t i = 0; i < 4 * CHOIR_COUNT(groups); i++) {
        const int64_t *g = groups[i / 4];
        int64_t size = g[0] * g[1] * g[2];
        trial t = TRIAL(
            group_norm, .n = g[0], .pixels = g[1], .cols = g[2], .groups = g[3], .eps = 1e-5f);
        t.tolerance = 2e-5;
        give(&t, AT(group_norm, x), size, uniform(size, -2, 3));
        if (i & 1)
            give_wide(&t, AT(group_norm, gamma), g[2], uniform(g[2], 0.5f, 2));
        if (i & 2)
            give_wide(&t, AT(group_norm, beta), g[2], uniform(g[2], -1, 1));
        take(&t, AT(group_norm, y), size);
        take_wide(&t, AT(group_norm, mean), g[0] * g[3]);
        take_wide(&t, AT(group_norm, rstd), g[0] * g[3]);
        check(t);
    }
}

static void group_norm_backward(void **state)
{
    for (size_t i = 0; i < 4 * CHOIR_COUNT(groups); i++) {
        const int64_t *g = groups[i / 4];
        int64_t size = g[0] * g[1] * g[2];
        trial t =
            TRIAL(group_norm_backward, .n = g[0], .pixels = g[1], .cols = g[2], .groups = g[3]);
        t.tolerance = 2e-5;
        give(&t, AT(group_norm_backward, x), size, uniform(size, -2, 3));
        if (i & 1)
            give_wide(&t, AT(group_norm_backward, gamma), g[2], uniform(g[2], 0.5f, 2));
        give_wide(&t, AT(group_norm_backward, mean), g[0] * g[3], uniform(g[0] * g[3], 0, 1));
        give_wide(
            &t, AT(group_norm_backward, rstd), g[0] * g[3], uniform(g[0] * g[3], 0.5f, 1));
        give(&t, AT(group_norm_backward, gy), size, uniform(size, -1, 2));
        take(&t, AT(group_norm_backward, gx), size);
        if (i & 2) {
            take_wide(&t, AT(group_norm_backward, ggamma), g[2]);
            take_wide(&t, AT(group_norm_backward, gbeta), g[2]);
        }
        check(t);
    }
}

/* images, height, width, channels, to height, to width */
static const int64_t pools[][6] = {{1, 1, 1, 1, 1, 1}, {2, 7, 7, 33, 1, 1}, {1, 5, 7, 16, 2, 3},
    {2, 6, 6, 17, 3, 3}, {1, 13, 13, 8, 6, 6}, {1, 3, 4, 65, 5, 7}, {1, 65, 33, 3, 1, 1},
    {3, 1, 9, 5, 1, 4}, {2, 30, 17, 72, 7, 7}};

/* Group norm's gradient of no images. It runs first, while a device has no scratch memory
 * yet. */
static void no_images(void **state)
{
    trial t = TRIAL(group_norm_backward, .pixels = 9, .cols = 12, .groups = 3);
    take_wide(&t, AT(group_norm_backward, ggamma), 12);
    take_wide(&t, AT(group_norm_backward, gbeta), 12);
    check(t);
}

static choir__conv_shape shape_of(const int64_t *p)
{
    return (choir__conv_shape){
        .n = p[0], .h = p[1], .w = p[2], .c = p[3], .oh = p[4], .ow = p[5]};
}

static void adaptive_pool(void **state)
{
    for (size_t i = 0; i < 3 * CHOIR_COUNT(pools); i++) {
        const int64_t *p = pools[i / 3];
        int64_t in = p[0] * p[1] * p[2] * p[3], out = p[0] * p[4] * p[5] * p[3];
        trial t = TRIAL(adaptive_pool, .s = shape_of(p), .max = i % 3);
        give(&t, AT(adaptive_pool, x), in, uniform(in, -2, 3));
        take(&t, AT(adaptive_pool, y), out);
        if (i % 3 == 2)
            take_raw(&t, AT(adaptive_pool, index), out, sizeof(int32_t));
        check(t);
    }
}

static void adaptive_pool_backward(void **state)
{
    for (size_t i = 0; i < 2 * CHOIR_COUNT(pools); i++) {
        const int64_t *p = pools[i / 2];
        int64_t in = p[0] * p[1] * p[2] * p[3], out = p[0] * p[4] * p[5] * p[3];
        float *x = uniform(in, -1, 1), *y = malloc((size_t)out * sizeof *y);
        int32_t *index = malloc((size_t)out * sizeof *index); /* as the forward has it */
        choir__cpu_reference.adaptive_pool(&(choir__k_adaptive_pool){
            .x = x, .y = y, .index = index, .s = shape_of(p), .max = true, .dtype = CHOIR_F32});
        trial t = TRIAL(adaptive_pool_backward, .s = shape_of(p), .max = i % 2, .index = index);
        give(&t, AT(adaptive_pool_backward, gy), out, uniform(out, -1, 2));
        take(&t, AT(adaptive_pool_backward, gx), in);
        check(t);
        free(x), free(y), free(index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_images),
        cmocka_unit_test(group_norm),
        cmocka_unit_test(group_norm_backward),
        cmocka_unit_test(adaptive_pool),
        cmocka_unit_test(adaptive_pool_backward),
    };
    return cmocka_run_group_tests_name("kernels of image networks", tests, NULL, NULL);
}
