/* The ranks of a composition: several strategies at once, as "ddp+pipeline" on a mesh of
 * 2x4. composition.c reads them.
 *
 *     --strategy ddp+pipeline --mesh 2x4     data      0: ranks 0 1 2 3
 *                                            (rows)    1: ranks 4 5 6 7
 *                                            pipeline  of a row: its stages
 *
 * Each strategy has one dimension of the mesh and uses only its own group. Strategies that
 * distribute micro-batches (DEVICE_A_RANK) do so together, over the ranks that differ in their
 * dimensions. Along the other dimensions all ranks share in the same micro-batches. */
#include "job/strategy/strategy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "comm/group.h"
#include "job/job.h"

/* --- what all of them do, as one strategy --- */

static const choir__dimension *enter(choir__job_rank *p, int d)
{
    const choir__composition *c = &p->job->placement.composition;
    p->at = &c->dims[d];
    p->along = p->mesh ? choir_mesh_group(p->mesh, p->at->strategy->dimension) : p->env.group;
    return p->at;
}

/* First comes the strategy that changes the model's layers, then the one that cuts their
 * inputs, then the innermost of the others, which wrap the result. */
static int turn_of(const choir__job_strategy *s)
{
    return s->slices ? 0 : s->chunks == CHOIR__CHUNKS_OF_RANKS ? 1 : 2;
}

choir_status choir__composition_build(choir__job_rank *p)
{
    const choir__composition *c = &p->job->placement.composition;
    choir_status status = CHOIR_OK;
    for (int turn = 0; turn < 3; turn++)
        for (int d = c->count - 1; d >= 0 && status == CHOIR_OK; d--)
            if (turn_of(c->dims[d].strategy) == turn)
                status = enter(p, d)->strategy->build(p);
    return status;
}

choir_status choir__composition_resumed(choir__job_rank *p)
{
    choir_status status = CHOIR_OK;
    for (int d = 0; d < p->job->placement.composition.count && status == CHOIR_OK; d++)
        if (enter(p, d)->strategy->resumed)
            status = p->at->strategy->resumed(p);
    return status;
}

bool choir__composition_inside(const choir__composition *c)
{
    return c->count > 1 && c->dims[c->count - 1].strategy->spread == CHOIR__ALL_DEVICES;
}

/* --- meeting --- */

static int place_in_others(int rank, const void *arg)
{
    const choir__composition *c = arg;
    int stride = 1, color = 0;
    for (int d = c->count - 1 - choir__composition_inside(c); d >= 0; d--) {
        int at = rank % c->dims[d].size;
        rank /= c->dims[d].size;
        if (!choir__job_strategy_deals(c->dims[d].strategy))
            color += at * stride;
        stride *= c->dims[d].size;
    }
    return color;
}

/* Makes the group of the ranks that differ only in such dimensions. */
static choir_status find_dealt(choir__job_rank *p)
{
    choir_status status = choir__group_split_by(
        p->env.group, place_in_others, &p->job->placement.composition, NULL, &p->also);
    if (status != CHOIR_OK)
        return status;
    p->dealt.group = p->also;
    p->dealt.rank = choir_group_rank(p->also);
    p->dealt.world = choir_group_world(p->also);
    return CHOIR_OK;
}

choir_group *choir__job_rank_dealers(const choir__job_rank *p)
{
    const choir__composition *c = &p->job->placement.composition;
    for (int d = 0; d < c->count && p->mesh; d++)
        if (choir__job_strategy_deals(c->dims[d].strategy))
            return choir_mesh_group(p->mesh, c->dims[d].strategy->dimension);
    return p->env.group;
}

int choir__job_rank_share(const choir__job_rank *p)
{
    return p->mesh ? place_in_others(p->env.rank, &p->job->placement.composition) : 0;
}

choir_group *choir__job_rank_evaluates(const choir__job_rank *p)
{
    const choir__composition *c = &p->job->placement.composition;
    bool alone = c->count == 1 && choir__job_strategy_deals(c->dims[0].strategy);
    return p->also ? p->also : alone ? p->env.group : p->dealt.group;
}

choir_status choir__job_rank_mesh(choir__job_rank *p)
{
    const choir__composition *c = &p->job->placement.composition;
    const char *names[CHOIR_MESH_MAX_DIMS];
    int sizes[CHOIR_MESH_MAX_DIMS], count = c->count - choir__composition_inside(c);
    p->dealt = p->env;
    if (c->count == 1) {
        enter(p, 0);
        if (p->at->strategy->spread == CHOIR__RANKS_TOGETHER) {
            p->dealt.rank = 0;
            p->dealt.world = 1;
            p->dealt.group = NULL;
        }
        return CHOIR_OK;
    }
    for (int d = 0; d < count; d++) {
        names[d] = c->dims[d].strategy->dimension;
        sizes[d] = c->dims[d].size;
    }
    choir_status status = choir_mesh_new(p->env.group, count, names, sizes, &p->mesh);
    return status == CHOIR_OK ? find_dealt(p) : status;
}
