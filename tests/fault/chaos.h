/* Chaos: the work of a trial's ranks, phase by phase, until one of them is killed or stopped.
 *
 * A phase is one function that a rank runs in a loop; after each round all ranks agree on
 * whether to stop. A rank marks that it has reached the phase, and records how it ended and
 * which descriptors and mappings it still held. */
#ifndef CHOIR_TEST_CHAOS_H
#define CHOIR_TEST_CHAOS_H

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "fault/notes.h"

enum { RANKS = 8, FLOATS = 300000 };

/* Record of one rank of a trial, in memory that forks share. */
typedef struct word {
    volatile int reached; /* it is in the phase */
    choir_status status;
    char message[512];
    int left_open, left_mapped; /* increase since the start */
    /* set by the parent */
    pid_t pid;
    bool gone;
    int wait_status;
} word;

typedef struct scene {
    char job[64], method[64]; /* method "": ranks meet by the job's name */
    const char *backend;
    int world, victim;
    double timeout_s;
    volatile int enough;
    word ranks[RANKS];
} scene;

typedef struct actor {
    scene *scene;
    choir_group *group;
    word *me;
    int rank, round;
    choir__shared *shared;
    float *data; /* (FLOATS) */
} actor;

/* Runs one round; the group's first failure ends the loop. */
typedef choir_status phase_fn(actor *a);

typedef struct phase {
    const char *name;
    phase_fn *round; /* NULL: nothing after init */
    bool shares;     /* needs memory that all ranks reach */
    bool early;      /* the victim is struck before it has met the others */
    bool may_pass;   /* the others may not need the victim any more */
} phase;

static choir_status in_barrier(actor *a)
{
    return choir_group_barrier(a->group, NULL);
}

static choir_status in_small(actor *a)
{
    return choir_group_all_reduce(a->group, a->data, 10, CHOIR_F32, CHOIR_MAX, NULL);
}

static choir_status in_large(actor *a)
{
    return choir_group_all_reduce(a->group, a->data, FLOATS, CHOIR_F32, CHOIR_MAX, NULL);
}

static choir_status in_direct(actor *a)
{
    float *mine = choir__shared_at(a->shared, a->rank);
    return choir_group_all_reduce(a->group, mine, FLOATS, CHOIR_F32, CHOIR_MAX, NULL);
}

static choir_status in_gather(actor *a)
{
    int part = FLOATS / RANKS;
    return choir_group_all_gather(
        a->group, a->data + a->rank * part, a->data, part, CHOIR_F32, NULL);
}

static choir_status in_sharing(actor *a)
{
    choir__shared *shared = NULL;
    choir_status status = choir__shared_new(a->group, (size_t)(a->rank + 1) * 10000, &shared);
    choir__shared_free(shared);
    return status;
}

static choir_status in_splitting(actor *a)
{
    choir_group *child = NULL;
    choir_status status = choir_group_split(a->group, 0, -a->rank, &child);
    if (status == CHOIR_OK && a->round % 3 == 0)
        status = choir_group_barrier(child, NULL);
    choir_group_free(child);
    return status;
}

/* Sends around a ring, in both directions at once. */
static choir_status in_messages(actor *a)
{
    int world = a->scene->world, next = (a->rank + 1) % world;
    int before = (a->rank + world - 1) % world, count = a->round % 2 ? 100 : 50000;
    float *in = a->data, *out = a->data + FLOATS / 2;
    choir_group_batch_begin(a->group);
    choir_status status = choir_group_send(a->group, out, count, CHOIR_F32, next, NULL);
    if (!status)
        status = choir_group_receive(a->group, in, count, CHOIR_F32, before, NULL);
    choir_status sent = choir_group_batch_end(a->group, NULL);
    return status ? status : sent;
}

static choir_status in_queue(actor *a)
{
    choir_work work = {0};
    choir_status status = CHOIR_OK;
    for (int i = 0; i < 20 && !status; i++)
        status = choir_group_all_reduce(
            a->group, a->data, i % 4 ? 100 : 50000, CHOIR_F32, CHOIR_MAX, &work);
    return status ? status : choir_work_wait(work);
}

/* The victim computes; the others wait for it. */
static choir_status in_idleness(actor *a)
{
    if (a->rank == a->scene->victim)
        nap(0.02);
    return choir_group_barrier(a->group, NULL);
}

static const phase phases[] = {
    {.name = "before init", .early = true},
    {.name = "meeting", .round = in_barrier, .early = true},
    {.name = "barrier", .round = in_barrier},
    {.name = "small all_reduce", .round = in_small},
    {.name = "large all_reduce", .round = in_large},
    {.name = "direct all_reduce", .round = in_direct, .shares = true},
    {.name = "all_gather", .round = in_gather},
    {.name = "sharing memory", .round = in_sharing},
    {.name = "splitting", .round = in_splitting},
    {.name = "send and receive", .round = in_messages},
    {.name = "a full queue", .round = in_queue},
    {.name = "idleness", .round = in_idleness},
    {.name = "closing", .may_pass = true},
};

enum { PHASES = CHOIR_COUNT(phases), BEFORE_INIT = 0, MEETING = 1, CLOSING = PHASES - 1 };

/* --- what a process holds --- */

static int open_files(void)
{
    char path[300], target[64];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t length = readlink(path, target, sizeof target);
        count += length > 0 && strncmp(target, "/memfd:choir-board", 18) != 0;
    }
    if (folder)
        closedir(folder);
    return count;
}

static int mapped_memfds(void)
{
    char line[600];
    int count = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        count += strstr(line, "/memfd:") && !strstr(line, "choir-board");
    if (f)
        fclose(f);
    return count;
}

/* --- a rank --- */

static choir_status agree_on_enough(actor *a)
{
    int32_t enough = a->scene->enough;
    choir_status status =
        choir_group_all_reduce(a->group, &enough, 1, CHOIR_I32, CHOIR_MAX, NULL);
    return status ? status : enough ? CHOIR_ERR_INTERRUPTED : CHOIR_OK;
}

static choir_status play(actor *a, const phase *p)
{
    choir_status status = CHOIR_OK;
    if (p->shares) {
        status = choir__shared_new(a->group, FLOATS * sizeof(float), &a->shared);
        if (!status)
            memset(choir__shared_at(a->shared, a->rank), 0, FLOATS * sizeof(float));
    }
    if (!status)
        status = choir_group_barrier(a->group, NULL);
    for (; !status && p->round; a->round++) {
        a->me->reached = 1;
        status = p->round(a);
        if (!status)
            status = agree_on_enough(a);
    }
    a->me->reached = 1;
    return status == CHOIR_ERR_INTERRUPTED ? CHOIR_OK : status;
}

static void be_rank(scene *s, const phase *p, int rank)
{
    actor a = {.scene = s, .me = &s->ranks[rank], .rank = rank};
    choir_group_opts opts = choir_group_defaults();
    opts.rank = rank;
    opts.world = s->world;
    opts.job = s->job;
    opts.timeout_s = s->timeout_s;
    opts.backend = s->backend;
    a.data = calloc(FLOATS, sizeof *a.data);
    int open_before = open_files(), mapped_before = mapped_memfds();
    if (p->early)
        a.me->reached = 1;
    if (p == &phases[BEFORE_INIT] && rank == s->victim)
        nap(0.3);
    choir_status status = choir_group_init(*s->method ? s->method : NULL, opts, &a.group);
    if (!status)
        status = play(&a, p);
    a.me->status = status;
    snprintf(a.me->message, sizeof a.me->message, "%s", status ? choir_error_message() : "");
    choir__shared_free(a.shared);
    choir_group_free(a.group);
    a.me->left_open = open_files() - open_before;
    a.me->left_mapped = mapped_memfds() - mapped_before;
    free(a.data);
    _exit(0);
}

#endif
