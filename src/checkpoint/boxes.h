/* Boxes: parts of a tensor, and moving numbers between them.
 *
 * What a rank has of a sharded tensor, what a file has and what another rank wants are boxes
 * of the same whole; where two meet, numbers go over in runs that are contiguous in both. */
#ifndef CHOIR_BOXES_H
#define CHOIR_BOXES_H

#include "autograd/book.h"

/* A region of a whole tensor. */
typedef struct choir__box_region {
    int64_t from[CHOIR_MAX_DIMS], size[CHOIR_MAX_DIMS];
} choir__box_region;

choir__box_region choir__box_region_of(const choir__box *box);
choir__box_region choir__box_region_whole(choir_shape whole);
bool choir__box_region_is_whole(const choir__box_region *r, choir_shape whole);
bool choir__box_region_same(const choir__box_region *a, const choir__box_region *b, int ndim);
int64_t choir__box_region_count(const choir__box_region *r, int ndim);
/* Whether it lies within the whole and no size is negative. */
bool choir__box_region_fits(const choir__box_region *r, choir_shape whole);
/* Where a and b meet; false: nowhere, or in nothing. */
bool choir__box_region_meet(
    const choir__box_region *a, const choir__box_region *b, int ndim, choir__box_region *both);

/* Whether regions (count) cover the whole, each entry once; ones without entries are fine.
 * *covered: the entries of all of them together. */
bool choir__box_regions_cover(
    const choir__box_region *regions, int count, choir_shape whole, int64_t *covered);

/* Calls each(arg, to, from, n) for every run of entries of `what`, a region of both: entries
 * [to, to + n) of one row-major block, [from, from + n) of another. A block is of a shape and
 * has its first entry at `origin` of the whole. */
typedef struct choir__block_of {
    int64_t origin[CHOIR_MAX_DIMS], shape[CHOIR_MAX_DIMS];
} choir__block_of;
typedef void choir__run_fn(void *arg, int64_t to, int64_t from, int64_t n);
void choir__box_region_runs(const choir__box_region *what, int ndim, const choir__block_of *to,
    const choir__block_of *from, choir__run_fn *each, void *arg);

/* A region as a block of its own. */
choir__block_of choir__block_of_region(const choir__box_region *r);
/* What a rank has of a tensor, of shape `local`, as far as this box goes. */
choir__block_of choir__block_of_local(const choir__box *box, choir_shape local);

#endif
