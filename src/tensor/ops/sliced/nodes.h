/* Sums over tokens where this rank's chunks complete several nodes of the tree
 * (choir__sequence.joins): an op computes its nodes and joins them with the other ranks', so
 * its result is the whole sum. */
#ifndef CHOIR_NODES_H
#define CHOIR_NODES_H

#include "tensor/sequence.h"

/* Writes the nodes that the leaves here complete, numbered from the first of these leaves, and
 * returns their number. */
int choir__sequence_nodes(const choir__sequence *s, choir__node nodes[CHOIR__MAX_NODES]);
/* Adds up the ranks' nodes, arrays of the slab; the sum replaces array 0. Returns false if the
 * scope has an error. Collective. */
bool choir__sequence_join(const choir__sequence *s, choir_tensor *slab);
/* Adds up the leaves, an array of the slab each, here or on all ranks; the sum replaces array
 * 0. */
void choir__fold_leaves(const choir__sequence *s, choir_tensor *slab);

/* Writes the sum that `product`, whose K is cut into the leaves here, is a part of to the
 * memory of its c; g: a tensor of c's dtype and scope. Collective. */
void choir__joined_product(
    const choir__sequence *s, choir__k_matmul product, const choir_tensor *g);
/* Writes the sum that `sum`, over gy's rows, which are cut, is a part of to g. Collective. */
void choir__joined_columns(
    const choir__sequence *s, choir__k_sum sum, choir_tensor *gy, choir_tensor *g);
/* Returns the sum of the losses (B, own tokens) of all ranks, with the bits of a loss that adds
 * rows in leaves: an op. Collective. */
choir_tensor *choir__sum_of_tokens(choir_tensor *losses);

/* Rows [from, end) of each block of `each` rows. */
typedef struct choir__block {
    int64_t each, from, end;
} choir__block;

/* Returns the block's share of t's `rows` rows: a view of t if they are side by side, else a
 * copy. Returns NULL if t is NULL. */
choir_tensor *choir__rows_of_block(
    choir_scope *scope, choir_tensor *t, int64_t rows, choir__block block);

#endif
