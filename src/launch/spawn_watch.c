/* Watchers of forks: parts of the library that have threads or files to put in order around
 * them (launch/spawn.h). */
#include <pthread.h>
#include <stddef.h>

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

void choir__watch_forked(void)
{
    for (choir__spawn_watcher *w = watchers; w; w = w->next)
        if (w->forked)
            w->forked(w->arg);
    pthread_mutex_unlock(&watchers_lock);
}
