/* Vision transformers: shared by their module (vit.c), their options (vit_options.c) and the
 * family (families/vit.c). */
#ifndef CHOIR_VIT_H
#define CHOIR_VIT_H

#include "nn/models/spec.h"
#include "nn/module.h"

enum { CHOIR__VIT_LAYERS = 256 };

typedef struct choir__vit_sizes {
    int64_t layers, heads, width, hidden, patch;
    int64_t image, image_width, channels; /* (channels, image, image_width); 0: the data's */
    int64_t classes;                      /* 0: the data's */
    double dropout, eps;
    bool qkv_bias; /* queries, keys and values have biases */
} choir__vit_sizes;

/* Forward: images (B, channels, image, image_width) -> (B, classes). */
choir_module *choir__vit_new(choir_scope *run, const choir__vit_sizes *sizes);

#define CHOIR__VIT_PLACES "vit.embeddings.position_embeddings"

/* Resizes positions (vit_places.c): see `fit` in published.h. */
bool choir__vit_fit(
    const char *name, const float *stored, choir_shape from, choir_shape wanted, float *values);

/* Describe and build the model (vit_options.c): see spec.h. */
choir_status choir__vit_describe(const char *text, choir_model_info *info);
choir_module *choir__vit_build(
    const char *text, choir_scope *run, const choir_model_info *info);

#endif
