/* Hashing on another thread: one piece at a time, passed under a lock. */
#include "checkpoint/hasher.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct choir__hasher {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    choir__sha256_state *state;
    const void *data; /* data to hash; NULL: none */
    size_t bytes;
    bool ending;
};

static void *run(void *arg)
{
    choir__hasher *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->data && !h->ending)
            pthread_cond_wait(&h->changed, &h->lock);
        if (!h->data)
            break;
        pthread_mutex_unlock(&h->lock);
        choir__sha256_update(h->state, h->data, h->bytes);
        pthread_mutex_lock(&h->lock);
        h->data = NULL;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

choir__hasher *choir__hasher_new(choir__sha256_state *state)
{
    sigset_t all, before;
    choir__hasher *h = choir__calloc(1, sizeof *h);
    h->state = state;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    sigfillset(&all); /* signals go to the threads that existed before */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        return h;
    free(h);
    return NULL;
}

void choir__hasher_add(choir__hasher *h, const void *data, size_t bytes)
{
    choir__hasher_wait(h);
    pthread_mutex_lock(&h->lock);
    h->data = data;
    h->bytes = bytes;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void choir__hasher_wait(choir__hasher *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->data)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

void choir__hasher_free(choir__hasher *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->ending = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
