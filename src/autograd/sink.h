/* The sink and the walk, to each other. */
#ifndef CHOIR_SINK_H
#define CHOIR_SINK_H

#include "autograd/walk.h"

/* What was put off: a gradient of a parameter that waits to be given, or a record whose
 * backward_weight has yet to run, with what it reads. */
struct choir__late {
    choir__record *record;
    int input; /* of the record, whose gradient this is; -1: backward_weight */
    int stage;
    choir_tensor *grad, *ids; /* the parameter's, or rows of ids; of the record's result */
    choir__storage *in[CHOIR__MAX_IN], *saved[CHOIR__MAX_SAVED];
    unsigned lent; /* bit i: operand or saved tensor i has its memory from here for now */
    choir__late *next;
};

/* Appends work to what the walk puts off. */
choir__late *choir__put_off(choir__walk *w, choir__record *r, int input);

/* The sink's functions. */
void choir__sink_fill(choir__sink *sink);

/* Calls the hooks of t with its gradient. */
void choir__call_hooks(choir_tensor *t, choir_tensor *grad);

#endif
