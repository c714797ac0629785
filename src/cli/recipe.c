/* Makes an optimizer from the texts of --optimizer and --schedule. */
#include <stdio.h>
#include <string.h>

#include "base/named.h"
#include "base/options.h"
#include "cli/choices.h"
#include "cli/job.h"

struct recipe {
    enum { SGD, ADAM, ADAMW, LAMB, KINDS } kind;
    choir_sgd_opts sgd;
    choir_adamw_opts adam;
    choir_lamb_opts lamb;
    bool matrices_decay_alone;
    choir_schedule schedule;
};

static const char *const optimizers[KINDS] = {"sgd", "adam", "adamw", "lamb"};
static const choir__name_table optimizer_table = CHOIR__NAME_TABLE(optimizers);

const char *choir__cli_optimizer_names(size_t i)
{
    return i < KINDS ? optimizers[i] : NULL;
}

/* Finds the name that a text such as "cosine:warmup=9" begins with. */
static choir_status find_kind(
    const choir__name_table *table, const char *what, const char *text, int *kind)
{
    char name[64];
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    *kind = choir__find_named(table, name);
    return *kind < 0 ? choir__unknown_name(table, what, name) : CHOIR_OK;
}

/* The options of all four optimizers; each has some of them. */
struct numbers {
    double momentum, dampening, beta1, beta2, eps, max_grad_norm;
    bool nesterov, maximize, amsgrad, bias_correction, grad_averaging, decoupled, trust_always;
    char decay[64];
};

static choir_status read_numbers(const char *text, int kind, struct numbers *n)
{
    static const char what[] = "the optimizer";
    choir__option sgd[] = {{"momentum", CHOIR__FLOAT, &n->momentum, 0, 1},
        {"dampening", CHOIR__FLOAT, &n->dampening, 0, 1},
        {"nesterov", CHOIR__FLAG, &n->nesterov, 0, 0},
        {"maximize", CHOIR__FLAG, &n->maximize, 0, 0}, {"decay", CHOIR__WORD, n->decay, 0, 0},
        {NULL}};
    choir__option adam[] = {{"beta1", CHOIR__FLOAT, &n->beta1, 0, 0.999999},
        {"beta2", CHOIR__FLOAT, &n->beta2, 0, 0.9999999}, {"eps", CHOIR__FLOAT, &n->eps, 0, 1},
        {"amsgrad", CHOIR__FLAG, &n->amsgrad, 0, 0},
        {"maximize", CHOIR__FLAG, &n->maximize, 0, 0}, {"decay", CHOIR__WORD, n->decay, 0, 0},
        {NULL}};
    choir__option lamb[] = {{"beta1", CHOIR__FLOAT, &n->beta1, 0, 0.999999},
        {"beta2", CHOIR__FLOAT, &n->beta2, 0, 0.9999999}, {"eps", CHOIR__FLOAT, &n->eps, 0, 1},
        {"max_grad_norm", CHOIR__FLOAT, &n->max_grad_norm, 0, 1e30},
        {"bias_correction", CHOIR__FLAG, &n->bias_correction, 0, 0},
        {"grad_averaging", CHOIR__FLAG, &n->grad_averaging, 0, 0},
        {"decoupled", CHOIR__FLAG, &n->decoupled, 0, 0},
        {"trust_always", CHOIR__FLAG, &n->trust_always, 0, 0},
        {"maximize", CHOIR__FLAG, &n->maximize, 0, 0}, {"decay", CHOIR__WORD, n->decay, 0, 0},
        {NULL}};
    return choir__options_parse(text, what, kind == SGD ? sgd : kind == LAMB ? lamb : adam);
}

static void fill_recipe(const choir__job *j, const struct numbers *n, struct recipe *r)
{
    r->sgd = (choir_sgd_opts){.lr = (float)j->lr,
        .momentum = (float)n->momentum,
        .dampening = (float)n->dampening,
        .nesterov = n->nesterov,
        .maximize = n->maximize};
    r->adam = r->kind == ADAM ? choir_adam_defaults() : choir_adamw_defaults();
    r->lamb = choir_lamb_defaults();
    r->adam.lr = r->lamb.lr = (float)j->lr;
    r->adam.beta1 = r->lamb.beta1 = (float)n->beta1;
    r->adam.beta2 = r->lamb.beta2 = (float)n->beta2;
    r->adam.eps = r->lamb.eps = (float)n->eps;
    r->adam.amsgrad = n->amsgrad;
    r->adam.maximize = r->lamb.maximize = n->maximize;
    r->lamb.max_grad_norm = (float)n->max_grad_norm;
    r->lamb.bias_correction = n->bias_correction;
    r->lamb.grad_averaging = n->grad_averaging;
    r->lamb.decoupled = n->decoupled;
    r->lamb.trust_always = n->trust_always;
    if (j->weight_decay >= 0)
        r->sgd.weight_decay = r->adam.weight_decay = r->lamb.weight_decay =
            (float)j->weight_decay;
}

static choir_status parse_optimizer(const choir__job *j, struct recipe *r)
{
    int kind;
    choir_status status = find_kind(&optimizer_table, "optimizer", j->optimizer, &kind);
    if (status != CHOIR_OK)
        return status;
    struct numbers n = {.beta1 = 0.9,
        .beta2 = 0.999,
        .eps = kind == LAMB ? 1e-6 : 1e-8,
        .max_grad_norm = 1,
        .bias_correction = true,
        .grad_averaging = true,
        .decoupled = true,
        .decay = "all"};
    status = read_numbers(j->optimizer, kind, &n);
    if (status != CHOIR_OK)
        return status;
    r->matrices_decay_alone = !strcmp(n.decay, "matrices");
    if (!r->matrices_decay_alone && strcmp(n.decay, "all"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the optimizer: decay=%s: expected 'all' or 'matrices' (no biases, no norms)",
            n.decay);
    r->kind = kind;
    fill_recipe(j, &n, r);
    return CHOIR_OK;
}
/* 30/60/90 */
static choir_status parse_milestones(const char *text, choir_schedule *s)
{
    char copy[64], *rest = copy, *part;
    snprintf(copy, sizeof copy, "%s", text);
    while ((part = strsep(&rest, "/")) && *text) {
        int64_t at;
        if (s->milestone_count == CHOIR_MAX_MILESTONES)
            return choir__error(CHOIR_ERR_ARGUMENT, "the schedule: more than %d milestones",
                CHOIR_MAX_MILESTONES);
        if (!choir__parse_int(part, 0, INT64_MAX, &at))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "the schedule: milestones=%s: expected steps such as 100/200/300", text);
        s->milestones[s->milestone_count++] = at;
    }
    return CHOIR_OK;
}

/* The options of each schedule, with their default values. */
struct curve {
    int64_t warmup, steps, size, down, growth;
    double min_lr, gamma, power, rise, first_factor, last_factor;
    bool straight, three_phase, halving;
    char milestones[64];
};

static const char *const schedules[] = {"constant", "cosine", "linear", "step", "multistep",
    "exponential", "polynomial", "restarts", "one_cycle", "cyclic", "inverse_sqrt"};
static const choir__name_table schedule_table = CHOIR__NAME_TABLE(schedules);

const char *choir__cli_schedule_names(size_t i)
{
    return i < CHOIR_COUNT(schedules) ? schedules[i] : NULL;
}

static choir_status read_curve(const char *text, int kind, struct curve *c)
{
    choir__option all[] = {{"warmup", CHOIR__INT, &c->warmup, 0, 1e12},
        {"steps", CHOIR__INT, &c->steps, 1, 1e12}, {"min_lr", CHOIR__FLOAT, &c->min_lr, 0, 1e6},
        {"size", CHOIR__INT, &c->size, 1, 1e12}, {"gamma", CHOIR__FLOAT, &c->gamma, 0, 10},
        {"milestones", CHOIR__WORD, c->milestones, 0, 0},
        {"power", CHOIR__FLOAT, &c->power, 1e-6, 100},
        {"growth", CHOIR__INT, &c->growth, 1, 1e6}, {"down", CHOIR__INT, &c->down, 1, 1e12},
        {"halving", CHOIR__FLAG, &c->halving, 0, 0},
        {"rise", CHOIR__FLOAT, &c->rise, 1e-6, 0.999999},
        {"first_factor", CHOIR__FLOAT, &c->first_factor, 1e-6, 1e12},
        {"last_factor", CHOIR__FLOAT, &c->last_factor, 1e-6, 1e12},
        {"straight", CHOIR__FLAG, &c->straight, 0, 0},
        {"three_phase", CHOIR__FLAG, &c->three_phase, 0, 0}};
    static const char *const own[] = {"warmup", "warmup steps min_lr", "warmup steps min_lr",
        "warmup size gamma", "warmup milestones gamma", "warmup gamma",
        "warmup steps min_lr power", "warmup size growth min_lr",
        "warmup steps rise first_factor last_factor straight three_phase",
        "warmup size down min_lr gamma halving", "warmup"};
    choir__option known[CHOIR_COUNT(all) + 1];
    int count = 0;
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        const char *at = strstr(own[kind], all[i].key);
        size_t length = strlen(all[i].key);
        if (at && (at == own[kind] || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            known[count++] = all[i];
    }
    known[count] = (choir__option){NULL};
    return choir__options_parse(text, "the schedule", known);
}

static choir_status parse_schedule(const choir__job *j, struct recipe *r)
{
    int kind;
    choir_status status = find_kind(&schedule_table, "schedule", j->schedule, &kind);
    if (status != CHOIR_OK)
        return status;
    bool cycles = kind == CHOIR_LR_CYCLIC;
    struct curve c = {.steps = j->steps,
        .size = 1000,
        .growth = 1,
        .gamma = cycles                         ? 1
                 : kind == CHOIR_LR_EXPONENTIAL ? 0.999
                                                : 0.1,
        .power = 1,
        .rise = 0.3,
        .first_factor = 25,
        .last_factor = 1e4};
    status = read_curve(j->schedule, kind, &c);
    r->schedule = (choir_schedule){.kind = kind,
        .warmup = c.warmup,
        .steps = c.steps,
        .min_lr = (float)c.min_lr,
        .step_size = c.size,
        .gamma = (float)c.gamma,
        .power = (float)c.power,
        .step_down = c.down,
        .growth = c.growth,
        .rise = (float)c.rise,
        .first_factor = (float)c.first_factor,
        .last_factor = (float)c.last_factor,
        .straight = c.straight,
        .three_phase = c.three_phase,
        .halving = c.halving};
    if (status == CHOIR_OK && kind == CHOIR_LR_MULTISTEP)
        status = parse_milestones(c.milestones, &r->schedule);
    return status == CHOIR_OK ? choir_schedule_check(&r->schedule) : status;
}

choir_status choir__job_check_optimizer(const choir__job *j)
{
    struct recipe r;
    choir__job known = *j;
    if (!known.steps) /* epochs become steps once the data is open; until then no curve ends too
                         early */
        known.steps = INT64_MAX;
    choir_status status = parse_optimizer(&known, &r);
    if (status == CHOIR_OK)
        status = parse_schedule(&known, &r);
    return status == CHOIR_OK ? choir__job_check_groups(j) : status;
}

int64_t choir__job_warmup(const choir__job *j)
{
    struct recipe r = {.schedule = {.warmup = 0}};
    return parse_schedule(j, &r) == CHOIR_OK ? r.schedule.warmup : 0;
}

/* Returns whether the parameter is a bias or a weight of a norm. */
static bool is_no_matrix(const char *name, const choir_tensor *t, void *arg)
{
    (void)name, (void)arg;
    return choir_tensor_ndim(t) < 2;
}

static double decay_of(const struct recipe *r)
{
    return (double)(r->kind == SGD    ? r->sgd.weight_decay
                    : r->kind == LAMB ? r->lamb.weight_decay
                                      : r->adam.weight_decay);
}

choir_status choir__job_optimizer(
    const choir__job *j, choir_scope *run, choir_module *net, choir_optim **optim)
{
    struct recipe r;
    choir_status status = parse_optimizer(j, &r);
    if (status == CHOIR_OK)
        status = parse_schedule(j, &r);
    if (status != CHOIR_OK)
        return status;
    switch (r.kind) {
    case SGD:
        *optim = choir_sgd(run, net, r.sgd);
        choir_optim_set_lr(*optim, r.sgd.lr); /* --lr 0 is meant */
        break;
    case ADAM: *optim = choir_adam(run, net, r.adam); break;
    case ADAMW: *optim = choir_adamw(run, net, r.adam); break;
    default: *optim = choir_lamb(run, net, r.lamb); break;
    }
    if (r.matrices_decay_alone)
        status = choir_optim_group(*optim, is_no_matrix, NULL, (float)j->lr, 0);
    if (status == CHOIR_OK)
        status = choir__job_groups(j, *optim, decay_of(&r), r.matrices_decay_alone);
    choir_optim_schedule(*optim, r.schedule);
    const char *folder; /* state of off-loaded parameters follows them by itself */
    if (!choir__job_offload(j, &folder) && folder && status == CHOIR_OK)
        status = choir_optim_offload(*optim, folder);
    if (j->clip > 0 ||
        (j->json && !choir_optim_grad_norm(*optim))) /* LAMB has a limit of its own */
        choir_optim_clip(*optim, (float)j->clip);
    return status == CHOIR_OK ? choir_scope_status(run) : status;
}
