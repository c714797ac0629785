/* The audit of a training: when hashes are taken, and the lines of the chain.
 *
 *     step begins    weights, state, which it reads        (a member of the run's strategies)
 *     the step       its batches, as the loader hands them out
 *     step done      gradients, weights, state; the ranks' parts join; rank 0 adds the line
 *
 * Nothing happens in steps that are not due. A recorded step contains no hash, but its update
 * can take some while it reads and writes (ride.c). Where ranks step apart and meet at
 * intervals, the steps at which they meet have lines, without hashes of gradients and of
 * earlier weights, since each worker has its own. */
#include <choir/audit.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/dump.h"
#include "audit/inside.h"
#include "base/base.h"
#include "base/nan.h"
#include "base/rng.h"
#include "checkpoint/agree.h"
#include "comm/engine.h"
#include "data/dataset.h"
#include "launch/crew/crew.h"
#include "launch/keeper.h"
#include "nn/module.h"
#include "optim/optim.h"

static bool has_line(const choir_audit *a, int64_t step)
{
    return step % a->opts.every == 0;
}

/* Returns whether ranks compare what the step reads before they update it. */
static bool is_compared(const choir_audit *a, int64_t step)
{
    return a->recheck && step % a->recheck == 0;
}

/* Returns whether the step's hashes are taken: for its line, or to be compared. */
static bool is_due(const choir_audit *a, int64_t step)
{
    return has_line(a, step) || is_compared(a, step);
}

/* --- the ops of a step, for its dump --- */

/* A recorded step has no ops that could be seen, so the next one is not recorded if it is due.
 */
static void prepare_ops(choir_audit *a)
{
    if (a->opts.dump && has_line(a, a->done + 1) && !choir__strategies_may_part(a->run))
        choir__step_anew(a->run);
}

/* Ends the watch; with `write`, writes its file. */
static choir_status end_ops(choir_audit *a, bool write)
{
    if (!a->ops)
        return CHOIR_OK;
    char *path =
        write ? choir__ops_path(a->folder, a->done, choir__rank_of(a->opts.group)) : NULL;
    choir_status status = choir__ops_end(a->ops, path);
    a->ops = NULL;
    free(path);
    return status;
}

/* --- before a step --- */

/* Takes hashes of the step's inputs, now or by the update; if they are compared, both ways. */
static choir_status take_inputs(choir_audit *a, const choir__items *items, bool compared)
{
    choir__audit_taking now = {CHOIR__AUDIT_READ_WEIGHTS, CHOIR__AUDIT_READ_STATE, false, NULL},
                        later = now;
    later.ride = &a->ride;
    choir_status status = CHOIR_OK;
    if (a->rides)
        status = choir__audit_take(
            compared ? &a->again : &a->parts, &a->names, a->module, items, later);
    if (status == CHOIR_OK && (compared || !a->rides))
        status = choir__audit_take(&a->parts, &a->names, a->module, items, now);
    return status;
}

static void step_begins(choir__strategy *s)
{
    choir_audit *a = CHOIR__STRATEGY_OF(s, choir_audit, strategy);
    choir__items items;
    int64_t step = a->done + 1;
    choir__loader_watch(a->opts.loader, is_due(a, step), a->opts.dump && has_line(a, step));
    bool due = is_due(a, step) && !choir__strategies_may_part(a->run);
    a->parts.count = a->again.count = a->summed.count = a->read_count = a->ride.count = 0;
    a->read = 0;
    (void)!end_ops(a, false); /* The step is made again. */
    a->rides = due && a->may_ride && !choir__strategies_move(a->run);
    if (a->may_ride)
        choir__optim_hashes_begin(a->optim, a->rides);
    if (!due)
        return;
    a->ride.done = false;
    a->ride.fresh = choir_optim_steps(a->optim) == 0;
    a->ride.stained = -1;
    a->status = choir__audit_collect(a, &items);
    if (a->status == CHOIR_OK)
        a->status = take_inputs(a, &items, is_compared(a, step));
    choir__items_free(&items);
    a->read = step;
    a->read_count = a->parts.count;
    if (a->opts.dump && has_line(a, step))
        a->ops = choir__ops_begin(a->run, a->folder);
}

/* The step is made again. */
static void begin_ops_again(choir_audit *a)
{
    if (!a->ops)
        return;
    (void)!end_ops(a, false);
    a->ops = choir__ops_begin(a->run, a->folder);
}

static choir_status ranks_changed(choir__strategy *s, choir_group *group, uint64_t undone)
{
    choir_audit *a = CHOIR__STRATEGY_OF(s, choir_audit, strategy);
    (void)undone;
    a->opts.group = group;
    begin_ops_again(a);
    return CHOIR_OK;
}

/* Makes all ranks meet for a line, also ranks with which no rank changes places. */
static choir_status ranks_turned(
    choir__strategy *s, choir_group *group, int by, uint64_t undone)
{
    (void)group, (void)by, (void)undone;
    begin_ops_again(CHOIR__STRATEGY_OF(s, choir_audit, strategy));
    return CHOIR_OK;
}

static const choir__strategy_ops ops = {.name = "audit",
    .step_begins = step_begins,
    .leaf_done = choir__audit_leaf_done,
    .ranks_changed = ranks_changed,
    .ranks_turned = ranks_turned};

/* --- after it --- */

/* Adds the batches that the loader has handed out. */
static void add_batches(choir_audit *a)
{
    const choir__seen_step *seen = choir__loader_seen(a->opts.loader);
    for (int64_t i = 0; seen && i < 2 * seen->count; i++) {
        const choir__seen_batch *b = &seen->list[i / 2];
        if (!b->count)
            continue;
        CHOIR__GROW(a->parts.list, a->parts.count);
        a->parts.list[a->parts.count++] =
            (choir__audit_part){.kind = i % 2 ? CHOIR__AUDIT_SAMPLES : CHOIR__AUDIT_BATCH,
                .module = (int32_t)(i / 2),
                .count = b->count,
                .whole = b->count,
                .hash = i % 2 ? b->samples : b->bytes};
    }
}

static void join_all(
    const choir_audit *a, const choir__audit_parts *all, choir__chain_line *line)
{
    for (int kind = 0; kind < CHOIR__AUDIT_KINDS; kind++) {
        int count = a->names.count;
        if (kind >= CHOIR__AUDIT_BATCH &&
            kind <= CHOIR__AUDIT_LOSSES) { /* one hash per micro-batch */
            count = 0;
            for (int i = 0; i < all->count; i++)
                if (all->list[i].kind == kind && all->list[i].module >= count)
                    count = all->list[i].module + 1;
        }
        line->count[kind] = count;
        line->hash[kind] = choir__calloc((size_t)count + 1, sizeof *line->hash[kind]);
        choir__audit_join(all, (choir__audit_kind)kind, line->hash[kind], count);
    }
}

static uint32_t bits_of(float loss)
{
    uint32_t bits;
    choir__one_nan(&loss, CHOIR_F32, 1);
    memcpy(&bits, &loss, sizeof bits);
    return bits;
}

static void add_losses(choir_audit *a, const choir__audit_step *s)
{
    for (int64_t i = 0; s->losses && s->has_loss && i < s->count; i++) {
        CHOIR__GROW(a->parts.list, a->parts.count);
        a->parts.list[a->parts.count++] = (choir__audit_part){.kind = CHOIR__AUDIT_LOSSES,
            .module = (int32_t)(s->first + i),
            .count = 1,
            .whole = 1,
            .hash = bits_of(s->losses[i])};
    }
}

/* The update was skipped, and has read nothing. */
static void forget_part(void *arg, const choir__audit_call *call)
{
    choir__audit_parts *again = arg;
    again->list[call->part].buffer = 1;
}

static choir_status hash_after(
    choir_audit *a, const choir__items *items, const choir__audit_step *s)
{
    /* false: each worker has gradients of its own */
    bool together = !choir__strategies_may_part(a->run);
    a->parts.count = a->read_count;       /* after the loss of a rank, the line is made again */
    if (a->read != a->done || !s->made) { /* this process has not made the step */
        a->parts.count = a->again.count = a->summed.count = a->read_count = 0;
        a->status = CHOIR_OK;
        a->rides = false;
    }
    choir_status status = a->status;
    a->ride.done = true;
    if (status == CHOIR_OK && a->again.count) {
        status = choir__run_sync(a->run);
        choir__audit_ride_fetch(&a->ride, &a->again, forget_part, &a->again);
    }
    if (status == CHOIR_OK)
        status = choir__audit_take(&a->parts, &a->names, a->module, items,
            (choir__audit_taking){CHOIR__AUDIT_WEIGHTS, CHOIR__AUDIT_STATE, s->made && together,
                a->rides ? &a->ride : NULL});
    if (status == CHOIR_OK)
        choir__audit_add_left(a);
    if (status == CHOIR_OK && s->made) {
        add_batches(a);
        add_losses(a, s);
    }
    return status;
}

/* --- the line --- */

/* Opens the chain for lines after `done` steps. */
static choir_status open_chain(choir_audit *a, int64_t done)
{
    const choir__chain_begin begin = {.step = done,
        .every = a->opts.every,
        .bits = choir__device_bits(a->run->device),
        .job = a->job,
        .modules = a->names.list,
        .module_count = a->names.count};
    return choir__chain_open(a->folder, &begin, &a->chain);
}

/* Opens the chain where this process has become rank 0, since that was lost. A line that it has
 * left of the present step stays. */
static choir_status take_over(choir_audit *a, int64_t step)
{
    bool takes = !a->chain && !a->broken && choir__rank_of(a->opts.group) == 0;
    choir_status status = takes ? open_chain(a, step) : CHOIR_OK;
    a->broken |= status != CHOIR_OK;
    return status;
}

/* Rank 0: adds the line. After an error no line follows, as the other ranks, which do not know
 * of it, continue. */
static choir_status write_line(
    choir_audit *a, const choir__audit_step *s, const choir__audit_parts *all)
{
    char loss[16];
    choir__chain_line line = {
        .step = s->step, .key = choir__mix(a->run->seed, (uint64_t)s->step)};
    snprintf(loss, sizeof loss, "0x%08x", bits_of(s->loss));
    line.loss = s->has_loss ? loss : NULL;
    join_all(a, all, &line);
    choir_status status = choir__chain_add(a->chain, &line);
    choir__chain_line_free(&line);
    if (status == CHOIR_OK)
        return status;
    (void)!choir__chain_close(a->chain);
    a->chain = NULL;
    a->broken = true;
    return status;
}

static choir_status dump(choir_audit *a, const choir__audit_step *s, choir__items *items)
{
    choir_status ops_kept = end_ops(a, s->made);
    const choir__audit_dumped dumped = {.folder = a->folder,
        .step = s->step,
        .group = a->opts.group,
        .seen = choir__loader_seen(a->opts.loader),
        .gradients = s->made && !choir__strategies_may_part(a->run),
        .status = ops_kept};
    choir_status status = choir__audit_dump(a->run, items, &dumped);
    if (!choir__is_loss(status)) /* after one, the remaining ranks make the dump again */
        a->opts.dump = status == CHOIR_OK;
    return status;
}

choir_status choir__audit_line(choir_audit *a, const choir__audit_step *s)
{
    choir__items items;
    choir__audit_parts all = {0};
    choir_status written = CHOIR_OK;
    a->done = s->step;
    a->verdict = (choir__judgement){.how = CHOIR__VOTE_AGREED};
    if (!is_due(a, s->step) || choir__strategies_apart(a->run)) {
        prepare_ops(a);
        return CHOIR_OK;
    }
    choir_status status = choir__audit_collect(a, &items);
    if (status == CHOIR_OK)
        status = hash_after(a, &items, s);
    status = choir__agree(a->opts.group, status);
    if (status == CHOIR_OK)
        choir__audit_note_own(a);
    if (status == CHOIR_OK)
        status = choir__audit_gather(&a->parts, a->opts.group, &all);
    if (status == CHOIR_OK)
        choir__audit_compare(a, &all);
    if (status == CHOIR_OK && has_line(a, s->step))
        written = take_over(a, s->step);
    if (status == CHOIR_OK && a->chain && has_line(a, s->step))
        written = write_line(a, s, &all);
    if (status == CHOIR_OK && a->opts.dump && has_line(a, s->step))
        status = dump(a, s, &items);
    choir__items_free(&items);
    free(all.list);
    prepare_ops(a);
    return status == CHOIR_OK ? written : status;
}

static choir_status mismatch(const choir_audit *a, int64_t step)
{
    char *ranks = choir__judgement_ranks(&a->verdict, NULL, 0);
    bool tied = a->verdict.how == CHOIR__VOTE_TIED;
    if (tied) { /* no start would tell who is wrong */
        choir__crew_give_up();
        choir__keeper_give_up();
    }
    choir_status status = choir__error(CHOIR_ERR_MISMATCH,
        tied ? "step %lld: %s: %s have different numbers, and no other rank decides which are "
               "wrong"
             : "step %lld: %s: other numbers on %s than on most ranks, or than before",
        (long long)step, choir__audit_accused(a), ranks);
    free(ranks);
    return status;
}

choir_status choir_audit_step(choir_audit *a, int64_t step)
{
    if (!a)
        return choir__missing(__func__, "audit");
    if (step != a->done + 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_audit_step: expected step %lld, as it follows the one before, got %lld",
            (long long)a->done + 1, (long long)step);
    choir_status status =
        choir__audit_line(a, &(choir__audit_step){.step = step, .made = true});
    /* A program may change weights itself, but on all ranks alike. */
    bool differ = a->verdict.how == CHOIR__VOTE_TIED || a->verdict.how == CHOIR__VOTE_DECIDED;
    return status == CHOIR_OK && differ && choir__world_of(a->opts.group) > 1
               ? mismatch(a, step)
               : status;
}

/* --- life --- */

choir_audit_opts choir_audit_defaults(void)
{
    return (choir_audit_opts){.every = 50};
}

static choir_status check(choir_module *module, choir_optim *optim, const char *folder,
    const choir_audit_opts *opts, choir_audit **audit)
{
    choir_status status = choir__use_module(module, "choir_audit_open");
    if (status == CHOIR_OK)
        status = choir__use_optim(optim, "choir_audit_open");
    if (status == CHOIR_OK && (!folder || !audit))
        status = choir__missing("choir_audit_open", folder ? "audit" : "folder");
    if (status == CHOIR_OK && (opts->every < 1 || opts->resumed < 0))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "choir_audit_open: expected an audit every 1 step or more, of a run that has done "
            "0 steps or more, got %lld and %lld; begin with choir_audit_defaults()",
            (long long)opts->every, (long long)opts->resumed);
    if (status == CHOIR_OK && choir__strategies_never_meet(module->run))
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "an audit needs ranks that have a common state: hogwild's step by themselves");
    return status;
}

choir_status choir__audit_open(const char *folder, choir_module *module, choir_optim *optim,
    choir_audit_opts opts, choir_audit **audit)
{
    choir__items items;
    choir_status status = check(module, optim, folder, &opts, audit);
    if (status != CHOIR_OK)
        return status;
    choir_audit *a = *audit = choir__calloc(1, sizeof *a);
    *a = (choir_audit){.strategy.ops = &ops,
        .run = &module->run->run->base,
        .module = module,
        .optim = optim,
        .opts = opts,
        .folder = choir__strdup(folder),
        .job = opts.job ? choir__strdup(opts.job) : NULL,
        .done = opts.resumed};
    choir__strategy_join(&a->strategy, a->run);
    prepare_ops(a);
    status = choir__items_collect(&items, module, NULL);
    if (status == CHOIR_OK)
        choir__audit_names_of(&a->names, &items);
    choir__items_free(&items);
    return status == CHOIR_OK && choir__rank_of(opts.group) == 0 ? open_chain(a, opts.resumed)
                                                                 : status;
}

void choir__audit_let_ride(choir_audit *a)
{
    a->may_ride = true;
    a->ride.optim = a->optim;
    choir__optim_hashes_open(a->optim);
}

choir_status choir_audit_open(const char *folder, choir_module *module, choir_optim *optim,
    choir_audit_opts opts, choir_audit **audit)
{
    choir_audit *made = NULL;
    choir_status status = choir__audit_open(folder, module, optim, opts, audit ? &made : NULL);
    status = choir__agree(opts.group, status);
    if (status != CHOIR_OK) {
        (void)!choir_audit_close(made);
        return status;
    }
    *audit = made;
    return CHOIR_OK;
}

choir_status choir_audit_close(choir_audit *a)
{
    if (!a)
        return CHOIR_OK;
    choir__strategy_leave(&a->strategy, a->run);
    (void)!end_ops(a, false);
    choir_status status = choir__chain_close(a->chain);
    choir__audit_names_free(&a->names);
    free(a->accused);
    free(a->own.list);
    free(a->again.list);
    free(a->summed.list);
    free(a->parts.list);
    free(a->ride.list);
    free(a->folder);
    free(a->job);
    free(a);
    return status;
}
