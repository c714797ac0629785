/* The workers' state in checkpoints and in copies of ranks.
 *
 * Where workers have met, their weights and buffers are the module's, so a checkpoint has these
 * once. It also has the outer momentum, and each worker's own state of the optimizer:
 *
 *     exp_avg.fc.weight                    worker 0, as every other job names it
 *     outer_worker.3.exp_avg.fc.weight     worker 3
 *     outer_scale.3                        the numbers of its gradient scaler
 *     outer_workers                        their number; 0: the checkpoint has none
 *
 * In a warm-up all workers are one, and each is saved with the state of that one.
 *
 * All ranks list all tensors, and a rank holds its own workers'. So any number of ranks can
 * read the files of any other number. Another number of workers is another job: its workers
 * take the states of the old ones in turn.
 */
#include "parallel/diloco/diloco.h"

#include <stdlib.h>

#include "base/tree.h"
#include "tensor/launch.h"

#define MOMENTUM CHOIR__KEPT "momentum."

typedef struct naming {
    choir__state_visit_fn *visit;
    void *to;
    int64_t worker;
    bool elsewhere; /* another rank has the worker */
} naming;

static void visit_worker(
    const char *name, choir_tensor *t, const choir__param *param, void *arg)
{
    const naming *n = arg;
    const choir__param none = {
        .local = t, .whole = t->shape, .boxes = &(choir__box){.size = {0}}, .box_count = 0};
    char *own = n->worker
                    ? choir__format(CHOIR__KEPT "worker.%lld.%s", (long long)n->worker, name)
                    : choir__strdup(name);
    n->visit(own, t, n->elsewhere ? &none : param, n->to);
    free(own);
}

/* Calls fn for each worker of the job, with its turn; if it is elsewhere, with the present
 * turn. */
static void each_worker(choir__diloco *w, choir__state_visit_fn *visit, void *to,
    void (*fn)(choir__diloco *w, naming *n, int turn))
{
    for (int64_t v = 0; v < w->count; v++) {
        bool here = v >= w->first && v < w->first + w->here;
        naming n = {visit, to, v, !here};
        fn(w, &n, here ? (int)(v - w->first) : w->shown);
    }
}

static void visit_optim(choir__diloco *w, naming *n, int turn)
{
    choir__optim_set *set = turn == w->shown ? NULL : w->sets[turn].optim;
    if (set)
        choir__optim_exchange(w->optim, set);
    choir__optim_visit_own(w->optim, visit_worker, n);
    if (set)
        choir__optim_exchange(w->optim, set);
}

static void visit_scale(choir__diloco *w, naming *n, int turn)
{
    const choir__param none = {.local = w->sets[turn].scale,
        .whole = w->sets[turn].scale->shape,
        .boxes = &(choir__box){.size = {0}}};
    char *name = choir__format(CHOIR__KEPT "scale.%lld", (long long)n->worker);
    n->visit(name, w->sets[turn].scale, n->elsewhere ? &none : NULL, n->to);
    free(name);
}

/* In the warm-up one worker's state is all workers', and the others' places wait for its end.
 * A checkpoint of a later step has filled them. */
static void spread_in_warm_up(choir__diloco *w)
{
    if (w->warm && (int64_t)choir_run_next(w->base.run) <= w->warmup)
        choir__diloco_spread_state(w);
}

bool choir__diloco_visit_optim(
    choir__strategy *s, choir_optim *optim, choir__state_visit_fn *visit, void *to)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    if (!optim || optim != w->optim)
        return false;
    spread_in_warm_up(w);
    each_worker(w, visit, to, visit_optim);
    return true;
}

void choir__diloco_visit_state(choir__strategy *s, choir__state_visit_fn *visit, void *to)
{
    choir__diloco *w = CHOIR__STRATEGY_OF(s, choir__diloco, strategy);
    for (int i = 0; i < w->piece_count; i++) {
        const choir__worker_piece *p = &w->pieces[i];
        if (!p->momentum)
            continue;
        char *name = choir__format(MOMENTUM "%s", p->param->name);
        visit(name, p->momentum, NULL, to);
        free(name);
    }
    if (!w->optim)
        return;
    visit(CHOIR__KEPT "workers", w->counted, NULL, to);
    if (!w->scaler)
        return;
    spread_in_warm_up(w);
    choir__scaler_keep(w->scaler, w->optim, w->sets[w->shown].scale);
    each_worker(w, visit, to, visit_scale);
}

/* --- another number of workers --- */

/* Lists the tensors in checkpoints that belong to one worker of this rank. */
static choir__visited list_of(choir__diloco *w, int turn)
{
    choir__visited l = {NULL, 0};
    naming n = {choir__visited_add, &l, w->first + turn, false};
    visit_optim(w, &n, turn);
    if (w->scaler)
        visit_scale(w, &n, turn);
    return l;
}

static int rank_of(const choir__diloco *w, int64_t worker)
{
    int world = choir_group_world(w->group), rank = 0;
    int64_t lo, hi;
    for (;; rank++) {
        choir__tree_run(w->count, rank, world, &lo, &hi);
        if (worker < hi)
            return rank;
    }
}

/* Copies a worker's state to another worker. All ranks call it in the same order. */
static choir_status copy_state(choir__diloco *w, int64_t from, int64_t to)
{
    int root = rank_of(w, from), end = rank_of(w, to), me = choir_group_rank(w->group);
    choir__visited out = list_of(w, root == me ? (int)(from - w->first) : w->shown);
    choir__visited in = list_of(w, end == me ? (int)(to - w->first) : w->shown);
    choir_scope *scope = choir_no_grad(w->base.run);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < out.count && status == CHOIR_OK; i++) {
        choir_tensor *t = end == me ? in.tensors[i] : choir__tensor_like(scope, in.tensors[i]);
        if (root == me && !t->poisoned)
            choir__launch_copy(t, out.tensors[i]);
        status = choir_device_sync(w->base.run->device);
        if (status == CHOIR_OK && root != end)
            status = choir_group_broadcast(w->group, choir__data(t),
                t->count * (int64_t)choir_dtype_size(t->dtype), CHOIR_U8, root, NULL);
    }
    free(out.tensors);
    free(in.tensors);
    choir_status closed = choir__scope_end(scope);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__diloco_recut(choir__diloco *w)
{
    int64_t before = 0;
    if (!w->optim)
        return CHOIR_OK;
    choir_status status = choir_read(w->counted, &before, sizeof before);
    if (status != CHOIR_OK)
        return status;
    if (before && before != w->count && !w->recut)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: the checkpoint is of %lld workers, this run has %lld: the numbers would change, "
            "which `recut` allows",
            w->name, (long long)before, (long long)w->count);
    if (w->scaler && !before) /* the scaler has its restored state */
        choir__scaler_keep(w->scaler, w->optim, w->sets[w->shown].scale);
    for (int64_t v = before ? before : 1; v < w->count && status == CHOIR_OK; v++)
        status = copy_state(w, before ? v % before : 0, v);
    if (w->scaler)
        choir__scaler_bring(w->scaler, w->optim, w->sets[w->shown].scale);
    return status == CHOIR_OK ? choir_write(w->counted, &w->count, sizeof w->count) : status;
}
