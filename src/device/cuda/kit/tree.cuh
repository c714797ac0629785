/* The fixed tree over rows' sums: a node of n leaves splits at the largest power of two below
 * n. Equivalently: join neighbours, carry an odd one, repeat. So any aligned run of 2^k leaves,
 * and the rest at the end, is a node of its own, and the nodes are joined in the same way.
 * Leaves are sums of squares, so 0 in place of a missing leaf changes no bit. */
#ifndef CHOIR_TREE_CUH
#define CHOIR_TREE_CUH

#include "device/cuda/kit/kernel.cuh"

enum { LEAVES = 8 * BLOCK }; /* leaves that a block joins at a time */

__device__ inline double square(float x)
{
    return (double)x * (double)x; /* exact */
}

/* Returns how many of n leaves a block has from `first` on. */
__device__ inline int64_t leaves_from(int64_t first, int64_t n)
{
    return n - first > LEAVES ? (int64_t)LEAVES : n - first;
}

/* Returns the node over n <= LEAVES leaves, on thread 0. All threads of the block call it. */
__device__ inline double tree_node(const double *leaf, int64_t n)
{
    __shared__ double part[BLOCK / WARP];
    double v[8];
    for (int i = 0; i < 8; i++)
        v[i] = 8 * (int64_t)threadIdx.x + i < n ? leaf[8 * threadIdx.x + i] : 0;
    double sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    for (int step = 1; step < WARP; step *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    __syncthreads(); /* an earlier call's readers are done */
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = threadIdx.x < BLOCK / WARP ? part[threadIdx.x] : 0;
    for (int step = 1; step < BLOCK / WARP; step *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

/* Joins nodes at every LEAVES-th of n places; the result is at the first. */
__device__ inline void join_nodes(double *x, int64_t n)
{
    for (int64_t apart = LEAVES; apart < n; apart *= 2) {
        __syncthreads();
        for (int64_t i = threadIdx.x * 2 * apart; i + apart < n; i += BLOCK * 2 * apart)
            x[i] += x[i + apart];
    }
    __syncthreads();
}

/* Joins the tree over n leaves with one block, in place; the result is at the first. */
__device__ inline void tree_by_block(double *x, int64_t n)
{
    for (int64_t first = 0; first < n; first += LEAVES) {
        double node = tree_node(x + first, leaves_from(first, n));
        if (threadIdx.x == 0) /* all of these leaves have been read */
            x[first] = node;
    }
    join_nodes(x, n);
}

#endif
