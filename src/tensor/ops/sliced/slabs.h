/* Slabs: partial sums of slices, one array after another in f32, and the fixed tree over them.
 * For sliced.c and repeated_units.c. */
#ifndef CHOIR_SLABS_H
#define CHOIR_SLABS_H

#include "tensor/ops/sliced/sliced.h"

/* Returns the number of nodes that this rank's slices complete, and writes them; one if they
 * are all slices. */
int choir__slices_nodes(const choir__partition *p, choir__node nodes[CHOIR__MAX_NODES]);

/* Arrays of `each` numbers, one after another, which are added in the tree. */
typedef struct choir__arrays {
    choir_device *device;
    char *data;
    int64_t each;
    choir_dtype dtype;
} choir__arrays;

choir__arrays choir__arrays_of(const choir_tensor *slab);
char *choir__array_of(const choir__arrays *s, int64_t i);
/* Adds arrays [lo, lo + n) in the tree; the sum replaces array lo. */
void choir__arrays_fold(const choir__arrays *s, int64_t lo, int64_t n);
/* Adds the arrays of each node, which begin with leaf `first`; array i becomes node i. */
void choir__arrays_fold_nodes(
    const choir__arrays *s, int64_t first, const choir__node *nodes, int count);

/* Makes a slab of `count` arrays of that shape, in the dtype of sums of `dtype`. */
choir_tensor *choir__new_slab(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t count, choir_shape shape);
/* Returns array i as a tensor of that shape. */
choir_tensor *choir__slab_array(choir_tensor *slab, int64_t i, choir_shape shape);
/* Adds up the ranks' nodes, of all ranks or of the ranks that share a unit. Returns false if
 * the scope has an error. */
bool choir__slices_join(const choir__partition *part, choir_tensor *nodes, bool sharing);

/* Returns the entry of `op` that made input i of r, also if the input is a copy: a cast, or on
 * the device to which a pipeline has moved it. Input *input of entry *of is the tensor on r's
 * device, before the cast: it takes gradients of any dtype. */
choir__tape_entry *choir__made_by(
    const choir__op *op, choir__tape_entry *r, int i, choir__tape_entry **of, int *input);

#endif
