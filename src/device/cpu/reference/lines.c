/* Reference kernels along lines: the extreme of a line, running sums, and lookups. */
#include <string.h>

#include "device/cpu/reference/reference.h"
#include "device/queue.h"

void choir__reference_extreme(const choir__k_extreme *k)
{
    for (int64_t l = 0; l < k->outer * k->inner; l++) {
        int64_t first = l / k->inner * k->n * k->inner + l % k->inner, at = 0;
        double best = get(k->x, first, k->dtype);
        for (int64_t i = 1; i < k->n && !isnan(best); i++) {
            double x = get(k->x, first + i * k->inner, k->dtype);
            if (isnan(x) || (k->least ? x < best : x > best))
                best = x, at = i;
        }
        put(k->y, l, k->dtype, best);
        if (k->index)
            k->index[l] = at;
    }
}

void choir__reference_cumsum(const choir__k_cumsum *k)
{
    for (int64_t l = 0; l < k->outer * k->inner; l++) {
        int64_t first = l / k->inner * k->n * k->inner + l % k->inner;
        double sum = 0;
        for (int64_t i = 0; i < k->n; i++) {
            int64_t at = first + (k->back ? k->n - 1 - i : i) * k->inner;
            sum += get(k->x, at, k->dtype);
            put(k->y, at, k->dtype, sum);
        }
    }
}

/* Reads the index at a place; returns false, with the queue failed, if it is out of range. */
static bool look_up(
    const choir__strided *index, int64_t at, int64_t size, choir__lookup lookup, int64_t *found)
{
    *found = ((const int64_t *)index->p)[at];
    if (*found >= 0 && *found < size)
        return true;
    choir__queue_fail(CHOIR_ERR_RANGE, "%s: index %lld at position %lld is outside [0, %lld)",
        choir__lookup_name(lookup), (long long)*found, (long long)at, (long long)size);
    return false;
}

void choir__reference_gather(const choir__k_gather *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0}, found;
    size_t size = choir_dtype_size(k->dtype);
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        if (!look_up(
                &k->index, offset_of(&k->index, index, k->ndim), k->size, k->lookup, &found))
            return;
        int64_t from =
            offset_of(&k->x, index, k->ndim) + (found - index[k->dim]) * k->x.stride[k->dim];
        memcpy((char *)k->y.p + (size_t)offset_of(&k->y, index, k->ndim) * size,
            (const char *)k->x.p + (size_t)from * size, size);
    } while (next_index(index, k->shape, k->ndim));
}

void choir__reference_scatter_add(const choir__k_scatter_add *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0}, found;
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        if (!look_up(
                &k->index, offset_of(&k->index, index, k->ndim), k->size, k->lookup, &found))
            return;
        int64_t to =
            offset_of(&k->y, index, k->ndim) + (found - index[k->dim]) * k->y.stride[k->dim];
        int64_t from = offset_of(&k->x, index, k->ndim);
        if (k->dtype == CHOIR_I64)
            ((int64_t *)k->y.p)[to] += ((const int64_t *)k->x.p)[from];
        else
            put(k->y.p, to, k->dtype, get(k->y.p, to, k->dtype) + get(k->x.p, from, k->dtype));
    } while (next_index(index, k->shape, k->ndim));
}
