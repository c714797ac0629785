/* Derivatives with a history: a walk back over the tape that leaves it as it is. Each entry's
 * gradients are made of ops (choir__op.derivative), which the tape records behind it; so a
 * backward from a loss that contains them walks back through them, and through the first
 * entries.
 *
 * A table has each tensor on a path from x to y, with its gradient so far. */
#include <choir/autograd.h>
#include <stdlib.h>

#include "autograd/scan.h"
#include "autograd/walk.h"
#include "base/floats.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"

typedef struct entry {
    const choir_tensor *tensor; /* NULL: free */
    choir_tensor *grad;         /* NULL: none yet */
} entry;

typedef struct paths {
    entry *at; /* (room), a power of two */
    size_t room, count;
} paths;

static entry *slot(paths *p, const choir_tensor *t)
{
    size_t i = (size_t)((uintptr_t)t >> 4) * 0x9E3779B1u & (p->room - 1);
    while (p->at[i].tensor && p->at[i].tensor != t)
        i = (i + 1) & (p->room - 1);
    return &p->at[i];
}

static void add(paths *p, const choir_tensor *t)
{
    if (2 * (p->count + 1) > p->room) {
        paths wider = {choir__calloc(p->room ? 2 * p->room : 64, sizeof(entry)),
            p->room ? 2 * p->room : 64, p->count};
        for (size_t i = 0; i < p->room; i++)
            if (p->at[i].tensor)
                *slot(&wider, p->at[i].tensor) = p->at[i];
        free(p->at);
        *p = wider;
    }
    entry *e = slot(p, t);
    p->count += !e->tensor;
    e->tensor = t;
}

/* Returns the tensor's entry; NULL: it is on no path. */
static entry *entry_of(paths *p, const choir_tensor *t)
{
    entry *e = t ? slot(p, t) : NULL;
    return e && e->tensor ? e : NULL;
}

/* Adds all results that depend on x, the outer scopes' first. */
static void mark(paths *p, choir_scope *scope)
{
    if (!scope)
        return;
    mark(p, scope->parent);
    for (const choir__tape_entry *r = scope->tape; r; r = r->next)
        for (int i = 0; i < r->count; i++)
            if (entry_of(p, r->in[i])) {
                add(p, r->out);
                break;
            }
}

static choir_status step_back(paths *p, const choir__tape_entry *r, choir_tensor *gy)
{
    choir_tensor *gx[CHOIR__MAX_IN] = {NULL};
    choir_status status = choir__tape_entry_unchanged(r);
    if (status != CHOIR_OK)
        return status;
    choir__derive_fn *derivative = choir__derivative_of(r);
    if (!derivative)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "choir_derivatives: '%s' has no second derivative; include/choir/autograd.h says which "
            "ops have one",
            r->op->name);
    derivative(r, gy, gx);
    for (int i = 0; i < r->count; i++) {
        entry *e = gx[i] ? entry_of(p, r->in[i]) : NULL;
        if (e)
            e->grad = e->grad ? choir_add(e->grad, gx[i]) : gx[i];
    }
    return choir__scope_status(gy->scope);
}

static choir_status walk_back(paths *p, choir_tensor *y)
{
    for (choir_scope *s = y->scope; s; s = s->parent)
        for (choir__tape_entry *r = s->tape_tail; r; r = r->previous) {
            entry *e = r->op == &choir__consumed_op ? NULL : entry_of(p, r->out);
            choir_status status = e && e->grad ? step_back(p, r, e->grad) : CHOIR_OK;
            if (status != CHOIR_OK)
                return status;
        }
    return CHOIR_OK;
}

/* Returns a tensor like t of one value, in the scope of y. */
static choir_tensor *filled(const choir_tensor *y, const choir_tensor *t, double value)
{
    choir_tensor *g = choir__tensor_new(y->scope, choir__device_of(t), t->dtype, t->shape);
    if (!g->poisoned)
        choir__launch_fill(g, value);
    return g;
}

static choir_status check(choir_tensor *y, choir_tensor *const *x, int count, choir_tensor **dx)
{
    choir_status status = choir__use_tensor(y, "choir_derivatives");
    if (status != CHOIR_OK)
        return status;
    if (!x || !dx || count < 1)
        return choir__missing("choir_derivatives", "tensors to derive by");
    if ((status = choir__scope_status(y->scope)) != CHOIR_OK)
        return status;
    if (!y->producer)
        return choir__error(CHOIR_ERR_STATE,
            "choir_derivatives: y has no history: nothing it was made of requires a gradient");
    if (y->producer->op == &choir__consumed_op)
        return choir__error(CHOIR_ERR_STATE,
            "choir_derivatives: this graph was walked before; call it before choir_backward");
    for (int i = 0; i < count; i++) {
        if ((status = choir__use_tensor(x[i], "choir_derivatives")) != CHOIR_OK)
            return status;
        if (!x[i]->requires_grad)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "choir_derivatives: x[%d] requires no gradient (choir_require_grad)", i);
    }
    return CHOIR_OK;
}

/* Runs the walk; in f32 where an autocast is on, as a backward does. */
static choir_status derive(paths *p, choir_tensor *y)
{
    choir__autocast autocast = y->scope->autocast;
    y->scope->autocast.on = false;
    entry *e = entry_of(p, y);
    choir_status status = CHOIR_OK;
    if (e && (e->grad = filled(y, y, 1))->poisoned)
        status = choir__scope_status(y->scope);
    else if (e)
        status = walk_back(p, y);
    y->scope->autocast = autocast;
    return status;
}

choir_status choir_derivatives(
    choir_tensor *y, choir_tensor *const *x, int count, choir_tensor **dx)
{
    CHOIR__DEFAULT_FLOATS;
    paths p = {0};
    choir_status status = check(y, x, count, dx);
    if (status != CHOIR_OK)
        return choir__is_sound(y) ? choir__scope_fail(y->scope, status) : status;
    for (int i = 0; i < count; i++)
        add(&p, x[i]);
    mark(&p, y->scope);
    status = derive(&p, y);
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        dx[i] = slot(&p, x[i])->grad;
        if (!dx[i] && (dx[i] = filled(y, x[i], 0))->poisoned)
            status = choir__scope_status(y->scope);
    }
    free(p.at);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(y->scope, status);
}
