/* The list of parts that take part in forks; see forks.h. Its lock is held over the fork: other
 * threads add and remove nothing meanwhile. The child's lock and list are new, as another
 * thread may hold the parent's lock when an excluded one forks. */
#include "base/process/forks.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__forkable *registry;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static _Thread_local bool excluded;

static void before(void)
{
    if (excluded)
        return;
    pthread_mutex_lock(&registry_lock);
    for (choir__forkable *f = registry; f; f = f->next)
        if (f->before)
            f->before(f->self);
}

static void in_parent(void)
{
    if (excluded)
        return;
    for (choir__forkable *f = registry; f; f = f->next)
        if (f->in_parent)
            f->in_parent(f->self);
    pthread_mutex_unlock(&registry_lock);
}

static void in_child(void)
{
    choir__forkable *next, *first = excluded ? NULL : registry;
    registry = NULL;
    pthread_mutex_init(&registry_lock, NULL);
    for (choir__forkable *f = first; f; f = next) {
        next = f->next;
        if (f->in_child)
            f->in_child(f->self);
    }
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

void choir__forks_exclude(void)
{
    excluded = true;
}

bool choir__forks_excluded(void)
{
    return excluded;
}
