/* A backward in progress: the walk from a root back over its tape.
 *
 * choir_backward opens a walk, runs all of it and closes it. A pipeline runs it stage by stage:
 * each entry belongs to the stage that was under way when its op was issued
 * (choir__placement.stage), and choir__walk_stage runs the entries of one stage. When a tensor
 * is copied from one stage's device to another's, the entry of the copy is *owned* by the
 * stage that the tensor came from, and that stage fetches the gradient when its own turn comes.
 * So no device waits for another earlier than it must.
 *
 * In a split walk, a stage skips the work that only parameters need; choir__walk_weights does
 * it later, with the memory that was kept for it. */
#ifndef CHOIR_WALK_H
#define CHOIR_WALK_H

#include "autograd/book.h"
#include "device/queue.h"

/* Seconds of an op on one device: the least of all measurements. */
typedef struct choir__op_cost {
    double forward, input, weight; /* weight: 0 unless the backward can be split */
} choir__op_cost;

typedef struct choir__late choir__late; /* work on parameters that was put off */

typedef struct choir__walk {
    choir__sink sink; /* first member: a sink is converted to its walk */
    choir_tensor *root;
    int64_t parts;       /* number of losses at the start; 0: a piece of another walk */
    choir_scope *end;    /* the first scope, outwards from the root's, that is not walked */
    bool split;          /* leaves the gradients of parameters to choir__walk_weights */
    int stage;           /* the stage that is walked; -1: all stages */
    choir__book **books; /* books of this stage's parameters; in the scope's arena */
    int book_count;
    choir__late *late, **late_end;
    choir_tensor *part; /* the part of a gradient that is being computed, and its number */
    int64_t part_number;
    /* per stage of a pipeline: the end of its part of the walk; else NULL */
    choir__event *done;
    choir__op_cost *costs; /* per op of the micro-batch, found during the walk; or NULL */
    bool clocked;          /* costs are measured, rather than counted (device/counts/tally.h) */
    double noted;          /* time of the note */
} choir__walk;

/* Opens a walk. root: a single value, a vector of losses, or any tensor together with its
 * gradient grad on the same device (NULL: ones). parts: the number of losses. stages: number of
 * the pipeline's stages; 0: no pipeline. */
choir_status choir__walk_open(
    choir__walk *w, choir_tensor *root, choir_tensor *grad, int64_t parts, int stages);
/* Walks the entries of one stage and adds a leaf to the books of its parameters; stage -1: all
 * entries. Stages are walked in descending order. */
choir_status choir__walk_stage(choir__walk *w, int stage, bool split);
/* Runs the work that the split walk of the stage put off, and adds the leaf. */
choir_status choir__walk_weights(choir__walk *w, int stage);
void choir__walk_close(choir__walk *w);
/* Gives up the rest of the walk while its scope is open: releases the memory kept for put-off
 * work. */
void choir__walk_abandon(choir__walk *w);

/* Returns an error if a value that r's backward reads was changed in place. */
choir_status choir__tape_entry_unchanged(const choir__tape_entry *r);

/* Runs a whole walk and adds leaves of `parts` losses. */
choir_status choir__backward_from(choir_tensor *root, choir_tensor *grad, int64_t parts);
/* Like choir__backward_from, but walks root's scope only, for use inside a backward function,
 * whose own walk covers the scopes around it. grad is not NULL. */
choir_status choir__backward_inner(choir_tensor *root, choir_tensor *grad);

/* Returns the number of losses from which the sink's walk started. */
int64_t choir__sink_parts(const choir__sink *sink);
/* True if the sink's walk adds a leaf to the book. */
bool choir__sink_writes(const choir__sink *sink, const choir__book *book);

#endif
