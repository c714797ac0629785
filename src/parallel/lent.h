/* DDP and pipelines, one in the other: whichever wraps which, the pipeline reduces gradients
 * over DDP's group, stage by stage, and DDP's module only forwards. */
#ifndef CHOIR_LENT_H
#define CHOIR_LENT_H

#include <choir/ddp.h>
#include <choir/fsdp.h>

/* What choir_pipeline made: module, or what it wraps; NULL: nothing. */
choir_module *choir__pipeline_within(choir_module *module);

/* The ranks of group have replicas of the pipeline, the same stages each. Collective. */
choir_status choir__pipeline_replicate(
    choir_module *pipeline, choir_group *group, choir_ddp_opts opts);

/* The same, and each keeps its rows alone of the stages' parameters, once they are placed. */
choir_status choir__pipeline_shard(
    choir_module *pipeline, choir_group *group, choir_fsdp_opts opts, choir_module *units);

/* From now on the module that choir_ddp made leaves gradients and buffers to a pipeline around
 * it, which has its group. Error, without words: argument: it is another module. */
choir_status choir__ddp_lend(choir_module *module, choir_group **group, choir_ddp_opts *opts);

#endif
