/* Inside ops whose results are entries that they picked along a dimension. */
#ifndef CHOIR_LOOKUP_INTERNAL_H
#define CHOIR_LOOKUP_INTERNAL_H

#include "tensor/op.h"

/* Gives r's input 0 its gradient: gy at the places along dim that the index (of gy's shape)
 * names, and 0 elsewhere. */
void choir__give_picked(choir__tape_entry *r, choir_tensor *gy, const choir_tensor *index,
    int dim, choir__sink *sink);

/* Like choir_gather_dim, for an index that has no entry twice along dim: a GPU adds up the
 * gradient at once. */
choir_tensor *choir__gather_distinct(choir_tensor *x, int dim, choir_tensor *index);

#endif
