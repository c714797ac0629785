/* What a model is to the command and to checkpoints: the text "gpt2:layers=4,width=128" becomes
 * a module and what a trainer must know of it. */
#ifndef CHOIR_MODELS_SPEC_H
#define CHOIR_MODELS_SPEC_H

#include <choir/nn.h>

/* What the data looks like; a model fills in what the data leaves open (0), and checks the
 * rest. */
typedef struct choir__model_info {
    enum {
        CHOIR__REGRESSION,
        CHOIR__CLASSIFICATION,
        CHOIR__LANGUAGE,
        CHOIR__IMAGE_TO_TEXT
    } task;
    choir_shape input;  /* of one sample; LANGUAGE: (context) */
    choir_shape output; /* REGRESSION, IMAGE_TO_TEXT: of one sample's target */
    int64_t classes;    /* or the vocabulary */
    int64_t items;      /* a sample counts for: tokens, or steps of a sequence; else 1 */
    bool random;        /* the data is random, of whatever shape the model wants */
    int64_t vocab;      /* samples are ids below it, where classes says something else; or 0 */
    bool masked;        /* LANGUAGE: says what is behind a mask, not what comes next */
    int64_t pad, start; /* IMAGE_TO_TEXT: ids of tokens; both 0: not known yet */
    char config[512];   /* the model in full, "gpt2:layers=4,...": goes into checkpoints */
} choir__model_info;

struct choir__published;

typedef struct choir__model_spec {
    const char *name, *help;
    /* First what the data must be like (input, context): before any data is opened. */
    choir_status (*describe)(const char *text, choir__model_info *info);
    /* Then the module. */
    choir_status (*build)(
        const char *text, choir_scope *run, choir__model_info *info, choir_module **module);
    const struct choir__published *published; /* config.h; NULL: not in any such form */
} choir__model_spec;

/* What the module's forward takes of a micro-batch, into in; how many those are. y, the
 * targets, are what IMAGE_TO_TEXT is told of the text so far; else they are not looked at. */
int choir__model_inputs(
    const choir__model_info *info, choir_tensor *x, choir_tensor *y, choir_tensor *in[2]);

/* The module's output for it. */
choir_tensor *choir__model_forward(
    const choir__model_info *info, choir_module *module, choir_tensor *x, choir_tensor *y);

/* Classifiers take the classes and images that the data has, and those of the text (0: not
 * given; square) where the data is random. Errors: the data has more classes than the model, or
 * no images of `least` pixels a side. */
choir_status choir__model_classes(const char *model, choir__model_info *info, int64_t classes);
choir_status choir__model_images(
    const char *model, choir__model_info *info, int64_t channels, int64_t size, int64_t least);

/* One micro-batch's loss: cross entropy, or mean squared error for REGRESSION. */
choir_tensor *choir__model_loss(
    const choir__model_info *info, choir_tensor *out, choir_tensor *y);

/* 0 ... t - 1, i64. */
choir_tensor *choir__model_positions(choir_scope *scope, int64_t t);

/* Donut's halves: an image (B, 3, H, W) to states, and these with tokens (B, T) to scores. */
choir_tensor *choir__donut_encode(choir_module *donut, choir_tensor *image);
choir_tensor *choir__donut_decode(choir_module *donut, choir_tensor *ids, choir_tensor *states);

#endif
