/* Sums. Under autocast a product's 16-bit result is added to the f32 residual stream: on a
 * device whose kernels all take 16 bits, one kernel does so and widens the values on the way,
 * so that no copy of them is made. The layer norm that follows may be of the same kernel
 * (layer_norm.c).
 *
 * The gradient of the 16-bit operand is the sum's, rounded. The norm that makes the sum's
 * gradient writes the rounded values, too: they are its *twin*. Without one, a copy is made. */
#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/strategy.h"

/* True if x, f32, and h, of 16 bits, can be summed in one pass, whose result is f32. A
 * parameter's gradient is f32, so a 16-bit one is widened. */
static bool adds_half(choir_tensor *x, choir_tensor *h)
{
    if (x->poisoned || h->poisoned || x->dtype != CHOIR_F32 || !choir__is_half(h->dtype) ||
        h->param || !choir__same_shape(x->shape, h->shape) || !choir__is_contiguous(x) ||
        !choir__is_contiguous(h) || !choir__device_of(x)->half)
        return false;
    choir_scope *scope = choir__join((choir_tensor *[]){x, h}, 2);
    return scope && scope->autocast.on && !scope->autocast.all;
}

static void backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
    if (!choir__wanted(r, 1))
        return;
    choir_tensor *g = gy->twin && gy->twin->dtype == r->in[1]->dtype ? gy->twin : NULL;
    if (!g && (g = sink->dest(sink, r, 1)))
        choir__launch_copy(g, gy);
    if (g)
        sink->give(sink, r, 1, g);
}

static void again(choir__tape_entry *r)
{
    choir__launch_add(r->out, r->in[0], r->in[1]);
}

const choir__op choir__add_half_op = {.name = "add",
    .by_token = true,
    .tokens_in = 3,
    .cast = CHOIR__CAST_WIDEST,
    .half_beside = 2,
    .backward = backward,
    .recompute = again};

static choir_tensor *add_half(choir_tensor *x, choir_tensor *h)
{
    choir_tensor *poisoned, *in[2] = {x, h};
    choir_scope *scope = choir__begin(&choir__add_half_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    bool half = choir__is_half(in[1]->dtype); /* false: the op runs elsewhere, and cast it */
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(in[0]), CHOIR_F32, in[0]->shape);
    return choir__computed(
        half ? &choir__add_half_op : &choir__add_op, y, in, 2, (choir__keeps){0});
}

static choir_tensor *add(choir_tensor *a, choir_tensor *b)
{
    return adds_half(a, b)   ? add_half(a, b)
           : adds_half(b, a) ? add_half(b, a)
                             : choir__binary(CHOIR__ADD, a, b);
}

/* Returns the mark of scores in slices. */
static const choir__partition *scores_mark(const choir_tensor *t)
{
    return t->split && !t->split->passes && !t->split->tokens ? t->split : NULL;
}

/* Returns whether two tensors have the same classes of scores, as a layer and its adapter. */
static bool same_classes(const choir__partition *p, const choir__partition *q)
{
    return p && q && p->by == q->by && p->cut.leaves == q->cut.leaves && p->first == q->first &&
           p->own == q->own && p->at == q->at && p->size == q->size;
}

/* The sum of scores that are in equal slices is in these slices, too. */
choir_tensor *choir_add(choir_tensor *a, choir_tensor *b)
{
    a = choir__sound(a, "add");
    b = choir__sound(b, "add");
    const choir__partition *mark = scores_mark(a), *other = scores_mark(b);
    if (!same_classes(mark, other) || !choir__same_shape(a->shape, b->shape))
        return add(a, b);
    a->split = b->split = NULL; /* element by element, slices are as any tensor */
    choir_tensor *y = add(a, b);
    a->split = mark;
    b->split = other;
    if (!y->poisoned)
        y->split = mark;
    return y;
}
