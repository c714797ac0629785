/* Replicas of a module: sets of tensors, one a device, and the binding of a module's fields to
 * one of them.
 *
 * There is one module, with its structs and children; what there is once a device is what its
 * registered fields point to. Replica 0 is the module's own tensors. Its values change there
 * alone, so the others are filled from it before they compute. */
#ifndef CHOIR_REPLICAS_H
#define CHOIR_REPLICAS_H

#include "nn/module.h"

typedef struct choir__replica {
    choir_device *device;
    choir_tensor **tensor; /* (count); NULL until the device is needed */
    uint64_t *fresh;       /* (count) choir__values_of what it has copies of */
    choir__book *book;     /* of its parameters' gradients, in the same order */
    choir__event filled;   /* its values have been read from replica 0 */
    bool unread;           /* replica 0's device has yet to wait for that */
} choir__replica;

typedef struct choir__field { /* of the module's tree */
    choir_tensor **field;
    choir__module_entry *entry;
    int tensor; /* which */
} choir__field;

typedef struct choir__replicas {
    choir_scope *run;
    choir_module *module;
    choir__replica *replica; /* (devices), the module's own first */
    int devices;
    int params, count; /* parameters, in order of registration; then buffers */
    choir__field *fields;
    int field_count;
} choir__replicas;

/* The module must be named. Error: argument, naming what cannot be replicated; device, naming a
 * tensor that is not on devices[0]. */
choir_status choir__replicas_open(
    choir__replicas *r, choir_module *module, choir_device *const *devices, int count);
void choir__replicas_free(choir__replicas *r); /* the tensors are the run's */

/* Gives replica i the values that replica 0 has at `from`, a place in its device's queue. */
choir_status choir__replicas_fill(choir__replicas *r, int i, choir__event from);
/* Replica 0's buffers become those of replica i. */
void choir__replicas_take_buffers(choir__replicas *r, int i);
/* Replica 0's device goes on once the others have read its values, so that it may change them.
 */
void choir__replicas_were_read(choir__replicas *r);

/* The module's fields are replica i's. */
void choir__replicas_bind(choir__replicas *r, int i);

#endif
