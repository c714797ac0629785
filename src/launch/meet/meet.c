/* Meeting: determines this rank's place and runs the method.
 *
 * All methods but one end in a store that rank 0 serves (meet/store.c). If all ranks are on
 * this machine and their engine is shared memory, the job's name suffices: the engine's own
 * rendezvous (shm/rendezvous.c) is the meeting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <sodium.h>

#include "base/base.h"
#include "launch/launchers.h"
#include "launch/meet/meet.h"
#include "launch/process/job.h"
#include "launch/store/net.h"

/* Finds the launcher, as far as the method allows it. l->name NULL: none. */
static choir_status find_launcher(const char *method, choir__launcher *l)
{
    bool env = method && !strcmp(method, "env://"), mpi = method && !strcmp(method, "mpi://");
    int world = 1;
    if (choir__launcher_find(mpi, l) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (mpi && !l->name)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "mpi:// joins what mpirun or srun started, and neither did start this: run 'mpirun "
            "-n 2 PROGRAM'");
    if (env && l->name && strcmp(l->name, "RANK") != 0)
        *l = (choir__launcher){0};
    if (!l->name && choir__variable_number("WORLD_SIZE", &world) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (!l->name && world > 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "WORLD_SIZE is %d and RANK is not set: set both, or neither", world);
    bool called = method && (!strncmp(method, "tcp://", 6) || !strncmp(method, "file://", 7));
    if (!l->name && !choir__variable("WORLD_SIZE") && called)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "to meet at '%s' this process must know which rank of how many it is: set RANK and "
            "WORLD_SIZE",
            method);
    return CHOIR_OK;
}

/* Sets this rank's number and the world size. */
static choir_status take_place(
    const char *method, const choir_group_opts *opts, choir__meeting *m, choir__launcher *l)
{
    bool ask = opts->rank < 0;
    *l = (choir__launcher){0};
    if (ask != (opts->world < 0))
        return choir__error(CHOIR_ERR_ARGUMENT, "rank %d of %d: give both, or neither (-1)",
            opts->rank, opts->world);
    if (ask && find_launcher(method, l) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (ask) {
        m->rank = l->name ? l->rank : 0;
        m->world = l->name ? l->world : 1;
    }
    if (m->world < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a group: expected 1 rank or more, got %d; begin with choir_group_defaults()",
            m->world);
    if (m->rank >= m->world)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "rank %d of %d: ranks count from 0", m->rank, m->world);
    if (!(m->timeout_s > 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "timeout_s: expected seconds above 0, got %g", m->timeout_s);
    if (ask && m->world > 1)
        choir__set_rank_label(m->rank);
    return CHOIR_OK;
}

/* --- at a port --- */

/* port 0: the port is torchrun's, and rank 0 takes another. */
static choir_status meet_at(
    choir__joining *j, const choir_group_opts *opts, const char *name, int port)
{
    choir_store_opts store = choir_store_defaults();
    choir__store_key *key;
    store.key_file = opts->key_file ? opts->key_file : choir__variable("CHOIR_KEY_FILE");
    choir_status status = choir__store_key_given(&store, &key);
    choir__meet_set_where(j, name, port);
    if (status == CHOIR_OK && !port)
        status = choir__meet_torchrun(j, name, key);
    else if (status == CHOIR_OK && j->meeting->rank == 0)
        status = choir__meet_host_at(j, name, port, key);
    else if (status == CHOIR_OK)
        status = choir__meet_call(j, name, port, key);
    choir__store_key_free(key);
    return status;
}

static choir_status meet_tcp(choir__joining *j, const choir_group_opts *opts, const char *text)
{
    char name[CHOIR__HOST_TEXT];
    int port = 0;
    if (choir__host_port(text, name, &port) != CHOIR_OK || !port)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at 'tcp://%s': expected tcp://host:port or tcp://[ipv6]:port, "
            "with a port of 1 to 65535",
            text);
    return meet_at(j, opts, name, port);
}

/* --- by the environment --- */

/* Meets on this machine, under the job's name. Uses a store only if the engine needs one. */
static choir_status meet_here(choir__joining *j)
{
    char name[64];
    choir_store_opts store = choir_store_defaults();
    if (j->need == CHOIR__NEEDS_NAME)
        return CHOIR_OK;
    snprintf(name, sizeof name, "unix:choir-store/%016llx",
        (unsigned long long)choir__job_hash(j->job));
    snprintf(j->where, sizeof j->where, "this machine (CHOIR_JOB)");
    store.bind = name;
    return j->meeting->rank == 0 ? choir__meet_host(j, store, NULL)
                                 : choir__meet_call(j, name, 0, NULL);
}

/* Returns true if a host's name means this machine alone. */
static bool is_loopback(const char *host)
{
    choir__address list[CHOIR__ADDRESSES_MAX];
    char why[200];
    bool again, here = true;
    int count = choir__net_resolve(host, 1, false, list, why, &again);
    for (int i = 0; i < count; i++)
        here = here && choir__net_is_here(&list[i]);
    return count && here;
}

/* Launchers give MASTER_ADDR as the machine's name, which is no loopback. Ranks that are all
 * here meet at one all the same, and so need no key. */
static choir_status meet_master(
    choir__joining *j, const choir_group_opts *opts, const choir__launcher *l)
{
    char host[CHOIR__HOST_TEXT];
    int port;
    if (!choir__variable("MASTER_ADDR"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%d ranks need a place to meet: set MASTER_ADDR and MASTER_PORT, or, on one "
            "machine, CHOIR_JOB to the same secret on all",
            j->meeting->world);
    if (choir__meet_master(host, &port) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    bool all_here = l->local_world == j->meeting->world && !is_loopback(host);
    return meet_at(j, opts, all_here ? "127.0.0.1" : host, l->agent_store ? 0 : port);
}

/* Meets by RANK and related variables. */
static choir_status meet_env(
    choir__joining *j, const choir_group_opts *opts, const choir__launcher *l)
{
    int world = j->meeting->world, local = l->local_world; /* local 0: unspecified */
    /* the caller gave both, so the environment does not matter */
    bool own = opts->job && opts->rank >= 0;
    bool here = j->job && (local == world || !choir__variable("MASTER_ADDR") || own);
    if (!here)
        return meet_master(j, opts, l);
    if (local > 0 && local != world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%d of %d ranks are on this machine: to meet the others, set MASTER_ADDR and "
            "MASTER_PORT to where rank 0 is to listen",
            local, world);
    return meet_here(j);
}

/* Meets by mpirun or srun: see launched.c. */
static choir_status meet_launched(
    choir__joining *j, const choir_group_opts *opts, const choir__launcher *l)
{
    const char *method = NULL;
    choir_status status = choir__meet_launched(l, opts, j->need, j->meeting, &method);
    if (status != CHOIR_OK || j->meeting->world == 1)
        return status;
    if (method)
        return meet_tcp(j, opts, method + strlen("tcp://"));
    j->job = j->meeting->job;
    return *j->job ? meet_here(j) : CHOIR_OK;
}

static choir_status keep_job(choir__joining *j)
{
    choir__meeting *m = j->meeting;
    if (!j->job)
        return CHOIR_OK;
    if (strlen(j->job) >= sizeof m->job)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the job's name: expected up to %zu bytes, got %zu", sizeof m->job - 1,
            strlen(j->job));
    memcpy(m->job, j->job, strlen(j->job) + 1);
    return CHOIR_OK;
}

choir_status choir__meet(
    const char *method, const choir_group_opts *opts, choir__meet_need need, choir__meeting *m)
{
    choir__launcher l;
    const char *job = opts->job ? opts->job : choir__variable("CHOIR_JOB");
    choir__joining j = {.meeting = m, .need = need, .job = job && *job ? job : NULL};
    *m = (choir__meeting){
        .rank = opts->rank, .world = opts->world, .timeout_s = opts->timeout_s, .nodes = 1};
    method = method && *method ? method : NULL;
    choir_status status = take_place(method, opts, m, &l);
    if (status != CHOIR_OK)
        return status;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    j.deadline = choir__now() + m->timeout_s;
    bool launched = l.name && strcmp(l.name, "RANK") != 0;
    bool tcp = method && !strncmp(method, "tcp://", 6);
    bool file = method && !strncmp(method, "file://", 7);
    j.path = file ? method + 7 : NULL;
    if (method && !tcp && !file && strcmp(method, "env://") && strcmp(method, "mpi://"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at '%s': expected env://, tcp://host:port, file://path or mpi://",
            method);
    if (launched && !tcp && !file)
        status = meet_launched(&j, opts, &l);
    else if (!tcp && !file && keep_job(&j) != CHOIR_OK)
        status = CHOIR_ERR_ARGUMENT;
    else if (m->world == 1) /* a group of one */
        status = CHOIR_OK;
    else if (tcp)
        status = meet_tcp(&j, opts, method + 6);
    else if (file)
        status = choir__meet_file(&j);
    else
        status = meet_env(&j, opts, &l);
    if (status != CHOIR_OK)
        choir__meeting_free(m);
    return status;
}
