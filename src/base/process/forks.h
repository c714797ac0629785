/* Parts of the library that take part in each fork() of their process. A thread rests, as locks
 * that it holds at that moment, an allocator's among them, stay locked in the child for ever.
 * Descriptors of the parent are closed in the child, so that a port becomes free and a death is
 * noticed when the parent ends, not when its last child does. */
#ifndef CHOIR_BASE_PROCESS_FORKS_H
#define CHOIR_BASE_PROCESS_FORKS_H

#include <stdbool.h>

/* The functions take `self`; NULL: nothing is done. */
typedef struct choir__forkable {
    struct choir__forkable *next;
    void (*before)(void *self);    /* in the thread that calls fork() */
    void (*in_parent)(void *self); /* the same thread, afterwards */
    void (*in_child)(void *self);
    void *self;
} choir__forkable;

/* Register and remove a part. The caller keeps it. A child has none but those that in_child
 * adds again. */
void choir__forkable_add(choir__forkable *forkable);
void choir__forkable_remove(choir__forkable *forkable); /* accepts one that was never added */

/* Excludes this thread: its forks tell no part, because a part's `before` may wait in another
 * thread until this one ends. Such a fork is followed by exec(). */
void choir__forks_exclude(void);
bool choir__forks_excluded(void); /* whether this thread is excluded */

#endif
