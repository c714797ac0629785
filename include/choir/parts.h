/* Samples with named parts and unequal lengths: token ids with labels and masks, pairs of
 * texts, images with boxes, signals with transcripts.
 *
 * A dataset declares its parts: a name, a dtype, a shape, in which -1 is a size that differs
 * between samples, and the value that fills a batch where a sample is shorter. A loader pads
 * the samples of a batch to one shape. With length buckets it puts samples of similar length
 * together, so that little is padded; a sample's length is the greatest of its sizes that
 * differ.
 *
 * An epoch is torch.randperm of the samples. Each sample goes to the first bucket that holds
 * it, and B samples of a bucket are a global batch; the rest of a bucket goes to the next
 * larger one. The batches then have an order of their own. Micro-batch m of M of a batch has
 * its samples m B/M, ...; so nothing depends on the ranks, on the number of workers, or on
 * timing.
 *
 * Threads: the loader's workers call a dataset's get, several at the same time if there are
 * several workers; everything else is called from the run's thread. Collective: no; every rank
 * opens its own loader over the same data. */
#ifndef CHOIR_PARTS_H
#define CHOIR_PARTS_H

#include <choir/data.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_MAX_PARTS = 16 };

/** A part of every sample, as a dataset declares it. */
typedef struct choir_part {
    const char *name;  /* unique in the dataset */
    choir_dtype dtype; /* dtype of its values */
    choir_shape shape; /* shape of one sample; -1: differs between samples */
    double padding; /* fills what a sample lacks, such as CHOIR_IGNORED; dtype must hold it */
} choir_part;

typedef struct choir_parts_dataset choir_parts_dataset;

/** The functions of a dataset of parts. */
typedef struct choir_parts_ops {
    int64_t (*length)(const choir_parts_dataset *self);
    /** Replaces the -1 in shape (parts), which has the declared shapes, by the sizes of sample
     * `index`. A loader calls it once for every sample when it is made. NULL: there is no -1.
     */
    choir_status (*sizes)(choir_parts_dataset *self, int64_t index, choir_shape *shape);
    /** Stores sample `index`: the values of each part in part (parts), row-major, in the shapes
     * that `sizes` gave. epoch counts from 0, for samples that differ between epochs. */
    choir_status (*get)(
        choir_parts_dataset *self, int64_t epoch, int64_t index, void *const *part);
} choir_parts_ops;

/** A user's own dataset is a struct whose first member is choir_parts_dataset. */
struct choir_parts_dataset {
    const choir_parts_ops *ops; /* table of its functions */
    const choir_part *part;     /* (count) */
    int count;                  /* number of parts */
};

typedef struct choir_parts_loader choir_parts_loader;

typedef struct choir_parts_opts {
    /* as for choir_loader_new; without drop_last, the last batch is filled with first samples
     * of the epoch. Its weights and skip_batches must be NULL */
    choir_loader_opts loader;
    /* (bucket_count) greatest lengths, rising; copied */
    const int64_t *buckets;
    int bucket_count; /* number of buckets; 0 (the default): see bucket_step */
    /* without buckets: lengths 1 to n, n + 1 to 2n, ... share a bucket each; 0 (the default):
     * one bucket for all samples, whose batches have one shape */
    int64_t bucket_step;
} choir_parts_opts;

choir_parts_opts choir_parts_defaults(void);

/** Makes a loader, which borrows the dataset and is freed when the run closes. Never NULL;
 * errors stick to the run: the errors of choir_loader_new; shape (a sample whose part is
 * missing or has another shape than the declared one) and range (a sample that is longer than
 * the last bucket), with the numbers of the sample and the name of the part; dtype (a padding
 * that a part cannot hold). */
choir_parts_loader *choir_parts_loader_new(
    choir_scope *run, choir_parts_dataset *dataset, choir_parts_opts opts);

/** A micro-batch of samples that have several parts. */
typedef struct choir_parts {
    choir_tensor *part[CHOIR_MAX_PARTS]; /* (B/M, sizes...), padded */
    choir_tensor
        *sizes[CHOIR_MAX_PARTS];   /* i64 (B/M, dimensions): what each sample has of it */
    const choir_parts_dataset *of; /* the loader's dataset */
} choir_parts;

/** Loads this rank's next micro-batch into scope, an open step or micro-batch. A recorded step
 * may do so if all batches have one shape. Errors: state, errors of the dataset's get. */
CHOIR_CHECKED choir_status choir_parts_next(
    choir_parts_loader *loader, choir_scope *scope, choir_parts *batch);

/** Returns a part of the micro-batch by its name. Never NULL: an unknown name is an error of
 * the part's scope (argument), which lists the names. */
choir_tensor *choir_parts_get(const choir_parts *batch, const char *name);
/** Returns bool (B/M, L), true where a sample has an entry of the part's first dimension, of
 * size L in this batch, and false where it was padded. Errors: as choir_parts_get. */
choir_tensor *choir_parts_mask(const choir_parts *batch, const char *name);

/** As choir_loader_position and so on. */
int64_t choir_parts_position(const choir_parts_loader *loader);
void choir_parts_seek(choir_parts_loader *loader, int64_t position);
void choir_parts_seek_step(choir_parts_loader *loader, int64_t step);
/** Returns the number of global batches per epoch. */
int64_t choir_parts_batches(const choir_parts_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
