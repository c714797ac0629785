/* A trace observes queues. Each task that has run is added to the line of its kind (name and
 * shape) and, while there is room, stored as an event.
 *
 * A queue's tasks arrive one at a time, but tasks of several queues arrive in parallel, so a
 * lock guards the tables. Times are the runner's: a device's line may include a page fault or
 * another process's turn as well as its kernel. */
#include "device/trace.h"

#include <math.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/text.h"
#include "device/work.h"

enum { MAX_QUEUES = 64, EVENTS = 1000000, RATE_SIZE = 1024, RATE_RUNS = 15 };

typedef struct line {
    choir_trace_line public;
    char name[48], shape[64];
    int track;
    choir__queue_task *fn;
} line;

typedef struct event {
    double start, end;
    int line, track; /* line -1: a span of the host */
    char name[32];
} event;

typedef struct track {
    struct choir_trace *trace;
    int index;
    char name[32];
    choir__queue *queue;        /* NULL: the host, or no longer observed */
    const choir_device *device; /* NULL: name_of names the tasks */
    const char *(*name_of)(choir__queue_task *fn, const void *args);
} track;

struct choir_trace {
    pthread_mutex_t lock;
    track tracks[MAX_QUEUES];
    int track_count;
    line *lines;
    int line_count;
    event *events;
    size_t event_count, event_limit;
    double born;
    choir_trace_line *sorted;
};

choir_trace *choir_trace_new(size_t events)
{
    choir_trace *t = choir__calloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->event_limit = events ? events : EVENTS;
    t->born = choir__now();
    t->tracks[0] = (track){.trace = t, .name = "host"};
    t->track_count = 1;
    return t;
}

void choir_trace_stop(choir_trace *t)
{
    if (choir__lacks(t, __func__, "trace"))
        return;
    for (int i = 1; i < t->track_count; i++)
        if (t->tracks[i].queue)
            choir__queue_observe(t->tracks[i].queue, NULL, NULL);
    for (int i = 1; i < t->track_count; i++)
        t->tracks[i].queue = NULL;
}

void choir_trace_free(choir_trace *t)
{
    if (!t)
        return;
    choir_trace_stop(t);
    pthread_mutex_destroy(&t->lock);
    free(t->lines);
    free(t->events);
    free(t->sorted);
    free(t);
}

/* --- collecting --- */

static int line_for(
    choir_trace *t, const track *from, choir__queue_task *fn, const choir__kernel_work *work)
{
    const char *name =
        work->name ? work->name : "other"; /* one function runs all collectives */
    for (int i = 0; i < t->line_count; i++)
        if (t->lines[i].fn == fn && t->lines[i].track == from->index &&
            !strncmp(t->lines[i].name, name, sizeof t->lines[i].name - 1) &&
            !strcmp(t->lines[i].shape, work->shape))
            return i;
    CHOIR__GROW(t->lines, t->line_count);
    line *l = &t->lines[t->line_count];
    *l = (line){.track = from->index, .fn = fn};
    snprintf(l->name, sizeof l->name, "%s", name);
    snprintf(l->shape, sizeof l->shape, "%s", work->shape);
    return t->line_count++;
}

static event *new_event(choir_trace *t)
{
    if (t->event_count == t->event_limit)
        return NULL;
    CHOIR__GROW(t->events, t->event_count);
    return &t->events[t->event_count++];
}

static void observe(
    void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    track *from = arg;
    choir_trace *t = from->trace;
    choir__kernel_work work = {0};
    if (from->device)
        work = choir__kernel_work_of(from->device, fn, args);
    else
        work.name = from->name_of(fn, args);
    pthread_mutex_lock(&t->lock);
    int i = line_for(t, from, fn, &work);
    line *l = &t->lines[i];
    l->public.calls++;
    l->public.seconds += end - start;
    l->public.flops += work.flops;
    event *e = new_event(t);
    if (e)
        *e = (event){.start = start, .end = end, .line = i, .track = from->index};
    pthread_mutex_unlock(&t->lock);
}

static track *new_track(choir_trace *t, const char *name, choir__queue *queue)
{
    if (t->track_count == MAX_QUEUES)
        return NULL;
    track *k = &t->tracks[t->track_count];
    *k = (track){.trace = t, .index = t->track_count++, .queue = queue};
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

void choir_trace_device(choir_trace *t, choir_device *device)
{
    if (choir__lacks(t, __func__, "trace"))
        return;
    if (choir__lacks(device, __func__, "device"))
        return;
    track *k = new_track(t, choir_device_name(device), device->queue);
    if (!k)
        return;
    k->device = device;
    choir__queue_observe(device->queue, observe, k);
}

void choir__trace_queue(choir_trace *t, const char *name, choir__queue *queue,
    const char *(*name_of)(choir__queue_task *fn, const void *args))
{
    track *k = new_track(t, name, queue);
    if (!k)
        return;
    k->name_of = name_of;
    choir__queue_observe(queue, observe, k);
}

double choir_trace_now(void)
{
    return choir__now();
}

void choir_trace_span(choir_trace *t, const char *name, double start, double end)
{
    if (choir__lacks(t, __func__, "trace"))
        return;
    if (choir__lacks(name, __func__, "name"))
        return;
    pthread_mutex_lock(&t->lock);
    event *e = new_event(t);
    if (e) {
        *e = (event){.start = start, .end = end, .line = -1};
        snprintf(e->name, sizeof e->name, "%s", name);
    }
    pthread_mutex_unlock(&t->lock);
}

/* --- the profile --- */

static void wait_for_all(choir_trace *t)
{
    for (int i = 1; i < t->track_count; i++)
        if (t->tracks[i].queue)
            choir__queue_wait(t->tracks[i].queue);
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const choir_trace_line *)a)->seconds,
           y = ((const choir_trace_line *)b)->seconds;
    return (x < y) - (x > y);
}

const choir_trace_line *choir_trace_profile(choir_trace *t, int *count)
{
    if (choir__lacks(t, __func__, "trace"))
        return NULL;
    if (choir__lacks(count, __func__, "count"))
        return NULL;
    wait_for_all(t);
    pthread_mutex_lock(&t->lock);
    *count = t->line_count;
    t->sorted = choir__realloc(t->sorted, (size_t)(*count + 1) * sizeof *t->sorted);
    for (int i = 0; i < *count; i++) {
        t->sorted[i] = t->lines[i].public;
        t->sorted[i].name = t->lines[i].name;
        t->sorted[i].shape = t->lines[i].shape;
    }
    qsort(t->sorted, (size_t)*count, sizeof *t->sorted, by_seconds);
    pthread_mutex_unlock(&t->lock);
    return t->sorted;
}

static void print_rate(FILE *out, double flops, double seconds, double matmul_rate)
{
    double rate = seconds > 0 ? flops / seconds : 0;
    if (flops > 0)
        fprintf(out, "  %8.1f", rate * 1e-9);
    if (flops > 0 && matmul_rate > 0)
        fprintf(out, "  %5.0f %%", 100 * rate / matmul_rate);
    fprintf(out, "\n");
}

void choir_trace_print(choir_trace *t, FILE *out, double matmul_rate)
{
    if (choir__lacks(t, __func__, "trace"))
        return;
    if (choir__lacks(out, __func__, "out"))
        return;
    int count;
    const choir_trace_line *lines = choir_trace_profile(t, &count);
    double seconds = 0, flops = 0;
    for (int i = 0; i < count; i++)
        seconds += lines[i].seconds, flops += lines[i].flops;
    fprintf(out, "%-24s %-32s %9s %11s %7s  %8s%s\n", "kernel", "size", "calls", "ms", "share",
        "GFLOP/s", matmul_rate > 0 ? "  of the matmul rate" : "");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%-24s %-32s %9lld %11.3f %6.1f%%", lines[i].name, lines[i].shape,
            (long long)lines[i].calls, lines[i].seconds * 1e3,
            seconds > 0 ? 100 * lines[i].seconds / seconds : 0);
        print_rate(out, lines[i].flops, lines[i].seconds, matmul_rate);
    }
    fprintf(out, "%-57s %9s %11.3f %6.1f%%", "all", "", seconds * 1e3, 100.0);
    print_rate(out, flops, seconds, matmul_rate);
}

double choir_trace_matmul_rate(choir_device *device)
{
    if (choir__lacks(device, __func__, "device"))
        return NAN;
    enum { N = RATE_SIZE };
    choir__pool_block *block = choir__block_new(device, 3 * sizeof(float) * N * N);
    if (!block)
        return 0;
    float *p = choir__block_data(block);
    double times[RATE_RUNS];
    choir__k_fill fill = {.y = p, .n = 2 * N * N, .value = 1, .dtype = CHOIR_F32};
    choir__k_matmul product = choir__product_of(CHOIR_F32, choir__rows_at(p + 2 * N * N, N),
        choir__rows_at(p, N), choir__rows_at(p + N * N, N), N, N, N);
    choir__launch(device, CHOIR_F32, fill, &fill);
    for (int i = 0; i < RATE_RUNS; i++) {
        choir__queue_wait(device->queue);
        double start = choir__now();
        choir__launch(device, CHOIR_F32, matmul, &product);
        choir__queue_wait(device->queue);
        times[i] = choir__now() - start;
    }
    choir__block_free(block);
    qsort(times, RATE_RUNS, sizeof *times, choir__by_number);
    return 2.0 * N * N * N / times[RATE_RUNS / 2];
}

/* --- the trace --- */

static void write_event(
    choir__text_buffer *t, const choir_trace *trace, const event *e, int rank)
{
    const line *l = e->line >= 0 ? &trace->lines[e->line] : NULL;
    choir__text_open(t, NULL, '{');
    choir__text_string(t, "name", l ? l->name : e->name);
    choir__text_string(t, "ph", "X");
    choir__text_value(t, "pid", "%d", rank);
    choir__text_value(t, "tid", "%d", e->track);
    choir__text_value(t, "ts", "%.3f", e->start * 1e6);
    choir__text_value(t, "dur", "%.3f", (e->end - e->start) * 1e6);
    if (l && l->shape[0]) {
        choir__text_open(t, "args", '{');
        choir__text_string(t, "size", l->shape);
        choir__text_value(t, "gflop", "%.6g", l->public.flops / (double)l->public.calls * 1e-9);
        choir__text_close(t, '}');
    }
    choir__text_close(t, '}');
}

/* Names a process, or a thread of it: thread >= 0. */
static void write_name(choir__text_buffer *t, int rank, int thread, const char *name)
{
    choir__text_open(t, NULL, '{');
    choir__text_string(t, "name", thread < 0 ? "process_name" : "thread_name");
    choir__text_string(t, "ph", "M");
    choir__text_value(t, "pid", "%d", rank);
    if (thread >= 0)
        choir__text_value(t, "tid", "%d", thread);
    choir__text_open(t, "args", '{');
    choir__text_string(t, "name", name);
    choir__text_buffer_put(t, "}}");
}

/* Writes a line of the trace, each but the first behind a comma. */
static void write_line(choir__text_buffer *t, FILE *f, bool first)
{
    fputs(first ? "" : ",\n", f);
    fputs(t->bytes, f);
    choir__text_buffer_clear(t);
}

choir_status choir_trace_write(choir_trace *t, const char *path, int rank)
{
    if (!t)
        return choir__missing(__func__, "trace");
    if (!path)
        return choir__missing(__func__, "path");
    choir__text_buffer text = {0};
    char process[32];
    wait_for_all(t);
    FILE *f = choir__file_try_output(path);
    if (!f)
        return choir__error(
            CHOIR_ERR_IO, "trace: cannot write %s: %s", path, choir__file_why(errno));
    pthread_mutex_lock(&t->lock);
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    snprintf(process, sizeof process, "rank %d", rank);
    write_name(&text, rank, -1, process);
    write_line(&text, f, true);
    for (int i = 0; i < t->track_count; i++) {
        write_name(&text, rank, i, t->tracks[i].name);
        write_line(&text, f, false);
    }
    for (size_t i = 0; i < t->event_count; i++) {
        write_event(&text, t, &t->events[i], rank);
        write_line(&text, f, false);
    }
    choir__text_buffer_free(&text);
    fprintf(f, "\n]}\n");
    pthread_mutex_unlock(&t->lock);
    bool failed = ferror(f);
    return fclose(f) || failed ? choir__error(CHOIR_ERR_IO, "trace: writing %s failed: %s",
                                     path, strerror(errno))
                               : CHOIR_OK;
}
