/* The optimizers of --optimizer: the registry of their names, the options of each, and how it
 * is made. */
#include "job/model/optimizers.h"

#include <fnmatch.h>
#include <string.h>

#include "base/named.h"
#include "base/options.h"
#include "job/choices.h"

enum { MOST_KEYS = 12 };

/* An optimizer that is read from a text, and made unless run is NULL. */
typedef struct reading {
    const choir__job *job;
    choir_scope *run;
    choir_module *net;
    choir__made_optimizer *made;
    char **full; /* gets the text with all options, unless it is NULL */
} reading;

/* Members that the options of every optimizer have. */
typedef struct common {
    float *lr, *weight_decay;
    bool *maximize;
} common;
#define COMMON(opts) ((common){&(opts).lr, &(opts).weight_decay, &(opts).maximize})

/* Reads the text's options: the options in `own`, which end with a NULL key, and the options of
 * all optimizers; then the job's. */
static choir_status read_options(reading *r, const choir__option *own, common all)
{
    char decay[64] = "all";
    choir__option known[MOST_KEYS + 3];
    int count = 0;
    for (; own[count].key; count++)
        known[count] = own[count];
    known[count++] = (choir__option){"maximize", CHOIR__FLAG, all.maximize, 0, 0};
    known[count++] = (choir__option){"decay", CHOIR__WORD, decay, 0, 0};
    known[count] = (choir__option){NULL};
    choir_status status = choir__options_parse(r->job->optim.optimizer, "the optimizer", known);
    if (status != CHOIR_OK)
        return status;
    r->made->matrices_decay_alone = !strcmp(decay, "matrices");
    if (!r->made->matrices_decay_alone && strcmp(decay, "all"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the optimizer: decay=%s: expected 'all' or 'matrices' (no biases, no norms)",
            decay);
    *all.lr = (float)r->job->optim.lr;
    if (r->job->optim.weight_decay >= 0)
        *all.weight_decay = (float)r->job->optim.weight_decay;
    r->made->weight_decay = *all.weight_decay;
    if (r->full) {
        char name[64];
        status = choir__options_name(r->job->optim.optimizer, name, sizeof name);
        *r->full = choir__options_text(name, known);
    }
    return status;
}

/* Options that several optimizers have. */
#define BETAS(o)                                                                               \
    {"beta1", CHOIR__SINGLE, &(o).beta1, 0, 0.999999},                                         \
    {                                                                                          \
        "beta2", CHOIR__SINGLE, &(o).beta2, 0, 0.9999999                                       \
    }
#define EPS(name, place)                                                                       \
    {                                                                                          \
        name, CHOIR__SINGLE, place, 0, 1                                                       \
    }

static choir_status sgd(reading *r)
{
    choir_sgd_opts o = choir_sgd_defaults();
    choir__option own[] = {{"momentum", CHOIR__SINGLE, &o.momentum, 0, 1},
        {"dampening", CHOIR__SINGLE, &o.dampening, 0, 1},
        {"nesterov", CHOIR__FLAG, &o.nesterov, 0, 0}, {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    if (status != CHOIR_OK || !r->run)
        return status;
    r->made->optim = choir_sgd(r->run, r->net, o);
    choir_optim_set_lr(r->made->optim, o.lr); /* --lr 0 is meant */
    return CHOIR_OK;
}

static choir_status read_adam(reading *r, choir_adamw_opts *o)
{
    int64_t bits = 32;
    choir__option own[] = {BETAS(*o), EPS("eps", &o->eps),
        {"amsgrad", CHOIR__FLAG, &o->amsgrad, 0, 0}, {"bits", CHOIR__INT, &bits, 8, 32},
        {NULL}};
    choir_status status = read_options(r, own, COMMON(*o));
    if (status == CHOIR_OK && bits != 8 && bits != 32)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the optimizer: bits=%lld: expected 32, or 8 for state as 8-bit codes",
            (long long)bits);
    if (status == CHOIR_OK && bits == 8 && o->amsgrad)
        status =
            choir__error(CHOIR_ERR_ARGUMENT, "the optimizer: amsgrad has no state of 8 bits");
    o->eight_bits = bits == 8;
    return status;
}

static choir_status adam(reading *r)
{
    choir_adamw_opts o = choir_adam_defaults();
    choir_status status = read_adam(r, &o);
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_adam(r->run, r->net, o);
    return status;
}

static choir_status adamw(reading *r)
{
    choir_adamw_opts o = choir_adamw_defaults();
    choir_status status = read_adam(r, &o);
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_adamw(r->run, r->net, o);
    return status;
}

static choir_status lamb(reading *r)
{
    choir_lamb_opts o = choir_lamb_defaults();
    choir__option own[] = {BETAS(o), EPS("eps", &o.eps),
        {"max_grad_norm", CHOIR__SINGLE, &o.max_grad_norm, 0, 1e30},
        {"bias_correction", CHOIR__FLAG, &o.bias_correction, 0, 0},
        {"grad_averaging", CHOIR__FLAG, &o.grad_averaging, 0, 0},
        {"decoupled", CHOIR__FLAG, &o.decoupled, 0, 0},
        {"trust_always", CHOIR__FLAG, &o.trust_always, 0, 0}, {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_lamb(r->run, r->net, o);
    return status;
}

static choir_status lion(reading *r)
{
    choir_lion_opts o = choir_lion_defaults();
    choir__option own[] = {BETAS(o), {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_lion(r->run, r->net, o);
    return status;
}

static choir_status rmsprop(reading *r)
{
    choir_rmsprop_opts o = choir_rmsprop_defaults();
    choir__option own[] = {{"alpha", CHOIR__SINGLE, &o.alpha, 0, 1}, EPS("eps", &o.eps),
        {"momentum", CHOIR__SINGLE, &o.momentum, 0, 1},
        {"centered", CHOIR__FLAG, &o.centered, 0, 0}, {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_rmsprop(r->run, r->net, o);
    return status;
}

static choir_status adafactor(reading *r)
{
    choir_adafactor_opts o = choir_adafactor_defaults();
    choir__option own[] = {{"beta2_decay", CHOIR__SINGLE, &o.beta2_decay, -10, 0},
        EPS("eps1", &o.eps1), {"eps2", CHOIR__SINGLE, &o.eps2, 0, 1e6},
        {"d", CHOIR__SINGLE, &o.d, 1, 1e6}, {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    if (status == CHOIR_OK && r->run)
        r->made->optim = choir_adafactor(r->run, r->net, o);
    return status;
}

/* Returns whether a parameter's name matches a pattern, as in a shell. */
static bool matches(const char *name, const choir_tensor *t, void *pattern)
{
    (void)t;
    return fnmatch(pattern, name, 0) == 0;
}

static choir_status muon(reading *r)
{
    char adjust[64] = "match_rms_adamw", pattern[64] = "";
    choir_muon_opts o = choir_muon_defaults();
    int64_t steps = o.ns_steps;
    choir__option own[] = {{"momentum", CHOIR__SINGLE, &o.momentum, 0, 0.999999},
        {"nesterov", CHOIR__FLAG, &o.nesterov, 0, 0}, {"ns_steps", CHOIR__INT, &steps, 1, 100},
        EPS("eps", &o.eps), {"adjust", CHOIR__WORD, adjust, 0, 0},
        {"adam", CHOIR__WORD, pattern, 0, 0}, BETAS(o), EPS("adam_eps", &o.adam_eps), {NULL}};
    choir_status status = read_options(r, own, COMMON(o));
    o.match_rms = !strcmp(adjust, "match_rms_adamw");
    if (status == CHOIR_OK && !o.match_rms && strcmp(adjust, "original"))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the optimizer: adjust=%s: expected 'match_rms_adamw' or 'original'", adjust);
    if (status != CHOIR_OK || !r->run)
        return status;
    o.ns_steps = (int)steps;
    o.adam = *pattern ? matches : NULL;
    o.adam_arg = pattern;
    r->made->optim = choir_muon(r->run, r->net, o);
    return CHOIR_OK;
}

/* --- the registry --- */

static const char *const names[] = {
    "sgd", "adam", "adamw", "lamb", "lion", "rmsprop", "adafactor", "muon"};
static choir_status (*const makers[])(reading *) = {
    sgd, adam, adamw, lamb, lion, rmsprop, adafactor, muon};
static const choir__name_table table = CHOIR__NAME_TABLE(names);

const char *choir__job_optimizer_names(size_t i)
{
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static choir_status read_optimizer(reading r)
{
    int kind;
    choir_status status =
        choir__options_find(r.job->optim.optimizer, &table, "optimizer", &kind);
    if (status != CHOIR_OK)
        return status;
    return makers[kind](&r);
}

choir_status choir__job_optimizer_make(
    const choir__job *job, choir_scope *run, choir_module *net, choir__made_optimizer *made)
{
    return read_optimizer((reading){.job = job, .run = run, .net = net, .made = made});
}

char *choir__job_optimizer_text(const choir__job *job, float *weight_decay)
{
    choir__made_optimizer made = {0};
    char *full = NULL;
    if (read_optimizer((reading){.job = job, .made = &made, .full = &full}) != CHOIR_OK)
        return NULL;
    *weight_decay = made.weight_decay;
    return full;
}
