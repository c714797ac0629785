/* The options of vision transformers: a text such as "vit:layers=6,width=384" becomes sizes,
 * and sizes become the description of the model's data. */
#include <stdio.h>

#include "base/options.h"
#include "nn/models/vit.h"

static choir_status check(const choir__vit_sizes *n)
{
    if (n->width % n->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model vit: heads=%lld does not divide width=%lld", (long long)n->heads,
            (long long)n->width);
    if (n->image_width && !n->image)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model vit: image_width=%lld: missing image=N, the height of images",
            (long long)n->image_width);
    return CHOIR_OK;
}

static choir_status parse(const char *text, choir__vit_sizes *n)
{
    *n = (choir__vit_sizes){
        .layers = 12, .heads = 12, .width = 768, .patch = 16, .eps = 1e-12, .qkv_bias = true};
    choir__option known[] = {{"layers", CHOIR__INT, &n->layers, 1, CHOIR__VIT_LAYERS},
        {"heads", CHOIR__INT, &n->heads, 1, 1024}, {"width", CHOIR__INT, &n->width, 1, 1 << 20},
        {"hidden", CHOIR__INT, &n->hidden, 1, 1 << 22},
        {"patch", CHOIR__INT, &n->patch, 1, 1024}, {"image", CHOIR__INT, &n->image, 1, 1 << 14},
        {"image_width", CHOIR__INT, &n->image_width, 1, 1 << 14},
        {"channels", CHOIR__INT, &n->channels, 1, 4096},
        {"classes", CHOIR__INT, &n->classes, 2, 1e7},
        {"dropout", CHOIR__FLOAT, &n->dropout, 0, 0.99}, {"eps", CHOIR__FLOAT, &n->eps, 0, 0.1},
        {"qkv_bias", CHOIR__FLAG, &n->qkv_bias, 0, 1}, {NULL}};
    choir_status status = choir__options_parse(text, "model vit", known);
    if (!n->hidden)
        n->hidden = 4 * n->width;
    return status == CHOIR_OK ? check(n) : status;
}

/* Fits the images of the model and the data. */
static choir_status fit_images(const choir__vit_sizes *n, choir_model_info *info)
{
    int64_t channels = n->channels ? n->channels : 3, height = n->image ? n->image : 224;
    int64_t width = n->image_width ? n->image_width : height;
    choir_status status = choir__model_images("vit", info, channels, height, width, n->patch);
    const int64_t *dim = info->input.dim;
    if (status == CHOIR_OK && ((n->channels && dim[0] != channels) ||
                                  (n->image && (dim[1] != height || dim[2] != width))))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model vit: expected images of %lld x %lld pixels and %lld channels, as its text "
            "says, got samples of %s",
            (long long)height, (long long)width, (long long)channels,
            choir__shape_text(info->input));
    return status;
}

static void write_text(const choir__vit_sizes *n, choir_model_info *info)
{
    char images[CHOIR__IMAGE_KEYS];
    snprintf(info->config, sizeof info->config,
        "vit:layers=%lld,heads=%lld,width=%lld,hidden=%lld,patch=%lld,%s,"
        "channels=%lld,classes=%lld,dropout=%g,eps=%g,qkv_bias=%d",
        (long long)n->layers, (long long)n->heads, (long long)n->width, (long long)n->hidden,
        (long long)n->patch, choir__model_image_keys(info, images),
        (long long)info->input.dim[0], (long long)info->classes, n->dropout, n->eps,
        n->qkv_bias);
}

choir_status choir__vit_describe(const char *text, choir_model_info *info)
{
    choir__vit_sizes n;
    choir_status status = parse(text, &n);
    if (status == CHOIR_OK)
        status = fit_images(&n, info);
    if (status != CHOIR_OK)
        return status;
    if (!n.classes && !info->classes)
        n.classes = 1000;
    status = choir__model_classes("vit", info, n.classes);
    write_text(&n, info);
    return status;
}

choir_module *choir__vit_build(const char *text, choir_scope *run, const choir_model_info *info)
{
    choir__vit_sizes n;
    if (parse(text, &n) != CHOIR_OK)
        return NULL;
    n.channels = info->input.dim[0];
    n.image = info->input.dim[1];
    n.image_width = info->input.dim[2];
    n.classes = info->classes;
    return choir__vit_new(run, &n);
}
