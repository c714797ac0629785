/* How the ranks of a machine meet and pass descriptors to one another.
 *
 * Rank 0 listens, the others connect to it, and the connections stay open: a star. One
 * operation runs over it, the exchange: every rank sends rank 0 an offer and at most one
 * descriptor; rank 0 sends all of them to every rank.
 *
 * Rank 0 closes its listener before it answers any rank, so a rank that opens the next group of
 * the same job cannot connect to the old one. A failure of rank 0 is sent down the star as a
 * sentence. */
#include "comm/flight/flight.h"
#include "comm/shm/shm.h"
#include "comm/shm/socket.h"
#include "launch/process/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double LATECOMERS_S = 3; /* how long rank 0 reports a failed meeting */

typedef struct letter { /* rank 0's answer */
    int32_t status;
    char text[300];
    choir__offer offers[CHOIR__MAX_WORLD];
} letter;

void choir__shm_close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int pid_of(const choir__shm *shm, int rank)
{
    return shm->pids[rank] ? shm->pids[rank] : choir__socket_peer_pid(shm->sockets[rank]);
}

/* Returns a rank other than this one that is known to be dead; `otherwise` if none is known.
 * Members of a sub-group know each other's processes from the start. */
static int dead_but(const choir__shm *shm, int rank, int otherwise)
{
    for (int r = 0; r < shm->base.world; r++)
        if (r != rank && choir__shm_dead(shm, r))
            return r;
    return otherwise;
}

/* Adopts a failure of the parent group: a sub-group's members learn there what others have
 * found. Fails, too, if the list of ranks that meet is out of date. */
static choir_status outer_fault(choir__shm *shm)
{
    if (shm->stale && shm->stale())
        return choir__shm_fail(
            shm, CHOIR_ERR_PEER_LOST, "a rank has left the job while the group was meeting");
    choir_status status = shm->parent ? choir__shm_fault(shm->parent) : CHOIR_OK;
    return status != CHOIR_OK ? choir__shm_fail(shm, status, "%s", shm->parent->base.message)
                              : CHOIR_OK;
}

/* Returns a rank's number for sentences. While the ranks of a sub-group meet, it
 * is the parent's, which reports the sentence, too. */
static int number_of(const choir__shm *shm, int rank)
{
    return shm->parent_numbers ? shm->parent_numbers[rank] : rank;
}

/* Reports that a rank is gone. It may have given up because another rank had died, and a killed
 * process closes its sockets slightly before it counts as dead. */
static choir_status lost(choir__shm *shm, int rank)
{
    struct pollfd process = {.fd = shm->pidfds[rank], .events = POLLIN};
    if (outer_fault(shm) != CHOIR_OK)
        return shm->base.failed;
    if (process.fd >= 0 && poll(&process, 1, 200) != 1)
        rank = dead_but(shm, rank, rank);
    return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST,
        "rank %d (pid %d) died or gave up while the group was meeting", number_of(shm, rank),
        pid_of(shm, rank));
}

/* Returns "2", or "2 (pid 77)", or "2 (pid 77, stopped (SIGSTOP))". */
static const char *known_as(int rank, int pid, char text[80])
{
    const char *state = pid ? choir__state_text(choir__process_state(pid)) : "";
    if (pid)
        snprintf(text, 80, "%d (pid %d%s%s)", rank, pid, *state ? ", " : "", state);
    else
        snprintf(text, 80, "%d", rank);
    return text;
}

static choir_status no_answer(choir__shm *shm, int rank)
{
    char who[80];
    return choir__shm_fail(shm, CHOIR_ERR_TIMEOUT,
        "rank %s did not answer within %g s while the group was meeting",
        known_as(number_of(shm, rank), pid_of(shm, rank), who), shm->base.timeout_s);
}

/* Reports to a rank why rank 0 gave up. */
static void tell(choir__shm *shm, int fd)
{
    letter *out = choir__calloc(1, sizeof *out);
    out->status = shm->base.failed;
    snprintf(out->text, sizeof out->text, "%.299s", shm->base.message);
    choir__socket_send(fd, out, sizeof *out, NULL, 0);
    free(out);
}

static void tell_all(choir__shm *shm)
{
    for (int r = 1; r < shm->base.world; r++)
        if (shm->sockets[r] >= 0)
            tell(shm, shm->sockets[r]);
}

choir_status choir__shm_last_words(choir__shm *shm)
{
    struct pollfd ready = {.fd = shm->base.rank ? shm->sockets[0] : -1, .events = POLLIN};
    int passed[CHOIR__MAX_WORLD], count = 0;
    if (ready.fd < 0 || poll(&ready, 1, 0) != 1 || !(ready.revents & POLLIN))
        return CHOIR_OK;
    letter *in = choir__calloc(1, sizeof *in);
    choir_status status = CHOIR_OK;
    if (choir__socket_receive(ready.fd, in, sizeof *in, passed, CHOIR__MAX_WORLD, &count) &&
        in->status)
        status = choir__shm_fail(shm, (choir_status)in->status, "%.299s", in->text);
    choir__shm_close_all(passed, count);
    free(in);
    return status;
}

/* Receives a message of a rank, which arrives unless that rank dies. */
static choir_status receive(choir__shm *shm, int rank, void *data, size_t bytes, int *fds,
    int fd_room, int *fd_count, double deadline)
{
    for (;;) {
        struct pollfd ready = {.fd = shm->sockets[rank], .events = POLLIN};
        int n = poll(&ready, 1, 50);
        if (n > 0) {
            if ((ready.revents & POLLIN) &&
                choir__socket_receive(ready.fd, data, bytes, fds, fd_room, fd_count))
                return CHOIR_OK;
            return lost(shm, rank);
        }
        if (choir__shm_fault(shm) != CHOIR_OK || outer_fault(shm) != CHOIR_OK)
            return shm->base.failed;
        if (choir__shm_dead(shm, rank))
            return lost(shm, rank);
        if (choir__now() > deadline)
            return no_answer(shm, rank);
    }
}

/* The kernel drops descriptors that come to a process which may not open more of them. */
static choir_status few_descriptors(choir__shm *shm)
{
    return choir__shm_fail(shm, CHOIR_ERR_IO,
        "rank %d of %d cannot take the descriptors of shared memory: %s",
        number_of(shm, shm->base.rank), shm->base.world, choir__why(EMFILE));
}

static choir_status exchange_at_root(choir__shm *shm, letter *all, int fds[], double deadline)
{
    int passed[CHOIR__MAX_WORLD], passed_count = 0;
    for (int r = 1; r < shm->base.world; r++) {
        int got = 0;
        if (receive(shm, r, &all->offers[r], sizeof all->offers[r], &fds[r], 1, &got,
                deadline) != CHOIR_OK) {
            tell_all(shm);
            return shm->base.failed;
        }
        if (all->offers[r].has_fd > got) {
            few_descriptors(shm);
            tell_all(shm);
            return shm->base.failed;
        }
    }
    for (int r = 0; r < shm->base.world; r++)
        if (all->offers[r].has_fd)
            passed[passed_count++] = fds[r];
    for (int r = 1; r < shm->base.world; r++)
        if (!choir__socket_send(shm->sockets[r], all, sizeof *all, passed, passed_count)) {
            lost(shm, r);
            tell_all(shm);
            return shm->base.failed;
        }
    return CHOIR_OK;
}

static choir_status exchange_below(
    choir__shm *shm, const choir__offer *mine, int fd, letter *all, int fds[], double deadline)
{
    int passed[CHOIR__MAX_WORLD], passed_count = 0, next = 0;
    choir__offer offer = *mine;
    offer.has_fd = fd >= 0;
    if (!choir__socket_send(shm->sockets[0], &offer, sizeof offer, &fd, fd >= 0) &&
        errno != EPIPE && errno != ECONNRESET) /* gone: its last message may have arrived */
        return lost(shm, 0);
    /* Waits slightly longer than rank 0, which can say which rank is missing. */
    if (receive(shm, 0, all, sizeof *all, passed, CHOIR__MAX_WORLD, &passed_count,
            deadline + 2) != CHOIR_OK)
        return shm->base.failed;
    if (all->status) {
        choir__shm_close_all(passed, passed_count);
        return choir__shm_fail(shm, (choir_status)all->status, "%s", all->text);
    }
    for (int r = 0; r < shm->base.world; r++)
        fds[r] = all->offers[r].has_fd && next < passed_count ? passed[next++] : -1;
    for (int r = 0; r < shm->base.world; r++)
        if (all->offers[r].has_fd && fds[r] < 0)
            return few_descriptors(shm);
    return CHOIR_OK;
}

choir_status choir__shm_exchange(choir__shm *shm, const choir__offer *mine, int fd,
    choir__offer offers[CHOIR__MAX_WORLD], int fds[CHOIR__MAX_WORLD])
{
    double deadline = choir__now() + shm->base.timeout_s;
    letter *all = choir__calloc(1, sizeof *all);
    choir_status status;
    for (int r = 0; r < CHOIR__MAX_WORLD; r++)
        fds[r] = -1;
    if (shm->base.rank == 0) {
        all->offers[0] = *mine;
        all->offers[0].has_fd = fd >= 0;
        fds[0] = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
        status = exchange_at_root(shm, all, fds, deadline);
    } else {
        status = exchange_below(shm, mine, fd, all, fds, deadline);
    }
    if (status != CHOIR_OK)
        choir__shm_close_all(fds, shm->base.world);
    else
        memcpy(offers, all->offers, sizeof all->offers);
    free(all);
    return status;
}

/* Reports "rank 2 (pid 77)" or "ranks 1, 2" that did not come in time. The members of a
 * sub-group have been started, and are named by the numbers of the group that is split. */
static choir_status late_to_meet(choir__shm *shm, const char *ranks, const char *who)
{
    if (shm->parent)
        return choir__shm_fail(shm, CHOIR_ERR_TIMEOUT,
            "%s %s did not come to choir_group_split within %g s", ranks, who,
            shm->base.timeout_s);
    return choir__shm_fail(shm, CHOIR_ERR_TIMEOUT,
        "%s %s of %d never came within %g s: were all ranks started, with the same CHOIR_JOB, "
        "on this machine?",
        ranks, who, shm->base.world, shm->base.timeout_s);
}

/* --- rank 0 listens --- */

static choir_status never_came(choir__shm *shm)
{
    char who[300] = "", one[80];
    int missing = 0;
    for (int r = 1; r < shm->base.world; r++)
        if (shm->sockets[r] < 0)
            snprintf(who + strlen(who), sizeof who - strlen(who), "%s%s", missing++ ? ", " : "",
                known_as(number_of(shm, r), shm->pids[r], one));
    return missing == 1 ? late_to_meet(shm, "rank", who) : late_to_meet(shm, "ranks", who);
}

/* Admits a caller that claims to be rank of world. */
static choir_status seat(choir__shm *shm, int fd, int rank, int world)
{
    if (world != shm->base.world || rank < 1 || rank >= world) {
        choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
            "a rank %d of %d joined where rank 0 counts %d ranks: WORLD_SIZE must be the same "
            "everywhere",
            rank, world, shm->base.world);
    } else if (shm->sockets[rank] >= 0) {
        choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
            "two processes, pid %d and pid %d, say they are rank %d",
            choir__socket_peer_pid(shm->sockets[rank]), choir__socket_peer_pid(fd), rank);
    } else {
        shm->sockets[rank] = fd;
        return CHOIR_OK;
    }
    tell(shm, fd); /* a rank that was not admitted is notified, too */
    close(fd);
    return shm->base.failed;
}

static choir_status gather_ranks(choir__shm *shm, int listener, uint64_t key)
{
    double deadline = choir__now() + shm->base.timeout_s;
    int seated = 1;
    while (seated < shm->base.world) {
        struct pollfd watch[CHOIR__MAX_WORLD];
        for (int r = 0; r < shm->base.world; r++) /* others: detects hang-ups */
            watch[r] =
                (struct pollfd){.fd = r ? shm->sockets[r] : listener, .events = r ? 0 : POLLIN};
        poll(watch, (nfds_t)shm->base.world, 50);
        for (int r = 1; r < shm->base.world; r++)
            if (watch[r].fd >= 0 && watch[r].revents)
                return lost(shm, r);
        int rank, world, dead = dead_but(shm, -1, -1);
        if (outer_fault(shm) != CHOIR_OK)
            return shm->base.failed;
        if (dead >= 0)
            return lost(shm, dead);
        int fd = choir__socket_accept(listener, key, &rank, &world);
        if (fd >= 0) {
            if (seat(shm, fd, rank, world) != CHOIR_OK)
                return shm->base.failed;
            seated++;
        } else if (errno == EMFILE) {
            return few_descriptors(shm);
        } else if (choir__now() > deadline) {
            return never_came(shm);
        }
    }
    return CHOIR_OK;
}

/* Notifies the ranks that have connected, or connect within seconds, after the meeting has
 * failed. */
static void tell_latecomers(choir__shm *shm, int listener, uint64_t key)
{
    double deadline = choir__now() + LATECOMERS_S;
    int missing = 0, rank, world;
    for (int r = 1; r < shm->base.world; r++)
        missing += shm->sockets[r] < 0 && !choir__shm_dead(shm, r);
    while (missing > 0 && choir__now() < deadline) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        int fd =
            poll(&ready, 1, 50) > 0 ? choir__socket_accept(listener, key, &rank, &world) : -1;
        if (fd >= 0) {
            tell(shm, fd);
            close(fd);
            missing--;
        }
    }
}

static choir_status listen_for_ranks(choir__shm *shm, uint64_t key)
{
    int listener = choir__socket_listen(key);
    if (listener < 0 && errno == EADDRINUSE)
        return choir__shm_fail(shm, CHOIR_ERR_STATE,
            "another rank 0 of this job is already waiting on this machine: does every job "
            "have its own CHOIR_JOB?");
    if (listener < 0)
        return choir__shm_fail(
            shm, CHOIR_ERR_IO, "cannot listen for ranks: %s", choir__why(errno));
    choir_status status = gather_ranks(shm, listener, key);
    if (status != CHOIR_OK)
        tell_all(shm);
    /* Ranks of a stale segment learn the loss elsewhere. */
    if (status == CHOIR_ERR_PEER_LOST && !shm->stale)
        tell_latecomers(shm, listener, key);
    close(listener);
    return status;
}

/* --- the others call --- */

static choir_status call_rank_0(choir__shm *shm, uint64_t key)
{
    double deadline = choir__now() + shm->base.timeout_s;
    struct timespec pause = {.tv_nsec = 50 * 1000};
    char who[80];
    for (;;) {
        shm->sockets[0] = choir__socket_connect(key, shm->base.rank, shm->base.world);
        if (shm->sockets[0] >= 0)
            return CHOIR_OK;
        if (errno == EPERM)
            return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST,
                "another user's process answers in place of rank 0: choose another CHOIR_JOB");
        if (errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN)
            return choir__shm_fail(
                shm, CHOIR_ERR_IO, "cannot call rank 0: %s", choir__why(errno));
        int dead = dead_but(shm, -1, -1);
        if (outer_fault(shm) != CHOIR_OK)
            return shm->base.failed;
        if (dead >= 0)
            return lost(shm, dead);
        if (choir__now() > deadline)
            return late_to_meet(shm, "rank", known_as(number_of(shm, 0), shm->pids[0], who));
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 10 * 1000 * 1000) /* late by a quarter of the wait at most */
            pause.tv_nsec += pause.tv_nsec / 4;
    }
}

choir_status choir__shm_call_together(choir__shm *shm)
{
    uint64_t key = choir__job_hash(shm->job);
    return shm->base.rank == 0 ? listen_for_ranks(shm, key) : call_rank_0(shm, key);
}
