/* Conformance of Choir's own products and of convolutions by them at sizes that cross block
 * boundaries, with the same bits on every instruction set; kernels_matmul.c has the others. */
int trials(void);

#define main trials
#include "conformance/kernels_matmul.c"
#undef main

/* m, n, k: around the blocks of 96, 144, 288 or 576 rows, 336 or 1152 columns and 512 terms,
 * and nothing to add. */
static void blocks(void **state)
{
    static const int64_t sizes[][3] = {{143, 31, 255}, {97, 337, 1025}, {145, 65, 511},
        {577, 33, 513}, {5, 1153, 3}, {1, 2305, 1100}, {7, 5, 0}};
    for (size_t c = 0; c < 4 * CHOIR_COUNT(sizes); c++) {
        int64_t m = sizes[c / 4][0], n = sizes[c / 4][1], k = sizes[c / 4][2];
        bool turned = c & 1;
        trial t = TRIAL(matmul, .batch0 = 1, .batch1 = 1, .m = m, .n = n, .k = k,
            .a_row = turned ? 1 : k, .a_col = turned ? m : 1, .b_row = turned ? 1 : n,
            .b_col = turned ? k : 1, .c_row = n, .accumulate = c & 2);
        t.tolerance = 1e-5;
        give(&t, AT(matmul, a), m * k, uniform(m * k, -1, 2));
        give(&t, AT(matmul, b), k * n, uniform(k * n, -1, 2));
        give(&t, AT(matmul, bias), n, uniform(n, -1, 1));
        if (c & 2)
            update(&t, AT(matmul, c), m * n, uniform(m * n, -1, 1));
        else
            take(&t, AT(matmul, c), m * n);
        check(t);
    }
}

/* Images of several blocks of rows (1 MiB of windows each), in two groups and in one. */
static void blocks_of_pixels(void **state)
{
    for (int groups = 1; groups <= 2; groups++) {
        choir__conv_shape s = with_output(
            (choir__conv_shape)CONV(3, 31, 30, 16, 18, 3, 3, groups, 1, 1, 1, 1, 1, 1));
        conv_sizes n = sizes_of(s);
        trial y = TRIAL(conv, .s = s), gx = TRIAL(conv_backward_input, .s = s),
              gw = TRIAL(conv_backward_weight, .s = s);
        y.tolerance = gx.tolerance = gw.tolerance = 1e-5;
        give(&y, AT(conv, x), n.x, uniform(n.x, -1, 2));
        give(&y, AT(conv, w), n.w, uniform(n.w, -1, 1));
        give(&y, AT(conv, bias), s.o, uniform(s.o, -1, 1));
        take(&y, AT(conv, y), n.y);
        check(y);
        give(&gx, AT(conv_backward_input, gy), n.y, uniform(n.y, -1, 2));
        give(&gx, AT(conv_backward_input, w), n.w, uniform(n.w, -1, 1));
        take(&gx, AT(conv_backward_input, gx), n.x);
        check(gx);
        give(&gw, AT(conv_backward_weight, gy), n.y, uniform(n.y, -1, 2));
        give(&gw, AT(conv_backward_weight, x), n.x, uniform(n.x, -1, 1));
        take(&gw, AT(conv_backward_weight, gw), n.w);
        take(&gw, AT(conv_backward_weight, gbias), s.o);
        check(gw);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(blocks_of_pixels),
    };
    setenv("CHOIR_MATH", "chain", 1);
    return cmocka_run_group_tests_name("blocks of own products", tests, NULL, NULL);
}
