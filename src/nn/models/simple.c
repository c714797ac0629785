/* Three small models: toy (two linear layers), mlp and cnn. */
#include <stdio.h>

#include "base/options.h"
#include "nn/models/spec.h"
#include "nn/module.h"

/* --- toy: linear(in, hidden), relu, linear(hidden, out), mean squared error --- */

struct toy {
    int64_t in, hidden, out;
};

static choir_status parse_toy(const char *text, struct toy *t)
{
    *t = (struct toy){10, 10, 5};
    choir__option known[] = {{"in", CHOIR__INT, &t->in, 1, 1e6},
        {"hidden", CHOIR__INT, &t->hidden, 1, 1e6}, {"out", CHOIR__INT, &t->out, 1, 1e6},
        {NULL}};
    return choir__options_parse(text, "model toy", known);
}

static choir_status describe_toy(const char *text, choir_model_info *info)
{
    struct toy t;
    choir_status status = parse_toy(text, &t);
    info->task = CHOIR_REGRESSION;
    info->input = choir_dims(t.in);
    info->output = choir_dims(t.out);
    info->items = 1;
    snprintf(info->config, sizeof info->config, "toy:in=%lld,hidden=%lld,out=%lld",
        (long long)t.in, (long long)t.hidden, (long long)t.out);
    return status;
}

static choir_module *build_toy(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct toy t;
    (void)info;
    if (parse_toy(text, &t) != CHOIR_OK)
        return NULL;
    return choir_nn_sequential(run, choir_nn_linear(run, t.in, t.hidden), choir_nn_relu(run),
        choir_nn_linear(run, t.hidden, t.out));
}

const choir__model_spec choir__model_toy = {
    .name = "toy",
    .help = "two linear layers and mean squared error: in=10,hidden=10,out=5",
    .describe = describe_toy,
    .build = build_toy,
};

/* --- mlp: `layers` hidden layers --- */

struct mlp {
    int64_t in, hidden, layers, classes;
};

static choir_status parse_mlp(const char *text, struct mlp *m)
{
    *m = (struct mlp){0, 1024, 2, 0};
    choir__option known[] = {{"in", CHOIR__INT, &m->in, 1, 1e7},
        {"hidden", CHOIR__INT, &m->hidden, 1, 1e6}, {"layers", CHOIR__INT, &m->layers, 0, 64},
        {"classes", CHOIR__INT, &m->classes, 2, 1e7}, {NULL}};
    return choir__options_parse(text, "model mlp", known);
}

static choir_status describe_mlp(const char *text, choir_model_info *info)
{
    struct mlp m;
    choir_status status = parse_mlp(text, &m);
    if (status != CHOIR_OK)
        return status;
    int64_t have = choir__shape_count(info->input);
    if (m.in && info->input.ndim && have != m.in)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model mlp takes %lld numbers, a sample of the data has %lld", (long long)m.in,
            (long long)have);
    if (!info->input.ndim)
        info->input = choir_dims(m.in ? m.in : 784);
    status = choir__model_classes("mlp", info, m.classes);
    snprintf(info->config, sizeof info->config,
        "mlp:in=%lld,hidden=%lld,layers=%lld,classes=%lld",
        (long long)choir__shape_count(info->input), (long long)m.hidden, (long long)m.layers,
        (long long)info->classes);
    return status;
}

enum { MAX_PARTS = 2 + 2 * 64 + 1 };

static choir_module *build_mlp(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct mlp m;
    choir_module *parts[MAX_PARTS];
    int count = 0;
    if (parse_mlp(text, &m) != CHOIR_OK)
        return NULL;
    int64_t width = choir__shape_count(info->input);
    if (info->input.ndim > 1)
        parts[count++] = choir_nn_flatten(run);
    for (int64_t i = 0; i < m.layers; i++) {
        parts[count++] = choir_nn_linear(run, width, m.hidden);
        parts[count++] = choir_nn_relu(run);
        width = m.hidden;
    }
    parts[count++] = choir_nn_linear(run, width, info->classes);
    return choir_nn_sequential_n(run, parts, count);
}

const choir__model_spec choir__model_mlp = {
    .name = "mlp",
    .help = "hidden linear layers with ReLU: in=784,hidden=1024,layers=2,classes=10",
    .describe = describe_mlp,
    .build = build_mlp,
};

/* --- cnn: two stages of convolution, batch norm, ReLU, pooling; dropout; a linear layer --- */

struct cnn {
    int64_t width, channels, image, image_width, classes;
    double dropout;
};

static choir_status parse_cnn(const char *text, struct cnn *c)
{
    *c = (struct cnn){.width = 16, .channels = 1, .image = 28, .dropout = 0.25};
    choir__option known[] = {{"width", CHOIR__INT, &c->width, 1, 4096},
        {"channels", CHOIR__INT, &c->channels, 1, 4096},
        {"image", CHOIR__INT, &c->image, 4, 4096},
        {"image_width", CHOIR__INT, &c->image_width, 4, 4096},
        {"classes", CHOIR__INT, &c->classes, 2, 1e7},
        {"dropout", CHOIR__FLOAT, &c->dropout, 0, 0.99}, {NULL}};
    return choir__options_parse(text, "model cnn", known);
}

static choir_status describe_cnn(const char *text, choir_model_info *info)
{
    struct cnn c;
    char images[CHOIR__IMAGE_KEYS];
    choir_status status = parse_cnn(text, &c);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_images("cnn", info, c.channels, c.image, c.image_width, 4);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_classes("cnn", info, c.classes);
    snprintf(info->config, sizeof info->config,
        "cnn:width=%lld,channels=%lld,%s,classes=%lld,dropout=%g", (long long)c.width,
        (long long)info->input.dim[0], choir__model_image_keys(info, images),
        (long long)info->classes, c.dropout);
    return status;
}

static choir_module *build_cnn(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct cnn c;
    if (parse_cnn(text, &c) != CHOIR_OK)
        return NULL;
    choir_conv_opts same = choir_conv_defaults();
    same.padding = 1;
    int64_t h = info->input.dim[1] / 2 / 2, w = info->input.dim[2] / 2 / 2;
    return choir_nn_sequential(run, choir_nn_conv2d(run, info->input.dim[0], c.width, 3, same),
        choir_nn_batch_norm(run, c.width), choir_nn_relu(run), choir_nn_max_pool2d(run, 2, 2),
        choir_nn_conv2d(run, c.width, 2 * c.width, 3, same),
        choir_nn_batch_norm(run, 2 * c.width), choir_nn_relu(run),
        choir_nn_max_pool2d(run, 2, 2), choir_nn_flatten(run),
        choir_nn_dropout(run, (float)c.dropout),
        choir_nn_linear(run, 2 * c.width * h * w, info->classes));
}

const choir__model_spec choir__model_cnn = {
    .name = "cnn",
    .help = "two stages of convolution, batch norm, ReLU and pooling: "
            "width=16,channels=1,image=28,image_width=(image),classes=10,dropout=0.25",
    .describe = describe_cnn,
    .build = build_cnn,
};
