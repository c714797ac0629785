/* torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: attention and a feed-forward
 * layer. Each part adds to x, and is normalised after that or, with norm_first, before it.
 *
 *   norm(x + part(x))        or        x + part(norm(x)) */
#include <choir/attention.h>
#include <choir/select.h>
#include <stdlib.h>

#include "nn/module.h"
#include "tensor/handle.h"

typedef struct layer {
    choir_module base;
    choir_module *self_attn, *multihead_attn; /* the second one: in decoders */
    choir_module *linear1, *linear2, *dropout, *norm[3], *dropouts[3];
    bool gelu, norm_first;
} layer;

choir_transformer_opts choir_transformer_defaults(void)
{
    return (choir_transformer_opts){.hidden = 2048, .dropout = 0.1f, .eps = 1e-5f};
}

/* --- parts, whose results are added to x --- */

static choir_tensor *attention(
    choir_module *m, choir_tensor *x, choir_tensor *memory, choir_tensor *mask)
{
    return choir_forward(m, x, memory, NULL, mask);
}

static choir_tensor *feed_forward(const layer *l, choir_tensor *x)
{
    choir_tensor *h = choir_forward(l->linear1, x);
    h = l->gelu ? choir_gelu(h) : choir_relu(h);
    return choir_forward(l->linear2, choir_forward(l->dropout, h));
}

/* Runs part number i: 0 is attention to x, the last one feeds forward, and one between them
 * attends to memory. */
static choir_tensor *part(
    const layer *l, int i, choir_tensor *x, choir_tensor *memory, choir_tensor *const *mask)
{
    bool decodes = l->multihead_attn, last = i == 1 + decodes;
    choir_tensor *h = l->norm_first ? choir_forward(l->norm[i], x) : x;
    h = last ? feed_forward(l, h)
        : i  ? attention(l->multihead_attn, h, memory, mask[1])
             : attention(l->self_attn, h, NULL, mask[0]);
    x = choir_add(x, choir_forward(l->dropouts[i], h));
    return l->norm_first ? x : choir_forward(l->norm[i], x);
}

static choir_tensor *encoder_forward(choir_module *self, choir_tensor *const *in, int count)
{
    const layer *l = (layer *)self;
    choir_tensor *mask[2] = {count > 1 ? in[1] : NULL}, *x = in[0];
    for (int i = 0; i < 2; i++)
        x = part(l, i, x, NULL, mask);
    return x;
}

static choir_tensor *decoder_forward(choir_module *self, choir_tensor *const *in, int count)
{
    const layer *l = (layer *)self;
    choir_tensor *mask[2] = {count > 2 ? in[2] : NULL, count > 3 ? in[3] : NULL}, *x = in[0];
    if (count < 2 || !in[1])
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "transformer_decoder_layer: expected x and memory, got one input");
    for (int i = 0; i < 3; i++)
        x = part(l, i, x, in[1], mask);
    return x;
}

static const choir_module_class encoder_class = {
    "transformer_encoder_layer", sizeof(layer), encoder_forward, 2};
static const choir_module_class decoder_class = {
    "transformer_decoder_layer", sizeof(layer), decoder_forward, 4};

/* --- making --- */

static void add_norms(layer *l, int64_t width, const choir_transformer_opts *o, int parts)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    static const char *const drops[] = {"dropout1", "dropout2", "dropout3"};
    choir_scope *run = l->base.run;
    for (int i = 0; i < parts; i++)
        choir_module_child(
            &l->base, norms[i], &l->norm[i], choir_nn_layer_norm_with(run, width, o->eps));
    for (int i = 0; i < parts; i++)
        choir_module_child(
            &l->base, drops[i], &l->dropouts[i], choir_nn_dropout(run, o->dropout));
}

static choir_module *new_layer(choir_scope *run, const choir_module_class *type, int64_t width,
    int heads, choir_transformer_opts o)
{
    layer *l = choir_module_new(run, type);
    bool decodes = type == &decoder_class;
    choir_multihead_opts seen = {.dropout = o.dropout}, self = {o.causal, false, o.dropout};
    if (o.hidden < 1) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "%s: expected a positive hidden width, got %lld; begin with "
            "choir_transformer_defaults()",
            type->name, (long long)o.hidden);
        o.hidden = 1;
    }
    width = choir__max(width, 1);
    l->gelu = o.gelu, l->norm_first = o.norm_first;
    choir_module_child(&l->base, "self_attn", &l->self_attn,
        choir_nn_multihead_attention(run, width, heads, self));
    if (decodes)
        choir_module_child(&l->base, "multihead_attn", &l->multihead_attn,
            choir_nn_multihead_attention(run, width, heads, seen));
    choir_module_child(&l->base, "linear1", &l->linear1, choir_nn_linear(run, width, o.hidden));
    choir_module_child(&l->base, "dropout", &l->dropout, choir_nn_dropout(run, o.dropout));
    choir_module_child(&l->base, "linear2", &l->linear2, choir_nn_linear(run, o.hidden, width));
    add_norms(l, width, &o, 2 + decodes);
    choir_module_contraction(&l->base, l->linear1, 1, l->linear2);
    return &l->base;
}

choir_module *choir_nn_transformer_encoder_layer(
    choir_scope *run, int64_t width, int heads, choir_transformer_opts opts)
{
    return new_layer(choir__open_scope(run, __func__), &encoder_class, width, heads, opts);
}

choir_module *choir_nn_transformer_decoder_layer(
    choir_scope *run, int64_t width, int heads, choir_transformer_opts opts)
{
    return new_layer(choir__open_scope(run, __func__), &decoder_class, width, heads, opts);
}
