/* The first and last part of every op: joining the operands, and leaving an entry. */
#include <stdio.h>
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/segment.h"
#include "tensor/sequence.h"
#include "tensor/strategy.h"
#include "tensor/tokens.h"
#include "tensor/watch.h"

/* Poison of the lost run is an error of the step as well, if another operand belongs to one. */
static choir_tensor *spread(choir_tensor *bad, choir_tensor *const *in, int count)
{
    choir_status status = choir__scope_status(bad->scope);
    for (int i = 0; i < count && status != CHOIR_OK; i++)
        if (in[i] && choir__is_sound(in[i]) && !choir__is_lost(in[i]))
            choir__scope_fail(in[i]->scope, status);
    return bad;
}

static choir_tensor *unsound(const choir__op *op, choir_tensor *t, int i)
{
    char words[80];
    snprintf(words, sizeof words, "%s: operand %d", op->name, i);
    return choir__unsound(t, words);
}

static choir_tensor *first_bad(const choir__op *op, choir_tensor *const *in, int count)
{
    for (int i = 0; i < count; i++) {
        if (!in[i] && op->optional >> i & 1)
            continue;
        choir_tensor *t = choir__is_sound(in[i]) ? in[i] : unsound(op, in[i], i);
        if (t->poisoned)
            return choir__is_lost(t) ? spread(t, in, count) : t;
        if (t->freed && !choir__released_by(t))
            return choir__poison(t->scope, CHOIR_ERR_STATE,
                "%s: backward has freed operand %d; choir_keep it before", op->name, i);
    }
    return NULL;
}

choir_tensor *choir__failed_in(choir_scope *scope)
{
    choir_tensor *t = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
    t->poisoned = true;
    return t;
}

/* Refuses an operand that is only this rank's part of a tensor. */
static choir_tensor *refuse_part(const char *op, choir_tensor *t, choir_scope *scope)
{
    return choir__poison(scope, CHOIR_ERR_ARGUMENT,
        "%s: its operand %s is this rank's part of %s: only choir_linear, choir_embedding, "
        "choir_cross_entropy and choir_argmax know of parts",
        op, choir__shape_text(t->shape), t->param ? "a parameter" : "the scores");
}

/* Returns whether t follows from a weight's copies, one per slice. */
static bool is_per_slice(const choir_tensor *t)
{
    const choir__tape_entry *r = t->producer;
    while (r && !r->op->per_slice)
        r = r->in[0] ? r->in[0]->producer : NULL;
    return r;
}

/* Refuses a whole parameter beside an operand that has this rank's columns alone: the ranks'
 * gradients of it would be parts of a sum, and its replicas would drift apart. A layer whose
 * weight is in slices knows which of its operands are whole. */
static choir_tensor *refuse_beside_columns(
    const choir__op *op, choir_tensor *const *in, int count, choir_scope *scope)
{
    const choir_tensor *columns = NULL, *param = NULL;
    for (int i = 0; i < count && scope->grad; i++) {
        if (!in[i])
            continue;
        if (in[i]->split && in[i]->split->passes)
            columns = in[i];
        else if (choir__is_part(in[i]))
            return NULL;
        else if (choir__is_weight(in[i]) && in[i]->requires_grad && !is_per_slice(in[i]))
            param = in[i];
    }
    if (!columns || !param)
        return NULL;
    return choir__poison(scope, CHOIR_ERR_ARGUMENT,
        "%s: every rank has all of the parameter %s, but its own columns of the other operand, "
        "%s: the gradients of ranks would be parts of one sum; use the parameter before or after "
        "the layers in slices",
        op->name, choir__shape_text(param->shape), choir__shape_text(columns->shape));
}

choir_scope *choir__begin(
    const choir__op *op, choir_tensor **in, int count, choir_tensor **poisoned)
{
    if (count < 1) {
        choir_status status = choir__error(CHOIR_ERR_ARGUMENT, "%s: no operands", op->name);
        *poisoned = choir__lost_run(status)->run->lost;
        return NULL;
    }
    if ((*poisoned = first_bad(op, in, count)))
        return NULL;
    choir_scope *scope = choir__join(in, count);
    if (!scope || !choir__placed(scope, op->name, in, count)) {
        *poisoned = choir__failed_in(scope ? scope : in[0]->scope);
        return NULL;
    }
    if (scope->sequence && !op->by_token) {
        *poisoned = choir__sequence_refuse(scope, op->name);
        return NULL;
    }
    if (!choir__tokens_meet(scope, op, in, count)) {
        *poisoned = choir__failed_in(scope);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (!in[i])
            continue;
        if (choir__is_part(in[i]) && !(op->slices_in >> i & 1)) {
            *poisoned = refuse_part(op->name, in[i], scope);
            return NULL;
        }
        if (choir__bring_back(in[i]) != CHOIR_OK) {
            *poisoned = choir__failed_in(scope);
            return NULL;
        }
        if (scope->kind == CHOIR__RUN && scope->grad && in[i]->requires_grad) {
            *poisoned = choir__poison(scope, CHOIR_ERR_SCOPE,
                "%s: an op on parameters alone has no step to live in; lift one with choir_in",
                op->name);
            return NULL;
        }
        if (choir__device_of(in[i]) != choir__device_of(in[0])) {
            *poisoned = choir__poison(scope, CHOIR_ERR_DEVICE,
                "%s: operand 0 is on %s, operand %d on %s; choir_to moves one", op->name,
                choir_device_name(choir__device_of(in[0])), i,
                choir_device_name(choir__device_of(in[i])));
            return NULL;
        }
    }
    if ((*poisoned = refuse_beside_columns(op, in, count, scope)))
        return NULL;
    if (!choir__set_dtypes(scope, op, in, count)) {
        *poisoned = choir__failed_in(scope);
        return NULL;
    }
    for (int i = 0; i < count && op->composed; i++)
        if (in[i] && in[i]->scope->kind == CHOIR__RUN && scope->kind != CHOIR__RUN)
            in[i] = choir_in(scope, in[i]); /* an op on it alone has no step otherwise */
    return scope;
}

/* Passes the mark of columns on to a result whose rows are as long, and in order; of columns
 * among other dimensions, to any result as large. */
static void pass_mark(choir_tensor *out, const choir_tensor *x)
{
    const choir__partition *mark = x ? x->split : NULL;
    if (!mark || !mark->passes || out->split || out->count != x->count)
        return;
    bool rows = out->shape.ndim && x->shape.ndim && choir__cols(out) == choir__cols(x) &&
                choir__is_contiguous(out);
    if (mark->among || rows)
        out->split = mark;
}

/* Returns whether a result depends on parameters, and otherwise on tensors of the run alone. */
static bool is_of_params(const choir__op *op, choir_tensor *const *in, int count)
{
    bool some = false;
    for (int i = 0; i < count; i++) {
        if (in[i] && !choir__is_weight(in[i]) && in[i]->scope->kind != CHOIR__RUN)
            return false;
        some |= in[i] && choir__is_weight(in[i]);
    }
    return some && !op->spreads;
}

static choir__tape_entry *leave_entry(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count)
{
    choir_scope *scope = out->scope;
    out->of_params = is_of_params(op, in, count);
    for (int i = 0; i < count; i++)
        pass_mark(out, in[i]);
    choir__tokens_pass(op, out, in, count);
    bool wanted = false;
    for (int i = 0; i < count; i++)
        wanted |= in[i] && in[i]->requires_grad;
    if (!wanted || !scope->grad || out->poisoned)
        return NULL;
    choir__tape_entry *r = choir__arena_get(&scope->arena, sizeof *r);
    r->op = op;
    r->scope = scope;
    r->out = out;
    r->out_version = out->storage->version;
    r->count = count;
    r->path = scope->run->path;
    for (int i = 0; i < count; i++) {
        r->in[i] = in[i];
        if (!in[i])
            continue;
        r->version[i] = in[i]->storage->version;
        if (in[i]->cast)
            in[i]->cast->readers++;
    }
    if (scope->placement) {
        r->stage = r->owner = scope->placement->stage;
        r->number = scope->placement->op;
    }
    choir__segment_add(scope->segment, r);
    r->previous = scope->tape_tail;
    if (scope->tape_tail)
        scope->tape_tail->next = r;
    else
        scope->tape = r;
    scope->tape_tail = r;
    out->requires_grad = true;
    out->producer = r;
    return r;
}

choir__tape_entry *choir__tape_entry_new(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count)
{
    choir__op_watch_computed(op, out);
    return leave_entry(op, out, in, count);
}

void choir__tape_entry_attrs(choir__tape_entry *r, const void *attrs, size_t bytes)
{
    r->attrs = memcpy(choir__arena_get(&r->scope->arena, bytes), attrs, bytes);
}

static void keep(choir__tape_entry *r, const choir__keeps *keeps)
{
    if (keeps->bytes)
        choir__tape_entry_attrs(r, keeps->attrs, keeps->bytes);
    memcpy(r->saved, keeps->saved, sizeof r->saved);
}

choir_tensor *choir__taped(const choir__op *op, choir_tensor *out, choir_tensor *const *in,
    int count, choir__keeps keeps)
{
    choir__tape_entry *r = choir__tape_entry_new(op, out, in, count);
    if (r)
        keep(r, &keeps);
    return choir__as_stored(out);
}

choir_tensor *choir__computed(const choir__op *op, choir_tensor *out, choir_tensor *const *in,
    int count, choir__keeps keeps)
{
    for (int i = 0; i < CHOIR__MAX_SAVED && !out->poisoned; i++)
        if (keeps.saved[i] && keeps.saved[i]->poisoned)
            return keeps.saved[i];
    if (out->poisoned)
        return out;
    choir__tape_entry passing = {
        .op = op, .scope = out->scope, .out = out, .count = count, .attrs = keeps.attrs};
    choir__tape_entry *r = leave_entry(op, out, in, count), *used = r ? r : &passing;
    if (r)
        keep(r, &keeps);
    memcpy(passing.in, in, (size_t)count * sizeof *in);
    memcpy(passing.saved, keeps.saved, sizeof passing.saved);
    used->first = true;
    op->recompute(used);
    used->first = false;
    choir__op_watch_computed(op, out);
    for (int i = 0; i < CHOIR__MAX_SAVED && !r; i++)
        if (choir__made_along(&passing, i))
            choir__tensor_release(passing.saved[i]);
    return op->loss ? out : choir__as_stored(out);
}

bool choir__reads(const choir__tape_entry *r, const choir_tensor *t)
{
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (r->saved[i] == t)
            return true;
    for (int i = 0; i < r->count; i++)
        if (r->in[i] == t && r->op->reads_in >> i & 1)
            return true;
    return false;
}

void choir__done_with_one(choir_tensor *t)
{
    choir__tape_entry *producer = t->producer; /* NULL: nothing is recorded */
    bool foreign = producer ? producer->scope != t->scope : t->requires_grad;
    if (foreign || !t->storage || t->kept || t->watched || t->hooks)
        return;
    /* The result of a finished segment is kept, since the segment ran for it. */
    bool again = producer && producer->op->cheap && choir__segment_open(producer->segment) &&
                 t->storage->version == producer->out_version;
    for (choir__tape_entry *r = t->scope->tape_tail; r && !again; r = r->previous) {
        bool together = producer && r->segment == producer->segment &&
                        (producer->op->recompute || producer->op->view);
        if (choir__reads(r, t) || (!together && choir__made_of(r, t)))
            return;
        if (r == producer)
            break;
    }
    choir__tensor_release(t);
}

void choir__done_with(choir_tensor *t)
{
    for (choir__tape_entry *r = t->scope->tape_tail; r && r != t->producer; r = r->previous)
        if (r->op->along && r->in[0] == t && r->out->storage)
            choir__done_with(r->out);
    choir__done_with_one(t);
}

bool choir__wanted(const choir__tape_entry *r, int i)
{
    return i < r->count && r->in[i] && r->in[i]->requires_grad;
}

choir_tensor *choir__shape_error(
    const char *op, choir_scope *scope, choir_tensor *const *in, int count, const char *why)
{
    char text[400];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (in[i] && used < (int)sizeof text)
            used +=
                snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", used ? ", " : "",
                    choir_dtype_name(in[i]->dtype), choir__shape_text(in[i]->shape));
    return choir__poison(scope, CHOIR_ERR_SHAPE, "%s: %s, got %s, on %s", op, why, text,
        choir_device_name(choir__device_of(in[0])));
}
