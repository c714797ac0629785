/* Layers, except layers of images (images.c): each is a struct of options and parameters, with
 * a forward function that calls the op. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/ops/sliced/sliced.h"
#include "tensor/sequence.h"

choir_init choir__fan_in_init(int64_t fan_in)
{
    CHOIR__DEFAULT_FLOATS;
    double bound = 1 / sqrt((double)fan_in);
    return choir_init_uniform(-bound, bound);
}

bool choir__sizes_positive(choir_scope *run, const char *layer, int64_t a, int64_t b)
{
    if (a > 0 && b > 0)
        return true;
    choir__poison(run, CHOIR_ERR_ARGUMENT, "%s: expected positive sizes, got %lld and %lld",
        layer, (long long)a, (long long)b);
    return false;
}

/* --- embedding --- */

typedef struct embedding {
    choir_module base;
    choir_tensor *weight; /* (count, width) */
} embedding;

static choir_tensor *embedding_forward(choir_module *self, choir_tensor *const *in, int count)
{
    (void)count;
    choir_tensor *weight = ((embedding *)self)->weight;
    return choir__embedding_padded(weight, in[0], weight->param->padding);
}

static const choir_module_class embedding_class = {
    "embedding", sizeof(embedding), embedding_forward, 1};

choir_module *choir_nn_embedding(
    choir_scope *run, int64_t count, int64_t width, choir_init init)
{
    return choir_nn_embedding_with(run, count, width, init, -1);
}

choir_module *choir_nn_embedding_with(
    choir_scope *run, int64_t count, int64_t width, choir_init init, int64_t padding)
{
    run = choir__open_scope(run, __func__);
    embedding *e = choir_module_new(run, &embedding_class);
    if (!choir__sizes_positive(run, "embedding", count, width))
        count = width = 1;
    if (padding >= count)
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "embedding: expected a row of padding below %lld, or -1 for none, got %lld",
            (long long)count, (long long)padding);
    choir_module_param(&e->base, "weight", &e->weight, choir_dims(count, width), init);
    e->weight->param->padding = padding < count ? choir__max(padding, -1) : -1;
    return &e->base;
}

bool choir__is_embedding(const choir_module *module)
{
    return module->type == &embedding_class;
}

choir_tensor *choir__embedding_table(choir_module *module)
{
    return ((embedding *)module)->weight;
}

/* --- norms --- */

typedef struct layer_norm {
    choir_module base;
    choir_tensor *weight, *bias; /* (width) */
    float eps;
} layer_norm;

static choir_tensor *layer_norm_forward(choir_module *self, choir_tensor *const *in, int count)
{
    layer_norm *l = (layer_norm *)self;
    (void)count;
    return choir_layer_norm(in[0], l->weight, l->bias, l->eps);
}

static const choir_module_class layer_norm_class = {
    "layer_norm", sizeof(layer_norm), layer_norm_forward, 1};

choir_module *choir_nn_layer_norm(choir_scope *run, int64_t width)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_layer_norm_with(run, width, 1e-5f);
}

choir_module *choir_nn_layer_norm_with(choir_scope *run, int64_t width, float eps)
{
    run = choir__open_scope(run, __func__);
    layer_norm *l = choir_module_new(run, &layer_norm_class);
    if (!choir__sizes_positive(run, "layer_norm", width, 1))
        width = 1;
    if (!(eps >= 0 && eps < 1)) /* NaN too */
        choir__poison(run, CHOIR_ERR_ARGUMENT, "layer_norm: expected an eps in [0, 1), got %g",
            (double)eps);
    l->eps = eps;
    choir_module_param(
        &l->base, "weight", &l->weight, choir_dims(width), choir_init_constant(1));
    choir_module_param(&l->base, "bias", &l->bias, choir_dims(width), choir_init_constant(0));
    return &l->base;
}

typedef struct rms_norm {
    choir_module base;
    choir_tensor *weight; /* (width) */
    float eps;
    bool one_more; /* the norm's factor is 1 + weight */
} rms_norm;

/* Returns the factor of a weight, which may be a part of the module's. */
static choir_tensor *factor_of(const rms_norm *n, choir_tensor *weight, choir_tensor *x)
{
    return n->one_more ? choir_affine(choir_in(choir_tensor_scope(x), weight), 1, 1) : weight;
}

static choir_tensor *rms_norm_forward(choir_module *self, choir_tensor *const *in, int count)
{
    rms_norm *n = (rms_norm *)self;
    (void)count;
    return choir_rms_norm(in[0], factor_of(n, n->weight, in[0]), n->eps);
}

static const choir_module_class rms_norm_class = {
    "rms_norm", sizeof(rms_norm), rms_norm_forward, 1};

static choir_module *new_rms_norm(choir_scope *run, int64_t width, float eps, bool one_more)
{
    rms_norm *n = choir_module_new(run, &rms_norm_class);
    if (!choir__sizes_positive(run, "rms_norm", width, 1))
        width = 1;
    n->eps = eps;
    n->one_more = one_more;
    choir_module_param(&n->base, "weight", &n->weight, choir_dims(width),
        choir_init_constant(one_more ? 0 : 1));
    return &n->base;
}

choir_module *choir_nn_rms_norm(choir_scope *run, int64_t width, float eps)
{
    return new_rms_norm(choir__open_scope(run, __func__), width, eps, false);
}

choir_module *choir__rms_norm_of_one_more(choir_scope *run, int64_t width, float eps)
{
    return new_rms_norm(run, width, eps, true);
}

/* Heads of a slice are normed by the slice's copy of the weight, so that the gradient of the
 * weight is a sum over slices, in the fixed tree. */
choir_tensor *choir__norm_of_heads(choir_module *norm, choir_tensor *x)
{
    const rms_norm *n = (const rms_norm *)norm;
    const choir__partition *part = n->weight->split;
    if (!part || choir_tensor_ndim(x) != 4)
        return choir_forward(norm, x);
    const int64_t width = choir__cols(x), heads = choir_tensor_size(x, 2) / part->own;
    choir_tensor *weights = choir__repeated_factors(n->weight, x, part); /* (own D) */
    choir_tensor **y = choir__arena_get(
        &choir_tensor_scope(x)->arena, (size_t)part->own * sizeof(choir_tensor *));
    for (int64_t l = 0; l < part->own; l++)
        y[l] = choir_rms_norm(choir_narrow(x, 2, l * heads, heads),
            factor_of(n, choir_narrow(weights, 0, l * width, width), x), n->eps);
    return choir__cat_features(y, (int)part->own, 2);
}

/* Returns what the readers of a norm in this run may be given. Where ranks have parts of
 * weights, they add up the parts of the norm's gradient, in f32: it must not be of a product's
 * dtype. */
static choir__norm_readers readers_in(choir_module *m, choir__norm_readers readers)
{
    const choir__strategy *s = choir__run_of(m->run)->strategies;
    while (s && !s->ops->parts)
        s = s->next;
    return s && readers == CHOIR__FOR_A_PRODUCT ? CHOIR__FOR_PRODUCTS : readers;
}

/* True if the module is a layer or RMS norm whose op may be called in its place; stores what
 * that needs. Hooks on a norm see its input and its result, so with hooks its own forward runs.
 */
static bool is_plain_norm(choir_module *m, choir_tensor *x, choir_tensor **gamma,
    choir_tensor **beta, choir__norm_opts *opts)
{
    *beta = NULL;
    if (m->inside->hooks || m->inside->recompute || !m->inside->ready)
        return false;
    if (m->type == &layer_norm_class) {
        const layer_norm *l = (const layer_norm *)m;
        *gamma = l->weight;
        *beta = l->bias;
        opts->eps = l->eps;
        return true;
    }
    if (m->type == &rms_norm_class) {
        const rms_norm *n = (const rms_norm *)m;
        *gamma = factor_of(n, n->weight, x);
        opts->eps = n->eps;
        opts->rms = true;
        return true;
    }
    return false;
}

/* Hooks and cuts of a pipeline change no bits: the gradients of a norm's result are added up as
 * the model says, not as its readers happen to be found. */
static choir_tensor *read_by(choir_tensor *y, choir__norm_readers readers)
{
    y->for_products = readers == CHOIR__FOR_PRODUCTS;
    return y;
}

choir_tensor *choir__norm_for(choir_module *norm, choir_tensor *x, choir__norm_readers readers)
{
    choir_tensor *gamma, *beta;
    choir__norm_opts opts = {.readers = readers_in(norm, readers)};
    return read_by(is_plain_norm(norm, x, &gamma, &beta, &opts)
                       ? choir__norm(x, gamma, beta, opts)
                       : choir_forward(norm, x),
        readers);
}

choir_tensor *choir__norm_of_sum(choir_module *norm, choir_tensor *x, choir_tensor *r,
    choir__norm_readers readers, choir_tensor **sum)
{
    choir_tensor *gamma, *beta;
    choir__norm_opts opts = {.readers = readers_in(norm, readers)};
    if (is_plain_norm(norm, x, &gamma, &beta, &opts))
        return read_by(choir__add_norm(x, r, gamma, beta, opts, sum), readers);
    *sum = choir_add(x, r);
    return read_by(choir_forward(norm, *sum), readers);
}

/* --- dropout --- */

typedef struct dropout {
    choir_module base;
    float p;
} dropout;

static choir_tensor *dropout_forward(choir_module *self, choir_tensor *const *in, int count)
{
    (void)count;
    return self->training ? choir_dropout(in[0], ((dropout *)self)->p, self->path) : in[0];
}

static const choir_module_class dropout_class = {
    "dropout", sizeof(dropout), dropout_forward, 1};

choir_module *choir_nn_dropout(choir_scope *run, float p)
{
    run = choir__open_scope(run, __func__);
    dropout *d = choir_module_new(run, &dropout_class);
    d->p = p;
    if (!(p >= 0 && p < 1))
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "dropout: expected a probability in [0, 1), got %g", (double)p);
    return &d->base;
}

/* --- functions as modules --- */

typedef struct function {
    choir_module base;
    choir_tensor *(*call)(choir_tensor *x);
} function;

static choir_tensor *function_forward(choir_module *self, choir_tensor *const *in, int count)
{
    (void)count;
    return ((function *)self)->call(in[0]);
}

static choir_tensor *flatten_images(choir_tensor *x)
{
    return choir_flatten(x, 1);
}

static const choir_module_class relu_class = {"relu", sizeof(function), function_forward, 1};
static const choir_module_class gelu_class = {"gelu", sizeof(function), function_forward, 1};
static const choir_module_class gelu_tanh_class = {
    "gelu_tanh", sizeof(function), function_forward, 1};
static const choir_module_class silu_class = {"silu", sizeof(function), function_forward, 1};
static const choir_module_class tanh_class = {"tanh", sizeof(function), function_forward, 1};
static const choir_module_class flatten_class = {
    "flatten", sizeof(function), function_forward, 1};

bool choir__is_function(const choir_module *module)
{
    return module->type->forward == function_forward && module->type != &flatten_class;
}

static choir_module *new_function(
    choir_scope *run, const choir_module_class *type, choir_tensor *(*call)(choir_tensor *))
{
    function *f = choir_module_new(run, type);
    f->call = call;
    return &f->base;
}

choir_module *choir_nn_relu(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &relu_class, choir_relu);
}

choir_module *choir_nn_gelu(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &gelu_class, choir_gelu);
}

choir_module *choir_nn_gelu_tanh(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &gelu_tanh_class, choir_gelu_tanh);
}

choir_module *choir_nn_silu(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &silu_class, choir_silu);
}

choir_module *choir_nn_tanh(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &tanh_class, choir_tanh);
}

choir_module *choir_nn_flatten(choir_scope *run)
{
    run = choir__open_scope(run, __func__);
    return new_function(run, &flatten_class, flatten_images);
}

/* --- sequential --- */

typedef struct sequential {
    choir_module base;
    int count;
    choir_module *parts[];
} sequential;

static choir_tensor *sequential_forward(choir_module *self, choir_tensor *const *in, int count)
{
    sequential *s = (sequential *)self;
    choir_tensor *x = s->count ? choir_forward_n(s->parts[0], in, count) : in[0];
    for (int i = 1; i < s->count; i++)
        x = choir_forward(s->parts[i], x);
    return x;
}

choir_module *choir_nn_sequential_n(choir_scope *run, choir_module *const *parts, int count)
{
    run = choir__open_scope(run, __func__);
    if (!parts)
        count = 0;
    choir_module_class *type = choir__arena_get(&run->arena, sizeof *type);
    *type = (choir_module_class){"sequential",
        sizeof(sequential) + (size_t)count * sizeof(choir_module *), sequential_forward,
        count ? 0 : 1 /* with parts, the first one decides */};
    sequential *s = choir_module_new(run, type);
    s->count = count;
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        choir_module_child(&s->base, name, &s->parts[i], parts[i]);
    }
    return &s->base;
}
