/* Watchers of forks: parts of the library that have files and counts to put in order around
 * them (launch/spawn.h). */
#include <pthread.h>

#include "launch/replace.h"

static pthread_mutex_t watchers_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__spawn_watcher *watchers;

void choir__spawn_watch(choir__spawn_watcher *watcher)
{
    pthread_mutex_lock(&watchers_lock);
    watcher->next = watchers;
    watchers = watcher;
    pthread_mutex_unlock(&watchers_lock);
}

void choir__spawn_unwatch(choir__spawn_watcher *watcher)
{
    pthread_mutex_lock(&watchers_lock);
    choir__spawn_watcher **link = &watchers;
    while (*link && *link != watcher)
        link = &(*link)->next;
    if (*link)
        *link = watcher->next;
    pthread_mutex_unlock(&watchers_lock);
}

/* Takes the lock and keeps it over the fork: if another thread held it, it would stay locked in
 * the child. */
void choir__watch_before(int first_rank, int count)
{
    pthread_mutex_lock(&watchers_lock);
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->before)
            w->before(w->arg, first_rank, count);
}

void choir__watch_after(void)
{
    pthread_mutex_lock(&watchers_lock);
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->after)
            w->after(w->arg);
    pthread_mutex_unlock(&watchers_lock);
}

/* Runs in the child, whose only thread has held the lock since before the fork. The number is
 * the child's rank or seat, so two processes never have the same one. */
void choir__watch_child(int number)
{
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->child)
            w->child(w->arg, number);
    pthread_mutex_unlock(&watchers_lock);
}

void choir__watch_leaving(int number)
{
    pthread_mutex_lock(&watchers_lock);
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->leaving)
            w->leaving(w->arg, number);
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->left)
            w->left(w->arg);
    pthread_mutex_unlock(&watchers_lock);
}

int choir__watch_poll(struct pollfd *polled)
{
    int count = 0;
    pthread_mutex_lock(&watchers_lock);
    for (const choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->heard && count < CHOIR__WATCHED_MOST)
            polled[count++] = (struct pollfd){.fd = w->fd, .events = POLLIN};
    pthread_mutex_unlock(&watchers_lock);
    return count;
}

/* A watcher may come and go while another one hears something, so the lock is not kept. */
void choir__watch_heard(const struct pollfd *polled, int count)
{
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&watchers_lock);
        const choir__spawn_watcher *w = watchers;
        while (w && !(w->heard && w->fd == polled[i].fd))
            w = w->next;
        pthread_mutex_unlock(&watchers_lock);
        if (w && polled[i].revents)
            w->heard(w->arg);
    }
}

void choir__watch_forked(void)
{
    pthread_mutex_unlock(&watchers_lock);
}
