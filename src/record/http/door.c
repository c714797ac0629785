/* A guest is closed by shutdown(), which its server's thread sees as the end of the connection;
 * its place is free when that thread has left. So there are more places than guests that are
 * let in: a quarter is for those that are about to leave. */
#include "record/http/http.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/hold_signals.h"

struct choir__guest {
    int fd; /* -1: a free place */
    double since;
    bool known, leaving;
};

struct choir__door {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t watcher;
    double limit_s;
    bool ends;
    int places, most;      /* most: guests that are not leaving */
    choir__guest guests[]; /* (places) */
};

static bool can_go(const choir__guest *g)
{
    return g->fd >= 0 && !g->known && !g->leaving;
}

/* Returns the guest that has been unknown for the longest time, or NULL. */
static choir__guest *oldest(choir__door *d)
{
    choir__guest *found = NULL;
    for (int i = 0; i < d->places; i++)
        if (can_go(&d->guests[i]) && (!found || d->guests[i].since < found->since))
            found = &d->guests[i];
    return found;
}

static void show_out(choir__guest *g)
{
    shutdown(g->fd, SHUT_RDWR);
    g->leaving = true;
}

/* Closes connections whose time is over. */
static void *watch(void *arg)
{
    choir__door *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->ends) {
        choir__guest *g = oldest(d);
        double left = g ? g->since + d->limit_s - choir__now() : 0;
        struct timespec until = choir__in_seconds(left > 0 ? left : 0);
        if (!g)
            pthread_cond_wait(&d->changed, &d->lock);
        else if (left <= 0)
            show_out(g);
        else
            pthread_cond_timedwait(&d->changed, &d->lock, &until);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

choir__door *choir__door_open(int places, double limit_s)
{
    choir__door *d = choir__calloc(1, sizeof *d + (size_t)places * sizeof *d->guests);
    d->places = places;
    d->most = places - places / 4;
    d->limit_s = limit_s;
    for (int i = 0; i < places; i++)
        d->guests[i].fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    choir__cond_init(&d->changed);
    if (choir__thread_start(&d->watcher, watch, d) == 0)
        return d;
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return NULL;
}

void choir__door_close(choir__door *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->ends = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->watcher, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

bool choir__door_make_room(choir__door *d)
{
    int staying = 0;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->places; i++)
        staying += d->guests[i].fd >= 0 && !d->guests[i].leaving;
    choir__guest *g = staying < d->most ? NULL : oldest(d);
    if (g)
        show_out(g);
    pthread_mutex_unlock(&d->lock);
    return staying < d->most || g;
}

choir__guest *choir__door_enter(choir__door *d, int fd)
{
    choir__guest *free_place = NULL;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->places && !free_place; i++)
        free_place = d->guests[i].fd < 0 ? &d->guests[i] : NULL;
    if (free_place)
        *free_place = (choir__guest){.fd = fd, .since = choir__now()};
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return free_place;
}

void choir__door_leave(choir__door *d, choir__guest *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&d->lock);
    g->fd = -1;
    pthread_mutex_unlock(&d->lock);
}

void choir__door_answered(choir__door *d, choir__guest *g, bool known)
{
    if (!g)
        return;
    pthread_mutex_lock(&d->lock);
    g->known |= known;
    g->since = choir__now();
    pthread_mutex_unlock(&d->lock);
}
