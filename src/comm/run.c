/* One call of a group on its way to the engine, on the thread that serves the group's queue,
 * and the handling of its failure.
 *
 * A call gets its number here, when it runs, because a recorded step issues the same calls
 * again. */
#include "comm/far/far.h"
#include "comm/issue.h"
#include "comm/tree_by_name.h"

static choir_status run_near(choir__engine *engine, const choir__call *call)
{
    return choir__tree_by_name(call) ? choir__tree_run_by_name(engine, call)
                                     : engine->ops->run(engine, call);
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
    choir__log_begin(group->log, &call->stamp);
    choir_status status = run_where_it_lies(engine, call);
    choir__log_end(group->log, &call->stamp, status);
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
