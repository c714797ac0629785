/* The gradient book: where a set of parameters keeps its gradients, over micro-batches and
 * ranks.
 *
 * Parameters are laid out once, in flat buckets; a backward writes a parameter's gradient
 * straight into its slot. A parameter used twice in a micro-batch has two slots, since the
 * gradient tree is one a use. The micro-batches of a step are the leaves of a fixed tree
 * (comm/pattern/tree.h); the book keeps a stack of partial sums, each level one buffer a
 * bucket, and adds two as soon as they are siblings.
 *
 *     level 0   [ bucket 0 | bucket 1 | ... ]    leaves 0-3, summed
 *     level 1   [ bucket 0 | bucket 1 | ... ]    leaf 4: being written by this backward
 *
 * When the step's leaves are done, choir__book_finish folds the stack, or a reducer (DDP) does
 * so over all ranks; then the uses of a parameter are added in forward order, and all is scaled
 * by one over the number of micro-batches. What is then at level 0 is the gradient.
 *
 * Lookup tables give rows instead: (ids, rows) are kept until the step ends and added there.
 *
 * A book is of one device. Where a parameter is needed on a second one, it has a *replica*
 * there, a parameter with a book of its own: in a pipeline the replica's gradients are further
 * uses; in DataParallel the pieces of one batch are leaves spread over the devices' books,
 * whose nodes a reducer adds into this one. */
#ifndef CHOIR_BOOK_H
#define CHOIR_BOOK_H

#include "comm/pattern/tree.h"
#include "tensor/op.h"
#include "tensor/run.h"

typedef struct choir__book choir__book;

typedef struct choir__slot { /* one use of one parameter */
    int bucket;
    int64_t at;             /* elements into the bucket */
    bool done;              /* written by this backward */
    int turn;               /* the how-manieth to be written of all, ever */
    bool by_rows;           /* this use gives rows, not a dense gradient */
    choir__leaf_rows *rows; /* one a local leaf */
    int64_t row_count;      /* leaves in rows */
    int64_t local_at;       /* where a reducer that shards puts its sum: elements of local */
} choir__slot;

/* A block of a sharded parameter: entries [at, at + size) of what this rank has of it are
 * [from, from + size) of the whole. */
typedef struct choir__box {
    int64_t from[CHOIR_MAX_DIMS], at[CHOIR_MAX_DIMS], size[CHOIR_MAX_DIMS];
} choir__box;

struct choir__param {
    choir_tensor *tensor;
    char *name; /* "" until its module has a root */
    /* What this rank has of it, which is what the optimizer updates and what checkpoints hold;
     * the optimizer's state is laid out like it. tensor itself, unless the parameter is sharded
     * over ranks: then boxes say where the entries of local lie in a tensor of shape `whole`.
     */
    choir_tensor *local;
    choir_shape whole;
    const choir__box *boxes; /* (box_count); NULL: local is the whole */
    int box_count;
    bool uncounted; /* other ranks have the same of it, and one of them counts it in norms */
    choir__book *book;
    choir__param *next; /* of the run */
    int unit;           /* buckets hold parameters of one unit (FSDP); 0 unless told */
    int uses;           /* in the tape at hand */
    uint32_t rows_uses; /* bit u: use u gives rows */
    int uses_elsewhere; /* the same on other ranks, for a layout while it has no use here */
    uint32_t rows_elsewhere;
    choir__slot *slots;
    int slot_count;
    bool has_grad;          /* since the last step */
    choir__param *replicas; /* of this one, on other stages of a pipeline, by stage */
    choir__param *sibling;  /* the next replica of the same parameter */
    int stage;              /* that uses it; replicas of earlier stages are earlier uses */
    choir_tensor *grad;     /* view of level 0, of the run's scope */
    choir__storage *dense;  /* final gradient of a parameter whose uses all give rows */
    uint64_t fresh;         /* of a replica: choir__values_of what it has copies of */
    int init_kind;          /* of choir_init: how its values are drawn, see nn/module.c */
    double init_a, init_b;
    bool initialised;
};

typedef struct choir__bucket {
    int64_t count; /* elements, a multiple of 16 */
    int pending;   /* slots this backward has yet to write */
    bool shared;   /* holds parameters of several uses: scaled after those are added */
    bool reduced;  /* handed to the reducer */
    size_t offset; /* bytes into a level */
    int unit;      /* its parameters' */
    char *held;    /* where its levels lie, one behind the other, while the reducer holds memory
                      for it; NULL: in the book's levels */
} choir__bucket;

/* Reduction over ranks or devices: what DDP and DataParallel add to a book. All but finish and
 * gather_rows may be NULL. */
typedef struct choir__reducer_ops {
    /* Another leaf is about to be opened. */
    choir_status (*begin)(void *reducer, choir__book *book);
    /* Memory for `levels` levels of `bytes` each, level k at *base + k * bytes. */
    choir_status (*alloc)(void *reducer, size_t bytes, int levels, void **base);
    /* The book has a new layout. A reducer that shards makes memory here for the sums of what
     * this rank has of each parameter (book->sums, slots' local_at), and has no alloc. */
    choir_status (*laid_out)(void *reducer, choir__book *book);
    /* The first leaf of the step is about to write to the bucket: memory for `levels` levels of
     * it, until bucket_ready. */
    choir_status (*hold)(
        void *reducer, choir__book *book, int bucket, int levels, char **memory);
    /* All local leaves of a bucket are in its nodes (choir__tree_nodes of this rank's run). */
    void (*bucket_ready)(void *reducer, choir__book *book, int bucket);
    /* Makes the device wait until every bucket is reduced, and gathers rows: fills `all` with
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
    choir__param **params;
    int count;
    choir__bucket *buckets;
    int bucket_count;
    unsigned layout; /* changes when gradients move */
    size_t level_bytes;
    void *level[CHOIR__MAX_LEVELS];
    choir__storage *level_storage[CHOIR__MAX_LEVELS]; /* NULL with a reducer */
    float *sums;                                      /* of a reducer that shards; else NULL */
    choir__node stack[CHOIR__MAX_LEVELS];
    int top;
    int64_t first, planned; /* this rank's leaves; planned 0: as many as come */
    int64_t leaves, total;  /* done here since the step; in the job (0: parts) */
    int64_t parts;          /* losses whose mean's gradient this is */
    bool finished, laid_out, consumed;
    bool uses_scaled; /* by the reducer, one by one: a hook's sums are means */
    bool of_replicas; /* its sums are further uses of the parameters they are of */
    const choir__reducer_ops *reducer_ops;
    void *reducer;
    size_t bucket_cap, first_cap; /* bytes */
    int turns;                    /* slots written so far */
    /* What a reducer may ask for: */
    int *order;        /* (count) indices of params as buckets take them; NULL: from the last */
    bool folds;        /* bucket_ready finds the sum of this rank's leaves, in level 0 */
    int shared_levels; /* to be had of alloc; 0: as many as `planned` needs */
    int64_t divisor;   /* of the step's sums; 0: total */
    choir__book *next;
};

/* A book over those of the parameters that are in none; buckets of DDP's default sizes. All lie
 * on device. */
choir__book *choir__book_new(
    choir_scope *run, choir_device *device, choir__param **params, int count);
/* Books, one a device, for those of the parameters that are in none. */
void choir__books_make(choir_scope *run, choir__param **params, int count);

/* Takes parameters out of their books (before they are given to another). */
void choir__book_free(choir__book *book);

/* How high the stack of sums gets over this rank's planned leaves. */
int choir__book_levels(const choir__book *book);

/* --- during a backward (walk.c, sink.c) --- */

/* The tape's uses are counted in params: lays out or checks. */
choir_status choir__book_check(choir__book *book);
/* After choir__book_check: opens a leaf. */
choir_status choir__book_begin_leaf(choir__book *book);
choir_tensor *choir__book_dest(choir__param *param, int use, choir_scope *scope);
void choir__book_put_rows(choir__param *param, int use, choir_tensor *ids, choir_tensor *rows);
void choir__book_done(choir__param *param, int use);
/* parts: losses the backward started from. */
choir_status choir__book_end_leaf(choir__book *book, int64_t parts);

/* --- sums of other devices (parallel/data_parallel/sum.c) --- */

/* What the book holds of this step is given up, or was added elsewhere. */
void choir__book_forget(choir__book *book);
/* Moves other's rows behind the same parameters' rows here, where they lie; other's parameters
 * are replicas, in the same order, and laid out alike. */
void choir__book_take_rows(choir__book *book, choir__book *other);

/* --- after it --- */

/* Completes the gradients of the step; idempotent until the next backward. */
choir_status choir__book_finish(choir__book *book);

/* The optimizer has used the gradients: the next backward starts anew. */
void choir__book_consume(choir__book *book);

/* Memory the final gradient of p->local lies in, or NULL if it has none. */
float *choir__param_grad_data(choir__param *param);

/* A parameter with values of its own on device, for replicas of a module: named as p, in no
 * book, not among the run's. Its handle is of the run; its values are copies only once
 * choir__param_refresh has brought them. On p's own device it shares p's memory. */
choir__param *choir__param_replica(choir__param *p, choir_device *device);
/* Copies p's values to the replica if they have changed since; p's device goes on after the
 * copy. */
void choir__param_refresh(choir__param *replica, const choir__param *p);

#endif
