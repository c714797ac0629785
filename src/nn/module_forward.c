/* Forward of a module, with its hooks. A hook before or after backward is an entry on the tape
 * that passes its gradient on; a module that cannot be used fails the scope of its input. */
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/segment.h"
#include "tensor/watch.h"

struct choir__module_hook {
    choir_module_hooks hooks;
    void *arg;
    struct choir__module_hook *next;
};

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

static const choir__op hook_op = {.name = "module hook",
    .by_token = true,
    .any_dtype = true,
    .tokens_in = 1,
    .backward = hook_backward,
    .view = true};

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
    choir_module *caller = choir__run_of(m->run)->at;
    choir__run_of(m->run)->at = m;
    choir__segment *segment = m->inside->recompute ? choir__recompute_begin(in, count) : NULL;
    choir_tensor *y =
        m->inside->hooks ? forward_hooked(m, in, count) : forward_plainly(m, in, count);
    choir__segment_end(segment, y);
    choir__op_watch *watch = y->scope->run->watch;
    if (watch && !y->poisoned && !m->inside->strategy) /* a wrapper has its module's path */
        watch->forward(watch, m, y);
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
