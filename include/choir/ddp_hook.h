/* Communication hooks of DDP: what carries a bucket's gradients over the ranks in place of the
 * exact reduction. Three come with Choir (bf16, f16, PowerSGD); a program's own is a function.
 *
 * A hook is called on the thread of choir_backward when a rank's backward has filled a bucket,
 * in the order of the buckets, the same on all ranks. The bucket's numbers are not there yet
 * then: a hook only issues work to the group, choir_group_call for what is to be computed and
 * collectives with a choir_work of which it waits for none. The group's queue runs that once
 * the device has filled the bucket, beside the rest of backward.
 *
 *     static choir_status halve(const void *args) { ... }     // runs in the queue's order
 *
 *     static choir_status my_hook(const choir_ddp_bucket *b, void *arg)
 *     {
 *         choir_work work;
 *         choir_status status = choir_ddp_all_reduce(b, arg);
 *         return status ? status : choir_group_call(b->group, halve, b, sizeof *b, &work);
 *     }
 *
 * A rank's micro-batches are added before the hook sees them. Gradients of lookup tables that
 * are rows (choir_embedding) are in no bucket and travel exactly, as without a hook. Within
 * choir_step a hook is called while the step is recorded, and what it issued is issued again at
 * each replay.
 *
 * Threads: those of the run. */
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
    int index, buckets; /* which of how many */
    unsigned layout;    /* changes when parameters are dealt to buckets anew */
    float *data;   /* (count) the sum over this rank's micro-batches, in memory of the host;
                      the hook's work leaves the mean over all ranks' there */
    int64_t count; /* elements; zeros lie between the entries */
    float scale;   /* the mean is the sum over ranks times this */
    const choir_ddp_entry *entries; /* (entry_count) they stay as long as the buckets do */
    int entry_count;
} choir_ddp_bucket;

typedef choir_status choir_ddp_hook(const choir_ddp_bucket *bucket, void *arg);

/**
 * From the next step on all buckets go through hook; NULL: the exact reduction. The same on all
 * ranks. Errors: argument (not made by choir_ddp), state (between the first backward of a step
 * and its end, while recording).
 */
choir_status choir_ddp_set_hook(choir_module *ddp, choir_ddp_hook *hook, void *arg);

/** f32, the sum over ranks in the fixed tree, then times scale: what a hook may begin with. The
 * bits of the exact reduction where each rank has a power of two of micro-batches. arg: unused.
 */
choir_status choir_ddp_all_reduce(const choir_ddp_bucket *bucket, void *arg);

/**
 * Gradients travel as bf16 or f16: half the bytes. Each rank's part of the mean, x_r = scale *
 * data, is rounded, the sum is made in f32 in the fixed tree, and rounded again:
 *
 *   |result - mean| <= u * (|x_0| + ... + |x_(W-1)|) + u * |mean|   (to first order)
 *
 * with u = 2^-8 (bf16) or 2^-11 (f16; below 2^-14 an absolute 2^-25 a rounding instead). f16
 * overflows beyond 65504: gradients that large become infinite. PyTorch's bf16_compress_hook
 * and fp16_compress_hook round likewise, and in addition each partial sum. arg: unused.
 */
choir_status choir_ddp_bf16_compress(const choir_ddp_bucket *bucket, void *arg);
choir_status choir_ddp_f16_compress(const choir_ddp_bucket *bucket, void *arg);

/**
 * PowerSGD (Vogels et al., 2019, "PowerSGD: practical low-rank gradient compression for
 * distributed optimization"): a gradient of n rows and m columns travels as P (n, rank) and Q
 * (m, rank), one power iteration a step. What that leaves out is kept on each rank and added to
 * its next gradient (error feedback).
 *
 * Gradients for which (n + m) * rank * min_rate >= n * m, vectors among them, travel exactly.
 * The result is no approximation of known error in one step: where the mean gradient has at
 * most `rank` singular values above zero it is exact to f32 rounding, and with error feedback
 * the sum over steps follows the exact one. All ranks get the same bits.
 */
typedef struct choir_powersgd_opts {
    int rank;            /* default 1 */
    int64_t start_step;  /* the first step that is compressed, from 0; those before are exact;
                            default 1000 */
    bool warm_start;     /* begin with the step before's Q; default true */
    bool error_feedback; /* default true */
    double min_rate;     /* default 2 */
    uint64_t seed;       /* of the first Q (without warm_start of all): normal, by the
                            parameter's name; default 0 */
} choir_powersgd_opts;

choir_powersgd_opts choir_powersgd_defaults(void);

/** choir_ddp_set_hook of PowerSGD, whose state goes with the run; checkpoints do not have it.
 * Errors: those, and argument (rank < 1, start_step < 0, min_rate not above 0). */
choir_status choir_ddp_powersgd(choir_module *ddp, choir_powersgd_opts opts);

#ifdef __cplusplus
}
#endif
#endif
