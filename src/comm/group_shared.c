/* Shared memory of a group (comm/shared.h), which is allocated on the group's queue, between
 * its calls. */
#include "comm/issue.h"
#include "comm/shared.h"

typedef struct sharing {
    choir_group *group;
    size_t bytes;
    choir__shared **shared;
    choir_status *status;
} sharing;

/* If one rank cannot allocate its memory, the call fails, but the group remains usable. */
static void run_share(const void *args)
{
    const sharing *s = args;
    choir__engine *engine = s->group->engine;
    engine->seq += engine->failed == CHOIR_OK;
    choir__stamp stamp = {.kind = CHOIR__SHARE, .count = s->bytes, .seq = engine->seq};
    choir__flight_log_begin(s->group->log, &stamp);
    *s->status = engine->failed != CHOIR_OK ? engine->failed
                 : engine->ops->share       ? engine->ops->share(engine, s->bytes, s->shared)
                                      : choir__shared_private(engine, s->bytes, s->shared);
    choir__flight_log_end(s->group->log, &stamp, *s->status);
    choir__group_report(s->group, engine->failed);
}

choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared)
{
    choir_status status = CHOIR_OK;
    sharing s = {group, bytes, shared, &status};
    choir__queue_issue(group->queue, run_share, &s, sizeof s);
    choir_status failed = choir__queue_wait(group->queue);
    if (failed != CHOIR_OK)
        return failed;
    if (status != CHOIR_OK)
        return choir__error(status, "%s", group->engine->message);
    (*shared)->group = group;
    (*shared)->other = group->shareds;
    group->shareds = *shared;
    return CHOIR_OK;
}

choir_status choir__group_scratch(choir_group *group, size_t bytes, void **at)
{
    int rank = choir_group_rank(group);
    if (!group->scratch || choir__shared_bytes(group->scratch, rank) < bytes) {
        choir__shared_free(group->scratch);
        group->scratch = NULL;
        choir_status status = choir__shared_new(group, bytes, &group->scratch);
        if (status != CHOIR_OK)
            return status;
    }
    *at = choir__shared_at(group->scratch, rank);
    return CHOIR_OK;
}
