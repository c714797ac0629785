/* Making optimizers: their options, and checks of the options. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "optim/optim.h"
#include "tensor/handle.h"

choir_sgd_opts choir_sgd_defaults(void)
{
    return (choir_sgd_opts){.lr = 1e-3f};
}

choir_adamw_opts choir_adam_defaults(void)
{
    return (choir_adamw_opts){.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
}

choir_adamw_opts choir_adamw_defaults(void)
{
    choir_adamw_opts opts = choir_adam_defaults();
    opts.weight_decay = 0.01f;
    return opts;
}

choir_lamb_opts choir_lamb_defaults(void)
{
    return (choir_lamb_opts){.lr = 1e-3f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-6f,
        .weight_decay = 0.01f,
        .max_grad_norm = 1,
        .bias_correction = true,
        .grad_averaging = true,
        .decoupled = true};
}

choir_lion_opts choir_lion_defaults(void)
{
    return (choir_lion_opts){.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.99f};
}

choir_rmsprop_opts choir_rmsprop_defaults(void)
{
    return (choir_rmsprop_opts){.lr = 1e-2f, .alpha = 0.99f, .eps = 1e-8f};
}

choir_adafactor_opts choir_adafactor_defaults(void)
{
    return (choir_adafactor_opts){
        .lr = 1e-2f, .beta2_decay = -0.8f, .eps1 = FLT_EPSILON, .eps2 = 1e-3f, .d = 1};
}

choir_muon_opts choir_muon_defaults(void)
{
    return (choir_muon_opts){.lr = 1e-3f,
        .momentum = 0.95f,
        .weight_decay = 0.1f,
        .nesterov = true,
        .ns_steps = 5,
        .eps = 1e-7f,
        .match_rms = true,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .adam_eps = 1e-8f};
}

static void close_optim(void *arg)
{
    choir_optim *o = arg;
    choir__run_sync(o->run);
    choir__optim_forget(o);
    choir__offload_free(o);
    free(o->states);
    free(o->sums);
}

static int by_name(const void *a, const void *b)
{
    const choir__optim_state *x = a, *y = b;
    return strcmp(x->param->name, y->param->name);
}

/* Fails the run, naming the option, unless value is finite and at least 0. */
static void check_number(choir_optim *o, const char *name, const char *option, float value)
{
    if (!(value >= 0 && isfinite(value)))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "%s: expected %s that is finite and at least 0, got %g", name, option,
            (double)value);
}

/* Returns the optimizer's name, for messages: "sgd" of choir_sgd. */
static const char *name_of(const char *function)
{
    return function + strlen("choir_");
}

static choir_optim *new_optim(choir_scope *run, choir_module *module, choir__optim_kind kind,
    const char *function, float lr, float weight_decay)
{
    const char *name = name_of(function);
    run = choir__open_scope(run, function);
    module = choir__module_for(run, module, function);
    choir_optim *o = choir__arena_get(&run->arena, sizeof *o); /* see tensor/handle.h */
    o->run = run;
    o->rule.kind = kind;
    o->module = module;
    o->lr = o->base_lr = lr;
    o->groups[o->group_count++] = (choir__optim_group){lr, weight_decay};
    o->schedule = choir_schedule_constant();
    int count;
    choir__param **params = choir__module_params(module, &count);
    choir__books_make(run, params, count);
    o->states = choir__calloc((size_t)count + 1, sizeof *o->states);
    o->count = count;
    for (int i = 0; i < count; i++)
        o->states[i].param = params[i];
    free(params);
    /* norms add up in name order */
    qsort(o->states, (size_t)count, sizeof *o->states, by_name);
    choir__on_close(run, close_optim, o);
    check_number(o, name, "a learning rate", lr);
    check_number(o, name, "a weight decay", weight_decay);
    return o;
}

choir_optim *choir_sgd(choir_scope *run, choir_module *module, choir_sgd_opts opts)
{
    choir_optim *o = new_optim(run, module, CHOIR__SGD, __func__, opts.lr, opts.weight_decay);
    o->rule.momentum = opts.momentum;
    o->rule.dampening = opts.dampening;
    o->rule.nesterov = opts.nesterov;
    o->rule.maximize = opts.maximize;
    o->idle = !opts.lr && !opts.momentum && !opts.dampening && !opts.weight_decay;
    check_number(o, "sgd", "a momentum", opts.momentum);
    if (!isfinite(opts.dampening))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT, "sgd: expected a finite dampening, got %g",
            (double)opts.dampening);
    if (opts.nesterov && (opts.momentum <= 0 || opts.dampening != 0))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "sgd: Nesterov needs a momentum above 0 and no dampening");
    return o;
}

static void set_moments(choir_optim *o, const char *name, float beta1, float beta2, float eps)
{
    o->rule.beta1 = beta1;
    o->rule.beta2 = beta2;
    o->rule.eps = eps;
    check_number(o, name, "an eps", eps);
    if (beta1 == 0 && beta2 == 0 && eps == 0)
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "%s: betas and eps are 0; begin with choir_%s_defaults()", name, name);
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT, "%s: expected betas in [0, 1), got %g and %g",
            name, (double)beta1, (double)beta2);
}

static choir_optim *new_adam(choir_scope *run, choir_module *module, const char *function,
    choir_adamw_opts opts, bool decoupled)
{
    choir_optim *o = new_optim(run, module, CHOIR__ADAM, function, opts.lr, opts.weight_decay);
    const char *name = name_of(function);
    set_moments(o, name, opts.beta1, opts.beta2, opts.eps);
    o->rule.decoupled = decoupled;
    o->rule.amsgrad = opts.amsgrad;
    o->rule.maximize = opts.maximize;
    o->rule.coded = opts.eight_bits;
    if (opts.eight_bits && opts.amsgrad)
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "%s: amsgrad keeps a third moment, which has no 8-bit form", name);
    return o;
}

choir_optim *choir_adam(choir_scope *run, choir_module *module, choir_adamw_opts opts)
{
    return new_adam(run, module, __func__, opts, false);
}

choir_optim *choir_adamw(choir_scope *run, choir_module *module, choir_adamw_opts opts)
{
    return new_adam(run, module, __func__, opts, true);
}

choir_optim *choir_lamb(choir_scope *run, choir_module *module, choir_lamb_opts opts)
{
    choir_optim *o = new_optim(run, module, CHOIR__LAMB, __func__, opts.lr, opts.weight_decay);
    set_moments(o, "lamb", opts.beta1, opts.beta2, opts.eps);
    o->rule.decoupled = opts.decoupled;
    o->rule.bias_correction = opts.bias_correction;
    o->rule.grad_averaging = opts.grad_averaging;
    o->rule.trust_always = opts.trust_always;
    o->rule.maximize = opts.maximize;
    check_number(o, "lamb", "a max_grad_norm", opts.max_grad_norm);
    if (opts.max_grad_norm > 0)
        choir_optim_clip(o, opts.max_grad_norm);
    return o;
}

choir_optim *choir_lion(choir_scope *run, choir_module *module, choir_lion_opts opts)
{
    choir_optim *o = new_optim(run, module, CHOIR__LION, __func__, opts.lr, opts.weight_decay);
    set_moments(o, "lion", opts.beta1, opts.beta2, 0);
    o->rule.maximize = opts.maximize;
    return o;
}

choir_optim *choir_rmsprop(choir_scope *run, choir_module *module, choir_rmsprop_opts opts)
{
    choir_optim *o =
        new_optim(run, module, CHOIR__RMSPROP, __func__, opts.lr, opts.weight_decay);
    o->rule.beta2 = opts.alpha;
    o->rule.eps = opts.eps;
    o->rule.momentum = opts.momentum;
    o->rule.centered = opts.centered;
    o->rule.maximize = opts.maximize;
    check_number(o, "rmsprop", "an eps", opts.eps);
    check_number(o, "rmsprop", "a momentum", opts.momentum);
    if (opts.alpha == 0 && opts.eps == 0)
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "rmsprop: alpha and eps are 0; begin with choir_rmsprop_defaults()");
    if (!(opts.alpha >= 0 && opts.alpha <= 1))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "rmsprop: expected an alpha from 0 to 1, got %g", (double)opts.alpha);
    return o;
}

choir_optim *choir_adafactor(choir_scope *run, choir_module *module, choir_adafactor_opts opts)
{
    choir_optim *o =
        new_optim(run, module, CHOIR__ADAFACTOR, __func__, opts.lr, opts.weight_decay);
    o->rule.beta2 = opts.beta2_decay;
    o->rule.eps = opts.eps1;
    o->rule.least = opts.eps2;
    o->rule.threshold = opts.d;
    o->rule.maximize = opts.maximize;
    check_number(o, "adafactor", "an eps1", opts.eps1);
    check_number(o, "adafactor", "an eps2", opts.eps2);
    if (opts.d == 0 && opts.beta2_decay == 0)
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "adafactor: d and beta2_decay are 0; begin with choir_adafactor_defaults()");
    if (!(opts.beta2_decay <= 0 && isfinite(opts.beta2_decay)))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "adafactor: expected a beta2_decay of at most 0, got %g", (double)opts.beta2_decay);
    if (!(opts.d >= 1 && isfinite(opts.d)))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT,
            "adafactor: expected a d of at least 1, got %g", (double)opts.d);
    return o;
}

/* Marks the tables of the module's embeddings, which are no matrices to Muon. */
static void leave_tables(choir_optim *o, const choir_module *module)
{
    if (choir__is_embedding(module)) {
        const choir_tensor *table = choir__embedding_table((choir_module *)(uintptr_t)module);
        for (int i = 0; i < o->count; i++)
            if (o->states[i].param == table->param)
                o->states[i].matrix = false;
    }
    for (const choir__module_entry *e = module->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            leave_tables(o, e->child);
}

choir_optim *choir_muon(choir_scope *run, choir_module *module, choir_muon_opts opts)
{
    choir_optim *o = new_optim(run, module, CHOIR__MUON, __func__, opts.lr, opts.weight_decay);
    set_moments(o, "muon", opts.beta1, opts.beta2, opts.adam_eps);
    o->rule.decoupled = true;
    o->rule.momentum = opts.momentum;
    o->rule.nesterov = opts.nesterov;
    o->rule.products = opts.ns_steps;
    o->rule.least = opts.eps;
    o->rule.match_rms = opts.match_rms;
    o->rule.maximize = opts.maximize;
    check_number(o, "muon", "an eps", opts.eps);
    if (!(opts.momentum >= 0 && opts.momentum < 1))
        choir__poison(o->run, CHOIR_ERR_ARGUMENT, "muon: expected a momentum in [0, 1), got %g",
            (double)opts.momentum);
    if (opts.ns_steps < 1 || opts.ns_steps > 100)
        choir__poison(o->run, CHOIR_ERR_ARGUMENT, "muon: expected 1 to 100 ns_steps, got %d",
            opts.ns_steps);
    for (int i = 0; i < o->count; i++) {
        const choir__param *p = o->states[i].param;
        o->states[i].matrix =
            p->whole.ndim == 2 && !(opts.adam && opts.adam(p->name, p->tensor, opts.adam_arg));
    }
    leave_tables(o, o->module);
    return o;
}
