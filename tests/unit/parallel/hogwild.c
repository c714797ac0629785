/* Hogwild within a process: the effect of an exchange on a word; words stay whole when many
 * threads write at once; a single worker computes the bits of a program that shares nothing;
 * two workers in two threads, on two devices, learn together without a report from
 * ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>

#include "job_fixture.h"
#include "step_fixture.h"
#include "parallel/hogwild/hogwild.h"

enum { WORDS = 1024, SAMPLES = 96, BATCH = 24 };

static int eight_devices(void **state)
{
    return setenv("CHOIR_CPU_DEVICES", "8", 1);
}

/* --- words --- */

static void test_rules(void **state)
{
    /*                    untouched  mine alone  the other's  both    mine is -0 */
    float master[5] = {1, 2, 7, 7, 0}, mine[5] = {1, 3, 2, 3, -0.0f}, old[5] = {1, 2, 2, 2, 0};
    const float added[5] = {1, 3, 7, 8, -0.0f}, put[5] = {1, 3, 7, 3, -0.0f};
    float m[5], w[5], s[5];
    for (int rule = 0; rule < 2; rule++) {
        memcpy(m, master, sizeof m);
        memcpy(w, mine, sizeof w);
        memcpy(s, old, sizeof s);
        assert_true(choir__hogwild_exchange((choir__hogwild_rule)rule, m, w, s, 5));
        const float *wanted = rule == CHOIR__ADD_F32 ? added : put;
        assert_memory_equal(m, wanted, sizeof m);
        assert_memory_equal(w, wanted, sizeof m);
        assert_memory_equal(s, wanted, sizeof m);
        assert_false(choir__hogwild_exchange((choir__hogwild_rule)rule, m, w, s, 5));
    }
    int64_t counts[3] = {5, 9, 9}, here[3] = {5, 7, 6}, before[3] = {5, 6, 6};
    assert_true(choir__hogwild_exchange(CHOIR__ADD_I64, counts, here, before, 3));
    assert_true(counts[0] == 5 && counts[1] == 10 && counts[2] == 9);
    assert_memory_equal(here, counts, sizeof counts);
    assert_memory_equal(before, counts, sizeof counts);
}

/* A worker alone sets a word to its own bits, even where adding mine - snapshot would not give
 * them: 1e-8 - 1 is -1 in f32. */
static void test_alone_to_the_bit(void **state)
{
    float master = 1, mine = 1e-8f, old = 1;
    choir__hogwild_exchange(CHOIR__ADD_F32, &master, &mine, &old, 1);
    assert_true(master == 1e-8f);
}

/* Four threads add and subtract 65537, whose halves are both 1. Updates may be lost, but a word
 * that is not a multiple of 65537 was torn. */
typedef struct adder {
    float *master;
    int rounds;
    bool torn;
} adder;

static void *add(void *arg)
{
    adder *a = arg;
    float mine[WORDS], old[WORDS];
    choir__hogwild_take(CHOIR__ADD_F32, a->master, mine, old, WORDS);
    for (int r = 0; r < a->rounds; r++) {
        for (int i = 0; i < WORDS; i++)
            mine[i] += mine[i] > 100 * 65537 || (mine[i] > -100 * 65537 && (r + i) % 2) ? -65537
                                                                                        : 65537;
        choir__hogwild_exchange(CHOIR__ADD_F32, a->master, mine, old, WORDS);
        a->torn |= !are_whole(mine, WORDS);
    }
    return NULL;
}

static void test_no_tearing(void **state)
{
    static _Alignas(64) float master[WORDS];
    pthread_t threads[4];
    adder adders[4];
    for (int i = 0; i < 4; i++) {
        adders[i] = (adder){master, 2000, false};
        assert_int_equal(pthread_create(&threads[i], NULL, add, &adders[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(adders[i].torn);
    }
    assert_true(are_whole(master, WORDS));
}

/* --- training --- */

static choir_module *new_net(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, 12, 32), choir_nn_batch_norm(run, 32),
        choir_nn_relu(run), choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 32, 4));
}

static job open_job(const char *device, choir_dataset *dataset, int worker, int workers)
{
    job j = {.run = choir_scope_open(choir_device_find(device), 42)};
    j.net = new_net(j.run);
    j.data = rank_loader(j.run, dataset, BATCH * workers, workers, worker, 1);
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 3e-3f;
    j.optim = choir_adamw(j.run, j.net, hp);
    choir_optim_clip(j.optim, 1);
    return j;
}

static void train(job *j, int steps, bool recorded, double *losses)
{
    for (int i = 0; i < steps; i++) {
        choir_check(run_step(j->run, recorded, i, body, j));
        if (losses)
            losses[i] = choir_item(j->loss);
    }
}

static void same(const char *name, choir_tensor *t, void *arg)
{
    choir_tensor *other = choir_module_find(arg, name);
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    void *a = malloc(bytes), *b = malloc(bytes);
    ok(choir_read(t, a, bytes));
    ok(choir_read(other, b, bytes));
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

static choir_dataset *new_data(void)
{
    choir_dataset *d;
    choir_check(choir_dataset_random(SAMPLES, choir_dims(12), CHOIR_SCALAR, 4, 7, &d));
    return d;
}

static void test_one_worker_same_bits(void **state)
{
    choir_dataset *data = new_data();
    for (int recorded = 0; recorded < 2; recorded++) {
        double alone[12], shared[12];
        job single = open_job("cpu:0", data, 0, 1), worker = open_job("cpu:0", data, 0, 1);
        choir_scope *run = choir_scope_open(NULL, 42);
        choir_module *master = new_net(run);
        train(&single, 12, recorded, alone);
        choir_check(choir_module_share_memory(master));
        choir_check(choir_module_share_memory(master)); /* again: nothing happens */
        choir_hogwild_opts opts = choir_hogwild_defaults();
        opts.master = master;
        assert_ptr_equal(choir_hogwild(worker.run, worker.net, opts), worker.net);
        train(&worker, 12, recorded, shared);
        assert_memory_equal(alone, shared, sizeof alone);
        assert_int_equal(choir_hogwild_updates(worker.net), 12);
        assert_int_equal(choir_hogwild_updates(master), 12);
        assert_int_equal(choir_hogwild_updates(single.net), 0);
        choir_module_visit(worker.net, true, same, single.net);
        choir_module_visit(master, true, same, single.net);
        ok(choir_scope_close(worker.run));
        ok(choir_scope_close(single.run));
        ok(choir_scope_close(run));
    }
    choir_dataset_free(data);
}

/* The shared module may itself be trained, and its optimizer may be older than the sharing. */
static void test_shared_in_place(void **state)
{
    choir_dataset *data = new_data();
    double alone[12], shared[12];
    job single = open_job("cpu:0", data, 0, 1), other = open_job("cpu:0", data, 0, 1);
    train(&single, 12, true, alone);
    train(&other, 6, true, shared);
    choir_check(choir_module_share_memory(other.net));
    train(&other, 6, true, shared + 6);
    assert_memory_equal(alone, shared, sizeof alone);
    choir_module_visit(other.net, true, same, single.net);
    choir_check(choir_scope_close(other.run));
    choir_check(choir_scope_close(single.run));
    choir_dataset_free(data);
}

/* choir_hogwild_exchange publishes the worker's own changes and takes in those of others. */
static void test_exchange_by_hand(void **state)
{
    choir_hogwild_opts opts = choir_hogwild_defaults();
    choir_scope *runs[3];
    choir_module *nets[3];
    float w = 0;
    for (int i = 0; i < 3; i++) {
        runs[i] = choir_scope_open(choir_device_find(i ? "cpu:1" : "cpu:0"), 1);
        nets[i] = choir_nn_linear(runs[i], 1, 1);
        choir_check(choir_write(choir_module_find(nets[i], "weight"), &(float){1}, 4));
    }
    choir_check(choir_module_share_memory(nets[0]));
    opts.master = nets[0];
    for (int i = 1; i < 3; i++)
        choir_hogwild(runs[i], nets[i], opts);
    choir_check(choir_write(choir_module_find(nets[1], "weight"), &(float){1.5f}, 4));
    choir_check(choir_write(choir_module_find(nets[2], "weight"), &(float){3}, 4));
    choir_check(choir_hogwild_exchange(nets[1]));
    choir_check(choir_device_sync(choir_device_find("cpu:1")));
    choir_check(choir_hogwild_exchange(nets[2]));
    choir_check(choir_read(choir_module_find(nets[2], "weight"), &w, sizeof w));
    assert_true(w == 3.5f); /* 1 + 0.5 + 2 */
    choir_check(choir_read(choir_module_find(nets[0], "weight"), &w, sizeof w));
    assert_true(w == 3.5f);
    choir_check(choir_read(choir_module_find(nets[1], "weight"), &w, sizeof w));
    assert_true(w == 1.5f); /* its own snapshot, until */
    choir_check(choir_scope_close(choir_step_open(runs[1], 0)));
    choir_check(choir_read(choir_module_find(nets[1], "weight"), &w, sizeof w));
    assert_true(w == 3.5f); /* a step begins */
    for (int i = 0; i < 3; i++)
        ok(choir_scope_close(runs[i]));
}

/* --- threads --- */

typedef struct thread_job {
    pthread_t thread;
    choir_dataset *data;
    choir_module *master;
    int worker;
    double last;
} thread_job;

static void *train_in_thread(void *arg)
{
    thread_job *t = arg;
    choir_hogwild_opts opts = choir_hogwild_defaults();
    double losses[200];
    job j = open_job(t->worker ? "cpu:1" : "cpu:0", t->data, t->worker, 2);
    opts.master = t->master;
    choir_hogwild(j.run, j.net, opts);
    choir_check(choir_scope_status(j.run));
    train(&j, 200, t->worker == 1, losses);
    t->last = losses[199];
    choir_check(choir_scope_close(j.run));
    return NULL;
}

static void test_two_threads(void **state)
{
    choir_dataset *data[2] = {new_data(), new_data()}; /* a loader reads in a thread */
    choir_scope *run = choir_scope_open(choir_device_find("cpu:2"), 42);
    choir_module *net = new_net(run);
    thread_job jobs[2];
    int64_t batches;
    double before = loss_of_all(net, data[0], SAMPLES);
    choir_check(choir_module_share_memory(net));
    for (int i = 0; i < 2; i++) {
        jobs[i] = (thread_job){.data = data[i], .master = net, .worker = i};
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, train_in_thread, &jobs[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(jobs[i].thread, NULL);
    double after = loss_of_all(net, data[0], SAMPLES);

    assert_true(after < before / 2);
    assert_int_equal(choir_hogwild_updates(net), 400);
    choir_check(choir_read(choir_module_find(net, "1.num_batches_tracked"), &batches, 8));
    assert_true(batches >= 200 && batches <= 400); /* two runs, whose micro-batch is 0 */
    ok(choir_scope_close(run));
    choir_dataset_free(data[0]);
    choir_dataset_free(data[1]);
}

/* --- errors --- */

static void test_errors(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 1), *other = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_linear(run, 2, 3), *wide = choir_nn_linear(other, 2, 4);
    choir_hogwild_opts opts = choir_hogwild_defaults();
    choir_hogwild(other, wide, opts);
    assert_fails(
        choir_scope_status(other), CHOIR_ERR_ARGUMENT, "choir_module_share_memory before");
    choir_scope_clear(other);
    opts.master = net;
    choir_hogwild(other, wide, opts);
    assert_fails(choir_scope_status(other), CHOIR_ERR_ARGUMENT, "opts.master is not shared");
    choir_scope_clear(other);
    choir_scope_close(other);

    other = choir_scope_open(NULL, 1);
    wide = choir_nn_linear(other, 2, 4);
    choir_check(choir_module_share_memory(net));
    choir_hogwild(other, wide, opts);
    assert_fails(
        choir_scope_status(other), CHOIR_ERR_MISMATCH, "other parameters than the master");
    choir_scope_close(other);
    choir_hogwild(run, net, choir_hogwild_defaults());
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "holds the master itself");
    choir_scope_clear(run);

    assert_fails(choir_module_to(net, choir_device_find("cpu:1")), CHOIR_ERR_STATE,
        "shared with other processes");
    choir_scope_clear(run);
    choir_module *deep = choir_nn_sequential(run, choir_nn_linear(run, 2, 3));
    choir_check(choir_module_to(deep, choir_device_find("cpu:1")));
    assert_fails(choir_module_share_memory(deep), CHOIR_ERR_DEVICE,
        "'0.weight' is on cpu:1, its run on cpu:0");
    choir_scope_clear(run);
    choir_check(choir_module_to(deep, choir_device_find("cpu:0")));
    choir_check(choir_module_share_memory(deep));
    choir_module *part = deep->inside->entries->child;
    assert_int_equal(choir_module_to(part, choir_device_find("cpu:1")), CHOIR_ERR_STATE);
    choir_scope_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_alone_to_the_bit),
        cmocka_unit_test(test_no_tearing),
        cmocka_unit_test(test_one_worker_same_bits),
        cmocka_unit_test(test_shared_in_place),
        cmocka_unit_test(test_exchange_by_hand),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, eight_devices, NULL);
}
