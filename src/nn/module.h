/* Internals of modules: the children, parameters and buffers that a module registered. */
#ifndef CHOIR_MODULE_H
#define CHOIR_MODULE_H

#include <choir/nn.h>
#include "autograd/book.h"
#include "tensor/handle.h"
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
    size_t field; /* offset in the module's struct, for setting a clone's fields */
    choir_module *child;
    choir_tensor *tensor;
    struct choir__module_entry *next;
} choir__module_entry;

/* A choir_module's `inside`. */
struct choir__module_inside {
    choir__module_entry *entries; /* children, parameters, buffers, in order */
    struct choir__module_hook *hooks;
    const struct choir__heads_of *heads; /* NULL: the module does not attend */
    struct choir__contraction *contractions;
    choir__strategy *pinned_by; /* the strategy that shares its weights with other processes */
    choir__strategy *strategy;  /* strategy that created this wrapper; NULL: none */
    bool ready, drawn;          /* ready: the tree has names; drawn: parameters have values */
    bool recompute;             /* choir_module_recompute */
    /* the parameters are gathered together (choir_fsdp_unit, choir__param.unit) */
    bool unit;
    /* forward has also computed ops that follow the module in a published model */
    bool fused;
};

/* Makes m (NULL: none) the module whose forward runs, and returns the one before. */
static inline choir_module *choir__module_enter(choir__run *whole, choir_module *m)
{
    choir_module *before = whole->at;
    whole->at = m;
    whole->path = m ? m->path : NULL;
    return before;
}

/* Returns an error if the module is NULL or belongs to a closed run. */
static inline choir_status choir__use_module(const choir_module *module, const char *function)
{
    return choir__use_part(module ? module->run : NULL, function, "module");
}

/* Returns the module, or, if it cannot be used, an empty module that stands for it. The error
 * becomes the run's; run may be NULL. */
choir_module *choir__module_for(choir_scope *run, choir_module *module, const char *function);

/* Names every module and parameter of the tree by its path, and gives parameters memory and
 * initial values. Every use of the module calls it; idempotent. */
void choir__module_ready(choir_module *root);
/* Only names the tree. A strategy may then provide the parameters' memory. */
void choir__module_name(choir_module *root);
/* Makes the next use of the tree name parameters that were added to m, and draw their values.
 */
void choir__module_grown(choir_module *m);
/* Fills y with initial values of p, from entry number `first` of the whole parameter on, in
 * memory order. If p is held in few bits, y is f32 and gets values, or it is whole rows of
 * words, which are counted then. */
void choir__param_draw(const choir__param *p, choir_tensor *y, int64_t first);
/* Gives a parameter without initial values its memory, which the caller fills. Returns false,
 * with the run's error, if memory runs out. */
bool choir__param_claim(choir__param *p);

/* Makes an init that follows from the shape one with numbers, unless it is orthogonal. Returns
 * false, with the run's error, if the shape has too few dimensions for it. */
bool choir__init_resolve(
    choir_scope *run, const char *name, choir_shape shape, choir_init *init);
/* Fills y with the entries of an orthogonal parameter from number `first` on. */
void choir__draw_orthogonal(const choir__param *p, choir_tensor *y, int64_t first);

/* PyTorch's default for linear and convolution, kaiming_uniform(a = sqrt 5): uniform in
 * +-1/sqrt(fan_in), for weights and biases. */
choir_init choir__fan_in_init(int64_t fan_in);

/* Returns whether both sizes are positive. If not, the run gets an error that names the
 * layer. */
bool choir__sizes_positive(choir_scope *run, const char *layer, int64_t a, int64_t b);

/* Freezes or thaws a parameter. One that is held in fewer bits stays frozen, with an error of
 * the run. */
void choir__param_freeze(choir_tensor *param, bool frozen);

/* Like choir_module_visit, but also before parameters have values. */
void choir__module_visit_named(
    choir_module *module, bool buffers, choir_visit_fn *visit, void *arg);

/* Returns the number of slices that the module's large weights are cut into; 1: none is cut. */
int64_t choir__module_slices(choir_module *module);

/* Calls each for every block of the module: the innermost numbered children that have children
 * of their own ("blocks.3", "layer1.0"), or else its direct children. Returns their number. */
int choir__module_blocks(
    choir_module *module, void (*each)(choir_module *block, void *arg), void *arg);

/* Calls visit for every name that choir_module_tie added, with the parameter it refers to. */
void choir__module_visit_ties(choir_module *module, choir_visit_fn *visit, void *arg);

/* Describes a module that attends: the names of its linear layers for queries, keys and values
 * (side by side in qkv, or separate), and of the layer that reads the heads. Its forward
 * derives the number of heads from its input's width, so that a rank may hold only some of
 * them. */
typedef struct choir__heads_of {
    const char *qkv, *q, *k, *v, *out;
    const char *q_norm, *k_norm; /* norms of single heads, which share their weights; NULL */
    int64_t heads, kv_heads;
} choir__heads_of;

void choir__module_heads(choir_module *module, choir__heads_of heads);

/* A mark of choir_module_contraction. */
typedef struct choir__contraction {
    choir_module *up, *down;
    int matrices; /* side by side in up's outputs */
    struct choir__contraction *next;
} choir__contraction;

/* Returns whether the module is a linear layer x W + b, and its weight and bias (or NULL). The
 * weight is (in, out) if *in_out, else (out, in). */
bool choir__linear_layer(
    const choir_module *module, choir_tensor **weight, choir_tensor **bias, bool *in_out);
bool choir__is_embedding(const choir_module *module);
/* Returns whether the module maps each number independently, as ReLU and GELU do. */
bool choir__is_function(const choir_module *module);

/* GPT-2's linear layer, whose weight is (in, out). */
choir_module *choir__linear_in_out_new(
    choir_scope *run, int64_t in, int64_t out, double deviation);

/* Returns the weight of a choir_nn_embedding, so that a caller can tie it. */
choir_tensor *choir__embedding_table(choir_module *embedding);

/* Makes every choir_nn_batch_norm in m (or m itself) share statistics from now on. */
void choir__batch_norms_share(choir_module *m, choir__strategy *shared);

/* Attention of q (B, T, C) to k and v (B, S, C). C consists of `heads` consecutive runs.
 * Returns (B, T, C). */
choir_tensor *choir__attention_of_heads(choir_tensor *q, choir_tensor *k, choir_tensor *v,
    int64_t heads, choir_attention_opts opts);

/* An RMS norm whose weights are published as w - 1, so that 0 leaves a number as it is (Gemma).
 */
choir_module *choir__rms_norm_of_one_more(choir_scope *run, int64_t width, float eps);

/* Norms each head of x (B, T, N, D) by an RMS norm of width D. In
 * slices of the heads each slice has a copy of its weight. */
choir_tensor *choir__norm_of_heads(choir_module *norm, choir_tensor *x);

/* Like choir_forward(norm, x), for a result that is read by `readers`. */
choir_tensor *choir__norm_for(choir_module *norm, choir_tensor *x, choir__norm_readers readers);
/* Returns norm(x + r), and x + r in *sum; in one pass if the module is a layer or RMS norm. */
choir_tensor *choir__norm_of_sum(choir_module *norm, choir_tensor *x, choir_tensor *r,
    choir__norm_readers readers, choir_tensor **sum);

/* choir_nn_transformer_block with every choice that published models make. */
typedef struct choir__block_opts {
    int64_t width, hidden; /* width of the residual stream; width of the feed-forward layer */
    int heads;
    bool causal;
    float dropout, eps;
    /* standard deviation of initial weights that write to the stream */
    double residual_deviation;
} choir__block_opts;

choir_module *choir__nn_block(choir_scope *run, choir__block_opts opts);

/* Move one parameter or one tensor to a device: the handle stays, its memory is new. A
 * parameter's values are copied if it has any. It leaves its book together with its gradients,
 * which is an error between the first backward of a step and the step's end. */

/* Returns an error if the parameter cannot move: it has replicas, gradients of an unfinished
 * step, or a reducer. */
choir_status choir__param_can_move(const choir__param *param);
choir_status choir__param_move(choir__param *param, choir_device *device);
/* Moves the parameter's companions; otherwise an optimizer moves its state at its next step. */
choir_status choir__param_move_companions(choir__param *param, choir_device *device);
choir_status choir__tensor_move(choir_tensor *t, choir_device *device, bool copied);

/* Begins a segment (tensor/segment.h) of ops on in. NULL: there is nothing to recompute. */
choir__segment *choir__recompute_begin(choir_tensor *const *in, int count);

/* Returns trainable and frozen parameters in order of registration, each once; the caller frees
 * the list. */
choir__param **choir__module_params(choir_module *module, int *count);
/* Like choir__module_params, but also before parameters have values. */
choir__param **choir__module_named_params(choir_module *module, int *count);
/* Returns an error if a parameter is of f64, for a strategy that trains none. */
choir_status choir__module_refuse_f64(choir_module *module, const char *strategy);

#endif
