/* Hogwild and death: a killed worker is named, and the weights that the others share are whole
 * and can be trained further. When all workers are killed at once, their memory is released
 * with them. */
#include "fault/notes.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

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

static int files(void)
{
    int found = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        found += strstr(e->d_name, "choir") != NULL;
    if (d)
        closedir(d);
    return found;
}

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
    int before = files();
    pid_t pid = fork();
    if (pid == 0)
        _exit(share_and_train(n));
    for (int r = 0; r < 3; r++)
        while (!*(volatile pid_t *)&n->pid[r])
            nap(0.01);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    double deadline = choir__now() + HANGS_S;
    for (int r = 0; r < 3; r++)
        while (!gone(n->pid[r]) && choir__now() < deadline)
            nap(0.02);
    for (int r = 0; r < 3; r++)
        assert_true(gone(n->pid[r])); /* and with it who mapped the memory */
    assert_true(files() <= before);
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
