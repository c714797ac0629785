/* Items: the tensors that make up a job's state. Every rank has the same list in the same
 * order, with names, types and whole shapes. Each item lists the boxes of the tensor that this
 * process holds; there may be none (another rank holds it). */
#ifndef CHOIR_ITEMS_H
#define CHOIR_ITEMS_H

#include <choir/group.h>
#include <choir/optim.h>

#include "autograd/book.h"

/* Boxes: parts of a tensor, and copying numbers between them.
 *
 * The parts of a sharded tensor that a rank holds, that a file holds and that another rank
 * needs are boxes of one whole tensor. Where two boxes intersect, numbers are copied in runs
 * that are contiguous in both. */

/* A region of a whole tensor. */
typedef struct choir__box_region {
    int64_t from[CHOIR_MAX_DIMS], size[CHOIR_MAX_DIMS];
} choir__box_region;

choir__box_region choir__box_region_of(const choir__box *box);
choir__box_region choir__box_region_whole(choir_shape whole);
bool choir__box_region_is_whole(const choir__box_region *r, choir_shape whole);
bool choir__box_region_same(const choir__box_region *a, const choir__box_region *b, int ndim);
int64_t choir__box_region_count(const choir__box_region *r, int ndim);
/* Returns whether the region is within the whole and no size is negative. */
bool choir__box_region_fits(const choir__box_region *r, choir_shape whole);
/* Sets *both to the intersection of a and b. Returns false if it is empty. */
bool choir__box_region_meet(
    const choir__box_region *a, const choir__box_region *b, int ndim, choir__box_region *both);

/* Returns whether the regions (count) cover the whole tensor, each entry exactly once. Empty
 * regions are allowed. *covered receives the number of entries in all regions together. */
bool choir__box_regions_cover(
    const choir__box_region *regions, int count, choir_shape whole, int64_t *covered);

/* Calls each(arg, to, from, n) for every contiguous run of entries of `what`, a region that
 * both blocks contain. Entries [from, from + n) of one row-major block correspond to [to, to +
 * n) of the other. The first entry of a block is entry `origin` of the whole tensor. */
typedef struct choir__block_of {
    int64_t origin[CHOIR_MAX_DIMS], shape[CHOIR_MAX_DIMS];
} choir__block_of;
typedef void choir__run_fn(void *arg, int64_t to, int64_t from, int64_t n);
void choir__box_region_runs(const choir__box_region *what, int ndim, const choir__block_of *to,
    const choir__block_of *from, choir__run_fn *each, void *arg);

/* Copies such runs of numbers of `each` bytes. */
void choir__box_region_copy(const choir__box_region *what, int ndim, const choir__block_of *to,
    void *to_data, const choir__block_of *from, const void *from_data, size_t each);

/* Returns the block that holds exactly this region. */
choir__block_of choir__block_of_region(const choir__box_region *r);
/* Returns the part of a rank's tensor, of shape `local`, that this box describes. */
choir__block_of choir__block_of_local(const choir__box *box, choir_shape local);

typedef struct choir__item {
    char *name;           /* "fc1.weight", "exp_avg.fc1.weight" */
    choir_tensor *tensor; /* holds the boxes */
    choir_tensor *seen;   /* the tensor, if it was made for this list alone; else NULL */
    choir__param *param;  /* the parameter whose weights these are; NULL: others */
    choir_dtype dtype;
    choir_shape whole;
    choir__box *boxes; /* (box_count) that this process can read */
    int box_count;
    bool moment; /* the optimizer's state, not the model's */
    bool buffer; /* may differ between ranks: the first rank that has it counts */
} choir__item;

typedef struct choir__items {
    choir__item *list; /* the model's by name, then the optimizer's by name */
    int count;
    bool parted; /* the module's parameters are distributed over ranks */
} choir__items;

/* optim may be NULL. Collective where choir_optim_visit is. Errors: the run's. */
choir_status choir__items_collect(
    choir__items *items, choir_module *module, choir_optim *optim);
void choir__items_free(choir__items *items);
/* Drops the items that keep does not return true for. */
void choir__items_keep(choir__items *items, bool (*keep)(const choir__item *item));

/* Call after the model's items have received new values: ranks that keep copies of other ranks'
 * parts receive them. Collective if parted. Errors: the run's. */
choir_status choir__items_restored(const choir__items *items, choir_module *module);

/* Reads boxes[box] of an item into data, row-major; each NaN is the one of base/nan.h. Errors:
 * memory, and as choir_read. */
choir_status choir__item_read(const choir__item *item, int box, void *data);

/* Writes the whole tensors of the items to a safetensors file on rank 0, whatever their values,
 * and frees the items: gather_whole.c. Collective. Errors: as choir_save_whole. */
choir_status choir__items_save(choir__items *items, choir_group *group, const char *path);

#endif
