/* Cuts a batch: as torch.chunk does, into pieces of equal size but the last, which devices get
 * in runs; or one piece per device by weights. Shares are rounded by the largest remainder. */
#include "parallel/shards.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/floats.h"

void choir__split_shares(int64_t total, const double *weights, int n, int64_t *counts)
{
    CHOIR__DEFAULT_FLOATS;
    double sum = 0, *lost = choir__calloc((size_t)n + 1, sizeof *lost);
    int64_t left = total;
    for (int i = 0; i < n; i++)
        sum += weights ? weights[i] : 1;
    for (int i = 0; i < n; i++) {
        double share = (double)total * ((weights ? weights[i] : 1) / sum);
        counts[i] = choir__min((int64_t)floor(share + 1e-9), left); /* 3 * (1/3) is 1 */
        lost[i] = share - (double)counts[i];
        left -= counts[i];
    }
    for (; left > 0; left--) {
        int most = 0;
        for (int i = 1; i < n; i++)
            if (lost[i] > lost[most] + 1e-9)
                most = i;
        counts[most]++;
        lost[most] -= 1;
    }
    free(lost);
}

int64_t choir__split_most(int64_t batch, int64_t pieces, int devices)
{
    return choir__min(batch, pieces ? pieces : devices);
}

static int64_t one_a_device(
    int64_t batch, int devices, const double *weights, choir__batch_share *part)
{
    int64_t count = 0, start = 0, *length = choir__calloc((size_t)devices, sizeof *length);
    choir__split_shares(batch, weights, devices, length);
    for (int d = 0; d < devices; d++)
        if (length[d]) {
            part[count++] = (choir__batch_share){start, length[d], d};
            start += length[d];
        }
    free(length);
    return count;
}

int64_t choir__split(
    int64_t batch, int64_t pieces, int devices, const double *weights, choir__batch_share *part)
{
    if (!pieces && weights)
        return one_a_device(batch, devices, weights, part);
    int64_t asked = pieces ? pieces : devices, each = (batch + asked - 1) / asked;
    int64_t count = (batch + each - 1) / each, i = 0;
    int64_t *runs = choir__calloc((size_t)devices, sizeof *runs);
    if (weights)
        choir__split_shares(count, weights, devices, runs);
    for (int d = 0; d < devices; d++) {
        int64_t run = weights ? runs[d] : count / devices + (d < count % devices);
        for (; run > 0; run--, i++)
            part[i] = (choir__batch_share){i * each, choir__min(each, batch - i * each), d};
    }
    free(runs);
    return count;
}
