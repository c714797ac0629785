/* Two models side by side, whose outputs are added: each cuts its own sequences. */
#ifndef CHOIR_TESTS_TOWERS_H
#define CHOIR_TESTS_TOWERS_H

#include <choir/nn.h>

typedef struct towers {
    choir_module base;
    choir_module *first, *second;
} towers;

static inline choir_tensor *towers_forward(
    choir_module *self, choir_tensor *const *in, int count)
{
    towers *t = (towers *)self;
    choir_tensor *y = choir_forward_n(t->first, in, count);
    return choir_add(y, choir_forward_n(t->second, in, count));
}

static const choir_module_class towers_class = {"towers", sizeof(towers), towers_forward, 0};

static inline choir_module *towers_new(
    choir_scope *run, choir_module *first, choir_module *second)
{
    towers *t = choir_module_new(run, &towers_class);
    choir_module_child(&t->base, "first", &t->first, first);
    choir_module_child(&t->base, "second", &t->second, second);
    return &t->base;
}

#endif
