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
 * What a micro-batch does is plain code, as on one device. It is suspended wherever its next op
 * belongs to the next stage, so a stage may end between any two ops, and operands are carried
 * to the device where an op runs. A schedule (choir/pipeline_plan.h) says in which order stages
 * take which micro-batch: "sequential" is model parallelism.
 *
 * The first two steps run on the run's device, and are measured: then the ops are dealt among
 * the stages so that the slowest stage is as fast as can be, within the memory that
 * choir_device_set_limit leaves each device, and parameters and buffers move to where they are
 * used. A parameter used in several stages (tied embeddings) has a copy in each;
 * it belongs to the stage where its gradient is dense, and rows of a table's gradient come
 * there once a step. The bits are those of one device at the same number of micro-batches,
 * whatever the stages and the schedule.
 *
 * Over the ranks of a group, every rank runs this same program, over the same data; each keeps
 * the parameters of its own stages, and ops of others cost it no more than their place in the
 * plan. The stages' devices are called "rank:0", "rank:1", ...; what is there in another
 * process cannot be read. Losses and gradient norms come to all ranks; choir_pipeline_gather
 * brings the parameters. The first two steps run whole on every rank, which must find the same
 * losses. A rank that dies or fails is named on all others, with its stage.
 *
 * Replicas: choir_ddp or choir_fsdp around a pipeline, or a pipeline around choir_ddp, over the
 * ranks that have the same stages (a mesh, choir/mesh.h). Each replica steps through a
 * contiguous run of the job's micro-batches, as many as choir_env_micro says of its place, and
 * its losses are those; stages may be other ranks or this process's devices. The functions here
 * take the wrapper, too. Replicas cut alike, by the first one's times. Under choir_fsdp stages
 * come in rows from the third step on, and are not gathered (choir_pipeline_gather:
 * unsupported); with a single stage they stay whole.
 *
 * Threads: those of the run. Collective over a group: construction, steps, forward passes,
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
    choir_device *const *devices; /* in order of the stages; NULL: all of the kind of the run's.
                                     The first must be the run's */
    int device_count;
    choir_group *group;   /* over ranks: a device each, the run's; devices is NULL then */
    const char *schedule; /* as in choir/pipeline_plan.h; NULL: "zero-bubble" */
    int chunks;           /* stages a device; default 0: 2 for "interleaved", else 1 */
    const char *cuts;     /* where stages 1, 2, ... begin: a module's path, and how many ops
                             later, or the number of an op: "layer2.0,layer4.1+3,170" ("2+0"
                             is a module "2"). NULL: as measured, and in one process within the
                             devices' limits */
} choir_pipeline_opts;

choir_pipeline_opts choir_pipeline_defaults(void);

/** Wraps module. The wrapper adds nothing to names; choir_forward on it runs the stages one
 * after another and returns its result on the run's device. Never NULL; errors stick to the
 * run: argument (devices named twice, unknown schedule), device. */
choir_module *choir_pipeline(choir_scope *run, choir_module *module, choir_pipeline_opts opts);

/** What one micro-batch does, from data it gets itself: -> its loss (), or NULL with an error
 * noted in the scope. module: the one that was wrapped. */
typedef choir_tensor *choir_micro_fn(choir_scope *micro, choir_module *module, void *arg);

/**
 * Forward and backward of micro-batches 0 to count - 1 of a step, in the schedule's order. In
 * every call, fn must issue the same ops. May be called in a choir_step function.
 *
 * @param losses  (count), set: their losses (), in the run, on the last stage's device; on the
 *                run's where there is a group, on every rank. The next step's take their place
 *
 * Errors: those of fn, with stage and device; argument (more stages than layers, cuts that are
 * not met, a stage without parameters). What micro-batches gave since the optimizer's last step
 * is forgotten then.
 */
choir_status choir_pipeline_step(choir_module *pipeline, choir_scope *step, int64_t count,
    choir_micro_fn *fn, void *arg, choir_tensor **losses);

/**
 * Parameters and buffers back where they can be read: on the run's device, of every rank where
 * there is a group; or, rank 0 or more, on that rank's alone, so that no other has to hold them
 * all. An optimizer's state follows when it is visited. The next step deals them out again.
 * Between steps.
 *
 * Errors: argument, state (gradients are under way), memory, those of the group.
 */
choir_status choir_pipeline_gather(choir_module *pipeline, int rank);

/** The measured stages, once they are: (choir_pipeline_stages) costs in seconds; else NULL. The
 * pipeline owns them. */
const choir_stage_cost *choir_pipeline_costs(const choir_module *pipeline);
int choir_pipeline_stages(const choir_module *pipeline);

/** The plan of the last step, if the stages are measured; else, and on a single device, NULL.
 * The pipeline owns it. */
const choir_pipeline_plan *choir_pipeline_plan_of(const choir_module *pipeline);

/** Prints a line a stage: device, ops (their numbers, as cuts take them), the module it begins
 * in, parameters, milliseconds of F, B (of the input alone) and W for a micro-batch; one line
 * where there are none: before the third step, and on a single device. */
void choir_pipeline_print_stages(const choir_module *pipeline, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
