/* Boxes and their regions: intersections, whether some regions cover a tensor without overlap,
 * and the longest runs of entries that are contiguous in two blocks. All counts are in entries,
 * not bytes. */
#include "checkpoint/items.h"

#include <string.h>

#include "tensor/tensor.h"

choir__box_region choir__box_region_of(const choir__box *box)
{
    choir__box_region r;
    memcpy(r.from, box->from, sizeof r.from);
    memcpy(r.size, box->size, sizeof r.size);
    return r;
}

choir__box_region choir__box_region_whole(choir_shape whole)
{
    choir__box_region r = {{0}, {0}};
    for (int d = 0; d < whole.ndim; d++)
        r.size[d] = whole.dim[d];
    return r;
}

bool choir__box_region_is_whole(const choir__box_region *r, choir_shape whole)
{
    choir__box_region all = choir__box_region_whole(whole);
    return choir__box_region_same(r, &all, whole.ndim);
}

bool choir__box_region_same(const choir__box_region *a, const choir__box_region *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->from[d] != b->from[d] || a->size[d] != b->size[d])
            return false;
    return true;
}

int64_t choir__box_region_count(const choir__box_region *r, int ndim)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= r->size[d];
    return count;
}

bool choir__box_region_fits(const choir__box_region *r, choir_shape whole)
{
    for (int d = 0; d < whole.ndim; d++)
        if (r->from[d] < 0 || r->size[d] < 0 || r->from[d] > whole.dim[d] ||
            r->size[d] > whole.dim[d] - r->from[d])
            return false;
    return true;
}

bool choir__box_region_meet(
    const choir__box_region *a, const choir__box_region *b, int ndim, choir__box_region *both)
{
    for (int d = 0; d < ndim; d++) {
        int64_t begin = choir__max(a->from[d], b->from[d]);
        int64_t end = choir__min(a->from[d] + a->size[d], b->from[d] + b->size[d]);
        if (end <= begin)
            return false;
        both->from[d] = begin;
        both->size[d] = end - begin;
    }
    return true;
}

bool choir__box_regions_cover(
    const choir__box_region *regions, int count, choir_shape whole, int64_t *covered)
{
    choir__box_region both;
    bool apart = true;
    *covered = 0;
    for (int i = 0; i < count; i++) {
        *covered += choir__box_region_count(&regions[i], whole.ndim);
        for (int k = 0; k < i && apart; k++)
            apart = !choir__box_region_meet(&regions[i], &regions[k], whole.ndim, &both);
    }
    return apart && *covered == choir__shape_count(whole);
}

/* --- runs --- */

void choir__box_region_runs(const choir__box_region *what, int ndim, const choir__block_of *to,
    const choir__block_of *from, choir__run_fn *each, void *arg)
{
    int64_t at[CHOIR_MAX_DIMS] = {0}, run = 1;
    int inner = ndim;
    if (!choir__box_region_count(what, ndim))
        return;
    /* A dimension joins the run if all dimensions inside it are whole in both blocks. */
    while (inner > 0) {
        run *= what->size[--inner];
        if (what->size[inner] != to->shape[inner] || what->size[inner] != from->shape[inner])
            break;
    }
    for (;;) {
        int64_t i = 0, k = 0;
        for (int d = 0; d < ndim; d++) {
            i = i * to->shape[d] + what->from[d] + at[d] - to->origin[d];
            k = k * from->shape[d] + what->from[d] + at[d] - from->origin[d];
        }
        each(arg, i, k, run);
        int d = inner - 1;
        while (d >= 0 && ++at[d] == what->size[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

typedef struct copying {
    char *to;
    const char *from;
    size_t each;
} copying;

static void copy_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    const copying *c = arg;
    memcpy(c->to + (size_t)to * c->each, c->from + (size_t)from * c->each, (size_t)n * c->each);
}

void choir__box_region_copy(const choir__box_region *what, int ndim, const choir__block_of *to,
    void *to_data, const choir__block_of *from, const void *from_data, size_t each)
{
    copying c = {to_data, from_data, each};
    choir__box_region_runs(what, ndim, to, from, copy_run, &c);
}

choir__block_of choir__block_of_region(const choir__box_region *r)
{
    choir__block_of b;
    memcpy(b.origin, r->from, sizeof b.origin);
    memcpy(b.shape, r->size, sizeof b.shape);
    return b;
}

choir__block_of choir__block_of_local(const choir__box *box, choir_shape local)
{
    choir__block_of b = {{0}, {0}};
    for (int d = 0; d < local.ndim; d++) {
        b.origin[d] = box->from[d] - box->at[d];
        b.shape[d] = local.dim[d];
    }
    return b;
}
