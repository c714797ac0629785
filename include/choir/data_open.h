/* Data by path: programs can open the data that `choir train DATA` opens.
 *
 *     "random"                            samples of the shape that the model expects
 *     a folder with a metadata.jsonl      images with JSON          (choir_dataset_documents)
 *     a folder of class folders           images with a class each  (choir_dataset_images)
 *     a folder of IDX files               images with a class each  (choir_dataset_idx)
 *     a .tar, or NAME-{000..010}.tar,     images with a class each  (choir_dataset_shards)
 *       or a folder of tars
 *     a .jsonl, .csv, .tsv or .parquet    texts or words with a class each
 *       file, or a folder with train.jsonl etc.                     (choir_dataset_labelled)
 *                                         documents, pairs, chats   (choir_dataset_corpus)
 *     a file of token ids                 windows of the ids        (choir_dataset_tokens)
 *     a text file                         windows of its tokens     (choir_dataset_text)
 *     NULL                                the text that comes with Choir
 *     "a.jsonl:weight=0.7+b.txt:weight=0.3"   a mixture             (choir_dataset_mixed)
 *     "DIR:part=0.1", "a.jsonl:first=1000",
 *       "a.csv:every=3"                   a part of the samples     (choir_dataset_subset)
 *
 * The meaning of a path also depends on the model's description: images with JSON are for
 * IMAGE_TO_TEXT, images with classes for CLASSIFICATION, labelled texts for CLASSIFICATION by
 * models that read tokens; documents, token ids and texts are for LANGUAGE. Models that predict
 * masked tokens get masked tokens.
 *
 *     choir_data_opts opts = choir_data_defaults();
 *     choir_check(choir_model_data("gpt2:layers=4", path, opts, &info, &data));
 *     choir_module *net = choir_model_build(run, &info);
 *     choir_loader *batches = choir_env_loader(run, &env, data.train, 32);
 *
 * Threads: any, one at a time. Collective: no; every rank opens the same data. */
#ifndef CHOIR_DATA_OPEN_H
#define CHOIR_DATA_OPEN_H

#include <choir/data.h>
#include <choir/model_info.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The training and validation splits of the data. */
typedef struct choir_data {
    choir_dataset *train, *validation;
    choir_tokenizer *tokenizer; /* tokenizer of texts and documents; NULL: the data are ids, or
                                   have no tokens */
} choir_data;

typedef struct choir_data_opts {
    /* tokenizer for texts and documents; choir_data takes ownership. NULL: the text's
     * characters are the tokens, unless needs_tokenizer */
    choir_tokenizer *tokenizer;
    uint64_t seed; /* seed of random samples, masks and image crops; default 42 */
    /* number of samples of "random"; default 65536 and 128 */
    int64_t random_train, random_valid;
    /* true: a text without a tokenizer is an error; false: its characters become the tokens.
     * Set it for weights that were trained before, because their ids belong to a tokenizer. */
    bool needs_tokenizer;
    /* the model's classes, to which labels are mapped; an unknown name is an error; NULL (the
     * default): the data's own classes */
    const choir_class_names *classes;
    /* augmentation of training images (choir_augment_parse); NULL (the default): none */
    const char *augment;
    /* true: mixtures of images are of all classes equally often, for a loader with
     * choir_dataset_class_weights; default false */
    bool balance;
    /* true: documents of one sample do not see one another (choir_corpus_opts.apart); default
     * false */
    bool pack;
    /* for data without a validation split: the share that is held out for validation (the end
     * of a text, or one of every n records or files); 0 (the default): a tenth; 1: all. Data
     * that have a validation split keep it, and its held_out is false. */
    double held_out;
    /* how images with a class are prepared; their size, seed, classes and held_out follow from
     * the model and these options; NULL (the default): choir_image_defaults() */
    const choir_image_opts *images;
    /* names of the columns of documents (choir_corpus_opts.columns); NULL (the
     * default): as documented there */
    const char *columns;
} choir_data_opts;

choir_data_opts choir_data_defaults(void);

/**
 * Opens the data for a model given by name, and describes the model for the data in *info,
 * which choir_model_build takes. The model determines the length of a text or the size of an
 * image; the data determines the number of tokens or classes. Images have the size that the
 * model's text names ("image=64") or that the model defines, otherwise the size of the first
 * image.
 *
 * Errors: as choir_model_describe and choir_dataset_open. On failure *data is empty,
 * and the tokenizer of opts is freed.
 */
CHOIR_CHECKED choir_status choir_model_data(const char *model, const char *path,
    choir_data_opts opts, choir_model_info *info, choir_data *data);

/** Frees the data. The runs that read it must be closed first. data may be NULL. */
void choir_data_free(choir_data *data);

/**
 * Opens one split of the data. info describes the samples that the model expects; an input
 * without dimensions takes the shape of the data. *tokenizer is used as by choir_dataset_text
 * and choir_dataset_documents; opts.tokenizer is ignored. Errors: argument (the task has no
 * data of this kind), and as the dataset's constructor.
 */
CHOIR_CHECKED choir_status choir_dataset_open(const char *path, choir_split split,
    choir_data_opts opts, const choir_model_info *info, choir_tokenizer **tokenizer,
    choir_dataset **dataset);

/**
 * Stores the SHA-256 of the data that choir_dataset_open would read, in hex, so that a resumed
 * training notices changed data; "" for "random". For a file it equals the output of sha256sum;
 * for a folder it covers the names and contents of the files that belong to the data. If the
 * data exceed 256 MiB, it covers a part: for a file, its size and 256 evenly spread MiB; for a
 * folder, the names and sizes of its files. Errors: io.
 */
CHOIR_CHECKED choir_status choir_data_sha256(
    const char *path, const choir_model_info *info, char hex[65]);

/** Returns whether a language model reads documents from the path, so that choir_data_opts.pack
 * can keep them apart. True if all sources of the path are .jsonl, .csv, .tsv or .parquet
 * files, or folders of such files. */
bool choir_data_has_documents(const char *path);

/** Checks that an existing model can be run on the dataset: samples have the model's input
 * shape, and the model has all ids and classes. path is for messages. Errors: shape, range. */
CHOIR_CHECKED choir_status choir_dataset_fits(
    const choir_dataset *dataset, const char *path, const choir_model_info *info);

#ifdef __cplusplus
}
#endif
#endif
