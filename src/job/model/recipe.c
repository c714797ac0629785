/* Makes an optimizer with the schedule that the text of --schedule describes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/named.h"
#include "base/options.h"
#include "job/choices.h"
#include "job/job.h"
#include "job/model/optimizers.h"

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
    double warming; /* the warm-up as given: a number of steps, or below 1 a share of them */
    double min_lr, gamma, power, rise, first_factor, last_factor;
    double factor, threshold; /* options of plateau */
    int64_t patience, cooldown;
    bool straight, three_phase, halving, stretched;
    char milestones[64];
};

static const char *const schedules[] = {"constant", "cosine", "linear", "step", "multistep",
    "exponential", "polynomial", "restarts", "one_cycle", "cyclic", "inverse_sqrt", "plateau"};
/* the number of "plateau": constant between evaluations */
enum { PLATEAU = CHOIR_LR_INVERSE_SQRT + 1 };
static const choir__name_table schedule_table = CHOIR__NAME_TABLE(schedules);

const char *choir__job_schedule_names(size_t i)
{
    return i < CHOIR_COUNT(schedules) ? schedules[i] : NULL;
}

/* Reads the text's options. Steps that it does not name follow the job's (stretched). full,
 * unless it is NULL, gets the text with all others. */
static choir_status read_curve(const char *text, int kind, struct curve *c, char **full)
{
    choir__option all[] = {{"warmup", CHOIR__FLOAT, &c->warming, 0, 1e12},
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
        {"three_phase", CHOIR__FLAG, &c->three_phase, 0, 0},
        {"factor", CHOIR__FLOAT, &c->factor, 0, 0.999999},
        {"patience", CHOIR__INT, &c->patience, 0, 1e12},
        {"threshold", CHOIR__FLOAT, &c->threshold, 0, 1},
        {"cooldown", CHOIR__INT, &c->cooldown, 0, 1e12}};
    static const char *const own[] = {"warmup", "warmup steps min_lr", "warmup steps min_lr",
        "warmup size gamma", "warmup milestones gamma", "warmup gamma",
        "warmup steps min_lr power", "warmup size growth min_lr",
        "warmup steps rise first_factor last_factor straight three_phase",
        "warmup size down min_lr gamma halving", "warmup",
        "warmup factor patience threshold cooldown min_lr"};
    choir__option known[CHOIR_COUNT(all) + 1];
    int count = 0;
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        const char *at = strstr(own[kind], all[i].key);
        size_t length = strlen(all[i].key);
        if (at && (at == own[kind] || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            known[count++] = all[i];
    }
    known[count] = (choir__option){NULL};
    choir_status status = choir__options_parse(text, "the schedule", known);
    int at = 0;
    while (at < count && strcmp(known[at].key, "steps"))
        at++;
    c->stretched = (at < count && !c->steps) || (c->warming > 0 && c->warming < 1);
    if (status == CHOIR_OK && c->warming >= 1 && c->warming != floor(c->warming))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the schedule: warmup=%g: expected a whole number of steps, or a share of all steps "
            "below 1",
            c->warming);
    if (status == CHOIR_OK && full)
        *full = choir__options_text(schedules[kind], known);
    return status;
}

static choir_status read_schedule(const choir__job *j, int *kind, struct curve *c, char **full)
{
    choir_status status =
        choir__options_find(j->optim.schedule, &schedule_table, "schedule", kind);
    if (status != CHOIR_OK)
        return status;
    choir_plateau plateau = choir_plateau_defaults();
    *c = (struct curve){.size = 1000,
        .growth = 1,
        .gamma = *kind == CHOIR_LR_CYCLIC        ? 1
                 : *kind == CHOIR_LR_EXPONENTIAL ? 0.999
                                                 : 0.1,
        .power = 1,
        .rise = 0.3,
        .first_factor = 25,
        .last_factor = 1e4,
        .factor = 0.1,
        .patience = plateau.patience,
        .threshold = 1e-4};
    status = read_curve(j->optim.schedule, *kind, c, full);
    if (!c->steps)
        c->steps = j->training.steps;
    c->warmup =
        (int64_t)(c->warming < 1 ? ceil(c->warming * (double)j->training.steps) : c->warming);
    return status;
}

bool choir__job_is_stretched(const choir__job *j)
{
    struct curve c;
    int kind;
    return read_schedule(j, &kind, &c, NULL) == CHOIR_OK && c.stretched;
}

char *choir__job_schedule_text(const choir__job *j)
{
    struct curve c;
    int kind;
    char *full = NULL;
    return read_schedule(j, &kind, &c, &full) == CHOIR_OK ? full : NULL;
}

bool choir__job_plateau(const choir__job *j, choir_plateau *plateau)
{
    struct curve c;
    int kind;
    if (read_schedule(j, &kind, &c, NULL) != CHOIR_OK || kind != PLATEAU)
        return false;
    *plateau = (choir_plateau){.factor = (float)c.factor,
        .patience = c.patience,
        .threshold = (float)c.threshold,
        .cooldown = c.cooldown,
        .min_lr = (float)c.min_lr};
    return true;
}

static choir_status parse_schedule(const choir__job *j, choir_schedule *s)
{
    struct curve c;
    int kind;
    choir_status status = read_schedule(j, &kind, &c, NULL);
    if (status != CHOIR_OK)
        return status;
    *s = (choir_schedule){.kind = kind == PLATEAU ? CHOIR_LR_CONSTANT : kind,
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
    if (kind == CHOIR_LR_MULTISTEP)
        status = parse_milestones(c.milestones, s);
    return status == CHOIR_OK ? choir_schedule_check(s) : status;
}

choir_status choir__job_check_optimizer(const choir__job *j)
{
    choir__made_optimizer made;
    choir_schedule schedule;
    choir__job known = *j;
    if (!known.training.steps) /* epochs become steps once the data is open; until then no curve
                         ends too early */
        known.training.steps = INT64_MAX;
    choir_status status = choir__job_optimizer_make(&known, NULL, NULL, &made);
    if (status == CHOIR_OK)
        status = parse_schedule(&known, &schedule);
    return status == CHOIR_OK ? choir__job_check_groups(&j->optim) : status;
}

int64_t choir__job_warmup(const choir__job *j)
{
    choir_schedule schedule;
    return parse_schedule(j, &schedule) == CHOIR_OK ? schedule.warmup : 0;
}

/* Returns whether the parameter is a bias or a weight of a norm. */
static bool is_no_matrix(const char *name, const choir_tensor *t, void *arg)
{
    (void)name, (void)arg;
    return choir_tensor_ndim(t) < 2;
}

choir_status choir__job_optimizer(
    const choir__job *j, choir_scope *run, choir_module *net, choir_optim **optim)
{
    choir__made_optimizer made;
    choir_schedule schedule;
    choir_status status = parse_schedule(j, &schedule);
    if (status == CHOIR_OK)
        status = choir__job_optimizer_make(j, run, net, &made);
    if (status != CHOIR_OK)
        return status;
    *optim = made.optim;
    if (made.matrices_decay_alone)
        status = choir_optim_group(*optim, is_no_matrix, NULL, (float)j->optim.lr, 0);
    if (status == CHOIR_OK)
        status = choir__job_groups(
            &j->optim, *optim, (double)made.weight_decay, made.matrices_decay_alone);
    choir_optim_schedule(*optim, schedule);
    choir_average_opts average = {
        .decay = (float)j->optim.ema, .start = j->optim.swa, .every = j->optim.swa_every};
    if (status == CHOIR_OK && (j->optim.ema > 0 || j->optim.swa))
        status = choir_optim_average(*optim, average);
    const char *folder; /* state of off-loaded parameters follows them by itself */
    if (!choir__job_offload(&j->optim, &folder) && folder && status == CHOIR_OK)
        status = choir_optim_offload(*optim, folder);
    if (j->optim.clip > 0 ||
        ((j->records.json || j->training.on_spike || choir__job_is_logged(j)) &&
            !choir_optim_grad_norm(*optim))) /* LAMB has a limit of its own */
        choir_optim_clip(*optim, (float)j->optim.clip);
    return status == CHOIR_OK ? choir_scope_status(run) : status;
}
