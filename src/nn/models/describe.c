/* Shared by the models: the data of classifiers, and ids of positions. */
#include <choir/select.h>
#include <stdio.h>

#include "nn/models/spec.h"

#include "tensor/cache.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"

choir_status choir__model_classes(const char *model, choir_model_info *info, int64_t classes)
{
    if (classes && info->classes > classes)
        return choir__error(CHOIR_ERR_ARGUMENT, "model %s has %lld classes, the data %lld",
            model, (long long)classes, (long long)info->classes);
    if (classes)
        info->classes = classes;
    if (!info->classes)
        info->classes = 10;
    info->task = CHOIR_CLASSIFICATION;
    info->items = 1;
    return CHOIR_OK;
}

choir_status choir__model_images(const char *model, choir_model_info *info, int64_t channels,
    int64_t height, int64_t width, int64_t least)
{
    if (!info->input.ndim)
        info->input = choir_dims(channels, height, width ? width : height);
    if (info->input.ndim == 3 && info->input.dim[1] >= least && info->input.dim[2] >= least)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s: expected images of at least %lld x %lld, got samples of %s", model,
        (long long)least, (long long)least, choir__shape_text(info->input));
}

const char *choir__model_image_keys(const choir_model_info *info, char text[CHOIR__IMAGE_KEYS])
{
    const int64_t *dim = info->input.dim;
    int n = snprintf(text, CHOIR__IMAGE_KEYS, "image=%lld", (long long)dim[1]);
    if (dim[2] != dim[1])
        snprintf(
            text + n, CHOIR__IMAGE_KEYS - (size_t)n, ",image_width=%lld", (long long)dim[2]);
    return text;
}

choir_tensor *choir__model_apart(choir_tensor *documents, choir_tensor *ids, choir_dtype dtype)
{
    if (!documents)
        return NULL;
    if (!choir__same_shape(choir_tensor_shape(documents), choir_tensor_shape(ids)))
        return choir__poison(choir_tensor_scope(ids), CHOIR_ERR_SHAPE,
            "expected documents and positions of the ids' shape, %s, got %s",
            choir__shape_text(choir_tensor_shape(ids)),
            choir__shape_text(choir_tensor_shape(documents)));
    int64_t b = choir_tensor_size(ids, 0), t = choir_tensor_size(ids, 1);
    choir_tensor *keys = choir__sequence_whole(choir_tensor_scope(ids), documents, 1);
    choir_tensor *same = choir_eq(choir_reshape(documents, choir_dims(b, 1, t, 1)),
        choir_reshape(
            keys, choir_dims(b, 1, 1, keys->poisoned ? t : choir_tensor_size(keys, 1))));
    return choir_cast(choir_affine(choir_cast(same, CHOIR_F32), 1e30, -1e30), dtype);
}

/* Returns the token at place i of a sequence, which may be cut. */
static int64_t token_at(const choir__sequence *s, int64_t i)
{
    int64_t each = s ? s->length / s->chunks : 0;
    return s ? choir__chunk_of_leaf(s->first + i / each, s->chunks) * each + i % each : i;
}

choir_tensor *choir__model_positions(choir_scope *scope, int64_t t)
{
    const choir__sequence *s = scope->sequence;
    if (scope->cache)
        return choir__cache_positions(scope);
    int64_t *ids = choir__arena_get(&scope->arena, (size_t)t * sizeof *ids);
    for (int64_t i = 0; i < t; i++)
        ids[i] = token_at(s && choir__sequence_tokens(s) == t ? s : NULL, i);
    choir_tensor *x = choir__tensor_new(scope, scope->device, CHOIR_I64, choir_dims(t));
    if (!x->poisoned)
        choir__launch_upload(scope->device, choir__data(x), ids, (size_t)t * sizeof *ids);
    return x;
}

choir_status choir__model_vocab(const char *model, int64_t vocab, int64_t tokens)
{
    if (!vocab || tokens <= vocab)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s: vocab=%lld is too small for the data's %lld tokens: a new model takes "
        "vocab=%lld; published weights have no rows for more tokens than their own tokenizer's, "
        "until transformers has added rows (model.resize_token_embeddings(%lld), then "
        "save_pretrained)",
        model, (long long)vocab, (long long)tokens, (long long)tokens, (long long)tokens);
}
