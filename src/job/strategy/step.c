/* Code shared by the strategies: the number of parts of a job's work, and the step of
 * strategies that run each micro-batch as plain code. It knows no strategy by name. */
#include <stdlib.h>

#include <choir/autograd.h>
#include <choir/sync_batch_norm.h>

#include "job/job.h"
#include "base/base.h"

bool choir__job_strategy_has_ranks(const choir__job_strategy *s)
{
    return s->spread != CHOIR__ONE_DEVICE && s->spread != CHOIR__ALL_DEVICES;
}

int choir__job_strategy_workers(const choir__job_placement *p)
{
    int product = 1;
    switch (p->strategy->spread) {
    case CHOIR__ALL_DEVICES: return p->device_count;
    case CHOIR__DEVICE_A_RANK:
    case CHOIR__RANKS_TOGETHER: return p->nproc;
    case CHOIR__ON_A_MESH:
        for (int d = 0; d < p->composition.count; d++)
            product *= p->composition.dims[d].size;
        return product;
    default: return 1;
    }
}

int choir__job_strategy_devices(const choir__job_placement *p)
{
    const choir__composition *c = &p->composition;
    return p->strategy->spread == CHOIR__ALL_DEVICES ? p->device_count
           : choir__composition_inside(c)            ? c->dims[c->count - 1].size
                                                     : 1;
}

int choir__job_strategy_dealt(const choir__job_placement *p)
{
    int product = 1;
    for (int d = 0; d < p->composition.count; d++)
        if (p->composition.dims[d].strategy->spread == CHOIR__DEVICE_A_RANK)
            product *= choir__composition_ranks(&p->composition, d, p->nproc);
    return product;
}

int64_t choir__job_strategy_microbatches(const choir__job_placement *p)
{
    const choir__composition *c = &p->composition;
    int64_t product = 1;
    for (int d = 0; d < c->count; d++) {
        int64_t each = c->dims[d].strategy->micro_each;
        int64_t workers = choir__composition_workers(c);
        int64_t size = c->count > 1 ? c->dims[d].size
                       : workers    ? workers
                                    : choir__job_strategy_workers(p);
        product *= each ? each * size : 1;
    }
    return product;
}

choir__recovery choir__job_strategy_recovery(const choir__job *job)
{
    const choir__dimension *only = &job->placement.composition.dims[0];
    int64_t workers = choir__composition_workers(&job->placement.composition);
    if (workers && job->training.microbatches % workers)
        return CHOIR__REBUILT_AS_MANY; /* each rank has a worker's micro-batches of its own */
    bool asks = job->placement.composition.count == 1 && job->placement.strategy->recovers;
    return asks ? job->placement.strategy->recovers(only->keys)
                : job->placement.strategy->recovery;
}

bool choir__job_strategy_alone(const choir__job_placement *p)
{
    const choir__job_strategy *s = p->strategy;
    return s->meet && !s->together;
}

const char *choir__job_strategy_forgets(const choir__job_placement *p)
{
    const char *forgotten = NULL;
    for (int d = 0; d < p->composition.count && !forgotten; d++) {
        const choir__dimension *dim = &p->composition.dims[d];
        int ranks = choir__composition_ranks(&p->composition, d, p->nproc);
        if (dim->strategy->forgets)
            forgotten = dim->strategy->forgets(dim->keys, ranks);
    }
    return forgotten;
}

bool choir__job_strategy_is_whole(const choir__job_placement *p)
{
    for (int d = 0; d < p->composition.count; d++) {
        const choir__job_strategy *s = p->composition.dims[d].strategy;
        if (s->spread != CHOIR__ONE_DEVICE && s->spread != CHOIR__DEVICE_A_RANK &&
            s->chunks != CHOIR__CHUNKS_OF_RANKS)
            return false;
    }
    return true;
}

int64_t choir__job_rank_turns(const choir__job_rank *p)
{
    const choir__job_strategy *s = p->job->placement.strategy;
    return s->turns ? s->turns(p) : 1;
}

choir_status choir__job_rank_turn(choir__job_rank *p, int64_t turn)
{
    const choir__job_strategy *s = p->job->placement.strategy;
    p->turn = turn;
    p->turns = choir__job_rank_turns(p);
    p->turn_from = p->micro_count * turn / p->turns;
    p->turn_until = p->micro_count * (turn + 1) / p->turns;
    return s->turn ? s->turn(p, turn) : CHOIR_OK;
}

static choir_status read_batches(choir__job_rank *p, choir_scope *step)
{
    size_t n = (size_t)(p->turn_until - p->turn_from);
    choir_batch *batches = p->batches + p->turn_from;
    choir_status status = CHOIR_OK;
    choir_tensor **y = choir__calloc(n + 1, sizeof(choir_tensor *));
    for (size_t m = 0; m < n && status == CHOIR_OK; m++) {
        status = choir_loader_next(p->loader, step, &batches[m]);
        y[m] = batches[m].y;
    }
    if (status == CHOIR_OK && choir_model_ignores(&p->job->model.info)) {
        choir_tensor **counted = &p->counted[p->turn];
        p->divisor = choir_model_divisor_counted(&p->job->model.info, y, (int)n, counted);
        *counted = choir_keep(p->run, *counted);
    }
    free(y);
    return status;
}

choir_status choir__job_rank_begin(choir__job_rank *p, choir_scope *step)
{
    p->taken = p->turn_from;
    return p->batches ? read_batches(p, step) : CHOIR_OK;
}

choir_status choir__job_rank_next(choir__job_rank *p, choir_scope *micro, choir_batch *b)
{
    if (!p->batches)
        return choir_loader_next(p->loader, micro, b);
    const choir_batch *read = &p->batches[p->taken++];
    *b = (choir_batch){choir_in(micro, read->x), choir_in(micro, read->y)};
    return choir_scope_status(micro);
}

/* The loss of a micro-batch that runs together with others: the batches have been read. */
static choir_tensor *loss_of(choir_scope *micro, int64_t index, choir_module *model, void *part)
{
    const choir__job_rank *p = part;
    const choir_model_info *info = &p->job->model.info;
    choir_tensor *x = choir_in(micro, p->batches[index].x),
                 *y = choir_in(micro, p->batches[index].y);
    choir_tensor *out = choir_model_forward(info, model, x, y);
    return choir__job_rank_scaled(p, choir_model_loss_over(info, out, y, p->divisor));
}

choir_status choir__job_strategy_plain_step(choir_scope *step, choir__job_rank *p)
{
    const choir_model_info *info = &p->job->model.info;
    choir_status status = choir__job_rank_begin(p, step);
    if (status == CHOIR_OK && choir_sync_batch_norm_together(p->run) > 1) {
        p->loss_count = p->micro_count;
        return choir_sync_batch_norm_step(
            step, p->model, p->micro_count, loss_of, p, p->losses);
    }
    for (int64_t m = p->turn_from; m < p->turn_until && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, p->micro_first + m);
        choir_batch b;
        status = choir__job_rank_next(p, micro, &b);
        if (status == CHOIR_OK) {
            choir_tensor *out = choir_model_forward(info, p->model, b.x, b.y);
            choir_tensor *loss =
                choir__job_rank_scaled(p, choir_model_loss_over(info, out, b.y, p->divisor));
            status = choir_backward(loss);
            p->losses[m] = choir_keep(p->run, loss);
        }
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    p->loss_count = p->turn_until;
    return status;
}
