/* FSDP: like DDP, but each rank has only its rows of sums, optimizer state and weights.
 *
 * The wrapper only fences: forward begins when all ranks' optimizers have written their rows,
 * and the optimizer begins when all ranks' backwards have read the weights (reducer.c).
 * weights.c decides where weights are stored, and units.c which gradients are reduced
 * together. */
#include <stdlib.h>

#include "parallel/fsdp/fsdp.h"
#include "nn/module.h"

choir_fsdp_opts choir_fsdp_defaults(void)
{
    return (choir_fsdp_opts){.stage = 3, .reshard_after_forward = true};
}

static void reset_gathers(const choir__fsdp *f)
{
    if (f->gather)
        choir__fsdp_gather_reset(f->gather);
    for (const choir__fsdp *stage = f->stages; stage; stage = stage->next)
        if (stage->gather)
            choir__fsdp_gather_reset(stage->gather);
}

static void sync_buffers(choir__fsdp *f, const choir_scope *scope)
{
    bool first = f->synced != scope->step + 1;
    choir__ranks_sync_buffers(f->group, f->module, scope, &f->synced);
    if (first && f->kept)
        choir__ranks_keep_buffers(f->kept);
}

static choir_tensor *fsdp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__fsdp *f = (choir__fsdp *)self;
    bool together =
        choir_group_world(f->group) > 1 || f->kept; /* kept: a recheck undoes them */
    if (self->training && together && !f->lent)
        sync_buffers(f, choir_tensor_scope(in[0]));
    if (f->gather)
        choir__fsdp_gather_forward(f->gather, self->training);
    if (!self->training) /* stages train in the order of the pipeline's plan */
        choir__fsdp_stages_evaluate(f);
    choir_tensor *y = choir_forward_n(f->module, in, count);
    if (!self->training)
        reset_gathers(f);
    return y;
}

static const choir_module_class fsdp_class = {"fsdp", sizeof(choir__fsdp), fsdp_forward, 0};

/* --- entries of the strategy --- */

static choir__fsdp *fsdp_of(choir__strategy *s)
{
    return CHOIR__STRATEGY_OF(s, choir__fsdp, strategy);
}

static void step_begins(choir__strategy *s)
{
    reset_gathers(fsdp_of(s));
}

static void step_updated(choir__strategy *s)
{
    choir__fsdp *f = fsdp_of(s);
    choir_status status = f->stages ? CHOIR_OK : choir__fsdp_publish(f);
    for (choir__fsdp *stage = f->stages; stage && status == CHOIR_OK; stage = stage->next)
        if (!stage->device->away)
            status = choir__fsdp_publish(stage);
    if (status != CHOIR_OK)
        choir__scope_fail(f->base.run, status);
}

static choir_status sum_rows(
    choir__strategy *s, choir_device *device, double *numbers, int64_t count)
{
    choir__fsdp *f = fsdp_of(s);
    return choir__ranks_sum(f->stages ? f->stages->shard : f->shard, device, numbers, count);
}

static choir_tensor *gather(choir__strategy *s, choir_tensor *numbers)
{
    choir__fsdp *f = fsdp_of(s);
    const choir__book *book = f->count ? f->params[0]->book : NULL;
    if (!book || f->lent) /* a pipeline gathers them */
        return numbers;
    return choir__ranks_gather_numbers(
        f->turned ? f->turned : f->group, numbers, book->first, book->planned, book->total);
}

static const choir__strategy_ops fsdp_ops = {.name = "fsdp",
    .step_begins = step_begins,
    .step_updated = step_updated,
    .bring = choir__fsdp_gather_bring,
    .reducer = &choir__fsdp_reducer,
    .sum = sum_rows,
    .gather = gather,
    .ranks_turned = choir__fsdp_turned};

static void close_fsdp(void *arg)
{
    choir__fsdp *f = arg;
    free(f->params);
    free(f->ignored);
    choir__ranks_free_kept(f->kept);
    choir__fsdp_free_weights(f);
    for (choir__fsdp *stage = f->stages; stage; stage = stage->next)
        choir__fsdp_free_weights(stage);
    if (f->shard != f->group)
        choir_group_free(f->shard);
    choir_group_free(f->replicate);
}

/* --- construction --- */

/* Checks the options that do not depend on whether the module is a pipeline. */
static choir_status check_stage(const choir__fsdp *f)
{
    if (f->opts.stage < 1 || f->opts.stage > 3)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: unknown stage %d: choose one of 1 (shards the optimizer's state), 2 "
            "(gradients, too), 3 (weights, too); begin with choir_fsdp_defaults()",
            f->opts.stage);
    if (choir__fsdp_offloads(f) && f->opts.stage < 3)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: off-load in stage %d, whose weights are whole on every rank: choose stage 3",
            f->opts.stage);
    if (f->opts.unit_params < 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "fsdp: units of %lld parameters",
            (long long)f->opts.unit_params);
    return CHOIR_OK;
}

static choir_status open_place(choir__fsdp *f)
{
    choir_status status =
        choir__offload_store_new(f->opts.offload_folder, "off-loaded shards", &f->outside);
    if (status != CHOIR_OK)
        choir__group_abort(f->group, status, choir__message());
    return status;
}

static choir_status check_options(const choir__fsdp *f, int64_t total)
{
    int world = choir_group_world(f->group);
    if (f->opts.shard_ranks < -1 || (f->opts.shard_ranks > 0 && world % f->opts.shard_ranks))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: a world of %d does not come in copies of %d ranks that share a model", world,
            f->opts.shard_ranks);
    if (total < world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: %lld micro-batches for %d ranks; each rank needs one", (long long)total,
            world);
    return CHOIR_OK;
}

/* Makes groups: neighbours share a model, and ranks at the same place in their copies are
 * replicas. */
static choir_status split_ranks(choir__fsdp *f, int64_t total)
{
    int world = choir_group_world(f->group);
    int each =
        f->opts.shard_ranks < 0 ? choir_group_local_world(f->group) : f->opts.shard_ranks;
    int64_t sizes[2] = {each, -each}; /* nodes may have different sizes */
    choir_status status =
        choir_group_all_reduce(f->group, sizes, 2, CHOIR_I64, CHOIR_MAX, NULL);
    if (status != CHOIR_OK || each == world)
        return status;
    if (sizes[0] != -sizes[1] || world % each)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: the nodes have from %lld to %lld ranks; copies of a model need as many each",
            (long long)-sizes[1], (long long)sizes[0]);
    if (total % world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: %lld micro-batches for %d ranks in copies of %d: the ranks must have as many "
            "each",
            (long long)total, world, each);
    f->shard = NULL;
    const choir__coordinate place = {1, each}, copy = {each, world / each};
    status = choir__group_split_by(f->group, choir__color_without, &place, NULL, &f->shard);
    if (status == CHOIR_OK)
        status =
            choir__group_split_by(f->group, choir__color_without, &copy, NULL, &f->replicate);
    return status;
}

static void make_books(choir__fsdp *f, int64_t total)
{
    choir_scope *run = f->base.run;
    for (int i = 0; i < f->count; i++)
        if (f->params[i]->book)
            choir__book_free(f->params[i]->book);
    for (int i = 0; i < f->ignored_count; i++)
        if (f->ignored[i]->book)
            choir__book_free(f->ignored[i]->book);
    choir__book *book = choir__book_new(run, run->device, f->params, f->count);
    book->reducer = f;
    book->reducer_ops = fsdp_ops.reducer;
    choir__fsdp_plan(f, book, total);
    if (f->ignored_count)
        choir__fsdp_plan(f, choir__fsdp_ignored_book(f), total);
}

static choir_status take_over(choir__fsdp *f)
{
    choir_scope *run = f->base.run;
    int64_t total = choir__fsdp_micros(f);
    choir_status status = check_options(f, total);
    if (status == CHOIR_OK)
        status = choir__fsdp_ignore(f);
    for (int i = 0; i < f->ignored_count && status == CHOIR_OK; i++)
        status = choir__fsdp_is_free(f, f->ignored[i]);
    if (status == CHOIR_OK && f->opts.shard_ranks)
        status = split_ranks(f, total);
    if (status == CHOIR_OK)
        status = choir__ranks_agree(f->group, f->module, "fsdp");
    if (status == CHOIR_OK)
        status = choir__fsdp_units(f);
    if (status == CHOIR_OK)
        status = choir__fsdp_shard(f);
    if (status != CHOIR_OK)
        return status;
    f->strategy.collective = f->gather != NULL;
    make_books(f, total);
    choir__strategy_join(&f->strategy, run);
    return CHOIR_OK;
}

choir_module *choir_fsdp(
    choir_scope *run, choir_module *module, choir_group *group, choir_fsdp_opts opts)
{
    if (!choir__ranks_begin(&run, &module, group, __func__))
        return module;
    choir__fsdp *f = choir_module_new(run, &fsdp_class);
    f->group = f->shard = group;
    f->device = run->device;
    f->opts = opts;
    f->strategy = (choir__strategy){.ops = &fsdp_ops, .places = true};
    f->base.inside->strategy = &f->strategy;
    choir__module_name(module); /* names are the module's own, without a prefix */
    choir_module_child(&f->base, "", &f->module, module);
    f->params = choir__module_named_params(module, &f->count);
    choir__on_end(run, close_fsdp, f);
    choir_status status = choir__scope_status(run);
    choir__strategy *pipeline = choir__strategy_within(module);
    f->lent = pipeline != NULL;
    if (status == CHOIR_OK)
        status = check_stage(f);
    if (status == CHOIR_OK && choir__fsdp_offloads(f))
        status = open_place(f);
    if (status == CHOIR_OK)
        status = pipeline ? choir__fsdp_shard_stages(f, pipeline) : take_over(f);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &f->base;
}
