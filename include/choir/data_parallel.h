/* DataParallel: one process, a replica of the module on each device, and the batch split among
 * them.
 *
 *     choir_module *dp = choir_data_parallel(run, net, choir_data_parallel_defaults());
 *     choir_tensor *out = choir_forward(dp, x);      // (B, ...) on output_device
 *     choir_backward(choir_cross_entropy(out, y));   // gradients arrive in net's parameters
 *
 * A forward replicates the parameters, scatters the inputs, runs the module on every device
 * and gathers the outputs, as nn.DataParallel does. The balanced form leaves each output on
 * its device, and the criterion runs there:
 *
 *     choir_module *dp = choir_data_parallel_balanced(run, net, opts);
 *     choir_shards *out = choir_forward_shards(dp, (choir_tensor *[]){x}, 1);
 *     choir_tensor *losses = choir_criterion_parallel(out, y, criterion, NULL);   // (n)
 *     choir_backward(losses);                        // the mean's gradient
 *
 * Scattering follows torch.chunk: pieces of ceil(B / n), so 10 samples over 8 devices are five
 * pieces of 2 and three idle devices. A piece is a micro-batch: its index determines its
 * random numbers and the position of its gradient in the fixed tree, so the bits do not depend
 * on the number of devices. Batch norm's running statistics come from piece 0; the other
 * replicas' buffers are copies of the first device's.
 *
 * A replica consists of the fields that were registered (choir_module_param and similar
 * functions): while the module's forward function runs, they hold the tensors of its device.
 * All replicas share the other fields of the struct. The replicas run one after another on the
 * calling thread, which waits for none of them: the devices work concurrently.
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_DATA_PARALLEL_H
#define CHOIR_DATA_PARALLEL_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_data_parallel_opts {
    /* device_ids, the module's own device first; default NULL: all devices of the same kind as
     * the run's, the run's first */
    choir_device *const *devices;
    /* number of devices to use; default 0: all, for devices NULL */
    int device_count;
    /* device that receives the outputs; default NULL: the first. So check that
     * choir_device_find returned a device */
    choir_device *output_device;
    int dim; /* the batch's dimension; default 0; 1 if the sequence comes first */
    /* pieces per batch; default 0: one per device. With more, a device runs several pieces one
     * after another */
    int64_t pieces;
    /* (device_count) each device's share of the batch, at least 0, in any unit; default NULL:
     * equal shares */
    const double *weights;
} choir_data_parallel_opts;

choir_data_parallel_opts choir_data_parallel_defaults(void);

/** Wraps module, whose parameters reside on the first device; their names stay.
 * Never NULL; errors stick to the run: device (a device that does not exist or is named twice,
 * a module on another device), argument (options; a module that cannot be replicated). */
choir_module *choir_data_parallel(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts);

/** Like choir_data_parallel, for use with choir_forward_shards; choir_forward on the result
 * gathers the outputs. */
choir_module *choir_data_parallel_balanced(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts);

/** Pieces of a batch, each on its device and in its own scope inside the batch's scope. They
 * close with the batch's scope. */
typedef struct choir_shards choir_shards;

int choir_shards_count(const choir_shards *shards);
/** Returns piece i: the first input, or the module's output for these inputs. Ops on it run on
 * its device. choir_backward of a piece is an error; use the results of
 * choir_criterion_parallel and choir_gather. */
choir_tensor *choir_shards_at(const choir_shards *shards, int i);

/** Scatters the inputs, which have equal batch sizes (tensors without the batch's dimension go
 * to all devices; NULL stays NULL), and runs the module on each piece. */
choir_shards *choir_forward_shards(choir_module *dp, choir_tensor *const *in, int count);

/** Returns the mean loss of a piece's samples, (); or, if the pieces have equal sizes, the sum
 * of losses divided by choir_loss_divisor of the pieces' targets. */
typedef choir_tensor *choir_criterion_fn(choir_tensor *out, choir_tensor *target, void *arg);

/**
 * Runs the criterion on each piece, on the piece's device.
 *
 * @param target  scattered as the inputs were; NULL: no target
 * @return        (n) losses, on output_device; the loss of a piece larger or smaller than B / n
 * is scaled in proportion, so the mean of the losses is the batch's loss.
 *
 * choir_backward of the losses gives the mean's gradient.
 */
choir_tensor *choir_criterion_parallel(
    choir_shards *out, choir_tensor *target, choir_criterion_fn *fn, void *arg);

/* --- the four steps of torch.nn.parallel, one by one --- */

choir_shards *choir_scatter(choir_tensor *const *in, int count, choir_module *dp);
/** Replicates the parameters that have changed since the last time, and runs the module on each
 * piece. */
choir_shards *choir_parallel_apply(choir_module *dp, choir_shards *in);
/** Joins the pieces along dim, in order, on device (NULL: output_device). Scalars become a
 * tensor (number of pieces). */
choir_tensor *choir_gather(choir_shards *out, choir_device *device, int dim);

#ifdef __cplusplus
}
#endif
#endif
