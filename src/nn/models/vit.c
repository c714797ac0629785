/* The vision transformer (Dosovitskiy et al., 2020). The patches of an image are tokens, a
 * token of the class stands before them, and all have positions. Encoder layers normalise what
 * a part reads, not its result (pre-norm). A linear layer reads the class's token. Parameter
 * names follow transformers' files. */
#include "nn/models/vit.h"

#include <stdio.h>

/* --- a layer --- */

typedef struct layer {
    choir_module base;
    choir_module *norm_before, *query, *key, *value, *mix;
    choir_module *norm_after, *up, *down, *dropout;
    int64_t head_dim;
} layer;

static choir_tensor *attend(layer *l, choir_tensor *x)
{
    /* statements have an order, which sums in backward follow */
    choir_tensor *q = choir_forward(l->query, x);
    choir_tensor *v = choir_forward(l->value, x);
    choir_tensor *k = choir_forward(l->key, x);
    choir_tensor *y = choir__attention_of_heads(
        q, k, v, choir__cols(q) / l->head_dim, choir_attention_defaults());
    return choir_forward(l->dropout, choir_forward(l->mix, y));
}

static choir_tensor *feed_forward(layer *l, choir_tensor *x)
{
    choir_tensor *up = choir_forward(l->up, x), *h = choir_gelu(up); /* (B, T, hidden) */
    choir__done_with(up);
    choir_tensor *y = choir_forward(l->down, h);
    choir__done_with(h);
    return choir_forward(l->dropout, y);
}

static choir_tensor *layer_forward(choir_module *self, choir_tensor *const *in, int count)
{
    layer *l = (layer *)self;
    choir_tensor *x = in[0]; /* (B, T, C) */
    (void)count;
    choir_tensor *h = choir__norm_for(l->norm_before, x, CHOIR__FOR_PRODUCTS);
    choir_tensor *a = attend(l, h);
    choir__done_with(h);
    h = choir__norm_of_sum(l->norm_after, x, a, CHOIR__FOR_A_PRODUCT, &x);
    choir__done_with(a);
    a = feed_forward(l, h);
    choir__done_with(h);
    x = choir_add(x, a);
    choir__done_with(a);
    return x;
}

static const choir_module_class layer_class = {"vit layer", sizeof(layer), layer_forward, 1};

static choir_init normal(void)
{
    return choir_init_normal(0, 0.02);
}

static choir_module *linear(choir_scope *run, int64_t in, int64_t out, bool bias)
{
    return choir_nn_linear_with(run, in, out, bias, normal());
}

static choir_module *new_layer(choir_scope *run, const choir__vit_sizes *s)
{
    layer *l = choir_module_new(run, &layer_class);
    int64_t c = s->width;
    l->head_dim = c / s->heads;
    const struct {
        const char *name;
        choir_module **field, *made;
    } parts[] = {
        {"layernorm_before", &l->norm_before, choir_nn_layer_norm_with(run, c, (float)s->eps)},
        {"attention.attention.query", &l->query, linear(run, c, c, s->qkv_bias)},
        {"attention.attention.key", &l->key, linear(run, c, c, s->qkv_bias)},
        {"attention.attention.value", &l->value, linear(run, c, c, s->qkv_bias)},
        {"attention.output.dense", &l->mix, linear(run, c, c, true)},
        {"layernorm_after", &l->norm_after, choir_nn_layer_norm_with(run, c, (float)s->eps)},
        {"intermediate.dense", &l->up, linear(run, c, s->hidden, true)},
        {"output.dense", &l->down, linear(run, s->hidden, c, true)},
        {"dropout", &l->dropout, choir_nn_dropout(run, (float)s->dropout)},
    };
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        choir_module_child(&l->base, parts[i].name, parts[i].field, parts[i].made);
    choir__module_heads(&l->base, (choir__heads_of){.q = parts[1].name,
                                      .k = parts[2].name,
                                      .v = parts[3].name,
                                      .out = parts[4].name,
                                      .heads = s->heads,
                                      .kv_heads = s->heads});
    return &l->base;
}

/* --- the net --- */

typedef struct vit {
    choir_module base;
    choir_module *patches, *dropout, *norm, *classifier;
    choir_tensor *class_token, *places; /* (1, 1, C), (1, T, C) */
    choir_module *layers[CHOIR__VIT_LAYERS];
    choir__vit_sizes n;
} vit;

/* Returns the tokens of images (B, channels, H, W): (B, T, C). */
static choir_tensor *embed(vit *v, choir_tensor *images)
{
    choir_scope *scope = choir_tensor_scope(images);
    choir_tensor *x = choir_forward(v->patches, images); /* (B, C, H/patch, W/patch) */
    x = choir_transpose(choir_flatten(x, 2), 1, 2);
    choir_shape of_class = choir_dims(choir_tensor_size(x, 0), 1, v->n.width);
    choir_tensor *parts[2] = {choir_expand(choir_in(scope, v->class_token), of_class), x};
    x = choir_add(choir_cat(parts, 2, 1), choir_in(scope, v->places));
    return choir_forward(v->dropout, x);
}

static choir_tensor *vit_forward(choir_module *self, choir_tensor *const *in, int count)
{
    vit *v = (vit *)self;
    const choir__vit_sizes *n = &v->n;
    (void)count;
    if (choir_tensor_ndim(in[0]) != 4 || choir_tensor_size(in[0], 1) != n->channels ||
        choir_tensor_size(in[0], 2) != n->image ||
        choir_tensor_size(in[0], 3) != n->image_width)
        return choir__poison(choir_tensor_scope(in[0]), CHOIR_ERR_SHAPE,
            "vit: expected images (B, %lld, %lld, %lld), got %s", (long long)n->channels,
            (long long)n->image, (long long)n->image_width,
            choir__shape_text(choir_tensor_shape(in[0])));
    choir_tensor *x = embed(v, in[0]);
    for (int64_t i = 0; i < n->layers; i++) {
        choir_tensor *y = choir_forward(v->layers[i], x);
        choir__done_with(x);
        x = y;
    }
    /* the norm is of single tokens, and only the class's is read */
    x = choir_reshape(choir_narrow(x, 1, 0, 1), choir_dims(choir_tensor_size(x, 0), n->width));
    return choir_forward(v->classifier, choir_forward(v->norm, x));
}

static const choir_module_class vit_class = {"vit", sizeof(vit), vit_forward, 1};

choir_module *choir__vit_new(choir_scope *run, const choir__vit_sizes *s)
{
    vit *v = choir_module_new(run, &vit_class);
    choir_init init = normal();
    choir_nn_conv_opts cut = choir_nn_conv_defaults((int)s->patch);
    cut.conv.stride = (int)s->patch;
    cut.weight = &init;
    v->n = *s;
    choir_module_param(&v->base, "vit.embeddings.cls_token", &v->class_token,
        choir_dims(1, 1, s->width), init);
    int64_t tokens = s->image / s->patch * (s->image_width / s->patch) + 1;
    choir_module_param(
        &v->base, CHOIR__VIT_PLACES, &v->places, choir_dims(1, tokens, s->width), init);
    choir_module_child(&v->base, "vit.embeddings.patch_embeddings.projection", &v->patches,
        choir_nn_conv2d_with(run, s->channels, s->width, cut));
    choir_module_child(&v->base, "vit.embeddings.dropout", &v->dropout,
        choir_nn_dropout(run, (float)s->dropout));
    for (int64_t i = 0; i < s->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "vit.encoder.layer.%d", (int)i);
        choir_module_child(&v->base, name, &v->layers[i], new_layer(run, s));
    }
    choir_module_child(&v->base, "vit.layernorm", &v->norm,
        choir_nn_layer_norm_with(run, s->width, (float)s->eps));
    choir_module_child(
        &v->base, "classifier", &v->classifier, linear(run, s->width, s->classes, true));
    return &v->base;
}
