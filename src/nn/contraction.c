/* Sums that a module says may be cut into slices: the heads of its attention, and contractions
 * between two of its linear layers. tensor_parallel/default_plan.c reads them. */
#include "nn/module.h"

void choir__module_heads(choir_module *m, choir__heads_of heads)
{
    choir__heads_of *kept = choir__arena_get(&m->run->arena, sizeof *kept);
    *kept = heads;
    m->inside->heads = kept;
}

/* Returns whether the outputs of `up` are `matrices` times the inputs of `down`, or notes why
 * they are not. */
static bool fit(
    choir_module *self, const choir_module *up, int matrices, const choir_module *down)
{
    choir_tensor *from, *to, *bias;
    bool from_in_out, to_in_out;
    if (!choir__linear_layer(up, &from, &bias, &from_in_out) ||
        !choir__linear_layer(down, &to, &bias, &to_in_out)) {
        choir__poison(self->run, CHOIR_ERR_ARGUMENT,
            "module_contraction: expected two linear layers, got '%s' and '%s'", up->type->name,
            down->type->name);
        return false;
    }
    int64_t out = from->shape.dim[from_in_out], in = to->shape.dim[!to_in_out];
    if (matrices >= 0 && out == in * choir__max(matrices, 1)) /* 0: one */
        return true;
    choir__poison(self->run, CHOIR_ERR_ARGUMENT,
        "module_contraction: a layer has %lld outputs in %d matrices, and the layer after it %lld "
        "inputs; expected as many in each matrix",
        (long long)out, matrices, (long long)in);
    return false;
}

void choir_module_contraction(
    choir_module *self, choir_module *up, int matrices, choir_module *down)
{
    self = choir__module_for(NULL, self, __func__);
    up = choir__module_for(self->run, up, __func__);
    down = choir__module_for(self->run, down, __func__);
    if (choir__scope_status(self->run) != CHOIR_OK || !fit(self, up, matrices, down))
        return;
    choir__contraction *c = choir__arena_get(&self->run->arena, sizeof *c),
                       **end = &self->inside->contractions;
    *c = (choir__contraction){up, down, choir__max(matrices, 1), NULL};
    while (*end)
        end = &(*end)->next;
    *end = c;
}
