/* Data by its name: programs open the data that `choir train DATA` opens.
 *
 *     "random"                            samples of the shape that the model wants
 *     a folder with a metadata.jsonl      images with JSON          (choir_dataset_documents)
 *     a folder of class folders           images with a class each  (choir_dataset_images)
 *     a folder of IDX files               the same                  (choir_dataset_idx)
 *     a file of token ids                 windows of it             (choir_dataset_tokens)
 *     a text file                         the same of its tokens    (choir_dataset_text)
 *     NULL                                the text that comes with Choir
 *
 * What a path means depends also on the model's description: documents are for IMAGE_TO_TEXT,
 * images for CLASSIFICATION, tokens and texts for LANGUAGE; models that say what is behind a
 * mask get their tokens masked.
 *
 *     choir_check(choir_model_data("gpt2:layers=4", path, choir_data_defaults(), &info,
 * &data)); choir_module *net = choir_model_build(run, &info); choir_loader *batches =
 * choir_env_loader(run, &env, data.train, 32);
 *
 * Threads: any, one at a time. Collective: no; every rank opens the same data. */
#ifndef CHOIR_DATA_OPEN_H
#define CHOIR_DATA_OPEN_H

#include <choir/data.h>
#include <choir/model_info.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Both splits of a set of data. */
typedef struct choir_data {
    choir_dataset *train, *validation;
    choir_tokenizer *tokenizer; /* of texts and documents; NULL: ids alone, or no tokens */
} choir_data;

typedef struct choir_data_opts {
    choir_tokenizer *tokenizer;         /* for texts and documents, which choir_data then owns;
                                           NULL: the characters of the text */
    uint64_t seed;                      /* of random samples, masks and cut images; 42 */
    int64_t random_train, random_valid; /* samples of "random"; 65536 and 128 */
} choir_data_opts;

choir_data_opts choir_data_defaults(void);

/**
 * Opens the data for a model given by name, and describes the model for the data: *info is what
 * choir_model_build takes. The model says how long a text is, or how large an image; the data,
 * how many tokens or classes there are. Images have the size that the model names ("image=64")
 * or has, else that of the first image.
 *
 * Errors: those of choir_model_describe and of choir_dataset_open. On failure *data is empty,
 * and the tokenizer of opts is freed.
 */
choir_status choir_model_data(const char *model, const char *path, choir_data_opts opts,
    choir_model_info *info, choir_data *data);
void choir_data_free(choir_data *data); /* after the runs that read it; NULL is fine */

/**
 * Opens one split of the data. info: what the model wants of a sample; an input of no
 * dimensions takes the data's own. *tokenizer as choir_dataset_text and choir_dataset_documents
 * take and leave it; opts.tokenizer is not looked at. Errors: argument (no data of this kind
 * for this task), and those of the dataset's own constructor.
 */
choir_status choir_dataset_open(const char *path, choir_split split, choir_data_opts opts,
    const choir_model_info *info, choir_tokenizer **tokenizer, choir_dataset **dataset);

/** Checks that a model that is there can be run on the dataset: that samples have its shape,
 * and ids and classes are among its own. path is for messages. Errors: shape, range. */
choir_status choir_dataset_fits(
    const choir_dataset *dataset, const char *path, const choir_model_info *info);

#ifdef __cplusplus
}
#endif
#endif
