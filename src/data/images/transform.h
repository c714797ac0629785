/* Choice of an image's part for a sample, and its transformation to the sample. */
#ifndef CHOIR_TRANSFORM_H
#define CHOIR_TRANSFORM_H

#include <pthread.h>
#include "data/images/image.h"
#include "data/images/resample.h"

/* A box of the image is resized to full_width x full_height. The sample is the window of the
 * result at (left, top), black where it extends beyond. */
typedef struct choir__view {
    choir__image_region box;
    int full_width, full_height, left, top;
    bool flip;
} choir__view;

/* Checks that samples can be made with these options. Error: argument, naming the value. */
choir_status choir__image_opts_check(const choir_image_opts *opts);

/* Return the view for training (random numbers keyed by `key`), or for validation. name: the
 * file's name, for messages. Error: format (too small for its crop). */
choir_status choir__view_random(const choir_image_opts *opts, const char *name, int width,
    int height, uint64_t key, choir__view *view);
choir__view choir__view_center(const choir_image_opts *opts, int width, int height);
/* Returns the view of the whole image, as large as fits, centered on black. */
choir__view choir__view_whole(const choir_image_opts *opts, int width, int height);

/* Buffers that are reused for one image after another; zeroed at first. Only one thread at a
 * time may use them. */
typedef struct choir__image_work {
    choir__decoder decoder;
    choir__axis y, x;
    size_t y_room, x_room; /* weights that fit */
    float *row;
    size_t row_room;
    struct choir__image_work *next; /* the next idle work */
} choir__image_work;

/* Buffers of a dataset that several threads may call: each takes some and puts them back. */
typedef struct choir__image_works {
    pthread_mutex_t lock;
    choir__image_work *idle;
} choir__image_works;

void choir__image_works_init(choir__image_works *works);
void choir__image_works_free(choir__image_works *works);
choir__image_work *choir__image_work_take(choir__image_works *works);
void choir__image_work_put(choir__image_works *works, choir__image_work *work);

/* Renders the open image's view as floats, (opts->height, opts->width, 3). Errors: format,
 * memory. */
choir_status choir__image_render(choir__image_work *work, const choir_image_opts *opts,
    choir__resample_fn *resample, const choir__view *view, float *out);
void choir__image_work_free(choir__image_work *work);

/* Returns the settings for transformers, as JSON, of samples (C, H, W) whose image's shorter
 * side was resized to `resize` before the centre was cut out; the caller frees it
 * (processor.c). */
char *choir__image_processor(const choir_image_opts *opts, choir_shape sample, int64_t resize);

/* --- files: image_files.c --- */

/* Reads a file and renders its view for training, if `random` is a key of random numbers, or
 * for validation, if it is NULL. Errors: io, errors of the view and of rendering. */
choir_status choir__image_file(choir__image_work *work, const choir_image_opts *opts,
    choir__resample_fn *resample, const char *path, const uint64_t *random, float *out);

/* Like choir__image_file, with the bytes of a file. */
choir_status choir__image_data(choir__image_work *work, const choir_image_opts *opts,
    choir__resample_fn *resample, const char *name, const char *data, size_t bytes,
    const uint64_t *random, float *out);

/* Returns the shorter side to which validation resizes an image before it cuts the centre out;
 * 0: it cannot be read. */
int64_t choir__image_resize(
    const choir_image_opts *opts, const char *name, const char *data, size_t bytes);

/* Like choir__image_opts_settle, with the bytes of the first image. */
choir_status choir__image_opts_settle_data(
    choir_image_opts *opts, const char *name, const char *data, size_t bytes);

/* Sets the options that depend on the first image, unless they are set; first NULL: no image.
 * of: for messages. Errors: io, format, argument. */
choir_status choir__image_opts_settle(
    choir_image_opts *opts, const char *first, const char *of);

#endif
