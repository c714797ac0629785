/* A folder of images as a dataset: splits and classes, samples that depend only on (seed,
 * epoch, index), and wrong folders and files, read directly and through the loader. */
#include "image_fixture.h"

#include <choir/ops.h>
#include <choir/scope.h>

/* n images in folder/NAME/, 000.jpg ... */
static void fill(const char *name, int n, int width, int height)
{
    for (int i = 0; i < n; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%03d.jpg", name, i);
        write_jpeg(new_at(path), width + i % 3, height, photo);
    }
}

static choir_status open_at(const char *name, choir_split split, choir_dataset **data)
{
    choir_image_opts o = choir_image_defaults();
    o.seed = 9;
    *data = NULL;
    return choir_dataset_images(new_at(name), split, o, data);
}

static void splits(void **state)
{
    choir_dataset *train, *val;
    int64_t y;
    fill("s/train/cat", 5, 20, 16);
    fill("s/train/ant", 3, 20, 16);
    fill("s/train/.hidden", 1, 20, 16);
    fill("s/test/cat", 2, 20, 16);
    write_png(new_at("s/train/ant/zebra.PNG"), 20, 16, PNG_COLOR_TYPE_GRAY, 8, false);
    spit(new_at("s/train/ant/notes.txt"), "x", 1);
    ok(open_at("s", CHOIR_TRAIN, &train));
    ok(open_at("s", CHOIR_VALIDATION, &val));
    assert_int_equal(choir_dataset_length(train), 9);
    assert_int_equal(choir_dataset_length(val), 2);
    assert_int_equal(train->classes, 2);
    assert_int_equal(val->classes, 2);
    assert_string_equal(choir_dataset_class_name(train, 0), "ant");
    assert_string_equal(choir_dataset_class_name(val, 1), "cat");
    assert_null(choir_dataset_class_name(train, 2));
    assert_int_equal(train->x_shape.dim[1], 16); /* the first image's */
    assert_int_equal(train->x_shape.dim[2], 20);
    float x[16 * 20 * 3];
    for (int64_t i = 0; i < 9; i++) {
        ok(choir_dataset_get(train, i, x, &y));
        assert_int_equal(y, i >= 4);
    }
    ok(choir_dataset_get(val, 0, x, &y));
    assert_int_equal(y, 1);
    choir_dataset_free(train);
    choir_dataset_free(val);
}

/* Without a folder for validation one of each ten files of a class is held out: 8, 10. A class
 * of fewer gives its second one, unless it has but one. */
static void held_out(void **state)
{
    static const int class_of[] = {0, 0, 1, 3};
    choir_dataset *train, *val;
    fill("held/a", 23, 12, 12);
    fill("held/b", 7, 12, 12);
    fill("held/c", 1, 12, 12);
    fill("held/d", 2, 12, 12);
    ok(open_at("held", CHOIR_TRAIN, &train));
    ok(open_at("held", CHOIR_VALIDATION, &val));
    assert_int_equal(choir_dataset_length(train), 21 + 6 + 1 + 1);
    assert_int_equal(choir_dataset_length(val), 4);
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(choir_dataset_class_of(val, i), class_of[i]);
    choir_dataset_free(train);
    choir_dataset_free(val);
}

/* Images of other sizes than the first one's are resized; a sample of evaluation is the same
 * whatever the first one is. */
static void sizes(void **state)
{
    enum { H = 48, W = 64, N = H * W * 3 };
    static float x[N], alone[N];
    int64_t y;
    choir_dataset *train, *files;
    write_jpeg(new_at("mixed/a/0.jpg"), W, H, photo);
    write_jpeg(new_at("mixed/a/1.jpg"), H, W, photo);
    write_jpeg(new_at("mixed/a/2.jpg"), 80, 60, photo);
    write_jpeg(new_at("mixed/a/3.jpg"), 9, 7, photo);
    ok(open_at("mixed", CHOIR_TRAIN, &train));
    assert_int_equal(choir_dataset_length(train), 3);
    assert_int_equal(train->x_shape.dim[2], W);
    for (int64_t i = 0; i < 3; i++)
        ok(choir_dataset_get(train, i, x, &y));
    choir_dataset_free(train);
    char path[4][256];
    choir_image_opts o = choir_image_defaults();
    o.height = H;
    o.width = W;
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "%s/%d.jpg", new_at("mixed/a"), i);
    for (int i = 0; i < 4; i++) {
        const char *one[] = {path[i]}, *two[] = {path[(i + 1) % 4], path[i]};
        ok(choir_dataset_image_files(one, 1, o, &files));
        ok(choir_dataset_get(files, 0, alone, &y));
        choir_dataset_free(files);
        ok(choir_dataset_image_files(two, 2, o, &files));
        ok(choir_dataset_get(files, 1, x, &y));
        choir_dataset_free(files);
        assert_memory_equal(x, alone, sizeof x);
    }
}

/* Files in folders of a class belong to it, in torchvision's order: by folder, then by name. */
static void nested(void **state)
{
    const int widths[] = {
        20, 21, 22, 23, 24}; /* z.jpg, a/y.jpg, a-b/x.jpg, a/c/v.jpg, b/w.jpg */
    choir_dataset *d;
    fill("deep/other", 1, 20, 16);
    write_jpeg(new_at("deep/cat/b/w.jpg"), widths[4], 16, photo);
    write_jpeg(new_at("deep/cat/a/c/v.jpg"), widths[3], 16, photo);
    write_jpeg(new_at("deep/cat/a-b/x.jpg"), widths[2], 16, photo);
    write_jpeg(new_at("deep/cat/a/y.jpg"), widths[1], 16, photo);
    write_jpeg(new_at("deep/cat/z.jpg"), widths[0], 16, photo);
    write_jpeg(new_at("deep/cat/.z.jpg"), 30, 16, photo);
    ok(open_at("deep", CHOIR_TRAIN, &d));
    assert_int_equal(choir_dataset_length(d), 5);   /* one is held out */
    assert_int_equal(d->x_shape.dim[2], widths[0]); /* the first one's */
    choir_dataset_free(d);
    spit(new_at("deep/cat/a/u.webp"), "x", 1);
    assert_fails(open_at("deep", CHOIR_TRAIN, &d), CHOIR_ERR_UNSUPPORTED,
        "deep/cat/a/u.webp: expected JPEG or PNG");
}

static void keyed(void **state)
{
    enum { N = 12 * 12 * 3 };
    choir_dataset *a, *b;
    float first[N], again[N], other[N];
    int64_t y;
    fill("h/a", 23, 12, 12);
    ok(open_at("h", CHOIR_TRAIN, &a));
    ok(open_at("h", CHOIR_TRAIN, &b));
    int differ = 0;
    for (int64_t i = 0; i < 20; i++) {
        choir_check(choir_dataset_get_epoch(a, 3, i, first, &y));
        choir_check(choir_dataset_get_epoch(b, 3, 19 - i, again, &y)); /* another order */
        choir_check(choir_dataset_get_epoch(b, 3, i, again, &y));
        choir_check(choir_dataset_get_epoch(a, 4, i, other, &y));
        assert_memory_equal(first, again, sizeof first);
        differ += memcmp(first, other, sizeof first) != 0;
    }
    assert_true(differ >= 18);
    choir_dataset_free(a);
    choir_dataset_free(b);
}

static void bad_folders(void **state)
{
    choir_dataset *d;
    assert_fails(open_at("nowhere", CHOIR_TRAIN, &d), CHOIR_ERR_IO, "nowhere");
    spit(new_at("n/file.jpg"), "x", 1);
    assert_fails(
        open_at("n", CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, "n has no folders of classes");
    fill("e/train/full", 2, 8, 8);
    spit(new_at("e/train/empty/readme"), "x", 1);
    assert_fails(open_at("e", CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT,
        "e/train/empty: the class has no images");
    fill("v/train/a", 2, 8, 8);
    fill("v/val/a", 2, 8, 8);
    fill("v/val/b", 2, 8, 8);
    assert_fails(open_at("v", CHOIR_VALIDATION, &d), CHOIR_ERR_FORMAT,
        "v/val/b: expected the name of a class to train on");
    fill("one/a", 1, 8, 8);
    assert_fails(open_at("one", CHOIR_VALIDATION, &d), CHOIR_ERR_FORMAT, "too few images");
    spit(new_at("t/a/0.jpg"), "a text", 6);
    assert_fails(open_at("t", CHOIR_TRAIN, &d), CHOIR_ERR_FORMAT, "0.jpg: expected a JPEG");
    assert_null(d);
}

static void bad_options(void **state)
{
    choir_dataset *d;
    fill("f/a", 4, 8, 8);
    for (int i = 0; i < 8; i++) {
        static const char *const says[] = {"got -1 x -1", "both 0", "0 < scale_min",
            "scale_max <= 1, got 0 and 1", "ratio_min", "padding -1", "unknown crop 9",
            "deviation above 0, got 0"};
        choir_image_opts o = choir_image_defaults();
        if (i == 0)
            o.height = o.width = -1;
        if (i == 1)
            o.height = 5;
        if (i == 2)
            o.scale_min = 2;
        if (i == 3)
            o.scale_min = 0;
        if (i == 4)
            o.ratio_min = -1;
        if (i == 5)
            o.padding = -1;
        if (i == 6)
            o.crop = 9;
        if (i == 7)
            o.std[1] = 0;
        assert_fails(
            choir_dataset_images(new_at("f"), CHOIR_TRAIN, o, &d), CHOIR_ERR_ARGUMENT, says[i]);
    }
}

/* A bad file in the middle of an epoch: the loader names the sample and the file, and ends. */
static void bad_file(void **state)
{
    fill("m/a", 12, 16, 16);
    for (int workers = 1; workers < 4; workers++)
        for (int kind = 0; kind < 3; kind++) {
            choir_dataset *data;
            choir_image_opts opts = choir_image_defaults();
            opts.crop = CHOIR_CROP_PADDED; /* which the one that is too small cannot have */
            ok(choir_dataset_images(new_at("m"), CHOIR_TRAIN, opts, &data));
            unlink(new_at("m/a/004.jpg"));
            if (kind == 1)
                spit(new_at("m/a/004.jpg"), "\xFF\xD8\xFF\xE0 and no more", 16);
            if (kind == 2)
                write_png(
                    new_at("m/a/004.jpg"), 3, 3, PNG_COLOR_TYPE_RGB, 8, false); /* too small */
            choir_loader_opts o = choir_loader_defaults();
            o.batch_size = 2;
            o.shuffle = false;
            o.workers = workers;
            choir_scope *run = choir_scope_open(NULL, 1);
            choir_loader *loader = choir_loader_new(run, data, o);
            for (uint64_t i = 0; i < 3; i++) {
                choir_batch b;
                choir_scope *step = choir_step_open(run, i);
                choir_status status = choir_loader_next(loader, step, &b);
                if (i < 2) {
                    ok(status);
                    assert_int_equal(choir_tensor_size(b.x, 1), 3);
                } else {
                    assert_fails(status, kind ? CHOIR_ERR_FORMAT : CHOIR_ERR_IO, "sample 4 ");
                    assert_says("m/a/004.jpg");
                }
                choir_scope_close(step);
            }
            choir_scope_close(run);
            choir_dataset_free(data);
            write_jpeg(new_at("m/a/004.jpg"), 16, 16, photo);
        }
}

/* A batch's x reads (N, 3, H, W), whatever its memory order. */
static void channels(void **state)
{
    enum { H = 6, W = 5 };
    choir_dataset *data;
    float sample[H][W][3], x[3][H][W];
    int64_t y;
    choir_image_opts o = choir_image_defaults();
    o.height = H;
    o.width = W;
    fill("c/a", 3, 30, 20);
    ok(choir_dataset_images(new_at("c"), CHOIR_TRAIN, o, &data));
    choir_scope *run = choir_scope_open(NULL, 1), *step = choir_step_open(run, 0);
    choir_loader_opts l = choir_loader_defaults();
    l.batch_size = 1;
    l.shuffle = false;
    choir_batch b;
    ok(choir_loader_next(choir_loader_new(run, data, l), step, &b));
    ok(choir_read(b.x, x, sizeof x));
    choir_check(choir_dataset_get(data, 0, sample, &y));
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < H; i++)
            for (int j = 0; j < W; j++)
                assert_true(x[c][i][j] == sample[i][j][c]);
    choir_scope_close(step);
    ok(choir_scope_close(run));
    choir_dataset_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(held_out),
        cmocka_unit_test(sizes),
        cmocka_unit_test(nested),
        cmocka_unit_test(keyed),
        cmocka_unit_test(bad_folders),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_file),
        cmocka_unit_test(channels),
    };
    return cmocka_run_group_tests_name("image_folder", tests, make_folder, remove_all);
}
