/* Measures saving and loading checkpoints relative to the disk's own rates, and the cost of an
 * asynchronous save: the copy that training waits for relative to memcpy, and the steps that
 * run beside it relative to steps without one.
 *
 *   choir_bench_checkpoint FOLDER [RANKS] [MODEL] [ROUNDS]
 *
 * Each round runs, in turn and on one file system:
 *
 *     disk     rank 0 writes as many bytes as a checkpoint has, as `dd bs=16M conv=fsync` does
 *     direct   the same, past the page cache, as `dd oflag=direct` does
 *     save     all ranks save
 *     read     rank 0 reads the checkpoint's bytes, which the page cache does not have, as
 *              `dd bs=16M` does
 *     load     all ranks load; the page cache does not have the files
 *     steps    some steps without a save
 *     memcpy   each rank copies as many bytes as its part of a checkpoint has, between memory
 *              that was in use before
 *     copy     an asynchronous save begins
 *     beside   the steps during it
 */
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/choir.h>
#include "base/base.h"
#include "median.h"

enum { BLOCK = 16 << 20, TOKENS = 64, MOST = 64, STEPS = 8, UNIT = 4096 };

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
    int64_t bytes;   /* of a checkpoint */
    char *block;     /* (BLOCK) for reading and writing plainly */
    char *from, *to; /* (bytes / world) */
} job;

/* Seconds of one round. */
typedef struct times {
    double disk, direct, save, read, load, calm, copied, copy, beside;
} times;

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

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double write_plainly(const job *j, const char *folder, int more)
{
    char path[512];
    snprintf(path, sizeof path, "%s/plain", folder);
    double start = choir__now();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | more, 0666);
    for (int64_t left = j->bytes / UNIT * UNIT; fd >= 0 && left > 0; left -= BLOCK)
        if (write(fd, j->block, (size_t)choir__min(left, BLOCK)) < 0)
            fail(path);
    if (fd < 0 || fsync(fd) != 0)
        fail(path);
    double seconds = choir__now() - start;
    close(fd);
    unlink(path);
    return seconds;
}

/* Calls each for the files of a folder. Returns the seconds that it takes. */
static double for_files(const job *j, const char *folder, void (*each)(const job *j, int fd))
{
    char *const roots[] = {(char *)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    double start = choir__now();
    for (FTSENT *e; walk && (e = fts_read(walk));)
        if (e->fts_info == FTS_F) {
            int fd = open(e->fts_path, O_RDONLY | O_CLOEXEC);
            each(j, fd);
            close(fd);
        }
    double seconds = choir__now() - start;
    fts_close(walk);
    return seconds;
}

static void forget(const job *j, int fd)
{
    (void)j;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void read_all(const job *j, int fd)
{
    while (read(fd, j->block, BLOCK) > 0)
        ;
}

static double save(job *j, choir_checkpoint *c)
{
    choir_check(choir_group_barrier(j->env.group, NULL));
    double start = choir__now();
    choir_check(choir_checkpoint_save(c, j->net, j->opt, (int64_t)j->step));
    return choir__now() - start;
}

static double load(job *j, choir_checkpoint *c)
{
    int64_t step;
    choir_check(choir_group_barrier(j->env.group, NULL));
    double start = choir__now();
    choir_check(choir_checkpoint_load(c, j->net, j->opt, &step));
    return choir__now() - start;
}

static double copy_plainly(job *j)
{
    choir_check(choir_group_barrier(j->env.group, NULL));
    double start = choir__now();
    memcpy(j->to, j->from, (size_t)(j->bytes / j->env.world));
    __asm__ volatile("" ::"r"(j->to) : "memory"); /* keeps the copy */
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
    j->bytes = 12 * choir_module_param_count(j->net); /* weights and two moments */
    j->block = aligned_alloc(UNIT, BLOCK);
    for (int i = 0; i < BLOCK; i++)
        j->block[i] = (char)(i * 2654435761u >> 13);
    size_t part = (size_t)(j->bytes / j->env.world);
    j->from = memset(choir__alloc(part), 1, part);
    j->to = memset(choir__alloc(part), 2, part);
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

/* Returns true on all ranks as long as rank 0's save is not done. */
static bool still_saving(const job *j, choir_checkpoint *async)
{
    int64_t step;
    uint8_t saving = !choir_checkpoint_saved(async, &step);
    choir_check(choir_group_broadcast(j->env.group, &saving, 1, CHOIR_U8, 0, NULL));
    return saving;
}

/* Times steps without a save, then steps during one; the copy is timed apart. */
static void beside(job *j, choir_checkpoint *async, times *t)
{
    double calm[STEPS], during[MOST];
    int n = 0;
    for (int i = 0; i < STEPS; i++)
        calm[i] = one_step(j);
    t->calm = median(calm, STEPS);
    t->copied = copy_plainly(j);
    t->copy = save(j, async);
    do
        during[n++] = one_step(j);
    while (n < MOST && still_saving(j, async));
    t->beside = median(during, n);
    choir_check(choir_checkpoint_wait(async));
    int64_t step; /* the next round asks for its own save alone */
    (void)!choir_checkpoint_saved(async, &step);
}

static void measure(
    job *j, const char *folder, choir_checkpoint *now, choir_checkpoint *async, times *t)
{
    char saved[512];
    bool first = j->env.rank == 0;
    snprintf(saved, sizeof saved, "%s/saved", folder);
    *t = (times){.disk = first ? write_plainly(j, folder, 0) : 0,
        .direct = first ? write_plainly(j, folder, O_DIRECT) : 0};
    t->save = save(j, now);
    if (first) {
        for_files(j, saved, forget);
        t->read = for_files(j, saved, read_all);
        for_files(j, saved, forget);
    }
    t->load = load(j, now);
    beside(j, async, t);
}

static void print(const job *j, const times *t)
{
    double mb = (double)j->bytes * 1e-6;
    printf("%6.0f %6.0f %6.0f %6.2f  %6.0f %6.0f %6.2f  %6.0f %6.0f %6.2f  %6.0f %6.0f %6.3f\n",
        mb / t->disk, mb / t->direct, mb / t->save, t->disk / t->save, mb / t->read,
        mb / t->load, t->read / t->load, t->copied * 1e3, t->copy * 1e3, t->copy / t->copied,
        t->calm * 1e3, t->beside * 1e3, t->beside / t->calm);
    fflush(stdout);
}

static void print_medians(const times *all, int n)
{
    double save[MOST], past[MOST], load[MOST], of_disk[MOST], copy[MOST], step[MOST];
    for (int i = 0; i < n; i++) {
        save[i] = all[i].disk / all[i].save;
        past[i] = all[i].direct / all[i].save;
        load[i] = all[i].read / all[i].load;
        of_disk[i] = all[i].disk / all[i].load;
        copy[i] = all[i].copy / all[i].copied;
        step[i] = all[i].beside / all[i].calm;
    }
    printf("medians of ratios: save %.2f of dd (%.2f of direct writes), load %.2f of a read "
           "(%.2f of dd); copy %.2f x memcpy, a step beside a save %.3f\n",
        median(save, n), median(past, n), median(load, n), median(of_disk, n), median(copy, n),
        median(step, n));
}

static int bench(int rank, int world, void *arg)
{
    const plan *p = arg;
    job j;
    times all[MOST];
    open_job(&j, p->model);
    choir_checkpoint *now = open_folder(&j, p->folder, false);
    choir_checkpoint *async = open_folder(&j, p->folder, true);
    if (rank == 0)
        printf("%s, %d rank%s: %.0f MB a checkpoint; MB/s and ms\n"
               "%6s %6s %6s %6s  %6s %6s %6s  %6s %6s %6s  %6s %6s %6s\n",
            p->model, world, world > 1 ? "s" : "", (double)j.bytes * 1e-6, "disk", "direct",
            "save", "ratio", "read", "load", "ratio", "memcpy", "copy", "ratio", "step",
            "beside", "ratio");
    for (int i = 0; i < p->rounds && i < MOST; i++) {
        measure(&j, p->folder, now, async, &all[i]);
        if (rank == 0)
            print(&j, &all[i]);
    }
    if (rank == 0)
        print_medians(all, (int)choir__min(p->rounds, MOST));
    choir_check(choir_checkpoint_close(now));
    choir_check(choir_checkpoint_close(async));
    return choir_scope_close(j.run) != CHOIR_OK;
}

int main(int argc, char **argv)
{
    plan p = {argc > 1 ? argv[1] : ".", argc > 3 ? argv[3] : "gpt2:layers=12,vocab=8192",
        argc > 4 ? atoi(argv[4]) : 5};
    choir_check(choir_spawn(argc > 2 ? atoi(argv[2]) : 1, bench, &p));
}
