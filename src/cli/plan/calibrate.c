/* choir plan --calibrate: measures this machine, for the times of later plans.
 *
 * Small models of each family are trained on one device, whose queue a stopwatch watches; a
 * model on the command line is trained as well, so that its kernels are in the table with their
 * own sizes. Two processes then exchange small and large sums. No strategy but `single` runs:
 * the others are predicted from these times. */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <choir/choir.h>

#include "base/base.h"
#include "base/files/folders.h"
#include "forecast/network.h"
#include "forecast/stopwatch.h"
#include "job/run.h"

enum { STEPS = 12, RECORDED = 3, MOST_ARGS = 16 };

/* The trainings, as words behind `choir plan`. */
static const char *const trainings[][MOST_ARGS] = {
    {"--model=gpt2:layers=2,width=64,heads=2,context=64,vocab=256", "--batch-size=8"},
    {"--model=gpt2:layers=2,width=192,heads=4,context=128,vocab=1024", "--batch-size=4"},
    {"--model=gpt2:layers=1,width=512,heads=8,context=128,vocab=4096", "--batch-size=4"},
    {"--model=llama:layers=2,width=128,heads=4,context=128,vocab=512", "--batch-size=4"},
    {"--model=mlp:hidden=256", "--batch-size=64", "--optimizer=sgd"},
    {"--model=mlp:hidden=1024", "--batch-size=128"},
    {"--model=cnn", "--batch-size=32", "--optimizer=sgd"},
    {"--model=resnet18:image=32,width=16,classes=10", "--batch-size=16"},
};

/* --- kernels --- */

/* Trains a job on one device, with the stopwatch. */
static choir_status train(choir__planning *p, choir__stopwatch *watch)
{
    choir__job *j = &p->job;
    choir__job_end end;
    bool usage;
    j->records = (choir__job_records){.silent = true, .log_every = STEPS};
    j->saves = (choir__job_saves){.keep = j->saves.keep};
    j->training.steps = STEPS;
    j->training.eval_every = 0;
    j->placement.strategy_text = "single";
    j->placement.mesh = NULL;
    j->placement.nproc = 0;
    choir_status status = choir__job_make_ready(j, &usage);
    choir_device *device =
        status == CHOIR_OK ? choir_device_find(j->placement.device_names[0]) : NULL;
    if (!device)
        return status ? status : CHOIR_ERR_DEVICE;
    choir__stopwatch_watch(watch, device, STEPS - RECORDED);
    status = choir__job_run(j, &end);
    choir__stopwatch_stop(watch);
    return status;
}

static choir_status train_words(
    const choir__planning *p, const char *const words[], choir__stopwatch *watch)
{
    char *argv[MOST_ARGS + 4] = {"plan", "--devices=cpu:0", "random"};
    int argc = 3;
    choir__planning own = {0};
    for (; words[argc - 3]; argc++)
        argv[argc] = (char *)words[argc - 3];
    choir_status status = choir__plan_parse(p->command, &own, argc, argv) ? CHOIR_ERR_ARGUMENT
                                                                          : train(&own, watch);
    choir__job_free(&own.job);
    return status;
}

/* --- messages --- */

enum {
    SMALL = 256,
    LARGE = 1 << 20, /* f32 */
    TRIES = 120,
    LEAST = TRIES / 40
};

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the seconds of an all-reduce that only a fortieth of the tries fall below: a rank
 * that waits for its turn on a busy core makes a try longer, and nothing makes it shorter. */
static double time_sums(choir_group *group, float *data, int64_t count)
{
    double seconds[TRIES];
    for (int i = 0; i < TRIES; i++) {
        choir_check(choir_group_barrier(group, NULL));
        const double start = choir__now();
        choir_check(choir_group_all_reduce(group, data, count, CHOIR_F32, CHOIR_SUM, NULL));
        seconds[i] = choir__now() - start;
    }
    qsort(seconds, TRIES, sizeof *seconds, by_number);
    return seconds[LEAST];
}

static int exchange(int rank, int world, void *arg)
{
    double *seconds = arg;
    choir_env env;
    (void)world;
    choir_check(choir_env_init(&env));
    float *data = choir__calloc(LARGE, sizeof *data);
    const double small = time_sums(env.group, data, SMALL),
                 large = time_sums(env.group, data, LARGE);
    if (rank == 0)
        seconds[0] = small, seconds[1] = large;
    free(data);
    choir_env_free(&env);
    return 0;
}

/* Sets alpha and beta so that the price of two ranks' sums is the measured time. */
static choir_status measure_messages(choir__costs *costs)
{
    choir__cluster c;
    choir__call_cost free_messages;
    double *seconds = mmap(
        NULL, 2 * sizeof *seconds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const choir__call_shape large = {.kind = CHOIR__ALL_REDUCE,
        .dtype = CHOIR_F32,
        .count = LARGE,
        .group = {2, 1},
        .world = 2};
    if (seconds == MAP_FAILED)
        return choir__error(CHOIR_ERR_MEMORY, "calibration: no memory for two ranks");
    choir_status status = choir_spawn(2, exchange, seconds);
    if (status == CHOIR_OK)
        status = choir__cluster_preset("cpu", 1, 2, &c);
    c.links[CHOIR__LEVEL_CORE].alpha_s = 0;
    c.links[CHOIR__LEVEL_CORE].beta_bytes_s = 1e18;
    if (status == CHOIR_OK)
        status = choir__network_price(&c, &large, &free_messages);
    if (status == CHOIR_OK) {
        /* A small sum is one round, a large one two of half the data each. */
        const double rest = seconds[1] - 2 * seconds[0] - free_messages.seconds;
        costs->alpha_s = seconds[0];
        costs->beta_bytes_s = rest > 1e-6 ? LARGE * sizeof(float) / rest : 1e12;
    }
    munmap(seconds, 2 * sizeof *seconds);
    return status;
}

/* --- all together --- */

static choir_status keep(choir__costs *costs, const char *kind, double began)
{
    char *path = choir__costs_path(kind), *slash = strrchr(path, '/');
    choir_status status = choir__costs_key(kind, costs->key);
    if (slash) {
        *slash = '\0';
        choir__folders_make(path);
        *slash = '/';
    }
    if (status == CHOIR_OK)
        status = choir__costs_write(path, costs);
    if (status == CHOIR_OK)
        printf("%s: %d kinds of kernels, %.2g us between tasks, %.3g ms of a step, messages of "
               "%.2g us and %.3g GB/s, in %.0f s\n",
            path, costs->row_count, costs->task_s * 1e6, costs->step_s * 1e3,
            costs->alpha_s * 1e6, costs->beta_bytes_s * 1e-9, choir__now() - began);
    free(path);
    return status;
}

int choir__plan_calibrate(choir__planning *p)
{
    const double began = choir__now();
    choir__costs costs = {.row_count = 0};
    choir_status status = measure_messages(&costs); /* before threads that a fork would lose */
    choir__stopwatch *watch = choir__stopwatch_new();
    for (size_t i = 0; i < CHOIR_COUNT(trainings) && status == CHOIR_OK; i++)
        status = train_words(p, trainings[i], watch);
    if (status == CHOIR_OK && (p->job.model.name || p->job.data.path))
        status = train(p, watch);
    choir__stopwatch_end(watch, &costs);
    if (status == CHOIR_OK)
        status = keep(&costs, "cpu", began);
    choir__costs_free(&costs);
    return status == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}
