/* A list of the objects that a forked child must not keep. fork() waits until none of them is
 * in the middle of a call; then the child closes its copies and forgets the list. */
#include "launch/store/forked.h"

#include <stddef.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__forkable *registry;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void before(void)
{
    pthread_mutex_lock(&registry_lock);
    for (choir__forkable *f = registry; f; f = f->next)
        if (f->lock)
            pthread_mutex_lock(f->lock);
}

static void release(void)
{
    for (choir__forkable *f = registry; f; f = f->next)
        if (f->lock)
            pthread_mutex_unlock(f->lock);
}

static void in_parent(void)
{
    release();
    pthread_mutex_unlock(&registry_lock);
}

static void in_child(void)
{
    release();
    for (choir__forkable *f = registry; f; f = f->next)
        f->in_child(f->self);
    registry = NULL;
    pthread_mutex_unlock(&registry_lock);
}

static void install(void)
{
    pthread_atfork(before, in_parent, in_child);
}

void choir__forkable_add(choir__forkable *forkable)
{
    pthread_once(&registered, install);
    pthread_mutex_lock(&registry_lock);
    forkable->next = registry;
    registry = forkable;
    pthread_mutex_unlock(&registry_lock);
}

void choir__forkable_remove(choir__forkable *forkable)
{
    pthread_mutex_lock(&registry_lock);
    for (choir__forkable **at = &registry; *at; at = &(*at)->next)
        if (*at == forkable) {
            *at = forkable->next;
            break;
        }
    pthread_mutex_unlock(&registry_lock);
}
