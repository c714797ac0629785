/* Ops on tensors: each computes the same as PyTorch's function of the same name.
 *
 * Floating operands are f32, bf16 or f16 (computed in f32 and rounded once at the end), or f64
 * (slow, for checks). All ops are differentiable in their floating operands unless their
 * comment says otherwise. Shapes of two operands broadcast as NumPy's do. Errors: shape,
 * dtype, device, scope. Collective: none.
 *
 * NaN passes through: choir_relu, choir_clamp, the greatest and the least of entries and
 * pooling give NaN where an operand is NaN; comparisons with it are false, but !=. -0 and 0 are
 * equal, so relu and clamp at 0 keep -0, and of -0 and 0 the first is the greatest. Which NaN a
 * result is, its sign and payload, is not said: files, hashes of weights and recorded losses
 * have one. A number that is too large for bf16 or f16 becomes infinite. A float that an
 * integer cannot hold becomes the nearest integer that the dtype has, and NaN 0; integers keep
 * their lowest bits.
 *
 * Threads: the thread of the operands' scope. */
#ifndef CHOIR_OPS_H
#define CHOIR_OPS_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

choir_tensor *choir_add(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_sub(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_mul(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_div(choir_tensor *a, choir_tensor *b);
/** Computes a x + b with two numbers. */
choir_tensor *choir_affine(choir_tensor *x, double a, double b);
choir_tensor *choir_scale(choir_tensor *x, double a);

choir_tensor *choir_neg(choir_tensor *x);
choir_tensor *choir_exp(choir_tensor *x);
choir_tensor *choir_log(choir_tensor *x);
choir_tensor *choir_sqrt(choir_tensor *x);
choir_tensor *choir_square(choir_tensor *x);
choir_tensor *choir_abs(choir_tensor *x);
choir_tensor *choir_sin(choir_tensor *x);
choir_tensor *choir_cos(choir_tensor *x);
/** -1, 0 or 1; 0 for NaN. Gradient of choir_sign, choir_floor, choir_ceil and choir_round: 0.
 */
choir_tensor *choir_sign(choir_tensor *x);
choir_tensor *choir_floor(choir_tensor *x);
choir_tensor *choir_ceil(choir_tensor *x);
/** Rounds to the nearest whole number, and halves to the even one. */
choir_tensor *choir_round(choir_tensor *x);
/** log(1 + x) and exp(x) - 1, also near 0. */
choir_tensor *choir_log1p(choir_tensor *x);
choir_tensor *choir_expm1(choir_tensor *x);
choir_tensor *choir_erf(choir_tensor *x);
/** The greater and the lesser of two entries; NaN where either is NaN. Where they are equal,
 * each gets half of the gradient. */
choir_tensor *choir_maximum(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_minimum(choir_tensor *a, choir_tensor *b);
/** Computes x^exponent as C's pow does. */
choir_tensor *choir_pow(choir_tensor *x, double exponent);
/** Computes a^b, element by element, as C's pow does; a and b broadcast. The gradient of a is 0
 * where b is 0; the gradient of b is 0 where a is 0 and b >= 0, and NaN where a is negative. */
choir_tensor *choir_pow_tensor(choir_tensor *a, choir_tensor *b);
/** Computes min(max(x, least), most); a bound of -INFINITY or INFINITY leaves its side open;
 * NaN stays NaN. The gradient passes where least <= x <= most. Error: argument (a bound that is
 * NaN). */
choir_tensor *choir_clamp(choir_tensor *x, double least, double most);
choir_tensor *choir_tanh(choir_tensor *x);
choir_tensor *choir_sigmoid(choir_tensor *x);
choir_tensor *choir_relu(choir_tensor *x);
/** Computes x Phi(x) (Hendrycks & Gimpel, 2016), exactly. */
choir_tensor *choir_gelu(choir_tensor *x);
/** Computes GELU's tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
choir_tensor *choir_gelu_tanh(choir_tensor *x);

/** Computes x > 0 ? x : slope x (PyTorch's slope is 0.01). */
choir_tensor *choir_leaky_relu(choir_tensor *x, double slope);
/** Computes x > 0 ? x : alpha (exp(x) - 1) (Clevert et al., 2016; PyTorch's alpha is 1). */
choir_tensor *choir_elu(choir_tensor *x, double alpha);
/** Computes log(1 + exp(beta x)) / beta, and x where beta x > threshold. PyTorch's numbers are
 * 1 and 20. */
choir_tensor *choir_softplus(choir_tensor *x, double beta, double threshold);
/** Computes x sigmoid(x), "swish" (Ramachandran et al., 2017). */
choir_tensor *choir_silu(choir_tensor *x);
/** Computes silu(gate) up (Shazeer, 2020) of two tensors of one shape. If up is NULL, gate and
 * up are the two halves of the argument gate: (..., 2C) -> (..., C). */
choir_tensor *choir_swiglu(choir_tensor *gate, choir_tensor *up);

/** choir_sum and choir_mean reduce over all elements: (). The mean of an empty tensor is NaN.
 */
choir_tensor *choir_sum(choir_tensor *x);
choir_tensor *choir_mean(choir_tensor *x);
/** choir_sum_dim and choir_mean_dim reduce over one dimension and remove it. */
choir_tensor *choir_sum_dim(choir_tensor *x, int dim);
choir_tensor *choir_mean_dim(choir_tensor *x, int dim);
/** Returns the index of the largest entry of the last dimension, as choir_max_dim: i64. No
 * gradient. */
choir_tensor *choir_argmax(choir_tensor *x);

/** Multiplies a (..., M, K) by b (..., K, N). The leading dimensions are equal, or b is (K,
 * N). */
choir_tensor *choir_matmul(choir_tensor *a, choir_tensor *b);

/**
 * Multiplies tensors whose dimensions have letters, and sums over the letters that the result
 * lacks, like torch.einsum: choir_einsum("bij,bjk->bik", (choir_tensor *[]){a, b}, 2) is a
 * batch of matrix products.
 *
 * @param equation  for each operand a list of letters, one per dimension, separated by commas;
 *                  then "->" and the result's letters. Without "->" the result has "..." and
 *                  the letters that occur once, capitals first. Spaces are ignored
 * @param in        count operands, 1 to 16, floating, of one dtype
 *
 * "..." stands for all dimensions without a letter; they broadcast, aligned at the last one. A
 * letter that occurs twice in one operand takes the diagonal. All dimensions of a letter have
 * one size, or 1, which broadcasts.
 *
 * Operands are multiplied from left to right, by choir_matmul where a letter is summed and by
 * choir_mul elsewhere; letters that occur neither in the result nor in a later operand are
 * summed as soon as possible. A product may have at most CHOIR_MAX_DIMS dimensions.
 *
 * Errors: also argument, an equation that does not fit the operands.
 */
choir_tensor *choir_einsum(const char *equation, choir_tensor *const *in, int count);

/** Computes x W^T + b: x (..., in), weight (out, in), bias (out) or NULL -> (..., out). */
choir_tensor *choir_linear(choir_tensor *x, choir_tensor *weight, choir_tensor *bias);

/** choir_softmax and choir_log_softmax normalise over the last dimension. */
choir_tensor *choir_softmax(choir_tensor *x);
choir_tensor *choir_log_softmax(choir_tensor *x);

/** Computes softmax(q k^T / sqrt(D)) v per head (Vaswani et al., 2017). q, k, v (B, H, T, D),
 * any strides with a contiguous last dimension -> (B, H, T, D). causal: position t sees 0 ...
 * t. */
choir_tensor *choir_attention(choir_tensor *q, choir_tensor *k, choir_tensor *v, bool causal);

typedef struct choir_attention_opts {
    bool causal;    /* query t sees keys 0 ... t */
    int64_t window; /* with causal: query t sees only the last `window` keys; 0: all */
    float scale;    /* factor of the scores; 0 (the default): 1/sqrt(D) */
    /* c > 0: a scaled score z becomes c tanh(z / c) (Gemma 2), before the bias; 0: it stays */
    float softcap;
    /* NULL, or (P, H or 1, Tq or 1, Tk) of q's dtype, added to the scores; sample b uses entry
     * b % P; -INFINITY hides a key */
    choir_tensor *bias;
} choir_attention_opts;

choir_attention_opts choir_attention_defaults(void);

/**
 * Computes softmax(scale q k^T + bias) v, or softmax(c tanh(scale q k^T / c) + bias) v.
 *
 * q (B, H, Tq, D), k and v (B, G, Tk, D), any strides with a contiguous last dimension -> (B,
 * H, Tq, D), stored as (B, Tq, H, D), so that transposing the result back is a view. G divides
 * H: head h reads head h / (H/G) of k and v (grouped-query attention, Ainslie et al., 2023).
 * The matrix of scores is never stored as a whole: memory grows with Tq and with Tk, not with
 * their product. Gradient: q, k, v, bias.
 */
choir_tensor *choir_attention_with(
    choir_tensor *q, choir_tensor *k, choir_tensor *v, choir_attention_opts opts);

/** Computes choir_attention with q, k and v as the thirds of one tensor: qkv (B, T, 3C), C =
 * heads * D -> (B, T, C). */
choir_tensor *choir_self_attention(choir_tensor *qkv, int heads, bool causal);

/** Computes (x - mean) / sqrt(var + eps) * gamma + beta over the last dimension. gamma, beta
 * (C) or NULL. */
choir_tensor *choir_layer_norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, float eps);

/** Computes x / sqrt(mean x^2 + eps) * gamma over the last dimension (Zhang & Sennrich, 2019).
 * gamma (C) or NULL. */
choir_tensor *choir_rms_norm(choir_tensor *x, choir_tensor *gamma, float eps);

/** Adds and normalises in one pass: stores x + r in *sum and returns its norm. The values equal
 * choir_add followed by the norm, bit for bit. *sum is never NULL; after an error it is
 * poisoned. */
choir_tensor *choir_add_layer_norm(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, float eps, choir_tensor **sum);
choir_tensor *choir_add_rms_norm(
    choir_tensor *x, choir_tensor *r, choir_tensor *gamma, float eps, choir_tensor **sum);

typedef enum choir_rotary_scaling {
    CHOIR_ROTARY_PLAIN,
    CHOIR_ROTARY_LINEAR,
    CHOIR_ROTARY_LLAMA3,
    CHOIR_ROTARY_DYNAMIC, /* theta grows with a text that is longer than the original context */
    CHOIR_ROTARY_YARN,    /* Peng et al., 2023 */
    CHOIR_ROTARY_LONGROPE /* Ding et al., 2024: a divisor of its own for each rate */
} choir_rotary_scaling;

/** The rotation rate of each dimension. Dimension i of a vector of D turns by theta^(-2i/D)
 * radians per position. Models that were stretched to a longer context use slower rates. */
typedef struct choir_rotary_opts {
    double theta; /* default 10000 */
    choir_rotary_scaling scaling;
    double factor; /* divisor of all rates (LINEAR) or of the slow rates (LLAMA3, YARN), or the
                    * stretch that DYNAMIC expects */
    /* LLAMA3 and YARN: a dimension is slow if it turns less than low_freq times in
     * original_context, and keeps its rate if it turns more than high_freq times; in between
     * the rate is interpolated, by turns (LLAMA3) or by dimensions (YARN). */
    double low_freq, high_freq;
    int64_t original_context; /* all but LINEAR: the context before the stretch */
    /* YARN: the bounds between slow and fast dimensions are not rounded to whole ones */
    bool unrounded;
    /* factor of all cosines and sines; 0: 1, but for YARN 0.1 log(factor) + 1 and for LONGROPE
     * sqrt(1 + log(factor) / log(original_context)), if factor is above 1 */
    double attention_factor;
    /* LONGROPE: divisors of the D / 2 rates, of a text that fits into original_context, and of
     * a longer one */
    const double *short_factors, *long_factors;
    /* DYNAMIC and LONGROPE: tokens of the text; 0: as many as the table has positions */
    int64_t length;
} choir_rotary_opts;

choir_rotary_opts choir_rotary_defaults(void);

/** Returns the table for choir_rotary: the cosines (first half) and sines of positions 0, 1,
 * ...: (positions, dim), f32 or f64, computed in f64. dim is even. */
choir_tensor *choir_rotary_table(choir_scope *scope, choir_dtype dtype, int64_t positions,
    int64_t dim, choir_rotary_opts opts);

/** Applies rotary positions (Su et al., 2021) in Llama's layout: at position p, the pair of
 * x[i] and x[i + D/2] turns by p * frequency i. x (B, T, H, D), any strides, has the positions
 * offset, offset + 1, ...; table comes from choir_rotary_table. Gradient: x only. */
choir_tensor *choir_rotary(choir_tensor *x, choir_tensor *table, int64_t offset);

/** Normalises over all dimensions of x (N, C, ...) except dimension 1. If training is true, it
 * uses the batch's statistics and updates the running ones (C) by momentum, on micro-batch 0
 * alone; else it uses the running ones. */
choir_tensor *choir_batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, bool training, float momentum,
    float eps);

typedef struct choir_batch_norm_opts {
    bool training;       /* default true */
    float momentum, eps; /* default 0.1, 1e-5 */
    /* NULL, or a tensor of x's shape that is added to the result; differentiable */
    choir_tensor *residual;
    bool relu; /* true: applies ReLU to the sum, which saves a pass over memory */
    /* NULL, or i64 (): counter of the batches that updated the running statistics */
    choir_tensor *batches;
} choir_batch_norm_opts;

choir_batch_norm_opts choir_batch_norm_defaults(void);

/** Computes relu(batch_norm(x) + residual), the end of a residual block, in one pass. */
choir_tensor *choir_batch_norm_with(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts opts);

/** Splits the C channels of each sample of x (N, C, ...) into `groups` equal runs, normalises
 * all values of a run, (x - mean) / sqrt(var + eps), and computes * gamma + beta per channel.
 * gamma, beta (C) or NULL. */
choir_tensor *choir_group_norm(
    choir_tensor *x, int64_t groups, choir_tensor *gamma, choir_tensor *beta, float eps);

/* --- recurrent layers --- */

typedef enum choir_cell { CHOIR_LSTM, CHOIR_GRU, CHOIR_RNN_TANH, CHOIR_RNN_RELU } choir_cell;

/** One direction's parameters: w_ih (G H, I), w_hh (G H, H), and b_ih, b_hh (G H), both or
 * neither NULL. The gates have PyTorch's order (LSTM i f g o, GRU r z n); G is 4, 3 or 1. */
typedef struct choir_cell_weights {
    choir_tensor *w_ih, *w_hh, *b_ih, *b_hh;
} choir_cell_weights;

/** A hidden state h and, for an LSTM, a cell state c. NULL means zeros. */
typedef struct choir_cell_state {
    choir_tensor *h, *c;
} choir_cell_state;

/**
 * Runs one recurrent layer over whole sequences: LSTM, GRU (reset after the product) or plain.
 *
 * @param x           (T, B, I), T and B at least 1
 * @param weights     (directions) weights per direction, D = 1 or 2; the second direction
 *                           reads from the end to the start
 * @param initial     h and c (D, B, H)
 * @param last        NULL, or receives the states after the last step, each (D, B, H); c is
 *                    NULL except for an LSTM. It costs a copy of y in backward.
 * @return            (T, B, D H): h of every step, the directions side by side
 *
 * Gradient: x, the weights, the initial states. bf16 and f16 are computed in f32.
 */
choir_tensor *choir_recurrent(choir_cell cell, choir_tensor *x,
    const choir_cell_weights *weights, int directions, choir_cell_state initial,
    choir_cell_state *last);

/** Looks up rows of table (V, C) by ids i64 (...) -> (..., C). Execution error: range. */
choir_tensor *choir_embedding(choir_tensor *table, choir_tensor *ids);

/** Sets each element to zero with probability p and scales the others by 1/(1-p). The random
 * numbers are keyed by (seed, step, micro-batch, name, call number), so they do not depend on
 * the rank or device that computes them. */
choir_tensor *choir_dropout(choir_tensor *x, float p, const char *name);

/** Options of a convolution. The members apply to the height, and to the width unless it has
 * its own. */
typedef struct choir_conv_opts {
    int stride, padding, dilation, groups;
    int stride_w, dilation_w; /* 0: the height's */
    int padding_w;            /* 0: the height's; -1: no padding */
    int output_padding;       /* transposed: additional rows and columns at the end */
    int output_padding_w;     /* 0: the height's; -1: none */
} choir_conv_opts;

choir_conv_opts choir_conv_defaults(void); /* stride, dilation, groups 1 */

/** Convolves x (N, C, H, W) with weight (O, C/groups, KH, KW) and adds bias (O) or NULL -> (N,
 * O, OH, OW). Images are logically NCHW and stored channels-last. */
choir_tensor *choir_conv2d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts opts);

/** Applies the transposed convolution (the gradient of a convolution, used forward). x (N, C,
 * H, W), weight (C, O/groups, KH, KW), bias (O) or NULL -> (N, O, OH, OW), OH = (H-1) stride -
 * 2 padding + dilation (KH-1) + output_padding + 1. */
choir_tensor *choir_conv_transpose2d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts opts);

choir_tensor *choir_max_pool2d(choir_tensor *x, int kernel, int stride, int padding);
choir_tensor *choir_avg_pool2d(choir_tensor *x, int kernel, int stride, int padding);

/** Pools (N, C, H, W) to (N, C, height, width): output row i covers the input rows from floor(i
 * H / height) up to ceil((i+1) H / height); columns likewise. */
choir_tensor *choir_adaptive_avg_pool2d(choir_tensor *x, int64_t height, int64_t width);
choir_tensor *choir_adaptive_max_pool2d(choir_tensor *x, int64_t height, int64_t width);

/* --- losses: the mean, (), over entries not ignored, or the reduction that opts set --- */

/** The values start at 1, so that zeroed options are an error: they would ignore class 0. Begin
 * with choir_cross_entropy_defaults(). */
typedef enum choir_reduction {
    CHOIR_LOSS_MEAN = 1,  /* mean over all elements: () */
    CHOIR_LOSS_SUM,       /* sum over all elements: () */
    CHOIR_LOSS_NONE,      /* one value per element, in x's shape */
    CHOIR_LOSS_BATCH_MEAN /* the sum divided by the first dimension: () */
} choir_reduction;

typedef struct choir_cross_entropy_opts {
    int64_t ignore_index;      /* target whose rows are skipped; default -100 */
    float label_smoothing;     /* in [0, 1]; default 0 */
    choir_tensor *weight;      /* (C) per class, no gradient; default NULL: 1 each */
    choir_reduction reduction; /* mean (default), sum, or none: (...), 0 where ignored */
} choir_cross_entropy_opts;

choir_cross_entropy_opts choir_cross_entropy_defaults(void);

/**
 * Softmax cross-entropy, averaged over the rows.
 *
 *   loss = -1/B * sum_b log softmax(logits[b])[target[b]]
 *
 * @param logits  (..., C) floating, unnormalised scores
 * @param target  (...)    i64, class ids in [0, C); or (..., C) floating, one distribution per
 *                         row: -1/B * sum_b sum_c target[b][c] log softmax(logits[b])[c]
 * @return        ()       nats per row
 *
 * With class weights w and label smoothing s, nll[c] = -w[c] log softmax(logits[b])[c]. A
 * row's loss is (1-s) nll[target[b]] + s/C sum_c nll[c], and the mean divides by the sum of
 * w[target[b]] over the rows that are not ignored, as in PyTorch, but the loss is 0 if that sum
 * is 0 (NaN there). For distributions, a row's loss is sum_c ((1-s) target[b][c] + s/C) nll[c],
 * and the mean divides by B.
 *
 * Gradient: logits, and a distribution.  Errors: shape, weights that are not (C) of the scores'
 * dtype; argument, an invalid smoothing or reduction, or weights that require a gradient.
 * Execution error: range, a target outside [0, C).
 */
choir_tensor *choir_cross_entropy(choir_tensor *logits, choir_tensor *target);
choir_tensor *choir_cross_entropy_with(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);

/**
 * The divisor of a step's losses, such that their mean over micro-batches is the mean over all
 * targets that count (num_items_in_batch in Hugging Face's transformers).
 *
 * choir_backward and choir_env_loss average over micro-batches. The mean of the means of
 * micro-batches depends on their number wherever some targets are ignored (padding, prompts,
 * words that are not masked) or classes have weights. Make the losses sums then, divided by one
 * number:
 *
 *     choir_cross_entropy_opts o = choir_cross_entropy_defaults();
 *     choir_tensor *divisor = choir_loss_divisor(y, M, o);         (targets of all backwards)
 *     o.reduction = CHOIR_LOSS_SUM;
 *     loss = choir_div(choir_cross_entropy_with(scores, y[m], o), divisor);
 *
 * @param targets  (count) i64 of any shape, one tensor per micro-batch that this rank runs in
 * the step (for a vector of losses, one tensor per loss)
 * @param opts     ignore_index and weight are used
 * @return         ()  f32, the number of targets that count (with class weights: the sum of
 * their weights) in the step's micro-batches on all ranks, divided by the number of these
 * micro-batches; 1 if no target counts, so that the loss is 0. The result is in the scope that
 * the targets share
 *
 * Call it in the step, before the first backward; the targets are tensors of the step's scope.
 * Where every rank steps by itself (choir_hogwild, choir_diloco, choir_local_sgd after its
 * warm-up), only this rank's targets are counted. For f64 losses, convert the result with
 * choir_cast.
 *
 * Gradient: none.  Errors: dtype, device, shape of the weights; argument, fewer or more
 * micro-batches than the strategy runs; state, in a join of choir_ddp.  Collective: under
 * strategies that distribute micro-batches over ranks.
 */
choir_tensor *choir_loss_divisor(
    choir_tensor *const *targets, int count, choir_cross_entropy_opts opts);
/** Like choir_loss_divisor; unless counted is NULL, also stores in *counted the number of
 * targets that count (with class weights: the sum of their weights) in the step's micro-batches
 * on all ranks: () f64. If it is 0, the step's losses are 0 and measure nothing, so a loop
 * leaves the step out of its means. To read it after the step, use choir_keep. */
choir_tensor *choir_loss_divisor_counted(choir_tensor *const *targets, int count,
    choir_cross_entropy_opts opts, choir_tensor **counted);

/** Computes -mean over rows of x[r, target[r]]; x (..., C) has log-probabilities. */
choir_tensor *choir_nll_loss(choir_tensor *x, choir_tensor *target);

/** Computes mean (x - y)^2. */
choir_tensor *choir_mse_loss(choir_tensor *x, choir_tensor *y);

/* The losses below take x and y of equal shape and dtype and are differentiable in both.
 * Errors: shape, dtype, argument. */

/** Computes |x - y|. */
choir_tensor *choir_l1_loss(choir_tensor *x, choir_tensor *y, choir_reduction reduction);
/** Computes, with d = |x - y|, d < beta ? d^2 / (2 beta) : d - beta/2 (Girshick, 2015).
 * PyTorch's beta is 1. */
choir_tensor *choir_smooth_l1_loss(
    choir_tensor *x, choir_tensor *y, float beta, choir_reduction reduction);
/** Computes, with d = |x - y|, d < delta ? d^2 / 2 : delta (d - delta/2) (Huber, 1964).
 * PyTorch's delta is 1. */
choir_tensor *choir_huber_loss(
    choir_tensor *x, choir_tensor *y, float delta, choir_reduction reduction);
/** Computes -y log x - (1-y) log(1-x) of probabilities x, with logarithms of at least -100.
 * Execution error: range, an x outside [0, 1]. */
choir_tensor *choir_bce_loss(choir_tensor *x, choir_tensor *y, choir_reduction reduction);
/** Computes choir_bce_loss of the probabilities sigmoid(x), exactly even for large scores.
 * pos_weight, of the shape of x's last dimensions or NULL, multiplies the term y log x and gets
 * no gradient. */
choir_tensor *choir_bce_with_logits_loss(
    choir_tensor *x, choir_tensor *y, choir_tensor *pos_weight, choir_reduction reduction);
/** Computes y (log y - x) of log-probabilities x; with log_target, y has log-probabilities,
 * too: exp(y) (y - x). CHOIR_LOSS_BATCH_MEAN gives the divergence of distributions (rows). */
choir_tensor *choir_kl_div_loss(
    choir_tensor *x, choir_tensor *y, bool log_target, choir_reduction reduction);

/* --- ops with a user's own gradient --- */

/** An op with a user's own gradient. Both functions are made of choir ops, which record nothing
 * while they run; choir_derivatives alone records the ops of backward. */
typedef struct choir_custom_op {
    const char *name;
    /** Returns the result, computed from in[count]. */
    choir_tensor *(*forward)(choir_tensor *const *in, int count, const void *arg);
    /** Stores the gradient of in[i] in grad_in[i], or leaves it NULL. It computes them from in,
     * out and grad_out: a tensor that forward has kept elsewhere has no history, so its part of
     * a second derivative would be lost. */
    void (*backward)(choir_tensor *const *in, int count, choir_tensor *out,
        choir_tensor *grad_out, choir_tensor **grad_in, const void *arg);
} choir_custom_op;

/** Applies op to in[count]. arg must live as long as the scope. */
choir_tensor *choir_custom(
    const choir_custom_op *op, choir_tensor *const *in, int count, const void *arg);

#ifdef __cplusplus
}
#endif
#endif
