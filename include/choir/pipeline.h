/* Model parallel and pipelines: a module cut into stages on several devices.
 *
 *     choir_module *pipe = choir_pipeline(run, net, choir_pipeline_defaults());
 *     choir_optim *opt = choir_adamw(run, pipe, hp);
 *     ...
 *     choir_check(choir_pipeline_step(pipe, step, M, micro_batch, data, losses));
 *     choir_check(choir_optim_step(opt));
 *
 *     static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *data)
 *     {
 *         choir_batch b;
 *         if (choir_loader_next(data, micro, &b) != CHOIR_OK)
 *             return NULL;
 *         return choir_cross_entropy(choir_forward(net, b.x), b.y);
 *     }
 *
 * The code of a micro-batch is plain code, as on one device. It is suspended wherever its next
 * op belongs to the next stage, so a stage may end between any two ops, and operands are
 * carried to the device on which an op runs. A schedule (choir/pipeline_plan.h) determines the
 * order in which stages take micro-batches: "sequential" is model parallelism.
 *
 * No device has to hold the whole model. When the pipeline is made, every stage takes a run of
 * modules: from its cut on, or its share of the bytes, within the memory that
 * choir_device_set_limit leaves each device. Values are drawn there. In the first two steps,
 * micro-batches run one after another, each op runs on the device of its parameters, and its
 * work is counted. Then the ops are distributed over the stages so that the slowest stage is
 * as fast as possible, within the limits, and parameters and buffers move to the stages that
 * use them. A parameter used in several stages (tied embeddings) has a copy in each. It belongs
 * to the stage in which its gradient is dense; the rows of a table's gradient are sent there
 * once per step. The bits equal the bits of one device at the same number of micro-batches, for
 * any stages and schedule.
 *
 * Over the ranks of a group, every rank runs this same program, over the same data. Each rank
 * keeps the parameters of its own stages; ops of other stages cost a rank nothing but their
 * entry in the plan. The stages' devices are called "rank:0", "rank:1", ...; tensors in another
 * process cannot be read. All ranks receive losses and gradient norms; choir_pipeline_gather
 * collects the parameters. All ranks must issue the same ops in the first micro-batch, and read
 * the same data in the first step. If a rank dies or fails, errors on all others name it and
 * its stage.
 *
 * Replicas: choir_ddp or choir_fsdp around a pipeline, or a pipeline around choir_ddp, over
 * the ranks that have the same stages (a mesh, choir/mesh.h). Each replica steps through a
 * contiguous range of the job's micro-batches, the range of choir_env_micro, and reports their
 * losses; stages may be other ranks or this process's devices. The functions here accept the
 * wrapper, too. All replicas use the cuts that the first one found. Under choir_fsdp stages
 * are sharded by rows, and cannot be gathered (choir_pipeline_gather: unsupported); with a
 * single stage they stay whole.
 *
 * Threads: the run's thread. Collective over a group: construction, steps, forward passes,
 * gathering, the run's end without an error; and the optimizer's step and state. */
#ifndef CHOIR_PIPELINE_H
#define CHOIR_PIPELINE_H

#include <choir/group.h>
#include <choir/nn.h>
#include <choir/pipeline_plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_pipeline_opts {
    /* devices in the order of the stages; the first must be the run's; NULL: all devices of the
     * same kind as the run's */
    choir_device *const *devices;
    int device_count;
    /* stages over ranks, each on its run's device; devices must be NULL then */
    choir_group *group;
    const char *schedule; /* as in choir/pipeline_plan.h; NULL: "zero-bubble" */
    int chunks;           /* stages per device; default 0: 2 for "interleaved", else 1 */
    /* beginnings of stages 1, 2, ...: a module's path plus a number of ops, or an op's number:
     * "layer2.0,layer4.1+3,170" ("2+0" is a module "2"). NULL: those that make the slowest
     * stage as fast as possible, within the devices' limits */
    const char *cuts;
    /* NULL cuts follow from the clock, so that they, and each device's memory, may differ from
     * run to run; default: from counts of each op's work, which are the same in all runs */
    bool clocked;
} choir_pipeline_opts;

choir_pipeline_opts choir_pipeline_defaults(void);

/** Wraps module. The wrapper adds nothing to names; choir_forward on it runs the stages one
 * after another and returns its result on the run's device. Never NULL; errors stick to the
 * run: argument (devices named twice, unknown schedule, cuts that name no module), device,
 * memory (a stage whose parameters and gradients exceed its device's limit). */
choir_module *choir_pipeline(choir_scope *run, choir_module *module, choir_pipeline_opts opts);

/** The work of one micro-batch, including its data: returns its loss (), or NULL with an error
 * noted in the scope. module is the wrapped module. */
typedef choir_tensor *choir_micro_fn(choir_scope *micro, choir_module *module, void *arg);

/**
 * Runs forward and backward of micro-batches 0 to count - 1 of a step, in the schedule's
 * order. In every call, fn must issue the same ops. A choir_step function may call it.
 *
 * @param losses  (count) receives the micro-batches' losses (), in the run, on the last stage's
 * device; with a group, on the run's device of every rank. The next step overwrites them
 *
 * Errors: errors of fn, naming stage and device; argument (more stages than layers, cuts at no
 * op, a stage without parameters). After an error, the gradients since the optimizer's last
 * step are discarded.
 */
CHOIR_CHECKED choir_status choir_pipeline_step(choir_module *pipeline, choir_scope *step,
    int64_t count, choir_micro_fn *fn, void *arg, choir_tensor **losses);

/**
 * Collects parameters and buffers on the run's device, where they can be read: on every rank of
 * the group, or, with rank >= 0, on this rank alone, so that no other rank has to hold them
 * all. An optimizer's state follows when it is visited. The next step distributes them again.
 * Call it between steps.
 *
 * Errors: argument, state (gradients are incomplete), memory, the group's.
 */
CHOIR_CHECKED choir_status choir_pipeline_gather(choir_module *pipeline, int rank);

/** Returns the costs of the stages, (choir_pipeline_stages) in seconds: measured ones if
 * opts.clocked, else counted ones, which compare stages; NULL before they are known. The
 * pipeline owns them. */
const choir_stage_cost *choir_pipeline_costs(const choir_module *pipeline);
int choir_pipeline_stages(const choir_module *pipeline);

/** Returns the largest number of bytes that a stage is expected to need on its device:
 * parameters, two moments, the sums of gradients, and the activations of as many micro-batches
 * as the schedule holds at a time. Cuts compare this number with the devices' limits. Returns 0
 * before the stages are measured, and on a single device. */
int64_t choir_pipeline_bytes(const choir_module *pipeline, int stage);

/** Returns the plan of the last step; NULL before the stages are measured, and on a single
 * device. The pipeline owns it. */
const choir_pipeline_plan *choir_pipeline_plan_of(const choir_module *pipeline);

/** Prints one line per stage: device, ops (their numbers, as cuts take them), the module in
 * which it begins, parameters, choir_pipeline_bytes in MiB, milliseconds of F, B (of the input
 * alone) and W for a micro-batch. Before the third step, and on a single device, it prints one
 * line in all. */
void choir_pipeline_print_stages(const choir_module *pipeline, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
