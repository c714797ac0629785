/* Modules and their registration: parameters, buffers and children become entries by name and
 * field, in the order in which a constructor adds them. module_tree.c names and walks the tree,
 * module_forward.c computes. */
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/handle.h"

/* --- modules that cannot be used --- */

static choir_tensor *forward_lost(choir_module *self, choir_tensor *const *in, int count)
{
    (void)in, (void)count;
    choir_tensor *t = choir__tensor_bare(self->run, CHOIR_F32, CHOIR_SCALAR);
    t->poisoned = true;
    return t;
}

static const choir_module_class lost_class = {"lost", sizeof(choir_module), forward_lost, 0};

choir_module *choir__module_for(choir_scope *run, choir_module *module, const char *function)
{
    choir_status status = choir__use_module(module, function);
    if (status == CHOIR_OK && run && run->run != module->run->run)
        status = choir__error(CHOIR_ERR_SCOPE,
            "%s: expected a module of this run, got '%s' of another run", function,
            module->type->name);
    if (status == CHOIR_OK)
        return module;
    if (!run || run->closed)
        run = choir__lost_run(status);
    else
        choir__scope_fail(run, status);
    choir_module **lost = &choir__run_of(run)->lost_module;
    if (!*lost)
        *lost = choir_module_new(run, &lost_class);
    return *lost;
}

void *choir_module_new(choir_scope *run, const choir_module_class *type)
{
    run = choir__open_scope(run, __func__);
    size_t size = choir__max(type ? type->size : 0, sizeof(choir_module));
    if (!type) {
        choir__poison_missing(run, __func__, "class");
        type = &lost_class;
    } else if (type->size < sizeof(choir_module) || !type->name) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "module_new: expected a class with a name and the size of a struct that begins with "
            "choir_module, got '%s' of %zu bytes",
            type->name ? type->name : "", type->size);
        type = &lost_class;
    }
    choir_module *m = choir__arena_get(&run->arena, size);
    m->type = type;
    m->run = run;
    m->training = true;
    m->name = m->path = "";
    m->inside = choir__arena_get(&run->arena, sizeof *m->inside);
    return m;
}

bool choir_module_collective(const choir_module *module)
{
    if (choir__use_module(module, __func__) != CHOIR_OK)
        return false;
    return module->inside->strategy && module->inside->strategy->collective;
}

/* Returns false, with an error, if there is no module, no name or no field for an entry, or if
 * the name is another entry's: files keep entries by name. */
static bool can_add(
    const choir_module *self, const char *name, const void *field, const char *function)
{
    if (choir__use_module(self, function) != CHOIR_OK || choir__lacks(name, function, "name") ||
        choir__lacks(field, function, "field"))
        return false;
    for (const choir__module_entry *e = self->inside->entries; e; e = e->next)
        if (!strcmp(e->name, name)) {
            choir__poison(self->run, CHOIR_ERR_ARGUMENT,
                "module: '%s' already has an entry '%s': each name stands for one",
                self->type->name, name);
            return false;
        }
    return true;
}

static choir__module_entry *add_entry(
    choir_module *self, choir__entry_kind kind, const char *name, void *field)
{
    choir__module_entry *e = choir__arena_get(&self->run->arena, sizeof *e);
    e->kind = kind;
    e->name = choir__arena_strdup(&self->run->arena, name);
    e->field = (size_t)((char *)field - (char *)self);
    choir__module_entry **link = &self->inside->entries;
    while (*link)
        link = &(*link)->next;
    return *link = e;
}

void choir_module_child(
    choir_module *self, const char *name, choir_module **field, choir_module *child)
{
    if (!can_add(self, name, field, __func__))
        return;
    child = choir__module_for(self->run, child, __func__);
    for (const choir_module *m = self; m; m = m->parent)
        if (m == child) {
            choir__poison(self->run, CHOIR_ERR_ARGUMENT,
                "module: '%s' cannot be a part of itself, as '%s'", child->type->name, name);
            *field = choir__module_for(self->run, NULL, __func__);
            return;
        }
    if (child->parent)
        choir__poison(self->run, CHOIR_ERR_ARGUMENT,
            "module: '%s' is already a part of another, as '%s'; choir_module_tie shares weights",
            name, child->name);
    choir__module_entry *e = add_entry(self, CHOIR__CHILD, name, field);
    e->child = *field = child;
    child->parent = self;
    child->name = e->name;
}

choir_init choir_init_constant(double value)
{
    return (choir_init){CHOIR_INIT_CONSTANT, value, 0};
}

choir_init choir_init_uniform(double low, double high)
{
    return (choir_init){CHOIR_INIT_UNIFORM, low, high};
}

choir_init choir_init_normal(double mean, double deviation)
{
    return (choir_init){CHOIR_INIT_NORMAL, mean, deviation};
}

void choir_module_param(choir_module *self, const char *name, choir_tensor **field,
    choir_shape shape, choir_init init)
{
    if (!can_add(self, name, field, __func__))
        return;
    choir_scope *run = self->run;
    if (!choir__shape_fits(shape)) {
        char *what = choir__format("parameter '%s': ", name);
        *field = choir__bad_shape(run, what, shape);
        free(what);
        return;
    }
    if (!choir__init_resolve(run, name, shape, &init))
        init = choir_init_constant(0);
    choir__module_entry *e = add_entry(self, CHOIR__PARAM, name, field);
    choir_tensor *t = choir__tensor_bare(run, CHOIR_F32, shape); /* allocated with its values */
    choir__param *p = choir__arena_get(&run->arena, sizeof *p);
    t->device = run->device;
    e->tensor = *field = t;
    t->param = p;
    t->requires_grad = true;
    p->tensor = p->local = t;
    p->whole = shape;
    p->name = "";
    p->padding = -1;
    p->init_kind = (int)init.kind;
    p->init_a = init.a;
    p->init_b = init.b;
    p->next = choir__run_of(run)->params;
    choir__run_of(run)->params = p;
}

/* Returns t, or a poisoned tensor of the run if t does not live as long as the module. */
static choir_tensor *lasting(
    choir_module *self, const char *name, choir_tensor *t, const char *function)
{
    choir_tensor *sound = choir__sound(t, function);
    if (sound != t) { /* the tensor is missing, or its scope is closed */
        char *why = choir__strdup(choir__message());
        t = choir__poison(self->run, sound->scope->status, "%s", why);
        free(why);
    }
    return t->scope == self->run
               ? t
               : choir__poison(self->run, CHOIR_ERR_SCOPE,
                     "%s: expected '%s' to be a tensor of the module's run, got one of a step or "
                     "of another run",
                     function, name);
}

void choir_module_tie(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *param)
{
    if (!can_add(self, name, field, __func__))
        return;
    param = lasting(self, name, param, __func__);
    if (!param->param && !param->poisoned)
        param = choir__poison(self->run, CHOIR_ERR_ARGUMENT,
            "choir_module_tie: expected '%s' to be a parameter of a module, got another tensor",
            name);
    add_entry(self, CHOIR__TIED, name, field)->tensor = param;
    *field = param;
}

void choir_module_buffer(
    choir_module *self, const char *name, choir_tensor **field, choir_shape shape, double value)
{
    if (!can_add(self, name, field, __func__))
        return;
    *field = choir_full(self->run, CHOIR_F32, shape, value);
    choir__storage_holds((*field)->storage, CHOIR__MEMORY_WEIGHTS);
    add_entry(self, CHOIR__BUFFER, name, field)->tensor = *field;
}

void choir_module_counter(choir_module *self, const char *name, choir_tensor **field)
{
    if (!can_add(self, name, field, __func__))
        return;
    *field = choir_full(self->run, CHOIR_I64, CHOIR_SCALAR, 0);
    add_entry(self, CHOIR__BUFFER, name, field)->tensor = *field;
}

void choir_module_constant(
    choir_module *self, const char *name, choir_tensor **field, choir_tensor *t)
{
    if (!can_add(self, name, field, __func__))
        return;
    *field = lasting(self, name, t, __func__);
    add_entry(self, CHOIR__CONSTANT, name, field)->tensor = *field;
}
