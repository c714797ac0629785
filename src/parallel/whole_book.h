/* The reducer of a book whose parameters all ranks of a group hold whole: each bucket is added
 * up over the ranks by itself, in the fixed tree. */
#ifndef CHOIR_PARALLEL_WHOLE_BOOK_H
#define CHOIR_PARALLEL_WHOLE_BOOK_H

#include "autograd/book.h"
#include "comm/group.h"

typedef struct choir__whole_book {
    choir_group *group;
    const char *what; /* for messages: "gradients" */
    choir__algorithm algorithm;
    /* the strategy's name, if a parameter without a use in a backward is its error; else NULL
     */
    const char *names_unused;
    /* the book of this parameter is finished before; NULL: none */
    const choir__param *earlier;
    const void *owner; /* who gives the book its reducer */
} choir__whole_book;

/* Gives the book this reducer. */
void choir__reduce_whole(choir__book *book, choir__whole_book whole);
/* Returns the owner of the book's reducer; NULL: it has another reducer, or none. */
const void *choir__whole_book_owner(const choir__book *book);

#endif
