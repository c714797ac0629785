/* One call of a group on its way to the engine, on the thread that serves the group's queue,
 * and the handling of its failure.
 *
 * A call gets its number here, when it runs, because a recorded step issues the same calls
 * again. */
#include "comm/far/far.h"

#include <stdlib.h>
#include <string.h>

#include "comm/engine.h"
#include "comm/issue.h"
#include "comm/reduce.h"

/* --- the tree reduction by name: algorithms that do not add in the fixed tree ---
 *
 * An algorithm that adds in another order (ring, double_tree, native) or has no such call: each
 * rank adds its own nodes, then an all-reduce adds the results. */

/* Returns true if the call is a tree reduction for which such an algorithm was requested. */
static bool tree_by_name(const choir__call *call)
{
    return call->stamp.kind == CHOIR__TREE_REDUCE &&
           choir__algorithm_sums((choir__algorithm)call->stamp.algorithm) !=
               CHOIR__SUMS_OF_TREE;
}

/* Adds this rank's nodes into the first. A rank without micro-batches contributes zero. */
static choir_status fold(choir__engine *engine, const choir__call *call)
{
    int64_t lo, hi, count = (int64_t)call->stamp.count;
    choir__node nodes[CHOIR__MAX_NODES];
    const char *from[CHOIR__MAX_NODES];
    char *to[] = {call->out};
    choir__tree_run(call->stamp.leaves, engine->rank, engine->world, &lo, &hi);
    choir__reduce_task r = {
        .arith = choir__arith_find((choir_dtype)call->stamp.dtype, CHOIR_SUM),
        .nodes = nodes,
        .from = from,
        .to = to,
        .sources = choir__tree_nodes(lo, hi, nodes),
        .outputs = 1,
        .scale = 1,
        .divisor = 1};
    if (!r.sources)
        memset(call->out, 0, (size_t)count * choir_dtype_size((choir_dtype)call->stamp.dtype));
    if (r.sources < 2)
        return CHOIR_OK;
    char *scratch = aligned_alloc(64, CHOIR__REDUCE_SCRATCH);
    if (!scratch)
        return choir__engine_spread(
            engine, CHOIR_ERR_MEMORY, "no %d bytes to add gradients", CHOIR__REDUCE_SCRATCH);
    for (int k = 0; k < r.sources; k++)
        from[k] = (const char *)call->in + (size_t)k * call->node_stride;
    choir__reduce(&r, scratch, 0, count);
    free(scratch);
    return CHOIR_OK;
}

/* Runs that call by an all-reduce of the engine. */
static choir_status tree_run_by_name(choir__engine *engine, const choir__call *call)
{
    choir__call sum = {.stamp = call->stamp, .in = call->out, .out = call->out};
    sum.stamp.kind = CHOIR__ALL_REDUCE;
    sum.stamp.leaves = 0; /* layout still distinguishes scale and stride */
    choir_status status = fold(engine, call);
    if (status == CHOIR_OK)
        status = engine->ops->run(engine, &sum);
    if (status == CHOIR_OK && call->scale != 1)
        choir__arith_find((choir_dtype)call->stamp.dtype, CHOIR_SUM)
            ->rescale(call->out, (int64_t)call->stamp.count, (double)call->scale, 1);
    return status;
}

/* --- a call --- */

static choir_status run_near(choir__engine *engine, const choir__call *call)
{
    return tree_by_name(call) ? tree_run_by_name(engine, call) : engine->ops->run(engine, call);
}

static choir_status run_where_it_lies(choir__engine *engine, const choir__call *call)
{
    if (choir__engine_takes(engine, call))
        return engine->ops->run(engine, call);
    if (!choir__call_is_far(call))
        return run_near(engine, call);
    if (engine->ops->settle && engine->ops->settle(engine) != CHOIR_OK)
        return engine->failed;
    return choir__far_run(engine, call, run_near);
}

choir_status choir__group_run(choir_group *group, choir__call *call)
{
    choir__engine *engine = group->engine;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    call->stamp.seq = ++engine->seq;
    choir__flight_log_begin(group->log, &call->stamp);
    choir_status status = run_where_it_lies(engine, call);
    choir__flight_log_end(group->log, &call->stamp, status);
    return status;
}

void choir__group_report(choir_group *group, choir_status status)
{
    const char *sentence = group->engine->message;
    if (status != CHOIR_OK && group->on_failure)
        sentence = group->on_failure(group->on_failure_arg, status, sentence);
    if (status != CHOIR_OK)
        choir__queue_fail(status, "%s", sentence);
}

void choir__group_watch(choir_group *group, choir__on_failure *fn, void *arg, choir__role role)
{
    group->engine->role = role;
    group->on_failure = fn;
    group->on_failure_arg = arg;
}

void choir__group_abort(choir_group *group, choir_status status, const char *sentence)
{
    if (group->engine->ops->abort)
        group->engine->ops->abort(group->engine, status, sentence);
}
