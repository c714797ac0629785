/* LeNet as PyTorch's tutorials have it: two stages of convolution and pooling, and three linear
 * layers; the first two have the sizes l1 and l2. */
#include <stdio.h>

#include "base/options.h"
#include "nn/models/spec.h"
#include "nn/module.h"

enum { KERNEL = 5, FIRST = 6, SECOND = 16 }; /* pixels per side; channels of the stages */

struct sizes {
    int64_t l1, l2, channels, image, image_width, classes;
};

static choir_status parse(const char *text, struct sizes *s)
{
    *s = (struct sizes){.l1 = 120, .l2 = 84, .channels = 3, .image = 32};
    choir__option known[] = {{"l1", CHOIR__INT, &s->l1, 1, 1e6},
        {"l2", CHOIR__INT, &s->l2, 1, 1e6}, {"channels", CHOIR__INT, &s->channels, 1, 4096},
        {"image", CHOIR__INT, &s->image, 16, 4096},
        {"image_width", CHOIR__INT, &s->image_width, 16, 4096},
        {"classes", CHOIR__INT, &s->classes, 2, 1e7}, {NULL}};
    return choir__options_parse(text, "model lenet", known);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    char images[CHOIR__IMAGE_KEYS];
    choir_status status = parse(text, &s);
    if (status == CHOIR_OK)
        status = choir__model_images("lenet", info, s.channels, s.image, s.image_width, 16);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_classes("lenet", info, s.classes);
    snprintf(info->config, sizeof info->config,
        "lenet:l1=%lld,l2=%lld,channels=%lld,%s,classes=%lld", (long long)s.l1, (long long)s.l2,
        (long long)info->input.dim[0], choir__model_image_keys(info, images),
        (long long)info->classes);
    return status;
}

/* Returns the pixels per side after a stage. */
static int64_t after(int64_t pixels)
{
    return (pixels - KERNEL + 1) / 2;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    choir_conv_opts plain = choir_conv_defaults();
    int64_t h = after(after(info->input.dim[1])), w = after(after(info->input.dim[2]));
    return choir_nn_sequential(run,
        choir_nn_conv2d(run, info->input.dim[0], FIRST, KERNEL, plain), choir_nn_relu(run),
        choir_nn_max_pool2d(run, 2, 2), choir_nn_conv2d(run, FIRST, SECOND, KERNEL, plain),
        choir_nn_relu(run), choir_nn_max_pool2d(run, 2, 2), choir_nn_flatten(run),
        choir_nn_linear(run, SECOND * h * w, s.l1), choir_nn_relu(run),
        choir_nn_linear(run, s.l1, s.l2), choir_nn_relu(run),
        choir_nn_linear(run, s.l2, info->classes));
}

const choir__model_spec choir__model_lenet = {
    .name = "lenet",
    .help = "LeNet with two hidden linear layers: l1=120,l2=84,channels=3,image=32,"
            "image_width=(image),classes=10",
    .describe = describe,
    .build = build,
};
