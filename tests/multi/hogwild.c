/* Hogwild over processes. The parent sees the weights that its children train; four children
 * learn together; a single child computes the bits of a program that shares nothing; the ranks
 * of a group share rank 0's weights; words are never torn. */
#include <sched.h>

#include "job_fixture.h"
#include "step_fixture.h"
#include "multi/ranks.h"
#include "parallel/hogwild/hogwild.h"

enum { SAMPLES = 120, WIDTH = 12, CLASSES = 4, EACH = 12 };

typedef struct plan {
    choir_module *net; /* shared; NULL: of a group */
    choir_dataset *data;
    int steps;
    bool recorded;
    uint32_t loss_bits[8][64]; /* by rank */
    uint64_t weights[8];
    int64_t drawn[8]; /* what each rank's step draws at random */
} plan;

static choir_module *new_net(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, WIDTH, 32),
        choir_nn_batch_norm(run, 32), choir_nn_relu(run), choir_nn_dropout(run, 0.1f),
        choir_nn_linear(run, 32, CLASSES));
}

static choir_dataset
    *volatile kept; /* the leak checker of a child does not look into shared memory */

static plan *new_plan(int steps, bool recorded)
{
    plan *p = shared_memory(sizeof *p);
    p->steps = steps;
    p->recorded = recorded;
    choir_check(
        choir_dataset_random(SAMPLES, choir_dims(WIDTH), CHOIR_SCALAR, CLASSES, 7, &p->data));
    kept = p->data;
    return p;
}

static void free_plan(plan *p)
{
    choir_dataset_free(p->data);
    munmap(p, sizeof *p);
}

static int train(plan *p, choir_module *net, int rank, int world)
{
    choir_scope *run = net->run;
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.1f;
    hp.momentum = 0.5f;
    job j = {.run = net->run,
        .net = net,
        .optim = choir_sgd(run, net, hp),
        .data = rank_loader(run, p->data, EACH * world, world, rank, 1)};
    CHECK_OK(choir_scope_status(run));
    for (int i = 0; i < p->steps; i++) {
        if (p->recorded) {
            CHECK_OK(choir_step(run, body, &j));
        } else {
            choir_scope *s = choir_step_open(run, (uint64_t)i);
            if (i == 0)
                CHECK_OK(choir_read(choir_randn(s, choir_dims(2), "draw"), &p->drawn[rank], 8));
            CHECK_OK(body(s, &j));
            CHECK_OK(choir_scope_close(s));
        }
        p->loss_bits[rank][i % 64] = item_bits(j.loss);
    }
    p->weights[rank] = hash_of_module(net);
    return 0;
}

/* --- children of the process that shared --- */

static int train_inherited(int rank, int world, void *arg)
{
    plan *p = arg;
    return train(p, p->net, rank, world);
}

static void test_parent_sees_it(void **state)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        plan *p = new_plan(600, recorded);
        choir_scope *run = choir_scope_open(NULL, 42);
        int64_t batches;
        p->net = new_net(run);
        double before = loss_of_all(p->net, p->data, SAMPLES);
        choir_check(choir_module_share_memory(p->net));
        ok(choir_spawn(4, train_inherited, p));
        double after = loss_of_all(p->net, p->data, SAMPLES);
        assert_true(after < before / 4);
        assert_int_equal(choir_hogwild_updates(p->net), 4 * 600);
        choir_check(
            choir_read(choir_module_find(p->net, "1.num_batches_tracked"), &batches, 8));
        assert_int_equal(batches, 600); /* worker 0's */
        for (int r = 1; r < 4 && !recorded; r++)
            assert_true(p->drawn[r] != p->drawn[0]);

        /* The parent continues, and starts a second family. */
        uint64_t left = hash_of_module(p->net);
        p->recorded = !recorded;
        ok(choir_spawn(2, train_inherited, p));
        assert_true(hash_of_module(p->net) != left);
        p->steps = 5;
        assert_int_equal(train(p, p->net, 0, 1), 0);
        assert_true(loss_of_all(p->net, p->data, SAMPLES) < before / 4);
        ok(choir_scope_close(run));
        free_plan(p);
    }
}

/* One worker gives the bits of the same loop in this process without sharing. */
static void test_one_is_single(void **state)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        plan *p = new_plan(40, recorded);
        choir_scope *run = choir_scope_open(NULL, 42), *other = choir_scope_open(NULL, 42);
        choir_module *single = new_net(run);
        p->net = new_net(other);
        choir_check(choir_module_share_memory(p->net));
        ok(choir_spawn(1, train_inherited, p));
        plan *q = new_plan(40, recorded);
        assert_int_equal(train(q, single, 0, 1), 0);
        assert_memory_equal(p->loss_bits[0], q->loss_bits[0], sizeof q->loss_bits[0]);
        assert_int_equal(p->weights[0], q->weights[0]);
        assert_int_equal(hash_of_module(p->net), q->weights[0]); /* and so is the master */
        choir_check(choir_scope_close(run));
        choir_check(choir_scope_close(other));
        free_plan(p);
        free_plan(q);
    }
}

/* Each child has a worker for the inherited device, on cores of its own. */
static void note_cores(const void *args)
{
    sched_getaffinity(0, sizeof(cpu_set_t), *(cpu_set_t *const *)args);
}

static int has_own_core(int rank, int world, void *arg)
{
    cpu_set_t allowed, own, *noted = &own;
    choir_device *device = ((choir_module *)arg)->run->device;
    int cores[CPU_SETSIZE], count = 0;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed))
            cores[count++] = i;
    CPU_ZERO(&own);
    choir__queue_issue(device->queue, note_cores, &noted, sizeof noted);
    for (choir_device_stats s = {.queue_depth = 1}; s.queue_depth; usleep(1000))
        choir_device_get_stats(device, &s); /* a waiting thread would run it */
    CHECK(CPU_COUNT(&own) == 1 && CPU_ISSET(cores[rank % count], &own));
    return 0;
}

static void test_cores(void **state)
{
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 42);
    choir_module *net = new_net(run);
    choir_check(choir_module_share_memory(net));
    ok(choir_spawn(3, has_own_core, net));
    ok(choir_scope_close(run));
}

/* --- ranks of a group --- */

static int train_ranks(int rank, int world, void *arg)
{
    plan *p = arg;
    choir_env env;
    choir_hogwild_opts opts = choir_hogwild_defaults();
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, world > 1 ? (uint64_t)rank : 42);
    choir_module *net = new_net(run); /* ranks differ: rank 0's is the master */
    opts.group = env.group;
    net = choir_hogwild(run, net, opts);
    CHECK_OK(choir_scope_status(run));
    uint64_t mine = hash_of_module(net), first = mine;
    CHECK_OK(choir_group_broadcast(env.group, &first, 1, CHOIR_I64, 0, NULL));
    CHECK(mine == first);
    CHECK_OK(choir_group_barrier(env.group, NULL));
    if (train(p, net, rank, world))
        return 1;
    CHECK_OK(choir_group_barrier(env.group, NULL));
    CHECK_OK(choir_hogwild_exchange(net));
    p->weights[rank] = hash_of_module(net);
    CHECK(choir_hogwild_updates(net) == (int64_t)world * p->steps);
    CHECK(loss_of_all(net, p->data, SAMPLES) < 0.5);
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void test_group(void **state)
{
    uint64_t single = 0;
    for (int world = 0; world <= 3; world++) { /* 0: without sharing */
        plan *p = new_plan(1000, false);
        if (world) {
            ok(choir_spawn(world, train_ranks, p));
        } else {
            choir_scope *run = choir_scope_open(NULL, 42);
            assert_int_equal(train(p, new_net(run), 0, 1), 0);
            single = p->weights[0];
            choir_check(choir_scope_close(run));
        }
        for (int r = 1; r < world; r++)
            assert_int_equal(p->weights[r], p->weights[0]); /* all have the master's */
        if (world == 1)
            assert_int_equal(p->weights[0], single);
        free_plan(p);
    }
}

static int other_models(int rank, int world, void *arg)
{
    choir_env env;
    choir_hogwild_opts opts = choir_hogwild_defaults();
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    opts.group = env.group;
    choir_hogwild(run, choir_nn_linear(run, 2, 2 + (rank == 2)), opts);
    CHECK(choir_scope_status(run) == CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), "the model of rank 2 has other parameters"));
    choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void test_mismatch(void **state)
{
    ok(choir_spawn(3, other_models, NULL));
}

/* --- words --- */

enum { WORDS = 4096 };

static int add(int rank, int world, void *arg)
{
    static float mine[WORDS], old[WORDS];
    float *master = arg;
    choir__hogwild_take(CHOIR__ADD_F32, master, mine, old, WORDS);
    for (int r = 0; r < 1000; r++) {
        for (int i = 0; i < WORDS && rank; i++) /* rank 0 only looks */
            mine[i] += mine[i] > 100 * 65537 || (mine[i] > -100 * 65537 && (r + i) % 2) ? -65537
                                                                                        : 65537;
        choir__hogwild_exchange(CHOIR__ADD_F32, master, mine, old, WORDS);
        CHECK(are_whole(mine, WORDS));
    }
    return 0;
}

static void test_no_tearing(void **state)
{
    char why[200];
    choir__mapping *m = choir__mapping_new(WORDS * sizeof(float), why);
    assert_non_null(m);
    ok(choir_spawn(4, add, m->at));
    assert_true(are_whole((float *)m->at, WORDS));
    choir__mapping_unref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parent_sees_it),
        cmocka_unit_test(test_one_is_single),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_no_tearing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
