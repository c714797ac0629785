/* How a batch is cut into pieces, and who gets which: arithmetic alone. */
#ifndef CHOIR_SPLIT_H
#define CHOIR_SPLIT_H

#include <stdint.h>

typedef struct choir__part {
    int64_t start, length; /* of the batch */
    int device;
} choir__part;

/* Divides total into counts[n] in proportion to weights (NULL: equal), by the largest
 * remainder: each its share rounded down, and what is left one by one to those who lost the
 * most, the first of equals first. */
void choir__split_shares(int64_t total, const double *weights, int n, int64_t *counts);

/* Cuts `batch` samples as torch.chunk does, into pieces of ceil(batch / pieces), which may be
 * fewer than asked for. Devices take contiguous runs of them, as many as their weights say
 * (NULL: lengths differing by at most one). With pieces 0 there is one a device, in proportion
 * to the weights, if there are any; shares of nothing are left out. Returns how many there are,
 * at most choir__split_most(...), in part. */
int64_t choir__split(
    int64_t batch, int64_t pieces, int devices, const double *weights, choir__part *part);
int64_t choir__split_most(int64_t batch, int64_t pieces, int devices);

#endif
