/* Inside ops: how an op begins, and the entry that it leaves for backward.
 *
 * An op makes its result, launches kernels on it, and, if a gradient may be needed, leaves a
 * entry on the scope's tape with the tensors that its backward needs. The backward functions
 * are next to their op and talk to autograd only through a sink, which provides the memory for
 * the gradient of input i and receives that gradient. */
#ifndef CHOIR_OP_INTERNAL_H
#define CHOIR_OP_INTERNAL_H

#include "tensor/scope.h"

enum { CHOIR__MAX_IN = 16, CHOIR__MAX_SAVED = 6 };

typedef struct choir__sink choir__sink;

/* The dtypes to which autocast casts an op's f32 and 16-bit operands, by PyTorch's lists for
 * CUDA. */
typedef enum choir__cast {
    CHOIR__CAST_NOTHING, /* operands keep their dtypes */
    CHOIR__CAST_LOWER,   /* all become 16-bit: products */
    CHOIR__CAST_F32,     /* all become f32: softmax, norms, sums, losses */
    CHOIR__CAST_WIDEST   /* all become the widest dtype among them */
} choir__cast;

/* A mask of all operands. */
#define CHOIR__ALL_IN ((1u << CHOIR__MAX_IN) - 1)

/* One op: its name, the dtypes in which it computes (applied by autocast.c), and its backward
 * (NULL if it has none). An op without any of the dtype fields gets 16-bit operands as f32 and
 * all others unchanged. */
typedef struct choir__op {
    const char *name;
    choir__cast cast;
    bool per_slice; /* the result is a weight with a copy for each slice */
    bool any_dtype; /* operands keep their dtypes: views, copies, a user's own op */
    bool composed;  /* made of other ops: operands that belong to the run enter the step's scope
                     */
    bool loss;      /* computes in f32 at every level of autocast; the result stays f32 */
    /* computes each token by itself, or knows how sums over tokens are cut: it may run on a
     * sequence that is cut into chunks (sequence.h) */
    bool by_token;
    bool spreads;  /* copies the operand along dimensions, such as one of tokens */
    bool lookup;   /* copies rows of operand 0; under Apex's O2 its result is 16-bit */
    unsigned half; /* bit i: the op takes operand i in 16 bits on every device */
    /* like half, on devices whose kernels all take 16 bits (choir_device.half) */
    unsigned half_native;
    /* half_native holds on every device: processors' kernels of the op widen 16-bit operands
     * part by part; half_whole: unless the sequence is cut, or continues a cache */
    bool half_here, half_whole;
    /* bit i: under autocast such a device takes operand i in 16 bits beside an f32 operand 0 */
    unsigned half_beside;
    /* bit i: operand i is a product's bias; on these devices a parameter is rounded to the
     * product's dtype, once per scope */
    unsigned bias;
    unsigned optional; /* bit i: operand i may be NULL */
    unsigned o2_keeps; /* bit i: operand i keeps its dtype under Apex's O2 */
    /* An op has either `backward`, or two functions: backward_input, on whose results earlier
     * stages wait, and backward_weight, which may be put off (zero-bubble schedules run it
     * later). backward_weight gives the gradients of the inputs in weights_in; backward_input,
     * if there is any, gives all others. gy: the gradient of the result.
     *
     * backward_weight always runs second, and once. It may read values that backward_input left
     * in saved tensors. The inputs that it reads must be in reads_in or saved, so that their
     * memory is kept until then. So backward_input must change neither gy nor the values of an
     * input or a saved tensor that backward_weight reads. dest_over refuses inputs that are
     * kept. backward_input may write only to dest's and dest_over's results, and to saved
     * memory that belongs to the op alone.
     *
     * Batch norm and group norm have one backward, because the sums for the weights' gradients
     * are also needed for the input's gradient. Ops without weights have one backward, too; if
     * their input is a parameter, its gradient is made at once. */
    void (*backward)(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);
    void (*backward_input)(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);
    void (*backward_weight)(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);
    /* For second derivatives: stores in gx[i] the gradient of in[i], made of public ops that
     * the tape records, from the handles of the operands and of r->out. It may leave gx[i]
     * NULL, or fail the scope. NULL: the op has no second derivative. */
    void (*derivative)(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx);
    /* Computes the result's values from the operands, for the first time (choir__computed) or
     * again, bit for bit: writes them to r->out and to the saved tensors in recompute_saved.
     * The memory of all of them is allocated. NULL: the op cannot do so. */
    void (*recompute)(choir__tape_entry *r);
    unsigned recompute_saved; /* bit i: `recompute` also writes saved[i], unless that is an
                                 operand */
    /* cheap to compute again: choir__done_with releases its result early */
    bool cheap;
    bool along;        /* choir__done_with of operand 0 releases its result as well */
    bool view;         /* the result shares operand 0's memory: nothing is computed */
    unsigned reads_in; /* bit i: backward reads input i's values, so they must not change */
    unsigned rows_in;  /* bit i: backward gives input i's gradient as rows of a table */
    unsigned parts_in; /* bit i: backward gives input i's gradient by dest_part, if asked to */
    unsigned weights_in; /* bit i: backward_weight gives input i's gradient */
    unsigned slices_in;  /* bit i: operand i may be one rank's slices (choir__partition) */
    unsigned tokens_in;  /* bit i: operand i may have this rank's tokens alone (tokens.h) */
} choir__op;

struct choir__tape_entry {
    const choir__op *op;
    choir_scope *scope;
    choir_tensor *out;
    choir_tensor *in[CHOIR__MAX_IN];
    uint32_t version[CHOIR__MAX_IN], out_version;
    /* for parameters: number of the use in the micro-batch, in forward order */
    int use[CHOIR__MAX_IN];
    int count;
    choir_tensor *saved[CHOIR__MAX_SAVED];
    const void *attrs;              /* attributes, in the scope's arena */
    bool first;                     /* `recompute` computes its values for the first time */
    bool reached;                   /* on a path from the loss */
    bool needed;                    /* used while the segment is computed again */
    struct choir__segment *segment; /* the innermost segment that contains it; NULL: none */
    int stage;                      /* the stage of a pipeline in which it was made */
    int owner;                      /* the stage that walks it: see autograd/walk.h */
    int number;                     /* number of the op in its micro-batch */
    const char *path;               /* path of the module that made it, or NULL */
    const choir__op *late_op;       /* the op, while its backward_weight is put off */
    choir__tape_entry *previous, *next;
};

/* Autograd's side of a backward function. */
struct choir__sink {
    /* Returns the tensor to which in[i]'s gradient is written: uninitialised, dense, and laid
     * out like in[i]. Returns NULL if the gradient is not needed. */
    choir_tensor *(*dest)(choir__sink *sink, choir__tape_entry *r, int i);
    /* Like dest, for an op that adds its gradient to the sum of earlier gradients. *given
     * receives that sum as contiguous rows, or NULL; the result may be *given itself. The op
     * then gives the whole sum. */
    choir_tensor *(*dest_onto)(
        choir__sink *sink, choir__tape_entry *r, int i, choir_tensor **given);
    /* For an op that can write in[i]'s gradient in f32, or add it to an earlier one. If in[i]
     * is a 16-bit copy of a tensor for_products, returns that tensor's gradient, contiguous;
     * *copy is the entry that made the copy, and the gradient is then given to its input 0;
     * *adds tells to add. So several products of one tensor need no pass that adds up their
     * gradients. Returns NULL if in[i] is no such copy. */
    choir_tensor *(*dest_wide)(
        choir__sink *sink, choir__tape_entry *r, int i, choir__tape_entry **copy, bool *adds);
    /* Like dest, for an op whose kernel may overwrite in[i] itself: returns in[i]'s memory if
     * this entry is the last to read it. */
    choir_tensor *(*dest_over)(choir__sink *sink, choir__tape_entry *r, int i);
    /* Gives g as in[i]'s gradient: dest's result or any other tensor of that shape. */
    void (*give)(choir__sink *sink, choir__tape_entry *r, int i, choir_tensor *g);
    /* For an op that computes in[i]'s gradient in parts of choir__part_rows rows, from part 0
     * on: dest_part returns the memory of a part, and give_part gives it before the next one
     * begins. NULL: the gradient is given as a whole. */
    choir_tensor *(*dest_part)(choir__sink *sink, choir__tape_entry *r, int i, int64_t part);
    void (*give_part)(choir__sink *sink, choir__tape_entry *r, int i);
    /* For lookup tables: gives the gradient as rows (n, C) of ids (n). Returns false if the
     * sink expects a dense gradient. */
    bool (*give_rows)(
        choir__sink *sink, choir__tape_entry *r, int i, choir_tensor *ids, choir_tensor *rows);
    choir_scope *scope;  /* holds the scratch tensors of backward */
    choir_tensor *taken; /* taken by dest_onto, read-only; released after the entry */
};

/* Returns the number of rows in a part of a matrix's gradient. A large gradient (a language
 * model's head) has parts of some 20 MiB, which a strategy that shards reduces one by one.
 * Parts depend on the shape alone, and every strategy multiplies part by part, so all
 * strategies have the same bits. */
int64_t choir__part_rows(choir_shape shape);

/* True if input i exists and requires a gradient. */
bool choir__wanted(const choir__tape_entry *r, int i);
/* True if r's backward reads t's values. */
bool choir__reads(const choir__tape_entry *r, const choir_tensor *t);

/* Starts an op: joins scopes, passes poison on, and checks that devices agree. If it returns
 * NULL, the caller returns *poisoned.
 *
 * It may replace operands by copies on the device on which the op runs and in the dtype in
 * which it computes. From here on the op uses only in[i], never the arguments with which it was
 * called. Between this call and its entry, an op calls no other public op, because that might
 * run elsewhere; operands are prepared before this call. */
choir_scope *choir__begin(
    const choir__op *op, choir_tensor **in, int count, choir_tensor **poisoned);

/* Leaves an entry on the scope's tape and marks out, whose values have been queued, as
 * requiring a gradient. Returns NULL if no gradient will be needed; then the op saves
 * nothing. */
choir__tape_entry *choir__tape_entry_new(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count);
/* Copies attributes into the entry's arena. */
void choir__tape_entry_attrs(choir__tape_entry *r, const void *attrs, size_t bytes);

/* The parts of an entry that belong to the op: attributes, which are copied, and tensors for
 * backward. */
typedef struct choir__keeps {
    const void *attrs;
    size_t bytes;
    choir_tensor *saved[CHOIR__MAX_SAVED];
} choir__keeps;

/* Ends an op whose result is computed: leaves an entry and returns choir__as_stored(out). */
choir_tensor *choir__taped(const choir__op *op, choir_tensor *out, choir_tensor *const *in,
    int count, choir__keeps keeps);
/* Ends an op with `recompute`, which computes the values of out and of the saved tensors: like
 * choir__taped. If out or a saved tensor is poisoned, it returns the poisoned one. Without a
 * gradient `recompute` gets an entry that ends with this call, and the saved tensors that it
 * wrote are released. */
choir_tensor *choir__computed(const choir__op *op, choir_tensor *out, choir_tensor *const *in,
    int count, choir__keeps keeps);

/* The op of choir_add, for ops that also add, and the op that adds an f32 and a 16-bit tensor
 * in one pass (ops/add.c). */
extern const choir__op choir__add_op, choir__add_half_op;
/* Begins an op whose result is a view of *x, which choir__begin may replace. */
choir_tensor *choir__begin_view(const choir__op *op, choir_tensor **x, choir_tensor **poisoned);
/* Gives g, of the result's shape, as the gradient of in[i], which was broadcast to it: sums g
 * over the dimensions that in[i] lacks. A sum over tokens has the leaves of their cut. */
void choir__give_summed(choir__tape_entry *r, int i, choir_tensor *g, choir__sink *sink);
/* Sums, differences and so on, of shapes that broadcast. */
choir_tensor *choir__binary(choir__binary_op op, choir_tensor *a, choir_tensor *b);
/* The op of choir_to: the gradient goes back to the operand's device. */
extern const choir__op choir__to_op;
/* The op of choir_argmax. */
extern const choir__op choir__argmax_op;

/* Declares that the forward pass no longer needs t, a result of the caller's own ops. Its
 * memory is released at once if no backward so far reads it or its op is cheap to compute
 * again; the handle stays valid, for the gradient. */
void choir__done_with(choir_tensor *t);
/* Like choir__done_with, but keeps the tensor's cached autocast copies. */
void choir__done_with_one(choir_tensor *t);

/* Returns t's memory, or NULL for a tensor that is not given. */
static inline void *choir__data_or_null(const choir_tensor *t)
{
    return t ? choir__data(t) : NULL;
}

/* True if t is not given, or has one number of this dtype per channel. */
static inline bool choir__is_per_channel(
    const choir_tensor *t, int64_t channels, choir_dtype dtype)
{
    return !t || (t->shape.ndim == 1 && t->shape.dim[0] == channels && t->dtype == dtype);
}

/* Returns a poisoned tensor of a scope that has an error. */
choir_tensor *choir__failed_in(choir_scope *scope);
/* Records an error that names the op and its operands' shapes. */
choir_tensor *choir__shape_error(
    const char *op, choir_scope *scope, choir_tensor *const *in, int count, const char *why);

/* --- ops that strategies and modules call with more than their public form allows --- */

/* Like choir_batch_norm_with; in training, statistics are over the rows of all ranks that run
 * the op at that time, and `shared` adds up their sums. shared NULL: statistics are over x's
 * own rows. */
struct choir__strategy;
choir_tensor *choir__batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts opts,
    struct choir__strategy *shared);

/* The rows that a table holds: [first, first + its rows) of a table of `whole` rows (0: the
 * table is whole). Row `padding` of the whole table gets no gradient (-1: all rows do). */
typedef struct choir__table_rows {
    int64_t first, whole, padding;
} choir__table_rows;

/* Like choir_embedding, for a part of a table. The result is 0 for ids of other parts. */
choir_tensor *choir__embedding_part(
    choir_tensor *table, choir_tensor *ids, choir__table_rows of);
/* Like choir_embedding; lookups of the row `padding` add nothing to the table's gradient. If
 * the table is a parameter, its own padding is used instead. */
choir_tensor *choir__embedding_padded(choir_tensor *table, choir_tensor *ids, int64_t padding);

/* Cross entropy's backward from the scores in[0], the class weights in[2] (or NULL), and the
 * saved targets, log sum exp and count. Attributes: choir_cross_entropy_opts. */
void choir__cross_entropy_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink);
/* Like choir_cross_entropy_with, of whole scores and of the targets of their rows alone. */
choir_tensor *choir__cross_entropy_here(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o);
choir__row_losses choir__row_losses_of(choir_reduction reduction);

/* The readers of a norm's result. If a single product reads it, the result may have the dtype
 * to which autocast would cast it; if products and other ops read it, the kernel also writes
 * that copy. */
typedef enum choir__norm_readers {
    CHOIR__FOR_ANYONE,
    CHOIR__FOR_A_PRODUCT,
    CHOIR__FOR_PRODUCTS
} choir__norm_readers;

/* Norms, as choir_layer_norm and choir_rms_norm (rms), and of a sum, as choir_add_layer_norm.
 */
typedef struct choir__norm_opts {
    float eps;
    bool rms;
    choir__norm_readers readers;
} choir__norm_opts;
choir_tensor *choir__norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, choir__norm_opts opts);
choir_tensor *choir__add_norm(choir_tensor *x, choir_tensor *r, choir_tensor *gamma,
    choir_tensor *beta, choir__norm_opts opts, choir_tensor **sum);

/* Like choir_linear, with the weight as (in, out): x W + b. */
choir_tensor *choir__linear_in_out(choir_tensor *x, choir_tensor *weight, choir_tensor *bias);
/* Like choir_linear, or choir__linear_in_out, of choir_gelu_tanh(x), as one op: its backward
 * multiplies by GELU's slope within the product (choir_device.epilogues). It keeps GELU's
 * result. */
choir_tensor *choir__linear_of_gelu(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
/* How a linear layer is computed. part: the weight's mark, or NULL: it is not cut into slices.
 * rows: the slices are of the layer's inputs, so its result is a sum over slices; else they are
 * of its outputs, and the input's gradient is such a sum (ops/sliced/). tokens: with rows, the
 * result has this rank's tokens alone; or NULL. */
typedef struct choir__linear_of {
    bool in_out, gelu, rows;
    const struct choir__partition *part, *tokens;
} choir__linear_of;
/* Like choir_linear, also of a part of a weight. */
choir_tensor *choir__linear_as(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of);
/* Like choir_dropout; part: x is these columns of wider rows, or NULL: x is whole. */
choir_tensor *choir__dropout_of(
    choir_tensor *x, float p, const char *name, const struct choir__partition *part);
/* True if choir__linear_of_gelu is the better way to compute that for x: on GPUs, in 16 bits.
 */
bool choir__joins_gelu(const choir_tensor *x);

/* The gradient of a table from one micro-batch: rows (count, C) of ids (count). */
typedef struct choir__leaf_rows {
    choir__storage *ids, *grads; /* references that the entry holds, or NULL */
    const void *ids_data, *grads_data;
    int64_t count;
} choir__leaf_rows;

/* Computes y = (accumulate ? y : 0) + scale * the tree sum of the leaves' rows; y is laid out
 * like table, which holds the rows `of`; other rows and the padding row are skipped. */
choir_status choir__launch_rows(choir_device *device, const choir__leaf_rows *leaf,
    int64_t leaves, void *y, const choir_tensor *table, choir__table_rows of, bool accumulate,
    float scale);

#endif
