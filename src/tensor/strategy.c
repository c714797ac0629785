/* The strategies of a run: joining, leaving, and calls of all of them. */
#include "tensor/strategy.h"

void choir__strategy_join(choir__strategy *s, choir_scope *scope)
{
    s->next = scope->run->strategies;
    scope->run->strategies = s;
}

void choir__strategy_leave(choir__strategy *s, choir_scope *scope)
{
    for (choir__strategy **link = &scope->run->strategies; *link; link = &(*link)->next)
        if (*link == s) {
            *link = s->next;
            return;
        }
}

void choir__strategies_begin(const choir_scope *scope)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->step_begins)
            s->ops->step_begins(s);
}

void choir__strategies_updated(const choir_scope *scope)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->step_updated)
            s->ops->step_updated(s);
}

void choir__strategies_scaled(const choir_scope *scope)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->scale_updated)
            s->ops->scale_updated(s);
}

void choir__strategies_visit_state(
    const choir_scope *scope, choir__state_visit_fn *visit, void *to)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->visit_state)
            s->ops->visit_state(s, visit, to);
}

bool choir__strategies_visit_optim(
    const choir_scope *scope, struct choir_optim *optim, choir__state_visit_fn *visit, void *to)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->visit_optim && s->ops->visit_optim(s, optim, visit, to))
            return true;
    return false;
}

choir_status choir__strategies_sum(
    const choir_scope *scope, choir_device *device, double *numbers, int64_t count)
{
    choir_status status = CHOIR_OK;
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        if (s->ops->sum)
            status = s->ops->sum(s, device, numbers, count);
    return status;
}

choir_status choir__strategies_take_first(const choir_scope *scope, void *bytes, size_t count)
{
    choir_status status = CHOIR_OK;
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        if (s->ops->take_first)
            status = s->ops->take_first(s, bytes, count);
    return status;
}

choir_tensor *choir__strategies_gather(const choir_scope *scope, choir_tensor *numbers)
{
    for (choir__strategy *s = scope->run->strategies; s && !numbers->poisoned; s = s->next)
        if (s->ops->gather)
            numbers = s->ops->gather(s, numbers);
    return numbers;
}

bool choir__strategies_wait(const choir_scope *scope)
{
    const choir__strategy *s = scope->run->strategies;
    while (s && !s->collective && !s->waits)
        s = s->next;
    return s;
}

bool choir__strategies_move(const choir_scope *scope)
{
    const choir__strategy *s = scope->run->strategies;
    while (s && !(s->ops->moves && s->ops->moves(s)))
        s = s->next;
    return s;
}

void choir__strategies_leaf_done(const choir_scope *scope, struct choir__book *book, int bucket)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->leaf_done)
            s->ops->leaf_done(s, book, bucket);
}

choir_device *choir__strategies_helper(
    const choir_scope *scope, const choir_device *home, int index)
{
    choir_device *device = NULL;
    for (choir__strategy *s = scope->run->strategies; s && !device; s = s->next)
        if (s->ops->helper)
            device = s->ops->helper(s, home, index);
    return device;
}

bool choir__strategies_share(const choir_scope *scope)
{
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->sum)
            return true;
    return false;
}

choir_status choir__strategies_ranks_settled(const choir_scope *scope, int source)
{
    choir_status status = CHOIR_OK;
    for (choir__strategy *s = scope->run->strategies; s && status == CHOIR_OK; s = s->next)
        if (s->ops->ranks_settled)
            status = s->ops->ranks_settled(s, source);
    return status;
}

bool choir__strategies_apart(const choir_scope *scope)
{
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->apart && s->ops->apart(s))
            return true;
    return false;
}

bool choir__strategies_may_part(const choir_scope *scope)
{
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->apart)
            return true;
    return false;
}

bool choir__strategies_never_meet(const choir_scope *scope)
{
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->apart && !s->ops->went_to)
            return true;
    return false;
}

void choir__strategies_went_to(const choir_scope *scope, int64_t steps)
{
    for (choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->ops->went_to)
            s->ops->went_to(s, steps);
}

choir__route *choir__route_of(choir_tensor *t)
{
    if (!t->route)
        t->route = choir__arena_get(&t->scope->arena, sizeof *t->route);
    return t->route;
}
