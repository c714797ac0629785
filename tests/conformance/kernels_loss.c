/* Conformance of the losses and of embeddings: the kernels that take ids from the user's
 * data. */
#include "conformance/blocks_fixture.h"
#include "conformance/harness.h"
#include "device/queue.h"

static const int64_t shapes[][2] = {{1, 1}, {1, 10}, {2, 3}, {3, 17}, {7, 2}, {15, 33},
    {16, 64}, {31, 127}, {65, 10}, {5, 1025}};

enum { IGNORE = -100 };

/* Targets in [0, cols), each ignored_one-th of them IGNORE (0: none). */
static int64_t *targets_of(int64_t rows, int64_t cols, int64_t ignored_one)
{
    int64_t *targets = malloc((size_t)rows * sizeof *targets);
    for (int64_t r = 0; r < rows; r++) {
        bool ignored = ignored_one && r % ignored_one == ignored_one - 1;
        targets[r] = ignored ? IGNORE : (r * 7919 + 3) % cols;
    }
    return targets;
}

/* variant % 3: nothing ignored, some, all; / 3 % 3: smoothing; / 9 % 3: what becomes of the
 * rows' losses; / 27: class weights. */
enum { VARIANTS = 54 };
static const float smoothings[] = {0, 0.1f, 1};

/* Class weights, one of them 0: if only that class occurs, the mean divides by 0. */
static float *weights_of(int64_t cols)
{
    float *w = uniform(cols, 0.1f, 3);
    w[0] = 0;
    return w;
}

/* Elements from row to row: some rows are a few elements apart. */
static int64_t row_of(size_t i, int64_t cols)
{
    return cols + (int64_t)(i % 5 == 1 ? 3 : i % 5 == 2 ? 16 - cols % 16 : 0);
}

static int64_t ignored_one(int variant)
{
    return variant % 3 == 0 ? 0 : variant % 3 == 1 ? 3 : 1;
}

/* Losses of no rows and gradients of no leaves. It runs first, while a device has no scratch
 * memory yet. */
static void nothing(void **state)
{
    for (int mean = 0; mean < 2; mean++) {
        choir__row_losses losses = mean ? CHOIR__ROWS_MEAN : CHOIR__ROWS_SUM;
        trial t = TRIAL(cross_entropy, .cols = 10, .ignore_index = IGNORE, .losses = losses);
        take_wide(&t, AT(cross_entropy, loss), 1);
        take_wide(&t, AT(cross_entropy, count), 1);
        check(t);
    }
    trial t = TRIAL(nll, .cols = 10, .ignore_index = IGNORE);
    take(&t, AT(nll, loss), 1);
    take(&t, AT(nll, count), 1);
    check(t);
    for (int more = 0; more < 2; more++) {
        t = TRIAL(embedding_backward, .rows = 3, .cols = 17, .scale = 1, .accumulate = more);
        t.no_half = true;
        if (more)
            update(&t, AT(embedding_backward, y), 3 * 17, uniform(3 * 17, -1, 1));
        else
            take(&t, AT(embedding_backward, y), 3 * 17);
        check(t);
    }
}

static void cross_entropy(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(shapes) * VARIANTS; i++) {
        int v = (int)(i % VARIANTS);
        int64_t rows = shapes[i / VARIANTS][0], cols = shapes[i / VARIANTS][1];
        int64_t *targets = targets_of(rows, cols, ignored_one(v)), row = row_of(i, cols);
        choir__row_losses losses = (choir__row_losses)(v / 9 % 3);
        trial t = TRIAL(cross_entropy, .targets = targets, .rows = rows, .cols = cols,
            .ignore_index = IGNORE, .smoothing = smoothings[v / 3 % 3], .losses = losses,
            .row = row > cols ? row : 0);
        t.tolerance = 1e-5;
        give(&t, AT(cross_entropy, logits), rows * row, uniform(rows * row, -6, 9));
        if (v / 27)
            give(&t, AT(cross_entropy, weight), cols, weights_of(cols)), keep_wide(&t);
        take(&t, AT(cross_entropy, loss), losses == CHOIR__ROWS_EACH ? rows : 1), keep_wide(&t);
        take(&t, AT(cross_entropy, count), 1), keep_wide(&t);
        take(&t, AT(cross_entropy, lse), rows), keep_wide(&t);
        check(t);
        free(targets);
    }
}

/* lse is the forward's: softmax - one-hot cancels where a row is sure of its class. */
static void cross_entropy_backward(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(shapes) * VARIANTS * 2; i++) {
        int v = (int)(i / 2 % VARIANTS);
        const int64_t *shape = shapes[i / 2 / VARIANTS];
        int64_t rows = shape[0], cols = shape[1], row = row_of(i, cols), n = rows * row;
        int64_t *targets = targets_of(rows, cols, ignored_one(v));
        float *logits = uniform(n, -3, 3), *lse = malloc((size_t)rows * sizeof *lse), loss,
              count, *weight = v / 27 ? weights_of(cols) : NULL;
        choir__cpu_reference.cross_entropy(&(choir__k_cross_entropy){.logits = logits,
            .weight = weight,
            .targets = targets,
            .loss = &loss,
            .lse = lse,
            .count = &count,
            .rows = rows,
            .cols = cols,
            .row = row,
            .ignore_index = IGNORE});
        for (int64_t r = 0; r < rows && cols == 1; r++)
            lse[r] += 0.5f; /* of one class the gradient is 0, and has no relative error */
        choir__row_losses losses = (choir__row_losses)(v / 9 % 3);
        if (losses != CHOIR__ROWS_MEAN)
            count = 1;
        int64_t values = losses == CHOIR__ROWS_EACH ? rows : 1;
        trial t = TRIAL(cross_entropy_backward, .targets = targets, .rows = rows, .cols = cols,
            .ignore_index = IGNORE, .smoothing = smoothings[v / 3 % 3], .losses = losses,
            .row = row > cols ? row : 0);
        t.tolerance = 1e-5;
        give(&t, AT(cross_entropy_backward, lse), rows, lse), keep_wide(&t);
        if (weight)
            give(&t, AT(cross_entropy_backward, weight), cols, weight), keep_wide(&t);
        give(&t, AT(cross_entropy_backward, count), 1, uniform(1, count, count)), keep_wide(&t);
        give(&t, AT(cross_entropy_backward, gloss), values, uniform(values, 0.5f, 2)),
            keep_wide(&t);
        give(&t, AT(cross_entropy_backward, logits), n, logits);
        if (i % 2)
            in_place(&t, AT(cross_entropy_backward, glogits));
        else /* the gaps between rows keep their values */
            update(&t, AT(cross_entropy_backward, glogits), n, uniform(n, -1, 1));
        check(t);
        free(targets);
    }
}

static void nll(void **state)
{
    static const int64_t many[2] = {2500, 2}; /* more than a block's threads */
    for (size_t i = 0; i < (CHOIR_COUNT(shapes) + 1) * 3; i++) {
        const int64_t *shape = i / 3 < CHOIR_COUNT(shapes) ? shapes[i / 3] : many;
        int64_t rows = shape[0], cols = shape[1], n = rows * cols;
        int64_t *targets = targets_of(rows, cols, ignored_one((int)(i % 3)));
        trial t =
            TRIAL(nll, .targets = targets, .rows = rows, .cols = cols, .ignore_index = IGNORE);
        give(&t, AT(nll, x), n, uniform(n, -5, 0));
        take(&t, AT(nll, loss), 1);
        take(&t, AT(nll, count), 1);
        check(t);

        t = TRIAL(nll_backward, .targets = targets, .rows = rows, .cols = cols,
            .ignore_index = IGNORE);
        give(&t, AT(nll_backward, count), 1, uniform(1, (float)rows, (float)rows));
        give(&t, AT(nll_backward, gloss), 1, uniform(1, 0.5f, 2));
        take(&t, AT(nll_backward, gx), n);
        check(t);
        free(targets);
    }
}

/* Weights are quarters, so that their sums are exact in every order. */
static void count_targets(void **state)
{
    static const int64_t many[2] = {2500, 3}; /* more than a block's threads */
    for (size_t i = 0; i < (CHOIR_COUNT(shapes) + 1) * 6; i++) {
        const int64_t *shape = i / 6 < CHOIR_COUNT(shapes) ? shapes[i / 6] : many;
        int64_t n = shape[0], cols = shape[1];
        int64_t *targets = targets_of(n, cols, ignored_one((int)(i % 3)));
        trial t = TRIAL(count_targets, .targets = targets, .n = n, .ignore_index = IGNORE);
        if (i / 3 % 2) {
            t = TRIAL(count_targets, .targets = targets, .n = n, .cols = cols,
                .ignore_index = IGNORE);
            float *weights = uniform(cols, 0, 20);
            for (int64_t c = 0; c < cols; c++)
                weights[c] = floorf(weights[c]) / 4;
            targets[n - 1] = cols; /* no class: adds nothing */
            give(&t, AT(count_targets, weight), cols, weights), keep_wide(&t);
        }
        take_raw(&t, AT(count_targets, y), 1, sizeof(double));
        check(t);
        free(targets);
    }
}

static void loss_divisor(void **state)
{
    static const struct {
        double counts[3];
        int64_t n;
        float divisor;
    } trials[] = {{{7}, 1, 7}, {{7, 0, 5}, 3, 4}, {{0, 0.75, 0.25}, 3, 1.0f / 3},
        {{0, 0}, 2, 1}, {{16777216, 16777218}, 2, (float)16777217}};
    for (size_t i = 0; i < CHOIR_COUNT(trials); i++) {
        float y = 0;
        double sum = 0;
        trial t = TRIAL(loss_divisor, .counts = trials[i].counts, .n = trials[i].n);
        take_raw(&t, AT(loss_divisor, y), 1, sizeof y);
        take_raw(&t, AT(loss_divisor, sum), 1, sizeof sum);
        check(t);
        choir__cpu_reference.loss_divisor(&(choir__k_loss_divisor){
            .counts = trials[i].counts, .y = &y, .sum = &sum, .n = trials[i].n});
        assert_memory_equal(&y, &trials[i].divisor, sizeof y);
        assert_true(sum == trials[i].counts[0] + trials[i].counts[1] + trials[i].counts[2]);
    }
}

static void embedding(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = 2 * rows + 1;
        int64_t *ids = targets_of(n, rows, 0);
        trial t = TRIAL(embedding, .ids = ids, .n = n, .rows = rows, .cols = cols);
        t.exact = true;
        give(&t, AT(embedding, table), rows * cols, uniform(rows * cols, -1, 1));
        take(&t, AT(embedding, y), n * cols);
        check(t);
        free(ids);
    }
}

/* Rows of blocks: all of them in order, by ids, and of a part of a table. */
static void expand(void **state)
{
    enum { ROWS = 5, COLS = 768, N = 7, WHOLE = 12, FIRST = 4 };
    static const int64_t ids[N] = {4, 0, 0, 3, 1, 2, 4}, of_whole[N] = {4, 0, 8, 11, 5, 6, 3};
    for (int i = 1; i < CHOIR__QUANT_COUNT * 3; i++) {
        const choir__quant type = (choir__quant)(i % CHOIR__QUANT_COUNT);
        const int how = i / CHOIR__QUANT_COUNT; /* in order, ids, a part */
        const int64_t cols = type == CHOIR__BF16 ? 66 : COLS,
                      bytes = choir__quant_bytes(type, cols), n = how ? N : ROWS;
        float *values = uniform(ROWS * cols, -1, 1);
        uint8_t *x = malloc((size_t)(ROWS * (bytes + 2)));
        for (int64_t r = 0; r < ROWS; r++) /* rows are a few bytes apart */
            some_blocks(type, x + r * (bytes + 2), values + r * cols, cols, (uint32_t)r);
        free(values);
        trial t = TRIAL(expand, .x = x,
            .ids = how == 0   ? NULL
                   : how == 1 ? ids
                              : of_whole,
            .n = n, .rows = ROWS, .cols = cols, .row_bytes = bytes + 2, .type = type,
            .first = how == 2 ? FIRST : 0, .whole = how == 2 ? WHOLE : 0);
        t.exact = true;
        take(&t, AT(expand, y), n * cols);
        check(t);
        free(x);
    }
}

enum { LEAVES = 7 };

/* Adding rows has the bits of adding the table of their sums, also to -0 where no id names the
 * row: strategies choose between the two by the number of rows. */
static void adds_as_a_table(const choir__kernels *table, choir__k_embedding_backward k, int n)
{
    float *sums = malloc((size_t)n * sizeof *sums), *y = malloc((size_t)n * sizeof *y);
    for (int i = 0; i < n; i++)
        y[i] = i % 3 ? (float)(i % 5) : -0.0f;
    k.accumulate = false, k.y = sums;
    table->embedding_backward(&k);
    for (int i = 0; i < n; i++)
        sums[i] += i % 3 ? (float)(i % 5) : -0.0f;
    k.accumulate = true, k.y = y;
    table->embedding_backward(&k);
    assert_memory_equal(y, sums, (size_t)n * sizeof *y);
    free(sums);
    free(y);
}

/* Few ids, named often, in leaves of different lengths, one of them empty. Either the gradients
 * have few bits, so that f32 adds them exactly and the tree does not matter; or they are plain,
 * and it does. */
static void embedding_backward(void **state)
{
    for (int64_t leaves = 1; leaves <= LEAVES; leaves++)
        for (int v = 0; v < 4; v++) {
            enum { ROWS = 11, COLS = 33, MOST = 14 };
            int64_t ids[LEAVES][MOST], counts[LEAVES], total = 0;
            const int64_t *ids_of[LEAVES];
            const void *wide_of[LEAVES], *narrow_of[LEAVES];
            for (int64_t l = 0; l < leaves; l++) {
                float *g = uniform(MOST * COLS, -8, 8);
                double *wide = malloc(MOST * COLS * sizeof *wide);
                counts[l] = l == 2 ? 0 : 5 + (l * 5) % 10;
                total += counts[l];
                for (int64_t i = 0; i < MOST; i++)
                    ids[l][i] = (i * i + l) % (ROWS - 2); /* the last two are never named */
                for (int i = 0; i < MOST * COLS; i++) {
                    g[i] = v & 2 ? g[i] : rintf(g[i] * 16) / 16;
                    wide[i] = (double)g[i];
                }
                ids_of[l] = ids[l], narrow_of[l] = g, wide_of[l] = wide;
            }
            choir__k_embedding_backward k = {.ids = ids_of,
                .counts = counts,
                .leaves = leaves,
                .total = total,
                .rows = ROWS,
                .cols = COLS,
                .padding = v & 1 ? 3 : -1,
                .scale = 0.25f,
                .accumulate = v & 1};
            const choir__kernels *tables[MAX_TABLES];
            const char *names[MAX_TABLES];
            double expected[ROWS * COLS];
            float y[ROWS * COLS], first[ROWS * COLS];
            int count = isa_tables(tables, names);
            for (int i = 0; i < ROWS * COLS; i++)
                expected[i] = i % 5 - 2;
            k.dtype = CHOIR_F64, k.grads = wide_of, k.y = expected;
            choir__cpu_reference.embedding_backward(&k);
            k.dtype = CHOIR_F32, k.grads = narrow_of, k.y = y;
            for (int j = 0; j < count; j++) {
                for (int i = 0; i < ROWS * COLS; i++)
                    y[i] = (float)(i % 5 - 2);
                tables[j]->embedding_backward(&k);
                if (!(distance(y, expected, ROWS * COLS) <= (v & 2 ? 1e-6 : 0)))
                    fail_msg("embedding_backward (%s): %d leaves, variant %d", names[j],
                        (int)leaves, v);
                if (j == 0)
                    memcpy(first, y, sizeof y);
                assert_memory_equal(first, y, sizeof y);
                adds_as_a_table(tables[j], k, ROWS * COLS);
            }
            for (int64_t l = 0; l < leaves; l++) {
                free((void *)(uintptr_t)narrow_of[l]);
                free((void *)(uintptr_t)wide_of[l]);
            }
        }
}

/* A node of n leaves splits at the largest power of two below n. */
static float tree(const float *leaf, int64_t n)
{
    int64_t left = 1;
    if (n == 1)
        return leaf[0];
    while (2 * left < n)
        left *= 2;
    return tree(leaf, left) + tree(leaf + left, n - left);
}

/* Leaves are added in the tree's order and no other, which values of different magnitude
 * show. */
static void embedding_tree(void **state)
{
    enum { MOST = 17 };
    static const float sizes[] = {1e8f, 1, -1e8f, 3, 0.3f, 1e8f, -1e8f, 5e3f};
    const int64_t id = 0; /* on the stack, which devices are shown */
    float grads[MOST];
    const int64_t *ids[MOST];
    int64_t counts[MOST];
    const void *rows[MOST];
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    for (int i = 0; i < 8 * MOST; i++) { /* the sizes begin at another place each time */
        int64_t leaves = i / 8 + 1;
        for (int l = 0; l < leaves; l++) {
            grads[l] = sizes[(3 * l + i) % 8];
            ids[l] = &id, counts[l] = 1, rows[l] = &grads[l];
        }
        for (int j = 0; j < count; j++) {
            float y = 5;
            tables[j]->embedding_backward(&(choir__k_embedding_backward){.ids = ids,
                .grads = rows,
                .counts = counts,
                .leaves = leaves,
                .total = leaves,
                .y = &y,
                .rows = 1,
                .cols = 1,
                .padding = -1,
                .scale = 1});
            if (y != tree(grads, leaves))
                fail_msg("embedding_backward (%s): %d leaves give %a, the tree %a", names[j],
                    (int)leaves, (double)y, (double)tree(grads, leaves));
        }
    }
}

/* A queue's task that calls a kernel with an invalid id. */
typedef struct bad_call {
    const choir__kernels *table;
    int kind; /* 0 embedding, 1 cross entropy, 2 nll */
    int64_t id;
} bad_call;

static void call_with_bad_id(const void *args)
{
    const bad_call *call = args;
    static const float x[12];
    float y[12], loss, lse[3], count;
    int64_t ids[3] = {1, call->id, 0};
    if (call->kind == 0)
        call->table->embedding(&(choir__k_embedding){
            .table = x, .ids = ids, .y = y, .n = 3, .rows = 4, .cols = 3});
    else if (call->kind == 1)
        call->table->cross_entropy(&(choir__k_cross_entropy){.logits = x,
            .targets = ids,
            .loss = &loss,
            .lse = lse,
            .count = &count,
            .rows = 3,
            .cols = 4,
            .ignore_index = -1});
    else
        call->table->nll(&(choir__k_nll){.x = x,
            .targets = ids,
            .loss = &loss,
            .count = &count,
            .rows = 3,
            .cols = 4,
            .ignore_index = -1});
}

static void bad_ids_fail_the_queue(void **state)
{
    if (test_device())
        skip(); /* a device says it at the next wait: tests/unit/cuda* */
    static const int64_t bad[] = {4, 777, -2, INT64_MIN};
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count++] = &choir__cpu_reference;
    for (int i = 0; i < count * 12; i++) {
        bad_call call = {.table = tables[i / 12], .kind = i % 3, .id = bad[i / 3 % 4]};
        choir__queue *queue = choir__queue_new((choir__queue_opts){.name = "test"});
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)call.id);
        choir__queue_issue(queue, call_with_bad_id, &call, sizeof call);
        assert_int_equal(choir__queue_wait(queue), CHOIR_ERR_RANGE);
        assert_non_null(strstr(choir_error_message(), text));
        choir__queue_free(queue);
    }
}

/* Arguments that suit a kind of loss: probabilities, log-probabilities, scores with some equal
 * pairs. */
static void pair_inputs(choir__pair_kind kind, int64_t n, float **x, float **y)
{
    bool unit = kind == CHOIR__BCE;
    *x = unit ? uniform(n, 0.01f, 0.99f) : uniform(n, -4, 4);
    *y = kind == CHOIR__HUBER || kind == CHOIR__KL_LOG ? uniform(n, -4, 1)
                                                       : uniform(n, 0.01f, 1);
    for (int64_t i = 3; i < n && kind == CHOIR__HUBER; i += 5)
        (*y)[i] = (*x)[i];
    for (int64_t i = 2; i < n && kind == CHOIR__KL; i += 7)
        (*y)[i] = 0;
}

static const float thresholds[] = {0, 1, 0.5f};

static void pair_loss(void **state)
{
    static const int64_t sizes[] = {1, 3, 15, 16, 17, 33, 130};
    for (size_t i = 0; i < CHOIR_COUNT(sizes) * 15; i++) {
        int64_t n = sizes[i / 15], period = n % 2 ? n : n / 2;
        int v = (int)(i % 15);
        float *x, *y;
        trial t = TRIAL(pair_loss, .n = n, .period = v / 5 ? period : 1,
            .kind = (choir__pair_kind)(v % 5), .a = thresholds[v / 5], .b = 0.7f);
        t.tolerance = 2e-6;
        pair_inputs((choir__pair_kind)(v % 5), n, &x, &y);
        give(&t, AT(pair_loss, x), n, x);
        give(&t, AT(pair_loss, y), n, y);
        if (v / 5)
            give(&t, AT(pair_loss, weight), period, uniform(period, 0.5f, 3));
        take(&t, AT(pair_loss, loss), n);
        check(t);
    }
}

static void pair_loss_backward(void **state)
{
    static const int64_t sizes[] = {1, 3, 15, 16, 17, 33, 130};
    for (size_t i = 0; i < CHOIR_COUNT(sizes) * 45; i++) {
        int64_t n = sizes[i / 45], period = n % 2 ? n : n / 2;
        int v = (int)(i % 15), wanted = (int)(i / 15 % 3); /* both, gx, gy */
        choir__pair_kind kind = (choir__pair_kind)(v % 5);
        float *x, *y;
        trial t = TRIAL(pair_loss_backward, .n = n, .period = v / 5 ? period : 1, .kind = kind,
            .a = thresholds[v / 5], .b = 0.7f);
        t.tolerance = 2e-6;
        pair_inputs(kind, n, &x, &y);
        for (int64_t j = 0; j < n && kind == CHOIR__KL; j++)
            y[j] += 0.1f; /* the slope of y log y at 0 is none */
        give(&t, AT(pair_loss_backward, x), n, x);
        give(&t, AT(pair_loss_backward, y), n, y);
        give(&t, AT(pair_loss_backward, gloss), n, uniform(n, -1, 1));
        if (v / 5)
            give(&t, AT(pair_loss_backward, weight), period, uniform(period, 0.5f, 3));
        if (wanted != 2)
            take(&t, AT(pair_loss_backward, gx), n);
        if (wanted != 1)
            take(&t, AT(pair_loss_backward, gy), n);
        check(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(cross_entropy_backward),
        cmocka_unit_test(pair_loss),
        cmocka_unit_test(pair_loss_backward),
        cmocka_unit_test(nll),
        cmocka_unit_test(count_targets),
        cmocka_unit_test(loss_divisor),
        cmocka_unit_test(embedding),
        cmocka_unit_test(expand),
        cmocka_unit_test(embedding_backward),
        cmocka_unit_test(embedding_tree),
        cmocka_unit_test(bad_ids_fail_the_queue),
    };
    return cmocka_run_group_tests_name("loss and embedding kernels", tests, NULL, NULL);
}
