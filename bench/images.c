/* Images a second of CPU time, from files to normalised samples, and where the time goes.
 *
 *     choir_bench_images FOLDER [SIZE [EPOCHS [MODE]]]     MODE: train (default) or val
 *
 * One thread, files in memory after the first epoch. The parts are measured apart: reading the
 * file and its header, decoding the part of it that the crop needs, all of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <choir/choir.h>
#include "base/rng.h"
#include "data/transform.h"

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The least time of `epochs` through the dataset, in ms an image. */
static double through(choir_dataset *data, int epochs, float *x)
{
    double best = 1e30;
    int64_t y, n = choir_dataset_length(data);
    for (int e = 0; e < epochs; e++) {
        double start = cpu_now();
        for (int64_t i = 0; i < n; i++)
            choir_check(choir_dataset_get_epoch(data, e, i, x, &y));
        double took = 1e3 * (cpu_now() - start) / (double)n;
        if (e > 0 && took < best) /* the first one reads the disk */
            best = took;
    }
    return best;
}

int main(int argc, char **argv)
{
    int size = argc > 2 ? atoi(argv[2]) : 224, epochs = argc > 3 ? atoi(argv[3]) : 10;
    bool train = argc <= 4 || strcmp(argv[4], "val");
    if (argc < 2 || size < 1 || epochs < 2) {
        fprintf(stderr, "usage: choir_bench_images FOLDER [SIZE [EPOCHS [train|val]]]\n");
        return 2;
    }
    float *x = malloc((size_t)size * (size_t)size * 3 * sizeof *x);
    choir_image_opts o = choir_image_defaults();
    o.height = o.width = size;
    o.crop = CHOIR_CROP_RESIZED;
    for (int exact = 0; exact < 2; exact++) {
        choir_dataset *data;
        o.dct_scaling = !exact;
        choir_check(
            choir_dataset_images(argv[1], train ? CHOIR_TRAIN : CHOIR_VALIDATION, o, &data));
        double ms = through(data, epochs, x);
        printf("%-6s %s  %.3f ms an image, %.0f images a second of CPU time\n",
            train ? "train" : "val", exact ? "decoded in full size" : "with JPEG scaling   ",
            ms, 1e3 / ms);
        choir_dataset_free(data);
    }
    free(x);
    return 0;
}
