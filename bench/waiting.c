/* Counts the cost of waiting: two ranks of a small GPT under DDP, in shared memory on this
 * machine.
 *
 *   choir_bench_waiting [STEPS] [LATE_SECONDS]
 *
 * First STEPS steps (50): how often each thread of rank 0 went to sleep and was woken, and how
 * often it lost its core, per step; and how often the workers of its queues were woken without
 * finding work. Then rank 1 is late (1 s) for a step, five times: the
 * processor time of rank 0 in that step, less that of an ordinary one, as a share of the time
 * that it waited. Counters are the kernel's (/proc/self/task/N/status, getrusage). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <choir/choir.h>

#include "base/base.h"
#include "comm/group.h"
#include "device/device.h"
#include "median.h"

enum { MOST_THREADS = 32, WARM_UP = 5, LATE_STEPS = 5, ORDINARY_STEPS = 15 };
static const char *const MODEL = "gpt2:layers=4,heads=4,width=128,context=64,vocab=65";

typedef struct plan {
    int steps;
    double late; /* seconds */
} plan;

typedef struct job {
    choir_env env;
    choir_model_info info;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_loader *loader;
} job;

/* --- a rank's training --- */

static choir_status one_step(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_batch b;
    choir_check(choir_loader_next(j->loader, step, &b));
    choir_tensor *out = choir_model_forward(&j->info, j->net, b.x, b.y);
    choir_check(choir_backward(choir_model_loss(&j->info, out, b.y)));
    return choir_optim_step(j->optim);
}

static void step(job *j)
{
    choir_check(choir_step(j->run, one_step, j));
    choir_check(choir_device_sync(j->env.device));
}

static void build(job *j)
{
    choir_check(choir_model_describe(MODEL, &j->info));
    j->run = choir_run_open(&j->env, 1);
    j->net = choir_ddp(
        j->run, choir_model_build(j->run, &j->info), j->env.group, choir_ddp_defaults());
    j->optim = choir_adamw(j->run, j->net, choir_adamw_defaults());
    choir_check(choir_scope_status(j->run));
}

/* --- counters --- */

typedef struct thread {
    int id;
    char name[32];
    long woken, preempted;
} thread;

static thread thread_of(const char *id)
{
    thread t = {.id = atoi(id)};
    char line[128], *path = choir__format("/proc/self/task/%s/status", id);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "Name: %31[^\n]", t.name);
        sscanf(line, "voluntary_ctxt_switches: %ld", &t.woken);
        sscanf(line, "nonvoluntary_ctxt_switches: %ld", &t.preempted);
    }
    if (f)
        fclose(f);
    free(path);
    return t;
}

static int threads_now(thread *threads)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *e; folder && (e = readdir(folder)) && count < MOST_THREADS;)
        if (e->d_name[0] != '.')
            threads[count++] = thread_of(e->d_name);
    if (folder)
        closedir(folder);
    return count;
}

/* Returns the wake-ups without work of the workers of the device's and the group's queues. */
static unsigned idle_wakes(const job *j)
{
    return choir__queue_get_stats(j->env.device->queue).idle_wakes +
           choir__queue_get_stats(j->env.group->queue).idle_wakes;
}

static double processor_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* --- the two measurements --- */

static void count_switches(job *j, int steps, bool told)
{
    thread before[MOST_THREADS], after[MOST_THREADS];
    int known = threads_now(before);
    unsigned idle = idle_wakes(j);
    double start = choir__now();
    for (int i = 0; i < steps; i++)
        step(j);
    double seconds = choir__now() - start;
    int count = threads_now(after);
    if (!told)
        return;
    printf("%d steps of %.2f ms; per step, of rank 0\n", steps, 1e3 * seconds / steps);
    for (int i = 0; i < count; i++) {
        int b = 0;
        while (b < known && before[b].id != after[i].id)
            b++;
        const thread none = {0}, *was = b < known ? &before[b] : &none;
        printf("  %-16s woken %.2f times, preempted %.2f times\n",
            after[i].id == getpid() ? "host" : after[i].name,
            (double)(after[i].woken - was->woken) / steps,
            (double)(after[i].preempted - was->preempted) / steps);
    }
    printf("  woken without work: %.2f times\n", (double)(idle_wakes(j) - idle) / steps);
}

/* Returns the median processor time of a step for which the other rank is late. */
static double late_step(job *j, int count, double late)
{
    double seconds[ORDINARY_STEPS];
    for (int i = 0; i < count; i++) {
        choir_work met;
        choir_check(choir_group_barrier(j->env.group, &met));
        choir_check(choir_work_wait(met));
        double before = processor_seconds();
        if (j->env.rank == 1)
            usleep((useconds_t)(1e6 * late));
        step(j);
        seconds[i] = processor_seconds() - before;
    }
    return median(seconds, count);
}

static int rank(int r, int world, void *arg)
{
    const plan *p = arg;
    job j = {0};
    choir_dataset *data;
    (void)world;
    choir_check(choir_env_init(&j.env));
    build(&j);
    choir_check(
        choir_dataset_random_tokens(4096, j.info.input.dim[0], j.info.classes, 5, &data));
    j.loader = choir_env_loader(j.run, &j.env, data, 24);
    for (int i = 0; i < WARM_UP; i++)
        step(&j);
    count_switches(&j, p->steps, r == 0);
    double ordinary = late_step(&j, ORDINARY_STEPS, 0);
    double waited = late_step(&j, LATE_STEPS, p->late);
    if (r == 0)
        printf("a peer %.1f s late: %.2f ms of processor time, %.2f %% of a core\n", p->late,
            1e3 * (waited - ordinary), 100 * (waited - ordinary) / p->late);
    choir_check(choir_scope_close(j.run));
    choir_dataset_free(data);
    choir_env_free(&j.env);
    return 0;
}

int main(int argc, char **argv)
{
    plan p = {argc > 1 ? atoi(argv[1]) : 50, argc > 2 ? atof(argv[2]) : 1};
    return choir_spawn(2, rank, &p) == CHOIR_OK ? 0 : 1;
}
