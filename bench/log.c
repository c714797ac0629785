/* The time of a step's row in each destination of a log: ten numbers, as a training on one
 * device has them. Microseconds, the median of 20 parts of 500 steps.
 *
 *     choir_bench_log FOLDER PORT */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

#include "base/base.h"

enum { PARTS = 20, STEPS = 500, NUMBERS = 10 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void one_step(choir_logger *log, int64_t step)
{
    static const char *const names[NUMBERS] = {"loss", "lr", "grad_norm", "items_per_s",
        "step_s", "items", "device/cpu:0/bytes", "device/cpu:0/peak_bytes", "device/cpu:0/busy",
        "scale"};
    for (int i = 0; i < NUMBERS; i++)
        choir_check(choir_log_number(log, names[i], 1.1 * (double)(step + i) / 7));
    choir_check(choir_log_step(log, step));
}

static double microseconds(const char *const *dests, int count)
{
    choir_logger *log;
    double parts[PARTS];
    int64_t step = 1;
    choir_check(choir_log_open(NULL, choir_log_defaults(), &log));
    for (int i = 0; i < count; i++)
        choir_check(choir_log_add(log, dests[i]));
    for (int p = 0; p < PARTS; p++) {
        double start = choir__now();
        for (int i = 0; i < STEPS; i++)
            one_step(log, step++);
        parts[p] = 1e6 * (choir__now() - start) / STEPS;
    }
    choir_check(choir_log_close(log));
    qsort(parts, PARTS, sizeof *parts, ascending);
    return parts[PARTS / 2];
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/tmp", *port = argc > 2 ? argv[2] : "19399";
    static const char *const forms[][2] = {{"run:", "/run"}, {"csv:", "/log.csv"},
        {"tensorboard:", "/tb"}, {"wandb:", "/wandb"}, {"mlflow:", "/mlflow"}};
    const char *dests[6];
    for (size_t i = 0; i < CHOIR_COUNT(forms); i++)
        dests[i] = choir__format("%s%s%s", forms[i][0], folder, forms[i][1]);
    dests[5] = choir__format("metrics::%s", port);
    for (int i = 0; i < 6; i++)
        printf("%-30s %6.1f us a step\n", dests[i], microseconds(&dests[i], 1));
    const char *three[] = {dests[1], dests[2], dests[5]};
    printf("%-30s %6.1f us a step\n", "csv, tensorboard and metrics", microseconds(three, 3));
    return 0;
}
