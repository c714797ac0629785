/* Hogwild and death: a killed worker is named, and the weights that the others share are whole
 * and can be trained further. When all workers are killed at once, their memory is released
 * with them. */
#include "fault/notes.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "multi/ranks.h"

typedef struct job {
    notes *notes;
    choir_module *net;
    int steps, dies_at; /* rank 1; never: -1 */
} job;

static int train(int rank, int world, void *arg)
{
    job *j = arg;
    choir_scope *run = j->net->run;
    choir_optim *opt = choir_sgd(run, j->net, choir_sgd_defaults());
    for (int i = 0; i < j->steps; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *x = choir_randn(s, choir_dims(4, 64), "x");
        CHECK_OK(choir_backward(choir_mse_loss(choir_forward(j->net, x), x)));
        CHECK_OK(choir_optim_step(opt));
        CHECK_OK(choir_scope_close(s));
        if (rank == 1 && i == j->dies_at)
            kill(getpid(), SIGKILL);
        j->notes->pid[rank] = getpid();
    }
    return 0;
}

static void check_finite(const char *name, choir_tensor *t, void *arg)
{
    static float words[64 * 64];
    size_t bytes = (size_t)choir_tensor_count(t) * sizeof(float);
    choir_check(choir_read(t, words, bytes));
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        assert_true(isfinite(words[i]));
}

static void test_killed_worker(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    job j = {new_notes(), choir_nn_linear(run, 64, 64), 1000000, 20};
    choir_check(choir_module_share_memory(j.net));
    assert_fails(choir_spawn(3, train, &j), CHOIR_ERR_PEER_LOST, "rank 1 (pid ");
    assert_says("SIGKILL");
    choir_module_visit(j.net, true, check_finite, NULL);
    int64_t updates = choir_hogwild_updates(j.net);
    assert_true(updates >= 20);
    j.steps = 30;
    j.dies_at = -1;
    ok(choir_spawn(3, train, &j)); /* on we go */
    assert_int_equal(choir_hogwild_updates(j.net), updates + 90);
    choir_module_visit(j.net, true, check_finite, NULL);
    ok(choir_scope_close(run));
    munmap(j.notes, sizeof *j.notes);
}

/* --- nothing left behind --- */

static int share_and_train(notes *n)
{
    choir_scope *run = choir_scope_open(NULL, 42);
    job j = {n, choir_nn_linear(run, 64, 64), 1000000, -1};
    choir_check(choir_module_share_memory(j.net));
    return -choir_spawn(3, train, &j);
}

static void test_nothing_left(void **state)
{
    notes *n = new_notes();
    int before = shared_files();
    pid_t pid = fork();
    if (pid == 0)
        _exit(share_and_train(n));
    await_pids(n, 3);
    kill_spawner(pid, n, 3); /* all who mapped the memory are gone */
    assert_true(shared_files() <= before);
    munmap(n, sizeof *n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_left), /* first: no threads yet when it forks */
        cmocka_unit_test(test_killed_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
