/* A layer of BERT and its relatives: attention to all positions, and a feed-forward net with
 * the exact GELU. Each result is added to its input, and the sum is normalised (post-norm). */
#include "nn/models/bert.h"

typedef struct layer {
    choir_module base;
    choir_module *query, *key, *value, *mix, *mix_dropout, *mix_norm;
    choir_module *up, *down, *down_dropout, *down_norm;
    int64_t head_dim;
} layer;

static choir_tensor *attend(layer *l, choir_tensor *x, choir_tensor *bias)
{
    choir_attention_opts opts = choir_attention_defaults();
    opts.bias = bias;
    /* statements have an order, which sums in backward follow */
    choir_tensor *q = choir_forward(l->query, x);
    choir_tensor *v = choir_forward(l->value, x);
    choir_tensor *k = choir_forward(l->key, x);
    choir_tensor *y = choir__attention_of_heads(q, k, v, choir__cols(q) / l->head_dim, opts);
    y = choir_forward(l->mix, y);
    return l->mix_dropout ? choir_forward(l->mix_dropout, y) : y;
}

static choir_tensor *layer_forward(choir_module *self, choir_tensor *const *in, int count)
{
    layer *l = (layer *)self;
    choir_tensor *x = in[0], *sum; /* (B, T, C) */
    choir_tensor *a = attend(l, x, count > 1 ? in[1] : NULL);
    x = choir__norm_of_sum(l->mix_norm, a, x, CHOIR__FOR_PRODUCTS, &sum);
    choir__done_with(a);
    choir__done_with(sum);
    choir_tensor *up = choir_forward(l->up, x), *h = choir_gelu(up); /* (B, T, hidden) */
    choir__done_with(up);
    a = choir_forward(l->down, h);
    choir__done_with(h);
    a = choir_forward(l->down_dropout, a);
    choir_tensor *y = choir__norm_of_sum(l->down_norm, a, x, CHOIR__FOR_PRODUCTS, &sum);
    choir__done_with(a);
    choir__done_with(x);
    choir__done_with(sum);
    return y;
}

static const choir_module_class layer_class = {"bert layer", sizeof(layer), layer_forward, 2};

choir_module *choir__bert_linear(choir_scope *run, int64_t in, int64_t out)
{
    return choir_nn_linear_with(run, in, out, true, choir_init_normal(0, 0.02));
}

choir_module *choir__bert_layer(choir_scope *run, const choir__bert_sizes *s)
{
    layer *l = choir_module_new(run, &layer_class);
    const choir__bert_layer_names *n = s->family->layer;
    int64_t c = s->width;
    float p = (float)s->dropout, eps = (float)s->eps;
    l->head_dim = c / s->heads;
    const struct {
        const char *name;
        choir_module **field, *made;
    } parts[] = {
        {n->query, &l->query, choir__bert_linear(run, c, c)},
        {n->key, &l->key, choir__bert_linear(run, c, c)},
        {n->value, &l->value, choir__bert_linear(run, c, c)},
        {n->mix, &l->mix, choir__bert_linear(run, c, c)},
        {n->mix_dropout, &l->mix_dropout, n->mix_dropout ? choir_nn_dropout(run, p) : NULL},
        {n->mix_norm, &l->mix_norm, choir_nn_layer_norm_with(run, c, eps)},
        {n->up, &l->up, choir__bert_linear(run, c, s->hidden)},
        {n->down, &l->down, choir__bert_linear(run, s->hidden, c)},
        {n->down_dropout, &l->down_dropout, choir_nn_dropout(run, p)},
        {n->down_norm, &l->down_norm, choir_nn_layer_norm_with(run, c, eps)},
    };
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        if (parts[i].name)
            choir_module_child(&l->base, parts[i].name, parts[i].field, parts[i].made);
    choir__module_heads(&l->base, (choir__heads_of){.q = n->query,
                                      .k = n->key,
                                      .v = n->value,
                                      .out = n->mix,
                                      .heads = s->heads,
                                      .kv_heads = s->heads});
    return &l->base;
}
