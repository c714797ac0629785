/* Conformance on shapes that no small trial reaches: rows that take a whole block of a GPU's
 * threads and do not begin at multiples of 16 bytes, sums in several passes, more elements than
 * a block has threads. Also results that a device promises to the bit: the processor's random
 * numbers and gradients of tables, equal rows wherever they are, copies within the device's
 * memory; and the messages of kernels that find wrong ids. */
#include "conformance/harness.h"

enum { VOCABULARY = 50257 };

static int64_t *targets_of(int64_t rows, int64_t cols, int64_t ignored)
{
    int64_t *targets = malloc((size_t)rows * sizeof *targets);
    for (int64_t r = 0; r < rows; r++)
        targets[r] = r == 1 ? ignored : (r * 7919 + cols - 2) % cols;
    return targets;
}

/* --- rows of a vocabulary --- */

static void long_entropy(void **state)
{
    enum { ROWS = 3, N = ROWS * VOCABULARY };
    for (int v = 0; v < 3; v++) { /* plain; smoothed; with weights, each row's loss */
        int64_t *targets = targets_of(ROWS, VOCABULARY, -100);
        choir__row_losses losses = v == 2 ? CHOIR__ROWS_EACH : CHOIR__ROWS_MEAN;
        float smoothing = v ? 0.1f : 0, *logits = uniform(N, -6, 9), lse[ROWS], loss[ROWS],
              count;
        float *weight = v == 2 ? uniform(VOCABULARY, 0.5f, 2) : NULL;
        choir__cpu_reference.cross_entropy(&(choir__k_cross_entropy){.logits = logits,
            .targets = targets,
            .loss = loss,
            .lse = lse,
            .count = &count,
            .rows = ROWS,
            .cols = VOCABULARY,
            .ignore_index = -100});
        trial t = TRIAL(cross_entropy, .targets = targets, .rows = ROWS, .cols = VOCABULARY,
            .ignore_index = -100, .smoothing = smoothing, .losses = losses);
        t.tolerance = 1e-5;
        give(&t, AT(cross_entropy, logits), N, logits);
        if (weight)
            give(&t, AT(cross_entropy, weight), VOCABULARY, weight), keep_wide(&t);
        take(&t, AT(cross_entropy, loss), v == 2 ? ROWS : 1), keep_wide(&t);
        take(&t, AT(cross_entropy, count), 1), keep_wide(&t);
        take(&t, AT(cross_entropy, lse), ROWS), keep_wide(&t);
        check(t);

        t = TRIAL(cross_entropy_backward, .targets = targets, .rows = ROWS, .cols = VOCABULARY,
            .ignore_index = -100, .smoothing = smoothing, .losses = losses);
        t.tolerance = 1e-5;
        float *given = malloc(sizeof lse);
        memcpy(given, lse, sizeof lse);
        give(&t, AT(cross_entropy_backward, lse), ROWS, given), keep_wide(&t);
        if (v == 2)
            give(&t, AT(cross_entropy_backward, weight), VOCABULARY,
                uniform(VOCABULARY, 0.5f, 2)),
                keep_wide(&t);
        give(&t, AT(cross_entropy_backward, count), 1,
            uniform(1, v == 2 ? 1 : 2, v == 2 ? 1 : 2)),
            keep_wide(&t);
        give(&t, AT(cross_entropy_backward, gloss), v == 2 ? ROWS : 1, uniform(ROWS, 0.5f, 2)),
            keep_wide(&t);
        give(&t, AT(cross_entropy_backward, logits), N, uniform(N, -6, 9));
        if (v == 1)
            in_place(&t, AT(cross_entropy_backward, glogits));
        else
            take(&t, AT(cross_entropy_backward, glogits), N);
        check(t);
        free(targets);
    }
}

static void long_softmax(void **state)
{
    enum { ROWS = 2, N = ROWS * VOCABULARY };
    for (int log = 0; log < 2; log++) {
        trial t = TRIAL(softmax, .rows = ROWS, .cols = VOCABULARY, .log = log);
        t.tolerance = 1e-5;
        give(&t, AT(softmax, x), N, uniform(N, -8, 8));
        take(&t, AT(softmax, y), N);
        check(t);
        t = TRIAL(softmax_backward, .rows = ROWS, .cols = VOCABULARY, .log = log);
        t.tolerance = 1e-5;
        give(&t, AT(softmax_backward, y), N,
            log ? uniform(N, -14, -8) : uniform(N, 0, 2.0f / VOCABULARY));
        give(&t, AT(softmax_backward, gy), N, uniform(N, -1, 2));
        take(&t, AT(softmax_backward, gx), N);
        check(t);
    }
}

static void large_sums(void **state)
{
    static const int64_t shapes[][3] = {/* rows, cols, over rows */
        {2, VOCABULARY, 0}, {1, 70001, 0}, {1300, 70, 0}, {3, 4099, 0}, {5003, 40, 1},
        {2100, 37, 1}, {600, 264, 1}, {3, 5000, 1}};
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1], n = rows * cols;
        trial t =
            TRIAL(sum, .rows = rows, .cols = cols, .scale = 0.5, .over_rows = shapes[i][2]);
        t.tolerance = 1e-5;
        give(&t, AT(sum, x), n, uniform(n, -1, 2));
        take(&t, AT(sum, y), shapes[i][2] ? cols : rows);
        check(t);
    }
    trial t = TRIAL(max_rows, .rows = 2, .cols = VOCABULARY, .first = 7);
    t.exact = true;
    float *x = uniform(2 * VOCABULARY, -5, 5);
    x[40000] = x[45000] = x[VOCABULARY] = 6; /* the first of two; a row's first element */
    give(&t, AT(max_rows, x), 2 * VOCABULARY, x);
    take(&t, AT(max_rows, y), 2);
    take_raw(&t, AT(max_rows, index), 2, sizeof(int64_t));
    check(t);
}

/* --- many elements --- */

static void many_elements(void **state)
{
    enum { N = 70001 };
    trial t = TRIAL(unary, .n = N, .op = CHOIR__GELU_TANH);
    give(&t, AT(unary, x), N, uniform(N, -6, 6));
    take(&t, AT(unary, y), N);
    check(t);
    for (int v = 0; v < 3; v++) { /* b: a row; a column; and rows that slots do not fit */
        int64_t rows = 129, cols = v == 2 ? 257 : 264;
        t = TRIAL(binary, .ndim = 2, .shape = {rows, cols}, .op = CHOIR__MUL,
            .y.stride = {cols, 1}, .a.stride = {cols, 1}, .b.stride = {v == 1, v != 1});
        t.exact = true;
        give(&t, AT(binary, a.p), rows * cols, uniform(rows * cols, -2, 2));
        give(&t, AT(binary, b.p), v == 1 ? rows : cols, uniform(v == 1 ? rows : cols, 0.5f, 2));
        take(&t, AT(binary, y.p), rows * cols);
        check(t);
    }
}

/* --- the same bits --- */

/* A random number depends on its key and place, not on the device that draws it. */
static void the_processors_numbers(void **state)
{
    enum { N = 30003 };
    const uint64_t step = 12;
    const choir__kernels *table = first_table(), *ours = choir__cpu_kernels("baseline");
    float *x = uniform(N, -1, 1), *y = malloc(N * sizeof *y), *expected = malloc(N * sizeof *y);
    for (int v = 0; v < 3; v++) {
        choir__k_random k = {
            .y = y, .n = N, .key = 77, .first = 4096, .a = -0.3, .b = 0.02, .normal = v == 1};
        choir__k_dropout d = {.x = x, .y = y, .step = &step, .n = N, .key = 5, .p = 0.1f};
        v < 2 ? table->random(&k) : table->dropout(&d);
        k.y = d.y = expected;
        v < 2 ? ours->random(&k) : ours->dropout(&d);
        assert_memory_equal(y, expected, N * sizeof *y);
    }
    free(x);
    free(y);
    free(expected);
}

/* Gradients are added in order within a leaf, and leaves along the tree, so the bits are
 * defined. */
static void gradients_of_tables(void **state)
{
    enum { LEAVES = 5, MOST = 900, ROWS = 300, COLS = 24 };
    const choir__kernels *table = first_table(), *ours = choir__cpu_kernels("baseline");
    int64_t *ids[LEAVES], counts[LEAVES], total = 0;
    float *grads[LEAVES];
    float *y = malloc(ROWS * COLS * sizeof *y), *expected = malloc(ROWS * COLS * sizeof *y);
    for (int64_t l = 0; l < LEAVES; l++) {
        ids[l] = malloc(MOST * sizeof *ids[l]);
        grads[l] = uniform(MOST * COLS, -1, 1);
        total += counts[l] = l == 1 ? 0 : MOST - 7 * l;
        for (int64_t i = 0; i < MOST; i++) /* some often, some never, some of another rank */
            ids[l][i] = i % 4 ? i * i % (ROWS / 2) : (i * 31 + l) % (ROWS + 40) - 20;
    }
    for (int v = 0; v < 4; v++) {
        choir__k_embedding_backward k = {.ids = (const int64_t *const *)ids,
            .grads = (const void *const *)grads,
            .counts = counts,
            .leaves = v & 1 ? LEAVES : 1,
            .total = v & 1 ? total : counts[0],
            .rows = ROWS,
            .cols = v & 2 ? COLS - 1 : COLS, /* rows of 92 bytes */
            .padding = v & 1 ? 5 : -1,
            .scale = 1.0f / 3,
            .accumulate = v >> 1};
        for (int i = 0; i < ROWS * COLS; i++)
            y[i] = expected[i] = (float)(i % 5 - 2);
        k.y = y, table->embedding_backward(&k);
        k.y = expected, ours->embedding_backward(&k);
        assert_memory_equal(y, expected, ROWS * COLS * sizeof *y);
    }
    for (int l = 0; l < LEAVES; l++) {
        free(ids[l]);
        free(grads[l]);
    }
    free(y);
    free(expected);
}

/* Entries of different lengths, one of several blocks, none at a multiple of 16 bytes. */
static void unscale(void **state)
{
    enum { N = 9001 };
    static const int64_t sizes[] = {N - 122, 3, 1, 117};
    const float inverse = 1.0f / 3;
    float *g = uniform(N, -1, 1), *expected = malloc(N * sizeof *g);
    choir__opt_entry *entries = calloc(CHOIR_COUNT(sizes), sizeof *entries);
    memcpy(expected, g, N * sizeof *g);
    for (int side = 0; side < 2; side++) {
        float *at = (side ? g : expected) + 1;
        for (size_t e = 0; e < CHOIR_COUNT(sizes); at += sizes[e++])
            entries[e] = (choir__opt_entry){.grad = at, .n = sizes[e], .row = 1};
        choir__k_unscale k = {
            .entries = entries, .count = CHOIR_COUNT(sizes), .inverse = &inverse};
        side ? first_table()->unscale(&k) : choir__cpu_kernels("baseline")->unscale(&k);
    }
    assert_memory_equal(g, expected, N * sizeof *g);
    free(g);
    free(expected);
    free(entries);
}

/* A row gives the same bits wherever its memory begins. */
static void rows_anywhere(void **state)
{
    enum { COLS = 5003, SHIFTS = 5 };
    const choir__kernels *table = first_table();
    float *x = uniform(COLS, -4, 4), *moved = malloc((COLS + SHIFTS) * sizeof *moved);
    float y[SHIFTS], lse[SHIFTS], loss, count, soft[COLS], first[COLS];
    int64_t target = 17;
    for (int s = 0; s < SHIFTS; s++) {
        memcpy(moved + s, x, COLS * sizeof *x);
        table->sum(
            &(choir__k_sum){.x = moved + s, .y = &y[s], .rows = 1, .cols = COLS, .scale = 1});
        table->cross_entropy(&(choir__k_cross_entropy){.logits = moved + s,
            .targets = &target,
            .loss = &loss,
            .lse = &lse[s],
            .count = &count,
            .rows = 1,
            .cols = COLS,
            .ignore_index = -1});
        table->softmax(&(choir__k_softmax){.x = moved + s, .y = soft, .rows = 1, .cols = COLS});
        if (s == 0)
            memcpy(first, soft, sizeof soft);
        assert_memory_equal(soft, first, sizeof soft);
        assert_true(y[s] == y[0] && lse[s] == lse[0]);
    }
    free(x);
    free(moved);
}

/* --- copies within the device's memory, and between it and the host's --- */

typedef struct view {
    int ndim;
    int64_t shape[CHOIR__MAX_DIMS], y[CHOIR__MAX_DIMS], x[CHOIR__MAX_DIMS];
} view;

static const view views[] = {{0, {0}, {0}, {0}}, {1, {4099}, {1}, {1}}, {1, {65}, {1}, {3}},
    {1, {65}, {3}, {1}}, {2, {65, 130}, {130, 1}, {1, 65}}, {2, {65, 130}, {1, 65}, {130, 1}},
    {2, {40, 24}, {48, 1}, {32, 1}}, {2, {7, 16}, {16, 1}, {0, 1}},
    {4, {2, 40, 9, 5}, {1800, 45, 5, 1}, {1800, 1, 200, 40}},
    {4, {2, 9, 5, 40}, {1800, 200, 40, 1}, {1800, 5, 1, 45}},
    {4, {2, 3, 5, 8}, {120, 40, 8, 1}, {120, 8, 24, 1}},
    {6, {2, 1, 3, 2, 2, 5}, {60, 60, 20, 10, 5, 1}, {1, 0, 2, 6, 12, 24}}};

static void copies(void **state)
{
    enum { BYTES = 1 << 17 };
    static const choir_dtype pairs[][2] = {{CHOIR_F32, CHOIR_F32}, {CHOIR_BF16, CHOIR_F32},
        {CHOIR_F32, CHOIR_F16}, {CHOIR_U8, CHOIR_U8}, {CHOIR_I64, CHOIR_I64},
        {CHOIR_F64, CHOIR_F32}, {CHOIR_F16, CHOIR_F16}, {CHOIR_I32, CHOIR_U8}};
    choir_device *device = test_device();
    if (!device)
        skip();
    char *x = malloc(BYTES), *y = malloc(BYTES), *expected = malloc(BYTES),
         *spare = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        x[i] = (char)((i * 37 + i / 256) % 61); /* no NaN in any dtype */
    for (size_t i = 0; i < CHOIR_COUNT(views) * CHOIR_COUNT(pairs) * 8; i++) {
        const view *v = &views[i / 8 % CHOIR_COUNT(views)];
        const choir_dtype *of = pairs[i / 8 / CHOIR_COUNT(views)];
        size_t shift = i & 4 ? 1 : 0; /* both begin an element later */
        size_t y_at = shift * choir_dtype_size(of[0]), x_at = shift * choir_dtype_size(of[1]);
        choir__k_copy k = {.ndim = v->ndim, .y_dtype = of[0], .x_dtype = of[1]};
        memcpy(k.shape, v->shape, sizeof k.shape);
        memcpy(k.y.stride, v->y, sizeof k.shape);
        memcpy(k.x.stride, v->x, sizeof k.shape);
        memset(expected, 0x25, BYTES);
        memset(y, 0x25, BYTES);
        k.x.p = x + x_at, k.y.p = expected + y_at;
        choir__cpu_reference.copy(&k);
        on_device x_there = to_device(device, x, BYTES), y_there = to_device(device, y, BYTES);
        k.x.p = (i & 1 ? x : (char *)choir__block_data(x_there.block)) + x_at;
        k.y.p = (i & 2 ? y : (char *)choir__block_data(y_there.block)) + y_at;
        call_on_device(device, offsetof(choir__kernels, copy), &k, sizeof k);
        from_device(device, y_there, i & 2 ? spare : y);
        from_device(device, x_there, spare);
        if (memcmp(y, expected, BYTES))
            fail_msg("copy: view %d, %s to %s, %s to %s", (int)(v - views),
                choir_dtype_name(of[1]), choir_dtype_name(of[0]), i & 1 ? "host" : "device",
                i & 2 ? "host" : "device");
    }
    free(x);
    free(y);
    free(expected);
    free(spare);
}

/* --- what kernels find wrong: said at the next wait, and then forgotten --- */

static void assert_refused(choir__queue_task *fn, const void *args, size_t bytes,
    choir_status status, const char *sentence)
{
    choir_device *device = test_device();
    open_memory(device->far, args, bytes);
    choir__queue_issue(device->queue, fn, args, bytes);
    assert_int_equal(choir_device_sync(device), status);
    close_memory(device->far);
    if (!strstr(choir_error_message(), sentence))
        fail_msg("'%s' is not in '%s'", sentence, choir_error_message());
    choir__queue_clear(device->queue);
    assert_int_equal(choir_device_sync(device), CHOIR_OK);
}

#define REFUSED(kernel, status, sentence, ...)                                                 \
    assert_refused((choir__queue_task *)device->kernels->kernel,                               \
        &(choir__k_##kernel){__VA_ARGS__}, sizeof(choir__k_##kernel), status, sentence)

static void faults(void **state)
{
    choir_device *device = test_device();
    if (!device)
        skip();
    int64_t ids[3] = {1, -7, 0}, index[3];
    float x[12] = {0.5f, 0.5f, -0.25f}, y[12], lse[3], loss, count, found = 1;
    choir__scaler_numbers numbers = {.scale = 8, .in_a_row = 3};
    REFUSED(embedding, CHOIR_ERR_RANGE, "embedding: id -7 at position 1 is outside [0, 4)",
        .table = x, .ids = ids, .y = y, .n = 3, .rows = 4, .cols = 3);
    ids[1] = 4;
    REFUSED(cross_entropy, CHOIR_ERR_RANGE,
        "cross_entropy: target 4 of row 1 is outside [0, 4); fix the labels", .logits = x,
        .targets = ids, .loss = &loss, .lse = lse, .count = &count, .rows = 3, .cols = 4,
        .ignore_index = -1);
    REFUSED(nll, CHOIR_ERR_RANGE, "nll_loss: target 4 of row 1 is outside [0, 4)", .x = x,
        .targets = ids, .loss = &loss, .count = &count, .rows = 3, .cols = 4,
        .ignore_index = -1);
    REFUSED(part_targets, CHOIR_ERR_RANGE, "cross_entropy: target 4 of row 1 is outside [0, 3)",
        .x = ids, .y = index, .n = 3, .count = 2, .whole = 3);
    REFUSED(pair_loss, CHOIR_ERR_RANGE,
        "bce_loss: expected a probability, got -0.25, element 2", .x = x, .y = x, .loss = y,
        .n = 12, .period = 1, .kind = CHOIR__BCE);
    REFUSED(scaler_update, CHOIR_ERR_NONFINITE,
        "infinite or NaN in 4 steps in a row, down to a loss scale of 4", .numbers = &numbers,
        .found = {&found}, .count = 1, .growth = 2, .backoff = 0.5f, .interval = 9,
        .patience = 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_entropy),
        cmocka_unit_test(long_softmax),
        cmocka_unit_test(large_sums),
        cmocka_unit_test(many_elements),
        cmocka_unit_test(the_processors_numbers),
        cmocka_unit_test(gradients_of_tables),
        cmocka_unit_test(unscale),
        cmocka_unit_test(rows_anywhere),
        cmocka_unit_test(copies),
        cmocka_unit_test(faults),
    };
    return cmocka_run_group_tests_name("kernels on large shapes", tests, NULL, NULL);
}
