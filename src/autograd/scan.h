/* The look: the facts that a walk gathers before it starts. */
#ifndef CHOIR_LOOK_H
#define CHOIR_LOOK_H

#include "autograd/walk.h"

/* The op of entries that a walk has already run. */
extern const choir__op choir__consumed_op;

/* Marks the entries on which the root depends. Errors: scope, state. */
choir_status choir__scan_reached(choir__walk *w);
/* True if the entry's turn has come: it is reached, and its owner is the stage being
 * walked. */
bool choir__look_turn(const choir__walk *w, const choir__tape_entry *r);
/* Makes books for all parameters of the run that no optimizer and no strategy has put into
 * one. */
void choir__scan_book_rest(choir_scope *run);

/* Finds the books of this stage's parameters and numbers the uses of each parameter. */
choir_status choir__scan_uses(choir__walk *w);
/* Adds p's book to the walk's books. */
void choir__scan_touch(choir__walk *w, choir__tape_entry *r, int i, choir__param *p);
/* Opens, or closes, a leaf in each of the walk's books. */
choir_status choir__scan_open_leaves(choir__walk *w);
choir_status choir__scan_close_leaves(choir__walk *w);

#endif
