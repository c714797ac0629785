/* A training loop with callbacks (choir/loop.h): each step reads all batches first, since
 * ignored targets decide the losses' divisor, then runs the micro-batches and the update; saves
 * and evaluations follow between steps. */
#include <choir/autograd.h>
#include <choir/loop.h>

#include <math.h>
#include <stdlib.h>

#include "comm/engine.h"
#include "nn/module.h"
#include "tensor/strategy.h"

enum { MOST_CALLBACKS = 16 };

struct choir_loop {
    choir_env env;
    choir_scope *run;
    choir_training t;
    choir_loop_opts opts;
    struct {
        choir_callbacks call;
        void *arg;
    } callbacks[MOST_CALLBACKS];
    int callback_count;
    choir_train_state state;
    choir_checkpoint *checkpoint; /* NULL: nothing is saved */
    bool stopping;
    int64_t first, count; /* range of this rank's micro-batches */
    choir_batch *batches; /* (count) */
    choir_tensor **losses, **targets;
    choir_tensor *counted; /* the step's targets that count; NULL: all do */
};

choir_loop_opts choir_loop_defaults(void)
{
    return (choir_loop_opts){.steps = 1000, .keep = 1};
}

static void close_loop(void *arg)
{
    choir_loop *l = arg;
    free(l->batches);
    free(l->losses);
    free(l->targets);
}

choir_loop *choir_loop_new(const choir_env *env, choir_training t, choir_loop_opts opts)
{
    choir_scope *run = choir__open_scope(t.module ? t.module->run : NULL, __func__);
    choir_loop *l = choir__arena_get(&run->arena, sizeof *l);
    *l = (choir_loop){.run = run, .t = t, .opts = opts, .state = choir_train_state_none()};
    if (opts.steps < 1 || opts.eval_every < 0 || opts.save_every < 0)
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "loop: expected 1 step or more and no interval below 0, got %lld, %lld and %lld; "
            "begin with choir_loop_defaults()",
            (long long)opts.steps, (long long)opts.eval_every, (long long)opts.save_every);
    if (!env || !t.module || !t.optim || !t.loader || !t.info) {
        choir__poison(run, CHOIR_ERR_ARGUMENT, "loop: missing %s",
            !env        ? "an env"
            : !t.module ? "a module"
            : !t.optim  ? "an optimizer"
            : !t.loader ? "a loader"
                        : "a model's description (info)");
        return l;
    }
    l->env = *env;
    choir_env_micro(env, &l->first, &l->count);
    l->batches = choir__calloc((size_t)l->count + 1, sizeof *l->batches);
    l->losses = choir__calloc((size_t)l->count + 1, sizeof(choir_tensor *));
    l->targets = choir__calloc((size_t)l->count + 1, sizeof(choir_tensor *));
    choir__on_close(run, close_loop, l);
    return l;
}

void choir_loop_add(choir_loop *l, choir_callbacks callbacks, void *arg)
{
    if (choir__lacks(l, __func__, "loop"))
        return;
    if (l->callback_count == MOST_CALLBACKS) {
        choir__poison(
            l->run, CHOIR_ERR_ARGUMENT, "loop: expected at most %d callbacks", MOST_CALLBACKS);
        return;
    }
    l->callbacks[l->callback_count].call = callbacks;
    l->callbacks[l->callback_count++].arg = arg;
}

void choir_loop_stop(choir_loop *l)
{
    if (!choir__lacks(l, __func__, "loop"))
        l->stopping = true;
}

const choir_train_state *choir_loop_state(const choir_loop *l)
{
    return choir__lacks(l, __func__, "loop") ? NULL : &l->state;
}

const choir_training *choir_loop_training(const choir_loop *l)
{
    return choir__lacks(l, __func__, "loop") ? NULL : &l->t;
}

/* --- a step --- */

static choir_status run_micro(
    choir_loop *l, choir_scope *step, int64_t m, choir_tensor *divisor)
{
    choir_scope *micro = choir_micro_open(step, l->first + m);
    choir_tensor *x = choir_in(micro, l->batches[m].x), *y = choir_in(micro, l->batches[m].y);
    choir_tensor *out = choir_model_forward(l->t.info, l->t.module, x, y);
    choir_tensor *loss = choir_model_loss_over(l->t.info, out, y, divisor);
    choir_status status =
        choir_backward(l->t.scaler ? choir_scaler_scale(l->t.scaler, loss) : loss);
    l->losses[m] = choir_keep(l->run, loss);
    choir_status closed = choir_scope_close(micro);
    return status == CHOIR_OK ? closed : status;
}

static choir_status update(choir_loop *l)
{
    if (!l->t.scaler)
        return choir_optim_step(l->t.optim);
    choir_status status = choir_scaler_step(l->t.scaler, l->t.optim);
    return status == CHOIR_OK ? choir_scaler_update(l->t.scaler) : status;
}

/* All batches are read first, because targets that are ignored decide the losses' divisor. */
static choir_status body(choir_scope *step, void *arg)
{
    choir_loop *l = arg;
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < l->count && status == CHOIR_OK; m++) {
        status = choir_loader_next(l->t.loader, step, &l->batches[m]);
        l->targets[m] = l->batches[m].y;
    }
    if (status != CHOIR_OK)
        return status;
    choir_tensor *divisor =
        choir_model_divisor_counted(l->t.info, l->targets, (int)l->count, &l->counted);
    if (l->counted)
        l->counted = choir_keep(l->run, l->counted);
    for (int64_t m = 0; m < l->count && status == CHOIR_OK; m++)
        status = run_micro(l, step, m, divisor);
    return status == CHOIR_OK ? update(l) : status;
}

/* --- callbacks --- */

/* Calls one kind of callback of all, in order, until one fails. */
#define CALL(l, status, kind, ...)                                                             \
    for (int i_ = 0; i_ < (l)->callback_count && *(status) == CHOIR_OK; i_++)                  \
        if ((l)->callbacks[i_].call.kind)                                                      \
    *(status) = (l)->callbacks[i_].call.kind(__VA_ARGS__, (l)->callbacks[i_].arg)

static choir_status save(choir_loop *l)
{
    choir_status status = choir_training_save(l->checkpoint, &l->t, &l->state, CHOIR_SAVE_NOW);
    CALL(l, &status, saved, l);
    return status;
}

/* Saves the step whose evaluation has failed on all ranks: its data cannot be read, which is to
 * cost no step. Where other ranks wait in forwards, one may have failed on this rank alone. */
static choir_status save_unevaluated(choir_loop *l, choir_status why)
{
    bool waited_for =
        choir_module_collective(l->t.module) || choir__strategies_wait(l->t.module->run);
    if (choir__is_loss(why) || !l->checkpoint || (l->env.world > 1 && waited_for))
        return why;
    char *message = choir__strdup(choir_error_message());
    (void)!save(l);
    choir__set_message(message);
    free(message);
    return why;
}

static choir_status evaluate(choir_loop *l)
{
    choir_score score;
    choir_eval_opts opts = choir_eval_defaults();
    opts.max_batches = l->opts.eval_batches;
    opts.group = l->env.group;
    opts.chunks = true; /* the environment's ranks share micro-batches, not sequences */
    choir_status status = choir_optim_swap(l->t.optim);
    if (status != CHOIR_OK)
        return status;
    status = choir_evaluate(l->run, l->t.module, l->t.info, l->opts.validation, opts, &score);
    choir_status back = choir_optim_swap(l->t.optim);
    if (status != CHOIR_OK || back != CHOIR_OK)
        return status == CHOIR_OK ? back : save_unevaluated(l, status);
    l->state.eval_loss = score.loss;
    CALL(l, &status, evaluated, l, &score);
    return status;
}

/* A rank that stops stops all. */
static choir_status agree_to_stop(choir_loop *l)
{
    int32_t stopping = l->stopping;
    choir_status status = CHOIR_OK;
    if (l->env.world > 1)
        status = choir_group_all_reduce(l->env.group, &stopping, 1, CHOIR_I32, CHOIR_MAX, NULL);
    l->stopping = stopping > 0;
    return status;
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static choir_status one_step(choir_loop *l)
{
    double counted = 1;
    choir_status status = choir_step(l->run, body, l);
    if (status == CHOIR_OK)
        status = choir_env_loss(&l->env, l->losses, &l->state.loss);
    if (status == CHOIR_OK && l->counted)
        status = choir_read(l->counted, &counted, sizeof counted);
    if (status != CHOIR_OK)
        return status;
    const bool none = counted <= 0;
    l->state.loss = none ? (double)NAN : l->state.loss;
    l->state.step++;
    if (!none && !isfinite(l->state.loss) && !l->t.scaler)
        return choir__error(CHOIR_ERR_NONFINITE, "the loss is %g at step %lld", l->state.loss,
            (long long)l->state.step);
    CALL(l, &status, step, l);
    if (status == CHOIR_OK && l->opts.validation && is_due(l->state.step, l->opts.eval_every))
        status = evaluate(l);
    if (status == CHOIR_OK)
        status = agree_to_stop(l);
    bool last = l->stopping || l->state.step >= l->opts.steps;
    if (status == CHOIR_OK && l->checkpoint &&
        (last || is_due(l->state.step, l->opts.save_every)))
        status = save(l);
    return status;
}

/* --- the whole training --- */

static choir_status open_checkpoint(choir_loop *l)
{
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = l->env.group;
    opts.keep = l->opts.keep;
    return l->opts.save
               ? choir_training_open(l->opts.save, opts, &l->t, &l->state, &l->checkpoint)
               : CHOIR_OK;
}

choir_status choir_loop_run(choir_loop *l)
{
    if (!l)
        return choir__missing(__func__, "loop");
    choir_status status = choir_scope_status(l->run);
    if (status != CHOIR_OK)
        return status;
    status = open_checkpoint(l);
    CALL(l, &status, begin, l);
    while (status == CHOIR_OK && !l->stopping && l->state.step < l->opts.steps)
        status = one_step(l);
    choir_status closed = choir_checkpoint_close(l->checkpoint);
    l->checkpoint = NULL;
    status = status == CHOIR_OK ? closed : status;
    for (int i = 0; i < l->callback_count; i++)
        if (l->callbacks[i].call.end)
            l->callbacks[i].call.end(l, status, l->callbacks[i].arg);
    return status;
}
