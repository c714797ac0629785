/* Forward of a module, with its hooks. A hook before or after backward is an entry on the tape
 * that passes its gradient on; a module that cannot be used fails the scope of its input. */
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/run.h"
#include "tensor/segment.h"
#include "tensor/watch.h"

struct choir__module_hook {
    choir_module_hooks hooks;
    void *arg;
    struct choir__module_hook *next;
};

/* One of the two functions sees the gradient, or changes it. */
struct backward_hook {
    choir_module *module;
    void (*call)(choir_module *module, choir_tensor *grad, void *arg);
    choir_tensor *(*change)(choir_module *module, choir_tensor *grad, void *arg);
    void *arg;
};

/* Returns a hook's result, or a poisoned tensor for NULL. */
static choir_tensor *returned(
    choir_module *m, choir_scope *scope, const char *hook, choir_tensor *t)
{
    return t ? choir__sound(t, hook)
             : choir__poison(scope, CHOIR_ERR_ARGUMENT,
                   "forward: expected a tensor from a module's %s ('%s'), got NULL", hook,
                   m->path);
}

static choir_tensor *changed_gradient(
    const struct backward_hook *h, choir_scope *scope, choir_tensor *gy)
{
    choir_tensor *g =
        returned(h->module, scope, "change_gradient", h->change(h->module, gy, h->arg));
    if (g->poisoned || (g->dtype == gy->dtype && choir__same_shape(g->shape, gy->shape)))
        return g;
    return choir__poison(scope, CHOIR_ERR_SHAPE,
        "backward: expected a gradient %s %s from the change_gradient of module '%s', got %s %s",
        choir_dtype_name(gy->dtype), choir__shape_text(gy->shape), h->module->path,
        choir_dtype_name(g->dtype), choir__shape_text(g->shape));
}

static void hook_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct backward_hook *h = r->attrs;
    if (h->change && (gy = changed_gradient(h, sink->scope, gy))->poisoned)
        return;
    if (h->call)
        h->call(h->module, gy, h->arg);
    sink->give(sink, r, 0, gy);
}

static void hook_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct backward_hook *h = r->attrs;
    gx[0] = h->change ? changed_gradient(h, gy->scope, gy) : gy;
}

static const choir__op hook_op = {.name = "module hook",
    .by_token = true,
    .any_dtype = true,
    .tokens_in = 1,
    .backward = hook_backward,
    .derivative = hook_derivative,
    .view = true};

/* Returns t with an entry on the tape that calls the hook. */
static choir_tensor *hooked(choir_tensor *t, struct backward_hook hook)
{
    bool none = !hook.call && !hook.change;
    if (none || t->poisoned || t->freed || !t->requires_grad || t->scope->kind == CHOIR__RUN)
        return t;
    choir_tensor *y = choir__tensor_alias(t->scope, t);
    choir__tape_entry *r = choir__tape_entry_new(&hook_op, y, &t, 1);
    if (r)
        choir__tape_entry_attrs(r, &hook, sizeof hook);
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

/* The hooks of one entry, before the module's own function. An input that was given stays one.
 */
static void hook_inputs(
    choir_module *m, const struct choir__module_hook *h, choir_tensor **x, int count)
{
    if (h->hooks.before_forward)
        h->hooks.before_forward(m, x, count, h->arg);
    for (int i = 0; i < count; i++)
        if (x[i] && (h->hooks.before_forward || h->hooks.change_inputs))
            x[i]->watched = true;
    if (h->hooks.change_inputs) {
        choir_tensor *given[CHOIR__MAX_IN];
        memcpy(given, x, (size_t)count * sizeof *given);
        h->hooks.change_inputs(m, x, count, h->arg);
        for (int i = 0; i < count; i++)
            if (given[i])
                x[i] = returned(m, given[i]->scope, "change_inputs", x[i]);
    }
}

/* Backward runs the entries of the tape from the last one to the first, so the hooks put theirs
 * there in reverse: their calls come in the order in which the hooks were added. */
static choir_tensor *hook_gradient_in(
    choir_module *m, const struct choir__module_hook *h, choir_tensor *x)
{
    return h ? hooked(hook_gradient_in(m, h->next, x),
                   (struct backward_hook){m, h->hooks.after_backward, NULL, h->arg})
             : x;
}

static choir_tensor *hook_gradient_out(
    choir_module *m, const struct choir__module_hook *h, choir_tensor *y)
{
    if (!h)
        return y;
    y = hook_gradient_out(m, h->next, y);
    y = hooked(y, (struct backward_hook){m, NULL, h->hooks.change_gradient, h->arg});
    return hooked(y, (struct backward_hook){m, h->hooks.before_backward, NULL, h->arg});
}

static choir_tensor *forward_hooked(choir_module *m, choir_tensor *const *in, int count)
{
    choir_tensor *x[CHOIR__MAX_IN];
    memcpy(x, in, (size_t)count * sizeof *x);
    for (struct choir__module_hook *h = m->inside->hooks; h; h = h->next)
        hook_inputs(m, h, x, count);
    for (int i = 0; i < count; i++)
        if (x[i] && x[i]->requires_grad) {
            x[i] = hook_gradient_in(m, m->inside->hooks, x[i]);
            break;
        }
    choir_tensor *y = forward_plainly(m, x, count);
    for (struct choir__module_hook *h = m->inside->hooks; h; h = h->next) {
        y->watched = true;
        if (h->hooks.change_output)
            y = returned(
                m, y->scope, "change_output", h->hooks.change_output(m, x, count, y, h->arg));
        if (h->hooks.after_forward)
            h->hooks.after_forward(m, y, h->arg);
        y->watched = true;
    }
    y = hook_gradient_out(m, m->inside->hooks, y);
    y->watched = true;
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
    CHOIR__DEFAULT_FLOATS;
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
    choir_module *caller = choir__module_enter(choir__run_of(m->run), m);
    choir__segment *segment = m->inside->recompute ? choir__recompute_begin(in, count) : NULL;
    choir_tensor *y =
        m->inside->hooks ? forward_hooked(m, in, count) : forward_plainly(m, in, count);
    choir__segment_end(segment, y);
    choir__op_watch *watch = y->scope->run->watch;
    if (watch && !y->poisoned && !m->inside->strategy) /* a wrapper has its module's path */
        watch->forward(watch, m, y);
    choir__module_enter(choir__run_of(m->run), caller);
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
    choir__step_turned(m->run, h);
}
