/* Learning-rate schedules: pure functions of the step. */
#include <choir/optim.h>

#include <math.h>

#include "base/base.h"
#include "base/floats.h"
#include "base/math/functions.h"
#include "optim/optim.h"

choir_schedule choir_schedule_constant(void)
{
    return (choir_schedule){.kind = CHOIR_LR_CONSTANT,
        .steps = 1,
        .step_size = 1,
        .gamma = 1,
        .power = 1,
        .growth = 1,
        .rise = 0.3f,
        .first_factor = 25,
        .last_factor = 1e4f};
}

/* Returns the defaults with this kind. */
static choir_schedule of_kind(int kind, int64_t steps, float min_lr)
{
    choir_schedule s = choir_schedule_constant();
    s.kind = kind;
    s.steps = steps;
    s.min_lr = min_lr;
    return s;
}

choir_schedule choir_schedule_cosine(int64_t warmup, int64_t steps, float min_lr)
{
    choir_schedule s = of_kind(CHOIR_LR_COSINE, steps, min_lr);
    s.warmup = warmup;
    return s;
}

choir_schedule choir_schedule_linear(int64_t warmup, int64_t steps, float min_lr)
{
    choir_schedule s = of_kind(CHOIR_LR_LINEAR, steps, min_lr);
    s.warmup = warmup;
    return s;
}

choir_schedule choir_schedule_step(int64_t step_size, float gamma)
{
    choir_schedule s = of_kind(CHOIR_LR_STEP, 1, 0);
    s.step_size = step_size;
    s.gamma = gamma;
    return s;
}

choir_schedule choir_schedule_multistep(const int64_t *milestones, int count, float gamma)
{
    choir_schedule s = of_kind(CHOIR_LR_MULTISTEP, 1, 0);
    s.gamma = gamma;
    s.milestone_count = count; /* checked when the schedule is used */
    for (int i = 0; milestones && i < count && i < CHOIR_MAX_MILESTONES; i++)
        s.milestones[i] = milestones[i];
    return s;
}

choir_schedule choir_schedule_exponential(float gamma)
{
    choir_schedule s = of_kind(CHOIR_LR_EXPONENTIAL, 1, 0);
    s.gamma = gamma;
    return s;
}

choir_schedule choir_schedule_polynomial(int64_t steps, float power, float min_lr)
{
    choir_schedule s = of_kind(CHOIR_LR_POLYNOMIAL, steps, min_lr);
    s.power = power;
    return s;
}

choir_schedule choir_schedule_restarts(int64_t period, int64_t growth, float min_lr)
{
    choir_schedule s = of_kind(CHOIR_LR_RESTARTS, 1, min_lr);
    s.step_size = period;
    s.growth = growth;
    return s;
}

choir_schedule choir_schedule_one_cycle(int64_t steps)
{
    return of_kind(CHOIR_LR_ONE_CYCLE, steps, 0);
}

choir_schedule choir_schedule_cyclic(int64_t step_size, float min_lr)
{
    choir_schedule s = of_kind(CHOIR_LR_CYCLIC, 1, min_lr);
    s.step_size = step_size;
    return s;
}

choir_schedule choir_schedule_inverse_sqrt(int64_t warmup)
{
    choir_schedule s = of_kind(CHOIR_LR_INVERSE_SQRT, 1, 0);
    s.warmup = warmup;
    return s;
}

/* --- the curves: t counts from the end of the warm-up --- */

/* Goes from a to b while part goes from 0 to 1: along half a cosine, or a line. */
static double anneal(double a, double b, double part, bool straight)
{
    return straight ? a + (b - a) * part : b + (a - b) / 2 * (1 + choir__cos(M_PI * part));
}

static double restarts(const choir_schedule *s, double lr, int64_t t)
{
    int64_t period = choir__max(s->step_size, 1);
    while (t >= period && s->growth > 1) {
        t -= period;
        if (period > INT64_MAX / s->growth)
            break;
        period *= s->growth;
    }
    return anneal(lr, (double)s->min_lr, (double)(t % period) / (double)period, false);
}

/* The corners are at whole steps minus one, as in PyTorch. */
static double one_cycle(const choir_schedule *s, double lr, double t, double steps)
{
    double first = lr / (double)s->first_factor, last = first / (double)s->last_factor;
    double up = (double)s->rise * steps - 1, end = steps - 1;
    double down = s->three_phase ? 2 * (double)s->rise * steps - 2 : end;
    if (t <= up)
        return anneal(first, lr, up > 0 ? t / up : 1, s->straight);
    if (t <= down)
        return anneal(lr, s->three_phase ? first : last, (t - up) / (down - up), s->straight);
    return s->three_phase && t < end
               ? anneal(first, last, (t - down) / (end - down), s->straight)
               : last;
}

static double cyclic(const choir_schedule *s, double lr, int64_t t)
{
    int64_t up = choir__max(s->step_size, 1), down = s->step_down > 0 ? s->step_down : up;
    int64_t cycle = t / (up + down), at = t % (up + down);
    double height =
        at <= up ? (double)at / (double)up : (double)(up + down - at) / (double)down;
    if (s->halving)
        height = ldexp(height, -(int)choir__min(cycle, 2000)); /* 0 from there on */
    height *= choir__pow((double)s->gamma, (double)t);
    return (double)s->min_lr + (lr - (double)s->min_lr) * height;
}

static int64_t drops(const choir_schedule *s, int64_t t)
{
    if (s->kind == CHOIR_LR_STEP)
        return t / choir__max(s->step_size, 1);
    int64_t count = 0;
    for (int i = 0; i < s->milestone_count && i < CHOIR_MAX_MILESTONES; i++)
        count += t >= s->milestones[i];
    return count;
}

static CHOIR__APART float rate_at(const choir_schedule *s, float lr, int64_t t)
{
    if (s->kind == CHOIR_LR_INVERSE_SQRT) {
        double n = (double)t + 1, w = (double)choir__max(s->warmup, 1);
        return (float)((double)lr * fmin(n / w, sqrt(w / n)));
    }
    if (t < s->warmup)
        return (float)((double)lr * (double)(t + 1) / (double)(s->warmup + 1));
    t -= s->warmup;
    double span = (double)choir__max(s->steps - s->warmup, 1);
    double done = fmin((double)t / span, 1);
    double min = (double)s->min_lr, max = (double)lr, gamma = (double)s->gamma;
    switch (s->kind) {
    case CHOIR_LR_CONSTANT:
    case CHOIR_LR_INVERSE_SQRT: break;
    case CHOIR_LR_COSINE: return (float)anneal(max, min, done, false);
    case CHOIR_LR_LINEAR: return (float)anneal(max, min, done, true);
    case CHOIR_LR_STEP:
    case CHOIR_LR_MULTISTEP: return (float)(max * choir__pow(gamma, (double)drops(s, t)));
    case CHOIR_LR_EXPONENTIAL: return (float)(max * choir__pow(gamma, (double)t));
    case CHOIR_LR_POLYNOMIAL:
        return (float)(min + (max - min) * choir__pow(1 - done, (double)s->power));
    case CHOIR_LR_RESTARTS: return (float)restarts(s, max, t);
    case CHOIR_LR_ONE_CYCLE: return (float)one_cycle(s, max, (double)t, span);
    case CHOIR_LR_CYCLIC: return (float)cyclic(s, max, t);
    }
    return lr;
}

float choir_schedule_at(const choir_schedule *s, float lr, int64_t t)
{
    CHOIR__DEFAULT_FLOATS;
    return choir__lacks(s, __func__, "schedule") ? 0 : rate_at(s, lr, t);
}

/* --- what makes no sense --- */

static const char *wrong_with(const choir_schedule *s)
{
    if (s->kind < CHOIR_LR_CONSTANT || s->kind > CHOIR_LR_INVERSE_SQRT)
        return "unknown kind";
    if (s->warmup < 0)
        return "expected a warm-up of 0 or more";
    if (!(s->min_lr >= 0 && isfinite(s->min_lr)))
        return "expected a min_lr of at least 0";
    bool ends = s->kind == CHOIR_LR_COSINE || s->kind == CHOIR_LR_LINEAR ||
                s->kind == CHOIR_LR_POLYNOMIAL || s->kind == CHOIR_LR_ONE_CYCLE;
    if (ends && s->steps < 1)
        return "expected 1 step or more";
    bool drops_by = s->kind == CHOIR_LR_STEP || s->kind == CHOIR_LR_MULTISTEP ||
                    s->kind == CHOIR_LR_EXPONENTIAL || s->kind == CHOIR_LR_CYCLIC;
    if (drops_by && !(s->gamma >= 0 && isfinite(s->gamma)))
        return "expected a gamma of at least 0";
    bool periodic =
        s->kind == CHOIR_LR_STEP || s->kind == CHOIR_LR_RESTARTS || s->kind == CHOIR_LR_CYCLIC;
    if (periodic && s->step_size < 1)
        return "expected a period of 1 step or more";
    if (s->kind == CHOIR_LR_RESTARTS && s->growth < 1)
        return "expected a growth of at least 1";
    if (s->kind == CHOIR_LR_POLYNOMIAL && !(s->power > 0))
        return "expected a power above 0";
    if (s->kind == CHOIR_LR_ONE_CYCLE &&
        !(s->rise > 0 && s->rise < 1 && s->first_factor > 0 && s->last_factor > 0))
        return "expected a rise between 0 and 1, and both factors above 0";
    if (s->kind == CHOIR_LR_ONE_CYCLE && s->three_phase && s->rise > 0.5f)
        return "three phases leave at most half of the steps to the rise";
    if (s->kind != CHOIR_LR_MULTISTEP)
        return NULL;
    if (s->milestone_count < 1 || s->milestone_count > CHOIR_MAX_MILESTONES)
        return "expected 1 to 16 milestones";
    for (int i = 0; i < s->milestone_count; i++)
        if (s->milestones[i] < (i ? s->milestones[i - 1] + 1 : 0))
            return "expected milestones that increase";
    return NULL;
}

choir_status choir_schedule_check(const choir_schedule *s)
{
    if (!s)
        return choir__missing(__func__, "schedule");
    const char *wrong = wrong_with(s);
    return wrong ? choir__error(CHOIR_ERR_ARGUMENT, "the schedule: %s", wrong) : CHOIR_OK;
}

/* --- by a measure --- */

choir_plateau choir_plateau_defaults(void)
{
    return (choir_plateau){.factor = 0.1f, .patience = 10, .threshold = 1e-4f};
}

static CHOIR__APART float next_rate(choir_plateau *p, float lr, double measure)
{
    if (p->factor == 0 && p->patience == 0 && p->threshold == 0)
        *p = choir_plateau_defaults();
    if (!p->started || measure < p->best * (1 - (double)p->threshold)) {
        p->best = isnan(measure) ? INFINITY : measure;
        p->bad = 0;
        p->started = true;
    } else {
        p->bad++;
    }
    if (p->cooling > 0) {
        p->cooling--;
        p->bad = 0;
    }
    if (p->bad <= p->patience)
        return lr;
    p->cooling = p->cooldown;
    p->bad = 0;
    float lower = fmaxf(lr * p->factor, fminf(p->min_lr, lr));
    return (double)lr - (double)lower > 1e-8 ? lower : lr; /* like PyTorch's eps */
}

float choir_plateau_next(choir_plateau *p, float lr, double measure)
{
    CHOIR__DEFAULT_FLOATS;
    return choir__lacks(p, __func__, "plateau") ? 0 : next_rate(p, lr, measure);
}
