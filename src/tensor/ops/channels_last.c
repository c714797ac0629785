/* Images are logically (N, C, ...) and have their channels last in memory. */
#include "tensor/launch.h"

void choir__set_channels_last(choir_tensor *t)
{
    if (t->shape.ndim < 2)
        return;
    int64_t stride = t->shape.dim[1];
    t->stride[1] = 1;
    for (int i = t->shape.ndim - 1; i >= 2; i--) {
        t->stride[i] = stride;
        stride *= t->shape.dim[i];
    }
    t->stride[0] = stride;
}

choir_tensor *choir__channels_last(choir_scope *scope, choir_tensor *x)
{
    choir_tensor like = *x;
    choir__set_channels_last(&like);
    if (choir__same_layout(&like, x))
        return x;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    choir__set_channels_last(y);
    if (!y->poisoned)
        choir__launch_copy(y, x);
    return y;
}
