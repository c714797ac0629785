/* The tree of modules as a whole: names, initial values, and walks over its parts.
 *
 * Children are created before their parents, so names are known only when the tree is complete.
 * The first use of a root names everything in it and draws the initial values. */
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/run.h"

/* --- names, and initial values (draw.c) --- */

static char *join(choir_scope *run, const char *path, const char *name)
{
    if (!*path || !*name)
        return choir__arena_strdup(&run->arena, *path ? path : name);
    char *text = choir__format("%s.%s", path, name);
    char *kept = choir__arena_strdup(&run->arena, text);
    free(text);
    return kept;
}

/* of: class of the model, for messages; a strategy's wrapper is not a model. */
static void name_tree(choir_module *m, const char *path, const char *of)
{
    of = *path ? of : m->type->name;
    m->path = path;
    m->inside->ready = true;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            name_tree(e->child, join(m->run, path, e->name), of);
        choir__param *p = e->kind == CHOIR__PARAM ? e->tensor->param : NULL;
        if (!p || (p->initialised && *p->name)) /* a wrapper around a tree in use keeps names */
            continue;
        p->name = join(m->run, path, e->name);
        p->of = of;
    }
}

void choir__module_name(choir_module *m)
{
    while (m->parent)
        m = m->parent;
    if (!m->inside->ready)
        name_tree(m, "", "");
}

bool choir__param_claim(choir__param *p)
{
    p->initialised = true;
    if (!choir__tensor_allocate(p->tensor, p->tensor->device))
        return false;
    choir__storage_holds(p->tensor->storage, CHOIR__MEMORY_WEIGHTS);
    choir__storage_tell(p->tensor->storage, CHOIR__FOR_WORK, p->name);
    return true;
}

static void draw_tree(choir_module *m)
{
    m->inside->drawn = true;
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            draw_tree(e->child);
        choir__param *p = e->kind == CHOIR__PARAM ? e->tensor->param : NULL;
        if (p && !p->initialised && choir__param_claim(p))
            choir__param_draw(p, p->tensor, 0);
    }
}

void choir__module_ready(choir_module *m)
{
    CHOIR__DEFAULT_FLOATS;
    while (m->parent)
        m = m->parent;
    choir__module_name(m);
    if (!m->inside->drawn)
        draw_tree(m);
}

void choir__module_grown(choir_module *m)
{
    for (; m; m = m->parent)
        m->inside->ready = m->inside->drawn = false;
}

/* --- walks --- */

void choir_module_train(choir_module *m, bool training)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    if (m->training != training) {
        m->training = training;
        choir__step_turned(m->run, &m->training);
    }
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            choir_module_train(e->child, training);
}

void choir__param_freeze(choir_tensor *t, bool frozen)
{
    if (t->requires_grad == !frozen)
        return;
    if (t->held && !frozen) {
        choir__poison(t->scope, CHOIR_ERR_STATE,
            "parameter '%s' is held in fewer bits (choir_module_hold), and stays frozen",
            t->param->name);
        return;
    }
    t->requires_grad = !frozen;
    choir__step_turned(t->scope, &t->requires_grad);
}

void choir_module_freeze(choir_module *m, bool frozen)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            choir_module_freeze(e->child, frozen);
        if (e->kind == CHOIR__PARAM)
            choir__param_freeze(e->tensor, frozen);
    }
}

static void visit(choir_module *m, bool buffers, choir_visit_fn *fn, void *arg)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD) {
            visit(e->child, buffers, fn, arg);
        } else if (e->kind == CHOIR__PARAM) {
            fn(e->tensor->param->name, e->tensor, arg);
        } else if (e->kind == CHOIR__BUFFER && buffers) {
            char *name =
                *m->path ? choir__format("%s.%s", m->path, e->name) : choir__strdup(e->name);
            fn(name, e->tensor, arg);
            free(name);
        }
    }
}

void choir_module_visit(choir_module *m, bool buffers, choir_visit_fn *fn, void *arg)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    if (choir__lacks(fn, __func__, "function"))
        return;
    choir__module_ready(m);
    visit(m, buffers, fn, arg);
}

void choir__module_visit_named(choir_module *m, bool buffers, choir_visit_fn *fn, void *arg)
{
    choir__module_name(m);
    visit(m, buffers, fn, arg);
}

static void call_each(choir_module *m, choir_module_fn *fn, void *arg)
{
    fn(m, arg);
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            call_each(e->child, fn, arg);
}

void choir_module_each(choir_module *m, choir_module_fn *fn, void *arg)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    choir__module_name(m);
    if (fn)
        call_each(m, fn, arg);
}

void choir__module_visit_ties(choir_module *m, choir_visit_fn *fn, void *arg)
{
    choir__module_name(m);
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            choir__module_visit_ties(e->child, fn, arg);
        if (e->kind == CHOIR__TIED)
            fn(join(m->run, m->path, e->name), e->tensor, arg);
    }
}

struct search {
    const char *name;
    choir_tensor *found;
};

static void match(const char *name, choir_tensor *t, void *arg)
{
    struct search *s = arg;
    if (!strcmp(name, s->name))
        s->found = t;
}

choir_tensor *choir_module_find(choir_module *m, const char *name)
{
    m = choir__module_for(NULL, m, __func__);
    if (choir__lacks(name, __func__, "name"))
        return NULL;
    struct search s = {name, NULL};
    choir_module_visit(m, true, match, &s);
    return s.found;
}

static void add_count(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    *(int64_t *)arg +=
        t->requires_grad ? choir__shape_count(t->param->whole) : 0; /* over all ranks */
}

int64_t choir_module_param_count(choir_module *m)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return 0;
    int64_t count = 0;
    choir__module_visit_named(m, false, add_count, &count);
    return count;
}

struct list {
    choir__param **params;
    int count;
};

static void collect(const char *name, choir_tensor *t, void *arg)
{
    struct list *l = arg;
    (void)name;
    CHOIR__GROW(l->params, l->count);
    l->params[l->count++] = t->param;
}

choir__param **choir__module_named_params(choir_module *m, int *count)
{
    struct list l = {0};
    choir__module_visit_named(m, false, collect, &l);
    *count = l.count;
    return l.params;
}

int64_t choir__module_slices(choir_module *m)
{
    int64_t slices = 1;
    int count;
    choir__param **all = choir__module_named_params(m, &count);
    for (int i = 0; i < count; i++)
        if (all[i]->tensor->split)
            slices = all[i]->tensor->split->cut.leaves;
    free(all);
    return slices;
}

choir__param **choir__module_params(choir_module *m, int *count)
{
    choir__module_ready(m);
    return choir__module_named_params(m, count);
}
