/* A run's devices over time. Its process and the ones it started publish their figures on
 * boards (base/board/board.h), so the run itself needs no code for this. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare/compare.h"
#include "comm/flight/recorder.h"

/* Returns the column of a device, or -1 if there are too many devices. */
static int column(choir__compare_watch *w, const char *name)
{
    for (int i = 0; i < w->device_count; i++)
        if (!strcmp(w->device[i], name))
            return i;
    if (w->device_count == CHOIR__MAX_DEVICES)
        return -1;
    snprintf(w->device[w->device_count], sizeof w->device[0], "%s", name);
    return w->device_count++;
}

/* Ranks of one job have a device each, and each sees all: the figures of a name are added. */
static bool add(choir__compare_watch *w, int pid)
{
    choir__seen *seen = choir__recorder_read(pid);
    for (int i = 0; seen && i < seen->device_count; i++) {
        int at = column(w, seen->devices[i].name);
        if (at < 0)
            continue;
        w->bytes[w->count * CHOIR__MAX_DEVICES + at] += (double)seen->devices[i].now;
        w->busy_s[w->count * CHOIR__MAX_DEVICES + at] += seen->devices[i].busy_s;
    }
    bool found = seen && seen->device_count > 0;
    choir__seen_free(seen);
    return found;
}

/* Keeps the busy time of processes that have ended. */
static void keep_ended(choir__compare_watch *w)
{
    for (int i = 0; i < w->device_count && w->count; i++) {
        double *now = &w->busy_s[w->count * CHOIR__MAX_DEVICES + i];
        *now = fmax(*now, now[-CHOIR__MAX_DEVICES]);
    }
}

static void make_room(choir__compare_watch *w)
{
    if (w->count < w->room)
        return;
    w->room = w->room ? 2 * w->room : 256;
    size_t row = CHOIR__MAX_DEVICES * sizeof(double);
    w->at = choir__realloc(w->at, (size_t)w->room * sizeof(double));
    w->bytes = choir__realloc(w->bytes, (size_t)w->room * row);
    w->busy_s = choir__realloc(w->busy_s, (size_t)w->room * row);
}

void choir__watch_look(choir__compare_watch *w, int pid)
{
    char path[64], children[1024] = "", *rest = children;
    make_room(w);
    memset(w->bytes + w->count * CHOIR__MAX_DEVICES, 0, sizeof(double) * CHOIR__MAX_DEVICES);
    memset(w->busy_s + w->count * CHOIR__MAX_DEVICES, 0, sizeof(double) * CHOIR__MAX_DEVICES);
    w->at[w->count] = choir__now();
    bool found = add(w, pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    if (f && fgets(children, sizeof children, f))
        for (long child; (child = strtol(rest, &rest, 10)) > 0;)
            found = add(w, (int)child) || found;
    if (f)
        fclose(f);
    keep_ended(w);
    w->count += found;
}

/* Returns the busy seconds of device i up to a time, interpolated between two samples. */
static double busy_until(const choir__compare_watch *w, int i, double at)
{
    int low = 0, high = w->count - 1;
    if (high < 0 || at <= w->at[0])
        return high < 0 ? 0 : w->busy_s[i];
    if (at >= w->at[high])
        return w->busy_s[high * CHOIR__MAX_DEVICES + i];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(w->at[middle] <= at ? &low : &high) = middle;
    }
    double a = w->busy_s[low * CHOIR__MAX_DEVICES + i],
           b = w->busy_s[high * CHOIR__MAX_DEVICES + i];
    return a + (b - a) * (at - w->at[low]) / (w->at[high] - w->at[low]);
}

double choir__watch_busy(const choir__compare_watch *w, int i, double from, double to)
{
    double busy = busy_until(w, i, to) - busy_until(w, i, from);
    return fmin(1, fmax(0, busy / (to - from)));
}

void choir__watch_free(choir__compare_watch *w)
{
    if (!w)
        return;
    free(w->at);
    free(w->bytes);
    free(w->busy_s);
    free(w);
}
