/* SwiGLU: silu(gate) * up, with two tensors or with the halves of one. */
#include "tensor/autocast.h"
#include "tensor/launch.h"

/* Rows of `cols` elements, `row` elements apart. */
struct operand {
    char *p;
    int64_t row;
};

/* Returns the gate (which 0) or the up operand (1). up NULL: they are the halves of gate's
 * rows. */
static struct operand operand_of(
    const choir_tensor *gate, const choir_tensor *up, int which, int64_t cols)
{
    const choir_tensor *t = which && up ? up : gate;
    if (!t)
        return (struct operand){NULL, 0};
    size_t skip = which && !up ? (size_t)cols * choir_dtype_size(t->dtype) : 0;
    return (struct operand){(char *)choir__data(t) + skip, up ? cols : 2 * cols};
}

static void swiglu_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *gate = r->in[0], *up = r->count > 1 ? r->in[1] : NULL;
    int64_t cols = choir__cols(r->out);
    choir_tensor *g[2] = {sink->dest(sink, r, 0), up ? sink->dest(sink, r, 1) : NULL};
    if (!g[0] && !g[1])
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    struct operand a = operand_of(gate, up, 0, cols), b = operand_of(gate, up, 1, cols);
    choir__k_swiglu_backward args = {.a = a.p,
        .b = b.p,
        .gy = choir__data(gy),
        .rows = choir__rows(gy),
        .cols = cols,
        .a_row = a.row,
        .b_row = b.row,
        .ga_row = a.row,
        .gb_row = b.row,
        .dtype = gy->dtype};
    args.ga = g[0] ? operand_of(g[0], up, 0, cols).p : NULL;
    args.gb = up ? (g[1] ? choir__data(g[1]) : NULL) : operand_of(g[0], NULL, 1, cols).p;
    choir__launch(choir__device_of(gy), gy->dtype, swiglu_backward, &args);
    for (int i = 0; i < r->count; i++)
        if (g[i])
            sink->give(sink, r, i, g[i]);
}

static void swiglu_again(choir__tape_entry *r)
{
    const choir_tensor *y = r->out, *gate = r->in[0], *up = r->count > 1 ? r->in[1] : NULL;
    int64_t cols = choir__cols(y);
    struct operand a = operand_of(gate, up, 0, cols), b = operand_of(gate, up, 1, cols);
    choir__k_swiglu args = {.a = a.p,
        .b = b.p,
        .y = choir__data(y),
        .rows = choir__rows(y),
        .cols = cols,
        .a_row = a.row,
        .b_row = b.row,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, swiglu, &args);
}

static const choir__op swiglu_op = {.name = "swiglu",
    .by_token = true,
    .cast = CHOIR__CAST_WIDEST,
    .half_native = CHOIR__ALL_IN,
    .backward = swiglu_backward,
    .recompute = swiglu_again,
    .cheap = true,
    .reads_in = 3};

choir_tensor *choir_swiglu(choir_tensor *gate, choir_tensor *up)
{
    choir_tensor *poisoned, *in[2] = {choir_contiguous(gate), up ? choir_contiguous(up) : NULL};
    int count = up ? 2 : 1;
    choir_scope *scope = choir__begin(&swiglu_op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = in[0]->shape;
    bool fits = up ? choir__same_shape(shape, in[1]->shape) && in[0]->dtype == in[1]->dtype
                   : shape.ndim > 0 && shape.dim[shape.ndim - 1] % 2 == 0;
    if (!fits || !choir__is_float(in[0]->dtype))
        return choir__shape_error(swiglu_op.name, scope, in, count,
            "expected two floating tensors of one shape and dtype, or one (..., 2C)");
    if (!up)
        shape.dim[shape.ndim - 1] /= 2;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, shape);
    return choir__computed(&swiglu_op, y, in, count, (choir__keeps){0});
}
