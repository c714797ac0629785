/* AlexNet in its one-tower form (Krizhevsky, 2014): five convolutions, three linear layers.
 * Parameter names and initial values equal the published weights'. */
#include <stdio.h>

#include "base/options.h"
#include "nn/models/published.h"
#include "nn/module.h"

struct sizes {
    int64_t width, hidden, channels, image, image_width, classes;
    double dropout;
};

typedef struct alexnet {
    choir_module base;
    choir_module *features, *classifier;
} alexnet;

static choir_tensor *alexnet_forward(choir_module *self, choir_tensor *const *in, int count)
{
    alexnet *a = (alexnet *)self;
    (void)count;
    choir_tensor *x = choir_forward(a->features, in[0]); /* (N, C, H, W) */
    return choir_forward(a->classifier, choir_flatten(choir_adaptive_avg_pool2d(x, 6, 6), 1));
}

static const choir_module_class alexnet_class = {
    "alexnet", sizeof(alexnet), alexnet_forward, 1};

static choir_module *conv(
    choir_scope *run, int64_t in, int64_t out, int kernel, int stride, int padding)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = stride;
    o.padding = padding;
    return choir_nn_conv2d(run, in, out, kernel, o);
}

static choir_module *new_alexnet(choir_scope *run, const struct sizes *s, int64_t channels)
{
    alexnet *a = choir_module_new(run, &alexnet_class);
    int64_t w = s->width;
    choir_module *features = choir_nn_sequential(run, conv(run, channels, w, 11, 4, 2),
        choir_nn_relu(run), choir_nn_max_pool2d(run, 3, 2), conv(run, w, 3 * w, 5, 1, 2),
        choir_nn_relu(run), choir_nn_max_pool2d(run, 3, 2), conv(run, 3 * w, 6 * w, 3, 1, 1),
        choir_nn_relu(run), conv(run, 6 * w, 4 * w, 3, 1, 1), choir_nn_relu(run),
        conv(run, 4 * w, 4 * w, 3, 1, 1), choir_nn_relu(run), choir_nn_max_pool2d(run, 3, 2));
    choir_module *classifier = choir_nn_sequential(run,
        choir_nn_dropout(run, (float)s->dropout),
        choir_nn_linear(run, 4 * w * 6 * 6, s->hidden), choir_nn_relu(run),
        choir_nn_dropout(run, (float)s->dropout), choir_nn_linear(run, s->hidden, s->hidden),
        choir_nn_relu(run), choir_nn_linear(run, s->hidden, s->classes));
    choir_module_child(&a->base, "features", &a->features, features);
    choir_module_child(&a->base, "classifier", &a->classifier, classifier);
    return &a->base;
}

static choir_status parse(const char *text, struct sizes *s)
{
    *s = (struct sizes){.width = 64, .hidden = 4096, .channels = 3, .dropout = 0.5};
    choir__option known[] = {{"image", CHOIR__INT, &s->image, 63, 1 << 14},
        {"image_width", CHOIR__INT, &s->image_width, 63, 1 << 14},
        {"classes", CHOIR__INT, &s->classes, 2, 1e7},
        {"channels", CHOIR__INT, &s->channels, 1, 4096},
        {"width", CHOIR__INT, &s->width, 1, 4096}, {"hidden", CHOIR__INT, &s->hidden, 1, 1e6},
        {"dropout", CHOIR__FLOAT, &s->dropout, 0, 0.99}, {NULL}};
    return choir__options_parse(text, "model alexnet", known);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    char images[CHOIR__IMAGE_KEYS];
    choir_status status = parse(text, &s);
    if (status == CHOIR_OK)
        status = choir__model_images(
            "alexnet", info, s.channels, s.image ? s.image : 224, s.image_width, 63);
    if (status != CHOIR_OK)
        return status;
    if (!s.classes && !info->classes)
        s.classes = 1000;
    status = choir__model_classes("alexnet", info, s.classes);
    snprintf(info->config, sizeof info->config,
        "alexnet:%s,classes=%lld,channels=%lld,width=%lld,hidden=%lld,dropout=%g",
        choir__model_image_keys(info, images), (long long)info->classes,
        (long long)info->input.dim[0], (long long)s.width, (long long)s.hidden, s.dropout);
    return status;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    s.classes = info->classes;
    return new_alexnet(run, &s, info->input.dim[0]);
}

/* There is no config.json: the text alone names the model. The head is for one set of classes.
 */
static const choir__published published = {
    .fresh = (const char *[]){"classifier.6.*", NULL},
};

const choir__model_spec choir__model_alexnet = {
    .name = "alexnet",
    .help =
        "AlexNet: image=224,image_width=(image),classes=1000,channels=3,width=64,hidden=4096,"
        "dropout=0.5",
    .describe = describe,
    .build = build,
    .published = &published,
};
