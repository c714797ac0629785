/* The kernel table: every backend fills it in, and the layers above device/ do not see which
 * backend did.
 *
 * A kernel takes one struct of arguments by value (a task's arguments) and only reads and
 * writes the memory named there: it neither allocates nor waits. Pointers are device pointers.
 * dtype is the type of all floating operands unless a field says otherwise. Kernels compute in
 * f32 (sums that need it in f64), or wholly in f64 for CHOIR_F64, which only the reference
 * kernels offer. With operands of 16 bits, the weights of norms, their statistics, the weights'
 * gradients and the table of rotary positions are f32.
 *
 * "Rows" are the leading dimensions flattened, "cols" the last one, contiguous. Images are
 * channels-last: (N, H, W, C) in memory. Outputs never alias inputs unless a field says so. */
#ifndef CHOIR_KERNELS_H
#define CHOIR_KERNELS_H

#include <string.h>

#include <choir/dtype.h>
#include "base/base.h"
#include "base/quant/quant.h"
#include "device/kernels/attention.h"
#include "device/kernels/ctc.h"
#include "device/kernels/cut.h"
#include "device/kernels/hash.h"
#include "device/kernels/images.h"
#include "device/kernels/linalg.h"
#include "device/kernels/order.h"
#include "device/kernels/parts.h"
#include "device/kernels/recurrent.h"
#include "device/kernels/select.h"

/* y[i] = value, n elements of any dtype; integers take the value truncated. */
typedef struct choir__k_fill {
    void *y;
    int64_t n;
    double value;
    choir_dtype dtype;
} choir__k_fill;

/* y = x, any strides and any pair of dtypes (f32 to bf16/f16 rounds to nearest even; float to
 * integer truncates, a number that does not fit becomes the nearest that does, and NaN 0; bool
 * is x != 0). */
typedef struct choir__k_copy {
    choir__strided y, x;
    int64_t shape[CHOIR__MAX_DIMS];
    int ndim;
    choir_dtype y_dtype, x_dtype;
} choir__k_copy;

/* y[i] = x[i] rounded to dtype, bf16 or f16, for several runs of n f32 elements: the copies of
 * parameters under autocast. */
enum { CHOIR__ROUNDED_RUNS = 32 };
typedef struct choir__k_round {
    struct {
        const float *x;
        void *y;
        int64_t n;
    } run[CHOIR__ROUNDED_RUNS];
    int32_t count;
    choir_dtype dtype;
} choir__k_round;

/* Element by element. GELU is 0.5 x (1 + erf(x / sqrt 2)); GELU_TANH its tanh form
 * 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). SILU is x sigmoid(x). ROUND takes ties to
 * even, SIGN of NaN is 0. AFFINE is a x + b, POW x^a as C's pow computes it, CLAMP min(max(x,
 * a), b), where NaN stays. LEAKY is x > 0 ? x : a x, ELU x > 0 ? x : a (exp(x) - 1), SOFTPLUS
 * log(1 + exp(a x)) / a, and x where a x > b. */
typedef enum choir__unary_op {
    CHOIR__NEG,
    CHOIR__EXP,
    CHOIR__LOG,
    CHOIR__SQRT,
    CHOIR__TANH,
    CHOIR__SIGMOID,
    CHOIR__RELU,
    CHOIR__GELU,
    CHOIR__GELU_TANH,
    CHOIR__SILU,
    CHOIR__SQUARE,
    CHOIR__ABS,
    CHOIR__SIN,
    CHOIR__COS,
    CHOIR__SIGN,
    CHOIR__FLOOR,
    CHOIR__CEIL,
    CHOIR__ROUND,
    CHOIR__LOG1P,
    CHOIR__EXPM1,
    CHOIR__ERF,
    CHOIR__AFFINE,
    CHOIR__POW,
    CHOIR__CLAMP,
    CHOIR__LEAKY,
    CHOIR__ELU,
    CHOIR__SOFTPLUS,
    CHOIR__UNARY_COUNT
} choir__unary_op;

/* y[i] = op(x[i]); y may be x.
 *
 * Backward: gx[i] = gy[i] op'(x[i]); y = op(x) is given for the ops that are cheaper from it
 * (EXP SQRT TANH SIGMOID RELU; the others read x). gx may be gy. RELU: 0 at 0; ABS: 0 at 0;
 * POW: 0 for a = 0; CLAMP: gy for a <= x <= b, else 0; SIGN FLOOR CEIL ROUND: 0. */
typedef struct choir__k_unary {
    const void *x, *gy; /* gy, gx: backward */
    void *y, *gx;
    int64_t n;
    double a, b; /* AFFINE, POW, CLAMP, LEAKY, ELU, SOFTPLUS */
    choir__unary_op op;
    choir_dtype dtype;
} choir__k_unary;

typedef enum choir__binary_op {
    CHOIR__ADD,
    CHOIR__SUB,
    CHOIR__MUL,
    CHOIR__DIV,
    CHOIR__POWER,   /* C's pow */
    CHOIR__MAXIMUM, /* NaN if either is */
    CHOIR__MINIMUM,
    /* a's share of the gradient of MAXIMUM, and of MINIMUM if a and b are exchanged: 0 where a
     * < b, 1/2 where they are equal, else 1 */
    CHOIR__PORTION,
    CHOIR__BINARY_COUNT
} choir__binary_op;

/* y = a op b, broadcast by strides. y is contiguous or has the strides of a and b; y may be a
 * or b if their strides are equal. */
typedef struct choir__k_binary {
    choir__strided y, a, b;
    int64_t shape[CHOIR__MAX_DIMS];
    int ndim;
    choir__binary_op op;
    choir_dtype dtype;
} choir__k_binary;

/* y[i] = (a[i] + b[i]) * scale, f32 or f64: one node of the gradient tree. y may be a or b. */
typedef struct choir__k_add_scaled {
    const void *a, *b; /* b NULL: y = a * scale */
    void *y;
    int64_t n;
    float scale;
    choir_dtype dtype;
    int64_t b_half; /* the 16-bit dtype of b beside f32; 0: b has dtype. y is not b then */
} choir__k_add_scaled;

/* Returns the elements from one row of a matrix to the next. row: a kernel's `row`; 0: there
 * are no gaps between rows. */
static inline int64_t choir__row_step(int64_t row, int64_t cols)
{
    return row ? row : cols;
}

/* ROWS: y[r] = scale * sum_c x[r, c]; COLS: y[c] = scale * sum_r x[r, c], rows added in order.
 * On processors f32 rows are summed in 16 lanes (element c in lane c % 16) joined by a fixed
 * tree: lane i += lane i+8, then +4, +2, +1. Other devices use another order, which depends on
 * the shape alone. COLS: the rows may be cut into leaves (kernels/cut.h). */
typedef struct choir__k_sum {
    const void *x;
    void *y;
    int64_t rows, cols;
    double scale;
    bool over_rows; /* true: COLS */
    bool wide;      /* y is f32 while x has 16 bits */
    bool in_f64;    /* y is f64 while x is f32, in COLS without a cut; processors alone */
    choir_dtype dtype;
    int64_t row; /* row step of x, see choir__row_step */
    choir__cut cut;
} choir__k_sum;

/* Whether x takes the place of the greatest entry so far: it is greater, or the first NaN. So a
 * NaN is chosen before all numbers, and of equal entries, -0 and 0 among them, the first. */
#define CHOIR__SURPASSES(x, best) ((x) > (best) || ((x) != (x) && (best) == (best)))

/* y[r] = max_c x[r, c], by CHOIR__SURPASSES. If index is given, index[r] = first + its c. y may
 * be NULL. */
typedef struct choir__k_max_rows {
    const void *x;
    void *y;
    int64_t *index;
    int64_t rows, cols, first;
    choir_dtype dtype;
} choir__k_max_rows;

/* C[b] = A[b] B[b] (+ bias): A (M, K), B (K, N), C (M, N) for b in batch0 x batch1. Strides are
 * in elements; A and B each have one matrix stride of 1; C's columns are contiguous. bias (N)
 * or NULL. accumulate: adds the result to C. For bf16 and f16 operands the sums and the bias
 * are f32; so is C if wide. half_bias, only on devices with choir_device.half: the bias has
 * dtype, as C does. cut, node: K is cut, and the product is the sum of a node's leaves
 * (kernels/cut.h); leaves and nodes are f32 beside 16-bit operands, and rounded once, with the
 * bias and the old C.
 *
 * On devices that choir__device_reads_blocks, B, one matrix without a cut, may be held in fewer
 * bits (b_held): then rows of its memory, along which b_row or b_col is 1, are b_bytes apart,
 * and a value is rounded to dtype.
 *
 * On devices with choir_device.epilogues, a product without bias and without a cut, whose batch
 * is 1, may have one of these:
 *   a_sums (M) or b_sums (N), of C's type, receives the sums over K of A's rows or of B's
 *   columns, in an order of the device's own: if A B is a weight's gradient, this is the bias's
 * gradient. The operand has K rows in memory: a_row is 1 and a_col at least M, or b_row at
 * least N and b_col 1. gelu_in (M, N): C = A B GELU_TANH'(gelu_in), element by element. C is
 * dense and not wide, and accumulate is off. A B may be rounded to C's type before. */
typedef struct choir__k_matmul {
    const void *a, *b, *bias, *gelu_in;
    void *c, *a_sums, *b_sums;
    int64_t batch0, batch1, m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row;
    int64_t a_batch0, a_batch1, b_batch0, b_batch1, c_batch0, c_batch1;
    bool accumulate, wide, half_bias;
    choir_dtype dtype;
    choir__quant b_held; /* F32, which is 0: B is of dtype */
    int64_t b_bytes;
    choir__cut cut;
    choir__node node;
} choir__k_matmul;

/* A matrix, or a batch of them: p[b * batch + i * row + j * col] is element (i, j) of matrix
 * b. */
typedef struct choir__matrix {
    void *p;
    int64_t batch, row, col;
} choir__matrix;

/* Returns a matrix whose rows are `row` elements apart. */
static inline choir__matrix choir__rows_at(const void *p, int64_t row)
{
    choir__matrix m = {(void *)p, 0, row, 1};
    return m;
}

static inline choir__matrix choir__transposed(choir__matrix m)
{
    choir__matrix t = {m.p, m.batch, m.col, m.row};
    return t;
}

/* Returns the arguments of c = a b, a (m, k) and b (k, n); the batch is 1. */
static inline choir__k_matmul choir__product_of(choir_dtype dtype, choir__matrix c,
    choir__matrix a, choir__matrix b, int64_t m, int64_t n, int64_t k)
{
    choir__k_matmul p;
    memset(&p, 0, sizeof p);
    p.a = a.p, p.b = b.p, p.c = c.p;
    p.batch0 = p.batch1 = 1;
    p.m = m, p.n = n, p.k = k;
    p.a_row = a.row, p.a_col = a.col, p.a_batch1 = a.batch;
    p.b_row = b.row, p.b_col = b.col, p.b_batch1 = b.batch;
    p.c_row = c.row, p.c_batch1 = c.batch;
    p.dtype = dtype;
    return p;
}

/* Softmax over rows. y may be x. log: y = log softmax. Backward, from y: gx = y (gy - sum_c gy
 * y); log: gx = gy - exp(y) sum_c gy. gx may be gy. */
typedef struct choir__k_softmax {
    const void *x, *gy; /* gy, gx: backward */
    void *y, *gx;
    int64_t rows, cols;
    bool log;
    choir_dtype dtype;
} choir__k_softmax;

/* y = (x - mean) * rstd * gamma + beta over cols, rstd = 1/sqrt(var + eps), var biased (Ba et
 * al., 2016). gamma, beta (cols) may be NULL. Writes mean, rstd (rows). mean NULL: root mean
 * square norm (Zhang & Sennrich, 2019), which uses 0 for the mean, also in the variance. add,
 * if given: x + add replaces x, and is written to sum. half: the 16-bit dtype of add
 * (half_add), of y (half_y), and of y_half, all beside f32. y_half, if given, gets a rounded
 * copy of y, so that autocast's copies cost no pass of their own. */
typedef struct choir__k_layer_norm {
    const void *x, *add, *gamma, *beta;
    void *y, *mean, *rstd, *sum, *y_half;
    int64_t rows, cols;
    float eps;
    choir_dtype dtype, half;
    bool half_add, half_y;
} choir__k_layer_norm;

/* gx (rows, cols); gx_add, if given, is added to gx (a residual's gradient; gx may alias it).
 * mean NULL as in the forward. half: the 16-bit dtype of gy (half_gy) and of gx_half beside
 * f32; gx_half, if given, gets a copy of gx, rounded.
 *
 * layer_norm_weights, a kernel of its own: ggamma, gbeta (cols), rows added in order; either
 * may be NULL. There the rows may be cut into leaves (kernels/cut.h). */
typedef struct choir__k_layer_norm_backward {
    const void *x, *gamma, *mean, *rstd, *gy, *gx_add;
    void *gx, *gx_half, *ggamma, *gbeta;
    int64_t rows, cols;
    choir_dtype dtype, half;
    int64_t half_gy; /* a bool would leave a word of padding: kit/pack.cuh, in_packs */
    choir__cut cut;
} choir__k_layer_norm_backward;

/* y = silu(a) b (Shazeer, 2020), for rows of cols elements. Rows of a, b are a_row, b_row
 * apart; y is dense. Backward: ga = gy b silu'(a) and gb = gy silu(a). Rows of ga, gb are
 * ga_row, gb_row apart; either may be NULL. */
typedef struct choir__k_swiglu {
    const void *a, *b, *gy;
    void *y, *ga, *gb; /* gy, ga, gb: backward */
    int64_t rows, cols, a_row, b_row, ga_row, gb_row;
    choir_dtype dtype;
} choir__k_swiglu;

/* Rotary positions (Su et al., 2021): each vector x (D) of a position t turns in the planes (i,
 * i + D/2): y[i] = x[i] cos - x[i + D/2] sin, y[i + D/2] = x[i + D/2] cos + x[i] sin. x, y are
 * (B, T, H, D) by strides, the last stride 1; table (T, D) holds a position's D/2 cosines, then
 * its D/2 sines. table_b: 0, or the elements from a sample's table to the next one's. back:
 * turns by the negative angle, which is the backward. */
typedef struct choir__k_rotary {
    choir__strided y, x;
    const void *table;
    int64_t b, t, h, d, table_b;
    bool back;
    choir_dtype dtype;
} choir__k_rotary;

/* y[i] = table[ids[i]]. An id outside [0, rows) fails the queue, with a message that names it.
 * If the table is a part with rows [first, first + rows) of `whole`: y[i] = table[ids[i] -
 * first], or 0 if another part has the row; an id outside [0, whole) fails. */
typedef struct choir__k_embedding {
    const void *table;
    const int64_t *ids;
    void *y;
    int64_t n, rows, cols;
    int64_t first, whole; /* whole 0: the table is not a part */
    choir_dtype dtype;
} choir__k_embedding;

/* y[i] = row i of a matrix whose rows are blocks of `type` (base/quant/quant.h), row_bytes
 * apart, n rows of cols values, each value rounded once to dtype (f32, bf16, f16). ids: row
 * ids[i] instead, with rows, first and whole as choir__k_embedding has them. */
typedef struct choir__k_expand {
    const void *x;
    const int64_t *ids; /* NULL: all rows in order */
    void *y;
    int64_t n, rows, cols, row_bytes;
    int64_t first, whole;
    choir__quant type;
    choir_dtype dtype;
} choir__k_expand;

/* The gradient of an embedding from `leaves` micro-batches: leaf l holds ids[l] (counts[l]) and
 * grads[l] (counts[l], cols). For each id, a leaf's rows are added in order, the leaves in the
 * fixed tree over all leaves (absent: 0; no row at all: +0), times scale; then y[id] = (y[id]
 * if accumulate, else 0) + the sum, as if a table of the sums were added. y (rows, cols)
 * f32/f64 holds rows [first, first + rows) of the table; other ids, and the id `padding` (-1:
 * none), are ignored. The three lists are in device memory, or in host memory that stays valid
 * until the task has run. */
typedef struct choir__k_embedding_backward {
    const int64_t *const *ids;
    const void *const *grads;
    const int64_t *counts;
    int64_t leaves, total; /* total: the sum of counts */
    void *y;
    int64_t first, rows, cols, padding;
    float scale;
    bool accumulate;
    choir_dtype dtype;
} choir__k_embedding_backward;

/* How the losses of rows are combined: see choir__k_cross_entropy. */
typedef enum choir__row_losses {
    CHOIR__ROWS_MEAN,
    CHOIR__ROWS_SUM,
    CHOIR__ROWS_EACH,
    CHOIR__ROWS_SCORE
} choir__row_losses;

/* Cross entropy of softmax(logits) (rows, cols) with targets (rows) i64. Classes have weights w
 * = weight (cols), or 1 each if weight is NULL; nll_c = w_c (lse - logits_c). Label smoothing s
 * mixes the target's t with the uniform distribution's: (1-s) nll_t + s mean_c nll_c is the
 * loss of a row, 0 where the target is ignore_index. lse (rows) = log sum exp; `losses` selects
 * loss and count ():
 *   MEAN  loss () the sum over rows / count (0 where count is); count the sum of w_t over the
 * rows not ignored (without weights: their number) SUM   loss () the sum over rows; count 1.
 * The rows may be cut into leaves (kernels/cut.h); the sum of each leaf is rounded EACH  loss
 * (rows); count 1 SCORE loss (rows) the target's own logit, 0 where that is ignored or
 * elsewhere; count 1; for part_losses, and without weights and smoothing With 16-bit logits all
 * other floating operands are f32, here and in the backward. A target outside [0, cols) fails
 * the queue, except CHOIR__ELSEWHERE in SCORE.
 *
 * Backward reads lse and count. The gradient of a row: glogits_c = gloss / count * (a softmax_c
 * - (1-s) w_t [c = t] - s w_c / cols), where a = (1-s) w_t + s mean w, 1 without weights; 0
 * where count is. gloss has the shape of loss. glogits may be logits. Without weights and
 * smoothing a target may be CHOIR__ELSEWHERE, which equals no c. */
typedef struct choir__k_cross_entropy {
    const void *logits, *weight, *gloss; /* gloss, glogits: backward */
    const int64_t *targets;
    void *loss, *lse, *count, *glogits;
    int64_t rows, cols, ignore_index;
    float smoothing;
    choir__row_losses losses;
    choir_dtype dtype;
    int64_t row; /* row step of logits and glogits, see choir__row_step */
    choir__cut cut;
} choir__k_cross_entropy;

/* Losses of pairs, element by element, with d = x - y and z the softplus log(1 + exp(-x)):
 *   HUBER       |d| < a ? b d^2 / (2 a) : b (|d| - a/2)
 *   BCE         -y max(log x, -100) - (1-y) max(log(1-x), -100); x outside [0, 1] is an error
 *   BCE_LOGITS  (1-y) x + (1 + (w-1) y) z; w = weight[i % period], or 1 where weight is NULL
 *   KL          y > 0 ? y (log y - x) : 0
 *   KL_LOG      exp(y) (y - x)
 * Backward: gx and gy (either may be NULL) are gloss times the derivatives. The derivative of
 * |d| at d = 0 is 0. */
typedef enum choir__pair_kind {
    CHOIR__HUBER,
    CHOIR__BCE,
    CHOIR__BCE_LOGITS,
    CHOIR__KL,
    CHOIR__KL_LOG
} choir__pair_kind;

typedef struct choir__k_pair_loss {
    const void *x, *y, *weight, *gloss;
    void *loss, *gx, *gy; /* loss (n); gloss, gx, gy: backward */
    int64_t n, period;
    choir__pair_kind kind;
    float a, b;
    choir_dtype dtype;
} choir__k_pair_loss;

/* Negative log likelihood of log-probabilities (rows, cols): loss () = -mean x[r, target[r]]
 * over the rows not ignored; backward writes all of gx. */
typedef struct choir__k_nll {
    const void *x, *gloss; /* gloss: backward */
    const int64_t *targets;
    void *loss, *count, *gx;
    int64_t rows, cols, ignore_index;
    choir_dtype dtype;
} choir__k_nll;

/* The divisor of a mean: y () = the sum of weight[target] over the targets (n) other than
 * ignore_index, in order; the number of these targets if weight (cols) is NULL. With weights, a
 * target outside [0, cols) adds nothing, since cross_entropy fails on it. */
typedef struct choir__k_count_targets {
    const int64_t *targets;
    const void *weight;
    double *y;
    int64_t n, cols, ignore_index;
    choir_dtype dtype; /* dtype of the weights */
} choir__k_count_targets;

/* sum () = counts (n), added in order; y () = sum / n, or 1 if sum is 0. */
typedef struct choir__k_loss_divisor {
    const double *counts;
    float *y;
    double *sum;
    int64_t n;
    choir_dtype dtype; /* unused */
} choir__k_loss_divisor;

/* y[i] = x[i] * keep / (1 - p), with keep from Philox: element i is kept iff unit(word i%4 of
 * philox(key, hi = *step, lo = i/4)) >= p. The backward is the same call on gy. step is read on
 * the device, so each replay of a recorded step has a new mask. y may be x.
 *
 * The elements have the numbers i from first on, a multiple of 4. If cols is not 0, they are
 * columns [first, first + cols) of rows of `whole`, and have the numbers that they have there.
 */
typedef struct choir__k_dropout {
    const void *x;
    void *y;
    const uint64_t *step;
    int64_t n, first, cols, whole;
    uint64_t key;
    float p;
    choir_dtype dtype;
} choir__k_dropout;

/* Returns the number that element i has in the mask. */
CHOIR__BOTH static inline int64_t choir__dropout_place(const choir__k_dropout *k, int64_t i)
{
    return k->first + (k->cols ? i / k->cols * k->whole + i % k->cols : i);
}

/* Initial values: element i from word i%4 of philox(key, 0, (first + i)/4) (first a multiple of
 * 4). UNIFORM: a + (b - a) unit. NORMAL: mean a, deviation b, Box-Muller on the words (0,1) and
 * (2,3): r cos, r sin of each pair, with u = 1 - unit under the logarithm. */
typedef struct choir__k_random {
    void *y;
    int64_t n;
    uint64_t key, first;
    double a, b;
    bool normal;
    choir_dtype dtype;
} choir__k_random;

/* The tensors that a step reads; all but the gradient it also writes. */
typedef enum choir__opt_of {
    CHOIR__OPT_PARAM,
    CHOIR__OPT_M,
    CHOIR__OPT_V,
    CHOIR__OPT_TOP,
    CHOIR__OPT_GRAD,
    CHOIR__OPT_READ,                  /* number of tensors that are read */
    CHOIR__OPT_LEFT = CHOIR__OPT_GRAD /* number of tensors that are written */
} choir__opt_of;

/* Hashes of an entry's numbers (kernels/hash.h), taken in the pass of the step: as it read
 * them, and as it left them. Each place in the whole tensor has one factor, which all of them
 * share. In memory that the host reads. */
typedef struct choir__opt_sums {
    int64_t at;      /* place of the entry's first element in the whole tensor; -1: no hashes */
    int64_t counted; /* elements whose hashes are in the sums */
    uint64_t read[CHOIR__OPT_READ], left[CHOIR__OPT_LEFT];
} choir__opt_sums;

/* One parameter of a multi-tensor optimizer step. row: elements per row of dimension 0. */
typedef struct choir__opt_entry {
    float *param;
    const float *grad;
    /* SGD: m is the momentum buffer, v unused; RMSprop: m is the momentum buffer or NULL */
    float *m, *v;
    /* Adam with amsgrad: the largest v so far; centered RMSprop: mean of gradients; else NULL
     */
    float *top;
    /* Adam with 8-bit state, else NULL: the codes of m and v in place of m and v, and the
     * largest magnitude of each block. A row of dimension 0 has ceil(row / 256) blocks. */
    uint8_t *m_codes, *v_codes;
    float *m_most, *v_most;
    int64_t n, row;
    int group; /* index of the group's hyper-parameters */
    /* the whole parameter's first row, among all rows of the whole model, and its number of
     * rows */
    int64_t whole_at, whole_rows;
    /* the parameter in half_dtype, rounded by each step (not for LAMB); NULL: the parameter is
     * f32, or as grad, m, v and top f64 if half_dtype is */
    uint16_t *half;
    choir_dtype half_dtype;
    int32_t apart;         /* Adam leaves the entry out: Muon updates it */
    float *average;        /* average of the parameter over steps; NULL: none */
    choir__opt_sums *sums; /* NULL: the step takes no hashes of this entry */
    int64_t from;          /* number of the first element, where an entry is a part of one */
} choir__opt_entry;

/* The hyper-parameters of a group in this step, in device memory. */
typedef struct choir__opt_hyper {
    float lr, beta1, beta2, eps, weight_decay;
    float momentum, dampening;
    float step_size, rsqrt_bias2;       /* Adam: lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    int32_t nesterov, decoupled, first; /* first: the first step of SGD's momentum */
    int32_t maximize;                   /* the gradient's sign is inverted */
    /* LAMB: 1 / (1 - beta1^t) and 1 / (1 - beta2^t), or 1; 1 - beta1, or 1; trust: the step is
     * scaled by |p| / |u|. Adam of f64: what step_size and rsqrt_bias2 lack as f32 numbers */
    float inv_bias1, inv_bias2, take1;
    int32_t trust;
    float take;   /* weight of this step in the average of parameters */
    int32_t hash; /* the step takes hashes, where entries have room for them */
} choir__opt_hyper;

/* The corrections that depend on a step's number t = 1, 2, ...: none; step_size and
 * rsqrt_bias2; inv_bias1 and inv_bias2; for Adafactor step_size = min(lr, 1 / sqrt(t)) and
 * take1 = t^beta2, with a negative exponent as beta2. */
typedef enum choir__opt_bias {
    CHOIR__BIAS_NONE,
    CHOIR__BIAS_ADAM,
    CHOIR__BIAS_LAMB,
    CHOIR__BIAS_ADAFACTOR
} choir__opt_bias;

/* For each entry, with g = grad * *clip (clip NULL: 1). f32.
 *   SGD:  g += wd p;  m = first ? g : momentum m + (1-dampening) g;
 *         g = nesterov ? g + momentum m : m;  p -= lr g       (no momentum: p -= lr g)
 *   Adam: decoupled ? p -= lr wd p : g += wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;
 *         w = top ? (top = max(top, v)) : v;  p -= step_size m / (sqrt(w) rsqrt_bias2 + eps)
 *   LAMB: decoupled ? : g += wd p;  m = b1 m + take1 g;  v = b2 v + (1-b2) g g;
 *         u = m inv_bias1 / (sqrt(v inv_bias2) + eps) + (decoupled ? wd p : 0);
 *         p -= lr r u, with r = |p| / |u| if trust and neither is 0, else 1
 *   Lion: p -= lr wd p;  p -= lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 *   RMSprop: g += wd p;  v = b2 v + (1-b2) g g;
 *         w = top ? v - (top = b2 top + (1-b2) g)^2 : v;  u = g / (sqrt(w) + eps);
 *         u = m ? (m = momentum m + u) : u;  p -= lr u
 *   Average: average += take (p - average), with the first group's take; a take of 0 does
 *         nothing, and 1 copies p. It is queued behind the step, and reads f32 parameters.
 * maximize: g = -g at the start. The norms |p|, |u| of an entry are f64 sums per row of
 * dimension 0, joined by the fixed tree. rows: LAMB's scratch, two doubles for each row of all
 * entries.
 *
 * Where an entry is a part of a parameter, LAMB runs as two kernels. MEASURE updates m and v,
 * and stores the sums of squares of p's rows, then of u's rows, in `rows`. STEP expects
 * the sums of the whole model in `rows`, whole_rows of each kind; it overwrites them and
 * updates p. */
enum { CHOIR__CODED_BLOCK = 256 }; /* elements that share a largest magnitude */

typedef enum choir__lamb_part {
    CHOIR__LAMB_WHOLE,
    CHOIR__LAMB_MEASURE,
    CHOIR__LAMB_STEP
} choir__lamb_part;

typedef struct choir__k_optim {
    const choir__opt_entry *entries;
    int64_t count;
    const choir__opt_hyper *hyper;
    const float *clip;
    const float *found; /* the step is skipped if it is not 0; NULL: never */
    double *rows;
    choir__lamb_part part;
    int64_t whole_rows;
    bool coded; /* some entries have 8-bit state */
} choir__k_optim;

/* A step that a gradient scaler may skip. The hyper-parameters of `groups` groups, corrected
 * for `steps` earlier steps, are corrected again for the earlier steps that were not
 * skipped. */
typedef struct choir__k_optim_skipped {
    choir__opt_hyper *hyper;
    const float *skipped;
    int64_t steps;
    int groups;
    choir__opt_bias bias;
} choir__k_optim_skipped;

/* grad *= *inverse, for each entry. */
typedef struct choir__k_unscale {
    const choir__opt_entry *entries;
    int64_t count;
    const float *inverse;
} choir__k_unscale;

enum { CHOIR__MAX_SCALED = 8 }; /* optimizers per scaler */

/* The numbers of a gradient scaler, in device memory. */
typedef struct choir__scaler_numbers {
    float scale, inverse; /* 1 / scale, rounded once from f64 */
    float clean;          /* steps without infinities since the scale changed */
    float in_a_row;       /* consecutive steps with infinities */
    float one;            /* constant 1: `inverse` of gradients that are already unscaled */
} choir__scaler_numbers;

/* Updates a scaler after a step: `found` of each optimizer is not 0 if its gradients had
 * infinities or NaN. If any had, the scale is multiplied by `backoff`; otherwise it is
 * multiplied by `growth` after every `interval` clean steps, as long as it stays finite.
 * `patience` consecutive steps with infinities fail the queue. */
typedef struct choir__k_scaler_update {
    choir__scaler_numbers *numbers;
    const float *found[CHOIR__MAX_SCALED];
    int count;
    float growth, backoff;
    int64_t interval, patience;
} choir__k_scaler_update;

/* The norm of all gradients, and the factor that clips it.
 *
 * rows has one f64 per row of dimension 0 of all gradients. The first `given` are input; the
 * kernel appends the sums of squares of the entries' rows, in order. norm () f32 = the root of
 * the sum of all rows by the fixed tree, which overwrites them; clip [0] = min(1, max_norm /
 * (norm + 1e-6)), 1 when max_norm <= 0. norm NULL: rows are kept, for a norm over several
 * devices.
 *
 * inverse: 1 / loss scale; norm and clip are then computed for the unscaled gradients, clip [1]
 * is not 0 if any gradient is infinite or NaN, and clip [2] counts such calls. */
typedef struct choir__k_grad_norm {
    const choir__opt_entry *entries;
    int64_t count, given;
    double *rows;
    float *norm, *clip;
    const float *inverse; /* NULL: 1, and clip [1], [2] are not written */
    float max_norm;
} choir__k_grad_norm;

/* Copies a few bytes from the arguments into device memory, in queue order. */
typedef struct choir__k_store {
    void *y;
    uint32_t bytes;
    unsigned char data[240];
} choir__k_store;

/* clang-format off */
#define CHOIR__KERNEL_LIST(X)                                                                  \
    X(fill) X(copy) X(round) X(unary) X(unary_backward) X(binary) X(add_scaled) X(sum)          \
    X(max_rows) X(matmul) X(recurrent) X(recurrent_backward) X(softmax) X(softmax_backward)    \
    X(attention) X(attention_backward)                                                         \
    X(layer_norm) X(layer_norm_backward) X(layer_norm_weights) X(swiglu) X(swiglu_backward)    \
    X(rotary) X(batch_norm) X(batch_norm_backward) X(group_norm) X(group_norm_backward)        \
    X(adaptive_pool) X(adaptive_pool_backward) X(embedding) X(embedding_backward) X(expand)    \
    X(cross_entropy) X(cross_entropy_backward) X(pair_loss) X(pair_loss_backward) X(nll)       \
    X(nll_backward) X(count_targets) X(loss_divisor) X(part_targets) X(part_losses)            \
    X(ctc) X(ctc_backward)                                                                      \
    X(part_max) X(dropout) X(random) X(conv) X(conv_backward_input) X(conv_backward_weight)    \
    X(pool) X(pool_backward) X(sgd) X(adam) X(lamb) X(lion) X(rmsprop) X(average) X(grad_norm)     \
    X(optim_skipped) X(unscale) X(scaler_update) X(store)                                      \
    X(compare) X(where) X(extreme) X(cumsum) X(gather) X(scatter_add)            \
    X(sort) X(stretch) X(hash) X(cholesky) X(solve_triangular) X(svd)
/* clang-format on */

/* Kernels that share their arguments. */
typedef choir__k_unary choir__k_unary_backward;
typedef choir__k_softmax choir__k_softmax_backward;
typedef choir__k_attention choir__k_attention_backward;
typedef choir__k_gather choir__k_scatter_add;
typedef choir__k_layer_norm_backward choir__k_layer_norm_weights;
typedef choir__k_swiglu choir__k_swiglu_backward;
typedef choir__k_batch_norm choir__k_batch_norm_backward;
typedef choir__k_group_norm choir__k_group_norm_backward;
typedef choir__k_conv choir__k_conv_backward_input;
typedef choir__k_conv choir__k_conv_backward_weight;
typedef choir__k_pool choir__k_pool_backward;
typedef choir__k_pool choir__k_adaptive_pool;
typedef choir__k_pool choir__k_adaptive_pool_backward;
typedef choir__k_recurrent choir__k_recurrent_backward;
typedef choir__k_cross_entropy choir__k_cross_entropy_backward;
typedef choir__k_pair_loss choir__k_pair_loss_backward;
typedef choir__k_ctc choir__k_ctc_backward;
typedef choir__k_nll choir__k_nll_backward;
typedef choir__k_optim choir__k_sgd;
typedef choir__k_optim choir__k_adam;
typedef choir__k_optim choir__k_lamb;
typedef choir__k_optim choir__k_lion;
typedef choir__k_optim choir__k_rmsprop;
typedef choir__k_optim choir__k_average;

typedef struct choir__kernels {
#define X(name) void (*name)(const choir__k_##name *args);
    CHOIR__KERNEL_LIST(X)
#undef X
} choir__kernels;
#endif
