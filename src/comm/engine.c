/* The registry of engines, and what they share. */
#include "comm/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/far.h"
#include "comm/hierarchy.h"
#include "comm/message/message.h"
#include "launch/launchers.h"
#include "comm/plugin.h"
#include "comm/shm/shm.h"

typedef struct choir__engine_entry {
    const char *name;
    choir_status (*open)(choir__meeting *meeting, choir__engine **engine);
} choir__engine_entry;

static choir_status open_ucx(choir__meeting *meeting, choir__engine **engine)
{
    choir__engine *whole;
    choir_status status = choir__plugin_engine("ucx", "libucx-dev", meeting, &whole);
    if (status == CHOIR_OK && choir__hierarchy_fits(meeting))
        return choir__hierarchy_open(whole, meeting, engine);
    if (status == CHOIR_OK)
        *engine = whole;
    return status;
}

static choir_status open_mpi(choir__meeting *meeting, choir__engine **engine)
{
    return choir__plugin_engine(choir__launcher_plugin(),
        "libopenmpi-dev (or libmpich-dev, to run under MPICH's mpirun)", meeting, engine);
}

/* Whether shared memory reaches all ranks; on whose machine it would not, else. */
static bool on_one_machine(const choir__meeting *m, int *other)
{
    for (int r = 1; m->members && r < m->world; r++)
        if (strcmp(m->members[r].machine, m->members[0].machine) != 0) {
            *other = r;
            return false;
        }
    return true;
}

/* Over the engine that there would be without GPUs, which is the group's from then on. */
static choir_status open_nccl(choir__meeting *meeting, choir__engine **engine)
{
    int other;
    choir_status status = on_one_machine(meeting, &other) ? choir__shm_open(meeting, engine)
                                                          : open_ucx(meeting, engine);
    if (status != CHOIR_OK)
        return status;
    choir__engine *host = *engine;
    status = choir__plugin_engine("nccl", "the CUDA toolkit and libnccl-dev", meeting, engine);
    if (status != CHOIR_OK && *engine == host) { /* it has not got there */
        char *why = choir__strdup(choir_error_message());
        host->ops->close(host);
        choir__error(status, "%s", why);
        free(why);
    }
    return status;
}

static const choir__engine_entry entries[] = {
    {"shm", choir__shm_open},
    {"ucx", open_ucx},
    {"mpi", open_mpi},
    {"nccl", open_nccl},
};

choir_status choir__engine_open(
    const char *name, choir__meeting *meeting, choir__engine **engine)
{
    int other = 0;
    bool near = on_one_machine(meeting, &other);
    if (!name && meeting->backend)
        name = meeting->backend;
    else if (!name)
        name = near ? "shm" : "ucx";
    else if (strcmp(name, "shm") == 0 && !near)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "backend shm reaches one machine, and rank %d is on %s, rank 0 on %s: use ucx",
            other, meeting->members[other].host, meeting->members[0].host);
    char list[64] = "";
    for (size_t i = 0; i < CHOIR_COUNT(entries); i++) {
        size_t used = strlen(list);
        if (strcmp(name, entries[i].name) == 0)
            return entries[i].open(meeting, engine);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", entries[i].name);
    }
    return choir__error(
        CHOIR_ERR_ARGUMENT, "there is no backend '%s': want one of %s", name, list);
}

void choir__engine_free(choir__engine *engine)
{
    free(engine->members);
    choir__executor_free(engine->executor);
    choir__staging_free(engine->staging);
    free(engine);
}

choir_status choir__engine_fail(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    va_list args;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    va_start(args, format);
    vsnprintf(engine->message, sizeof engine->message, format, args);
    va_end(args);
    return engine->failed = status;
}

choir_status choir__engine_spread(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    char sentence[sizeof engine->message];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (engine->ops->fail)
        return engine->ops->fail(engine, status, sentence);
    return choir__engine_fail(engine, status, "%s", sentence);
}

const char *choir__engine_peer(const choir__engine *engine, int rank, char text[160])
{
    const choir__member *m = engine->members ? &engine->members[rank] : NULL;
    if (!m)
        snprintf(text, 160, "rank %d", rank);
    else if (engine->nodes > 1)
        snprintf(text, 160, "rank %d (pid %d on %s)", rank, m->pid, m->host);
    else
        snprintf(text, 160, "rank %d (pid %d)", rank, m->pid);
    return text;
}

/* Nodes and local ranks counted anew within the sub-group. */
choir__member *choir__members_of(
    const choir__member *members, const int *ranks, int count, int *nodes)
{
    *nodes = 1;
    if (!members)
        return NULL;
    choir__member *mine = choir__calloc((size_t)count, sizeof *mine);
    *nodes = 0;
    for (int i = 0; i < count; i++) {
        int before = i - 1;
        mine[i] = members[ranks[i]];
        while (before >= 0 && members[ranks[before]].node != members[ranks[i]].node)
            before--;
        mine[i].node = before < 0 ? (*nodes)++ : mine[before].node;
        mine[i].local_rank = before < 0 ? 0 : mine[before].local_rank + 1;
    }
    return mine;
}
