/* Conformance of the recurrent layers' kernels, and of a product that is added to its
 * output. */
#include "conformance/harness.h"
#include "device/cpu/multiplier.h"

static const int64_t shapes[][3] = {/* steps, batch, width */
    {1, 1, 1}, {1, 3, 7}, {2, 1, 16}, {3, 2, 5}, {4, 3, 17}, {5, 7, 33}, {3, 16, 64},
    {7, 2, 31}, {2, 5, 130}};

/* The variants: cell, direction, initial states, and y as half of wider rows. */
typedef struct variant {
    choir__recurrent_cell cell;
    bool reverse, initial, wide;
} variant;

static variant variant_of(int v)
{
    return (variant){
        (choir__recurrent_cell)(v % CHOIR__CELL_COUNT), v / 4 & 1, v / 8 & 1, v / 16 & 1};
}

enum { VARIANTS = CHOIR__CELL_COUNT * 8 };

/* Returns weights scaled so that sums of `width` terms stay where sigmoid and tanh are not
 * flat. */
static float *weights(int64_t rows, int64_t width)
{
    float bound = 1.5f / sqrtf((float)width);
    return uniform(rows * width, -bound, bound);
}

static void forward(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(shapes); s++)
        for (int i = 0; i < VARIANTS; i++) {
            variant v = variant_of(i);
            int64_t t = shapes[s][0], b = shapes[s][1], h = shapes[s][2], rows = t * b;
            int64_t g = choir__recurrent_cell_gates(v.cell) * h;
            if (v.wide)
                continue; /* an output between others: wide_rows() */
            trial k = TRIAL(recurrent, .steps = t, .batch = b, .width = h, .y_row = h,
                .cell = v.cell, .reverse = v.reverse);
            k.tolerance = 1e-5;
            give(&k, AT(recurrent, w_hh), g * h, weights(g, h));
            if (v.cell == CHOIR__GRU)
                give(&k, AT(recurrent, b_hh), g, uniform(g, -1, 1));
            if (v.initial)
                give(&k, AT(recurrent, h0), b * h, uniform(b * h, -1, 1));
            if (v.initial && v.cell == CHOIR__LSTM)
                give(&k, AT(recurrent, c0), b * h, uniform(b * h, -1, 1));
            update(&k, AT(recurrent, gates), rows * g, uniform(rows * g, -2, 2));
            if (v.cell <= CHOIR__GRU)
                take(&k, AT(recurrent, state), rows * h);
            take(&k, AT(recurrent, y), rows * h);
            check(k);
        }
}

static void backward(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(shapes); s++)
        for (int i = 0; i < VARIANTS; i++) {
            variant v = variant_of(i);
            int64_t t = shapes[s][0], b = shapes[s][1], h = shapes[s][2], rows = t * b;
            int64_t g = choir__recurrent_cell_gates(v.cell) * h, y_row = v.wide ? 2 * h : h;
            trial k = TRIAL(recurrent_backward, .steps = t, .batch = b, .width = h,
                .y_row = y_row, .cell = v.cell, .reverse = v.reverse);
            k.tolerance = h == 1 ? 1e-4 : 1e-5; /* one number may all but cancel */
            k.no_half = h == 1;
            give(&k, AT(recurrent_backward, w_hh), g * h, weights(g, h));
            give(&k, AT(recurrent_backward, y), rows * y_row, uniform(rows * y_row, -1, 1));
            give(&k, AT(recurrent_backward, gy), rows * y_row, uniform(rows * y_row, -1, 1));
            if (v.initial)
                give(&k, AT(recurrent_backward, h0), b * h, uniform(b * h, -1, 1));
            if (v.initial && v.cell == CHOIR__LSTM)
                give(&k, AT(recurrent_backward, c0), b * h, uniform(b * h, -1, 1));
            update(&k, AT(recurrent_backward, gates), rows * g, uniform(rows * g, 0.1f, 0.9f));
            if (v.cell <= CHOIR__GRU)
                update(&k, AT(recurrent_backward, state), rows * h, uniform(rows * h, -2, 2));
            update(&k, AT(recurrent_backward, gh), b * h, uniform(b * h, -1, 1));
            k.operand[k.count - 1].out = v.initial; /* else scratch in the end */
            if (v.cell == CHOIR__LSTM)
                update(&k, AT(recurrent_backward, gc), b * h, uniform(b * h, -1, 1));
            check(k);
        }
}

/* Two directions write into one y: neither writes to the other's half. */
static void wide_rows(void **state)
{
    enum { T = 3, B = 2, H = 19, G = 3 * H };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    float *x = uniform(T * B * G, -2, 2), *w = weights(G, H), *b_hh = uniform(G, -1, 1);
    float *h0 = uniform(B * H, -1, 1);
    for (int i = 0; i < count; i++)
        for (int v = 0; v < 4; v++) {
            int half = v & 1;
            float gates[2][T * B * G], u[2][T * B * H], y[T * B * H], wide[T * B * 2 * H];
            choir__k_recurrent k = {.w_hh = w,
                .b_hh = b_hh,
                .h0 = v & 2 ? h0 : NULL,
                .steps = T,
                .batch = B,
                .width = H,
                .cell = CHOIR__GRU,
                .reverse = half == 1,
                .dtype = CHOIR_F32};
            memcpy(gates[0], x, sizeof gates[0]);
            memcpy(gates[1], x, sizeof gates[1]);
            for (int j = 0; j < T * B * 2 * H; j++)
                wide[j] = 7;
            k.gates = gates[0], k.state = u[0], k.y = y, k.y_row = H;
            tables[i]->recurrent(&k);
            k.gates = gates[1], k.state = u[1], k.y = wide + half * H, k.y_row = 2 * H;
            tables[i]->recurrent(&k);
            assert_memory_equal(gates[0], gates[1], sizeof gates[0]);
            for (int r = 0; r < T * B; r++) {
                assert_memory_equal(wide + (2 * r + half) * H, y + r * H, H * sizeof *y);
                for (int c = 0; c < H; c++)
                    assert_true(wide[(2 * r + 1 - half) * H + c] == 7);
            }
        }
    free(x);
    free(w);
    free(b_hh);
    free(h0);
}

static void accumulate(void **state)
{
    for (int v = 0; v < 8; v++) {
        int64_t batch = v & 4 ? 3 : 1, m = 17, n = v & 1 ? 33 : 1, k = 31;
        trial t = TRIAL(matmul, .batch0 = 1, .batch1 = batch, .m = m, .n = n, .k = k,
            .a_row = k, .a_col = 1, .b_row = 1, .b_col = k, .c_row = n, .a_batch1 = m * k,
            .b_batch1 = k * n, .c_batch1 = m * n, .accumulate = true);
        t.tolerance = 1e-5;
        t.bits_may_differ = !choir__cpu_own_products();
        give(&t, AT(matmul, a), batch * m * k, uniform(batch * m * k, -1, 2));
        give(&t, AT(matmul, b), batch * k * n, uniform(batch * k * n, -1, 2));
        if (v & 2) {
            give(&t, AT(matmul, bias), n, uniform(n, -1, 1));
            keep_wide(&t);
        }
        update(&t, AT(matmul, c), batch * m * n, uniform(batch * m * n, -9, 9));
        check(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward), cmocka_unit_test(backward),
        cmocka_unit_test(wide_rows), cmocka_unit_test(accumulate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
