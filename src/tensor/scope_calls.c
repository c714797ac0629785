/* The calls of programs on scopes: they check their handles, and scope.c does the work. */
#include "tensor/handle.h"
#include "tensor/unread.h"

choir_device *choir_scope_device(const choir_scope *scope)
{
    bool usable = choir__use_scope(scope, __func__) == CHOIR_OK;
    return usable ? scope->run->base.device : NULL;
}

uint64_t choir_scope_seed(const choir_scope *scope)
{
    bool usable = choir__use_scope(scope, __func__) == CHOIR_OK;
    return usable ? scope->run->base.seed : 0;
}

choir_scope *choir_step_open(choir_scope *run, uint64_t step)
{
    choir__unread_tell();
    run = choir__open_scope(run, __func__);
    choir_scope *s = choir__scope_child(run, CHOIR__STEP);
    s->step = step;
    s->micro = run->run->micro_first;
    choir__step_begins(run, step);
    return s;
}

choir_scope *choir_micro_open(choir_scope *step, int64_t index)
{
    choir_scope *s = choir__scope_child(choir__open_scope(step, __func__), CHOIR__MICRO);
    s->micro = index;
    return s;
}

choir_status choir_scope_close(choir_scope *scope)
{
    if (!scope)
        return CHOIR_OK;
    choir_status status = choir__use_scope(scope, __func__);
    return status == CHOIR_OK ? choir__scope_end(scope) : status;
}

choir_status choir_scope_status(const choir_scope *scope)
{
    choir_status status = choir__use_scope(scope, __func__);
    if (status != CHOIR_OK)
        return status;
    status = choir__scope_status(scope);
    if (status != CHOIR_OK)
        scope->run->told = true;
    return status;
}

void choir_scope_clear(choir_scope *scope)
{
    if (choir__use_scope(scope, __func__) != CHOIR_OK)
        return;
    choir__scope_forget(scope);
    choir__run_clear(scope);
}

choir_scope *choir_no_grad(choir_scope *parent)
{
    choir_scope *s = choir__scope_child(choir__open_scope(parent, __func__), CHOIR__MICRO);
    s->grad = false;
    return s;
}

bool choir_set_grad(choir_scope *scope, bool on)
{
    scope = choir__open_scope(scope, __func__);
    bool was = scope->grad;
    scope->grad = on;
    return was;
}

choir_tensor *choir_fail(choir_scope *scope, choir_status status, const char *format, ...)
{
    if (!format)
        return choir__poison_missing(scope, __func__, "message");
    va_list args;
    va_start(args, format);
    choir_tensor *t = choir__vpoison(choir__open_scope(scope, __func__), status, format, args);
    va_end(args);
    return t;
}
