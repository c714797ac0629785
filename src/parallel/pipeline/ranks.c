/* A pipeline over ranks: the data on which ranks must agree, so that they continue alike
 * without further questions, and the losses, which all ranks receive.
 *
 * At the start they compare options and model; after the first micro-batch, the ops and the
 * parameters these use; after the measured steps, the data, bit by bit. All later decisions
 * depend only on these and on the measurements. Each op is measured by the rank that runs it.
 */
#include <stdlib.h>
#include <string.h>

#include <choir/dry.h>

#include "base/hash.h"
#include "parallel/pipeline/pipeline.h"
#include "tensor/launch.h"

static uint64_t add_text(uint64_t h, const char *text)
{
    return text ? choir__hash_bytes(h, text, strlen(text) + 1) : choir__hash_text(h, "none");
}

static void add_tensor(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    *h = add_text(*h, name);
    *h = add_text(*h, choir__shape_text(t->shape));
}

void choir__pipeline_digests(
    const choir__pipeline *p, choir__pipeline_digest digests[CHOIR__DIGESTS])
{
    char machine[CHOIR__SIGNATURE] = "";
    uint64_t options = add_text(add_text(CHOIR__HASH_SEED, p->schedule), p->cuts),
             model = CHOIR__HASH_SEED;
    options = choir__hash_bytes(options, &p->chunks, sizeof p->chunks);
    choir__module_visit_named(p->module, true, add_tensor, &model); /* no values yet */
    choir__device_signature(p->base.run->device, machine);
    digests[0] = (choir__pipeline_digest){options, "schedules, chunks or cuts"};
    digests[1] = (choir__pipeline_digest){model, "models"};
    digests[2] = (choir__pipeline_digest){p->base.run->seed, "seeds"};
    digests[3] = (choir__pipeline_digest){
        add_text(CHOIR__HASH_SEED, machine), "processors or libraries"};
}

static choir_status agree_on_options(choir__pipeline *p)
{
    choir__pipeline_digest digests[CHOIR__DIGESTS];
    choir_status status = CHOIR_OK;
    choir__pipeline_digests(p, digests);
    for (int i = 0; i < CHOIR__DIGESTS && status == CHOIR_OK; i++)
        status = choir__remote_agree(p->remote, digests[i].value, digests[i].what);
    return status;
}

choir_status choir__pipeline_over_ranks(choir__pipeline *p, choir_pipeline_opts opts)
{
    choir_scope *run = p->base.run;
    if (opts.devices)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: devices and a group; over ranks each has the device of its run");
    choir_status status = choir__remote_open(run, opts.group, p->chunks, &p->remote);
    if (status != CHOIR_OK)
        return status;
    choir__run_of(run)->micro_first = 0; /* every rank runs a part of every micro-batch */
    p->device_count = choir__remote_count(p->remote);
    p->devices =
        choir__arena_get(&run->arena, (size_t)p->device_count * sizeof(choir_device *));
    for (int i = 0; i < p->device_count; i++)
        p->devices[i] = choir__remote_device(p->remote, i);
    return agree_on_options(p);
}

choir_status choir__pipeline_share_limits(choir__pipeline *p)
{
    choir_device_stats stats;
    choir_device_get_stats(p->base.run->device, &stats);
    p->limits[choir__remote_rank(p->remote)] = (double)stats.bytes_limit;
    return choir__remote_sum(p->remote, p->limits, p->device_count);
}

choir_status choir__pipeline_agree_on_ops(choir__pipeline *p)
{
    uint64_t ops = choir__hash_bytes(CHOIR__HASH_SEED, &p->ops, sizeof p->ops);
    for (int i = 0; i < p->ops; i++)
        ops = choir__hash_bytes(
            add_text(ops, p->paths[i]), &p->crossing[i], sizeof p->crossing[i]);
    for (int u = 0; u < p->use_count; u++) {
        const choir__op_use *use = &p->uses[u];
        ops = add_text(ops, use->tensor->param ? use->tensor->param->name : "");
        ops = choir__hash_bytes(ops, &use->op, sizeof use->op);
    }
    return choir__remote_agree(p->remote, ops, "ops in their micro-batches");
}

choir_status choir__pipeline_note_data(choir__pipeline *p, choir_tensor *x)
{
    if (x->producer || x->param || x->scope->kind == CHOIR__RUN ||
        choir__device_of(x) != p->base.run->device ||
        choir_device_is_dry(p->base.run->device)) /* all values are alike */
        return CHOIR_OK;
    size_t bytes = (size_t)x->count * choir_dtype_size(x->dtype);
    void *data = choir__alloc(bytes + 1);
    choir_status status = choir_read(x, data, bytes);
    if (status == CHOIR_OK)
        p->data_seen = choir__hash_bytes(p->data_seen, data, bytes);
    else
        choir__scope_fail(x->scope, status);
    free(data);
    return status;
}

choir_status choir__pipeline_agree(choir__pipeline *p)
{
    for (int i = 0; i < p->ops; i++)
        if (choir__stage_device(p, p->ran_on[i])->away) {
            p->costs[i] = (choir__op_cost){0, 0, 0};
            p->held[i] = 0;
        }
    choir_status status = choir__remote_agree(
        p->remote, p->data_seen, "data in the first step: each must see the same");
    if (status == CHOIR_OK)
        status = choir__remote_sum(p->remote, &p->costs->forward,
            (int64_t)p->ops * (int64_t)(sizeof *p->costs / sizeof(double)));
    return status == CHOIR_OK ? choir__remote_sum(p->remote, p->held, p->ops) : status;
}

/* --- losses --- */

/* Returns loss i of several: a view (). */
static choir_tensor *one_of(choir_scope *scope, const choir_tensor *all, int64_t i)
{
    choir_tensor *t = choir__tensor_alias(scope, all);
    t->shape = CHOIR_SCALAR;
    t->count = 1;
    t->offset = i;
    return t;
}

choir_status choir__pipeline_put_loss(choir__pipeline *p, const choir__micro *m)
{
    choir_scope *step = m->scope->parent;
    if (m->loss->count != 1)
        return choir__error(CHOIR_ERR_SHAPE, "pipeline: the loss of a micro-batch is %s",
            choir__shape_text(m->loss->shape));
    if (!p->losses)
        p->losses = choir__tensor_new(step, choir__stage_device(p, p->stages - 1),
            m->loss->dtype, (choir_shape){1, {p->micro_count}});
    if (p->losses->poisoned)
        return choir__scope_status(step);
    choir__launch_copy(one_of(step, p->losses, m->index), m->loss);
    return CHOIR_OK;
}

choir_status choir__pipeline_bring_losses(
    choir__pipeline *p, choir_scope *step, choir_tensor **losses, int64_t count)
{
    choir_tensor *all = choir__copied_to(step, p->losses, p->base.run->device);
    if (all->poisoned)
        return choir__scope_status(step);
    for (int64_t i = 0; i < count; i++)
        losses[i] = choir__pipeline_keep(p, i, one_of(step, all, i));
    return CHOIR_OK;
}
