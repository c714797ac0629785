/* Samples of named parts: padding, sizes, masks, buckets, the same micro-batches on any ranks
 * and workers, and refusals. */
#include <stdlib.h>
#include <string.h>

#include <choir/env.h>

#include "check.h"
#include "base/base.h"

enum { N = 50, B = 8, M = 4 };

/* "ids" (n) i64: index, index + 1, ...; "boxes" (k, 2) f32; "label" (). */
static const choir_part three[] = {{"ids", CHOIR_I64, {1, {-1}}, -100},
    {"boxes", CHOIR_F32, {2, {-1, 2}}, 0.5}, {"label", CHOIR_I64, {0}, 0}};

typedef struct texts {
    choir_parts_dataset base;
    int64_t bad; /* a sample with a wrong size; -1: none */
    int64_t sizes[2];
    int64_t fails; /* -1: none */
} texts;

static int64_t length(const choir_parts_dataset *self)
{
    return self ? N : 0;
}

static int64_t tokens_of(int64_t index)
{
    return 1 + index * 13 % 20;
}

static choir_status sizes(choir_parts_dataset *self, int64_t index, choir_shape *shape)
{
    const texts *t = (texts *)self;
    shape[0].dim[0] = tokens_of(index);
    shape[1].dim[0] = index % 3;
    if (index == t->bad)
        memcpy(shape[1].dim, t->sizes, sizeof t->sizes);
    return CHOIR_OK;
}

static choir_status get(
    choir_parts_dataset *self, int64_t epoch, int64_t index, void *const *part)
{
    if (index == ((texts *)self)->fails)
        return choir__error(CHOIR_ERR_FORMAT, "a torn page");
    for (int64_t i = 0; i < tokens_of(index); i++)
        ((int64_t *)part[0])[i] = index + i;
    for (int64_t i = 0; i < 2 * (index % 3); i++)
        ((float *)part[1])[i] = (float)(10 * index + i);
    *(int64_t *)part[2] = index;
    return CHOIR_OK;
}

static const choir_parts_ops ops = {length, sizes, get};

static texts new_texts(void)
{
    return (texts){.base = {&ops, three, 3}, .bad = -1, .fails = -1};
}

static choir_parts_opts options(int64_t step)
{
    choir_parts_opts o = choir_parts_defaults();
    o.loader.batch_size = B, o.loader.microbatches = M, o.loader.seed = 3;
    o.bucket_step = step;
    return o;
}

static void read_all(choir_tensor *t, void *to, size_t room)
{
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    assert_true(bytes <= room);
    ok(choir_read(t, to, bytes));
}

/* Checks a micro-batch against the samples whose labels it has, and marks them in seen (N). */
static void check_batch(const choir_parts *b, int64_t step, int *seen)
{
    int64_t ids[B * 20], label[B], has[B];
    float boxes[B * 4];
    bool mask[B * 20];
    choir_tensor *x = choir_parts_get(b, "ids"), *y = choir_parts_get(b, "boxes");
    int64_t rows = choir_tensor_size(x, 0), l = choir_tensor_size(x, 1);
    int64_t k = choir_tensor_size(y, 1);
    assert_int_equal(rows, B / M);
    read_all(x, ids, sizeof ids);
    read_all(y, boxes, sizeof boxes);
    read_all(b->part[2], label, sizeof label);
    read_all(b->sizes[0], has, sizeof has);
    read_all(choir_parts_mask(b, "ids"), mask, sizeof mask);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = label[r], n = tokens_of(i);
        assert_int_equal(has[r], n);
        assert_true(n <= l && (!step || l % step == 0 || l == 20));
        for (int64_t j = 0; j < l; j++) {
            assert_int_equal(ids[r * l + j], j < n ? i + j : -100);
            assert_int_equal(mask[r * l + j], j < n);
        }
        for (int64_t j = 0; j < 2 * k; j++)
            assert_true(boxes[r * 2 * k + j] == (j < 2 * (i % 3) ? (float)(10 * i + j) : 0.5f));
        seen[i]++;
    }
}

/* All micro-batches of an epoch have each sample at most once; the ranks' together are one
 * rank's. */
static void epochs(void **state)
{
    for (int64_t step = 0; step <= 10; step += 5)
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            int seen[2][N] = {{0}};
            for (int rank = 0; rank < ranks; rank++) {
                texts t = new_texts();
                choir_scope *run = choir_scope_open(NULL, 1);
                choir_parts_opts o = options(step);
                o.loader.micro_count = M / ranks, o.loader.micro_first = rank * M / ranks;
                o.loader.workers = 1 + rank;
                choir_parts_loader *l = choir_parts_loader_new(run, &t.base, o);
                assert_int_equal(choir_parts_batches(l), N / B);
                for (int64_t i = 0; i < 2 * (N / B) * o.loader.micro_count; i++) {
                    choir_scope *s = choir_step_open(run, (uint64_t)i);
                    choir_parts b;
                    ok(choir_parts_next(l, s, &b));
                    check_batch(&b, step, seen[i / (N / B * o.loader.micro_count)]);
                    ok(choir_scope_close(s));
                }
                ok(choir_scope_close(run));
            }
            for (int e = 0; e < 2; e++) {
                int all = 0;
                for (int i = 0; i < N; i++) {
                    assert_in_range(seen[e][i], 0, 1);
                    all += seen[e][i];
                }
                assert_int_equal(all, N / B * B);
            }
        }
}

/* Stores the labels of nine steps, of all ranks together, after a seek. Each rank's share and
 * the seed are its environment's. */
static void labels_of(int ranks, int workers, int64_t from, int64_t *labels)
{
    for (int rank = 0; rank < ranks; rank++) {
        texts t = new_texts();
        choir_scope *run = choir_scope_open(NULL, 1);
        const choir_env env = {.rank = rank, .world = ranks, .microbatches = M};
        const int64_t count = M / ranks, first = rank * count;
        choir_parts_opts o = options(5);
        o.loader.microbatches = 0, o.loader.workers = workers;
        choir_parts_loader *l = choir_env_parts_loader(run, &env, &t.base, o);
        choir_parts_seek_step(l, from);
        for (int64_t i = 0; i < 9 * count; i++) {
            choir_scope *s = choir_step_open(run, (uint64_t)i);
            choir_parts b;
            ok(choir_parts_next(l, s, &b));
            read_all(choir_parts_get(&b, "label"),
                labels + (i / count * M + first + i % count) * (B / M),
                sizeof(int64_t) * B / M);
            ok(choir_scope_close(s));
        }
        ok(choir_scope_close(run));
    }
}

static void same_on_ranks(void **state)
{
    int64_t one[9 * B], other[9 * B];
    labels_of(1, 1, 4, one);
    labels_of(4, 3, 4, other);
    assert_memory_equal(one, other, sizeof one);
}

/* --- refusals --- */

static void refused(
    choir_parts_dataset *d, choir_parts_opts o, choir_status status, const char *words)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_parts_loader_new(run, d, o);
    assert_fails(choir_scope_status(run), status, words);
    choir_scope_clear(run);
    (void)choir_scope_close(run);
}

static void wrong_data(void **state)
{
    texts t = new_texts();
    t.bad = 7, t.sizes[0] = 3, t.sizes[1] = 5;
    refused(&t.base, options(0), CHOIR_ERR_SHAPE,
        "sample 7: expected (-1, 2) of part 'boxes', got (3, 5)");
    t.sizes[0] = -1, t.sizes[1] = 2;
    refused(&t.base, options(0), CHOIR_ERR_SHAPE, "sample 7 has no part 'boxes'");
    t.bad = -1;
    choir_parts_opts o = options(0);
    o.buckets = (int64_t[]){8, 16}, o.bucket_count = 2;
    refused(
        &t.base, o, CHOIR_ERR_RANGE, "part 'ids' has length 20, beyond the last bucket of 16");
    o.buckets = (int64_t[]){16, 8};
    refused(&t.base, o, CHOIR_ERR_ARGUMENT, "lengths of buckets that rise");
    o = options(0);
    o.loader.batch_size = 6;
    refused(
        &t.base, o, CHOIR_ERR_ARGUMENT, "divides into its micro-batches, got 6 samples and 4");
    o.loader.batch_size = 64;
    refused(&t.base, o, CHOIR_ERR_ARGUMENT, "50 samples for batches of 64");
    const choir_part small[] = {{"pixels", CHOIR_U8, {1, {-1}}, -1}};
    choir_parts_dataset wrong = {&ops, small, 1};
    refused(
        &wrong, options(0), CHOIR_ERR_DTYPE, "u8 of part 'pixels' cannot hold its padding, -1");
}

static void wrong_use(void **state)
{
    texts t = new_texts();
    choir_scope *run = choir_scope_open(NULL, 1), *s = choir_step_open(run, 0);
    choir_parts_opts o = options(5);
    o.loader.shuffle = false;
    choir_parts_loader *l = choir_parts_loader_new(run, &t.base, o);
    choir_parts b;
    ok(choir_parts_next(l, s, &b));
    choir_tensor *none = choir_parts_get(&b, "mask");
    assert_fails(choir_scope_status(choir_tensor_scope(none)), CHOIR_ERR_ARGUMENT,
        "unknown part 'mask': choose one of ids, boxes, label");
    choir_scope_clear(s);
    t.fails = 0;
    choir_parts_seek(l, 0);
    assert_fails(choir_parts_next(l, s, &b), CHOIR_ERR_FORMAT, "a torn page (sample 0 of the");
    choir_scope_clear(s);
    (void)choir_scope_close(s);
    (void)choir_scope_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs),
        cmocka_unit_test(same_on_ranks),
        cmocka_unit_test(wrong_data),
        cmocka_unit_test(wrong_use),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
