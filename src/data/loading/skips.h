/* Batches that a job leaves out, by their numbers, as in "412:416,500": 412 to 415, and 500.
 *
 * Batches are numbered from 1 in the order of the data: batch n is the one that step n of a job
 * without such a list trains on. A list takes batches out of this order and changes nothing
 * else: step k trains on the k-th batch that is left. */
#ifndef CHOIR_DATA_LOADING_SKIPS_H
#define CHOIR_DATA_LOADING_SKIPS_H

#include "base/base.h"

/* Both ends belong to the range. */
typedef struct choir__skips_range {
    int64_t first, last;
} choir__skips_range;

typedef struct choir__skips {
    choir__skips_range *ranges; /* (count) ascending; between two of them is a batch */
    int count;
} choir__skips;

/* Adds the ranges of text to the list; NULL: none. Error: argument. */
choir_status choir__skips_add(choir__skips *skips, const char *text);
void choir__skips_add_range(choir__skips *skips, int64_t first, int64_t last);
void choir__skips_free(choir__skips *skips);

/* Returns the number of the batch of a step; both count from 1. */
int64_t choir__skips_batch(const choir__skips *skips, int64_t step);

/* Returns the list, as far as it is about batches 1 ... `last`, in the form that
 * choir__skips_add reads, or NULL: no such batch is left out. The caller frees it. */
char *choir__skips_text(const choir__skips *skips, int64_t last);

#endif
