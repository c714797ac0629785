/* Trials of stored studies: asked for, ended and on the disk.
 *
 *     choir_bench_durable STORAGE TRIALS PARAMETERS THREADS
 *
 * Prints trials per second. Each thread asks for a trial and tells its end, which returns when
 * the trial is durable; the window is as large as the number of threads. */
#include <choir/choir.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *arg)
{
    choir_study *study = arg;
    choir_trial *trial;
    choir_status status;
    while ((status = choir_study_ask(study, &trial)) != CHOIR_ERR_END) {
        if (status == CHOIR_ERR_STATE)
            continue;
        choir_check(status);
        double value = choir_trial_real(trial, "x0");
        choir_check(choir_study_tell(study, trial, CHOIR_TRIAL_COMPLETE, &value, 1));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    enum { MOST_THREADS = 256 };
    pthread_t threads[MOST_THREADS];
    if (argc != 5) {
        fprintf(stderr, "usage: %s STORAGE TRIALS PARAMETERS THREADS\n", argv[0]);
        return 2;
    }
    int count = atoi(argv[4]);
    if (count < 1 || count > MOST_THREADS) {
        fprintf(stderr, "expected 1 to %d threads, got %d\n", MOST_THREADS, count);
        return 2;
    }
    choir_space *space = choir_space_new();
    for (int i = 0; i < atoi(argv[3]); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        choir_check(choir_space_add(space, name, "uniform(0, 1)"));
    }
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = "random";
    opts.storage = argv[1];
    opts.trials = atoll(argv[2]);
    opts.window = count;
    choir_study *study;
    choir_check(choir_study_open(space, opts, &study));
    double from = now();
    int64_t before = choir_study_count(study);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, study);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%.0f trials/s\n", (double)(opts.trials - before) / (now() - from));
    choir_study_free(study);
    choir_space_free(space);
    return 0;
}
