/* Finds the rank, group and device of this process in the environment. */
#include <choir/env.h>
#include <stdlib.h>
#include <string.h>

#include "comm/engine.h"
#include "launch/crew/crew.h"
#include "parallel/elastic/elastic.h"
#include "tensor/scope.h"

choir_status choir_env_init(choir_env *env)
{
    if (!env)
        return choir__missing(__func__, "env");
    return choir_env_init_with(env, NULL, choir_group_defaults());
}

/* Meets the ranks of the next generation, in which all rebuild everything. A process that
 * comes here again has given up the generation before. */
static choir_status meet_rebuilt(choir_group_opts opts, choir_group **group)
{
    bool joined = choir__crew_begin();
    choir_status status = CHOIR_OK;
    do {
        if (!joined)
            choir__crew_next(status);
        joined = false;
        status = choir__elastic_meet(opts, group);
        if (choir__is_loss(status))
            choir__crew_fail(status);
    } while (choir__is_loss(status));
    return status;
}

/* Meets the other ranks of a crew. A rank that is new, or whose first generation has failed
 * before it had made its objects, makes them alone, and meets the others in choir_elastic_open:
 * these may be further than it is. */
static choir_status meet_crew(choir_group_opts opts, choir_group **group, uint64_t *generation)
{
    bool rebuild = choir__crew_mine()->rebuild;
    if (rebuild || choir__crew_enter()) {
        choir_status status =
            rebuild ? meet_rebuilt(opts, group) : choir__elastic_meet(opts, group);
        *generation = choir__crew_membership()->generation;
        if (!choir__is_loss(status))
            return status;
        choir__crew_leave(status);
    }
    *generation = 0;
    opts.rank = 0;
    opts.world = 1;
    return choir_group_init(NULL, opts, group);
}

choir_status choir_env_join(choir_env *env, const char *method, choir_group_opts opts)
{
    if (!env)
        return choir__missing(__func__, "env");
    choir_group *group;
    uint64_t generation = 1;
    const choir__crew *crew = choir__crew_mine();
    const char *assigned = getenv("CHOIR_DEVICE");
    if (!opts.device && assigned && strncmp(assigned, "cuda:", 5) == 0)
        opts.device = assigned;
    choir_status status =
        crew ? meet_crew(opts, &group, &generation) : choir_group_init(method, opts, &group);
    if (status != CHOIR_OK)
        return status;
    *env = (choir_env){.rank = choir_group_rank(group),
        .world = choir_group_world(group),
        .group = group,
        .generation = generation};
    env->local_rank = crew ? choir__crew_local() : choir_group_local_rank(group, -1);
    env->microbatches = crew ? crew->world : env->world;
    return CHOIR_OK;
}

choir_status choir_env_init_with(choir_env *env, const char *method, choir_group_opts opts)
{
    choir_status status = choir_env_join(env, method, opts);
    if (status != CHOIR_OK)
        return status;
    env->device = choir__device_assigned(env->local_rank);
    if (env->device)
        return CHOIR_OK;
    choir_env_free(env);
    return CHOIR_ERR_DEVICE;
}

void choir_env_free(choir_env *env)
{
    if (!env)
        return;
    choir_group_free(env->group);
    env->group = NULL;
}
