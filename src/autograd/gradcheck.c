/* Gradient check: compares gradients with central differences, in f64, entry by entry:
 *
 *     df/dx_i  =~  (f(x + h e_i) - f(x - h e_i)) / 2h,   h = 1e-5 max(1, |x_i|) */
#include <choir/autograd.h>

#include <math.h>
#include <stdlib.h>

#include "tensor/op.h"

/* Returns f at fresh handles of the inputs' memory. */
static double value_at(choir_check_fn *f, choir_tensor *const *inputs, int count, void *arg)
{
    choir_scope *s = choir_micro_open(inputs[0]->scope, inputs[0]->scope->micro);
    choir_tensor *in[CHOIR__MAX_IN];
    choir_set_grad(s, false);
    for (int i = 0; i < count; i++)
        in[i] = choir__tensor_alias(s, inputs[i]);
    double value = choir_item(f(in, count, arg));
    choir__scope_end(s);
    return value;
}

static choir_status check_entry(choir_check_fn *f, choir_tensor *const *inputs, int count,
    void *arg, double tolerance, int which, double *values, const double *grads, int64_t i)
{
    choir_tensor *x = inputs[which];
    size_t bytes = (size_t)x->count * sizeof *values;
    double at = values[i], h = 1e-5 * fmax(1, fabs(at));
    uint32_t version = x->storage->version;
    values[i] = at + h;
    (void)!choir_write(x, values, bytes);
    double above = value_at(f, inputs, count, arg);
    values[i] = at - h;
    (void)!choir_write(x, values, bytes);
    double below = value_at(f, inputs, count, arg);
    values[i] = at;
    (void)!choir_write(x, values, bytes);
    x->storage->version = version;
    double numeric = (above - below) / (2 * h);
    if (fabs(numeric - grads[i]) <= tolerance * fmax(1, fabs(numeric)))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "gradcheck: input %d, entry %lld: backward says %.9g, differences %.9g", which,
        (long long)i, grads[i], numeric);
}

static choir_status check_input(choir_check_fn *f, choir_tensor *const *inputs, int count,
    void *arg, double tolerance, int which)
{
    choir_tensor *x = inputs[which], *g = choir_grad(x);
    size_t bytes = (size_t)x->count * sizeof(double);
    double *values = choir__alloc(bytes + 1), *grads = choir__calloc((size_t)x->count + 1, 8);
    choir_status status = choir_read(x, values, bytes);
    if (status == CHOIR_OK && g)
        status = choir_read(g, grads, bytes);
    for (int64_t i = 0; i < x->count && status == CHOIR_OK; i++)
        status = check_entry(f, inputs, count, arg, tolerance, which, values, grads, i);
    free(values);
    free(grads);
    return status;
}

choir_status choir_gradcheck(
    choir_check_fn *f, choir_tensor *const *inputs, int count, void *arg, double tolerance)
{
    if (!f)
        return choir__missing(__func__, "function");
    if (!inputs)
        return choir__missing(__func__, "inputs");
    if (count < 1 || count > CHOIR__MAX_IN)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "gradcheck: %d inputs; from 1 to %d", count, CHOIR__MAX_IN);
    for (int i = 0; i < count; i++)
        inputs[i]->grad = NULL; /* otherwise an earlier backward's gradient would be added */
    choir_status status = choir_backward(f(inputs, count, arg));
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        if (!inputs[i]->requires_grad)
            continue;
        if (inputs[i]->dtype != CHOIR_F64)
            return choir__error(CHOIR_ERR_DTYPE, "gradcheck: input %d is %s, not f64", i,
                choir_dtype_name(inputs[i]->dtype));
        status = check_input(f, inputs, count, arg, tolerance, i);
    }
    return status;
}
