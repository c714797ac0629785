/* The Swin encoder: attention within windows of the image, windows shifted by half in every
 * second block, and patches merged two by two between stages. Parameter names follow
 * transformers' DonutSwinModel.
 *
 * Two tensors control which positions attend to each other; the module's constructor computes
 * them once. The first is the index of each pair of positions in the table of relative
 * positions. The second, for shifted windows, is a mask that separates parts which only the
 * shift made adjacent. Attention's bias is their sum. */
#include "nn/models/donut.h"

#include <stdio.h>
#include <stdlib.h>

#include "nn/module.h"

/* --- attention in a window --- */

typedef struct self_attention {
    choir_module base;
    choir_module *query, *key, *value;
    choir_tensor *table;   /* ((2w-1)^2, heads) */
    choir_tensor *index;   /* (w^2 w^2) i64, of the run */
    choir_tensor *mask;    /* (windows, 1, w^2, w^2), of the run; NULL: not shifted */
    int64_t heads, places; /* w^2 */
} self_attention;

/* Returns the relative positions of pairs of positions in a w x w window, as rows of the
 * table. */
static choir_tensor *relative_positions(choir_scope *run, int64_t w)
{
    int64_t n = w * w, *ids = choir__alloc((size_t)(n * n) * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            ids[i * n + j] = (i / w - j / w + w - 1) * (2 * w - 1) + (i % w - j % w + w - 1);
    choir_tensor *t = choir_from(run, CHOIR_I64, choir_dims(n * n), ids);
    free(ids);
    return t;
}

/* Returns the part of a shifted side of length `size` that a position comes from: 0, 1 or 2. */
static int part_of(int64_t at, int64_t size, int64_t w, int64_t shift)
{
    return at < size - w ? 0 : at < size - shift ? 1 : 2;
}

/* Returns a mask with -100 where two positions of a window come from different parts of the
 * image. */
static choir_tensor *shift_mask(
    choir_scope *run, int64_t height, int64_t width, int64_t w, int64_t shift)
{
    int64_t across = width / w, windows = height / w * across, n = w * w;
    float *mask = choir__alloc((size_t)(windows * n * n) * sizeof *mask), *m = mask;
    for (int64_t k = 0; k < windows; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t top = k / across * w, left = k % across * w;
                bool same = part_of(top + i / w, height, w, shift) ==
                                part_of(top + j / w, height, w, shift) &&
                            part_of(left + i % w, width, w, shift) ==
                                part_of(left + j % w, width, w, shift);
                *m++ = same ? 0 : -100;
            }
    choir_tensor *t = choir_from(run, CHOIR_F32, choir_dims(windows, 1, n, n), mask);
    free(mask);
    return t;
}

static choir_tensor *self_attention_forward(
    choir_module *self, choir_tensor *const *in, int count)
{
    self_attention *a = (self_attention *)self;
    choir_tensor *x = in[0]; /* (windows of all images, w^2, C) */
    choir_scope *s = choir_tensor_scope(x);
    int64_t n = a->places;
    (void)count;
    choir_tensor *bias = choir_embedding(choir_in(s, a->table), a->index); /* (w^4, heads) */
    bias = choir_permute(
        choir_reshape(bias, choir_dims(1, n, n, a->heads)), choir_dims(0, 3, 1, 2));
    choir_attention_opts opts = choir_attention_defaults();
    opts.bias = a->mask ? choir_add(bias, a->mask) : bias; /* (1 or windows, heads, w^2, w^2) */
    /* one after the other: compilers order a call's arguments as they like, and backward adds
     * the gradients of x in the reverse order */
    choir_tensor *v = choir_forward(a->value, x);
    choir_tensor *k = choir_forward(a->key, x);
    choir_tensor *q = choir_forward(a->query, x);
    return choir__attention_of_heads(q, k, v, a->heads, opts);
}

static const choir_module_class self_attention_class = {
    "swin attention", sizeof(self_attention), self_attention_forward, 1};

struct place { /* place of a block */
    int64_t height, width, channels, heads, window, shift;
};

static const choir_init init = {CHOIR_INIT_NORMAL, 0, 0.02};

static choir_module *linear(choir_scope *run, int64_t in, int64_t out)
{
    return choir_nn_linear_with(run, in, out, true, init);
}

static choir_module *new_self_attention(choir_scope *run, const struct place *p)
{
    self_attention *a = choir_module_new(run, &self_attention_class);
    int64_t c = p->channels, w = p->window;
    a->heads = p->heads;
    a->places = w * w;
    choir_module_param(&a->base, "relative_position_bias_table", &a->table,
        choir_dims((2 * w - 1) * (2 * w - 1), p->heads), choir_init_constant(0));
    choir_module_child(&a->base, "query", &a->query, linear(run, c, c));
    choir_module_child(&a->base, "key", &a->key, linear(run, c, c));
    choir_module_child(&a->base, "value", &a->value, linear(run, c, c));
    choir_module_constant(&a->base, "index", &a->index, relative_positions(run, w));
    if (p->shift)
        choir_module_constant(
            &a->base, "mask", &a->mask, shift_mask(run, p->height, p->width, w, p->shift));
    return &a->base;
}

/* --- modules of two parts, with the published names --- */

typedef struct pair {
    choir_module base;
    choir_module *first, *second;
} pair;

static choir_tensor *pair_forward(choir_module *self, choir_tensor *const *in, int count)
{
    pair *p = (pair *)self;
    (void)count;
    choir_tensor *x = choir_forward(p->first, in[0]);
    return p->second ? choir_forward(p->second, x) : x;
}

static const choir_module_class pair_class = {"swin part", sizeof(pair), pair_forward, 1};

static choir_module *new_pair(choir_scope *run, const char *first_name, choir_module *first,
    const char *second_name, choir_module *second)
{
    pair *p = choir_module_new(run, &pair_class);
    choir_module_child(&p->base, first_name, &p->first, first);
    if (second)
        choir_module_child(&p->base, second_name, &p->second, second);
    return &p->base;
}

/* --- a block --- */

typedef struct block {
    choir_module base;
    choir_module *layernorm_before, *attention, *layernorm_after, *intermediate, *output,
        *dropout;
    struct place at;
} block;

/* Moves rows and columns of x (B, H, W, C) up and left by `by`, around the edge. */
static choir_tensor *roll(choir_tensor *x, int64_t by)
{
    for (int dim = 1; dim <= 2 && by; dim++) {
        int64_t size = choir_tensor_size(x, dim), cut = (by % size + size) % size;
        choir_tensor *parts[2] = {
            choir_narrow(x, dim, cut, size - cut), choir_narrow(x, dim, 0, cut)};
        x = choir_cat(parts, 2, dim);
    }
    return x;
}

/* x (B, H, W, C) -> (B H/w W/w, w^2, C), and back. */
static choir_tensor *to_windows(choir_tensor *x, const struct place *p)
{
    int64_t b = choir_tensor_size(x, 0), w = p->window, c = p->channels;
    x = choir_reshape(x, choir_dims(b, p->height / w, w, p->width / w, w, c));
    return choir_reshape(choir_transpose(x, 2, 3), choir_dims(-1, w * w, c));
}

static choir_tensor *from_windows(choir_tensor *x, const struct place *p)
{
    int64_t w = p->window, c = p->channels;
    x = choir_reshape(x, choir_dims(-1, p->height / w, p->width / w, w, w, c));
    return choir_reshape(choir_transpose(x, 2, 3), choir_dims(-1, p->height, p->width, c));
}

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *k = (block *)self;
    const struct place *p = &k->at;
    choir_tensor *x = in[0]; /* (B, H W, C) */
    (void)count;
    choir_shape shape = choir_tensor_shape(x);
    choir_tensor *y = choir_forward(k->layernorm_before, x);
    y = choir_reshape(y, choir_dims(shape.dim[0], p->height, p->width, p->channels));
    y = choir_forward(k->attention, to_windows(roll(y, p->shift), p));
    y = roll(from_windows(y, p), -p->shift);
    x = choir_add(x, choir_forward(k->dropout, choir_reshape(y, shape)));
    y = choir_gelu(choir_forward(k->intermediate, choir_forward(k->layernorm_after, x)));
    return choir_add(x, choir_forward(k->dropout, choir_forward(k->output, y)));
}

static const choir_module_class block_class = {"swin block", sizeof(block), block_forward, 1};

static choir_module *new_block(
    choir_scope *run, const struct place *p, const choir__swin_sizes *n)
{
    block *k = choir_module_new(run, &block_class);
    int64_t c = p->channels;
    k->at = *p;
    choir_module_child(&k->base, "layernorm_before", &k->layernorm_before,
        choir_nn_layer_norm_with(run, c, (float)n->eps));
    choir_module_child(&k->base, "attention", &k->attention,
        new_pair(run, "self", new_self_attention(run, p), "output",
            new_pair(run, "dense", linear(run, c, c), NULL, NULL)));
    choir_module_child(&k->base, "layernorm_after", &k->layernorm_after,
        choir_nn_layer_norm_with(run, c, (float)n->eps));
    choir_module_child(&k->base, "intermediate", &k->intermediate,
        new_pair(run, "dense", linear(run, c, 4 * c), NULL, NULL));
    choir_module_child(&k->base, "output", &k->output,
        new_pair(run, "dense", linear(run, 4 * c, c), NULL, NULL));
    choir_module_child(
        &k->base, "dropout", &k->dropout, choir_nn_dropout(run, (float)n->dropout));
    return &k->base;
}

/* --- merging patches two by two --- */

typedef struct merging {
    choir_module base;
    choir_module *reduction, *norm;
    struct place at;
} merging;

static choir_tensor *merging_forward(choir_module *self, choir_tensor *const *in, int count)
{
    merging *m = (merging *)self;
    int64_t h = m->at.height / 2, w = m->at.width / 2, c = m->at.channels;
    (void)count;
    choir_tensor *x = choir_reshape(in[0], choir_dims(-1, h, 2, w, 2, c));
    x = choir_permute(x, choir_dims(0, 1, 3, 4, 2, 5)); /* (B, H/2, W/2, column, row, C) */
    x = choir_reshape(x, choir_dims(-1, h * w, 4 * c));
    return choir_forward(m->reduction, choir_forward(m->norm, x));
}

static const choir_module_class merging_class = {
    "swin merging", sizeof(merging), merging_forward, 1};

static choir_module *new_merging(choir_scope *run, const struct place *p)
{
    merging *m = choir_module_new(run, &merging_class);
    m->at = *p;
    choir_module_child(&m->base, "reduction", &m->reduction,
        choir_nn_linear_with(run, 4 * p->channels, 2 * p->channels, false, init));
    choir_module_child(&m->base, "norm", &m->norm, choir_nn_layer_norm(run, 4 * p->channels));
    return &m->base;
}

/* --- stages --- */

typedef struct stage {
    choir_module base;
    choir_module *block[CHOIR__SWIN_BLOCKS], *downsample;
    int blocks;
} stage;

static choir_tensor *stage_forward(choir_module *self, choir_tensor *const *in, int count)
{
    stage *s = (stage *)self;
    choir_tensor *x = in[0];
    (void)count;
    for (int i = 0; i < s->blocks; i++)
        x = choir_forward(s->block[i], x);
    return s->downsample ? choir_forward(s->downsample, x) : x;
}

static const choir_module_class stage_class = {"swin stage", sizeof(stage), stage_forward, 1};

static choir_module *new_stage(
    choir_scope *run, const choir__swin_sizes *n, int index, struct place at)
{
    stage *s = choir_module_new(run, &stage_class);
    s->blocks = (int)n->depth[index];
    for (int i = 0; i < s->blocks; i++) {
        char name[32];
        int64_t smaller = choir__min(at.height, at.width);
        struct place p = at; /* an image that is one window is never shifted */
        p.window = n->window;
        p.shift = i % 2 && n->window < smaller ? n->window / 2 : 0;
        snprintf(name, sizeof name, "blocks.%d", i);
        choir_module_child(&s->base, name, &s->block[i], new_block(run, &p, n));
    }
    if (index < n->stages - 1)
        choir_module_child(&s->base, "downsample", &s->downsample, new_merging(run, &at));
    return &s->base;
}

/* --- the encoder --- */

typedef struct swin {
    choir_module base;
    choir_module *projection, *norm, *dropout, *layers[CHOIR__SWIN_STAGES];
    choir__swin_sizes n;
} swin;

static choir_tensor *swin_forward(choir_module *self, choir_tensor *const *in, int count)
{
    swin *s = (swin *)self;
    choir_tensor *x = in[0];
    (void)count;
    if (choir_tensor_ndim(x) != 4 || choir_tensor_size(x, 1) != s->n.channels ||
        choir_tensor_size(x, 2) != s->n.height || choir_tensor_size(x, 3) != s->n.width)
        return choir__poison(choir_tensor_scope(x), CHOIR_ERR_SHAPE,
            "swin: expected images (B, %lld, %lld, %lld), got %s", (long long)s->n.channels,
            (long long)s->n.height, (long long)s->n.width,
            choir__shape_text(choir_tensor_shape(x)));
    x = choir_forward(s->projection, x); /* (B, C, H/patch, W/patch) */
    x = choir_transpose(choir_flatten(x, 2), 1, 2);
    x = choir_forward(s->dropout, choir_forward(s->norm, x)); /* (B, T, C) */
    for (int i = 0; i < s->n.stages; i++)
        x = choir_forward(s->layers[i], x);
    return x;
}

static const choir_module_class swin_class = {"swin", sizeof(swin), swin_forward, 1};

static struct place place_of(const choir__swin_sizes *n, int index)
{
    return (struct place){.height = n->height / n->patch >> index,
        .width = n->width / n->patch >> index,
        .channels = n->embed << index,
        .heads = n->heads[index]};
}

choir_module *choir__swin_new(choir_scope *run, const choir__swin_sizes *n)
{
    swin *s = choir_module_new(run, &swin_class);
    choir_conv_opts opts = choir_conv_defaults();
    s->n = *n;
    opts.stride = (int)n->patch;
    choir_module_child(&s->base, "embeddings.patch_embeddings.projection", &s->projection,
        choir_nn_conv2d(run, n->channels, n->embed, (int)n->patch, opts));
    choir_module_child(
        &s->base, "embeddings.norm", &s->norm, choir_nn_layer_norm(run, n->embed));
    choir_module_child(
        &s->base, "embeddings.dropout", &s->dropout, choir_nn_dropout(run, (float)n->dropout));
    for (int i = 0; i < n->stages; i++) {
        char name[32];
        snprintf(name, sizeof name, "encoder.layers.%d", i);
        choir_module_child(&s->base, name, &s->layers[i], new_stage(run, n, i, place_of(n, i)));
    }
    return &s->base;
}

int64_t choir__swin_out(const choir__swin_sizes *n)
{
    return n->embed << (n->stages - 1);
}

/* Windows divide the last stage's image, so they divide the larger ones before it. */
int64_t choir__swin_side(const choir__swin_sizes *n)
{
    return (n->patch * n->window) << (n->stages - 1);
}

const char *choir__swin_wrong(const choir__swin_sizes *n)
{
    for (int i = 0; i < n->stages; i++) {
        struct place p = place_of(n, i);
        if (n->depth[i] < 1 || n->depth[i] > CHOIR__SWIN_BLOCKS)
            return "expected 1 to 64 blocks per stage";
        if (n->heads[i] < 1 || p.channels % n->heads[i])
            return "expected heads that divide each stage's channels";
    }
    return NULL;
}
