/* The walk: from the loss back over the tape.
 *
 * First a look at the whole graph: which records the loss depends on, and how often each
 * parameter is used. Then the records in reverse: an op's backward receives the gradient of its
 * result and gives those of its inputs through the sink, which puts a parameter's into its book
 * and adds up the rest. A record's result and what it saved are needed by nobody further back,
 * so their memory goes as soon as the record is done. */
#include <choir/autograd.h>

#include <stdlib.h>

#include "autograd/book.h"

struct choir__hook {
    choir_grad_hook *call;
    void *arg;
    choir__hook *next;
};

static const choir__op consumed = {.name = "consumed"};

void choir_on_grad(choir_tensor *t, choir_grad_hook *hook, void *arg)
{
    choir__hook *h = choir__arena_get(&t->scope->arena, sizeof *h);
    *h = (choir__hook){hook, arg, NULL};
    choir__hook **link = &t->hooks;
    while (*link)
        link = &(*link)->next;
    *link = h;
}

static void call_hooks(choir_tensor *t, choir_tensor *grad)
{
    for (choir__hook *h = t->hooks; h; h = h->next)
        h->call(t, grad, h->arg);
}

/* --- the look --- */

static void unmark(choir_tensor *loss)
{
    for (choir_scope *s = loss->scope; s; s = s->parent)
        for (choir__record *r = s->tape; r; r = r->next)
            r->reached = false;
}

static choir_status mark_reached(choir_tensor *loss)
{
    loss->producer->reached = true;
    for (choir_scope *s = loss->scope; s; s = s->parent)
        for (choir__record *r = s->tape_tail; r; r = r->previous)
            for (int i = 0; r->reached && i < r->count; i++) {
                choir__record *producer = r->in[i] ? r->in[i]->producer : NULL;
                if (producer && producer->op == &consumed) {
                    unmark(loss);
                    return choir__error(CHOIR_ERR_STATE,
                        "backward: operand %d of %s is part of a graph that was walked before",
                        i, r->op->name);
                }
                if (producer)
                    producer->reached = true;
            }
    return CHOIR_OK;
}

/* Numbers the uses of each parameter in forward order; outer scopes come first. */
static void count_uses(choir_scope *scope, bool reset)
{
    if (scope->parent)
        count_uses(scope->parent, reset);
    for (choir__record *r = scope->tape; r; r = r->next)
        for (int i = 0; r->reached && i < r->count; i++) {
            choir__param *p = choir__wanted(r, i) ? r->in[i]->param : NULL;
            if (!p)
                continue;
            if (reset) {
                p->uses = 0;
                p->rows_uses = 0;
                continue;
            }
            if (p->uses < 32)
                p->rows_uses |= (r->op->rows_in >> i & 1) << p->uses;
            r->use[i] = p->uses++;
            if (p->book)
                p->book->touched = true;
        }
}

/* Parameters that no optimizer and no strategy has put into a book get one together. */
static void book_the_rest(choir_scope *run)
{
    int count = 0;
    for (choir__param *p = run->params; p; p = p->next)
        count += !p->book;
    if (!count)
        return;
    choir__param **rest = choir__calloc((size_t)count, sizeof(choir__param *));
    int at = count; /* the list has the newest first */
    for (choir__param *p = run->params; p; p = p->next)
        if (!p->book)
            rest[--at] = p;
    choir__book_new(run, rest, count);
    free(rest);
}

static choir_status begin(choir_tensor *loss)
{
    choir_scope *run = loss->scope->run;
    choir_status marked = mark_reached(loss);
    if (marked != CHOIR_OK)
        return marked;
    book_the_rest(run);
    for (choir__book *b = run->books; b; b = b->next) {
        b->touched = false;
        for (int i = 0; i < b->count; i++)
            b->params[i]->uses = 0;
    }
    count_uses(loss->scope, true);
    count_uses(loss->scope, false);
    for (choir__book *b = run->books; b; b = b->next)
        if (b->touched) {
            choir_status status = choir__book_begin_leaf(b);
            if (status != CHOIR_OK)
                return status;
        }
    return CHOIR_OK;
}

/* --- the sink --- */

static choir_tensor *dest(choir__sink *sink, choir__record *r, int i)
{
    if (!choir__wanted(r, i))
        return NULL;
    choir_tensor *x = r->in[i];
    if (x->param && !x->param->slots[r->use[i]].by_rows)
        return choir__book_dest(x->param, r->use[i], sink->scope);
    choir_tensor *g = choir__tensor_new(sink->scope, choir__device_of(x), x->dtype, x->shape);
    g->grad_owned = true;
    return g->poisoned ? NULL : g;
}

static choir_tensor *dest_onto(choir__sink *sink, choir__record *r, int i, choir_tensor **given)
{
    *given = NULL;
    choir_tensor *x = r->in[i], *have = choir__wanted(r, i) && !x->param ? x->grad : NULL;
    if (!have || !choir__is_contiguous(have) || !choir__is_contiguous(x))
        return dest(sink, r, i); /* give will add the two */
    choir_tensor *y = have->grad_owned ? have : dest(sink, r, i);
    if (!y)
        return NULL;
    *given = have;
    x->grad = NULL;
    if (y != have)
        sink->taken = have;
    return y;
}

static choir_tensor *dest_over(choir__sink *sink, choir__record *r, int i)
{
    choir_tensor *x = r->in[i];
    if (!choir__wanted(r, i) || !x->producer || x->scope != r->scope || x->kept || x->watched ||
        x->hooks || x->grad || !choir__storage_is_ours(x->storage))
        return dest(sink, r, i);
    for (choir__record *p = r->previous; p;
         p = p->previous) { /* what backward still has to do */
        if (choir__reads(p, x))
            return dest(sink, r, i);
        if (p == x->producer)
            break;
    }
    choir_tensor *g = choir__tensor_alias(sink->scope, x);
    g->grad_owned = true;
    return g;
}

static void give_param(choir__sink *sink, choir__record *r, int i, choir_tensor *g)
{
    choir_tensor *x = r->in[i], *slot = choir__book_dest(x->param, r->use[i], sink->scope);
    if (choir__data(g) != choir__data(slot))
        choir__launch_copy(slot, g);
    if (x->hooks)
        call_hooks(x, slot);
    choir__book_done(x->param, r->use[i]);
}

static void accumulate(choir_scope *scope, choir_tensor *x, choir_tensor *g)
{
    choir_tensor *into = NULL;
    if (x->grad->grad_owned && choir__is_dense(x->grad))
        into = x->grad;
    else if (g->grad_owned && choir__is_dense(g))
        into = g;
    choir_tensor *y = into ? into : choir__tensor_like(scope, g);
    if (y->poisoned)
        return;
    choir__launch_add(y, x->grad, g);
    if (x->grad != y)
        choir__tensor_release(x->grad);
    y->grad_owned = true;
    x->grad = y;
}

static void give(choir__sink *sink, choir__record *r, int i, choir_tensor *g)
{
    choir_tensor *x = r->in[i];
    if (!choir__wanted(r, i) || g->poisoned)
        return;
    if (x->param) {
        give_param(sink, r, i, g);
        return;
    }
    if (!g->grad_owned || g == r->out->grad) /* somebody else's handle: take one of our own */
        g = choir__tensor_alias(sink->scope, g);
    if (x->grad)
        accumulate(sink->scope, x, g);
    else
        x->grad = g;
}

static bool give_rows(
    choir__sink *sink, choir__record *r, int i, choir_tensor *ids, choir_tensor *rows)
{
    choir_tensor *x = r->in[i];
    (void)sink;
    if (!x->param || !x->param->slots[r->use[i]].by_rows)
        return false;
    choir__book_put_rows(x->param, r->use[i], ids, rows);
    if (x->hooks)
        call_hooks(x, NULL);
    return true;
}

/* --- the walk --- */

static choir_status check_versions(const choir__record *r)
{
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (r->saved[i] == r->out && r->out->storage &&
            r->out->storage->version != r->out_version)
            return choir__error(CHOIR_ERR_STATE,
                "backward of %s: its result was changed in place after the forward pass",
                r->op->name);
    for (int i = 0; i < r->count; i++)
        if (r->op->reads_in >> i & 1 && r->in[i] && r->in[i]->storage &&
            r->in[i]->storage->version != r->version[i])
            return choir__error(CHOIR_ERR_STATE,
                "backward of %s: operand %d was changed in place after the forward pass",
                r->op->name, i);
    return CHOIR_OK;
}

/* Values that were let go of because their op can make them again. */
static choir_status restore(choir_tensor *t)
{
    choir__record *r = t ? t->producer : NULL;
    if (!r || t->storage || !r->op->again)
        return CHOIR_OK;
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (restore(r->saved[i]) != CHOIR_OK)
            return choir_scope_status(t->scope);
    for (int i = 0; i < r->count; i++)
        if (r->op->reads_in >> i & 1 && restore(r->in[i]) != CHOIR_OK)
            return choir_scope_status(t->scope);
    if (!choir__tensor_allocate(t, choir__device_of(t)))
        return choir_scope_status(t->scope);
    t->storage->version = r->out_version;
    t->freed = false;
    r->op->again(r);
    return CHOIR_OK;
}

static choir_status restore_read(const choir__record *r)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < CHOIR__MAX_SAVED && status == CHOIR_OK; i++)
        status = restore(r->saved[i]);
    for (int i = 0; i < r->count && status == CHOIR_OK; i++)
        if (r->op->reads_in >> i & 1)
            status = restore(r->in[i]);
    return status;
}

static bool is_input(const choir__record *r, const choir_tensor *t)
{
    for (int i = 0; i < r->count; i++)
        if (r->in[i] == t)
            return true;
    return false;
}

/* Lets go of what the record alone needed, and of scratch made since `mark`. */
static void release(choir__record *r, const choir_tensor *loss, const choir_tensor *mark)
{
    for (int i = 0; i < CHOIR__MAX_SAVED; i++) {
        choir_tensor *t = r->saved[i];
        if (t && t->storage && !t->producer && t->scope == r->scope && !is_input(r, t) &&
            t != r->out)
            choir__tensor_release(t);
    }
    for (choir_tensor *t = r->scope->tensors; t != mark; t = t->next)
        t->freed = !t->kept; /* scratch, unless an input's gradient says otherwise */
    for (int i = 0; i < r->count; i++)
        if (r->in[i] && r->in[i]->grad)
            r->in[i]->grad->freed = false;
    for (choir_tensor *t = r->scope->tensors; t != mark; t = t->next)
        if (t->freed)
            choir__tensor_release(t);
    choir__tensor_release(r->out->grad);
    r->out->grad = NULL;
    if (r->out != loss)
        choir__tensor_release(r->out);
}

static choir_status run_record(choir__record *r, const choir_tensor *loss, choir__sink *sink)
{
    choir_status status = check_versions(r);
    if (status == CHOIR_OK)
        status = restore_read(r);
    if (status != CHOIR_OK)
        return status;
    choir_tensor *gy = r->out->grad, *mark = r->scope->tensors;
    sink->scope = r->scope;
    if (r->out->hooks)
        call_hooks(r->out, gy);
    bool grad = choir_set_grad(r->scope, false);
    if (r->op->backward)
        r->op->backward(r, gy, sink);
    if (r->op->backward_input)
        r->op->backward_input(r, gy, sink);
    if (r->op->backward_weight)
        r->op->backward_weight(r, gy, sink);
    choir_set_grad(r->scope, grad);
    if (sink->taken)
        choir__tensor_release(sink->taken);
    sink->taken = NULL;
    release(r, loss, mark);
    return choir_scope_status(r->scope);
}

static void unlink_record(choir__record *r)
{
    choir_scope *s = r->scope;
    *(r->previous ? &r->previous->next : &s->tape) = r->next;
    *(r->next ? &r->next->previous : &s->tape_tail) = r->previous;
    r->op = &consumed;
}

static choir_status walk(choir_tensor *loss)
{
    choir__sink sink = {.dest = dest,
        .dest_onto = dest_onto,
        .dest_over = dest_over,
        .give = give,
        .give_rows = give_rows};
    for (choir_scope *s = loss->scope; s; s = s->parent)
        for (choir__record *r = s->tape_tail, *previous; r; r = previous) {
            previous = r->previous;
            if (!r->reached)
                continue;
            choir_status status = r->out->grad ? run_record(r, loss, &sink) : CHOIR_OK;
            if (status != CHOIR_OK)
                return status;
            unlink_record(r);
        }
    return CHOIR_OK;
}

/* Leaves have no record whose turn would come: theirs is when the walk is over. */
static void finish_leaves(choir_tensor *loss)
{
    for (choir_scope *s = loss->scope; s; s = s->parent)
        for (choir_tensor *t = s->tensors; t; t = t->next)
            if (t->grad && !t->producer && !t->param) {
                if (t->grad->scope !=
                    t->scope) { /* the leaf outlives the scope of the backward */
                    bool owned = t->grad->grad_owned;
                    t->grad = choir__tensor_alias(t->scope, t->grad);
                    t->grad->grad_owned = owned;
                }
                call_hooks(t, t->grad);
            }
}

static choir_status end(choir_scope *run)
{
    for (choir__book *b = run->books; b; b = b->next)
        if (b->touched) {
            choir_status status = choir__book_end_leaf(b);
            if (status != CHOIR_OK)
                return status;
        }
    return CHOIR_OK;
}

static choir_status can_start(choir_tensor *loss)
{
    choir_status status = choir_scope_status(loss->scope);
    if (status != CHOIR_OK)
        return status;
    if (loss->count != 1)
        return choir__error(CHOIR_ERR_SHAPE, "backward: starts from one value, not from %s",
            choir__shape_text(loss->shape));
    if (!loss->producer)
        return choir__error(CHOIR_ERR_STATE,
            "backward: this tensor has no history: nothing it was made of requires a gradient");
    if (loss->producer->op == &consumed)
        return choir__error(CHOIR_ERR_STATE, "backward: this graph was walked before");
    return CHOIR_OK;
}

choir_status choir_backward(choir_tensor *loss)
{
    choir_status status = can_start(loss);
    if (status == CHOIR_OK)
        status = begin(loss);
    if (status == CHOIR_OK) {
        loss->grad =
            choir__tensor_new(loss->scope, choir__device_of(loss), loss->dtype, loss->shape);
        if (loss->grad->poisoned)
            status = choir_scope_status(loss->scope);
        else
            choir__launch_fill(loss->grad, 1);
    }
    if (status == CHOIR_OK)
        status = walk(loss);
    if (status == CHOIR_OK)
        finish_leaves(loss);
    if (status == CHOIR_OK)
        status = end(loss->scope->run);
    if (status != CHOIR_OK)
        choir__scope_fail(loss->scope, status);
    return status;
}

choir_tensor *choir_grad(choir_tensor *t)
{
    choir__param *p = t->param;
    if (!p)
        return t->grad;
    if (!p->book || choir__book_finish(p->book) != CHOIR_OK)
        return NULL;
    float *data = choir__param_grad_data(p);
    if (!data)
        return NULL;
    if (!p->grad || !p->grad->storage || choir__data(p->grad) != data) {
        p->grad = choir__tensor_wrap(t->scope, p->book->device, CHOIR_F32, t->shape, data);
        for (int i = 0; i < t->shape.ndim; i++)
            p->grad->stride[i] = t->stride[i];
    }
    return p->grad;
}
