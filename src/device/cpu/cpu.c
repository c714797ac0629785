/* CPU devices: groups of the cores that this process may use.
 *
 * Device i takes `threads` cores (default one) from core i * threads on, and starts over at the
 * first core if there are more devices than cores. A device of one core is run by any waiter. A
 * device of several cores is run by its worker alone: that is bound to the device's cores, and
 * its team inherits them. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/backend.h"
#include "device/cpu/context.h"
#include "device/cpu/half.h"
#include "device/cpu/multiplier.h"
#include "device/cpu/ways.h"

enum { HUGE_PAGE = 2 << 20 };

/* The cores this process may use, as they were at the first query: later a launcher may have
 * bound the querying thread to one of them. */
static struct {
    pthread_once_t once;
    int list[CPU_SETSIZE], count;
} cores = {.once = PTHREAD_ONCE_INIT};

static void find_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cores.list[cores.count++] = i;
    if (!cores.count)
        cores.list[cores.count++] = 0;
}

static int allowed_cores(void)
{
    pthread_once(&cores.once, find_cores);
    return cores.count;
}

static int count_devices(char *why, size_t bytes)
{
    (void)why, (void)bytes; /* there is always one */
    const char *wanted = getenv("CHOIR_CPU_DEVICES");
    int n = wanted ? atoi(wanted) : 0;
    return n > 0 ? n : allowed_cores();
}

static void *get_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void put_memory(void *p, size_t bytes)
{
    munmap(p, bytes);
}

/* Small blocks share pages: a mapping for each would waste most of one. */
static void *get_any(void *arg, size_t bytes)
{
    (void)arg;
    return bytes >= 65536 ? get_memory(bytes) : aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void put_any(void *arg, void *p, size_t bytes)
{
    (void)arg;
    if (bytes >= 65536)
        put_memory(p, bytes);
    else
        free(p);
}

static const choir__memory_ops memory = {.get = get_any, .put = put_any};

static void cores_of(int index, int threads, int own[CPU_SETSIZE])
{
    int count = allowed_cores();
    for (int i = 0; i < threads; i++)
        own[i] = cores.list[(index * threads + i) % count];
}

static void place(choir_device *device, int index)
{
    int own[CPU_SETSIZE];
    cores_of(index, choir__cpu_context_threads(device->backend), own);
    choir__queue_place(device->queue, own);
}

static void start_queue(choir_device *device, int threads)
{
    int own[CPU_SETSIZE];
    cores_of(device->index, threads, own);
    device->backend = choir__cpu_context_new(threads);
    device->queue = choir__queue_new((choir__queue_opts){
        .name = device->name,
        .cores = own,
        .core_count = threads,
        .worker_only = threads > 1,
        .enter = choir__cpu_context_enter,
        .arg = device->backend,
        .gauges = device->gauges ? &device->gauges->queue : NULL,
        .blames = true,
    });
}

static void f64_matmul(const choir__k_matmul *k)
{
    const choir__kernels *fast = choir__cpu_kernels(choir_cpu_isa());
    (choir__cpu_own_products() ? fast : &choir__cpu_f64)->matmul(k);
}

/* Returns the kernels for f64: the reference, but with products of our own, which are fast. */
static const choir__kernels *f64_kernels(void)
{
    static choir__kernels own;
    own = choir__cpu_f64;
    own.matmul = f64_matmul;
    return &own;
}

static choir_status check_environment(void)
{
    choir_status status = choir__cpu_check_isa();
    return status == CHOIR_OK ? choir__cpu_check_multiplier() : status;
}

static choir_status open_cpu(choir_device *device)
{
    device->kernels = choir__cpu_kernels(choir_cpu_isa());
    device->reference = f64_kernels();
    device->chunks = true;
    device->pool =
        choir__pool_new(&memory, NULL, device->gauges ? &device->gauges->pool : NULL);
    start_queue(device, 1);
    return CHOIR_OK;
}

static choir_status set_threads(choir_device *device, int threads)
{
    if (threads < 1 || threads > CPU_SETSIZE)
        return choir__error(CHOIR_ERR_ARGUMENT, "%d threads for %s: from 1 to %d make sense",
            threads, device->name, CPU_SETSIZE);
    if (choir__queue_get_stats(device->queue).issued)
        return choir__error(CHOIR_ERR_STATE,
            "the threads of %s must be set before its first work", device->name);
    choir__queue_free(device->queue);
    choir__cpu_context_free(device->backend);
    device->kernels = choir__cpu_kernels(choir_cpu_isa());
    if (threads > 1)
        device->kernels = choir__cpu_divided(device->kernels);
    start_queue(device, threads);
    return CHOIR_OK;
}

static void bind_thread(choir_device *device)
{
    cpu_set_t set;
    int threads = choir__cpu_context_threads(device->backend), count = allowed_cores();
    CPU_ZERO(&set);
    for (int i = 0; i < threads; i++)
        CPU_SET(cores.list[(device->index * threads + i) % count], &set);
    sched_setaffinity(0, sizeof set, &set);
}

void choir__cpu_free_thread(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0, count = allowed_cores(); i < count; i++)
        CPU_SET(cores.list[i], &set);
    sched_setaffinity(0, sizeof set, &set);
}

static bool multiplies(choir_dtype dtype)
{
    if (!choir__cpu_own_products())
        return choir__half_products(dtype);
    return dtype == CHOIR_BF16 && choir__cpu_multiplies() == CHOIR__BY_AMX &&
           choir__cpu_has_amx();
}

static bool reads_blocks(choir_dtype dtype)
{
    return choir__cpu_own_products() && dtype != CHOIR_F64 &&
           !(dtype == CHOIR_BF16 && choir__cpu_multiplies() == CHOIR__BY_AMX);
}

static void run_work(const void *args)
{
    const choir__device_work *w = args;
    choir__cpu_parallel(w->count, w->least, w->part, w->arg);
}

/* One core works where the caller is: its queue would do no better. */
static void divide(choir_device *device, const choir__device_work *work)
{
    if (choir__cpu_context_threads(device->backend) == 1) {
        work->part(work->arg, 0, work->count);
        return;
    }
    choir__queue_issue(device->queue, run_work, work, sizeof *work);
    (void)!choir_device_sync(device);
}

static void signature(const choir_device *device, char *text, size_t bytes)
{
    if (choir__cpu_own_products())
        snprintf(text, bytes, "cpu, class of bits %s, arithmetic %d", choir_cpu_bits(),
            CHOIR__ARITHMETIC);
    else
        snprintf(text, bytes, "cpu %s%s, %s, %d thread(s)", choir_cpu_isa(),
            choir__half_products(CHOIR_BF16) ? " with bf16" : "", choir__cpu_multiplier(),
            choir__cpu_context_threads(device->backend));
}

const choir__backend choir__cpu_backend = {
    .kind = "cpu",
    .count = count_devices,
    .open = open_cpu,
    .check = check_environment,
    .set_threads = set_threads,
    .place = place,
    .bind_thread = bind_thread,
    .divide = divide,
    .multiplies = multiplies,
    .reads_blocks = reads_blocks,
    .signature = signature,
};
