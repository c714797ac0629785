/* A search beside its trials: how much it reads of a fork at once, and how it sleeps. */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "base/base.h"
#include "helpers.h"
#include "tune/program/link.h"

/* --- sleeping: this poll stands before libc's --- */

static int looks;         /* times that the search slept for a while only */
static int release = -1;  /* ends the trial */
static bool counts_polls; /* only here */

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    struct timespec limit = {timeout / 1000, timeout % 1000 * 1000000L};
    if (counts_polls && timeout > 0)
        looks++;
    if (counts_polls && release >= 0 && (timeout < 0 || looks > 2)) {
        assert_int_equal(write(release, "x", 1), 1);
        release = -1;
    }
    return (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &limit, NULL, 0);
}

static choir_study *open_study(const char *storage, int64_t trials)
{
    choir_study *study;
    choir_space *space = choir_space_new();
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = "random";
    opts.trials = trials;
    opts.window = 2;
    opts.storage = storage;
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    ok(choir_study_open(space, opts, &study));
    choir_space_free(space);
    return study;
}

static choir_status wait_for_release(choir_trial *trial, void *arg, double *values)
{
    char byte;
    values[0] = 1;
    return read(*(int *)arg, &byte, 1) == 1 ? CHOIR_OK : CHOIR_ERR_IO;
}

/* The other place has nothing to wait for: no other process has a trial of the study. */
static void sleeps_beside_its_last_trial(void **state)
{
    int ends[2];
    char folder[] = "/tmp/choir-link-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *url = choir__format("journal:%s/study", folder);
    choir_study *study = open_study(url, 1);
    choir_tune_opts opts = choir_tune_defaults();
    opts.forks = true;
    opts.parallel = 2;
    assert_int_equal(pipe(ends), 0);
    release = ends[1];
    counts_polls = true;
    ok(choir_tune(study, wait_for_release, &ends[0], opts));
    counts_polls = false;
    assert_int_equal(looks, 0);
    assert_int_equal(choir_study_count(study), 1);
    choir_study_free(study);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(shell("rm -rf '%s'", folder), 0);
    free(url);
}

/* --- reading --- */

/* All reports of a fork are in the socket; each look takes a part of them. */
static void reads_a_part_at_once(void **state)
{
    enum { REPORTS = 200 };
    int pair[2], calls = 0;
    choir_trial *trial;
    choir__link_inbox in = {.ended = false};
    choir_study *study = open_study(NULL, 1);
    ok(choir_study_ask(study, &trial));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    choir__link_message *all = choir__calloc(REPORTS, sizeof *all);
    for (int i = 0; i < REPORTS; i++)
        all[i] =
            (choir__link_message){.kind = CHOIR__LINK_REPORT, .step = i + 1, .values = {1}};
    assert_true(choir__link_send(pair[1], all, REPORTS * sizeof *all));
    free(all);
    while (choir__link_read(&in, pair[0], trial) > 0) {
        calls++;
        assert_true(calls > 1 || choir_trial_last_step(trial) < REPORTS);
        char answers[1 << 16]; /* else no more fit */
        while (recv(pair[1], answers, sizeof answers, MSG_DONTWAIT) > 0)
            ;
    }
    assert_true(calls > 1);
    assert_int_equal(choir_trial_last_step(trial), REPORTS);
    close(pair[1]);
    assert_int_equal(choir__link_read(&in, pair[0], trial), -1);
    close(pair[0]);
    choir__link_free(&in);
    double value = 1;
    ok(choir_study_tell(study, trial, CHOIR_TRIAL_COMPLETE, &value, 1));
    choir_study_free(study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleeps_beside_its_last_trial),
        cmocka_unit_test(reads_a_part_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
