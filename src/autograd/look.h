/* What a walk finds out before it goes. */
#ifndef CHOIR_LOOK_H
#define CHOIR_LOOK_H

#include "autograd/walk.h"

/* The op of records that a walk has left behind. */
extern const choir__op choir__consumed_op;

/* Marks what the root depends on. Errors: scope, state. */
choir_status choir__look_reached(choir__walk *w);
/* Whether it is the record's turn: it is reached, and of the stage being walked. */
bool choir__look_turn(const choir__walk *w, const choir__record *r);
/* Parameters that no optimizer and no strategy has put into a book get one together. */
void choir__look_book_rest(choir_scope *run);

/* Finds the books of this stage and numbers the uses of each of their parameters. */
choir_status choir__look_uses(choir__walk *w);
/* p's book is one of the walk's. */
void choir__look_touch(choir__walk *w, choir__record *r, int i, choir__param *p);
/* A leaf in each of them. */
choir_status choir__look_open_leaves(choir__walk *w);
choir_status choir__look_close_leaves(choir__walk *w);

#endif
