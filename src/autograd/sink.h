/* The interface between the sink and the walk. */
#ifndef CHOIR_SINK_H
#define CHOIR_SINK_H

#include "autograd/walk.h"

/* Work that was put off: a parameter's gradient that is not yet in its book, or an entry whose
 * backward_weight has not yet run, with the memory that it reads. */
struct choir__late {
    choir__tape_entry *entry;
    int input; /* the entry's input whose gradient `grad` is; -1: backward_weight has to run */
    int stage;
    /* gradient of the parameter (ids: it is rows), or of the entry's result */
    choir_tensor *grad, *ids;
    choir__storage *in[CHOIR__MAX_IN], *saved[CHOIR__MAX_SAVED];
    unsigned lent; /* bit i: operand or saved tensor i uses the memory kept here for now */
    choir__late *next;
};

/* Appends an entry to the walk's list of put-off work and returns it. */
choir__late *choir__put_off(choir__walk *w, choir__tape_entry *r, int input);

/* Sets the sink's functions. */
void choir__sink_fill(choir__sink *sink);

/* Calls the hooks of t with its gradient. */
void choir__call_hooks(choir_tensor *t, choir_tensor *grad);

#endif
