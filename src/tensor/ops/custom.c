/* Ops with a user's own gradient: two functions that call ordinary ops, and one entry. The
 * ordinary ops run on the device of the custom op, since their operands are there. */
#include <string.h>

#include "tensor/handle.h"
#include "tensor/op.h"
#include "tensor/strategy.h"

struct custom {
    const choir_custom_op *op;
    const void *arg;
};

/* Asks the op for the gradients of its operands; one that is not needed may be of any shape.
 * Returns false, with the scope failed, if there is no backward or a shape is wrong. */
static bool gradients_of(
    const choir__tape_entry *r, choir_tensor *gy, choir_scope *scope, choir_tensor **grads)
{
    const struct custom *c = r->attrs;
    const char *name = c->op->name ? c->op->name : "custom";
    if (!c->op->backward) {
        choir__poison(scope, CHOIR_ERR_UNSUPPORTED,
            "%s: expected an op with a backward function, got none", name);
        return false;
    }
    c->op->backward(r->in, r->count, r->out, gy, grads, c->arg);
    for (int i = 0; i < r->count; i++) {
        if (!grads[i] || !choir__wanted(r, i))
            continue;
        if (grads[i]->poisoned)
            return false;
        if (!choir__same_shape(grads[i]->shape, r->in[i]->shape)) {
            choir__poison(scope, CHOIR_ERR_SHAPE,
                "%s: backward made a gradient %s for input %d, which is %s", name,
                choir__shape_text(grads[i]->shape), i, choir__shape_text(r->in[i]->shape));
            return false;
        }
    }
    return true;
}

static void custom_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *grads[CHOIR__MAX_IN] = {NULL};
    if (!gradients_of(r, gy, sink->scope, grads))
        return;
    for (int i = 0; i < r->count; i++)
        if (grads[i] && choir__wanted(r, i))
            sink->give(sink, r, i, grads[i]);
}

static void custom_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    if (!gradients_of(r, gy, gy->scope, gx))
        memset(gx, 0, CHOIR__MAX_IN * sizeof *gx);
}

static const choir__op custom_op = {.name = "custom",
    .any_dtype = true,
    .backward = custom_backward,
    .derivative = custom_derivative,
    .reads_in = (1u << CHOIR__MAX_IN) - 1};

choir_tensor *choir_custom(
    const choir_custom_op *op, choir_tensor *const *inputs, int count, const void *arg)
{
    choir_tensor *poisoned, *in[CHOIR__MAX_IN];
    if (!op || !inputs || count < 1)
        return choir__poison_missing(NULL, __func__, op ? "inputs" : "op");
    if (count > CHOIR__MAX_IN) {
        choir_scope *joined = choir__join(inputs, count);
        return choir__poison(joined ? joined : inputs[0]->scope, CHOIR_ERR_ARGUMENT,
            "%s: %d inputs; at most %d", op->name, count, CHOIR__MAX_IN);
    }
    memcpy(in, inputs, (size_t)count * sizeof *in);
    /* for messages; the op itself judges the operands after the first */
    const char *name = op->name ? op->name : "custom";
    const choir__op named = {.name = name, .any_dtype = true, .optional = ~1u};
    choir_scope *scope = choir__begin(&named, in, count, &poisoned);
    if (!scope)
        return poisoned;
    if (!op->forward)
        return choir__poison(
            scope, CHOIR_ERR_ARGUMENT, "%s: expected an op with a forward function", name);
    bool grad = choir_set_grad(scope, false);
    bool paused = choir__placement_pause(scope, true); /* the whole op is placed */
    choir_tensor *y = op->forward(in, count, arg);
    choir__placement_pause(scope, paused);
    choir_set_grad(scope, grad);
    if (!y)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected a result of the op's forward, got NULL", name);
    if (y->poisoned)
        return y;
    y = choir__tensor_alias(scope, y); /* the result may be an input itself */
    choir__tape_entry *r = choir__tape_entry_new(&custom_op, y, in, count);
    if (r) {
        choir__tape_entry_attrs(r, &(struct custom){op, arg}, sizeof(struct custom));
        r->saved[0] = y;
    }
    return y;
}
