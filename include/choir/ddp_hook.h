/* Communication hooks of DDP: functions that carry a bucket's gradients over the ranks in
 * place of the exact reduction. Choir has three (bf16, f16, PowerSGD); a program can add its
 * own.
 *
 * A hook is called on the thread of choir_backward when a rank's backward has filled a bucket,
 * in the order of the buckets, which is the same on all ranks. At that time the bucket's
 * numbers are not computed yet. So a hook only issues work to the group, without waiting for
 * it: choir_group_call for computations, and collectives with a choir_work. The group's queue
 * runs this work once the device has filled the bucket, while the rest of backward runs.
 *
 *     static choir_status halve(const void *args) { ... }     // runs in the queue's order
 *
 *     static choir_status my_hook(const choir_ddp_bucket *b, void *arg)
 *     {
 *         choir_work work;
 *         choir_status status = choir_ddp_all_reduce(b, arg);
 *         if (status != CHOIR_OK)
 *             return status;
 *         return choir_group_call(b->group, halve, b, sizeof *b, &work);
 *     }
 *
 * A rank's micro-batches are added before the hook sees them. Sparse gradients of lookup
 * tables (choir_embedding) are in no hook's bucket and travel exactly, as without a hook.
 * Within choir_step a hook is called while the step is recorded, and each replay issues its
 * work again.
 *
 * Threads: the run's thread. */
#ifndef CHOIR_DDP_HOOK_H
#define CHOIR_DDP_HOOK_H

#include <choir/ddp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter's gradient in a bucket. */
typedef struct choir_ddp_entry {
    const char *name;
    choir_shape shape;
    int64_t at, count; /* elements [at, at + count) of the bucket */
    bool rows;         /* row i of dimension 0 is count / shape.dim[0] elements side by side */
} choir_ddp_entry;

typedef struct choir_ddp_bucket {
    choir_group *group;
    int index, buckets; /* this bucket's number, and the number of buckets */
    unsigned layout;    /* changes when parameters are assigned to buckets again */
    /* (count) the sum over this rank's micro-batches, in host memory; the hook's work replaces
     * it by the mean over all ranks */
    float *data;
    int64_t count;                  /* elements; zeros lie between the entries */
    float scale;                    /* the mean is the sum over ranks times this */
    const choir_ddp_entry *entries; /* (entry_count) valid as long as the buckets are */
    int entry_count;
} choir_ddp_bucket;

typedef choir_status choir_ddp_hook(const choir_ddp_bucket *bucket, void *arg);

/** Makes all buckets use hook from the next step on; NULL: the exact reduction. All ranks must
 * make the same call. Errors: argument (not made by choir_ddp), state (between the first
 * backward of a step and its end, while recording). */
CHOIR_CHECKED choir_status choir_ddp_set_hook(
    choir_module *ddp, choir_ddp_hook *hook, void *arg);

/** Reduces in f32: the sum over ranks in the fixed tree, times scale. A hook may begin with
 * this call. It gives the bits of the exact reduction if each rank has a power of two of
 * micro-batches. arg is unused. */
CHOIR_CHECKED choir_status choir_ddp_all_reduce(const choir_ddp_bucket *bucket, void *arg);

/**
 * Sends gradients as bf16 or f16: half the bytes. Each rank's part of the mean, x_r = scale *
 * data, is rounded; the sum is computed in f32 in the fixed tree and rounded again:
 *
 *   |result - mean| <= u * (|x_0| + ... + |x_(W-1)|) + u * |mean|   (to first order)
 *
 * with u = 2^-8 (bf16) or 2^-11 (f16; below 2^-14 an absolute 2^-25 per rounding instead). f16
 * overflows beyond 65504: larger gradients become infinite. PyTorch's bf16_compress_hook and
 * fp16_compress_hook round in the same way and also round each partial sum. arg is unused.
 */
CHOIR_CHECKED choir_status choir_ddp_bf16_compress(const choir_ddp_bucket *bucket, void *arg);
CHOIR_CHECKED choir_status choir_ddp_f16_compress(const choir_ddp_bucket *bucket, void *arg);

/**
 * PowerSGD (Vogels et al., 2019, "PowerSGD: practical low-rank gradient compression for
 * distributed optimization"): a gradient of n rows and m columns travels as P (n, rank) and Q
 * (m, rank), with one power iteration per step. Each rank stores the part that this
 * approximation misses and adds it to its next gradient (error feedback).
 *
 * Gradients for which (n + m) * rank * min_rate >= n * m, vectors among them, travel exactly.
 * The approximation has no known error bound in one step. If the mean gradient has at most
 * `rank` nonzero singular values, it is exact to f32 rounding; with error feedback the sum
 * over steps follows the exact one. All ranks get the same bits.
 */
typedef struct choir_powersgd_opts {
    int rank; /* default 1 */
    /* the first compressed step, counted from 0; earlier steps are exact; default 1000 */
    int64_t start_step;
    bool warm_start;     /* starts from the previous step's Q; default true */
    bool error_feedback; /* default true */
    double min_rate;     /* default 2 */
    /* seed of the first Q (without warm_start, of every Q), which is normal and also depends on
     * the parameter's name; default 0 */
    uint64_t seed;
} choir_powersgd_opts;

choir_powersgd_opts choir_powersgd_defaults(void);

/** Sets PowerSGD as the hook (choir_ddp_set_hook). The run owns its state; checkpoints do not
 * include it. Errors: as choir_ddp_set_hook, and argument (rank < 1, start_step < 0,
 * min_rate not above 0). */
CHOIR_CHECKED choir_status choir_ddp_powersgd(choir_module *ddp, choir_powersgd_opts opts);

#ifdef __cplusplus
}
#endif
#endif
