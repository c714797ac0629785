/* Objects that must not live on in a forked child: a server, whose thread remains in the
 * parent, and a client, whose connection belongs to the parent. The child closes their
 * descriptors, so that a port becomes free and a death is noticed when the parent ends, not
 * when its last child does. */
#ifndef CHOIR_LAUNCH_STORE_FORKED_H
#define CHOIR_LAUNCH_STORE_FORKED_H

#include <pthread.h>

typedef struct choir__forkable {
    struct choir__forkable *next;
    pthread_mutex_t *lock; /* held during a fork; NULL: none */
    void (*in_child)(void *self);
    void *self;
} choir__forkable;

void choir__forkable_add(choir__forkable *forkable);
void choir__forkable_remove(choir__forkable *forkable); /* accepts one that was never added */

#endif
