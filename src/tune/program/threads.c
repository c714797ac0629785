/* choir_tune with threads: each asks for a trial, runs it, and tells its end. */
#include <errno.h>
#include <stdlib.h>

#include "tune/program/tuning.h"

typedef struct worker {
    choir__tuning *tuning;
    int place;
    pthread_t thread;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    choir__tuned one;
    while (choir__tuning_await(w->tuning, w->place, &one))
        do
            choir__tuned_run(w->tuning, &one);
        while (choir__tuning_end(w->tuning, &one));
    return NULL;
}

/* The caller is the first worker. Where no more threads can be started, fewer run the trials,
 * with the same results. */
void choir__tune_by_threads(choir__tuning *t)
{
    worker *w = choir__calloc((size_t)t->opts.parallel, sizeof *w);
    int started = 1;
    for (int i = 0; i < t->opts.parallel; i++)
        w[i] = (worker){.tuning = t, .place = i};
    while (started < t->opts.parallel &&
           !pthread_create(&w[started].thread, NULL, work, &w[started]))
        started++;
    work(&w[0]);
    for (int i = 1; i < started; i++)
        pthread_join(w[i].thread, NULL);
    free(w);
}
