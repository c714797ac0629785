/* The derivatives of ops by the ops' names. Ops do not know this table, because derivatives are
 * made of ops. Powers have one name with and without a tensor as the exponent. */
#include <string.h>

#include "tensor/ops/derive/derive.h"

static const struct {
    const char *op;
    choir__derive_fn *derivative;
} derivatives[] = {
    {"neg", choir__derive_unary},
    {"exp", choir__derive_unary},
    {"log", choir__derive_unary},
    {"sqrt", choir__derive_unary},
    {"tanh", choir__derive_unary},
    {"sigmoid", choir__derive_unary},
    {"relu", choir__derive_unary},
    {"gelu", choir__derive_unary},
    {"gelu_tanh", choir__derive_unary},
    {"silu", choir__derive_unary},
    {"square", choir__derive_unary},
    {"abs", choir__derive_unary},
    {"sin", choir__derive_unary},
    {"cos", choir__derive_unary},
    {"sign", choir__derive_unary},
    {"floor", choir__derive_unary},
    {"ceil", choir__derive_unary},
    {"round", choir__derive_unary},
    {"log1p", choir__derive_unary},
    {"expm1", choir__derive_unary},
    {"erf", choir__derive_unary},
    {"affine", choir__derive_unary},
    {"clamp", choir__derive_unary},
    {"leaky_relu", choir__derive_unary},
    {"elu", choir__derive_unary},
    {"softplus", choir__derive_unary},
    {"add", choir__derive_add},
    {"sub", choir__derive_sub},
    {"mul", choir__derive_mul},
    {"div", choir__derive_div},
    {"maximum", choir__derive_maximum},
    {"minimum", choir__derive_minimum},
    {"sum", choir__derive_sum},
    {"cumsum", choir__derive_cumsum},
    {"matmul", choir__derive_matmul},
    {"linear", choir__derive_linear},
    {"softmax", choir__derive_softmax},
    {"log_softmax", choir__derive_log_softmax},
    {"reshape", choir__derive_reshape},
    {"permute", choir__derive_permute},
    {"expand", choir__derive_expand},
    {"cast", choir__derive_cast},
    {"to", choir__derive_to},
    {"where", choir__derive_where},
    {"contiguous", choir__derive_cast},
    {"in", choir__derive_same},
    {"masked_fill", choir__derive_where},
    {"conv2d", choir__derive_conv},
    {"conv_transpose2d", choir__derive_conv_transpose},
};

choir__derive_fn *choir__derivative_of(const choir__tape_entry *r)
{
    if (r->op->derivative)
        return r->op->derivative;
    if (!strcmp(r->op->name, "pow"))
        return r->count == 1 ? choir__derive_unary : choir__derive_power;
    for (size_t i = 0; i < CHOIR_COUNT(derivatives); i++)
        if (!strcmp(r->op->name, derivatives[i].op))
            return derivatives[i].derivative;
    return NULL;
}
