/* Context parallelism as a strategy: a module that cuts its inputs into this rank's tokens, and
 * what the ranks do together. In forward it sets the scope's sequence (tensor/sequence.h),
 * which ops, losses and backward find there. */
#include "parallel/context_parallel/context_parallel.h"

#include <choir/distributed.h>
#include <choir/tensor_parallel.h>
#include <stdlib.h>

#include "nn/module.h"
#include "parallel/blocks.h"
#include "parallel/ranks.h"
#include "tensor/handle.h"

choir_context_parallel_opts choir_context_parallel_defaults(void)
{
    return (choir_context_parallel_opts){0};
}

/* --- the module --- */

static choir__cp *cp_of(choir__strategy *s)
{
    return CHOIR__STRATEGY_OF(s, choir__cp, strategy);
}

/* Returns whether another such module has cut a scope's sequences as this one cuts them. */
static bool cuts_alike(const choir__cp *cp, const choir__sequence *s)
{
    return s->chunks == cp->chunks &&
           (s->by ? cp_of(s->by)->group == cp->group : cp->world == 1);
}

/* Returns a poisoned tensor if the inputs' tokens cannot be cut, or NULL. */
static choir_tensor *refused(const choir__cp *cp, choir_tensor *const *in, int count)
{
    choir_tensor *ids = in[0];
    for (int i = 0; i < count; i++)
        if (in[i] && in[i]->poisoned)
            return in[i];
    choir_scope *scope = ids->scope;
    if (scope->kind == CHOIR__RUN)
        return choir__poison(scope, CHOIR_ERR_SCOPE,
            "context_parallel: a forward that cuts sequences needs inputs of a step");
    for (int i = 0; i < count; i++)
        if (in[i] && (in[i]->shape.ndim < 2 || in[i]->shape.dim[1] != ids->shape.dim[1]))
            return choir__poison(scope, CHOIR_ERR_SHAPE,
                "context_parallel: expected inputs (B, L, ...) with the tokens of a sequence, "
                "got %s",
                choir__shape_text(in[i]->shape));
    if (!choir__device_of(ids)->chunks)
        return choir__poison(scope, CHOIR_ERR_UNSUPPORTED,
            "context_parallel: the kernels of %s do not know chunks",
            choir_device_name(choir__device_of(ids)));
    int64_t tokens = ids->shape.dim[1];
    if (tokens < 1 || tokens % cp->chunks)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "context_parallel: %lld chunks do not divide a sequence of %lld tokens",
            (long long)cp->chunks, (long long)tokens);
    if (scope->sequence && scope->sequence->length != tokens)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "context_parallel: sequences of %lld tokens after sequences of %lld in one scope: open "
            "a micro-batch for each length",
            (long long)tokens, (long long)scope->sequence->length);
    if (scope->sequence && !cuts_alike(cp, scope->sequence))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "context_parallel: two modules cut the sequences of one scope, into %lld chunks and "
            "into %lld, or in different groups of ranks: give them equal ones",
            (long long)scope->sequence->chunks, (long long)cp->chunks);
    return NULL;
}

static choir_tensor *cp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__cp *cp = (choir__cp *)self;
    if ((!self->training && !cp->cuts_evaluation) || cp->chunks == 1)
        return choir_forward_n(cp->module, in, count);
    choir_tensor *own[CHOIR__MAX_IN], *bad = refused(cp, in, count);
    if (bad)
        return bad;
    choir_scope *scope = in[0]->scope;
    choir__sequence *s = choir__arena_get(&scope->arena, sizeof *s);
    *s = (choir__sequence){.chunks = cp->chunks,
        .length = in[0]->shape.dim[1],
        .first = cp->rank * choir__cp_own(cp),
        .leaves = choir__cp_own(cp),
        .by = cp->world > 1 ? &cp->strategy : NULL,
        .joins = cp->world > 1 && choir__cp_joins(cp)};
    scope->sequence = s;
    for (int i = 0; i < count; i++)
        own[i] = in[i] ? choir__sequence_own(scope, in[i], 1) : NULL;
    return choir_forward_n(cp->module, own, count);
}

static const choir_module_class cp_class = {
    "context_parallel", sizeof(choir__cp), cp_forward, 0};

/* Returns the first such module of a tree whose ranks are `world` or more. */
static choir__cp *find(choir_module *module, int world)
{
    choir__cp *cp = (choir__cp *)module,
              *found = module->type == &cp_class && cp->world >= world ? cp : NULL;
    for (const choir__module_entry *e = module->inside->entries; e && !found; e = e->next)
        if (e->kind == CHOIR__CHILD)
            found = find(e->child, world);
    return found;
}

choir__strategy *choir__cp_shares(choir_module *module)
{
    choir__cp *cp = find(module, 2);
    return cp ? &cp->strategy : NULL;
}

void choir__cp_cut_evaluation(choir_module *module, bool cut)
{
    if (module->type == &cp_class)
        ((choir__cp *)module)->cuts_evaluation = cut;
    for (const choir__module_entry *e = module->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            choir__cp_cut_evaluation(e->child, cut);
}

/* --- what the ranks do together --- */

static choir_tensor *sum(choir__strategy *s, choir_tensor *x)
{
    return choir_tp_reduce(x, cp_of(s)->group);
}

static choir_tensor *whole(choir__strategy *s, choir_scope *scope, choir_tensor *x, int dim)
{
    const choir__cp *cp = cp_of(s);
    return choir__blocks_gather(scope, x, cp->group, dim, x->shape.dim[dim] * cp->world, 0);
}

static choir_status join(choir__strategy *s, choir_tensor *nodes)
{
    return choir__nodes_reduce(nodes, cp_of(s)->group, cp_of(s)->chunks);
}

static choir_status count(choir__strategy *s, int64_t *numbers, int64_t n)
{
    return choir_group_all_reduce(cp_of(s)->group, numbers, n, CHOIR_I64, CHOIR_SUM, NULL);
}

static choir_status leaf(
    choir__strategy *s, choir_device *device, choir_dtype dtype, void *numbers, int64_t count)
{
    choir_group *group = cp_of(s)->group;
    choir_work work;
    if (device->away || choir__cp_joins(cp_of(s))) /* away: a stage of other ranks */
        return CHOIR_OK;
    choir__group_waits(group, device);
    choir_status status =
        choir_group_all_reduce(group, numbers, count, dtype, CHOIR_SUM, &work);
    choir__device_waits(device, group);
    return status;
}

/* Whether ranks can have whole heads: they divide them, and all heads have one bias. */
static bool divides(const choir__cp *cp, const choir__k_attention *k)
{
    return k->n.h % cp->world == 0 && k->n.g % cp->world == 0 &&
           !(k->bias.p && k->bias.stride[1]);
}

/* A bias belongs to queries, whose rows have to be gathered for heads: a number for each pair
 * of tokens. */
static bool by_heads(const choir__cp *cp, const choir__k_attention *k)
{
    if (cp->exchange != CHOIR_CP_AUTO)
        return cp->exchange == CHOIR_CP_HEADS;
    return !k->bias.p && divides(cp, k);
}

/* Returns whether the call can run by heads if the user asked for that. */
static bool possible(const choir__cp *cp, choir_scope *scope, const choir__k_attention *k)
{
    if (cp->exchange != CHOIR_CP_HEADS || divides(cp, k))
        return true;
    choir__poison(scope, CHOIR_ERR_SHAPE,
        "context_parallel: %d ranks do not divide %lld heads and %lld heads of keys, or heads have "
        "biases of their own: exchange keys",
        cp->world, (long long)k->n.h, (long long)k->n.g);
    return false;
}

static void attention(
    choir__strategy *s, choir_scope *scope, choir_device *device, const choir__k_attention *k)
{
    choir__cp_call call = {cp_of(s), scope, device, k};
    if (!possible(call.cp, scope, k))
        return;
    if (by_heads(call.cp, k))
        choir__cp_heads_forward(&call);
    else
        choir__cp_keys_forward(&call);
}

static void attention_backward(
    choir__strategy *s, choir_scope *scope, choir_device *device, const choir__k_attention *k)
{
    choir__cp_call call = {cp_of(s), scope, device, k};
    if (by_heads(call.cp, k))
        choir__cp_heads_backward(&call);
    else
        choir__cp_keys_backward(&call);
}

static const choir__chunk_ops chunk_ops = {.sum = sum,
    .whole = whole,
    .attention = attention,
    .attention_backward = attention_backward,
    .join = join,
    .count = count,
    .leaf = leaf};

static choir_status take_first(choir__strategy *s, void *bytes, size_t count)
{
    return choir_group_broadcast(cp_of(s)->group, bytes, (int64_t)count, CHOIR_U8, 0, NULL);
}

/* The ranks that have the other chunks take other micro-batches as this one does. */
static choir_status keep_chunks(choir__strategy *s, choir_group *group, int by, uint64_t undone)
{
    (void)s, (void)group, (void)by, (void)undone;
    return CHOIR_OK;
}

static const choir__strategy_ops cp_ops = {.name = "context_parallel",
    .chunks = &chunk_ops,
    .take_first = take_first,
    .ranks_turned = keep_chunks};

/* --- construction --- */

static choir_status check(const choir__cp *cp)
{
    if (find(cp->module, 1))
        return choir__error(CHOIR_ERR_STATE,
            "context_parallel: a part of the module cuts sequences already: wrap it once");
    if (cp->chunks < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "context_parallel: expected 1 chunk or more");
    if (cp->exchange < CHOIR_CP_AUTO || cp->exchange > CHOIR_CP_KEYS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "context_parallel: unknown exchange %d: choose CHOIR_CP_AUTO, HEADS or KEYS",
            (int)cp->exchange);
    if (cp->chunks % cp->world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "context_parallel: %d ranks do not divide %lld chunks", cp->world,
            (long long)cp->chunks);
    return CHOIR_OK;
}

static choir_status join_run(choir__cp *cp, choir_scope *run)
{
    int count;
    choir_status status = CHOIR_OK;
    choir__param **params = choir__module_named_params(cp->module, &count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        if (params[i]->book)
            status = choir__error(CHOIR_ERR_STATE,
                "context_parallel: parameter '%s' has an optimizer already, or another strategy: "
                "wrap the model before that",
                params[i]->name);
    free(params);
    if (status == CHOIR_OK)
        status = choir__ranks_agree(cp->group, cp->module, "context_parallel");
    if (status == CHOIR_OK)
        status = choir_device_sync(run->device);
    if (status == CHOIR_OK)
        status = choir__ranks_share_model(cp->group, cp->module);
    cp->strategy.waits = cp->world > 1;
    choir__strategy_join(&cp->strategy, run);
    choir__run_of(run)->micro_first = 0; /* every rank runs a part of every micro-batch */
    return status;
}

choir_module *choir_context_parallel(choir_scope *run, choir_module *module, choir_group *group,
    choir_context_parallel_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    choir__cp *cp = choir_module_new(run, &cp_class);
    cp->strategy.ops = &cp_ops;
    cp->group = group;
    cp->rank = group ? choir_group_rank(group) : 0;
    cp->world = group ? choir_group_world(group) : 1;
    cp->chunks = opts.chunks ? opts.chunks : cp->world;
    cp->exchange = opts.exchange;
    choir__module_name(module); /* names are the module's own, without a prefix */
    choir_module_child(&cp->base, "", &cp->module, module);
    choir_status status = choir__scope_status(run);
    if (status == CHOIR_OK)
        status = check(cp);
    if (status == CHOIR_OK)
        status = choir__module_refuse_f64(module, "context_parallel");
    if (status == CHOIR_OK && cp->world > 1)
        status = join_run(cp, run);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &cp->base;
}
