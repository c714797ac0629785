/* ResNet (He et al., 2015), with the stride of a bottleneck in its 3x3 convolution. Parameter
 * names and initial values follow the published weights: convolutions normal with deviation
 * sqrt(2 / fan_out), norms 1 and 0.
 *
 * For backward, a block keeps the results of its convolutions and its own result. It releases
 * the results of its inner norms once the next convolution has read them; backward computes
 * them again. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "nn/models/published.h"
#include "nn/module.h"

enum { STAGES = 4, MAX_BLOCKS = 64 };

struct depth {
    const char *name;
    bool bottleneck;
    int blocks[STAGES];
};

static const struct depth depths[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
};

struct sizes {
    const struct depth *depth;
    /* blocks: per stage; 0: by depth */
    int64_t width, stages, blocks, channels, image, image_width, classes;
    bool small;
};

/* --- a block --- */

typedef struct block {
    choir_module base;
    choir_module *conv[3], *bn[3], *down[2]; /* down[0] NULL: the shortcut is x itself */
    int count; /* number of convolutions: 2, or 3 with a bottleneck */
} block;

/* Releases t, which this block created and reads no more. Without gradients no other reader
 * exists, except hooks. */
static void done_with(choir_tensor *t)
{
    if (!t->producer && !t->scope->grad && !t->watched && !t->kept)
        choir__tensor_release(t);
    else
        choir__done_with(t);
}

/* Returns bn(conv(x)). own: the block created x and reads it no more. */
static choir_tensor *conv_bn(
    choir_module *conv, choir_module *bn, choir_tensor *x, choir_tensor *residual, bool own)
{
    choir_tensor *h = choir_forward(conv, x);
    if (own)
        done_with(x);
    choir_tensor *y = residual ? choir_forward(bn, h, residual) : choir_forward(bn, h);
    done_with(h);
    return y;
}

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self;
    choir_tensor *x = in[0], *h = x, *shortcut = x;
    (void)count;
    for (int i = 0; i < b->count - 1; i++)
        h = conv_bn(b->conv[i], b->bn[i], h, NULL, i > 0);
    if (b->down[0])
        shortcut = conv_bn(b->down[0], b->down[1], x, NULL, false);
    choir_tensor *y = conv_bn(b->conv[b->count - 1], b->bn[b->count - 1], h, shortcut, true);
    if (b->down[0])
        done_with(shortcut);
    return y;
}

static const choir_module_class block_class = {"resnet block", sizeof(block), block_forward, 1};

static choir_module *new_conv(
    choir_scope *run, int64_t in, int64_t out, int kernel, int stride, int padding)
{
    choir_init normal = choir_init_normal(0, sqrt(2.0 / (double)(out * kernel * kernel)));
    choir_nn_conv_opts o = choir_nn_conv_defaults(kernel);
    o.no_bias = true;
    o.weight = &normal;
    o.conv.stride = stride;
    o.conv.padding = padding;
    return choir_nn_conv2d_with(run, in, out, o);
}

static choir_module *new_norm(choir_scope *run, int64_t channels, bool relu)
{
    choir_batch_norm_opts o = choir_batch_norm_defaults();
    o.relu = relu;
    return choir_nn_batch_norm_with(run, channels, o);
}

static void add_part(block *b, int i, choir_module *conv, int64_t out)
{
    char name[16];
    snprintf(name, sizeof name, "conv%d", i + 1);
    choir_module_child(&b->base, name, &b->conv[i], conv);
    snprintf(name, sizeof name, "bn%d", i + 1);
    choir_module_child(&b->base, name, &b->bn[i], new_norm(b->base.run, out, true));
}

/* in -> width (times 4 with a bottleneck) channels */
static choir_module *new_block(
    choir_scope *run, bool bottleneck, int64_t in, int64_t width, int stride)
{
    block *b = choir_module_new(run, &block_class);
    int64_t out = bottleneck ? 4 * width : width;
    b->count = bottleneck ? 3 : 2;
    if (bottleneck) {
        add_part(b, 0, new_conv(run, in, width, 1, 1, 0), width);
        add_part(b, 1, new_conv(run, width, width, 3, stride, 1), width);
        add_part(b, 2, new_conv(run, width, out, 1, 1, 0), out);
    } else {
        add_part(b, 0, new_conv(run, in, width, 3, stride, 1), width);
        add_part(b, 1, new_conv(run, width, width, 3, 1, 1), width);
    }
    if (stride != 1 || in != out) {
        choir_module_child(
            &b->base, "downsample.0", &b->down[0], new_conv(run, in, out, 1, stride, 0));
        choir_module_child(&b->base, "downsample.1", &b->down[1], new_norm(run, out, false));
    }
    return &b->base;
}

/* --- the net --- */

typedef struct resnet {
    choir_module base;
    choir_module *conv1, *bn1, *fc, *blocks[MAX_BLOCKS];
    int count;
    bool small;
} resnet;

static choir_tensor *resnet_forward(choir_module *self, choir_tensor *const *in, int count)
{
    resnet *r = (resnet *)self;
    (void)count;
    choir_tensor *x = conv_bn(r->conv1, r->bn1, in[0], NULL, false);
    if (!r->small) {
        choir_tensor *pooled = choir_max_pool2d(x, 3, 2, 1);
        done_with(x);
        x = pooled;
    }
    for (int i = 0; i < r->count; i++) {
        choir_tensor *y = choir_forward(r->blocks[i], x); /* (N, C, H, W) */
        done_with(x);
        x = y;
    }
    choir_tensor *pooled = choir_adaptive_avg_pool2d(x, 1, 1);
    done_with(x);
    return choir_forward(r->fc, choir_flatten(pooled, 1)); /* (N, classes) */
}

static const choir_module_class resnet_class = {"resnet", sizeof(resnet), resnet_forward, 1};

static choir_module *new_resnet(choir_scope *run, const struct sizes *s, int64_t channels)
{
    resnet *r = choir_module_new(run, &resnet_class);
    int64_t in = s->width;
    r->small = s->small;
    choir_module_child(&r->base, "conv1", &r->conv1,
        s->small ? new_conv(run, channels, in, 3, 1, 1) : new_conv(run, channels, in, 7, 2, 3));
    choir_module_child(&r->base, "bn1", &r->bn1, new_norm(run, in, true));
    for (int stage = 0; stage < s->stages; stage++) {
        int64_t width = s->width << stage;
        for (int i = 0; i < (s->blocks ? s->blocks : s->depth->blocks[stage]); i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", stage + 1, i);
            choir_module_child(&r->base, name, &r->blocks[r->count++],
                new_block(run, s->depth->bottleneck, in, width, stage > 0 && i == 0 ? 2 : 1));
            in = s->depth->bottleneck ? 4 * width : width;
        }
    }
    choir_module_child(&r->base, "fc", &r->fc, choir_nn_linear(run, in, s->classes));
    return &r->base;
}

/* --- by name --- */

static choir_status parse(const char *text, struct sizes *s)
{
    char name[64], what[80];
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    *s = (struct sizes){.width = 64, .stages = STAGES, .channels = 3};
    for (size_t i = 0; i < CHOIR_COUNT(depths); i++)
        if (!strcmp(depths[i].name, name))
            s->depth = &depths[i];
    choir__option known[] = {{"image", CHOIR__INT, &s->image, 8, 1 << 14},
        {"image_width", CHOIR__INT, &s->image_width, 8, 1 << 14},
        {"classes", CHOIR__INT, &s->classes, 2, 1e7},
        {"channels", CHOIR__INT, &s->channels, 1, 4096},
        {"width", CHOIR__INT, &s->width, 1, 4096},
        {"stages", CHOIR__INT, &s->stages, 1, STAGES},
        {"blocks", CHOIR__INT, &s->blocks, 0, MAX_BLOCKS / STAGES},
        {"small", CHOIR__FLAG, &s->small, 0, 1}, {NULL}};
    snprintf(what, sizeof what, "model %s", name);
    return choir__options_parse(text, what, known);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    char images[CHOIR__IMAGE_KEYS];
    choir_status status = parse(text, &s);
    if (status == CHOIR_OK)
        status = choir__model_images(s.depth->name, info, s.channels,
            s.image   ? s.image
            : s.small ? 32
                      : 224,
            s.image_width, 8);
    if (status != CHOIR_OK)
        return status;
    if (!s.classes && !info->classes)
        s.classes = s.small ? 10 : 1000;
    status = choir__model_classes(s.depth->name, info, s.classes);
    snprintf(info->config, sizeof info->config,
        "%s:%s,classes=%lld,channels=%lld,width=%lld,stages=%lld,blocks=%lld,small=%d",
        s.depth->name, choir__model_image_keys(info, images), (long long)info->classes,
        (long long)info->input.dim[0], (long long)s.width, (long long)s.stages,
        (long long)s.blocks, s.small);
    return status;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    s.classes = info->classes;
    return new_resnet(run, &s, info->input.dim[0]);
}

/* There is no config.json: the text alone names the model. The head is for one set of classes.
 */
static const choir__published published = {
    .fresh = (const char *[]){"fc.*", NULL},
};

#define RESNET(depth, options)                                                                 \
    const choir__model_spec choir__model_resnet##depth = {                                     \
        .name = "resnet" #depth,                                                               \
        .help = "ResNet-" #depth ": " options,                                                 \
        .describe = describe,                                                                  \
        .build = build,                                                                        \
        .published = &published,                                                               \
    }

RESNET(18, "image=224,image_width=(image),classes=1000,channels=3,width=64,stages=4,blocks=0 "
           "(in each stage, other than by depth),small=0 (1: a stem for 32 x 32 images)");
RESNET(34, "options as resnet18");
RESNET(50, "options as resnet18");
RESNET(101, "options as resnet18");
RESNET(152, "options as resnet18");
