/* The place in the whole tensor that an entry of a rank's part has. */
#ifndef CHOIR_TESTS_PLACE_H
#define CHOIR_TESTS_PLACE_H

#include "nn/module.h"

/* Returns the index in the whole tensor of entry i of t, which is p's part, or belongs to it in
 * the optimizer; -1 if no box contains it. Without p or boxes t is the whole. */
static inline int64_t place(const choir__param *p, const choir_tensor *t, int64_t i)
{
    int64_t at[CHOIR_MAX_DIMS];
    if (!p || !p->boxes)
        return i;
    for (int d = t->shape.ndim - 1; d >= 0; d--) {
        at[d] = i % t->shape.dim[d];
        i /= t->shape.dim[d];
    }
    for (int b = 0; b < p->box_count; b++) {
        const choir__box *box = &p->boxes[b];
        bool inside = true;
        int64_t index = 0;
        for (int d = 0; d < p->whole.ndim; d++) {
            int64_t in = at[d] - box->at[d];
            inside &= in >= 0 && in < box->size[d];
            index = index * p->whole.dim[d] + box->from[d] + in;
        }
        if (inside)
            return index;
    }
    return -1;
}

#endif
