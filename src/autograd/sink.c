/* The sink: it receives the gradients that an op's backward computes. A parameter's gradient
 * goes into its book; all others are added up in the tensor they belong to, in order of
 * arrival.
 *
 * In a split walk (walk.h) gradients of parameters are put off: they are computed into scratch
 * memory and noted, since the book's leaf of this micro-batch opens later. */
#include "autograd/sink.h"
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/run.h"
#include "tensor/segment.h"
#include "tensor/sequence.h"
#include "tensor/watch.h"

#include <choir/autograd.h>

struct choir__hook {
    choir_grad_hook *call;
    void *arg;
    choir__hook *next;
};

void choir_on_grad(choir_tensor *t, choir_grad_hook *hook, void *arg)
{
    if (choir__use_tensor(t, __func__) != CHOIR_OK)
        return;
    choir__hook *h = choir__arena_get(&t->scope->arena, sizeof *h);
    *h = (choir__hook){hook, arg, NULL};
    choir__hook **link = &t->hooks;
    while (*link)
        link = &(*link)->next;
    *link = h;
    if (t->scope->kind == CHOIR__RUN)
        choir__step_turned(t->scope, h);
}

void choir__call_hooks(choir_tensor *t, choir_tensor *grad)
{
    for (choir__hook *h = t->hooks; h; h = h->next)
        h->call(t, grad, h->arg);
}

static choir__walk *walk_of(choir__sink *sink)
{
    return (choir__walk *)sink;
}

int64_t choir__sink_parts(const choir__sink *sink)
{
    return ((const choir__walk *)sink)->parts;
}

bool choir__sink_writes(const choir__sink *sink, const choir__book *book)
{
    const choir__walk *w = (const choir__walk *)sink;
    for (int b = 0; b < w->book_count; b++)
        if (w->books[b] == book)
            return true;
    return false;
}

choir__late *choir__put_off(choir__walk *w, choir__tape_entry *r, int input)
{
    choir__late *late = choir__arena_get(&r->scope->arena, sizeof *late);
    *late = (choir__late){.entry = r, .input = input, .stage = r->owner};
    *w->late_end = late;
    w->late_end = &late->next;
    return late;
}

/* Returns whether the gradients that ranks give to x, a weight that they have computed, are
 * summed over them: each has some of the tokens of r's result. */
static bool is_summed(const choir__tape_entry *r, const choir_tensor *x)
{
    return choir__sequence_is_whole(x) && !choir__sequence_is_whole(r->out);
}

static choir_tensor *dest(choir__sink *sink, choir__tape_entry *r, int i)
{
    if (!choir__wanted(r, i))
        return NULL;
    choir_tensor *x = r->in[i];
    const choir__slot *use = x->param ? &x->param->slots[r->use[i]] : NULL;
    if (use && !use->by_rows && use->parts == 1 && !walk_of(sink)->split) {
        choir_tensor *slot = choir__book_dest(x->param, r->use[i], sink->scope);
        return slot->poisoned ? NULL : slot;
    }
    /* a cast has its parameter's gradient; sums over ranks are rounded when they are complete
     */
    bool wide = x->param || (choir__is_half(x->dtype) && is_summed(r, x));
    choir_dtype dtype = wide && x->dtype != CHOIR_F64 ? CHOIR_F32 : x->dtype;
    choir_tensor *g = choir__tensor_new(sink->scope, choir__device_of(x), dtype, x->shape);
    if (x->param)
        for (int d = 0; d < x->shape.ndim; d++)
            g->stride[d] = x->stride[d]; /* like its slot */
    g->grad_owned = true;
    return g->poisoned ? NULL : g;
}

/* Like dest, for a tensor of scores: the gradient's rows are as far apart as the input's. */
static choir_tensor *dest_like(choir__sink *sink, choir__tape_entry *r, int i)
{
    choir_tensor *x = r->in[i];
    int64_t row = choir__row_of(x);
    if (!choir__wanted(r, i) || x->param || row <= choir__cols(x))
        return dest(sink, r, i);
    choir_tensor *g =
        choir__tensor_spaced(sink->scope, choir__device_of(x), x->dtype, x->shape, row);
    g->grad_owned = true;
    return g->poisoned ? NULL : g;
}

static choir_tensor *dest_onto(
    choir__sink *sink, choir__tape_entry *r, int i, choir_tensor **given)
{
    *given = NULL;
    choir_tensor *x = r->in[i], *have = choir__wanted(r, i) && !x->param ? x->grad : NULL;
    if (choir__sequence_is_whole(x))
        have = NULL; /* a sum over ranks, unlike what the op adds */
    if (!have || !choir__is_contiguous(have) || !choir__is_contiguous(x))
        return dest(sink, r, i); /* give adds the two */
    choir_tensor *y = have->grad_owned ? have : dest(sink, r, i);
    if (!y)
        return NULL;
    *given = have;
    choir__drop_twin(y);
    x->grad = NULL;
    if (y != have)
        sink->taken = have;
    return y;
}

static choir_tensor *dest_wide(
    choir__sink *sink, choir__tape_entry *r, int i, choir__tape_entry **copy, bool *adds)
{
    choir_tensor *x = r->in[i], *given;
    choir__tape_entry *made = x->producer;
    if (!choir__wanted(r, i) || !made || made->scope != r->scope || made->owner != r->owner ||
        (made->op != &choir__cast_op && made->op != &choir__recast_op) || x->grad || x->hooks ||
        x->watched || x->kept || !choir__device_of(x)->half || choir__sequence_is_whole(x))
        return NULL;
    choir_tensor *wide = made->in[0];
    if (wide->dtype != CHOIR_F32 || !wide->for_products || !choir__is_contiguous(wide) ||
        !choir__wanted(made, 0))
        return NULL;
    choir_tensor *g = dest_onto(sink, made, 0, &given);
    if (!g)
        return NULL;
    if (given && g != given)
        choir__launch_copy(g, given);
    *copy = made;
    *adds = given;
    return g;
}

static choir_tensor *dest_over(choir__sink *sink, choir__tape_entry *r, int i)
{
    choir_tensor *x = r->in[i];
    if (!choir__wanted(r, i) || !x->producer || x->scope != r->scope || x->kept || x->watched ||
        x->hooks || x->grad || !choir__storage_is_ours(x->storage))
        return dest_like(sink, r, i);
    for (choir__tape_entry *p = r->previous; p;
         p = p->previous) { /* the entries that backward has yet to run */
        if (choir__reads(p, x) || choir__made_of(p, x))
            return dest_like(sink, r, i);
        if (p == x->producer)
            break;
    }
    choir_tensor *g = choir__tensor_alias(sink->scope, x);
    g->grad_owned = true;
    return g;
}

static choir_tensor *dest_part(choir__sink *sink, choir__tape_entry *r, int i, int64_t part)
{
    choir__param *p = r->in[i]->param;
    bool parts = p && p->slots[r->use[i]].parts > 1 && !p->tensor->hooks;
    if (!parts || walk_of(sink)->split)
        return NULL;
    choir_tensor *g = choir__book_dest_part(p, r->use[i], part, sink->scope);
    walk_of(sink)->part = g;
    walk_of(sink)->part_number = part;
    return g->poisoned ? NULL : g;
}

static void give_part(choir__sink *sink, choir__tape_entry *r, int i)
{
    choir__op_watch_given(r, i, walk_of(sink)->part_number, walk_of(sink)->part);
    choir__book_done_part(r->in[i]->param, r->use[i]);
}

/* Copies a whole gradient to the parts in which the book stores it. */
static void give_in_parts(choir__sink *sink, choir__param *p, int use, choir_tensor *g)
{
    int64_t each = choir__part_rows(g->shape), from = 0;
    if (p->tensor->hooks)
        choir__call_hooks(p->tensor, g);
    for (int64_t part = 0; part < p->slots[use].parts; part++, from += each) {
        choir_tensor *to = choir__book_dest_part(p, use, part, sink->scope), rows = *g;
        if (to->poisoned)
            return;
        rows.shape = to->shape;
        rows.count = to->count;
        rows.offset += from * g->stride[0];
        choir__launch_copy(to, &rows);
        choir__book_done_part(p, use);
    }
}

/* Returns the gradient that in[i] gets for g, where ranks have parts of a sequence: the ranks'
 * sum, if in[i] is a weight that an op has computed. What that op gives to a parameter is whole
 * then, and ranks other than the first give -0, since the ranks will sum it. */
static choir_tensor *over_ranks(
    choir__sink *sink, const choir__tape_entry *r, int i, choir_tensor *g)
{
    const choir_tensor *x = r->in[i];
    choir_tensor *y = g;
    if (is_summed(r, x)) {
        y = choir__sequence_sum(g);
        if (!y->poisoned && y->dtype != x->dtype)
            y = choir__cast_in_place(sink->scope, y, x->dtype);
    } else if (choir__sequence_is_whole(r->out) && !choir__sequence_is_whole(x)) {
        y = choir__tensor_like(sink->scope, g);
        if (!y->poisoned) {
            choir__launch_copy(y, g);
            choir__sequence_given_once(y);
        }
    }
    y->grad_owned |= y != g;
    return y;
}

static void give_param(choir__sink *sink, choir__tape_entry *r, int i, choir_tensor *g)
{
    choir_tensor *x = r->in[i];
    if (walk_of(sink)->split) {
        g = choir__tensor_alias(sink->scope, g); /* a handle of its own, independent of g */
        g->kept = true;
        choir__put_off(walk_of(sink), r, i)->grad = g;
        return;
    }
    if (x->param->slots[r->use[i]].parts > 1) {
        give_in_parts(sink, x->param, r->use[i], g);
        return;
    }
    choir_tensor *slot = choir__book_dest(x->param, r->use[i], sink->scope);
    if (slot->poisoned)
        return;
    if (choir__data(g) != choir__data(slot))
        choir__launch_copy(slot, g);
    if (x->param->tensor->hooks)
        choir__call_hooks(x->param->tensor, slot);
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
    choir__drop_twin(y);
    if (x->grad != y)
        choir__tensor_release(x->grad);
    y->grad_owned = true;
    x->grad = y;
}

static void give(choir__sink *sink, choir__tape_entry *r, int i, choir_tensor *g)
{
    choir_tensor *x = r->in[i];
    if (!choir__wanted(r, i) || g->poisoned)
        return;
    g = over_ranks(sink, r, i, g);
    if (g->poisoned)
        return;
    choir__op_watch_given(r, i, -1, g);
    if (x->param) {
        give_param(sink, r, i, g);
        return;
    }
    if (!g->grad_owned || g == r->out->grad) /* not our own handle: make one */
        g = choir__tensor_alias(sink->scope, g);
    if (x->grad)
        accumulate(sink->scope, x, g);
    else
        x->grad = g;
}

/* Replaces ids and rows by the ids and rows of all tokens of the sequence, from all ranks that
 * have some, so that a leaf has the rows of the whole micro-batch, in order. */
static void whole_sequence(
    const choir__tape_entry *r, choir_scope *scope, choir_tensor **ids, choir_tensor **rows)
{
    const choir__sequence *s = r->scope->sequence;
    if (!s || !s->by || (*rows)->poisoned)
        return;
    int dim = (*ids)->shape.ndim - 1;
    *ids = s->by->ops->chunks->whole(s->by, scope, *ids, dim);
    *rows = s->by->ops->chunks->whole(s->by, scope, *rows, dim);
}

static bool give_rows(
    choir__sink *sink, choir__tape_entry *r, int i, choir_tensor *ids, choir_tensor *rows)
{
    choir_tensor *x = r->in[i];
    if (!x->param || !x->param->slots[r->use[i]].by_rows)
        return false;
    choir__op_watch_given(r, i, -1, rows);
    whole_sequence(r, sink->scope, &ids, &rows);
    if (ids->poisoned || (rows = choir__wide(sink->scope, rows))->poisoned)
        return true;
    if (walk_of(sink)->split) {
        choir__late *late = choir__put_off(walk_of(sink), r, i);
        late->ids = choir__tensor_alias(sink->scope, ids);
        late->grad = choir__tensor_alias(sink->scope, rows);
        late->ids->kept = late->grad->kept = true;
        return true;
    }
    choir__book_put_rows(x->param, r->use[i], ids, rows);
    if (x->param->tensor->hooks)
        choir__call_hooks(x->param->tensor, NULL);
    return true;
}

void choir__sink_fill(choir__sink *sink)
{
    *sink = (choir__sink){.dest = dest,
        .dest_onto = dest_onto,
        .dest_wide = dest_wide,
        .dest_over = dest_over,
        .dest_part = dest_part,
        .give_part = give_part,
        .give = give,
        .give_rows = give_rows};
}
