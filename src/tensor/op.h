/* Inside ops: how one begins, and the record that it leaves for backward.
 *
 * An op makes its result, launches kernels on it, and, when a gradient may be wanted, leaves a
 * record on the scope's tape with what its backward needs. Backward functions stand beside
 * their op and speak to autograd only through a sink: where the gradient of input i should be
 * written, and that it has been. */
#ifndef CHOIR_OP_INTERNAL_H
#define CHOIR_OP_INTERNAL_H

#include "tensor/scope.h"

enum { CHOIR__MAX_IN = 16, CHOIR__MAX_SAVED = 6 };

typedef struct choir__sink choir__sink;

/* What autocast makes of an op's f32 and 16-bit operands, by PyTorch's lists for CUDA. */
typedef enum choir__cast {
    CHOIR__CAST_NOTHING, /* they stay as they come */
    CHOIR__CAST_LOWER,   /* all become 16-bit: products */
    CHOIR__CAST_F32,     /* all become f32: softmax, norms, sums, losses */
    CHOIR__CAST_WIDEST   /* all become the widest dtype among them */
} choir__cast;

/* Every bit of a mask of operands. */
#define CHOIR__ALL_IN ((1u << CHOIR__MAX_IN) - 1)

/* One op: its name, which dtypes it computes in (autocast.c acts on that), and its backward
 * (NULL where it has none). An op that says nothing of dtypes gets its operands as they come,
 * and 16-bit ones as f32. */
typedef struct choir__op {
    const char *name;
    choir__cast cast;
    bool any_dtype;       /* operands keep their dtypes: views, copies, a user's own op */
    bool loss;            /* computes in f32 at every level of autocast */
    bool lookup;          /* copies rows of operand 0; under Apex's O2 its result is 16-bit */
    unsigned half;        /* bit i: the op takes operand i in 16 bits on every device */
    unsigned half_native; /* like half, on devices whose kernels all do (choir_device.half) */
    unsigned o2_keeps;    /* bit i: operand i keeps its dtype under Apex's O2 */
    /* Either backward, or a part that the stages before wait for and one that may be put off
     * (zero-bubble schedules run it later): backward_weight gives the gradients of the inputs
     * in weights_in, and backward_input, if there is any, those of all others. gy: the gradient
     * of the result.
     *
     * backward_weight always comes second, and once. It may read what backward_input left in
     * saved tensors; what it reads of inputs must be in reads_in or saved, whose memory is kept
     * until then. So backward_input must not change gy, nor an input's or a saved tensor's
     * values that backward_weight wants as they were: dest_over refuses inputs that are kept,
     * and nothing but dest and dest_over's results, and saved memory that is the op's own
     * affair, may be written to.
     *
     * Batch norm and group norm have one backward: the sums that are their weights' gradients
     * are what their input's is made of. Ops of no weights have one, too, and where their input
     * is a parameter its gradient is made there and then. */
    void (*backward)(choir__record *r, choir_tensor *gy, choir__sink *sink);
    void (*backward_input)(choir__record *r, choir_tensor *gy, choir__sink *sink);
    void (*backward_weight)(choir__record *r, choir_tensor *gy, choir__sink *sink);
    /* Makes the result's values again, bit for bit, from the operands: writes them to r->out
     * and to the saved tensors that again_saved names; the memory of all is there. NULL: it
     * cannot. */
    void (*again)(choir__record *r);
    unsigned again_saved; /* bit i: saved[i], where it is no operand, is made along with it */
    bool cheap;           /* to make again: choir__done_with releases its result early */
    bool view;            /* the result shares operand 0's memory: nothing is to be made */
    unsigned reads_in;    /* bit i: backward reads input i's values, so they must not change */
    unsigned rows_in;     /* bit i: backward gives input i's gradient as rows of a table */
    unsigned weights_in;  /* bit i: backward_weight gives input i's gradient */
} choir__op;

struct choir__record {
    const choir__op *op;
    choir_scope *scope;
    choir_tensor *out;
    choir_tensor *in[CHOIR__MAX_IN];
    uint32_t version[CHOIR__MAX_IN], out_version;
    int use[CHOIR__MAX_IN]; /* of parameters: which use of the micro-batch, in forward order */
    int count;
    choir_tensor *saved[CHOIR__MAX_SAVED];
    const void *attrs;              /* in the scope's arena */
    bool reached;                   /* on a path from the loss */
    bool needed;                    /* while its segment is made again */
    struct choir__segment *segment; /* the innermost it is part of; NULL: none */
    int stage;                      /* of a pipeline: in which it was made */
    int owner;                      /* the stage that walks it: see autograd/walk.h */
    int number;                     /* of the op in its micro-batch: choir__placement */
    const choir__op *late_op;       /* while its backward_weight is put off */
    choir__record *previous, *next;
};

/* Autograd's side of a backward function. */
struct choir__sink {
    /* Returns where in[i]'s gradient goes: a contiguous-or-dense tensor laid out as in[i],
     * uninitialised; NULL when that gradient is not needed. */
    choir_tensor *(*dest)(choir__sink *sink, choir__record *r, int i);
    /* Like dest, for an op that adds its own gradient to what others gave before it: *given is
     * that, dense rows or NULL; dest may be it. The op then gives the whole sum. */
    choir_tensor *(*dest_onto)(
        choir__sink *sink, choir__record *r, int i, choir_tensor **given);
    /* Like dest, for an op whose kernel may overwrite in[i] itself: returns its memory where
     * this record is the last to read it. */
    choir_tensor *(*dest_over)(choir__sink *sink, choir__record *r, int i);
    /* Gives g, what dest returned or any tensor of the same shape, as in[i]'s gradient. */
    void (*give)(choir__sink *sink, choir__record *r, int i, choir_tensor *g);
    /* For lookup tables: gives the gradient as rows (n, C) of ids (n). False: the sink expects
     * a dense gradient. */
    bool (*give_rows)(
        choir__sink *sink, choir__record *r, int i, choir_tensor *ids, choir_tensor *rows);
    choir_scope *scope;  /* scratch tensors of backward live here */
    choir_tensor *taken; /* by dest_onto, and not to be written to: goes after the record */
};

/* True if input i exists and requires a gradient. */
bool choir__wanted(const choir__record *r, int i);
/* True if r's backward reads t's values. */
bool choir__reads(const choir__record *r, const choir_tensor *t);

/* Starts an op: joins scopes, passes poison on, checks that devices agree. NULL: the caller
 * returns *poisoned. It may replace operands, by copies on the device that the op shall run on,
 * and in the dtype that it shall compute in: from here on the op uses in[i] alone, and never
 * again the arguments it was called with. Between this call and its record no op calls another
 * public one, which might run elsewhere: what prepares operands comes before. */
choir_scope *choir__begin(
    const choir__op *op, choir_tensor **in, int count, choir_tensor **poisoned);

/* Leaves a record on the scope's tape and marks out as requiring a gradient. Returns NULL when
 * no gradient will be wanted; then the op saves nothing. */
choir__record *choir__record_op(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count);
/* Copies attributes into the record's arena. */
void choir__record_attrs(choir__record *r, const void *attrs, size_t bytes);

/* The op of choir_add, for ops that add on the way. */
extern const choir__op choir__add_op;
/* The op of choir_to: the gradient goes back to the operand's device. */
extern const choir__op choir__to_op;
/* The op of choir_argmax. */
extern const choir__op choir__argmax_op;

/* Declares that the forward pass no longer needs t, a result of the caller's own ops: its
 * memory is released at once if no backward so far reads it or its op is cheap to do again; the
 * handle stays, for the gradient. */
void choir__done_with(choir_tensor *t);
/* Like choir__done_with, but keeps the tensor's cached autocast copies. */
void choir__done_with_one(choir_tensor *t);

/* Records an error that names the op and its operands' shapes. */
choir_tensor *choir__shape_error(
    const char *op, choir_scope *scope, choir_tensor *const *in, int count, const char *why);

/* --- ops that strategies and modules call with more than their public form allows --- */

/* choir_batch_norm_with; in training, statistics are over the rows of all ranks that run the op
 * at the same time, and `shared` adds up their sums. NULL: statistics are over x's own rows. */
struct choir__strategy;
choir_tensor *choir__batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts opts,
    struct choir__strategy *shared);

/* choir_embedding of rows [first, first + table's rows) of a table of `whole` rows: the result
 * is 0 for ids that are not among them. */
choir_tensor *choir__embedding_part(
    choir_tensor *table, choir_tensor *ids, int64_t first, int64_t whole);

/* Cross entropy's backward out of the scores in[0], class weights in[2] or NULL, and the
 * targets, log sum exp and count that are saved; attributes: choir_cross_entropy_opts. */
void choir__cross_entropy_backward(choir__record *r, choir_tensor *gy, choir__sink *sink);
choir__row_losses choir__row_losses_of(choir_reduction reduction);

/* choir_linear with the weight as (in, out): x W + b. */
choir_tensor *choir__linear_in_out(choir_tensor *x, choir_tensor *weight, choir_tensor *bias);

/* The gradient of a table, as one micro-batch gives it: rows (count, C) of ids (count). */
typedef struct choir__leaf_rows {
    choir__storage *ids, *grads; /* references, if any are held */
    const void *ids_data, *grads_data;
    int64_t count;
} choir__leaf_rows;

/* y, laid out as table: = (accumulate ? y : 0) + scale * the tree sum of the leaves' rows. y
 * may be a part of a table, whose row 0 is row `first` of the whole one: other rows are left
 * out. */
choir_status choir__launch_rows(choir_device *device, const choir__leaf_rows *leaf,
    int64_t leaves, void *y, const choir_tensor *table, int64_t first, bool accumulate,
    float scale);

#endif
