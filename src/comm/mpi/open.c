/* Opening: ranks meet over MPI_COMM_WORLD, and a group gets its own communicator.
 *
 * A rank says hello to every process and waits for their hellos, so that missing ranks can be
 * named. Only then does it make the communicator, a call that blocks, but now all processes are
 * present. */
#include "comm/mpi/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/plugin.h"

static const choir__engine_ops ops;

typedef struct hello {
    int32_t rank, world;
    char version[24];
    choir__member member;
} hello;

/* --- memory --- */

static bool crowded(const choir__mpi *m)
{
    int here = 0;
    for (int r = 0; r < m->base.world && m->base.members; r++)
        here += m->base.members[r].node == m->base.members[m->base.rank].node;
    return here > sysconf(_SC_NPROCESSORS_ONLN);
}

static void *per_rank(const choir__mpi *m, size_t bytes)
{
    return choir__calloc((size_t)m->base.world, bytes);
}

static MPI_Request *requests(const choir__mpi *m, int each)
{
    MPI_Request *made = per_rank(m, (size_t)each * sizeof *made);
    for (int i = 0; i < each * m->base.world; i++)
        made[i] = MPI_REQUEST_NULL;
    return made;
}

/* Makes an engine, which takes over `members`. */
static choir__mpi *make(
    MPI_Comm comm, int rank, int world, double timeout_s, choir__member *members, int nodes)
{
    choir__mpi *m = choir__calloc(1, sizeof *m);
    m->base = (choir__engine){.ops = &ops,
        .rank = rank,
        .world = world,
        .timeout_s = timeout_s,
        .nodes = nodes,
        .members = members};
    m->comm = comm;
    m->spins = crowded(m) ? 10 : 2000;
    m->yields = crowded(m) ? 2000 : 500;
    m->sent = per_rank(m, CHOIR__MPI_ENTRY);
    m->entries = per_rank(m, CHOIR__MPI_ENTRY);
    m->requests = requests(m, 2);
    m->here.requests = requests(m, 1);
    m->fault.requests = requests(m, 1);
    m->goodbye.requests = requests(m, 1);
    m->heard = per_rank(m, sizeof *m->heard);
    m->left = per_rank(m, sizeof *m->left);
    m->scratch = aligned_alloc(64, CHOIR__REDUCE_SCRATCH);
    m->inbox_request = MPI_REQUEST_NULL;
    if (comm != MPI_COMM_NULL)
        MPI_Irecv(&m->inbox, sizeof m->inbox, MPI_BYTE, MPI_ANY_SOURCE, CHOIR__TAG_LETTER, comm,
            &m->inbox_request);
    return m;
}

static void mpi_close(choir__engine *engine)
{
    choir__mpi *m = (choir__mpi *)engine;
    choir__mpi_count(-1, engine->failed);
    if (!choir__mpi_abandoned()) {
        choir__mpi_lock();
        m->goodbye.letter = (choir__mpi_letter){.mood = CHOIR__MPI_LEFT, .seq = m->base.seq};
        choir__mpi_post(m, &m->goodbye);
        choir__mpi_unlock();
    }
    choir__mpi_bury(m);
}

/* --- meeting --- */

/* Describes this process. The machine's text is equal where shared memory reaches: one kernel,
 * one network namespace. */
static void describe(choir__member *me)
{
    char boot[40] = "", net[32] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(boot, sizeof boot, f))
            boot[0] = 0;
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = 0;
    ssize_t n = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[n > 0 ? n : 0] = 0;
    me->pid = getpid();
    gethostname(me->host, sizeof me->host - 1);
    snprintf(me->machine, sizeof me->machine, "%s %s", boot, net);
}

/* Assigns processes to the job's ranks, which need not be MPI's. */
static choir_status seat(choir__mpi *lobby, const hello *all, choir__member *members, int *at)
{
    int world = lobby->base.world;
    for (int i = 0; i < world; i++)
        at[i] = -1;
    for (int i = 0; i < world; i++) {
        const hello *h = &all[i];
        if (strcmp(h->version, CHOIR_VERSION) != 0)
            return choir__mpi_fail(lobby, CHOIR_ERR_MISMATCH,
                "rank %d runs Choir %.23s, and rank %d Choir %s: use one version", h->rank,
                h->version, all[lobby->base.rank].rank, CHOIR_VERSION);
        if (h->world != world || h->rank < 0 || h->rank >= world)
            return choir__mpi_fail(lobby, CHOIR_ERR_MISMATCH,
                "a rank %d of %d joined where MPI counts %d ranks: start all of them with one "
                "mpirun",
                h->rank, h->world, world);
        if (at[h->rank] >= 0)
            return choir__mpi_fail(lobby, CHOIR_ERR_MISMATCH,
                "two processes, pid %d on %s and pid %d on %s, say they are rank %d",
                members[h->rank].pid, members[h->rank].host, h->member.pid, h->member.host,
                h->rank);
        at[h->rank] = i;
        members[h->rank] = h->member;
        members[h->rank].job_rank = h->rank;
    }
    return CHOIR_OK;
}

static void count_nodes(choir__member *members, int world, int *nodes)
{
    *nodes = 0;
    for (int i = 0; i < world; i++) {
        int before = i - 1;
        while (before >= 0 && strcmp(members[before].machine, members[i].machine) != 0)
            before--;
        members[i].node = before < 0 ? (*nodes)++ : members[before].node;
        members[i].local_rank = before < 0 ? 0 : members[before].local_rank + 1;
    }
}

/* Makes an engine over all processes, by MPI's own ranks, until the job's ranks are known. It
 * has no inbox. */
static choir__mpi *open_lobby(double timeout_s)
{
    int rank, world;
    MPI_Comm_rank(choir__mpi_home(), &rank);
    MPI_Comm_size(choir__mpi_home(), &world);
    choir__mpi *lobby = make(MPI_COMM_NULL, rank, world, timeout_s, NULL, 1);
    lobby->told = true; /* no peer can be notified yet */
    return lobby;
}

/* Receives use the first half of requests, sends the second. what: (world) the ranks that are
 * awaited. */
static bool poll_hellos(choir__mpi *lobby, void *what)
{
    bool *awaited = what, all = true;
    for (int r = 0, done; r < 2 * lobby->base.world; r++) {
        MPI_Test(&lobby->requests[r], &done, MPI_STATUS_IGNORE);
        if (r < lobby->base.world)
            awaited[r] = !done;
        all = all && done;
    }
    return all;
}

static choir_status say_hello(choir__mpi *lobby, const hello *mine, hello *all)
{
    int rc = MPI_SUCCESS, world = lobby->base.world;
    choir__mpi_lock();
    for (int r = 0; r < world && !rc; r++) {
        rc = MPI_Irecv(&all[r], sizeof all[r], MPI_BYTE, r, CHOIR__TAG_HELLO, choir__mpi_home(),
            &lobby->requests[r]);
        if (!rc)
            rc = MPI_Isend(mine, sizeof *mine, MPI_BYTE, r, CHOIR__TAG_HELLO, choir__mpi_home(),
                &lobby->requests[world + r]);
    }
    choir__mpi_unlock();
    choir_status status = rc ? choir__mpi_error(lobby, rc)
                             : choir__mpi_until(lobby, poll_hellos, lobby->left, lobby->left);
    if (status != CHOIR_OK) {
        choir__mpi_lock();
        choir__mpi_call_back(lobby->requests, 2 * world);
        choir__mpi_unlock();
    }
    return status;
}

/* Makes the communicator of `count` ranks of `parent`: at[] maps each to its rank there. */
static int make_comm(MPI_Comm parent, const int *at, int count, int tag, MPI_Comm *comm)
{
    MPI_Group all, some;
    choir__mpi_lock();
    int rc = MPI_Comm_group(parent, &all);
    if (!rc) {
        rc = MPI_Group_incl(all, count, at, &some);
        if (!rc) {
            rc = MPI_Comm_create_group(parent, some, tag, comm);
            MPI_Group_free(&some);
        }
        MPI_Group_free(&all);
    }
    if (!rc)
        MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    choir__mpi_unlock();
    return rc;
}

static choir_status meet(const choir__meeting *meeting, choir__mpi *lobby, choir__mpi **made)
{
    int world = lobby->base.world, nodes;
    MPI_Comm comm = MPI_COMM_NULL;
    hello mine = {.rank = meeting->rank, .world = meeting->world, .version = CHOIR_VERSION};
    hello *all = choir__calloc((size_t)world, sizeof *all);
    choir__member *members = choir__calloc((size_t)world, sizeof *members);
    int *at = choir__calloc((size_t)world, sizeof *at);
    describe(&mine.member);
    choir_status status = say_hello(lobby, &mine, all);
    if (status == CHOIR_OK)
        status = seat(lobby, all, members, at);
    if (status == CHOIR_OK) {
        int rc = make_comm(choir__mpi_home(), at, world, 0, &comm);
        status = rc ? choir__mpi_error(lobby, rc) : CHOIR_OK;
    }
    if (status == CHOIR_OK) {
        count_nodes(members, world, &nodes);
        choir__mpi_lock();
        *made = make(comm, meeting->rank, world, meeting->timeout_s, members, nodes);
        choir__mpi_unlock();
        members = NULL;
    }
    free(members);
    free(all);
    free(at);
    return status;
}

choir_status choir__plugin_open(choir__meeting *meeting, choir__engine **engine)
{
    choir__mpi *made = NULL;
    choir_status status = choir__mpi_start(meeting->timeout_s);
    if (status != CHOIR_OK)
        return status;
    choir__mpi_bury(NULL); /* frees those that can be freed by now */
    choir__mpi *lobby = open_lobby(meeting->timeout_s);
    status = meet(meeting, lobby, &made);
    if (status != CHOIR_OK)
        choir__error(status, "%s", lobby->base.message);
    choir__mpi_count(0, lobby->base.failed);
    choir__mpi_free(lobby);
    if (status != CHOIR_OK)
        return status;
    choir__mpi_count(+1, CHOIR_OK);
    *engine = &made->base;
    return CHOIR_OK;
}

/* All members are here: the parent's all-gather of colors has just shown it. */
static choir_status mpi_split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    choir__mpi *m = (choir__mpi *)engine, *made;
    int nodes;
    MPI_Comm comm;
    if (choir__mpi_abandoned())
        return choir__mpi_fail(m, CHOIR_ERR_STATE, "another group of this process has failed");
    int tag = CHOIR__TAG_SPLIT + color % 32000; /* MPI guarantees tags up to 32767 */
    int rc = make_comm(m->comm, ranks, count, tag, &comm);
    if (rc)
        return choir__mpi_error(m, rc);
    choir__member *members = choir__members_of(engine->members, ranks, count, &nodes);
    choir__mpi_lock();
    made = make(comm, rank, count, engine->timeout_s, members, nodes);
    choir__mpi_unlock();
    choir__mpi_count(+1, CHOIR_OK);
    *child = &made->base;
    return CHOIR_OK;
}

static choir_status mpi_fail(choir__engine *engine, choir_status status, const char *sentence)
{
    return choir__mpi_fail((choir__mpi *)engine, status, "%s", sentence);
}

static const choir__engine_ops ops = {
    .name = "mpi",
    .close = mpi_close,
    .run = choir__mpi_run,
    .run_batch = choir__mpi_batch,
    .split = mpi_split,
    .send = choir__mpi_send,
    .receive = choir__mpi_receive,
    .wait = choir__mpi_wait_all,
    .fail = mpi_fail,
};
