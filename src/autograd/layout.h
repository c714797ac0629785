/* Laying out a book: which parameter's gradient lies where. */
#ifndef CHOIR_LAYOUT_H
#define CHOIR_LAYOUT_H

#include "autograd/book.h"

/* Makes the layout fit the uses counted in the tape, or says why it cannot change now. */
choir_status choir__layout_check(choir__book *book);

/* Memory for so many levels of the stack. */
choir_status choir__layout_levels(choir__book *book, int levels);

void choir__layout_free(choir__book *book);

/* A run is closing. */
void choir__books_close(void *run);

#endif
