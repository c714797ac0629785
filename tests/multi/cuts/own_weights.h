/* A user's own model of tokens, whose weights are used in the ways that layers do not use them:
 * computed from parameters (a function, a norm, a product with a buffer, f64, parts of a packed
 * matrix, dropout), looked up, and spread over tokens (a scale, a gate of heads, a row). */
#ifndef CHOIR_TESTS_OWN_WEIGHTS_H
#define CHOIR_TESTS_OWN_WEIGHTS_H

#include <choir/choir.h>

#include "tensor/tensor.h"

enum { OWN_WIDTH = 16, OWN_HEADS = 4 };

typedef struct own_weights {
    choir_module base, *head;
    choir_tensor *table, *raw, *normed, *gain, *packed, *wide, *scale, *shift, *gate, *row,
        *mask;
} own_weights;

/* (B, T, C) -> (B, T, C): a scale of each channel and head, and a row in place of some tokens.
 */
static inline choir_tensor *own_spread(own_weights *m, choir_tensor *x)
{
    const choir_shape shape = x->shape;
    choir_tensor *heads = choir_reshape(
        x, choir_dims(shape.dim[0], shape.dim[1], OWN_HEADS, OWN_WIDTH / OWN_HEADS));
    heads = choir_mul(choir_transpose(heads, 1, 2), m->gate);
    x = choir_add(choir_mul(choir_reshape(choir_transpose(heads, 1, 2), shape), m->scale),
        choir_expand(choir_in(x->scope, m->shift), shape));
    return choir_where(choir_compare(x, CHOIR_GT, 1.5), m->row, x);
}

static inline choir_tensor *own_forward(choir_module *self, choir_tensor *const *in, int count)
{
    own_weights *m = (own_weights *)self;
    choir_scope *s = in[count - 1]->scope;
    choir_tensor *table = choir_tanh(choir_in(s, m->table));
    choir_tensor *x = own_spread(m, choir_embedding(table, in[0])), *first = x;
    choir_tensor *raw = choir_tanh(choir_in(s, m->raw));
    x = choir_tanh(choir_linear(choir_linear(x, raw, NULL), raw, NULL));
    x = choir_linear(x, choir_rms_norm(choir_in(s, m->normed), m->gain, 1e-5f), NULL);
    x = choir_add(x, first);
    x = choir_linear(
        x, choir_dropout(choir_mul(choir_in(s, m->raw), m->mask), 0.25f, "drop"), NULL);
    choir_tensor *packed = choir_in(s, m->packed);
    x = choir_mul(choir_linear(x, choir_narrow(packed, 0, 0, OWN_WIDTH), NULL),
        choir_linear(x, choir_narrow(packed, 0, OWN_WIDTH, OWN_WIDTH), NULL));
    choir_tensor *wide = choir_cast(choir_in(s, m->wide), CHOIR_F64);
    choir_tensor *shift = choir_cast(choir_in(s, m->shift), CHOIR_F64);
    x = choir_linear(choir_cast(x, CHOIR_F64), wide, shift);
    x = choir_rms_norm(x, choir_cast(choir_in(s, m->gain), CHOIR_F64), 1e-5f);
    x = choir_cast(x, CHOIR_F32);
    return choir_forward(m->head, choir_add(x, first));
}

static const choir_module_class own_weights_class = {
    "own_weights", sizeof(own_weights), own_forward, 1};

static inline choir_module *own_weights_new(choir_scope *run, int64_t vocabulary)
{
    own_weights *m = choir_module_new(run, &own_weights_class);
    const choir_shape square = choir_dims(OWN_WIDTH, OWN_WIDTH), line = choir_dims(OWN_WIDTH);
    const choir_init spread = choir_init_normal(0, 0.5);
    choir_module *self = &m->base;
    choir_module_param(self, "table", &m->table, choir_dims(vocabulary, OWN_WIDTH), spread);
    choir_module_param(self, "raw", &m->raw, square, spread);
    choir_module_param(self, "normed", &m->normed, square, spread);
    choir_module_param(self, "gain", &m->gain, line, choir_init_constant(1));
    choir_module_param(
        self, "packed", &m->packed, choir_dims(2 * OWN_WIDTH, OWN_WIDTH), spread);
    choir_module_param(self, "wide", &m->wide, square, spread);
    choir_module_param(self, "scale", &m->scale, line, choir_init_constant(1));
    choir_module_param(self, "shift", &m->shift, line, choir_init_constant(0.5));
    choir_module_param(self, "gate", &m->gate, choir_dims(OWN_HEADS, 1, 1), spread);
    choir_module_param(self, "row", &m->row, line, spread);
    choir_module_buffer(self, "mask", &m->mask, square, 0.75);
    choir_module_child(self, "head", &m->head, choir_nn_linear(run, OWN_WIDTH, vocabulary));
    return self;
}

#endif
