/* Properties of tensors, for programs; an unusable tensor has a poisoned tensor's properties.
 */
#include "tensor/handle.h"

/* Returns t, or the poisoned tensor that stands for it. */
static const choir_tensor *valid(const choir_tensor *t, const char *function)
{
    return choir__sound((choir_tensor *)t, function);
}

choir_shape choir_tensor_shape(const choir_tensor *t)
{
    return valid(t, __func__)->shape;
}

int choir_tensor_ndim(const choir_tensor *t)
{
    return valid(t, __func__)->shape.ndim;
}

int64_t choir_tensor_size(const choir_tensor *t, int dim)
{
    t = valid(t, __func__);
    if (dim < 0)
        dim += t->shape.ndim;
    return dim >= 0 && dim < t->shape.ndim ? t->shape.dim[dim] : 0;
}

int64_t choir_tensor_count(const choir_tensor *t)
{
    return valid(t, __func__)->count;
}

choir_dtype choir_tensor_dtype(const choir_tensor *t)
{
    return valid(t, __func__)->dtype;
}

choir_device *choir_tensor_device(const choir_tensor *t)
{
    return choir__device_of(valid(t, __func__));
}

choir_scope *choir_tensor_scope(const choir_tensor *t)
{
    return valid(t, __func__)->scope;
}
