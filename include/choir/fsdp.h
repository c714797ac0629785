/* Fully sharded data parallel (Rajbhandari et al., ZeRO, 2020; Zhao et al., PyTorch FSDP,
 * 2023): every rank runs its own micro-batches, as in DDP, but keeps only its share of
 * parameters, gradients and optimizer state.
 *
 *     net = choir_fsdp(run, net, env.group, choir_fsdp_defaults());
 *     choir_optim *opt = choir_adamw(run, net, hp);
 *
 * A rank stores rows [r c, (r + 1) c) of dimension 0 of each parameter and of its state, c =
 * ceil(rows / world) (torch.chunk's rule); its optimizer updates those rows. Parameters belong
 * to *units*: modules whose gradients are computed, reduced and released together, so that no
 * rank ever holds the gradients of more than a few units.
 *
 * Bytes per parameter, on N ranks, with Adam in f32:
 *
 *     DDP       4 weights + 4 gradient + 8 state
 *     stage 1   4 + (4 + 8) / N           shards the state
 *     stage 2   4 + (4 + 8) / N           shards gradients, too
 *     stage 3   (4 + 4 + 8) / N           shards weights, too: the default
 *
 * Stages 1 and 2 are the same program: a rank's optimizer reads only the gradients of its rows,
 * and the other gradients are not kept.
 *
 * If ranks share a machine, stage 3's weights reside in one piece of memory that all ranks map,
 * and each rank writes its own rows, so gathering copies nothing. Otherwise a unit's weights
 * are gathered before they are used, and the next unit's in advance. Then every read of a
 * weight is collective: all ranks must read weights in the same order.
 *
 * Hybrid sharding (HSDP) shards among neighbouring ranks, such as the ranks of a machine, and
 * replicates between these groups. Weights are gathered within the machine, and only each
 * rank's own share of the gradients is reduced between machines. N is then the number of ranks
 * that share one copy.
 *
 * The bits equal the bits of one device, and of DDP, at the same number of micro-batches. With
 * more micro-batches than ranks, a rank stores its sums unsharded until its last micro-batch.
 * The micro-batches of a step look up equally many rows of an embedding, on all ranks: pad
 * texts to one length.
 *
 * With offload, the shards leave the device. The device's pool then holds the weights of three
 * units (the last two that ran and the next one) and the weights outside all units, the
 * gradients of two units, activations, and the optimizer's tables. Offload works on any number
 * of ranks, also on one. If a rank sums several micro-batches, these sums are off-loaded, too.
 * The optimizer updates the shards in place: a CPU in host memory or in the pages of the file,
 * which are in the process's memory only during the update; a GPU in pinned host memory, over
 * its bus (it cannot reach a file's pages). The file has no name and disappears with the
 * process; removing its folder during the run changes nothing.
 *
 * Ignored parameters are not sharded: every rank stores them whole, with their gradient and
 * state, and reduces their gradients as choir_ddp does. This suits small parameters that every
 * unit reads, such as biases and norms, since they need no gathering, and modules that other
 * code reads without a collective.
 *
 * choir_grad of a parameter, and the optimizer's state, have this rank's rows only.
 *
 * Around a pipeline, the ranks that have the same stage share its parameters; see
 * choir/pipeline.h. If weights are gathered, because they are off-loaded or ranks share no
 * memory, every replica must have the same number of micro-batches.
 *
 * Threads: the run's thread. Collective: choir_fsdp, forward in training, choir_backward of a
 * step's last micro-batch, choir_optim_step. */
#ifndef CHOIR_FSDP_H
#define CHOIR_FSDP_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_fsdp_opts {
    int stage; /* 1, 2 or 3, see the table above; default 3 */
    /* micro-batches in the global batch; default 0: the run's number (see choir_run_open), else
     * one per rank */
    int64_t microbatches;
    /* The choice of units, by the first rule that applies: the modules that choir_fsdp_unit has
     * marked; all modules of class unit_class, if it is not NULL; the modules with at least
     * unit_params parameters, without counting parameters of units inside them, if it is not 0;
     * else the model's blocks ("blocks.0", "layer1.1"), as choir_module_recompute_blocks finds
     * them. The rest of the model is one more unit. */
    const char *unit_class;
    int64_t unit_params;
    /* number of neighbouring ranks that share one copy of the model; default 0: the whole
     * group; -1: the ranks of each node. It must divide the world size, which must divide the
     * number of micro-batches */
    int shard_ranks;
    /* Stage 3. gather: gathers weights even if ranks share memory; default false.
     * reshard_after_forward: releases a unit's gathered weights after its forward and gathers
     * them again for its backward; default true. */
    bool gather, reshard_after_forward;
    /* Stage 3. offload: this rank's shards of weights, gradients and optimizer state are in
     * host memory, outside the device's pool; a unit's weights are gathered into the pool while
     * it runs. offload_folder: the shards are in a file in this folder; it implies offload.
     * Default: false, NULL */
    bool offload;
    const char *offload_folder;
    /* Ignored parameters: patterns of names as in choir_module_freeze_matching, separated by
     * commas; default NULL: none. Unlike with PyTorch's ignored_states, the ranks reduce their
     * gradients. */
    const char *ignored;
} choir_fsdp_opts;

choir_fsdp_opts choir_fsdp_defaults(void);

/** Makes module a unit of the choir_fsdp that will wrap it or a module around it. */
void choir_fsdp_unit(choir_module *module);

/** Shards module over the group. If the module was not used before, no rank ever holds more
 * than its share. If it was used, it keeps its values, which must be equal on all ranks.
 * Buffers become rank 0's before each step. The wrapper forwards to the module and adds nothing
 * to names. Never NULL; errors stick to the run: argument (an unknown stage, micro-batches that
 * the ranks cannot share, a class without modules, patterns without parameters, offload in
 * stage 1 or 2; around a pipeline: ignored parameters, shard_ranks, or replicas with different
 * numbers of micro-batches if weights are gathered), I/O (a folder that is missing or full),
 * unsupported (an offload_folder on a GPU), mismatch (ranks with different models), state
 * (parameters that another strategy has taken over), memory, peer lost. */
choir_module *choir_fsdp(
    choir_scope *run, choir_module *module, choir_group *group, choir_fsdp_opts opts);

#ifdef __cplusplus
}
#endif
#endif
