/* Ranks that are late, stopped, gone, or in another call. Each rank prints the sentence that it
 * gets, which is the same on all ranks, for failures.sh.
 *
 * Tests run on busy machines, so ranks wait for each other rather than sleep. The group's calls
 * have a minute, and only the call that must fail has LATE_S seconds. A rank that is late comes
 * after the others have given up. mpirun ends all ranks when one has failed, so a rank that has
 * printed its sentence stays until the others have printed theirs: the file SAID has one byte
 * per sentence. */
#include "failures.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/group.h"
#include "multi/ranks.h"

enum { FEW = 3, MANY = 1 << 20 };
static const double YIELD_S = 0.02;

static void doze(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static void say(const char *what)
{
    printf("%s: %s\n", what, choir_error_message());
    fflush(stdout);
    int file = open(getenv("SAID"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, ".", 1) != 1)
        perror("SAID");
    close(file);
}

/* Waits until `count` ranks have printed their sentence, or a minute. */
static void hear(int count)
{
    struct stat said;
    for (int i = 0; i < 6000 && !stat(getenv("SAID"), &said) && said.st_size < count; i++)
        doze(0.01);
}

static double late_s(void)
{
    return atof(getenv("LATE_S"));
}

static void limit_calls(choir_group *g)
{
    g->engine->timeout_s = late_s();
}

static bool is_last(const choir_group *g)
{
    return choir_group_rank(g) == choir_group_world(g) - 1;
}

/* The last rank comes when the others have given up. */
static int late(choir_group *g, int64_t count)
{
    float *data = calloc((size_t)count + 1, sizeof *data);
    CHECK_OK(choir_group_all_reduce(g, data, count, CHOIR_F32, CHOIR_SUM, NULL));
    limit_calls(g);
    if (is_last(g))
        hear(choir_group_world(g) - 1);
    choir_status status =
        choir_group_all_reduce(g, data, count + 1, CHOIR_F32, CHOIR_SUM, NULL);
    if (is_last(g) && status == CHOIR_OK) /* the others had sent their data */
        status = choir_group_barrier(g, NULL);
    say(status == CHOIR_ERR_TIMEOUT ? "late" : "not late");
    hear(choir_group_world(g));
    return 1;
}

static int late_few(choir_group *g)
{
    return late(g, FEW);
}

static int late_many(choir_group *g)
{
    return late(g, MANY);
}

static int stopped(choir_group *g)
{
    int last = choir_group_world(g) - 1;
    CHECK_OK(choir_group_barrier(g, NULL));
    limit_calls(g);
    if (is_last(g))
        raise(SIGSTOP);
    say(choir_group_barrier(g, NULL) == CHOIR_ERR_TIMEOUT ? "late" : "not late");
    hear(last);
    kill(g->engine->members[last].pid, SIGKILL); /* mpirun may wait for it for good */
    return 1;
}

static bool yields_last;
static _Atomic int yields;

/* Takes the place of the C library's in this program and in its plug-ins. */
int sched_yield(void)
{
    if (!yields_last)
        return (int)syscall(SYS_sched_yield);
    doze(YIELD_S);
    yields++;
    return 0;
}

/* Other processes want the cores, so that each yield lasts. The ranks that wait still answer,
 * and notice the end of their time: they look at the clock at least every other yield. */
static int busy(choir_group *g)
{
    CHECK_OK(choir_group_barrier(g, NULL));
    limit_calls(g);
    if (is_last(g)) {
        hear(choir_group_world(g) - 1);
        return 1;
    }
    yields_last = true;
    choir_status status = choir_group_barrier(g, NULL);
    bool soon = yields * YIELD_S < 2 * late_s();
    say(status != CHOIR_ERR_TIMEOUT ? "not late" : soon ? "late" : "late, and noticed late");
    hear(choir_group_world(g) - 1);
    return 1;
}

/* The last rank sends nothing to rank 0. The others, whose calls have a minute, get rank 0's
 * sentence. */
static int silent(choir_group *g)
{
    float data[3];
    choir_status status;
    if (is_last(g)) {
        hear(choir_group_world(g) - 1);
        return 1;
    }
    if (choir_group_rank(g) == 0) {
        limit_calls(g);
        status = choir_group_receive(g, data, 3, CHOIR_F32, choir_group_world(g) - 1, NULL);
    } else {
        status = choir_group_barrier(g, NULL);
    }
    say(status == CHOIR_ERR_TIMEOUT ? "late" : "not late");
    hear(choir_group_world(g) - 1);
    return 1;
}

static int mismatch(choir_group *g)
{
    float data[8] = {0};
    CHECK_OK(choir_group_barrier(g, NULL));
    choir_status status = is_last(g)
                              ? choir_group_all_reduce(g, data, 3, CHOIR_F32, CHOIR_MEAN, NULL)
                              : choir_group_broadcast(g, data, 8, CHOIR_F32, 0, NULL);
    say(status == CHOIR_ERR_MISMATCH ? "mismatch" : "no mismatch");
    return 0;
}

/* Rank 0 awaits fewer elements from rank 1 than that sends. */
static int uneven(choir_group *g)
{
    int32_t in[64], out[64];
    int64_t sent[16], got[16];
    for (int r = 0; r < choir_group_world(g); r++)
        sent[r] = got[r] = 2;
    got[1] = choir_group_rank(g) == 0 ? 1 : 2;
    memset(in, 0, sizeof in);
    choir_status status = choir_group_all_to_all_uneven(g, in, sent, out, got, CHOIR_I32, NULL);
    say(status == CHOIR_ERR_MISMATCH ? "mismatch" : "no mismatch");
    return 0;
}

static int messages(choir_group *g)
{
    static float data[5000];
    choir_status status = CHOIR_OK;
    if (choir_group_rank(g) == 0)
        status = choir_group_send(g, data, 5000, CHOIR_F32, 1, NULL);
    if (choir_group_rank(g) == 1)
        status = choir_group_receive(g, data, 3, CHOIR_I32, 0, NULL);
    if (!status)
        status = choir_group_barrier(g, NULL);
    say(status == CHOIR_ERR_MISMATCH ? "mismatch" : "no mismatch");
    hear(choir_group_world(g));
    return 0;
}

/* Rank 0 frees its group; the others still need it. */
static int leaves(choir_group *g)
{
    CHECK_OK(choir_group_barrier(g, NULL));
    if (choir_group_rank(g) == 0)
        return 0;
    say(choir_group_barrier(g, NULL) == CHOIR_ERR_PEER_LOST ? "left" : "not left");
    hear(choir_group_world(g) - 1);
    return 0;
}

int never_comes(choir_group_opts opts)
{
    choir_group *g;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    CHECK(rank);
    if (atoi(rank) != 2) {
        opts.timeout_s = late_s();
        say(choir_group_init(NULL, opts, &g) == CHOIR_OK ? "a group" : "no group");
    }
    hear(2);
    return 1;
}

int failures(choir_group *g, const char *scenario)
{
    static const struct {
        const char *name;
        int (*run)(choir_group *g);
    } scenarios[] = {{"late", late_few}, {"late_large", late_many}, {"stopped", stopped},
        {"busy", busy}, {"silent", silent}, {"mismatch", mismatch}, {"uneven", uneven},
        {"messages", messages}, {"leaves", leaves}};
    for (size_t i = 0; i < CHOIR_COUNT(scenarios); i++)
        if (!strcmp(scenarios[i].name, scenario))
            return scenarios[i].run(g);
    fprintf(stderr, "there is no scenario '%s'\n", scenario);
    return 2;
}
