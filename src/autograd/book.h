/* The gradient book: the gradients of a set of parameters, over micro-batches and ranks.
 *
 * Parameters are laid out once, in flat buckets; a backward writes a parameter's gradient
 * directly into its slot. A parameter that is used twice in a micro-batch has two slots,
 * because each use has its own gradient tree. The micro-batches of a step are the leaves of a
 * fixed tree (base/tree.h). The book keeps a stack of partial sums, with one buffer per
 * bucket on each level, and adds two levels as soon as they are siblings.
 *
 *     level 0   [ bucket 0 | bucket 1 | ... ]    leaves 0-3, summed
 *     level 1   [ bucket 0 | bucket 1 | ... ]    leaf 4: being written by this backward
 *
 * A leaf whose sibling is the top of the stack, like leaf 5 here, is never stored as a whole:
 * each of its buckets has memory until its sum is added, so few exist at a time.
 *
 * When the step's leaves are done, choir__book_finish folds the stack, or a reducer (DDP) folds
 * it over all ranks. Then the uses of a parameter are added in forward order, and all sums are
 * divided by the number of micro-batches. Level 0 then holds the gradients.
 *
 * Lookup tables give rows instead: pairs (ids, rows) are kept until the step ends and added
 * then. Over ranks every rank gathers all of them, M leaves. Where these would be more bytes
 * than the table, its gradient is a dense one, summed like any other, with the same bits: in
 * both forms a row that no id names adds +0.
 *
 * A book belongs to one device. A parameter that is also needed on a second device has a
 * *replica* there: a parameter with a book of its own. In a pipeline the replica's gradients
 * are further uses. In DataParallel the pieces of one batch are leaves that are distributed
 * over the devices' books; a reducer adds the nodes of these books into this one. */
#ifndef CHOIR_BOOK_H
#define CHOIR_BOOK_H

#include "base/tree.h"
#include "tensor/op.h"
#include "tensor/run.h"

typedef struct choir__book choir__book;

typedef struct choir__slot { /* one use of one parameter */
    int bucket;
    int64_t at; /* offset in the bucket, elements */
    /* 1, or the number of parts of a large gradient. Each part has its own bucket, from
     * `bucket` on, if the reducer holds one bucket after the other */
    int64_t parts, parts_done;
    bool done;       /* written by this backward */
    int turn;        /* ordinal among all slots that the book has ever written */
    bool gives_rows; /* the op gives rows; another use's memory begins the sum */
    bool by_rows;    /* rows stay rows until the step ends; otherwise they are added into the
                        bucket */
    choir__leaf_rows *rows; /* one per local leaf */
    int64_t row_count;      /* leaves in rows */
    /* offset in book->sums, in elements, where a sharding reducer stores the sum */
    int64_t local_at;
} choir__slot;

/* A block of a sharded parameter: entries [at, at + size) of this rank's part are entries
 * [from, from + size) of the whole. */
typedef struct choir__box {
    int64_t from[CHOIR_MAX_DIMS], at[CHOIR_MAX_DIMS], size[CHOIR_MAX_DIMS];
} choir__box;

/* A tensor laid out like a parameter's `local`, which goes with it to other devices: an
 * optimizer's state. */
typedef struct choir__companion {
    choir_tensor **tensor;
    struct choir__companion *next;
} choir__companion;

struct choir__param {
    choir_tensor *tensor;
    char *name;     /* "" until its module has a root */
    const char *of; /* class of the model in which it is named; NULL: not yet named */
    /* This rank's part of the parameter. The optimizer updates it, checkpoints hold it, and the
     * optimizer's state is laid out like it. It is `tensor` itself unless the parameter is
     * sharded over ranks; then boxes map the entries of local to a tensor of shape `whole`. */
    choir_tensor *local;
    choir_shape whole;
    int64_t cols; /* values of a whole row, if they are held (tensor/held.h); else 0 */
    const choir__box *boxes; /* (box_count); NULL: local is the whole */
    int box_count;
    /* The boxes of `tensor`, if it is itself a part of the whole; NULL: it is the whole. */
    const choir__box *part_boxes;
    int part_box_count;
    int64_t first_row; /* row of tensor with which local begins */
    /* other ranks hold equal entries, and another rank counts them in norms */
    bool uncounted;
    choir__companion *companions;
    choir__book *book;
    choir__param *next; /* next parameter of the run */
    int unit;           /* a bucket holds parameters of one unit (FSDP); 0 unless specified */
    int uses;           /* uses in the current tape */
    uint32_t rows_uses; /* bit u: use u gives rows */
    int64_t rows_given; /* most rows that such a use gives in the current tape */
    bool rows_of_ranks; /* every rank has the rows of all ranks' tokens */
    uint32_t part_uses; /* bit u: use u can give its gradient in parts */
    /* uses on other ranks; the layout follows them while this rank has no use */
    int uses_elsewhere;
    uint32_t rows_elsewhere;
    int64_t rows_given_elsewhere;
    choir__slot *slots;
    int slot_count;
    bool has_grad; /* a gradient exists since the last step */
    /* The backwards in the sum of its gradients (optim/sums.c). began: number of the run's
     * updates at the first backward, plus one; 0: no backward since its optimizer stepped. */
    uint64_t began;
    bool mixed;             /* another optimizer has stepped between two backwards */
    bool dropped;           /* choir_optim_zero began the sum: the program chooses its leaves */
    bool taken;             /* the optimizer has used or dropped the current gradients */
    choir__param *replicas; /* replicas on other stages of a pipeline, by stage */
    choir__param *sibling;  /* the next replica of the same parameter */
    /* stage that uses the parameter; replicas of earlier stages are earlier uses */
    int stage;
    choir_tensor *grad;    /* view of level 0; belongs to the run's scope */
    choir__storage *dense; /* final gradient, if all uses of the parameter give rows */
    /* for a replica: choir__values_of the copied parameter, at the latest copy */
    uint64_t fresh;
    int64_t padding; /* row that starts with zeros and gets no gradient by lookups; -1: none */
    /* latest cast under autocast: number, on the device, of the scope that used it, and its
     * dtype (param_casts.c) */
    uint64_t cast_scope;
    choir_dtype cast_dtype;
    /* part of an adapter (nn/lora.c), which weights of the model do not have; or trained whole
     * beside adapters */
    bool adapts, beside_adapters;
    int init_kind; /* choir_init_kind: distribution of the initial values (nn/module_tree.c) */
    double init_a, init_b;
    bool initialised;
};

/* Returns the whole parameter's shape in values, whatever holds them. */
static inline choir_shape choir__param_values(const choir__param *param)
{
    choir_shape shape = param->whole;
    if (param->cols)
        shape.dim[1] = param->cols;
    return shape;
}

/* Returns whether the parameter with which a tensor is visited says that another rank has the
 * tensor: it is no real parameter, and has no box here. */
static inline bool choir__is_elsewhere(const choir__param *param)
{
    return param && !param->tensor && param->boxes && !param->box_count;
}

/* from which on a bucket is full */
enum { CHOIR__FIRST_BUCKET_BYTES = 1 << 20, CHOIR__BUCKET_BYTES = 25 << 20 };

typedef struct choir__bucket {
    int64_t count; /* elements, a multiple of 16 */
    int pending;   /* slots that this backward has not written yet */
    bool shared;   /* holds parameters with several uses; scaled after the uses are added */
    bool reduced;  /* handed to the reducer */
    size_t offset; /* offset in a level, bytes */
    int unit;      /* unit of the bucket's parameters */
    /* memory of the bucket's levels, one after the other, while the reducer holds it; NULL: the
     * book's levels are used */
    char *held;
    choir__storage *passing; /* memory of this backward's leaf until it is added; else NULL */
} choir__bucket;

/* The reduction over ranks or devices that DDP and DataParallel add to a book. Every entry
 * except finish and gather_rows may be NULL. */
typedef struct choir__reducer_ops {
    /* The book is about to open another leaf. */
    choir_status (*begin)(void *reducer, choir__book *book);
    /* Provides memory for `levels` levels of `bytes` each; level k is at *base + k * bytes. */
    choir_status (*alloc)(void *reducer, size_t bytes, int levels, void **base);
    /* The book has a new layout. A reducer that shards allocates memory here for the sums of
     * this rank's part of each parameter (book->sums and the slots' local_at); such a reducer
     * has no alloc. */
    choir_status (*laid_out)(void *reducer, choir__book *book);
    /* The first leaf of the step is about to write to the bucket. The reducer provides memory
     * for `levels` levels of the bucket; the memory is valid until bucket_ready. */
    choir_status (*hold)(
        void *reducer, choir__book *book, int bucket, int levels, char **memory);
    /* All local leaves of the bucket have been added into its nodes (choir__tree_nodes of this
     * rank's leaves). */
    void (*bucket_ready)(void *reducer, choir__book *book, int bucket);
    /* finish makes the device wait until every bucket is reduced. gather_rows fills `all` with
     * the rows of all leaves of the job. */
    choir_status (*finish)(void *reducer, choir__book *book);
    choir_status (*gather_rows)(void *reducer, choir__book *book, choir__slot *slot,
        int64_t row_bytes, choir__leaf_rows *all);
    /* A parameter had no gradient in a backward. */
    choir_status (*unused)(void *reducer, choir__book *book);
    void (*free)(void *reducer);
} choir__reducer_ops;

enum { CHOIR__MAX_LEVELS = 64 };

struct choir__book {
    choir_scope *run;
    choir_device *device;
    choir_dtype
        dtype; /* the type of gradients and their sums: f64 for f64 parameters, else f32 */
    choir__param **params;
    int count;
    choir__bucket *buckets;
    int bucket_count, tables_from; /* buckets from tables_from on: lookups' gradients alone */
    unsigned layout;               /* changes when gradients move in memory */
    size_t level_bytes;
    void *level[CHOIR__MAX_LEVELS];
    choir__storage *level_storage[CHOIR__MAX_LEVELS]; /* NULL if a reducer provides the level */
    char *sums; /* sums of a sharding reducer; else NULL */
    choir__node stack[CHOIR__MAX_LEVELS];
    int top;
    int64_t first, planned; /* this rank's leaves; planned 0: any number */
    /* leaves done since the last step: on this rank; in the whole job (0: `parts`) */
    int64_t leaves, total;
    int64_t parts;                  /* number of losses; the gradient belongs to their mean */
    struct choir__strategy *shares; /* sums the latest leaf over ranks; NULL: whole here */
    bool open;                      /* a backward is writing a leaf, or has failed in it */
    bool finished, laid_out, consumed;
    bool gave_up;     /* a step of planned leaves failed on this rank after some of them */
    bool uses_scaled; /* the reducer scales each use, because a hook's sums are means */
    bool of_replicas; /* the sums are further uses of the replicated parameters */
    const choir__reducer_ops *reducer_ops;
    void *reducer;
    size_t bucket_cap, first_cap; /* bytes from which on a bucket is full */
    int turns;                    /* number of slots written so far */
    /* Settings that a reducer may change: */
    /* (count) indices of params in the order of the buckets; NULL: from the last */
    int *order;
    bool folds;        /* bucket_ready receives the sum of this rank's leaves, in level 0 */
    bool folds_tables; /* like `folds`, for buckets of lookups' gradients */
    /* number of levels requested from alloc; 0: as many as `planned` needs */
    int shared_levels;
    int64_t divisor; /* divisor of the step's sums; 0: total */
    /* leaves of the job, if all their rows are gathered over ranks; 0: rows stay on this rank
     */
    int64_t gathered;
    choir__book *next;
};

/* Returns n / total of a mean over `total` losses, as the number of dtype that sums are
 * multiplied by. */
static inline double choir__mean_scale(choir_dtype dtype, int64_t total)
{
    return dtype == CHOIR_F64 ? 1.0 / (double)total : (double)(1.0f / (float)total);
}

/* Makes a book for those parameters that have no book yet, with DDP's default bucket sizes. All
 * of these parameters reside on device, and are f64, or none is. */
choir__book *choir__book_new(
    choir_scope *run, choir_device *device, choir__param **params, int count);
/* Makes one book per device, and one more for f64, for those parameters that have no book yet.
 */
void choir__books_make(choir_scope *run, choir__param **params, int count);

/* Takes the parameters out of the book and frees it; they can then join another book. */
void choir__book_free(choir__book *book);

/* Returns whether the gradient of a table stays in rows until the step ends: these take no more
 * bytes than the table, with their ids. A rank has the rows of `gathered` leaves (see below),
 * or, if the ranks of a sequence give each other theirs, of all micro-batches of the job. rows:
 * the number in one micro-batch. */
bool choir__rows_stay(
    const choir__param *table, int64_t gathered, int64_t rows, choir_dtype dtype);

/* Returns whether bucket_ready receives the sum of this rank's leaves of a bucket. */
static inline bool choir__book_folds(const choir__book *book, int bucket)
{
    return bucket < book->tables_from ? book->folds : book->folds_tables;
}

/* Returns the greatest number of levels that the sums over this rank's planned leaves take. */
int choir__book_levels(const choir__book *book);

/* --- during a backward (walk.c, sink.c) --- */

/* Lays the book out, or checks that its layout fits the uses of the tape, which are counted in
 * params. Starts a new step if the last one is finished. */
choir_status choir__book_check(choir__book *book);
/* Opens a leaf; call it after choir__book_check. shares: the strategy whose ranks have the
 * other chunks of its sequences, or NULL. */
choir_status choir__book_begin_leaf(choir__book *book, struct choir__strategy *shares);
choir_tensor *choir__book_dest(choir__param *param, int use, choir_scope *scope);
/* For a use in parts: returns the memory of one part of its gradient, (rows of the part, ...).
 */
choir_tensor *choir__book_dest_part(
    choir__param *param, int use, int64_t part, choir_scope *scope);
void choir__book_put_rows(choir__param *param, int use, choir_tensor *ids, choir_tensor *rows);
void choir__book_done(choir__param *param, int use);
void choir__book_done_part(choir__param *param, int use);
/* Closes the leaf. parts: the number of losses from which the backward started. */
choir_status choir__book_end_leaf(choir__book *book, int64_t parts);

/* --- sums of other devices (parallel/data_parallel/sum.c) --- */

/* Discards the book's sums and rows of this step, because the step was given up or they were
 * added elsewhere. */
void choir__book_forget(choir__book *book);
/* Appends the rows of `other` to the rows of the same parameters here, without copying. The
 * parameters of `other` are replicas, in equal order and with equal layout. */
void choir__book_take_rows(choir__book *book, choir__book *other);

/* --- after it --- */

/* Completes the gradients of the step; idempotent until the next backward. */
choir_status choir__book_finish(choir__book *book);

/* Declares that the optimizer has used the gradients: the next backward starts a new step. */
void choir__book_consume(choir__book *book);
/* Drops the step's gradients. Collective under a reducer that sums over ranks: it completes the
 * sums that it has begun. Error: state (in the middle of the planned leaves). */
choir_status choir__book_drop(choir__book *book);

/* Returns the memory that holds the final gradient of p->local, or NULL without a gradient. */
void *choir__param_grad_data(choir__param *param);

/* Makes a parameter with its own values on device, for replicas of a module. It has p's name,
 * is in no book, and is not in the run's list. Its handle belongs to the run; its values are
 * valid only after choir__param_refresh has copied them. On p's own device it shares p's
 * memory. */
choir__param *choir__param_replica(choir__param *p, choir_device *device);
/* Copies p's values to the replica if they have changed since the last copy; p's device waits
 * for the copy. */
void choir__param_refresh(choir__param *replica, const choir__param *p);

#endif
