/* Folders of IDX files: MNIST's own, small ones made here, and many with false headers. */
#include "folder_fixture.h"
#include <math.h>
#include <sys/stat.h>
#include <zlib.h>
#include <choir/data.h>

enum { IMAGES = 0x803, LABELS = 0x801, H = 2, W = 3 };

static int empty_folder(void **state)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            remove(at("%s", e->d_name));
    closedir(dir);
    return 0;
}

static size_t put_word(unsigned char *p, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(word >> (24 - 8 * i));
    return 4;
}

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    const char *path = at("%s", name);
    size_t length = strlen(name);
    if (length > 3 && !strcmp(name + length - 3, ".gz")) {
        gzFile f = gzopen(path, "wb");
        assert_non_null(f);
        if (bytes)
            assert_int_equal(gzwrite(f, data, (unsigned)bytes), bytes);
        assert_int_equal(gzclose(f), Z_OK);
        return;
    }
    spit(path, data, bytes);
}

/* Writes count images of H x W; pixel p of image i is first + i + p. Returns the bytes. */
static size_t image_bytes(unsigned char *out, uint32_t mark, uint32_t count, int first)
{
    size_t at = put_word(out, mark);
    at += put_word(out + at, count);
    at += put_word(out + at, H);
    at += put_word(out + at, W);
    for (uint32_t i = 0; i < count; i++)
        for (int p = 0; p < H * W; p++)
            out[at++] = (unsigned char)(first + (int)i + p);
    return at;
}

static void write_images(const char *name, uint32_t count, int first)
{
    unsigned char data[1024];
    write_bytes(name, data, image_bytes(data, IMAGES, count, first));
}

/* Labels 0 1 2 ... modulo `classes`. */
static void write_labels(const char *name, uint32_t count, uint32_t classes)
{
    unsigned char data[256];
    size_t at = put_word(data, LABELS);
    at += put_word(data + at, count);
    for (uint32_t i = 0; i < count; i++)
        data[at++] = (unsigned char)(i % classes);
    write_bytes(name, data, at);
}

/* Returns (pixel/255 - mean)/deviation over `count` training images, written from `first`
 * on. */
static float normalised(int pixel, int count, int first)
{
    double sum = 0, squares = 0, n = (double)count * H * W;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < H * W; p++)
            sum += (first + i + p) / 255.0;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < H * W; p++)
            squares += pow((first + i + p) / 255.0 - sum / n, 2);
    return (float)((pixel / 255.0 - sum / n) / sqrt(squares / n));
}

/* The last tenth is for validation, two images of the classes 4 and 5, and the second one of
 * each class that is not there. */
static void one_pair(void **state)
{
    static const int order[] = {
        0, 1, 2, 3, 4, 5, 6, 11, 12, 14, 15, 16, 17, 18, 19, 7, 8, 9, 10, 13};
    choir_dataset *train, *valid;
    float x[H * W];
    int64_t y;
    write_images("small-images-idx3-ubyte.gz", 20, 4);
    write_labels("small-labels-idx1-ubyte", 20, 7);
    write_bytes("readme.txt", "hello", 5);
    ok(choir_dataset_idx(folder, CHOIR_TRAIN, &train));
    ok(choir_dataset_idx(folder, CHOIR_VALIDATION, &valid));
    assert_int_equal(choir_dataset_length(train), 13);
    assert_int_equal(choir_dataset_length(valid), 7);
    assert_int_equal(train->classes, 7);
    assert_int_equal(valid->classes, 7);
    assert_int_equal(train->x_dtype, CHOIR_F32);
    assert_int_equal(train->x_shape.ndim, 3);
    assert_int_equal(train->x_shape.dim[0], 1);
    assert_int_equal(train->x_shape.dim[1], H);
    assert_int_equal(train->x_shape.dim[2], W);
    assert_int_equal(train->y_dtype, CHOIR_I64);
    assert_int_equal(train->y_shape.ndim, 0);
    for (int i = 0; i < 20; i++) { /* both by the mean of the first nine tenths */
        choir_dataset *d = i < 13 ? train : valid;
        ok(d->ops->get(d, i < 13 ? i : i - 13, x, &y));
        assert_int_equal(y, order[i] % 7);
        for (int p = 0; p < H * W; p++)
            assert_true(fabsf(x[p] - normalised(4 + order[i] + p, 18, 4)) < 1e-5f);
    }
    choir_dataset_free(train);
    choir_dataset_free(valid);
}

static void two_pairs(void **state)
{
    choir_dataset *train, *valid;
    float x[H * W];
    int64_t y;
    write_images("train-images-idx3-ubyte", 9, 0);
    write_images("train-images-idx3-ubyte.gz", 3, 77); /* the plain one is taken */
    write_labels("train-labels-idx1-ubyte.gz", 9, 3);
    write_images("t10k-images-idx3-ubyte.gz", 5, 100);
    write_labels("t10k-labels-idx1-ubyte", 5, 5);
    ok(choir_dataset_idx(folder, CHOIR_TRAIN, &train));
    ok(choir_dataset_idx(folder, CHOIR_VALIDATION, &valid));
    assert_int_equal(choir_dataset_length(train), 9);
    assert_int_equal(choir_dataset_length(valid), 5);
    assert_int_equal(train->classes, 5); /* of both */
    ok(valid->ops->get(valid, 4, x, &y));
    assert_int_equal(y, 4);
    for (int p = 0; p < H * W; p++)
        assert_true(fabsf(x[p] - normalised(104 + p, 9, 0)) < 1e-4f);
    choir_dataset_free(train);
    choir_dataset_free(valid);

    unsigned char data[64]; /* other sizes in t10k */
    size_t bytes = image_bytes(data, IMAGES, 5, 0);
    put_word(data + 8, W);
    put_word(data + 12, H);
    write_bytes("t10k-images-idx3-ubyte.gz", data, bytes);
    train = NULL;
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &train), CHOIR_ERR_FORMAT, "2 x 3");
    assert_null(train);
}

/* Images of a single color have no deviation to divide by. */
static void constant_images(void **state)
{
    unsigned char data[64] = {0};
    choir_dataset *d;
    float x[H * W];
    int64_t y;
    size_t bytes = image_bytes(data, IMAGES, 2, 0);
    memset(data + 16, 9, bytes - 16);
    write_bytes("c-images-idx3-ubyte", data, bytes);
    write_labels("c-labels-idx1-ubyte", 2, 1);
    ok(choir_dataset_idx(folder, CHOIR_TRAIN, &d));
    assert_int_equal(choir_dataset_length(d), 1);
    ok(d->ops->get(d, 0, x, &y));
    assert_true(fabsf(x[0]) < 1e-6f);
    choir_dataset_free(d);
}

static void bad_folders(void **state)
{
    choir_dataset *d = NULL;
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_IO,
        "expected *-images-idx3-ubyte and *-labels-idx1-ubyte, also .gz, or images in folders");
    assert_fails(choir_dataset_idx(at("none"), CHOIR_TRAIN, &d), CHOIR_ERR_IO, "No such file");
    write_bytes("file", "x", 1);
    assert_fails(
        choir_dataset_idx(at("file"), CHOIR_TRAIN, &d), CHOIR_ERR_IO, "Not a directory");
    assert_fails(
        choir_dataset_idx(folder, (choir_split)5, &d), CHOIR_ERR_ARGUMENT, "unknown split 5");
    write_bytes("-images-idx3-ubyte", "x", 1); /* no name before it */
    write_bytes("a-images-idx3-ubyte.bak", "x", 1);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_IO, "expected *-images");
    write_images("a-images-idx3-ubyte", 4, 0);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_IO,
        "a-labels-idx1-ubyte: cannot be opened: No such file");
    write_images("b-images-idx3-ubyte", 4, 0);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, "got several");
    remove(at("b-images-idx3-ubyte"));
    assert_int_equal(mkdir(at("a-labels-idx1-ubyte"), 0700), 0);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_IO,
        "expected a file, got a folder");
    rmdir(at("a-labels-idx1-ubyte"));
    write_labels("a-labels-idx1-ubyte", 3, 2);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT,
        "a-labels-idx1-ubyte holds 3 labels, but");
    write_images("a-images-idx3-ubyte", 1, 0);
    write_labels("a-labels-idx1-ubyte", 1, 1);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, "holds 1 image");
    assert_null(d);
}

/* False headers, in a plain file and in a compressed one. */
static void bad_headers(void **state)
{
    static const struct {
        uint32_t mark, count, height, width;
        int bytes; /* of pixels; less than 0: of the header that is there */
        const char *plain, *packed;
    } bad[] = {
        {IMAGES, 4, H, W, -16, "expected an IDX file, got an empty file", "got an empty file"},
        {IMAGES, 4, H, W, -3, "ends after 13 bytes, within its header of 16", "ends after 13"},
        {IMAGES, 4, H, W, -14, "ends after 2 bytes", "ends after 2 bytes"},
        {LABELS, 4, H, W, 24, "expected 0x00000803, the mark of IDX images, got 0x00000801",
            "got 0x00000801"},
        {0x03080000, 4, H, W, 24, "got 0x03080000", "got 0x03080000"},
        {IMAGES, 0, H, W, 0, "got none", "got none"},
        {IMAGES, 4, 0, W, 0, "pixels, got 0 x 3", "pixels, got 0 x 3"},
        {IMAGES, 4, 65536, 65536, 24, "got 65536 x 65536", "got 65536 x 65536"},
        {IMAGES, 4, UINT32_MAX, UINT32_MAX, 24, "got 4294967295", "got 4294967295"},
        {IMAGES, 4, H, W, 23,
            "promises 24 bytes of values, which a file of 39 bytes cannot hold",
            "ends after 23 bytes of values; its header promises 24"},
        {IMAGES, 4, H, W, 25, "it has more than that", "more than the 24 bytes"},
        {IMAGES, UINT32_MAX, 8192, 8192, 24, "promises 288230376084602880 bytes",
            "promises 288230376084602880 bytes"},
    };
    write_labels("a-labels-idx1-ubyte", 4, 2);
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        unsigned char data[64] = {0};
        size_t end = put_word(data, bad[c].mark);
        end += put_word(data + end, bad[c].count);
        end += put_word(data + end, bad[c].height);
        end += put_word(data + end, bad[c].width);
        end = (size_t)((int)end + bad[c].bytes);
        choir_dataset *d = NULL;
        write_bytes("a-images-idx3-ubyte", data, end);
        assert_fails(
            choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, bad[c].plain);
        assert_says("a-images-idx3-ubyte");
        remove(at("a-images-idx3-ubyte"));
        write_bytes("a-images-idx3-ubyte.gz", data, end);
        assert_fails(
            choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, bad[c].packed);
        assert_says("a-images-idx3-ubyte.gz");
        remove(at("a-images-idx3-ubyte.gz"));
        assert_null(d);
    }
}

/* A compressed file cut anywhere, or with any byte changed: always an error. */
static void damaged_gzip(void **state)
{
    choir_dataset *d;
    const char *path = at("a-images-idx3-ubyte.gz");
    size_t bytes;
    write_images("a-images-idx3-ubyte.gz", 20, 0);
    write_labels("a-labels-idx1-ubyte", 20, 2);
    unsigned char *data = slurp(path, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        spit(path, data, cut);
        assert_int_equal(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT);
        if (cut > 16) /* less is no gzip header yet */
            assert_says("damaged or cut short");
    }
    for (size_t at = 10; at < bytes; at++) {
        data[at] ^= 0x5A;
        spit(path, data, bytes);
        assert_int_equal(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT);
        data[at] ^= 0x5A;
    }
    free(data);
}

/* A file longer than the first piece that is read, whose size makes the memory grow. */
static void large_gzip(void **state)
{
    enum { COUNT = 40, SIDE = 300 };
    size_t bytes = 16 + (size_t)COUNT * SIDE * SIDE;
    unsigned char *data = malloc(bytes);
    float *x = malloc(SIDE * SIDE * sizeof *x);
    int64_t y;
    choir_dataset *d;
    size_t at = put_word(data, IMAGES);
    at += put_word(data + at, COUNT);
    at += put_word(data + at, SIDE);
    at += put_word(data + at, SIDE);
    for (size_t i = at; i < bytes; i++)
        data[i] = (unsigned char)((i - at) / (SIDE * SIDE));
    write_bytes("a-images-idx3-ubyte.gz", data, bytes);
    write_labels("a-labels-idx1-ubyte", COUNT, 10);
    ok(choir_dataset_idx(folder, CHOIR_VALIDATION, &d));
    float previous = 0;
    for (int64_t i = 0; i < 4; i++) {
        ok(d->ops->get(d, i, x, &y));
        assert_int_equal(y, (36 + i) % 10);
        assert_true(x[0] == x[SIDE * SIDE - 1] && x[0] > previous);
        previous = x[0];
    }
    choir_dataset_free(d);
    put_word(data + 4, 4000000); /* within what gzip could hold, were it all there */
    write_bytes("a-images-idx3-ubyte.gz", data, bytes);
    assert_int_equal(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT);
    put_word(data + 4, COUNT + 1);
    write_bytes("a-images-idx3-ubyte.gz", data, bytes);
    assert_fails(choir_dataset_idx(folder, CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT,
        "ends after 3600000 bytes of values; its header promises 3690000");
    free(data);
    free(x);
}

static void mnist(void **state)
{
    const char *data = getenv("CHOIR_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/mnist", data ? data : "");
    if (!data || access(path, R_OK) != 0) {
        print_message("skipped: CHOIR_TEST_DATA has no mnist/\n");
        skip();
    }
    choir_dataset *d;
    static const int64_t first[] = {7, 2, 1, 0, 4};
    float x[28 * 28];
    int64_t y, seven = 0;
    double sum = 0, squares = 0, n = 9000.0 * 28 * 28;
    ok(choir_dataset_idx(path, CHOIR_TRAIN, &d));
    assert_int_equal(choir_dataset_length(d), 9000);
    assert_int_equal(d->classes, 10);
    assert_int_equal(d->x_shape.dim[1], 28);
    for (int64_t i = 0; i < 9000; i++) {
        ok(d->ops->get(d, i, x, &y));
        if (i < 5) /* the test set's first labels */
            assert_int_equal(y, first[i]);
        seven += y == 7;
        for (int p = 0; p < 28 * 28; p++) {
            sum += x[p];
            squares += (double)x[p] * x[p];
        }
    }
    assert_true(fabs(sum / n) < 1e-5 && fabs(squares / n - 1) < 1e-5);
    assert_in_range(seven, 850, 1028);
    choir_dataset_free(d);
    ok(choir_dataset_idx(path, CHOIR_VALIDATION, &d));
    assert_int_equal(choir_dataset_length(d), 1000);
    choir_dataset_free(d);
}

int main(void)
{
#define test(name) cmocka_unit_test_teardown(name, empty_folder)
    const struct CMUnitTest tests[] = {
        test(one_pair),
        test(two_pairs),
        test(constant_images),
        test(bad_folders),
        test(bad_headers),
        test(damaged_gzip),
        test(large_gzip),
        test(mnist),
    };
    return cmocka_run_group_tests_name("IDX files", tests, make_folder, remove_folder);
}
