/* Shared by the files of data/: reading whole files, sizes of samples, kinds of files. */
#ifndef CHOIR_DATASET_INTERNAL_H
#define CHOIR_DATASET_INTERNAL_H

#include <choir/data.h>
#include "base/base.h"

/* Reads a whole file of at most `limit` bytes and appends a '\0'; the caller frees *data. Only
 * a regular file is read, since others have no size and may never end. limit 0: a file of any
 * size, or a pipe, which a user has named as data. Errors: io (naming the path and the reason),
 * format (too large), memory. */
choir_status choir__read_file(const char *path, size_t limit, char **data, size_t *bytes);

/* Like choir_dataset_get_epoch, with an error that names the sample. */
choir_status choir__dataset_get_named(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y);

/* Computes the bytes of `count` samples. Errors: dtype, shape. what: "x" or "y", for
 * messages. */
choir_status choir__sample_bytes(
    const char *what, choir_dtype dtype, choir_shape shape, int64_t count, size_t *bytes);

/* Gives the loader other micro-batches of each step, and the position before `step`. Between
 * steps only. Error: argument. */
choir_status choir__loader_deal(
    choir_loader *loader, int64_t first, int64_t count, int64_t step);
/* Gives the loader another list of batches that are left out (choir_loader_opts.skip_batches).
 * Between steps only. Error: argument. */
choir_status choir__loader_skip(choir_loader *loader, const char *batches);
/* Returns the options that a loader was made with, micro_count filled in, without the caller's
 * arrays and texts. */
const choir_loader_opts *choir__loader_opts(const choir_loader *loader);

/* Returns the bytes of host memory in which a loader keeps samples ready. */
size_t choir__loader_staged(const choir_loader *loader);

/* A loader's notes on a micro-batch that it has handed out while it was watched. */
typedef struct choir__seen_batch {
    int64_t count;           /* samples; 0: it was not handed out */
    uint64_t samples, bytes; /* hashes of the samples' numbers and epoch, and of all elements */
    void *data[2];           /* x and y, row by row as in memory; NULL: they are not kept */
} choir__seen_batch;

typedef struct choir__seen_step {
    choir__seen_batch *list; /* (count) micro-batches of a step */
    int64_t count;
    choir_dtype dtype[2]; /* dtypes and shapes of x and y in a micro-batch */
    choir_shape shape[2];
    bool keeps, images; /* images: x is channels-last in memory */
} choir__seen_step;

/* The loader begins to hash batches, or stops, and forgets its earlier notes. keeps: it copies
 * the elements, too. NULL is fine. */
void choir__loader_watch(choir_loader *loader, bool on, bool keeps);
/* Returns the notes, or NULL: the loader was never watched. */
const choir__seen_step *choir__loader_seen(const choir_loader *loader);

/* Returns an error that states where a text stops being UTF-8. name: name of the text; NULL:
 * unknown. */
choir_status choir__not_utf8(const char *name, const char *text, const char *at);

/* Returns whether a file holds token ids instead of text, by its first bytes or a name that
 * ends in .bin. */
bool choir__is_token_file(const char *path);

/* Returns the first names as "a, b, c", for a message; the caller frees it. */
char *choir__class_names_list(const choir_class_names *names);

/* Returns whether a file is taken for an image, by its name. */
bool choir__is_image_name(const char *name);

/* Like choir_dataset_text, choir_dataset_tokens and choir_dataset_idx. held: the share of the
 * samples for validation (choir__holdout_check). pixel_deviation 0: the training split's pixels
 * normalise the pixels of IDX files. */
choir_status choir__dataset_text(const char *path, int64_t context, choir_split split,
    double held, choir_tokenizer **tokenizer, choir_dataset **dataset);
choir_status choir__dataset_tokens(const char *path, int64_t context, choir_split split,
    double held, int64_t vocabulary, choir_dataset **dataset);
choir_status choir__dataset_idx(const char *folder, choir_split split, double held,
    double pixel_mean, double pixel_deviation, choir_dataset **dataset);

/* Stores the mean and deviation that normalise the pixels of a folder of IDX files; stores
 * nothing for other datasets. */
void choir__idx_brightness(
    const choir_dataset *dataset, double *pixel_mean, double *pixel_deviation);

/* Returns the shorter side to which a dataset of images in folders or tars, without random
 * changes, resizes its first image before it cuts the centre out; 0: unknown, or other data. */
int64_t choir__folder_resize(const choir_dataset *dataset);
int64_t choir__shards_resize(const choir_dataset *dataset);

/* Checks that a split holds at least one window. other: tokens of the other split, which needs
 * one, too. Error: argument, with a context that suits both. */
choir_status choir__check_split(
    const char *name, const char *split, int64_t tokens, int64_t other, int64_t context);
/* Checks both splits of a source of `tokens`; of one that is all for validation, that alone. */
choir_status choir__check_splits(
    const char *name, int64_t tokens, choir_split split, double held, int64_t context);

/* Which samples are for validation, of data that have no validation split of their own: the
 * last ones of text, and one of each group of records or files of a class that follow one
 * another. Its place in the group is random, but always the same: every n-th record of a file
 * whose labels take turns would be of one class. The first sample is never held out.
 *
 * A class with two samples or more from which none would be chosen gives its second one, so
 * that validation has all classes. Where classes are mixed in a file, that is known at its end:
 * until then both splits keep the second sample of such a class. */

/* A part is a share of the samples, such as 0.2; 0: a tenth, the default. choir__holdout_check
 * returns an error for a part outside [0, 1]; 1: all. Error: argument. */
choir_status choir__holdout_check(const char *name, double part);

/* Returns whether the sample is for validation: with a part of 0.1, one of
 * 0-9, one of 10-19, ... */
bool choir__is_held(double part, int64_t sample);

/* Returns whether a class's sample is for validation; count: the samples of the class, which
 * are counted by themselves. */
bool choir__is_held_of_class(double part, int64_t sample, int64_t count);

typedef struct choir__holdout_class {
    int64_t samples, held;
    int64_t second; /* the place of its second sample among those kept; -1: it needs none */
} choir__holdout_class;

/* The counts of each class, while a split reads its data. */
typedef struct choir__holdout_classes {
    choir__holdout_class *of; /* (count) */
    int64_t count;
} choir__holdout_classes;

/* Notes the next sample of a class. held: result of choir__is_held; kept: number of samples
 * that the split has kept before. Returns whether it keeps this one. */
bool choir__holdout_classes_note(
    choir__holdout_classes *classes, int64_t class, bool held, bool training, int64_t kept);

/* Ends and frees the notes; returns, of each of the samples that were kept (kept), whether the
 * split drops it after all. The caller frees the array. */
bool *choir__holdout_classes_end(choir__holdout_classes *classes, bool training, int64_t kept);

/* Returns how many of `count` tokens or samples are for training, rounded down, if the last
 * ones are for validation. */
int64_t choir__training_part(double part, int64_t count);

#endif
