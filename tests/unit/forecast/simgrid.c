/* Prices of collectives against SimGrid, an independent simulator of networks: the same
 * schedules on the same links, there as flows that share links by max-min fairness, here by
 * network.h.
 *
 * SimGrid can be begun once per process, so each case has a process of its own, which writes
 * the seconds to a pipe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "comm/pattern/schedule.h"
#include "forecast/network.h"

#ifdef CHOIR_TEST_SIMGRID
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>

enum { DEVICES = 8 }; /* per node */

/* Node links are slower than links of devices, so that only one of the two limits a message. */
static const double device_s = 1e-6, node_s = 1e-5, device_rate = 1e12, node_rate = 1e10;

static choir__cluster cluster_of(int nodes)
{
    choir__cluster c;
    ok(choir__cluster_preset("H100", nodes, DEVICES, &c));
    c.device.memory_bytes_s = 1e30;
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        const bool inner = level < CHOIR__LEVEL_NODE;
        c.links[level] = (choir__link){.alpha_s = inner ? device_s : node_s,
            .beta_bytes_s = inner ? device_rate : node_rate,
            .share = 1,
            .ports = 1};
    }
    return c;
}

/* --- the same cluster for SimGrid --- */

static void write_platform(FILE *f, int nodes)
{
    fprintf(f, "<?xml version='1.0'?><!DOCTYPE platform SYSTEM "
               "\"https://simgrid.org/simgrid.dtd\"><platform version=\"4.1\">"
               "<zone id=\"all\" routing=\"Full\">");
    for (int n = 0; n < nodes; n++)
        fprintf(f,
            "<cluster id=\"n%d\" prefix=\"r\" suffix=\"\" radical=\"%d-%d\" speed=\"1f\" "
            "bw=\"%.0fBps\" lat=\"%.9fs\" router_id=\"router%d\"/>",
            n, n * DEVICES, (n + 1) * DEVICES - 1, device_rate, device_s / 2, n);
    for (int n = 0; n < nodes; n++)
        fprintf(f,
            "<link id=\"l%d\" bandwidth=\"%.0fBps\" latency=\"%.9fs\" "
            "sharing_policy=\"SPLITDUPLEX\"/>",
            n, node_rate, (node_s - device_s) / 2);
    for (int a = 0; a < nodes; a++)
        for (int b = a + 1; b < nodes; b++)
            fprintf(f,
                "<zoneRoute src=\"n%d\" dst=\"n%d\" gw_src=\"router%d\" gw_dst=\"router%d\">"
                "<link_ctn id=\"l%d\" direction=\"UP\"/>"
                "<link_ctn id=\"l%d\" direction=\"DOWN\"/></zoneRoute>",
                a, b, a, b, a, b);
    fprintf(f, "</zone></platform>");
    fclose(f);
}

static choir__move_schedule *schedules;

/* One rank: the messages of a round at the same time, the rounds one after another. */
static void run_rank(int argc, char **argv)
{
    const int rank = atoi(argv[1]);
    const choir__move_schedule *s = &schedules[rank];
    sg_comm_t *comms = choir__calloc((size_t)s->count + 1, sizeof *comms);
    void *received;
    static char token;
    for (int i = 0; i < s->count;) {
        const int round = s->moves[i].round;
        size_t count = 0;
        for (; i < s->count && s->moves[i].round == round; i++) {
            const choir__move *m = &s->moves[i];
            char box[32];
            const bool sends = m->kind == CHOIR__MOVE_SEND;
            if (!sends && m->kind != CHOIR__MOVE_RECEIVE)
                continue;
            snprintf(box, sizeof box, "%d-%d", sends ? rank : m->peer, sends ? m->peer : rank);
            comms[count++] = sends ? sg_mailbox_put_async(sg_mailbox_by_name(box), &token,
                                         (long)m->count * (long)sizeof(float))
                                   : sg_mailbox_get_async(sg_mailbox_by_name(box), &received);
        }
        if (count)
            sg_comm_wait_all(comms, count);
    }
    free(comms);
}

/* Returns the seconds of a call in SimGrid, in this process. */
static double simulate(const choir__call_shape *call, int nodes)
{
    char path[] = "/tmp/platform.XXXXXX.xml",
         *argv[] = {"test", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
             "--cfg=network/TCP-gamma:0", "--log=root.thres:error",
             "--cfg=contexts/stack-size:256", NULL};
    int argc = (int)CHOIR_COUNT(argv) - 1, fd = mkstemps(path, 4);
    const int world = (int)call->group.size;
    int *node = choir__calloc((size_t)world, sizeof *node);
    choir__pattern_collective collective = {.kind = call->kind,
        .algorithm = call->algorithm,
        .world = world,
        .count = call->count,
        .leaves = world,
        .node_stride = call->count,
        .align = 16,
        .in_place = true,
        .mean = true,
        .nodes = node};
    write_platform(fdopen(fd, "w"), nodes);
    simgrid_init(&argc, argv);
    simgrid_load_platform(path);
    unlink(path);
    schedules = choir__calloc((size_t)world, sizeof *schedules);
    for (int r = 0; r < world; r++)
        node[r] = r / DEVICES;
    for (int r = 0; r < world; r++) {
        char name[16];
        const char *args[] = {"rank", name};
        snprintf(name, sizeof name, "%d", r);
        collective.rank = r;
        ok(choir__move_schedule_make(&collective, &schedules[r]));
        snprintf(path, sizeof path, "r%d", r);
        sg_actor_create_("rank", sg_host_by_name(path), run_rank, 2, args);
    }
    simgrid_run();
    return simgrid_get_clock();
}

static double simulated(const choir__call_shape *call, int nodes)
{
    int ends[2], status;
    double seconds = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        seconds = simulate(call, nodes);
        _exit(write(ends[1], &seconds, sizeof seconds) != sizeof seconds);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &seconds, sizeof seconds), sizeof seconds);
    close(ends[0]);
    waitpid(child, &status, 0);
    return seconds;
}

/* --- both --- */

static void test_same_seconds(void **state)
{
    static const struct {
        choir__kind kind;
        choir__algorithm algorithm;
        int world;
    } rows[] = {
        {CHOIR__ALL_REDUCE, CHOIR__RING, 8},
        {CHOIR__ALL_REDUCE, CHOIR__RING, 64},
        {CHOIR__ALL_REDUCE, CHOIR__EXCHANGE, 8},
        {CHOIR__ALL_REDUCE, CHOIR__EXCHANGE, 64},
        {CHOIR__ALL_REDUCE, CHOIR__HALVING, 256},
        {CHOIR__ALL_REDUCE, CHOIR__BINOMIAL, 256},
        {CHOIR__BROADCAST, CHOIR__BINOMIAL, 256},
        {CHOIR__ALL_REDUCE, CHOIR__HIERARCHICAL, 256},
        {CHOIR__ALL_GATHER, CHOIR__HALVING, 256},
    };
    static const int64_t counts[] = {1024, 16 << 20};
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++)
        for (size_t k = 0; k < CHOIR_COUNT(counts); k++) {
            const int nodes = rows[i].world / DEVICES;
            const bool parts = rows[i].kind == CHOIR__ALL_GATHER;
            choir__cluster c = cluster_of(nodes);
            const choir__call_shape call = {.kind = rows[i].kind,
                .algorithm = rows[i].algorithm,
                .dtype = CHOIR_F32,
                .count = counts[k] / (parts ? 256 : 1),
                .leaves = rows[i].world,
                .group = {rows[i].world, 1},
                .world = rows[i].world};
            choir__call_cost cost;
            ok(choir__network_price(&c, &call, &cost));
            double other = simulated(&call, nodes);
            double error = cost.seconds / other - 1;
            print_message(
                "%-10s %-12s %3d ranks, %8lld elements: %.3e s, SimGrid %.3e s, %+.2f %%\n",
                choir__kind_name(rows[i].kind), choir__algorithm_name(rows[i].algorithm),
                rows[i].world, (long long)call.count, cost.seconds, other, 100 * error);
            if (error > 0.005 || error < -0.005)
                fail_msg("expected at most 0.5 %% between them");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_seconds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    enum { SKIPPED = 77 };
#ifdef CHOIR_TEST_SANITIZED
    printf("skipped: SimGrid's simulated hosts do not run under sanitizers\n");
#else
    printf("skipped: SimGrid is missing (install libsimgrid-dev)\n");
#endif
    return SKIPPED;
}

#endif
