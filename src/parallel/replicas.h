/* Replicas of a module: one set of tensors per device, and the binding of a module's fields to
 * one of these sets.
 *
 * There is one module, with its structs and children; only the tensors in its registered fields
 * exist once per device. Replica 0 is the module's own tensors. Values change in replica 0
 * alone, so the others are filled from it before they compute. */
#ifndef CHOIR_REPLICAS_H
#define CHOIR_REPLICAS_H

#include "nn/module.h"

typedef struct choir__replica {
    choir_device *device;
    choir_tensor **tensor; /* (count); NULL until the device is needed */
    uint64_t *fresh;       /* (count) choir__values_of the tensors whose values it has */
    choir__book *book;     /* book of its parameters' gradients, in the order of `tensor` */
    choir__event filled;   /* event: values have been read from replica 0 */
    bool unread;           /* replica 0's device has not waited for `filled` yet */
} choir__replica;

typedef struct choir__field { /* a registered field in the module's tree */
    choir_tensor **field;
    choir__module_entry *entry;
    int tensor; /* index of the tensor that it holds */
} choir__field;

typedef struct choir__replicas {
    choir_scope *run;
    choir_module *module;
    choir__replica *replica; /* (devices), the module's own first */
    int devices;
    int params, count; /* parameters in order of registration, then buffers */
    choir__field *fields;
    int field_count;
} choir__replicas;

/* Lists the tensors and fields of a module, which must have its names. Errors: argument, naming
 * what cannot be replicated; device, naming a tensor that is not on devices[0]. */
choir_status choir__replicas_open(
    choir__replicas *r, choir_module *module, choir_device *const *devices, int count);
void choir__replicas_free(choir__replicas *r); /* the tensors belong to the run */

/* Copies replica 0's values to replica i, after the event `from` of replica 0's device. */
choir_status choir__replicas_fill(choir__replicas *r, int i, choir__event from);
/* Copies the buffers of replica i to replica 0. */
void choir__replicas_take_buffers(choir__replicas *r, int i);
/* Makes replica 0's device wait until the other replicas have read its values, so that it may
 * change them. */
void choir__replicas_were_read(choir__replicas *r);

/* Sets the module's fields to the tensors of replica i. */
void choir__replicas_bind(choir__replicas *r, int i);

#endif
