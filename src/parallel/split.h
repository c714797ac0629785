/* How a batch is cut into pieces, and which device gets each: arithmetic only. */
#ifndef CHOIR_SPLIT_H
#define CHOIR_SPLIT_H

#include <stdint.h>

typedef struct choir__part {
    int64_t start, length; /* samples of the batch */
    int device;
} choir__part;

/* Divides total into counts[n] in proportion to weights (NULL: equally), by the largest
 * remainder: each share is rounded down, and the rest is given one by one to the shares that
 * lost the most, the first one if several are equal. Tests call it, too. */
void choir__split_shares(int64_t total, const double *weights, int n, int64_t *counts);

/* Cuts `batch` samples as torch.chunk does, into pieces of ceil(batch / pieces) samples; there
 * may be fewer pieces than requested. Each device takes a contiguous run of pieces in
 * proportion to its weight (NULL: counts differ by at most one). If pieces is 0, each device
 * gets one piece, in proportion to the weights, if given; empty shares are left out. Returns
 * the number of pieces in part, at most choir__split_most(...). */
int64_t choir__split(
    int64_t batch, int64_t pieces, int devices, const double *weights, choir__part *part);
int64_t choir__split_most(int64_t batch, int64_t pieces, int devices);

#endif
