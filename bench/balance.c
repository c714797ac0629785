/* Measures the peak memory per device of a model with a large vocabulary, under DataParallel:
 * with outputs gathered on the first device, with outputs left on their devices, and with a
 * smaller share of the batch for the first device, which also stores the optimizer's state.
 *
 *     choir_bench_balance [DEVICES [BATCH [MODEL]]]
 *
 * The weights follow from the measured figures: with w_d the share of device d and a the
 * memory that a whole batch needs, peaks are level when w_d has moved by (mean peak - peak_d)
 * / a. The allocator has classes of size, so a second round may be necessary. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "device/device.h"

enum { STEPS = 3, MOST = 64 };

typedef struct job {
    const char *model;
    int devices;
    int64_t batch;
    choir_device *device[MOST];
} job;

typedef struct figures {
    double peak[MOST], kept[MOST]; /* MiB */
    double step_s, loss;
} figures;

static choir_tensor *criterion(choir_tensor *out, choir_tensor *target, void *arg)
{
    return choir_model_loss(arg, out, target);
}

static choir_module *build(choir_scope *run, const job *j, choir_model_info *info)
{
    choir_check(choir_model_describe(j->model, info));
    return choir_model_build(run, info);
}

static choir_tensor *ids(choir_scope *s, const job *j, const choir_model_info *info, int seed)
{
    int64_t n = j->batch * info->input.dim[0], *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (i * 7919 + seed) % info->classes;
    choir_tensor *t = choir_from(s, CHOIR_I64, choir_dims(j->batch, info->input.dim[0]), data);
    free(data);
    return t;
}

static void look(const job *j, figures *f, bool peak)
{
    for (int d = 0; d < j->devices; d++) {
        choir_device_stats stats;
        choir_device_get_stats(j->device[d], &stats);
        if (peak)
            f->peak[d] = (double)stats.bytes_peak / 1048576;
        else
            f->kept[d] = (double)stats.bytes_now / 1048576;
    }
}

static figures measure(const job *j, bool balanced, const double *weights)
{
    figures f = {{0}, {0}, 0, 0};
    choir_model_info info = {0};
    choir_scope *run = choir_scope_open(j->device[0], 42);
    choir_data_parallel_opts opts = {.device_count = j->devices, .weights = weights};
    choir_module *dp = choir_data_parallel_balanced(run, build(run, j, &info), opts);
    choir_optim *optim = choir_adamw(run, dp, choir_adamw_defaults());
    choir_check(choir_scope_status(run));
    for (int d = 0; d < j->devices; d++) {
        choir__pool_trim(j->device[d]);
        choir_device_reset_peak(j->device[d]);
    }
    for (int step = 0; step < STEPS; step++) {
        double start = choir__now();
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        choir_tensor *x = ids(s, j, &info, 2 * step), *y = ids(s, j, &info, 2 * step + 1);
        choir_tensor *loss =
            balanced
                ? choir_criterion_parallel(choir_forward_shards(dp, &x, 1), y, criterion, &info)
                : criterion(choir_forward(dp, x), y, &info);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(optim));
        f.loss = choir_item(choir_mean(loss));
        for (int d = 0; d < j->devices; d++)
            choir_check(choir_device_sync(j->device[d]));
        choir_check(choir_scope_close(s));
        f.step_s = choir__now() - start;
    }
    look(j, &f, true);
    look(j, &f, false);
    choir_check(choir_scope_close(run));
    return f;
}

/* Returns how far the first device's peak is above the highest of the others. */
static double lead(const job *j, const figures *f)
{
    double most = 0;
    for (int d = 1; d < j->devices; d++)
        most = f->peak[d] > most ? f->peak[d] : most;
    return f->peak[0] / most - 1;
}

static void print(const job *j, const char *name, const figures *f)
{
    printf("%-10s", name);
    for (int d = 0; d < j->devices; d++)
        printf(" %8.1f", f->peak[d]);
    printf("   %+6.1f %%  %7.2f s  loss %.4f\n", 100 * lead(j, f), f->step_s, f->loss);
}

static void move_weights(const job *j, const figures *f, double *weights)
{
    double on_the_way = 0, mean = 0;
    for (int d = 0; d < j->devices; d++) {
        on_the_way += f->peak[d] - f->kept[d];
        mean += f->peak[d] / j->devices;
    }
    for (int d = 0; d < j->devices; d++)
        weights[d] = fmax(0, weights[d] + (mean - f->peak[d]) / on_the_way);
}

int main(int argc, char **argv)
{
    job j = {.devices = argc > 1 ? atoi(argv[1]) : 4,
        .batch = argc > 2 ? atoll(argv[2]) : 64,
        .model = argc > 3 ? argv[3] : "bert:layers=2,heads=4,width=128,context=32,vocab=30522"};
    double weights[MOST];
    setenv("CHOIR_CPU_DEVICES", argc > 1 ? argv[1] : "4", 0);
    for (int d = 0; d < j.devices && d < MOST; d++) {
        char name[16];
        weights[d] = 1.0 / j.devices;
        snprintf(name, sizeof name, "cpu:%d", d);
        j.device[d] = choir_device_find(name);
        if (!j.device[d])
            return fprintf(stderr, "%s\n", choir_error_message()), 2;
    }
    printf("%s, batches of %lld, AdamW; peaks in MiB\n%-10s", j.model, (long long)j.batch, "");
    for (int d = 0; d < j.devices; d++)
        printf(" %8s", choir_device_name(j.device[d]));
    printf("   first to others, a step\n");
    figures gathered = measure(&j, false, NULL);
    print(&j, "gathered", &gathered);
    figures f = measure(&j, true, NULL);
    print(&j, "balanced", &f);
    for (int round = 0; round < 3 && fabs(lead(&j, &f)) > 0.05; round++) {
        move_weights(&j, &f, weights);
        f = measure(&j, true, weights);
        print(&j, "weighted", &f);
        printf("  weights ");
        for (int d = 0; d < j.devices; d++)
            printf(" %8.3f", weights[d]);
        printf("\n");
    }
    return 0;
}
