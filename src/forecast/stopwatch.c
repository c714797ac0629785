/* Collects the times of kernels by size in a hash table while a queue runs, and makes the
 * table of costs from them: one sample per size, with the lower quartile of its times and
 * their spread. */
#include "forecast/stopwatch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/work.h"

enum {
    MOST_RUNS = 64,
    MOST_TIMES = 64, /* per size; later ones replace earlier ones in turn */
    BUCKETS = 4096,  /* a power of two */
};

/* Calls of one kernel with operands of one size. */
typedef struct seen {
    choir__kernel_id id;
    choir_dtype dtype;
    double flops, bytes;
    int64_t dims[CHOIR__WORK_DIMS];
    double seconds[MOST_TIMES];
    int64_t calls;
    struct seen *next; /* in its bucket */
} seen;

struct choir__stopwatch {
    pthread_mutex_t lock;
    choir_device *device; /* now watched; NULL: none */
    int64_t steps;
    double last_end; /* 0: no task yet */
    double *gaps;    /* (gap_count) times between the device's tasks */
    int64_t gap_count;
    seen *buckets[BUCKETS];
    double task_s[MOST_RUNS], step_s[MOST_RUNS]; /* (runs) */
    int runs;
};

choir__stopwatch *choir__stopwatch_new(void)
{
    choir__stopwatch *o = choir__calloc(1, sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    return o;
}

static seen *seen_of(choir__stopwatch *o, const choir__kernel_work *w)
{
    uint64_t hash = (uint64_t)w->id;
    for (int d = 0; d < CHOIR__WORK_DIMS; d++)
        hash = choir__hash_step(hash, (uint64_t)w->dims[d]);
    hash = choir__hash_step(hash, (uint64_t)w->bytes ^ (uint64_t)w->dtype);
    seen **bucket = &o->buckets[(hash ^ (hash >> 32)) & (BUCKETS - 1)];
    for (seen *s = *bucket; s; s = s->next)
        if (s->id == w->id && s->dtype == w->dtype && s->bytes == w->bytes &&
            s->flops == w->flops && memcmp(s->dims, w->dims, sizeof s->dims) == 0)
            return s;
    seen *s = choir__calloc(1, sizeof *s);
    *s = (seen){
        .id = w->id, .dtype = w->dtype, .flops = w->flops, .bytes = w->bytes, .next = *bucket};
    memcpy(s->dims, w->dims, sizeof s->dims);
    return *bucket = s;
}

/* Fills in the bytes of an optimizer's kernel from its table, which the host can read. */
static void size_optimizer(const choir__stopwatch *o, const void *args, choir__kernel_work *w)
{
    const choir__k_optim *k = args;
    const choir__k_grad_norm *norm = args;
    const bool norms = w->id == CHOIR__KERNEL_grad_norm;
    if (o->device->far || !(choir__optimizer_bytes((int)w->id, 1) > 0))
        return;
    const choir__opt_entry *entries = norms ? norm->entries : k->entries;
    double elements = 0;
    for (int64_t i = 0; i < (norms ? norm->count : k->count); i++)
        elements += (double)entries[i].n;
    w->bytes = choir__optimizer_bytes((int)w->id, elements);
    memset(w->dims, 0, sizeof w->dims);
}

static void observe(
    void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    choir__stopwatch *o = arg;
    choir__kernel_work work = choir__kernel_work_of(o->device, fn, args);
    if (work.id != CHOIR__KERNEL_COUNT)
        size_optimizer(o, args, &work);
    pthread_mutex_lock(&o->lock);
    if (o->last_end > 0) {
        CHOIR__GROW(o->gaps, o->gap_count);
        o->gaps[o->gap_count++] = start > o->last_end ? start - o->last_end : 0;
    }
    o->last_end = end;
    if (work.id != CHOIR__KERNEL_COUNT) {
        seen *s = seen_of(o, &work);
        s->seconds[s->calls++ % MOST_TIMES] = end - start;
    }
    pthread_mutex_unlock(&o->lock);
}

void choir__stopwatch_watch(choir__stopwatch *o, choir_device *device, int64_t steps)
{
    choir__stopwatch_stop(o);
    o->device = device;
    o->steps = steps;
    o->last_end = 0;
    o->gap_count = 0;
    choir__queue_observe(device->queue, observe, o);
}

/* --- the table --- */

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *numbers, int64_t count, double part)
{
    qsort(numbers, (size_t)count, sizeof *numbers, by_number);
    return numbers[(int64_t)(part * (double)(count - 1))];
}

static void add_seen(choir__costs *costs, seen *s)
{
    enum { LEAST_CALLS = 3 };
    const int64_t count = choir__min(s->calls, MOST_TIMES);
    if (count < LEAST_CALLS)
        return;
    const double low = quantile(s->seconds, count, 0.25), half = s->seconds[(count - 1) / 2];
    /* The distance from the lower quartile to the median is 0.67 of a standard deviation. */
    const double spread = low > 0 ? (half - low) / low / 0.67 : 0;
    choir__costs_append(costs,
        &(choir__cost_call){.kernel = (int)s->id,
            .dtype = s->dtype,
            .flops = s->flops,
            .bytes = s->bytes,
            .dims = {s->dims[0], s->dims[1], s->dims[2], s->dims[3]}},
        low, spread);
}

/* Divides the time between the tasks of the last steps into a part of each task and a part of
 * each step: the lower quartile of the steps', since other processes make some longer. */
static void note_gaps(choir__stopwatch *o, int64_t all_steps)
{
    const int64_t tasks = o->gap_count / all_steps, last = tasks * o->steps;
    double *gaps = o->gaps + o->gap_count - last;
    if (!tasks || o->runs == MOST_RUNS)
        return;
    double *rests = choir__calloc((size_t)o->steps, sizeof *rests);
    for (int64_t i = 0; i < last; i++)
        rests[i / tasks] += gaps[i];
    const double between = quantile(gaps, last, 0.5),
                 rest = quantile(rests, o->steps, 0.25) - between * (double)tasks;
    o->task_s[o->runs] = between;
    o->step_s[o->runs++] = rest > 0 ? rest : 0;
    free(rests);
}

void choir__stopwatch_stop(choir__stopwatch *o)
{
    enum { UNRECORDED = 3 };
    if (!o->device)
        return;
    choir__queue_wait(o->device->queue);
    choir__queue_observe(o->device->queue, NULL, NULL);
    note_gaps(o, o->steps + UNRECORDED);
    o->device = NULL;
}

void choir__stopwatch_end(choir__stopwatch *o, choir__costs *costs)
{
    choir__stopwatch_stop(o);
    for (int b = 0; b < BUCKETS; b++)
        for (seen *s = o->buckets[b], *next; s; s = next) {
            next = s->next;
            if (costs)
                add_seen(costs, s);
            free(s);
        }
    if (costs)
        choir__costs_sort(costs);
    if (costs && o->runs) {
        costs->task_s = quantile(o->task_s, o->runs, 0.5);
        costs->step_s = quantile(o->step_s, o->runs, 0.5);
    }
    pthread_mutex_destroy(&o->lock);
    free(o->gaps);
    free(o);
}
