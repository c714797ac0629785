/* Images to samples: every kind of file, parts against the whole, the resampling against a slow
 * one in f64, the same bits on every instruction set, and broken files. */
#include "copies.h"
#include "image_fixture.h"

#include <math.h>

#include "device/cpu/context.h"

/* Options that do not change pixel values. */
static choir_image_opts plain(int width, int height, choir_crop crop)
{
    choir_image_opts o = choir_image_defaults();
    o.width = width;
    o.height = height;
    o.crop = crop;
    o.dct_scaling = false;
    for (int c = 0; c < 3; c++) {
        o.mean[c] = 0;
        o.std[c] = 1 / 255.0f;
    }
    return o;
}

/* Returns the whole image unchanged, (height, width, 3). */
static float *pixels_of(const char *path, int width, int height)
{
    choir__image_work work = {0};
    char *data;
    size_t bytes;
    float *out = malloc((size_t)width * (size_t)height * 3 * sizeof *out);
    choir_image_opts o = plain(width, height, CHOIR_CROP_PADDED);
    ok(choir__read_file(path, 0, &data, &bytes));
    choir_check(choir__decoder_open(&work.decoder, path, data, bytes, 1 << 26));
    assert_int_equal(work.decoder.width, width);
    assert_int_equal(work.decoder.height, height);
    choir__view v = choir__view_center(&o, width, height);
    choir_check(choir__image_render(&work, &o, choir__resample_find(), &v, out));
    choir__decoder_close(&work.decoder);
    choir__image_work_free(&work);
    free(data);
    return out;
}

/* --- kinds of files --- */

enum { WIDTH = 61, HEIGHT = 47 };

static void check_pattern(const char *path, float tolerance, int channels)
{
    float *p = pixels_of(path, WIDTH, HEIGHT);
    double off = 0;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++) {
                float want = pattern(x, y, channels == 1 ? 0 : c);
                off += fabs((double)(p[3 * (y * WIDTH + x) + c] - want));
            }
    free(p);
    off /= 3.0 * WIDTH * HEIGHT;
    if (off > (double)tolerance)
        fail_msg("%s: off by %g on the average", path, off);
}

static void jpegs(void **state)
{
    write_jpeg(new_at("k/rgb.jpg"), WIDTH, HEIGHT, (jpeg_kind){JCS_RGB, true, false, 98});
    check_pattern(new_at("k/rgb.jpg"), 2.5f, 3);
    write_jpeg(new_at("k/420.jpg"), WIDTH, HEIGHT, (jpeg_kind){JCS_RGB, false, false, 98});
    check_pattern(new_at("k/420.jpg"), 5, 3);
    write_jpeg(new_at("k/prog.jpg"), WIDTH, HEIGHT, (jpeg_kind){JCS_RGB, true, true, 98});
    check_pattern(new_at("k/prog.jpg"), 2.5f, 3);
    write_jpeg(
        new_at("k/gray.jpg"), WIDTH, HEIGHT, (jpeg_kind){JCS_GRAYSCALE, false, false, 98});
    check_pattern(new_at("k/gray.jpg"), 2.5f, 1);
    write_jpeg(new_at("k/cmyk.jpg"), WIDTH, HEIGHT, (jpeg_kind){JCS_CMYK, true, false, 98});
    check_pattern(new_at("k/cmyk.jpg"), 2.5f, 3);
}

static void pngs(void **state)
{
    static const struct {
        int type, depth, channels;
    } kinds[] = {{PNG_COLOR_TYPE_RGB, 8, 3}, {PNG_COLOR_TYPE_RGB_ALPHA, 8, 3},
        {PNG_COLOR_TYPE_GRAY, 8, 1}, {PNG_COLOR_TYPE_RGB, 16, 3}, {PNG_COLOR_TYPE_GRAY, 16, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            write_png(
                new_at("k/x.png"), WIDTH, HEIGHT, kinds[i].type, kinds[i].depth, interlaced);
            check_pattern(
                new_at("k/x.png"), kinds[i].depth == 16 ? 0.6f : 0, kinds[i].channels);
        }
    write_png(new_at("k/p.png"), WIDTH, HEIGHT, PNG_COLOR_TYPE_PALETTE, 8, false);
    float *p = pixels_of(new_at("k/p.png"), WIDTH, HEIGHT);
    for (int x = 0; x < WIDTH; x++) {
        float index = pattern(x, 0, 0);
        assert_true(p[3 * x] == index && p[3 * x + 1] == 255 - index);
    }
    free(p);
}

/* --- resampling --- */

/* Returns one output of the triangle filter in f64, with the box's own edges, from whole
 * pixels. */
static double slow(const float *p, int width, const choir__view *v, int ox, int oy, int c)
{
    double sx = (double)v->box.width / v->full_width,
           sy = (double)v->box.height / v->full_height;
    double wx = fmax(1, sx), wy = fmax(1, sy), sum = 0, weights = 0;
    double cx = v->box.x + (ox + 0.5) * sx, cy = v->box.y + (oy + 0.5) * sy;
    for (int y = v->box.y; y < v->box.y + v->box.height; y++)
        for (int x = v->box.x; x < v->box.x + v->box.width; x++) {
            double w =
                fmax(0, 1 - fabs((x + 0.5 - cx) / wx)) * fmax(0, 1 - fabs((y + 0.5 - cy) / wy));
            sum += w * (double)p[3 * (y * width + x) + c];
            weights += w;
        }
    return sum / weights;
}

/* Random views of a file, of which only a part is decoded: they match the slow ones within
 * f32's rounding, and have the same bits on every instruction set. */
static void check_views(const char *path, int width, int height, choir_crop crop)
{
#define DECLARE(isa)  choir__resample_fn choir__resample_##isa;
#define NAME(isa)     #isa,
#define FUNCTION(isa) choir__resample_##isa,
    COPIES(DECLARE)
    static const char *const isas[] = {COPIES(NAME)};
    choir__resample_fn *const fns[] = {COPIES(FUNCTION)};
    enum { SIDE = 13, TALL = 9 };
    choir_image_opts o = plain(SIDE, TALL, crop);
    float *whole = pixels_of(path, width, height), out[3][SIDE * TALL * 3];
    choir__image_work work = {0};
    char *data;
    size_t bytes;
    ok(choir__read_file(path, 0, &data, &bytes));
    for (uint64_t key = 1; key < 10; key++) {
        choir__view v;
        ok(choir__view_random(&o, path, width, height, key, &v));
        for (size_t f = 0; f < CHOIR_COUNT(fns); f++) {
            if (!choir__cpu_kernels(isas[f]))
                continue;
            choir_check(choir__decoder_open(&work.decoder, path, data, bytes, 1 << 26));
            choir_check(choir__image_render(&work, &o, fns[f], &v, out[f]));
            choir__decoder_close(&work.decoder);
            assert_memory_equal(out[f], out[0], sizeof out[0]);
        }
        for (int y = 0; y < TALL; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    int ox = v.left + (v.flip ? SIDE - 1 - x : x), oy = v.top + y;
                    bool inside = ox >= 0 && ox < v.full_width && oy >= 0 && oy < v.full_height;
                    double want = inside ? slow(whole, width, &v, ox, oy, c) : 0;
                    double got = (double)out[0][3 * (y * SIDE + x) + c];
                    if (fabs(got - want) > 2e-4)
                        fail_msg("%s, key %d, (%d, %d, %d): %g, not %g", path, (int)key, x, y,
                            c, got, want);
                }
    }
    choir__image_work_free(&work);
    free(whole);
    free(data);
}

static void views(void **state)
{
    write_jpeg(new_at("k/a.jpg"), 131, 97, photo);
    write_jpeg(new_at("k/b.jpg"), 40, 131, (jpeg_kind){JCS_RGB, false, true, 80});
    write_jpeg(new_at("k/c.jpg"), 70, 65, (jpeg_kind){JCS_CMYK, false, false, 80});
    write_png(new_at("k/d.png"), 50, 33, PNG_COLOR_TYPE_RGB, 8, false);
    write_png(new_at("k/e.png"), 33, 50, PNG_COLOR_TYPE_RGB, 8, true);
    for (choir_crop crop = CHOIR_CROP_RESIZED; crop <= CHOIR_CROP_CENTER; crop++) {
        check_views(new_at("k/a.jpg"), 131, 97, crop);
        check_views(new_at("k/b.jpg"), 40, 131, crop);
        check_views(new_at("k/c.jpg"), 70, 65, crop);
        check_views(new_at("k/d.png"), 50, 33, crop);
        check_views(new_at("k/e.png"), 33, 50, crop);
    }
}

/* An image that is decoded at a fraction of its size looks nearly the same. */
static void shrunk(void **state)
{
    enum { SIDE = 20 };
    float out[2][SIDE * SIDE * 3];
    choir__image_work work = {0};
    char *data;
    size_t bytes;
    write_jpeg(new_at("k/big.jpg"), 403, 299, photo);
    ok(choir__read_file(new_at("k/big.jpg"), 0, &data, &bytes));
    for (uint64_t key = 1; key < 20; key++) {
        choir_image_opts o = plain(SIDE, SIDE, CHOIR_CROP_RESIZED);
        for (int s = 0; s < 2; s++) {
            choir__view v;
            o.dct_scaling = s;
            choir_check(choir__decoder_open(&work.decoder, "big", data, bytes, 1 << 26));
            choir_check(choir__view_random(&o, "big", 403, 299, key, &v));
            choir_check(choir__image_render(&work, &o, choir__resample_find(), &v, out[s]));
            choir__decoder_close(&work.decoder);
        }
        double off = 0;
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            off += fabs((double)(out[0][i] - out[1][i])) / (SIDE * SIDE * 3);
        assert_true(off < 4);
    }
    choir__image_work_free(&work);
    free(data);
}

/* --- broken files --- */

static choir_status read_as(const char *path, const void *data, size_t bytes, choir_crop crop)
{
    choir__image_work work = {0};
    choir_image_opts o = plain(16, 16, crop);
    float out[16 * 16 * 3];
    choir__view v;
    choir__decoder *d = &work.decoder;
    choir_status status = choir__decoder_open(d, path, data, bytes, 1 << 20);
    if (status == CHOIR_OK)
        status = choir__view_random(&o, path, d->width, d->height, 1, &v);
    if (status == CHOIR_OK)
        status = choir__image_render(&work, &o, choir__resample_find(), &v, out);
    choir__decoder_close(d);
    choir__image_work_free(&work);
    return status;
}

/* A file that is cut off anywhere gives an error that names it, whichever part of it is
 * requested. */
static void cut_short(void **state)
{
    write_jpeg(new_at("k/j.jpg"), 64, 64, photo);
    write_png(new_at("k/p.png"), 64, 64, PNG_COLOR_TYPE_RGB, 8, false);
    const char *names[] = {"k/j.jpg", "k/p.png"};
    for (int n = 0; n < 2; n++) {
        char *data;
        size_t bytes;
        ok(choir__read_file(new_at(names[n]), 0, &data, &bytes));
        ok(read_as("whole", data, bytes, CHOIR_CROP_RESIZED));
        for (size_t cut = 0; cut + 6 < bytes; cut += 1 + cut / 40) { /* PNG: its last sum */
            uint8_t *part = malloc(cut + 1); /* its exact size, for the sanitizer */
            memcpy(part, data, cut);
            choir_status status = read_as("some.file", part, cut, CHOIR_CROP_RESIZED);
            free(part);
            assert_fails(status, CHOIR_ERR_FORMAT, "some.file");
        }
        free(data);
    }
}

static void damaged(void **state)
{
    char *data;
    size_t bytes;
    write_jpeg(new_at("k/j.jpg"), 64, 64, photo);
    ok(choir__read_file(new_at("k/j.jpg"), 0, &data, &bytes));
    for (size_t i = 0; i + 8 < bytes; i++) /* the frame: FF C0 length 8 height width */
        if ((uint8_t)data[i] == 0xFF && (uint8_t)data[i + 1] == 0xC0) {
            data[i + 5] = 3; /* 832 rows are promised */
            assert_fails(read_as("tall.jpg", data, bytes, CHOIR_CROP_CENTER), CHOIR_ERR_FORMAT,
                "tall.jpg");
            data[i + 5] = (char)0xFF, data[i + 7] = (char)0xFF;
            assert_fails(read_as("bomb.jpg", data, bytes, CHOIR_CROP_CENTER), CHOIR_ERR_FORMAT,
                "bomb.jpg says it has 65344 x 65344 pixels, more than the 1048576");
        }
    free(data);
    write_png(new_at("k/p.png"), 64, 64, PNG_COLOR_TYPE_RGB, 8, false);
    ok(choir__read_file(new_at("k/p.png"), 0, &data, &bytes));
    data[bytes / 2] ^= 0x55;
    assert_fails(
        read_as("bad.png", data, bytes, CHOIR_CROP_CENTER), CHOIR_ERR_FORMAT, "bad.png");
    free(data);
    assert_fails(read_as("a.jpg", "hello world", 11, CHOIR_CROP_CENTER), CHOIR_ERR_FORMAT,
        "a.jpg: expected a JPEG or PNG, got a file that begins with hello wo");
    assert_fails(
        read_as("a.jpg", "", 0, CHOIR_CROP_CENTER), CHOIR_ERR_FORMAT, "got an empty file");
}

/* A progressive grey image of 248 x 248 pixels, all of whose scans say that nothing follows. */
static size_t many_scans(uint8_t *to, int scans)
{
    static const uint8_t table[] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0},
                         frame[] = {0xff, 0xc2, 0, 11, 8, 0, 248, 0, 248, 1, 1, 0x11, 0},
                         code[] = {0xff, 0xc4, 0, 20, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                             0, 0, 0, 0, 0xe0},
                         scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, 1, 1, 0, 0, 1},
                         end[] = {0xff, 0xd9};
    uint8_t *at = mempcpy(to, table, sizeof table);
    memset(at, 1, 64);
    at = mempcpy(mempcpy(at + 64, frame, sizeof frame), code, sizeof code);
    for (int i = 0; i < scans; i++)
        at = mempcpy(at, scan, sizeof scan);
    at = mempcpy(at, end, sizeof end);
    return (size_t)(at - to);
}

/* Scans cost a pass over the image each, so they must have bytes. */
static void scans(void **state)
{
    static uint8_t data[4096];
    choir__decoder d = {0};
    choir__pixels pixels;
    choir__image_region all = {0, 0, 248, 248};
    size_t bytes = many_scans(data, 30);
    choir_check(choir__decoder_open(&d, "few.jpg", (char *)data, bytes, 1 << 20));
    choir_check(choir__decoder_read(&d, all, 1, &pixels));
    choir__decoder_close(&d);
    bytes = many_scans(data, 100);
    choir_check(choir__decoder_open(&d, "many.jpg", (char *)data, bytes, 1 << 20));
    assert_fails(choir__decoder_read(&d, all, 1, &pixels), CHOIR_ERR_FORMAT,
        "of 248 x 248 pixels in 1308 bytes, with");
    choir__decoder_close(&d);
    choir__decoder_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpegs),
        cmocka_unit_test(pngs),
        cmocka_unit_test(views),
        cmocka_unit_test(shrunk),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(damaged),
        cmocka_unit_test(scans),
    };
    return cmocka_run_group_tests_name("image", tests, make_folder, remove_all);
}
