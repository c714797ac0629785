/* DataParallel: one process, a replica of the module on each device, the batch dealt among
 * them.
 *
 *     choir_module *dp = choir_data_parallel(run, net, choir_data_parallel_defaults());
 *     choir_tensor *out = choir_forward(dp, x);      // (B, ...) on output_device
 *     choir_backward(choir_cross_entropy(out, y));   // gradients arrive in net's parameters
 *
 * A forward replicates the parameters, scatters the inputs, runs the module on every device and
 * gathers what comes out, as nn.DataParallel. The balanced form leaves the outputs where they
 * are, and the criterion runs there:
 *
 *     choir_module *dp = choir_data_parallel_balanced(run, net, opts);
 *     choir_shards *out = choir_forward_shards(dp, (choir_tensor *[]){x}, 1);
 *     choir_tensor *losses = choir_criterion_parallel(out, y, criterion, NULL);   // (n)
 *     choir_backward(losses);                        // the mean's gradient
 *
 * Scattering follows torch.chunk: pieces of ceil(B / n), so 10 samples over 8 devices are five
 * pieces of 2 and three idle devices. A piece is a micro-batch: its random numbers, and the
 * place of its gradient in the fixed tree, are those of its index, so the bits do not depend on
 * the number of devices. Batch norm's running statistics are those of piece 0; the other
 * replicas' buffers are copies of the first device's.
 *
 * A replica is made of the fields that were registered (choir_module_param and its like): while
 * the module's forward function runs, they hold the tensors of its device. What else it keeps
 * in its struct is shared by all replicas. They run one after another on the calling thread,
 * which waits for none of them: the devices work at the same time.
 *
 * Threads: those of the run. Collective: none of these. */
#ifndef CHOIR_DATA_PARALLEL_H
#define CHOIR_DATA_PARALLEL_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_data_parallel_opts {
    choir_device *const *devices; /* device_ids, the module's own first; default NULL: all of
                                     the kind of the run's, that one first */
    int device_count;             /* default 0: all; with devices NULL: the first so many */
    choir_device *output_device;  /* where outputs are gathered, any device; default NULL: the
                                     first (so check what choir_device_find gave) */
    int dim;                      /* the batch's dimension; default 0; 1: sequence first */
    int64_t pieces;               /* of a batch; default 0: one a device. More: a device runs
                                     several, one after another */
    const double *weights;        /* (device_count) each device's share of the batch, not below
                                     0, their sum need not be 1; default NULL: equal */
} choir_data_parallel_opts;

choir_data_parallel_opts choir_data_parallel_defaults(void);

/** Wraps module, whose parameters lie on the first device; adds nothing to their names. Never
 * NULL; errors stick to the run: device (one that does not exist, one named twice, a module
 * that lies elsewhere), argument (options; a module that cannot be replicated). */
choir_module *choir_data_parallel(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts);

/** The same, to be used by choir_forward_shards; choir_forward on it gathers, as above. */
choir_module *choir_data_parallel_balanced(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts);

/** Pieces of a batch, each on its device, in a scope of its own inside the batch's, with which
 * they close. */
typedef struct choir_shards choir_shards;

int choir_shards_count(const choir_shards *shards);
/** Piece i: an input (the first), or what the module made of the inputs. Ops on it run on its
 * device. choir_backward of them is an error, but for choir_criterion_parallel's and
 * choir_gather's results. */
choir_tensor *choir_shards_at(const choir_shards *shards, int i);

/** Scatters the inputs, of one batch size (tensors without the batch's dimension go to all
 * devices; NULL stays NULL), and runs the module on each piece. */
choir_shards *choir_forward_shards(choir_module *dp, choir_tensor *const *in, int count);

/** The mean loss of a piece's samples, (). */
typedef choir_tensor *choir_criterion_fn(choir_tensor *out, choir_tensor *target, void *arg);

/**
 * The criterion on each piece, where it lies.
 *
 * @param target  scattered as the inputs were; NULL: none
 * @return        (n) losses, on output_device; a loss of a piece larger or smaller than B / n
 *                counts so much more or less, so their mean is the batch's.
 *
 * choir_backward of them gives the mean's gradient.
 */
choir_tensor *choir_criterion_parallel(
    choir_shards *out, choir_tensor *target, choir_criterion_fn *fn, void *arg);

/* --- the four steps by themselves (torch.nn.parallel's) --- */

choir_shards *choir_scatter(choir_tensor *const *in, int count, choir_module *dp);
/** Replicates what has changed since the last time, and runs the module on each piece. */
choir_shards *choir_parallel_apply(choir_module *dp, choir_shards *in);
/** Joins the pieces along dim, in order, on device (NULL: output_device). Scalars: (n). */
choir_tensor *choir_gather(choir_shards *out, choir_device *device, int dim);

#ifdef __cplusplus
}
#endif
#endif
