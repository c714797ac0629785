/* DDP: a module that broadcasts buffers before it forwards, and a reducer for the gradient book
 * of each device. ddp.h lists the files. */
#include <stdlib.h>

#include "autograd/layout.h"
#include "parallel/ddp/ddp.h"
#include "nn/module.h"
#include "parallel/replication.h"

choir_ddp_opts choir_ddp_defaults(void)
{
    return (choir_ddp_opts){.bucket_cap_mb = 25, .first_bucket_mb = 1};
}

/* --- the module --- */

static void first_forward(choir__ddp *d, choir_scope *scope)
{
    choir_status status = CHOIR_OK;
    if (d->synced == scope->step + 1)
        return;
    d->synced = scope->step + 1;
    if (d->joins)
        status = choir__ddp_notice(d);
    if (d->elastic) /* the step before has sent them */
        choir__ranks_keep_buffers(d->kept);
    else if (status == CHOIR_OK && !d->opts.no_buffers)
        status = choir__ranks_broadcast_buffers(d->group, d->module);
    if (status != CHOIR_OK)
        choir__scope_fail(d->base.run, status);
}

static choir_tensor *ddp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__ddp *d = (choir__ddp *)self;
    if (self->training && (choir_group_world(d->group) > 1 || d->elastic) && !d->lent)
        first_forward(d, choir_tensor_scope(in[0]));
    return choir_forward_n(d->module, in, count);
}

static const choir_module_class ddp_class = {"ddp", sizeof(choir__ddp), ddp_forward, 0};

/* --- no_sync --- */

choir_status choir_ddp_no_sync(choir_module *ddp, bool on)
{
    choir__ddp *d;
    choir_status status = choir__ddp_of(ddp, "choir_ddp_no_sync", &d);
    if (status != CHOIR_OK || d->no_sync == on)
        return status;
    if (choir__recording_active())
        return choir__error(CHOIR_ERR_STATE,
            "choir_ddp_no_sync in a step that is being recorded: plan its backwards by "
            "micro-batches");
    if (d->joins)
        return choir__error(CHOIR_ERR_STATE,
            "choir_ddp_no_sync in a join: ranks that ended could not tell how many backwards a "
            "step of the others has; plan them by micro-batches");
    for (int i = 0; on && i < d->part_count; i++) {
        const choir__book *book = d->parts[i].book;
        if (book && book->leaves && !book->consumed)
            return choir__error(CHOIR_ERR_STATE,
                "choir_ddp_no_sync after %lld backwards of a step that began without: "
                "choir_optim_step ends it first",
                (long long)book->leaves);
    }
    choir__step_forget(d->base.run);
    d->no_sync = on;
    return CHOIR_OK;
}

/* --- construction --- */

static choir_status check_opts(const choir__ddp *d)
{
    const choir_ddp_opts *o = &d->opts;
    if (!(o->bucket_cap_mb > 0 && o->first_bucket_mb > 0))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: expected buckets above 0 MiB, got %g, the first of %g; begin with "
            "choir_ddp_defaults()",
            o->bucket_cap_mb, o->first_bucket_mb);
    if (d->total < choir_group_world(d->group))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: %lld micro-batches for %d ranks; each rank needs one", (long long)d->total,
            choir_group_world(d->group));
    if (d->part_count > 1 && (o->find_unused_parameters || o->static_graph))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: %s: expected parameters on one device, got %d devices",
            o->static_graph ? "static_graph" : "find_unused_parameters", d->part_count);
    return CHOIR_OK;
}

static void add_part(choir__ddp *d, choir__book *book)
{
    choir__ddp_part *part = &d->parts[d->part_count++];
    size_t n = (size_t)book->count + 1;
    *part = (choir__ddp_part){.ddp = d, .book = book, .used = choir__calloc(3, n)};
    part->first = part->used + n;
    part->used_by = part->first + n;
    double huge = (double)(SIZE_MAX / 2);
    book->bucket_cap =
        (size_t)(d->opts.delay_allreduce ? huge : d->opts.bucket_cap_mb * 1048576);
    book->first_cap =
        (size_t)(d->opts.delay_allreduce ? huge : d->opts.first_bucket_mb * 1048576);
    book->shared_levels = choir__layout_height(d->first, d->planned);
    book->gathered = d->total;
    book->reducer = part;
    book->reducer_ops = d->strategy.ops->reducer;
}

/* Makes the books, one per device, that this DDP reduces. */
static void take_books(choir__ddp *d)
{
    int count;
    choir__param **params = choir__module_named_params(d->module, &count);
    for (int i = 0; i < count; i++)
        if (params[i]->book)
            choir__book_free(params[i]->book);
    choir__books_make(d->base.run, params, count);
    d->parts =
        choir__arena_get(&d->base.run->arena, ((size_t)count + 1) * sizeof(choir__ddp_part));
    for (int i = 0; i < count; i++)
        if (!params[i]->book->reducer)
            add_part(d, params[i]->book);
    free(params);
}

static choir_status sync_devices(const choir__ddp *d)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < d->part_count && status == CHOIR_OK; i++)
        status = choir_device_sync(d->parts[i].book->device);
    return status;
}

static choir_status take_over(choir__ddp *d)
{
    choir_status status = CHOIR_OK;
    int64_t asked =
        d->opts.microbatches ? d->opts.microbatches : choir__run_of(d->base.run)->micro_total;
    choir__ddp_plan(d, asked ? asked : choir_group_world(d->group));
    if (d->total >= choir_group_world(d->group))
        take_books(d);
    status = check_opts(d);
    if (status == CHOIR_OK && d->opts.algorithm)
        status = choir__algorithm_parse(d->opts.algorithm, &d->algorithm);
    if (status == CHOIR_OK)
        status = choir__ranks_agree(d->group, d->module, "ddp");
    if (status == CHOIR_OK)
        status = sync_devices(d);
    return status == CHOIR_OK ? choir__ranks_share_model(d->group, d->module) : status;
}

/* A pipeline reduces a lent module bucket by bucket and exactly; it ignores these options. */
static choir_status check_lent(const choir_ddp_opts *o)
{
    if (o->find_unused_parameters || o->static_graph || o->delay_allreduce)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: %s around a pipeline, which has no use for it",
            o->find_unused_parameters ? "find_unused_parameters"
            : o->static_graph         ? "static_graph"
                                      : "delay_allreduce");
    return CHOIR_OK;
}

choir_module *choir_ddp(
    choir_scope *run, choir_module *module, choir_group *group, choir_ddp_opts opts)
{
    if (!choir__ranks_begin(&run, &module, group, __func__))
        return module;
    choir__ddp *d = choir_module_new(run, &ddp_class);
    d->group = group;
    d->opts = opts;
    d->strategy = (choir__strategy){.ops = &choir__ddp_ops, .places = true};
    d->base.inside->strategy = &d->strategy;
    choir__strategy_join(&d->strategy, run);
    choir__module_name(module); /* names are the module's own, without a prefix */
    choir_module_child(&d->base, "", &d->module, module);
    choir_status status = choir__scope_status(run);
    choir__strategy *inner = choir__strategy_within(module);
    d->lent = inner != NULL;
    if (status == CHOIR_OK && inner)
        status = check_lent(&opts);
    choir__replication how = choir__ddp_replication(d);
    if (status == CHOIR_OK)
        status = inner ? inner->ops->replicate(inner, &how) : take_over(d);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &d->base;
}
