/* A process's part of a job: its devices, model and data, set up by the strategy, and the
 * figures of its devices. */
#include "job/job_rank.h"
#include "job/bits.h"
#include "checkpoint/weights/adapter.h"
#include "job/model/amp.h"
#include "job/gpus_tried.h"
#include "job/rehearsal/rehearsal.h"

#include <choir/sync_batch_norm.h>
#include <choir/tensor_parallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/process/resident.h"
#include "tensor/run.h"

static choir_status take_device(choir__job_rank *p, choir_device *device)
{
    choir_status status = CHOIR_OK;
    if (p->job->placement.threads > 1)
        status = choir_device_set_threads(device, (int)p->job->placement.threads);
    choir_device_set_limit(device, (size_t)p->job->placement.mem_cap);
    p->devices[p->device_count++] = device;
    return status;
}

void choir__job_rank_add_device(choir__job_rank *p, choir_device *device)
{
    for (int i = 0; i < p->device_count; i++)
        if (p->devices[i] == device)
            return;
    if (device && p->device_count < CHOIR__MAX_DEVICES)
        take_device(p, device);
}

/* Returns a list of each process's first device, which NCCL uses, or NULL for CPUs. */
static char *first_devices(const choir__job_placement *p)
{
    int count = choir__job_strategy_devices(p);
    char *list = NULL;
    for (int i = 0; i + count <= p->device_count; i += count) {
        char *longer =
            choir__format("%s%s%s", list ? list : "", list ? "," : "", p->device_names[i]);
        free(list);
        list = longer;
    }
    if (!list || strncmp(list, "cuda", 4) == 0)
        return list;
    free(list);
    return NULL;
}

/* Opens the job's devices that belong to this process. */
static choir_status take_devices(choir__job_rank *p)
{
    const choir__job *j = p->job;
    int count = choir__job_strategy_devices(&j->placement);
    int first = p->env.local_rank % (j->placement.device_count / count) * count;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        choir_device *device = j->placement.rehearsal
                                   ? choir__rehearsal_device(&j->placement, p->env.rank, i)
                                   : choir_device_find(j->placement.device_names[first + i]);
        status = device ? take_device(p, device) : CHOIR_ERR_DEVICE;
    }
    p->env.device = p->devices[0];
    return status;
}

choir_status choir__job_rank_open(
    choir__job_rank *p, const choir__job *j, choir__job_agree_fn *agree)
{
    *p = (choir__job_rank){.job = j, .bits = ""};
    choir_group_opts opts = choir_group_defaults();
    opts.timeout_s = j->ranks.timeout;
    opts.key_file = j->ranks.key_file;
    char *devices = j->placement.rehearsal ? NULL : first_devices(&j->placement);
    const char *note;
    opts.device = devices;
    opts.backend = choir__gpus_backend(j, devices, &note);
    if (j->placement.rehearsal)
        opts.backend = "dry";
    choir_status status = choir_env_join(&p->env, j->ranks.rendezvous, opts);
    free(devices);
    if (status != CHOIR_OK)
        return status;
    if (note && p->env.rank == 0 && !j->records.json && !j->records.quiet)
        choir__job_tell_notes(j, note);
    if (j->ranks.launched) /* other ranks are forks of one process, with one command line */
        status = agree(j, p->env.group);
    if (status != CHOIR_OK)
        return status;
    p->env.microbatches = j->training.microbatches;
    p->env.unit = j->training.microbatches / choir__job_strategy_units(j);
    status = choir__job_take_bits(p, j->ranks.launched);
    if (status == CHOIR_OK)
        status = take_devices(p);
    if (status == CHOIR_OK)
        status = choir__job_rank_mesh(p);
    if (status == CHOIR_OK && (p->env.world > 1 || j->ranks.max_restarts))
        choir_device_bind_thread(p->env.device);
    return status;
}

/* Takes this rank's micro-batches, and a worker's number of micro-batches. */
static void deal(choir__job_rank *p)
{
    choir_env_micro(&p->dealt, &p->micro_first, &p->micro_count);
    p->each = choir__job_strategy_workers_shared(p->job)
                  ? p->dealt.unit
                  : choir__max(p->micro_count, INT64_C(1));
}

/* Cuts large weights into slices that this rank has all of. A strategy that shares them does so
 * itself. */
static choir_status cut_weights(choir__job_rank *p)
{
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = p->job->training.slices;
    if (opts.slices > 1 && choir__job_strategy_slicers(&p->job->placement) == 1)
        choir_tensor_parallel(p->run, p->net, NULL, opts);
    return choir_scope_status(p->run);
}

/* Loads the weights that a new job begins with. */
static choir_status load_begin(const choir__job_rank *p)
{
    const choir__job *j = p->job;
    choir_status status = CHOIR_OK;
    if (j->saves.resume)
        return CHOIR_OK;
    if (j->model.weights)
        status = choir__job_load_weights(j, p->net, p->env.rank);
    if (status == CHOIR_OK && j->model.adapter)
        status =
            choir__adapter_load(p->net, j->model.info.config, j->model.adapter, p->env.group);
    return status;
}

/* Builds the model, cuts and loads its weights, and lets the strategy wrap it. */
static choir_status build_net(choir__job_rank *p)
{
    const choir__job *j = p->job;
    const bool slices = choir__job_strategy_slicers(&j->placement) > 1;
    p->model = p->evaluated = p->net = choir_model_build(p->run, &j->model.info);
    choir_status status = choir_scope_status(p->run);
    /* PyTorch's numbers follow from each other, so they are drawn before ranks have slices. */
    bool torch = j->model.init && !j->saves.resume && !strcmp(j->model.init, "torch");
    if (status == CHOIR_OK && torch && slices)
        status = choir_module_init_torch(p->net, j->training.seed);
    if (status == CHOIR_OK)
        status = choir__job_freeze(j, p->net);
    if (status == CHOIR_OK)
        status = cut_weights(p);
    /* Stages can be cast where they are; slices, and what a second strategy has wrapped,
     * cannot. */
    bool castable = !choir__amp_find(j->optim.amp)->halved ||
                    (j->placement.composition.count == 1 && !slices);
    bool first = j->placement.strategy->parts && castable;
    choir__job_strategy_cut_sequences(p);
    if (status == CHOIR_OK && first)
        status = j->placement.strategy->build(p);
    if (status == CHOIR_OK && torch && !slices)
        status = choir_module_init_torch(p->net, j->training.seed);
    if (status == CHOIR_OK)
        status = load_begin(p);
    if (status == CHOIR_OK && j->optim.recompute)
        choir_module_recompute_blocks(p->net, true);
    if (status == CHOIR_OK)
        status = choir__amp_begin(p);
    return status == CHOIR_OK && !first ? j->placement.strategy->build(p) : status;
}

static choir_status build_optimizer(choir__job_rank *p)
{
    const choir__job *j = p->job;
    choir_status status = choir__job_optimizer(j, p->run, p->model, &p->optim);
    if (status == CHOIR_OK && choir__amp_find(j->optim.amp)->scaled)
        p->scaler = choir_scaler_new(p->run, choir_scaler_defaults());
    if (status == CHOIR_OK && j->placement.strategy->optimizer)
        status = j->placement.strategy->optimizer(p);
    return status;
}

/* Opens the loader, and makes room for the batches of a step and their losses. */
static choir_status open_batches(choir__job_rank *p)
{
    const choir__job *j = p->job;
    choir_loader_opts loader = choir_loader_defaults();
    loader.batch_size = j->training.batch_size;
    loader.workers = (int)j->data.workers;
    int64_t most = choir__job_deals_again(j) ? j->training.microbatches : p->micro_count;
    if (j->model.info.task == CHOIR_IMAGE_TO_TEXT && most > 1)
        loader.prefetch = (int)most + 1; /* a step reads all of its batches first */
    loader.shuffle = !j->data.stream;
    loader.weights = j->data.weights_of_samples;
    loader.skip_batches = j->data.skip;
    p->loader = choir_env_loader_with(p->run, &p->dealt, j->data.train, loader);
    p->losses = choir__calloc((size_t)most, sizeof(choir_tensor *));
    if (choir_model_ignores(&j->model.info) || choir_sync_batch_norm_together(p->run) > 1)
        p->batches = choir__calloc((size_t)most, sizeof *p->batches);
    if (p->batches)
        p->counted = choir__calloc((size_t)most, sizeof(choir_tensor *));
    return choir_scope_status(p->run);
}

choir_status choir__job_rank_build(choir__job_rank *p)
{
    const choir__job *j = p->job;
    p->run = choir_run_open(&p->dealt, j->training.seed);
    if (j->placement.rehearsal)
        choir__run_remember(p->run, CHOIR__REHEARSED_SCOPES);
    deal(p);
    choir_status status = build_net(p);
    if (status == CHOIR_OK)
        status = build_optimizer(p);
    return status == CHOIR_OK ? open_batches(p) : status;
}

void choir__job_rank_changed(choir__job_rank *p)
{
    p->dealt = p->env;
    p->along = p->env.group;
    deal(p);
}

choir_status choir__job_rank_mean(const choir__job_rank *p, const float *losses, float *mean)
{
    return choir_env_mean(&p->dealt, losses, mean);
}

choir_status choir__job_rank_sync(const choir__job_rank *p)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < p->device_count && status == CHOIR_OK; i++)
        status = choir_device_sync(p->devices[i]);
    return status;
}

void choir__job_rank_start(choir__job_rank *p)
{
    choir_device_stats stats;
    for (int i = 0; i < p->device_count; i++) {
        choir_device_get_stats(p->devices[i], &stats);
        p->busy_before[i] = stats.busy_s;
    }
    p->started = choir__now();
}

/* Returns the bytes that the strategies' groups moved. Devices count the bytes between stages.
 */
static uint64_t group_bytes(const choir__job_rank *p)
{
    const choir__composition *c = &p->job->placement.composition;
    uint64_t bytes = choir_group_bytes(p->env.group);
    if (p->subgroup)
        bytes += choir_group_bytes(p->subgroup);
    for (int d = 0; p->mesh && d < c->count; d++) {
        const choir__job_strategy *s = c->dims[d].strategy;
        const choir_group *along = choir_mesh_group(p->mesh, s->dimension);
        if (s->step == choir__job_strategy_plain_step && along)
            bytes += choir_group_bytes(along);
    }
    return bytes;
}

static choir__device_figures figures_of(const choir__job_rank *p, int i)
{
    choir_device_stats stats;
    choir_device_get_stats(p->devices[i], &stats);
    double elapsed = choir__now() - p->started;
    choir__device_figures f = {.peak_bytes = stats.bytes_peak,
        .comm_bytes = stats.bytes_moved + group_bytes(p),
        .busy = elapsed > 0 ? fmin(1, (stats.busy_s - p->busy_before[i]) / elapsed) : 0};
    snprintf(f.device, sizeof f.device, "%s", choir_device_name(p->devices[i]));
    return f;
}

choir_status choir__job_rank_figures(
    const choir__job_rank *p, choir__device_figures **figures, int *count)
{
    choir__device_figures mine[CHOIR__MAX_DEVICES];
    for (int i = 0; i < p->device_count; i++)
        mine[i] = figures_of(p, i);
    mine[0].resident_bytes = choir__resident_peak();
    *count = p->device_count * p->env.world; /* all parts have as many */
    *figures = choir__calloc((size_t)*count, sizeof **figures);
    return choir_group_all_gather(
        p->env.group, mine, *figures, p->device_count * (int64_t)sizeof *mine, CHOIR_U8, NULL);
}

void choir__job_rank_close(choir__job_rank *p)
{
    if (p->job->data.stream)
        choir_stream_leave(p->job->data.stream); /* loaders may wait for it */
    (void)!choir_scope_close(p->run);
    choir_mesh_free(p->mesh);
    choir_group_free(p->also);
    choir_group_free(p->subgroup);
    choir_env_free(&p->env);
    free(p->losses);
    free(p->batches);
    free(p->counted);
    choir__job_drop_bits(p);
}
