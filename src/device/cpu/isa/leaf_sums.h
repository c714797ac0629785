/* Losses of rows that are cut into leaves: a leaf is added in f64 and rounded, and the leaves
 * are added in the fixed tree. */
#ifndef CHOIR_ISA_LEAF_SUMS_H
#define CHOIR_ISA_LEAF_SUMS_H

#include "base/tree.h"
#include "device/cpu/context.h"
#include "device/kernels.h"

/* The sums of the leaves of a cut, (leaves), and room for them in f32. */
typedef struct leaf_sums {
    double *sum;
    float *rounded;
} leaf_sums;

static inline leaf_sums new_sums(int64_t leaves)
{
    const size_t n = (size_t)leaves;
    leaf_sums s;
    s.sum = choir__cpu_scratch(
        choir__cpu_context_current(), n * (sizeof *s.sum + sizeof *s.rounded));
    s.rounded = (float *)(void *)(s.sum + n);
    for (int64_t l = 0; l < leaves; l++)
        s.sum[l] = 0;
    return s;
}

static inline float in_the_tree(leaf_sums s, int64_t leaves)
{
    for (int64_t l = 0; l < leaves; l++)
        s.rounded[l] = (float)s.sum[l];
    return choir__tree_sum(s.rounded, leaves, 1);
}

#endif
