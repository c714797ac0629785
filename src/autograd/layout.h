/* The layout of a book: the bucket, and the offset in it, of each parameter's gradient. */
#ifndef CHOIR_LAYOUT_H
#define CHOIR_LAYOUT_H

#include "autograd/book.h"

/* Makes the layout fit the uses counted in the tape, or says why it cannot change now. */
choir_status choir__layout_check(choir__book *book);

/* Allocates memory for the given number of levels of the stack. */
choir_status choir__layout_levels(choir__book *book, int levels);

/* Returns the greatest height of the stack between two of a range of leaves. */
int choir__layout_height(int64_t first, int64_t count);

void choir__layout_free(choir__book *book);

/* choir__slot_data returns the memory of a use's gradient at a level, of the first part if it
 * has parts; choir__slot_sum returns the memory of its sum at the end of the step. */
void *choir__slot_data(choir__book *book, const choir__slot *slot, int level);
void *choir__slot_sum(choir__book *book, const choir__slot *slot);
/* Queues y = (a + b) * scale for n numbers of the book; b NULL: y = a * scale. */
void choir__book_add(
    choir__book *book, void *y, const void *a, const void *b, int64_t n, double scale);
/* Returns whether the leaf that is being written has its sibling at the top of the stack. */
bool choir__layout_passes(const choir__book *book);
/* Obtains the bucket's memory from a reducer that shards, and memory for a leaf that is added
 * at once, unless it is there already. Errors: memory; the group's. */
choir_status choir__layout_hold(choir__book *book, int bucket);
void choir__layout_pass(choir__bucket *bucket); /* frees the memory of such a leaf */

/* Returns the use in whose memory a parameter's sum begins: the first whose op gives a dense
 * gradient, else the first; -1: the sum is in p->dense, since all uses stay in rows. */
int choir__layout_sum_use(const choir__param *p);

/* Add up the uses of a parameter, times scale (uses.c): the uses of one stage, or of all stages
 * of a pipeline. */
choir_status choir__uses_add(choir__book *book, choir__param *p, double scale);
choir_status choir__uses_add_stages(choir__book *book, choir__param *p, double scale);

/* Returns the part of a message about leaves that cannot be added which names another
 * optimizer's step between them; "" if no such step happened. */
const char *choir__layout_mixture(const choir__param *param);

#endif
