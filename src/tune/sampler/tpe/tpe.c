/* The tree-structured Parzen estimator: trials are divided into the best few and the others,
 * the density of each group's parameters is estimated, and of some draws from the density of
 * the best, the next trial takes the one that is likelier there than elsewhere, by the largest
 * factor.
 *
 *     best: the first min(ceil(n / 10), 25) of n trials; complete ones by value, then pruned
 *     ones by how far they came and by the last value
 *
 * If there are more than `kernels` others, every k-th stands for k of them, so that a
 * suggestion takes as long after 10,000 trials as after 1,000.
 *
 * Trials that run count as others ("constant liar"), so that trials that run at once differ,
 * unless liar=0. Parameters that
 * every trial has are drawn together ("multivariate"), unless the study has several objectives;
 * conditional parameters alone, from the trials that have them. The first `startup` trials are
 * random.
 *
 * Sources: Bergstra et al., "Algorithms for hyper-parameter optimization" (2011), and Optuna's
 * TPESampler, whose defaults these are (rule=5; rule=4 is its version 4's). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/sampler.h"
#include "tune/sampler/tpe/parzen.h"

/* One parameter's trials, by coordinate. A trial is added when it is first seen. */
typedef struct column {
    double *unit;    /* (trials) by number; NaN: the trial lacks the parameter */
    int32_t *sorted; /* (sorted_count) numbers of the trials that have it */
    int64_t sorted_count;
    choir__kernel_mass *mass; /* (trials) by number */
} column;

typedef struct tpe {
    choir__tune_sampler base;
    const choir_space *space;
    int64_t startup, candidates, rule, kernels;
    bool multivariate, liar;
    column *column;  /* (space->count) */
    int64_t seen;    /* trials in the columns */
    int64_t *ranked; /* (ranked_count) numbers of the trials that count, the best first */
    int64_t ranked_count, judged; /* judged: news that was looked at */
    bool *is_ranked;              /* (seen) */
    int8_t *group;                /* (seen) 0: neither, or BEST, or OTHER */
    int32_t *place, *chosen;      /* (seen) scratch: see choose */
    int64_t room;
} tpe;

enum { BEST = 1, OTHER = 2 };
enum { FEW = 32 }; /* trials that are sorted as quickly as found in an order of all */

/* --- opening --- */

static choir_status open_tpe(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)seed;
    tpe *t = choir__calloc(1, sizeof *t);
    *t = (tpe){.base.ops = &choir__tune_sampler_tpe,
        .space = first->space,
        .startup = 10,
        .candidates = 24,
        .rule = 5,
        .kernels = 1000,
        .liar = true};
    char multivariate[64] = "";
    const choir__option known[] = {
        {"startup", CHOIR__INT, &t->startup, 0, 1e9},
        {"candidates", CHOIR__INT, &t->candidates, 1, 1e6},
        {"rule", CHOIR__INT, &t->rule, 4, 5},
        {"kernels", CHOIR__INT, &t->kernels, 100, 1e9},
        {"multivariate", CHOIR__WORD, multivariate, 0, 0},
        {"liar", CHOIR__FLAG, &t->liar, 0, 1},
        {NULL},
    };
    choir_status status = choir__options_parse(text, "sampler tpe", known);
    if (status == CHOIR_OK && first->objectives > 1)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "sampler tpe: expected one direction, got %d", first->objectives);
    const choir__option flag = {"multivariate", CHOIR__FLAG, &t->multivariate, 0, 1};
    t->multivariate = t->rule == 5;
    if (status == CHOIR_OK && *multivariate && !choir__option_set(&flag, multivariate))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "sampler tpe: multivariate: expected true or false, got '%s'", multivariate);
    t->column = choir__calloc((size_t)first->space->count, sizeof *t->column);
    if (status == CHOIR_OK)
        *sampler = &t->base;
    else
        choir__tune_sampler_tpe.free(&t->base);
    return status;
}

static void free_tpe(choir__tune_sampler *s)
{
    tpe *t = (tpe *)(void *)s;
    for (int i = 0; i < t->space->count; i++) {
        free(t->column[i].unit);
        free(t->column[i].sorted);
        free(t->column[i].mass);
    }
    free(t->column);
    free(t->ranked);
    free(t->group);
    free(t->is_ranked);
    free(t->place);
    free(t->chosen);
    free(t);
}

/* --- the trials so far --- */

static void grow(tpe *t, int64_t count)
{
    if (count <= t->room)
        return;
    t->room = choir__max(64, 2 * count);
    size_t n = (size_t)t->room;
    for (int i = 0; i < t->space->count; i++) {
        t->column[i].unit = choir__realloc(t->column[i].unit, n * sizeof(double));
        t->column[i].sorted = choir__realloc(t->column[i].sorted, n * sizeof(int32_t));
        t->column[i].mass = choir__realloc(t->column[i].mass, n * sizeof(choir__kernel_mass));
    }
    t->ranked = choir__realloc(t->ranked, n * sizeof *t->ranked);
    t->group = choir__realloc(t->group, n);
    t->is_ranked = choir__realloc(t->is_ranked, n);
    t->place = choir__realloc(t->place, n * sizeof *t->place);
    t->chosen = choir__realloc(t->chosen, n * sizeof *t->chosen);
}

/* Returns where in `sorted` a trial's coordinate belongs: after all that are equal. */
static int64_t find_place(const column *c, double unit)
{
    int64_t low = 0, high = c->sorted_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (c->unit[c->sorted[middle]] <= unit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_to_column(column *c, const choir__dist *dist, int64_t number, double value)
{
    choir__parzen_kernels k = {.dist = dist};
    double high;
    choir__inner_range(dist, &k.low, &high);
    k.scale = high > k.low ? high - k.low : 1;
    c->unit[number] = isnan(value) ? value : choir__to_unit(&k, value);
    c->mass[number] = (choir__kernel_mass){0};
    if (isnan(value))
        return;
    int64_t at = find_place(c, c->unit[number]);
    memmove(c->sorted + at + 1, c->sorted + at,
        (size_t)(c->sorted_count++ - at) * sizeof *c->sorted);
    c->sorted[at] = (int32_t)number;
}

/* Returns whether trial a is better than b. */
static bool better(const choir_trial *a, const choir_trial *b, double sign)
{
    if (a->known != b->known)
        return a->known == CHOIR_TRIAL_COMPLETE;
    if (a->known == CHOIR_TRIAL_COMPLETE)
        return a->values[0] * sign < b->values[0] * sign;
    const choir__report *x = &a->reports[a->known_reports - 1];
    const choir__report *y = &b->reports[b->known_reports - 1];
    if (x->step != y->step)
        return x->step > y->step;
    return x->value * sign < y->value * sign || (isnan(y->value) && !isnan(x->value));
}

/* Takes out a resumed trial, which has another result now. */
static void unrank(tpe *t, int64_t number)
{
    int64_t at = 0;
    while (t->ranked[at] != number)
        at++;
    t->ranked_count--;
    memmove(
        t->ranked + at, t->ranked + at + 1, (size_t)(t->ranked_count - at) * sizeof *t->ranked);
    t->is_ranked[number] = false;
}

static void rank(tpe *t, const choir__history *h, const choir_trial *trial)
{
    if (!choir__trial_counts(trial) || t->is_ranked[trial->number])
        return;
    t->is_ranked[trial->number] = true;
    int64_t low = 0, high = t->ranked_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (better(trial, h->trial[t->ranked[middle]], h->sign[0]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(t->ranked + low + 1, t->ranked + low,
        (size_t)(t->ranked_count++ - low) * sizeof *t->ranked);
    t->ranked[low] = trial->number;
}

/* Takes up the trials since the last call. */
static void learn(tpe *t, const choir__history *h)
{
    grow(t, h->count);
    for (; t->seen < h->count; t->seen++) {
        t->is_ranked[t->seen] = false;
        for (int i = 0; i < t->space->count; i++)
            add_to_column(
                &t->column[i], &t->space->param[i].dist, t->seen, h->trial[t->seen]->params[i]);
    }
    for (int64_t i = t->judged; i < h->news_count; i++)
        if (t->is_ranked[h->news[i]])
            unrank(t, h->news[i]);
    for (; t->judged < h->news_count; t->judged++)
        rank(t, h, h->trial[h->news[t->judged]]);
}

/* Divides the trials into the best, the others, and those that failed. */
static void divide(tpe *t, const choir__history *h)
{
    memset(t->group, 0, (size_t)t->seen);
    int64_t best = choir__min((t->ranked_count + 9) / 10, 25);
    for (int64_t i = 0; i < t->ranked_count; i++)
        t->group[t->ranked[i]] = i < best ? BEST : OTHER;
    for (int64_t i = 0; i < h->count && t->liar; i++)
        if (h->trial[i]->known == CHOIR_TRIAL_RUNNING)
            t->group[i] = OTHER;
}

/* --- estimates --- */

/* Finds the trials of a group that have the parameters `of` (dims): writes their numbers to
 * t->chosen, and each trial's place among them, or -1, to t->place. Returns their number, at
 * most t->kernels. */
static int64_t choose(tpe *t, const int *of, int dims, int group)
{
    int64_t taken = 0, all = 0, due = 0;
    for (int64_t i = 0; i < t->seen; i++)
        t->place[i] = t->group[i] == group ? 0 : -1;
    for (int d = 0; d < dims; d++) {
        const column *c = &t->column[of[d]];
        for (int64_t i = 0; i < t->seen && c->sorted_count < t->seen; i++)
            t->place[i] = isnan(c->unit[i]) ? -1 : t->place[i];
    }
    for (int64_t i = 0; i < t->seen; i++)
        all += t->place[i] == 0;
    int64_t most = choir__min(all, t->kernels);
    for (int64_t i = 0; i < t->seen; i++) {
        if (t->place[i] < 0)
            continue;
        due += most; /* the newest of all is always taken */
        bool take = due >= all;
        due -= take ? all : 0;
        t->place[i] = take ? (int32_t)taken : -1;
        t->chosen[taken] = (int32_t)i;
        taken += take;
    }
    return taken;
}

/* Lists the chosen trials by coordinate; trials with equal coordinates are listed by number.
 * The list has room for one number more than that. At most FEW trials are sorted here. */
static void list_chosen(const tpe *t, const column *c, int64_t count, int32_t *list)
{
    for (int64_t i = 0, found = 0; i < c->sorted_count && count > FEW; i++) {
        list[found] = c->sorted[i]; /* a branch would be mispredicted */
        found += t->place[c->sorted[i]] >= 0;
    }
    for (int64_t i = 0; i < count && count <= FEW; i++) {
        int64_t at = i;
        for (; at && c->unit[list[at - 1]] > c->unit[t->chosen[i]]; at--)
            list[at] = list[at - 1];
        list[at] = t->chosen[i];
    }
}

/* The density of the parameters `of` (dims) in one group's trials that have all of them. */
static choir__parzen *estimate(tpe *t, const int *of, int dims, int group)
{
    int64_t count = choose(t, of, dims, group);
    const choir__dist *dist[CHOIR_SPACE_MAX];
    choir__kernel_mass **mass[CHOIR_SPACE_MAX];
    size_t each = (size_t)count + 1;
    int32_t *rows = choir__alloc(each * (size_t)dims * sizeof *rows);
    choir__kernel_mass **masses = choir__alloc(each * (size_t)dims * sizeof(void *));
    for (int d = 0; d < dims; d++)
        dist[d] = &t->space->param[of[d]].dist;
    choir__parzen *p = choir__parzen_new(dist, dims, count);
    for (int d = 0; d < dims; d++) {
        const column *c = &t->column[of[d]];
        int32_t *row = rows + each * (size_t)d;
        p->of[d].sorted = row;
        mass[d] = masses + each * (size_t)d;
        list_chosen(t, c, count, row);
        for (int64_t i = 0; i < count; i++) {
            int32_t trial = row[i], place = row[i] = t->place[trial];
            p->of[d].mu[place] = c->unit[trial];
            mass[d][place] = &c->mass[trial];
        }
    }
    choir__parzen_fit(p,
        t->rule == 4 && t->multivariate ? CHOIR__WIDTH_SCOTT : CHOIR__WIDTH_NEIGHBOURS,
        (choir__kernel_mass *const *const *)(void *)mass);
    p->rows = rows;
    free(masses);
    return p;
}

/* Suggests the parameters `of` together. */
static void suggest_some(tpe *t, const int *of, int dims, choir__draws *draws, double *params)
{
    int64_t allowed = 0;
    choir__parzen *best = estimate(t, of, dims, BEST);
    choir__parzen *other = estimate(t, of, dims, OTHER);
    double x[CHOIR_SPACE_MAX], tried[CHOIR_SPACE_MAX], most = -(double)INFINITY;
    memcpy(tried, params, (size_t)t->space->count * sizeof *tried);
    for (int64_t i = 0; i < t->candidates; i++) {
        choir__parzen_draw(best, draws, x);
        for (int d = 0; d < dims; d++)
            tried[of[d]] = choir__from_unit(&best->of[d], x[d]);
        double gain = choir__parzen_log(best, x) - choir__parzen_log(other, x);
        if (gain > most && choir__space_allows(t->space, tried)) {
            most = gain;
            allowed++;
            for (int d = 0; d < dims; d++)
                params[of[d]] = tried[of[d]];
        }
    }
    for (int d = 0; d < dims && !allowed; d++) /* the study refuses them, and asks again */
        params[of[d]] = choir__dist_draw(&t->space->param[of[d]].dist, draws);
    choir__parzen_free(best);
    choir__parzen_free(other);
}

/* Parameters of a single value have no density, and kernels for them would only disturb the
 * others' density. */
static bool is_constant(const tpe *t, int i)
{
    return choir__dist_size(&t->space->param[i].dist) == 1;
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    tpe *t = (tpe *)(void *)s;
    learn(t, h);
    choir__space_draw(h->space, draws, params);
    if (t->ranked_count < t->startup || !t->ranked_count)
        return CHOIR_OK;
    divide(t, h);
    for (int i = 0; i < h->space->count; i++) /* undecided parameters exclude nothing */
        params[i] = (double)NAN;
    int joint[CHOIR_SPACE_MAX], count = 0;
    for (int i = 0; i < h->space->count; i++)
        if (t->multivariate && !h->space->param[i].only_if && !is_constant(t, i))
            joint[count++] = i;
    if (count)
        suggest_some(t, joint, count, draws, params);
    for (int i = 0; i < h->space->count; i++) {
        if (!choir__space_active(h->space, i, params))
            params[i] = (double)NAN;
        else if (is_constant(t, i))
            params[i] = choir__from_cube(&h->space->param[i].dist, 0.5);
        else if (!t->multivariate || h->space->param[i].only_if)
            suggest_some(t, &i, 1, draws, params);
    }
    return CHOIR_OK;
}

const choir__tune_sampler_ops choir__tune_sampler_tpe = {
    .name = "tpe", .open = open_tpe, .suggest = suggest, .free = free_tpe};
