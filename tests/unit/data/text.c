/* Text and random datasets: splits, windows, and errors. */
#include "folder_fixture.h"
#include <math.h>
#include <choir/data.h>

/* 100 distinct characters: token i is at position i, so that a window's position can be read
 * off. */
static void hundred(char text[100])
{
    for (int i = 0; i < 100; i++)
        text[i] = (char)(i + 10);
}

static void windows(void **state)
{
    char text[100];
    hundred(text);
    choir_tokenizer *t = NULL;
    choir_dataset *train, *valid;
    int64_t x[3], y[3];
    ok(choir_dataset_text_memory("hundred", text, 100, 3, CHOIR_TRAIN, &t, &train));
    assert_non_null(t);
    assert_int_equal(choir_tokenizer_size(t), 100);
    choir_tokenizer *same = t;
    ok(choir_dataset_text_memory("hundred", text, 100, 3, CHOIR_VALIDATION, &t, &valid));
    assert_ptr_equal(t, same);
    memset(text, 0, sizeof text); /* it was copied */
    assert_int_equal(train->x_dtype, CHOIR_I64);
    assert_int_equal(train->x_shape.ndim, 1);
    assert_int_equal(train->y_shape.dim[0], 3);
    assert_int_equal(train->classes, 100);
    assert_int_equal(choir_dataset_length(train), 87); /* 90 tokens: 0-2|3 ... 86-88|89 */
    assert_int_equal(
        choir_dataset_length(valid), 3); /* 10 tokens: 90-92|93, 93-95|96, 96-98|99 */
    for (int64_t i = 0; i < 87; i++) {
        ok(train->ops->get(train, i, x, y));
        for (int j = 0; j < 3; j++) {
            assert_int_equal(x[j], i + j);
            assert_int_equal(y[j], i + j + 1);
        }
    }
    for (int64_t i = 0; i < 3; i++) {
        ok(valid->ops->get(valid, i, x, y));
        for (int j = 0; j < 3; j++) {
            assert_int_equal(x[j], 90 + 3 * i + j);
            assert_int_equal(y[j], 90 + 3 * i + j + 1);
        }
    }
    choir_dataset_free(train);
    choir_dataset_free(valid);
    choir_dataset_free(NULL);
    choir_tokenizer_free(t);
}

static void longest_context(void **state)
{
    char text[100];
    hundred(text);
    choir_dataset *d = NULL;
    ok(choir_dataset_text_memory("hundred", text, 100, 9, CHOIR_VALIDATION, NULL, &d));
    assert_int_equal(choir_dataset_length(d), 1);
    choir_dataset_free(d);
    choir_tokenizer *t = NULL;
    d = NULL;
    assert_fails(choir_dataset_text_memory("hundred", text, 100, 10, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_ARGUMENT,
        "hundred has 10 tokens in its validation split, fewer than the context of 10 + 1;"
        " choose a smaller context: --model NAME:context=8, where NAME may be the model's folder");
    assert_fails(choir_dataset_text_memory("hundred", text, 100, 90, CHOIR_VALIDATION, &t, &d),
        CHOIR_ERR_ARGUMENT, "90 tokens in its training split");
    assert_fails(
        choir_dataset_text_memory("hundred", text, 100, INT64_MAX, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_ARGUMENT, "smaller context");
    assert_null(t);
    assert_null(d);
}

static void refusals(void **state)
{
    choir_tokenizer *t = NULL;
    choir_dataset *d = NULL;
    assert_fails(choir_dataset_text_memory("it", "", 0, 1, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_ARGUMENT, "it is empty");
    assert_fails(choir_dataset_text_memory("it", "a", 1, 0, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_ARGUMENT, "context of 1 token or more, got 0");
    assert_fails(choir_dataset_text_memory(NULL, "a", 1, 1, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_ARGUMENT, "the text: the training split is empty");
    assert_fails(choir_dataset_text_memory("it", "a", 1, 1, (choir_split)7, &t, &d),
        CHOIR_ERR_ARGUMENT, "unknown split 7");
    assert_null(t);
    ok(choir_tokenizer_chars("ab\n", 3, &t));
    assert_fails(choir_dataset_text_memory("it", "ab\nabXb", 7, 1, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_RANGE, "it: line 2 has the character 'X' (U+0058)");
    assert_fails(choir_dataset_text_memory("it",
                     "ab\nab\xff"
                     "b",
                     7, 1, CHOIR_TRAIN, &t, &d),
        CHOIR_ERR_FORMAT, "it is not UTF-8");
    assert_null(d);
    choir_tokenizer_free(t);
}

/* Not UTF-8: bytes. */
static void bytes(void **state)
{
    char text[40];
    memset(text, 0xC3, sizeof text);
    choir_tokenizer *t = NULL;
    choir_dataset *d;
    int64_t x[2], y[2];
    ok(choir_dataset_text_memory("it", text, sizeof text, 2, CHOIR_TRAIN, &t, &d));
    assert_int_equal(choir_tokenizer_size(t), 256);
    ok(d->ops->get(d, 33, x, y));
    assert_int_equal(y[1], 0xC3);
    choir_dataset_free(d);
    choir_tokenizer_free(t);
}

static void files(void **state)
{
    const char *path = at("text.txt");
    choir_tokenizer *t = NULL;
    choir_dataset *d = NULL;
    assert_fails(choir_dataset_text(path, 2, CHOIR_TRAIN, &t, &d), CHOIR_ERR_IO,
        "text.txt: cannot be opened: No such file");
    assert_fails(choir_dataset_text(folder, 2, CHOIR_TRAIN, &t, &d), CHOIR_ERR_IO,
        "expected a file, got a folder");
    touch(path);
    assert_fails(choir_dataset_text(path, 2, CHOIR_TRAIN, &t, &d), CHOIR_ERR_ARGUMENT,
        "text.txt is empty");
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++)
        fprintf(f, "%04d ", i);
    fclose(f);
    assert_null(d);
    ok(choir_dataset_text(path, 8, CHOIR_TRAIN, &t, &d));
    assert_int_equal(choir_dataset_length(d), 22500 - 8);
    assert_int_equal(choir_tokenizer_size(t), 11);
    int64_t x[8], y[8];
    ok(d->ops->get(d, 5 * 1234, x, y));
    assert_string_equal(choir_tokenizer_decode(t, x[3]), "4");
    choir_dataset_free(d);
    choir_tokenizer_free(t);
    unlink(path);
}

static void shakespeare(void **state)
{
    const char *data = getenv("CHOIR_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/text/tinyshakespeare.txt", data ? data : "");
    if (!data || access(path, R_OK) != 0) {
        print_message("skipped: CHOIR_TEST_DATA has no text/tinyshakespeare.txt\n");
        skip();
    }
    choir_tokenizer *t = NULL;
    choir_dataset *train, *valid;
    ok(choir_dataset_text(path, 64, CHOIR_TRAIN, &t, &train));
    ok(choir_dataset_text(path, 64, CHOIR_VALIDATION, &t, &valid));
    assert_int_equal(choir_tokenizer_size(t), 65);
    assert_int_equal(
        choir_dataset_length(train), 1003854 - 64); /* nanoGPT's 1,003,854 tokens */
    assert_int_equal(choir_dataset_length(valid), (111540 - 1) / 64);
    int64_t x[64], y[64];
    char text[65] = "";
    ok(train->ops->get(train, 0, x, y));
    for (int i = 0; i < 64; i++)
        strcat(text, choir_tokenizer_decode(t, x[i]));
    assert_memory_equal(text, "First Citizen:\nBefore we proceed any further", 44);
    choir_dataset_free(train);
    choir_dataset_free(valid);
    choir_tokenizer_free(t);
}

/* --- random data --- */

static void random_values(void **state)
{
    enum { N = 4000, X = 6 };
    choir_dataset *a, *b;
    float x[X], again[X];
    int64_t y, y2, seen[5] = {0};
    double sum = 0, squares = 0;
    ok(choir_dataset_random(N, choir_dims(2, 3), CHOIR_SCALAR, 5, 7, &a));
    ok(choir_dataset_random(9 * N, choir_dims(2, 3), CHOIR_SCALAR, 5, 7, &b));
    assert_int_equal(choir_dataset_length(a), N);
    assert_int_equal(a->classes, 5);
    for (int64_t i = 0; i < N; i++) {
        ok(a->ops->get(a, i, x, &y));
        ok(b->ops->get(b, i, again, &y2));
        assert_memory_equal(x, again, sizeof x);
        assert_int_equal(y, y2);
        assert_in_range(y, 0, 4);
        seen[y]++;
        for (int j = 0; j < X; j++) {
            sum += x[j];
            squares += x[j] * x[j];
        }
    }
    assert_true(fabs(sum / (N * X)) < 0.03);
    assert_true(fabs(squares / (N * X) - 1) < 0.04);
    for (int i = 0; i < 5; i++)
        assert_in_range(seen[i], N / 5 - 130, N / 5 + 130);
    choir_dataset_free(b);
    ok(choir_dataset_random(N, choir_dims(2, 3), CHOIR_SCALAR, 5, 8, &b));
    ok(b->ops->get(b, N - 1, again, &y2));
    assert_memory_not_equal(x, again, sizeof x);
    choir_dataset_free(a);
    choir_dataset_free(b);
    float target[X]; /* no classes: y is normal, and not x */
    ok(choir_dataset_random(3, choir_dims(X), choir_dims(X), 0, 7, &a));
    assert_int_equal(a->y_dtype, CHOIR_F32);
    ok(a->ops->get(a, 2, x, target));
    assert_memory_not_equal(x, target, sizeof x);
    choir_dataset_free(a);
}

static void random_tokens(void **state)
{
    enum { C = 7 };
    choir_dataset *d;
    int64_t x[C], y[C], seen[11] = {0};
    ok(choir_dataset_random_tokens(500, C, 11, 1, &d));
    for (int64_t i = 0; i < 500; i++) {
        ok(d->ops->get(d, i, x, y));
        for (int j = 0; j < C; j++) {
            assert_in_range(x[j], 0, 10);
            assert_in_range(y[j], 0, 10);
            if (j)
                assert_int_equal(x[j], y[j - 1]); /* one further on */
            seen[x[j]]++;
        }
    }
    for (int i = 0; i < 11; i++)
        assert_in_range(seen[i], 318 - 100, 318 + 100);
    choir_dataset_free(d);
}

static void random_refusals(void **state)
{
    choir_dataset *d = NULL;
    choir_shape x = choir_dims(2), deep = {.ndim = CHOIR_MAX_DIMS};
    assert_fails(
        choir_dataset_random(0, x, x, 2, 0, &d), CHOIR_ERR_ARGUMENT, "1 sample or more, got 0");
    assert_fails(choir_dataset_random(4, x, x, -2, 0, &d), CHOIR_ERR_ARGUMENT, "-2 classes");
    assert_fails(choir_dataset_random(4, deep, x, 2, 0, &d), CHOIR_ERR_SHAPE, "6 dimensions");
    assert_fails(choir_dataset_random(4, choir_dims(INT64_MAX / 2, 8), x, 2, 0, &d),
        CHOIR_ERR_SHAPE, "large");
    assert_fails(
        choir_dataset_random(4, x, choir_dims(-1), 2, 0, &d), CHOIR_ERR_SHAPE, "negative");
    assert_fails(
        choir_dataset_random_tokens(4, 0, 5, 0, &d), CHOIR_ERR_ARGUMENT, "not 0 and 5");
    assert_fails(
        choir_dataset_random_tokens(4, 5, 0, 0, &d), CHOIR_ERR_ARGUMENT, "not 5 and 0");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(longest_context),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bytes),
        cmocka_unit_test(files),
        cmocka_unit_test(shakespeare),
        cmocka_unit_test(random_values),
        cmocka_unit_test(random_tokens),
        cmocka_unit_test(random_refusals),
    };
    return cmocka_run_group_tests_name(
        "text and random datasets", tests, make_folder, remove_folder);
}
