/* Conformance of the kernels of Llama's blocks: SwiGLU and rotary positions. */
#include "conformance/harness.h"

static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {2, 15}, {5, 16}, {4, 17}, {3, 33}, {2, 64},
    {3, 127}, {2, 1025}, {300, 24}};

/* Rows have gaps between them, like the halves of one buffer. */
static void swiglu(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(shapes); s++)
        for (int gap = 0; gap < 6; gap += 5) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            trial t = TRIAL(swiglu, .rows = rows, .cols = cols, .a_row = cols + gap,
                .b_row = cols + 2 * gap);
            int64_t na = rows * (cols + gap), nb = rows * (cols + 2 * gap);
            give(&t, AT(swiglu, a), na, uniform(na, -9, 9));
            give(&t, AT(swiglu, b), nb, uniform(nb, -2, 2));
            take(&t, AT(swiglu, y), rows * cols);
            check(t);
        }
}

/* variant: 0 both gradients, 1 ga alone, 2 gb alone */
static void swiglu_backward(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(shapes); s++)
        for (int v = 0; v < 3; v++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
            trial t = TRIAL(swiglu_backward, .rows = rows, .cols = cols, .a_row = cols,
                .b_row = cols + 3, .ga_row = cols, .gb_row = cols);
            give(&t, AT(swiglu_backward, a), n, uniform(n, -9, 9));
            give(&t, AT(swiglu_backward, b), n + 3 * rows, uniform(n + 3 * rows, -2, 2));
            give(&t, AT(swiglu_backward, gy), n, uniform(n, -2, 2));
            if (v != 2)
                take(&t, AT(swiglu_backward, ga), n);
            if (v != 1)
                take(&t, AT(swiglu_backward, gb), n);
            check(t);
        }
}

/* Gradients written into the halves of one buffer leave no element unwritten. */
static void swiglu_halves(void **state)
{
    enum { ROWS = 3, COLS = 21, N = ROWS * COLS };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        float *x = uniform(2 * N, -3, 3), *gy = uniform(N, -1, 1), g[2 * N], ga[N], gb[N];
        for (int i = 0; i < 2 * N; i++)
            g[i] = NAN;
        choir__k_swiglu_backward k = {.a = x,
            .b = x + COLS,
            .gy = gy,
            .ga = g,
            .gb = g + COLS,
            .rows = ROWS,
            .cols = COLS,
            .a_row = 2 * COLS,
            .b_row = 2 * COLS,
            .ga_row = 2 * COLS,
            .gb_row = 2 * COLS};
        tables[j]->swiglu_backward(&k);
        k.ga = ga, k.gb = gb, k.ga_row = k.gb_row = COLS;
        tables[j]->swiglu_backward(&k);
        for (int i = 0; i < N; i++) {
            assert_true(g[i / COLS * 2 * COLS + i % COLS] == ga[i]);
            assert_true(g[i / COLS * 2 * COLS + COLS + i % COLS] == gb[i]);
        }
        free(x);
        free(gy);
    }
}

/* (B, T, H, D) as a projection stores it, and from a wider row into (B, H, T, D). */
static void rotary(void **state)
{
    static const int64_t widths[] = {2, 6, 14, 16, 30, 32, 34, 64, 66, 128};
    enum { B = 2, T = 3, H = 5 };
    for (size_t s = 0; s < CHOIR_COUNT(widths); s++)
        for (int v = 0; v < 4; v++) { /* bit 0: back, bit 1: strides */
            int64_t d = widths[s], n = B * T * H * d, row = H * d + (v & 2 ? 7 : 0);
            trial t = TRIAL(rotary, .b = B, .t = T, .h = H, .d = d, .back = v & 1,
                .x.stride = {T * row, row, d, 1}, .y.stride = {T * H * d, H * d, d, 1});
            choir__k_rotary *k = (choir__k_rotary *)t.args;
            if (v & 2) {
                k->y.stride[1] = d;
                k->y.stride[2] = T * d;
            }
            give(&t, AT(rotary, x.p), B * T * row, uniform(B * T * row, -2, 2));
            give_wide(&t, AT(rotary, table), T * d, uniform(T * d, -1, 1));
            take(&t, AT(rotary, y.p), n);
            check(t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu),
        cmocka_unit_test(swiglu_backward),
        cmocka_unit_test(swiglu_halves),
        cmocka_unit_test(rotary),
    };
    return cmocka_run_group_tests_name("the kernels of Llama's blocks", tests, NULL, NULL);
}
