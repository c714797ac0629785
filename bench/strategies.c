/* Measures one step of a model under every strategy that one process has, in turn, on the same
 * cores.
 *
 *   choir_bench_strategies [MODEL] [DEVICES] [BATCH] [MICRO-BATCHES] [ROUNDS]
 *       [STRATEGY]...                                            (default: all)
 *
 * Each strategy has one line: the median of a step, the speed-up over one device, its bound by
 * the measured stages (the plan simulated with the measured costs), each device's idle share
 * and the schedule's formula. The set-up is that of PyTorch's tutorial on model parallelism:
 * ResNet-50, 120 images per batch, split into 6 of 20. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "base/base.h"
#include "median.h"
#include "tensor/run.h"

enum { MOST_DEVICES = 16, MOST_MICROS = 128, MOST_ROUNDS = 64, WARM_UP = 5 };

typedef struct job {
    const char *name; /* "single", "dp", "dp-balanced", or a schedule */
    const char *model;
    int devices;
    int64_t batch, micros;
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *pipe;
    choir_optim *optim;
    choir_tensor *x[MOST_MICROS], *y[MOST_MICROS], *losses[MOST_MICROS];
    double seconds[MOST_ROUNDS], busy[MOST_DEVICES]; /* busy: shares, summed over rounds */
} job;

static bool is(const job *j, const char *name)
{
    return !strcmp(j->name, name);
}

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    int64_t m = micro->micro;
    choir_tensor *x = choir_in(micro, j->x[m]);
    return choir_model_loss(&j->info, choir_forward(net, x), j->y[m]);
}

static choir_status alone(choir_scope *step, job *j)
{
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < j->micros && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_tensor *loss = micro_batch(micro, j->net, j);
        status = choir_backward(loss);
        j->losses[m] = choir_keep(j->run, loss);
        (void)!choir_scope_close(micro);
    }
    return status;
}

static choir_tensor *criterion(choir_tensor *out, choir_tensor *y, void *arg)
{
    return choir_model_loss(&((job *)arg)->info, out, y);
}

/* x[0] and y[0] are the whole batch. */
static choir_status data_parallel(choir_scope *step, job *j)
{
    choir_tensor *x = choir_in(step, j->x[0]), *y = choir_in(step, j->y[0]);
    choir_tensor *losses[MOST_MICROS];
    if (is(j, "dp-balanced"))
        return choir_backward(
            choir_criterion_parallel(choir_forward_shards(j->pipe, &x, 1), y, criterion, j));
    choir_tensor *out = choir_forward(j->pipe, x);
    int64_t rows = choir_tensor_size(out, 0) / j->micros;
    for (int64_t m = 0; m < j->micros; m++)
        losses[m] = criterion(
            choir_narrow(out, 0, m * rows, rows), choir_narrow(y, 0, m * rows, rows), j);
    return choir_backward(choir_stack(losses, (int)j->micros, 0));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_status status;
    if (is(j, "single"))
        status = alone(step, j);
    else if (!strncmp(j->name, "dp", 2))
        status = data_parallel(step, j);
    else
        status = choir_pipeline_step(j->pipe, step, j->micros, micro_batch, j, j->losses);
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static void make_data(job *j)
{
    choir_dataset *data;
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = j->batch;
    int64_t parts = strncmp(j->name, "dp", 2) ? j->micros : 1;
    opts.microbatches = opts.micro_count = parts;
    if (j->info.task == CHOIR_LANGUAGE)
        choir_check(choir_dataset_random_tokens(
            j->batch, j->info.input.dim[0], j->info.classes, 5, &data));
    else
        choir_check(choir_dataset_random(j->batch, j->info.input,
            j->info.task == CHOIR_REGRESSION ? j->info.output : CHOIR_SCALAR,
            j->info.task == CHOIR_REGRESSION ? 0 : j->info.classes, 5, &data));
    choir_loader *loader = choir_loader_new(j->run, data, opts);
    for (int64_t m = 0; m < parts; m++) {
        choir_batch b;
        choir_scope *step = choir_step_open(j->run, 0);
        choir_check(choir_loader_next(loader, step, &b));
        j->x[m] = choir_keep(j->run, choir_contiguous(b.x));
        j->y[m] = choir_keep(j->run, choir_contiguous(b.y));
        choir_check(choir_scope_close(step));
    }
}

static void open_job(job *j)
{
    j->run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_check(choir_model_describe(j->model, &j->info));
    j->net = choir_model_build(j->run, &j->info);
    choir_device *devices[MOST_DEVICES];
    for (int d = 0; d < j->devices; d++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", d);
        devices[d] = choir_device_find(name);
    }
    choir_pipeline_opts pipeline = choir_pipeline_defaults();
    pipeline.devices = devices;
    pipeline.device_count = j->devices;
    pipeline.schedule = j->name;
    choir_data_parallel_opts parallel = choir_data_parallel_defaults();
    parallel.devices = devices;
    parallel.device_count = j->devices;
    parallel.pieces = j->micros;
    if (is(j, "single"))
        j->pipe = j->net;
    else if (is(j, "dp"))
        j->pipe = choir_data_parallel(j->run, j->net, parallel);
    else if (is(j, "dp-balanced"))
        j->pipe = choir_data_parallel_balanced(j->run, j->net, parallel);
    else
        j->pipe = choir_pipeline(j->run, j->net, pipeline);
    choir_sgd_opts hp = choir_sgd_defaults();
    j->optim = choir_sgd(j->run, j->pipe, hp);
    make_data(j);
    choir_check(choir_scope_status(j->run));
}

static double busy_of(int d)
{
    char name[16];
    choir_device_stats stats;
    snprintf(name, sizeof name, "cpu:%d", d);
    choir_device_get_stats(choir_device_find(name), &stats);
    return stats.busy_s;
}

static void sync_all(const job *j)
{
    choir_check(choir__run_sync(j->run));
}

static double timed_step(job *j)
{
    double before[MOST_DEVICES];
    sync_all(j);
    for (int d = 0; d < j->devices; d++)
        before[d] = busy_of(d);
    double start = choir__now();
    choir_check(choir_step(j->run, body, j));
    sync_all(j);
    double seconds = choir__now() - start;
    for (int d = 0; d < j->devices; d++)
        j->busy[d] += (busy_of(d) - before[d]) / seconds;
    return seconds;
}

static bool has_plan(const job *j)
{
    return !is(j, "single") && strncmp(j->name, "dp", 2);
}

/* The plan with its stages' measured costs, against one device with their sum. */
static double bound_of(const job *j)
{
    double whole = 0;
    const choir_stage_cost *c = choir_pipeline_costs(j->pipe);
    for (int k = 0; k < choir_pipeline_stages(j->pipe); k++)
        whole += (c[k].forward + c[k].backward) * (double)j->micros;
    return whole / choir_pipeline_plan_makespan(choir_pipeline_plan_of(j->pipe), NULL);
}

static void print_job(job *j, int rounds, double base)
{
    double s = median(j->seconds, rounds);
    printf("%-12s %9.1f %8.3f ", j->name, s * 1e3, base / s);
    if (has_plan(j))
        printf("%8.3f %8.3f ", bound_of(j), base / s / bound_of(j));
    else
        printf("%8s %8s ", "", "");
    for (int d = 0; d < (is(j, "single") ? 1 : j->devices); d++)
        printf(" %.3f", 1 - j->busy[d] / rounds);
    if (has_plan(j))
        printf(" (%.3f)", choir_pipeline_plan_idle_formula(choir_pipeline_plan_of(j->pipe)));
    printf("\n");
    if (has_plan(j) && getenv("STAGES"))
        choir_pipeline_print_stages(j->pipe, stdout);
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 6; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return argc <= 6 || !strcmp(name, "single");
}

int main(int argc, char **argv)
{
    const char *names[] = {"single", "dp", "dp-balanced", "sequential", "gpipe", "1f1b",
        "interleaved", "zero-bubble"};
    job jobs[CHOIR_COUNT(names)] = {{0}};
    int rounds = argc > 5 ? atoi(argv[5]) : 5, count = 0;
    for (size_t i = 0; i < CHOIR_COUNT(names); i++) {
        if (!wanted(names[i], argc, argv))
            continue;
        job *j = &jobs[count++];
        *j = (job){.name = names[i],
            .model = argc > 1 ? argv[1] : "resnet50:image=64,classes=1000",
            .devices = argc > 2 ? atoi(argv[2]) : 2,
            .batch = argc > 3 ? atoll(argv[3]) : 120,
            .micros = argc > 4 ? atoll(argv[4]) : 6};
        open_job(j);
        for (int k = 0; k < WARM_UP; k++)
            timed_step(j);
        memset(j->busy, 0, sizeof j->busy);
    }
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < count; i++)
            jobs[i].seconds[k] = timed_step(&jobs[i]);
    double base = median(jobs[0].seconds, rounds);
    printf("%-12s %9s %8s %8s %8s  idle share a device (formula)\n", "strategy", "step ms",
        "times", "bound", "of it");
    for (int i = 0; i < count; i++)
        print_job(&jobs[i], rounds, base);
    for (int i = 0; i < count; i++)
        (void)!choir_scope_close(jobs[i].run);
    return 0;
}
