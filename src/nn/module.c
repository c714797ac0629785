/* The module tree: registration, names, initial values, and forward with its hooks.
 *
 * Children are created before their parents, so names are known only when the tree is complete.
 * The first use of a root names everything in it and draws the initial values. */
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/segment.h"

struct choir__module_hook {
    choir_module_hooks hooks;
    void *arg;
    struct choir__module_hook *next;
};

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

void choir__module_heads(choir_module *m, choir__heads_of heads)
{
    choir__heads_of *kept = choir__arena_get(&m->run->arena, sizeof *kept);
    *kept = heads;
    m->inside->heads = kept;
}

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
    int64_t width = p->whole.dim[1], last = first + y->count;
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
        if (!p || p->initialised) /* a wrapper around a tree in use does not rename it */
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

static void draw_tree(choir_module *m)
{
    m->inside->drawn = true;
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            draw_tree(e->child);
        choir__param *p = e->kind == CHOIR__PARAM ? e->tensor->param : NULL;
        if (!p || p->initialised)
            continue;
        p->initialised = true;
        if (choir__tensor_allocate(p->tensor, p->tensor->device)) {
            choir__storage_holds(p->tensor->storage, CHOIR__MEMORY_WEIGHTS);
            choir__param_draw(p, p->tensor, 0);
        }
    }
}

void choir__module_ready(choir_module *m)
{
    while (m->parent)
        m = m->parent;
    choir__module_name(m);
    if (!m->inside->drawn)
        draw_tree(m);
}

/* --- forward --- */

struct backward_hook {
    choir_module *module;
    void (*call)(choir_module *module, choir_tensor *grad, void *arg);
    void *arg;
};

static void hook_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct backward_hook *h = r->attrs;
    h->call(h->module, gy, h->arg);
    sink->give(sink, r, 0, gy);
}

static const choir__op hook_op = {
    .name = "module hook", .any_dtype = true, .backward = hook_backward, .view = true};

/* Returns t with an entry on the tape that calls the hook. */
static choir_tensor *hooked(choir_module *module, choir_tensor *t,
    void (*call)(choir_module *, choir_tensor *, void *), void *arg)
{
    if (!call || t->poisoned || t->freed || !t->requires_grad || t->scope->kind == CHOIR__RUN)
        return t;
    choir_tensor *y = choir__tensor_alias(t->scope, t);
    choir__record *r = choir__record_op(&hook_op, y, &t, 1);
    if (r)
        choir__record_attrs(
            r, &(struct backward_hook){module, call, arg}, sizeof(struct backward_hook));
    return r ? y : t;
}

static choir_tensor *forward_plainly(choir_module *m, choir_tensor *const *in, int count)
{
    if (!m->type->forward)
        return choir__poison(in[0] ? in[0]->scope : m->run, CHOIR_ERR_ARGUMENT,
            "forward: a module '%s' has no forward function", m->type->name);
    choir_tensor *y = m->type->forward(m, in, count);
    return y ? y
             : choir__poison(in[0] ? in[0]->scope : m->run, CHOIR_ERR_ARGUMENT,
                   "forward: expected a result of a module '%s', got NULL", m->type->name);
}

static choir_tensor *forward_hooked(choir_module *m, choir_tensor *const *in, int count)
{
    choir_tensor *x[CHOIR__MAX_IN];
    memcpy(x, in, (size_t)count * sizeof *x);
    for (struct choir__module_hook *h = m->inside->hooks; h; h = h->next) {
        if (h->hooks.before_forward)
            h->hooks.before_forward(m, x, count, h->arg);
        for (int i = 0; i < count && h->hooks.before_forward; i++)
            if (x[i])
                x[i]->watched = true;
        for (int i = 0; i < count; i++)
            if (x[i] && x[i]->requires_grad) {
                x[i] = hooked(m, x[i], h->hooks.after_backward, h->arg);
                break;
            }
    }
    choir_tensor *y = forward_plainly(m, x, count);
    for (struct choir__module_hook *h = m->inside->hooks; h; h = h->next) {
        y = hooked(m, y, h->hooks.before_backward, h->arg);
        if (h->hooks.after_forward)
            h->hooks.after_forward(m, y, h->arg);
        y->watched = true;
    }
    return y;
}

/* A module that cannot be used fails the scope of its input. Returns NULL if it can be used, or
 * there is no input that says a scope. */
static choir_tensor *misused(choir_module *m, choir_tensor *const *in, int count)
{
    choir_status status = choir__use_module(m, "choir_forward");
    if (status == CHOIR_OK || !in || count < 1 || !in[0])
        return NULL;
    char *why = choir__strdup(choir__message());
    choir_tensor *y =
        choir__poison(choir__sound(in[0], "choir_forward")->scope, status, "%s", why);
    free(why);
    return y;
}

choir_tensor *choir_forward_n(choir_module *m, choir_tensor *const *in, int count)
{
    choir_tensor *failed = misused(m, in, count);
    if (failed)
        return failed;
    m = choir__module_for(NULL, m, __func__);
    if (!m->inside->drawn)
        choir__module_ready(m);
    if (!in)
        return choir__poison_missing(m->run, __func__, "inputs");
    if (count < 1 || count > CHOIR__MAX_IN)
        return choir__poison(m->run, CHOIR_ERR_ARGUMENT, "forward: %d inputs; from 1 to %d",
            count, CHOIR__MAX_IN);
    if (m->type->inputs && count > m->type->inputs)
        return choir__poison(in[0] ? in[0]->scope : m->run, CHOIR_ERR_ARGUMENT,
            "forward: a module '%s' takes %s%d input%s, got %d", m->type->name,
            m->type->inputs > 1 ? "up to " : "", m->type->inputs,
            m->type->inputs > 1 ? "s" : "", count);
    bool poisoned = false; /* poisoned before: another module caused the error */
    choir_tensor *sound[CHOIR__MAX_IN];
    for (int i = 0; i < count; i++) { /* NULL: the module says whether it is optional */
        sound[i] = in[i] ? choir__sound(in[i], __func__) : NULL;
        poisoned |= sound[i] && sound[i]->poisoned;
    }
    in = sound;
    choir_module *caller = choir__run_of(m->run)->at;
    choir__run_of(m->run)->at = m;
    choir__segment *segment = m->inside->recompute ? choir__recompute_begin(in, count) : NULL;
    choir_tensor *y =
        m->inside->hooks ? forward_hooked(m, in, count) : forward_plainly(m, in, count);
    choir__segment_end(segment, y);
    choir__run_of(m->run)->at = caller;
    if (y->poisoned && !poisoned && *m->path)
        choir__scope_blame(y->scope, m->path);
    return y;
}

void choir_module_hook(choir_module *m, choir_module_hooks hooks, void *arg)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    struct choir__module_hook *h = choir__arena_get(&m->run->arena, sizeof *h);
    *h = (struct choir__module_hook){hooks, arg, NULL};
    struct choir__module_hook **link = &m->inside->hooks;
    while (*link)
        link = &(*link)->next;
    *link = h;
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

void choir_module_freeze(choir_module *m, bool frozen)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            choir_module_freeze(e->child, frozen);
        if (e->kind == CHOIR__PARAM)
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
    choir__module_ready(m);
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

choir__param **choir__module_params(choir_module *m, int *count)
{
    choir__module_ready(m);
    return choir__module_named_params(m, count);
}
