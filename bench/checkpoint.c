/* Measures the rate of writing checkpoints, relative to the disk's own rate, and the cost of
 * an asynchronous save for the steps that run meanwhile.
 *
 *   choir_bench_checkpoint FOLDER [RANKS] [MODEL] [ROUNDS]
 *
 * Each round runs, in turn: one process that writes as many bytes as a checkpoint has, in
 * blocks of 16 MiB, synced once at the end, as `dd conv=fsync` does; a save by all ranks; some
 * steps without a save; and some steps during an asynchronous one. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/choir.h>
#include "base/base.h"
#include "median.h"

enum { BLOCK = 16 << 20, TOKENS = 64, MOST = 64, STEPS = 8 };

typedef struct plan {
    const char *folder, *model;
    int rounds;
} plan;

typedef struct job {
    choir_env env;
    choir_scope *run;
    choir_module *net;
    choir_optim *opt;
    uint64_t step;
} job;

static double one_step(job *j)
{
    double start = choir__now();
    choir_scope *s = choir_step_open(j->run, j->step++);
    int64_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int64_t)(j->step * 7 + (uint64_t)i) % 50;
    choir_tensor *x = choir_from(s, CHOIR_I64, choir_dims(1, TOKENS), ids);
    choir_check(choir_backward(choir_cross_entropy(choir_forward(j->net, x), x)));
    choir_check(choir_optim_step(j->opt));
    choir_check(choir_scope_close(s));
    choir_check(choir_device_sync(j->env.device));
    choir_check(choir_group_barrier(j->env.group, NULL));
    return choir__now() - start;
}

/* Seconds. */
static double write_plainly(const char *folder, int64_t bytes)
{
    char path[512], *block = malloc(BLOCK);
    for (int i = 0; i < BLOCK; i++)
        block[i] = (char)(i * 2654435761u >> 13);
    snprintf(path, sizeof path, "%s/plain", folder);
    double start = choir__now();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    for (int64_t left = bytes; left > 0; left -= BLOCK)
        if (write(fd, block, (size_t)choir__min(left, BLOCK)) < 0)
            exit(1);
    if (fd < 0 || fsync(fd) != 0)
        exit(1);
    double seconds = choir__now() - start;
    close(fd);
    unlink(path);
    free(block);
    return seconds;
}

static double save(job *j, choir_checkpoint *c)
{
    choir_check(choir_group_barrier(j->env.group, NULL));
    double start = choir__now();
    choir_check(choir_checkpoint_save(c, j->net, j->opt, (int64_t)j->step));
    return choir__now() - start;
}

static void open_job(job *j, const char *model)
{
    *j = (job){.step = 0};
    choir_check(choir_env_init(&j->env));
    j->run = choir_run_open(&j->env, 1);
    j->net = choir_model(j->run, model, NULL);
    if (j->env.world > 1)
        j->net = choir_fsdp(j->run, j->net, j->env.group, choir_fsdp_defaults());
    j->opt = choir_adamw(j->run, j->net, choir_adamw_defaults());
    for (int i = 0; i < 3; i++)
        one_step(j);
}

static choir_checkpoint *open_folder(const job *j, const char *folder, bool async)
{
    char path[512];
    choir_checkpoint *c;
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = j->env.group;
    opts.async = async;
    snprintf(path, sizeof path, "%s/%s", folder, async ? "async" : "saved");
    choir_check(choir_checkpoint_open(path, opts, &c));
    return c;
}

/* Times steps without a save, then steps that begin during one; the copy is timed apart. */
static void beside(job *j, choir_checkpoint *async, double *plain, double *copy, double *slow)
{
    double steps[MOST], waited;
    int n = 0;
    for (int i = 0; i < STEPS; i++)
        steps[i] = one_step(j);
    *plain = median(steps, STEPS);
    *copy = save(j, async);
    while (n < STEPS)
        steps[n++] = one_step(j);
    *slow = median(steps, n);
    double start = choir__now();
    choir_check(choir_checkpoint_wait(async));
    waited = choir__now() - start;
    if (j->env.rank == 0 && waited < 1e-3)
        printf("(the save was done before the steps)\n");
}

static int bench(int rank, int world, void *arg)
{
    const plan *p = arg;
    job j;
    double plain[MOST], saved[MOST], calm[MOST], copied[MOST], slow[MOST];
    open_job(&j, p->model);
    int64_t bytes = 12 * choir_module_param_count(j.net); /* weights and two moments */
    choir_checkpoint *now = open_folder(&j, p->folder, false);
    choir_checkpoint *aside = open_folder(&j, p->folder, true);
    if (rank == 0)
        printf("%s, %d rank%s: %.0f MB a checkpoint\n%8s %8s %7s %10s %8s %10s %7s\n", p->model,
            world, world > 1 ? "s" : "", (double)bytes * 1e-6, "disk", "save", "ratio", "step",
            "copy", "beside", "ratio");
    for (int i = 0; i < p->rounds; i++) {
        plain[i] = rank == 0 ? write_plainly(p->folder, bytes) : 0;
        saved[i] = save(&j, now);
        beside(&j, aside, &calm[i], &copied[i], &slow[i]);
        if (rank == 0)
            printf("%5.0f/s %6.0f/s %7.2f %7.0f ms %5.0f ms %7.0f ms %7.3f\n",
                (double)bytes * 1e-6 / plain[i], (double)bytes * 1e-6 / saved[i],
                plain[i] / saved[i], calm[i] * 1e3, copied[i] * 1e3, slow[i] * 1e3,
                slow[i] / calm[i]);
        plain[i] /= saved[i];
        slow[i] /= calm[i];
        fflush(stdout);
    }
    if (rank == 0)
        printf("medians: a save has %.2f of the disk's rate (wanted: 0.80); a step beside one "
               "takes %.3f times as long (1.05)\n",
            median(plain, p->rounds), median(slow, p->rounds));
    choir_check(choir_checkpoint_close(now));
    choir_check(choir_checkpoint_close(aside));
    return choir_scope_close(j.run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    plan p = {argc > 1 ? argv[1] : ".", argc > 3 ? argv[3] : "gpt2:layers=12,vocab=8192",
        argc > 4 ? atoi(argv[4]) : 5};
    choir_check(choir_spawn(argc > 2 ? atoi(argv[2]) : 1, bench, &p));
}
