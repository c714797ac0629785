/* Inside tensors and scopes.
 *
 * A tensor is a handle in its scope's arena: shape, strides, and a counted reference to
 * storage. An op makes its result with choir__result, launches kernels on it, and, when a
 * gradient may be wanted, leaves a record on the scope's tape with what its backward needs.
 * Backward functions live beside their op and speak to autograd only through a sink: where
 * input i's gradient should be written, and that it has been. */
#ifndef CHOIR_TENSOR_INTERNAL_H
#define CHOIR_TENSOR_INTERNAL_H

#include <choir/ops.h>
#include <choir/tensor.h>
#include "base/arena.h"
#include "base/mapping.h"
#include "device/device.h"

/* --- storage --- */

typedef struct choir__storage {
    _Atomic int refs;
    uint32_t version; /* counts changes in place */
    choir_device *device;
    choir__block *block;     /* NULL: memory of somebody else's */
    choir__mapping *mapping; /* that memory, if other processes can map it, too; else NULL */
    bool shared; /* a block that queues pass on as it is, for other processes to read and write
                  */
    void *data;
    size_t bytes;
    void (*bring)(void *arg); /* where set: called before anybody is told where the data are;
                                 sees to it that they are there */
    void *bring_arg;
    choir__event
        ready; /* where set: readers on other devices need wait for no more than this */
} choir__storage;

choir__storage *choir__storage_new(
    choir_device *device, size_t bytes); /* NULL: out of memory */
choir__storage *choir__storage_wrap(choir_device *device, void *data, size_t bytes);
/* A part of shared memory, to which it takes a reference; given back in queue order. */
choir__storage *choir__storage_mapped(
    choir_device *device, choir__mapping *mapping, size_t offset, size_t bytes);
choir__storage *choir__storage_ref(choir__storage *storage);
/* One tensor alone has it, no other device's queue and no other process: its values may be
 * written over. */
bool choir__storage_is_ours(const choir__storage *storage);
/* Before its device writes over values that are there: other queues have read them first. */
void choir__storage_claim(choir__storage *storage);
/* What was issued to queue so far reads it: the memory goes to nobody else before that has run.
 */
void choir__storage_read_by(choir__storage *storage, choir__queue *queue);
void choir__storage_unref(choir__storage *storage);

/* --- tensors --- */

typedef struct choir__record choir__record;
typedef struct choir__param choir__param;
typedef struct choir__hook choir__hook;

/* What ops do with a tensor of which each rank of a group has a part
 * (parallel/tensor_parallel): a parameter, or scores whose classes are dealt out. These four
 * know of it, and pass such operands on to the functions here; all others refuse them. */
typedef struct choir__partition choir__partition;
struct choir__partition {
    choir_tensor *(*linear)(
        choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
    choir_tensor *(*embedding)(choir_tensor *table, choir_tensor *ids);
    choir_tensor *(*cross_entropy)(
        choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
    choir_tensor *(*argmax)(choir_tensor *x);
};

struct choir_tensor {
    choir_scope *scope;
    choir__storage *storage; /* NULL: poisoned, or freed by backward */
    choir_device *device;    /* where that was, once it is freed */
    choir_shape shape;
    int64_t stride[CHOIR_MAX_DIMS]; /* elements */
    int64_t count, offset;          /* elements */
    choir_dtype dtype;
    bool requires_grad, poisoned, freed, kept;
    int stage;                     /* of a pipeline, in which it was made */
    choir_tensor *copy;            /* of it on a later stage's device: the latest */
    bool lent;                     /* its memory is put-off work's (autograd/walk.c) */
    struct choir__segment *let_go; /* where its memory went until it is made again: again.c */
    struct choir__record *until;   /* while that is made again: the last that needs this */
    bool passing;                  /* it goes again after that */
    choir_tensor *waiting;         /* for this one, to be made itself */
    bool watched;                  /* hooks were shown it: they may come back to it */
    choir__record *producer;       /* NULL: a leaf */
    choir_tensor *grad;            /* during backward; of a leaf, afterwards too */
    bool grad_owned;               /* grad's memory is ours to add to */
    choir__param *param;           /* a parameter: its gradient lives in a book */
    const choir__partition *split; /* this is a rank's part of it; NULL: it is whole */
    choir_tensor *cast_of;         /* a parameter's values in another dtype: autocast.c */
    choir_tensor *next_cast;       /* of the scope's */
    int readers;                   /* records on the tape that it is an operand of, if so */
    choir__hook *hooks;
    choir_tensor *next; /* in the scope's list, for closing */
};

/* A handle without memory in scope. */
choir_tensor *choir__tensor_bare(choir_scope *scope, choir_dtype dtype, choir_shape shape);

/* Row-major and uninitialised; poisoned, with the error noted, when memory runs out. */
choir_tensor *choir__tensor_new(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape);

/* As x in dtype, shape and memory order (dense orders; else row-major). */
choir_tensor *choir__tensor_like(choir_scope *scope, const choir_tensor *x);

/* A view of x's memory, without history. */
choir_tensor *choir__tensor_alias(choir_scope *scope, const choir_tensor *x);

/* A tensor over memory that is somebody else's. */
choir_tensor *choir__tensor_wrap(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape, void *data);

/* Memory for a handle that has none; false, with the error noted, when there is no more. */
bool choir__tensor_allocate(choir_tensor *t, choir_device *device);

void choir__tensor_release(
    choir_tensor *t); /* lets go of the memory; the handle stays, freed */

void *choir__data(const choir_tensor *t);
bool choir__is_contiguous(const choir_tensor *t);
bool choir__is_dense(const choir_tensor *t); /* some permutation of row-major, without holes */
void choir__set_channels_last(choir_tensor *t); /* logically (N, C, ...) */
/* x with channels last in memory: x itself, or a copy in scope. */
choir_tensor *choir__channels_last(choir_scope *scope, choir_tensor *x);
bool choir__same_layout(const choir_tensor *a, const choir_tensor *b);
bool choir__same_shape(choir_shape a, choir_shape b);
int64_t choir__shape_count(choir_shape shape);
void choir__set_row_major(choir_tensor *t);
bool choir__is_float(choir_dtype dtype);
choir_device *choir__device_of(const choir_tensor *t);

/* Why a device is NULL: what choir_device_find said of it. */
const char *choir__missing_device(void);

/* Makes a dimension counted from the end (-1) one from the front; false: there is none. */
bool choir__fix_dim(const choir_tensor *x, int *dim);
choir_tensor *choir__bad_dim(const char *op, choir_tensor *x, int dim);

/* "(2, 3)", in one of a few static buffers of this thread. */
const char *choir__shape_text(choir_shape shape);

/* Rows and columns: the last dimension against all others. */
static inline int64_t choir__cols(const choir_tensor *t)
{
    return t->shape.ndim ? t->shape.dim[t->shape.ndim - 1] : 1;
}

static inline int64_t choir__rows(const choir_tensor *t)
{
    int64_t cols = choir__cols(t);
    return cols ? t->count / cols : 0;
}

/* --- scopes --- */

typedef enum choir__scope_kind { CHOIR__RUN, CHOIR__STEP, CHOIR__MICRO } choir__scope_kind;

typedef struct choir__calls {
    uint64_t name, count;
    struct choir__calls *next;
} choir__calls;

/* A device that a run uses. */
typedef struct choir__place {
    choir_device *device;
    choir__storage *step; /* the step's number in its memory; NULL: no kernel has asked */
    struct choir__place *next;
} choir__place;

typedef struct choir__closer {
    void (*fn)(void *arg);
    void *arg;
    struct choir__closer *next;
} choir__closer;

/* Who says where ops of a scope run: it is shown the operands of each op before they are looked
 * at, and may replace them by copies on another device. false: the scope has an error. */
typedef struct choir__placer choir__placer;
struct choir__placer {
    bool (*place)(choir__placer *placer, choir_scope *scope, const char *op, choir_tensor **in,
        int count);
};

/* Ranks that have parts of the run's parameters, or of its batch: sums numbers of all of them,
 * in the order of the device's queue. */
typedef struct choir__sharer {
    choir_status (*sum)(void *arg, choir_device *device, double *numbers, int64_t count);
    void *arg;
    struct choir__sharer *next;
} choir__sharer;

/* In which dtype the ops of a scope compute: autocast.c. */
typedef struct choir__autocast {
    bool on;
    bool all;   /* every op but losses and batch norm's numbers: Apex's O2; else by lists */
    bool norms; /* with all: batch norm's numbers, too: O3 */
    choir_dtype dtype; /* bf16 or f16 */
} choir__autocast;

/* What a checkpoint of a run's optimizer is to hold besides the optimizer's own state: visits
 * those tensors, the same on all ranks, whose names begin with CHOIR__KEPT. They are 0 after a
 * checkpoint that has none of them, and passed over where nobody keeps them: it was another
 * strategy's. */
#define CHOIR__KEPT "outer_"
typedef struct choir__state_keeper {
    void (*visit)(void *arg,
        void (*visit)(const char *name, choir_tensor *t, const choir__param *param, void *to),
        void *to);
    void *arg;
    struct choir__state_keeper *next;
} choir__state_keeper;

/* Who takes part in a run's steps from outside (hogwild, DiLoCo, FSDP). */
typedef struct choir__step_watcher {
    void (*begins)(void *arg);  /* a step begins: nothing of it is queued yet, nor recorded */
    void (*updated)(void *arg); /* the optimizer's update has been queued; may be recorded */
    void *arg;
    struct choir__step_watcher *next;
} choir__step_watcher;

struct choir_scope {
    choir__scope_kind kind;
    choir__placer *placer;          /* NULL: ops run where their operands are */
    int stage;                      /* of a pipeline: to which the ops issued now belong */
    int ops;                        /* issued so far, where a placer counts them */
    struct choir__segment *segment; /* whose ops are under way: again.c; NULL: none */
    choir_scope *parent, *run;
    int depth;
    choir_device *device;
    choir__arena arena;
    choir_tensor *tensors;
    choir__record *tape, *tape_tail; /* in order of creation; doubly linked */
    choir_status status;
    char *message;
    bool blamed; /* message names the module */
    bool grad;   /* record for backward */
    choir__autocast autocast;
    choir_tensor *casts;       /* of parameters, made for this scope's ops: the latest */
    choir_dtype stored;        /* of the op under way: its result's dtype */
    choir_tensor *widened[16]; /* its operands as f32, which go when it is done */
    int widened_count;
    uint64_t seed, step;
    int64_t micro;
    bool piece;          /* of a DataParallel batch: walked by what joins the pieces alone */
    choir__calls *calls; /* numbers the random ops of this scope, by name */
    choir_scope *spare;  /* closed scopes kept for the next step */
    /* of a run */
    int64_t micro_first;  /* of the steps of this rank */
    int64_t micro_total;  /* of the job, if a launcher said; else 0 */
    choir__place *places; /* its devices: its own first */
    uint64_t next_step;   /* choir_step's counter */
    int64_t warm_up;      /* calls before it records, if more than it makes by itself */
    struct choir__replay *replay;
    uint32_t recordings;   /* begun so far */
    choir__pool *retired;  /* of recordings: what was kept from them may still live there */
    choir_scope *recorded; /* closed while recording: their arenas hold what replays call */
    struct choir__param *params;   /* newest first: autograd/book.h */
    struct choir_module *at;       /* whose forward function is running; NULL: none */
    unsigned layouts;              /* of books, so far */
    struct choir__book *books;     /* gradients of this run's parameters: autograd/book.h */
    struct choir__closer *closers; /* newest first */
    choir__step_watcher *watchers; /* of a run's steps */
    choir__state_keeper *keepers;
    choir__sharer *sharers;       /* NULL: every rank has whole parameters */
    struct choir__closer *enders; /* called when the tensors are gone, newest first */
};

/* Which values t, of the run, has, never 0: whoever copied these need not do so again. A step
 * that is recorded brings what it reads itself, since replays will have other values. */
uint64_t choir__values_of(const choir_tensor *t);
/* Gives back what choir_step's recording holds; the next step records anew. */
void choir__step_forget(choir_scope *run);
/* The same from within a step: before the next one begins. */
void choir__step_anew(choir_scope *run);
/* Frees closed scopes linked by `spare`. */
void choir__scopes_free(choir_scope **list);
/* Writes the step's number to where kernels read it, in the order of each device's queue. */
void choir__store_step(choir_scope *run, uint64_t step);
/* A step of the run begins: does so, and tells the watchers. */
void choir__step_begins(choir_scope *run, uint64_t step);
/* Where kernels on device find scope's step; NULL, with the error noted, if that cannot be. */
const uint64_t *choir__step_word(choir_scope *scope, choir_device *device);

/* Tensors of the run lie on device: its errors are the run's, and the run's end waits for it.
 */
void choir__scope_uses(choir_scope *scope, choir_device *device);
/* The first failure of a kernel, on any of the run's devices. */
choir_status choir__run_failure(const choir_scope *run);
/* Waits for all of them. */
choir_status choir__run_sync(const choir_scope *run);
/* None of them goes on before all are here. */
void choir__run_join(const choir_scope *run);

/* Notes the error in the scope (the first stays) and returns a poisoned tensor of it. */
choir_tensor *choir__poison(choir_scope *scope, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Notes choir_error_message() as the scope's error. */
choir_status choir__scope_fail(choir_scope *scope, choir_status status);

/* Adds the module's path to the scope's message, unless an inner one's is there already. */
void choir__scope_blame(choir_scope *scope, const char *path);

/* fn(arg) when the scope closes, before its tensors are released; the last one noted is called
 * first. */
void choir__on_close(choir_scope *run, void (*fn)(void *arg), void *arg);

/* The same when they are released: for what they lay on. */
void choir__on_end(choir_scope *run, void (*fn)(void *arg), void *arg);

/* The innermost of the operands' scopes, or NULL with the error noted in the first one's. */
choir_scope *choir__join(choir_tensor *const *in, int count);

/* A random key for the next call by this name in this scope. */
uint64_t choir__scope_key(choir_scope *scope, const char *name);

/* --- ops --- */

enum { CHOIR__MAX_IN = 16, CHOIR__MAX_SAVED = 6 };

typedef struct choir__sink choir__sink;

typedef struct choir__op {
    const char *name;
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
     * and to what is saved and named by again_saved; the memory of all is there. NULL: it
     * cannot. */
    void (*again)(choir__record *r);
    unsigned again_saved; /* bit i: saved[i], where it is no operand, is made along with it */
    bool cheap; /* so much so that the memory is worth more: choir__done_with counts on again */
    bool view;  /* the result lies in operand 0's memory: nothing is to be made */
    unsigned reads_in;   /* bit i: backward reads input i's values, so they must not change */
    unsigned rows_in;    /* bit i: backward gives input i's gradient as rows of a table */
    unsigned weights_in; /* bit i: backward_weight gives input i's gradient */
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
    int stage;                      /* the scope's when it was made */
    int owner;                      /* the stage that walks it: see autograd/walk.h */
    int number;                     /* of the op in its micro-batch: choir__placer */
    const choir__op *late_op;       /* while its backward_weight is put off */
    choir__record *previous, *next;
};

/* Autograd's side of a backward function. */
struct choir__sink {
    /* Where in[i]'s gradient goes: a contiguous-or-dense tensor laid out as in[i],
     * uninitialised; NULL when nobody wants it. */
    choir_tensor *(*dest)(choir__sink *sink, choir__record *r, int i);
    /* The same for an op that adds its own to what others gave before it: *given is that, dense
     * rows or NULL; dest may be it. What is given then is the whole. */
    choir_tensor *(*dest_onto)(
        choir__sink *sink, choir__record *r, int i, choir_tensor **given);
    /* The same for an op whose kernel may write over in[i] itself: its memory, where this
     * record is the last to read it. */
    choir_tensor *(*dest_over)(choir__sink *sink, choir__record *r, int i);
    /* g is in[i]'s gradient: what dest returned, or any tensor of the same shape. */
    void (*give)(choir__sink *sink, choir__record *r, int i, choir_tensor *g);
    /* For lookup tables: the gradient as rows (n, C) of ids (n). False: it wants it dense. */
    bool (*give_rows)(
        choir__sink *sink, choir__record *r, int i, choir_tensor *ids, choir_tensor *rows);
    choir_scope *scope;  /* scratch tensors of backward live here */
    choir_tensor *taken; /* by dest_onto, and not to be written to: goes after the record */
};

bool choir__wanted(const choir__record *r, int i);
/* Backward of r reads t's values. */
bool choir__reads(const choir__record *r, const choir_tensor *t);

/* Starts an op: joins scopes, passes poison on, checks that devices agree. NULL: return
 * *poisoned. It may replace operands, by copies on the device that the op shall run on, and in
 * the dtype that it shall compute in: from here on the op knows in[i] alone, and never again
 * the arguments it was called with. Between this and its record no op calls another public one,
 * which might run elsewhere: what prepares operands comes before. */
choir_scope *choir__begin(
    const char *op, choir_tensor **in, int count, choir_tensor **poisoned);

/* A record on the scope's tape, or NULL when no gradient will be wanted (then save nothing).
 * Marks out as requiring one. */
choir__record *choir__record_op(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count);

/* Of choir_add, for ops that add on the way. */
extern const choir__op choir__add_op;
/* Of choir_to: the gradient goes back to the operand's device. */
extern const choir__op choir__to_op;

/* Copies attributes into the record's arena. */
void choir__record_attrs(choir__record *r, const void *attrs, size_t bytes);

/* The forward pass needs t no more, a result of its own ops: its memory goes at once if no
 * backward so far reads it or its op is cheap to do again; the handle stays, for the gradient.
 */
void choir__done_with(choir_tensor *t);
/* But what ops cast it to stays. */
void choir__done_with_one(choir_tensor *t);

/* --- results that are made again (again.c) --- */

/* The ops of scope from here to the end are a segment: then all that they made is let go of,
 * but the result, and made again when somebody asks. Segments lie within segments. NULL: no
 * gradients are wanted. */
typedef struct choir__segment choir__segment;
choir__segment *choir__segment_begin(choir_scope *scope);
void choir__segment_end(choir__segment *segment, choir_tensor *result);
/* Or none. */
bool choir__segment_open(const choir__segment *segment);
/* r is the latest op of the segment, and of those around it; NULL: of none. */
void choir__segment_add(choir__segment *segment, choir__record *r);
/* The record is about to leave the tape. */
void choir__segment_drop(choir__record *r);

/* t's values were let go of, and are made again here if need be, in the forward pass: t alone.
 */
choir_status choir__bring_back(choir_tensor *t);
/* In backward: all that r's backward reads, and what else its segments' will read. */
choir_status choir__restore_read(choir__record *r);
/* r is made again out of t, should backward need it: t must stay as it is. */
bool choir__made_of(const choir__record *r, const choir_tensor *t);
/* For an op's again: copies of operands in another order, as saved[i] may be. */
void choir__copy_again(choir_tensor *saved, const choir_tensor *x);

/* choir_batch_norm_with; in training, statistics are over the rows of all ranks that run the op
 * at the same time, whose sums shared adds up. NULL: over x's own. */
choir_tensor *choir__batch_norm(choir_tensor *x, choir_tensor *gamma, choir_tensor *beta,
    choir_tensor *running_mean, choir_tensor *running_var, choir_batch_norm_opts opts,
    const choir__sharer *shared);

/* Says which op of which shapes failed. */
choir_tensor *choir__shape_error(
    const char *op, choir_scope *scope, choir_tensor *const *in, int count, const char *why);

/* choir_embedding of a table of which this is the rows from `first` on, of `whole`: what is not
 * here is 0. */
choir_tensor *choir__embedding_part(
    choir_tensor *table, choir_tensor *ids, int64_t first, int64_t whole);

/* Of cross entropy: its backward out of the scores in[0], class weights in[2] or NULL, and the
 * targets, log sum exp and count that are saved; attributes: choir_cross_entropy_opts. */
void choir__cross_entropy_backward(choir__record *r, choir_tensor *gy, choir__sink *sink);
choir__row_losses choir__row_losses_of(choir_reduction reduction);

/* choir_linear with the weight as (in, out): x W + b. */
choir_tensor *choir__linear_in_out(choir_tensor *x, choir_tensor *weight, choir_tensor *bias);

/* --- 16-bit floats (autocast.c) --- */

/* The end of choir__begin: operands in the dtype that the op computes in, which its name says.
 * bf16 and f16 ones become f32, recorded, but for products and on devices whose kernels all
 * take them. false: the scope has an error. */
bool choir__set_dtypes(choir_scope *scope, const char *op, choir_tensor **in, int count);
/* The result of an op that was begun, in the dtype in which its operands came; lets go of what
 * stood in for those. */
choir_tensor *choir__as_stored(choir_tensor *y);
/* x in another floating dtype, recorded, where x is. */
choir_tensor *choir__cast_in_place(choir_scope *scope, choir_tensor *x, choir_dtype dtype);
/* A cast that was let go of, once more. */
choir_status choir__cast_again(choir_tensor *t);
/* Its values as f32, nothing recorded: x itself, or a copy in scope. */
choir_tensor *choir__wide(choir_scope *scope, choir_tensor *x);
extern const choir__op choir__cast_op, choir__recast_op, choir__widen_op;

static inline bool choir__is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

/* Of what stands beside operands of dtype: norms' weights, statistics, losses. */
static inline choir_dtype choir__beside(choir_dtype dtype)
{
    return choir__is_half(dtype) ? CHOIR_F32 : dtype;
}

/* An op made y in f32, and choir__as_stored will round it: y itself is not kept. */
static inline bool choir__to_be_rounded(const choir_tensor *y)
{
    return choir__is_half(y->scope->stored) && !choir__is_half(y->dtype);
}

/* The gradient of a table, as one micro-batch gives it: rows (count, C) of ids (count). */
typedef struct choir__leaf_rows {
    choir__storage *ids, *grads; /* references, if any are held */
    const void *ids_data, *grads_data;
    int64_t count;
} choir__leaf_rows;

/* y, laid out as table: = (accumulate ? y : 0) + scale * the tree sum of the leaves' rows. y
 * may be a part of a table, whose row 0 is the whole one's `first`: other rows are left out. */
choir_status choir__launch_rows(choir_device *device, const choir__leaf_rows *leaf,
    int64_t leaves, void *y, const choir_tensor *table, int64_t first, bool accumulate,
    float scale);

/* --- launches on tensors, nothing recorded --- */

void choir__launch_copy(choir_tensor *y, const choir_tensor *x); /* any layout, any dtype */
/* y on its device = x on another: ordered after x's work, and x's memory before its reuse. */
void choir__copy_across(choir_tensor *y, choir_tensor *x);
/* A copy of x on another device, in its memory order, without history. */
choir_tensor *choir__copied_to(choir_scope *scope, choir_tensor *x, choir_device *device);
void choir__launch_fill(choir_tensor *y, double value);
/* Host memory into device memory, in queue order; data may go at once. */
void choir__launch_upload(choir_device *device, void *y, const void *data, size_t bytes);
/* Device memory into device memory. */
void choir__launch_bytes(choir_device *device, void *y, const void *x, size_t bytes);
void choir__launch_add(choir_tensor *y, const choir_tensor *a, const choir_tensor *b);
/* x as row-major memory of the same dtype: x itself or a copy in scope. */
choir_tensor *choir__dense_rows(choir_scope *scope, choir_tensor *x);
/* Sums x over the dimensions in which `shape` is 1 or missing. */
choir_tensor *choir__sum_to(choir_scope *scope, choir_tensor *x, choir_shape shape);

#endif
