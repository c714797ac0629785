/* Elastic trainings: steps that survive the loss of ranks.
 *
 *     a step fails: a peer is lost, or silent
 *       devices drop the rest of the step, and their failure is forgotten
 *       the group is aborted, so that no peer waits in it; then: which ranks are next?  (crew)
 *       those ranks meet                                                     a new group
 *       strategies distribute the micro-batches over it, and undo the step   (ranks_changed)
 *       the furthest rank sends its state to those behind, if there are any  (exchange)
 *       strategies move what all ranks share to the new group          (ranks_settled)
 *       the loader goes to the step, which runs again, if it is not done
 *
 * If another rank is lost on the way, all of this begins again: the state of a rank never lies
 * between two steps. A step is done on a rank if its update has run, which waits for all of the
 * step's collectives; so ranks differ by at most one step. Hogwild's steps have no collectives,
 * and its ranks may differ by any number.
 *
 * Strategies other than DDP and Hogwild have state that no other rank has, and groups of their
 * own. There the ranks are made `rebuild`: before each step every rank copies its state to
 * memory that outlives it (copies.h), and after a loss the program makes its objects again, as
 * at its start, for the next group; choir_elastic_open then brings the state back.
 *
 * Under `choir run`, whose agents start all ranks of all machines again when one is lost, ranks
 * copy their state in the same way, to memory of the agents (`kept`). */
#include "parallel/elastic/copies.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/board/board.h"
#include "comm/group.h"
#include "data/dataset.h"
#include "launch/keeper.h"
#include "optim/optim.h"
#include "tensor/handle.h"
#include "tensor/strategy.h"

choir_elastic_opts choir_elastic_defaults(void)
{
    return (choir_elastic_opts){0};
}

/* --- to the next group --- */

choir_status choir__elastic_meet(choir_group_opts opts, choir_group **group)
{
    const choir_membership *m = choir__crew_membership();
    char name[CHOIR__GENERATION_TEXT];
    choir__crew_name(m->generation, name);
    opts.rank = choir__crew_rank();
    opts.world = m->world;
    opts.job = name;
    choir__set_rank_label(opts.rank);
    return choir__group_open(NULL, opts, choir__crew_stale, group);
}

/* Returns whether `why` says that a rank is lost, so that a new group can continue. Another
 * group of the ranks, such as a checkpoint's, may find it a moment before the supervisor does.
 */
static bool lost_a_rank(const choir_elastic *e, choir_status why)
{
    static const double moment_s = 1;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    double until = choir__now() + moment_s;
    if (why == CHOIR_ERR_TIMEOUT || (why != CHOIR_OK && choir__crew_void()))
        return true;
    if (why != CHOIR_ERR_PEER_LOST)
        return false;
    while (e->env->group->engine->failed == CHOIR_OK && !choir__crew_stale()) {
        if (choir__now() > until)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Gives up what the devices and the group still have to do. */
static void quiet(const choir_elastic *e)
{
    choir__group_abort(e->env->group, CHOIR_ERR_PEER_LOST, "the ranks form a new group");
    choir__queue_wait(choir__group_queue(e->env->group));
    choir__run_clear(e->run);
    choir_scope_clear(e->run);
}

/* Moves the strategies to the new group, and frees the old one. */
static choir_status move_to(choir_elastic *e, choir_group *group)
{
    group->algorithm = e->env->group->algorithm;
    choir_status status = choir__strategies_ranks_changed(e->run, group, e->running);
    if (status != CHOIR_OK) {
        choir_group_free(group);
        return status;
    }
    choir_group_free(e->env->group);
    e->env->group = group;
    e->env->rank = choir_group_rank(group);
    e->env->world = choir_group_world(group);
    e->env->generation = choir__crew_membership()->generation;
    e->running = CHOIR__NO_STEP;
    return CHOIR_OK;
}

/* Goes to the step that is next, with this rank's micro-batches. The optimizer's tables may
 * have been among what the devices have dropped. */
static choir_status deal(choir_elastic *e)
{
    int64_t first, count;
    choir_env_micro(e->env, &first, &count);
    choir__run_of(e->run)->micro_first = first;
    choir_run_seek(e->run, (uint64_t)e->steps);
    if (e->t.optim) {
        choir_optim_restore(e->t.optim, e->optim_steps);
        choir__optim_forget(e->t.optim);
    }
    if (e->t.scaler)
        choir__scaler_undo(e->t.scaler);
    return e->t.loader ? choir__loader_deal(e->t.loader, first, count, e->steps) : CHOIR_OK;
}

static choir_status meet_and_move(choir_elastic *e)
{
    choir_group_opts opts = choir_group_defaults();
    choir_group *group;
    opts.timeout_s = e->env->group->engine->timeout_s;
    opts.backend = "shm";
    choir_status status = choir__elastic_meet(opts, &group);
    return status == CHOIR_OK ? move_to(e, group) : status;
}

/* Leaves the group and works in the next one that meets. */
static choir_status regroup(choir_elastic *e, choir_status why)
{
    choir_status status = why;
    bool again;
    do {
        quiet(e);
        choir__crew_next(status);
        status = meet_and_move(e);
        again = choir__is_loss(status);
        if (status == CHOIR_OK) {
            int source;
            status = choir__elastic_exchange(e, &source);
            if (status == CHOIR_OK)
                status = choir__strategies_ranks_settled(e->run, source);
            again = lost_a_rank(e, status);
        }
    } while (again);
    if (status == CHOIR_OK)
        status = deal(e);
    e->changed_at = e->steps;
    e->untold = true;
    e->resumed = false;
    return status;
}

/* --- ranks that are rebuilt --- */

/* Ends the work in this generation. The program's objects are closed next, by the program. */
static choir_status begin_again(choir_elastic *e, choir_status why)
{
    if (e->over)
        return choir__error(CHOIR_ERR_PEER_LOST, "the ranks have changed and begin again");
    if (!lost_a_rank(e, why)) {
        char *message = choir__format("%s", choir__message());
        choir_status status = why == CHOIR_ERR_PEER_LOST ? CHOIR_ERR_STATE : why;
        choir__set_message(message); /* no other generation would go better */
        free(message);
        return status;
    }
    (void)choir_error_message(); /* marks the error as read */
    e->over = true;
    choir__crew_fail(why);
    quiet(e);
    return choir__error(CHOIR_ERR_PEER_LOST, "a rank is lost: the ranks begin again");
}

/* Goes to where the copies are, if there are any. */
static choir_status go_back(choir_elastic *e)
{
    choir__copied n;
    choir_status status = choir__copies_restore(e->copies, &n);
    if (status == CHOIR_OK && e->t.scaler)
        status = choir_scaler_set(e->t.scaler, e->t.optim, n.scale);
    if (status != CHOIR_OK)
        return status;
    e->steps = n.steps;
    e->optim_steps = n.optim_steps;
    choir_run_seek(e->run, (uint64_t)n.steps);
    if (e->t.optim)
        choir_optim_restore(e->t.optim, n.optim_steps);
    if (e->t.loader)
        choir_loader_seek_step(e->t.loader, n.steps);
    choir__strategies_went_to(e->run, n.steps);
    return choir__run_sync(e->run);
}

/* Goes to where the copies are, if that is not before the program's own checkpoint, and begins
 * to keep new ones if all ranks can. Ranks that step by themselves have more of a state than a
 * checkpoint, which may be newer than their copies: it is saved where they have met, a moment
 * before they copy. */
static choir_status open_copies(choir_elastic *e)
{
    int64_t steps;
    bool ready = false;
    choir_status status = choir__copies_open(e, &e->copies);
    if (status == CHOIR_OK && choir__copies_found(e->copies, &steps) &&
        (steps >= e->steps || choir__strategies_may_part(e->run)))
        status = go_back(e);
    if (status == CHOIR_OK)
        status = choir__copies_prepare(e->copies, &ready);
    if (status != CHOIR_OK || ready)
        return status;
    choir__copies_drop(e->copies);
    choir__copies_close(e->copies);
    e->copies = NULL;
    e->kept = false;
    return CHOIR_OK;
}

static choir_status open_rebuilt(choir_elastic *e)
{
    choir_status status = e->opts.no_copy ? CHOIR_OK : open_copies(e);
    if (status != CHOIR_OK)
        return status;
    e->changed_at = e->steps;
    e->untold = choir__crew_membership()->generation > 1;
    choir__crew_settled();
    return CHOIR_OK;
}

bool choir_elastic_kept(void)
{
    return choir__copies_kept_step() >= 0;
}

int64_t choir_elastic_kept_step(void)
{
    return choir__copies_kept_step();
}

bool choir_elastic_keeps(const choir_elastic *e)
{
    return !choir__lacks(e, __func__, "elastic") && e->copies;
}

/* --- the training --- */

static choir_status check(const choir_env *env, const choir_training *t)
{
    choir_status status = CHOIR_OK;
    if (!t->module)
        return choir__missing("choir_elastic_open", "module");
    status = choir__use_part(t->module->run, "choir_elastic_open", "module");
    if (status != CHOIR_OK)
        return status;
    if (!env->group)
        return choir__missing("choir_elastic_open", "env's group");
    if (choir__crew_mine() && strcmp(choir_group_backend(env->group), "shm") != 0)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "ranks that can be lost: expected the backend shm, got %s",
            choir_group_backend(env->group));
    return choir__scope_status(t->module->run);
}

static void see(const char *name, choir_tensor *t, void *arg)
{
    (void)name, (void)t, (void)arg;
}

/* Makes what the first step would make, as devices drop a step that fails. */
static choir_status make_state(const choir_elastic *e)
{
    choir_scaler_state scale;
    choir_status status = CHOIR_OK;
    if (e->t.optim)
        choir_optim_visit(e->t.optim, see, NULL);
    if (e->t.optim && e->t.scaler) {
        status = choir_scaler_get(e->t.scaler, &scale);
        if (status == CHOIR_OK)
            status = choir_scaler_set(e->t.scaler, e->t.optim, scale);
    }
    return status == CHOIR_OK ? choir__run_sync(e->run) : status;
}

choir_status choir_elastic_open(choir_env *env, const choir_training *training,
    choir_elastic_opts opts, choir_elastic **elastic)
{
    if (!env)
        return choir__missing(__func__, "env");
    if (!training)
        return choir__missing(__func__, "training");
    if (!elastic)
        return choir__missing(__func__, "elastic");
    choir_status status = check(env, training);
    if (status != CHOIR_OK)
        return status;
    choir_elastic *e = choir__calloc(1, sizeof *e);
    e->env = env;
    e->t = *training;
    e->opts = opts;
    e->run = &training->module->run->run->base;
    e->running = CHOIR__NO_STEP;
    e->crewed = choir__crew_mine();
    e->rebuild = e->crewed && choir__crew_mine()->rebuild;
    e->whole = !choir__crew_is_new();
    e->steps = (int64_t)choir_run_next(e->run);
    e->optim_steps = training->optim ? choir_optim_steps(training->optim) : 0;
    /* ranks that never meet have no state in common that could be copied */
    if (!e->crewed && !opts.no_copy && !choir__strategies_never_meet(e->run))
        status = choir__copies_agents(e, &e->kept);
    if (status == CHOIR_OK && (e->crewed || e->kept))
        status = make_state(e);
    if (status == CHOIR_OK && e->kept)
        status = open_copies(e);
    else if (status == CHOIR_OK && e->rebuild)
        status = open_rebuilt(e);
    else if (status == CHOIR_OK && e->crewed)
        status = choir__strategies_ranks_changed(e->run, env->group, CHOIR__NO_STEP);
    if (status == CHOIR_OK && e->crewed && !env->generation)
        status = regroup(e, CHOIR_OK);
    if (status != CHOIR_OK) {
        if (e->rebuild)
            status = begin_again(e, status);
        choir_elastic_free(e);
        return status;
    }
    *elastic = e;
    return CHOIR_OK;
}

void choir_elastic_free(choir_elastic *e)
{
    if (!e)
        return;
    choir__copies_close(e->copies);
    free(e);
}

void choir_elastic_beat(void)
{
    choir__board_beat();
}

/* --- steps --- */

static void note_done(choir_elastic *e)
{
    e->running = CHOIR__NO_STEP;
    e->steps = (int64_t)choir_run_next(e->run);
    e->optim_steps = e->t.optim ? choir_optim_steps(e->t.optim) : 0;
}

static void note_resumed(choir_elastic *e)
{
    if (!e->resumed)
        e->resumed_at = choir__now();
    e->resumed = true;
}

static choir_status try_step(choir_elastic *e, choir_step_fn *fn, void *arg)
{
    double began = choir__now();
    e->running = choir_run_next(e->run);
    choir_status status = choir_step(e->run, fn, arg);
    if (status == CHOIR_OK)
        status = choir__run_sync(e->run);
    if (status == CHOIR_OK)
        note_done(e);
    if (status == CHOIR_OK && e->crewed && e->env->rank == 0)
        choir__crew_took(choir__now() - began);
    return status;
}

/* Between the points where a strategy brings ranks together, each rank has gone its own way by
 * another number of steps: there is nothing to copy. Where it has brought them together, no
 * rank continues until all have their copies: otherwise a rank that is lost before it has one
 * would cost the others both the steps before this point and those after it. */
static choir_status take_copies(choir_elastic *e)
{
    if (!e->copies || choir__strategies_apart(e->run))
        return CHOIR_OK;
    choir_status status = choir__copies_take(e->copies);
    if (status == CHOIR_OK && choir__strategies_may_part(e->run))
        status = choir_group_barrier(e->env->group, NULL);
    return status;
}

/* Returns whether the ranks can leave in order after the next step: it is copied, or the
 * program saves a checkpoint then. */
static bool loses_nothing(const choir_elastic *e)
{
    int64_t every = e->opts.save_every;
    return e->copies || (every > 0 && (e->steps + 1) % every == 0);
}

static choir_status step_rebuilt(choir_elastic *e, choir_step_fn *fn, void *arg)
{
    choir_status status;
    if (choir__crew_stale())
        return begin_again(e, CHOIR_ERR_PEER_LOST);
    if (choir__crew_parts(e->env->rank, e->steps, loses_nothing(e))) {
        choir__crew_leave(CHOIR_OK);
        e->over = true;
        return begin_again(e, CHOIR_ERR_PEER_LOST);
    }
    status = take_copies(e);
    if (status == CHOIR_OK)
        status = try_step(e, fn, arg);
    return status == CHOIR_OK ? CHOIR_OK : begin_again(e, status);
}

/* A failure ends this process, and the agents start all again. A step is done when all machines
 * have the copies of the state before it, so that after a loss no step but one runs again. */
static choir_status step_kept(choir_elastic *e, choir_step_fn *fn, void *arg)
{
    choir_status status = take_copies(e);
    if (status == CHOIR_OK)
        status = try_step(e, fn, arg);
    return status == CHOIR_OK && e->copies ? choir__copies_settle(e->copies) : status;
}

/* Returns whether this rank leaves the group before step `next`. Ranks that step by themselves
 * find no loss by a collective, and leave as soon as they are asked to. */
static bool leaves(const choir_elastic *e, int64_t next)
{
    bool apart = choir__strategies_apart(e->run);
    return e->crewed && ((apart && choir__crew_stale()) ||
                            choir__crew_parts(e->env->rank, apart ? -1 : next, true));
}

static choir_status step_in_place(choir_elastic *e, choir_step_fn *fn, void *arg)
{
    int64_t before = (int64_t)choir_run_next(e->run);
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && e->steps == before) {
        if (leaves(e, before)) {
            status = regroup(e, CHOIR_OK);
            continue;
        }
        status = try_step(e, fn, arg);
        if (status != CHOIR_OK)
            status = choir_elastic_recover(e, status);
    }
    return status;
}

choir_status choir_elastic_step(choir_elastic *e, choir_step_fn *fn, void *arg)
{
    if (!e)
        return choir__missing(__func__, "elastic");
    if (!fn)
        return choir__missing(__func__, "function");
    e->in_step = true;
    choir_status status = e->rebuild ? step_rebuilt(e, fn, arg)
                          : e->kept  ? step_kept(e, fn, arg)
                                     : step_in_place(e, fn, arg);
    e->in_step = false;
    if (status == CHOIR_OK)
        note_resumed(e);
    return status;
}

void choir_elastic_moved(choir_elastic *e)
{
    if (!choir__lacks(e, __func__, "elastic"))
        note_done(e);
}

choir_status choir_elastic_recover(choir_elastic *e, choir_status why)
{
    if (!e)
        return choir__missing(__func__, "elastic");
    if (e->rebuild)
        return begin_again(e, why);
    if (!e->crewed || !lost_a_rank(e, why))
        return why;
    (void)choir_error_message(); /* marks the error as read */
    return regroup(e, why);
}

choir_status choir_elastic_end(choir_elastic *e, bool *again)
{
    if (!e)
        return choir__missing(__func__, "elastic");
    if (!again)
        return choir__missing(__func__, "again");
    *again = false;
    if (e->kept)
        return choir__copies_settle(e->copies);
    if (!e->crewed)
        return CHOIR_OK;
    if (!e->rebuild && choir__strategies_apart(e->run)) { /* others may have steps to do */
        choir_status status = choir_group_barrier(e->env->group, NULL);
        *again = status != CHOIR_OK;
        if (*again)
            return choir_elastic_recover(e, status);
    }
    if (e->env->rank == 0) {
        choir__crew_finish();
        return CHOIR_OK;
    }
    if (choir__crew_wait_over())
        return CHOIR_OK;
    if (e->rebuild)
        return begin_again(e, CHOIR_ERR_PEER_LOST);
    *again = true;
    return regroup(e, CHOIR_ERR_PEER_LOST);
}

/* --- what people see --- */

bool choir_elastic_change(choir_elastic *e, choir_membership *m)
{
    if (choir__lacks(e, __func__, "elastic"))
        return false;
    if (choir__lacks(m, __func__, "membership"))
        return false;
    if (!e->untold || e->over)
        return false;
    note_resumed(e);
    e->untold = false;
    *m = choir__crew_report(e->changed_at, e->resumed_at);
    return true;
}

void choir__elastic_withdraw(choir_elastic *e)
{
    if (e && e->copies)
        choir__copies_withdraw(e->copies);
}

void choir__elastic_end_all(choir__ending how)
{
    if (how == CHOIR__END_AGAIN)
        choir__crew_begin_anew();
    else
        choir__crew_give_up();
    if (how == CHOIR__END_FOR_GOOD)
        choir__keeper_give_up();
}
