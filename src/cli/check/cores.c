/* Checking cores: see cores.h. A process per core is bound to it before it opens a device, so
 * all of its threads compute there; a crash or a hang ends one process. A core is slow
 * if its best round took more processor time than the best rounds of most cores of its kind:
 * other processes, which take turns with it, hardly change that. */
#include "cli/check/cores.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#include "device/device.h"

static const double slow_factor = 1.25;
static const double patience_s = 60; /* seconds that a core may take longer than asked */

const char *const choir__check_classes[CHOIR__CHECK_CLASSES + 1] = {"chain", "amx", NULL};

/* --- one core --- */

static bool is_here(int class)
{
    return strcmp(choir__check_classes[class], "amx") || choir__cpu_has_amx();
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void judge(choir__core *core, int class, int answer, uint64_t got)
{
    uint64_t known;
    if (!choir__answer_known(choir__check_classes[class], answer, &known) || known == got)
        return;
    core->of[class].wrong++;
    if (!core->wrong++) {
        core->class = class;
        core->answer = answer;
        core->got = got;
        core->known = known;
    }
}

static void write_hash(char text[17], const uint64_t *hashes)
{
    snprintf(
        text, 17, "%016llx", (unsigned long long)choir__answers_hash(hashes, choir__answers()));
}

/* Computes all answers of a class, for a core or for the hash; core may be NULL. */
static choir_status one_class(choir_device *device, int class, choir__core *core, char hash[17])
{
    uint64_t hashes[CHOIR__ANSWERS_MOST] = {0};
    bool was_wrong = core && core->of[class].wrong;
    choir_status status =
        choir__multiplier_take(choir__multiplier_named(choir__check_classes[class]));
    if (status != CHOIR_OK)
        return status;
    choir_scope *run = choir_scope_open(device, 1);
    for (int a = 0; a < choir__answers() && status == CHOIR_OK; a++) {
        status = choir__answer_compute(run, a, &hashes[a]);
        if (status == CHOIR_OK && core)
            judge(core, class, a, hashes[a]);
    }
    if (status == CHOIR_OK && !was_wrong)
        write_hash(hash, hashes);
    choir_status closed = choir_scope_close(run);
    choir__multiplier_drop();
    return status == CHOIR_OK ? closed : status;
}

void choir__check_core(choir_device *device, double seconds, choir__core *core)
{
    const double start = choir__now(), until = start + seconds;
    choir_status status = CHOIR_OK;
    do {
        double began = cpu_seconds();
        for (int c = 0; c < CHOIR__CHECK_CLASSES && status == CHOIR_OK; c++)
            status = is_here(c) ? one_class(device, c, core, core->of[c].hash) : CHOIR_OK;
        double took = cpu_seconds() - began;
        core->round_s = core->rounds && core->round_s < took ? core->round_s : took;
        core->rounds++;
        core->seconds = choir__now() - start;
    } while (status == CHOIR_OK && choir__now() < until);
    if (status == CHOIR_OK)
        *core->why = '\0';
    else
        snprintf(core->why, sizeof core->why, "%s", choir_error_message());
}

/* --- processes --- */

static void bind_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Starts a process for a core; -1: none could be started. */
static pid_t start(choir__core *core, double seconds)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    bind_to(core->cpu);
    choir_device *device = choir_device_find("cpu:0");
    if (device)
        choir__check_core(device, seconds, core);
    else
        snprintf(core->why, sizeof core->why, "%s", choir_error_message());
    _exit(0);
}

/* Waits for a process until a time, and ends it then. */
static void await(choir__core *core, pid_t pid, double until)
{
    int status = 0;
    pid_t ended;
    const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
    if (pid < 0) {
        snprintf(core->why, sizeof core->why, "no process could be started");
        return;
    }
    while (!(ended = waitpid(pid, &status, WNOHANG)) && choir__now() < until)
        nanosleep(&nap, NULL);
    if (!ended) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        snprintf(core->why, sizeof core->why, "it hangs");
    } else if (WIFSIGNALED(status)) {
        snprintf(core->why, sizeof core->why, "its process was ended by SIG%s",
            sigabbrev_np(WTERMSIG(status)));
    }
}

/* --- kinds --- */

/* Adds the first word of a file of a processor to its kind. */
static void add_kind(choir__core *core, const char *file)
{
    char word[24] = "-";
    char *path = choir__format("/sys/devices/system/cpu/cpu%d/%s", core->cpu, file);
    FILE *f = choir__file_try_stream(path);
    if (f && fscanf(f, "%23s", word) != 1)
        snprintf(word, sizeof word, "-");
    if (f)
        fclose(f);
    free(path);
    size_t used = strlen(core->kind);
    snprintf(core->kind + used, sizeof core->kind - used, "%s%s", used ? "/" : "", word);
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Marks the cores that are slower than the median of their kind. */
static void find_slow(choir__check *c)
{
    double *times = choir__calloc((size_t)c->count + 1, sizeof *times);
    for (int i = 0; i < c->count; i++) {
        int n = 0;
        for (int k = 0; k < c->count; k++)
            if (!strcmp(c->cores[k].kind, c->cores[i].kind) && c->cores[k].rounds)
                times[n++] = c->cores[k].round_s;
        qsort(times, (size_t)n, sizeof *times, by_time);
        c->cores[i].slow = n > 1 && c->cores[i].round_s > slow_factor * times[(n - 1) / 2];
    }
    free(times);
}

/* --- hashes of the machine --- */

/* Computes in a process of its own: a process that has used a GPU cannot fork.
 */
static void hash_all(choir__check *c)
{
    uint64_t known;
    for (int k = 0; k < CHOIR__CHECK_CLASSES; k++) {
        c->unknown[k] = !choir__answer_known(choir__check_classes[k], 0, &known);
        if (is_here(k))
            (void)!one_class(choir_device_find("cpu:0"), k, NULL, c->bits[k]);
    }
    int gpus = choir_device_count("cuda");
    for (int i = 0; i < gpus && i < CHOIR__CHECK_GPUS; i++) {
        snprintf(c->gpus[i].device, sizeof c->gpus[i].device, "cuda:%d", i);
        choir_device *device = choir_device_find(c->gpus[i].device);
        if (device && one_class(device, 0, NULL, c->gpus[i].bits) == CHOIR_OK)
            snprintf(
                c->gpus[i].class, sizeof c->gpus[i].class, "%s", choir__device_bits(device));
        c->gpu_count = i + 1;
    }
}

static void *share(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Fills in the hashes of *check, by another process. */
static choir_status find_hashes(choir__check *check)
{
    choir__check *shared = share(sizeof *shared);
    if (!shared)
        return choir__error(CHOIR_ERR_IO, "no memory for a process");
    pid_t pid = fork();
    if (!pid) {
        hash_all(shared);
        _exit(0);
    }
    choir__core whole = {0};
    await(&whole, pid, choir__now() + patience_s);
    *check = *shared;
    munmap(shared, sizeof *shared);
    return *whole.why ? choir__error(CHOIR_ERR_IO, "the answers: %s", whole.why) : CHOIR_OK;
}

choir_status choir__check_cores(double seconds, choir__check *check)
{
    cpu_set_t mine;
    choir_status status = find_hashes(check);
    if (status != CHOIR_OK)
        return status;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return choir__error(CHOIR_ERR_IO, "cannot list the processors: %s", strerror(errno));
    int count = CPU_COUNT(&mine);
    size_t bytes = (size_t)count * sizeof(choir__core);
    choir__core *shared = share(bytes);
    pid_t *pids = choir__calloc((size_t)count, sizeof *pids);
    if (!shared) {
        free(pids);
        return choir__error(CHOIR_ERR_IO, "no memory for %d processes", count);
    }
    for (int cpu = 0, i = 0; i < count && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &mine))
            continue;
        shared[i].cpu = cpu;
        snprintf(shared[i].why, sizeof shared[i].why, "it has not begun");
        add_kind(&shared[i], "cpufreq/cpuinfo_max_freq");
        add_kind(&shared[i], "cpu_capacity");
        pids[i] = start(&shared[i], seconds);
        i++;
    }
    for (int i = 0; i < count; i++)
        await(&shared[i], pids[i], choir__now() + seconds + patience_s);
    check->cores = choir__calloc((size_t)count, sizeof *check->cores);
    check->count = count;
    memcpy(check->cores, shared, bytes);
    munmap(shared, bytes);
    free(pids);
    find_slow(check);
    return CHOIR_OK;
}
