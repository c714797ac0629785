/* A group: a queue, and the engine that runs its collectives. This file opens and frees groups,
 * and answers queries about them.
 *
 * A call is checked (collectives.c), stored in a choir__call and queued (issue.c); the engine
 * runs it (run.c) on the thread that serves the queue. So the collectives of a group run in the
 * order in which they were issued, relative to each other and to the device events for which
 * strategies make the queue wait. */
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/dry/dry.h"
#include "comm/issue.h"
#include "comm/shared.h"
#include "device/device.h"
#include "device/queue_run.h"
#include "launch/launchers.h"

/* The queue's worker leaves tasks to a waiting thread for this long. A rank often has one core,
 * which its device is using: reducing in the background of a short backward costs more in
 * context switches (3 % of a step of 22 ms) than it hides. Long steps benefit. */
enum { PATIENCE_US = 20000 };

/* --- opening --- */

choir_group_opts choir_group_defaults(void)
{
    return (choir_group_opts){.rank = -1, .world = -1, .timeout_s = 1800};
}

/* Puts the names of the job's machines on this process's board (`choir top` reads it). */
static void show_machines(const choir__engine *engine)
{
    char names[CHOIR__FLIGHT_MACHINES][64] = {{0}};
    int count = 0;
    for (int r = 0; engine->nodes > 1 && engine->members && r < engine->world; r++) {
        bool known = false;
        for (int i = 0; i < count && !known; i++)
            known = !strcmp(names[i], engine->members[r].host);
        if (!known && count < CHOIR__FLIGHT_MACHINES)
            snprintf(names[count++], sizeof *names, "%s", engine->members[r].host);
    }
    choir__flight_machines((const char(*)[64])names, count > 1 ? count : 0);
}

choir_group *choir__group_new(choir__engine *engine, choir__group_job *job, const char *name)
{
    choir_group *group = choir__calloc(1, sizeof *group);
    group->engine = engine;
    group->job = job;
    atomic_fetch_add(&job->groups, 1);
    pthread_mutex_init(&group->kept_lock, NULL);
    snprintf(group->name, sizeof group->name, "%s", name);
    engine->name = group->name;
    if (!choir__is_dry_engine(engine))
        group->log =
            choir__flight_log_open(name, engine->ops->name, engine->rank, engine->world);
    group->queue = choir__queue_new((choir__queue_opts){.name = "group",
        .patience_us = PATIENCE_US,
        .gauges = choir__flight_log_gauges(group->log),
        .timed = group->log != NULL,
        .stream = engine->stream,
        .capturable = engine->stream ? choir__group_capturable : NULL});
    engine->queue = group->queue;
    if (choir__is_dry_engine(engine))
        choir__queue_run_as_issued(group->queue);
    return group;
}

choir_status choir_group_init(const char *method, choir_group_opts opts, choir_group **group)
{
    if (!group)
        return choir__missing(__func__, "group");
    return choir__group_open(method, opts, NULL, group);
}

choir_status choir__group_open(
    const char *method, choir_group_opts opts, bool (*stale)(void), choir_group **group)
{
    choir__engine *engine = NULL;
    choir__algorithm algorithm;
    if (choir__algorithm_parse(opts.algorithm ? opts.algorithm : "auto", &algorithm) !=
        CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    choir__group_job *job = choir__calloc(1, sizeof *job);
    const char *backend = opts.backend ? opts.backend : getenv("CHOIR_BACKEND");
    backend = backend && *backend ? backend : NULL;
    choir_status status = choir__dry_named(backend)
                              ? choir__dry_open(&opts, &engine)
                              : choir__meet(method ? method : getenv("CHOIR_INIT"), &opts,
                                    choir__engine_need(backend), &job->meeting);
    job->meeting.device = opts.device;
    job->meeting.stale = stale;
    if (status == CHOIR_OK && !engine)
        status = choir__engine_open(backend, &job->meeting, &engine);
    job->meeting.device = NULL; /* the caller owns it */
    if (status != CHOIR_OK) {
        choir__meeting_linger(&job->meeting);
        choir__meeting_free(&job->meeting);
        free(job);
        return status;
    }
    const char *name = *job->meeting.job ? job->meeting.job : job->meeting.launched;
    if (*name) {
        choir__flight_job(name, engine->rank, engine->world, choir__launcher_generation());
        show_machines(engine);
    }
    *group = choir__group_new(engine, job, "world");
    (*group)->algorithm = algorithm;
    return CHOIR_OK;
}

void choir_group_free(choir_group *group)
{
    if (!group)
        return;
    choir__shared_free(group->scratch);
    choir__queue_hold(group->queue); /* a watcher of the group may still break the queue */
    choir__queue_free(group->queue);
    for (choir__shared *s = group->shareds; s; s = s->other)
        s->group = NULL;
    choir__flight_log_close(group->log);
    if (group->engine->failed != CHOIR_OK)
        atomic_store(&group->job->failed, true);
    group->engine->ops->close(group->engine);
    choir__queue_let_go(group->queue);
    if (atomic_fetch_sub(&group->job->groups, 1) == 1) {
        if (atomic_load(&group->job->failed))
            choir__meeting_linger(&group->job->meeting);
        choir__meeting_free(&group->job->meeting);
        free(group->job);
    }
    choir__group_drop_all(group); /* references of recorded calls, or of calls that never ran */
    pthread_mutex_destroy(&group->kept_lock);
    free(group->batch);
    free(group);
}

/* --- what a group is --- */

int choir_group_rank(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    return group->engine->rank;
}

int choir_group_world(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    return group->engine->world;
}

static const choir__member *member(const choir_group *group, int rank)
{
    const choir__engine *e = group->engine;
    return e->members ? &e->members[rank < 0 ? e->rank : rank] : NULL;
}

int choir_group_node(const choir_group *group, int rank)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    const choir__member *m = member(group, rank);
    return m ? m->node : 0;
}

int choir_group_nodes(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    return group->engine->nodes;
}

int choir_group_local_rank(const choir_group *group, int rank)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    const choir__member *m = member(group, rank);
    return m ? m->local_rank : rank < 0 ? group->engine->rank : rank;
}

int choir_group_local_world(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    int count = 0;
    for (int r = 0; r < group->engine->world; r++)
        count += choir_group_node(group, r) == choir_group_node(group, -1);
    return count;
}

const char *choir_group_backend(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return NULL;
    return group->engine->ops->name;
}

choir__queue *choir__group_queue(choir_group *group)
{
    return group->queue;
}

bool choir__group_shares(const choir_group *group)
{
    return group->engine->ops->share != NULL;
}

uint64_t choir_group_bytes(const choir_group *group)
{
    if (choir__lacks(group, __func__, "group"))
        return 0;
    return atomic_load_explicit(&group->engine->bytes, memory_order_relaxed);
}

choir_status choir_group_algorithm(choir_group *group, const char *name)
{
    if (!group)
        return choir__missing(__func__, "group");
    return choir__algorithm_parse(name ? name : "auto", &group->algorithm);
}

/* --- events --- */

choir_status choir_work_wait(choir_work work)
{
    return choir__event_wait((choir__event){work.queue, work.place});
}

bool choir_work_done(choir_work work)
{
    return choir__event_done((choir__event){work.queue, work.place});
}

choir_status choir_group_wait_device(choir_group *group, choir_device *device)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!device)
        return choir__missing(__func__, "device");
    return choir__queue_wait_event(group->queue, choir__queue_record(device->queue));
}

choir_status choir_device_wait_work(choir_device *device, choir_work work)
{
    if (!device)
        return choir__missing(__func__, "device");
    return choir__queue_wait_event(device->queue, (choir__event){work.queue, work.place});
}
