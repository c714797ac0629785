/* Checks before workers train: the options, the number of workers, and the ranks.
 * All checks give the same result on all ranks, so the ranks fail together or not at all. */
#include "parallel/diloco/diloco.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/tree.h"

/* --- options --- */

static choir_status check_steps(const choir__diloco *w)
{
    if (w->every < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected every of 1 step or more, got %lld; begin with choir_%s_defaults()",
            w->name, (long long)w->every, w->diloco ? "diloco" : "local_sgd");
    if (w->warmup < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a warm-up of 0 steps or more, got %lld", w->name,
            (long long)w->warmup);
    if (w->near_every >= w->every)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: near_every = %lld; ranks near each other meet more often than all do, every "
            "%lld steps",
            w->name, (long long)w->near_every, (long long)w->every);
    if (!w->near == !w->near_every && w->near_every >= 0)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected both near_every and near, or neither, got near_every = %lld with%s "
        "ranks near",
        w->name, (long long)w->near_every, w->near ? "" : "out");
}

choir_status choir__diloco_check_outer(const choir__diloco *w, choir_dtype wire)
{
    float lr = w->hyper.lr, momentum = w->hyper.momentum;
    if (!(lr > 0 && isfinite(lr)))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "diloco: expected an outer_lr above 0, got %g", (double)lr);
    if (!(momentum >= 0 && momentum < 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "diloco: expected a momentum from 0 to below 1, got %g", (double)momentum);
    if (wire != CHOIR_F32 && wire != CHOIR_BF16)
        return choir__error(CHOIR_ERR_ARGUMENT, "diloco: expected wire f32 or bf16, got %s",
            choir_dtype_name(wire));
    return CHOIR_OK;
}

/* --- the number of workers --- */

static choir_status check_count(const choir__diloco *w, int world)
{
    int64_t total = choir__run_of(w->base.run)->micro_total;
    if (w->count < world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: workers = %lld on %d ranks; expected a worker or more for each rank", w->name,
            (long long)w->count, world);
    if (total % w->count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: workers = %lld do not divide %lld micro-batches; each worker needs as many as the "
            "others",
            w->name, (long long)w->count, (long long)total);
    return CHOIR_OK;
}

/* Several workers per rank exclude what belongs to ranks. */
static choir_status check_ranks(const choir__diloco *w, int world)
{
    if (w->count == world)
        return CHOIR_OK;
    if (w->near)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: workers = %lld on %d ranks; ranks near each other meet where each rank is one "
            "worker",
            w->name, (long long)w->count, world);
    if (w->module->inside->strategy)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: workers = %lld on %d ranks, and the module is in a strategy of its own; expected "
            "one worker per rank",
            w->name, (long long)w->count, world);
    if (w->warmup && w->count % world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: workers = %lld on %d ranks; with a warm-up, the ranks divide the workers",
            w->name, (long long)w->count, world);
    return CHOIR_OK;
}

choir_status choir__diloco_check(const choir__diloco *w)
{
    int world = choir_group_world(w->group);
    choir_status status = check_steps(w);
    if (status == CHOIR_OK && w->given)
        status = check_count(w, world);
    if (status == CHOIR_OK)
        status = check_ranks(w, world);
    if (status == CHOIR_OK && w->warmup && w->module->inside->strategy)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: a warm-up is choir_ddp's, and the module is in a strategy of its own",
            w->name);
    return status;
}

/* --- the ranks --- */

struct survey {
    const choir__diloco *workers;
    uint64_t model; /* hash of names and shapes */
    choir_status status;
};

static void survey_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct survey *s = arg;
    const choir__diloco *w = s->workers;
    const choir_device *home = w->base.run->device;
    char *text = choir__format("%s %s", name, choir__shape_text(t->shape));
    s->model = choir__hash_text(s->model, text);
    free(text);
    if (s->status != CHOIR_OK || t->poisoned)
        return;
    if (choir__device_of(t) != home)
        s->status = choir__error(CHOIR_ERR_DEVICE,
            "%s: '%s' is on %s, its run on %s; a worker has one device", w->name, name,
            choir_device_name(choir__device_of(t)), choir_device_name(home));
    else if (t->param && !t->held && (t->dtype != CHOIR_F32 || t->param->local != t))
        s->status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: parameter '%s' is %s; expected unsharded f32 parameters", w->name, name,
            t->dtype == CHOIR_F32 ? "sharded" : choir_dtype_name(t->dtype));
}

/* The data that ranks compare. */
typedef struct report {
    uint64_t model;
    int64_t every, near_every, warmup, count;
    float lr, momentum;
    int32_t nesterov, bf16;
    int64_t off; /* distance of its first micro-batch from the expected one */
} report;

static choir_status compare_options(
    const choir__diloco *w, int rank, const report *theirs, const report *mine)
{
    if (theirs->every != mine->every)
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d is to meet every %lld steps, this one every %lld", w->name, rank,
            (long long)theirs->every, (long long)mine->every);
    if (theirs->warmup != mine->warmup || theirs->near_every != mine->near_every)
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d has a warm-up of %lld steps and meets near ones every %lld, this one "
            "%lld and %lld",
            w->name, rank, (long long)theirs->warmup, (long long)theirs->near_every,
            (long long)mine->warmup, (long long)mine->near_every);
    if (theirs->count != mine->count)
        return choir__error(CHOIR_ERR_MISMATCH, "%s: rank %d has %lld workers, this one %lld",
            w->name, rank, (long long)theirs->count, (long long)mine->count);
    if (memcmp(theirs, mine, sizeof *mine))
        return choir__error(CHOIR_ERR_MISMATCH,
            "%s: rank %d has outer_lr %g, momentum %g%s and sends %s, this one %g, %g%s and %s",
            w->name, rank, (double)theirs->lr, (double)theirs->momentum,
            theirs->nesterov ? " (Nesterov's)" : "", theirs->bf16 ? "bf16" : "f32",
            (double)mine->lr, (double)mine->momentum, mine->nesterov ? " (Nesterov's)" : "",
            mine->bf16 ? "bf16" : "f32");
    return CHOIR_OK;
}

/* Returns the first micro-batch of a rank's workers. */
static int64_t first_of(const choir__diloco *w, int rank)
{
    int64_t first, end;
    choir__tree_run(w->count, rank, choir_group_world(w->group), &first, &end);
    return first * (choir__run_of(w->base.run)->micro_total / w->count);
}

/* Each rank has the micro-batches of its workers. */
static choir_status check_share(const choir__diloco *w, int rank, int64_t off)
{
    const int64_t total = choir__run_of(w->base.run)->micro_total, first = first_of(w, rank);
    if (total % w->count || !off || !w->given)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: %lld workers of %lld micro-batches each: set choir_env.unit to that number before "
        "choir_run_open; the first micro-batch of rank %d is %lld, not %lld",
        w->name, (long long)w->count, (long long)(total / w->count), rank,
        (long long)(first + off), (long long)first);
}

static choir_status compare_ranks(const choir__diloco *w, uint64_t model)
{
    int world = choir_group_world(w->group);
    report *all = choir__calloc((size_t)world, sizeof *all), mine;
    memset(&mine, 0, sizeof mine);
    mine.model = model;
    mine.every = w->every;
    mine.near_every = w->near_every;
    mine.warmup = w->warmup;
    mine.count = w->count;
    mine.lr = w->hyper.lr;
    mine.momentum = w->hyper.momentum;
    mine.nesterov = w->hyper.nesterov;
    mine.bf16 = w->bf16;
    mine.off =
        choir__run_of(w->base.run)->micro_first - first_of(w, choir_group_rank(w->group));
    choir_status status =
        choir_group_all_gather(w->group, &mine, all, sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        status = check_share(w, r, all[r].off);
    for (int r = 0; r < world && status == CHOIR_OK; r++) {
        all[r].off = mine.off;
        status = all[r].model == model
                     ? compare_options(w, r, &all[r], &mine)
                     : choir__error(CHOIR_ERR_MISMATCH,
                           "%s: the model of rank %d has other parameters than this one",
                           w->name, r);
    }
    free(all);
    return status;
}

choir_status choir__diloco_compare(choir__diloco *w)
{
    struct survey s = {w, CHOIR__HASH_SEED, CHOIR_OK};
    choir_module_visit(w->module, true, survey_tensor, &s);
    return s.status == CHOIR_OK ? compare_ranks(w, s.model) : s.status;
}
