/* The suite of collectives.h on every engine that is built and 1, 2, 3, 5 and 8 ranks of this
 * machine: as threads of one process, and as processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "comm/plugin.h"
#include "conformance/collectives.h"

static const int worlds[] = {1, 2, 3, 5, 8};

/* --- ranks as threads --- */

typedef struct member {
    const char *job, *backend;
    int rank, world, bad;
    pthread_t thread;
} member;

static void *be_thread(void *arg)
{
    member *m = arg;
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.rank = m->rank;
    opts.world = m->world;
    opts.job = m->job;
    opts.backend = m->backend;
    opts.timeout_s = 60;
    if (choir_group_init(NULL, opts, &group) != CHOIR_OK) {
        fprintf(stderr, "rank %d: %s\n", m->rank, choir_error_message());
        m->bad = 1;
        return NULL;
    }
    m->bad = suite(group, m->world <= 3);
    choir_group_free(group);
    return NULL;
}

static void as_threads(const char *backend, int world)
{
    member members[SUITE_WORLD];
    char job[80];
    int bad = 0;
    snprintf(job, sizeof job, "conformance.%d.%s.%d", (int)getpid(), backend, world);
    for (int r = 0; r < world; r++) {
        members[r] = (member){.job = job, .backend = backend, .rank = r, .world = world};
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
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    (void)rank;
    opts.backend = arg;
    opts.timeout_s = 60;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    int bad = suite(group, world == 2 || world == 5);
    choir_group_free(group);
    return bad;
}

/* --- engines --- */

static void test_shm_threads(void **state)
{
    (void)state;
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        as_threads("shm", worlds[w]);
}

static void test_shm_processes(void **state)
{
    (void)state;
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        if (choir_spawn(worlds[w], be_process, (void *)(uintptr_t) "shm") != CHOIR_OK)
            fail_msg("world %d: %s", worlds[w], choir_error_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_threads),
        cmocka_unit_test(test_shm_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
