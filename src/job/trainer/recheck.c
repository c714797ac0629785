/* --audit=recheck=N: in every N-th step, each micro-batch is computed again on another rank,
 * before the update.
 *
 *     ranks turned by one or two:  forward, backward, reduction
 *     ranks as they are:           forward, backward, reduction
 *     hashes are equal:            the update
 *     else:                        both once more, and a vote
 *
 * A rank that is *turned* has the place of another one in a group of the same ranks, and so its
 * micro-batches, and its part of the reduction. Bits depend on neither. Strategies move between
 * groups as they do when ranks are lost, undoing the step's changes so far, so nothing of an
 * earlier computation is in a later one.
 *
 * On a mesh, ranks that share micro-batches are turned together: each takes the place of the
 * rank that has the same part of the model, or the same chunks. Each part has a gradient and a
 * question of its own, and what one rank computes wrong may be in all parts of its micro-batch.
 *
 * Ranks of FSDP have weights, state and sums of their own, which stay where they are. So each
 * is asked about its own weights alone, and sums count together: a wrong micro-batch makes the
 * sums of all ranks wrong, and says nothing against the rank that adds them.
 *
 * What becomes of a wrong rank is in blame.c. */
#include "job/trainer/inside.h"

#include <stdlib.h>

#include "audit/audit.h"
#include "base/rng.h"
#include "checkpoint/agree.h"
#include "comm/group.h"
#include "data/dataset.h"
#include "optim/optim.h"
#include "parallel/elastic/elastic.h"
#include "tensor/strategy.h"

enum { PASSES = 4 };

/* --- groups whose ranks are turned --- */

void choir__trainer_recheck_close(choir__trainer *t)
{
    for (size_t i = 0; i < CHOIR_COUNT(t->turned); i++) {
        choir_group_free(t->turned[i]);
        t->turned[i] = NULL;
    }
}

/* No rank waits in a turned group for one that has left the job's. */
static void abort_turned(choir__trainer *t)
{
    for (size_t i = 0; i < CHOIR_COUNT(t->turned); i++)
        if (t->turned[i])
            choir__group_abort(t->turned[i], CHOIR_ERR_PEER_LOST, "the ranks form a new group");
}

/* Makes the groups of these ranks, once. Collective. */
static choir_status make_turned(choir__trainer *t)
{
    choir_env *env = &t->part.env;
    choir_group *dealers = choir__job_rank_dealers(&t->part);
    int rank = choir__rank_of(dealers), world = choir__world_of(dealers);
    choir_status status = CHOIR_OK;
    if (t->turned_of != env->group || t->turned_at != env->generation)
        choir__trainer_recheck_close(t);
    t->turned_of = env->group;
    t->turned_at = env->generation;
    for (int by = 1; by <= (int)CHOIR_COUNT(t->turned) && by < world; by++) {
        if (t->turned[by - 1] || status != CHOIR_OK)
            continue;
        status = choir_group_split(dealers, 0, (rank + by) % world, &t->turned[by - 1]);
        if (status == CHOIR_OK)
            t->turned[by - 1]->algorithm = dealers->algorithm;
    }
    return status;
}

/* --- one computation --- */

/* Gives this rank the place of another one. undone: the step, if it has begun. */
static choir_status move(choir__trainer *t, choir_group *group, uint64_t step, bool begun)
{
    choir__job_rank *p = &t->part;
    choir_group *dealers = choir__job_rank_dealers(p);
    int world = choir__world_of(dealers), rank = choir__rank_of(group),
        by = (rank - choir__rank_of(dealers) + world) % world;
    choir_status status =
        choir__strategies_ranks_turned(p->run, group, by, begun ? step : CHOIR__NO_STEP);
    if (status != CHOIR_OK)
        return status;
    p->dealt = p->env;
    p->dealt.group = p->along = group;
    p->dealt.rank = rank;
    p->dealt.world = world;
    choir_env_micro(&p->dealt, &p->micro_first, &p->micro_count);
    choir__run_of(p->run)->micro_first = p->micro_first;
    choir__optim_forget(p->optim);
    if (p->scaler && begun)
        choir__scaler_undo(p->scaler);
    status = choir__loader_deal(p->loader, p->micro_first, p->micro_count, (int64_t)step);
    return status == CHOIR_OK ? choir__job_rank_turn(p, 0) : status;
}

static choir_status read_losses(const choir__job_rank *p, float *to)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < p->loss_count && status == CHOIR_OK; i++) {
        int64_t count = choir_tensor_count(p->losses[i]);
        status = choir_read(p->losses[i], to, (size_t)count * sizeof *to);
        to += count;
    }
    return status;
}

static choir_status compute(choir__trainer *t, choir_scope *step, choir_group *group,
    bool begun, choir__testimony *told)
{
    choir__job_rank *p = &t->part;
    float *losses = choir__calloc((size_t)t->job->training.microbatches, sizeof *losses);
    choir_status status = move(t, group, step->step, begun);
    if (status == CHOIR_OK)
        status = choir__audit_leaves_begin(t->audit, p->micro_count);
    if (status == CHOIR_OK)
        status = t->job->placement.strategy->step(step, p);
    if (status == CHOIR_OK)
        status = read_losses(p, losses);
    if (status == CHOIR_OK)
        status = choir__audit_leaves_end(t->audit, p->micro_first, losses, told);
    choir__audit_leaves_drop(t->audit);
    for (int64_t m = 0; m < p->micro_count && status == CHOIR_OK; m++)
        told[CHOIR__AUDIT_TOLD + m].question |= (uint64_t)choir__job_rank_share(p);
    free(losses);
    return status;
}

/* --- the step --- */

/* The testimonies of all ranks in the step's computations. */
typedef struct stated {
    int64_t each, per_rank;       /* testimonies of one computation; places of a rank */
    choir__testimony *mine, *all; /* (per_rank), (per_rank * world) */
    choir__judgement verdict;
} stated;

static void open_stated(stated *s, const choir__trainer *t)
{
    int64_t world = t->part.env.world;
    s->each = CHOIR__AUDIT_TOLD + t->job->training.microbatches;
    s->per_rank = 2 + PASSES * s->each; /* the first two: what the step has read */
    s->mine = choir__calloc((size_t)(s->per_rank * (world + 1)), sizeof *s->mine);
    s->all = s->mine + s->per_rank;
    for (int64_t i = 0; i < s->per_rank; i++)
        s->mine[i].nothing = 1;
    (void)choir__audit_read_told(t->audit, s->mine);
}

/* Returns whether a rank has sums of boxes that no other one has. */
static bool has_own_sums(const stated *s, int world)
{
    const choir__testimony *first = s->all + 2 + CHOIR__AUDIT_TOLD_SUMS;
    bool own = false;
    for (int r = 0; r < world && world > 1; r++) {
        int same = 0;
        for (int other = 0; other < world; other++)
            same += first[other * s->per_rank].question == first[r * s->per_rank].question;
        own |= same == 1;
    }
    return own;
}

/* Where ranks have sums of their own, all of a computation become one answer. */
static void join_sums(const stated *s, int world)
{
    choir__testimony *first = s->all + 2 + CHOIR__AUDIT_TOLD_SUMS;
    bool own = has_own_sums(s, world);
    for (int pass = 0; pass < PASSES && own; pass++) {
        uint64_t all = 0;
        for (int r = 0; r < world; r++)
            all = choir__mix(all, first[r * s->per_rank + pass * s->each].value);
        for (int r = 0; r < world; r++) {
            first[r * s->per_rank + pass * s->each].value = all;
            first[r * s->per_rank + pass * s->each].question =
                choir__audit_asked(CHOIR__AUDIT_TOLD_SUMS, 0);
        }
    }
}

/* Brings all testimonies together. Collective. */
static choir_status vote(stated *s, const choir__trainer *t)
{
    for (int64_t i = 0; i < s->per_rank; i++)
        s->mine[i].rank = (int32_t)t->part.env.rank;
    choir_status status = choir_group_all_gather(t->part.env.group, s->mine, s->all,
        s->per_rank * (int64_t)sizeof *s->mine, CHOIR_U8, NULL);
    if (status == CHOIR_OK)
        join_sums(s, t->part.env.world);
    if (status == CHOIR_OK)
        choir__vote(s->all, s->per_rank * t->part.env.world, &s->verdict);
    return status;
}

/* Computes the gradients twice, from pass number `pass` on, the second time by the ranks as
 * they are. */
static choir_status compute_twice(choir__trainer *t, choir_scope *step, stated *s, int pass)
{
    choir_group *dealers = choir__job_rank_dealers(&t->part);
    int by = (int)((step->step + (uint64_t)pass / 2) % 2);
    choir_group *turned = t->turned[by] ? t->turned[by] : t->turned[0] ? t->turned[0] : dealers;
    choir__testimony *told = s->mine + 2 + pass * s->each;
    choir_status status = compute(t, step, turned, pass > 0, told);
    if (status == CHOIR_OK)
        status = compute(t, step, dealers, true, told + s->each);
    if (status == CHOIR_OK)
        status = vote(s, t);
    return status;
}

/* Returns whether the last sums of all ranks equal two earlier ones: only one computation has
 * gone wrong, and not on a rank. */
static bool is_settled(const stated *s, int world)
{
    bool settled = s->verdict.how == CHOIR__VOTE_SHARED &&
                   choir__audit_asked_about(s->verdict.question) == CHOIR__AUDIT_TOLD_SUMS;
    for (int r = 0; r < world; r++) {
        const choir__testimony *sums = s->all + r * s->per_rank + 2 + CHOIR__AUDIT_TOLD_SUMS;
        int same = 0;
        for (int pass = 0; pass < PASSES; pass++)
            same += sums[pass * s->each].value == sums[(PASSES - 1) * s->each].value;
        settled &= same == PASSES - 1;
    }
    return settled;
}

static choir_status conclude(choir__trainer *t, choir_scope *step, const stated *s)
{
    const choir__judgement *v = &s->verdict;
    int64_t number = (int64_t)step->step + 1, about = choir__audit_asked_about(v->question);
    if (is_settled(s, t->part.env.world)) {
        if (t->part.env.rank == 0)
            choir__job_tell(t->job,
                "warning: a sum of gradients was damaged on its way between ranks in step %lld, "
                "and is computed again",
                (long long)number);
        return CHOIR_OK;
    }
    bool share = t->part.mesh && v->count > 1;
    char *what =
        about >= CHOIR__AUDIT_TOLD
            ? choir__format("the gradient of micro-batch %lld%s",
                  (long long)(about - CHOIR__AUDIT_TOLD), share ? ", which ranks share," : "")
        : about == CHOIR__AUDIT_TOLD_SUMS
            ? choir__strdup("the sum of gradients")
            : choir__strdup("what memory holds of weights and the optimizer's state");
    /* Other ranks have used the gradients of one whose weights were wrong, unless these were
     * compared after the step before. */
    bool state = about == CHOIR__AUDIT_TOLD_STATE,
         good = !state || t->now.compared == t->now.step;
    if (state && choir__judgement_names(v, t->part.env.rank))
        choir__elastic_withdraw(t->elastic);
    choir_status status = choir__trainer_blame(t, number, v, what, good);
    free(what);
    return status;
}

bool choir__trainer_rechecks(const choir__trainer *t)
{
    return t->audit && t->recheck && (t->now.step + 1) % t->recheck == 0;
}

choir_status choir__trainer_recheck(choir__trainer *t, choir_scope *step)
{
    stated s = {0};
    open_stated(&s, t);
    choir_status status = make_turned(t);
    if (status == CHOIR_OK)
        status = compute_twice(t, step, &s, 0);
    bool known = s.verdict.how == CHOIR__VOTE_DECIDED &&
                 choir__audit_asked_about(s.verdict.question) == CHOIR__AUDIT_TOLD_STATE;
    if (status == CHOIR_OK && s.verdict.how != CHOIR__VOTE_AGREED && !known)
        status = compute_twice(t, step, &s, 2);
    if (status == CHOIR_OK && s.verdict.how != CHOIR__VOTE_AGREED)
        status = conclude(t, step, &s);
    if (status != CHOIR_OK)
        abort_turned(t);
    free(s.mine);
    return status;
}
