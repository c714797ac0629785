/* The tree of modules as a whole: names, initial values, and walks over its parts.
 *
 * Children are created before their parents, so names are known only when the tree is complete.
 * The first use of a root names everything in it and draws the initial values. */
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "base/rng.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

/* --- names and initial values --- */

static char *join(choir_scope *run, const char *path, const char *name)
{
    if (!*path || !*name)
        return choir__arena_strdup(&run->arena, *path ? path : name);
    char *text = choir__format("%s.%s", path, name);
    char *kept = choir__arena_strdup(&run->arena, text);
    free(text);
    return kept;
}

enum { DRAWN_TOGETHER = 4 }; /* drawing starts at multiples of this number */

/* Fills the row of padding with zeros, as far as it is among y's entries. */
static void clear_padding(const choir__param *p, choir_tensor *y, int64_t first)
{
    int64_t width = choir__param_values(p).dim[1], last = first + y->count;
    int64_t from = choir__max(first, p->padding * width);
    int64_t to = choir__min(last, (p->padding + 1) * width);
    if (from >= to)
        return;
    choir_tensor row = *y;
    row.shape = choir_dims(to - from);
    row.stride[0] = 1;
    row.offset += from - first;
    row.count = to - from;
    choir__launch_fill(&row, 0);
}

static void draw_values(const choir__param *p, choir_tensor *y, int64_t first)
{
    choir_scope *run = p->tensor->scope;
    int64_t before = first % DRAWN_TOGETHER;
    if (y->count == 0)
        return;
    if (p->init_kind == CHOIR_INIT_ORTHOGONAL) {
        choir__draw_orthogonal(p, y, first);
        return;
    }
    if (p->init_kind == CHOIR_INIT_CONSTANT) {
        choir__launch_fill(y, p->init_a);
        return;
    }
    choir__k_random args = {.y = choir__data(y),
        .n = before + y->count,
        .first = (uint64_t)(first - before),
        .key = choir__rng_key(run->seed, p->name),
        .a = p->init_a,
        .b = p->init_b,
        .normal = p->init_kind == CHOIR_INIT_NORMAL,
        .dtype = CHOIR_F32};
    choir__storage *more = NULL;
    if (before) { /* drawn into a second buffer, from the multiple before `first` */
        more = choir__storage_new(choir__device_of(y), (size_t)args.n * sizeof(float));
        if (!more) {
            choir__poison(run, CHOIR_ERR_MEMORY, "out of memory for the values of %s", p->name);
            return;
        }
        args.y = more->data;
    }
    choir__launch(choir__device_of(y), CHOIR_F32, random, &args);
    if (before)
        choir__launch_bytes(choir__device_of(y), choir__data(y), (float *)more->data + before,
            (size_t)y->count * sizeof(float));
    choir__storage_unref(more);
}

void choir__param_draw(const choir__param *p, choir_tensor *y, int64_t first)
{
    if (p->tensor->held && y->dtype == p->tensor->dtype) {
        choir__held_draw(p, y, first);
        return;
    }
    draw_values(p, y, first);
    if (p->padding >= 0)
        clear_padding(p, y, first);
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
    m->training = training;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            choir_module_train(e->child, training);
}

bool choir__can_thaw(const choir_tensor *t)
{
    if (t->held)
        choir__poison(t->scope, CHOIR_ERR_STATE,
            "parameter '%s' is held in fewer bits (choir_module_hold), and stays frozen",
            t->param->name);
    return !t->held;
}

void choir_module_freeze(choir_module *m, bool frozen)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            choir_module_freeze(e->child, frozen);
        if (e->kind == CHOIR__PARAM && (frozen || choir__can_thaw(e->tensor)))
            e->tensor->requires_grad = !frozen;
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
    l->params = choir__realloc(l->params, (size_t)(l->count + 1) * sizeof(choir__param *));
    l->params[l->count++] = t->param;
}

choir__param **choir__module_named_params(choir_module *m, int *count)
{
    struct list l = {choir__calloc(1, sizeof(choir__param *)), 0};
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
