/* Backward, as programs call it. The walk is in walk.c; sink.c stores the gradients. */
#include <choir/autograd.h>

#include "autograd/walk.h"
#include "base/floats.h"
#include "tensor/handle.h"

choir_status choir_backward(choir_tensor *loss)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = choir__use_tensor(loss, __func__);
    if (use != CHOIR_OK)
        return use;
    return choir__backward_from(loss, NULL, loss->count);
}

choir_status choir_zero_grad(choir_tensor *t)
{
    choir_status use = choir__use_tensor(t, __func__);
    if (use != CHOIR_OK)
        return use;
    if (t->param)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_zero_grad: %s is a parameter, whose gradient choir_optim_zero drops",
            t->param->name);
    if (t->producer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_zero_grad: expected a leaf, got the result of %s", t->producer->op->name);
    if (t->grad)
        choir__tensor_release(t->grad);
    t->grad = NULL;
    return CHOIR_OK;
}

choir_tensor *choir_grad(choir_tensor *t)
{
    t = choir__sound(t, __func__);
    choir__param *p = t->param;
    if (!p)
        return t->grad;
    if (!p->book || choir__book_finish(p->book) != CHOIR_OK)
        return NULL;
    void *data = choir__param_grad_data(p);
    if (!data)
        return NULL;
    if (!p->grad || !p->grad->storage || choir__data(p->grad) != data) {
        p->grad = choir__tensor_wrap(
            t->scope, p->book->device, p->book->dtype, p->local->shape, data);
        for (int i = 0; i < t->shape.ndim; i++)
            p->grad->stride[i] = p->local->stride[i];
    }
    return p->grad;
}
