/* Fully sharded data parallel (Rajbhandari et al., ZeRO, 2020; Zhao et al., PyTorch FSDP,
 * 2023): every rank runs its own micro-batches, as in DDP, but keeps only its share of
 * parameters, gradients and optimizer state.
 *
 *     net = choir_fsdp(run, net, env.group, choir_fsdp_defaults());
 *     choir_optim *opt = choir_adamw(run, net, hp);
 *
 * A rank has rows [r c, (r + 1) c) of dimension 0 of each parameter, c = ceil(rows / world)
 * (torch.chunk's rule), and of its state; its optimizer updates those. Parameters belong to
 * *units*: modules whose gradients are made, reduced and let go of together, so that no rank
 * ever holds the gradients of more than a few units.
 *
 * Bytes a parameter, on N ranks, with Adam in f32:
 *
 *     DDP       4 weights + 4 gradient + 8 state
 *     stage 1   4 + 4 + (8 + 4) / N       state is sharded
 *     stage 2   4 + (4 + 8) / N           and gradients
 *     stage 3   (4 + 4 + 8) / N           and weights: the default
 *
 * Where ranks share a machine, stage 3's weights lie in one piece of memory that all of them
 * map, each writing its own rows: gathering copies nothing. Elsewhere a unit's weights are
 * gathered before they are used, the next unit's ahead of time. Then whatever reads a weight is
 * collective: all ranks must do it in the same order.
 *
 * Hybrid sharding (HSDP) shards among neighbouring ranks, as those of a machine, and replicates
 * between them: what is gathered stays within the machine, and only each rank's own share of
 * the gradients is reduced between them. N is the number of ranks that shard, then.
 *
 * The bits are those of one device, and of DDP, at the same number of micro-batches. With more
 * micro-batches than ranks a rank's sums are held unsharded until its last one.
 *
 * choir_grad of a parameter, and what the optimizer's state is of, are this rank's rows.
 *
 * Around a pipeline, each stage's parameters are shared by the ranks that have it; see
 * choir/pipeline.h.
 *
 * Threads: those of the run. Collective: choir_fsdp, forward in training, choir_backward of a
 * step's last micro-batch, choir_optim_step. */
#ifndef CHOIR_FSDP_H
#define CHOIR_FSDP_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_fsdp_opts {
    int stage;            /* 1, 2, 3: what is sharded; default 3 */
    int64_t microbatches; /* of the global batch, over all ranks; default 0: the run's (see
                             choir_run_open), else one a rank */
    /* Units: those that choir_fsdp_unit has marked; if there are none, every module of class
     * unit_class; if that is NULL, modules of at least unit_params parameters that are in no
     * unit within them; if that is 0, the model's blocks ("blocks.0", "layer1.1"), as
     * choir_module_recompute_blocks finds them. The rest is one more unit. */
    const char *unit_class;
    int64_t unit_params;
    int shard_ranks; /* that share a model, neighbours by rank; default 0: all of the group;
                        -1: those of each node. It divides the world size, and the world size
                        the micro-batches */
    /* Of stage 3: gathers weights also where ranks share memory; default false. And, where they
     * are gathered, whether a unit's are let go of after its forward, and gathered again for
     * its backward; default true. */
    bool gather, reshard_after_forward;
} choir_fsdp_opts;

choir_fsdp_opts choir_fsdp_defaults(void);

/** Makes module a unit of the choir_fsdp that will wrap it or a module around it. */
void choir_fsdp_unit(choir_module *module);

/** Shards module over the group: before it is used, no rank holds more than its share; after,
 * it keeps the values it has, which must be the same on all ranks. Buffers become rank 0's
 * before each step. The wrapper forwards to the module and adds nothing to names. Never NULL;
 * errors stick to the run: argument (a stage, micro-batches that the ranks cannot share, a
 * class that no module is of), mismatch (ranks with different models), state (parameters in
 * another strategy's hands), memory, peer lost. */
choir_module *choir_fsdp(
    choir_scope *run, choir_module *module, choir_group *group, choir_fsdp_opts opts);

#ifdef __cplusplus
}
#endif
#endif
