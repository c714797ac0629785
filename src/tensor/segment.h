/* Segments of the tape: results that are released in forward and made again in backward.
 *
 * segment.c notes them while forward runs; again.c makes results again. */
#ifndef CHOIR_SEGMENT_INTERNAL_H
#define CHOIR_SEGMENT_INTERNAL_H

#include "tensor/op.h"

/* A segment is the run of ops of a scope from begin to end: then all that they made is released
 * except the result, and made again when it is read. Segments nest. choir__segment_begin
 * returns NULL when no gradients are wanted. */
typedef struct choir__segment choir__segment;
choir__segment *choir__segment_begin(choir_scope *scope);
void choir__segment_end(choir__segment *segment, choir_tensor *result);
/* True if segment is NULL or has not ended yet. */
bool choir__segment_open(const choir__segment *segment);
/* Makes r the latest op of the segment and of those around it. NULL: r is part of none. */
void choir__segment_add(choir__segment *segment, choir__record *r);
/* Takes a record that is about to leave the tape out of its segments. */
void choir__segment_drop(choir__record *r);

/* What a tensor has whose memory was released until it is made again. */
typedef struct choir__released {
    choir__segment *segment; /* that released it; NULL: none, or for good */
    /* while it, or what is made of it, is made again: */
    choir__record *until;  /* the last record that needs it */
    bool passing;          /* it is released again after that */
    choir_tensor *waiting; /* the tensor that is to be made of it */
} choir__released;

/* Returns t's record of this kind, which is empty if it had none. */
choir__released *choir__released_of(choir_tensor *t);

/* The segment that released t's memory; NULL: none did. */
static inline choir__segment *choir__released_by(const choir_tensor *t)
{
    return t->released ? t->released->segment : NULL;
}

/* If t's values were released, makes them again, in the forward pass: t alone. */
choir_status choir__bring_back(choir_tensor *t);
/* In backward: makes again all that r's backward reads, and what its segments will read after
 * it. */
choir_status choir__restore_read(choir__record *r);
/* True if r would be made again out of t, should backward need it: then t must stay as it is.
 */
bool choir__made_of(const choir__record *r, const choir_tensor *t);
/* For an op's again: copies operands into another order, as saved[i] may have. */
void choir__copy_again(choir_tensor *saved, const choir_tensor *x);

#endif
