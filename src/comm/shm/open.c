/* Opening and closing a group of one machine.
 *
 * Once the ranks are connected, there are two exchanges: first each rank's pidfd (so that every
 * rank detects the end of every other without trusting process numbers, where the kernel has
 * pidfds), then the memory that they share: rank 0's control segment, and the memory for
 * messages. */
#include "comm/reduce.h"
#include "comm/shm/numa.h"
#include "comm/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files/mapping.h"
#include "base/process/watch.h"
#include "launch/process/job.h"

static choir_status trade_pidfds(choir__shm *shm)
{
    choir__offer mine = {.pid = getpid()}, offers[CHOIR__MAX_WORLD];
    mine.node = choir__numa_node(shm->base.rank, shm->base.world);
    int pidfds[CHOIR__MAX_WORLD], self = choir__process_pidfd();
    choir_status status = choir__shm_exchange(shm, &mine, self, offers, pidfds);
    if (self >= 0)
        close(self);
    if (status != CHOIR_OK)
        return status;
    choir__shm_close_all(shm->pidfds, shm->base.world); /* inherited from the parent */
    memcpy(shm->pidfds, pidfds, sizeof pidfds);
    for (int r = 0; r < shm->base.world && status == CHOIR_OK; r++) {
        shm->pids[r] = offers[r].pid;
        shm->numa[r] = offers[r].node;
        if (r != shm->base.rank && shm->pidfds[r] < 0 &&
            (shm->pidfds[r] = choir__process_watch(offers[r].pid)) < 0)
            status = choir__shm_fail(shm, CHOIR_ERR_UNSUPPORTED,
                "rank %d (pid %d) cannot be watched by rank %d: %s; before Linux 5.3, ranks "
                "must see each other's processes in /proc",
                r, (int)offers[r].pid, shm->base.rank, choir__why(errno));
    }
    choir__numa_levels(shm, shm->numa);
    return status;
}

/* Places each rank's staging area on its own memory node. (Memory of choir__shared is allocated
 * by the ranks themselves.) */
static void place_staging(const choir__shm *shm, char *at)
{
    char *staging = at + (shm->control_bytes - (size_t)shm->base.world * 3 * CHOIR__CHUNK);
    for (int r = 0; r < shm->base.world; r++)
        choir__numa_place(
            staging + (size_t)r * 3 * CHOIR__CHUNK, (size_t)3 * CHOIR__CHUNK, shm->numa[r]);
}

/* Replaces the private stand-in, which carried failures so far, by the segment that all ranks
 * share. Also maps the memory for messages, which rank 1 creates. */
static choir_status share_control(choir__shm *shm)
{
    choir__offer mine = {0}, offers[CHOIR__MAX_WORLD];
    int fds[CHOIR__MAX_WORLD], fd = -1;
    bool one = shm->per_node == shm->base.world;
    if (shm->base.rank == 0)
        fd = choir__shm_memory(shm, shm->control_bytes, one ? NULL : place_staging, mine.text);
    if (shm->base.rank == 1)
        fd = choir__messages_memory(shm->base.world, mine.text);
    if (shm->base.rank < 2 && fd < 0)
        mine.status = CHOIR_ERR_MEMORY;
    if (choir__shm_exchange(shm, &mine, fd, offers, fds) != CHOIR_OK)
        goto out;
    bool made = fds[0] >= 0 && fds[1] >= 0;
    void *p = made ? choir__memfd_map(fds[0], shm->control_bytes) : NULL;
    if (p) {
        munmap(shm->control, shm->control_bytes);
        shm->control = p;
        shm->me = &shm->control->slots[shm->base.rank];
    }
    if (!p || !choir__messages_map(shm, fds[1]))
        choir__shm_fail(shm, CHOIR_ERR_MEMORY, "cannot share %zu bytes between the ranks: %s",
            shm->control_bytes,
            made               ? choir__why(errno)
            : offers[0].status ? offers[0].text
                               : offers[1].text);
    choir__shm_close_all(fds, shm->base.world);
out:
    if (fd >= 0)
        close(fd);
    return shm->base.failed;
}

static void close_shm(choir__engine *engine)
{
    choir__shm *shm = (choir__shm *)engine;
    choir__shm_orphan(shm);
    if (shm->me)
        atomic_store(&shm->me->left, 1); /* waiting ranks see it within 50 ms */
    choir__shm_close_all(shm->sockets, CHOIR__MAX_WORLD);
    choir__shm_close_all(shm->pidfds, CHOIR__MAX_WORLD);
    if (shm->control)
        munmap(shm->control, shm->control_bytes);
    choir__messages_free(shm->messages, shm->base.world);
    pthread_mutex_destroy(&shm->lock);
    free(shm->scratch);
    free(shm->nodes);
    free(shm->sources);
    free(shm->owners);
    choir__engine_free(engine);
}

/* Opens a sub-group, which has this table, too. */
static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child);

static const choir__engine_ops shm_ops = {
    .name = "shm",
    .close = close_shm,
    .run = choir__shm_run,
    .run_batch = choir__shm_batch,
    .split = split,
    .send = choir__shm_send,
    .receive = choir__shm_receive,
    .wait = choir__shm_wait_messages,
    .fail = choir__shm_spread,
    .abort = choir__shm_abort,
    .share = choir__shm_share,
    .look = choir__shm_look,
};

/* Fills in the ranks' own information on their processes if the meeting had none. */
static void fill_members(choir__shm *shm)
{
    if (shm->base.members)
        return;
    shm->base.members = choir__calloc((size_t)shm->base.world, sizeof *shm->base.members);
    for (int r = 0; r < shm->base.world; r++)
        shm->base.members[r] =
            (choir__member){.pid = shm->pids[r], .local_rank = r, .job_rank = r};
}

/* Lets the ranks meet. On failure, shm is released and the message is the calling thread's. */
static choir_status meet(choir__shm *shm, choir__engine **opened)
{
    int rank = shm->base.rank, world = shm->base.world;
    bool crowded = world > sysconf(_SC_NPROCESSORS_ONLN);
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE); /* 0: unknown */
    size_t slots = (sizeof(choir__control) + 4095) / 4096 * 4096;
    shm->cache_bytes = cache > 0 ? (size_t)cache : (size_t)32 << 20;
    shm->spins = crowded ? 20 : 2000;
    shm->yields = crowded ? 8 : 100;
    shm->per_node = world;
    shm->pids[rank] = getpid();
    pthread_mutex_init(&shm->lock, NULL);
    shm->control_bytes = slots + (world > 1 ? (size_t)world * 3 * CHOIR__CHUNK : 0);
    shm->control = mmap(NULL, shm->control_bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shm->control == MAP_FAILED) {
        shm->control = NULL;
        close_shm(&shm->base);
        return choir__error(CHOIR_ERR_MEMORY, "cannot map a group of %d ranks", world);
    }
    shm->me = &shm->control->slots[rank];
    shm->scratch = aligned_alloc(64, CHOIR__REDUCE_SCRATCH); /* untouched pages cost nothing */
    if (!shm->scratch) {
        close_shm(&shm->base);
        return choir__error(
            CHOIR_ERR_MEMORY, "cannot allocate %d bytes", CHOIR__REDUCE_SCRATCH);
    }
    if (world > 1) {
        if (choir__shm_call_together(shm) != CHOIR_OK || trade_pidfds(shm) != CHOIR_OK ||
            share_control(shm) != CHOIR_OK) {
            choir__error(shm->base.failed, "%s", shm->base.message);
            choir_status status = shm->base.failed;
            close_shm(&shm->base);
            return status;
        }
    }
    fill_members(shm);
    shm->parent = NULL; /* the parent may be closed first */
    shm->stale = NULL;
    shm->parent_numbers = NULL;
    *opened = &shm->base;
    return CHOIR_OK;
}

static choir__shm *new_shm(int rank, int world, double timeout_s)
{
    choir__shm *shm = choir__calloc(1, sizeof *shm);
    shm->base = (choir__engine){
        .ops = &shm_ops, .rank = rank, .world = world, .nodes = 1, .timeout_s = timeout_s};
    for (int r = 0; r < CHOIR__MAX_WORLD; r++)
        shm->sockets[r] = shm->pidfds[r] = -1;
    return shm;
}

choir_status choir__shm_open(choir__meeting *m, choir__engine **engine)
{
    if (m->world > CHOIR__MAX_WORLD)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a group in shared memory: expected 1 to %d ranks, got %d", CHOIR__MAX_WORLD,
            m->world);
    choir__shm *shm = new_shm(m->rank, m->world, m->timeout_s);
    snprintf(shm->job, sizeof shm->job, "%s", m->job);
    shm->stale = m->stale;
    if (m->members) {
        shm->base.members = choir__calloc((size_t)m->world, sizeof *m->members);
        memcpy(shm->base.members, m->members, (size_t)m->world * sizeof *m->members);
    }
    return meet(shm, engine);
}

/* Opens a group of its own, under a name that only its members know. */
static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    choir__shm *parent = (choir__shm *)engine;
    choir__shm *shm = new_shm(rank, count, engine->timeout_s);
    int used = snprintf(shm->job, sizeof shm->job, "%.100s", parent->job);
    /* seq: number of the call in which all ranks announced their colors, with or without a
     * sub-group. */
    snprintf(shm->job + used, sizeof shm->job - (size_t)used, "/%u.%d/%08x", engine->seq, color,
        (unsigned)choir__job_hash(parent->job));
    shm->base.members = choir__members_of(engine->members, ranks, count, &shm->base.nodes);
    for (int r = 0; r < count; r++) {
        shm->pids[r] = parent->pids[ranks[r]];
        if (parent->pidfds[ranks[r]] >= 0)
            shm->pidfds[r] = fcntl(parent->pidfds[ranks[r]], F_DUPFD_CLOEXEC, 0);
    }
    shm->parent = parent;
    int *numbers = choir__calloc((size_t)count, sizeof *numbers); /* while the ranks meet */
    for (int r = 0; r < count; r++)
        numbers[r] = choir__engine_number(engine, ranks[r]);
    shm->parent_numbers = numbers;
    choir_status status = meet(shm, child);
    free(numbers);
    if (choir__is_loss(status)) /* all name one rank */
        choir__shm_fail(parent, status, "%s", choir__message());
    return status;
}
