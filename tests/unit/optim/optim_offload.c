/* Optimizer state in a file: it has the bits of state in memory, its pages are in the process's
 * memory only during the update, and the file has no name in the folder; errors of the
 * folder. */
#include <signal.h>
#include <sys/resource.h>

#include "job_fixture.h"
#include "tensor/scope.h"

enum { WIDTH = 700, STEPS = 5 };

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_tensor *x;
} job;

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_tensor *y = choir_forward(j->net, choir_in(step, j->x));
    choir_status status = choir_backward(choir_mean(choir_mul(y, y)));
    return status ? status : choir_optim_step(j->optim);
}

/* 0: SGD with momentum, 1: AdamW, 2: with amsgrad, 3: LAMB. */
static void open_job(job *j, int kind)
{
    choir_sgd_opts sgd = choir_sgd_defaults();
    choir_adamw_opts adam = choir_adamw_defaults();
    choir_lamb_opts lamb = choir_lamb_defaults();
    sgd.momentum = 0.9f;
    adam.amsgrad = kind == 2;
    j->run = choir_scope_open(choir_device_find("cpu:0"), 3);
    j->net = choir_nn_sequential(j->run, choir_nn_linear(j->run, WIDTH, WIDTH),
        choir_nn_relu(j->run), choir_nn_linear(j->run, WIDTH, 5));
    j->optim = kind == 0   ? choir_sgd(j->run, j->net, sgd)
               : kind == 3 ? choir_lamb(j->run, j->net, lamb)
                           : choir_adamw(j->run, j->net, adam);
    j->x = choir_randn(j->run, choir_dims(4, WIDTH), "x");
    choir_check(choir_scope_status(j->run));
}

/* Returns how many KiB of the mapping around `at` are in the process's memory. */
static long resident(const void *at)
{
    char line[512];
    long kib = -1;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
            here = (uintptr_t)at >= lo && (uintptr_t)at < hi;
        else if (here && sscanf(line, "Rss: %ld", &kib) == 1)
            break;
    }
    if (f)
        fclose(f);
    return kib;
}

static void check_away(const char *name, choir_tensor *t, void *arg)
{
    assert_int_equal(resident(t->storage->data), 0);
}

static uint64_t train(int kind, bool recorded, const char *folder)
{
    job j;
    uint64_t h = CHOIR__HASH_SEED;
    open_job(&j, kind);
    if (folder)
        choir_check(choir_optim_offload(j.optim, folder));
    for (int s = 0; s < STEPS; s++)
        choir_check(run_step(j.run, recorded, s, body, &j));
    choir_check(choir_device_sync(j.run->device));
    if (folder) {
        choir_optim_visit(j.optim, check_away, NULL);
        assert_int_equal(entries(folder), 0);
    }
    choir_module_visit(j.net, false, hash_values, &h);
    choir_optim_visit(j.optim, hash_values, &h);
    choir_check(choir_scope_close(j.run));
    return h;
}

static void test_bits(void **state)
{
    char folder[] = "/tmp/choir-offload.XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int kind = 0; kind < 4; kind++) {
        uint64_t memory = train(kind, false, NULL);
        assert_true(train(kind, false, folder) == memory);
        assert_true(train(kind, true, folder) == memory);
    }
    rmdir(folder);
}

static void test_wrong(void **state)
{
    job j;
    open_job(&j, 1);
    assert_fails(
        choir_optim_offload(j.optim, "/nowhere/at/all"), CHOIR_ERR_IO, "'/nowhere/at/all'");
    ok(choir_optim_offload(j.optim, "/tmp"));
    assert_int_equal(choir_optim_offload(j.optim, "/tmp"), CHOIR_ERR_STATE);
    choir_check(choir_scope_close(j.run));
    open_job(&j, 1);
    choir_check(run_step(j.run, false, 0, body, &j));
    assert_fails(
        choir_optim_offload(j.optim, "/tmp"), CHOIR_ERR_STATE, "before the first step");
    choir_check(choir_scope_close(j.run));
}

/* Fails as on a full disk. */
static void test_no_room(void **state)
{
    job j;
    struct rlimit was, small;
    open_job(&j, 1);
    ok(choir_optim_offload(j.optim, "/tmp"));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small = was;
    small.rlim_cur = 100000;
    setrlimit(RLIMIT_FSIZE, &small);
    choir_scope *step = choir_step_open(j.run, 0);
    assert_int_not_equal(body(step, &j), CHOIR_OK);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_says("bytes for the optimizer's state in '/tmp'");
    choir_scope_close(step);
    choir_scope_close(j.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits),
        cmocka_unit_test(test_wrong), cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
