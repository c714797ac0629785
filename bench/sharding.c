/* Measures the memory and the speed of a model on several ranks of one machine, under DDP and
 * under FSDP's stages: one line per strategy.
 *
 *   choir_bench_sharding [MODEL] [RANKS] [BATCH] [ROUNDS] [STEPS]
 *
 * PSS is the proportional resident memory of a rank, the maximum seen, minus that of the
 * process before it built the model. The bound is for stage 3 with AdamW: 16 / RANKS bytes per
 * parameter, the largest unit's parameters and gradients, and activations (the peak of one
 * device at the same micro-batch, minus its 16 bytes per parameter). Rounds run the strategies
 * in turn; times are medians over rounds of a round's median step. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <choir/choir.h>

#include "base/base.h"
#include "nn/module.h"
#include "tensor/scope.h"

enum { MOST_RANKS = 16, MOST_ROUNDS = 32, MOST_STEPS = 64, WARM_UP = 3 };

typedef struct report { /* in memory that the ranks share */
    double step_s;
    int64_t pss[MOST_RANKS], pool[MOST_RANKS]; /* bytes */
    int64_t parameters, largest;               /* largest: parameters of the largest unit */
} report;

typedef struct plan {
    const char *model, *strategy;
    int stage; /* of fsdp; 0: ddp; -1: neither */
    int64_t batch;
    int ranks, steps;
    report *report;
} plan;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

/* --- proportional memory --- */

static int64_t pss_now(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

typedef struct watch {
    atomic_bool stop;
    int64_t most;
} watch;

static void *watching(void *arg)
{
    watch *w = arg;
    while (!atomic_load(&w->stop)) {
        int64_t now = pss_now();
        w->most = now > w->most ? now : w->most;
        usleep(20000);
    }
    return NULL;
}

/* --- a rank --- */

typedef struct job {
    const plan *plan;
    choir_env env;
    choir_model_info info;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_loader *loader;
    int64_t first, count;
} job;

static choir_status one_step(choir_scope *step, void *arg)
{
    job *j = arg;
    for (int64_t m = 0; m < j->count; m++) {
        choir_scope *micro = choir_micro_open(step, j->first + m);
        choir_batch b;
        choir_check(choir_loader_next(j->loader, micro, &b));
        choir_tensor *out = choir_model_forward(&j->info, j->net, b.x, b.y);
        choir_check(choir_backward(choir_model_loss(&j->info, out, b.y)));
        choir_check(choir_scope_close(micro));
    }
    return choir_optim_step(j->optim);
}

static int64_t largest_unit(choir_module *net, int64_t *parameters)
{
    int count, most = 0;
    choir__param **params = choir__module_params(net, &count);
    int64_t best = 0;
    *parameters = 0;
    for (int i = 0; i < count; i++)
        most = params[i]->unit > most ? params[i]->unit : most;
    for (int u = 0; u <= most; u++) {
        int64_t sum = 0;
        for (int i = 0; i < count; i++)
            sum += params[i]->unit == u ? params[i]->tensor->count : 0;
        *parameters += sum;
        best = sum > best ? sum : best;
    }
    free(params);
    return best;
}

static choir_dataset *open_data(const job *j)
{
    choir_dataset *data;
    choir_status status =
        j->info.task == CHOIR_LANGUAGE
            ? choir_dataset_random_tokens(512, j->info.input.dim[0], j->info.classes, 5, &data)
            : choir_dataset_random(512, j->info.input, CHOIR_SCALAR, j->info.classes, 5, &data);
    choir_check(status);
    return data;
}

static void build(job *j)
{
    const plan *p = j->plan;
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    fsdp.stage = p->stage;
    j->env.microbatches = p->ranks;
    if (p->stage < 0) /* one device: the activations of one micro-batch */
        j->env.microbatches = 1;
    j->run = choir_run_open(&j->env, 1);
    choir_env_micro(&j->env, &j->first, &j->count);
    choir_check(choir_model_describe(p->model, &j->info));
    j->net = choir_model_build(j->run, &j->info);
    if (p->stage == 0)
        j->net = choir_ddp(j->run, j->net, j->env.group, choir_ddp_defaults());
    if (p->stage > 0)
        j->net = choir_fsdp(j->run, j->net, j->env.group, fsdp);
    j->optim = choir_adamw(j->run, j->net, choir_adamw_defaults());
    choir_check(choir_scope_status(j->run));
}

static int rank(int r, int world, void *arg)
{
    const plan *p = arg;
    job j = {.plan = p};
    watch w = {.most = 0};
    pthread_t watcher;
    double seconds[MOST_STEPS];
    choir_device_stats stats;
    (void)world;
    choir_check(choir_env_init(&j.env));
    int64_t before = pss_now();
    pthread_create(&watcher, NULL, watching, &w);
    build(&j);
    choir_dataset *data = open_data(&j);
    j.loader = choir_env_loader(j.run, &j.env, data, p->batch);
    for (int s = 0; s < WARM_UP + p->steps; s++) {
        double begin = choir__now();
        choir_check(choir_step(j.run, one_step, &j));
        choir_check(choir_device_sync(j.env.device));
        if (s >= WARM_UP)
            seconds[s - WARM_UP] = choir__now() - begin;
    }
    atomic_store(&w.stop, true);
    pthread_join(watcher, NULL);
    choir_device_get_stats(j.env.device, &stats);
    p->report->pss[r] = w.most - before;
    p->report->pool[r] = (int64_t)stats.bytes_peak;
    if (r == 0) {
        p->report->largest = largest_unit(j.net, &p->report->parameters);
        p->report->step_s = median(seconds, p->steps);
    }
    choir_check(choir_scope_close(j.run));
    choir_dataset_free(data);
    choir_env_free(&j.env);
    return 0;
}

/* --- */

static int64_t most(const int64_t *values, int n)
{
    int64_t best = 0;
    for (int i = 0; i < n; i++)
        best = values[i] > best ? values[i] : best;
    return best;
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : "gpt2:context=128";
    int ranks = argc > 2 ? atoi(argv[2]) : 2, rounds = argc > 4 ? atoi(argv[4]) : 5,
        steps = argc > 5 ? atoi(argv[5]) : 4;
    int64_t batch = argc > 3 ? atoll(argv[3]) : ranks;
    if (ranks < 1 || ranks > MOST_RANKS || rounds < 1 || rounds > MOST_ROUNDS || steps < 1 ||
        steps > MOST_STEPS || batch < ranks || batch % ranks) {
        fprintf(stderr, "usage: %s [MODEL] [RANKS] [BATCH] [ROUNDS] [STEPS]\n", argv[0]);
        return 2;
    }
    static const char *const names[] = {"ddp", "fsdp:stage=1", "fsdp:stage=2", "fsdp"};
    double seconds[4][MOST_ROUNDS];
    report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plan p = {.model = model,
        .batch = batch / ranks,
        .ranks = 1,
        .steps = 1,
        .stage = -1,
        .report = shared};
    choir_check(choir_spawn(1, rank, &p));
    int64_t params = shared->parameters, activations = shared->pool[0] - 16 * params;
    int64_t pss[4] = {0}, pool[4] = {0};
    p = (plan){
        .model = model, .batch = batch, .ranks = ranks, .steps = steps, .report = shared};
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < 4; s++) {
            memset(shared, 0, sizeof *shared);
            p.stage = s;
            choir_check(choir_spawn(ranks, rank, &p));
            seconds[s][r] = shared->step_s;
            int64_t now = most(shared->pss, ranks);
            pss[s] = now > pss[s] ? now : pss[s];
            pool[s] = most(shared->pool, ranks);
        }
    int64_t bound = 16 * params / ranks + 8 * shared->largest + activations;
    double mib = 1048576, ddp = median(seconds[0], rounds);
    printf("%lld parameters, the largest unit's %lld, activations %.0f MiB: bound of stage 3 "
           "%.0f MiB a rank\n",
        (long long)params, (long long)shared->largest, (double)activations / mib,
        (double)bound / mib);
    printf("%-14s %10s %8s %12s %9s %12s\n", "strategy", "step ms", "of ddp", "PSS MiB",
        "of bound", "pool MiB");
    for (int s = 0; s < 4; s++) {
        double step = median(seconds[s], rounds);
        printf("%-14s %10.1f %8.3f %12.0f %9.2f %12.0f\n", names[s], step * 1e3, ddp / step,
            (double)pss[s] / mib, (double)pss[s] / (double)bound, (double)pool[s] / mib);
    }
    return 0;
}
