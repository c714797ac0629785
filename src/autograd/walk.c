/* The walk: from a root back over the tape.
 *
 * First it looks at the whole graph (scan.c). Then it runs the entries in reverse: an op's
 * backward receives the gradient of its result and gives the gradients of its inputs through
 * the sink (sink.c). No earlier entry needs an entry's result or saved tensors, so their
 * memory is released as soon as the entry is done. */
#include "autograd/walk.h"

#include "autograd/scan.h"
#include "autograd/sink.h"
#include "device/counts/tally.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"
#include "tensor/watch.h"

/* --- one entry --- */

choir_status choir__tape_entry_unchanged(const choir__tape_entry *r)
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

enum { COPIES = 3 }; /* a cast of a handle (ops/sliced/sliced.c) of a cast */

/* Returns the gradient of input i; for a copy without a gradient, its original's (dest_wide).
 */
static choir_tensor *gradient_of(const choir__tape_entry *r, int i)
{
    const choir_tensor *x = r->in[i];
    for (int level = 0; x && !x->grad && level < COPIES; level++)
        x = x->producer && x->producer->count ? x->producer->in[0] : NULL;
    return x ? x->grad : NULL;
}

/* Releases scratch tensors made since `mark`, except inputs' gradients, with their twins, and
 * kept tensors. */
static void release_scratch(choir__tape_entry *r, const choir_tensor *mark)
{
    for (choir_tensor *t = r->scope->tensors; t != mark; t = t->next)
        t->freed = !t->kept;
    for (int i = 0; i < r->count; i++) {
        choir_tensor *g = gradient_of(r, i);
        if (g)
            g->freed = false;
        if (g && g->twin)
            g->twin->freed = false;
    }
    for (choir_tensor *t = r->scope->tensors; t != mark; t = t->next)
        if (t->freed)
            choir__tensor_release(t);
}

static bool is_gradient(const choir__tape_entry *r, const choir_tensor *t)
{
    for (int i = 0; i < r->count; i++)
        if (gradient_of(r, i) == t)
            return true;
    return false;
}

/* Releases the tensors that only this entry needed, and scratch tensors made since `mark`. */
static void release(choir__tape_entry *r, const choir_tensor *root, const choir_tensor *mark)
{
    for (int i = 0; i < CHOIR__MAX_SAVED; i++) {
        choir_tensor *t = r->saved[i];
        if (t && t->storage && !t->producer && t->scope == r->scope &&
            !choir__is_operand(r, t) && t != r->out)
            choir__tensor_release(t);
    }
    for (int i = 0; i < r->count; i++)
        if (r->in[i] && r->in[i]->cast && --r->in[i]->cast->readers == 0)
            choir__tensor_release(r->in[i]);
    release_scratch(r, mark);
    if (r->out->grad->twin && is_gradient(r, r->out->grad->twin))
        r->out->grad->twin = NULL;
    choir__tensor_release(r->out->grad);
    r->out->grad = NULL;
    if (r->out != root)
        choir__tensor_release(r->out);
}

/* Puts backward_weight off and keeps references to the memory that it reads. */
static void put_off_weight(choir__walk *w, choir__tape_entry *r, choir_tensor *gy)
{
    choir__late *late = choir__put_off(w, r, -1);
    late->grad = choir__tensor_alias(r->scope, gy);
    late->grad->kept = true;
    for (int i = 0; i < r->count; i++)
        if (r->op->reads_in >> i & 1 && r->in[i] && r->in[i]->storage)
            late->in[i] = choir__storage_ref(r->in[i]->storage);
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (r->saved[i] && r->saved[i]->storage)
            late->saved[i] = choir__storage_ref(r->saved[i]->storage);
}

/* True if backward_weight can be put off: only parameters receive its gradients, and no earlier
 * entry waits for them. */
static bool can_wait(const choir__tape_entry *r)
{
    bool wanted = false;
    for (int i = 0; i < r->count; i++)
        if (r->op->weights_in >> i & 1 && choir__wanted(r, i)) {
            if (!r->in[i]->param)
                return false;
            wanted = true;
        }
    return wanted;
}

/* Returns the time since the last call: by the clock, when the entry's devices have done their
 * work; or what the thread has counted. */
static double take_time(choir__walk *w, const choir__tape_entry *r, bool copied)
{
    if (!w->clocked)
        return choir__tally_take();
    (void)!choir_device_sync(choir__device_of(r->out));
    if (copied)
        (void)!choir_device_sync(choir__device_of(r->in[0]));
    double before = w->noted;
    w->noted = choir__now();
    return w->noted - before;
}

/* Notes the time since the last note. */
static void note_time(choir__walk *w, const choir__tape_entry *r, bool weight)
{
    if (!w->costs)
        return;
    bool copied =
        r->op == &choir__to_op && choir__device_of(r->in[0]) != choir__device_of(r->out);
    double taken = take_time(w, r, copied),
           *cost = weight ? &w->costs[r->number].weight : &w->costs[r->number].input;
    *cost += copied ? 0 : taken; /* a copy between devices is no work of the op */
}

static choir_status run_record(choir__walk *w, choir__tape_entry *r)
{
    choir_status status = choir__tape_entry_unchanged(r);
    if (status == CHOIR_OK)
        status = choir__restore_read(r);
    if (status != CHOIR_OK)
        return status;
    choir_tensor *gy = r->out->grad, *mark = r->scope->tensors;
    w->sink.scope = r->scope;
    if (r->scope->run->watch)
        r->scope->run->watch->reached(r->scope->run->watch, r, gy);
    if (r->out->hooks)
        choir__call_hooks(r->out, gy);
    bool grad = choir_set_grad(r->scope, false), later = false;
    choir__autocast autocast = r->scope->autocast;
    const char *path = r->scope->run->path;
    r->scope->autocast.on = false;
    r->scope->run->path = r->path;
    if (r->op->backward)
        r->op->backward(r, gy, &w->sink);
    if (r->op->backward_weight && w->split && can_wait(r)) {
        /* before backward_input, so that dest_over does not reuse memory that it reads */
        put_off_weight(w, r, gy);
        later = true;
    }
    if (r->op->backward_input)
        r->op->backward_input(r, gy, &w->sink);
    note_time(w, r, false);
    if (r->op->backward_weight && !later) {
        r->op->backward_weight(r, gy, &w->sink);
        note_time(w, r, true);
    }
    choir_set_grad(r->scope, grad);
    r->scope->autocast = autocast;
    r->scope->run->path = path;
    if (w->sink.taken)
        choir__tensor_release(w->sink.taken);
    w->sink.taken = NULL;
    release(r, w->root, mark);
    return choir__scope_status(r->scope);
}

/* --- the walk --- */

static void unlink_record(choir__tape_entry *r)
{
    choir_scope *s = r->scope;
    choir__segment_drop(r);
    if (r->out->released)
        r->out->released->segment = NULL; /* for good */
    *(r->previous ? &r->previous->next : &s->tape) = r->next;
    *(r->next ? &r->next->previous : &s->tape_tail) = r->previous;
    r->op = &choir__consumed_op;
}

/* A copy's gradient has been on a later stage's device since that stage's part of the walk:
 * readers wait for the end of that part alone. */
static void mark_ready(choir__walk *w, choir__tape_entry *r)
{
    if (w->done && r->stage != r->owner && r->out->grad && r->out->grad->storage)
        r->out->grad->storage->ready = w->done[r->stage];
}

static choir_status walk(choir__walk *w)
{
    if (w->costs)
        (void)choir__tally_take();
    w->noted = w->costs && w->clocked ? choir__now() : 0;
    for (choir_scope *s = w->root->scope; s != w->end; s = s->parent)
        for (choir__tape_entry *r = s->tape_tail, *previous; r; r = previous) {
            previous = r->previous;
            if (!choir__look_turn(w, r))
                continue;
            mark_ready(w, r);
            choir__tape_entry done = *r; /* keeps the op, which put-off work still needs */
            choir_status status = r->out->grad ? run_record(w, r) : CHOIR_OK;
            if (status != CHOIR_OK)
                return status;
            unlink_record(r);
            if (w->split)
                r->late_op = done.op;
        }
    return CHOIR_OK;
}

/* Finishes the gradients of leaves when the walk is over; no entry does so. Calls their
 * hooks. */
static void finish_leaves(const choir__walk *w)
{
    for (choir_scope *s = w->root->scope; s != w->end; s = s->parent)
        for (choir_tensor *t = s->tensors; t; t = t->next)
            if (t->grad && !t->producer && !t->param) {
                if (t->grad->scope !=
                    t->scope) { /* the leaf outlives the scope of the backward */
                    bool owned = t->grad->grad_owned;
                    t->grad = choir__tensor_alias(t->scope, t->grad);
                    t->grad->grad_owned = owned;
                }
                choir__call_hooks(t, t->grad);
            }
}

static choir_status can_start(choir_tensor *root, bool loss)
{
    choir_status status = choir__scope_status(root->scope);
    if (status != CHOIR_OK)
        return status;
    if (loss && (root->shape.ndim > 1 ? root->count != 1 : root->count < 1))
        return choir__error(CHOIR_ERR_SHAPE,
            "backward: starts from one value, or a vector of micro-batches' losses, not from %s",
            choir__shape_text(root->shape));
    if (!root->producer)
        return choir__error(CHOIR_ERR_STATE,
            "backward: this tensor has no history: nothing it was made of requires a gradient");
    if (root->producer->op == &choir__consumed_op)
        return choir__error(CHOIR_ERR_STATE, "backward: this graph was walked before");
    return CHOIR_OK;
}

static choir_status set_root_grad(choir_tensor *root, choir_tensor *grad)
{
    choir_scope *scope = root->scope;
    if (grad) {
        root->grad = choir__tensor_alias(scope, grad);
        return CHOIR_OK;
    }
    root->grad = choir__tensor_new(scope, choir__device_of(root), root->dtype, root->shape);
    if (root->grad->poisoned)
        return choir__scope_status(scope);
    choir__launch_fill(root->grad, 1);
    return CHOIR_OK;
}

static choir_status open_walk(
    choir__walk *w, choir_tensor *root, choir_tensor *grad, int64_t parts, choir_scope *end)
{
    *w = (choir__walk){.root = root, .parts = parts, .end = end, .stage = -1};
    w->late_end = &w->late;
    choir__sink_fill(&w->sink);
    choir_status status = can_start(root, !grad);
    if (status == CHOIR_OK && root->scope->piece && !end)
        status = choir__error(CHOIR_ERR_STATE,
            "backward: this is a piece of a batch on %s; choir_criterion_parallel or choir_gather "
            "joins them, and backward starts from their result",
            choir_device_name(choir__device_of(root)));
    if (status == CHOIR_OK)
        status = choir__scan_reached(w);
    if (status != CHOIR_OK)
        return choir__scope_fail(root->scope, status);
    choir__scan_book_rest(&root->scope->run->base);
    return set_root_grad(root, grad);
}

choir_status choir__walk_open(
    choir__walk *w, choir_tensor *root, choir_tensor *grad, int64_t parts, int stages)
{
    choir_status status = open_walk(w, root, grad, parts, NULL);
    if (stages)
        w->done = choir__arena_get(&root->scope->arena, (size_t)stages * sizeof(choir__event));
    return status;
}

/* Pauses placement during a walk: the ops that hooks and custom ops' backward functions call
 * run where their operands are. */
static bool pause(const choir__walk *w, bool paused)
{
    return choir__placement_pause(w->root->scope, paused);
}

choir_status choir__walk_stage(choir__walk *w, int stage, bool split)
{
    bool paused = pause(w, true);
    w->stage = stage;
    w->split = split;
    choir_status status = choir__scan_uses(w);
    if (status == CHOIR_OK && !split)
        status = choir__scan_open_leaves(w);
    if (status == CHOIR_OK)
        status = walk(w);
    if (status == CHOIR_OK && !split)
        status = choir__scan_close_leaves(w);
    w->split = false;
    pause(w, paused);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(w->root->scope, status);
}

/* --- work that was put off --- */

/* Puts the storage kept for a put-off entry into handles that have none; with `back`, takes it
 * out again and drops the references. */
static void lend(choir__late *late, bool back)
{
    choir__tape_entry *r = late->entry;
    for (int i = 0; i < CHOIR__MAX_IN + CHOIR__MAX_SAVED; i++) {
        bool input = i < CHOIR__MAX_IN;
        choir__storage **kept = input ? &late->in[i] : &late->saved[i - CHOIR__MAX_IN];
        choir_tensor *t = input ? r->in[i] : r->saved[i - CHOIR__MAX_IN];
        if (!*kept)
            continue;
        if (!back && !t->storage) {
            t->storage = choir__storage_ref(*kept);
            late->lent |= 1u << i;
        } else if (back) {
            if (late->lent >> i & 1)
                choir__tensor_release(t);
            late->lent &= ~(1u << i);
            choir__storage_unref(*kept);
            *kept = NULL;
        }
    }
}

static void run_late(choir__walk *w, choir__late *late)
{
    choir__tape_entry *r = late->entry;
    choir_tensor *mark = r->scope->tensors;
    w->sink.scope = r->scope;
    if (late->input < 0) {
        lend(late, false);
        r->late_op->backward_weight(r, late->grad, &w->sink);
        lend(late, true);
    } else if (late->ids) {
        w->sink.give_rows(&w->sink, r, late->input, late->ids, late->grad);
    } else {
        w->sink.give(&w->sink, r, late->input, late->grad);
    }
    release_scratch(r, mark);
    choir__tensor_release(late->grad);
    if (late->ids)
        choir__tensor_release(late->ids);
}

choir_status choir__walk_weights(choir__walk *w, int stage)
{
    bool paused = pause(w, true);
    w->books = NULL;
    w->book_count = 0;
    for (choir__late *late = w->late; late; late = late->next)
        for (int i = 0; late->stage == stage && i < late->entry->count; i++)
            if (choir__wanted(late->entry, i) && late->entry->in[i]->param)
                choir__scan_touch(w, late->entry, i, late->entry->in[i]->param);
    choir_status status = choir__scan_open_leaves(w);
    choir__late **link = &w->late;
    while (*link && status == CHOIR_OK) {
        choir__late *late = *link;
        if (late->stage != stage) {
            link = &late->next;
            continue;
        }
        *link = late->next;
        choir_scope *scope = late->entry->scope;
        bool grad = choir_set_grad(scope, false);
        choir__autocast autocast = scope->autocast;
        scope->autocast.on = false;
        run_late(w, late);
        scope->autocast = autocast;
        choir_set_grad(scope, grad);
        status = choir__scope_status(late->entry->scope);
    }
    w->late_end = &w->late;
    while (*w->late_end)
        w->late_end = &(*w->late_end)->next;
    if (status == CHOIR_OK)
        status = choir__scan_close_leaves(w);
    pause(w, paused);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(w->root->scope, status);
}

void choir__walk_abandon(choir__walk *w)
{
    for (choir__late *late = w->late; late; late = late->next)
        lend(late, true);
    w->late = NULL;
}

void choir__walk_close(choir__walk *w)
{
    bool paused = pause(w, true);
    finish_leaves(w);
    pause(w, paused);
}

static choir_status walk_all(choir__walk *w)
{
    choir_status status = choir__walk_stage(w, -1, false);
    if (status == CHOIR_OK)
        choir__walk_close(w);
    return status;
}

choir_status choir__backward_from(choir_tensor *root, choir_tensor *grad, int64_t parts)
{
    choir__walk w;
    choir_status status = choir__walk_open(&w, root, grad, parts, 0);
    return status == CHOIR_OK ? walk_all(&w) : status;
}

choir_status choir__backward_inner(choir_tensor *root, choir_tensor *grad)
{
    choir__walk w;
    choir_status status = open_walk(&w, root, grad, 0, root->scope->parent);
    return status == CHOIR_OK ? walk_all(&w) : status;
}
