/* The hooks of --debug-nan. A module's forward ends after the forwards of the modules inside
 * it, and its backward likewise, so the first place that is found is the innermost one. */
#include "job/trainer/debug_nan.h"

#include <stdio.h>
#include <stdlib.h>

#include <choir/autograd.h>
#include "base/base.h"

/* Counts the numbers that are not finite, by their exponents. */
static int64_t count_in(const void *data, int64_t n, choir_dtype dtype)
{
    const uint32_t *wide = data;
    const uint16_t *half = data;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += dtype == CHOIR_F32    ? (wide[i] & 0x7f800000) == 0x7f800000
                 : dtype == CHOIR_BF16 ? (half[i] & 0x7f80) == 0x7f80
                                       : (half[i] & 0x7c00) == 0x7c00;
    return count;
}

static int64_t count_of(const choir_tensor *t)
{
    choir_dtype dtype = t ? choir_tensor_dtype(t) : CHOIR_I32;
    if (dtype != CHOIR_F32 && dtype != CHOIR_BF16 && dtype != CHOIR_F16)
        return 0;
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(dtype);
    void *data = choir__alloc(bytes + 1);
    int64_t count = choir_read(t, data, bytes) == CHOIR_OK
                        ? count_in(data, choir_tensor_count(t), dtype)
                        : 0;
    free(data);
    return count;
}

static void note(choir__nan_watch *w, const choir_tensor *t, const char *what, const char *name,
    const char *kind)
{
    int64_t count = *w->found ? 0 : count_of(t);
    if (count)
        snprintf(w->found, sizeof w->found,
            "%s %s%s%s%s: %lld of %lld numbers are infinite or NaN", what,
            *name ? name : "the model", *kind ? " (" : "", kind, *kind ? ")" : "",
            (long long)count, (long long)choir_tensor_count(t));
}

static void after_forward(choir_module *m, choir_tensor *out, void *arg)
{
    note(arg, out, "forward, the output of", m->path, m->type->name);
}

static void before_backward(choir_module *m, choir_tensor *grad, void *arg)
{
    choir__nan_watch *w = arg;
    if (w->backward)
        note(w, grad, "backward, the gradient that reaches", m->path, m->type->name);
}

static void after_backward(choir_module *m, choir_tensor *grad, void *arg)
{
    choir__nan_watch *w = arg;
    if (w->backward)
        note(w, grad, "backward, the gradient that leaves", m->path, m->type->name);
}

typedef struct named {
    choir__nan_watch *watch;
    char *name;
} named;

static void on_grad(choir_tensor *t, choir_tensor *grad, void *arg)
{
    const named *n = arg;
    (void)t;
    if (n->watch->backward)
        note(n->watch, grad, "backward, the gradient of", n->name, "");
}

/* The names live as long as the process, as do the parameters. */
static void watch_param(const char *name, choir_tensor *t, void *arg)
{
    named *n = choir__alloc(sizeof *n);
    *n = (named){arg, choir__strdup(name)};
    choir_on_grad(t, on_grad, n);
}

static void watch_module(choir_module *m, void *arg)
{
    choir_module_hook(m,
        (choir_module_hooks){.after_forward = after_forward,
            .before_backward = before_backward,
            .after_backward = after_backward},
        arg);
}

void choir__nan_watch_net(choir__nan_watch *watch, choir_module *net)
{
    choir_module_each(net, watch_module, watch);
    if (watch->backward)
        choir_module_visit(net, false, watch_param, watch);
}

choir_status choir__nan_found(const choir__nan_watch *watch, int64_t step)
{
    return *watch->found ? choir__error(CHOIR_ERR_NONFINITE,
                               "step %lld, the first numbers that are not finite: %s",
                               (long long)step, watch->found)
                         : CHOIR_OK;
}
