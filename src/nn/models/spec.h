/* What a model is to the command and to checkpoints: the text "gpt2:layers=4,width=128" becomes
 * a module and what a trainer must know of it. */
#ifndef CHOIR_MODELS_SPEC_H
#define CHOIR_MODELS_SPEC_H

#include <choir/models.h>

struct choir__published;

typedef struct choir__model_spec {
    const char *name, *help;
    /* First what the data must be like (input, context): before any data is opened. */
    choir_status (*describe)(const char *text, choir_model_info *info);
    /* Then the module. */
    choir_status (*build)(
        const char *text, choir_scope *run, choir_model_info *info, choir_module **module);
    const struct choir__published *published; /* config.h; NULL: not in any such form */
} choir__model_spec;

/* Classifiers take the classes and images that the data has, and those of the text (0: not
 * given; square) where the data is random. Errors: the data has more classes than the model, or
 * no images of `least` pixels a side. */
choir_status choir__model_classes(const char *model, choir_model_info *info, int64_t classes);
choir_status choir__model_images(
    const char *model, choir_model_info *info, int64_t channels, int64_t size, int64_t least);

/* 0 ... t - 1, i64. */
choir_tensor *choir__model_positions(choir_scope *scope, int64_t t);

#endif
