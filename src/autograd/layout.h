/* Laying out a book: which parameter's gradient lies where. */
#ifndef CHOIR_LAYOUT_H
#define CHOIR_LAYOUT_H

#include "autograd/book.h"

/* Makes the layout fit the uses counted in the tape, or says why it cannot change now. */
choir_status choir__layout_check(choir__book *book);

/* Memory for so many levels of the stack. */
choir_status choir__layout_levels(choir__book *book, int levels);

/* How high the stack gets over a run of leaves. */
int choir__layout_height(int64_t first, int64_t count);

void choir__layout_free(choir__book *book);

/* Where a use's gradient lies at a level, and where its sum is when the step is done. */
float *choir__slot_data(choir__book *book, const choir__slot *slot, int level);
float *choir__slot_sum(choir__book *book, const choir__slot *slot);
/* Where a bucket lies at a level. */
char *choir__bucket_data(const choir__book *book, int bucket, int level);
/* Memory for the bucket, of a reducer that shards. Errors: memory, the group's. */
choir_status choir__layout_hold(choir__book *book, int bucket);

/* Adds a parameter's uses up, times scale (uses.c): of one stage, or of several of a pipeline.
 */
choir_status choir__uses_add(choir__book *book, choir__param *p, float scale);
choir_status choir__uses_add_stages(choir__book *book, choir__param *p, float scale);

/* A run is closing. */
void choir__books_close(void *run);

#endif
