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

/** The kind of learning, which determines the targets and the loss. */
typedef enum choir_task {
    CHOIR_REGRESSION,     /* y: numbers of the output's shape; mean squared error */
    CHOIR_CLASSIFICATION, /* y: a class id per sample, or per word; cross entropy */
    CHOIR_LANGUAGE,       /* x, y: tokens, a target per token; cross entropy */
    CHOIR_IMAGE_TO_TEXT   /* x: an image, y: tokens; cross entropy */
} choir_task;

/** Entries that are 0 are open: the model or the data fills them in. */
typedef struct choir_model_info {
    choir_task task;
    choir_shape input; /* of one sample; LANGUAGE: (context) */
    /* of one sample's target; REGRESSION, IMAGE_TO_TEXT, and CLASSIFICATION of words:
     * (context) */
    choir_shape output;
    int64_t classes;    /* or the size of the vocabulary */
    int64_t items;      /* items per sample: tokens, or steps of a sequence; else 1 */
    bool random;        /* the data is random, of the shape that the model expects */
    int64_t vocab;      /* samples are ids below this, if it differs from classes; or 0 */
    bool masked;        /* LANGUAGE: targets are the masked tokens, not the next ones */
    bool packs;         /* LANGUAGE: the model takes documents and positions, too */
    bool padded;        /* some targets are CHOIR_IGNORED: padding, or prompts */
    int64_t pad, start; /* IMAGE_TO_TEXT: ids of these tokens; both 0: not known yet */
    /* images of IDX files: x = (pixel/255 - mean) / deviation of the training images */
    double pixel_mean, pixel_deviation;
    char config[512]; /* the model in full, "gpt2:layers=4,..."; saved in checkpoints */
} choir_model_info;

/** Names of classes, by class. */
typedef struct choir_class_names {
    char **name;   /* (count) */
    int64_t count; /* 0: the classes have no names */
} choir_class_names;

/** Frees the names, and leaves none. */
void choir_class_names_free(choir_class_names *names);

#ifdef __cplusplus
}
#endif
#endif
