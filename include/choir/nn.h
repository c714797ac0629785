/* Modules: parameters, the modules they are made of, and a forward function.
 *
 * A user's own model is a struct whose first member is choir_module, a forward function, and
 * children and parameters registered by field, so that Choir can name, walk, shard and save
 * them:
 *
 *     typedef struct net { choir_module base; choir_module *fc1, *fc2; } net;
 *
 *     static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
 *     {
 *         net *n = (net *)self;
 *         return choir_forward(n->fc2, choir_relu(choir_forward(n->fc1, in[0])));
 *     }
 *     static const choir_module_class net_class = {"net", sizeof(net), forward};
 *
 *     net *n = choir_module_new(run, &net_class);
 *     choir_module_child(&n->base, "fc1", &n->fc1, choir_nn_linear(run, 784, 256));
 *
 * Modules and parameters belong to the run they were made in, which frees them. Initial values
 * depend on the run's seed, the parameter's full name ("fc1.weight") and the index alone; they
 * are drawn when the finished tree is first used. Constructors never return NULL: errors stick
 * to the run.
 *
 * Threads: those of the run. Collective: none of these. */
#ifndef CHOIR_NN_H
#define CHOIR_NN_H

#include <choir/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_module choir_module;

/** -> the module's output, out of in[count]. */
typedef choir_tensor *choir_forward_fn(choir_module *self, choir_tensor *const *in, int count);

typedef struct choir_module_class {
    const char *name; /* for messages */
    size_t size;      /* of the struct whose first member is choir_module */
    choir_forward_fn *forward;
} choir_module_class;

struct choir_module {
    const choir_module_class *type;
    choir_scope *run;
    bool training;    /* train mode; true at first */
    const char *path; /* "blocks.0.attn", once the tree is in use */
    choir_module *parent;
    struct choir__module_entry *entries; /* children, parameters, buffers, in order */
    struct choir__module_hook *hooks;
    const char *name;                    /* within its parent */
    struct choir__hogwild *hogwild;      /* the weights it shares (hogwild.h); NULL: none */
    const struct choir__heads_of *heads; /* of one that attends; NULL: it does not */
    bool ready, drawn;                   /* named; with values */
    bool strategy;  /* places the work of what it wraps: no other strategy may clone it */
    bool together;  /* forward is collective in evaluation, too */
    bool recompute; /* choir_module_recompute */
    bool unit;      /* choir_fsdp_unit */
};

/** A zeroed struct of type->size bytes. */
void *choir_module_new(choir_scope *run, const choir_module_class *type);

/** Makes child a part of self under name and stores it in *field. */
void choir_module_child(
    choir_module *self, const char *name, choir_module **field, choir_module *child);

/** How a parameter starts: uniform in [a, b), normal of mean a and deviation b, or all a. */
typedef struct choir_init {
    enum { CHOIR_INIT_CONSTANT, CHOIR_INIT_UNIFORM, CHOIR_INIT_NORMAL } kind;
    double a, b;
} choir_init;

choir_init choir_init_constant(double value);
choir_init choir_init_uniform(double low, double high);
choir_init choir_init_normal(double mean, double deviation);

/** Adds an f32 parameter and stores it in *field. */
void choir_module_param(choir_module *self, const char *name, choir_tensor **field,
    choir_shape shape, choir_init init);

/**
 * Overwrites all parameters with the values PyTorch gives the same layers by default after
 * torch.manual_seed(seed), when it constructs them in the order of registration here.
 *
 * Uniform values (linear, convolution and its transpose, recurrent layers) are PyTorch's bit
 * for bit; normal ones (embeddings) agree within a few units of the last place; norms start
 * with 1 and 0. A weight of a linear layer, convolution or embedding for which the model chose
 * another choir_init is drawn by that once all layers have drawn theirs, in order: so a ResNet
 * starts as torchvision's. PyTorch does not define how transformers start (GPT-2, BERT, Llama,
 * Donut): they keep their distributions here, and do not get the numbers of another
 * implementation, which draws also for what it then ties or in another order. Errors: state
 * (after choir_tensor_parallel), the run's.
 */
choir_status choir_module_init_torch(choir_module *module, uint64_t seed);

/** Makes *field another name for a parameter of a module already registered (tied weights). It
 * is saved once, under its first name. */
void choir_module_tie(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *param);

/** Adds an f32 buffer: saved with the parameters, not trained; under DDP, rank 0's. */
void choir_module_buffer(choir_module *self, const char *name, choir_tensor **field,
    choir_shape shape, double value);

/** Adds an i64 buffer of one value, 0 at first: what counts (batches, steps). */
void choir_module_counter(choir_module *self, const char *name, choir_tensor **field);

/** Makes t, a tensor of the run that is neither trained nor saved (a table of positions, a
 * mask), a part of self and stores it in *field: it goes where the module goes. */
void choir_module_constant(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *t);

/**
 * Moves the parameters, buffers and constants of the module and of all in it to device: the
 * same handles, new memory, the old given back. Parameters that are not drawn yet are drawn
 * there, with the same values. A tied weight goes with the module that registered it as a
 * parameter. Inputs are not moved: choir_to in a forward function carries activations to the
 * next device.
 *
 * Between steps only: gradients of the step before are gone afterwards, optimizers take their
 * state along at their next step, and a step of choir_step is recorded anew. Errors: no such
 * device (NULL), state (between the first backward of a step and the optimizer's step; under
 * choir_ddp; replicated by a pipeline), memory (what was moved so far stays moved); they stick
 * to the run.
 */
choir_status choir_module_to(choir_module *module, choir_device *device);

/** Makes the module's parameters bf16, f16 or f32: new memory, values rounded; buffers stay
 * f32. Their gradients, and the optimizer's state, are f32; each update is rounded to the
 * parameter's dtype, so steps below half of its precision are lost. Before an optimizer is made
 * for it, and before it is wrapped by a strategy. Errors, which stick to the run: dtype, state
 * (sharded, shared or replicated parameters, or in mid-step), memory. */
choir_status choir_module_cast(choir_module *module, choir_dtype dtype);

/** choir_forward(module, x, ...): runs hooks and the module's forward function. */
choir_tensor *choir_forward_n(choir_module *module, choir_tensor *const *in, int count);
#define choir_forward(module, ...)                                                             \
    choir_forward_n(module, (choir_tensor *[]){__VA_ARGS__},                                   \
        sizeof((choir_tensor *[]){__VA_ARGS__}) / sizeof(choir_tensor *))

/** Train mode or eval mode, for the module and all inside it. */
void choir_module_train(choir_module *module, bool training);

/** Frozen parameters get no gradient and are not stepped. */
void choir_module_freeze(choir_module *module, bool frozen);

/**
 * Trades time for memory (as torch.utils.checkpoint): from the next forward on, what the module
 * computes on its way is let go of when its forward is done, and made again, once, when
 * backward gets there. Only its result is kept, and what hooks were shown or choir_keep holds.
 * So backward needs the results of such modules and the activations of one of them at a time.
 * Losses, gradients and buffers have the same bits with and without: dropout drops the same,
 * running statistics are updated in the forward pass alone.
 *
 * Modules may lie within each other; the inner one is then computed once more for the outer.
 * A tensor from inside that a later op wants (a list of hidden states, what skips over blocks)
 * is made again at once, and stays. What choir_custom made, and copies by choir_to, are kept.
 */
void choir_module_recompute(choir_module *module, bool on);

/**
 * choir_module_recompute of the module's blocks: the innermost modules that are numbered
 * ("h.0", "layer1.2", "encoder.layer.11") and have modules in them; where there are none, of
 * the module's children. Returns how many.
 */
int choir_module_recompute_blocks(choir_module *module, bool on);

/** The parameter or buffer by its full name; NULL if there is none. */
choir_tensor *choir_module_find(choir_module *module, const char *name);

/** Calls visit for every parameter (and buffer, if buffers), once each, in order of
 * registration. */
typedef void choir_visit_fn(const char *name, choir_tensor *t, void *arg);
void choir_module_visit(choir_module *module, bool buffers, choir_visit_fn *visit, void *arg);

/** Trainable elements. */
int64_t choir_module_param_count(choir_module *module);

/** Called around forward: before with in (out NULL), after with out; and around backward: when
 * the gradient of the output has arrived (grad_out), when that of the first input that requires
 * one has been made (grad_in). Any may be NULL. */
typedef struct choir_module_hooks {
    void (*before_forward)(choir_module *module, choir_tensor *const *in, int count, void *arg);
    void (*after_forward)(choir_module *module, choir_tensor *out, void *arg);
    void (*before_backward)(choir_module *module, choir_tensor *grad_out, void *arg);
    void (*after_backward)(choir_module *module, choir_tensor *grad_in, void *arg);
} choir_module_hooks;

void choir_module_hook(choir_module *module, choir_module_hooks hooks, void *arg);

/* --- layers: PyTorch's of the same name, with its default initialisation --- */

/** x W^T + b: (..., in) -> (..., out). */
choir_module *choir_nn_linear(choir_scope *run, int64_t in, int64_t out);
choir_module *choir_nn_linear_with(
    choir_scope *run, int64_t in, int64_t out, bool bias, choir_init weight);

/** (N, in, H, W) -> (N, out, OH, OW), square kernel. */
choir_module *choir_nn_conv2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts);
/** The transposed one. */
choir_module *choir_nn_conv_transpose2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts);

typedef struct choir_nn_conv_opts {
    int kernel_h, kernel_w;
    choir_conv_opts conv;
    bool no_bias;
    const choir_init *weight; /* how weights start; NULL: PyTorch's default */
} choir_nn_conv_opts;

choir_nn_conv_opts choir_nn_conv_defaults(int kernel); /* square */
choir_module *choir_nn_conv2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts opts);
choir_module *choir_nn_conv_transpose2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts opts);

choir_module *choir_nn_max_pool2d(choir_scope *run, int kernel, int stride);
choir_module *choir_nn_avg_pool2d(choir_scope *run, int kernel, int stride);
/** To (N, C, height, width), whatever the image's size. */
choir_module *choir_nn_adaptive_avg_pool2d(choir_scope *run, int64_t height, int64_t width);
choir_module *choir_nn_adaptive_max_pool2d(choir_scope *run, int64_t height, int64_t width);

/** ids i64 (...) -> (..., width). */
choir_module *choir_nn_embedding(
    choir_scope *run, int64_t count, int64_t width, choir_init init);
/** eps: 1e-5. */
choir_module *choir_nn_layer_norm(choir_scope *run, int64_t width);
/** Root mean square norm, weight (width) that starts as 1. */
choir_module *choir_nn_rms_norm(choir_scope *run, int64_t width, float eps);
choir_module *choir_nn_layer_norm_with(choir_scope *run, int64_t width, float eps);
/** (N, C, ...): momentum 0.1, eps 1e-5. choir_forward(norm, x, residual) adds a residual. */
choir_module *choir_nn_batch_norm(choir_scope *run, int64_t channels);
/** With momentum, eps and relu of opts: relu ends the layer, after the residual's sum. */
choir_module *choir_nn_batch_norm_with(
    choir_scope *run, int64_t channels, choir_batch_norm_opts opts);
/** (N, C, ...): eps 1e-5. */
choir_module *choir_nn_group_norm(choir_scope *run, int64_t groups, int64_t channels);
choir_module *choir_nn_dropout(choir_scope *run, float p);
choir_module *choir_nn_relu(choir_scope *run);
choir_module *choir_nn_gelu(choir_scope *run);
choir_module *choir_nn_gelu_tanh(choir_scope *run);
choir_module *choir_nn_silu(choir_scope *run);
choir_module *choir_nn_tanh(choir_scope *run);
/** (N, ...) -> (N, everything else). */
choir_module *choir_nn_flatten(choir_scope *run);

/** choir_nn_sequential(run, a, b, ...): b(a(x)). Children are named "0", "1", ... */
choir_module *choir_nn_sequential_n(choir_scope *run, choir_module *const *parts, int count);
#define choir_nn_sequential(run, ...)                                                          \
    choir_nn_sequential_n(run, (choir_module *[]){__VA_ARGS__},                                \
        sizeof((choir_module *[]){__VA_ARGS__}) / sizeof(choir_module *))

/* --- recurrent layers: nn.LSTM, nn.GRU, nn.RNN, with their parameters' names --- */

typedef struct choir_recurrent_opts {
    int layers;         /* each reads the one before; default 1 */
    bool bidirectional; /* a second set of weights reads from the end; default false */
    bool batch_first;   /* x and y are (B, T, ...), else (T, B, ...); default false */
    bool bias;          /* default true */
    bool relu;          /* of choir_nn_rnn: max(0, a), else tanh a; default false */
    float dropout;      /* of what goes from layer to layer, in train mode; default 0 */
} choir_recurrent_opts;

choir_recurrent_opts choir_recurrent_defaults(void);

/** (T, B, in) -> (T, B, D hidden), D = 2 if bidirectional; forward takes x alone, or x with h0
 *  and, for an LSTM, c0: (layers D, B, hidden). */
choir_module *choir_nn_lstm(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);
choir_module *choir_nn_gru(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);
choir_module *choir_nn_rnn(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);

/** The forward of such a module from *state on, with the states after the last step left in
 *  *state: each (layers D, B, hidden), or NULL for zeros. To carry them over to another step's
 *  scope, choir_keep them. */
choir_tensor *choir_forward_state(
    choir_module *recurrent, choir_tensor *x, choir_cell_state *state);

/** One pre-norm transformer block (GPT-2's): x + attn(ln(x)), x + mlp(ln(x)), tanh GELU. The
 * weights of its four products are (in, out), as those that GPT-2 is published with. */
choir_module *choir_nn_transformer_block(choir_scope *run, int64_t width, int heads,
    bool causal, float dropout, double residual_deviation);

#ifdef __cplusplus
}
#endif
#endif
