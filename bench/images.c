/* Measures the CPU time per image, from files to normalised samples, and its parts.
 *
 *     choir_bench_images FOLDER [SIZE [EPOCHS]]                      FOLDER/train/CLASS/FILE
 *
 * One thread; the minimum of the epochs, without the first, which reads the disk. The output
 * has one line each, "name milliseconds-per-image":
 *
 *     train, train_exact     random resized crop, flip, normalise; without JPEG scaling
 *     val                    resize, centre, normalise
 *     open, decode, rest     parts of `train`: the file and its header; the pixels; resampling,
 *                            mirroring and normalising */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <choir/choir.h>
#include "base/rng.h"
#include "data/images/transform.h"

typedef struct bench {
    glob_t files;
    choir_image_opts opts;
    choir__image_work work;
    float *x;
} bench;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void no_resample(const choir__resample *args)
{
    (void)args;
}

/* One file; fn NULL: opened only. */
static void one(bench *b, const char *path, choir__resample_fn *fn, bool train, uint64_t key)
{
    char *data;
    size_t bytes;
    choir__view view;
    choir__decoder *d = &b->work.decoder;
    choir_check(choir__read_file(path, 0, &data, &bytes));
    choir_check(choir__decoder_open(d, path, data, bytes, b->opts.max_pixels));
    if (train)
        choir_check(choir__view_random(&b->opts, path, d->width, d->height, key, &view));
    else
        view = choir__view_center(&b->opts, d->width, d->height);
    if (fn)
        choir_check(choir__image_render(&b->work, &b->opts, fn, &view, b->x));
    choir__decoder_close(d);
    free(data);
}

static double measure(bench *b, int epochs, choir__resample_fn *fn, bool train)
{
    double best = 1e30;
    for (int e = 0; e <= epochs; e++) {
        double start = cpu_now();
        for (size_t i = 0; i < b->files.gl_pathc; i++)
            one(b, b->files.gl_pathv[i], fn, train, choir__mix((uint64_t)e, i));
        double took = 1e3 * (cpu_now() - start) / (double)b->files.gl_pathc;
        if (e && took < best)
            best = took;
    }
    return best;
}

int main(int argc, char **argv)
{
    bench b = {.opts = choir_image_defaults()};
    int size = argc > 2 ? atoi(argv[2]) : 224, epochs = argc > 3 ? atoi(argv[3]) : 10;
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/train/*/*", argc > 1 ? argv[1] : "");
    if (argc < 2 || size < 1 || epochs < 1 || glob(pattern, 0, NULL, &b.files) != 0) {
        fprintf(stderr, "usage: choir_bench_images FOLDER [SIZE [EPOCHS]]\n");
        return 2;
    }
    b.opts.height = b.opts.width = size;
    b.opts.crop = CHOIR_CROP_RESIZED;
    b.x = malloc((size_t)size * (size_t)size * 3 * sizeof *b.x);
    choir__resample_fn *fn = choir__resample_find();
    double train = measure(&b, epochs, fn, true), open = measure(&b, epochs, NULL, true);
    double decoded = measure(&b, epochs, no_resample, true);
    printf("train %.3f\n", train);
    b.opts.dct_scaling = false;
    printf("train_exact %.3f\n", measure(&b, epochs, fn, true));
    b.opts.dct_scaling = true;
    printf("val %.3f\n", measure(&b, epochs, fn, false));
    printf("open %.3f\ndecode %.3f\nrest %.3f\n", open, decoded - open, train - decoded);
    choir__image_work_free(&b.work);
    globfree(&b.files);
    free(b.x);
    return 0;
}
