/* Inside modules: what was registered by field. */
#ifndef CHOIR_MODULE_H
#define CHOIR_MODULE_H

#include <choir/nn.h>
#include "autograd/book.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"

typedef enum choir__entry_kind {
    CHOIR__CHILD,
    CHOIR__PARAM,
    CHOIR__TIED,
    CHOIR__BUFFER,
    CHOIR__CONSTANT /* neither trained nor saved: choir_module_constant */
} choir__entry_kind;

typedef struct choir__module_entry {
    choir__entry_kind kind;
    const char *name;
    size_t field; /* offset in the module's struct: a clone's fields are set by it */
    choir_module *child;
    choir_tensor *tensor;
    struct choir__module_entry *next;
} choir__module_entry;

/* What a choir_module points to as `inside`. */
struct choir__module_inside {
    choir__module_entry *entries; /* children, parameters, buffers, in order */
    struct choir__module_hook *hooks;
    const struct choir__heads_of *heads; /* of a module that attends; NULL: it does not */
    choir__strategy *strategy;           /* the strategy whose module this is; NULL: none */
    bool ready, drawn;                   /* its tree is named; has values */
    bool recompute;                      /* choir_module_recompute */
    bool unit; /* its parameters move together: choir_fsdp_unit; see choir__param.unit */
};

/* Names every module and parameter of the tree by its path, and gives parameters memory and
 * initial values. Any use of the module calls it; idempotent. */
void choir__module_ready(choir_module *root);
/* The names alone: a strategy may then give parameters memory of its own. */
void choir__module_name(choir_module *root);
/* Initial values of p into y: those from number `first` on of the whole parameter, as its
 * memory has them. */
void choir__param_draw(const choir__param *p, choir_tensor *y, int64_t first);

/* PyTorch's default for linear and convolution, kaiming_uniform(a = sqrt 5): uniform in
 * +-1/sqrt(fan_in), for weights and biases. */
choir_init choir__fan_in_init(int64_t fan_in);

/* Whether both are positive; if not, an error of the run that names the layer. */
bool choir__sizes_positive(choir_scope *run, const char *layer, int64_t a, int64_t b);

/* choir_module_visit of parameters that may have no values yet. */
void choir__module_visit_named(
    choir_module *module, bool buffers, choir_visit_fn *visit, void *arg);

/* Calls each for every block of the module: the innermost numbered children that have children
 * of their own ("blocks.3", "layer1.0"); where there are none, its children. Returns how many.
 */
int choir__module_blocks(
    choir_module *module, void (*each)(choir_module *block, void *arg), void *arg);

/* Calls visit for every name that choir_module_tie gave, with the parameter it is of. */
void choir__module_visit_ties(choir_module *module, choir_visit_fn *visit, void *arg);

/* Of a module that attends: the names of its linear layers that make queries, keys and values
 * (side by side in qkv, or one each), and of the one that reads the heads. Its forward counts
 * the heads by the width it is given, so that a rank may have some of them. */
typedef struct choir__heads_of {
    const char *qkv, *q, *k, *v, *out;
    int64_t heads, kv_heads;
} choir__heads_of;

void choir__module_heads(choir_module *module, choir__heads_of heads);

/* A layer x W + b: its weight, (out, in) or, if *in_out, (in, out), and its bias or NULL.
 * false: it is another. */
bool choir__linear_layer(
    const choir_module *module, choir_tensor **weight, choir_tensor **bias, bool *in_out);
bool choir__is_embedding(const choir_module *module);
/* What works on each number by itself: a ReLU, a GELU. */
bool choir__is_function(const choir_module *module);

/* GPT-2's linear layer, whose weight is (in, out); and its weight and bias. false: the module
 * is of another class. */
choir_module *choir__conv1d_new(choir_scope *run, int64_t in, int64_t out, double deviation);
bool choir__conv1d_weights(
    const choir_module *module, choir_tensor **weight, choir_tensor **bias);

/* The weight of a choir_nn_embedding, to tie. */
choir_tensor *choir__embedding_table(choir_module *embedding);

/* The choir_nn_batch_norm in m, and m if it is one, share statistics from now on. */
void choir__batch_norms_share(choir_module *m, choir__strategy *shared);

/* Attention of q (B, T, C), k and v (B, S, C), whose C numbers are `heads` runs -> (B, T, C).
 */
choir_tensor *choir__attention_of_heads(choir_tensor *q, choir_tensor *k, choir_tensor *v,
    int64_t heads, choir_attention_opts opts);

/* norm(x + r), and the sum: in one pass where the module is a layer or RMS norm. */
choir_tensor *choir__norm_of_sum(
    choir_module *norm, choir_tensor *x, choir_tensor *r, choir_tensor **sum);

/* choir_nn_transformer_block with all that a published model may choose. */
typedef struct choir__block_opts {
    int64_t width, hidden; /* of the stream; of the feed-forward layer */
    int heads;
    bool causal;
    float dropout, eps;
    double residual_deviation; /* of the initial weights that write to the stream */
} choir__block_opts;

choir_module *choir__nn_block(choir_scope *run, choir__block_opts opts);

/* choir_module_to of one parameter, of one tensor: the same handle, new memory on device. A
 * parameter's values are copied if it has any yet; it leaves its book, gradients and all, which
 * is an error between the first backward of a step and its end. */
/* Whether gradients are on their way into its book: then it cannot move. */
choir_status choir__param_can_move(const choir__param *param);
choir_status choir__param_move(choir__param *param, choir_device *device);
choir_status choir__tensor_move(choir_tensor *t, choir_device *device, bool copied);

/* A segment (tensor/tensor.h) of ops on in; NULL: there is nothing to recompute. */
choir__segment *choir__recompute_begin(choir_tensor *const *in, int count);

/* Trainable and frozen parameters in order of registration, each once; the caller frees the
 * list. */
choir__param **choir__module_params(choir_module *module, int *count);
/* The same of parameters that may have no values yet. */
choir__param **choir__module_named_params(choir_module *module, int *count);

#endif
