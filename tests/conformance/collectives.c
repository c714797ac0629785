/* Runs the suite of collectives.h on every engine that is built, with 1, 2, 3, 5 and 8 ranks on
 * this machine: as threads of one process, and as processes. `collectives joined` is one rank
 * of a job that mpirun started (tests/mpi/suite.sh). */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "comm/plugin.h"
#include "conformance/collectives.h"
#include "sample.h"

static const int worlds[] = {1, 2, 3, 5, 8};

/* The engine, how its ranks meet, and the job's name. */
typedef struct venue {
    const char *backend, *method, *job;
    int thorough[2]; /* the worlds that try every type by every algorithm */
} venue;

static choir_status join(const venue *v, int rank, int world, choir_group **group)
{
    choir_group_opts opts = choir_group_defaults();
    opts.rank = rank;
    opts.world = world;
    opts.job = v->job;
    opts.backend = v->backend;
    opts.timeout_s = 60;
    return choir_group_init(v->method, opts, group);
}

static int be_rank(const venue *v, int rank, int world)
{
    choir_group *group;
    CHECK_OK(join(v, rank, world, &group));
    world = choir_group_world(group);
    int bad = suite(group, world == v->thorough[0] || world == v->thorough[1]);
    if (strcmp(choir_group_backend(group), v->backend) != 0)
        bad = 1;
    choir_group_free(group);
    return bad;
}

/* --- ranks as threads --- */

typedef struct member {
    const venue *venue;
    int rank, world, bad;
    pthread_t thread;
} member;

static void *be_thread(void *arg)
{
    member *m = arg;
    m->bad = be_rank(m->venue, m->rank, m->world);
    return NULL;
}

static void as_threads(const venue *v, int world)
{
    member members[SUITE_WORLD];
    int bad = 0;
    for (int r = 0; r < world; r++) {
        members[r] = (member){.venue = v, .rank = r, .world = world};
        assert_int_equal(pthread_create(&members[r].thread, NULL, be_thread, &members[r]), 0);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(members[r].thread, NULL);
        bad += members[r].bad;
    }
    assert_int_equal(bad, 0);
}

/* --- ranks as processes --- */

static int be_process(int rank, int world, void *arg)
{
    return be_rank(arg, rank, world);
}

static void as_processes(const venue *v, int world)
{
    if (choir_spawn(world, be_process, (void *)(uintptr_t)v) != CHOIR_OK)
        fail_msg("%s, world %d: %s", v->backend, world, choir_error_message());
}

/* --- engines --- */

static void test_shm_threads(void **state)
{
    char job[80];
    const venue v = {"shm", NULL, job, {3, 0}};
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++) {
        if (!sample_combination(3))
            continue;
        snprintf(job, sizeof job, "conformance.%d.%d", (int)getpid(), worlds[w]);
        as_threads(&v, worlds[w]);
    }
}

static void test_shm_processes(void **state)
{
    const venue v = {"shm", NULL, NULL, {2, 5}};
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        if (sample_combination(3))
            as_processes(&v, worlds[w]);
}

static void skip_without(const char *plugin)
{
    char *path = choir__plugin_find(plugin, NULL);
    if (!path) {
        print_message("skipped: %s is not built\n", plugin);
        skip();
    }
    free(path);
}

/* Ranks meet at a file: UCX exchanges its peers' addresses through a store at that place. */
static void meeting_file(char path[64])
{
    snprintf(path, 64, "file:///tmp/choir-suite-XXXXXX");
    int fd = mkstemp(path + strlen("file://"));
    assert_true(fd >= 0);
    close(fd);
    unlink(path + strlen("file://"));
}

static void test_ucx_processes(void **state)
{
    char method[64];
    const venue v = {"ucx", method, NULL, {3, 0}};
    skip_without("ucx");
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++) {
        if (!sample_combination(3))
            continue;
        meeting_file(method);
        as_processes(&v, worlds[w]);
        unlink(method + strlen("file://"));
    }
}

static int joined(void)
{
    const venue v = {"mpi", "mpi://", NULL, {2, 3}};
    return be_rank(&v, -1, -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_threads),
        cmocka_unit_test(test_shm_processes),
        cmocka_unit_test(test_ucx_processes),
    };
    if (argc > 1 && strcmp(argv[1], "joined") == 0)
        return joined();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
