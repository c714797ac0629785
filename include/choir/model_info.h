/* The description of a model's data: one sample, its target, and the loss. A model fills in a
 * description of itself (choir_model_describe), the data fills in the entries that the model
 * left open (choir_model_data), and evaluation and checkpoints use the result.
 *
 * Threads: plain data. */
#ifndef CHOIR_MODEL_INFO_H
#define CHOIR_MODEL_INFO_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_MODEL_TEXT = 2048 }; /* bytes of a model's text with all of its options */

/** The kind of learning, which determines the targets and the loss. */
typedef enum choir_task {
    CHOIR_REGRESSION,     /* y: numbers in the output's shape; mean squared error */
    CHOIR_CLASSIFICATION, /* y: a class id per sample, or per word; cross entropy */
    CHOIR_LANGUAGE,       /* x, y: tokens, a target per token; cross entropy */
    CHOIR_IMAGE_TO_TEXT,  /* x: an image, y: tokens; cross entropy */
    CHOIR_MULTI_LABEL /* y: 1 for each class that a sample has and 0 for others, in the output's
                       * shape; binary cross entropy of each class */
} choir_task;

/** Returns whether samples have classes, with names: CLASSIFICATION and MULTI_LABEL. */
bool choir_task_has_classes(choir_task task);
/** Returns whether targets are ids of classes or tokens, one each, i64: all tasks but
 * REGRESSION and MULTI_LABEL, whose targets are f32. */
bool choir_task_has_ids(choir_task task);

/** The model or the data fills in the entries that are 0. */
typedef struct choir_model_info {
    choir_task task;
    choir_shape input; /* shape of one sample; LANGUAGE: (context) */
    /* shape of one sample's target, for REGRESSION and MULTI_LABEL; (context) for IMAGE_TO_TEXT
     * and for CLASSIFICATION of words */
    choir_shape output;
    int64_t classes;    /* number of classes, or of tokens in the vocabulary */
    int64_t items;      /* tokens per sample, or steps of a sequence; else 1 */
    bool random;        /* data are random, in the shape that the model expects */
    int64_t vocab;      /* samples are ids below this; 0: as classes, or no ids */
    bool masked;        /* LANGUAGE: targets are the masked tokens, not the next ones */
    bool packs;         /* LANGUAGE: the model also takes documents and positions */
    bool endless;       /* LANGUAGE: texts may be longer than the context: recurrent models */
    bool padded;        /* some targets are CHOIR_IGNORED: padding, or prompts */
    int64_t pad, start; /* IMAGE_TO_TEXT: ids of these tokens; both 0: unknown */
    /* images of IDX files: x = (pixel/255 - mean) / deviation of the training images */
    double pixel_mean, pixel_deviation;
    /* the shorter side to which validation resizes an image before it cuts the centre out, as
     * of the first image; 0: unknown */
    int64_t pixel_resize;
    char config[CHOIR_MODEL_TEXT]; /* model with all options, "gpt2:layers=4,..."; in
                                      checkpoints */
} choir_model_info;

/** Names of classes, by class. */
typedef struct choir_class_names {
    char **name;   /* (count) */
    int64_t count; /* 0: the classes have no names */
} choir_class_names;

/** Frees the names and leaves an empty list. */
void choir_class_names_free(choir_class_names *names);

#ifdef __cplusplus
}
#endif
#endif
