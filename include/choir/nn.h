/* Modules: parameters, child modules, and a forward function.
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
 *     static const choir_module_class net_class = {"net", sizeof(net), forward, 1};
 *
 *     net *n = choir_module_new(run, &net_class);
 *     choir_module_child(&n->base, "fc1", &n->fc1, choir_nn_linear(run, 784, 256));
 *
 * Modules and parameters belong to the run they were made in, which frees them. Initial values
 * depend only on the run's seed, the parameter's full name ("fc1.weight") and the index; they
 * are drawn when the finished tree is first used. Constructors never return NULL: errors stick
 * to the run.
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_NN_H
#define CHOIR_NN_H

#include <choir/ops.h>
#include <choir/volumes.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_module choir_module;

/** A forward function: returns the module's output, computed from in[count]. */
typedef choir_tensor *choir_forward_fn(choir_module *self, choir_tensor *const *in, int count);

typedef struct choir_module_class {
    const char *name; /* for messages */
    size_t size;      /* bytes of the struct whose first member is choir_module */
    choir_forward_fn *forward;
    int inputs; /* largest number of inputs; more are an error. 0: forward checks it */
} choir_module_class;

struct choir_module {
    const choir_module_class *type;
    choir_scope *run;
    bool training;    /* train mode; true at first */
    const char *path; /* "blocks.0.attn", once the tree is in use */
    const char *name; /* name in the parent, such as "attn" */
    choir_module *parent;
    struct choir__module_inside *inside; /* the library's: children, parameters, hooks, ... */
};

/** Returns whether the module's forward is collective even in evaluation mode, so that all
 * ranks must call it equally often. */
bool choir_module_collective(const choir_module *module);

/** Makes a module of the class: a zeroed struct of type->size bytes, which the run owns. */
void *choir_module_new(choir_scope *run, const choir_module_class *type);

/** Makes child a part of self, named `name`, and stores it in *field. Error, of the run:
 * argument (another entry of the module has this name). */
void choir_module_child(
    choir_module *self, const char *name, choir_module **field, choir_module *child);

/**
 * Marks a contraction: the linear layer `down` adds over the outputs of the linear layer `up`,
 * with only functions of single elements between the two (activations, dropout, products of two
 * results with the same mark). So that sum may be cut into slices, which ranks share:
 * choir_tensor_parallel does it without rules. Where two layers feed a third (a gate, and the
 * numbers that it scales), mark the third with each of them.
 *
 * matrices: the number of matrices side by side in up's outputs, each as wide as down's inputs;
 * 0 or 1: one. Error, of the run: argument (modules that are not linear layers, or do not fit).
 */
void choir_module_contraction(
    choir_module *self, choir_module *up, int matrices, choir_module *down);

typedef enum choir_init_kind {
    CHOIR_INIT_CONSTANT,
    CHOIR_INIT_UNIFORM,
    CHOIR_INIT_NORMAL,
    CHOIR_INIT_XAVIER_UNIFORM, /* the others follow from the parameter's shape */
    CHOIR_INIT_XAVIER_NORMAL,
    CHOIR_INIT_KAIMING_UNIFORM,
    CHOIR_INIT_KAIMING_NORMAL,
    CHOIR_INIT_ORTHOGONAL
} choir_init_kind;

/** The initial values of a parameter: uniform in [a, b), normal with mean a and deviation b, or
 * the constant a; for the kinds that follow from the shape, a is the gain. */
typedef struct choir_init {
    choir_init_kind kind;
    double a, b;
} choir_init;

choir_init choir_init_constant(double value);
choir_init choir_init_uniform(double low, double high);
choir_init choir_init_normal(double mean, double deviation);

/* PyTorch's xavier_uniform_ and so on, for parameters (out, in, ...) of two dimensions or more:
 * fan_in is the product of all sizes but the first, and fan_out the product of all but the
 * second. PyTorch's gain is 1 for Xavier and orthogonal values, and sqrt(2) for Kaiming ones
 * (choir_init_gain). Their numbers are Choir's own: they depend on the seed and the name. */

/** Deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot & Bengio, 2010). */
choir_init choir_init_xavier_uniform(double gain);
choir_init choir_init_xavier_normal(double gain);
/** Deviation gain / sqrt(fan_in), or of fan_out if by_outputs is true (He et al., 2015). */
choir_init choir_init_kaiming_uniform(double gain, bool by_outputs);
choir_init choir_init_kaiming_normal(double gain, bool by_outputs);
/** Orthogonal rows or columns, whichever are fewer, of length gain, of the parameter as a
 * matrix (out, all others) (Saxe et al., 2014). Computed on the host, in f64. */
choir_init choir_init_orthogonal(double gain);
/** torch.nn.init.calculate_gain for "linear", "sigmoid", "tanh", "relu", "leaky_relu" (with its
 * slope) and "selu"; NaN, with an error, for another name. */
double choir_init_gain(const char *nonlinearity, double slope);

/** Gives other initial values to the parameters whose full name matches the pattern, as fnmatch
 * does, and returns their number. Call it before the module's first use. Errors, of the run:
 * argument (a parameter of fewer than two dimensions, where the values follow from its shape),
 * state (the module is in use). */
int choir_module_init(choir_module *module, const char *pattern, choir_init init);

/** Adds an f32 parameter and stores it in *field. */
void choir_module_param(choir_module *self, const char *name, choir_tensor **field,
    choir_shape shape, choir_init init);

/**
 * Overwrites all parameters with the values that PyTorch gives equal layers by default after
 * torch.manual_seed(seed), when it constructs them in the order of registration here.
 *
 * Uniform values (linear, convolution and its transpose, recurrent layers) equal PyTorch's bit
 * for bit; normal ones (embeddings) agree within a few units of the last place; norms start
 * with 1 and 0. If the model chose another choir_init for the weight of a linear layer,
 * convolution or embedding, that weight is drawn after all layers have drawn theirs, in order,
 * so a ResNet starts with torchvision's values. PyTorch does not define the initial values of
 * transformers (GPT-2, BERT, Llama, Donut). They keep their distributions here, but their
 * numbers differ from other implementations, which draw in another order or also for weights
 * that they then tie.
 *
 * Errors: state (after choir_tensor_parallel), the run's.
 */
CHOIR_CHECKED choir_status choir_module_init_torch(choir_module *module, uint64_t seed);

/** Makes *field another name for a parameter that a module has registered already (tied
 * weights). It is saved once, under its first name. Errors, of the run: argument (param is not
 * a parameter), scope (it belongs to another run). */
void choir_module_tie(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *param);

/** Adds an f32 buffer, which is saved with the parameters but not trained. Under DDP all ranks
 * use rank 0's buffers. */
void choir_module_buffer(choir_module *self, const char *name, choir_tensor **field,
    choir_shape shape, double value);

/** Adds an i64 buffer of one value, initially 0, that counts (batches, steps). */
void choir_module_counter(choir_module *self, const char *name, choir_tensor **field);

/** Makes t a part of self and stores it in *field, so that t moves with the module. t is a
 * tensor of the run that is neither trained nor saved, such as a table of positions or a
 * mask. Error, of the run: scope (a tensor of a step or of another run). */
void choir_module_constant(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *t);

/**
 * Moves the parameters, buffers and constants of the module, and of all modules in it, to
 * device.
 *
 * Handles stay valid and get new memory; the old memory is released. Parameters that are not
 * drawn yet are drawn there, with equal values. A tied weight moves with the module that
 * registered it as a parameter. Inputs are not moved: choir_to in a forward function carries
 * activations to the next device.
 *
 * Call it between steps only. Gradients of the previous step are lost, optimizers move their
 * state at their next step, and a step of choir_step is recorded again.
 *
 * Errors stick to the run: no such device (NULL), state (between the first backward of a step
 * and the optimizer's step; under choir_ddp; replicated by a pipeline), memory (parts that
 * were moved before the error stay moved).
 */
CHOIR_CHECKED choir_status choir_module_to(choir_module *module, choir_device *device);

/**
 * Converts the module's parameters to bf16, f16, f32 or f64: new memory, rounded values;
 * buffers stay f32. Call it before an optimizer is made for the module, and before a strategy
 * wraps it.
 *
 * 16 bits: gradients and the optimizer's state are f32, and each update is rounded to the
 * parameter's dtype, so steps below half of its precision are lost.
 *
 * f64, PyTorch's module.double(): gradients, their sums over micro-batches and ranks, and the
 * state of SGD, Adam, RMSprop and Lion are f64, too; their options are f32 numbers. Inputs are
 * cast by the caller (choir_cast), or an op refuses operands of two dtypes. One device, DDP and
 * FSDP train f64 with the same bits, on processors; other strategies, hooks of DDP, other
 * rules, averages, 8-bit and off-loaded state refuse it by name.
 *
 * Errors stick to the run: dtype, state (sharded, shared or replicated parameters, or within a
 * step), memory.
 */
CHOIR_CHECKED choir_status choir_module_cast(choir_module *module, choir_dtype dtype);

/** Runs hooks and the module's forward function. The macro choir_forward(module, x, ...) calls
 * it. Error: argument (no input, or more than the class takes). */
choir_tensor *choir_forward_n(choir_module *module, choir_tensor *const *in, int count);
#ifndef __cplusplus
#define choir_forward(module, ...)                                                             \
    choir_forward_n(module, (choir_tensor *[]){__VA_ARGS__},                                   \
        sizeof((choir_tensor *[]){__VA_ARGS__}) / sizeof(choir_tensor *))
#else
} /* templates have no C linkage */
template <class... T> choir_tensor *choir_forward(choir_module *module, T... in)
{
    choir_tensor *list[] = {in...};
    return choir_forward_n(module, list, (int)sizeof...(in));
}
extern "C" {
#endif

/** Sets train mode or eval mode for the module and all modules inside it. */
void choir_module_train(choir_module *module, bool training);

/** Freezes the module's parameters, or thaws them. Frozen parameters get no gradient, and
 * optimizers skip them. In a module that ranks train together (ddp, fsdp), call it before the
 * strategy wraps the module; a backward after a later change is an error. */
void choir_module_freeze(choir_module *module, bool frozen);

/** Freezes or thaws the parameters whose full name matches the pattern, as fnmatch does
 * ("bert.embeddings.*"; * also matches dots), and returns their number. A tied weight has the
 * name under which it was registered. Call it before a strategy wraps the module. */
int choir_module_freeze_matching(choir_module *module, const char *pattern, bool frozen);

/** Returns the number of parameters whose full name matches the pattern. */
int choir_module_count_matching(choir_module *module, const char *pattern);

/**
 * Trades time for memory, as torch.utils.checkpoint does. From the next forward on, the
 * module's intermediate results are released when its forward ends, and backward computes them
 * again, once.
 *
 * Only the module's result is kept, together with tensors that hooks have seen or choir_keep
 * holds. So memory holds the results of such modules, and during backward the activations of
 * one module at a time. Losses, gradients and buffers have the same bits with and without
 * recomputation: dropout drops the same elements, and running statistics are updated in the
 * forward pass alone.
 *
 * Such modules may be nested; the inner one is then computed one more time. If a later op
 * outside the module uses a tensor from inside it (a list of hidden states, a connection that
 * skips blocks), the tensor is computed again at once and stays in memory. Results of
 * choir_custom, and copies by choir_to, are kept.
 */
void choir_module_recompute(choir_module *module, bool on);

/** Applies choir_module_recompute to the module's blocks and returns their number. Blocks are
 * the innermost modules that are numbered ("h.0", "layer1.2", "encoder.layer.11") and contain
 * modules; if no module is numbered so, the module's children. */
int choir_module_recompute_blocks(choir_module *module, bool on);

/** Returns the module at a path below `module`, such as "bert.encoder.layer.0", or `module`
 * itself for ""; NULL if no module has this path. A name between dots is not always a module:
 * GPT-2 has "transformer.h.0" but no "transformer". */
choir_module *choir_module_at(choir_module *module, const char *path);

/**
 * Puts `with` in the place of the module at a path below `module`, such as "fc2": the parent's
 * field has it from now on, under the same name. The old module keeps its values, but is no
 * part of the tree any more; *old, unless old is NULL, receives it, so that it can be a part of
 * `with`:
 *
 *     adapter *a = choir_module_new(run, &adapter_class);
 *     choir_check(choir_module_replace(net, "fc2", &a->base, &old));
 *     choir_module_child(&a->base, "inner", &a->inner, old);        ("fc2.inner.weight")
 *
 * New parameters get their values at the next use. Call it before an optimizer is made for the
 * tree and before a strategy wraps it. Errors: argument (no such path, "", or `with` is a part
 * of another module), state (the parameters have gradients or an optimizer, or are
 * distributed).
 */
CHOIR_CHECKED choir_status choir_module_replace(
    choir_module *module, const char *path, choir_module *with, choir_module **old);

/** Returns the parameter or buffer with this full name; NULL if the name is unknown. */
choir_tensor *choir_module_find(choir_module *module, const char *name);

/** A function that choir_module_visit calls for each parameter. */
typedef void choir_visit_fn(const char *name, choir_tensor *t, void *arg);
/** Calls visit once for each parameter (and buffer, if buffers is true), in order of
 * registration. */
void choir_module_visit(choir_module *module, bool buffers, choir_visit_fn *visit, void *arg);

typedef void choir_module_fn(choir_module *module, void *arg);
/** Calls fn for the module and for each module inside it, in order of registration, parents
 * before their children. */
void choir_module_each(choir_module *module, choir_module_fn *fn, void *arg);

/** Returns the number of trainable elements. */
int64_t choir_module_param_count(choir_module *module);

/** Functions that are called around a module's forward and backward; each may be NULL. Forward
 * calls before_forward with its inputs and after_forward with its output. Backward calls
 * before_backward when the output's gradient is complete, and after_backward when the gradient
 * of the first input that requires one is complete. The output's gradient has no part of a loss
 * that is made of after_forward's `out` itself. */
typedef struct choir_module_hooks {
    void (*before_forward)(choir_module *module, choir_tensor *const *in, int count, void *arg);
    void (*after_forward)(choir_module *module, choir_tensor *out, void *arg);
    void (*before_backward)(choir_module *module, choir_tensor *grad_out, void *arg);
    void (*after_backward)(choir_module *module, choir_tensor *grad_in, void *arg);
    /* These change what passes, by ops that are recorded as the module's own are. change_inputs
     * may store other tensors in in[i]; change_output returns out or another tensor;
     * change_gradient returns grad_out or another tensor of its shape and dtype, which backward
     * uses in its place. NULL as a result is an error. */
    void (*change_inputs)(choir_module *module, choir_tensor **in, int count, void *arg);
    choir_tensor *(*change_output)(
        choir_module *module, choir_tensor *const *in, int count, choir_tensor *out, void *arg);
    choir_tensor *(*change_gradient)(choir_module *module, choir_tensor *grad_out, void *arg);
} choir_module_hooks;

/** Adds hooks to the module, which calls them with arg. Hooks of one module run in the order in
 * which they were added; a hook sees what those before it have changed. */
void choir_module_hook(choir_module *module, choir_module_hooks hooks, void *arg);

/* --- layers: PyTorch's of the same name, with its default initialisation --- */

/** Computes x W^T + b: (..., in) -> (..., out). */
choir_module *choir_nn_linear(choir_scope *run, int64_t in, int64_t out);
choir_module *choir_nn_linear_with(
    choir_scope *run, int64_t in, int64_t out, bool bias, choir_init weight);

/** Convolves signals, as choir_conv1d: (N, in, L) -> (N, out, OL). */
choir_module *choir_nn_conv1d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts);
/** Convolves with a square kernel: (N, in, H, W) -> (N, out, OH, OW). */
choir_module *choir_nn_conv2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts);
/** Convolves volumes with a cubic kernel, as choir_conv3d: (N, in, D, H, W) -> (N, out, OD, OH,
 * OW). */
choir_module *choir_nn_conv3d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv3d_opts opts);
/** Applies the transposed convolution, with a square kernel. */
choir_module *choir_nn_conv_transpose2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts);

typedef struct choir_nn_conv_opts {
    int kernel_h, kernel_w;
    choir_conv_opts conv;
    bool no_bias;
    const choir_init *weight; /* initial weights; NULL: PyTorch's default */
} choir_nn_conv_opts;

choir_nn_conv_opts choir_nn_conv_defaults(int kernel); /* square */
/** Like choir_nn_conv1d, with all options; kernel_h is the length of the kernel. */
choir_module *choir_nn_conv1d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts opts);
choir_module *choir_nn_conv2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts opts);
choir_module *choir_nn_conv_transpose2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts opts);

typedef struct choir_nn_conv3d_opts {
    int kernel[3]; /* depth, height, width */
    choir_conv3d_opts conv;
    bool no_bias;
    const choir_init *weight; /* initial weights; NULL: PyTorch's default */
} choir_nn_conv3d_opts;

choir_nn_conv3d_opts choir_nn_conv3d_defaults(int kernel); /* cubic */
choir_module *choir_nn_conv3d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv3d_opts opts);

choir_module *choir_nn_max_pool2d(choir_scope *run, int kernel, int stride);
choir_module *choir_nn_avg_pool2d(choir_scope *run, int kernel, int stride);
/** Pools to (N, C, height, width), for images of any size. */
choir_module *choir_nn_adaptive_avg_pool2d(choir_scope *run, int64_t height, int64_t width);
choir_module *choir_nn_adaptive_max_pool2d(choir_scope *run, int64_t height, int64_t width);

/** Looks up rows of a table: ids i64 (...) -> (..., width). */
choir_module *choir_nn_embedding(
    choir_scope *run, int64_t count, int64_t width, choir_init init);
/** Like choir_nn_embedding, with a row for padding (-1: none), as PyTorch's padding_idx: the
 * row starts with zeros, and lookups give it no gradient. If the table is tied to a head, the
 * head's gradient still trains the row. */
choir_module *choir_nn_embedding_with(
    choir_scope *run, int64_t count, int64_t width, choir_init init, int64_t padding);
/** Normalises over the last dimension, with eps 1e-5. */
choir_module *choir_nn_layer_norm(choir_scope *run, int64_t width);
/** Normalises by the root mean square over the last dimension; the weight (width) is
 * initially 1. */
choir_module *choir_nn_rms_norm(choir_scope *run, int64_t width, float eps);
choir_module *choir_nn_layer_norm_with(choir_scope *run, int64_t width, float eps);
/** Batch norm of (N, C, ...), with momentum 0.1 and eps 1e-5. choir_forward(norm, x, residual)
 * adds a residual. */
choir_module *choir_nn_batch_norm(choir_scope *run, int64_t channels);
/** Batch norm with momentum, eps and relu of opts; relu is applied last, after the residual is
 * added. */
choir_module *choir_nn_batch_norm_with(
    choir_scope *run, int64_t channels, choir_batch_norm_opts opts);
/** Group norm of (N, C, ...), with eps 1e-5. */
choir_module *choir_nn_group_norm(choir_scope *run, int64_t groups, int64_t channels);
choir_module *choir_nn_dropout(choir_scope *run, float p);
choir_module *choir_nn_relu(choir_scope *run);
choir_module *choir_nn_gelu(choir_scope *run);
choir_module *choir_nn_gelu_tanh(choir_scope *run);
choir_module *choir_nn_silu(choir_scope *run);
choir_module *choir_nn_tanh(choir_scope *run);
/** Joins all dimensions but the first: (N, ...) -> (N, product). */
choir_module *choir_nn_flatten(choir_scope *run);

/** Runs modules one after another: choir_nn_sequential(run, a, b, ...) computes ...b(a(x)).
 * Children are named "0", "1", ... */
choir_module *choir_nn_sequential_n(choir_scope *run, choir_module *const *parts, int count);
#ifndef __cplusplus
#define choir_nn_sequential(run, ...)                                                          \
    choir_nn_sequential_n(run, (choir_module *[]){__VA_ARGS__},                                \
        sizeof((choir_module *[]){__VA_ARGS__}) / sizeof(choir_module *))
#else
}
template <class... T> choir_module *choir_nn_sequential(choir_scope *run, T... parts)
{
    choir_module *list[] = {parts...};
    return choir_nn_sequential_n(run, list, (int)sizeof...(parts));
}
extern "C" {
#endif

/* --- recurrent layers: nn.LSTM, nn.GRU, nn.RNN, with their parameters' names --- */

typedef struct choir_recurrent_opts {
    int layers;         /* each layer reads the one before it; default 1 */
    bool bidirectional; /* a second set of weights reads from the end; default false */
    bool batch_first;   /* x and y are (B, T, ...), else (T, B, ...); default false */
    bool bias;          /* default true */
    bool relu;          /* choir_nn_rnn: max(0, a) instead of tanh a; default false */
    float dropout;      /* between layers, in train mode; default 0 */
} choir_recurrent_opts;

choir_recurrent_opts choir_recurrent_defaults(void);

/** Maps (T, B, in) to (T, B, D hidden), where D is 2 if bidirectional, else 1. Forward takes x
 * alone, or x with h0 and, for an LSTM, c0: (layers D, B, hidden). */
choir_module *choir_nn_lstm(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);
choir_module *choir_nn_gru(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);
choir_module *choir_nn_rnn(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts);

/** Runs the forward of a recurrent module from the states in *state, and stores the states
 * after the last step there: each (layers D, B, hidden), or NULL for zeros. Call choir_keep on
 * the states to carry them over to another step's scope. */
choir_tensor *choir_forward_state(
    choir_module *recurrent, choir_tensor *x, choir_cell_state *state);

/** Makes one pre-norm transformer block (GPT-2's): x + attn(ln(x)), x + mlp(ln(x)), tanh GELU.
 * The weights of its four products have the shape (in, out), as in GPT-2's published files. */
choir_module *choir_nn_transformer_block(choir_scope *run, int64_t width, int heads,
    bool causal, float dropout, double residual_deviation);

#ifdef __cplusplus
}
#endif
#endif
