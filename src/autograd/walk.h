/* A backward in progress: the walk from a root back over its tape.
 *
 * choir_backward opens one, walks it whole and closes it. A pipeline walks it stage by stage:
 * each record is of the stage that was under way when its op was issued (choir_scope.stage),
 * and choir__walk_stage goes back over one of them. Where a tensor went from one stage's device
 * to another's, the copy's record is *owned* by the stage that the tensor came from, which
 * fetches the gradient when its own turn comes: so no device waits for another before it must.
 *
 * Split, a stage leaves out what makes gradients of parameters: choir__walk_weights does that
 * later, out of what was kept for it. */
#ifndef CHOIR_WALK_H
#define CHOIR_WALK_H

#include "autograd/book.h"
#include "device/queue.h"

/* Seconds of an op on one device: the least of all that were measured. */
typedef struct choir__op_cost {
    double forward, input, weight; /* weight: of a backward that can be split, else 0 */
} choir__op_cost;

typedef struct choir__late choir__late; /* work on parameters put off */

typedef struct choir__walk {
    choir__sink sink; /* first: a sink is its walk's */
    choir_tensor *root;
    int64_t parts;       /* losses it starts from; 0: pieces of another walk's */
    choir_scope *end;    /* the first scope, outwards from the root's, that is not walked */
    bool split;          /* leave the gradients of parameters to choir__walk_weights */
    int stage;           /* being walked; -1: all of them */
    choir__book **books; /* of this stage's parameters; in the scope's arena */
    int book_count;
    choir__late *late, **late_end;
    choir__event *done;    /* of each stage of a pipeline: its part of the walk; else NULL */
    choir__op_cost *costs; /* of each op of the micro-batch, measured on the way; or NULL */
    double noted;          /* when */
} choir__walk;

/* root: one value or a vector of losses, or any tensor with its gradient grad on the same
 * device (NULL: ones). stages: 0: no pipeline. */
choir_status choir__walk_open(
    choir__walk *w, choir_tensor *root, choir_tensor *grad, int64_t parts, int stages);
/* Walks the records of one stage, and adds a leaf to the books of its parameters; stage -1:
 * all. Stages come in descending order. */
choir_status choir__walk_stage(choir__walk *w, int stage, bool split);
/* What the split walk of that stage left out, and the leaf. */
choir_status choir__walk_weights(choir__walk *w, int stage);
void choir__walk_close(choir__walk *w);
/* Instead of the rest, while its scope is open: lets go of what was kept for later. */
void choir__walk_abandon(choir__walk *w);

/* The whole of a walk, into leaves of `parts` losses. */
choir_status choir__backward_from(choir_tensor *root, choir_tensor *grad, int64_t parts);
/* The same of root's scope alone, for use inside of a backward function, whose own walk is of
 * the scopes around it. grad is not NULL. */
choir_status choir__backward_inner(choir_tensor *root, choir_tensor *grad);

/* How many losses the walk started from that a backward function is called by. */
int64_t choir__sink_parts(const choir__sink *sink);
/* Whether it adds a leaf to the book. */
bool choir__sink_writes(const choir__sink *sink, const choir__book *book);

#endif
